# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention as models write it, which is raised to one operation."""

import torch
import torch.nn.functional as F

from ..draw import kind

#: What is done to scores.
SCORES = {
    "plain": lambda s, k: s,
    "bias": lambda s, k: s + torch.arange(s.shape[-1], dtype=s.dtype) * 0.05,
    "linear": lambda s, k: s * 1.3 - 0.2,
    "soft-cap": lambda s, k: 5 * torch.tanh(s / 5),
    "mask": lambda s, k: torch.where(
        (k[..., 0].unsqueeze(-2) > -1.5) | (torch.arange(s.shape[-1]) == 0), s, torch.tensor(-1e9, dtype=s.dtype)
    ),
}


@kind(1.5)
def attention(draw):
    if draw.rank < 3:
        return None
    key, value, causal = draw.attended()
    scale, sink = draw.pick([None, 0.3, 1.0]), draw.random.random() < 0.2
    if draw.random.random() < 0.3:

        def call(q, k, v):
            return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)

        return draw.step(f"scaled_dot_product_attention causal={causal} scale={scale}", call, key, value)
    name, change = draw.pick(SCORES)

    def written(q, k, v):
        scores = change(q @ k.transpose(-1, -2) * (scale or q.shape[-1] ** -0.5), k)
        if causal:
            future = torch.ones(scores.shape[-2], scores.shape[-1], dtype=torch.bool).triu(1)
            scores = scores.masked_fill(future, torch.finfo(scores.dtype).min)
        if sink:
            scores = torch.cat([scores, torch.zeros_like(scores[..., :1]) + 0.4], -1)
        weights = scores.softmax(-1)
        return (weights[..., :-1] if sink else weights) @ v

    return draw.step(f"attention {name} causal={causal} scale={scale} sink={sink}", written, key, value)
