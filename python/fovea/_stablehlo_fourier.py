# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fourier transforms of StableHLO as products of real numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from . import _fovea
from ._fourier import Matrix, check_length, transform, transform_to_real
from ._rewriting import Writer

__all__ = ["FourierWriter"]


class _Operand:
    """A tensor of real numbers and known extents, with what transforms are written of."""

    def __init__(self, writer: Writer, value: Any):
        self.writer, self.value = writer, value
        self.type = writer.ir.RankedTensorType(value.type)
        self.shape = list(self.type.shape)

    def make(self, name: str, shape: Any, *others: _Operand, **attributes: Any) -> _Operand:
        type = self.writer.ir.RankedTensorType.get(list(shape), self.type.element_type)
        operands = [self.value, *(each.value for each in others)]
        return _Operand(self.writer, self.writer.make(f"stablehlo.{name}", [type], operands, attributes))

    def numbers(self, numbers: Any) -> Any:
        return self.writer.ir.DenseI64ArrayAttr.get(list(numbers))

    def reshape(self, *shape: int) -> _Operand:
        return self.make("reshape", shape)

    def permute(self, *dims: int) -> _Operand:
        return self.make("transpose", [self.shape[dim] for dim in dims], permutation=self.numbers(dims))

    def swap(self, one: int, other: int) -> _Operand:
        dims = list(range(len(self.shape)))
        dims[one], dims[other] = other, one
        return self.permute(*dims)

    def __matmul__(self, other: _Operand) -> _Operand:
        batches, last = list(range(len(self.shape) - 2)), len(self.shape) - 1
        dims = self.writer.ir.Attribute.parse(
            f"#stablehlo.dot<lhs_batching_dimensions = {batches}, rhs_batching_dimensions = {batches}, "
            f"lhs_contracting_dimensions = [{last}], rhs_contracting_dimensions = [{last - 1}]>"
        )
        return self.make("dot_general", [*self.shape[:-1], other.shape[-1]], other, dot_dimension_numbers=dims)

    def slice(self, dim: int, start: int, end: int) -> _Operand:
        starts, ends = [0] * len(self.shape), list(self.shape)
        starts[dim], ends[dim] = start, end
        shape = [b - a for a, b in zip(starts, ends)]
        attributes = {"start_indices": starts, "limit_indices": ends, "strides": [1] * len(shape)}
        return self.make("slice", shape, **{name: self.numbers(each) for name, each in attributes.items()})

    def join(self, other: _Operand, dim: int) -> _Operand:
        shape = list(self.shape)
        shape[dim] += other.shape[dim]
        return self.make("concatenate", shape, other, dimension=self.writer.integer(dim, self.writer.ir.IntegerType.get_signless(64)))

    def part(self, number: int) -> _Operand:
        """Of pairs, which are on the last dimension."""
        last = len(self.shape) - 1
        return self.slice(last, number, number + 1).reshape(*self.shape[:-1])

    def constant(self, matrix: Matrix) -> _Operand:
        array = matrix.astype({"f32": np.float32, "f64": np.float64}[str(self.type.element_type)])
        value = self.writer.ir.DenseElementsAttr.get(np.ascontiguousarray(array))
        return _Operand(self.writer, self.writer.make("stablehlo.constant", [value.type], [], {"value": value}))

    def mirror(self, count: int) -> _Operand:
        """Rows of pairs, and their conjugates behind them."""
        others = self.slice(1, 1, 1 + count)
        others = others.make("reverse", others.shape, dimensions=self.numbers([1]))
        imaginary = others.slice(2, 1, 2)
        conjugates = others.slice(2, 0, 1).join(imaginary.make("negate", imaginary.shape), 2)
        return self.join(conjugates, 1)

    def along(self, dim: int, compute: Callable[[_Operand], _Operand], is_real: bool = False) -> _Operand:
        """`compute` of rows along a dimension; pairs are behind all dimensions."""
        last = len(self.shape) - (1 if is_real else 2)
        x = self.swap(dim, last)
        found = compute(x.reshape(math.prod(x.shape[:last]), *x.shape[last:]))
        return found.reshape(*x.shape[:last], *found.shape[1:]).swap(dim, last)


