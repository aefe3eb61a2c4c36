# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What functions do to types under torch.autocast."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import torch

from .._declarations import Declaration

#: Attention is computed in the type of autocast, as PyTorch's own is.  Others take the widest
#: type of their arguments, as those of PyTorch do that need all to be of one.
_LOWER = frozenset(
    [
        "conv", "conv_apply", "conv_recover", "dense", "fast_multipole", "fast_multipole_linear", "low_rank", "paged", "stream",
        "varlen", "vq",
    ]  # fmt: skip
)
#: These have types of their own, of sums as a rule.
_KEPT = frozenset(["bias", "captures", "codebook", "counts", "log_weight", "sink", "state", "sums"])


def make_autocast(name: str, declaration: Declaration) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """Casts values of the arguments of a function where autocast is on; float64 stays."""
    cast = [
        index for index, each in enumerate(declaration.values) if each.is_array and each.name not in _KEPT
    ]

    def entries(value: Any) -> Sequence[Any]:
        return value if isinstance(value, (list, tuple)) else (value,)

    def is_cast(value: Any) -> bool:
        return isinstance(value, torch.Tensor) and value.is_floating_point() and value.dtype != torch.float64

    def to_type(value: Any, to: torch.dtype) -> Any:
        if isinstance(value, (list, tuple)):
            return [to_type(each, to) for each in value]
        return value.to(to) if is_cast(value) else value

    def autocast(values: Sequence[Any]) -> Sequence[Any]:
        # Other arguments than tensors are refused by the operator, other devices, too.
        place = values[0].device.type if isinstance(values[0], torch.Tensor) else ""
        if place not in ("cpu", "cuda") or not torch.is_autocast_enabled(place):
            return values
        if name in _LOWER:
            to = torch.get_autocast_dtype(place)
        else:
            types = [each.dtype for index in cast for each in entries(values[index]) if is_cast(each)]
            if not types:
                return values
            to = reduce(torch.promote_types, types)
        return [to_type(value, to) if index in cast else value for index, value in enumerate(values)]

    return autocast
