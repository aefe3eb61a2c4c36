# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trees, masks and comparisons that the tests of trees share."""

import numpy as np
from conftest import BOUNDS, TYPES

import fovea
from fovea.reference import _tree as reference

# Half a unit in the last place, relative.
ROUNDING = {"float32": 2.0**-24, "float64": 2.0**-53, "float16": 2.0**-11, "bfloat16": 2.0**-8}

# Batch, ratio, levels, roots, columns.
SHAPES = [
    (1, 2, 1, 1, 1),
    (1, 2, 6, 1, 37),
    (2, 2, 4, 3, 16),
    (1, 3, 3, 1, 64),
    (3, 16, 1, 5, 33),
    (1, 16, 2, 1, 48),
    (2, 5, 2, 9, 130),
    (1, 17, 1, 40, 8),
    (1, 40, 2, 1, 20),
    (1, 2, 3, 70, 24),
]
MASKS = ["none", "end", "random", "segments", "nan"]


def tokens(B, ratio, levels, roots, F, type="float32", seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((B, roots * ratio**levels, F)).astype(TYPES[type])


def make_mask(kind, B, N, ratio, seed=3):
    rng = np.random.default_rng(seed)
    if kind == "none":
        return None
    if kind == "end":
        return np.arange(N) < np.linspace(1, N - 1, B).astype(int)[:, None]
    if kind == "segments":
        # Half of the segments half padded, the others wholly present or absent.
        state = rng.integers(0, 3, (B, N // ratio, 1))
        place = np.arange(ratio)[None, None]
        return np.where(state == 2, place < (ratio + 1) // 2, state == 1).reshape(B, N)
    return rng.random((B, N)) < 0.6


def build_both(shape, type="float32", mask=None, target="cpu", c=None):
    B, ratio, levels, roots, F = shape
    c = tokens(*shape, type) if c is None else c
    options = {"ratio": ratio, "levels": levels, "mask": mask}
    return fovea.tree_build(c, target=target, **options), reference.tree_build(c, **options)


def random_cover(tree, rng, chance=0.5):
    """A random list of nodes that covers the sequence, for each batch entry, all
    of one length: (level, index)."""

    def one():
        nodes = []

        def visit(level, x):
            if level and rng.random() < chance:
                for child in range(tree.ratio):
                    visit(level - 1, x * tree.ratio + child)
            else:
                nodes.append((level, x))

        for root in range(tree.roots):
            visit(tree.levels, root)
        return nodes

    first = one()
    lists = [first]
    for _ in range(tree.shape[0] - 1):
        for _ in range(50):
            other = one()
            if len(other) == len(first):
                break
        lists.append(other if len(other) == len(first) else first)
    both = np.array(lists, np.int32)
    return both[..., 0], both[..., 1]


def close(found, expected, type, factor=1.0):
    found, expected = found.astype(np.float64), np.asarray(expected)
    assert found.shape == expected.shape
    assert np.array_equal(np.isnan(found), np.isnan(expected))
    difference = np.nan_to_num(found - expected)
    scale = np.abs(np.nan_to_num(expected)).max(initial=0)
    assert np.abs(difference).max(initial=0) <= factor * BOUNDS[type] * scale
