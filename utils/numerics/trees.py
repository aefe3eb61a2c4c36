# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trees of averages."""

import numpy as np

import fovea

from .attention import drop
from .case import softmax, spread, wide


def mean(tokens, mask, ratio, level, index):
    """The mean [F] of the present tokens of a node of one batch entry, and their number."""
    part = slice(index * ratio**level, (index + 1) * ratio**level)
    present = mask[part]
    count = int(present.sum())
    if not count:
        return np.zeros(tokens.shape[1]), 0
    return tokens[part][present].sum(0) / count, count


def means(tokens, mask, ratio, level, index):
    found = [
        [mean(tokens[b], mask[b], ratio, int(l), int(x)) for l, x in zip(level[b], index[b])]
        for b in range(len(tokens))
    ]
    return np.array([[row for row, _ in part] for part in found]), np.array([[n for _, n in part] for part in found])


def frontier(case, ratio, levels, roots):
    """Nodes that cover a sequence, drawn from the roots down, in its order."""
    nodes = [(levels, x) for x in range(roots)]
    for level in range(levels, 0, -1):
        split = {x for l, x in nodes if l == level and case.random.random() < 0.4}
        after = []
        for l, x in nodes:
            if l == level and x in split:
                after += [(level - 1, x * ratio + child) for child in range(ratio)]
            else:
                after.append((l, x))
        nodes = after
    return np.array(nodes, np.int32).reshape(-1, 2)


