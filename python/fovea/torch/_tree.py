# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The functions of trees on tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from .. import _arguments as check
from .. import _fovea
from .. import tree as arrays
from .._documented import documented
from ._tape import check_tensor, make_call

__all__ = ["Tree", "tree_build", "tree_fetch", "tree_materialize", "tree_score", "tree_select", "tree_update"]


class Tree(arrays.Tree):
    """A tree of averages: as `fovea.Tree`, of tensors.  Gradients are those of `nodes`."""

    nodes: Any
    counts: Any

    def __init__(self, nodes: Tensor, counts: Tensor | None, ratio: int, levels: int):
        self.nodes, self.counts, self.ratio, self.levels = nodes, counts, ratio, levels


def _parts(tree: Tree) -> tuple[Any, ...]:
    if not isinstance(tree, Tree):
        raise ValueError(f"tree: found {type(tree).__name__}, needed a tree of fovea.torch.tree_build")
    return tree.nodes, tree.counts, tree.ratio, tree.levels


_tree_build = make_call("tree_build")
_tree_fetch = make_call("tree_fetch")
_tree_materialize = make_call("tree_materialize")
_tree_score = make_call("tree_score")
_tree_select = make_call("tree_select")
_tree_update = make_call("tree_update")


def _levels(tokens: int, ratio: int) -> int:
    """Of a tree with one root; where no number fits, the build refuses the nearest."""
    levels = 1
    while ratio > 1 and ratio**levels < tokens:
        levels += 1
    return levels


@documented(arrays.tree_build)
def tree_build(
    c: Tensor,
    *,
    ratio: int = 2,
    mask: Tensor | None = None,
    lengths: Tensor | None = None,
    levels: int | None = None,
    target: str | None = None,
) -> Tree:
    check_tensor("c", c)
    check.integer("ratio", ratio, 2)
    if levels is None:
        levels = _levels(c.shape[1], ratio)
    nodes, counts = _tree_build(c, ratio, levels, mask, lengths, target)
    return Tree(nodes, None if mask is None and lengths is None else counts, ratio, levels)


@documented(arrays.tree_fetch)
def tree_fetch(
    tree: Tree,
    level: Tensor,
    index: Tensor,
    *,
    return_log_weight: bool = False,
    whole_segments: bool = False,
    target: str | None = None,
) -> Any:
    rows, log_weight = _tree_fetch(*_parts(tree), level, index, whole_segments, target)
    return (rows, log_weight) if return_log_weight else rows


@documented(arrays.tree_update)
def tree_update(tree: Tree, level: Tensor, index: Tensor, rows: Tensor, *, target: str | None = None) -> Tree:
    nodes = _tree_update(*_parts(tree), level, index, rows, target)
    return Tree(nodes, tree.counts, tree.ratio, tree.levels)


@documented(arrays.tree_materialize)
def tree_materialize(tree: Tree, *, target: str | None = None) -> Tensor:
    return _tree_materialize(*_parts(tree), target)


@documented(arrays.tree_score)
def tree_score(
    query: Tensor,
    key: Tensor,
    *,
    scale: float | None = None,
    log_weight: Tensor | None = None,
    mask: Tensor | None = None,
    exponential: bool = False,
    target: str | None = None,
) -> Tensor:
    return _tree_score(query, key, scale, log_weight, mask, exponential, target)


@torch.compiler.disable
def _select_by_function(tree: Tree, budgets: Mapping[int, int], score: Any, target: str | None) -> Any:
    """A function of Python is called between kernels: no operator can hold it."""
    if isinstance(tree.nodes, FakeTensor) or torch._C._functorch.is_functorch_wrapped_tensor(tree.nodes):
        raise ValueError(
            "score: found a function, which torch.export, torch.func and torch.vmap do not trace: needed VIP rows, as those of "
            "selection='exponential'"
        )

    def scores(rows: Any, level: int) -> Tensor:
        with torch.no_grad():
            found = score(tree.level(level).detach() if rows is None else rows, level)
            check_tensor("score", found)
            return found.to(torch.float64)

    if target is None:
        target = "gpu" if tree.nodes.is_cuda else "cpu"
    nodes, *rest = _parts(tree)
    return _fovea.tensors.tree_select(nodes.detach(), *rest, dict(budgets), scores, target)


@documented(arrays.tree_select)
def tree_select(
    tree: Tree, budgets: Mapping[int, int], *, score: Any, target: str | None = None
) -> tuple[Tensor, Tensor]:
    arrays.check_budgets(budgets)
    if callable(score) and not isinstance(score, Tensor):
        return _select_by_function(tree, budgets, score, target)
    check_tensor("score", score)
    nodes, *rest = _parts(tree)
    pairs = [number for pair in sorted(budgets.items()) for number in pair]
    # What is chosen has no gradient.
    return _tree_select(nodes.detach(), *rest, pairs, score.detach(), target)
