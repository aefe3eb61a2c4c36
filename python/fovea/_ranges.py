# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ranges of rows as affine maps: a function that says them is called once, with numbers that write down what
happens to them."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from ._trace import find_line


class Affine:
    """The block, a number of rows or of queries, or what is made of them by integers."""

    __slots__ = ("text",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, text: str) -> None:
        self.text = text

    def _with(self, sign: str, other: Any, least: int | None = None) -> Affine:
        """`other` is an integer if `least` says what it has to be."""
        if isinstance(other, Affine) and least is None:
            return Affine(f"({self.text} {sign} {other.text})")
        number = _integer(other)
        if least is not None and number < least:
            raise TypeError(f"found {sign} {number}, needed an integer of at least {least}")
        return Affine(f"({self.text} {sign} {number})")

    def __add__(self, other: Any) -> Affine:
        return self._with("+", other)

    def __sub__(self, other: Any) -> Affine:
        return self._with("-", other)

    def __rsub__(self, other: Any) -> Affine:
        return self * -1 + other

    def __mul__(self, factor: Any) -> Affine:
        return Affine(f"({self.text} * {_integer(factor)})")

    def __neg__(self) -> Affine:
        return self * -1

    def __floordiv__(self, divisor: Any) -> Affine:
        return self._with("floordiv", divisor, least=1)

    def __mod__(self, divisor: Any) -> Affine:
        return self._with("mod", divisor, least=1)

    __radd__, __rmul__ = __add__, __mul__

    def _refuse(self, *_: Any) -> Any:
        raise TypeError("found a comparison or a function of numbers, needed + and -, and *, // and % by integers")

    __bool__ = __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = _refuse
    __float__ = __int__ = __index__ = __iter__ = __truediv__ = __abs__ = _refuse


def _integer(value: Any) -> int:
    if isinstance(value, Affine):
        raise TypeError("found a factor or divisor that is no constant, needed an integer")
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"found {value!r}, needed an integer") from None


def _bound(value: Any) -> str:
    return value.text if isinstance(value, Affine) else str(_integer(value))


def trace_ranges(name: str, function: Callable[..., Any] | None) -> list[str]:
    """The affine maps of what a function of (b, rows, n) returns: a range, or a list of them. None for none."""
    if function is None:
        return []
    if not callable(function):
        raise ValueError(f"{name}: found {type(function).__name__}, needed a function of (b, rows, n)")
    try:
        found = function(Affine("b"), Affine("rows"), Affine("n"))
        ranges = found if isinstance(found, list) else [found]
        for each in ranges:
            if not isinstance(each, tuple) or len(each) not in (2, 4):
                raise TypeError(f"found {each!r}, needed (begin, end) or (begin, end, lower, upper)")
            if all(isinstance(bound, int) for bound in each) and min(each[1::2]) <= max(each[::2]):
                raise TypeError(f"found {each!r}, which is no row of any block, needed rows, or one range less")
        if not ranges:
            raise TypeError("found no range, needed at least 1")
        bounds = [", ".join(_bound(bound) for bound in each) for each in ranges]
    except Exception as error:
        raise ValueError(f"{name}: {find_line(error)}{error}") from error
    return [f"(b)[rows, n] -> ({each})" for each in bounds]
