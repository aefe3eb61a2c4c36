# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions of scores as IR: they are called with numbers that write down what happens to them."""

from __future__ import annotations

import inspect
import operator
import threading
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from . import _kept_traces as kept

__all__ = ["capture"]

#: Element types that a function may read, as IR writes them.
_ELEMENTS = {
    "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64",
    "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64",
}  # fmt: skip

#: What IR has for numbers without digits.
_NOT_FINITE = {
    "f32": {"inf": "0x7F800000", "-inf": "0xFF800000", "nan": "0x7FC00000"},
    "f64": {"inf": "0x7FF0000000000000", "-inf": "0xFFF0000000000000", "nan": "0x7FF8000000000000"},
}

_active = threading.local()


class Trace:
    """What a function does, in IR. `number` is the type of scores; `convert` makes operands of arrays."""

    def __init__(self, number: str, convert: Callable[[Any], Any]) -> None:
        self.number = number
        self.convert = convert
        self.lines: list[str] = []
        self.names: dict[str, str] = {}
        self.arrays: list[Any] = []
        self.operands: list[Any] = []

    def emit(self, kind: str, text: str, known: Known | None = None) -> Traced:
        """An operation, or the same one as before; `known` is what it gives, see Traced."""
        name = self.names.get(text)
        if name is None:
            name = self.names[text] = f"%{len(self.lines)}"
            self.lines.append(f"{name} = {text}")
        return Traced(self, name, kind, known)

    def capture(self, array: Any) -> tuple[int, Any]:
        """The number of an array among those that are read, and its operand."""
        for number, known in enumerate(self.arrays):
            if known is array:
                return number, self.operands[number]
        self.arrays.append(array)
        self.operands.append(self.convert(array))
        return len(self.arrays) - 1, self.operands[-1]

    def constant(self, value: Any, kind: str) -> Traced:
        if kind == "bool":
            return self.emit(kind, f"arith.constant {'true' if value else 'false'}")
        if kind == "index":
            return self.emit(kind, f"arith.constant {int(value)} : index", Known(int(value), int(value), ()))
        # A number, where a compiler of the caller has a symbol for one.
        plain = f"{float(value)}"
        text = _NOT_FINITE[self.number].get(plain) or f"{float(plain):.17e}"
        return self.emit(kind, f"arith.constant {text} : {self.number}")

    def to(self, kind: str, value: Any) -> Traced:
        """`value`, which may be a plain number, as a `kind`."""
        own = _kind(value)
        if isinstance(value, Traced) and value.trace is not self:
            raise TypeError("found a number of another call, needed one of this call: a function keeps none")
        if own != kind and (own, kind) != ("index", "number"):
            raise TypeError(f"found {_describe_kind(own)}, needed {_describe_kind(kind)}")
        if not isinstance(value, Traced):
            return self.constant(value, kind)
        if own != kind:
            wide = self.emit("wide", f"arith.index_cast {value.name} : index to i64")
            return self.emit(kind, f"arith.sitofp {wide.name} : i64 to {self.number}")
        return value

    def common(self, *values: Any) -> list[Traced]:
        """All of them as what holds each."""
        kinds = {_kind(value) for value in values}
        kind = next((kind for kind in ("number", "index", "bool") if kind in kinds), "number")
        if "bool" in kinds and len(kinds) > 1:
            raise TypeError("found a condition among numbers, needed fovea.math.where to choose one")
        return [self.to(kind, value) for value in values]


def _kind(value: Any) -> str:
    if isinstance(value, Traced):
        return value.kind
    if isinstance(value, (bool, np.bool_)):
        return "bool"
    if isinstance(value, (int, np.integer)):
        return "index"
    if isinstance(value, (float, np.floating)):
        return "number"
    raise TypeError(
        f"found {type(value).__name__}, needed a number: arrays are read by fovea.capture(array)[...]"
    )


def _describe_kind(kind: str) -> str:
    return {"number": "a number", "index": "an integer", "bool": "a condition"}[kind]


class Known(NamedTuple):
    """Of an integer that is made of the batch entry, the head and constants alone: bounds, and of which of the two.  None
    for these where it may not have the bounds themselves, as for h - h."""

    least: int
    most: int
    places: tuple[str, ...] | None


_INTEGERS = {"add": operator.add, "sub": operator.sub, "mul": operator.mul}


