# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions of scores on tensors, against formulas of PyTorch; test_functions.py has what holds of all functions."""

import warnings

import numpy as np
import pytest
import torch
import torch._dynamo.testing
from torch_cases import attention

import fovea
import fovea.torch
from fovea.math import tanh, where

N = 11


def relative(q, k, v, table, cap=2.0, **options):
    """A table of distances for each head and a soft-cap, for tokens that are not of one parity."""
    terms = fovea.capture(table)

    def score(s, b, h, i, j):
        return where((i + j) % 2 == 1, cap * tanh(s / cap) + terms[h, j - i + N - 1], s)

    return fovea.torch.dense(q, k, v, score=score, **options)


def formula(q, k, v, table, cap=2.0):
    k, v = (each.repeat_interleave(2, 1) for each in (k, v))
    scores = q @ k.mT / q.shape[-1] ** 0.5
    places = torch.arange(N)
    terms = table[:, places - places[:, None] + N - 1]
    is_odd = (places + places[:, None]) % 2 == 1
    return torch.where(is_odd, cap * torch.tanh(scores / cap) + terms, scores).softmax(-1) @ v


def inputs(type=torch.float32):
    torch.manual_seed(0)
    return [*attention(N, type).values(), torch.randn(4, 2 * N - 1, dtype=type)]


def near(found, expected, bound=1e-5):
    assert found.shape == expected.shape
    assert (found.double() - expected.double()).abs().max() <= bound * expected.double().abs().max()


@pytest.mark.parametrize("table", ["tensor", "array", "wider array"])
def test_forward_and_gradients(table):
    *tensors, terms = inputs()
    given = {"tensor": terms, "array": terms.numpy(), "wider array": terms.double().numpy()}[table]
    leaves = [each.requires_grad_() for each in tensors]
    weights = torch.randn(2, 4, N, 5)
    found, expected = relative(*leaves, given), formula(*leaves, terms)
    near(found, expected)
    for one, other in zip(torch.autograd.grad((found * weights).sum(), leaves), torch.autograd.grad((expected * weights).sum(), leaves)):
        near(one, other)


@pytest.mark.parametrize("is_compiled", [False, True])
@pytest.mark.parametrize("wanted", [(0, 1, 2, 3), (3,), (1, 3)])
def test_gradients_of_captured_tensors(wanted, is_compiled):
    arrays = inputs()
    torch.compiler.reset()
    call = torch.compile(relative, backend="aot_eager") if is_compiled else relative
    leaves = [arrays[index].requires_grad_() for index in wanted]
    weights = torch.randn(2, 4, N, 5)
    own, other = (torch.autograd.grad((f(*arrays) * weights).sum(), leaves) for f in (call, formula))
    for found, expected in zip(own, other, strict=True):
        near(found, expected)


def test_autocast_leaves_captured_tensors():
    *tensors, terms = inputs()
    with torch.autocast("cpu", torch.bfloat16):
        found = relative(*tensors, terms)
    assert found.dtype == torch.bfloat16
    near(found, formula(*(each.bfloat16().float() for each in tensors), terms), 2e-2)


def test_numbers_of_python_are_fixed_and_tables_are_not():
    """One graph for each number that a function reads, for any table."""
    *tensors, terms = inputs()
    for dynamic in (None, True):
        torch.compiler.reset()
        count = torch._dynamo.testing.CompileCounter()
        compiled = torch.compile(relative, backend=count, fullgraph=True, dynamic=dynamic)
        for cap, table in ((2.0, terms), (2.0, -terms), (3.0, terms), (1e-7, terms), (2.0, terms)):
            near(compiled(*tensors, table, cap=cap), formula(*tensors, table, cap))
        assert count.frame_count == 3


def test_extents_that_a_function_reads():
    """Dynamo has symbols for them, which it compares with no object of others."""

    def last_keys(q, k, v):
        half = k.shape[2] // 2
        return fovea.torch.dense(q, k, v, score=lambda s, b, h, i, j: where(j - half < 0, -np.inf, s))

    torch.compiler.reset()
    compiled = torch.compile(last_keys, fullgraph=True, dynamic=True, backend="aot_eager")
    for tokens in (8, 11, 14):
        q, k, v = attention(tokens, torch.float32).values()
        half = tokens // 2
        near(compiled(q, k, v), fovea.torch.dense(q, k[:, :, half:], v[:, :, half:]))


