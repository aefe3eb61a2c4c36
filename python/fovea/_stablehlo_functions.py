# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions of CHLO that torch-mlir-opt does not know, by those of math."""

from __future__ import annotations

import math
from typing import Any

from ._rewriting import Writer

__all__ = ["FunctionWriter"]

#: Predicates of arith.cmpf, and of arith.cmpi of numbers without signs.
_EQUAL, _LESS, _LESS_OR_EQUAL, _UNORDERED = 1, 4, 5, 14
_SAME, _BELOW = 0, 6
_INFINITY = math.inf


class Elements:
    """A tensor, or what arith and math make of some for each element. Numbers stand for tensors of them."""

    def __init__(self, writer: Writer, value: Any):
        self.writer, self.value = writer, value
        self.type = writer.ir.RankedTensorType(value.type)

    def other(self, number: Any) -> Any:
        """The value of an operand."""
        if isinstance(number, Elements):
            return number.value
        writer, element = self.writer, self.type.element_type
        is_integer = isinstance(number, int)
        attribute = writer.integer(number, element) if is_integer else writer.ir.FloatAttr.get(element, number)
        scalar = writer.make("arith.constant", [element], [], {"value": attribute})
        sizes = [writer.extent(self.value, dim) for dim in range(self.type.rank)]
        return writer.make("tensor.splat", [self.type], [scalar, *(each for each in sizes if not isinstance(each, int))])

    def make(self, name: str, *others: Any) -> Elements:
        return Elements(self.writer, self.writer.make(name, [self.type], [self.value, *map(self.other, others)]))

    def __add__(self, number: Any) -> Elements:
        return self.make("arith.addf", number)

    def __sub__(self, number: Any) -> Elements:
        return self.make("arith.subf", number)

    def __mul__(self, number: Any) -> Elements:
        return self.make("arith.mulf", number)

    def __truediv__(self, number: Any) -> Elements:
        return self.make("arith.divf", number)

    def __neg__(self) -> Elements:
        return self.make("arith.negf")

    def inverse(self, number: float) -> Elements:
        """The number divided by each."""
        return Elements(self.writer, self.other(number)) / self

    def math(self, name: str) -> Elements:
        return self.make(f"math.{name}")

    def as_type(self, name: str, element: Any) -> Elements:
        """By an operation that converts."""
        type = self.writer.ir.RankedTensorType.get(self.type.shape, element)
        return Elements(self.writer, self.writer.make(name, [type], [self.value]))

    def compare(self, predicate: int, number: Any, kind: str = "arith.cmpf") -> Elements:
        ir = self.writer.ir
        type = ir.RankedTensorType.get(self.type.shape, ir.IntegerType.get_signless(1))
        attributes = {"predicate": self.writer.integer(predicate, ir.IntegerType.get_signless(64))}
        return Elements(self.writer, self.writer.make(kind, [type], [self.value, self.other(number)], attributes))

    def choose(self, yes: Any, no: Any) -> Elements:
        """Of conditions; one of both is no number."""
        of = yes if isinstance(yes, Elements) else no
        operands = [self.value, of.other(yes), of.other(no)]
        return Elements(self.writer, self.writer.make("arith.select", [of.type], operands))


