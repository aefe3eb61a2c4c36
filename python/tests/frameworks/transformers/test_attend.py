# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The attention function, against its formula in float64."""

import functools
import types

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import masking_utils

from fovea.torch import _transformers
from fovea.torch._mask_functions import make_mask
from fovea.torch._masks import PatternMask
from fovea.torch._transformers import attend


class Layer(nn.Module):
    """What a layer of a model knows of its attention."""

    num_key_value_groups = 2
    is_causal = True
    config = types.SimpleNamespace(index_block_size=3)


def eager_attention_forward(
    module, query, key, value, mask, scaling=None, dropout=0.0, softcap=None, position_bias=None, s_aux=None, **others
):
    """Found by the name of the module that the class of a layer is in."""
    return formula(query, key, value, scaling, mask, position_bias, s_aux, softcap), "weights"


def formula(query, key, value, scaling, mask=None, position_bias=None, s_aux=None, softcap=None):
    repeats = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(repeats, 1), value.repeat_interleave(repeats, 1)
    scores = query @ key.mT * (scaling or query.shape[-1] ** -0.5)
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if position_bias is not None:
        scores = scores + position_bias
    if mask is not None and mask.dtype == torch.bool:
        scores = scores.masked_fill(~mask, float("-inf"))
    elif mask is not None:
        scores = scores + mask
    if s_aux is not None:
        sinks = s_aux[None, :, None, None].expand(*scores.shape[:3], 1)
        return (torch.cat([scores, sinks], -1).softmax(-1)[..., :-1] @ value).transpose(1, 2)
    weights = scores.softmax(-1).nan_to_num(0.0)
    return (weights @ value).transpose(1, 2)


def inputs(B=2, H=4, G=2, N=6, M=9, D=8, E=5, dtype=torch.float32):
    torch.manual_seed(0)
    shapes = ((B, H, N, D), (B, G, M, D), (B, G, M, E))
    return [torch.randn(shape).to(dtype).requires_grad_() for shape in shapes]


def check(found, expected, leaves, bound=1e-5):
    """Results and the gradients of `leaves`; `expected` is of copies of them in float64."""
    found, weights = found
    expected, copies = expected
    assert weights is None and found.is_contiguous() and found.shape == expected.shape
    d_out = torch.randn(found.shape, generator=torch.Generator().manual_seed(1))
    found.backward(d_out.to(found.dtype))
    expected.backward(d_out.double())
    for one, other in ((found, expected), *((leaf.grad, copy.grad) for leaf, copy in zip(leaves, copies, strict=True))):
        assert (one.double() - other).abs().max() <= bound * other.abs().max().clamp(min=0.1)


def expect(leaves, arguments=(), **options):
    """The formula of float64 copies, and the copies."""
    copies = [leaf.detach().double().requires_grad_() for leaf in leaves]
    named = dict(zip(arguments, copies[3:], strict=True))
    return formula(*copies[:3], None, **named, **options), copies


MASKS = {
    "causal": torch.ones(6, 9, dtype=torch.bool).tril(3).expand(2, 1, 6, 9),
    "full": torch.ones(2, 1, 6, 9, dtype=torch.bool),
    "some": torch.rand(2, 1, 6, 9, generator=torch.Generator().manual_seed(4)) < 0.5,
    "some of each head": torch.rand(2, 4, 6, 9, generator=torch.Generator().manual_seed(5)) < 0.5,
    "keys": (torch.rand(2, 1, 1, 9, generator=torch.Generator().manual_seed(6)) < 0.5),
    "none": torch.zeros(2, 1, 6, 9, dtype=torch.bool),
    "sequences": torch.tensor([True, False])[:, None, None, None],
    "queries": torch.arange(6)[:, None].expand(2, 1, 6, 1) % 2 == 0,
    "terms of queries": torch.arange(6.0)[:, None].expand(2, 1, 6, 1),
}


@pytest.mark.parametrize("has_sinks", [False, True])
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("name", MASKS)
def test_masks(name, has_bias, has_sinks):
    leaves, names = inputs(), []
    if has_bias:
        names.append("position_bias")
        leaves.append(torch.randn(1, 4, 6, 9, requires_grad=True))
    if has_sinks:
        names.append("s_aux")
        leaves.append(torch.randn(4, requires_grad=True))
    found = attend(Layer(), *leaves[:3], MASKS[name], **dict(zip(names, leaves[3:])))
    check(found, expect(leaves, names, mask=MASKS[name]), leaves)


