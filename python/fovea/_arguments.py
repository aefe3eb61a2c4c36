# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks of what the functions of C++ do not see: options that decide what is
returned, and arguments that may be lists."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from . import _fovea
from ._abstract import AbstractArray


@contextmanager
def named(name: str) -> Iterator[None]:
    """Says of whose value an error within is."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def integer(name: str, value: Any, least: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool) or number < least:
        raise ValueError(f"{name}: found {value!r}, needed an integer of at least {least}")
    return number


def flags(**values: Any) -> None:
    """Each is True or False: anything else would be taken for one of them."""
    for name, value in values.items():
        if value is not True and value is not False and not isinstance(value, np.bool_):
            raise ValueError(f"{name}: found {value!r}, needed True or False")


def file_name(path: Any) -> str:
    """`path` as text. What a null character ends would be another file."""
    name = os.fsdecode(path)
    if "\0" in name:
        raise ValueError(f"path: found {name!r}, needed one without null characters")
    return name


def first_of(count: int, out: Any, returns_all: bool) -> Any:
    """`out` of a function that returns the first of `count` results, unless it returns all."""
    return out if out is None or returns_all else (out, *[None] * (count - 1))


def match(name: str, what: str, found: Any, needed: Any) -> None:
    if found != needed:
        raise ValueError(f"{name}: found {what} {found}, needed {needed}")


def parts(name: str, what: str, values: Any, least: int, most: int | None = None) -> Any:
    """`values`, a sequence of so many."""
    needed = f"{least}" if most in (None, least) else f"{least} to {most}"
    if not isinstance(values, (list, tuple)):
        raise ValueError(f"{name}: found {type(values).__name__}, needed a sequence of {needed} {what}")
    if not least <= len(values) <= (least if most is None else most):
        raise ValueError(f"{name}: found {what} {len(values)}, needed {needed}")
    return values


def tokens(mask: Any, lengths: Any, name: str = "mask") -> tuple[Any, Any]:
    """A mask [B,N] of booleans and lengths [B] of integers, either of which may be None."""
    if mask is not None:
        mask = to_numpy(name, mask)
        if mask.dtype != np.bool_ and (
            isinstance(mask, AbstractArray) or mask.dtype.kind == "V" or not np.isin(mask, (0, 1)).all()
        ):
            raise ValueError(f"{name}: found values other than 0 and 1, needed booleans")
        mask = mask.astype(np.bool_, copy=False)
    return mask, None if lengths is None else to_readable("lengths", lengths)


def listed(name: str, values: Any) -> Any:
    if not isinstance(values, (list, tuple)):
        raise ValueError(f"{name}: found {type(values).__name__}, needed a list of arrays")
    return values


def pair(name: str, given: Any) -> tuple[Any, Any]:
    if not isinstance(given, (list, tuple)) or len(given) != 2:
        raise ValueError(f"{name}: found {type(given).__name__}, needed a pair (query_ids, key_ids)")
    return given[0], given[1]


def to_numpy(name: str, values: Any) -> Any:
    """Small arguments, such as positions, which may be lists as well, or abstract."""
    if isinstance(values, AbstractArray):
        return values
    is_foreign = hasattr(values, "__dlpack__") and not isinstance(values, np.ndarray)
    if is_foreign or (type(values) is not np.ndarray and isinstance(values, np.ma.MaskedArray)):
        # Which refuses what cannot be read as it is.
        _fovea.describe(name, values)
    try:
        return np.from_dlpack(values) if is_foreign else np.asarray(values)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise ValueError(
            f"{name}: found {type(values).__name__}, needed an array or lists that make one: {error}"
        ) from None


def is_on_gpu(values: Any) -> bool:
    """Arrays that do not say where they lie are read as others are, which tells why."""
    try:
        return hasattr(values, "__dlpack_device__") and values.__dlpack_device__()[0] != 1
    except Exception:
        return False


def to_readable(name: str, values: Any) -> Any:
    """The same, unless they lie on a GPU, where kernels read them."""
    return values if is_on_gpu(values) else to_numpy(name, values)


def integers(name: str, values: Any, rank: int) -> Any:
    """`values` as int32, with leading axes of extent 1."""
    array = to_numpy(name, values)
    if array.dtype.kind not in "iu" and array.size:
        raise ValueError(f"{name}: found element type {array.dtype}, needed an integer type")
    limits = np.iinfo(np.int32)
    if not isinstance(array, AbstractArray) and array.size and (array.min() < limits.min or array.max() > limits.max):
        raise ValueError(f"{name}: found a number of more than 32 bits")
    return lead(name, array.astype(np.int32), rank)


def lead(name: str, array: Any, rank: int) -> Any:
    if array.ndim > rank:
        raise ValueError(f"{name}: found rank {array.ndim}, needed at most {rank}")
    return array.reshape((1,) * (rank - array.ndim) + array.shape)
