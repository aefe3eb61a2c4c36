# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What nodes of Dynamo's graphs compute, and which of them write to tensors in place.

Tensors that share memory are told by the storages of the tensors without elements that
Dynamo keeps, so that a write through a view is one to all that it is a view of.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.utils._pytree import tree_leaves

__all__ = ["is_writer", "name_of", "shape_of", "value_of", "writers_between", "writers_of"]

# Functions of Python's module operator, as those of PyTorch are called.
_SPELLINGS = {
    "and_": "and", "iadd": "add_", "iand": "and_", "ifloordiv": "floor_divide_", "ilshift": "lshift_", "imatmul": "matmul_",
    "imod": "remainder_", "imul": "mul_", "ior": "or_", "ipow": "pow_", "irshift": "rshift_", "isub": "sub_", "itruediv": "div_",
    "ixor": "xor_", "multiply": "mul", "not_": "not", "or_": "or", "setitem": "setitem_", "special_softmax": "softmax",
    "subtract": "sub", "true_divide": "div", "truediv": "div",
}  # fmt: skip


def name_of(node: Any) -> str:
    """What a node computes, in one spelling; a name that ends in _ writes to its first argument."""
    if not isinstance(node, Node):
        return ""
    if node.op == "call_method":
        return _SPELLINGS.get(node.target.strip("_") if node.target.startswith("__") else node.target, node.target)
    if node.op != "call_function":
        return ""
    owner = getattr(node.target, "__module__", None) or "torch"
    if owner.split(".")[0] not in ("torch", "_operator"):
        return ""
    name = getattr(node.target, "__name__", "")
    return _SPELLINGS.get(name, name)


def value_of(node: Any) -> Any:
    """A tensor without elements, or what else is known of a node."""
    return node.meta.get("example_value") if isinstance(node, Node) else node


def shape_of(node: Any) -> tuple[Any, ...]:
    value = value_of(node)
    return tuple(value.shape) if isinstance(value, torch.Tensor) else ()


# ----------------------------------------------------------------------------
# Writing
# ----------------------------------------------------------------------------


def _is_told_to(node: Node) -> bool:
    """Functions of torch.nn.functional have a flag."""
    if "inplace" in node.kwargs:
        return node.kwargs["inplace"] is not False
    code = getattr(node.target, "__code__", None)
    names = code.co_varnames[: code.co_argcount] if code is not None else ()
    return "inplace" in names and node.args[names.index("inplace") :][:1] not in ((), (False,))


def _written_by(node: Node) -> list[Node]:
    """The arguments that a node writes to."""
    if node.op not in ("call_function", "call_method", "call_module"):
        return []
    written: list[Any] = [node.kwargs.get("out")]
    name = name_of(node)
    if isinstance(node.target, torch._ops.OpOverload):
        places = {each.name: place for place, each in enumerate(node.target._schema.arguments) if each.is_write}
        written += [node.args[place] for place in places.values() if place < len(node.args)]
        written += [value for each, value in node.kwargs.items() if each in places]
    elif not name or isinstance(node.target, torch._ops.OpOverloadPacket):
        # Functions of others may.
        written += node.all_input_nodes
    elif node.args and ((name.endswith("_") and not name.startswith("_")) or _is_told_to(node)):
        written.append(node.args[0])
    return [each for each in tree_leaves(written) if isinstance(each, Node)]


def is_writer(node: Node) -> bool:
    return bool(_written_by(node))


def _storages(node: Node) -> set[int]:
    tensors = [each for each in tree_leaves(value_of(node)) if isinstance(each, torch.Tensor)]
    return {each.untyped_storage()._cdata for each in tensors if each.layout == torch.strided}


class _Writers:
    """Who writes in a graph, in order, and to which storages."""

    def __init__(self, graph: Graph):
        self.order = {node: place for place, node in enumerate(graph.nodes)}
        written = ((node, _written_by(node)) for node in graph.nodes)
        self.storages: dict[Node, set[int]] = {node: set().union(*map(_storages, nodes)) for node, nodes in written if nodes}


_known: weakref.WeakKeyDictionary[Graph, _Writers] = weakref.WeakKeyDictionary()


def _writers(graph: Graph) -> _Writers:
    """Writers stay when attention is replaced, and none is added."""
    if graph not in _known:
        _known[graph] = _Writers(graph)
    return _known[graph]


def writers_of(node: Node) -> list[Node]:
    """Who writes to a tensor, or to one that shares its memory, in place."""
    own = _storages(node)
    return [writer for writer, storages in _writers(node.graph).storages.items() if own & storages]


def writers_between(first: Node, last: Node, node: Node | None = None) -> Iterator[Node]:
    """Who writes to the memory of `node`, or to anything, behind one node and before another."""
    writers = _writers(first.graph)
    start, end = writers.order[first], writers.order[last]
    for writer in writers.storages if node is None else writers_of(node):
        if start < writers.order[writer] < end:
            yield writer
