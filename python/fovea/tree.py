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

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from . import _arguments as check
from . import _fovea
from ._arguments import state_type, tensor_type
from .compiler import _callables, check_target, remember

__all__ = [
    "Tree",
    "tree_build",
    "tree_fetch",
    "tree_materialize",
    "tree_score",
    "tree_select",
    "tree_update",
]

_MAX_NODES = 2**31 - 1


class Tree:
    """A tree of averages, as `tree_build` and `tree_update` return it.

    `nodes` [B,n,F] holds the rows of the roots and then, level by level, each
    parent's row minus the node's own; `counts` [B,n] (int32, None without a
    padding mask) how many tokens of each node are present.  `level(l)` is the
    part of `nodes` that belongs to a level, as a view.  From the same four it is
    made again, where they have been stored.
    """

    def __init__(self, nodes: np.ndarray, counts: np.ndarray | None, ratio: int, levels: int):
        ratio = check.integer("ratio", ratio, 2)
        levels = check.integer("levels", levels, 1)
        batch, rows, width = check.tensor("nodes", nodes, 3, "[B,n,F]").shape
        under = _nodes_under_root(ratio, levels)
        if rows == 0 or width == 0 or under is None or rows % under:
            raise ValueError(
                f"nodes: found shape {[batch, rows, width]}, needed the nodes of a tree of "
                f"ratio {ratio} with {levels} levels"
            )
        if counts is not None:
            element, shape = _fovea.describe("counts", counts)
            check.match("counts", "element type", check.TYPE_NAMES[element], "int32")
            check.match("counts", "shape", shape, (batch, rows))
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
        if not 0 <= level <= self.levels:
            raise ValueError(f"level: found {level}, needed 0 to {self.levels}")
        above = self.ratio ** (self.levels - level)
        first = self.roots * (above - 1) // (self.ratio - 1)
        return slice(first, first + self.roots * above)

    def level(self, level: int) -> np.ndarray:
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


def _nodes_under_root(ratio: int, levels: int) -> int | None:
    """The root included; None if there are more than a tree may have."""
    # Before a power that nobody could wait for.
    if levels > _MAX_NODES.bit_length() or ratio**levels > _MAX_NODES:
        return None
    return (ratio ** (levels + 1) - 1) // (ratio - 1)


def _check_tree(tree: Any) -> Tree:
    if not isinstance(tree, Tree):
        raise ValueError(f"tree: found {type(tree).__name__}, needed a tree of tree_build")
    return tree


def _integers(name: str, values: Any) -> np.ndarray:
    array = check.to_numpy(name, values)
    if array.dtype.kind not in "iu" and array.size:
        raise ValueError(f"{name}: found element type {array.dtype}, needed integers")
    return array