def join(function: Callable[[int, int], int], a: Traced, b: Traced) -> Known | None:
    """What is known of a function of two integers that is monotonic in both."""
    if a.known is None or b.known is None:
        return None
    ends = [function(x, y) for x in a.known[:2] for y in b.known[:2]]
    places = None
    if a.known.places is not None and b.known.places is not None and not any(x in b.known.places for x in a.known.places):
        places = a.known.places + b.known.places
    return Known(min(ends), max(ends), places)


class Traced:
    """A number, an integer or a condition in a function that is traced."""

    __slots__ = ("kind", "known", "name", "trace")
    # NumPy's numbers leave operators to this class.
    __array_ufunc__ = None
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, trace: Trace, name: str, kind: str, known: Known | None = None) -> None:
        self.trace, self.name, self.kind, self.known = trace, name, kind, known

    def _arithmetic(self, lhs: Any, rhs: Any, name: str) -> Traced:
        a, b = self.trace.common(lhs, rhs)
        if a.kind == "bool":
            raise TypeError("found arithmetic of conditions, needed numbers")
        letter, kind = ("f", self.trace.number) if a.kind == "number" else ("i", "index")
        return self.trace.emit(a.kind, f"arith.{name}{letter} {a.name}, {b.name} : {kind}", join(_INTEGERS[name], a, b))

    def _quotient(self, lhs: Any, rhs: Any) -> Traced:
        a, b = (self.trace.to("number", value) for value in (lhs, rhs))
        return self.trace.emit("number", f"arith.divf {a.name}, {b.name} : {self.trace.number}")

    def _floor(self, divisor: Any) -> Traced:
        if self.kind != "index" or not isinstance(divisor, (int, np.integer)):
            raise TypeError("found // or % of something else than an integer and a constant, which need these")
        if divisor == 0:
            raise TypeError("found // or % by 0, needed another constant")
        by = self.trace.constant(divisor, "index")
        return self.trace.emit("index", f"arith.floordivsi {self.name}, {by.name} : index", join(operator.floordiv, self, by))

    def _compare(self, other: Any, ordered: str, signed: str) -> Traced:
        a, b = self.trace.common(self, other)
        if a.kind == "number":
            text = f"arith.cmpf {ordered}, {a.name}, {b.name} : {self.trace.number}"
        else:
            text = f"arith.cmpi {signed}, {a.name}, {b.name} : {'index' if a.kind == 'index' else 'i1'}"
        return self.trace.emit("bool", text)

    def _logic(self, other: Any, name: str) -> Traced:
        a, b = self.trace.to("bool", self), self.trace.to("bool", other)
        return self.trace.emit("bool", f"arith.{name} {a.name}, {b.name} : i1")

    def __add__(self, other: Any) -> Traced:
        return self._arithmetic(self, other, "add")

    def __radd__(self, other: Any) -> Traced:
        return self._arithmetic(other, self, "add")

    def __sub__(self, other: Any) -> Traced:
        return self._arithmetic(self, other, "sub")

    def __rsub__(self, other: Any) -> Traced:
        return self._arithmetic(other, self, "sub")

    def __mul__(self, other: Any) -> Traced:
        return self._arithmetic(self, other, "mul")

    def __rmul__(self, other: Any) -> Traced:
        return self._arithmetic(other, self, "mul")

    def __truediv__(self, other: Any) -> Traced:
        return self._quotient(self, other)

    def __rtruediv__(self, other: Any) -> Traced:
        return self._quotient(other, self)

    def __floordiv__(self, other: Any) -> Traced:
        return self._floor(other)

    def __mod__(self, other: Any) -> Traced:
        return self - self._floor(other) * other

    def __pow__(self, exponent: Any) -> Traced:
        if not isinstance(exponent, (int, np.integer)) or not 1 <= exponent <= 8:
            raise TypeError(f"found the exponent {exponent!r}, needed an integer from 1 to 8")
        power = self
        for _ in range(exponent - 1):
            power = power * self
        return power

    def __neg__(self) -> Traced:
        return self.trace.constant(0, "index") - self if self.kind == "index" else -1.0 * self

    def __pos__(self) -> Traced:
        return self

    def __abs__(self) -> Traced:
        if self.kind == "index":
            opposite = -self
            return self.trace.emit("index", f"arith.maxsi {self.name}, {opposite.name} : index", join(max, self, opposite))
        number = self.trace.to("number", self)
        return self.trace.emit("number", f"math.absf {number.name} : {self.trace.number}")

    def __lt__(self, other: Any) -> Traced:
        return self._compare(other, "olt", "slt")

    def __le__(self, other: Any) -> Traced:
        return self._compare(other, "ole", "sle")

    def __gt__(self, other: Any) -> Traced:
        return self._compare(other, "ogt", "sgt")

    def __ge__(self, other: Any) -> Traced:
        return self._compare(other, "oge", "sge")

    def __eq__(self, other: Any) -> Traced:  # type: ignore[override]
        return self._compare(other, "oeq", "eq")

    def __ne__(self, other: Any) -> Traced:  # type: ignore[override]
        return self._compare(other, "une", "ne")

    def __and__(self, other: Any) -> Traced:
        return self._logic(other, "andi")

    def __or__(self, other: Any) -> Traced:
        return self._logic(other, "ori")

    def __xor__(self, other: Any) -> Traced:
        return self._logic(other, "xori")

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def __invert__(self) -> Traced:
        return self._logic(True, "xori")

    def __bool__(self) -> bool:
        raise TypeError(
            "found if, and, or, not, min or max, whose outcome differs from score to score, "
            "needed fovea.math.where, &, |, ~, fovea.math.minimum or maximum"
        )

    def _refuse(self) -> Any:
        raise TypeError("found a function of plain numbers, needed one of fovea.math")

    __float__ = __int__ = __index__ = __complex__ = _refuse

    def __iter__(self) -> Any:
        raise TypeError("found a loop over a number, needed numbers alone")


