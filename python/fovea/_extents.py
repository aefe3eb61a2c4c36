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

from ._own_calls import TARGET, write_call
from ._rewriting import ARITHMETIC, SIGNED, read_direction, read_list, read_number
from ._stablehlo_sort import SortWriter

__all__ = ["ExtentWriter"]

_ASSERTION = "shape_assertion"
#: Shapes have no more dimensions.
_MOST_ELEMENTS = 16


class ExtentWriter(SortWriter):
    """A scalar is a number or a value of type index."""

    def __init__(self, ir: Any, module: Any):
        super().__init__(ir, module)
        #: Whether the program has said of dimensions that are not known that none is 1 and repeated.
        self.is_checked = "jax.uses_shape_polymorphism" in module.operation.attributes
        self.known: dict[Any, list[Any]] = {}

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
        if name == "broadcast_in_dim" and count == 1:
            return self.scalars(op.operands[0])
        if name == "concatenate":
            return [each for operand in op.operands for each in self.scalars(operand)]
        if name == "slice":
            bounds = [list(self.ir.DenseI64ArrayAttr(op.attributes[each])) for each in ("start_indices", "limit_indices", "strides")]
            return self.scalars(op.operands[0])[slice(*(each[0] for each in bounds))]
        if name in ARITHMETIC:
            return [self.combine(name, a, b) for a, b in zip(*map(self.scalars, op.operands))]
        return [self.element_at(value, [number] if type.rank else []) for number in range(count)]

    # ---- Rewriting ----

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
                self.check(SIGNED["EQ"], self.extent(op.operands[0], dim), scalars[dims[dim]], "extents differ, and none is known to be 1")
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
        return self.extract(op.operands[0], starts, sizes, type.shape)

    def write_dynamic_gather(self, op: Any) -> Any:
        """Of one place it is a slice. Where slices begin is held within the array."""
        tensor, places = op.operands[:2]
        type, index_type = (self.ir.RankedTensorType(each.type) for each in (op.results[0], places))
        sizes, numbers = list(self.scalars(op.operands[2])), op.attributes["dimension_numbers"]
        batches, index_batches = read_list(numbers, "operand_batching_dims"), read_list(numbers, "start_indices_batching_dims")
        starts, vector = read_list(numbers, "start_index_map"), read_number(numbers, "index_vector_dim")
        if index_type.rank <= 1 and vector == 0 and not batches:
            offsets: list[Any] = [0] * len(sizes)
            for dim, start in zip(starts, self.scalars(places)):
                (offsets[dim],) = self.hold(tensor, [start], [sizes[dim]], dim)
            return self.extract(tensor, offsets, sizes, type.shape)
        windows = read_list(numbers, "offset_dims")
        kept = [dim for dim in range(len(sizes)) if dim not in batches and dim not in read_list(numbers, "collapsed_slice_dims")]
        rows = [dim for dim in range(index_type.rank) if dim != vector]
        extents = {dim: sizes[each] for dim, each in zip(windows, kept)}
        extents.update(zip((dim for dim in range(type.rank) if dim not in windows), (self.extent(places, dim) for dim in rows)))

        def place(result: Sequence[Any]) -> list[Any]:
            row = [result[dim] for dim in range(type.rank) if dim not in windows]
            at: list[Any] = [0] * len(sizes)
            for dim, each in zip(batches, index_batches):
                at[dim] = row[rows.index(each)]
            for number, dim in enumerate(starts):
                index = [number if each == vector else row[rows.index(each)] for each in range(index_type.rank)]
                (at[dim],) = self.hold(tensor, [self.element_at(places, index)], [sizes[dim]], dim)
            for dim, each in zip(windows, kept):
                at[each] = self.combine("add", self.value(at[each]), result[dim])
            return at

        return self.generate(type, [extents[dim] for dim in range(type.rank)], tensor, place)

    def write_dynamic_slice(self, op: Any) -> Any:
        tensor, *starts = op.operands
        if self.ir.RankedTensorType(tensor.type).has_static_shape:
            return False
        sizes = list(self.ir.DenseI64ArrayAttr(op.attributes["slice_sizes"]))
        return self.extract(tensor, self.hold(tensor, [self.scalars(each)[0] for each in starts], sizes), sizes)

    def write_dynamic_update_slice(self, op: Any) -> Any:
        tensor, piece, *starts = op.operands
        types = [self.ir.RankedTensorType(each.type) for each in (tensor, piece)]
        if all(each.has_static_shape for each in types):
            return False
        sizes = [self.extent(piece, dim) for dim in range(types[1].rank)]
        return self.insert(piece, tensor, self.hold(tensor, [self.scalars(each)[0] for each in starts], sizes), sizes)

    def write_reverse(self, op: Any) -> Any:
        (tensor,) = op.operands
        type = self.ir.RankedTensorType(tensor.type)
        if type.has_static_shape:
            return False
        extents = [self.extent(tensor, dim) for dim in range(type.rank)]
        turned = list(self.ir.DenseI64ArrayAttr(op.attributes["dimensions"]))

        def place(at: Sequence[Any]) -> list[Any]:
            last = [self.combine("subtract", each, 1) for each in extents]
            return [self.combine("subtract", self.value(last[dim]), each) if dim in turned else each for dim, each in enumerate(at)]

        return self.generate(type, extents, tensor, place)

    def generate(self, type: Any, extents: Sequence[Any], tensor: Any, place: Callable[[Sequence[Any]], Sequence[Any]]) -> Any:
        """A tensor whose elements are at `place(indices)` of another."""
        unknown = [self.value(each) for dim, each in enumerate(extents) if type.is_dynamic_dim(dim)]
        op = self.make_all("tensor.generate", [type], unknown, regions=1)
        block = op.regions[0].blocks.append(*[self.index] * type.rank)
        with self.ir.InsertionPoint(block):
            at = [self.value(each) for each in place(list(block.arguments))]
            self.make("tensor.yield", [], [self.make("tensor.extract", [type.element_type], [tensor, *at])])
        return op.results[0]

    def hold(self, tensor: Any, starts: Sequence[Any], sizes: Sequence[Any], first: int = 0) -> list[Any]:
        """Where a slice begins, from a dimension on, moved so that it is within the array."""
        found: list[Any] = []
        for dim, (start, size) in enumerate(zip(starts, sizes), first):
            if not isinstance(start, int) or start:
                last = self.combine("subtract", self.extent(tensor, dim), size)
                start = self.combine("minimum", self.combine("maximum", start, 0), last)
            found.append(start)
        return found

    def write_custom_call(self, op: Any) -> Any:
        target = self.ir.StringAttr(op.attributes["call_target_name"]).value
        if target == "ApproxTopK":
            return self.write_approximate_top_k(op)
        if target == TARGET:
            return write_call(self, op)
        if target != _ASSERTION:
            return False
        comparison = op.operands[0].owner
        if isinstance(comparison, self.ir.Block) or comparison.name != "stablehlo.compare":
            return False
        (left,), (right,) = map(self.scalars, comparison.operands)
        message = self.ir.StringAttr(op.attributes["error_message"]).value if "error_message" in op.attributes else "extents differ"
        # What is in braces are numbers that are not known here.
        message = re.sub(r" ?\(= \{\d+\}\)", "", message.split("Using the following")[0]).strip()
        self.check(SIGNED[read_direction(comparison)], left, right, message)
        return None
