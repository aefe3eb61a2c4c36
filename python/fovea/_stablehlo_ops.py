# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations of StableHLO that torch-mlir-opt has no linalg for, by loops and branches of scf."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ._rewriting import SIGNED, read_list, read_number
from ._scan_loops import ScanWriter

__all__ = ["OperationWriter"]

#: What is computed for each element by itself, so that what a region says of scalars can be said of tensors.
_ELEMENTWISE = {
    f"stablehlo.{name}"
    for name in (
        "abs add and atan2 bitcast_convert cbrt ceil clamp compare convert cosine divide exponential exponential_minus_one floor is_finite "
        "log log_plus_one logistic maximum minimum multiply negate not or power remainder round_nearest_afz round_nearest_even rsqrt "
        "select shift_left shift_right_arithmetic shift_right_logical sign sine sqrt subtract tan tanh xor"
    ).split()
}
#: Those of arith, of numbers and of integers with signs.
_FLOATS = {
    "stablehlo.add": "arith.addf", "stablehlo.multiply": "arith.mulf", "stablehlo.maximum": "arith.maximumf",
    "stablehlo.minimum": "arith.minimumf",
}  # fmt: skip
_INTEGERS = {
    "stablehlo.add": "arith.addi", "stablehlo.multiply": "arith.muli", "stablehlo.maximum": "arith.maxsi",
    "stablehlo.minimum": "arith.minsi",
}  # fmt: skip


