# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations of ONNX that torch-mlir gets wrong, or does not know, by others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

__all__ = ["LEAST_OPSET", "expand_wrong", "replace"]

#: Of older operations torch-mlir knows few.
LEAST_OPSET = 15


def replace(field: Any, items: list[Any]) -> None:
    """Makes these the items of a field."""
    copies = [type(each).FromString(each.SerializeToString()) for each in items]
    del field[:]
    field.extend(copies)


class _Expansion:
    """Nodes that stand for one, the last of which gives its result."""

    def __init__(self, graph: Any, node: Any, version: int, onnx: Any):
        self.graph, self.result, self.version, self.onnx = graph, next(filter(None, node.output)), version, onnx
        self.nodes: list[Any] = []

    def constant(self, name: str, values: Any) -> str:
        self.graph.initializer.append(self.onnx.numpy_helper.from_array(np.array(values), f"{self.result}.{name}"))
        return f"{self.result}.{name}"

    def add(self, operation: str, *inputs: str, **options: Any) -> str:
        name = f"{self.result}.{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(operation, inputs, [name], **options))
        return name

    def reduce(self, operation: str, of: str, axes: Sequence[int]) -> str:
        if self.version < 18:
            return self.add(operation, of, axes=axes)
        return self.add(operation, of, self.constant(f"axes{len(self.nodes)}", axes))

    def end(self) -> list[Any]:
        self.nodes[-1].output[0] = self.result
        return self.nodes


def _divide_by_norm(graph: Any, node: Any, type: Any, version: int, onnx: Any) -> list[Any]:
    """`LpNormalization`, by which zeros stay zeros: torch-mlir divides them by their norm."""
    given = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
    to = _Expansion(graph, node, version, onnx)
    divided = to.add("LpNormalization", *node.input, **given)
    greatest = to.reduce("ReduceMax", to.add("Abs", node.input[0]), [given.get("axis", -1)])
    zero = to.constant("zero", np.zeros((), onnx.helper.tensor_dtype_to_np_dtype(type)))
    to.add("Where", to.add("Equal", greatest, zero), node.input[0], divided)
    return to.end()


def _normalize(graph: Any, node: Any, rank: int, type: Any, version: int, onnx: Any) -> list[Any]:
    """`InstanceNormalization`, and `GroupNormalization` as that of groups."""
    x, scale, bias = node.input
    given = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
    to = _Expansion(graph, node, version, onnx)
    add, constant = to.add, to.constant

    def mean(of: str) -> str:
        return to.reduce("ReduceMean", of, axes)

    wide = add("Cast", x, to=onnx.TensorProto.FLOAT) if type not in (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE) else x
    is_wide = wide == x
    is_grouped, axes = node.op_type == "GroupNormalization", [*range(2, rank)]
    if is_grouped:
        wide, axes = add("Reshape", wide, constant("groups", [0, given["num_groups"], -1])), [2]
    rest = add("Sub", wide, mean(wide))
    epsilon = constant("epsilon", np.array(given.get("epsilon", 1e-5), np.float64 if type == onnx.TensorProto.DOUBLE else np.float32))
    normal = add("Div", rest, add("Sqrt", add("Add", mean(add("Mul", rest, rest)), epsilon)))
    normal = add("Reshape", normal, add("Shape", x)) if is_grouped else normal
    normal = normal if is_wide else add("Cast", normal, to=type)
    shape = constant("shape", [-1] + [1] * (rank - 2))
    add("Add", add("Mul", normal, add("Reshape", scale, shape)), add("Reshape", bias, shape))
    return to.end()


