# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks of arguments, shared by the families."""

import math
import operator

import numpy as np


def _array(name, value, rank, layout):
    """The float64 copy of an argument, after checking its type and rank."""
    array = np.asarray(value)
    if array.dtype.kind != "f" and array.dtype.name != "bfloat16":
        raise ValueError(
            f"{name}: found element type {array.dtype}, needed a floating type"
        )
    if array.ndim != rank:
        raise ValueError(f"{name}: found rank {array.ndim}, needed rank {rank} {layout}")
    return array.astype(np.float64)


def _integer(name, value, least):
    if isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name}: found {value!r}, needed an integer of at least {least}")
    try:
        number = operator.index(value)
    except TypeError:
        raise ValueError(
            f"{name}: found {value!r}, needed an integer of at least {least}"
        ) from None
    if number < least:
        raise ValueError(f"{name}: found {number}, needed an integer of at least {least}")
    return number


def _scale(scale, width):
    if scale is None:
        return 1.0 / math.sqrt(width)
    try:
        number = float(scale)
    except (TypeError, ValueError):
        raise ValueError(f"scale: found {scale!r}, needed a finite number") from None
    if not math.isfinite(number):
        raise ValueError(f"scale: found {number}, needed a finite number")
    return number


def _match(name, what, found, needed):
    if found != needed:
        raise ValueError(f"{name}: found {what} {found}, needed {needed}")


def _queries_keys_values(q, k, v, same_length):
    """Checks q [B,H,N,D], k [B,G,M,D] and v [B,G,M,E] against each other."""
    q = _array("q", q, 4, "[B,H,N,D]")
    k = _array("k", k, 4, "[B,G,M,D]")
    v = _array("v", v, 4, "[B,G,M,E]")
    _match("k", "batch", k.shape[0], q.shape[0])
    _match("v", "batch", v.shape[0], q.shape[0])
    heads, groups = q.shape[1], k.shape[1]
    if groups == 0 or heads % groups != 0:
        raise ValueError(
            f"k: found {groups} heads, needed a divisor of the {heads} heads of q"
        )
    _match("v", "head count", v.shape[1], groups)
    if q.shape[3] == 0:
        raise ValueError("q: found head width 0, needed at least 1")
    _match("k", "head width", k.shape[3], q.shape[3])
    _match("v", "length", v.shape[2], k.shape[2])
    if same_length:
        _match("k", "length", k.shape[2], q.shape[2])
    return q, k, v


def _broadcast(name, value, shape):
    array = np.asarray(value)
    array = _array(name, value, array.ndim, "")
    try:
        return np.broadcast_to(array, shape)
    except ValueError:
        raise ValueError(
            f"{name}: found shape {array.shape}, needed one that broadcasts to {shape}"
        ) from None


def _poison(numbers):
    """NaN for an infinity, so that whatever reads it becomes NaN, too."""
    with np.errstate(invalid="ignore"):
        return numbers + (numbers - numbers)