def tree(case):
    B, F = case.pick("B", [1, 2, 3]), case.width("F", 33)
    ratio, levels, roots = case.pick("ratio", [2, 3, 4, 16]), case.pick("levels", [1, 2, 3]), case.pick("roots", [1, 2, 5])
    if ratio**levels * roots > 600:
        levels = case.note(levels=1)
    N = ratio**levels * roots
    c = case.normal(B, N, F)
    mask = np.ones((B, N), bool)
    masked = case.flip("mask")
    if masked:
        mask = case.random.random((B, N)) < case.pick("present", [0.3, 0.8, 1.0])
    built = case.twice(
        lambda: fovea.tree_build(c, ratio=ratio, levels=levels, mask=mask if masked else None, target=case.target).nodes
    )
    whole = fovea.tree_build(c, ratio=ratio, levels=levels, mask=mask if masked else None, target=case.target)
    case.same(whole.nodes, built, "tree_build")
    lists = [(level, x) for level in range(levels + 1) for x in range(N // ratio**level)]
    chosen = np.array([lists[i] for i in case.random.integers(0, len(lists), (B, case.pick("nodes", [1, 5, 33])))
                       .ravel()]).reshape(B, -1, 2).astype(np.int32)
    level, index = chosen[..., 0], chosen[..., 1]
    rows, log_weight = fovea.tree_fetch(whole, level, index, return_log_weight=True, target=case.target)
    tokens = np.where(mask[..., None], wide(c), 0)
    expected, counts = means(tokens, mask, ratio, level, index)
    kept = counts > 0
    # A row is a root less one difference for each level, each of them rounded.
    factor, size = 2 * (levels + 1), np.abs(tokens).max()
    case.close(np.where(kept[..., None], wide(rows), 0), expected, "tree_fetch", factor=factor, size=size)
    case.require((np.isneginf(log_weight) == ~kept).all(), "log weights of padding")
    needed = np.log(np.where(kept, counts, 1))
    case.require(np.abs(np.where(kept, wide(log_weight), 0) - needed).max() < 1e-5, "log weights")
    case.close(
        np.where(mask[..., None], wide(fovea.tree_materialize(whole, target=case.target)), 0), tokens,
        "tree_materialize", factor=factor, size=size,
    )  # fmt: skip
    if masked and not mask.all():
        dirty = np.where(mask[..., None], c, case.dtype(case.random.choice([np.nan, np.inf])))
        again = fovea.tree_build(dirty, ratio=ratio, levels=levels, mask=mask, target=case.target)
        rows = fovea.tree_fetch(again, level, index, target=case.target)
        case.close(np.where(kept[..., None], wide(rows), 0), expected, "tree_fetch after NaN in padding", factor=factor, size=size)
    update(case, whole, tokens, mask, ratio, levels, roots, factor)
    select(case, whole, mask, ratio, levels, roots)
    linear(case, whole, c, level, index)


def update(case, whole, tokens, mask, ratio, levels, roots, factor):
    """Every token moves with its node."""
    B, N, F = tokens.shape
    cover = frontier(case, ratio, levels, roots)
    level, index = (np.broadcast_to(cover[:, i], (B, len(cover))).copy() for i in (0, 1))
    new = case.normal(B, len(cover), F)
    moved = fovea.tree_update(whole, level, index, new, target=case.target)
    before, counts = means(tokens, mask, ratio, level, index)
    after = tokens.copy()
    for b in range(B):
        for at, (l, x) in enumerate(cover):
            part = slice(x * ratio**l, (x + 1) * ratio**l)
            after[b, part] += np.where(counts[b, at] > 0, wide(new)[b, at] - before[b, at], 0)
    after = np.where(mask[..., None], after, 0)
    size = np.abs(after).max(initial=1)
    found = np.where(mask[..., None], wide(fovea.tree_materialize(moved, target=case.target)), 0)
    case.close(found, after, "tree_update", factor=2 * factor, size=size)
    every = np.array([(l, x) for l in range(levels + 1) for x in range(N // ratio**l)], np.int32)
    level, index = (np.broadcast_to(every[:, i], (B, len(every))).copy() for i in (0, 1))
    expected, counts = means(after, mask, ratio, level, index)
    rows = wide(fovea.tree_fetch(moved, level, index, target=case.target))
    case.close(np.where(counts[..., None] > 0, rows, 0), expected, "nodes after tree_update", factor=2 * factor, size=size)


def select(case, whole, mask, ratio, levels, roots):
    """The best candidates of each level are split, and only those that have tokens."""
    B = len(mask)
    budgets, candidates = {}, roots
    for level in range(levels, 0, -1):
        budgets[level] = int(case.random.integers(0, candidates + 1))
        candidates = budgets[level] * ratio
        if not candidates:
            break
    case.note(budgets=budgets)
    given = {}

    def score(rows, level):
        given[level] = np.round(case.random.standard_normal(rows.shape[:2]), 1)
        return given[level]

    levels_found, indices_found = fovea.tree_select(whole, budgets, score=score, target=case.target)
    for b in range(B):
        nodes, current = [], list(range(roots))
        for at in range(levels, 0, -1):
            tokens = [mask[b, x * ratio**at : (x + 1) * ratio**at].sum() for x in current]
            budget = budgets.get(at, 0)
            scores = given[at][b] if at in given else np.zeros(len(current))
            order = sorted(range(len(current)), key=lambda n: (-scores[n], n))
            split = [n for n in order if tokens[n]][:budget]
            nodes += [(at, x) for n, x in enumerate(current) if n not in split]
            current = [current[n] * ratio + child for n in sorted(split) for child in range(ratio)]
        nodes += [(0, x) for x in current]
        nodes.sort(key=lambda node: node[1] * ratio ** node[0])
        listed = [(int(l), int(x)) for l, x in zip(levels_found[b], indices_found[b]) if x >= 0]
        case.require(listed == nodes, f"tree_select: entry {b}: nodes {listed}, needed {nodes}")


def linear(case, whole, c, level, index):
    """Gradients of linear maps: <d, A x> = <A^T d, x>."""
    bound = {"f32": 1e-4, "f64": 1e-11, "bf16": 0.1, "f16": 0.02}[case.type]
    target = case.target

    def adjoint(what, result, d_result, x, gradient):
        one, other = (wide(result) * wide(d_result)).sum(), (wide(x) * wide(gradient)).sum()
        size = 1 + np.sqrt((wide(x) ** 2).sum() * (wide(gradient) ** 2).sum())
        case.require(abs(one - other) <= bound * size, f"gradient of {what}: {other:.6g}, needed {one:.6g}")

    nodes = whole.nodes
    d = case.normal(*nodes.shape)
    if whole.counts is None:
        adjoint("tree_build", nodes, d, c, fovea.tree_build_backward(d, whole, target=target))
    rows = fovea.tree_fetch(whole, level, index, target=target)
    d = case.normal(*rows.shape)
    adjoint("tree_fetch", rows, d, nodes, fovea.tree_fetch_backward(d, whole, level, index, target=target))
    sequence = fovea.tree_materialize(whole, target=target)
    d = case.normal(*sequence.shape)
    adjoint("tree_materialize", sequence, d, nodes, fovea.tree_materialize_backward(d, whole, target=target))


def score(case):
    """How much VIP tokens look at candidates."""
    B, H, G = case.heads()
    n, c, D = case.length("np", 33), case.length("c", 65), case.width("D", 33)
    exponential = case.flip("exponential", 0.3)
    H, G = (1, 1) if exponential else (H, G)
    mask = case.random.random((B, n)) < 0.7 if case.flip("mask") else np.ones((B, n), bool)
    mask[:, 0] |= exponential
    arrays = {"query": case.normal(B, H, n, D), "key": case.normal(B, G, c, D)}
    if not exponential and case.flip("log_weight"):
        arrays["log_weight"] = drop(case, case.normal(B, c, dtype=case.state))
    scale = case.pick("scale", [None, 0.3])
    options = {"mask": None if mask.all() else mask, "scale": scale, "exponential": exponential, "target": case.target}
    found = case.twice(lambda: fovea.tree_score(**arrays, **options))

    def formula(query, key, log_weight=None):
        scores = (1 / np.sqrt(D) if scale is None else scale) * (query @ spread(key, H).swapaxes(2, 3))
        admitted = np.broadcast_to(mask[:, None, :, None], scores.shape)
        if log_weight is not None:
            term = np.asarray(log_weight)[:, None, None]
            admitted = admitted & ~np.isneginf(term.real)
            scores = scores + np.where(np.isneginf(term.real), 0, term)
        if exponential:
            return [softmax(scores.swapaxes(2, 3), admitted.swapaxes(2, 3))[1][:, 0]]
        weights = softmax(scores, admitted)[0]
        return [weights.sum((1, 2)) / (H * np.maximum(mask.sum(1), 1))[:, None]]

    (expected,) = formula(**{name: wide(array) for name, array in arrays.items()})
    case.close(found, expected, "tree_score", factor=8, size=4 if exponential else 1)
    d_score = case.normal(*found.shape, dtype=found.dtype)
    d_score[np.isneginf(expected)] = 0
    gradients = case.twice(lambda: fovea.tree_score_backward(d_score, **arrays, **options))
    safe = lambda **x: [np.where(np.isneginf(r.real), 0, r) for r in formula(**x)]  # noqa: E731
    case.gradients(safe, arrays, [d_score], dict(zip(arrays, gradients, strict=True)), factor=8)