def _normalize_channels(graph: Any, node: Any, rank: int, type: Any, version: int, onnx: Any) -> list[Any]:
    """`LRN`: torch-mlir has one channel too many before, if their number is even, and other extents have to be known."""
    given = {"alpha": 1e-4, "beta": 0.75, "bias": 1.0, **{each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}}
    size, number = given["size"], onnx.helper.tensor_dtype_to_np_dtype(type)
    to = _Expansion(graph, node, version, onnx)
    before = [0, (size - 1) // 2] + [0] * (rank - 2)
    after = [0, size // 2] + [0] * (rank - 2)
    squares = to.add("Pad", to.add("Mul", node.input[0], node.input[0]), to.constant("pads", before + after))
    total, axis = "", to.constant("axis", [1])
    for first in range(size):
        last = first - size + 1 or np.iinfo(np.int64).max
        part = to.add("Slice", squares, to.constant(f"first{first}", [first]), to.constant(f"last{first}", [last]), axis)
        total = to.add("Add", total, part) if total else part
    numbers = {"factor": given["alpha"] / size, "bias": given["bias"], "beta": given["beta"]}
    factor, bias, beta = (to.constant(name, np.array(value, number)) for name, value in numbers.items())
    to.add("Div", node.input[0], to.add("Pow", to.add("Add", to.add("Mul", total, factor), bias), beta))
    return to.end()


def _shift(graph: Any, node: Any, type: Any, version: int, onnx: Any) -> list[Any]:
    """`BitShift`, by which nothing is left from the width on: CPUs take the rest of the distance."""
    number = onnx.helper.tensor_dtype_to_np_dtype(type)
    to = _Expansion(graph, node, version, onnx)
    is_less = to.add("Less", node.input[1], to.constant("width", np.array(number.itemsize * 8, number)))
    given = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
    to.add("Where", is_less, to.add("BitShift", *node.input, **given), to.constant("zero", np.zeros((), number)))
    return to.end()


def _gather_list(to: _Expansion, data: str, indices: str, count: int) -> list[Any]:
    """`GatherND` by one list of all indices."""
    rows = to.add("GatherND", data, to.add("Reshape", indices, to.constant("list", [-1, count])))
    extents = to.add("Concat", to.add("Shape", indices, end=-1), to.add("Shape", data, start=count), axis=0)
    to.add("Reshape", rows, extents)
    return to.end()


def _gather_rows(to: _Expansion, data: str, indices: str, count: int, tail: Sequence[int]) -> list[Any]:
    """`GatherND` as `Gather` of rows of all axes that indices are for."""
    zero, shape = to.constant("zero", 0), to.add("Shape", data)
    extents = [to.add("Gather", shape, to.constant(f"at{k}", k)) for k in range(count)]
    place, outside, total = "", "", ""
    for k, extent in enumerate(extents):
        index = to.add("Gather", indices, to.constant(f"part{k}", k), axis=-1)
        index = to.add("Where", to.add("Less", index, zero), to.add("Add", index, extent), index)
        wrong = to.add("Or", to.add("Less", index, zero), to.add("GreaterOrEqual", index, extent))
        place = to.add("Add", to.add("Mul", place, extent), index) if place else index
        outside = to.add("Or", outside, wrong) if outside else wrong
        total = to.add("Mul", total, extent) if total else extent
    # A place that is none stays an error.
    place = to.add("Where", outside, total, place)
    to.add("Gather", to.add("Reshape", data, to.constant("rows", [-1, *tail])), place)
    return to.end()


def _gather(graph: Any, node: Any, extents: Sequence[int], others: Sequence[int], version: int, onnx: Any) -> list[Any]:
    """`GatherND` of unknown extents, or by indices of these, of which torch-mlir takes all but one to be 1."""
    count = others[-1]
    if 0 < count < len(extents):
        to, tail, (data, indices) = _Expansion(graph, node, version, onnx), extents[count:], node.input
        if count > 1 and -1 in extents[:count] and min(tail) > 0:
            return _gather_rows(to, data, indices, count, tail)
        if others[:-1].count(-1) > 1:
            return _gather_list(to, data, indices, count)
    return [node]


def _repeat_inside(to: _Expansion, node: Any, mode: bytes, sizes: Sequence[int], pads: list[int] | None) -> list[Any]:
    """`Pad` by what lies inside, as gathers along axes."""
    zero, one, two = (to.constant(name, number) for name, number in (("zero", 0), ("one", 1), ("two", 2)))
    x, rank = node.input[0], len(sizes)
    for axis, size in enumerate(sizes):
        if pads is not None and pads[axis] == pads[rank + axis] == 0:
            continue
        before, after = (to.add("Gather", node.input[1], to.constant(f"at{at}", at)) for at in (axis, rank + axis))
        extent = to.add("Gather", to.add("Shape", x), to.constant(f"axis{axis}", axis))
        if size < 0:
            index = to.add("Range", to.add("Neg", before), to.add("Add", extent, after), one)
        else:
            index = to.add("Sub", to.constant(f"places{axis}", np.arange(size)), before)
        match mode:
            case b"edge":
                index = to.add("Min", to.add("Max", index, zero), to.add("Sub", extent, one))
            case b"reflect":
                period = to.add("Max", to.add("Mul", to.add("Sub", extent, one), two), one)
                index = to.add("Mod", index, period)
                index = to.add("Min", index, to.add("Sub", period, index))
            case _:
                index = to.add("Mod", index, extent)
        x = to.add("Gather", x, index, axis=axis)
    if x == node.input[0]:
        to.add("Identity", x)
    return to.end()


def _crop(to: _Expansion, node: Any, sizes: Sequence[int], pads: list[int] | None) -> list[Any]:
    """`Pad` by a constant, and then slices where pads are negative."""
    rank, zero = len(sizes), to.constant("zero", 0)
    if pads is None:
        axes = [axis for axis, size in enumerate(sizes) if size < 0]
    else:
        axes = [axis for axis in range(rank) if min(pads[axis], pads[rank + axis]) < 0]
    whole = to.add("Pad", node.input[0], to.add("Max", node.input[1], zero), *node.input[2:])
    if axes:
        first, last = (to.constant(name, [offset + axis for axis in axes]) for name, offset in (("first", 0), ("last", rank)))
        starts, less = (to.add("Max", to.add("Neg", to.add("Gather", node.input[1], at)), zero) for at in (first, last))
        ends = to.add("Sub", to.add("Gather", to.add("Shape", whole), first), less)
        to.add("Slice", whole, starts, ends, first)
    return to.end()


def _pad(
    graph: Any, node: Any, given: Mapping[str, Any], sizes: Sequence[int], pads: list[int] | None, version: int, onnx: Any
) -> list[Any]:  # fmt: skip
    """`Pad`: torch-mlir does not end for `wrap`, reads elsewhere for numbers below 0, and needs numbers for `edge` and `reflect`."""
    mode = given.get("mode", b"constant")
    if pads is not None and min(pads, default=0) >= 0 and mode != b"wrap":
        return [node]
    to = _Expansion(graph, node, version, onnx)
    return _crop(to, node, sizes, pads) if mode == b"constant" else _repeat_inside(to, node, mode, sizes, pads)


def _divide_extents(graph: Any, node: Any, given: Mapping[str, Any], version: int, onnx: Any) -> list[Any]:
    """`Div` and `Mod` by a natural number, of numbers that may be negative.

    Where torch-mlir computes with numbers instead of tensors, it rounds quotients down, and rests have the sign of the dividend.
    """
    to = _Expansion(graph, node, version, onnx)
    dividend, divisor = node.input
    if node.op_type == "Mod" and not given.get("fmod"):
        to.add("Mod", to.add("Add", to.add("Mod", dividend, divisor), divisor), divisor)
        return to.end()
    zero = to.constant("zero", 0)
    parts = [to.add(node.op_type, to.add("Max", each, zero), divisor, **given) for each in (dividend, to.add("Neg", dividend))]
    to.add("Sub", *parts)
    return to.end()


def _find_natural(graph: Any, onnx: Any) -> set[str]:
    """Integers that are extents, or computed from these, and are not negative."""
    moved = {"Cast", "Gather", "Identity", "Reshape", "Slice", "Squeeze", "Unsqueeze"}
    found = set()
    for each in graph.initializer:
        if each.data_type == onnx.TensorProto.INT64 and len(each.dims) < 2 and (onnx.numpy_helper.to_array(each) >= 0).all():
            found.add(each.name)
    for node in graph.node:
        match node.op_type:
            case "Shape" | "Size":
                is_natural = True
            case "Max":
                is_natural = any(name in found for name in node.input)
            case "Add" | "Concat" | "Div" | "Min" | "Mod" | "Mul":
                is_natural = all(name in found for name in node.input)
            case _:
                is_natural = node.op_type in moved and node.input[0] in found
        if is_natural and not node.domain:
            found.update(node.output)
    return found


def _shuffle(graph: Any, node: Any, given: Mapping[str, Any], version: int, onnx: Any) -> list[Any]:
    """`DepthToSpace`, which torch-mlir has wrong where channels come first, as `nn.PixelShuffle` is exported."""
    to = _Expansion(graph, node, version, onnx)
    x, size = node.input[0], given["blocksize"]
    is_channel_first = given.get("mode") == b"CRD"
    shape = to.add("Shape", x)
    batch, channels, *image = (to.add("Gather", shape, to.constant(f"at{k}", [k])) for k in range(4))
    block, both = to.constant("block", [size]), to.constant("both", [size * size])
    channels = to.add("Div", channels, both)
    depth = [channels, block, block] if is_channel_first else [block, block, channels]
    parts = to.add("Reshape", x, to.add("Concat", batch, *depth, *image, axis=0))
    turned = to.add("Transpose", parts, perm=[0, 1, 4, 2, 5, 3] if is_channel_first else [0, 3, 4, 1, 5, 2])
    to.add("Reshape", turned, to.add("Concat", batch, channels, *(to.add("Mul", each, block) for each in image), axis=0))
    return to.end()


def _lengthen(graph: Any, node: Any, count: int, version: int, onnx: Any) -> list[Any]:
    """`Expand` by a shape with as many extents as its operand has."""
    to = _Expansion(graph, node, version, onnx)
    to.add("Expand", node.input[0], to.add("Concat", to.constant("ones", [1] * count), node.input[1], axis=0))
    return to.end()


def _divide_by_magnitude(graph: Any, node: Any, type: Any, version: int, onnx: Any) -> list[Any]:
    """`Softsign`, which is a function from opset 18 on."""
    to = _Expansion(graph, node, version, onnx)
    one = to.constant("one", np.ones((), onnx.helper.tensor_dtype_to_np_dtype(type)))
    to.add("Div", node.input[0], to.add("Add", to.add("Abs", node.input[0]), one))
    return to.end()


def _go_forward(graph: Any, node: Any, given: Mapping[str, Any], version: int, onnx: Any) -> list[Any]:
    """`GRU` of one or both directions by those that go forward, which alone torch-mlir has."""
    to = _Expansion(graph, node, version, onnx)
    directions = [True] if given["direction"] == b"reverse" else [False, True]
    first, last, step = (to.constant(name, [number]) for name, number in (("first", -1), ("last", np.iinfo(np.int64).min), ("step", -1)))
    axis, bounds = to.constant("axis", [0]), [to.constant(f"bound{k}", [k]) for k in range(len(directions) + 1)]
    results: list[list[str]] = [[], []]

    def turn(of: str, is_reversed: bool) -> str:
        return to.add("Slice", of, first, last, axis, step) if is_reversed else of

    x, *rest = node.input
    for k, is_reversed in enumerate(directions):
        parts = [to.add("Slice", each, bounds[k], bounds[k + 1], axis) if each else "" for each in rest]
        options = {key: value for key, value in given.items() if key not in ("activations", "direction")}
        if "activations" in given:
            options["activations"] = given["activations"][2 * k : 2 * k + 2]
        whole = to.add("GRU", turn(x, is_reversed), *parts, **options)
        to.nodes[-1].output.append(f"{whole}.last")
        results[0].append(turn(whole, is_reversed))
        results[1].append(f"{whole}.last")
    for output, parts, over in zip(node.output, results, (1, 0)):
        if output:
            to.nodes.append(onnx.helper.make_node("Concat", parts, [output], axis=over))
    return to.nodes


def expand_wrong(graph: Any, values: Mapping[str, Any], version: int, onnx: Any) -> None:
    """Operations that torch-mlir gets wrong by others, as normalization by extents that are open."""
    nodes: list[Any] = []
    types = {name: each.type.tensor_type for name, each in values.items()}
    constants = {each.name: each for each in graph.initializer}
    natural = _find_natural(graph, onnx)

    def list_extents(name: str) -> list[int] | None:
        """Those of a value; of them -1 is not known."""
        type = types.get(name)
        if type is None or not type.HasField("shape"):
            return None
        return [dim.dim_value if dim.HasField("dim_value") else -1 for dim in type.shape.dim]

    for node in graph.node:
        type: Any = types.get(node.input[0]) if node.input and not node.domain else None
        extents = list_extents(node.input[0]) if type is not None else None
        rank = None if extents is None else len(extents)
        others = list_extents(node.input[1]) if rank is not None and len(node.input) > 1 else None
        given = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
        match node.op_type:
            case "GroupNormalization" | "InstanceNormalization" if rank is not None:
                nodes += _normalize(graph, node, rank, type.elem_type, version, onnx)
            case "LpNormalization" if type is not None:
                nodes += _divide_by_norm(graph, node, type.elem_type, version, onnx)
            case "LRN" if rank is not None and version >= 13:
                nodes += _normalize_channels(graph, node, rank, type.elem_type, version, onnx)
            case "BitShift" if type is not None:
                nodes += _shift(graph, node, type.elem_type, version, onnx)
            case "Softsign" if type is not None and version < 18:
                nodes += _divide_by_magnitude(graph, node, type.elem_type, version, onnx)
            case "Expand" if rank is not None and others is not None and 0 <= others[0] < rank:
                nodes += _lengthen(graph, node, rank - others[0], version, onnx)
            case "GatherND" if extents and others and not given.get("batch_dims") and version >= LEAST_OPSET:
                nodes += _gather(graph, node, extents, others, version, onnx)
            case "AveragePool" if not any(given.get("pads", [])) and given.get("auto_pad", b"NOTSET") in (b"NOTSET", b"VALID"):
                # Without padding; torch-mlir counts places behind the input, where the last windows reach.
                replace(node.attribute, [each for each in node.attribute if each.name != "count_include_pad"])
                nodes.append(node)
            case "DepthToSpace" if rank == 4:
                nodes += _shuffle(graph, node, given, version, onnx)
            case "Div" | "Mod" if rank in (0, 1) and type.elem_type == onnx.TensorProto.INT64:
                is_signed = node.input[0] not in natural and node.input[1] in natural
                nodes += _divide_extents(graph, node, given, version, onnx) if is_signed else [node]
            case "Pad" if rank is not None and version >= 11 and not any(node.input[3:]):
                pads = constants.get(node.input[1])
                numbers = None if pads is None else onnx.numpy_helper.to_array(pads).tolist()
                sizes = list_extents(node.output[0]) or [-1] * rank
                nodes += _pad(graph, node, given, sizes, numbers, version, onnx)
            case "GRU" if type is not None and given.get("direction", b"forward") != b"forward" and not given.get("layout"):
                nodes += _go_forward(graph, node, given, version, onnx)
            case _:
                nodes.append(node)
    replace(graph.node, nodes)
