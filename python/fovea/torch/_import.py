# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Modules of PyTorch to linalg, by torch.export and torch-mlir."""

from __future__ import annotations

import inspect
import re
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch._functorch import predispatch
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils import _pytree as pytree

from .. import _fovea
from .._own_calls import insert_definitions
from .._program import list_left_out
from .._tm_tensor import lower_tm_tensor
from ._bytes import widen_bytes
from ._complex import find_place, join_pairs, make_pairs, split_complex
from ._constant_masks import masks_as_given
from ._decompositions import DECOMPOSITIONS
from ._dynamic import fold_positions, resolve_items, rewrite_extents, split_reshapes, state_extents, take_assertions
from ._experts import experts_at_once
from ._flex_export import write_flex
from ._fourier import FOURIER
from ._guards import find_guards, record_guards, write_guards
from ._own_calls import copy_listed, find_calls, lower_with_calls
from ._special import SPECIAL
from ._uniform import fold_uniform

__all__ = ["import_module", "to_numpy"]


# The levels of `vmap` have no results, but what is between two of them is inside of one.
for _level in (predispatch._vmap_increment_nesting, predispatch._vmap_decrement_nesting):
    torch.fx.node.has_side_effect(_level)


class _Stateless(nn.Module):
    """A call of a model as a function of tensors: its parameters and buffers, of which some are pairs, and inputs."""

    def __init__(
        self, model: nn.Module, names: Sequence[tuple[str, bool]], leaves: Sequence[Any], spec: pytree.TreeSpec,
        tell_types: Callable[[Sequence[torch.dtype]], None],
    ):  # fmt: skip
        super().__init__()
        # No submodule, or its parameters would become constants.
        object.__setattr__(self, "model", model)
        # Of results, before those that are complex become pairs.
        self.names, self.leaves, self.spec, self.tell_types = names, leaves, spec, tell_types

    def forward(self, state: Sequence[Tensor], inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        given = iter(inputs)
        leaves = [next(given) if isinstance(each, Tensor) else each for each in self.leaves]
        args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        own = {name: join_pairs(each) if is_pair else each for (name, is_pair), each in zip(self.names, state)}
        result = torch.func.functional_call(self.model, own, args, kwargs)
        results = [each for each in pytree.tree_leaves(result) if isinstance(each, Tensor)]
        self.tell_types([each.dtype for each in results])
        return tuple(make_pairs(each) if each.is_complex() else each for each in results)


def _name_arguments(function: Callable[..., Any], count: int) -> list[str]:
    """What a function calls its first arguments; those of `*args` have numbers alone."""
    try:
        parameters = [*inspect.signature(function).parameters.values()]
    except (TypeError, ValueError):
        parameters = []
    is_named = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [each.name for each in parameters if each.kind in is_named][:count]
    return names + [f"input_{index}" for index in range(len(names), count)]


def _name_inputs(model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[str]:
    """One for each tensor: the argument that it is, and its place in one that is no tensor."""
    arguments = [*zip(_name_arguments(model.forward, len(args)), args), *kwargs.items()]
    names = []
    for argument, value in arguments:
        for path, leaf in pytree.tree_leaves_with_path(value):
            if isinstance(leaf, Tensor):
                names.append("_".join([argument, *(str(getattr(key, "key", getattr(key, "idx", key))) for key in path)]))
    return names


def _dynamic_shapes(names: Sequence[str], inputs: Sequence[Tensor], dynamic: Any) -> list[dict[int, Any]]:
    """What torch.export is told of each input."""
    needed = "dimensions of all inputs, or those of each by its name"
    if isinstance(dynamic, Mapping):
        chosen = {str(name): dims for name, dims in dynamic.items()}
        for name in chosen:
            if name not in names:
                raise ValueError(f"dynamic: found {name!r}, needed names of inputs: {', '.join(names)}")
    elif isinstance(dynamic, Sequence) and not isinstance(dynamic, str):
        most = max((each.dim() for each in inputs), default=0)
        for dim in dynamic:
            if isinstance(dim, int) and dim >= most:
                raise ValueError(f"dynamic: found {dim}, needed dimensions that an input has: from 0 to {most - 1}")
        chosen = {name: [dim for dim in dynamic if not isinstance(dim, int) or dim < each.dim()] for name, each in zip(names, inputs)}
    else:
        raise ValueError(f"dynamic: found {dynamic!r}, needed {needed}")
    shapes = []
    for name, each in zip(names, inputs):
        dims = chosen.get(name, ())
        if not isinstance(dims, Sequence) or not all(isinstance(dim, int) and 0 <= dim < each.dim() for dim in dims):
            raise ValueError(f"dynamic: found {dims!r} for {name}, needed dimensions from 0 to {each.dim() - 1}")
        for dim in dims:
            if each.shape[dim] < 2:
                found = f"found extent {each.shape[dim]} of dimension {dim}, which is dynamic"
                raise ValueError(f"{name}: {found}: needed an example of 2 at least")
        shapes.append({dim: torch.export.Dim.DYNAMIC for dim in dims})
    return shapes


def import_module(
    model: Any, args: Sequence[Any], kwargs: Mapping[str, Any], dynamic: Any = ()
) -> tuple[str, dict[str, Tensor], list[str], list[str]]:
    """The text of a module, the tensors of the model that are its first arguments, names of its inputs, and types of its results."""
    if not isinstance(model, nn.Module):
        raise ValueError(f"model: found {type(model).__name__}, needed a torch.nn.Module")
    try:
        from torch_mlir import fx, ir
        from torch_mlir.dialects import torch as torch_dialect
        from torch_mlir.extras.fx_decomp_util import get_decomposition_table
        from torch_mlir.extras.fx_importer import FxImporter
    except ImportError:
        raise ValueError("import_torch needs the package torch-mlir: pip install torch-mlir") from None
    state = {name: each.detach() for name, each in (*model.named_parameters(), *model.named_buffers())}
    own = [(name, each.is_complex()) for name, each in state.items()]
    state = {name: make_pairs(each) if each.is_complex() else each for name, each in state.items()}
    leaves, spec = pytree.tree_flatten((tuple(args), dict(kwargs)))
    # Other objects than those of the caller: torch.export marks what is dynamic, and leaves marks where it fails.
    inputs = [each.detach() for each in leaves if isinstance(each, Tensor)]
    names = _name_inputs(model, args, kwargs)
    for name, each in (*state.items(), *zip(names, inputs)):
        if each.device.type != "cpu":
            raise ValueError(f"{name}: found a tensor on {each.device.type}, needed one on the CPU")
    for name, each in zip(names, inputs):
        if each.is_complex():
            raise ValueError(f"{name}: found complex numbers, needed pairs of real ones, and view_as_complex of these in the model")
    shapes = _dynamic_shapes(names, inputs, dynamic)
    table = {**get_decomposition_table(), **DECOMPOSITIONS, **SPECIAL, **FOURIER}
    context = ir.Context()
    messages: list[tuple[str, str]] = []
    torch_dialect.register_dialect(context)

    def keep(diagnostic: Any) -> bool:
        messages.append((diagnostic.message, str(diagnostic.location)))
        return True

    # Without a handler these are printed, and no part of the error.
    context.attach_diagnostic_handler(keep)
    importer = FxImporter(context=context)
    # None is no leaf of a call that is exported.
    with torch.no_grad(), experts_at_once(model), masks_as_given(), record_guards() as fixed:
        found_types: list[torch.dtype] = []
        call = _Stateless(model, own, leaves, spec, lambda types: found_types.__setitem__(slice(None), types))
        try:
            exported = torch.export.export(
                call, (list(state.values()), inputs), strict=False,
                dynamic_shapes=([None] * len(state), shapes) if any(shapes) else None,
            )  # fmt: skip
        except (ValueError, _fovea.FoveaError) as error:
            if not any(shapes):
                raise
            reason = _find_fixed(error, names, fixed) or _untraced(error, " with dynamic shapes")
            raise _fovea.FoveaError(f"{type(model).__name__}: {reason}") from error
        except Exception as error:
            reason = _find_fixed(error, names, fixed) or _untraced(error, " with dynamic shapes" if any(shapes) else "")
            raise _fovea.FoveaError(f"{type(model).__name__}: {reason}") from error
        try:
            write_flex(exported.graph_module)
            guards = find_guards(exported, len(inputs))
            _drop_assertions(exported.graph_module)
            if any(shapes):
                fold_positions(exported.graph_module)
                resolve_items(exported.graph_module)
            _reshape_attention(exported.graph)
            exported = exported.run_decompositions(table)
            split_complex(exported.graph_module, table)
            fold_uniform(exported.graph_module)
            widen_bytes(exported.graph_module)
            if any(shapes):
                guards.conditions.extend(take_assertions(exported.graph_module))
                state_extents(exported.graph_module)
                rewrite_extents(exported.graph_module)
                split_reshapes(exported.graph_module)
            legal = ["aten.flatten.using_ints", "aten.unflatten.int"] if any(shapes) else []
            copy_listed(exported.graph, exported.graph_signature.inputs_to_lifted_tensor_constants)
            calls, conditions = find_calls(exported.graph)
            guards.conditions.extend(each for each in conditions if each not in guards.conditions)
            module = fx.export_and_import(
                exported, output_type="raw" if calls else "linalg-on-tensors", decomposition_table={}, fx_importer=importer,
                backend_legal_ops=legal or None,
            )  # fmt: skip
            if calls:
                lower_with_calls(ir, module, calls, legal, lambda: not all(map(_is_of_call, messages)))
            write_guards(ir, module, guards, names)
        except _fovea.FoveaError:
            raise
        except Exception as error:
            left = _find_wordless(error, exported.graph) or _find_left(importer.module)
            if left and not any(shapes):
                left = _find_unknown(exported.graph) or left
            reason = _find_reason(messages) or left or _first_line(error)
            raise _fovea.FoveaError(f"torch-mlir does not import {type(model).__name__}: {reason}") from error
    types = list_left_out(str(each).removeprefix("torch.") for each in found_types)
    return insert_definitions(lower_tm_tensor(str(module))), state, names, types


def _untraced(error: Exception, how: str) -> str:
    """What torch.export says, and the last line of the model that it says it of."""
    folders = [Path(torch.__file__).parent, Path(__file__).parent]
    frames = [(Path(each.filename), each.lineno) for each in traceback.extract_tb(error.__traceback__)]
    frames = [(file, line) for file, line in frames if file.exists() and not any(map(file.is_relative_to, folders))]
    place = f", at {frames[-1][0]}:{frames[-1][1]}" if frames else ""
    kind = "" if isinstance(error, RuntimeError) else f"{type(error).__name__}: "
    return f"torch.export does not trace it{how}: {kind}{_first_line(error)}{place}"


def _find_unknown(graph: torch.fx.Graph) -> str | None:
    """The first operation whose results have extents that are numbers of tensors, and where the model calls it."""
    for node in graph.nodes:
        values = pytree.tree_leaves(node.meta.get("val"))
        if any(isinstance(each, Tensor) and free_unbacked_symbols(each.shape) for each in values):
            place = find_place(node.stack_trace, " at")
            return f"extents of results of {node.target}{place} are numbers of tensors, known only when it runs"
    return None


def _find_wordless(error: Exception, graph: torch.fx.Graph) -> str | None:
    """A function of extents that ended the import: nothing was lowered, and all that comes before it is left."""
    what = r"(?:Unimplemented call_function: target=|Unsupported builtin function for symbolic types: )"
    unknown = re.search(what + r"<(?:built-in )?function (\w+)", str(error))
    if unknown is None:
        return None
    nodes = (each for each in graph.nodes if getattr(each.target, "__name__", None) == unknown[1])
    places = (find_place(each.stack_trace, ", called at") for each in nodes)
    return f"it has no word for {unknown[1]} of extents" + next(filter(None, places), "")


def _find_fixed(error: Exception, names: Sequence[str], fixed: Mapping[str, str | None]) -> str | None:
    """A dynamic dimension of which the model allows one extent, as a loop of Python over it does."""
    found = re.search(r"You marked (L\['inputs'\]\[(\d+)\]\.size\(\)\[(\d+)\]) as dynamic but .* constant \((\d+)\)", str(error))
    if found is None:
        return None
    place = fixed.get(found[1])
    what = f"{names[int(found[2])]}.shape[{found[3]}] to {found[4]}" + (f", at {place}" if place else "")
    return f"the model fixes {what}: leave dimension {found[3]} out of dynamic"


def _drop_assertions(module: torch.fx.GraphModule) -> None:
    """Of types and extents, which tracing has checked: they keep what nobody needs, and torch-mlir checks types after promotion."""
    for node in module.graph.find_nodes(op="call_function", target=torch.ops.aten._assert_tensor_metadata.default):
        module.graph.erase_node(node)
    module.recompile()


def _reshape_attention(graph: torch.fx.Graph) -> None:
    """Views of attention as reshapes: its layout is not that of where the model was traced. Of others a reshape is no view."""
    aten = torch.ops.aten
    for node in graph.find_nodes(op="call_function", target=aten.view.default):
        source = node.args[0]
        while source.target in (aten.transpose.int, aten.permute.default, aten.reshape.default, aten.view.default):
            source = source.args[0]
        if source.target is aten.scaled_dot_product_attention.default:
            node.target = aten.reshape.default


def _is_of_call(message: tuple[str, str]) -> bool:
    """What torch-mlir's last check says of a function that is called."""
    return message[0].startswith("failed to legalize operation 'func.call'") or "backend contract" in message[0]


def _find_reason(messages: Sequence[tuple[str, str]]) -> str | None:
    """The first operation that torch-mlir has no linalg for, and where it is called, of its messages and their places."""
    for message, place in messages:
        name = re.search(r'name = "torch\.([\w.]+)"', message) or re.search(r"operation 'torch\.((?:aten|prims)\.[\w.]+)'", message)
        if name:
            return _no_linalg(name[1], place)
    return None


def _no_linalg(name: str, place: str) -> str:
    file = re.search(r'"([^"]+)":(\d+)', place)
    return f"it has no linalg for {name}, or not for its operands" + (f", called at {file[1]}:{file[2]}" if file else "")


def _find_left(module: Any) -> str | None:
    """The first operation on tensors that is left of a lowering: its messages are of what was to go with it."""
    from torch_mlir import ir

    left: list[str] = []

    def visit(operation: Any) -> Any:
        name = operation.name.removeprefix("torch.")
        if name.startswith(("aten.", "prims.")) and any("vtensor" in str(each.type) for each in operation.results):
            left.append(_no_linalg(name, str(operation.location)))
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return left[0] if left else None


def _first_line(error: Exception) -> str:
    if "operation 'with_effects'" in str(error):
        return "it has no word for operations that may fail when they run, such as those of torch.linalg that solve and factor"
    # What a decomposition says, and of which operation.
    said, _, traced = str(error).partition("\n\nWhile executing ")
    if traced:
        return " ".join(said.split())[:500] + find_place(traced, ", called at")
    lines = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return next((line for line in lines if re.search(r"\berror: ", line)), " ".join(lines)[:500])


def to_numpy(tensor: Tensor) -> Any:
    if tensor.dtype == torch.bfloat16:
        return tensor.contiguous().view(torch.int16).numpy().view(_fovea.bfloat16())
    return tensor.numpy()
