# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loops and branches of StableHLO as those of scf."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ._rewriting import Writer, read_direction

__all__ = ["LoopWriter"]

#: Loops of no more iterations are repeated, and so many operations of all of them: rounds of random numbers become one kernel.
_MOST_REPEATED, _MOST_OPERATIONS = 8, 512


class Count(NamedTuple):
    """A loop that counts: which carried values do, and the tensors of their first number and of the first that is too large."""

    places: list[int]
    first: Any
    end: Any


def _constant(value: Any) -> int | None:
    """The number of a tensor without dimensions that is written in the module."""
    op = value.owner
    if getattr(op, "name", "") != "stablehlo.constant":
        return None
    found = re.search(r"dense<(-?\d+)>", str(op.attributes["value"]))
    return int(found[1]) if found else None


def _number(value: Any, block: Any) -> int | None:
    """Which argument of a block it is."""
    return next((number for number, each in enumerate(block.arguments) if each == value), None)


def _is_next(body: Any, place: int, result: Any) -> bool:
    """Whether the result is one more than an argument."""
    step = result.owner
    return getattr(step, "name", "") == "stablehlo.add" and sorted(
        (_number(each, body) == place, _constant(each) == 1) for each in step.operands
    ) == [(False, True), (True, False)]


def _is_same(one: Any, other: Any) -> bool:
    return one == other or (_constant(one) is not None and _constant(one) == _constant(other))


