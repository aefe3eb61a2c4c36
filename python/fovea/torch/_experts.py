# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Experts of transformers as products whose shapes do not depend on which of them a token is sent to."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["experts_at_once"]


def _apply(x: Tensor, weights: Tensor, bias: Tensor | None, is_transposed: bool) -> Tensor:
    """Each of some products, of all rows or of its own."""
    product = torch.matmul(x, weights if is_transposed else weights.transpose(-2, -1))
    return product if bias is None else product + bias.unsqueeze(-2)


def _compute(experts: Any, x: Tensor, chosen: Tensor | None) -> Tensor:
    """Results of the experts, or of those that are chosen, one row or more of each."""

    def get(name: str) -> Tensor | None:
        weights = getattr(experts, name, None)
        return weights if weights is None or chosen is None else weights[chosen]

    first = "gate_up_proj" if experts.has_gate else "up_proj"
    bias = {name: get(f"{name}_bias") if experts.has_bias else None for name in (first, "down_proj")}
    x = _apply(x, get(first), bias[first], experts.is_transposed)
    x = experts._apply_gate(x) if experts.has_gate else experts.act_fn(x)
    x = _apply(x, get("down_proj"), bias["down_proj"], experts.is_transposed)
    return experts.post_expert_norm(x) if experts.has_post_expert_norm else x


# Rows that are counted together, and the fewest of a block: they are computed at the speed of products.
_CHUNK = 64


def _plan_blocks(rows: int, number: int) -> tuple[int, int]:
    """How many rows a block of one expert has, and the most blocks that the experts fill, the last of each in part.

    Blocks are at most nine for each expert: where weights are copied for each, these are not many times as large."""
    size = max(1, -(-rows // (8 * number * _CHUNK))) * _CHUNK
    return size, (rows + number * (size - 1)) // size


def _compute_blocks(experts: Any, x: Tensor, chosen: Tensor, number: int) -> Tensor:
    """Results [tokens, chosen, width]: rows go to blocks by their experts, whose number is known before."""
    tokens, count = chosen.shape
    rows, chunks = tokens * count, -(-tokens * count // _CHUNK)
    size, blocks = _plan_blocks(rows, number)
    index = chosen.reshape(-1)
    # How many rows each expert has up to each row: within chunks, and by all chunks up to each.
    hits = (index.unsqueeze(-1) == torch.arange(number)).long()
    hits = nn.functional.pad(hits, (0, 0, 0, chunks * _CHUNK - rows)).view(chunks, _CHUNK, number)
    within = hits.cumsum(1)
    until = within[:, -1].cumsum(0)
    seen = within + (until - within[:, -1]).unsqueeze(1)
    # Each expert's first block, and the expert of each block, and the number of each of its rows.
    filled = (until[-1] + (size - 1)) // size
    ends = filled.cumsum(0)
    starts = ends - filled
    block = torch.arange(blocks)
    expert = (block.unsqueeze(-1) >= ends).long().sum(-1).clamp(max=number - 1)
    rank = (block - starts[expert]).unsqueeze(-1) * size + torch.arange(size)
    # The row with so many before it. What is no row of any is computed, and not read.
    chunk = (until.t()[expert].unsqueeze(1) <= rank.unsqueeze(-1)).long().sum(-1).clamp(max=chunks - 1)
    before = seen.permute(2, 0, 1)[expert.unsqueeze(-1), chunk] <= rank.unsqueeze(-1)
    row = (chunk * _CHUNK + before.long().sum(-1)).clamp(max=rows - 1)
    results = _compute(experts, x[row // count], expert)
    # A number behind the experts is none, and adds nothing.
    place = starts[index.clamp(max=number - 1)] * size + (hits * seen).view(-1, number)[:rows].sum(-1) - 1
    results = results.flatten(0, 1)[place.clamp(min=0)]
    return torch.where((index < number).unsqueeze(-1), results, 0).view(tokens, count, -1)


def _forward(experts: Any, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
    tokens, width = hidden_states.shape
    count = top_k_index.shape[-1]
    number = getattr(experts, "gate_up_proj" if experts.has_gate else "up_proj").shape[0]
    if isinstance(tokens, int) and tokens * count < number:
        # The weights of those that are read.
        rows = hidden_states.repeat_interleave(count, 0).unsqueeze(1)
        results = _compute(experts, rows, top_k_index.reshape(-1)).view(tokens, count, width)
        return (results * top_k_weights.unsqueeze(-1)).sum(1).to(hidden_states.dtype)
    size, blocks = _plan_blocks(tokens * count, number) if isinstance(tokens, int) else (0, 0)
    if 0 < 5 * size * blocks <= 4 * tokens * number:
        results = _compute_blocks(experts, hidden_states, top_k_index, number)
        return (results * top_k_weights.unsqueeze(-1)).sum(1).to(hidden_states.dtype)
    hits = top_k_index.unsqueeze(-1) == torch.arange(number)
    weights = torch.where(hits, top_k_weights.unsqueeze(-1), 0).sum(1).t().unsqueeze(-1)
    results = _compute(experts, hidden_states.unsqueeze(0), None)
    # Of what no token is sent to nothing is added, not even NaN.
    return torch.where(hits.any(1).t().unsqueeze(-1), results * weights, 0).sum(0).to(hidden_states.dtype)


@contextmanager
def experts_at_once(model: nn.Module) -> Iterator[None]:
    """Experts of the model compute all tokens, and add up what the router asks for: a product for each expert, whose
    shape is known.  Of few tokens the weights of their experts are gathered instead."""
    # What transformers.integrations.use_experts_implementation adds.
    names = ("has_gate", "has_bias", "is_transposed", "has_post_expert_norm", "_apply_gate")
    changed = [module for module in model.modules() if all(hasattr(module, name) for name in names)]
    before = [vars(module).get("forward") for module in changed]
    try:
        for module in changed:
            vars(module)["forward"] = functools.partial(_forward, module)
        yield
    finally:
        for module, forward in zip(changed, before):
            if forward is None:
                del vars(module)["forward"]
            else:
                vars(module)["forward"] = forward
