# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Arrays whose values are not known, as they are while a framework traces a program."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from . import _fovea


class AbstractArray:
    """The type and the shape of an array.

    A function of the package that is given one runs its checks, computes nothing, and
    returns abstract arrays.  A result is number `index` of what `call` would compute: the
    name of a function of `_fovea`, and its arguments but for the target.  The `base` of
    what was made of another abstract array by `astype` or `reshape` is that array.
    """

    __slots__ = ("base", "call", "dtype", "index", "shape")

    def __init__(
        self,
        dtype: Any,
        shape: Any,
        call: tuple[str, tuple[Any, ...]] | None = None,
        index: int = 0,
        base: AbstractArray | None = None,
    ):
        self.dtype, self.shape = np.dtype(dtype), tuple(map(int, shape))
        self.call, self.index, self.base = call, index, base

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def astype(self, dtype: Any, copy: bool = True) -> AbstractArray:
        return AbstractArray(dtype, self.shape, base=self)

    def reshape(self, *shape: Any) -> AbstractArray:
        extents = shape[0] if isinstance(shape[0], tuple) else shape
        return AbstractArray(self.dtype, extents, base=self)

    def __repr__(self) -> str:
        return f"an array {self.dtype}{list(self.shape)} whose values are not known"


_fovea.set_abstract_array(AbstractArray)
