# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Adaptive pools of whole programs, whose windows torch-mlir takes to be of one size, that of the example."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def _are_counts(x: Tensor, sizes: Sequence[Any]) -> bool:
    """Whether there are as many windows as numbers of Python say, or as elements."""
    return all(isinstance(size, int) or size in x.shape for size in sizes)


def _are_even(x: Tensor, sizes: Sequence[Any]) -> bool:
    """Whether windows do not overlap, and have one size that is known."""
    extents = x.shape[x.dim() - len(sizes) :]
    return all(isinstance(extent, int) and extent % size == 0 for extent, size in zip(extents, sizes))


def _windows(extent: Any, size: int) -> list[tuple[Any, Any]]:
    """The first element of each, and how many it has."""
    return [(i * extent // size, -(-(i + 1) * extent // size) - i * extent // size) for i in range(size)]


def adaptive_average(x: Tensor, sizes: Sequence[Any]) -> Tensor:
    # Of one axis, or without a batch, torch-mlir has none.
    is_batch = x.dim() == 2 + len(sizes) > 3
    if (is_batch and _are_even(x, sizes)) or not _are_counts(x, sizes):
        return NotImplemented
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    for dim, size in enumerate(sizes, x.dim() - len(sizes)):
        if isinstance(size, int):
            parts = [wide.narrow(dim, *window).mean(dim, keepdim=True) for window in _windows(x.shape[dim], size)]
            wide = torch.cat(parts, dim)
    return wide.to(x.dtype)


def adaptive_maximum(x: Tensor, sizes: Sequence[Any]) -> tuple[Tensor, Tensor]:
    """Maxima, and their numbers in their images."""
    if not _are_counts(x, sizes):
        return NotImplemented
    step: Any = 1
    places = torch.zeros_like(x, dtype=torch.int64)
    # Of equal ones the first counts, row by row: rows are searched before columns.
    for dim, size in reversed(list(enumerate(sizes, x.dim() - len(sizes)))):
        extent = x.shape[dim]
        own = torch.arange(extent).reshape([-1] + [1] * (x.dim() - 1 - dim))
        places = places + own * step
        step = step * extent
        if isinstance(size, int):
            found = []
            for window in _windows(extent, size):
                top, at = x.narrow(dim, *window).max(dim, keepdim=True)
                found.append((top, places.narrow(dim, *window).gather(dim, at)))
            x, places = (torch.cat(parts, dim) for parts in zip(*found))
    return x, places