class LoopWriter(Writer):
    """While and branches."""

    # ---- Pieces ----

    def scalar_type(self, value: Any) -> Any:
        return self.ir.RankedTensorType(value.type).element_type

    def loop(self, count: Any, carried: Sequence[Any], body: Callable[..., Sequence[Any]]) -> list[Any]:
        """What `body(index, *carried)` leaves after all numbers below `count`."""
        types = [each.type for each in carried]
        op = self.make_all("scf.for", types, [self.value(0), self.value(count), self.value(1), *carried], regions=1)
        block = op.regions[0].blocks.append(self.index, *types)
        with self.ir.InsertionPoint(block):
            self.make("scf.yield", [], body(*block.arguments))
        return list(op.results)

    def loops(
        self, counts: Sequence[Any], carried: Sequence[Any], body: Callable[..., Sequence[Any]], place: Sequence[Any] = ()
    ) -> list[Any]:
        """What `body(place, *carried)` leaves after all places of loops in one another."""
        if not counts:
            return list(body(list(place), *carried))
        return self.loop(counts[0], carried, lambda number, *inner: self.loops(counts[1:], inner, body, [*place, number]))

    def branch(self, condition: Any, carried: Sequence[Any], body: Callable[[], Sequence[Any]]) -> list[Any]:
        """What `body` gives where the condition holds, else what there was."""
        op = self.make_all("scf.if", [each.type for each in carried], [condition], regions=2)
        for region, results in zip(op.regions, (body, lambda: carried)):
            with self.ir.InsertionPoint(region.blocks.append()):
                self.make("scf.yield", [], results())
        return list(op.results)

    def move(self, source: Any, region: Any, terminator: str) -> None:
        """A block of stablehlo as one of scf."""
        block = source.blocks[0]
        block.append_to(region)
        end = block.operations[len(block.operations) - 1]
        with self.ir.InsertionPoint(end):
            results = list(end.operands)
            if terminator == "scf.condition":
                condition = self.make("tensor.extract", [self.scalar_type(end.operands[0])], [end.operands[0]])
                results = [condition, *block.arguments]
            self.make(terminator, [], results)
        end.operation.erase()

    # ---- While ----

    def find_count(self, op: Any) -> Count | None:
        condition, body = (region.blocks[0] for region in op.regions)
        *rest, end = condition.operations
        test = end.operands[0].owner
        if len(rest) < 1 or test != rest[-1].operation or test.name != "stablehlo.compare" or read_direction(test) != "LT":
            return None
        if any(each.operation.name != "stablehlo.constant" for each in rest[:-1]):
            return None
        place, results = _number(test.operands[0], condition), list(body.operations)[-1].operands
        if place is None:
            return None
        first = op.operands[place]
        element = self.scalar_type(first)
        if not isinstance(element, self.ir.IntegerType) or not element.is_signless or not _is_next(body, place, results[place]):
            return None
        # A loop over elements counts twice.
        places = [
            number for number, each in enumerate(op.operands)
            if number == place or (each.type == first.type and _is_same(each, first) and _is_next(body, number, results[number]))
        ]  # fmt: skip
        bound = test.operands[1]
        carried = _number(bound, condition)
        if carried is not None:
            if _number(results[carried], body) != carried:
                return None
            bound = op.operands[carried]
        elif getattr(bound.owner, "name", "") == "stablehlo.constant":
            bound = bound.owner.clone().results[0]
        return Count(places, first, bound)

    def write_while(self, op: Any) -> Any:
        count = self.find_count(op)
        if count is None:
            loop = self.make_all("scf.while", [each.type for each in op.operands], op.operands, regions=2)
            self.move(op.regions[0], loop.regions[0], "scf.condition")
            self.move(op.regions[1], loop.regions[1], "scf.yield")
            return list(loop.results)
        first, end = _constant(count.first), _constant(count.end)
        body = list(op.regions[1].blocks[0].operations)
        is_plain = not any(len(each.operation.regions) for each in body)
        if first is not None and end is not None and end - first <= _MOST_REPEATED and is_plain:
            if (end - first) * len(body) <= _MOST_OPERATIONS:
                return self.repeat(op, count, range(first, end))
        return self.make_for(op, count)

    def repeat(self, op: Any, count: Count, numbers: range) -> list[Any]:
        """All iterations, one after the other."""
        body, carried = op.regions[1].blocks[0], list(op.operands)
        *steps, end = body.operations
        for number in numbers:
            value = self.ir.Attribute.parse(f"dense<{number}> : {count.first.type}")
            constant = self.make("stablehlo.constant", [count.first.type], [], {"value": value})
            for place in count.places:
                carried[place] = constant
            known = dict(zip(body.arguments, carried))
            for each in steps:
                new = each.operation.clone()
                for place, operand in enumerate(each.operation.operands):
                    new.operands[place] = known.get(operand, operand)
                known.update(zip(each.operation.results, new.results))
            carried = [known.get(each, each) for each in end.operation.operands]
        return carried

    def make_for(self, op: Any, count: Count) -> list[Any]:
        """A loop over numbers, of which a tensor is made for what reads it."""
        first, end = (self.read_index(each) for each in (count.first, count.end))
        carried = [each for place, each in enumerate(op.operands) if place not in count.places]
        types = [each.type for each in carried]
        loop = self.make_all("scf.for", types, [*map(self.value, (first, end, 1)), *carried], regions=1)
        block = loop.regions[0].blocks.append(self.index, *types)
        body = op.regions[1].blocks[0]
        *steps, last = body.operations
        number, *inner = block.arguments
        with self.ir.InsertionPoint(block):
            counter = self.write_index(number, count.first.type)
            for place in count.places:
                inner.insert(place, counter)
            for old, new in zip(body.arguments, inner):
                old.replace_all_uses_with(new)
            results = [each for place, each in enumerate(last.operation.operands) if place not in count.places]
            terminator = self.make_all("scf.yield", [], results)
        for each in steps:
            each.operation.move_before(terminator)
        results = list(loop.results)
        counter = self.write_index(self.value(self.combine("maximum", first, end)), count.first.type)
        for place in count.places:
            results.insert(place, counter)
        return results

    def read_index(self, tensor: Any) -> Any:
        known = _constant(tensor)
        return self.element_at(tensor, []) if known is None else known

    def write_index(self, number: Any, type: Any) -> Any:
        element = self.ir.RankedTensorType(type).element_type
        return self.make("tensor.from_elements", [type], [self.make("arith.index_cast", [element], [number])])

    # ---- Branches ----

    def write_if(self, op: Any) -> Any:
        condition = self.make("tensor.extract", [self.scalar_type(op.operands[0])], [op.operands[0]])
        return self.choose(op, "scf.if", condition, {}, list(op.regions))

    def write_case(self, op: Any) -> Any:
        """A number that has no branch takes the last."""
        *others, last = op.regions
        number = self.make("tensor.extract", [self.scalar_type(op.operands[0])], [op.operands[0]])
        number = self.make("arith.index_cast", [self.index], [number])
        cases = {"cases": self.ir.DenseI64ArrayAttr.get(list(range(len(others))))}
        return self.choose(op, "scf.index_switch", number, cases, [last, *others])

    def choose(self, op: Any, name: str, choice: Any, attributes: dict[str, Any], branches: Sequence[Any]) -> Any:
        new = self.make_all(name, [each.type for each in op.results], [choice], attributes, len(branches))
        for source, region in zip(branches, new.regions):
            self.move(source, region, "scf.yield")
        return list(new.results)