def test_nothing_is_read_behind_masks():
    query, key, value = (leaf.detach() for leaf in inputs())
    mask = MASKS["keys"]
    expected = attend(Layer(), query, key, value, mask)[0]
    for row in (key, value):
        row.masked_fill_(~mask[:, 0, 0, :, None][:, None], float("nan"))
    assert torch.equal(attend(Layer(), query, key, value, mask)[0], expected)


def test_without_masks():
    """Causal as the layer is; of one query, all keys; of a cache that is too long, those
    that are there."""
    query, key, value = leaves = [leaf.detach() for leaf in inputs(N=6, M=6)]
    causal = MASKS["causal"][:, :, :, 3:]
    layer = Layer()
    expected = formula(*(leaf.double() for leaf in leaves), None, causal)
    assert (attend(layer, *leaves, None)[0] - expected).abs().max() < 1e-5
    longer = (query, nn.functional.pad(key, (0, 0, 0, 4)), nn.functional.pad(value, (0, 0, 0, 4)))
    assert torch.equal(attend(layer, *longer, None)[0], attend(layer, *leaves, None)[0])
    expected = formula(*(leaf.double() for leaf in leaves), None)
    assert (attend(layer, *leaves, None, is_causal=False)[0] - expected).abs().max() < 1e-5
    one = attend(layer, query[:, :, 3:4], key, value, None)[0]
    assert (one - expected[:, 3:4]).abs().max() < 1e-5


@pytest.mark.parametrize("has_sinks", [False, True])
def test_no_result_is_copied(has_sinks, monkeypatch):
    """Models project to [B,N,H,D], and project what is [B,N,H,E] in memory."""
    results = []
    dense = _transformers.dense
    monkeypatch.setattr(
        _transformers, "dense", lambda *args, **options: results.append(dense(*args, **options)) or results[0]
    )
    leaves = [leaf.detach().transpose(1, 2).contiguous().transpose(1, 2).requires_grad_() for leaf in inputs()]
    s_aux = torch.randn(4) if has_sinks else None
    found, _ = attend(Layer(), *leaves, MASKS["causal"], s_aux=s_aux)
    assert found.is_contiguous() and found.data_ptr() == results[0].data_ptr()
    assert results[0].stride() == (6 * 4 * 5, 5, 4 * 5, 1)
    gradients = torch.autograd.grad(found.sum(), leaves)
    assert [each.stride() for each in gradients] == [each.stride() for each in leaves]


@pytest.mark.parametrize("window", [1, 3, 100])
def test_patterns(window, monkeypatch):
    """Windows and absent keys are options of the kernel: nothing [N,M] is made."""
    seen = []
    dense = _transformers.dense
    monkeypatch.setattr(
        _transformers, "dense", lambda *args, **options: seen.append((args, options)) or dense(*args, **options)
    )
    function = masking_utils.sliding_window_causal_mask_function(window)
    padding = torch.ones(2, 9, dtype=torch.bool)
    padding[1, :4] = False
    arguments = dict(batch_size=2, q_length=6, kv_length=12, q_offset=3, mask_function=function, attention_mask=padding)
    leaves = inputs(M=12)
    mask = make_mask(**arguments)
    found = attend(Layer(), *leaves, mask, sliding_window=window)
    check(found, expect(leaves, mask=mask.write_out()), leaves)
    ((query, key, value), options), = seen
    assert options["bias"] is None and options["causal"] and options["log_weight"].shape == (2, 1, 9)
    assert options["window"] == (window if window < 9 else None)
    assert key.shape == (2, 2, 9, 8) and key.data_ptr() == leaves[1].data_ptr()


@pytest.mark.parametrize("type", [torch.bfloat16, torch.float16, torch.float64])
def test_types(type):
    leaves = inputs(dtype=type)
    leaves.append(torch.randn(4).to(type).requires_grad_())
    found = attend(Layer(), *leaves[:3], MASKS["some"], s_aux=leaves[3])
    assert found[0].dtype == type
    bound = {torch.bfloat16: 2e-2, torch.float16: 4e-3, torch.float64: 1e-12}[type]
    check(found, expect(leaves, ["s_aux"], mask=MASKS["some"]), leaves, bound)


