# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trees of averages: long sequences, compressed around a few VIP tokens.

    tree = fovea.tree_build(c, ratio=16, levels=1)
    level, index = fovea.tree_select(tree, {1: 90}, score=vip)
    rows, log_weight = fovea.tree_fetch(tree, level, index, return_log_weight=True)
    ...                                        # a layer over VIP tokens and rows
    tree = fovea.tree_update(tree, level, index, new_rows)
    c = fovea.tree_materialize(tree)

Node x of level l stands for tokens x ratio^l up to (x + 1) ratio^l, and its row
is their mean.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from . import _arguments as check
from . import _fovea

__all__ = [
    "Tree",
    "tree_build",
    "tree_build_backward",
    "tree_fetch",
    "tree_fetch_backward",
    "tree_materialize",
    "tree_materialize_backward",
    "tree_score",
    "tree_score_backward",
    "tree_select",
    "tree_update",
    "tree_update_backward",
]


class Tree:
    """A tree of averages, as `tree_build` and `tree_update` return it.

    `nodes` [B,n,F] holds the rows of the roots and then, level by level, each
    parent's row minus the node's own; `counts` [B,n] (int32, None without a
    padding mask) how many tokens of each node are present.  `level(l)` is the
    part of `nodes` that belongs to a level, as a view.  From the same four it is
    made again, where they have been stored.
    """

    def __init__(self, nodes: np.ndarray, counts: np.ndarray | None, ratio: int, levels: int):
        # Nodes may lie on a GPU, whatever runs on them.
        _fovea.tree_check(nodes, counts, ratio, levels, "gpu")
        ratio, levels = operator.index(ratio), operator.index(levels)
        self.nodes, self.counts, self.ratio, self.levels = nodes, counts, ratio, levels

    @property
    def roots(self) -> int:
        """Nodes of the top level."""
        return self.nodes.shape[1] * (self.ratio - 1) // (self.ratio ** (self.levels + 1) - 1)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of the sequence: (B, N, F)."""
        batch, _, width = self.nodes.shape
        return batch, self.roots * self.ratio**self.levels, width

    @property
    def dtype(self) -> Any:
        return self.nodes.dtype

    def slice(self, level: int) -> slice:
        """Where a level lies among the nodes."""
        if check.integer("level", level, 0) > self.levels:
            raise ValueError(f"level: found {level}, needed 0 to {self.levels}")
        above = self.ratio ** (self.levels - level)
        first = self.roots * (above - 1) // (self.ratio - 1)
        return slice(first, first + self.roots * above)

    def level(self, level: int) -> Any:
        return self.nodes[:, self.slice(level)]

    def __repr__(self) -> str:
        batch, tokens, width = self.shape
        return (
            f"Tree({batch} x {tokens} tokens x {width}, ratio={self.ratio}, "
            f"levels={self.levels}, {self.dtype})"
        )


# ----------------------------------------------------------------------------
# Arguments
# ----------------------------------------------------------------------------


def _parts(tree: Any) -> tuple[Any, ...]:
    if not isinstance(tree, Tree):
        raise ValueError(f"tree: found {type(tree).__name__}, needed a tree of tree_build")
    return tree.nodes, tree.counts, tree.ratio, tree.levels


def _memory(out: Any) -> Any:
    """Where nodes and counts go, which may be those of a tree."""
    if not isinstance(out, Tree):
        return out
    return out.nodes if out.counts is None else (out.nodes, out.counts)


def _integers(name: str, values: Any) -> Any:
    array = check.to_readable(name, values)
    if not isinstance(array, np.ndarray):
        return array
    if array.dtype.kind not in "iu" and array.size:
        raise ValueError(f"{name}: found element type {array.dtype}, needed integers")
    return array.astype(np.int64, copy=False)


def _nodes(level: Any, index: Any) -> tuple[Any, Any]:
    return _integers("level", level), _integers("index", index)


# ----------------------------------------------------------------------------
# Functions
# ----------------------------------------------------------------------------


