# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Strides of results and gradients: those that `torch.empty_like` gives what they are like."""

import subprocess
import sys

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.library import opcheck
from torch_cases import CASES, attention

import fovea.torch
from fovea.torch._operator import BACKWARD, FORWARD


def turn(tensor):
    """The same tensor, with its second axis within the third in memory."""
    return tensor.transpose(1, 2).contiguous().transpose(1, 2)


def slice_heads(tensor):
    """As one of q, k and v that a layer computes at once, [B,N,3 H,D]."""
    wide = turn(tensor.repeat(1, 3, 1, 1))
    return wide[:, tensor.shape[1] : 2 * tensor.shape[1]]


def expand_heads(tensor):
    return tensor[:, :1].expand(tensor.shape)


def turn_rows(tensor):
    """Rows are not contiguous."""
    return tensor.mT.contiguous().mT


LAYOUTS = {
    "contiguous": torch.Tensor.contiguous,
    "bnhd": turn,
    "nhbd": lambda tensor: tensor.permute(2, 1, 0, 3).contiguous().permute(2, 1, 0, 3),
    "sliced": slice_heads,
    "steps": lambda tensor: turn(tensor.repeat_interleave(2, 2))[:, :, ::2],
    "expanded": expand_heads,
}
EVERY_LAYOUT = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)


def strides_like(tensor, width):
    """Of a tensor whose rows are `width` wide, by a formula: extents of one stay where they are."""
    axes = sorted(range(tensor.dim() - 1), key=lambda axis: tensor.stride(axis))
    strides, next = [0] * (tensor.dim() - 1) + [1], width
    for axis in axes:
        strides[axis] = next
        next *= tensor.shape[axis]
    return tuple(strides)


def leaves(layout, width=5, N=11):
    torch.manual_seed(0)
    return [layout(each).requires_grad_() for each in attention(N, torch.float32, E=width).values()]


@EVERY_LAYOUT
@pytest.mark.parametrize("width", [8, 5, 1])
def test_dense(layout, width):
    q, k, v = leaves(layout, width)
    copies = [each.detach().clone(memory_format=torch.contiguous_format).requires_grad_() for each in (q, k, v)]
    found = fovea.torch.dense(q, k, v, causal=True, return_lse=True)
    expected = fovea.torch.dense(*copies, causal=True, return_lse=True)
    if layout is expand_heads:
        assert found[0].is_contiguous()
    else:
        assert found[0].stride() == strides_like(q, width)
    if width == q.shape[-1]:
        assert found[0].stride() == torch.empty_like(q).stride()
    assert found[1].is_contiguous()
    d_out = torch.randn(found[0].shape)
    gradients = [torch.autograd.grad((out * d_out).sum() + lse.sum(), inputs)
                 for (out, lse), inputs in ((found, (q, k, v)), (expected, copies))]  # fmt: skip
    for one, like in zip(gradients[0], (q, k, v), strict=True):
        assert one.stride() == torch.empty_like(like).stride()
    for one, other in zip((*found, *gradients[0]), (*expected, *gradients[1]), strict=True):
        assert torch.equal(one, other)


def test_each_gradient_is_like_its_own_argument():
    q, k, v = leaves(torch.Tensor.contiguous)
    k = turn(k.detach()).requires_grad_()
    bias = torch.randn(11, 11, 4).permute(2, 0, 1)[None].expand(2, 4, 11, 11).requires_grad_()
    out = fovea.torch.dense(q, k, v, bias=bias)
    d_q, d_k, d_v, d_bias = torch.autograd.grad(out.sum(), (q, k, v, bias))
    assert out.is_contiguous() and d_q.is_contiguous() and d_v.is_contiguous()
    assert d_k.stride() == k.stride()
    # Rows of a gradient are contiguous.
    assert d_bias.is_contiguous()