class OperationWriter(ScanWriter):
    """Products, scatter and cumulative sums."""

    # ---- Pieces ----

    def spread(self, scalar: Any, type: Any, sizes: Sequence[Any]) -> Any:
        """A tensor of one number, which is in a tensor without dimensions."""
        number = self.make("tensor.extract", [type.element_type], [scalar])
        return self.make("tensor.splat", [type], [number, *(each for each in sizes if not isinstance(each, int))])

    def apply(self, block: Any, arguments: Sequence[Any]) -> Any:
        """The result of a region of scalars for each element of tensors, or None."""
        type = self.ir.RankedTensorType(arguments[0].type)
        known = dict(zip(block.arguments, arguments))

        def find(value: Any) -> Any:
            if value in known:
                return known[value]
            if not type.rank:
                return value
            shape = self.ir.RankedTensorType.get(type.shape, self.scalar_type(value))
            sizes = [self.extent(arguments[0], dim) for dim in range(type.rank)]
            known[value] = self.spread(value, shape, sizes)
            return known[value]

        for op in block.operations:
            operands = [find(each) for each in op.operands]
            if op.operation.name in ("stablehlo.return", "func.return"):
                return operands[0] if len(operands) == 1 else None
            if op.operation.name == "stablehlo.constant":
                known[op.results[0]] = find(op.operation.clone().results[0])
            elif op.operation.name in _ELEMENTWISE:
                new = op.operation.clone()
                for number, operand in enumerate(operands):
                    new.operands[number] = operand
                new.results[0].set_type(self.ir.RankedTensorType.get(type.shape, self.scalar_type(op.results[0])))
                known[op.results[0]] = new.results[0]
            else:
                return None
        return None

    # ---- Calls ----

    def write_composite(self, op: Any) -> Any:
        """What it is made of."""
        callee = {"callee": op.attributes["decomposition"]}
        return list(self.make_all("func.call", [each.type for each in op.results], op.operands, callee).results)

    # ---- Products ----

    def write_dot_general(self, op: Any) -> Any:
        """An algorithm asks for a type of sums, and allows types of factors that are rounded more than ours."""
        if "algorithm" not in op.attributes:
            return False
        sums = re.search(r"accumulation_type = (\w+)", str(op.attributes["algorithm"]))
        type = self.ir.RankedTensorType(op.results[0].type)
        if not sums:
            return False
        attributes = {each: op.attributes[each] for each in ("dot_dimension_numbers", "precision_config") if each in op.attributes}
        summed = self.ir.RankedTensorType.get(type.shape, self.ir.Type.parse(sums[1]))
        found = self.make("stablehlo.dot_general", [summed], op.operands, attributes)
        return found if summed == type else self.make("stablehlo.convert", [type], [found])

    # ---- Rows after rows ----

    def accumulate(self, tensor: Any, initial: Any, block: Any, dim: int, is_backward: bool) -> Any:
        """What windows begin with counts once, as XLA has it."""
        found = self.accumulate_elements(tensor, initial, block, dim, is_backward)
        if found is not None:
            return found
        type = self.ir.RankedTensorType(tensor.type)
        sizes: list[Any] = [self.extent(tensor, each) for each in range(type.rank)]
        count, sizes[dim] = sizes[dim], 1
        unknown = self.ir.ShapedType.get_dynamic_size()
        shape = self.ir.RankedTensorType.get([each if isinstance(each, int) else unknown for each in sizes], type.element_type)
        is_possible = True

        def step(number: Any, sums: Any, before: Any) -> list[Any]:
            nonlocal is_possible
            place = self.combine("subtract", self.combine("subtract", count, 1), number) if is_backward else number
            offsets = [place if each == dim else 0 for each in range(type.rank)]
            found = self.apply(block, [before, self.extract(tensor, offsets, sizes)])
            if found is None:
                is_possible = False
                return [sums, before]
            return [self.insert(found, sums, offsets, sizes), found]

        sums, _ = self.loop(count, [tensor, self.spread(initial, shape, sizes)], step)
        return sums if is_possible else None

    def accumulate_elements(self, tensor: Any, initial: Any, block: Any, dim: int, is_backward: bool) -> Any:
        """The same by elements, where the block is one operation of arith. XLA keeps sums of narrow numbers in f32, too."""
        type = self.ir.RankedTensorType(tensor.type)
        element, (first, *others) = type.element_type, [each.operation for each in block.operations]
        kind = _FLOATS if str(element) in ("f64", "f32", "f16", "bf16") else _INTEGERS
        is_known = kind is _FLOATS or (isinstance(element, self.ir.IntegerType) and element.is_signless and element.width > 1)
        name = kind.get(first.name)
        if not is_known or name is None or len(others) != 1 or {*first.operands} != {*block.arguments}:
            return None
        is_wide = str(element) in ("f16", "bf16") and name in ("arith.addf", "arith.mulf")
        state = self.ir.F32Type.get() if is_wide else element

        def widen(number: Any) -> Any:
            return self.make("arith.extf", [state], [number]) if is_wide else number

        count, start = self.extent(tensor, dim), widen(self.make("tensor.extract", [element], [initial]))

        def step(at: list[Any], before: Any, sums: Any) -> list[Any]:
            if is_backward:
                at = [*at]
                at[dim] = self.combine("subtract", self.combine("subtract", count, 1), at[dim])
            after = self.make(name, [state], [before, widen(self.read(tensor, at))])
            narrow = self.make("arith.truncf", [element], [after]) if is_wide else after
            return [self.write(narrow, sums, at), after]

        sizes = [each for each in self.sizes(tensor) if not isinstance(each, int)]
        sums = self.make("tensor.empty", [type], sizes)
        found = self.scan(tensor, dim, [sums], state, lambda place, sums: start, step, lambda place, state, sums: [sums])
        return found[0]

    # ---- Scatter ----

    def write_optimization_barrier(self, op: Any) -> Any:
        """What `jax.checkpoint` keeps apart: one compiler may compute all of it where it is."""
        return list(op.operands)

    def write_scatter(self, op: Any) -> Any:
        """Updates one after the other. One that does not fit is left out, as XLA leaves it."""
        if len(op.operands) != 3:
            return False
        tensor, indices, updates = op.operands
        types = [self.ir.RankedTensorType(each.type) for each in op.operands]
        numbers = op.attributes["scatter_dimension_numbers"]
        window, inserted = read_list(numbers, "update_window_dims"), read_list(numbers, "inserted_window_dims")
        batches = read_list(numbers, "input_batching_dims")
        index_batches = read_list(numbers, "scatter_indices_batching_dims")
        starts, vector = read_list(numbers, "scatter_dims_to_operand_dims"), read_number(numbers, "index_vector_dim")
        steps = [dim for dim in range(types[2].rank) if dim not in window]
        kept = [dim for dim in range(types[0].rank) if dim not in inserted and dim not in batches]
        sizes: list[Any] = [1] * types[0].rank
        for dim, place in zip(window, kept):
            sizes[place] = self.extent(updates, dim)
        pieces = [self.extent(updates, dim) if dim in window else 1 for dim in range(types[2].rank)]
        shape = [types[2].shape[dim] for dim in window]
        is_possible = True

        def update(places: list[Any], sums: Any) -> list[Any]:
            nonlocal is_possible
            at = iter(places)
            vectors = [0 if dim == vector else next(at) for dim in range(types[1].rank)]
            offsets: list[Any] = [0] * types[0].rank
            for dim, each in zip(batches, index_batches):
                offsets[dim] = vectors[each]
            fits = None
            for number, dim in enumerate(starts):
                place = [number if each == vector else at for each, at in enumerate(vectors)]
                offsets[dim] = self.element_at(indices, place)
                end = self.combine("add", offsets[dim], sizes[dim])
                for test in (
                    self.compare(SIGNED["LE"], self.value(0), offsets[dim]),
                    self.compare(SIGNED["LE"], end, self.value(self.extent(tensor, dim))),
                ):
                    fits = test if fits is None else self.both(fits, test)
            at = iter(places)
            piece = [0 if dim in window else next(at) for dim in range(types[2].rank)]

            def write() -> list[Any]:
                nonlocal is_possible
                old = self.extract(sums, offsets, sizes, shape)
                found = self.apply(op.regions[0].blocks[0], [old, self.extract(updates, piece, pieces, shape)])
                is_possible = is_possible and found is not None
                return [sums if found is None else self.insert(found, sums, offsets, sizes)]

            return write() if fits is None else self.branch(fits, [sums], write)

        (sums,) = self.loops([self.extent(updates, dim) for dim in steps], [tensor], update)
        return sums if is_possible else False
