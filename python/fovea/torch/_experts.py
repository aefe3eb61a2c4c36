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


def _forward(experts: Any, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
    tokens, width = hidden_states.shape
    count = top_k_index.shape[-1]
    number = getattr(experts, "gate_up_proj" if experts.has_gate else "up_proj").shape[0]
    if isinstance(tokens, int) and tokens * count < number:
        # The weights of those that are read.
        rows = hidden_states.repeat_interleave(count, 0).unsqueeze(1)
        results = _compute(experts, rows, top_k_index.reshape(-1)).view(tokens, count, width)
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
