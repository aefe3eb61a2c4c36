# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What came before each element, and the element, combined: functions of programs, of any extents, as loops over elements."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

from ._own_calls import add_definition

__all__ = ["Scan"]

#: Bits of -inf.
_LEAST = {"f64": 0xFFF0000000000000, "f32": 0xFF800000, "f16": 0xFC00, "bf16": 0xFF80}


class _Tensor(NamedTuple):
    type: str
    extents: list[str]
    element: str


def _read(type: str) -> _Tensor:
    *extents, element = type.removeprefix("tensor<").removesuffix(">").split("x")
    return _Tensor(type, extents, element)


class Scan(NamedTuple):
    """`max` and `min` give the last place of the extremum as well, and NaN once there was one; `logsumexp` is summed in f64."""

    kind: str
    dim: int
    #: Of integers.
    has_sign: bool = True

    def define(self, inputs: Sequence[str], outputs: Sequence[str]) -> str:
        """The symbol of the function for a tensor of a type."""
        name = hashlib.sha256(repr((self, *inputs)).encode()).hexdigest()[:16]
        symbol = f"fovea_scan_{self.kind}_{name}"
        add_definition(symbol, self.write(symbol, _read(inputs[0]), [_read(each) for each in outputs]))
        return symbol

    def write(self, symbol: str, x: _Tensor, outputs: Sequence[_Tensor]) -> str:
        types = ", ".join(each.type for each in outputs)
        lines = [f"func.func private @{symbol}(%x: {x.type}) -> ({types}) {{"]
        for number in (0, 1):
            lines.append(f"  %c{number} = arith.constant {number} : index")
        for dim, extent in enumerate(x.extents):
            lines.append(f"  %n{dim} = arith.constant {extent if extent != '?' else dim} : index")
            if extent == "?":
                lines.append(f"  %d{dim} = tensor.dim %x, %n{dim} : {x.type}")
        ends = [f"%{'d' if extent == '?' else 'n'}{dim}" for dim, extent in enumerate(x.extents)]
        unknown = ", ".join(end for end, extent in zip(ends, x.extents) if extent == "?")
        carried = []
        for number, each in enumerate(outputs):
            lines.append(f"  %empty{number} = tensor.empty({unknown}) : {each.type}")
            carried.append(f"%empty{number}")
        first, states = self.begin(x.element)
        lines += first
        order = [*(dim for dim in range(len(ends)) if dim != self.dim), self.dim]
        all_types = [each.type for each in outputs]
        for level, dim in enumerate(order):
            if dim == self.dim:
                carried, all_types = [*carried, *(f"%start{number}" for number in range(len(states)))], [*all_types, *states]
            names = [f"%a{level}_{number}" for number in range(len(carried))]
            pairs = ", ".join(f"{name} = {value}" for name, value in zip(names, carried))
            results = f"%r{level}:{len(carried)} = "
            lines.append(
                f"  {results}scf.for %i{dim} = %c0 to {ends[dim]} step %c1 iter_args({pairs}) -> ({', '.join(all_types)}) {{"
            )
            carried = names
        place = ", ".join(f"%i{dim}" for dim in range(len(ends)))
        lines.append(f"    %v = tensor.extract %x[{place}] : {x.type}")
        before = carried[len(outputs) :]
        lines += self.step(x.element, before)
        for number, each in enumerate(outputs):
            element = "%narrow" if self.kind == "logsumexp" and x.element != "f64" else f"%next{number}"
            lines.append(f"    %w{number} = tensor.insert {element} into {carried[number]}[{place}] : {each.type}")
        yielded = [f"%w{number}" for number in range(len(outputs))] + [f"%next{number}" for number in range(len(states))]
        for level in reversed(range(len(order))):
            lines.append(f"    scf.yield {', '.join(yielded)} : {', '.join(all_types)}\n  }}")
            yielded, all_types = [f"%r{level}#{number}" for number in range(len(outputs))], [each.type for each in outputs]
        lines.append(f"  return {', '.join(yielded)} : {types}\n}}")
        return "\n".join(lines)

    def begin(self, element: str) -> tuple[list[str], list[str]]:
        """The states before the first element, and their types."""
        if self.kind == "logsumexp":
            return [f"  %start0 = arith.constant {_LEAST['f64']:#x} : f64"], ["f64"]
        if element in _LEAST:
            bits = _LEAST[element]
            if self.kind == "min":
                bits ^= 1 << (bits.bit_length() - 1)
            least = f"{bits:#x}"
        else:
            width = int(element.removeprefix("i"))
            most = 2**width - 1 if not self.has_sign else 2 ** (width - 1) - 1
            number = most if self.kind == "min" else 0 if not self.has_sign else -(2 ** (width - 1))
            least = str(number if number < 2 ** (width - 1) else number - 2**width)
        start = f"  %start0 = arith.constant {least} : {element}"
        if element == "i1":
            start = f"  %start0 = arith.constant {'true' if self.kind == 'min' else 'false'}"
        return [start, "  %start1 = arith.constant 0 : i64"], [element, "i64"]

    def step(self, element: str, before: Sequence[str]) -> list[str]:
        """Of %v and the states: %next0, ..., and %narrow where the first is rounded."""
        if self.kind == "logsumexp":
            is_wide = element == "f64"
            return [
                *([] if is_wide else [f"    %wide = arith.extf %v : {element} to f64"]),
                *(f"    %{name} = arith.{name}imumf {'%v' if is_wide else '%wide'}, {before[0]} : f64" for name in ("max", "min")),
                "    %less = arith.subf %min, %max : f64", "    %e = math.exp %less : f64", "    %l = math.log1p %e : f64",
                "    %sum = arith.addf %max, %l : f64",
                # Of two infinities that are equal.
                "    %same = arith.cmpf oeq, %min, %max : f64", "    %none = arith.cmpf uno, %less, %less : f64",
                "    %is = arith.andi %same, %none : i1", "    %next0 = arith.select %is, %max, %sum : f64",
                *([] if is_wide else [f"    %narrow = arith.truncf %next0 : f64 to {element}"]),
            ]  # fmt: skip
        order = "ge" if self.kind == "max" else "le"
        if element in _LEAST:
            compared = [
                f"    %reaches = arith.cmpf o{order}, %v, {before[0]} : {element}", f"    %none = arith.cmpf uno, %v, %v : {element}",
                "    %is = arith.ori %reaches, %none : i1",
            ]  # fmt: skip
        else:
            compared = [f"    %is = arith.cmpi {'s' if self.has_sign else 'u'}{order}, %v, {before[0]} : {element}"]
        place = f"    %place = arith.index_cast %i{self.dim} : index to i64"
        both = [
            f"    %next0 = arith.select %is, %v, {before[0]} : {element}", f"    %next1 = arith.select %is, %place, {before[1]} : i64",
        ]  # fmt: skip
        return [*compared, place, *both]
