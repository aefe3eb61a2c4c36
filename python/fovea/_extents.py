# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Extents of StableHLO that are not known, as indices: what torch-mlir-opt has no linalg for.

JAX computes extents as tensors of integers.  Here they become scalars, so that the passes that follow see which extents
are the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["has_unknown_extents", "write_extents"]

#: What is rewritten.
_OPERATIONS = re.compile(r"\bstablehlo\.(?:get_dimension_size|dynamic_reshape|dynamic_broadcast_in_dim|dynamic_iota|real_dynamic_slice)")
_ASSERTION = "shape_assertion"
#: Shapes have no more dimensions.
_MOST_ELEMENTS = 16
_ARITHMETIC: dict[str, tuple[str, Callable[[int, int], int]]] = {
    "add": ("arith.addi", lambda a, b: a + b),
    "subtract": ("arith.subi", lambda a, b: a - b),
    "multiply": ("arith.muli", lambda a, b: a * b),
    "maximum": ("arith.maxsi", max),
    "minimum": ("arith.minsi", min),
}
#: As arith.cmpi numbers signed predicates.
_PREDICATES = {"EQ": 0, "NE": 1, "LT": 2, "LE": 3, "GT": 4, "GE": 5}


def has_unknown_extents(text: str) -> bool:
    return _OPERATIONS.search(text) is not None


