# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Windows of StableHLO: cumulative ones as loops, and reductions and convolutions of unknown extents as slices.

A slice is what all windows have at one of their places: a reduction combines the slices, a convolution multiplies each
by the weights of its place, and adds.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ._extents import ExtentWriter
from ._rewriting import SIGNED

__all__ = ["WindowWriter"]

#: A program has operations for each place of a window.
_MOST_PLACES = 256
_WINDOWS = "stablehlo.dynamic_reduce_window"


@dataclass
class Windows:
    """For each dimension, numbers or values of type index."""

    extents: list[Any]
    strides: list[Any]
    dilations: list[Any]
    low: list[Any]
    high: list[Any]

    def places(self) -> list[tuple[int, ...]] | None:
        """The places of a window, where they are known and few."""
        if not all(isinstance(each, int) for each in (*self.extents, *self.strides, *self.dilations)):
            return None
        if math.prod(self.extents) > _MOST_PLACES:
            return None
        return list(itertools.product(*map(range, self.extents)))


class WindowWriter(ExtentWriter):
    """What torch-mlir-opt has no linalg for, or linalg of another shape."""

    def write_reduce_window(self, op: Any) -> Any:
        type = self.ir.RankedTensorType(op.operands[0].type)
        ones = [1] * type.rank

        def numbers(name: str) -> list[Any]:
            return list(self.ir.DenseI64ArrayAttr(op.attributes[name])) if name in op.attributes else ones

        if len(op.operands) != 2 or set(numbers("base_dilations")) != {1}:
            return False
        padding = list(self.ir.DenseIntElementsAttr(op.attributes["padding"])) if "padding" in op.attributes else [0, 0] * type.rank
        extents, strides, dilations = map(numbers, ("window_dimensions", "window_strides", "window_dilations"))
        windows = Windows(extents, strides, dilations, padding[::2], padding[1::2])
        return self.reduce(op, op.regions[0].blocks[0], windows)

    def write_custom_call(self, op: Any) -> Any:
        if self.ir.StringAttr(op.attributes["call_target_name"]).value != _WINDOWS:
            return super().write_custom_call(op)
        if len(op.operands) != 7:
            return False
        extents, strides, base, dilations, padding = map(self.scalars, op.operands[2:])
        if any(each != 1 for each in base):
            return False
        name = self.ir.FlatSymbolRefAttr(self.ir.ArrayAttr(op.attributes["called_computations"])[0]).value
        (block,) = self.ir.SymbolTable(self.module.operation)[name].regions[0].blocks
        return self.reduce(op, block, Windows(extents, strides, dilations, padding[::2], padding[1::2]))

    def reduce(self, op: Any, block: Any, windows: Windows) -> Any:
        """Windows of one array, whose elements a block combines."""
        tensor, initial = op.operands[:2]
        cumulative = self.find_cumulative(tensor, windows)
        if cumulative is not None:
            found = self.accumulate(tensor, initial, block, *cumulative)
            return False if found is None else found
        places, type = windows.places(), self.ir.RankedTensorType(op.results[0].type)
        if places is None or (type.has_static_shape and self.ir.RankedTensorType(tensor.type).has_static_shape):
            return False
        padded = self.pad(tensor, windows, self.make("tensor.extract", [type.element_type], [initial]))
        sizes = self.count(padded, windows)
        found = self.spread(initial, self.shape_of(sizes, type.element_type), sizes)
        for place in places:
            found = self.apply(block, [found, self.extract_all(padded, place, sizes, windows)])
            if found is None:
                return False
        return self.cast_to(type, found)

    def find_cumulative(self, tensor: Any, windows: Windows) -> tuple[int, bool] | None:
        """The dimension of windows that end at their elements and hold all before, or begin there (True) and hold all after."""
        wide = [dim for dim, extent in enumerate(windows.extents) if not isinstance(extent, int) or extent != 1]
        if any(each != 1 for each in (*windows.strides, *windows.dilations)) or len(wide) != 1:
            return None
        (dim,) = wide
        low, high = windows.low[dim], windows.high[dim]
        others = [each for pads in (windows.low, windows.high) for each in pads[:dim] + pads[dim + 1 :]]
        is_backward = isinstance(low, int) and low == 0
        within, zero = (high, low) if is_backward else (low, high)
        if any(not isinstance(each, int) or each for each in (*others, zero)) or (isinstance(within, int) and within == 0):
            return None
        extent, window, reach = self.extent(tensor, dim), windows.extents[dim], self.combine("add", within, 1)
        if isinstance(window, int):
            return (dim, is_backward) if extent == window and reach == window else None
        for each in window, reach:
            self.check(SIGNED["EQ"], extent, each, "windows that are not cumulative have unknown extents")
        return dim, is_backward

    # ---- Slices ----

    def shape_of(self, sizes: Sequence[Any], element: Any) -> Any:
        unknown = self.ir.ShapedType.get_dynamic_size()
        return self.ir.RankedTensorType.get([each if isinstance(each, int) else unknown for each in sizes], element)

    def pad(self, tensor: Any, windows: Windows, number: Any) -> Any:
        """The array with rows of a number around it."""
        if all(isinstance(each, int) and each == 0 for each in (*windows.low, *windows.high)):
            return tensor
        type = self.ir.RankedTensorType(tensor.type)
        for each in (*windows.low, *windows.high):
            if not isinstance(each, int) or each < 0:
                self.check(SIGNED["LE"], 0, each, "found windows with less than no padding")
        sizes = [
            self.combine("add", self.combine("add", self.extent(tensor, dim), low), high)
            for dim, (low, high) in enumerate(zip(windows.low, windows.high))
        ]
        (low, static_low), (high, static_high) = self.split(windows.low), self.split(windows.high)
        attributes = {
            "static_low": static_low, "static_high": static_high,
            "operandSegmentSizes": self.ir.DenseI32ArrayAttr.get([1, len(low), len(high)]),
        }  # fmt: skip
        op = self.make_all("tensor.pad", [self.shape_of(sizes, type.element_type)], [tensor, *low, *high], attributes, regions=1)
        with self.ir.InsertionPoint(op.regions[0].blocks.append(*[self.index] * type.rank)):
            self.make("tensor.yield", [], [number])
        return op.results[0]

    def count(self, padded: Any, windows: Windows) -> list[Any]:
        """How many windows there are."""
        found = []
        for dim, (extent, stride, dilation) in enumerate(zip(windows.extents, windows.strides, windows.dilations)):
            rest = self.combine("subtract", self.extent(padded, dim), (extent - 1) * dilation + 1)
            if isinstance(rest, int):
                found.append(max(rest // stride + 1, 0))
                continue
            steps = rest if stride == 1 else self.make("arith.floordivsi", [self.index], [rest, self.value(stride)])
            found.append(self.combine("maximum", self.combine("add", steps, 1), 0))
        return found

    def extract_all(self, padded: Any, place: Sequence[int], sizes: Sequence[Any], windows: Windows) -> Any:
        """What all windows have at a place."""
        offsets = [each * dilation for each, dilation in zip(place, windows.dilations)]
        return self.extract(padded, offsets, sizes, strides=windows.strides)

    # ---- Convolutions ----

    def write_convolution(self, op: Any) -> Any:
        spatial = self.ir.RankedTensorType(op.operands[0].type).rank - 2
        padding = list(self.ir.DenseIntElementsAttr(op.attributes["padding"])) if "padding" in op.attributes else [0, 0] * spatial
        return self.convolve(op, padding)

    def write_dynamic_conv(self, op: Any) -> Any:
        return self.convolve(op, self.scalars(op.operands[2]))

    def convolve(self, op: Any, padding: Sequence[Any]) -> Any:
        """Sums of products of slices and the weights of their places."""
        tensor, weights = op.operands[:2]
        types = [self.ir.RankedTensorType(each.type) for each in (tensor, weights, op.results[0])]
        found = re.search(r"conv<\[(.*?)\]x\[(.*?)\]->\[(.*?)\]>", str(op.attributes["dimension_numbers"]))
        if found is None or (types[0].has_static_shape and types[2].has_static_shape) or not types[1].has_static_shape:
            return False
        of_tensor, of_weights, of_result = (text.replace(" ", "").split(",") for text in found.groups())
        dims = [str(number) for number in range(len(of_tensor) - 2)]

        def numbers(name: str) -> list[int]:
            return list(self.ir.DenseI64ArrayAttr(op.attributes[name])) if name in op.attributes else [1] * len(dims)

        groups = [self.ir.IntegerAttr(op.attributes[each]).value for each in ("batch_group_count", "feature_group_count")]
        is_turned = "window_reversal" in op.attributes and any(self.ir.DenseBoolArrayAttr(op.attributes["window_reversal"]))
        element, features = types[0].element_type, types[1].shape[of_weights.index("o")]
        is_depthwise = groups[1] != 1 and groups[1] == types[0].shape[of_tensor.index("f")] == features
        if groups[0] != 1 or (groups[1] != 1 and not is_depthwise) or set(numbers("lhs_dilation")) - {1} or is_turned:
            return False
        if str(element) not in ("f64", "f32", "f16", "bf16"):
            return False

        def spread(of_dims: Sequence[Any], other: Any) -> list[Any]:
            """Those of the dimensions of windows, in the order of the array, and another of its two others."""
            return [of_dims[int(each)] if each in dims else other for each in of_tensor]

        extents = [types[1].shape[of_weights.index(each)] for each in dims]
        windows = Windows(
            spread(extents, 1), spread(numbers("window_strides"), 1), spread(numbers("rhs_dilation"), 1),
            spread(padding[::2], 0), spread(padding[1::2], 0),
        )  # fmt: skip
        places = windows.places()
        if places is None:
            return False
        padded = self.pad(tensor, windows, self.make("arith.constant", [element], [], {"value": self.ir.FloatAttr.get(element, 0.0)}))
        sizes = self.count(padded, windows)
        # Sums are as wide as those of a product.
        wide = element if str(element) == "f64" else self.ir.F32Type.get()
        others = [each for each in of_tensor if each != "f"]
        order = ["f", *others] if is_depthwise else [*others, "f"]
        extent = {each: features if each == "f" else sizes[of_tensor.index(each)] for each in of_tensor}
        summed = self.shape_of([extent[each] for each in order], wide)
        matrix = [each for each in of_weights if each == "o" or (each == "i" and not is_depthwise)]
        pairs = {"batching": "o"} if is_depthwise else {"contracting": "i"}
        text = ", ".join(
            f"{side}_{kind}_dimensions = [{place}]"
            for kind, name in pairs.items()
            for side, place in (("lhs", of_tensor.index("f")), ("rhs", matrix.index(name)))
        )
        product = self.ir.Attribute.parse(f"#stablehlo.dot<{text}>")
        total = None
        for place in places:
            at = [place[of_tensor.index(each)] if each in dims else 0 for each in of_weights]
            size = [1 if each in dims else types[1].shape[dim] for dim, each in enumerate(of_weights)]
            shape = [types[1].shape[of_weights.index(each)] for each in matrix]
            factors = [self.extract_all(padded, place, sizes, windows), self.extract(weights, at, size, shape)]
            term = self.make("stablehlo.dot_general", [summed], factors, {"dot_dimension_numbers": product})
            total = term if total is None else self.make("stablehlo.add", [summed], [total, term])
        turned = self.shape_of([extent[each] for each in of_result], wide)
        permutation = {"permutation": self.ir.DenseI64ArrayAttr.get([order.index(each) for each in of_result])}
        total = self.make("stablehlo.transpose", [turned], [total], permutation)
        if wide != element:
            narrow = self.ir.RankedTensorType.get(turned.shape, element)
            total = self.make("stablehlo.convert", [narrow], [total])
        return self.cast_to(types[2], total)
