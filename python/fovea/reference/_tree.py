# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""NumPy float64 references for trees of averages (compressed attention).

Written from the definitions alone: every mean is taken over its tokens, an
update moves tokens and builds the tree again, a choice sorts.  Nodes are
(level, index) pairs; node x of level l stands for tokens x ratio^l and on.
Equation and algorithm numbers are those of the paper (VCC).

Padding: `mask` [B,N] is true for the tokens that are present, and only they
count in a mean.  A node of padding alone has the mean of its padding.  Where
level and index are -1, a list has no node: sequences of a batch differ in how
many they have.
"""

import numpy as np

from ._arguments import _array

__all__ = [
    "Tree",
    "head_probability",
    "head_probability_backward",
    "log_weights",
    "tree_build",
    "tree_fetch",
    "tree_materialize",
    "tree_select",
    "tree_update",
    "vip_score",
]


class Tree:
    """The sequence itself, and how it is cut: the plainest tree there is."""

    def __init__(self, tokens, mask, ratio, levels):
        self.tokens, self.mask, self.ratio, self.levels = tokens, mask, ratio, levels

    @property
    def roots(self):
        return self.tokens.shape[1] // self.ratio**self.levels

    def rows(self, level):
        """The means (13) of all nodes of a level."""
        if level == 0:
            return self.tokens
        B, N, F = self.tokens.shape
        size = self.ratio**level
        cut = self.tokens.reshape(B, N // size, size, F)
        present = self.mask.reshape(B, N // size, size, 1)
        present = present | ~present.any(2, keepdims=True)
        return np.where(present, cut, 0).sum(2) / present.sum(2)

    def counts(self, level):
        """How many tokens of each node of a level are present."""
        B, N, _ = self.tokens.shape
        return self.mask.reshape(B, -1, self.ratio**level).sum(2)

    def packed(self):
        """What attn.tree_build returns: the roots, then differences (15)."""
        parts = [self.rows(self.levels)]
        for level in reversed(range(self.levels)):
            parent = np.repeat(self.rows(level + 1), self.ratio, axis=1)
            parts.append(parent - self.rows(level))
        return np.concatenate(parts, axis=1)

    def packed_counts(self):
        return np.concatenate(
            [self.counts(level) for level in reversed(range(self.levels + 1))], axis=1
        )


def tree_build(c, *, ratio=2, levels=None, mask=None):
    """The tree of tokens c [B,N,F]; `levels` defaults to one root."""
    c = np.asarray(c).astype(np.float64)
    if levels is None:
        levels = 1
        while ratio**levels < c.shape[1]:
            levels += 1
        if ratio**levels != c.shape[1]:
            raise ValueError(f"c: found {c.shape[1]} tokens, needed a power of {ratio}")
    if c.shape[1] == 0 or c.shape[1] % ratio**levels:
        raise ValueError(f"c: found {c.shape[1]} tokens, needed a multiple of {ratio**levels}")
    if mask is None:
        mask = np.ones(c.shape[:2], bool)
    return Tree(c, np.asarray(mask).astype(bool), ratio, levels)


def _lists(tree, level, index):
    shape = (tree.tokens.shape[0], np.shape(level)[-1])
    return np.broadcast_to(level, shape), np.broadcast_to(index, shape)


def tree_fetch(tree, level, index):
    """Rows [B,r,F] of nodes (16)."""
    level, index = _lists(tree, level, index)
    rows = {l: tree.rows(l) for l in range(tree.levels + 1)}
    # Index -1 of that is zeros as well.
    rows[-1] = np.zeros((len(level), 1, tree.tokens.shape[2]))
    return np.stack(
        [
            np.stack([rows[l][b, x] for l, x in zip(level[b], index[b])])
            for b in range(len(level))
        ]
    )


def log_weights(tree, level, index):
    """The logarithms of how many tokens nodes stand for, [B,r]."""
    level, index = _lists(tree, level, index)
    counts = {l: tree.counts(l) for l in range(tree.levels + 1)}
    counts[-1] = np.zeros((len(level), 1))
    found = [[counts[l][b, x] for l, x in zip(level[b], index[b])] for b in range(len(level))]
    with np.errstate(divide="ignore"):
        return np.log(np.array(found, np.float64))


def check_cover(tree, level, index):
    """Raises ValueError unless the nodes cover every sequence in order."""
    for b, (levels, indices) in enumerate(zip(level, index)):
        at = 0
        for l, x in zip(levels, indices):
            if l == x == -1:
                continue
            if not 0 <= l <= tree.levels or x * tree.ratio**l != at:
                raise ValueError(f"nodes of batch entry {b} do not cover the sequence")
            at += tree.ratio**l
        if at != tree.tokens.shape[1]:
            raise ValueError(f"nodes of batch entry {b} do not cover the sequence")


def tree_update(tree, level, index, rows):
    """Algorithm 2, as (17) says it: all tokens of a node move with it."""
    level, index = _lists(tree, level, index)
    check_cover(tree, level, index)
    old = tree_fetch(tree, level, index)
    tokens = tree.tokens.copy()
    for b in range(len(level)):
        for j, (l, x) in enumerate(zip(level[b], index[b])):
            if l < 0:
                continue
            size = tree.ratio**l
            span = slice(x * size, (x + 1) * size)
            # Rows of nodes without a token are ignored.
            if tree.mask[b, span].any():
                tokens[b, span] += np.asarray(rows)[b, j].astype(np.float64) - old[b, j]
    return Tree(tokens, tree.mask, tree.ratio, tree.levels)


def tree_materialize(tree):
    return tree.tokens.copy()


def vip_score(vip):
    """(53): sum over VIP rows [B,np,F] of exp(vip . row), as a score."""
    vip = np.asarray(vip).astype(np.float64)
    return lambda rows, level: np.exp(np.einsum("bif,bcf->bic", vip, rows)).sum(1)


def head_probability(query, key, scale=None, log_weight=None):
    """The probability that attention from query [B,H,np,D] gives to candidates
    key [B,G,c,D], averaged over heads and VIP tokens: [B,c]."""
    query, key = (np.asarray(x).astype(np.float64) for x in (query, key))
    B, H, count, D = query.shape
    if count == 0:
        return np.zeros((B, key.shape[2]))
    key = np.repeat(key, H // key.shape[1], axis=1)
    scores = np.einsum("bhid,bhcd->bhic", query, key) * (D**-0.5 if scale is None else scale)
    if log_weight is not None:
        scores = scores + np.asarray(log_weight)[:, None, None]
    top = scores.max(-1, keepdims=True)
    shares = np.exp(scores - np.where(np.isfinite(top), top, 0))
    total = shares.sum(-1, keepdims=True)
    return (shares / np.where(total == 0, 1, total)).mean((1, 2))


def head_probability_backward(d_out, query, key, scale=None, log_weight=None):
    """The gradients of `head_probability` for query, key and, if given, log_weight,
    of a scalar with gradient `d_out` [B,c] for its result."""
    query, key, d_out = (_array(n, x, r, "") for n, x, r in
                         (("query", query, 4), ("key", key, 4), ("d_out", d_out, 2)))  # fmt: skip
    B, H, count, D = query.shape
    G = key.shape[1]
    scale = D**-0.5 if scale is None else scale
    keys = np.repeat(key, H // G, axis=1)
    scores = np.einsum("bhid,bhcd->bhic", query, keys) * scale
    if log_weight is not None:
        scores = scores + _array("log_weight", log_weight, 2, "[B,c]")[:, None, None]
    top = scores.max(-1, keepdims=True)
    shares = np.exp(scores - np.where(np.isfinite(top), top, 0))
    total = shares.sum(-1, keepdims=True)
    shares = shares / np.where(total == 0, 1, total)
    d_shares = d_out[:, None, None] / (H * count)
    d_scores = shares * (d_shares - (shares * d_shares).sum(-1, keepdims=True))
    d_query = scale * np.einsum("bhic,bhcd->bhid", d_scores, keys)
    d_key = scale * np.einsum("bhic,bhid->bhcd", d_scores, query)
    d_key = d_key.reshape(B, G, H // G, *d_key.shape[2:]).sum(2)
    if log_weight is None:
        return d_query, d_key
    return d_query, d_key, d_scores.sum((1, 2))


def tree_select(tree, budgets, *, score):
    """Algorithm 1.  `budgets`: {level: nodes to split}, at most; `score`: (rows,
    level) -> [B,c].  Returns level and index [B,r], in the order of the sequence,
    then -1."""
    B = tree.tokens.shape[0]
    listed = tree.roots + sum(budgets.values()) * (tree.ratio - 1)
    chosen = []
    for b in range(B):
        # The nodes that are not split, and the candidates of the present level.
        kept, candidates, most = [], list(range(tree.roots)), tree.roots
        for level in range(tree.levels, 0, -1):
            budget = budgets.get(level, 0)
            if budget > most:
                raise ValueError(f"budgets[{level}]: found {budget}, needed at most {most}")
            most = budget * tree.ratio
            split = []
            if budget and candidates:
                # Scores may depend on all batch entries: give them all of them.
                rows = np.stack([tree.rows(level)[b][candidates]] * B)
                points = np.asarray(score(rows, level), np.float64)[b]
                points = np.where(np.isnan(points), -np.inf, points)
                present = [m for m, x in enumerate(candidates) if tree.counts(level)[b, x]]
                # Highest first; Python's sort keeps the order of ties.
                split = sorted(sorted(present, key=lambda m: -points[m])[:budget])
            kept += [(level, x) for m, x in enumerate(candidates) if m not in split]
            candidates = [
                candidates[m] * tree.ratio + child for m in split for child in range(tree.ratio)
            ]
        kept += [(0, x) for x in candidates]
        kept.sort(key=lambda node: node[1] * tree.ratio ** node[0])
        chosen.append(kept + [(-1, -1)] * (listed - len(kept)))
    nodes = np.array(chosen, np.int32)
    return nodes[..., 0], nodes[..., 1]
