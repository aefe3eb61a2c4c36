# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rewriting of IR in Python, by the bindings that come with torch-mlir."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["ARITHMETIC", "SIGNED", "Writer", "drop_signs", "read_direction", "read_list", "read_number", "rewrite"]

#: Predicates of arith.cmpi, by directions of StableHLO.
SIGNED = {"EQ": 0, "NE": 1, "LT": 2, "LE": 3, "GT": 4, "GE": 5}

ARITHMETIC: dict[str, tuple[str, Callable[[int, int], int]]] = {
    "add": ("arith.addi", lambda a, b: a + b),
    "subtract": ("arith.subi", lambda a, b: a - b),
    "multiply": ("arith.muli", lambda a, b: a * b),
    "maximum": ("arith.maxsi", max),
    "minimum": ("arith.minsi", min),
}


class Writer:
    """Rewrites the operations of one block, each by a method `write_<name>`, where stablehlo needs no prefix.

    A method returns what takes the place of the results: a value, a list of them, or None for no results. False leaves
    the operation as it is.
    """

    #: Of names of operations that may have a method.
    prefixes: tuple[str, ...] = ("stablehlo.", "chlo.")

    def __init__(self, ir: Any, module: Any):
        self.ir = ir
        self.module = module
        self.index = ir.IndexType.get()

    def make_all(
        self, name: str, results: Sequence[Any], operands: Sequence[Any] = (), attributes: dict[str, Any] | None = None, regions: int = 0
    ) -> Any:
        return self.ir.Operation.create(name, results=list(results), operands=list(operands), attributes=attributes or {}, regions=regions)

    def make(self, name: str, results: Sequence[Any], operands: Sequence[Any] = (), attributes: dict[str, Any] | None = None) -> Any:
        """The operation's only result."""
        op = self.make_all(name, results, operands, attributes)
        return op.results[0] if results else None

    def integer(self, number: int, type: Any) -> Any:
        return self.ir.IntegerAttr.get(type, number)

    def value(self, scalar: Any) -> Any:
        """A number or a value of type index as a value."""
        if not isinstance(scalar, int):
            return scalar
        return self.make("arith.constant", [self.index], [], {"value": self.integer(scalar, self.index)})

    def cast_to(self, type: Any, found: Any) -> Any:
        return found if found.type == type else self.make("tensor.cast", [type], [found])

    def compare(self, predicate: int, left: Any, right: Any, kind: str = "arith.cmpi") -> Any:
        number = self.integer(predicate, self.ir.IntegerType.get_signless(64))
        return self.make(kind, [self.ir.IntegerType.get_signless(1)], [left, right], {"predicate": number})

    def both(self, left: Any, right: Any) -> Any:
        return self.make("arith.andi", [left.type], [left, right])

    def check(self, predicate: int, left: Any, right: Any, message: str) -> None:
        test = self.compare(predicate, self.value(left), self.value(right))
        self.make("cf.assert", [], [test], {"msg": self.ir.StringAttr.get(message)})

    # ---- Extents, numbers or values of type index ----

    def extent(self, tensor: Any, dim: int) -> Any:
        type = self.ir.RankedTensorType(tensor.type)
        if not type.is_dynamic_dim(dim):
            return type.get_dim_size(dim)
        return self.make("tensor.dim", [self.index], [tensor, self.value(dim)])

    def combine(self, name: str, a: Any, b: Any) -> Any:
        operation, fold = ARITHMETIC[name]
        if isinstance(a, int) and isinstance(b, int):
            return fold(a, b)
        if name in ("add", "subtract") and isinstance(b, int) and b == 0:
            return a
        return self.make(operation, [self.index], [self.value(a), self.value(b)])

    def element_at(self, tensor: Any, place: Sequence[Any]) -> Any:
        """An element of a tensor of integers."""
        element = self.make("tensor.extract", [self.ir.RankedTensorType(tensor.type).element_type], [tensor, *map(self.value, place)])
        return self.make("arith.index_cast", [self.index], [element])

    # ---- Slices ----

    def split(self, scalars: Sequence[Any]) -> tuple[list[Any], Any]:
        """The values among them, and the numbers with marks in the places of values."""
        unknown = self.ir.ShapedType.get_dynamic_size()
        values = [each for each in scalars if not isinstance(each, int)]
        return values, self.ir.DenseI64ArrayAttr.get([each if isinstance(each, int) else unknown for each in scalars])

    def place(
        self, tensors: Sequence[Any], offsets: Sequence[Any], sizes: Sequence[Any], strides: Sequence[int] | None = None
    ) -> tuple[list[Any], dict[str, Any]]:
        """Operands and attributes of a slice, of neighbours unless strides are given."""
        (offset_values, static_offsets), (size_values, static_sizes) = self.split(offsets), self.split(sizes)
        segments = [*([1] * len(tensors)), len(offset_values), len(size_values), 0]
        return [*tensors, *offset_values, *size_values], {
            "operandSegmentSizes": self.ir.DenseI32ArrayAttr.get(segments),
            "static_offsets": static_offsets, "static_sizes": static_sizes,
            "static_strides": self.ir.DenseI64ArrayAttr.get(strides or [1] * len(offsets)),
        }  # fmt: skip

    def extract(
        self, tensor: Any, offsets: Sequence[Any], sizes: Sequence[Any], shape: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
    ) -> Any:  # fmt: skip
        """A slice, of the given shape where dimensions of one element are left out."""
        unknown = self.ir.ShapedType.get_dynamic_size()
        if shape is None:
            shape = [each if isinstance(each, int) else unknown for each in sizes]
        type = self.ir.RankedTensorType.get(shape, self.ir.RankedTensorType(tensor.type).element_type)
        return self.make("tensor.extract_slice", [type], *self.place([tensor], offsets, sizes, strides))

    def insert(self, piece: Any, tensor: Any, offsets: Sequence[Any], sizes: Sequence[Any]) -> Any:
        return self.make("tensor.insert_slice", [tensor.type], *self.place([piece, tensor], offsets, sizes))

    def rewrite(self, op: Any) -> bool:
        """Whether something else is in the place of the operation."""
        rewriter = getattr(self, "write_" + op.name.removeprefix("stablehlo.").replace(".", "_"), None)
        if rewriter is None or not op.name.startswith(self.prefixes):
            return False
        with self.ir.InsertionPoint(op), op.location:
            found = rewriter(op)
        if found is False:
            return False
        for old, new in zip(op.results, found if isinstance(found, list) else [found]):
            old.replace_all_uses_with(new)
        return True


