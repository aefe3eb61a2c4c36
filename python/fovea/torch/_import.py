# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Modules of PyTorch to linalg, by torch.export and torch-mlir."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from .. import _fovea
from ._dynamic import fold_positions, split_reshapes

__all__ = ["import_module", "to_numpy"]


class _Stateless(nn.Module):
    """A call of a model as a function of tensors: its parameters and buffers, and inputs."""

    def __init__(self, model: nn.Module, names: Sequence[str], leaves: Sequence[Any], spec: pytree.TreeSpec):
        super().__init__()
        # No submodule, or its parameters would become constants.
        object.__setattr__(self, "model", model)
        self.names, self.leaves, self.spec = names, leaves, spec

    def forward(self, state: Sequence[Tensor], inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        given = iter(inputs)
        leaves = [next(given) if isinstance(each, Tensor) else each for each in self.leaves]
        args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        result = torch.func.functional_call(self.model, dict(zip(self.names, state)), args, kwargs)
        return tuple(each for each in pytree.tree_leaves(result) if isinstance(each, Tensor))


def _cumsum(x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
    """Sums of 1, 2, 4, ... elements: what torch-mlir makes of aten.cumsum is in no dialect that we have.
    How many such steps there are must be known; where the length is not, each sum is one of all that it has."""
    if dtype is None:
        dtype = x.dtype if x.dtype.is_floating_point else torch.int64
    if x.dim() == 0:
        return x.to(dtype)
    # Narrow types are summed as PyTorch sums them.
    sums = torch.float32 if dtype in (torch.bfloat16, torch.float16) else dtype
    x = x.movedim(dim, -1).to(dtype).to(sums)
    if isinstance(x.shape[-1], torch.SymInt):
        n = torch.arange(x.shape[-1])
        x = torch.where(n[:, None] >= n, x.unsqueeze(-2), torch.zeros((), dtype=sums)).sum(-1, dtype=sums)
        return x.to(dtype).movedim(-1, dim)
    reach = 1
    while reach < x.shape[-1]:
        x = torch.cat([x[..., :reach], x[..., reach:] + x[..., :-reach]], -1)
        reach *= 2
    return x.to(dtype).movedim(-1, dim)


def _gelu(x: Tensor, *, approximate: str = "none") -> Tensor:
    """torch-mlir has four digits of sqrt(2 / pi)."""
    if approximate == "none":
        return 0.5 * x * (1 + torch.erf(x * math.sqrt(0.5)))
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


def _attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, *, scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """By products whose layouts follow from their shapes, where PyTorch's own depend on what it runs on."""
    if dropout_p:
        raise NotImplementedError("dropout of attention")
    if enable_gqa:
        key, value = (each.repeat_interleave(query.shape[-3] // each.shape[-3], -3) for each in (key, value))
    scores = torch.matmul(query * (1 / math.sqrt(query.shape[-1]) if scale is None else scale), key.transpose(-2, -1))
    if is_causal:
        scores = scores.masked_fill(torch.arange(query.shape[-2])[:, None] < torch.arange(key.shape[-2]), -math.inf)
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, -math.inf) if attn_mask.dtype == torch.bool else scores + attn_mask
    return torch.matmul(torch.ops.aten._safe_softmax.default(scores, -1), value)


def _name_inputs(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[str]:
    """One for each tensor."""
    names = []
    for path, leaf in pytree.tree_leaves_with_path((tuple(args), dict(kwargs))):
        if isinstance(leaf, Tensor):
            names.append("_".join(str(getattr(key, "key", getattr(key, "idx", key))) for key in path[1:]))
    return [f"input_{name}" if name.isdigit() else name for name in names]


def _dynamic_shapes(names: Sequence[str], inputs: Sequence[Tensor], dynamic: Any) -> list[dict[int, Any]]:
    """What torch.export is told of each input."""
    needed = "dimensions of all inputs, or those of each by its name"
    if isinstance(dynamic, Mapping):
        chosen = {str(name): dims for name, dims in dynamic.items()}
        for name in chosen:
            if name not in names:
                raise ValueError(f"dynamic: found {name!r}, needed names of inputs: {', '.join(names)}")
    elif isinstance(dynamic, Sequence) and not isinstance(dynamic, str):
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
) -> tuple[str, dict[str, Tensor], list[str]]:
    """The text of a module, the tensors of the model that are its first arguments, and names of
    its inputs."""
    if not isinstance(model, nn.Module):
        raise ValueError(f"model: found {type(model).__name__}, needed a torch.nn.Module")
    try:
        from torch_mlir import fx
        from torch_mlir.extras.fx_decomp_util import get_decomposition_table
    except ImportError:
        raise ValueError("import_torch needs the package torch-mlir: pip install torch-mlir") from None
    state = {name: each.detach() for name, each in (*model.named_parameters(), *model.named_buffers())}
    leaves, spec = pytree.tree_flatten((tuple(args), dict(kwargs)))
    inputs = [each for each in leaves if isinstance(each, Tensor)]
    names = _name_inputs(args, kwargs)
    for name, each in (*state.items(), *zip(names, inputs)):
        if each.device.type != "cpu":
            raise ValueError(f"{name}: found a tensor on {each.device.type}, needed one on the CPU")
    shapes = _dynamic_shapes(names, inputs, dynamic)
    aten = torch.ops.aten
    table = {**get_decomposition_table(), aten.cumsum.default: _cumsum, aten.gelu.default: _gelu}
    if any(shapes):
        table[aten.scaled_dot_product_attention.default] = _attention
    # None is no leaf of a call that is exported.
    with torch.no_grad():
        call = _Stateless(model, list(state), leaves, spec)
        try:
            exported = torch.export.export(
                call, (list(state.values()), inputs), strict=False,
                dynamic_shapes=([None] * len(state), shapes) if any(shapes) else None,
            )  # fmt: skip
        except Exception as error:
            if not any(shapes):
                raise
            reason = _first_line(error)
            raise _fovea.FoveaError(f"torch.export does not trace {type(model).__name__} with dynamic shapes: {reason}") from error
        try:
            if any(shapes):
                fold_positions(exported.graph_module)
            exported = exported.run_decompositions(table)
            if any(shapes):
                split_reshapes(exported.graph_module)
            module = fx.export_and_import(
                exported, output_type="linalg-on-tensors", decomposition_table={},
                backend_legal_ops=["aten.flatten.using_ints", "aten.unflatten.int"] if any(shapes) else None,
            )  # fmt: skip
        except Exception as error:
            raise _fovea.FoveaError(f"torch-mlir does not import {type(model).__name__}: {_first_line(error)}") from error
    return str(module), state, names


def _first_line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return next((line for line in lines if "error:" in line), " ".join(lines)[:500])


def to_numpy(tensor: Tensor) -> Any:
    if tensor.dtype == torch.bfloat16:
        return tensor.contiguous().view(torch.int16).numpy().view(_fovea.bfloat16())
    return tensor.numpy()