class Capture:
    """An array that functions of scores may read, one element for each score."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __getitem__(self, at: Any) -> Any:
        at = at if isinstance(at, tuple) else (at,)
        trace = getattr(_active, "trace", None)
        if trace is None:
            return self._read(at)
        if not hasattr(self.array, "shape"):
            raise TypeError(f"found {type(self.array).__name__} in fovea.capture, needed an array")
        shape = tuple(self.array.shape)
        if len(at) != len(shape):
            raise TypeError(f"found {len(at)} indices, needed {len(shape)} for an array of shape {shape}")
        number, operand = trace.capture(self.array)
        name = str(operand.dtype).rpartition(".")[2]
        if name not in _ELEMENTS:
            raise TypeError(f"found an array of {name}, needed one of {', '.join(_ELEMENTS)}")
        element = _ELEMENTS[name]
        places = [trace.to("index", index) for index in at]
        for axis, (place, extent) in enumerate(zip(places, shape)):
            _check_bounds(place, extent, axis, shape)
        indices = ", ".join(place.name for place in places)
        tensor = "x".join(["?"] * len(shape) + [element])
        read = trace.emit("read", f"tensor.extract %capture{number}[{indices}] : tensor<{tensor}>")
        if element.startswith("i"):
            return trace.emit("index", f"arith.index_cast {read.name} : {element} to index")
        widths = [int(kind.lstrip("bf")) for kind in (element, trace.number)]
        if widths[0] == widths[1]:
            return Traced(trace, read.name, "number")
        cast = "extf" if widths[0] < widths[1] else "truncf"
        return trace.emit("number", f"arith.{cast} {read.name} : {element} to {trace.number}")

    def _read(self, at: tuple[Any, ...]) -> Any:
        """What kernels read for numbers and arrays of indices: NaN where one is out of bounds."""
        array = np.asarray(self.array)
        inside = np.array(True)
        for index, extent in zip(at, array.shape):
            inside = inside & (np.asarray(index) >= 0) & (np.asarray(index) < extent)
        found = array[tuple(np.clip(index, 0, extent - 1) for index, extent in zip(at, array.shape))]
        return found if inside.all() else np.where(inside, found, np.nan)


kept.DESCRIBE[Capture] = lambda reads, capture: reads.add_array(capture.array)


def _check_bounds(place: Traced, extent: Any, axis: int, shape: tuple[Any, ...]) -> None:
    """That an index of which bounds are known is not out of bounds for all keys of a head."""
    if place.known is None or not isinstance(extent, int):
        return
    least, most, places = place.known
    if least >= extent or most < 0 or (places is not None and (least < 0 or most >= extent)):
        raise TypeError(
            f"found index {least if least < 0 else most} for axis {axis} of an array of shape {shape}, needed 0 to {extent - 1}: "
            "batch entries and heads count from 0, and nothing counts from the end"
        )


def capture(array: Any) -> Any:
    """Makes `array` readable for functions of scores: capture(array)[h, j - i].

    An index is an integer or made of the integers that the function is given.  One that is
    made of batch entry, head and constants is checked in each call; of others
    a score is NaN for which one is out of bounds.  Nothing counts from the end.
    """
    return Capture(array)


def find_line(error: BaseException) -> str:
    """Where in the function, rather than here, something was refused."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_own(frame)]
    return f"{frames[-1].filename}:{frames[-1].lineno}: " if frames else ""


