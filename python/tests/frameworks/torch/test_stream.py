# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Lists of sources on tensors, against the function on arrays and formulas of PyTorch; test_functions.py has what holds of all
functions."""

import numpy as np
import pytest
import torch
import torch._dynamo.testing
from torch_cases import attention, normal, window_and_summaries

import fovea
import fovea.torch
from fovea import Source

N = 21
TYPES = [torch.float32, torch.float64]


def last_blocks(b, rows, n):
    return 4 * b - 4, 4 * b + 4


def past(b, rows, n):
    return 0, b


def call(module, q, k, v, far_k, far_v, log_weight, bias, sink):
    near = Source(k, v, causal=True, window=5, bias=bias, ranges=last_blocks)
    return module.stream(q, [near, Source(far_k, far_v, log_weight=log_weight, ranges=past)], block=4, sink=sink)


def formula(q, k, v, far_k, far_v, log_weight, bias, sink):
    """One soft-max over all scores."""
    k, v, far_k, far_v = (each.repeat_interleave(2, 1) for each in (k, v, far_k, far_v))
    i, j = torch.arange(N)[:, None], torch.arange(N)
    block = i // 4
    holds = (j <= i) & (i - j < 5) & (j >= 4 * block - 4) & (j < 4 * block + 4)
    near = (q @ k.mT / q.shape[-1] ** 0.5 + bias).masked_fill(~holds, -torch.inf)
    far = (q @ far_k.mT / q.shape[-1] ** 0.5 + log_weight).masked_fill(torch.arange(3) >= block, -torch.inf)
    weights = torch.cat([near, far, sink[:, None, None].expand(2, 4, N, 1)], -1).softmax(-1)[..., :-1]
    return weights @ torch.cat([v, far_v], 2)


@pytest.mark.parametrize("type", [*TYPES, torch.bfloat16])
def test_forward_and_gradients(type):
    arguments = window_and_summaries(N, type)
    leaves = [each.requires_grad_() for each in arguments.values()]
    found, expected = call(fovea.torch, **arguments), formula(*(each.double() for each in leaves))
    weights = normal(*found.shape, type=torch.float64)
    bound = 5e-2 if type == torch.bfloat16 else 1e-5
    for one, other in zip(
        (found, *torch.autograd.grad((found * weights).sum(), leaves)),
        (expected, *torch.autograd.grad((expected * weights).sum(), leaves)),
        strict=True,
    ):
        assert one.dtype == type and (one.double() - other).abs().max() <= bound * other.abs().max()


def test_has_the_bits_of_the_function_on_arrays():
    arguments = window_and_summaries(N, torch.float32)
    expected = call(fovea, **{name: each.numpy() for name, each in arguments.items()})
    np.testing.assert_array_equal(call(fovea.torch, **arguments).numpy(), expected)


@pytest.mark.parametrize("wanted", [("bias",), ("log_weight",), ("far_v",), ("sink", "k")])
def test_gradients_that_are_not_wanted(wanted):
    arguments = window_and_summaries(N, torch.float32)
    every = [each.detach().clone().requires_grad_() for each in arguments.values()]
    expected = dict(zip(arguments, torch.autograd.grad(call(fovea.torch, *every).sum(), every)))
    for name in wanted:
        arguments[name].requires_grad_()
    found = torch.autograd.grad(call(fovea.torch, **arguments).sum(), [arguments[name] for name in wanted])
    for name, one in zip(wanted, found, strict=True):
        assert torch.equal(one, expected[name])


@pytest.mark.parametrize("is_compiled", [False, True])
@pytest.mark.parametrize("wanted", [(0, 1, 2, 3), (3,), (1, 3)])
def test_gradients_of_captured_tensors(wanted, is_compiled):
    """Of a table that both sources read, at their own distances."""

    def call(q, k, v, table):
        terms = fovea.capture(table)
        sources = [Source(k, v, causal=True), Source(k[:, :, :4], v[:, :, :4])]
        return fovea.torch.stream(q, sources, score=lambda s, b, h, i, j: s + terms[h, j - i + N - 1])

    def formula(q, k, v, table):
        k, v = (each.repeat_interleave(2, 1) for each in (k, v))
        i, j = torch.arange(N)[:, None], torch.arange(N)
        own = (q @ k.mT / q.shape[-1] ** 0.5 + table[:, j - i + N - 1]).masked_fill(j > i, -torch.inf)
        # The last query stands at the last of the four keys.
        first = q @ k[:, :, :4].mT / q.shape[-1] ** 0.5 + table[:, j[:4] - (i + 4 - N) + N - 1]
        return torch.cat([own, first], -1).softmax(-1) @ torch.cat([v, v[:, :, :4]], 2)

    arrays = [*attention(N, torch.float64).values(), normal(4, 2 * N + 3, type=torch.float64)]
    torch.compiler.reset()
    run = torch.compile(call, fullgraph=True, backend="aot_eager") if is_compiled else call
    leaves = [arrays[index].requires_grad_() for index in wanted]
    weights = normal(2, 4, N, 5, type=torch.float64)
    own, other = (torch.autograd.grad((f(*arrays) * weights).sum(), leaves) for f in (run, formula))
    for found, expected in zip(own, other, strict=True):
        assert found.shape == expected.shape and (found - expected).abs().max() <= 1e-11 * expected.abs().max()


def test_strides_of_tensors_and_gradients():
    """Heads behind tokens in memory: what is like a tensor has its order of axes."""
    arguments = window_and_summaries(N, torch.float32)
    turned = {
        name: each.transpose(1, 2).contiguous().transpose(1, 2) if name in ("q", "k", "v", "far_k", "far_v") else each
        for name, each in arguments.items()
    }
    for each in (*arguments.values(), *turned.values()):
        each.requires_grad_()
    found, expected = call(fovea.torch, **turned), call(fovea.torch, **arguments)
    assert torch.equal(found, expected) and found.transpose(1, 2).is_contiguous()
    found, expected = (
        torch.autograd.grad(out.sum(), list(of.values())) for out, of in ((found, turned), (expected, arguments))
    )
    for name, one, other in zip(turned, found, expected, strict=True):
        assert torch.equal(one, other) and one.stride() == turned[name].stride()


def test_autocast_keeps_terms():
    arguments = window_and_summaries(N, torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        found = call(fovea.torch, **arguments)
    rows = {name: each.bfloat16() if name in ("q", "k", "v", "far_k", "far_v") else each for name, each in arguments.items()}
    assert torch.equal(found, call(fovea.torch, **rows))


@pytest.mark.parametrize("over", ["q", "k", "far_v", "all"])
def test_vmap(over):
    several = [window_and_summaries(N, torch.float32) for _ in range(3)]
    for index, each in enumerate(several):
        for name, value in each.items():
            if over not in (name, "all"):
                each[name] = several[0][name]
            elif index:
                each[name] = value * (index - 1.5)
    dims = {name: 0 if over in (name, "all") else None for name in several[0]}
    stacked = [torch.stack([each[name] for each in several]) if dim == 0 else several[0][name] for name, dim in dims.items()]

    def pull(*values):
        return torch.func.grad(lambda *each: call(fovea.torch, *each).square().sum(), tuple(range(len(values))))(*values)

    found = torch.vmap(lambda *each: call(fovea.torch, *each), tuple(dims.values()))(*stacked)
    torch.testing.assert_close(found, torch.stack([call(fovea.torch, **each) for each in several]))
    gradients = torch.vmap(pull, tuple(dims.values()))(*stacked)
    for one, *others in zip(gradients, *(pull(*each.values()) for each in several), strict=True):
        torch.testing.assert_close(one, torch.stack(others), rtol=1e-4, atol=1e-5)


def test_windows_that_compilers_have_symbols_for():
    """Another window is no other graph."""
    tensors = attention(N, torch.float32)

    def run(q, k, v, window):
        return fovea.torch.stream(q, [Source(k, v, window=window)])

    torch.compiler.reset()
    count = torch._dynamo.testing.CompileCounter()
    compiled = torch.compile(run, backend=count, fullgraph=True, dynamic=True)
    for window in (5, 7, 9):
        assert torch.equal(compiled(**tensors, window=window), run(**tensors, window=window))
    assert count.frame_count == 1


def pages(module, q, k, v, table, lengths):
    """Caches whose pages of eight tokens lie anywhere in a pool."""
    rows = table[:, None, None]
    source = Source(k, v, causal=True, rows=rows, unit=8, positions="listed", lengths=lengths)
    return module.stream(q, [source], block=1)


def test_pages():
    torch.manual_seed(0)
    q, k, v = torch.randn(2, 4, 3, 8), torch.randn(1, 2, 40, 8), torch.randn(1, 2, 40, 5)
    table, lengths = torch.tensor([[3, 1, -1], [0, 4, 2]]), torch.tensor([9, 20])
    found = pages(fovea.torch, q, k, v, table, lengths)
    for entry, (listed, length) in enumerate(zip(table, lengths)):
        rows = (8 * listed[:, None] + torch.arange(8)).flatten()[:length]
        expected = fovea.torch.dense(q[entry : entry + 1], k[:, :, rows], v[:, :, rows], causal=True)
        torch.testing.assert_close(found[entry : entry + 1], expected)
    torch.compiler.reset()
    compiled = torch.compile(lambda *given: pages(fovea.torch, *given), fullgraph=True, dynamic=True, backend="aot_eager")
    assert torch.equal(compiled(q, k, v, table, lengths), found)
    for window in (-1, True, "5"):
        with pytest.raises(ValueError, match=rf"^sources\[0\].window: found {window!r}, needed an integer of at least 0$"):
            fovea.torch.stream(q, [fovea.torch.Source(k, v, window=window)])
    with pytest.raises(fovea.FoveaError, match=r"rows of source 0\[0, 0, 0, 0\] must be -1, or at least 0 and below 5, but got 5"):
        pages(fovea.torch, q, k, v, table + 2, lengths)
    with pytest.raises(ValueError, match=r"^sources\[0\].lengths: found 25 for batch entry 1, needed 0 to 24"):
        pages(fovea.torch, q, k, v, table, lengths + 5)
    with pytest.raises(ValueError, match=r"^sources\[0\].rows: "):
        pages(fovea.torch, q, k, v, table.float(), lengths)


def test_inductor():
    arguments = window_and_summaries(N, torch.float32)
    torch.compiler.reset()
    found = torch.compile(lambda **given: call(fovea.torch, **given) * 2, fullgraph=True)(**arguments)
    torch.testing.assert_close(found, 2 * call(fovea.torch, **arguments))


def test_errors():
    q, k, v = attention(N, torch.float32).values()
    ids = torch.zeros(2, N, dtype=torch.int64)
    for sources, match in (
        ([], "^sources: found none, needed at least 1"),
        (Source(k, v), "^sources: found Source, needed a list"),
        ([k], r"^sources\[0\]: found Tensor, needed a fovea.Source"),
        ([Source(k, v), Source(k, v[..., :3])], r"^sources\[1\].v: found extent 3"),
        ([Source(k, v, window=-1)], r"^sources\[0\].window: found -1, needed an integer of at least 0"),
        ([Source(k.double(), v)], r"^sources\[0\].k: found element type float64"),
        ([Source(k, v), Source(k.to("meta"), v)], "needed all tensors on the same device"),
        ([Source(k, v, segments=(ids.float(), ids))], r"^sources\[0\].segments\[0\]: found element type torch.float32"),
        ([Source(k, v, segments=(ids, ids[:, :4]))], r"^sources\[0\].segments\[1\]: found shape \(2, 4\), needed \(2, 21\)"),
        ([Source(k, v), Source(k, v, admit=3)], r"^sources\[1\].admit: found int, needed a function"),
        ([Source(k, v, ranges=lambda b, rows, n: (0, b * n))], r"^sources\[0\].ranges: .*found a factor"),
    ):
        with pytest.raises(ValueError, match=match):
            fovea.torch.stream(q, sources)
    with pytest.raises(RuntimeError, match=r"stream: lengths\[0\] requires a gradient, but stream has none for it"):
        fovea.torch.stream(q, [Source(k, v, lengths=torch.ones(2, requires_grad=True))])
