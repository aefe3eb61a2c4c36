# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""dense on tensors: numbers, types, layouts and errors."""

import numpy as np
import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

import fovea
import fovea.torch

TYPES = {torch.float32: 1e-5, torch.float64: 1e-13, torch.float16: 3e-3, torch.bfloat16: 2e-2}


def qkv(type=torch.float32, B=2, H=4, G=2, N=33, M=None, D=16, E=16, gradients=False):
    torch.manual_seed(0)
    M = N if M is None else M
    shapes = (B, H, N, D), (B, G, M, D), (B, G, M, E)
    return [torch.randn(*shape).to(type).requires_grad_(gradients) for shape in shapes]


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("N", [1, 31, 32, 33, 97])
def test_agrees_with_sdpa(type, N):
    q, k, v = qkv(type, N=N, gradients=True)
    found = fovea.torch.dense(q, k, v, causal=True)
    expected = scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    assert found.dtype == type and found.stride() == expected.contiguous().stride()
    d_out = torch.randn(*found.shape).to(type)
    assert (found - expected).abs().max() <= TYPES[type] * expected.abs().max()
    gradients = [torch.autograd.grad(each, (q, k, v), d_out) for each in (found, expected)]
    # Those of one key are zeros for q and k.
    size = max(each.abs().max() for each in gradients[1])
    for one, other in zip(*gradients):
        assert (one - other).abs().max() <= TYPES[type] * size


@pytest.mark.parametrize("type", TYPES)
def test_has_the_bits_of_the_function_on_arrays(type):
    tensors = qkv(type)
    if type == torch.bfloat16:
        ml_dtypes = pytest.importorskip("ml_dtypes")
        arrays = [each.view(torch.int16).numpy().view(ml_dtypes.bfloat16) for each in tensors]
    else:
        arrays = [each.numpy() for each in tensors]
    out, lse = fovea.torch.dense(*tensors, causal=True, return_lse=True)
    expected = fovea.dense(*arrays, causal=True, return_lse=True)
    np.testing.assert_array_equal(out.double().numpy(), expected[0].astype(np.float64))
    np.testing.assert_array_equal(lse.numpy(), expected[1])


def test_reads_strides_in_place():
    q, k, v = qkv()
    turned = [each.transpose(1, 2).contiguous().transpose(1, 2) for each in (q, k, v)]
    assert torch.equal(fovea.torch.dense(*turned), fovea.torch.dense(q, k, v))
    assert torch.equal(fovea.torch.dense(q[:, :, ::2], k, v), fovea.torch.dense(q[:, :, ::2].contiguous(), k, v))


def pairs(N, M, lengths, query_lengths, causal=False, prefix=0):
    """Which queries read which keys, as a mask of PyTorch's function [B,1,N,M].  The last query
    that there is sees the last key that there is."""
    rows, columns = torch.arange(N)[:, None], torch.arange(M)
    keys, queries = lengths[:, None, None, None], query_lengths[:, None, None, None]
    reads = (columns < keys) & (rows < queries)
    return reads & ((columns <= rows + keys - queries) | (columns < prefix)) if causal else reads


LIMITS = [
    dict(lengths=[40, 1, 33]),
    dict(lengths=[40, 0, 17], query_lengths=[33, 20, 0]),
    dict(query_lengths=[1, 33, 32]),
    dict(causal=True, prefix=9),
    dict(causal=True, prefix=39, lengths=[32, 40, 5]),
    dict(causal=True, prefix=3, lengths=[8, 40, 5], query_lengths=[7, 0, 33]),
]


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("limits", LIMITS, ids=str)
def test_limits_agree_with_masks_of_sdpa(limits, type):
    """Numbers and gradients, with NaN in the rows that a call says are not there."""
    N, M = 33, 40
    limits = {name: torch.tensor(each) if isinstance(each, list) else each for name, each in limits.items()}
    q, k, v = qkv(type, B=3, N=N, M=M)
    reads = pairs(N, M, **{"lengths": torch.full([3], M), "query_lengths": torch.full([3], N), **limits})
    plain = [each.clone().requires_grad_() for each in (q, k, v)]
    # PyTorch gives zeros to rows without keys, too.
    expected = scaled_dot_product_attention(*plain, attn_mask=reads, enable_gqa=True)
    d_out = torch.randn_like(expected)
    for each, name in ((q, "query_lengths"), (k, "lengths"), (v, "lengths"), (d_out, "query_lengths")):
        for b, length in enumerate(limits.get(name, ())):
            each[b, :, length:] = float("nan")
    own = [each.requires_grad_() for each in (q, k, v)]
    found = fovea.torch.dense(*own, **limits)
    near = dict(rtol=0, atol=TYPES[type] * expected.abs().max().item())
    torch.testing.assert_close(found, expected, **near)
    gradients = torch.autograd.grad(found, own, d_out)
    theirs = torch.autograd.grad(expected, plain, d_out.nan_to_num())
    near["atol"] = TYPES[type] * max(each.abs().max().item() for each in theirs)
    for one, other in zip(gradients, theirs, strict=True):
        torch.testing.assert_close(one, other, **near)


def test_limits_are_those_of_arrays():
    q, k, v = qkv(B=3)
    limits = dict(lengths=np.array([33, 0, 9]), query_lengths=np.array([5, 33, 0]))
    tensors = {name: torch.from_numpy(each) for name, each in limits.items()}
    for type in (torch.int32, torch.int64):
        found = fovea.torch.dense(q, k, v, return_lse=True, **{name: each.to(type) for name, each in tensors.items()})
        expected = fovea.dense(q.numpy(), k.numpy(), v.numpy(), return_lse=True, **limits)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one.numpy(), other)


