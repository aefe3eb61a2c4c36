# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradients of the functions on trees, which are linear: their transposes.

All are sums over children and shares of parents, level by level, in time
O(nodes F): what `vjp` makes of the operations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import _arguments as check
from . import _fovea
from ._arguments import Tensor, tensor_type
from .compiler import _callables, check_target, remember
from .ops import _build
from .tree import Tree, _attribute, _check_tree, _describe, _lists

__all__ = [
    "tree_build_backward",
    "tree_fetch_backward",
    "tree_materialize_backward",
    "tree_update_backward",
]


def _gradient(name: str, array: Any, element: str, shape: tuple[int, ...]) -> Tensor:
    found = check.tensor(name, array, 3, f"{list(shape)}")
    check.element_type(found, element)
    check.match(name, "shape", found.shape, shape)
    return found


def _tensors(element: str, **arrays: Any) -> list[Tensor]:
    kinds = {"i": "i32", "b": "i1"}
    return [Tensor(n, kinds.get(a.dtype.kind, element), a.shape) for n, a in arrays.items()]


def _run(
    op: str,
    tree: Tree,
    arguments: Sequence[Any],
    gradient: Any,
    make: Callable[[], _fovea.Kernel],
    wanted: Sequence[int],
    target: str,
) -> Any:
    """Gradients of the kernel that `make` compiles, for its arguments `wanted`."""
    kinds = tuple((str(a.dtype), a.shape) for a in arguments)
    key = (op, "vjp", target, tree.ratio, tree.levels, kinds)
    check_target(target)  # first: what is no target may not be hashable either
    kernel = _callables.get(key)
    if kernel is None:
        kernel = make().vjp(wanted)
        remember(key, kernel)
    return kernel(*arguments, gradient)


# ----------------------------------------------------------------------------
# Functions
# ----------------------------------------------------------------------------


def tree_build_backward(d_tree: Any, tree: Tree, *, target: str = "cpu") -> Any:
    """The gradient [B,N,F] of the sequence that `tree` was built of, from that of
    its nodes, d_tree [B,n,F]."""
    tree = _check_tree(tree)
    element, type = _describe(tree)
    _gradient("d_tree", d_tree, element, tree.nodes.shape)
    # What the sequence was does not matter.
    arrays = {"c": np.empty(tree.shape, tree.dtype)}
    results = [type]
    if tree.counts is not None:
        arrays["mask"] = tree.counts[:, tree.slice(0)] > 0
        results.append(tensor_type("i32", tree.counts.shape))

    def make() -> _fovea.Kernel:
        c, *mask = _tensors(element, **arrays)
        outs, attributes = [("outs", results)], [_attribute(tree.ratio, tree.levels)]
        return _build("tree_build", [c], [("mask", mask)], outs, attributes, target)

    return _run("tree_build", tree, list(arrays.values()), d_tree, make, [0], target)


def tree_materialize_backward(d_c: Any, tree: Tree, *, target: str = "cpu") -> Any:
    """The gradient [B,n,F] of the nodes of a tree, from that of the sequence that
    it stands for, d_c [B,N,F]."""
    tree = _check_tree(tree)
    element, _ = _describe(tree)
    gradient = _gradient("d_c", d_c, element, tree.shape)

    def make() -> _fovea.Kernel:
        outs, attributes = [("outs", [gradient.type])], [_attribute(tree.ratio, tree.levels)]
        inputs = _tensors(element, tree=tree.nodes)
        return _build("tree_materialize", inputs, (), outs, attributes, target)

    return _run("tree_materialize", tree, [tree.nodes], d_c, make, [0], target)


def tree_fetch_backward(
    d_rows: Any, tree: Tree, level: Any, index: Any, *, target: str = "cpu"
) -> Any:
    """The gradient [B,n,F] of the nodes of a tree, from that of the rows of nodes
    (level, index), d_rows [B,r,F]."""
    tree = _check_tree(tree)
    level, index = _lists(tree, level, index)
    element, _ = _describe(tree)
    gradient = _gradient("d_rows", d_rows, element, (*level.shape, tree.shape[2]))

    def make() -> _fovea.Kernel:
        nodes, *lists = _tensors(element, tree=tree.nodes, level=level, index=index)
        outs, attributes = [("outs", [gradient.type])], [_attribute(tree.ratio, tree.levels)]
        return _build("tree_fetch", [nodes], [("nodes", lists)], outs, attributes, target)

    return _run("tree_fetch", tree, [tree.nodes, level, index], d_rows, make, [0], target)


def tree_update_backward(
    d_tree: Any, tree: Tree, level: Any, index: Any, *, target: str = "cpu"
) -> tuple[Any, Any]:
    """The gradients [B,n,F] of the nodes of the tree before an update, and [B,r,F]
    of its new rows, from that of the nodes after it, d_tree [B,n,F]."""
    tree = _check_tree(tree)
    level, index = _lists(tree, level, index)
    element, type = _describe(tree)
    _gradient("d_tree", d_tree, element, tree.nodes.shape)
    arrays = {"tree": tree.nodes, "rows": np.empty((*level.shape, tree.shape[2]), tree.dtype)}
    arrays.update(level=level, index=index)
    if tree.counts is not None:
        arrays["counts"] = tree.counts

    def make() -> _fovea.Kernel:
        nodes, rows, level, index, *counts = _tensors(element, **arrays)
        parameters = ", ".join(f"{t.value}: {t.type}" for t in (nodes, rows, level, index, *counts))
        clause = "".join(f" counts({t.value} : {t.type})" for t in counts)
        return _fovea.compile(
            f"func.func @tree_update({parameters}) -> {type} {{\n"
            f"  %r = attn.tree_update ins(%rows : {rows.type})"
            f" nodes(%level, %index : {level.type}, {index.type}){clause} outs(%tree : {type})\n"
            f"      {{{_attribute(tree.ratio, tree.levels)}}} -> {type}\n"
            f"  return %r : {type}\n}}\n",
            target,
            "native",
            None,
        )

    return tuple(_run("tree_update", tree, list(arrays.values()), d_tree, make, [0, 1], target))
