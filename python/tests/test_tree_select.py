# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# REQUIRES: long-tests
"""Which nodes of a tree are chosen, and what scores them."""

import numpy as np
import pytest
from conftest import TYPES
from tree_cases import SHAPES, build_both, make_mask, tokens

import fovea
from fovea.reference import _tree as reference


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["none", "segments"])
def test_select(shape, kind, type, target):
    B, ratio, levels, roots, F = shape
    c = tokens(*shape, type)
    mask = make_mask(kind, B, c.shape[1], ratio, seed=4)
    if mask is not None:
        mask[:, 0] = True
    tree, expected = build_both(shape, type, mask=mask, target=target, c=c)
    candidates, budgets = roots, {}
    for level in range(levels, 0, -1):
        budgets[level] = max(1, candidates // 2) if mask is None else 1
        candidates = budgets[level] * ratio
    numbers = np.random.default_rng(19).standard_normal((F,))

    # Exact in every type: which rows are compared decides, not how they round.
    def score(rows, level):
        assert rows.shape[::2] == (B, F)
        return np.round(rows.astype(np.float64) @ numbers * 4)

    def wanted(rows, level):
        return np.round(rows.astype(TYPES[type]).astype(np.float64) @ numbers * 4)

    level, index = fovea.tree_select(tree, budgets, score=score, target=target)
    assert level.dtype == index.dtype == np.int32
    assert level.shape[1] == roots + sum(budgets.values()) * (ratio - 1)
    reference.check_cover(expected, level, index)
    if type == "float64":
        other = reference.tree_select(expected, budgets, score=wanted)
        assert np.array_equal(level, other[0]) and np.array_equal(index, other[1])


def test_select_by_vip_rows(target):
    shape = (2, 4, 3, 1, 20)
    tree, expected = build_both(shape, target=target)
    vip = np.random.default_rng(23).standard_normal((2, 3, 20)).astype(np.float32)
    budgets = {3: 1, 2: 2, 1: 3}
    found = fovea.tree_select(tree, budgets, score=vip, target=target)
    wanted = [
        reference.tree_select(expected, budgets, score=reference.vip_score(np.stack([vip[b]] * 2)))
        for b in range(2)
    ]
    for a in range(2):
        assert np.array_equal(found[a], np.stack([wanted[b][a][b] for b in range(2)]))


def test_two_resolutions(target):
    """Section 4: all segments of 4 tokens, the 3 best of them token by token, from a
    tree with one level and from a binary one."""
    c = tokens(1, 2, 6, 1, 12)
    vip = np.random.default_rng(41).standard_normal((1, 2, 12)).astype(np.float32)
    flat = fovea.tree_build(c, ratio=4, levels=1)
    binary = fovea.tree_build(c)
    budgets = {6: 1, 5: 2, 4: 4, 3: 8, 2: 3, 1: 6}
    a = fovea.tree_select(flat, {1: 3}, score=vip, target=target)
    b = fovea.tree_select(binary, budgets, score=vip, target=target)
    assert np.array_equal(2 * a[0], b[0]) and np.array_equal(a[1], b[1])
    np.testing.assert_allclose(fovea.tree_fetch(flat, *a), fovea.tree_fetch(binary, *b), atol=1e-5)


def test_ties_and_nan(target):
    tree, _ = build_both((1, 4, 1, 9, 5), target=target)
    flat = fovea.tree_select(tree, {1: 3}, score=lambda r, l: np.zeros((1, 9)), target=target)
    assert np.array_equal(flat[0][0], [0] * 12 + [1] * 6)
    points = np.array([[1, np.nan, 5, 5, -np.inf, 2, 5, np.inf, np.nan]])
    for budget, split in ((1, [7]), (2, [2, 7]), (3, [2, 3, 7]), (5, [2, 3, 5, 6, 7]),
                          (7, [0, 1, 2, 3, 5, 6, 7]), (8, [0, 1, 2, 3, 4, 5, 6, 7])):
        level, index = fovea.tree_select(tree, {1: budget}, score=lambda r, l: points, target=target)
        assert sorted({x // 4 for x in index[0][level[0] == 0]}) == split


def test_ties_of_many(target):
    """Selection by parts must not depend on how it goes about it."""
    tree, expected = build_both((1, 2, 1, 1000, 1), target="cpu")
    for seed in range(20):
        points = np.random.default_rng(seed).integers(0, 6, (1, 1000)).astype(float)
        budgets = {1: 1 + 49 * seed}
        found = fovea.tree_select(tree, budgets, score=lambda r, l, points=points: points)
        wanted = reference.tree_select(expected, budgets, score=lambda r, l, points=points: points)
        assert np.array_equal(found, wanted)


def test_no_vip_tokens(target):
    tree, _ = build_both((1, 4, 1, 9, 5), target=target)
    none = np.zeros((1, 0, 5), np.float32)
    level, index = fovea.tree_select(tree, {1: 2}, score=none, target=target)
    assert np.array_equal(level[0], [0] * 8 + [1] * 7)
    found = fovea.tree_score(none[:, None], np.ones((1, 1, 9, 5), np.float32), target=target)
    assert np.array_equal(found, np.zeros((1, 9)))


def test_nothing_split(target):
    tree, _ = build_both((2, 3, 2, 4, 5), target=target)
    for budgets in ({}, {1: 0, 2: 0}):
        level, index = fovea.tree_select(tree, budgets, score=None or (lambda r, l: None))
        assert (level == 2).all() and np.array_equal(index[1], np.arange(4))
    # Everything split needs no scores.
    level, index = fovea.tree_select(tree, {2: 4, 1: 12}, score=lambda r, l: 1 / 0)
    assert (level == 0).all() and np.array_equal(index[0], np.arange(36))


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("heads", [(1, 1), (4, 4), (6, 2)])
@pytest.mark.parametrize("weighted", [False, True])
def test_score(type, heads, weighted, target):
    rng = np.random.default_rng(29)
    H, G = heads
    query = rng.standard_normal((2, H, 7, 16)).astype(TYPES[type])
    key = rng.standard_normal((2, G, 45, 16)).astype(TYPES[type])
    state = np.float64 if type == "float64" else np.float32
    weight = None
    if weighted:
        weight = np.log(rng.integers(0, 4, (2, 45)).clip(0)).astype(state)
        weight[1] = -np.inf
    with np.errstate(divide="ignore"):
        found = fovea.tree_score(query, key, log_weight=weight, target=target)
    wanted = reference.head_probability(query, key, log_weight=weight)
    assert found.dtype == state
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * wanted.max())
    if H == 1 and not weighted:
        found = fovea.tree_score(query, key, scale=1.0, exponential=True, target=target)
        wanted = np.log(reference.vip_score(query[:, 0])(key[:, 0].astype(float), 0))
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-4)


VIP_MASK = np.array([[1, 0, 1, 1, 0, 0, 1], [0, 0, 0, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1, 1]], bool)


def masked_scores(type, heads=(4, 2)):
    rng = np.random.default_rng(31)
    query = rng.standard_normal((3, heads[0], 7, 16)).astype(TYPES[type])
    return query, rng.standard_normal((3, heads[1], 45, 16)).astype(TYPES[type])


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("target", ["cpu", "reference", "gpu-sim"])
def test_absent_vip_tokens(type, target):
    if target == "gpu-sim" and type == "float64":
        pytest.skip("not on GPUs")
    query, key = masked_scores(type)
    wanted = np.zeros((3, 45))
    for b in (0, 2):
        wanted[b] = reference.head_probability(query[b : b + 1, :, VIP_MASK[b]], key[b : b + 1])[0]
    query[np.broadcast_to(~VIP_MASK[:, None], query.shape[:3])] = np.nan
    found = fovea.tree_score(query, key, mask=VIP_MASK, target=target)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * wanted.max())
    assert not found[1].any()
    # A canary: the mask is what keeps NaN away.
    assert np.isnan(fovea.tree_score(query, key, target=target)[0]).all()