def test_bad_limits_name_the_argument():
    q, k, v = qkv()
    with pytest.raises(ValueError, match="^lengths: found 34 for batch entry 1, needed 0 to 33"):
        fovea.torch.dense(q, k, v, lengths=torch.tensor([33, 34]))
    with pytest.raises(ValueError, match="^query_lengths: found .*2"):
        fovea.torch.dense(q, k, v, query_lengths=torch.tensor([1, 2, 3]))
    with pytest.raises(ValueError, match="^prefix: found it alone, needed causal"):
        fovea.torch.dense(q, k, v, prefix=3)
    with pytest.raises(ValueError, match="^prefix: found -1"):
        fovea.torch.dense(q, k, v, causal=True, prefix=-1)
    # Gradients of these do not exist.
    with pytest.raises(RuntimeError, match="dense: lengths requires a gradient"):
        fovea.torch.dense(q, k, v, lengths=torch.ones(2, requires_grad=True))


@pytest.mark.parametrize("target", ["reference", "gpu-sim"])
def test_targets(target):
    q, k, v = qkv(N=16)
    found = fovea.torch.dense(q, k, v, target=target)
    torch.testing.assert_close(found, fovea.torch.dense(q, k, v), rtol=0, atol=1e-5)


def test_tensors_that_require_no_gradient_get_none():
    q, k, v = qkv()
    k.requires_grad_()
    out, lse = fovea.torch.dense(q, k, v, return_lse=True)
    assert out.requires_grad and lse.requires_grad
    (out.sum() + lse.sum()).backward()
    assert q.grad is None and v.grad is None and k.grad.shape == k.shape


def test_autocast():
    q, k, v = qkv(gradients=True)
    with torch.autocast("cpu", torch.bfloat16):
        out = fovea.torch.dense(q, k, v)
        with torch.autocast("cpu", enabled=False):
            assert fovea.torch.dense(q, k, v).dtype == torch.float32
    assert out.dtype == torch.bfloat16
    expected = fovea.torch.dense(*(each.bfloat16() for each in (q, k, v)))
    assert torch.equal(out, expected)
    out.sum().backward()
    assert q.grad.dtype == torch.float32
    doubles = qkv(torch.float64)
    with torch.autocast("cpu", torch.bfloat16):
        assert fovea.torch.dense(*doubles).dtype == torch.float64


def test_autocast_leaves_biases_and_widens_what_is_no_attention():
    q, k, v = qkv()
    bias = torch.randn(33, 33)
    with torch.autocast("cpu", torch.bfloat16):
        out = fovea.torch.dense(q, k, v, bias=bias)
        k_hat, codes = fovea.torch.quantize(k.bfloat16(), k[:1, 0, :5].contiguous())
        loss = fovea.torch.commitment_loss(k.bfloat16(), k_hat)
        fovea.torch.codebook_update(k.bfloat16(), codes, torch.zeros(1, 5, 16), torch.ones(1, 5))
        tree = fovea.torch.tree_build(k[:, 0, :32].bfloat16())
        moved = fovea.torch.tree_update(tree, torch.tensor([5]), torch.tensor([0]), torch.randn(2, 1, 16))
    assert torch.equal(out, fovea.torch.dense(*(each.bfloat16() for each in (q, k, v)), bias=bias))
    assert k_hat.dtype == torch.bfloat16 and loss.dtype == moved.dtype == torch.float32


def test_under_compile_with_autocast():
    @torch.compile(fullgraph=True, backend="aot_eager")
    def run(q, k, v):
        with torch.autocast("cpu", torch.bfloat16):
            return fovea.torch.dense(q, k, v)

    assert run(*qkv()).dtype == torch.bfloat16


def test_bad_input_names_the_argument():
    q, k, v = qkv()
    with pytest.raises(ValueError, match="^k: found element type .*16"):
        fovea.torch.dense(q, k.half(), v)
    with pytest.raises(ValueError, match="^v: found length 32, needed 33"):
        fovea.torch.dense(q, k, v[:, :, 1:])
    for index, name in enumerate("qkv"):
        arguments = [each.numpy() if at == index else each for at, each in enumerate((q, k, v))]
        with pytest.raises(ValueError, match=f"^{name}: found ndarray, needed a tensor$"):
            fovea.torch.dense(*arguments)
    with pytest.raises(ValueError, match="^window: found -1"):
        fovea.torch.dense(q, k, v, window=-1)
    with pytest.raises(ValueError, match="^target: found 'tpu'"):
        fovea.torch.dense(q, k, v, target="tpu")
    with pytest.raises(ValueError, match="^q: found element type"):
        fovea.torch.dense(q.int(), k.int(), v.int())
    with pytest.raises(ValueError, match="^q: found a tensor of layout torch.sparse_coo, needed torch.strided"):
        fovea.torch.dense(q.to_sparse(), k, v)


def test_on_the_meta_device():
    q, k, v = (each.to("meta") for each in qkv(E=5))
    out, lse = fovea.torch.dense(q, k, v, return_lse=True)
    assert out.device.type == "meta" and out.shape == (2, 4, 33, 5) and lse.dtype == torch.float32
    with pytest.raises(ValueError, match="^k: found rank 3, needed 4"):
        fovea.torch.dense(q, k[0], v)