@pytest.mark.parametrize("has_sinks", [False, True])
@pytest.mark.parametrize("name", ["causal", "some", "keys", "pattern", None])
def test_soft_cap(name, has_sinks, fallbacks):
    """Before masks and sinks."""
    leaves, names = inputs(N=6, M=6) if name is None else inputs(), []
    padding = torch.ones(2, 9, dtype=torch.bool)
    padding[1, :2] = False
    mask = make_mask(2, 6, 9, q_offset=3, attention_mask=padding) if name == "pattern" else MASKS.get(name)
    if has_sinks:
        names.append("s_aux")
        leaves.append(torch.randn(4, requires_grad=True))
    found = attend(Layer(), *leaves[:3], mask, softcap=1.5, **dict(zip(names, leaves[3:])))
    written = MASKS["causal"][..., 3:] if name is None else mask & True
    check(found, expect(leaves, names, mask=written, softcap=1.5), leaves)
    assert not fallbacks()


# ----------------------------------------------------------------------------
# What is computed in another way
# ----------------------------------------------------------------------------


INDICES = [[0, 3, 8, -1], [1, 1, -1, -1], [5, 6, 7, 8], [-1, -1, -1, -1], [2, 0, 4, 6], [8, 7, 3, 1]]
BLOCKS = torch.randint(-1, 3, (2, 4, 6, 2), generator=torch.Generator().manual_seed(2))


def indices_of_queries():
    """Those of the arguments, and which keys [B,H,N,M] they name; one is named twice, and one query names none."""
    listed = torch.zeros(2, 4, 6, 9, dtype=torch.bool)
    for row, entries in enumerate(INDICES):
        listed[:, :, row, [each for each in entries if each >= 0]] = True
    return {"indices": torch.tensor([INDICES]).expand(2, 6, 4).int()}, listed


def blocks_of(heads):
    """Blocks of three keys for so many heads, each of which is those of the same number of query heads."""
    listed = torch.zeros(2, 4, 6, 9, dtype=torch.bool)
    blocks, share = BLOCKS[:, :heads], 4 // heads
    for b, h, i, x in torch.nonzero(blocks >= 0).tolist():
        first = 3 * blocks[b, h, i, x]
        listed[b, share * h : share * (h + 1), i, first : first + 3] = True
    return {"block_indices": blocks}, listed


@pytest.fixture(params=["lists", "mask"])
def seen(request, monkeypatch):
    """What is called, for lists of any length or for none."""
    monkeypatch.setattr(_transformers, "_FEW", 0 if request.param == "lists" else 100)
    expected, found = "stream" if request.param == "lists" else "dense", []
    for name in ("stream", "dense"):
        function = getattr(_transformers, name)
        monkeypatch.setattr(_transformers, name, lambda *a, f=function, n=name, **o: found.append(n) or f(*a, **o))
    yield found
    assert set(found) == {expected}


LISTS = {"indices": indices_of_queries, **{f"blocks of {heads}": functools.partial(blocks_of, heads) for heads in (1, 2, 4)}}


@pytest.mark.parametrize("has_terms", [False, True])
@pytest.mark.parametrize("lists", LISTS.values(), ids=LISTS)
def test_lists_of_keys(lists, has_terms, seen, fallbacks):
    options, listed = lists()
    for mask in (MASKS["causal"], MASKS["keys"], MASKS["some of each head"]):
        leaves, names, rest = inputs(), [], {}
        if has_terms:
            names, rest = ["position_bias", "s_aux"], {"softcap": 1.5}
            leaves += [torch.randn(1, 4, 6, 9, requires_grad=True), torch.randn(4, requires_grad=True)]
        found = attend(Layer(), *leaves[:3], mask, **options, **dict(zip(names, leaves[3:])), **rest)
        check(found, expect(leaves, names, mask=listed & mask, **rest), leaves)
    assert not fallbacks()


@pytest.mark.parametrize("type", [torch.bfloat16, torch.float16, torch.float64])
def test_lists_of_all_types(type, seen):
    options, listed = blocks_of(2)
    leaves = inputs(dtype=type)
    found = attend(Layer(), *leaves, MASKS["causal"], **options)
    check(found, expect(leaves, mask=listed & MASKS["causal"]), leaves, 1e-5 if type == torch.float64 else 2e-2)


def test_keys_behind_a_cache_are_not_listed(monkeypatch):
    """Lists name keys that a static cache has room for; some patterns cut them off."""
    monkeypatch.setattr(_transformers, "_FEW", 0)
    leaves = inputs(N=4)
    mask = make_mask(2, 4, 9, q_offset=2, attention_mask=torch.ones(2, 9, dtype=torch.bool))
    assert isinstance(mask, PatternMask)
    indices = torch.tensor([0, 5, 7, 8]).expand(2, 4, 4)
    listed = torch.zeros(9, dtype=torch.bool).index_fill(0, indices[0, 0], True)
    found = attend(Layer(), *leaves, mask, indices=indices)
    check(found, expect(leaves, mask=listed & torch.ones(4, 9, dtype=torch.bool).tril(2)), leaves)


