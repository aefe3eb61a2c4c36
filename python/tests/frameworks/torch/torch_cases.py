# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One call of every function, for what holds of all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

import fovea.torch


class Case(NamedTuple):
    """`make(N, type)` gives the arguments by name, with N tokens; `gradients` names those
    that have one, `batched` those with a batch axis."""

    function: str
    make: Callable[..., dict[str, Any]]
    gradients: tuple[str, ...]
    options: dict[str, Any] = {}

    def arguments(self, N: int = 11, type: torch.dtype = torch.float32, gradients: bool = False) -> dict[str, Any]:
        torch.manual_seed(N)
        found = self.make(N, type)
        if gradients:
            for name in self.gradients:
                entries = found[name] if isinstance(found[name], list) else [found[name]]
                for each in entries:
                    each.requires_grad_()
        return found

    def __call__(self, **arguments: Any) -> Any:
        return getattr(fovea.torch, self.function)(**arguments, **self.options)


def normal(*shape: int, type: torch.dtype) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64).to(type)


def attention(N: int, type: torch.dtype, B: int = 2, H: int = 4, G: int = 2, D: int = 8, E: int = 5) -> dict[str, Any]:
    return {
        "q": normal(B, H, N, D, type=type),
        "k": normal(B, G, N, D, type=type),
        "v": normal(B, G, N, E, type=type),
    }


def dense_with_all(N: int, type: torch.dtype) -> dict[str, Any]:
    return {
        **attention(N, type),
        "log_weight": normal(2, 2, N, type=type),
        "bias": normal(2, 4, N, N, type=type),
    }


CASES = {
    "dense": Case("dense", attention, ("q", "k", "v")),
    "dense-causal": Case("dense", attention, ("q", "k", "v"), {"causal": True, "window": 5, "scale": 0.5}),
    "dense-bias": Case("dense", dense_with_all, ("q", "k", "v", "log_weight", "bias")),
    "dense-lse": Case("dense", attention, ("q", "k", "v"), {"return_lse": True}),
}
