# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Transposes of the functions on trees: <A x, y> = <x, A' y>."""

import numpy as np
import pytest

import fovea
from conftest import TYPES

# Batch, tokens, width, ratio, levels.
SHAPES = {
    "one root": (2, 27, 5, 3, None),
    "binary": (1, 16, 17, 2, None),
    "two resolutions": (2, 24, 4, 8, 1),
    "several roots": (1, 36, 3, 3, 2),
    "one token each": (1, 2, 1, 2, 1),
}
BOUNDS = {"float64": 1e-12, "float32": 2e-5, "float16": 2e-2, "bfloat16": 1e-1}


def make(shape, masked, type="float64"):
    batch, tokens, width, ratio, levels = SHAPES[shape]
    rng = np.random.default_rng(3)
    c = rng.standard_normal((batch, tokens, width)).astype(TYPES[type])
    mask = None
    if masked:
        # A whole segment of padding among the rest.
        mask = rng.random((batch, tokens)) < 0.7
        mask[:, tokens // 2 :][:, :ratio] = False
        mask[:, 0] = True
    tree = fovea.tree_build(c, ratio=ratio, levels=levels, mask=mask)
    return rng, c, mask, tree


def normal(rng, like):
    return rng.standard_normal(like.shape).astype(like.dtype)


def inner(x, y):
    return np.sum(x.astype(np.float64) * y.astype(np.float64))


def equal(left, right, scale, type="float64"):
    assert abs(left - right) <= BOUNDS[type] * scale, (left, right)


def cover(tree):
    """Some nodes of every level that cover the sequence."""
    budgets = {level: max(1, tree.roots // 2) for level in range(1, tree.levels + 1)}
    return fovea.tree_select(tree, budgets, score=lambda rows, level: rows[..., 0])


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_transposes(shape, masked, target):
    rng, c, mask, tree = make(shape, masked)
    ratio, levels = tree.ratio, tree.levels
    y, d_c = normal(rng, tree.nodes), normal(rng, c)

    other = normal(rng, c)
    built = fovea.tree_build(other, ratio=ratio, levels=levels, mask=mask)
    transposed = fovea.tree_build_backward(y, built, target=target)
    equal(inner(built.nodes, y), inner(other, transposed), c.size)

    whole = fovea.tree_materialize(tree)
    transposed = fovea.tree_materialize_backward(d_c, tree, target=target)
    equal(inner(whole, d_c), inner(tree.nodes, transposed), c.size)

    level, index = cover(tree)
    # Some nodes twice.
    level2, index2 = (np.concatenate([x, x[:, ::2]], 1) for x in (level, index))
    rows = fovea.tree_fetch(tree, level2, index2)
    d_rows = normal(rng, rows)
    transposed = fovea.tree_fetch_backward(d_rows, tree, level2, index2, target=target)
    equal(inner(rows, d_rows), inner(tree.nodes, transposed), c.size)

    new = normal(rng, fovea.tree_fetch(tree, level, index))
    updated = fovea.tree_update(tree, level, index, new)
    d_tree, d_new = fovea.tree_update_backward(y, tree, level, index, target=target)
    equal(inner(updated.nodes, y), inner(tree.nodes, d_tree) + inner(new, d_new), c.size)
    assert np.abs(d_new).max() > 0


@pytest.mark.parametrize("type", TYPES)
def test_types(type):
    rng, c, _, tree = make("one root", True, type)
    y = normal(rng, tree.nodes)
    found = fovea.tree_build_backward(y, tree)
    assert found.dtype == TYPES[type] and found.shape == c.shape
    equal(inner(tree.nodes, y), inner(c, found), c.size, type)
    found = fovea.tree_materialize_backward(c, tree)
    assert found.dtype == TYPES[type] and found.shape == tree.nodes.shape


def test_a_wrong_transpose_is_seen():
    rng, c, _, tree = make("one root", False)
    y = normal(rng, tree.nodes)
    wrong = fovea.tree_build_backward(np.abs(y), tree)
    with pytest.raises(AssertionError):
        equal(inner(tree.nodes, y), inner(c, wrong), c.size)


def test_bad_input():
    _, c, _, tree = make("one root", False)
    with pytest.raises(ValueError, match=r"d_tree: found shape \(2, 27, 5\), needed \(2, 40, 5\)"):
        fovea.tree_build_backward(c, tree)
    with pytest.raises(ValueError, match="d_c: found element type float32, needed float64"):
        fovea.tree_materialize_backward(c.astype(np.float32), tree)
    with pytest.raises(ValueError, match=r"d_rows: found shape \(2, 27, 5\), needed \(2, 1, 5\)"):
        fovea.tree_fetch_backward(c, tree, [3], [0])
    with pytest.raises(ValueError, match="tree: found ndarray"):
        fovea.tree_update_backward(c, c, [3], [0])