@pytest.mark.parametrize("target", ["cpu", "reference", "gpu-sim"])
def test_absent_vip_tokens_of_an_exponential(target):
    query, key = masked_scores("float32", heads=(1, 1))
    query[~VIP_MASK[:, None]] = np.inf
    found = fovea.tree_score(query, key, mask=VIP_MASK, scale=1.0, exponential=True, target=target)
    for b in range(3):
        if not VIP_MASK[b].any():
            assert (found[b] == -np.inf).all()
            continue
        score = reference.vip_score(query[b : b + 1, 0, VIP_MASK[b]])
        np.testing.assert_allclose(found[b], np.log(score(key[b : b + 1, 0].astype(float), 0))[0], rtol=0, atol=1e-4)


@pytest.mark.parametrize("exponential", [False, True])
@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_slopes_of_scores(exponential, target):
    """All candidates have a gradient, and absent VIP tokens none."""
    query, key = masked_scores("float64", heads=(1, 1) if exponential else (4, 2))
    rng = np.random.default_rng(7)
    d_score = rng.standard_normal((3, 45))
    options = {"mask": VIP_MASK, "exponential": exponential, "target": target}
    arrays = [query, key]
    if not exponential:
        options["log_weight"] = rng.standard_normal((3, 45))
        arrays.append(options["log_weight"])
    if exponential:
        # Without a token there is nothing to differentiate.
        options["mask"] = VIP_MASK | ~VIP_MASK.any(1, keepdims=True)
    gradients = fovea.tree_score_backward(d_score, query, key, **options)
    assert len(gradients) == len(arrays)
    assert not gradients[0][np.broadcast_to(~options["mask"][:, None], query.shape[:3])].any()
    assert (np.abs(gradients[1][[0, 2]]).max(axis=-1) > 0).all()
    for array, gradient in zip(arrays, gradients, strict=True):
        step = rng.standard_normal(array.shape)
        values = []
        for sign in (1, -1):
            array += sign * 1e-5 * step
            values.append((fovea.tree_score(query, key, **options) * d_score).sum())
            array -= sign * 1e-5 * step
        slope = (values[0] - values[1]) / 2e-5
        assert abs((gradient * step).sum() - slope) <= 1e-7 * max(1, abs(slope))


def test_large_scores(target):
    """exp(P . c) overflows any type; its logarithm does not."""
    tree, _ = build_both((1, 2, 1, 8, 4), target=target, c=1e3 * tokens(1, 2, 1, 8, 4))
    vip = np.full((1, 2, 4), 1e3, np.float32)
    level, index = fovea.tree_select(tree, {1: 1}, score=vip, target=target)
    best = tree.level(1)[0].sum(-1).argmax()
    assert set(index[0][level[0] == 0]) == {2 * best, 2 * best + 1}
