# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the tests of modules share."""

import copy

import torch

from fovea.torch import nn

# Small modules of every class, for sequences of up to 64 tokens and 16 columns.
OPTIONS = {
    "dense": (nn.Attention, dict(num_key_heads=1, window=7, sinks=True)),
    "multipole": (nn.FastMultipoleAttention, dict(group=4, rank=2, max_length=64)),
    "quantized": (nn.VQAttention, dict(num_codes=8, block=4)),
    "conv": (nn.ConvBasisAttention, dict(num_basis=6, window=2, delta=0.1)),
}


def make(name, embed_dim=16, num_heads=2, seed=0, **options):
    torch.manual_seed(seed)
    module, chosen = OPTIONS[name]
    return module(embed_dim, num_heads, batch_first=True, **{**chosen, **options})


def normal(*shape, seed=1, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def in_float64(module):
    """A copy whose parameters and buffers are those of `module`."""
    return copy.deepcopy(module).double()


def gradients(module, out):
    """Of a sum of `out` with fixed weights, for all parameters that it depends on."""
    module.zero_grad()
    (out * normal(*out.shape, seed=9).to(out.dtype)).sum().backward()
    found = {name: parameter.grad for name, parameter in module.named_parameters()}
    # Levels beyond a short sequence have none.
    return {name: gradient for name, gradient in found.items() if gradient is not None}


def near(found, expected, bound=1e-5):
    assert found.shape == expected.shape
    size = expected.abs().max().clamp(min=0.1)
    assert (found.double() - expected).abs().max() <= bound * size


def check_gradients(found, expected, bound=2e-5):
    assert found.keys() == expected.keys()
    for name in expected:
        near(found[name], expected[name], bound)


def heads(module, x):
    """q, k, v [B,H,N,D] of tokens x [B,N,F], by the definition."""
    sizes = [module.num_heads, module.num_key_heads, module.num_key_heads]
    width = module.head_dim
    rows = x @ module.in_proj_weight.T + module.in_proj_bias
    parts = rows.split([size * width for size in sizes], -1)
    q, k, v = (part.unflatten(-1, (-1, width)).transpose(1, 2) for part in parts)
    repeats = module.num_heads // module.num_key_heads
    return q, k.repeat_interleave(repeats, 1), v.repeat_interleave(repeats, 1)


def merge(module, out):
    return out.transpose(1, 2).flatten(2) @ module.out_proj.weight.T + module.out_proj.bias
