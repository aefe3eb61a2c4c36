# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fourier transforms of PyTorch as products of real numbers."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from .._fourier import check_length, transform, transform_to_real

__all__ = ["FOURIER"]

aten = torch.ops.aten


def _scale(lengths: Sequence[int], normalization: int) -> float:
    """By the number of PyTorch's operators: 1 for the root of the count, 2 for the count."""
    count = math.prod(lengths)
    return (1.0, 1 / math.sqrt(count), 1 / count)[normalization]


def _known(length: Any) -> int:
    if not isinstance(length, int):
        raise NotImplementedError("a Fourier transform of an extent that is not known")
    if wrong := check_length(length):
        raise NotImplementedError(wrong)
    return length


def _constant(type: torch.dtype, matrix: Any) -> Tensor:
    # A tensor of its own, whatever is traced.
    with _disable_current_modes():
        return torch.tensor(matrix, dtype=type)


def _along(x: Tensor, dim: int, compute: Callable[[Tensor], Tensor], is_real: bool = False) -> Tensor:
    """`compute` of rows along a dimension; pairs are behind all dimensions."""
    last = x.dim() - (1 if is_real else 2)
    x = x.transpose(dim, last)
    found = compute(x.reshape(-1, *x.shape[last:]))
    return found.reshape(*x.shape[:last], *found.shape[1:]).transpose(dim, last)


def _complex(x: Tensor, dims: Sequence[int], is_inverse: bool, scale: float) -> Tensor:
    """Of pairs, over dimensions of complex numbers."""
    for number, dim in enumerate(dims):
        _known(x.shape[dim])
        constant = functools.partial(_constant, x.dtype)
        x = _along(x, dim, functools.partial(transform, is_inverse=is_inverse, scale=1.0 if number else scale, constant=constant))
    return x


def _c2c(x: Tensor, dim: Sequence[int], normalization: int, forward: bool) -> Tensor:
    dims = [each % x.dim() for each in dim]
    scale = _scale([_known(x.shape[each]) for each in dims], normalization)
    return torch.view_as_complex(_complex(torch.view_as_real(x.resolve_conj()), dims, not forward, scale).contiguous())


def _r2c(x: Tensor, dim: Sequence[int], normalization: int, onesided: bool) -> Tensor:
    *others, last = (each % x.dim() for each in dim)
    lengths = [_known(x.shape[each]) for each in (*others, last)]
    constant = functools.partial(_constant, x.dtype)
    found = _along(x, last, lambda rows: transform(rows, False, 1.0, constant, is_real=True), is_real=True)
    if onesided:
        found = found.narrow(last, 0, lengths[-1] // 2 + 1)
    found = _complex(found, others, False, 1.0)
    scale = _scale(lengths, normalization)
    return torch.view_as_complex((found if scale == 1.0 else found * scale).contiguous())


def _mirror(x: Tensor, count: int) -> Tensor:
    others = x.narrow(1, 1, count).flip(1)
    return torch.cat([x, torch.stack([others[..., 0], -others[..., 1]], -1)], 1)


def _c2r(x: Tensor, dim: Sequence[int], normalization: int, last_dim_size: int) -> Tensor:
    *others, last = (each % x.dim() for each in dim)
    lengths = [*(_known(x.shape[each]) for each in others), _known(last_dim_size)]
    pairs = _complex(torch.view_as_real(x.resolve_conj()), others, True, 1.0)
    scale = _scale(lengths, normalization)

    def compute(rows: Tensor) -> Tensor:
        return transform_to_real(rows, lengths[-1], scale, functools.partial(_constant, rows.dtype), _mirror)

    return _along(pairs, last, compute)


def _by_parts(operator: Any) -> Callable[..., Tensor]:
    """By the transforms that PyTorch's functions are made of: torch-mlir's table keeps them from it."""
    return lambda *args, **kwargs: operator._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *args, **kwargs)


_NAMES = (
    "fft fft2 fftn ifft ifft2 ifftn rfft rfft2 rfftn irfft irfft2 irfftn hfft hfft2 hfftn ihfft ihfft2 ihfftn fftshift ifftshift"
).split()
_COMPOSITES = (*(getattr(aten, f"fft_{name}").default for name in _NAMES), aten.stft.default, aten.stft.center)

FOURIER: dict[Any, Callable[..., Any]] = {
    aten._fft_c2c.default: _c2c, aten._fft_r2c.default: _r2c, aten._fft_c2r.default: _c2r,
    aten._neg_view.default: torch.neg, **{each: _by_parts(each) for each in _COMPOSITES},
}  # fmt: skip

