# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls of FlexAttention in exported programs as the package's own operators.

They compute what PyTorch does without a compiler: a `mask_mod` says all, and lists of blocks, which say the same, are not read.
"""

from __future__ import annotations

from typing import Any

from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from .. import _fovea
from ._complex import find_place
from ._flex import FLEX, read_flex

__all__ = ["write_flex"]


def _write(node: Node) -> None:
    found = read_flex(node, reads_lists=False)
    leaves, spec = pytree.tree_flatten(found.arguments)
    places = [number for number, each in enumerate(leaves) if isinstance(each, Node)]
    operands = [leaves[number] for number in places]

    def trace(*values: Any) -> Any:
        given = dict(zip(places, values))
        return found.module(*pytree.tree_unflatten([given.get(number, each) for number, each in enumerate(leaves)], spec))

    values = [each.meta["val"] for each in operands]
    with next(each.fake_mode for each in values if isinstance(each, FakeTensor)):
        traced = make_fx(trace)(*values)
    with node.graph.inserting_before(node):
        known = dict(zip(traced.graph.find_nodes(op="placeholder"), operands))
        results: Any = node.graph.graph_copy(traced.graph, known)
    for each in list(node.users):
        if each.users:
            each.replace_all_uses_with(results[each.args[1]])
        node.graph.erase_node(each)
    node.graph.erase_node(node)


def write_flex(module: GraphModule) -> None:
    for node in module.graph.find_nodes(op="call_function", target=FLEX):
        try:
            _write(node)
        except (ValueError, _fovea.FoveaError) as error:
            place = find_place(node.stack_trace, ", called at")
            raise _fovea.FoveaError(f"FlexAttention is no part of a whole program here: {error}{place}") from error
    module.recompile()
