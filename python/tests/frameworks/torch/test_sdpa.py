# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""scaled_dot_product_attention of PyTorch, and models that call it."""

import types

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

import fovea.torch
from fovea import _fovea
from fovea.torch import _sdpa

BOUNDS = {torch.float32: 1e-5, torch.float64: 1e-13, torch.float16: 5e-3, torch.bfloat16: 4e-2}


@pytest.fixture
def served(monkeypatch):
    """How often the kernels of Fovea ran."""
    counts = {"forward": 0, "backward": 0}

    class Compiled:
        """The compiled functions."""

        def dense(self, *arguments, **options):
            counts["forward"] += 1
            return _fovea.tensors.dense(*arguments, **options)

        def dense_backward(self, *arguments, **options):
            counts["backward"] += 1
            found = _fovea.tensors.dense_backward(*arguments, **options)
            # None of a mask, which would be as large as that.
            assert len(found) == 3
            return found

    monkeypatch.setattr(_sdpa, "_fovea", types.SimpleNamespace(tensors=Compiled()))
    fovea.torch.explain_fallbacks(clear=True)
    return counts


def qkv(type=torch.float32, B=2, H=4, G=4, N=33, M=None, D=16, E=None, turned=False):
    torch.manual_seed(0)
    M = N if M is None else M
    shapes = (B, H, N, D), (B, G, M, D), (B, G, M, E or D)
    found = [torch.randn(*shape).to(type) for shape in shapes]
    if turned:
        found = [each.transpose(1, 2).contiguous().transpose(1, 2) for each in found]
    return [each.requires_grad_() for each in found]


def run(tensors, **options):
    """The output, and gradients of a weighted sum; a fourth tensor is a mask."""
    out = scaled_dot_product_attention(*tensors, **options)
    torch.manual_seed(1)
    # In the order of axes, whatever that in memory is.
    weights = torch.randn(out.shape, dtype=out.dtype)
    return out, *torch.autograd.grad((out * weights).sum(), tensors)


def compare(tensors, any_layout=False, **options):
    """PyTorch's formula gives contiguous outputs, Fovea those with the order of axes of queries."""
    expected = run(tensors, **options)
    with fovea.torch.sdpa():
        found = run(tensors, **options)
    size = max(each.abs().max() for each in expected[1:])
    for one, other, bound in zip(found, expected, (expected[0].abs().max(), *[size] * len(tensors)), strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape
        assert any_layout or one.stride() == other.stride()
        assert (one - other).abs().max() <= BOUNDS[one.dtype] * bound


@pytest.mark.parametrize("type", BOUNDS)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("N", [1, 32, 97])
def test_agrees_with_pytorch(served, type, is_causal, N):
    compare(qkv(type, N=N), is_causal=is_causal)
    assert served == {"forward": 1, "backward": 1}


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"scale": 0.7}])
def test_layouts_are_those_of_pytorch(served, options):
    compare(qkv(turned=True), **options)
    compare(qkv(N=9, M=20, turned=True), **options)
    assert served == {"forward": 2, "backward": 2}


def test_grouped_heads(served):
    compare(qkv(H=8, G=2), enable_gqa=True)
    assert served["forward"] == 1


@pytest.mark.parametrize("shape", [(33, 33), (1, 1, 33, 33), (2, 1, 1, 33), (2, 4, 33, 33), (2, 1, 33, 33)])
@pytest.mark.parametrize("is_boolean", [True, False])
def test_masks(served, shape, is_boolean):
    torch.manual_seed(3)
    mask = torch.randn(*shape)
    if is_boolean:
        mask = mask > -0.5
        mask[..., 0] = True
    compare(qkv(), attn_mask=mask)
    assert served == {"forward": 1, "backward": 1}


def test_rows_without_a_key(served):
    mask = torch.ones(33, 33, dtype=torch.bool)
    mask[5] = False
    tensors = qkv()
    with fovea.torch.sdpa():
        out, *gradients = run(tensors, attn_mask=mask)
    assert not out[:, :, 5].any() and all(each.isfinite().all() for each in gradients)
    assert not gradients[0][:, :, 5].any()