class FunctionWriter(Writer):
    """Each of tensors of any shape."""

    def read(self, op: Any, widths: dict[str, Any]) -> Elements | None:
        """The operand, in the type in which a function is computed; None of a type that is not among these."""
        x = Elements(self, op.operands[0])
        wide = widths.get(str(x.type.element_type))
        if wide is None:
            return None
        return x if wide == x.type.element_type else x.as_type("arith.extf", wide)

    def finish(self, op: Any, found: Elements) -> Any:
        element = self.ir.RankedTensorType(op.results[0].type).element_type
        return found.value if found.type.element_type == element else found.as_type("arith.truncf", element).value

    def write_chlo_square(self, op: Any) -> Any:
        element = str(self.ir.RankedTensorType(op.operands[0].type).element_type)
        if element.startswith("complex"):
            return False
        return self.make("arith.muli" if element.startswith("i") else "arith.mulf", [op.results[0].type], [op.operands[0]] * 2)

    def write_chlo_erf_inv(self, op: Any) -> Any:
        """Of f32, and of narrower numbers as f32."""
        x = self.read(op, dict.fromkeys(("f32", "bf16", "f16"), self.ir.F32Type.get()))
        if x is None:
            return False
        negative = -(x * x)
        w = -negative.math("log1p")
        is_central = w.compare(_LESS, 5.0)
        w = is_central.choose(w - 2.5, w.math("sqrt") - 3.0)
        found = None
        for central, outer in _ERF_INV:
            term = is_central.choose(Elements(self, w.other(central)), outer)
            found = term if found is None else term + found * w
        assert found is not None
        # At both ends the root is infinite, and so is the polynomial, but not of the right sign.
        return self.finish(op, negative.compare(_EQUAL, -1.0).choose(x * _INFINITY, found * x))

    # ---- The gamma function ----

    def write_chlo_lgamma(self, op: Any) -> Any:
        """Of f64, and of narrower numbers as f64: near 1 and 2 terms cancel."""
        x = self.read(op, dict.fromkeys(("f64", "f32", "bf16", "f16"), self.ir.F64Type.get()))
        if x is None:
            return False
        is_low, z, sums, _ = self.approximate_gamma(x)
        shift = z + (LANCZOS_SHIFT + 0.5)
        found = (z + 0.5) * shift.math("log") - shift + (sums.math("log") + 0.5 * math.log(2 * math.pi))
        # Gamma(x) Gamma(1 - x) is pi / sin(pi x), whose sine is that of the distance to the next integer.
        size = x.math("absf")
        distance = (size - size.math("roundeven")).math("absf")
        sine = (distance * math.pi).math("sin").math("log")
        found = is_low.choose(-(sine - math.log(math.pi)) - found, found)
        return self.finish(op, size.compare(_EQUAL, _INFINITY).choose(_INFINITY, found))

    def write_chlo_digamma(self, op: Any) -> Any:
        """Its derivative."""
        x = self.read(op, dict.fromkeys(("f64", "f32", "bf16", "f16"), self.ir.F64Type.get()))
        if x is None:
            return False
        is_low, z, sums, slope = self.approximate_gamma(x)
        shift = z + (LANCZOS_SHIFT + 0.5)
        found = shift.math("log") + slope / sums - shift.inverse(LANCZOS_SHIFT)
        nearest = x.math("roundeven")
        distance = (x - nearest) * math.pi
        reflected = found - (distance.math("cos") / distance.math("sin")) * math.pi
        found = is_low.choose(reflected, found)
        # At zero and below there are poles at all integers.
        is_pole = x.compare(_LESS_OR_EQUAL, 0.0).choose(x - nearest, 1.0).compare(_EQUAL, 0.0)
        return self.finish(op, is_pole.choose(math.nan, found))

    def approximate_gamma(self, x: Elements) -> tuple[Elements, Elements, Elements, Elements]:
        """Whether a number is reflected; one less than the number, or than one less the number; and for these the series of
        Lanczos and its derivative."""
        is_low = x.compare(_LESS, 0.5)
        z = is_low.choose(-x, x - 1.0)
        sums, slope = Elements(self, z.other(LANCZOS[0])), None
        for number, coefficient in enumerate(LANCZOS[1:], 1):
            at = z + float(number)
            term = at.inverse(coefficient)
            sums = sums + term
            slope = -(term / at) if slope is None else slope - term / at
        assert slope is not None
        return is_low, z, sums, slope

    # ---- Bits ----

    def write_chlo_next_after(self, op: Any) -> Any:
        """One more or less in the integers whose order, in each sign, is that of the numbers."""
        x, y = (Elements(self, each) for each in op.operands)
        element = x.type.element_type
        width = {"f64": 64, "f32": 32, "f16": 16, "bf16": 16}.get(str(element))
        if width is None:
            return False
        integer = self.ir.IntegerType.get_signless(width)
        bits, other = (each.as_type("arith.bitcast", integer) for each in (x, y))
        sign, most = -(1 << (width - 1)), (1 << (width - 1)) - 1
        size, other_size = (each.make("arith.andi", most) for each in (bits, other))
        # Toward a number of the other sign, or of less magnitude, it is one less.
        differ = bits.make("arith.xori", other).make("arith.andi", sign).compare(_SAME, sign, "arith.cmpi")
        is_less = differ.make("arith.ori", other_size.compare(_BELOW, size, "arith.cmpi"))
        found = bits.make("arith.addi", is_less.choose(Elements(self, bits.other(-1)), 1))
        # The least of the other's sign.
        found = size.compare(_SAME, 0, "arith.cmpi").choose(other.make("arith.andi", sign).make("arith.ori", 1), found)
        found = x.compare(_EQUAL, y).choose(other, found)
        result = found.as_type("arith.bitcast", element)
        for each in x, y:
            result = each.compare(_UNORDERED, each).choose(each, result)
        return result.value


#: Of the series for Gamma with 9 terms and this shift, whose error is below 1e-15: P. Godfrey, A note on the computation of the
#: convergent Lanczos complex gamma approximation, 2001.
LANCZOS_SHIFT = 7.0
LANCZOS = (
    0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059, 12.507343278686905,
    -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7,
)  # fmt: skip

#: Coefficients for w = -log(1 - x^2) below 5, in w - 2.5, and above, in sqrt(w) - 3, those of the highest powers first:
#: M. Giles, Approximating the erfinv function, GPU Computing Gems Jade Edition, 2011, table 5.
_ERF_INV = (
    (2.81022636e-08, -0.000200214257),
    (3.43273939e-07, 0.000100950558),
    (-3.5233877e-06, 0.00134934322),
    (-4.39150654e-06, -0.00367342844),
    (0.00021858087, 0.00573950773),
    (-0.00125372503, -0.0076224613),
    (-0.00417768164, 0.00943887047),
    (0.246640727, 1.00167406),
    (1.50140941, 2.83297682),
)


def _define(name: str) -> None:
    setattr(FunctionWriter, f"write_chlo_{name}", lambda self, op: self.make(f"math.{name}", [op.results[0].type], op.operands))


for _name in "acos acosh asin asinh atan atanh cosh erf erfc sinh tan".split():
    _define(_name)
