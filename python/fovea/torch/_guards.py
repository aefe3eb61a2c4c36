# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What torch.export took for granted of extents, as checks of the program.

A branch of Python that depends on an extent is traced one way.  PyTorch keeps the condition as a guard; the graph
has none of it.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import sympy
import torch
from torch.export import ExportedProgram
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._sympy import functions

from .. import _fovea
from .._rewriting import SIGNED, Writer

__all__ = ["Guards", "find_guards", "record_guards", "write_guards"]

#: Functions of PyTorch that ask how elements lie in memory, which no program depends on, by their files.
_LAYOUTS = {
    "_prims_common/__init__.py": (
        "__lt__", "are_strides_like_channels_last", "check_contiguous_sizes_strides", "ge", "is_channels_last_contiguous_2d",
        "is_channels_last_contiguous_3d", "is_contiguous", "is_non_overlapping_and_dense", "should_swap",
    ),
    "_prims/__init__.py": ("_collapse_view_helper",),
    "_refs/__init__.py": ("_reshape_view_helper_core_alg",),
}  # fmt: skip
_FOLDER = Path(torch.__file__).parent
_NAMES = {(str(_FOLDER / file), name) for file, names in _LAYOUTS.items() for name in names}
#: What stands between them and a symbol.
_BETWEEN = {str(_FOLDER / file) for file in ("__init__.py", "fx/experimental/symbolic_shapes.py", "fx/experimental/sym_node.py")}
_BETWEEN |= {str(_FOLDER / "fx/experimental/recording.py"), __file__}


def _asks_for_layout() -> bool:
    frame: Any = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename in _BETWEEN:
        frame = frame.f_back
    return frame is not None and (frame.f_code.co_filename, frame.f_code.co_name) in _NAMES


def _find_place() -> str | None:
    """Where the model asked, unless one of PyTorch's modules did."""
    frame: Any = sys._getframe(2)
    while frame is not None and (frame.f_code.co_filename == __file__ or Path(frame.f_code.co_filename).is_relative_to(_FOLDER)):
        frame = frame.f_back
    if frame is None or Path(frame.f_code.co_filename).parent == Path(__file__).parent:
        return None
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


@contextlib.contextmanager
def record_guards() -> Iterator[dict[str, str | None]]:
    """Tracing that keeps where an extent, by its source, becomes a number of Python.

    Questions about layouts make no guards: programs would refuse extents for the answers of others.
    """
    evaluate = ShapeEnv.evaluate_expr
    fixed: dict[str, str | None] = {}

    def evaluate_quietly(self: ShapeEnv, expression: sympy.Basic, *args: Any, **kwargs: Any) -> Any:
        if _asks_for_layout():
            with self.suppress_guards():
                return evaluate(self, expression, *args, **kwargs)
        symbols = {each for each in expression.free_symbols if each not in self.replacements}
        result = evaluate(self, expression, *args, **kwargs)
        for symbol in symbols:
            if isinstance(self.replacements.get(symbol), sympy.Integer):
                for source in self.var_to_sources.get(symbol, ()):
                    fixed.setdefault(source.name, _find_place())
        return result

    with mock.patch.object(ShapeEnv, "evaluate_expr", evaluate_quietly):
        yield fixed


class Guards(NamedTuple):
    """Where symbols of extents come from, and what holds of them."""

    #: Number of an input and of its dimension.
    places: dict[sympy.Symbol, tuple[int, int]]
    #: Extents that others are to be.
    extents: list[tuple[tuple[int, int], sympy.Expr]]
    conditions: list[sympy.Basic]


def find_guards(exported: ExportedProgram, count: int) -> Guards:
    """Of a program whose last `count` inputs have extents that are not known."""
    graph, names = exported.graph, exported.graph_signature.user_inputs[-count:] if count else []
    values = {node.name: node.meta["val"] for node in graph.nodes if node.op == "placeholder"}
    found = Guards({}, [], [])
    env: Any = None
    for number, name in enumerate(names):
        for dim, extent in enumerate(values[name].shape):
            if not isinstance(extent, torch.SymInt):
                continue
            env, expression = extent.node.shape_env, extent.node.expr
            if isinstance(expression, sympy.Symbol) and expression not in found.places:
                found.places[expression] = number, dim
            else:
                found.extents.append(((number, dim), expression))
    for guard in env.guards if env is not None else ():
        condition = guard.expr.xreplace(env.replacements)
        if condition is not sympy.true and condition not in found.conditions:
            found.conditions.append(condition)
    return found


_RELATIONS = {sympy.Eq: "EQ", sympy.Ne: "NE", sympy.Lt: "LT", sympy.Le: "LE", sympy.Gt: "GT", sympy.Ge: "GE"}
#: Predicates of arith.cmpf that have the same meaning.
_ORDERED = {"EQ": 1, "NE": 6, "LT": 4, "LE": 5, "GT": 2, "GE": 3}
#: Of two integers, by operations of arith.
_FOLDS: dict[Any, str] = {
    sympy.Add: "arith.addi", sympy.Mul: "arith.muli", sympy.And: "arith.andi", sympy.Or: "arith.ori",
    functions.Max: "arith.maxsi", functions.Min: "arith.minsi", sympy.Max: "arith.maxsi", sympy.Min: "arith.minsi",
}  # fmt: skip
_FLOAT_FOLDS = {"arith.addi": "arith.addf", "arith.muli": "arith.mulf", "arith.maxsi": "arith.maximumf", "arith.minsi": "arith.minimumf"}


