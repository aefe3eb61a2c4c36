# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What torch-mlir writes as tm_tensor, a dialect of its own: scatter, scan, sort and topk, as loops of scf."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ._rewriting import SIGNED, rewrite
from ._stablehlo_sort import SortWriter
from ._torch_mlir import run_passes

__all__ = ["lower_tm_tensor"]

#: Predicates of arith.cmpf and arith.cmpi: those of ascending and of descending order.
_ASCENDING = {"arith.cmpf": (4, 5), "arith.cmpi": (2, 3)}
_DESCENDING = {"arith.cmpf": (2, 3), "arith.cmpi": (4, 5)}
_ORDERED, _LESS_OR_UNORDERED = 7, 11


class TMTensorWriter(SortWriter):
    """Regions have scalars of arith."""

    prefixes = ("tm_tensor.",)

    def run(self, block: Any, arguments: Sequence[Any]) -> Any:
        """What a region yields for scalars."""
        known = dict(zip(block.arguments, arguments))
        for op in block.operations:
            operands = [known.get(each, each) for each in op.operands]
            if op.operation.name == "tm_tensor.yield":
                return operands[0]
            new = op.operation.clone()
            for number, operand in enumerate(operands):
                new.operands[number] = operand
            known.update(zip(op.results, new.results))
        raise AssertionError("a region without an end")

    # ---- Scatter ----

    def write_tm_tensor_scatter(self, op: Any) -> Any:
        """Updates one after the other: slices along the last dimensions, of which indices name the first element.

        Negative indices count from the end, as those of index_put and ONNX do: torch-mlir leaves them.
        """
        updates, indices, tensor = op.operands
        named = list(self.ir.DenseI64ArrayAttr(op.attributes["dimension_map"]))
        sizes = self.sizes(tensor)
        count, *slice_sizes = self.sizes(updates)
        block, missing = op.regions[0].blocks[0], len(sizes) - len(slice_sizes)

        def update(places: list[Any], sums: Any) -> list[Any]:
            (number,) = places
            starts: list[Any] = [0] * len(sizes)
            for column, dim in enumerate(named):
                starts[dim] = self.count_from_end(self.element_at(indices, [number, column]), sizes[dim])
                last = self.combine("subtract", sizes[dim], slice_sizes[dim - missing] if dim >= missing else 1)
                for left, right in ((0, starts[dim]), (starts[dim], last)):
                    self.check(SIGNED["LE"], left, right, f"scatter: an index is out of bounds of dimension {dim}")

            def update_one(offsets: list[Any], sums: Any) -> list[Any]:
                at = [
                    self.combine("add", self.value(start), offsets[dim - missing]) if dim >= missing else start
                    for dim, start in enumerate(starts)
                ]
                found = self.run(block, [self.read(updates, [number, *offsets]), self.read(sums, at)])
                return [self.write(found, sums, at)]

            return self.loops(slice_sizes, [sums], update_one)

        return self.loops([count], [tensor], update)

    def count_from_end(self, index: Any, size: Any) -> Any:
        is_negative = self.compare(SIGNED["LT"], index, self.value(0))
        return self.make("arith.select", [self.index], [is_negative, self.combine("add", index, size), index])

    # ---- Scan ----

    def write_tm_tensor_scan(self, op: Any) -> Any:
        """What came before and the present element, combined. Sums of f32 are carried as f64, as PyTorch's are."""
        tensor, output, total = op.operands
        dim = self.ir.IntegerAttr(op.attributes["dimension"]).value
        is_inclusive = self.ir.BoolAttr(op.attributes["inclusive"]).value
        block, type, f64 = op.regions[0].blocks[0], self.scalar_type(tensor), self.ir.F64Type.get()
        is_wide = str(type) == "f32" and block.operations[0].operation.name == "arith.addf" and len(block.operations) == 2

        def widen(element: Any) -> Any:
            return self.make("arith.extf", [f64], [element]) if is_wide else element

        def narrow(element: Any) -> Any:
            return self.make("arith.truncf", [type], [element]) if is_wide else element

        def step(at: list[Any], before: Any, outputs: Any, totals: Any) -> list[Any]:
            element = self.read(tensor, at)
            after = self.make("arith.addf", [f64], [widen(element), before]) if is_wide else self.run(block, [element, before])
            return [self.write(narrow(after if is_inclusive else before), outputs, at), totals, after]

        return self.scan(
            tensor, dim, [output, total], f64 if is_wide else type,
            first=lambda place, outputs, totals: widen(self.read(totals, place)), step=step,
            last=lambda place, state, outputs, totals: [outputs, self.write(narrow(state), totals, place)],
        )  # fmt: skip

    # ---- Sort ----

    def write_tm_tensor_sort(self, op: Any) -> Any:
        """Stable, and NaN is the greatest, as PyTorch has it."""
        return self.write_sort(op)

    def write_tm_tensor_topk(self, op: Any) -> Any:
        """The first of each sorted line."""
        tensor, *rest = op.operands
        dim, types = self.ir.IntegerAttr(op.attributes["dimension"]).value, [self.ir.RankedTensorType(each.type) for each in op.results]
        if len(rest) != 2 or not self.is_ordered(tensor):
            return False
        sizes, block = self.sizes(tensor), op.regions[0].blocks[0]
        count, found = sizes[dim], self.extent(rest[0], dim)
        ones = [1] * len(sizes)
        lines, kept = [*ones[:dim], count, *ones[dim + 1 :]], [*ones[:dim], found, *ones[dim + 1 :]]
        extents = [self.ir.RankedTensorType(tensor.type).shape[dim]]
        short = [each.shape[dim] for each in types[:1]]
        numbers = self.count_up(count, self.ir.RankedTensorType.get(extents, types[1].element_type))
        is_possible = True

        def take(place: list[Any], *results: Any) -> list[Any]:
            nonlocal is_possible
            line = self.extract(tensor, place, lines, extents)
            pieces = self.merge(block, [line, numbers], count)
            is_possible = is_possible and pieces is not None
            if pieces is None:
                return list(results)
            first = [self.extract(each, [0], [found], short) for each in pieces]
            return [self.insert(piece, into, place, kept) for piece, into in zip(first, results)]

        results = self.loops([1 if number == dim else each for number, each in enumerate(sizes)], rest, take)
        return results if is_possible else False

    def count_up(self, count: Any, type: Any) -> Any:
        """0, 1, 2, ..."""
        op = self.make_all("tensor.generate", [type], [] if isinstance(count, int) else [count], regions=1)
        block = op.regions[0].blocks.append(self.index)
        with self.ir.InsertionPoint(block):
            self.make("tensor.yield", [], [self.make("arith.index_cast", [type.element_type], [block.arguments[0]])])
        return op.results[0]

    def evaluate(self, block: Any, arguments: Sequence[Any]) -> Any:
        """Whether the first of two comes before the second, by the order that the region is known to have."""
        comparison = block.operations[0].operation
        if comparison.name not in _ASCENDING or list(comparison.operands) != list(block.arguments)[:2] or len(block.operations) != 2:
            return None
        predicate = self.ir.IntegerAttr(comparison.attributes["predicate"]).value
        first, second = arguments[:2]
        if predicate in _DESCENDING[comparison.name]:
            first, second = second, first
        elif predicate not in _ASCENDING[comparison.name]:
            return None
        if comparison.name == "arith.cmpi":
            return self.compare(SIGNED["LT"], first, second)
        is_less = self.compare(_LESS_OR_UNORDERED, first, second, "arith.cmpf")
        return self.both(is_less, self.compare(_ORDERED, first, first, "arith.cmpf"))


def lower_tm_tensor(text: str) -> str:
    """The module without operations of tm_tensor that have loops here."""
    if "tm_tensor." not in text:
        return text
    # What is left, such as attention, is read in generic form alone.
    return rewrite(run_passes(["--mlir-print-op-generic"], "tm_tensor", text=text), TMTensorWriter, is_generic=True)
