# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models of ONNX to linalg, by the packages onnx and torch-mlir."""

from __future__ import annotations

import math
import os
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from . import _fovea
from ._onnx_expansions import LEAST_OPSET, expand_wrong, replace
from ._program import CONSTANT_TYPES, list_left_out
from ._tm_tensor import lower_tm_tensor
from ._torch_mlir import run_passes

__all__ = ["import_model"]

_PIPELINE = (
    "--pass-pipeline=builtin.module(inline,torch-onnx-to-torch-backend-pipeline,torch-backend-to-linalg-on-tensors-backend-pipeline)",
)
#: What torch-mlir does not know, or only about, but ONNX defines by other operations.
_EXPANDED = {
    "Attention", "Gelu", "MeanVarianceNormalization", "NegativeLogLikelihoodLoss", "RMSNormalization", "RotaryEmbedding",
    "SoftmaxCrossEntropyLoss",
}  # fmt: skip
#: Shorter constants stay in the text: some operations need to know what they are.
_LEAST_ARGUMENT = 64
#: So do masks, which are evaluated, and integers, up to this length.
_MOST_CONSTANT = 1 << 20
#: Operations on constants that are no constants, or that contain graphs.
_NOT_FOLDED = {
    "Bernoulli", "Dropout", "If", "Loop", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Scan",
}  # fmt: skip
#: Whose operations torch-mlir knows; it looks at their names alone.
_DOMAINS = {"", "com.microsoft"}
#: Another name of the first of these.
_ONNX = "ai.onnx"
#: How often shapes are looked at again, of which others follow.
_MOST_ROUNDS = 8
#: A number that hides a score.
_HIDDEN = -1e9


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return next((line for line in lines if "error:" in line), " ".join(lines))[:500]


def _read(source: Any, onnx: Any) -> tuple[Any, str]:
    """The model, and what it is called in errors."""
    if isinstance(source, onnx.ModelProto):
        copy = onnx.ModelProto()
        copy.CopyFrom(source)
        return copy, "model"
    path = Path(source)
    if not path.is_file():
        raise ValueError(f"{path}: found no file, needed a model of ONNX")
    try:
        model = onnx.load(path)
    except Exception as error:
        raise ValueError(f"{path}: found no model of ONNX, or a part of one: {_first_line(error)}") from None
    if not model.graph.node:
        raise ValueError(f"{path}: found a model of ONNX without operations")
    return model, str(path)


def _name_domains(model: Any) -> None:
    """ONNX's own domain has a name, too, of which its tools know little."""
    graphs = [each.node for each in (model.graph, *model.functions)]
    while graphs:
        for node in graphs.pop():
            node.domain = "" if node.domain == _ONNX else node.domain
            graphs += [graph.node for each in node.attribute for graph in (each.g, *each.graphs)]
    for each in (model, *model.functions):
        versions = {"" if item.domain == _ONNX else item.domain: item.version for item in reversed(each.opset_import)}
        del each.opset_import[:]
        for domain, version in versions.items():
            each.opset_import.add(domain=domain, version=version)


def _find_shapes(model: Any, onnx: Any) -> None:
    """Outputs may leave out what follows from operations."""

    def list_unknown(values: Iterable[Any]) -> list[str]:
        kinds = (None, "tensor_type")
        return [each.name for each in values if each.type.WhichOneof("value") in kinds and not each.type.tensor_type.HasField("shape")]

    found = list_unknown(model.graph.input)
    if found:
        raise ValueError(f"input {found[0]} has no shape, needed one, whose extents may have names")
    if not list_unknown(model.graph.output):
        return
    outputs = onnx.shape_inference.infer_shapes(model, data_prop=True).graph.output
    found = list_unknown(outputs)
    if found:
        raise ValueError(f"output {found[0]} has no shape, and none follows from what it is computed of")
    replace(model.graph.output, list(outputs))