def test_rows_that_are_not_contiguous():
    q, k, v = leaves(turn_rows, width=8)
    out = fovea.torch.dense(q, k, v)
    assert out.is_contiguous()
    assert all(each.is_contiguous() for each in torch.autograd.grad(out.sum(), (q, k, v)))
    opcheck(FORWARD["dense"], (q.detach(), k.detach(), v.detach(), None, False, *[None] * 10))


def turn_all(value):
    """All tensors with rows, in another order of axes."""
    if isinstance(value, list):
        return [turn_all(each) for each in value]
    if not isinstance(value, torch.Tensor) or value.dim() not in (3, 4):
        return value
    axes = (value.dim() - 3, value.dim() - 2)
    return value.detach().transpose(*axes).contiguous().transpose(*axes).requires_grad_(value.requires_grad)


def tensors(found):
    """Those in tuples and lists."""
    if isinstance(found, (tuple, list)):
        return [each for part in found for each in tensors(part)]
    return [found] if isinstance(found, torch.Tensor) else []


def check_layout(found, like):
    """Strides of axes that have one entry say nothing."""
    for axis, expected in enumerate(torch.empty_like(like).stride()):
        assert like.shape[axis] == 1 or found.stride(axis) == expected


# Of these, the first result is like the first argument.
ORDERED = ("dense", "fast_multipole", "fast_multipole_linear", "vq", "conv", "low_rank", "polynomial_features",
           "quantize", "rope")  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_every_function(case):
    """The bits of contiguous arguments, with strides of the arguments."""
    arguments = case.arguments(11, gradients=True)
    turned = {name: turn_all(value) for name, value in arguments.items()}
    pulled = []
    for given in (arguments, turned):
        found = tensors(case(**given))
        inputs = tensors([given[name] for name in case.gradients])
        total = sum(each.square().sum() for each in found if each.requires_grad)
        pulled.append((found, torch.autograd.grad(total, inputs) if inputs else ()))
    for one, other in zip(tensors(pulled[0]), tensors(pulled[1]), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)
    (first, *_), gradients = pulled[1]
    if case.function in ORDERED:
        like = turned[next(iter(turned))]
        assert first.stride() == strides_like(like, first.shape[-1]) and not first.is_contiguous()
    if isinstance(case.function, str):
        for one, other in zip(gradients, inputs, strict=True):
            check_layout(one, other)


@EVERY_LAYOUT
def test_opcheck(layout):
    q, k, v = (each.detach() for each in leaves(layout))
    values = (q, k, v, None, True, *[None] * 10)
    out, lse = FORWARD["dense"](*values)
    assert set(opcheck(FORWARD["dense"], values).values()) == {"SUCCESS"}
    given = (torch.randn_like(out), q, k, v, out, lse, None, None, True, *[None] * 9, True, True, False, None)
    assert set(opcheck(BACKWARD["dense"], given).values()) == {"SUCCESS"}


@EVERY_LAYOUT
def test_compiles_for_any_number_of_tokens(layout):
    def function(q, k, v):
        out = fovea.torch.dense(q, k, v, causal=True)
        # What comes next is compiled for the strides of the fake.
        return out, out.transpose(1, 2).reshape(out.shape[0], out.shape[2], -1) * 2

    compiled = torch.compile(function, fullgraph=True, dynamic=True, backend="aot_eager")
    for N in (11, 14):
        inputs = leaves(layout, N=N)
        found, expected = compiled(*inputs), function(*inputs)
        for one, other in zip(found, expected, strict=True):
            assert torch.equal(one, other) and one.stride() == other.stride()
        gradients = [torch.autograd.grad(sum(map(torch.sum, each)), inputs) for each in (found, expected)]
        for one, other in zip(*gradients, strict=True):
            assert torch.equal(one, other) and one.stride() == other.stride()


def test_fakes_know_strides():
    for layout in (*LAYOUTS.values(), turn_rows):
        values = (*(each.detach() for each in leaves(layout)), None, True, *[None] * 10)
        with FakeTensorMode() as mode:
            fakes = [mode.from_tensor(each) if isinstance(each, torch.Tensor) else each for each in values]
            found = FORWARD["dense"](*fakes)
        assert [each.stride() for each in found] == [each.stride() for each in FORWARD["dense"](*values)]