@pytest.mark.parametrize("type", BOUNDS)
@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"scale": 0.7}, {"enable_gqa": True}], ids=str)
def test_values_of_another_width(type, options):
    """PyTorch gives them to no flash kernel."""
    groups = 2 if "enable_gqa" in options else 4
    for tensors in (qkv(type, E=5, G=groups), qkv(type, E=40, N=9, M=20, G=groups, turned=True)):
        fovea.torch.explain_fallbacks(clear=True)
        compare(tensors, any_layout=True, **options)
        assert not fallbacks()


@pytest.mark.parametrize("shape", [(33, 20), (1, 20), (20,), (1, 1, 33, 20), (2, 1, 1, 20), (2, 4, 33, 20), (4, 33, 20)])
@pytest.mark.parametrize("E", [16, 5])
def test_masks_that_train(shape, E):
    torch.manual_seed(3)
    mask = torch.randn(*shape, requires_grad=True)
    fovea.torch.explain_fallbacks(clear=True)
    compare([*qkv(M=20, E=E), mask], any_layout=True)
    assert not fallbacks()
    with fovea.torch.sdpa(), torch.no_grad():
        scaled_dot_product_attention(*qkv(M=20, E=E), attn_mask=mask)


def test_masks_of_float32_beside_float64():
    """PyTorch's own kernel takes their bytes for float64, so numbers are those of a wide mask."""
    tensors, mask = qkv(torch.float64), torch.randn(33, 33)
    expected = run(tensors, attn_mask=mask.double())
    for trains in (False, True):
        with fovea.torch.sdpa():
            found = run(tensors, attn_mask=mask.requires_grad_(trains))
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-13 * other.abs().max().item() * 33)


def test_what_is_asked_of_pytorch_is_pytorch():
    """A formula by name, and transforms."""
    tensors = qkv(E=5)
    fovea.torch.explain_fallbacks(clear=True)
    expected = run(tensors)
    with fovea.torch.sdpa(), torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        found = run(tensors)
    ((_, reason),) = fallbacks()
    assert reason.startswith("flash kernels are switched off")
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)
    loss = torch.func.grad(lambda q: scaled_dot_product_attention(q, *tensors[1:]).sum())
    expected = loss(tensors[0].detach())
    with fovea.torch.sdpa():
        found = loss(tensors[0].detach())
    assert torch.equal(found, expected) and fallbacks()[0][1].startswith("a transform of torch.func")


def fallbacks():
    return [(each.caller.split(".")[-1], each.reason) for each in fovea.torch.explain_fallbacks(clear=True)]


@pytest.mark.parametrize(
    "make, options, reason",
    [
        (lambda: qkv(N=20, M=9), {"is_causal": True}, "is_causal: found 20 queries and 9 keys"),
        (lambda: qkv(N=20, M=9, E=5), {"is_causal": True}, "is_causal: found 20 queries and 9 keys"),
        (lambda: qkv(), {"dropout_p": 0.5}, "dropout_p: found 0.5, needed 0"),
    ],
)
def test_others_are_left_to_pytorch(served, make, options, reason):
    tensors = make()
    torch.manual_seed(2)
    expected = run(tensors, **options)
    fovea.torch.explain_fallbacks(clear=True)
    torch.manual_seed(2)
    with fovea.torch.sdpa():
        found = run(tensors, **options)
    assert served == {"forward": 0, "backward": 0}
    ((caller, found_reason),) = fallbacks()
    assert caller == "scaled_dot_product_attention" and found_reason.startswith(reason)
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)


def test_is_removed(served):
    tensors = qkv()
    before = run(tensors)
    with pytest.raises(KeyError), fovea.torch.sdpa():
        raise KeyError
    fovea.torch.sdpa(enable=True)
    fovea.torch.sdpa(enable=True)
    run(tensors)
    assert served["forward"] == 1
    with fovea.torch.sdpa():
        run(tensors)
    run(tensors)
    assert served["forward"] == 3
    fovea.torch.sdpa(enable=False)
    fovea.torch.sdpa(enable=False)
    with pytest.raises(ValueError, match="^enable: found 'False', needed True or False$"):
        fovea.torch.sdpa(enable="False")
    assert torch.nn.attention.current_flash_attention_impl() is None
    after = run(tensors)
    assert served["forward"] == 3
    for one, other in zip(before, after, strict=True):
        assert torch.equal(one, other)
    scaled_dot_product_attention(*qkv(), dropout_p=0.5)
    assert not fallbacks()


