# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Positions of rope, which kernels read in 32 bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .. import _fovea

_TOO_WIDE = "positions: found a number of more than 32 bits"


def _narrow(positions: Tensor) -> Tensor:
    """As int32.  Where a call runs, whoever traced it, numbers are there to compare; kernels of a GPU do it there, whose
    assertions fail the call, not the device."""
    kind = positions.dtype
    if kind.itemsize <= 4 and kind != torch.uint32:
        return positions.to(torch.int32)
    wide = positions.to(torch.int64)
    if kind == torch.uint64:
        wide = torch.where(wide < 0, torch.iinfo(torch.int64).max, wide)
    if positions.is_cuda:
        return wide
    narrow = wide.to(torch.int32)
    if not torch.equal(narrow.to(torch.int64), wide):
        raise ValueError(_TOO_WIDE)
    return narrow


def _with_narrow(run: Callable[..., Any]) -> Callable[..., Any]:
    def call(x: Tensor, positions: Tensor, *values: Any, **options: Any) -> Any:
        return run(x, _narrow(positions), *values, **options)

    return call


#: What operators call in place of the compiled functions.
ADAPTED = {name: _with_narrow(getattr(_fovea.tensors, name)) for name in ("rope", "rope_backward")}
