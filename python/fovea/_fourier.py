# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fourier transforms as products with constant matrices, for frontends.

A complex number is a pair on a last axis of two, so that all factors are real. A transform of n numbers is one product
with a matrix of 2 n rows, or, where n has factors a b, b products with matrices of 2 a rows, and a transform of b numbers:
J. Cooley and J. Tukey, An algorithm for the machine calculation of complex Fourier series, Math. Comp. 19, 1965.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["check_length", "transform", "transform_to_real"]

Matrix: TypeAlias = "npt.NDArray[np.float64]"

#: Transforms of so many numbers are one product.
_MOST_AT_ONCE = 128
#: Prime factors of a length are no more: a matrix has four numbers for each pair of places.
_MOST_PRIME = 2048


def _first_factor(length: int) -> int:
    """Of how many numbers the first products are."""
    if length <= _MOST_AT_ONCE:
        return length
    factors = [each for each in range(2, length + 1) if length % each == 0]
    # That of nearly as many numbers as are left, unless it is large.
    return min(factors, key=lambda each: each + length // each)


def check_length(length: int) -> str | None:
    """What is wrong with a length, if anything is."""
    if length < 1:
        return f"found a transform of {length} numbers, needed 1 at least"
    rest, prime = length, 2
    while prime * prime <= rest:
        if rest % prime:
            prime += 1
        else:
            rest //= prime
    if rest > _MOST_PRIME:
        return f"found a transform of {length} numbers, needed prime factors of {_MOST_PRIME} at most"
    return None


@functools.cache
def _matrix(count: int, length: int, is_inverse: bool, parts: int, results: int, scale: float) -> Matrix:
    """Of transforms of `count` numbers, each `length / count` places from the next, one for each place that they begin at.

    Rows are numbers of `parts`, columns those of `results`: 1 is the real part alone."""
    places, first = np.arange(length // count), np.arange(count)
    # Turns are exact until they are angles.
    turns = (first[:, None] * first * (length // count) + places[:, None, None] * first) % length
    # Of quarters, so that zeros and ones are exact, and a zero has no sign.
    quarters, rest = np.divmod(turns * 4, length)
    angles = rest * (math.pi / 2 / length)
    cosine, sine = np.cos(angles), np.sin(angles)
    real = np.choose(quarters, [cosine, -sine, -cosine, sine]) + 0.0
    imaginary = np.choose(quarters, [sine, cosine, -sine, -cosine]) * (1 if is_inverse else -1) + 0.0
    whole = np.stack([np.stack([real, imaginary], -1), np.stack([0.0 - imaginary, real], -1)], 2)[:, :, :parts, :, :results] * scale
    return whole.reshape(len(places), count * parts, count * results)


def transform(x: Any, is_inverse: bool, scale: float, constant: Callable[[Matrix], Any], is_real: bool = False, results: int = 2) -> Any:
    """Of the rows `[rows, n, 2]`, or `[rows, n]` of real numbers: `[rows, n, 2]`, or `[rows, n, 1]` with their real parts.

    `constant` makes an operand of a matrix; an operand has `reshape`, `permute`, `shape` and a product."""
    rows, length = x.shape[0], x.shape[1]
    parts = 1 if is_real else 2
    first = _first_factor(length)
    if first == length:
        (matrix,) = _matrix(length, length, is_inverse, parts, results, scale)
        return (x.reshape(rows, length * parts) @ constant(matrix)).reshape(rows, length, results)
    second = length // first
    x = x.reshape(rows, first, second, parts).permute(2, 0, 1, 3).reshape(second, rows, first * parts)
    x = x @ constant(_matrix(first, length, is_inverse, parts, 2, 1.0))
    x = x.reshape(second, rows, first, 2).permute(1, 2, 0, 3).reshape(rows * first, second, 2)
    x = transform(x, is_inverse, scale, constant, results=results)
    return x.reshape(rows, first, second, results).permute(0, 2, 1, 3).reshape(rows, length, results)


def transform_to_real(x: Any, length: int, scale: float, constant: Callable[[Matrix], Any], mirror: Callable[[Any, int], Any]) -> Any:
    """The inverse of the first `length // 2 + 1` numbers `[rows, n, 2]`, of which the others are conjugates: `[rows, length]`.

    `mirror(x, count)` is `x`, and behind it its numbers before the last of these that follow the first, backward, conjugate."""
    rows, half = x.shape[0], length // 2 + 1
    if length > _MOST_AT_ONCE:
        return transform(mirror(x, length - half), True, scale, constant, results=1).reshape(rows, length)
    (matrix,) = _matrix(length, length, True, 2, 1, scale)
    # What stands for its conjugate, too, counts twice.
    weights = np.full(half, 2.0)
    weights[[0, -1] if length % 2 == 0 else [0]] = 1.0
    matrix = matrix.reshape(length, 2, length)[:half] * weights[:, None, None]
    return x.reshape(rows, half * 2) @ constant(matrix.reshape(half * 2, length))
