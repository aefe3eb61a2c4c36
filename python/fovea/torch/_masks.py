# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Boolean masks that are known by what they say, and what else becomes an option of `dense`."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from .._trace import ScoreFunction
from ..math import tanh


class Pattern(NamedTuple):
    """Query i stands at position p = i + `offset` among the keys.  It reads key j where
    j <= p if `causal`, where |p - j| < `window` if there is one, and where `keys` [B,M],
    if any, are true."""

    causal: bool
    window: int | None
    keys: Tensor | None
    offset: int


class PatternMask(Tensor):
    """The boolean mask [B,1,N,M] of a pattern, without elements until it is computed with."""

    pattern: Pattern
    _elements: Tensor | None
    _log_weight: Tensor | None

    @staticmethod
    def __new__(cls, pattern: Pattern, shape: tuple[int, ...], device: Any) -> PatternMask:
        mask = Tensor._make_wrapper_subclass(cls, shape, dtype=torch.bool, device=device)
        mask.pattern, mask._elements, mask._log_weight = pattern, None, None
        return mask

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, kwargs = tree_map_only(cls, cls.write_out, (args, kwargs or {}))
        return function(*args, **kwargs)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"PatternMask({self.pattern}, shape={tuple(self.shape)})"

    def write_out(self) -> Tensor:
        if self._elements is None:
            N, M = self.shape[-2:]
            causal, window, keys, offset = self.pattern
            rows = torch.arange(N, device=self.device)[:, None] + offset
            distance = rows - torch.arange(M, device=self.device)
            admitted = distance >= 0 if causal else torch.ones_like(distance, dtype=torch.bool)
            if window is not None:
                admitted = admitted & (distance.abs() < window)
            mask = admitted.expand(self.shape)
            self._elements = mask if keys is None else mask & keys[:, None, None]
        return self._elements

    def log_weight(self) -> Tensor | None:
        """[B,1,M]: 0 for present keys, -inf for absent ones; the same for all layers."""
        if self._log_weight is None and self.pattern.keys is not None:
            self._log_weight = to_log_weight(self.pattern.keys[:, None])
        return self._log_weight


def to_log_weight(present: Tensor) -> Tensor:
    """0 where it is true, -inf elsewhere."""
    return torch.zeros((), device=present.device).masked_fill(~present, float("-inf"))


def soft_cap(limit: float | None) -> ScoreFunction | None:
    """Scores that stay between `limit` and its opposite, as those of Gemma 2 do; None for none."""
    return None if limit is None else lambda s, b, h, i, j: limit * tanh(s / limit)
