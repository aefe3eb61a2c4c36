# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls that go past PyTorch's dispatcher, and those that must not."""

import pytest
import torch
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import fovea.torch
from fovea._declarations import FUNCTIONS
from fovea.torch._operator import FORWARD, KERNELS
from fovea.torch._shortcut import make_look
from fovea.torch._tape import _Packing

look = make_look([(0, True), (1, True)])


def is_plain(values):
    return look(values) is not None


def qkv(gradients=False):
    torch.manual_seed(0)
    return [torch.randn(2, 2, 9, 8).requires_grad_(gradients) for _ in range(3)]


class Flagged(torch.Tensor):
    pass


def test_tensors():
    x = torch.randn(2, 3)
    plain = x, x.T, x[:, 1], x.clone().requires_grad_(), torch.nn.Parameter(x), x.bfloat16(), x.expand(4, 2, 3)
    others = (
        torch._neg_view(x), torch._efficientzerotensor(3), x.to_sparse(), x.to("meta"), x.as_subclass(Flagged), x.numpy(), 1.0,
    )  # fmt: skip
    assert all(is_plain((each, None)) for each in plain)
    assert not any(is_plain((each, x)) or is_plain((x, each)) for each in others)
    assert is_plain((x, [x, x])) and is_plain((x, [])) and not is_plain((x, [x, x.to("meta")]))
    with torch.inference_mode():
        assert is_plain((torch.ones(3), x))


def test_what_nodes_take():
    x, weight = torch.randn(2, 3), torch.randn(3, requires_grad=True)
    assert look((x, None, 1)) == look((x, [x, x], 1)) == ()
    rest, *tensors = look((x, weight, 1, None))
    assert rest == (1, 1, 1, None) and tensors[0] is x and tensors[1] is weight
    with torch.no_grad():
        assert look((x, weight, 1)) == ()
    # What has no gradient is refused on the way to the dispatcher.
    assert make_look([(0, True), (1, False)])((x, weight)) is None
    assert make_look([(0, False), (1, True)])((x, weight)) is not None


@pytest.mark.parametrize("is_given", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_both_ways_to_pack_are_one(name, is_given):
    """In C++, and in Python, which compilers trace."""
    arguments = FUNCTIONS[name].values
    fill = iter(torch.randn(100, 2).requires_grad_().unbind())

    def value(each):
        if not each.is_array:
            return each.name
        if each.is_optional and not is_given:
            return None
        return [next(fill) for _ in range(3)] if each.is_list else next(fill)

    values = (*map(value, arguments), "cpu")
    packing = _Packing(arguments)
    rest, tensors = packing.split(values)
    inputs = make_look([(index, True) for index in packing.arrays])(values)
    assert inputs[0] == rest and all(one is other for one, other in zip(inputs[1:], tensors, strict=True))
    for one, other in zip(packing.join(rest, tensors), values, strict=True):
        assert one is other or all(a is b for a, b in zip(one, other, strict=True))


class Watching(TorchFunctionMode):
    def __torch_function__(self, function, types, arguments=(), options=None):
        return function(*arguments, **(options or {}))


def test_those_who_look_see_operators():
    x = torch.randn(2, 3)
    for watcher in (TorchDispatchMode(), Watching(), torch.profiler.profile(), forward_ad.dual_level()):
        with watcher:
            assert not is_plain((x, x))
        assert is_plain((x, x))
    torch.func.vmap(lambda each: (each, pytest.fail("plain") if is_plain((each, each)) else None)[0])(x)

    q, k, v = qkv(gradients=True)
    with torch.profiler.profile() as profile:
        fovea.torch.dense(q, k, v).sum().backward()
    assert {"fovea::dense", "fovea::dense_backward"} <= {each.name for each in profile.events()}


def test_compilers_see_operators():
    seen = []

    def look_at(module, inputs):
        seen.extend(str(node.target) for node in module.graph.nodes)
        return module

    torch.compile(lambda *given: fovea.torch.dense(*given), backend=look_at, fullgraph=True)(*qkv())
    assert any("fovea" in each and "dense" in each for each in seen), seen


def test_views_with_a_sign():
    q, k, v = qkv()
    turned = torch._neg_view(q)
    assert torch.equal(fovea.torch.dense(turned, k, v), fovea.torch.dense(-q, k, v))


def test_kernels_are_those_of_operators():
    q, k, v = qkv()
    values = (q, k, v, None, True, *[None] * 10)
    for one, other in zip(KERNELS[FORWARD["dense"]](*values), FORWARD["dense"](*values), strict=True):
        assert torch.equal(one, other) and one.stride() == other.stride()


@pytest.mark.parametrize("gradients", [False, True])
def test_first_results_are_those_of_all(gradients):
    q, k, v = qkv(gradients)
    assert torch.equal(fovea.torch.dense(q, k, v), fovea.torch.dense(q, k, v, return_lse=True)[0])
    turned = q.transpose(1, 2).contiguous().transpose(1, 2)
    assert fovea.torch.dense(turned, k, v).stride() == fovea.torch.dense(turned, k, v, return_lse=True)[0].stride()


def test_saved_tensors_are_watched():
    """Nodes keep what PyTorch sees: changed arguments are errors."""
    q, k, v = qkv(gradients=True)
    q = q * 1
    out = fovea.torch.dense(q, k, v)
    with torch.no_grad():
        q.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


@pytest.mark.parametrize("gradients", [False, True])
def test_tangents_are_refused(gradients):
    q, k, v = qkv(gradients)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(k, torch.ones_like(k))
        with pytest.raises(NotImplementedError, match="dense: k has a tangent, but dense has no derivatives in forward"):
            fovea.torch.dense(q, dual, v)
        assert fovea.torch.dense(q, k, v).shape == q.shape
    with pytest.raises(NotImplementedError, match="dense: q has a tangent"):
        torch.func.jvp(lambda q: fovea.torch.dense(q, k, v), (q,), (q,))
