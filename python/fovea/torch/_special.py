# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions of PyTorch that torch-mlir has no linalg for, by others, in f64 where digits would be lost."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from .._stablehlo_functions import LANCZOS, LANCZOS_SHIFT

__all__ = ["SPECIAL"]

aten = torch.ops.aten


def _result_type(x: Tensor) -> torch.dtype:
    return x.dtype if x.dtype.is_floating_point else torch.get_default_dtype()


# ----------------------------------------------------------------------------
# The error function
# ----------------------------------------------------------------------------

#: Maps [0, inf) to [-1, 1) by (x - k) / (x + k), where exp(x^2) erfc(x) (1 + 2 x) has few terms.
_MIDDLE = 3.75


@functools.cache
def _scaled_erfc() -> list[float]:
    """The terms of Chebyshev's series, with errors of 2e-14."""

    def sample(t: Any) -> Any:
        x = torch.from_numpy(_MIDDLE * (1 + t) / (1 - t))
        return (torch.special.erfcx(x) * (1 + 2 * x)).numpy()

    # Computed by PyTorch itself, whatever is traced.
    with _disable_current_modes():
        return [float(each) for each in np.polynomial.chebyshev.chebinterpolate(sample, 28)]


def _erfc(x: Tensor) -> Tensor:
    """With relative errors, as 1 - erf(x) has none far from zero."""
    type = _result_type(x)
    x = x.to(torch.float64)
    # Far away it is zero; a square of infinity would be no number.
    size = x.abs()
    near = torch.where(size > 30, torch.full((), 30.0, dtype=torch.float64), size)
    t = 2 * (near - _MIDDLE) / (near + _MIDDLE)
    first, *rest = _scaled_erfc()
    before, last = torch.zeros_like(t), torch.zeros_like(t)
    for each in reversed(rest):
        before, last = last, t * last - before + each
    series = t * 0.5 * last - before + first
    found = torch.exp(-near * near) * series / (1 + 2 * near)
    return torch.where(x < 0, 2 - found, found).to(type)


# ----------------------------------------------------------------------------
# The gamma function
# ----------------------------------------------------------------------------