MODELS = {
    "encoder": lambda: torch.nn.TransformerEncoder(
        torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True), 2, enable_nested_tensor=False
    ),
    "decoder": lambda: torch.nn.TransformerDecoder(
        torch.nn.TransformerDecoderLayer(32, 4, 64, dropout=0.0, batch_first=True), 1
    ),
}


@pytest.mark.parametrize("kind", MODELS)
def test_models_of_pytorch_unchanged(served, kind):
    torch.manual_seed(0)
    model = MODELS[kind]()
    tokens = torch.randn(2, 19, 32)
    padding = torch.zeros(2, 19, dtype=torch.bool)
    padding[1, 12:] = True
    causal = torch.nn.Transformer.generate_square_subsequent_mask(19)
    calls = {
        "encoder": lambda: model(tokens, mask=causal, src_key_padding_mask=padding.float() * -1e9),
        "decoder": lambda: model(tokens, torch.ones(2, 7, 32), tgt_mask=causal),
    }

    def step():
        model.zero_grad()
        out = calls[kind]()
        out.square().mean().backward()
        return [out.detach(), *(each.grad.clone() for each in model.parameters())]

    expected = step()
    with fovea.torch.sdpa():
        found = step()
    assert served["forward"] == served["backward"] >= 2 and not fallbacks()
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_multihead_attention_unchanged(served):
    torch.manual_seed(0)
    model = torch.nn.MultiheadAttention(32, 4, batch_first=True)
    x = torch.randn(2, 19, 32, requires_grad=True)
    expected = model(x, x, x, need_weights=False)[0]
    with fovea.torch.sdpa():
        found = model(x, x, x, need_weights=False)[0]
    assert served["forward"] == 1
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiles_in_one_graph(served, turned, backend):
    torch.compiler.reset()
    tensors = qkv(turned=turned)
    expected = run(tensors, is_causal=True)

    @torch.compile(fullgraph=True, backend=backend)
    def function(q, k, v):
        return scaled_dot_product_attention(q, k, v, is_causal=True) * 2

    with fovea.torch.sdpa():
        out = function(*tensors)
        torch.manual_seed(1)
        gradients = torch.autograd.grad((out * torch.randn(out.shape)).sum() / 2, tensors)
    assert served == {"forward": 1, "backward": 1}
    for one, other in zip((out / 2, *gradients), expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=2e-5)


def test_nested_tensors_are_left():
    tensors = torch.nested.nested_tensor([torch.randn(6, 4, 8), torch.randn(3, 4, 8)], layout=torch.jagged).transpose(1, 2)
    expected = scaled_dot_product_attention(tensors, tensors, tensors)
    fovea.torch.explain_fallbacks(clear=True)
    with fovea.torch.sdpa():
        found = scaled_dot_product_attention(tensors, tensors, tensors)
    assert all(map(torch.equal, found.unbind(), expected.unbind()))
    assert "nested" in fovea.torch.explain_fallbacks()[0].reason


@pytest.mark.parametrize("kind", [torch.bool, torch.float32])
def test_gradients_behind_it(kind):
    """What a step of training calls behind the context, of rows that read no key as well."""
    q, k, v = (torch.randn(2, 3, 5, 8, requires_grad=True) for _ in range(3))
    mask = torch.rand(2, 1, 5, 5) > 0.4
    mask[0, :, 2], mask[1] = False, False
    mask = mask if kind == torch.bool else torch.where(mask, 0.5, -torch.inf)

    def attend():
        return scaled_dot_product_attention(q, k, v, attn_mask=mask)

    with fovea.torch.sdpa():
        out = attend()
        within = torch.autograd.grad(out.sin().sum(), (q, k, v), retain_graph=True)
    behind = torch.autograd.grad(out.sin().sum(), (q, k, v))
    expected = attend()
    torch.testing.assert_close(out, expected)
    for one, other, known in zip(within, behind, torch.autograd.grad(expected.sin().sum(), (q, k, v)), strict=True):
        torch.testing.assert_close(one, known)
        torch.testing.assert_close(other, known)