def tree_build(
    c: Any,
    *,
    ratio: int = 2,
    mask: Any = None,
    lengths: Any = None,
    levels: int | None = None,
    out: Any = None,
    target: str = "cpu",
) -> Tree:
    """The tree of averages of a sequence c [B,N,F].

    N must be a power of `ratio`: the tree has one root.  With `levels`, the top
    level has N / ratio^levels roots, and N must be a multiple of ratio^levels:
    `levels=1` is the form with two resolutions.  `mask` [B,N], if any, is true
    for the tokens that are present, or `lengths` [B] says how many are, from the
    first; padding does not count in any mean.

    From "VCC" (arXiv:2305.04241).
    """
    present = check.tokens(mask, lengths)
    nodes, counts, levels = _fovea.tree_build(c, ratio, levels, *present, target, out=_memory(out))
    return Tree(nodes, counts, ratio, levels)


def tree_fetch(
    tree: Tree,
    level: Any,
    index: Any,
    *,
    return_log_weight: bool = False,
    whole_segments: bool = False,
    out: Any = None,
    target: str = "cpu",
) -> Any:
    """Rows [B,r,F] of the nodes (level, index), each [r] or [B,r].

    With `return_log_weight`, also the logarithms of how many tokens the nodes
    stand for, [B,r]: -inf for a node of padding alone.  Tokens are those that are
    present or, with `whole_segments`, all of a node with one that is, as the authors'
    code has it.  Where both level and index
    are -1, a node is absent: its row is zeros, its logarithm -inf.
    """
    nodes = _nodes(level, index)
    return _fovea.tree_fetch(
        *_parts(tree), *nodes, return_log_weight, whole_segments, target, out=out
    )


def tree_update(
    tree: Tree, level: Any, index: Any, rows: Any, *, out: Any = None, target: str = "cpu"
) -> Tree:
    """The tree after its nodes (level, index) have moved to `rows` [B,r,F].

    Every token under a node moves with it.  The nodes must cover the sequence
    without overlap, as those of `tree_select` do.  Rows of nodes of padding alone
    and of absent ones (-1) are ignored.  The given tree does not change.
    """
    memory = out.nodes if isinstance(out, Tree) else out
    nodes = _fovea.tree_update(*_parts(tree), *_nodes(level, index), rows, target, out=memory)
    return Tree(nodes, tree.counts, tree.ratio, tree.levels)


def tree_materialize(tree: Tree, *, out: Any = None, target: str = "cpu") -> np.ndarray:
    """The sequence [B,N,F] that a tree stands for."""
    return _fovea.tree_materialize(*_parts(tree), target, out=out)


# ----------------------------------------------------------------------------
# Selection
# ----------------------------------------------------------------------------


def tree_score(
    query: Any,
    key: Any,
    *,
    scale: float | None = None,
    log_weight: Any = None,
    mask: Any = None,
    exponential: bool = False,
    out: Any = None,
    target: str = "cpu",
) -> np.ndarray:
    """How much VIP tokens look at candidates, [B,c], for use in a `score`.

    `query` [B,H,np,D] are the VIP tokens' queries and `key` [B,G,c,D] the
    candidates' keys, of the heads of a layer.  The score is the probability that
    attention gives to a candidate, averaged over heads and VIP tokens.
    `log_weight` [B,c] is added to the scores; `mask` [B,np] is true for the VIP
    tokens that are present.  With `exponential`, for one head: the logarithm of (53),
    sum_i exp(query_i . key).
    """
    mask, _ = check.tokens(mask, None)
    return _fovea.tree_score(query, key, scale, log_weight, mask, exponential, target, out=out)


def tree_score_backward(
    d_score: Any,
    query: Any,
    key: Any,
    *,
    scale: float | None = None,
    log_weight: Any = None,
    mask: Any = None,
    exponential: bool = False,
    gradients: Any = None,
    target: str = "cpu",
) -> tuple[Any, ...]:
    """Gradients of `tree_score`: (d_query, d_key), and d_log_weight if there was one.

    `d_score` [B,c] is the gradient for the scores of all candidates.  What
    `tree_select` chooses by them has none: a straight-through estimator, which lets
    the chosen nodes' rows pass their gradients to the scores, gives them here.
    """
    mask, _ = check.tokens(mask, None)
    return _fovea.tree_score_backward(
        d_score, query, key, scale, log_weight, mask, exponential, target, gradients=gradients
    )