def _series(x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Whether a number is reflected; one less than it, or than one less it; the series of Lanczos, and its derivative."""
    is_low = x < 0.5
    z = torch.where(is_low, -x, x - 1)
    sums, slope = torch.full_like(z, LANCZOS[0]), torch.zeros_like(z)
    for number, coefficient in enumerate(LANCZOS[1:], 1):
        term = coefficient / (z + number)
        sums, slope = sums + term, slope - term / (z + number)
    return is_low, z, sums, slope


def _lgamma(x: Tensor) -> Tensor:
    type = _result_type(x)
    x = x.to(torch.float64)
    is_low, z, sums, _ = _series(x)
    shift = z + (LANCZOS_SHIFT + 0.5)
    found = (z + 0.5) * torch.log(shift) - shift + torch.log(sums) + 0.5 * math.log(2 * math.pi)
    # Whole numbers have the logarithm of zero.
    sine = torch.sin(math.pi * (x - torch.round(x)).abs())
    found = torch.where(is_low, math.log(math.pi) - torch.log(sine) - found, found)
    return torch.where(x.abs() == math.inf, torch.full_like(x, math.inf), found).to(type)


def _digamma(x: Tensor) -> Tensor:
    type = _result_type(x)
    x = x.to(torch.float64)
    is_low, z, sums, slope = _series(x)
    shift = z + (LANCZOS_SHIFT + 0.5)
    found = torch.log(shift) + slope / sums - LANCZOS_SHIFT / shift
    distance = x - torch.round(x)
    found = torch.where(is_low, found - math.pi * torch.cos(math.pi * distance) / torch.sin(math.pi * distance), found)
    # Poles, of which that at zero has a sign.
    is_pole = (x <= 0) & (distance == 0)
    at_zero = -torch.ones_like(x) / x
    found = torch.where(is_pole, torch.where(x == 0, at_zero, torch.full_like(x, math.nan)), found)
    return torch.where(x == math.inf, x, found).to(type)


# ----------------------------------------------------------------------------
# Others
# ----------------------------------------------------------------------------


def _hypot(x: Tensor, y: Tensor) -> Tensor:
    """Without squares that overflow."""
    type = torch.result_type(x, y)
    x, y = x.to(type).abs(), y.to(type).abs()
    is_less = x < y
    most, least = torch.where(is_less, y, x), torch.where(is_less, x, y)
    ratio = least / torch.where(most == 0, torch.ones((), dtype=type), most)
    infinite = (x == math.inf) | (y == math.inf)
    return torch.where(infinite, torch.full((), math.inf, dtype=type), most * torch.sqrt(1 + ratio * ratio))


def _searchsorted(
    sorted_sequence: Tensor, values: Any, *, out_int32: bool = False, right: bool = False, side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """By halving, where the extent is known. NaN is after all numbers."""
    values = values if isinstance(values, Tensor) else torch.full((), values, dtype=sorted_sequence.dtype)
    right = right or side == "right"
    type = torch.result_type(sorted_sequence, values)
    if sorter is not None:
        sorted_sequence = sorted_sequence.gather(-1, sorter)
    count, is_scalar = sorted_sequence.shape[-1], values.dim() == 0
    values = values.reshape(1) if is_scalar else values

    def is_before(numbers: Tensor, wanted: Tensor) -> Tensor:
        numbers, wanted = numbers.to(type), wanted.to(type)
        return torch.logical_not(numbers > wanted if right else numbers >= wanted)

    if isinstance(count, torch.SymInt):
        found = is_before(sorted_sequence.unsqueeze(-2), values.unsqueeze(-1)).sum(-1)
    else:
        found, step = torch.zeros(values.shape, dtype=torch.int64), 1 << max(count.bit_length() - 1, 0)
        while step and count:
            there = found + step
            place = torch.where(there > count, torch.full((), count, dtype=torch.int64), there) - 1
            numbers = sorted_sequence[place] if sorted_sequence.dim() == 1 else sorted_sequence.gather(-1, place)
            found = torch.where((there <= count) & is_before(numbers, values), there, found)
            step //= 2
    found = found.to(torch.int32) if out_int32 else found
    return found.reshape(()) if is_scalar else found


def _bits(operation: Any) -> Callable[[Tensor, int], Tensor]:
    """Of a tensor and a number."""
    return lambda x, y: operation(x, torch.full((), y, dtype=torch.result_type(x, y)))


def _angle(x: Tensor) -> Tensor:
    if x.is_complex():
        parts = torch.view_as_real(x)
        return torch.atan2(parts[..., 1], parts[..., 0])
    type = _result_type(x)
    x = x.to(type)
    zero = torch.where(x == x, torch.zeros((), dtype=type), x)
    return torch.where(x < 0, torch.full((), math.pi, dtype=type), zero)


def _cdist(x: Tensor, y: Tensor, p: float, compute_mode: int | None = None) -> Tensor:
    """Of differences, which lose no digits where rows are near each other."""
    distances = (x.unsqueeze(-2) - y.unsqueeze(-3)).abs()
    if p == 0:
        return (distances != 0).to(x.dtype).sum(-1)
    if p == 1:
        return distances.sum(-1)
    if p == math.inf:
        return distances.amax(-1)
    return torch.sqrt((distances * distances).sum(-1)) if p == 2 else torch.pow(torch.pow(distances, p).sum(-1), 1 / p)


SPECIAL: dict[Any, Callable[..., Any]] = {
    aten.erfc.default: _erfc, aten.special_erfc.default: _erfc, aten.lgamma.default: _lgamma, aten.digamma.default: _digamma,
    aten.hypot.default: _hypot, aten.searchsorted.Tensor: _searchsorted, aten.searchsorted.Scalar: _searchsorted,
    aten.bitwise_and.Scalar: _bits(aten.bitwise_and.Tensor), aten.bitwise_or.Scalar: _bits(aten.bitwise_or.Tensor),
    aten.bitwise_xor.Scalar: _bits(aten.bitwise_xor.Tensor), aten.angle.default: _angle,
    aten._cdist_forward.default: _cdist,
}  # fmt: skip