def _fix_extents(graph: Any, extents: Mapping[str, int], place: str) -> None:
    """Gives extents that have these names the numbers."""
    left = dict(extents)
    for value in (*graph.input, *graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in extents:
                extent = extents[dim.dim_param]
                left.pop(dim.dim_param, None)
                if not isinstance(extent, int) or extent < 1:
                    raise ValueError(f"extents: found {extent!r} for {dim.dim_param!r}, needed an integer of 1 at least")
                dim.dim_value = extent
    if left:
        names = {dim.dim_param for value in graph.input for dim in value.type.tensor_type.shape.dim if dim.dim_param}
        raise ValueError(f"extents: found {next(iter(left))!r}, needed names of {place}: {', '.join(sorted(names)) or 'it has none'}")
    if extents:
        # They may say other extents, and are found again.
        del graph.value_info[:]


def _is_argument(array: np.ndarray) -> bool:
    """Whether a constant is passed to the function, and not written in its text."""
    if array.size <= _LEAST_ARGUMENT or array.dtype.name not in CONSTANT_TYPES:
        return False
    if array.size > _MOST_CONSTANT:
        return True
    is_float = array.dtype.kind == "f" or array.dtype.name == "bfloat16"
    return is_float and not bool((array.astype(np.float32) <= _HIDDEN).any())


def _take_constants(graph: Any, onnx: Any, place: str) -> dict[str, np.ndarray]:
    """Makes large constants the first inputs of the graph, and returns them."""
    kept = []
    for node in graph.node:
        values = [each.t for each in node.attribute if node.op_type == "Constant" and each.name == "value"]
        if node.domain or not values:
            kept.append(node)
            continue
        graph.initializer.add().CopyFrom(values[0])
        graph.initializer[-1].name = node.output[0]
    replace(graph.node, kept)
    # Old models list constants as inputs, too.
    names = {each.name for each in graph.initializer}
    replace(graph.input, [each for each in graph.input if each.name not in names])
    arguments, constants, inputs = {}, [], []
    for tensor in graph.initializer:
        try:
            array = onnx.numpy_helper.to_array(tensor)
        except Exception as error:
            raise ValueError(f"{place}: {tensor.name}: found no array: {_first_line(error)}") from None
        if _is_argument(array):
            arguments[tensor.name] = array
            inputs.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
        else:
            # The importer reads no other fields of all types.
            constants.append(onnx.numpy_helper.from_array(array, tensor.name))
    replace(graph.initializer, constants)
    replace(graph.input, [*inputs, *graph.input])
    return arguments


def _visit(graph: Any, onnx: Any, outer: Mapping[str, Any] | None = None) -> Iterator[tuple[Any, dict[str, Any]]]:
    """The graph and those within its operations, each with the values that are seen there."""
    constants = {each.name: onnx.helper.make_tensor_value_info(each.name, each.data_type, each.dims) for each in graph.initializer}
    values = {each.name: each for each in (*graph.input, *graph.value_info, *graph.output)}
    seen = {**(outer or {}), **constants, **values}
    yield graph, seen
    for node in graph.node:
        for each in node.attribute:
            if each.HasField("g"):
                yield from _visit(each.g, onnx, seen)


def _get_shape(values: Iterable[Any]) -> dict[str, tuple[int, ...]]:
    """The shapes that are known."""
    shapes = {}
    for value in values:
        tensor = value.type.tensor_type
        if tensor.HasField("shape") and all(dim.HasField("dim_value") for dim in tensor.shape.dim):
            shapes[value.name] = tuple(dim.dim_value for dim in tensor.shape.dim)
    return shapes


def _evaluate(node: Any, known: Mapping[str, np.ndarray], model: Any, onnx: Any) -> list[np.ndarray] | None:
    """The results of an operation on constants, by ONNX's reference."""
    from onnx.reference import ReferenceEvaluator

    empty = onnx.TypeProto()
    graph = onnx.helper.make_graph(
        [node], "fold", [onnx.helper.make_value_info(name, empty) for name in dict.fromkeys(node.input) if name],
        [onnx.helper.make_value_info(name, empty) for name in node.output],
    )  # fmt: skip
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            evaluator = ReferenceEvaluator(onnx.helper.make_model(graph, opset_imports=model.opset_import))
            results = evaluator.run(None, {name: known[name] for name in node.input if name})
    except Exception:
        # torch-mlir may know the operation.
        return None
    return results if all(isinstance(each, np.ndarray) for each in results) else None


def _fold(model: Any, onnx: Any) -> bool:
    """Computes what depends on constants and on extents that are known; whether there was something."""
    graph, kept, known = model.graph, [], {}
    shapes = _get_shape((*graph.input, *graph.value_info, *graph.output))
    initial = {each.name: onnx.numpy_helper.to_array(each) for each in graph.initializer}
    known.update(initial)
    for node in graph.node:
        results = None
        is_small = all(name in shapes and np.prod(shapes[name], dtype=object) <= _MOST_CONSTANT for name in node.output)
        if node.op_type == "Shape" and not node.domain and node.input[0] in shapes and is_small:
            bounds = {each.name: each.i for each in node.attribute}
            results = [np.array(shapes[node.input[0]], np.int64)[bounds.get("start", 0) : bounds.get("end")]]
        elif node.op_type == "Size" and not node.domain and node.input[0] in shapes:
            results = [np.array(math.prod(shapes[node.input[0]]), np.int64)]
        elif is_small and node.op_type not in _NOT_FOLDED and all(not name or name in known for name in node.input):
            results = _evaluate(node, known, model, onnx)
        if results is None or any(result.shape != shapes[name] for result, name in zip(results, node.output)):
            kept.append(node)
        else:
            known.update(zip(node.output, results))
    if len(kept) == len(graph.node):
        return False
    used = {name for node in kept for name in node.input} | {each.name for each in graph.output} | {*initial}
    # Graphs within operations may read anything.
    if any(each.HasField("g") for node in kept for each in node.attribute):
        used = {*known}
    replace(graph.initializer, [onnx.numpy_helper.from_array(array, name) for name, array in known.items() if name in used])
    replace(graph.node, kept)
    return True


def _keep_extents(graph: Any, onnx: Any) -> bool:
    """Gives slices by bounds that are not known the extents of all axes but theirs, which ONNX forgets; whether there was one."""
    values = {each.name: each.type.tensor_type.shape.dim for each in (*graph.input, *graph.value_info, *graph.output)}
    constants = {each.name: each for each in graph.initializer}
    values.update(
        (each.name, onnx.helper.make_tensor_value_info("", 1, each.dims).type.tensor_type.shape.dim) for each in graph.initializer
    )
    is_changed = False
    for node in graph.node:
        if node.op_type == "Slice" and not node.domain and len(node.input) > 3 and node.input[3] in constants:
            before, after = values.get(node.input[0], ()), values.get(node.output[0], ())
            axes = onnx.numpy_helper.to_array(constants[node.input[3]]) % max(len(before), 1)
            for axis in {*range(min(len(before), len(after)))} - {*axes.tolist()}:
                if before[axis].HasField("dim_value") and not after[axis].HasField("dim_value"):
                    after[axis].dim_value = before[axis].dim_value
                    is_changed = True
    return is_changed


def _merge_first(graph: Any, onnx: Any) -> None:
    """Reshapes of several unknown extents after a step that merges these: torch-mlir would take all but one of them to be 1."""
    found = {
        each.name: [size.dim_value if size.HasField("dim_value") else -1 for size in each.type.tensor_type.shape.dim]
        for each in (*graph.input, *graph.value_info, *graph.output)
    }
    nodes = []
    for node in graph.node:
        if node.op_type == "Reshape" and not node.domain:
            extents, sizes = found.get(node.input[0], []), found.get(node.output[0], [])
            # Of several extents that are to be found, it asks at run time.
            if extents.count(-1) > 1 and sizes.count(-1) < 2 and 0 not in sizes:
                rest = math.prod(sizes[1:]) if sizes[:1] == [-1] else 0
                # Heads stay apart from tokens where that is enough.
                axes = (first for first in range(2, len(extents)) if min(extents[first:]) > 0 and math.prod(extents[first:]) == rest)
                merged, shape = f"{node.output[0]}.merged", f"{node.output[0]}.sizes"
                nodes.append(onnx.helper.make_node("Flatten", [node.input[0]], [merged], axis=next(axes, 0)))
                # Sizes of 0 were those of the extents before.
                graph.initializer.append(onnx.numpy_helper.from_array(np.array(sizes, np.int64), shape))
                node.input[:] = [merged, shape]
        nodes.append(node)
    replace(graph.node, nodes)


def _convert_opset(model: Any, onnx: Any) -> Any:
    """An old model by newer operations, where ONNX converts it."""
    from onnx import version_converter

    version = max((each.version for each in model.opset_import if not each.domain), default=LEAST_OPSET)
    # Of graphs within operations it converts none.
    if version >= LEAST_OPSET or any(each.HasField("g") for node in model.graph.node for each in node.attribute):
        return model
    nodes = []
    for node in model.graph.node:
        if node.op_type == "Hardmax" and not node.domain and version < 13:
            # Of the last axes as one, as Softmax was, which alone is converted.
            axis = next((each.i for each in node.attribute if each.name == "axis"), 1)
            names = [f"{node.output[0]}.{name}" for name in ("flat", "hard", "shape")]
            nodes += [
                onnx.helper.make_node("Flatten", node.input, names[:1], axis=axis),
                onnx.helper.make_node("Hardmax", names[:1], names[1:2], axis=1),
                onnx.helper.make_node("Shape", node.input, names[2:]),
                onnx.helper.make_node("Reshape", names[1:], node.output),
            ]
        else:
            nodes.append(node)
    replace(model.graph.node, nodes)
    try:
        converted = version_converter.convert_version(model, LEAST_OPSET)
    except Exception:
        # torch-mlir may know its operations.
        return model
    for node in converted.graph.node:
        if node.op_type == "Resize" and version < 11:
            # There was this way only.
            replace(node.attribute, [each for each in node.attribute if each.name == "mode"])
            given = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
            node.attribute.extend(onnx.helper.make_attribute(name, value) for name, value in given.items())
    return converted


def _find_wrong(node: Any, shapes: Mapping[str, Any], types: Mapping[str, int], onnx: Any) -> str | None:
    """What torch-mlir leaves out, or gets wrong, in an operation that it imports."""
    given = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
    operands = dict(enumerate(node.input))
    unsigned = {onnx.TensorProto.UINT8, onnx.TensorProto.UINT16, onnx.TensorProto.UINT32, onnx.TensorProto.UINT64}
    is_unsigned = types.get(operands.get(0, "")) in unsigned
    match node.op_type:
        case "GRU" | "LSTM" | "RNN":
            if operands.get(4):
                return "sequence_lens"
            if node.op_type == "GRU" and operands[0] not in shapes:
                return "unknown extents"
            return "peepholes" if operands.get(7) else "clip" if given.get("clip") else None
        case "AveragePool":
            return "ceil_mode and count_include_pad" if given.get("ceil_mode") and given.get("count_include_pad") else None
        case "Abs" | "Clip" | "Div" | "MaxPool" | "Mod" | "TopK":
            return "unsigned integers" if is_unsigned else None
        case "DequantizeLinear":
            by_axis = shapes.get(operands.get(1, "")) not in ((), (1,))
            return "unsigned integers and scales along an axis" if is_unsigned and by_axis else None
        case "FusedMatMul":
            usual = {"alpha": 1, "transBatchA": 0, "transBatchB": 0}
            return next((name for name, value in usual.items() if given.get(name, value) != value), None)
        case "GridSample":
            return "the mode nearest" if given.get("mode") == b"nearest" else None
        case "Pad":
            return "the mode wrap" if given.get("mode") == b"wrap" else None
        case "SpaceToDepth":
            return "the mode CRD" if given.get("mode") == b"CRD" else None
        case "ArgMax" | "ArgMin":
            return "select_last_index of unknown extents" if given.get("select_last_index") and operands[0] not in shapes else None
    return None


def _refuse_wrong(graph: Any, onnx: Any, place: str) -> None:
    for inner, values in _visit(graph, onnx):
        types, shapes = {name: each.type.tensor_type.elem_type for name, each in values.items()}, _get_shape(values.values())
        for node in inner.node:
            if node.domain not in _DOMAINS:
                found = f"found {node.op_type} of domain {node.domain!r}"
                raise _fovea.FoveaError(f"{place}: {found}, needed an operation of ONNX or a function of the model")
            wrong = _find_wrong(node, shapes, types, onnx)
            if wrong:
                raise _fovea.FoveaError(f"{place}: torch-mlir has no right linalg for {node.op_type} with {wrong}")


def _simplify(model: Any, onnx: Any) -> Any:
    """Functions by what they stand for, with constants and extents in them."""

    def infer(model: Any) -> Any:
        try:
            return onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
        except onnx.shape_inference.InferenceError:
            # It takes some tensors that are added for shapes.
            return onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=False)

    model = infer(model)
    # The inliner asks for a type also of constants, and of operands that are left out.
    typed = onnx.ModelProto.FromString(model.SerializeToString())
    typed.graph.value_info.append(onnx.helper.make_tensor_value_info("", onnx.TensorProto.FLOAT, []))
    typed.graph.value_info.extend(
        onnx.helper.make_tensor_value_info(each.name, each.data_type, each.dims) for each in model.graph.initializer
    )
    try:
        typed = onnx.inliner.inline_selected_functions(typed, [("", each) for each in sorted(_EXPANDED)], inline_schema_functions=True)
        replace(typed.graph.value_info, [each for each in typed.graph.value_info if each.name])
        model = infer(typed)
    except Exception:
        # The importer expands what cannot be inlined.
        pass
    version = max((each.version for each in model.opset_import if not each.domain), default=LEAST_OPSET)
    for graph, values in _visit(model.graph, onnx):
        expand_wrong(graph, values, version, onnx)
    model = infer(model)
    for _ in range(_MOST_ROUNDS):
        is_sliced = _keep_extents(model.graph, onnx)
        if not _fold(model, onnx) and not is_sliced:
            break
        model = infer(model)
    _merge_first(model.graph, onnx)
    return infer(model)