def _lists(tree: Tree, level: Any, index: Any) -> tuple[np.ndarray, np.ndarray]:
    """Two int32 arrays [B,r] of nodes that the tree has, or -1 in both where there is none."""
    level, index = _integers("level", level), _integers("index", index)
    batch, tokens, _ = tree.shape
    for name, array in (("level", level), ("index", index)):
        if array.ndim not in (1, 2) or (array.ndim == 2 and array.shape[0] != batch):
            raise ValueError(
                f"{name}: found shape {list(array.shape)}, needed [r] or [{batch}, r]"
            )
    if level.shape[-1] != index.shape[-1]:
        raise ValueError(
            f"index: found {index.shape[-1]} nodes, needed {level.shape[-1]}, as in level"
        )
    shape = (batch, level.shape[-1])
    level = np.broadcast_to(level, shape).astype(np.int64)
    index = np.broadcast_to(index, shape).astype(np.int64)
    absent = (level == -1) & (index == -1)
    _check_range("level", level, np.full(shape, tree.levels), absent)
    _check_range("index", index, tokens // tree.ratio ** np.maximum(level, 0) - 1, absent)
    return level.astype(np.int32), index.astype(np.int32)


def _check_range(name: str, found: np.ndarray, most: np.ndarray, absent: np.ndarray) -> None:
    wrong = np.argwhere(~absent & ((found < 0) | (found > most)))
    if len(wrong):
        at = tuple(wrong[0])
        raise ValueError(
            f"{name}[{at[0]}, {at[1]}]: found {found[at]}, needed 0 to {most[at]}"
        )


def _check_cover(tree: Tree, level: np.ndarray, index: np.ndarray) -> None:
    """The nodes must cover every sequence, one after the other; absent ones come last."""
    there = level >= 0
    size = np.where(there, tree.ratio ** np.maximum(level, 0).astype(np.int64), 0)
    first = index * size
    tokens = tree.shape[1]
    ends = np.cumsum(size, axis=1)
    wrong = np.argwhere(there & (first != ends - size))
    if len(wrong):
        b, j = wrong[0]
        what = "overlaps an earlier one" if first[b, j] < ends[b, j] - size[b, j] else "leaves a gap"
        raise ValueError(
            f"index[{b}, {j}]: found node {index[b, j]} of level {level[b, j]}, which {what}; "
            f"needed one that begins at token {ends[b, j] - size[b, j]}"
        )
    covered = ends[:, -1] if level.shape[1] else np.zeros(len(level), np.int64)
    for b, end in enumerate(covered):
        if end != tokens:
            raise ValueError(
                f"index: found nodes that cover {end} tokens of batch entry {b}, "
                f"needed all {tokens}"
            )


# ----------------------------------------------------------------------------
# Kernels
# ----------------------------------------------------------------------------


def _attribute(ratio: int, levels: int) -> str:
    return f"shape = #attn.tree<ratio = {ratio}, levels = {levels}>"


def _compile(key: tuple[Any, ...], make: Callable[[], tuple[Any, ...]], target: str) -> Any:
    """The kernel for `key`; `make` returns what the IR consists of: arguments as
    (name, type), the clauses of the operation, results as types, attributes."""
    check_target(target)  # first: what is no target may not be hashable either
    kernel = _callables.get(key)
    if kernel is None:
        op, arguments, clauses, results, attributes, read = make()
        parameters = ", ".join(f"%{name}: {type}" for name, type in arguments)
        types = ", ".join(results)
        # A destination that is read is an argument, the others are new.
        inits = [f"%{read}"] if read else [f"%init{i}" for i in range(len(results))]
        body = "" if read else "".join(
            f"  {init} = tensor.empty() : {type}\n" for init, type in zip(inits, results)
        )
        known = dict(arguments)
        operands = " ".join(
            f"{clause}({', '.join('%' + name for name in names)} : "
            f"{', '.join(known[name] for name in names)})"
            for clause, names in clauses
        )
        out = "%out" if len(results) == 1 else f"%out:{len(results)}"
        outs = ", ".join("%out" if len(results) == 1 else f"%out#{i}" for i in range(len(results)))
        text = (
            f"func.func @{op}({parameters}) -> ({types}) {{\n{body}"
            f"  {out} = attn.{op} {operands} outs({', '.join(inits)} : {types})\n"
            f"      {{{', '.join(attributes)}}} -> {types}\n"
            f"  return {outs} : {types}\n}}\n"
        )
        kernel = _fovea.compile(text, target, "native", None)
        remember(key, kernel)
    return kernel


def _describe(tree: Tree) -> tuple[str, str]:
    """The element type of a tree and the type of its nodes in IR."""
    element, shape = _fovea.describe("tree", tree.nodes)
    return element, tensor_type(element, shape)


def tree_build(
    c: Any,
    *,
    ratio: int = 2,
    mask: Any = None,
    levels: int | None = None,
    target: str = "cpu",
) -> Tree:
    """The tree of averages of a sequence c [B,N,F].

    N must be a power of `ratio`: the tree has one root.  With `levels`, the top
    level has N / ratio^levels roots, and N must be a multiple of ratio^levels:
    `levels=1` is the form with two resolutions.  `mask` [B,N], if any, is true
    for the tokens that are present; padding does not count in any mean.

    From "VCC" (arXiv:2305.04241).
    """
    tokens = check.tensor("c", c, 3, "[B,N,F]")
    ratio = check.integer("ratio", ratio, 2)
    batch, length, width = tokens.shape
    if width == 0:
        raise ValueError("c: found width 0, needed at least 1")
    if levels is None:
        levels, size = 1, ratio
        while size < length:
            levels, size = levels + 1, size * ratio
        if size != length:
            raise ValueError(
                f"c: found {length} tokens, needed a power of the ratio {ratio}, or levels"
            )
    else:
        levels = check.integer("levels", levels, 1)
        fits = _nodes_under_root(ratio, levels) is not None
        if not fits or length == 0 or length % ratio**levels:
            raise ValueError(
                f"c: found {length} tokens, needed a multiple of {ratio}^{levels}"
            )
    roots = length // ratio**levels
    nodes = roots * (ratio ** (levels + 1) - 1) // (ratio - 1)
    if nodes > _MAX_NODES:
        raise ValueError(f"c: found {length} tokens, needed a tree of at most {_MAX_NODES} nodes")
    arrays = [c]
    if mask is not None:
        mask = check.to_numpy("mask", mask)
        if mask.dtype != np.bool_ and not np.isin(mask, (0, 1)).all():
            raise ValueError("mask: found values other than 0 and 1, needed booleans")
        check.match("mask", "shape", tuple(mask.shape), (batch, length))
        mask = mask.astype(np.bool_)
        arrays.append(mask)

    def make() -> tuple[Any, ...]:
        arguments, clauses = [("c", tokens.type)], [("ins", ["c"])]
        results = [tensor_type(tokens.element, (batch, nodes, width))]
        if mask is not None:
            arguments.append(("mask", tensor_type("i1", (batch, length))))
            clauses.append(("mask", ["mask"]))
            results.append(tensor_type("i32", (batch, nodes)))
        return "tree_build", arguments, clauses, results, [_attribute(ratio, levels)], None

    key = ("tree_build", target, tokens.element, tokens.shape, ratio, levels, mask is None)
    found = _compile(key, make, target)(*arrays)
    nodes_array, counts = (found, None) if mask is None else found
    return Tree(nodes_array, counts, ratio, levels)


def tree_fetch(
    tree: Tree,
    level: Any,
    index: Any,
    *,
    return_log_weight: bool = False,
    target: str = "cpu",
) -> Any:
    """Rows [B,r,F] of the nodes (level, index), each [r] or [B,r].

    With `return_log_weight`, also the logarithms of how many tokens the nodes
    stand for, [B,r]: -inf for a node of padding alone.  Where both level and index
    are -1, a node is absent: its row is zeros, its logarithm -inf.
    """
    check.flags(return_log_weight=return_log_weight)
    tree = _check_tree(tree)
    level, index = _lists(tree, level, index)
    return _fetch(tree, level, index, bool(return_log_weight), target)


def _fetch(
    tree: Tree, level: np.ndarray, index: np.ndarray, return_log_weight: bool, target: str
) -> Any:
    element, type = _describe(tree)
    batch, _, width = tree.shape
    listed = level.shape[1]

    def make() -> tuple[Any, ...]:
        list_type = tensor_type("i32", level.shape)
        arguments = [("tree", type), ("level", list_type), ("index", list_type)]
        clauses = [("ins", ["tree"]), ("nodes", ["level", "index"])]
        if tree.counts is not None:
            arguments.append(("counts", tensor_type("i32", tree.counts.shape)))
            clauses.append(("counts", ["counts"]))
        results = [tensor_type(element, (batch, listed, width))]
        if return_log_weight:
            results.append(tensor_type(state_type(element), (batch, listed)))
        attributes = [_attribute(tree.ratio, tree.levels)]
        return "tree_fetch", arguments, clauses, results, attributes, None

    key = (
        "tree_fetch", target, type, tree.ratio, tree.levels, listed, tree.counts is None,
        return_log_weight,
    )  # fmt: skip
    arrays = [tree.nodes, level, index] + ([] if tree.counts is None else [tree.counts])
    return _compile(key, make, target)(*arrays)


def tree_update(tree: Tree, level: Any, index: Any, rows: Any, *, target: str = "cpu") -> Tree:
    """The tree after its nodes (level, index) have moved to `rows` [B,r,F].

    Every token under a node moves with it.  The nodes must cover the sequence
    without overlap, as those of `tree_select` do.  Rows of nodes of padding alone
    and of absent ones (-1) are ignored.  The given tree does not change.
    """
    tree = _check_tree(tree)
    level, index = _lists(tree, level, index)
    batch, _, width = tree.shape
    new = check.tensor("rows", rows, 3, "[B,r,F]")
    element, type = _describe(tree)
    check.element_type(new, element)
    check.match("rows", "shape", new.shape, (batch, level.shape[1], width))
    first = index * tree.ratio ** np.maximum(level, 0).astype(np.int64)
    first = np.where(level < 0, tree.shape[1], first)
    if (np.diff(first, axis=1) < 0).any():
        order = np.argsort(first, axis=1, kind="stable")
        level, index = (np.take_along_axis(array, order, 1) for array in (level, index))
        rows = np.take_along_axis(check.to_numpy("rows", rows), order[:, :, None], 1)
    _check_cover(tree, level, index)

    def make() -> tuple[Any, ...]:
        list_type = tensor_type("i32", level.shape)
        arguments = [("rows", new.type), ("level", list_type), ("index", list_type)]
        clauses = [("ins", ["rows"]), ("nodes", ["level", "index"])]
        if tree.counts is not None:
            arguments.append(("counts", tensor_type("i32", tree.counts.shape)))
            clauses.append(("counts", ["counts"]))
        arguments.append(("tree", type))
        attributes = [_attribute(tree.ratio, tree.levels)]
        return "tree_update", arguments, clauses, [type], attributes, "tree"

    key = (
        "tree_update", target, type, tree.ratio, tree.levels, level.shape[1],
        tree.counts is None,
    )  # fmt: skip
    counts = [] if tree.counts is None else [tree.counts]
    nodes = _compile(key, make, target)(rows, level, index, *counts, tree.nodes)
    return Tree(nodes, tree.counts, tree.ratio, tree.levels)


def tree_materialize(tree: Tree, *, target: str = "cpu") -> np.ndarray:
    """The sequence [B,N,F] that a tree stands for."""
    tree = _check_tree(tree)
    element, type = _describe(tree)

    def make() -> tuple[Any, ...]:
        results = [tensor_type(element, tree.shape)]
        attributes = [_attribute(tree.ratio, tree.levels)]
        return "tree_materialize", [("tree", type)], [("ins", ["tree"])], results, attributes, None

    key = ("tree_materialize", target, type, tree.ratio, tree.levels)
    return _compile(key, make, target)(tree.nodes)


# ----------------------------------------------------------------------------
# Selection
# ----------------------------------------------------------------------------


def tree_score(
    query: Any,
    key: Any,
    *,
    scale: float | None = None,
    log_weight: Any = None,
    exponential: bool = False,
    target: str = "cpu",
) -> np.ndarray:
    """How much VIP tokens look at candidates, [B,c], for use in a `score`.

    `query` [B,H,np,D] are the VIP tokens' queries and `key` [B,G,c,D] the
    candidates' keys, of the heads of a layer.  The score is the probability that
    attention gives to a candidate, averaged over heads and VIP tokens.
    `log_weight` [B,c] is added to the scores.  With `exponential`, for one head:
    the logarithm of (53), sum_i exp(query_i . key).
    """
    queries = check.tensor("query", query, 4, "[B,H,np,D]")
    keys = check.tensor("key", key, 4, "[B,G,c,D]")
    check.element_type(keys, queries.element)
    check.match("key", "batch", keys.shape[0], queries.shape[0])
    check.match("key", "head width", keys.shape[3], queries.shape[3])
    if queries.shape[3] == 0:
        raise ValueError("query: found width 0, needed at least 1")
    check.flags(exponential=exponential)
    exponential = bool(exponential)
    heads, groups = queries.shape[1], keys.shape[1]
    if groups == 0 or heads == 0 or heads % groups:
        raise ValueError(f"key: found {groups} heads, needed a divisor of the {heads} of query")
    if exponential and heads != 1:
        raise ValueError(f"query: found {heads} heads, needed 1 with exponential")
    if exponential and log_weight is not None:
        raise ValueError("log_weight: found one, needed none with exponential")
    scale = check.scale(scale, queries.shape[3])
    state = state_type(queries.element)
    shape = (keys.shape[0], keys.shape[2])
    arrays = [query, key]
    if log_weight is not None:
        weight = check.tensor("log_weight", log_weight, 2, "[B,c]")
        check.element_type(weight, state)
        check.match("log_weight", "shape", weight.shape, shape)
        arrays.append(log_weight)

    def make() -> tuple[Any, ...]:
        arguments = [("query", queries.type), ("key", keys.type)]
        clauses = [("ins", ["query", "key"])]
        result = tensor_type(state, shape)
        if log_weight is not None:
            arguments.append(("weight", result))
            clauses.append(("log_weight", ["weight"]))
        attributes = [f"scale = {scale:.17e} : f64"] + ["exponential"] * exponential
        return "tree_score", arguments, clauses, [result], attributes, None

    found = ("tree_score", target, queries.type, keys.type, log_weight is None, scale, exponential)
    return _compile(found, make, target)(*arrays)


def _check_budgets(tree: Tree, budgets: Any) -> list[int]:
    """Nodes to split by level, level 1 first."""
    if not isinstance(budgets, Mapping):
        raise ValueError(
            f"budgets: found {type(budgets).__name__}, needed a dictionary {{level: nodes to split}}"
        )
    checked = [0] * tree.levels
    for level, budget in budgets.items():
        found = check.integer("budgets", level, 0)
        if not 1 <= found <= tree.levels:
            raise ValueError(f"budgets: found level {found}, needed 1 to {tree.levels}")
        checked[found - 1] = check.integer(f"budgets[{found}]", budget, 0)
    candidates = tree.roots
    for level in range(tree.levels, 0, -1):
        if checked[level - 1] > candidates:
            raise ValueError(
                f"budgets[{level}]: found {checked[level - 1]}, needed at most {candidates}, "
                f"the candidates of level {level}"
            )
        candidates = checked[level - 1] * tree.ratio
    return checked


def _split(
    tree: Tree,
    at: int,
    budget: int,
    scores: np.ndarray | None,
    frontier: Sequence[np.ndarray],
    target: str,
) -> Any:
    batch = tree.shape[0]
    listed = frontier[1].shape[1] if frontier else tree.roots
    arguments: list[tuple[str, str]] = []
    clauses: list[tuple[str, list[str]]] = []
    arrays: list[np.ndarray] = []

    def add(clause: str, names: list[str], values: Sequence[np.ndarray], element: str) -> None:
        clauses.append((clause, names))
        arrays.extend(values)
        arguments.extend(
            (name, tensor_type(element, value.shape)) for name, value in zip(names, values)
        )

    if scores is not None:
        add("scores", ["scores"], [scores], "f64")
    if frontier:
        add("frontier", ["candidates", "level", "index"], frontier, "i32")
    if tree.counts is not None:
        add("counts", ["counts"], [tree.counts], "i32")
    widths = [listed + budget * (tree.ratio - 1)] * 2 + [budget * tree.ratio]
    results = [tensor_type("i32", (batch, width)) for width in widths]
    attributes = [
        _attribute(tree.ratio, tree.levels), f"at = {at} : i64", f"split = {budget} : i64",
    ]  # fmt: skip
    key = ("tree_split", target, tuple(arguments), tuple(results), tuple(attributes))
    make = lambda: ("tree_split", arguments, clauses, results, attributes, None)  # noqa: E731
    return _compile(key, make, target)(*arrays)


def tree_select(
    tree: Tree, budgets: Mapping[int, int], *, score: Any, target: str = "cpu"
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
    tree = _check_tree(tree)
    check_target(target)
    checked = _check_budgets(tree, budgets)
    batch, _, width = tree.shape
    if not callable(score):
        score = _vip_score(tree, score, target)
    frontier: list[np.ndarray] = []
    indices = np.broadcast_to(np.arange(tree.roots, dtype=np.int32), (batch, tree.roots))
    for level in range(tree.levels, 0, -1):
        budget = checked[level - 1]
        if budget == 0 and frontier:
            break
        scores = None
        if budget not in (0, indices.shape[1]):
            if frontier:
                levels = np.where(indices < 0, -1, level).astype(np.int32)
                rows = _fetch(tree, levels, indices, False, target)
            else:
                rows = tree.level(level)
            scores = check.to_numpy("score", score(rows, level))
            if scores.dtype.kind not in "fiu" and scores.dtype.name != "bfloat16":
                raise ValueError(f"score: found element type {scores.dtype}, needed numbers")
            if scores.shape != indices.shape:
                raise ValueError(
                    f"score: found shape {list(scores.shape)} at level {level}, needed "
                    f"{list(indices.shape)}"
                )
            scores = np.ascontiguousarray(scores, np.float64)
        new_level, new_index, indices = _split(tree, level, budget, scores, frontier, target)
        frontier = [indices, new_level, new_index]
    return frontier[1], frontier[2]


def _vip_score(tree: Tree, vip: Any, target: str) -> Callable[[np.ndarray, int], np.ndarray]:
    batch, _, width = tree.shape
    rows = check.tensor("score", vip, 3, "[B,np,F], or a function")
    element, _ = _describe(tree)
    check.element_type(rows, element)
    check.match("score", "batch", rows.shape[0], batch)
    check.match("score", "width", rows.shape[2], width)
    query = np.from_dlpack(vip) if hasattr(vip, "__dlpack__") else np.asarray(vip)
    query = query.reshape(batch, 1, rows.shape[1], width)

    def score(candidates: np.ndarray, level: int) -> np.ndarray:
        key = candidates.reshape(batch, 1, candidates.shape[1], width)
        return tree_score(query, key, scale=1.0, exponential=True, target=target)

    return score
