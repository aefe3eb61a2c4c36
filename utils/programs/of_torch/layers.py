# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What layers are made of: products, norms, convolutions, rotary embeddings."""

import torch
import torch.nn.functional as F

from ..draw import SIZES, broadcast, kind


@kind(1.5)
def product(draw):
    if draw.rank < 2:
        return None
    x = draw.x
    other = draw.pick(draw.others(lambda value: value.dim() == draw.rank))
    shape = draw.values[other].shape
    if broadcast(shape[:-2], x.shape[:-2]) and draw.random.random() < 0.7:
        if shape[-2] == x.shape[-1]:
            return draw.step("matmul", torch.matmul, other)
        if shape[-1] == x.shape[-1]:
            return draw.step("matmul of a transpose", lambda a, b: a @ b.transpose(-1, -2) * 0.3, other)
    weights = draw.normal(draw.pick(SIZES), x.shape[-1])
    return draw.step(f"linear {tuple(weights.shape)}", lambda x: F.linear(x, weights.to(x.dtype)))


@kind()
def norm(draw):
    if not draw.rank:
        return None
    dim = draw.dim
    return draw.one_of(
        {
            "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
            "rms_norm": lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5),
            "normalize": lambda x: F.normalize(x, dim=dim),
            "standardize": lambda x: (x - x.mean(dim, keepdim=True)) / (x.std(dim, keepdim=True, unbiased=False) + 1e-2),
            "cosine_similarity": lambda x: F.cosine_similarity(x, x.roll(1, -1) + 0.1, dim=-1),
        }
    )


def rotate(x):
    """Rotary embedding by halves."""
    half = x.shape[-1] // 2
    angles = torch.arange(x.shape[-2], dtype=x.dtype)[:, None] * torch.arange(1, half + 1, dtype=x.dtype) / half
    left, right = x[..., :half], x[..., half:]
    return x * torch.cat([angles.cos()] * 2, -1) + torch.cat([-right, left], -1) * torch.cat([angles.sin()] * 2, -1)


@kind()
def layer(draw):
    if not draw.rank:
        return None
    table = {"outer product": lambda x: x.unsqueeze(-1) * x.unsqueeze(-2)}
    if draw.rank >= 2:
        table["einsum"] = lambda x: torch.einsum("...ij,...kj->...ik", x, x) * 0.2
        table["distances"] = lambda x: (x.unsqueeze(-2) - x.unsqueeze(-3)).pow(2).sum(-1)
        if draw.x.shape[-1] % 2 == 0:
            table["rotary"] = rotate
    if draw.rank == 3:
        weights = draw.normal(4, draw.x.shape[1], min(3, draw.x.shape[2]))
        table |= {
            "conv1d": lambda x: F.conv1d(x, weights.to(x.dtype), padding=1),
            "avg_pool1d": lambda x: F.avg_pool1d(x, 2),
            "max_pool1d": lambda x: F.max_pool1d(x, 2),
        }
    return draw.step(*draw.pick(table))