def _to_torch(model: Any, expanded: set[str], place: str) -> str:
    from torch_mlir.dialects import torch as torch_dialect
    from torch_mlir.extras import onnx_importer
    from torch_mlir.ir import Context

    config = onnx_importer.Config()
    config.function_expansion_allowlists_by_domain = {"": expanded}
    context = Context()
    torch_dialect.register_dialect(context)
    try:
        info = onnx_importer.ModelInfo(model, config=config)
        module = info.create_module(context=context).operation
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            onnx_importer.NodeImporter.define_function(info.main_graph, module).import_all()
        module.verify()
    except Exception as error:
        raise _fovea.FoveaError(f"{place}: torch-mlir does not import it: {_first_line(error)}") from error
    return str(module)


def _to_linalg(model: Any, onnx: Any, place: str) -> str:
    """Operations that torch-mlir has no linalg for, but ONNX a definition, are expanded."""
    expanded = set(_EXPANDED)
    while True:
        try:
            return lower_tm_tensor(run_passes(_PIPELINE, "ONNX", text=_to_torch(model, expanded, place)))
        except _fovea.FoveaError as error:
            name = re.search(r'error:.*"onnx\.(\w+)"', str(error))
            if name is None:
                raise _fovea.FoveaError(f"{place}: torch-mlir has no linalg for it: {_first_line(error)}") from None
            schema = name[1] not in expanded and onnx.defs.has(name[1]) and onnx.defs.get_schema(name[1])
            if not schema or not (schema.has_function or schema.has_context_dependent_function):
                raise _fovea.FoveaError(f"{place}: torch-mlir has no linalg for {name[1]}, or not for its operands") from None
            expanded.add(name[1])