def _write_block(kind: type[Writer], ir: Any, module: Any, block: Any) -> None:
    writer = kind(ir, module)
    done = []
    for op in list(block.operations):
        for region in op.operation.regions:
            for inner in region.blocks:
                _write_block(kind, ir, module, inner)
        if writer.rewrite(op.operation):
            done.append(op)
    for op in reversed(done):
        op.operation.erase()


def _change_module(text: str, change: Callable[[Any, Any], None], is_generic: bool = False) -> str:
    """The module after `change(ir, module)`. What the bindings do not know is to be in generic form."""
    from torch_mlir import ir

    with ir.Context() as context, ir.Location.unknown():
        context.allow_unregistered_dialects = True
        module = ir.Module.parse(text)
        change(ir, module)
        return module.operation.get_asm(print_generic_op_form=is_generic)


def rewrite(text: str, kind: type[Writer], is_generic: bool = False) -> str:
    """The module after a writer has rewritten its functions. `is_generic` is for what fovea's parser does not know."""

    def change(ir: Any, module: Any) -> None:
        for function in list(module.body.operations):
            for region in function.operation.regions:
                for block in region.blocks:
                    _write_block(kind, ir, module, block)

    return _change_module(text, change, is_generic)


def drop_signs(text: str) -> str:
    """The module with integers as arith has them: its operations alone know whether there is a sign."""
    return _change_module(text, lambda ir, module: _drop_signs(ir, module.operation))


def _drop_signs(ir: Any, op: Any) -> None:
    def signless(type: Any) -> Any:
        if isinstance(type, ir.RankedTensorType):
            return ir.RankedTensorType.get(type.shape, signless(type.element_type))
        return ir.IntegerType.get_signless(type.width) if isinstance(type, ir.IntegerType) and type.is_unsigned else type

    for region in op.regions:
        for block in region.blocks:
            for argument in block.arguments:
                argument.set_type(signless(argument.type))
            for inner in list(block.operations):
                _drop_signs(ir, inner.operation)
    for result in op.results:
        result.set_type(signless(result.type))
    if "function_type" in op.attributes:
        type = ir.FunctionType(ir.TypeAttr(op.attributes["function_type"]).value)
        op.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get([*map(signless, type.inputs)], [*map(signless, type.results)]))
    if op.name == "builtin.unrealized_conversion_cast" and [each.type for each in op.operands] == [each.type for each in op.results]:
        for old, new in zip(op.results, op.operands):
            old.replace_all_uses_with(new)
        op.erase()


def read_direction(op: Any) -> str:
    """Of a comparison of StableHLO."""
    found = re.search(r"comparison_direction ([A-Z]+)", str(op.attributes["comparison_direction"]))
    assert found is not None, op.attributes["comparison_direction"]
    return found[1]


def read_list(attribute: Any, name: str) -> list[int]:
    """The numbers of `name = [...]` in an attribute of StableHLO, or none."""
    found = re.search(rf"\b{name} = \[([^]]*)\]", str(attribute))
    return [int(each) for each in found[1].split(",") if each.strip()] if found else []


def read_number(attribute: Any, name: str) -> int:
    """The number of `name = ...` in an attribute of StableHLO, which leaves out 0."""
    found = re.search(rf"\b{name} = (\d+)", str(attribute))
    return int(found[1]) if found else 0