@pytest.mark.parametrize("target", ["cpu", "reference", "gpu-sim"])
@pytest.mark.parametrize("type", [torch.float32, torch.bfloat16, torch.float16])
def test_types_and_targets(type, target):
    q, k, v = (turn(each.detach().to(type)) for each in leaves(torch.Tensor.contiguous))
    out = fovea.torch.dense(q, k, v, target=target)
    assert out.stride() == strides_like(q, 5) and out.dtype == type
    assert torch.equal(out, fovea.torch.dense(*(each.contiguous() for each in (q, k, v)), target=target))


def test_without_elements_and_with_one():
    for N in (0, 1):
        q, k, v = leaves(turn, N=N)
        out = fovea.torch.dense(q, k, v)
        assert out.shape == (2, 4, N, 5) and out.is_contiguous()
        assert torch.autograd.grad(out.sum(), q)[0].shape == q.shape


def test_bad_input_is_what_it_was():
    q, k, v = (turn(each.detach()) for each in leaves(torch.Tensor.contiguous))
    for bad in (v[0], v[0, 0, 0, 0]):
        with pytest.raises(ValueError, match="^v: found"):
            fovea.torch.dense(q, k, bad)
    with pytest.raises(ValueError, match="^q: found"):
        fovea.torch.dense(q[0], k, v)


def test_results_are_memory_of_their_own():
    q, k, v = (turn(each.detach()) for each in leaves(torch.Tensor.contiguous))
    first = fovea.torch.dense(q, k, v)
    copy = first.clone()
    second = fovea.torch.dense(-q, k, v)
    assert torch.equal(first, copy) and first.data_ptr() != second.data_ptr() != q.data_ptr()


def test_states_of_vq():
    arguments = CASES["vq"].arguments(11, gradients=True)
    q, v = (turn_all(arguments[name]) for name in ("q", "v"))
    expected, given = {}, {**arguments, "q": q, "v": v}
    for name, values in (("contiguous", arguments), ("turned", given)):
        out, state = fovea.torch.vq(**values, block=4, return_state=True)
        out, lse, _ = fovea.torch.vq(**values, block=4, state=state, return_state=True, return_lse=True)
        inputs = [values["q"], values["v"]]
        expected[name] = [out, lse, *torch.autograd.grad(out.sum() + lse.sum(), inputs)]
    for one, other in zip(*expected.values(), strict=True):
        assert torch.equal(one, other)
    assert expected["turned"][0].stride() == strides_like(q, 5)
    assert [each.stride() for each in expected["turned"][2:]] == [q.stride(), v.stride()]


# As in test_strides.py: there is memory to compile in, but none for a copy of keys or values, 256 MB each.
PROGRAM = """
import resource, sys
import torch
import fovea.torch

torch.set_num_threads(1)
fovea.set_num_threads(1)
tokens = 2**18
shape, last = ((1, 4, 64, tokens), (2, 3)) if sys.argv[1] == "scattered" else ((1, tokens, 4, 64), (1, 2))
q = torch.zeros(1, 4, 1, 64)
k, v = (torch.zeros(shape).transpose(*last) for _ in "kv")
attend = fovea.torch.dense if sys.argv[2] == "dense" else torch.nn.functional.scaled_dot_product_attention
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 240 * 2**20, resource.getrlimit(resource.RLIMIT_AS)[1]))
try:
    with fovea.torch.sdpa(), torch.no_grad():
        attend(q, k, v)
    print("in place")
except (MemoryError, RuntimeError):
    print("copied")
"""


@pytest.mark.parametrize("function", ["dense", "sdpa"])
@pytest.mark.parametrize("arrays, expected", [("tokens first", "in place"), ("scattered", "copied")])
def test_memory_of_a_decode_step(arrays, expected, function):
    command = [sys.executable, "-c", PROGRAM, arrays, function]
    process = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert process.returncode == 0, process.stderr
    assert process.stdout.strip() == expected
