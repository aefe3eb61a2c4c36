# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What came before each element, and the element, combined, as loops of scf."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ._stablehlo_loops import LoopWriter

__all__ = ["ScanWriter"]


class ScanWriter(LoopWriter):
    """Loops over elements of arrays of any extents. Kernels for GPUs have a thread for each line."""

    def read(self, tensor: Any, place: Sequence[Any]) -> Any:
        return self.make("tensor.extract", [self.scalar_type(tensor)], [tensor, *map(self.value, place)])

    def write(self, element: Any, tensor: Any, place: Sequence[Any]) -> Any:
        return self.make("tensor.insert", [tensor.type], [element, tensor, *map(self.value, place)])

    def sizes(self, tensor: Any) -> list[Any]:
        return [self.extent(tensor, dim) for dim in range(self.ir.RankedTensorType(tensor.type).rank)]

    def scan(
        self, tensor: Any, dim: int, carried: Sequence[Any], state: Any, first: Callable[..., Any], step: Callable[..., Any],
        last: Callable[..., Any],
    ) -> list[Any]:  # fmt: skip
        """What is carried after all elements, in their order.

        `first(place, *carried)` is the state of a line, of a type, `step(place, state, *carried)` what is carried, and the next
        state behind it, `last(place, state, *carried)` what is carried. A row of states is kept, of the dimensions after the
        scanned one.
        """
        sizes = self.sizes(tensor)
        inner = sizes[dim + 1 :]
        row_type = self.ir.RankedTensorType.get(self.ir.RankedTensorType(tensor.type).shape[dim + 1 :], state)

        def scan_line(place: list[Any], *carried: Any) -> list[Any]:
            def step_one(number: Any, *inside: Any) -> list[Any]:
                *now, before = inside
                return list(step([*place, number], before, *now))

            *after, end = self.loop(sizes[dim], [*carried, first(place, *carried)], step_one)
            return list(last(place, end, *after))

        def scan_rows(place: list[Any], *carried: Any) -> list[Any]:
            row = self.make("tensor.empty", [row_type], [each for each in inner if not isinstance(each, int)])
            (row,) = self.loops(inner, [row], lambda at, row: [self.write(first([*place, *at], *carried), row, at)])

            def step_all(number: Any, *inside: Any) -> list[Any]:
                def step_one(at: list[Any], *inside: Any) -> list[Any]:
                    *now, row = inside
                    *now, after = step([*place, number, *at], self.read(row, at), *now)
                    return [*now, self.write(after, row, at)]

                return self.loops(inner, inside, step_one)

            *after, row = self.loop(sizes[dim], [*carried, row], step_all)
            return self.loops(inner, after, lambda at, *now: last([*place, *at], self.read(row, at), *now))

        return self.loops(sizes[:dim], carried, scan_rows if inner else scan_line)