class FourierWriter(Writer):
    """Transforms, and the parts of what they give."""

    def find_real(self, value: Any) -> _Operand | None:
        """The numbers whose imaginary parts are zero."""
        op = value.owner
        is_converted = getattr(op, "name", "") == "stablehlo.convert"
        return _Operand(self, op.operands[0]) if is_converted and op.operands[0].type.element_type == self.real_type(value) else None

    def real_type(self, value: Any) -> Any:
        element = self.ir.RankedTensorType(value.type).element_type
        return self.ir.ComplexType(element).element_type if isinstance(element, self.ir.ComplexType) else element

    def read_part(self, value: Any, name: str) -> _Operand:
        type = self.ir.RankedTensorType.get(self.ir.RankedTensorType(value.type).shape, self.real_type(value))
        op = value.owner
        if getattr(op, "name", "") == "stablehlo.complex":
            return _Operand(self, op.operands[0 if name == "real" else 1])
        return _Operand(self, self.make(f"stablehlo.{name}", [type], [value]))

    def write_real(self, op: Any) -> Any:
        return op.operands[0].owner.operands[0] if getattr(op.operands[0].owner, "name", "") == "stablehlo.complex" else False

    def write_imag(self, op: Any) -> Any:
        return op.operands[0].owner.operands[1] if getattr(op.operands[0].owner, "name", "") == "stablehlo.complex" else False

    def write_fft(self, op: Any) -> Any:
        value, result = op.operands[0], self.ir.RankedTensorType(op.results[0].type)
        shape = list(self.ir.RankedTensorType(value.type).shape)
        lengths = [int(each) for each in re.findall(r"-?\d+", str(op.attributes["fft_length"]).partition(":")[2])]
        kind = re.search(r"fft_type (\w+)", str(op.attributes["fft_type"]))
        assert kind is not None, op.attributes["fft_type"]
        unknown = self.ir.ShapedType.get_dynamic_size()
        if any(each == unknown for each in (*shape, *result.shape)):
            raise _fovea.FoveaError("found a Fourier transform of arrays whose extents are not known: needed known shapes")
        for length in lengths:
            if wrong := check_length(length):
                raise _fovea.FoveaError(wrong)
        dims = list(range(len(shape) - len(lengths), len(shape)))
        if kind[1] in ("FFT", "IFFT"):
            is_inverse = kind[1] == "IFFT"
            found = self.find_real(value)
            scale = 1 / math.prod(lengths) if is_inverse else 1.0
            found = self.transform_all(found or self.read_pairs(value), dims, is_inverse, scale, found is not None)
            return self.write_pairs(found, op)
        if kind[1] == "RFFT":
            x = _Operand(self, value)
            found = x.along(dims[-1], lambda rows: transform(rows, False, 1.0, rows.constant, is_real=True), is_real=True)
            found = found.slice(dims[-1], 0, lengths[-1] // 2 + 1)
            return self.write_pairs(self.transform_all(found, dims[:-1], False, 1.0), op)
        pairs = self.transform_all(self.read_pairs(value), dims[:-1], True, 1.0)
        scale = 1 / math.prod(lengths)
        found = pairs.along(dims[-1], lambda rows: transform_to_real(rows, lengths[-1], scale, rows.constant, _Operand.mirror))
        return found.value

    def read_pairs(self, value: Any) -> _Operand:
        parts = [self.read_part(value, name) for name in ("real", "imag")]
        real, imaginary = (each.reshape(*each.shape, 1) for each in parts)
        return real.join(imaginary, len(real.shape) - 1)

    def write_pairs(self, pairs: _Operand, op: Any) -> Any:
        return self.make("stablehlo.complex", [op.results[0].type], [pairs.part(0).value, pairs.part(1).value])

    def transform_all(self, x: _Operand, dims: list[int], is_inverse: bool, scale: float, is_real: bool = False) -> _Operand:
        """Pairs, over dimensions; the first may be of real numbers."""
        for number, dim in enumerate(dims):
            factor = 1.0 if number else scale
            is_first = is_real and number == 0

            def compute(rows: _Operand, factor: float = factor, is_first: bool = is_first) -> _Operand:
                return transform(rows, is_inverse, factor, rows.constant, is_real=is_first)

            x = x.along(dim, compute, is_first)
        return x