def test_lists_make_nothing_of_queries_and_keys():
    """Forward and backward, of PyTorch; kernels of lists have no such memory."""
    N, sizes = 512, []

    class Recorder(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), options=None):
            found = function(*arguments, **(options or {}))
            sizes.extend(each.numel() for each in tree_leaves(found) if isinstance(each, torch.Tensor))
            return found

    leaves = inputs(B=1, H=2, G=1, N=N, M=N, D=4, E=4)
    indices = torch.stack([torch.randperm(N)[:8] for _ in range(N)])[None]
    mask = make_mask(1, N, N, attention_mask=torch.ones(1, N, dtype=torch.bool), allow_is_causal_skip=False)
    with Recorder():
        attend(Layer(), *leaves, mask, indices=indices)[0].sum().backward()
        assert max(sizes) < N * N // 32
        # As many as would be a mask are noticed.
        attend(Layer(), *(leaf.detach() for leaf in leaves), mask, indices=indices.repeat(1, 1, 16))
    assert max(sizes) >= N * N


def test_many_listed_keys_are_a_mask(monkeypatch):
    calls = []
    for name in ("stream", "dense"):
        function = getattr(_transformers, name)
        monkeypatch.setattr(_transformers, name, lambda *a, f=function, n=name, **o: calls.append(n) or f(*a, **o))
    leaves = inputs(N=3, M=33)
    for count in (8, 9):
        attend(Layer(), *leaves, None, is_causal=False, indices=torch.arange(count).expand(2, 3, count))
    assert calls == ["stream", "dense"]


def test_lists_in_compiled_graphs(seen):
    torch.compiler.reset()
    options, listed = blocks_of(2)

    def call(query, key, value, blocks):
        return attend(Layer(), query, key, value, None, is_causal=False, block_indices=blocks)[0]

    leaves = inputs()
    found = torch.compile(call, fullgraph=True, dynamic=True, backend="aot_eager")(*leaves, options["block_indices"])
    check((found, None), expect(leaves, mask=listed), leaves)


@pytest.mark.parametrize(
    "options, reason",
    [
        (dict(dropout=0.1), "dropout=0.1"),
        (dict(output_attentions=True), "output_attentions"),
        (dict(sinks=torch.zeros(4)), "unknown arguments: sinks"),
    ],
)
def test_reasons(options, reason, fallbacks):
    leaves = inputs()
    found, weights = attend(Layer(), *leaves, MASKS["causal"], **options)
    assert weights == "weights" and (found - formula(*leaves, None, MASKS["causal"])).abs().max() < 1e-5
    assert [each.reason for each in fallbacks()] == [f"{reason}: the model's eager attention"]


def test_what_models_say_besides(fallbacks):
    leaves = inputs()
    attend(Layer(), *leaves, MASKS["causal"], position_ids=torch.arange(6), use_cache=True, other=None, dropout=0.0)
    assert fallbacks() == []


def test_fallbacks_count(fallbacks):
    for _ in range(3):
        attend(Layer(), *inputs(), MASKS["causal"], dropout=0.1)
    assert [each.calls for each in fallbacks(clear=True)] == [3]
    assert fallbacks() == []


def test_fallbacks_of_compiled_graphs_count_once(fallbacks):
    torch.compiler.reset()
    query, key, value = (leaf.detach() for leaf in inputs())
    call = torch.compile(lambda query: attend(Layer(), query, key, value, None, output_attentions=True)[0], backend="eager")
    for _ in range(3):
        call(query)
    assert [(each.calls, each.reason) for each in fallbacks()] == [(1, "output_attentions: the model's eager attention")]


# ----------------------------------------------------------------------------
# Errors
# ----------------------------------------------------------------------------


def test_errors():
    leaves = inputs()
    for shape in ((2, 9), (2, 1, 5, 9), (2, 1, 6, 8)):
        with pytest.raises(ValueError, match=r"attention_mask: found shape \(.*\), needed \[B,1,6,9\]"):
            attend(Layer(), *leaves, torch.ones(shape, dtype=torch.bool))
    with pytest.raises(ValueError, match="Linear has no eager_attention_forward to fall back to"):
        attend(nn.Linear(1, 1), *leaves, None, dropout=0.5)
    layer = Layer()
    layer.config = types.SimpleNamespace()
    with pytest.raises(ValueError, match="block_indices: Layer says nothing about the size of blocks"):
        attend(layer, *leaves, None, block_indices=torch.zeros(2, 2, 6, 1, dtype=torch.int32))
