# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Bytes as numbers of 32 bits: torch-mlir computes with those of `uint8` as if they had a sign, and those of `int8` end the process
where numbers of Python are beside them."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from ._dynamic import call_node, find_result

__all__ = ["widen_bytes"]

aten = torch.ops.aten

#: Operations that compute nothing, and conversions, which torch-mlir knows.
_MOVES = {
    getattr(aten, name)
    for name in "_to_copy _unsafe_view alias clone constant_pad_nd copy detach expand flatten flip gather index index_select "
    "lift_fresh_copy permute repeat reshape select slice split_with_sizes squeeze t transpose unflatten unsqueeze view".split()
}


def _is_bytes(node: Any) -> bool:
    value = node.meta.get("val") if isinstance(node, Node) else None
    return isinstance(value, Tensor) and value.dtype in (torch.uint8, torch.int8)


def _narrow(node: Node, dtype: torch.dtype) -> None:
    """What reads the node has its type of before."""
    if node.meta["val"].dtype == dtype:
        return
    with node.graph.inserting_after(node):
        copy = call_node(node.graph, aten._to_copy.default, node, dtype=dtype)
    node.replace_all_uses_with(copy, delete_user_cb=lambda user: user is not copy)


def widen_bytes(module: GraphModule) -> None:
    """Sums, products, comparisons and all other operations on bytes as those on integers that hold them."""
    graph = module.graph
    for node in list(graph.nodes):
        target = node.target
        if not isinstance(target, torch._ops.OpOverload) or target.namespace != "aten" or target.overloadpacket in _MOVES:
            continue
        numbers = target.overloadpacket is aten.arange and _is_bytes(node)
        if not numbers and not any(map(_is_bytes, node.all_input_nodes)):
            continue
        if numbers:
            node.update_kwarg("dtype", torch.int32)
        with graph.inserting_before(node):
            narrow = [each for each in node.all_input_nodes if _is_bytes(each)]
            wide = {each: call_node(graph, aten._to_copy.default, each, dtype=torch.int32) for each in narrow}
        for each, new in wide.items():
            node.replace_input_with(each, new)
        before = node.meta["val"]
        node.meta["val"] = before.to(torch.int32) if numbers else find_result(target, node.args, node.kwargs)
        node.meta.pop("tensor_meta", None)
        if isinstance(before, Tensor):
            _narrow(node, before.dtype)
            continue
        for user in list(node.users):
            if user.target is operator.getitem:
                user.meta["val"] = node.meta["val"][user.args[1]]
                user.meta.pop("tensor_meta", None)
                _narrow(user, before[user.args[1]].dtype)
    module.recompile()
