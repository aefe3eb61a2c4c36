# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions for scores: of what `score=` functions are given, and of numbers and arrays, as in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ._kept_traces import CONSTANT
from ._trace import Traced, join

__all__ = [
    "abs", "cos", "exp", "floor", "index", "log", "maximum", "minimum", "sin", "sqrt", "tanh", "where",
]  # fmt: skip

_abs = abs


def _function(name: str, plain: Callable[..., Any]) -> Callable[[Any], Any]:
    def apply(x: Any) -> Any:
        if not isinstance(x, Traced):
            return plain(x)
        number = x.trace.to("number", x)
        return x.trace.emit("number", f"math.{name} {number.name} : {x.trace.number}")

    apply.__name__ = apply.__qualname__ = name
    apply.__doc__ = f"numpy.{plain.__name__}."
    return apply


exp = _function("exp", np.exp)
log = _function("log", np.log)
tanh = _function("tanh", np.tanh)
sqrt = _function("sqrt", np.sqrt)
sin = _function("sin", np.sin)
cos = _function("cos", np.cos)
floor = _function("floor", np.floor)


def abs(x: Any) -> Any:
    """numpy.abs."""
    return _abs(x) if isinstance(x, Traced) else np.abs(x)


def index(x: Any) -> Any:
    """The number without its fraction, as an integer that can be an index."""
    if not isinstance(x, Traced):
        return np.asarray(x).astype(np.int64)
    if x.kind == "index":
        return x
    number = x.trace.to("number", x)
    integer = x.trace.emit("wide", f"arith.fptosi {number.name} : {x.trace.number} to i32")
    return x.trace.emit("index", f"arith.index_cast {integer.name} : i32 to index")


def _extreme(a: Any, b: Any, name: str, plain: Callable[..., Any]) -> Any:
    traced = next((x for x in (a, b) if isinstance(x, Traced)), None)
    if traced is None:
        return plain(a, b)
    a, b = traced.trace.common(a, b)
    kind = {"number": ("imumf", traced.trace.number), "index": ("si", "index")}.get(a.kind)
    if kind is None:
        raise TypeError(f"found conditions, needed numbers for {name}imum")
    return traced.trace.emit(a.kind, f"arith.{name}{kind[0]} {a.name}, {b.name} : {kind[1]}", join(min if name == "min" else max, a, b))


def minimum(a: Any, b: Any) -> Any:
    """numpy.minimum."""
    return _extreme(a, b, "min", np.minimum)


def maximum(a: Any, b: Any) -> Any:
    """numpy.maximum."""
    return _extreme(a, b, "max", np.maximum)


def where(condition: Any, a: Any, b: Any) -> Any:
    """numpy.where, with a condition for each score."""
    if not isinstance(condition, Traced):
        return np.where(condition, a, b) if not isinstance(a, Traced) and not isinstance(b, Traced) else (a if condition else b)
    trace = condition.trace
    a, b = trace.common(a, b)
    kind = {"number": trace.number, "index": "index", "bool": "i1"}[a.kind]
    condition = trace.to("bool", condition)
    return trace.emit(a.kind, f"arith.select {condition.name}, {a.name}, {b.name} : {kind}")


CONSTANT.update(globals()[name] for name in __all__)
