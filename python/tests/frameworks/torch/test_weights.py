# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Weights of summaries from a module of PyTorch, and through levels, with gradients."""

import torch

import fovea.torch


def test_conv1d_is_its_weights():
    heads, width, rank, interval = 2, 3, 2, 4
    module = torch.nn.Conv1d(heads * width, heads * width * rank, interval, stride=interval, groups=heads * width).double()
    x = torch.randn(2, heads, 3 * interval, width, dtype=torch.float64)
    weights, biases = fovea.torch.key_weights_from_conv1d(module.weight, module.bias, width=width, heads=heads)
    cut = x.unflatten(2, (3, interval))
    found = torch.einsum("bhutd,hatd->bhuad", cut, weights) + biases[:, None]
    expected = module(x.transpose(2, 3).flatten(1, 2)).unflatten(1, (heads, width, rank))
    torch.testing.assert_close(found, expected.permute(0, 1, 4, 3, 2))
    found.square().sum().backward()
    assert module.weight.grad.abs().sum() > 0 and module.bias.grad.abs().sum() > 0


def test_gradients_pass_through_levels():
    first = torch.randn(1, 2, 4, 3, dtype=torch.float64, requires_grad=True)
    steps = [torch.randn(1, 2, 4, 3, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    assert torch.autograd.gradcheck(lambda first, *steps: fovea.torch.hierarchical_weights(first, steps), (first, *steps))