class _Conditions(Writer):
    """Computes conditions in i64 and f64, of arguments of a function."""

    def __init__(self, ir: Any, module: Any, words: dict[sympy.Symbol, sympy.Symbol]):
        super().__init__(ir, module)
        self.i64, self.f64, self.words = ir.IntegerType.get_signless(64), ir.F64Type.get(), words
        self.known: dict[sympy.Basic, Any] = {}

    def number(self, value: int | float, type: Any) -> Any:
        kind = self.ir.FloatAttr if type == self.f64 else self.ir.IntegerAttr
        return self.make("arith.constant", [type], [], {"value": kind.get(type, value)})

    def is_float(self, value: Any) -> bool:
        return bool(value.type == self.f64)

    def widen(self, value: Any) -> Any:
        return value if self.is_float(value) else self.make("arith.sitofp", [self.f64], [value])

    def pair(self, values: Sequence[Any]) -> list[Any]:
        return [self.widen(each) for each in values] if any(map(self.is_float, values)) else list(values)

    def require(self, condition: Any, text: str) -> None:
        self.make("cf.assert", [], [condition], {"msg": self.ir.StringAttr.get(f"the program was traced for {text}")})

    def write(self, expression: sympy.Basic) -> Any:
        """Its value, or an error for functions that are not known here."""
        if expression not in self.known:
            self.known[expression] = self.write_new(expression)
        return self.known[expression]

    def write_new(self, expression: sympy.Basic) -> Any:
        if isinstance(expression, sympy.Integer):
            return self.number(int(expression), self.i64)
        if isinstance(expression, sympy.Float):
            return self.number(float(expression), self.f64)
        kind = expression.func
        if isinstance(expression, sympy.Pow) and isinstance(expression.exp, sympy.Integer) and 0 < expression.exp <= 8:
            return self.write_fold("arith.muli", [self.write(expression.base)] * int(expression.exp))
        args = [self.write(each) for each in expression.args]
        if kind in _RELATIONS:
            left, right = self.pair(args)
            name = _RELATIONS[kind]
            comparison, predicates = ("arith.cmpf", _ORDERED) if self.is_float(left) else ("arith.cmpi", SIGNED)
            return self.compare(predicates[name], left, right, comparison)
        if kind in _FOLDS:
            return self.write_fold(_FOLDS[kind], args)
        if kind is sympy.Not:
            return self.make("arith.xori", [args[0].type], [args[0], self.number(1, args[0].type)])
        if kind in (functions.FloorDiv, functions.CleanDiv, functions.Mod, functions.PythonMod) and not any(map(self.is_float, args)):
            zero, one = (self.number(each, self.i64) for each in (0, 1))
            is_right = self.compare(SIGNED["NE"], args[1], zero)
            self.require(is_right, f"{expression.args[1].xreplace(self.words)} != 0")
            divisor = self.make("arith.select", [self.i64], [is_right, args[1], one])
            quotient = self.make("arith.floordivsi", [self.i64], [args[0], divisor])
            if kind in (functions.FloorDiv, functions.CleanDiv):
                return quotient
            return self.make("arith.subi", [self.i64], [args[0], self.make("arith.muli", [self.i64], [quotient, args[1]])])
        if kind in (functions.FloatTrueDiv, functions.IntTrueDiv):
            return self.make("arith.divf", [self.f64], [self.widen(each) for each in args])
        if kind is functions.ToFloat:
            return self.widen(args[0])
        if kind in (functions.CeilToInt, functions.FloorToInt):
            name = "math.ceil" if kind is functions.CeilToInt else "math.floor"
            return self.make("arith.fptosi", [self.i64], [self.make(name, [self.f64], [self.widen(args[0])])])
        raise _fovea.FoveaError(f"a condition of extents has a function that no program checks: {expression}")

    def write_fold(self, name: str, values: Sequence[Any]) -> Any:
        values = self.pair(values)
        if self.is_float(values[0]):
            name = _FLOAT_FOLDS[name]
        result = values[0]
        for each in values[1:]:
            result = self.make(name, [result.type], [result, each])
        return result


def write_guards(ir: Any, module: Any, guards: Guards, names: Sequence[str]) -> None:
    """Checks at the beginning of the function, whose last arguments are the inputs."""
    if not guards.places:
        return
    block = module.body.operations[0].regions[0].blocks[0]
    arguments = list(block.arguments)[-len(names) :]
    words = {symbol: sympy.Symbol(f"{names[number]}.shape[{dim}]") for symbol, (number, dim) in guards.places.items()}
    with module.context, ir.InsertionPoint.at_block_begin(block), ir.Location.unknown():
        writer = _Conditions(ir, module, words)

        def extent(place: tuple[int, int]) -> Any:
            return writer.make("arith.index_cast", [writer.i64], [writer.extent(arguments[place[0]], place[1])])

        for symbol, place in guards.places.items():
            writer.known[symbol] = extent(place)
        for symbol in guards.places:
            is_right = writer.compare(SIGNED["GE"], writer.known[symbol], writer.number(1, writer.i64))
            writer.require(is_right, f"{words[symbol]} >= 1")
        for (number, dim), expression in guards.extents:
            equal = writer.compare(SIGNED["EQ"], extent((number, dim)), writer.write(expression))
            writer.require(equal, f"{names[number]}.shape[{dim}] == {expression.xreplace(words)}")
        for condition in guards.conditions:
            writer.require(writer.write(condition), str(condition.xreplace(words)))