def import_model(
    source: str | os.PathLike[str] | Any, extents: Mapping[str, int]
) -> tuple[str, dict[str, np.ndarray], list[str], list[str]]:
    """The text of a module, constants that are its first arguments, names of its inputs, and types of its results."""
    try:
        import onnx
        import onnx.inliner
        from torch_mlir.extras import onnx_importer  # noqa: F401
    except ImportError:
        raise ValueError("ONNX needs the packages onnx and torch-mlir: pip install onnx torch-mlir") from None
    model, place = _read(source, onnx)
    _name_domains(model)
    constants = _take_constants(model.graph, onnx, place)
    _fix_extents(model.graph, extents, place)
    model.graph.name = "main"
    # Before, constants had to be inputs, too.
    model.ir_version = max(model.ir_version, 4)
    try:
        _find_shapes(model, onnx)
        onnx.checker.check_model(model)
        if model.functions:
            model = onnx.inliner.inline_local_functions(model)
        model = _convert_opset(model, onnx)
        model = _simplify(model, onnx)
        # What has been computed from constants may be large, too.
        constants = {**_take_constants(model.graph, onnx, place), **constants}
    except Exception as error:
        raise ValueError(f"{place}: found a model of ONNX that is not valid: {_first_line(error)}") from None
    names = [each.name for each in model.graph.input if each.name not in constants]
    _refuse_wrong(model.graph, onnx, place)
    text = _to_linalg(model, onnx, place)
    types = [onnx.helper.tensor_dtype_to_np_dtype(each.type.tensor_type.elem_type).name for each in model.graph.output]
    return text, constants, names, list_left_out(types)
