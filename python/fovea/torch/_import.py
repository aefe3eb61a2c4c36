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
    """Sums of 1, 2, 4, ... elements: what torch-mlir makes of aten.cumsum is in no dialect that we have."""
    if dtype is None:
        dtype = x.dtype if x.dtype.is_floating_point else torch.int64
    if x.dim() == 0:
        return x.to(dtype)
    # Narrow types are summed as PyTorch sums them.
    sums = torch.float32 if dtype in (torch.bfloat16, torch.float16) else dtype
    x = x.movedim(dim, -1).to(dtype).to(sums)
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


def _name_inputs(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[str]:
    """One for each tensor."""
    names = []
    for path, leaf in pytree.tree_leaves_with_path((tuple(args), dict(kwargs))):
        if isinstance(leaf, Tensor):
            names.append("_".join(str(getattr(key, "key", getattr(key, "idx", key))) for key in path[1:]))
    return [f"input_{name}" if name.isdigit() else name for name in names]


def import_module(model: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[str, dict[str, Tensor], list[str]]:
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
    for name, each in (*state.items(), *zip(_name_inputs(args, kwargs), inputs)):
        if each.device.type != "cpu":
            raise ValueError(f"{name}: found a tensor on {each.device.type}, needed one on the CPU")
    aten = torch.ops.aten
    table = {**get_decomposition_table(), aten.cumsum.default: _cumsum, aten.gelu.default: _gelu}
    # None is no leaf of a call that is exported.
    with torch.no_grad():
        call = _Stateless(model, list(state), leaves, spec)
        exported = torch.export.export(call, (list(state.values()), inputs), strict=False)
        try:
            module = fx.export_and_import(exported, output_type="linalg-on-tensors", decomposition_table=table)
        except Exception as error:
            reason = next((line for line in str(error).splitlines() if "error:" in line), str(error)[:500])
            raise _fovea.FoveaError(f"torch-mlir does not import {type(model).__name__}: {reason}") from error
    return str(module), state, _name_inputs(args, kwargs)


def to_numpy(tensor: Tensor) -> Any:
    if tensor.dtype == torch.bfloat16:
        return tensor.contiguous().view(torch.int16).numpy().view(_fovea.bfloat16())
    return tensor.numpy()
