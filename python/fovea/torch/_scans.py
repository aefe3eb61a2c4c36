# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What came before of extents that are not known, as operators that only programs have: torch-mlir keeps them by their names."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.fx import Node

from .._scans import Scan

__all__ = ["find_scan", "log_sum_exp_so_far", "extremum_so_far"]

_NAMESPACE = "fovea_scan"
_library = torch.library.Library(_NAMESPACE, "DEF")
for _name in ("max", "min"):
    _library.define(f"{_name}(Tensor x, int dim) -> (Tensor, Tensor)")
    _library.impl(_name, lambda x, dim: (_like(x, x.dtype), _like(x, torch.int64)), "Meta")
_library.define("logsumexp(Tensor x, int dim) -> Tensor")
_library.impl("logsumexp", lambda x, dim: _like(x, x.dtype), "Meta")


def _like(x: Tensor, dtype: torch.dtype) -> Tensor:
    return x.new_empty(x.shape, dtype=dtype)


def extremum_so_far(x: Tensor, dim: int, kind: str) -> tuple[Tensor, Tensor]:
    operators = torch.ops.fovea_scan
    return (operators.max if kind == "max" else operators.min)(x, dim % x.dim())


def log_sum_exp_so_far(x: Tensor, dim: int) -> Tensor:
    return torch.ops.fovea_scan.logsumexp(x, dim % x.dim())


def find_scan(node: Node) -> Scan | None:
    if node.op != "call_function" or getattr(node.target, "namespace", None) != _NAMESPACE:
        return None
    x, dim = node.args
    has_sign = x.meta["val"].dtype not in (torch.uint8, torch.bool)
    return Scan(node.target._schema.name.removeprefix(f"{_NAMESPACE}::"), dim, has_sign)