def _is_own(frame: traceback.FrameSummary) -> bool:
    return frame.filename.startswith(__file__.rpartition("/")[0] + "/")


def _describe_error(error: Exception, function: Any) -> str:
    """What was refused, with the line, and what functions of scores may do where others than this package refused it."""
    line = find_line(error)
    # What a function returns is refused behind it.
    code = getattr(inspect.unwrap(function), "__code__", None)
    if not line and code is not None:
        line = f"{code.co_filename}:{code.co_firstlineno}: "
    if _is_own(traceback.extract_tb(error.__traceback__)[-1]) or isinstance(error, NameError):
        return f"{line}{error}"
    return f"{line}{error} (needed arithmetic, comparisons, functions of fovea.math, and fovea.capture(array)[...] for arrays)"


def _number(value: Any) -> float:
    """What a function returned that was not traced."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise TypeError(f"found {type(value).__name__} as its result, needed a number")
    return float(value)


class TracedScore(NamedTuple):
    """The body of a score region, and the arrays that it reads; None for both without one."""

    body: str | None
    captures: list[Any] | None


NO_SCORE = TracedScore(None, None)
#: What functions take as `score`: frameworks trace it themselves.
ScoreFunction = Callable[..., Any] | TracedScore


def reads_batch(name: str, value: Any) -> bool:
    """Whether an argument of a compiled function has scores that depend on the number of their batch entry."""
    bodies = value if name == "source_score" else (value,) if name == "score" else ()
    return any(isinstance(body, str) and "%batch" in body for body in bodies)


def _number_for(dtype: Any) -> str:
    """The type of scores, of NumPy's types or those of frameworks."""
    return "f64" if getattr(dtype, "itemsize", 0) == 8 else "f32"


def as_it_is(array: Any) -> Any:
    return array


def trace_score(
    function: ScoreFunction | None,
    data: Any,
    convert: Callable[[Any], Any] = as_it_is,
    admit: Callable[..., Any] | None = None,
    prefix: str = "",
    extents: Sequence[Any] = (),
) -> TracedScore:
    """The region that a function is, for an array of queries, and of one that tells which entries there are.  `convert`
    makes operands of captured arrays; `prefix` is what errors say before the names of functions.  `extents` are the
    numbers of batch entries and heads, where those are known.  Frameworks that trace `convert`, too, and keep the result."""
    if function is None and admit is None:
        return NO_SCORE
    if isinstance(function, TracedScore):
        if admit is not None:
            raise ValueError(f"{prefix}admit: found one beside a score that is traced, needed it traced with that")
        return function
    for name, given, needed in (("score", function, "(s, b, h, i, j)"), ("admit", admit, "(b, h, i, j)")):
        if given is not None and not callable(given):
            raise ValueError(f"{prefix}{name}: found {type(given).__name__}, needed a function of {needed}")
    number = _number_for(getattr(data, "dtype", None))
    reads = kept.find_reads((function, admit), extents, number)
    if reads is not None and (found := kept.find_body(reads, convert)) is not None:
        return TracedScore(*found)
    trace = Trace(number, convert)
    places = [Traced(trace, f"%{name}", "index") for name in ("batch", "head", "query", "key")]
    for place, extent in zip(places, extents):
        if isinstance(extent, int) and extent > 0:
            place.known = Known(0, extent - 1, (place.name,))
    score = Traced(trace, "%score", "number")
    _active.trace = trace
    name = "score"
    try:
        if function is not None:
            score = function(score, *places)
            score = trace.to("number", score if isinstance(score, Traced) else _number(score))
        name = "admit"
        if admit is not None:
            condition, removed = trace.to("bool", admit(*places)), trace.constant(float("-inf"), "number")
            score = trace.emit("number", f"arith.select {condition.name}, {score.name}, {removed.name} : {trace.number}")
    except Exception as error:
        function = function if name == "score" else admit
        raise ValueError(f"{prefix}{name}: {_describe_error(error, function)}") from error
    finally:
        _active.trace = None
    trace.lines.append(f"attn.yield {score.name} : {trace.number}")
    body = "\n".join(trace.lines)
    if reads is not None:
        kept.keep_body(reads, body, trace.arrays, trace.operands)
    return TracedScore(body, trace.operands)