class _Writer:
    """Rewrites one block. A scalar is a number or a value of type index."""

    def __init__(self, ir: Any, is_checked: bool):
        self.ir = ir
        self.index = ir.IndexType.get()
        #: Whether the program has said of dimensions that are not known that none is 1 and repeated.
        self.is_checked = is_checked
        self.known: dict[Any, list[Any]] = {}

    # ---- Operations ----

    def make(self, name: str, results: Sequence[Any], operands: Sequence[Any], attributes: dict[str, Any] | None = None) -> Any:
        op = self.ir.Operation.create(name, results=list(results), operands=list(operands), attributes=attributes or {})
        return op.results[0] if results else None

    def integer(self, number: int, type: Any) -> Any:
        return self.ir.IntegerAttr.get(type, number)

    def value(self, scalar: Any) -> Any:
        if not isinstance(scalar, int):
            return scalar
        return self.make("arith.constant", [self.index], [], {"value": self.integer(scalar, self.index)})

    def shape(self, scalars: Sequence[Any]) -> Any:
        type = self.ir.RankedTensorType.get([len(scalars)], self.index)
        return self.make("tensor.from_elements", [type], [self.value(each) for each in scalars])

    # ---- Scalars ----

    def scalars(self, value: Any) -> list[Any]:
        """The elements of a tensor of integers."""
        if value not in self.known:
            self.known[value] = self.compute(value)
        return self.known[value]

    def compute(self, value: Any) -> list[Any]:
        type = self.ir.RankedTensorType(value.type)
        count = 1
        for extent in type.shape:
            count *= extent
        owner = value.owner
        op: Any = None if isinstance(owner, self.ir.Block) else owner
        name = op.name.removeprefix("stablehlo.") if op is not None else ""
        if name == "constant" and count <= _MOST_ELEMENTS:
            return [int(each) for each in self.ir.DenseIntElementsAttr(op.attributes["value"])]
        if name == "get_dimension_size":
            dim = self.ir.IntegerAttr(op.attributes["dimension"]).value
            return [self.extent(op.operands[0], dim)]
        if name in ("convert", "reshape") and str(self.ir.RankedTensorType(op.operands[0].type).element_type)[0] in "iu":
            return self.scalars(op.operands[0])
        if name == "concatenate":
            return [each for operand in op.operands for each in self.scalars(operand)]
        if name == "slice":
            bounds = [list(self.ir.DenseI64ArrayAttr(op.attributes[each])) for each in ("start_indices", "limit_indices", "strides")]
            return self.scalars(op.operands[0])[slice(*(each[0] for each in bounds))]
        if name in _ARITHMETIC:
            return [self.combine(name, a, b) for a, b in zip(*map(self.scalars, op.operands))]
        return [self.element(value, type, number) for number in range(count)]

    def element(self, value: Any, type: Any, number: int) -> Any:
        indices = [self.value(number)] if type.rank else []
        element = self.make("tensor.extract", [type.element_type], [value, *indices])
        return self.make("arith.index_cast", [self.index], [element])

    def extent(self, tensor: Any, dim: int) -> Any:
        type = self.ir.RankedTensorType(tensor.type)
        if not type.is_dynamic_dim(dim):
            return type.get_dim_size(dim)
        return self.make("tensor.dim", [self.index], [tensor, self.value(dim)])

    def combine(self, name: str, a: Any, b: Any) -> Any:
        operation, fold = _ARITHMETIC[name]
        if isinstance(a, int) and isinstance(b, int):
            return fold(a, b)
        if name in ("add", "subtract") and isinstance(b, int) and b == 0:
            return a
        return self.make(operation, [self.index], [self.value(a), self.value(b)])

    # ---- Rewriting ----

    def rewrite(self, op: Any) -> bool:
        """Whether something else is in the place of the operation."""
        kind = op.name.removeprefix("stablehlo.")
        rewriter = getattr(self, f"write_{kind}", None)
        if rewriter is None or not op.name.startswith("stablehlo."):
            return False
        with self.ir.InsertionPoint(op), op.location:
            result = rewriter(op)
        if result is False:
            return False
        if result is not None:
            op.results[0].replace_all_uses_with(result)
        return True

    def write_get_dimension_size(self, op: Any) -> Any:
        type = self.ir.RankedTensorType(op.results[0].type)
        number = self.value(self.scalars(op.results[0])[0])
        found = self.make("tensor.from_elements", [type], [self.make("arith.index_cast", [type.element_type], [number])])
        self.known[found] = self.known[op.results[0]]
        return found

    def write_dynamic_reshape(self, op: Any) -> Any:
        return self.make("tensor.reshape", [op.results[0].type], [op.operands[0], self.shape(self.scalars(op.operands[1]))])

    def write_dynamic_iota(self, op: Any) -> Any:
        attributes = {"iota_dimension": op.attributes["iota_dimension"]}
        return self.make(op.name, [op.results[0].type], [self.shape(self.scalars(op.operands[0]))], attributes)

    def write_dynamic_broadcast_in_dim(self, op: Any) -> Any:
        source = self.ir.RankedTensorType(op.operands[0].type)
        scalars, dims = self.scalars(op.operands[1]), list(self.ir.DenseI64ArrayAttr(op.attributes["broadcast_dimensions"]))
        unknown = [dim for dim in range(source.rank) if source.is_dynamic_dim(dim)]
        if not self.is_checked:
            for dim in unknown:
                self.check(0, self.extent(op.operands[0], dim), scalars[dims[dim]], "extents differ, and none is known to be 1")
        attributes = {
            "broadcast_dimensions": op.attributes["broadcast_dimensions"],
            "known_nonexpanding_dimensions": self.ir.DenseI64ArrayAttr.get(unknown),
        }
        return self.make(op.name, [op.results[0].type], [op.operands[0], self.shape(scalars)], attributes)

    def write_real_dynamic_slice(self, op: Any) -> Any:
        """Of neighbours it is a slice whose sizes are differences."""
        starts, limits, strides = map(self.scalars, op.operands[1:4])
        if any(each != 1 for each in strides):
            return False
        type = self.ir.RankedTensorType(op.results[0].type)
        sizes = [
            self.combine("subtract", limit, start) if type.is_dynamic_dim(dim) else type.get_dim_size(dim)
            for dim, (start, limit) in enumerate(zip(starts, limits))
        ]
        unknown = self.ir.ShapedType.get_dynamic_size()

        def split(scalars: list[Any]) -> tuple[list[Any], Any]:
            values = [each for each in scalars if not isinstance(each, int)]
            numbers = [each if isinstance(each, int) else unknown for each in scalars]
            return values, self.ir.DenseI64ArrayAttr.get(numbers)

        (offset_values, offsets), (size_values, extents) = split(starts), split(sizes)
        attributes = {
            "operandSegmentSizes": self.ir.DenseI32ArrayAttr.get([1, len(offset_values), len(size_values), 0]),
            "static_offsets": offsets, "static_sizes": extents, "static_strides": self.ir.DenseI64ArrayAttr.get([1] * len(starts)),
        }  # fmt: skip
        return self.make("tensor.extract_slice", [type], [op.operands[0], *offset_values, *size_values], attributes)

    def write_custom_call(self, op: Any) -> Any:
        if self.ir.StringAttr(op.attributes["call_target_name"]).value != _ASSERTION:
            return False
        comparison = op.operands[0].owner
        if isinstance(comparison, self.ir.Block) or comparison.name != "stablehlo.compare":
            return False
        direction = re.search(r"comparison_direction ([A-Z]+)", str(comparison.attributes["comparison_direction"]))
        (left,), (right,) = map(self.scalars, comparison.operands)
        message = self.ir.StringAttr(op.attributes["error_message"]).value if "error_message" in op.attributes else "extents differ"
        # What is in braces are numbers that are not known here.
        message = re.sub(r" ?\(= \{\d+\}\)", "", message.split("Using the following")[0]).strip()
        self.check(_PREDICATES[direction[1]] if direction else 0, left, right, message)
        return None

    def check(self, predicate: int, left: Any, right: Any, message: str) -> None:
        i1 = self.ir.IntegerType.get_signless(1)
        number = self.integer(predicate, self.ir.IntegerType.get_signless(64))
        test = self.make("arith.cmpi", [i1], [self.value(left), self.value(right)], {"predicate": number})
        self.make("cf.assert", [], [test], {"msg": self.ir.StringAttr.get(message)})


def _write_block(ir: Any, block: Any, is_checked: bool) -> None:
    writer = _Writer(ir, is_checked)
    done = []
    for op in list(block.operations):
        for region in op.operation.regions:
            for inner in region.blocks:
                _write_block(ir, inner, is_checked)
        if writer.rewrite(op.operation):
            done.append(op)
    for op in reversed(done):
        op.operation.erase()


def write_extents(text: str) -> str:
    """The module, in generic form, without operations on extents that torch-mlir-opt leaves."""
    from torch_mlir import ir

    with ir.Context() as context, ir.Location.unknown():
        context.allow_unregistered_dialects = True
        module = ir.Module.parse(text)
        is_checked = "jax.uses_shape_polymorphism" in module.operation.attributes
        for function in module.body.operations:
            for region in function.operation.regions:
                for block in region.blocks:
                    _write_block(ir, block, is_checked)
        return str(module.operation.get_asm(print_generic_op_form=True))
