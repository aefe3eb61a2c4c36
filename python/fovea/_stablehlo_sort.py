# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sorting in StableHLO and CHLO, as loops of scf."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ._rewriting import SIGNED, read_direction
from ._stablehlo_ops import OperationWriter

__all__ = ["SortWriter"]

#: Predicates of arith.cmpf, and of arith.cmpi without signs.
_FLOAT = {"EQ": 1, "GT": 2, "GE": 3, "LT": 4, "LE": 5, "NE": 13}
_WIDTHS = {"f64": 64, "f32": 32, "f16": 16, "bf16": 16}
_UNSIGNED = {"EQ": 0, "NE": 1, "LT": 6, "LE": 7, "GT": 8, "GE": 9}


class SortWriter(OperationWriter):
    """Sort and top_k, of scalars that arith compares."""

    # ---- Scalars ----

    def true(self) -> Any:
        i1 = self.ir.IntegerType.get_signless(1)
        return self.make("arith.constant", [i1], [], {"value": self.integer(1, i1)})

    def either(self, left: Any, right: Any) -> Any:
        return self.make("arith.ori", [left.type], [left, right])

    def negate(self, value: Any) -> Any:
        return self.make("arith.xori", [value.type], [value, self.true()])

    def is_float(self, type: Any) -> bool:
        return str(type).startswith(("f", "bf"))

    def is_ordered(self, tensor: Any) -> bool:
        """Whether what is here compares such elements."""
        type = self.scalar_type(tensor)
        return str(type) in _WIDTHS if self.is_float(type) else not str(type).startswith("complex")

    def signless(self, value: Any) -> Any:
        """The same integer as arith has it."""
        if not str(value.type).startswith("ui"):
            return value
        type = self.ir.IntegerType.get_signless(self.ir.IntegerType(value.type).width)
        return self.make("builtin.unrealized_conversion_cast", [type], [value])

    def is_greater(self, left: Any, right: Any) -> Any:
        predicates = _UNSIGNED if str(left.type).startswith("ui") else SIGNED
        left, right = map(self.in_total_order if self.is_float(left.type) else self.signless, (left, right))
        return self.compare(predicates["GT"], left, right)

    def in_total_order(self, value: Any) -> Any:
        """An integer that is as much less or greater as the number: -NaN, -inf, ..., -0, 0, ..., inf, NaN."""
        width = _WIDTHS[str(value.type)]
        type = self.ir.IntegerType.get_signless(width)

        def constant(number: int) -> Any:
            return self.make("arith.constant", [type], [], {"value": self.integer(number, type)})

        bits = self.make("arith.bitcast", [type], [value])
        sign = self.make("arith.shrsi", [type], [bits, constant(width - 1)])
        flip = self.make("arith.andi", [type], [sign, constant((1 << (width - 1)) - 1)])
        return self.make("arith.xori", [type], [bits, flip])

    def evaluate(self, block: Any, arguments: Sequence[Any]) -> Any:
        """The condition of a comparator, or None."""
        known = dict(zip(block.arguments, map(self.signless, arguments)))

        def find(value: Any) -> Any:
            """Others are from outside of the region, as constants are."""
            return known[value] if value in known else self.signless(self.make("tensor.extract", [self.scalar_type(value)], [value]))

        for op in block.operations:
            name = op.operation.name.removeprefix("stablehlo.")
            operands = [find(each) for each in op.operands]
            if name in ("return", "func.return"):
                return operands[0]
            found = self.evaluate_one(name, op, operands)
            if found is None:
                return None
            known[op.results[0]] = found
        return None

    def evaluate_one(self, name: str, op: Any, operands: list[Any]) -> Any:
        if name == "compare":
            direction = read_direction(op)
            kind = str(op.attributes["compare_type"]) if "compare_type" in op.attributes else ""
            left, right = operands
            if self.is_float(left.type):
                if "TOTALORDER" not in kind:
                    return self.compare(_FLOAT[direction], left, right, "arith.cmpf")
                left, right = map(self.in_total_order, operands)
            predicates = _UNSIGNED if "UNSIGNED" in kind or str(left.type) == "i1" else SIGNED
            return self.compare(predicates[direction], left, right)
        if name == "select":
            return self.make("arith.select", [operands[1].type], operands)
        if name == "not" and str(operands[0].type) == "i1":
            return self.negate(operands[0])
        arithmetic = {"and": "arith.andi", "or": "arith.ori", "xor": "arith.xori"}
        return self.make(arithmetic[name], [operands[0].type], operands) if name in arithmetic else None

    # ---- Sort ----

    def write_sort(self, op: Any) -> Any:
        """Each line by merging, which keeps the order of equals."""
        dim = self.ir.IntegerAttr(op.attributes["dimension"]).value if "dimension" in op.attributes else -1
        return self.sort(list(op.operands), dim, op.regions[0].blocks[0])

    def sort(self, tensors: list[Any], dim: int, block: Any) -> Any:
        """Tensors in the order of a block that says whether the first of two comes before the second; False if it is unknown."""
        if not all(map(self.is_ordered, tensors)):
            return False
        rank = self.ir.RankedTensorType(tensors[0].type).rank
        dim %= rank
        sizes: list[Any] = [self.extent(tensors[0], each) for each in range(rank)]
        count, sizes[dim] = sizes[dim], 1
        lines = [*sizes[:dim], count, *sizes[dim + 1 :]]
        lines = [each if number == dim else 1 for number, each in enumerate(lines)]
        shape = [self.ir.RankedTensorType(tensors[0].type).shape[dim]]
        is_possible = True

        def sort_line(place: list[Any], *sorted_: Any) -> list[Any]:
            nonlocal is_possible
            found = self.merge(block, [self.extract(each, place, lines, shape) for each in sorted_], count)
            is_possible = is_possible and found is not None
            return [self.insert(new, old, place, lines) for new, old in zip(found or [], sorted_)] or list(sorted_)

        found = self.loops([1 if number == dim else each for number, each in enumerate(sizes)], tensors, sort_line)
        return found if is_possible else False

    def merge(self, block: Any, lines: list[Any], count: Any) -> list[Any] | None:
        """Sorted pieces of 1, 2, 4, ... elements."""
        is_possible = True
        types = [each.type for each in lines]
        last = self.value(self.combine("subtract", count, 1))
        end = self.value(count)
        extents = [] if isinstance(count, int) else [count]
        loop = self.make_all("scf.while", [self.index, *types], [self.value(1), *lines], regions=2)
        before, after = (region.blocks.append(self.index, *types) for region in loop.regions)

        def least(left: Any, right: Any) -> Any:
            return self.make("arith.minsi", [self.index], [left, right])

        def add(left: Any, right: Any) -> Any:
            return self.make("arith.addi", [self.index], [left, right])

        def read(sources: Sequence[Any], at: Any) -> list[Any]:
            return [self.make("tensor.extract", [self.scalar_type(each)], [each, at]) for each in sources]

        with self.ir.InsertionPoint(before):
            self.make("scf.condition", [], [self.compare(SIGNED["LT"], before.arguments[0], end), *before.arguments])
        with self.ir.InsertionPoint(after):
            width, *sources = after.arguments
            twice = add(width, width)
            pieces = self.make("arith.ceildivsi", [self.index], [end, twice])

            def merge_two(number: Any, *results: Any) -> list[Any]:
                first = self.make("arith.muli", [self.index], [number, twice])
                middle = least(add(first, width), end)
                final = least(add(first, twice), end)
                length = self.make("arith.subi", [self.index], [final, first])

                def take(number: Any, left: Any, right: Any, *results: Any) -> list[Any]:
                    nonlocal is_possible
                    mine, other = read(sources, least(left, last)), read(sources, least(right, last))
                    is_less = self.evaluate(block, [each for pair in zip(other, mine) for each in pair])
                    if is_less is None:
                        is_possible = False
                        return [left, right, *results]
                    is_done = self.compare(SIGNED["LT"], left, middle)
                    is_right = self.both(self.compare(SIGNED["LT"], right, final), self.either(self.negate(is_done), is_less))
                    at = add(first, number)
                    step = self.make("arith.index_castui", [self.index], [is_right])
                    results = tuple(
                        self.make("tensor.insert", [into.type], [self.make("arith.select", [a.type], [is_right, b, a]), into, at])
                        for a, b, into in zip(mine, other, results)
                    )
                    stay = self.make("arith.subi", [self.index], [self.value(1), step])
                    return [add(left, stay), add(right, step), *results]

                return self.loop(length, [first, middle, *results], take)[2:]

            empty = [self.make("tensor.empty", [type], extents) for type in types]
            self.make("scf.yield", [], [twice, *self.loop(pieces, empty, merge_two)])
        return list(loop.results)[1:] if is_possible else None

    # ---- top_k ----

    def write_approximate_top_k(self, op: Any) -> Any:
        """The exact ones, of a custom call."""
        options = self.ir.DictAttr(op.attributes["backend_config"])
        name = self.ir.FlatSymbolRefAttr(self.ir.ArrayAttr(op.attributes["called_computations"])[0]).value
        (block,) = self.ir.SymbolTable(self.module.operation)[name].regions[0].blocks
        end = block.operations[len(block.operations) - 1].operation
        if end.name == "stablehlo.return":
            # Of a function, which stays.
            with self.ir.InsertionPoint(end):
                self.make("func.return", [], list(end.operands))
            end.erase()
        dim = self.ir.IntegerAttr(options["reduction_dim"]).value
        found = self.sort(list(op.operands)[: len(op.results)], dim, block)
        if found is False:
            return False
        types = [self.ir.RankedTensorType(each.type) for each in op.results]
        sizes = [self.extent(found[0], each) for each in range(types[0].rank)]
        sizes[dim] = types[0].shape[dim]
        return [self.extract(each, [0] * len(sizes), sizes, type.shape) for each, type in zip(found, types)]

    def write_chlo_top_k(self, op: Any) -> Any:
        """Each element is put in its place among the greatest so far, after its equals, in XLA's total order."""
        x = op.operands[0]
        type = self.ir.RankedTensorType(x.type)
        k = self.ir.IntegerAttr(op.attributes["k"]).value
        if not self.is_ordered(x) or not k:
            return False
        sizes = [self.extent(x, dim) for dim in range(type.rank)]
        number_type = self.scalar_type(op.results[1])
        found = [self.make("tensor.empty", [each.type], [size for size in sizes[:-1] if not isinstance(size, int)]) for each in op.results]
        end = self.value(k)

        def take(place: list[Any], number: Any, values: Any, indices: Any) -> list[Any]:
            mine = self.make("tensor.extract", [type.element_type], [x, *map(self.value, [*place, number])])
            count = self.make("arith.minsi", [self.index], [number, end])
            types = [self.index, values.type, indices.type]
            op = self.make_all("scf.while", types, [count, values, indices], regions=2)
            before, after = (region.blocks.append(*types) for region in op.regions)

            def read(tensor: Any, at: Any) -> Any:
                element = self.scalar_type(tensor)
                return self.make("tensor.extract", [element], [tensor, *map(self.value, [*place, at])])

            def write(tensor: Any, element: Any, at: Any) -> Any:
                return self.make("tensor.insert", [tensor.type], [element, tensor, *map(self.value, [*place, at])])

            with self.ir.InsertionPoint(before):
                at, *tensors = before.arguments
                some = self.compare(SIGNED["GT"], at, self.value(0))
                previous = self.make("arith.subi", [self.index], [at, self.value(1)])
                safe = self.make("arith.maxsi", [self.index], [previous, self.value(0)])
                is_less = self.is_greater(mine, read(tensors[0], safe))
                self.make("scf.condition", [], [self.both(some, is_less), at, *tensors])
            with self.ir.InsertionPoint(after):
                at, *tensors = after.arguments
                previous = self.make("arith.subi", [self.index], [at, self.value(1)])

                # The last of k falls out.
                fits = self.compare(SIGNED["LT"], at, end)
                moved = self.branch(fits, tensors, lambda: [write(each, read(each, previous), at) for each in tensors])
                self.make("scf.yield", [], [previous, *moved])
            at, *tensors = op.results
            cast = self.make("arith.index_cast", [number_type], [number])
            fits = self.compare(SIGNED["LT"], at, end)
            return self.branch(fits, tensors, lambda: [write(tensors[0], mine, at), write(tensors[1], cast, at)])

        return self.loops(sizes, found, lambda place, *inner: take(place[:-1], place[-1], *inner))