def _checked(tree: Tree, score: Callable[[Any, int], Any]) -> Callable[[Any, int], np.ndarray]:
    """A score that gives float64, and gets the rows of roots from the tree."""

    def call(rows: Any, level: int) -> np.ndarray:
        scores = check.to_numpy("score", score(tree.level(level) if rows is None else rows, level))
        if scores.dtype.kind not in "fiu" and scores.dtype.name != "bfloat16":
            raise ValueError(f"score: found element type {scores.dtype}, needed numbers")
        return np.ascontiguousarray(scores, np.float64)

    return call


def check_budgets(budgets: Any) -> None:
    if not isinstance(budgets, Mapping):
        raise ValueError(
            f"budgets: found {type(budgets).__name__}, needed a dictionary {{level: nodes to split}}"
        )


def tree_select(
    tree: Tree, budgets: Mapping[int, int], *, score: Any, out: Any = None, target: str = "cpu"
) -> tuple[np.ndarray, np.ndarray]:
    """The nodes at which a sequence is read: level and index, [B,r] each.

    From the roots down, at each level l the `budgets[l]` candidates of highest
    score are split into their children, the candidates of the next level (ties:
    lower index; NaN is lowest).  Levels without a budget are not split.  The
    nodes that are left cover the sequence, and are listed in its order.

    `score` is a function (rows [B,c,F], level) -> [B,c], called where some
    candidates are split and some are not, or VIP rows [B,np,F] for (53), the sum
    over VIP rows P_i of exp(P_i . row).

    Nodes of padding alone are never split.  A sequence that has fewer candidates
    with tokens than a budget splits all of them, and what its lists lack is absent:
    -1, at the end.  The scores of absent candidates, whose rows are zeros, do not
    matter.
    """
    parts = _parts(tree)
    check_budgets(budgets)
    score = _checked(tree, score) if callable(score) else score
    return _fovea.tree_select(*parts, dict(budgets), score, target, out=out)


# ----------------------------------------------------------------------------
# Gradients
# ----------------------------------------------------------------------------


def tree_build_backward(d_tree: Any, tree: Tree, *, out: Any = None, target: str = "cpu") -> Any:
    """The gradient [B,N,F] of the sequence that `tree` was built of, from that of
    its nodes, d_tree [B,n,F]."""
    return _fovea.tree_build_backward(d_tree, *_parts(tree), target, out=out)


def tree_materialize_backward(d_c: Any, tree: Tree, *, out: Any = None, target: str = "cpu") -> Any:
    """The gradient [B,n,F] of the nodes of a tree, from that of the sequence that
    it stands for, d_c [B,N,F]."""
    return _fovea.tree_materialize_backward(d_c, *_parts(tree), target, out=out)


def tree_fetch_backward(
    d_rows: Any, tree: Tree, level: Any, index: Any, *, out: Any = None, target: str = "cpu"
) -> Any:
    """The gradient [B,n,F] of the nodes of a tree, from that of the rows of nodes
    (level, index), d_rows [B,r,F]."""
    return _fovea.tree_fetch_backward(d_rows, *_parts(tree), *_nodes(level, index), target, out=out)


def tree_update_backward(
    d_tree: Any, tree: Tree, level: Any, index: Any, *, gradients: Any = None, target: str = "cpu"
) -> tuple[Any, Any]:
    """The gradients [B,n,F] of the nodes of the tree before an update, and [B,r,F]
    of its new rows, from that of the nodes after it, d_tree [B,n,F]."""
    return _fovea.tree_update_backward(
        d_tree, *_parts(tree), *_nodes(level, index), target, gradients=gradients
    )
