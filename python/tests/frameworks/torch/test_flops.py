# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What FlopCounterMode of PyTorch counts for operators."""

from functools import partial

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode
from torch_cases import CASES, attention, packed

import fovea.torch
from fovea import _fovea


def flat(found):
    return [each for part in found for each in flat(part)] if isinstance(found, (tuple, list)) else [found]


def differentiable(found):
    return [each for each in flat(found) if isinstance(each, torch.Tensor) and each.requires_grad]


def count(call):
    """The numbers of the forward and of the backward call, by operator."""
    with FlopCounterMode(display=False) as counter:
        found = differentiable(call())
        forward = dict(counter.get_flop_counts().get("Global", {}))
        if found:
            torch.autograd.backward(found, [torch.ones_like(each) for each in found])
    total = counter.get_flop_counts().get("Global", {})
    return {str(name).removeprefix("fovea."): number for name, number in total.items() if number}, forward


def test_products_of_dense():
    B, H, N, D, E = 2, 4, 11, 8, 5
    arguments = attention(N, torch.float32)
    for each in arguments.values():
        each.requires_grad_()
    for options, pairs in (({}, N * N), ({"causal": True}, N * (N + 1) // 2), ({"causal": True, "window": 3}, 3 * N - 3)):
        found, _ = count(partial(fovea.torch.dense, **arguments, **options))
        assert found == {"dense": 2 * (D + E) * B * H * pairs, "dense_backward": 2 * (3 * D + 2 * E) * B * H * pairs}


def test_sequences_that_are_packed():
    """Each is a call; starts that nobody knows are those of one sequence."""
    N, H, D, E = 11, 4, 8, 5
    arguments = packed(N, torch.float32)
    pairs = (N // 3) * (N // 2) + (N - N // 3) * (N - N // 2)
    assert count(lambda: fovea.torch.varlen(**arguments))[0] == {"varlen": 2 * (D + E) * H * pairs}
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fakes = {name: mode.from_tensor(each) for name, each in arguments.items()}
        assert count(lambda: fovea.torch.varlen(**fakes))[0] == {"varlen": 2 * (D + E) * H * N * N}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_as_kernels_count(case):
    """What the kernels of a call were compiled from says the same, and nothing is compiled to know it."""
    arguments = case.arguments(gradients=True)
    found, forward = count(lambda: case(**arguments))
    if isinstance(case.function, str) and case.function != "varlen":
        plain = case.arguments()
        kernels = _fovea.record_kernels(lambda: _fovea.call_with_shapes("static", lambda: case(**plain)))
        assert sum(forward.values()) == sum(int(_fovea.count_flops(kernel, shapes) or 0) for kernel, shapes, *_ in kernels)
    unknown = [each for value in arguments.values() for each in flat(value)]
    if case.function == "varlen" or any(each.dtype == torch.bool for each in unknown):
        return
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:

        def fake(value):
            return [fake(each) for each in value] if isinstance(value, list) else mode.from_tensor(value)

        fakes = {name: fake(value) for name, value in arguments.items()}
        assert count(lambda: case(**fakes))[0] == found


def test_tokens_of_vq():
    """Of the codewords, and of the tokens that are kept."""
    q, k, v, codebook = torch.randn(2, 4, 1, 8), torch.zeros(2, 2, 1, dtype=torch.int32), torch.randn(2, 2, 1, 5), torch.randn(1, 6, 8)
    found, _ = count(lambda: fovea.torch.vq_decode(q, k, v, codebook, block=4))
    assert found == {"vq_decode": 2 * 2 * 4 * (8 * 6 + 5 * (6 + 8))}


def test_modules():
    model = torch.nn.ModuleDict({"near": fovea.torch.nn.Attention(16, 2, batch_first=True)})
    x = torch.randn(1, 6, 16)
    with FlopCounterMode(display=False) as counter:
        model["near"](x, x, x)
    assert counter.get_flop_counts()["Attention"][torch.ops.fovea.dense] == 2 * 16 * 6 * 6 * 2
