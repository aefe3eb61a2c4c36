# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operators of fovea.torch in whole models, as the IR that they compile for themselves.

torch-mlir keeps such an operator by its name: a call of a declared function takes its place before anything is lowered.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import sympy
import torch
from torch.fx import Graph, Node

from .. import _fovea
from .._own_calls import OwnCall, declare, define, flatten, wrap
from .._scans import Scan
from ._scans import find_scan

__all__ = ["copy_listed", "find_calls", "lower_with_calls"]

_ELEMENTS = {
    torch.float32: "f32", torch.float64: "f64", torch.float16: "f16", torch.bfloat16: "bf16", torch.int32: "i32", torch.int64: "i64",
    torch.int8: "i8", torch.bool: "i1",
}  # fmt: skip


def _to_tensor(array: np.ndarray[Any, Any]) -> torch.Tensor:
    if array.dtype == _fovea.bfloat16():
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def _to_array(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    tensor = tensor.contiguous()
    return tensor.view(torch.int16).numpy().view(_fovea.bfloat16()) if tensor.dtype == torch.bfloat16 else tensor.numpy()


def _find_operands(node: Node) -> Iterator[tuple[str, Node]]:
    """Tensors, with names as kernels have them."""
    for argument, value in zip(node.target._schema.arguments, node.args):
        if isinstance(value, Node):
            yield argument.name, value
        elif isinstance(value, (list, tuple)):
            yield from ((f"{argument.name}_{number}", each) for number, each in enumerate(value) if isinstance(each, Node))


_Shapes = list[tuple[int, ...]]


class _Symbols:
    """Extents that are not known, of tensors; some have to be the same."""

    def __init__(self, tensors: Sequence[torch.Tensor]):
        self.tensors = tensors
        unknown = [each for tensor in tensors for each in tensor.shape if isinstance(each, torch.SymInt)]
        symbols = sorted({symbol for each in unknown for symbol in each.node.expr.free_symbols}, key=str)
        env: Any = unknown[0].node.shape_env if unknown else None
        if not all(each in env.backed_var_to_val for each in symbols):
            raise ValueError("found extents that are numbers of tensors")
        self.numbers = {each: int(env.backed_var_to_val[each]) for each in symbols}
        self.ranges = {each: env.var_to_range[each] for each in symbols}

    def _shapes(self, numbers: Mapping[sympy.Symbol, int]) -> _Shapes:
        def extent(each: Any) -> int:
            return int(each.node.expr.xreplace(numbers)) if isinstance(each, torch.SymInt) else each

        return [tuple(map(extent, each.shape)) for each in self.tensors]

    def samples(self, equal: Mapping[sympy.Symbol, sympy.Symbol]) -> list[_Shapes]:
        """Shapes of the example, and others of which each symbol is as many times as large as no other is, if it may be."""
        if not self.numbers:
            return [self._shapes({})]
        others = {}
        for factor, (each, number) in enumerate(self.numbers.items(), 2):
            lower, upper = self.ranges[each].lower, self.ranges[each].upper
            candidates = (number * factor, upper - factor + 2, number - factor + 1, upper, lower)
            others[each] = int(next((other for other in candidates if lower <= other <= upper and other != number), number))
        return [self._shapes(self.numbers), self._shapes({each: others[equal.get(each, each)] for each in others})]

    def alike(self) -> dict[sympy.Symbol, sympy.Symbol]:
        """For symbols with the same number in the example, the first one."""
        first: dict[int, sympy.Symbol] = {}
        return {each: first.setdefault(number, each) for each, number in self.numbers.items()}


def _find_call(node: Node) -> tuple[OwnCall, list[sympy.Basic]]:
    """A call, and what has to hold for extents that are not known."""
    names, operands = [], []
    for name, each in _find_operands(node):
        names.append(name)
        operands.append(each)
    values = [each.meta["val"] for each in operands]
    for name, each in zip(names, values):
        if not isinstance(each, torch.Tensor):
            raise ValueError(f"{name}: found an extent that is not known, needed a number")
    if node.kwargs:
        raise ValueError(f"found arguments by name: {', '.join(node.kwargs)}")

    def run(arrays: Sequence[Any]) -> list[Any]:
        tensors = iter(map(_to_tensor, arrays))
        arguments = torch.fx.node.map_arg(node.args, lambda each: next(tensors))
        # What is not there has no elements.
        return [_to_array(each) for each in flatten(node.target(*arguments)) if each.numel()]

    symbols, types = _Symbols(values), [_ELEMENTS[each.dtype] for each in values]

    def call(equal: Mapping[sympy.Symbol, sympy.Symbol]) -> OwnCall:
        samples = [list(zip(types, shapes)) for shapes in symbols.samples(equal)]
        return define(node.target._schema.name.removeprefix("fovea::"), run, names, *samples)

    alike = symbols.alike()
    pairs = [sympy.Eq(one, other) for one, other in alike.items() if one != other]
    try:
        return call({}), []
    except (ValueError, _fovea.FoveaError):
        if not pairs:
            raise
    # Nothing that the model computes says that they are the same, but the call may need it.
    return call(alike), pairs


def _is_call(node: Node) -> bool:
    return node.op == "call_function" and getattr(node.target, "namespace", None) == "fovea"


def _describe(node: Node) -> Any:
    """All that a call depends on of an operand."""
    value = node.meta["val"]
    return f"{value.dtype}{tuple(value.shape)}" if isinstance(value, torch.Tensor) else value


def copy_listed(graph: Graph, constants: Container[str]) -> None:
    """Copies constants that the package's operators have in lists, of which torch-mlir makes tensors alone."""
    for node in graph.nodes:
        if not _is_call(node):
            continue
        for each in {each for value in node.args if isinstance(value, (list, tuple)) for each in value if isinstance(each, Node)}:
            if each.op == "placeholder" and each.name in constants:
                with graph.inserting_before(node):
                    copy = graph.call_function(torch.ops.aten.clone.default, (each,))
                copy.meta["val"] = each.meta["val"]
                node.replace_input_with(each, copy)


def find_calls(graph: Graph) -> tuple[list[OwnCall | Scan], list[sympy.Basic]]:
    """Of the package's own operators, in their order, and what has to hold for extents that are not known."""
    found, conditions = list[OwnCall | Scan](), list[sympy.Basic]()
    known: dict[Any, tuple[OwnCall, list[sympy.Basic]]] = {}
    for node in graph.nodes:
        scan = find_scan(node)
        if scan is not None:
            found.append(scan)
        elif _is_call(node):
            # Layers of a model have one kernel, which is looked for once.
            key = node.target, repr(torch.fx.node.map_arg(node.args, _describe)), repr(node.kwargs)
            try:
                call, needed = known[key] = known.get(key) or _find_call(node)
                found.append(call)
                conditions.extend(each for each in needed if each not in conditions)
            except (ValueError, _fovea.FoveaError) as error:
                raise _fovea.FoveaError(f"{node.target._schema.name} is no part of a whole program here: {error}") from error
    return found, conditions


def _is_own(op: Any) -> bool:
    return op.name == "torch.operator" and str(op.attributes["name"]).strip('"').startswith(("torch.fovea.", "torch.fovea_scan."))


def _find_tensors(values: Sequence[Any]) -> Iterator[Any]:
    for value in values:
        if str(value.type).startswith("!torch.vtensor"):
            yield value
        elif str(value.type).startswith("!torch.list<vtensor"):
            yield from _find_tensors(value.owner.operands)


def _to_builtin(type: Any) -> str:
    """!torch.vtensor<[2,3],f32> as tensor<2x3xf32>."""
    extents, element = str(type).removeprefix("!torch.vtensor<[").removesuffix(">").split("],")
    # Integers of torch say whether they have signs.
    return f"tensor<{''.join(f'{extent}x' for extent in extents.split(',') if extent)}{re.sub('^[su]i', 'i', element)}>"


def _replace(ir: Any, module: Any, op: Any, call: OwnCall | Scan) -> None:
    operands = list(_find_tensors(op.operands))
    results = [each for each in op.results if "[0]" not in str(each.type)]
    inputs, outputs = ([_to_builtin(each.type) for each in values] for values in (operands, results))
    symbol = call.define(inputs, outputs) if isinstance(call, Scan) else wrap(call, inputs, outputs)
    declare(ir, module, symbol, [each.type for each in operands], [each.type for each in results])
    with ir.InsertionPoint(op), op.location:
        callee = {"callee": ir.FlatSymbolRefAttr.get(symbol)}
        new = ir.Operation.create("func.call", results=[each.type for each in results], operands=operands, attributes=callee)
    for old, result in zip(results, new.results, strict=True):
        old.replace_all_uses_with(result)
    op.erase()


def lower_with_calls(ir: Any, module: Any, calls: Sequence[OwnCall | Scan], legal: Sequence[str], failed: Callable[[], bool]) -> None:
    """torch-mlir's lowering, for a module that has the operators of `calls` in their order. `failed` says whether an error was
    reported that is not of calls, which its last check does not know."""
    from torch_mlir.passmanager import PassManager

    own = [op.operation for op in module.body.operations[0].regions[0].blocks[0].operations if _is_own(op.operation)]
    with module.context, ir.Location.unknown():
        for op, call in zip(own, calls, strict=True):
            _replace(ir, module, op, call)
        # To handlers, not as a part of exceptions.
        module.context.emit_error_diagnostics = True
        backend = f"{{backend-legal-ops={','.join(legal)}}}" if legal else ""
        PassManager.parse(f"builtin.module(torchdynamo-export-to-torch-backend-pipeline{backend})").run(module.operation)
        lowering = PassManager.parse("builtin.module(torch-backend-to-linalg-on-tensors-backend-pipeline{allow-non-finites=True})")
        try:
            lowering.run(module.operation)
        except Exception:
            if failed() or "!torch." in str(module):
                raise