def test_inductor_and_export():
    *tensors, terms = inputs()

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("terms", terms)

        def forward(self, q, k, v):
            return relative(q, k, v, self.terms) * 2

    torch.compiler.reset()
    near(torch.compile(Layer(), fullgraph=True)(*tensors), 2 * formula(*tensors, terms))
    program = torch.export.export(Layer(), tuple(tensors))
    near(program.module()(*tensors), 2 * formula(*tensors, terms))
    assert any("attn.yield" in str(node.args) for node in program.graph.nodes)


def test_meets_all_options():
    """Terms, sinks, lengths and masks come behind the function, as in NumPy."""
    *tensors, terms = inputs()
    options = dict(
        bias=torch.randn(1, 4, N, N), log_weight=torch.randn(2, 2, N), sink=torch.randn(2, 4), causal=True, window=6,
        lengths=torch.tensor([N, 7]), query_lengths=torch.tensor([9, N]),
    )  # fmt: skip
    found = relative(*tensors, terms, **options, return_lse=True)
    arrays = {name: each.numpy() if isinstance(each, torch.Tensor) else each for name, each in options.items()}
    table = fovea.capture(terms.numpy())

    def score(s, b, h, i, j):
        return where((i + j) % 2 == 1, 2.0 * tanh(s / 2.0) + table[h, j - i + N - 1], s)

    expected = fovea.dense(*(each.numpy() for each in tensors), **arrays, score=score, return_lse=True)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_wrong_function_is_noticed():
    *tensors, terms = inputs()
    with pytest.raises(AssertionError):
        near(relative(*tensors, terms), formula(*tensors, -terms))


def test_errors():
    q, k, v, terms = inputs()
    for score, match in (
        ("cap", "^score: found str, needed a function"),
        (lambda s, b, h, i, j: torch.tanh(s), "^score: "),
        (lambda s, b, h, i, j: s + terms[0, 0], f"^score: {__file__}:.* found Tensor, needed a number"),
        (lambda s, b, h, i, j: s + fovea.capture(terms)[h], f"^score: {__file__}:.* found 1 indices, needed 2"),
        (lambda s, b, h, i, j: s + fovea.capture(terms > 0)[h, j], "found an array of bool"),
    ):
        with pytest.raises(ValueError, match=match):
            fovea.torch.dense(q, k, v, score=score)


@pytest.mark.parametrize("dims", [(0, 0, 0, None), (0, None, None, 0), (0, 0, 0, 0)])
def test_vmap(dims):
    """Also over what a function captures, and over gradients."""
    several = [each if dim is None else torch.stack([each, 0.3 * each, -each]) for each, dim in zip(inputs(), dims)]

    def pull(call):
        return torch.func.grad(lambda *each: call(*each).square().sum(), (0, 1, 2))

    found = torch.vmap(relative, dims)(*several), *torch.vmap(pull(relative), dims)(*several)
    expected = torch.vmap(formula, dims)(*several), *torch.vmap(pull(formula), dims)(*several)
    for one, other in zip(found, expected, strict=True):
        near(one, other)


def test_vmap_keeps_numbers_of_batch_entries():
    q, k, v, _ = inputs()
    heat = fovea.capture(torch.tensor([0.5, 2.0]))
    several = torch.stack([q, q + 1, -q])

    def call(q):
        return fovea.torch.dense(q, k, v, score=lambda s, b, h, i, j: s * heat[b])

    near(torch.vmap(call)(several), torch.stack([call(each) for each in several]))


def test_compiling_warns_of_nothing():
    """Such as of functions that remember what they have returned."""
    torch.compiler.reset()
    q, k, v, table = inputs()
    ids = torch.arange(N)[None].expand(2, N) // 4

    def run(q, k, v):
        return relative(q, k, v, table, admit=lambda b, h, i, j: j != 3, segments=(ids, ids))

    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="Dynamo")
        torch._dynamo.utils.warn_once_cache.clear()
        near(torch.compile(run, fullgraph=True, backend="aot_eager")(q, k, v), run(q, k, v))
