# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trees of averages against their definitions."""

import ml_dtypes
import numpy as np
import pytest
from conftest import BOUNDS, TYPES, check

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


def test_canary():
    """What compares results notices a wrong number, a NaN and a wrong shape."""
    right = np.ones((2, 3), np.float32)
    close(right, right, "float32")
    for wrong in (right + np.float32(1e-4), right * np.nan, right[:1]):
        with pytest.raises(AssertionError):
            close(wrong, right, "float32")


# ----------------------------------------------------------------------------
# Build, fetch, materialize
# ----------------------------------------------------------------------------


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_build(shape, type, target):
    tree, expected = build_both(shape, type, target=target)
    close(tree.nodes, expected.packed(), type)
    assert tree.counts is None and tree.roots == shape[3]
    assert tree.shape == expected.tokens.shape
    for level in range(shape[2] + 1):
        part = tree.level(level)
        assert np.shares_memory(part, tree.nodes) and part.shape[1] == expected.rows(level).shape[1]


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("shape", SHAPES)
def test_padding(shape, kind, target):
    B, ratio, levels, roots, F = shape
    c = tokens(*shape)
    N = c.shape[1]
    mask = make_mask("random" if kind == "nan" else kind, B, N, ratio)
    if kind == "nan":
        # What padding holds reaches nothing but itself.
        c[~mask] = np.nan
    tree, expected = build_both(shape, mask=mask, target=target, c=c)
    close(tree.nodes, expected.packed(), "float32")
    if mask is not None:
        assert tree.counts.dtype == np.int32
        assert np.array_equal(tree.counts, expected.packed_counts())
    level, index = random_cover(tree, np.random.default_rng(1))
    rows, weight = fovea.tree_fetch(tree, level, index, return_log_weight=True, target=target)
    close(rows, reference.tree_fetch(expected, level, index), "float32")
    wanted = reference.log_weights(expected, level, index)
    assert np.array_equal(np.isinf(weight), np.isinf(wanted))
    np.testing.assert_allclose(weight[np.isfinite(wanted)], wanted[np.isfinite(wanted)], rtol=1e-6)
    close(fovea.tree_materialize(tree, target=target), expected.tokens, "float32")


def test_wholly_padded(target):
    shape = (2, 4, 2, 1, 9)
    mask = np.zeros((2, 16), bool)
    tree, expected = build_both(shape, mask=mask, target=target)
    assert (tree.counts == 0).all()
    close(tree.nodes, expected.packed(), "float32")
    close(fovea.tree_materialize(tree, target=target), expected.tokens, "float32")
    level, index = np.full(4, 1), np.arange(4)
    moved = fovea.tree_update(tree, level, index, np.ones((2, 4, 9), np.float32), target=target)
    if target == "cpu":
        assert np.array_equal(moved.nodes, tree.nodes)
    close(moved.nodes, expected.packed(), "float32")


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_round_trip(shape, type):
    # One rounding for each level: of a root, or of a difference. Two more for the
    # arithmetic in f32 of a level where that is not much finer than the type.
    tree, _ = build_both(shape, type)
    c = tokens(*shape, type).astype(np.float64)
    found = fovea.tree_materialize(tree).astype(np.float64)
    levels, largest = shape[2], 2 * np.abs(c).max()
    bound = (levels + 2) * ROUNDING[type] * largest
    if type in ("float32", "float64"):
        bound *= 3
    assert np.abs(found - c).max() <= bound


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_fetch(shape, type, target):
    B, ratio, levels, roots, F = shape
    tree, expected = build_both(shape, type, target=target)
    rng = np.random.default_rng(5)
    # Any nodes, in any order, some twice.
    level = rng.integers(0, levels + 1, (B, 150))
    index = (rng.random((B, 150)) * (tree.shape[1] // ratio**level)).astype(int)
    rows, weight = fovea.tree_fetch(tree, level, index, return_log_weight=True, target=target)
    close(rows, reference.tree_fetch(expected, level, index), type)
    assert weight.dtype == (np.float64 if type == "float64" else np.float32)
    np.testing.assert_allclose(weight, level * np.log(ratio), rtol=1e-6)
    one = fovea.tree_fetch(tree, level[0], index[0], target=target)
    assert np.array_equal(one[0], rows[0])
    assert fovea.tree_fetch(tree, [], [], target=target).shape == (B, 0, F)


# ----------------------------------------------------------------------------
# Update
# ----------------------------------------------------------------------------


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("kind", ["none", "random"])
@pytest.mark.parametrize("shape", SHAPES)
def test_update(shape, kind, type, target):
    B, ratio, levels, roots, F = shape
    mask = make_mask(kind, B, roots * ratio**levels, ratio)
    tree, mirror = build_both(shape, type, mask=mask, target=target)
    rng = np.random.default_rng(7)
    for chance in (0.0, 0.5, 1.0):
        level, index = random_cover(tree, rng, chance)
        rows = rng.standard_normal((B, level.shape[1], F)).astype(TYPES[type])
        before = tree.nodes.copy()
        new = fovea.tree_update(tree, level, index, rows, target=target)
        assert np.array_equal(tree.nodes, before)
        tree, mirror = new, reference.tree_update(mirror, level, index, rows)
        close(tree.nodes, mirror.packed(), type, 3)
        close(fovea.tree_materialize(tree, target=target), mirror.tokens, type, 3)


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_update_without_change(shape, type):
    tree, _ = build_both(shape, type)
    rng = np.random.default_rng(9)
    for chance in (0.0, 0.3, 0.7, 1.0):
        level, index = random_cover(tree, rng, chance)
        rows = fovea.tree_fetch(tree, level, index)
        new = fovea.tree_update(tree, level, index, rows)
        assert new.nodes.tobytes() == tree.nodes.tobytes()


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("shape", [s for s in SHAPES if s[2] * s[3] > 1])
def test_update_of_one_node(shape, type):
    """Bit for bit, only the node, its ancestors and what hangs on them moves."""
    B, ratio, levels, roots, F = shape
    tree, _ = build_both(shape, type)
    rng = np.random.default_rng(11)
    for chance in (0.0, 0.5, 1.0):
        level, index = random_cover(tree, rng, chance)
        j = int(rng.integers(level.shape[1]))
        rows = fovea.tree_fetch(tree, level, index)
        rows[:, j] += 1
        new = fovea.tree_update(tree, level, index, rows)
        may_move = np.zeros(tree.nodes.shape[:2], bool)
        for b in range(B):
            l, x = int(level[b, j]), int(index[b, j])
            while l < levels:
                # The siblings' differences are from a mean that moved.
                first = tree.slice(l).start + x // ratio * ratio
                may_move[b, first : first + ratio] = True
                l, x = l + 1, x // ratio
            may_move[b, x] = True
        same = (new.nodes == tree.nodes).all(-1)
        assert same[~may_move].all()
        assert not same[may_move].all()
        # Rows of the other roots, and all that is below them, are the same bits.
        after = fovea.tree_materialize(new)
        before = fovea.tree_materialize(tree)
        for b in range(B):
            root = int(index[b, j]) // ratio ** (levels - int(level[b, j]))
            cut = np.ones(tree.shape[1], bool)
            cut[root * ratio**levels : (root + 1) * ratio**levels] = False
            assert after[b, cut].tobytes() == before[b, cut].tobytes()


def test_update_in_any_order():
    tree, _ = build_both((2, 2, 4, 3, 16))
    rng = np.random.default_rng(13)
    level, index = random_cover(tree, rng)
    rows = rng.standard_normal((2, level.shape[1], 16)).astype(np.float32)
    expected = fovea.tree_update(tree, level, index, rows)
    order = rng.permutation(level.shape[1])
    found = fovea.tree_update(tree, level[:, order], index[:, order], rows[:, order])
    assert np.array_equal(found.nodes, expected.nodes)


@pytest.mark.parametrize("shape", [(1, 2, 8, 1, 40), (2, 4, 3, 2, 24), (1, 16, 1, 16, 32)])
@pytest.mark.parametrize("kind", ["none", "end"])
def test_twelve_rounds(shape, kind):
    """Select, fetch, move and update, twelve times, against a dense mirror."""
    B, ratio, levels, roots, F = shape
    N = roots * ratio**levels
    mask = None if kind == "none" else np.arange(N) < np.full((B, 1), N - N // 4 + 1)
    tree, mirror = build_both(shape, mask=mask)
    budgets = {l: max(1, min(roots * ratio ** (levels - l), 3)) for l in range(1, levels + 1)}
    rng = np.random.default_rng(17)
    vip = (0.3 * rng.standard_normal((B, 5, F))).astype(np.float32)
    mix = (rng.standard_normal((F, F)) / np.sqrt(F)).astype(np.float32)
    for _ in range(12):
        level, index = fovea.tree_select(tree, budgets, score=vip)
        rows = fovea.tree_fetch(tree, level, index)
        rows = (rows + 0.5 * np.tanh(rows @ mix)).astype(np.float32)
        tree = fovea.tree_update(tree, level, index, rows)
        mirror = reference.tree_update(mirror, level, index, rows)
        vip = (0.9 * vip + 0.05 * np.roll(vip, 1, axis=-1)).astype(np.float32)
        close(fovea.tree_materialize(tree), mirror.tokens, "float32", 2)
    close(tree.nodes, mirror.packed(), "float32", 2)


# ----------------------------------------------------------------------------
# Select
# ----------------------------------------------------------------------------


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
        found = fovea.tree_select(tree, budgets, score=lambda r, l: points)
        wanted = reference.tree_select(expected, budgets, score=lambda r, l: points)
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


def test_large_scores(target):
    """exp(P . c) overflows any type; its logarithm does not."""
    tree, _ = build_both((1, 2, 1, 8, 4), target=target, c=1e3 * tokens(1, 2, 1, 8, 4))
    vip = np.full((1, 2, 4), 1e3, np.float32)
    level, index = fovea.tree_select(tree, {1: 1}, score=vip, target=target)
    best = tree.level(1)[0].sum(-1).argmax()
    assert set(index[0][level[0] == 0]) == {2 * best, 2 * best + 1}


# ----------------------------------------------------------------------------
# Attention
# ----------------------------------------------------------------------------


def attend(rows, weight, heads=2):
    """One layer's attention over VIP rows and nodes: queries, keys and values are
    the rows themselves."""
    B, r, F = rows.shape
    q = rows.reshape(B, r, heads, F // heads).swapaxes(1, 2)
    return fovea.dense(np.ascontiguousarray(q), q, q, log_weight=weight[:, None])


def test_all_split_is_dense(target):
    shape = (2, 4, 3, 1, 16)
    tree, _ = build_both(shape)
    budgets = {3: 1, 2: 4, 1: 16}
    level, index = fovea.tree_select(tree, budgets, score=lambda r, l: 1 / 0)
    rows, weight = fovea.tree_fetch(tree, level, index, return_log_weight=True)
    assert (weight == 0).all()
    c = tokens(*shape)
    np.testing.assert_allclose(attend(rows, weight), attend(c, np.zeros((2, 64), np.float32)),
                               rtol=0, atol=2e-6)


def test_constant_segments_are_dense():
    """A mean of equal tokens, counted as often, is the tokens."""
    B, ratio, roots, F = 1, 16, 6, 16
    rng = np.random.default_rng(31)
    c = np.repeat(rng.standard_normal((B, roots, F)).astype(np.float32), ratio, axis=1)
    for mask in (None, np.arange(96) % 16 < np.array([16, 3, 0, 9, 16, 1]).repeat(16)):
        mask = None if mask is None else mask[None]
        tree = fovea.tree_build(c, ratio=ratio, levels=1, mask=mask)
        level, index = fovea.tree_select(tree, {1: 2}, score=np.ones((1, 1, F), np.float32))
        rows, weight = fovea.tree_fetch(tree, level, index, return_log_weight=True)
        full = np.zeros((B, 96), np.float32)
        if mask is not None:
            full[~mask] = -np.inf
        found, wanted = attend(rows, weight), attend(c, full)
        at = index[0] * ratio ** level[0]
        kept = np.isfinite(weight[0])
        np.testing.assert_allclose(found[:, :, kept], wanted[:, :, at[kept]], rtol=0, atol=2e-6)


# ----------------------------------------------------------------------------
# Threads and types
# ----------------------------------------------------------------------------


def test_threads_do_not_matter():
    shape = (2, 2, 9, 1, 70)
    found = []
    try:
        for count in (1, 3):
            fovea.set_num_threads(count)
            tree, _ = build_both(shape)
            rng = np.random.default_rng(37)
            level, index = random_cover(tree, rng, 0.9)
            rows = fovea.tree_fetch(tree, level, index) * 2
            tree = fovea.tree_update(tree, level, index, rows)
            found.append((tree.nodes.tobytes(), fovea.tree_materialize(tree).tobytes()))
    finally:
        fovea.set_num_threads(0)
    assert found[0] == found[1]


def test_tree_says_what_it_is():
    tree, _ = build_both((2, 4, 1, 3, 5), "bfloat16")
    assert repr(tree) == "Tree(2 x 12 tokens x 5, ratio=4, levels=1, bfloat16)"
    assert tree.dtype == ml_dtypes.bfloat16
    with pytest.raises(ValueError, match=r"level: found 2, needed 0 to 1"):
        tree.level(2)


UPDATE = """
func.func @update(%t: memref<2x7x20xf32>, %l: memref<2x3xi32>, %i: memref<2x3xi32>, %r: memref<2x3x20xf32>) {
  attn.tree_update ins(%r : memref<2x3x20xf32>) nodes(%l, %i : memref<2x3xi32>, memref<2x3xi32>)
      outs(%t : memref<2x7x20xf32>) {shape = #attn.tree<ratio = 2, levels = 2>}
  return
}
"""


def test_kernel_checks_before_it_writes(target):
    """Lists in buffers are known at run time only: a bad one leaves the tree as it
    was, a good one changes it where it lies."""
    kernel = fovea.compile(UPDATE, target=target)
    tree, _ = build_both((2, 2, 2, 1, 20))
    rows = np.zeros((2, 3, 20), np.float32)
    good = ([1, 0, 0], [0, 2, 3])
    for level, index, text in [
        ([1, 0, 0], [0, 2, 2], r"node 2 \(level 0, index 2\) overlaps"),
        ([1, 0, 0], [1, 0, 1], r"node 0 \(level 1, index 1\) leaves a gap"),
        ([1, 0, 3], [0, 2, 0], "level of node 2 in batch entry 1, expected 0 to 2, but got 3"),
        ([0, 0, 0], [0, 1, 2], "they end at token 3, expected 4"),
        ([1, 0, 0], [0, 2, 4], "index of node 2 in batch entry 1, expected 0 to 3 at level 0"),
    ]:
        nodes = tree.nodes.copy()
        # The first batch entry is good: nothing of it may be written either.
        lists = [np.array(pair, np.int32) for pair in zip(good, (level, index))]
        with pytest.raises(fovea.FoveaError, match=text):
            kernel(nodes, *lists, rows)
        assert nodes.tobytes() == tree.nodes.tobytes()
    nodes = tree.nodes.copy()
    kernel(nodes, *[np.array([part] * 2, np.int32) for part in good], rows)
    wanted = fovea.tree_update(tree, *good, rows)
    close(nodes, wanted.nodes, "float32")


def test_tree_and_rows_must_match(target):
    """Extents that are known at run time only."""
    kernel = fovea.compile(
        """
func.func @f(%t: tensor<?x7x4xf32>, %l: tensor<?x?xi32>, %i: tensor<?x?xi32>, %r: tensor<?x?x4xf32>) -> tensor<?x7x4xf32> {
  %0 = attn.tree_update ins(%r : tensor<?x?x4xf32>) nodes(%l, %i : tensor<?x?xi32>, tensor<?x?xi32>)
      outs(%t : tensor<?x7x4xf32>) {shape = #attn.tree<ratio = 2, levels = 2>} -> tensor<?x7x4xf32>
  return %0 : tensor<?x7x4xf32>
}""",
        target=target,
    )
    tree, roots = np.zeros((3, 7, 4), np.float32), np.full((3, 1), 2, np.int32)
    tree[:, 0] = 1
    rows = np.zeros((3, 1, 4), np.float32)
    assert (kernel(tree, roots, roots * 0, rows)[:, 0] == 0).all()
    for arguments, text in [
        ((tree, roots, roots, rows[:2]), r"%r\) of @f: attn.tree_update expects extent 3"),
        ((tree, roots[:2], roots, rows), r"%l\) of @f: attn.tree_update expects extent 3"),
        ((tree, roots, roots.repeat(2, 1), rows), r"%i\) of @f: attn.tree_update expects extent 1"),
    ]:
        with pytest.raises((fovea.FoveaError, ValueError), match=text):
            kernel(*arguments)


def test_budget_in_a_kernel(target):
    kernel = fovea.compile(
        """
func.func @select(%t: tensor<1x20x3xf32>, %n: tensor<1x20xi32>, %s: tensor<1x4xf32>) -> tensor<1x10xi32> {
  %e = tensor.empty() : tensor<1x10xi32>
  %f = tensor.empty() : tensor<1x10xi32>
  %l, %i = attn.tree_select ins(%t : tensor<1x20x3xf32>) counts(%n : tensor<1x20xi32>)
      outs(%e, %f : tensor<1x10xi32>, tensor<1x10xi32>)
      {shape = #attn.tree<ratio = 4, levels = 1>, budgets = array<i64: 2>} -> tensor<1x10xi32>, tensor<1x10xi32> score {
  ^bb0(%rows: tensor<1x4x3xf32>, %weight: tensor<1x4xf32>):
    attn.yield %weight : tensor<1x4xf32>
  }
  return %i : tensor<1x10xi32>
}
""",
        target=target,
    )
    tree, scores = np.zeros((1, 20, 3), np.float32), np.zeros((1, 4), np.float32)
    for present, split in (([0, 4, 0, 1], [1, 3]), ([2, 4, 1, 3], [1, 3])):
        counts = np.array([present + [1] * 16], np.int32)
        index = kernel(tree, counts, scores)
        wanted = [[4 * x + j for j in range(4)] if x in split else [x] for x in range(4)]
        assert index.tolist() == [sum(wanted, [])]
    with pytest.raises(fovea.FoveaError, match="budget of level 1 in batch entry 0, expected at most the 1"):
        kernel(tree, np.array([[0, 4, 0, 0] + [1] * 16], np.int32), scores)


@pytest.mark.parametrize("cpu", ["x86-64", "x86-64-v3", "x86-64-v4", "native"])
@pytest.mark.parametrize("type", ["f32", "bf16"])
def test_cpus(cpu, type):
    """Vectors of any length, with columns that fill them and columns that do not."""
    shape = "shape = #attn.tree<ratio = 3, levels = 2>"
    for F in (5, 16, 83):
        c, t, r = (f"tensor<?x{n}x{F}x{type}>" for n in (18, 26, 6))
        l = "tensor<?x6xi32>"
        text = f"""
func.func @f(%c: {c}, %t: {t}, %l: {l}, %i: {l}, %r: {r}) -> ({c}, {r}) {{
  %0 = attn.tree_build ins(%c : {c}) outs(%t : {t}) {{{shape}}} -> {t}
  %1 = attn.tree_update ins(%r : {r}) nodes(%l, %i : {l}, {l}) outs(%0 : {t}) {{{shape}}} -> {t}
  %2 = attn.tree_fetch ins(%1 : {t}) nodes(%l, %i : {l}, {l}) outs(%r : {r}) {{{shape}}} -> {r}
  %3 = attn.tree_materialize ins(%1 : {t}) outs(%c : {c}) {{{shape}}} -> {c}
  return %3, %2 : {c}, {r}
}}"""
        try:
            kernel = fovea.compile(text, cpu=cpu)
        except fovea.FoveaError as error:
            if "cannot run code for CPU" in str(error):
                pytest.skip(f"this machine is no {cpu}")
            raise
        name = {"f32": "float32", "bf16": "bfloat16"}[type]
        rng = np.random.default_rng(F)
        tokens, rows = (rng.standard_normal((2, n, F)).astype(TYPES[name]) for n in (18, 6))
        level, index = [[2, 1, 1, 0, 0, 0]] * 2, [[0, 3, 4, 15, 16, 17]] * 2
        level, index = np.array(level, np.int32), np.array(index, np.int32)
        found = kernel(tokens, np.zeros((2, 26, F), TYPES[name]), level, index, rows)
        mirror = reference.tree_build(tokens, ratio=3, levels=2)
        mirror = reference.tree_update(mirror, level, index, rows)
        close(found[0], mirror.tokens, name, 3)
        close(found[1], reference.tree_fetch(mirror, level, index), name, 3)


# ----------------------------------------------------------------------------
# Bad input
# ----------------------------------------------------------------------------

C = np.zeros((1, 16, 4), np.float32)
ERRORS = [
    (lambda t: fovea.tree_build(C[:, :15]), "c: found 15 tokens, needed a power of the ratio 2"),
    (lambda t: fovea.tree_build(C, ratio=3), "c: found 16 tokens, needed a power of the ratio 3"),
    (lambda t: fovea.tree_build(C[:, :1]), "c: found 1 tokens, needed a power of the ratio 2"),
    (lambda t: fovea.tree_build(C[:, :0], levels=1), "c: found 0 tokens, needed a multiple of 2^1"),
    (lambda t: fovea.tree_build(C, ratio=3, levels=1), "c: found 16 tokens, needed a multiple of 3^1"),
    (lambda t: fovea.tree_build(C, ratio=1), "ratio: found 1, needed an integer of at least 2"),
    (lambda t: fovea.tree_build(C, levels=0), "levels: found 0, needed an integer of at least 1"),
    (lambda t: fovea.tree_build(C[0]), "c: found rank 2, needed rank 3"),
    (lambda t: fovea.tree_build(C.astype(int)), "c: found element type i64"),
    (lambda t: fovea.tree_build(C[:, :, :0]), "c: found width 0, needed at least 1"),
    (lambda t: fovea.tree_build(C, mask=np.ones((1, 15), bool)), "mask: found shape (1, 15), needed (1, 16)"),
    (lambda t: fovea.tree_build(C, mask=np.full((1, 16), 2)), "mask: found values other than 0 and 1"),
    (lambda t: fovea.tree_build(C, target="tpu"), "target: found 'tpu'"),
    (lambda t: fovea.tree_fetch(C, [0], [0]), "tree: found ndarray, needed a tree of tree_build"),
    (lambda t: fovea.tree_fetch(t, [3], [0]), "level[0, 0]: found 3, needed 0 to 2"),
    (lambda t: fovea.tree_fetch(t, [0, -1], [0, 0]), "level[0, 1]: found -1, needed 0 to 2"),
    (lambda t: fovea.tree_fetch(t, [0], [16]), "index[0, 0]: found 16, needed 0 to 15"),
    (lambda t: fovea.tree_fetch(t, [1], [4]), "index[0, 0]: found 4, needed 0 to 3"),
    (lambda t: fovea.tree_fetch(t, [0.5], [0]), "level: found element type float64, needed integers"),
    (lambda t: fovea.tree_fetch(t, [0, 0], [0]), "index: found 1 nodes, needed 2, as in level"),
    (lambda t: fovea.tree_fetch(t, [[0], [0]], [0]), "level: found shape [2, 1], needed [r] or [1, r]"),
    (lambda t: fovea.tree_update(t, [1] * 3, [0, 1, 2], C[:, :3]),
     "index: found nodes that cover 12 tokens of batch entry 0, needed all 16"),
    (lambda t: fovea.tree_update(t, [1] * 5, [0, 1, 1, 2, 3], C[:, :5]),
     "index[0, 2]: found node 1 of level 1, which overlaps an earlier one; needed one that begins at token 8"),
    (lambda t: fovea.tree_update(t, [1] * 3, [0, 2, 3], C[:, :3]),
     "index[0, 1]: found node 2 of level 1, which leaves a gap; needed one that begins at token 4"),
    (lambda t: fovea.tree_update(t, [2, 0], [0, 3], C[:, :2]), "index[0, 1]: found node 3 of level 0, which overlaps"),
    (lambda t: fovea.tree_update(t, [], [], C[:, :0]), "index: found nodes that cover 0 tokens"),
    (lambda t: fovea.tree_update(t, [5], [0], C[:, :1]), "level[0, 0]: found 5, needed 0 to 2"),
    (lambda t: fovea.tree_update(t, [2], [0], C[:, :2]), "rows: found shape (1, 2, 4), needed (1, 1, 4)"),
    (lambda t: fovea.tree_update(t, [2], [0], C[:, :1, :3]), "rows: found shape (1, 1, 3), needed (1, 1, 4)"),
    (lambda t: fovea.tree_update(t, [2], [0], C[:, :1].astype(float)), "rows: found element type float64, needed float32"),
    (lambda t: fovea.tree_materialize(None), "tree: found NoneType, needed a tree of tree_build"),
    (lambda t: fovea.tree_select(t, {2: 2}, score=C), "budgets[2]: found 2, needed at most 1, the candidates of level 2"),
    (lambda t: fovea.tree_select(t, {1: 1}, score=C), "budgets[1]: found 1, needed at most 0, the candidates of level 1"),
    (lambda t: fovea.tree_select(t, {2: 1, 1: 5}, score=C), "budgets[1]: found 5, needed at most 4"),
    (lambda t: fovea.tree_select(t, {3: 1}, score=C), "budgets: found level 3, needed 1 to 2"),
    (lambda t: fovea.tree_select(t, {0: 1}, score=C), "budgets: found level 0, needed 1 to 2"),
    (lambda t: fovea.tree_select(t, {1: -1}, score=C), "budgets[1]: found -1, needed an integer of at least 0"),
    (lambda t: fovea.tree_select(t, [1], score=C), "budgets: found list, needed a dictionary"),
    (lambda t: fovea.tree_select(t, {2: 1}, score=C[:, :, :3]), "score: found width 3, needed 4"),
    (lambda t: fovea.tree_select(t, {2: 1}, score=C.astype(float)), "score: found element type float64, needed float32"),
    (lambda t: fovea.tree_select(t, {2: 1, 1: 2}, score=lambda r, l: np.zeros(4)),
     "score: found shape [4] at level 1, needed [1, 4]"),
    (lambda t: fovea.tree_select(t, {2: 1, 1: 2}, score=lambda r, l: np.zeros((1, 4), "U1")), "score: found element type <U1"),
    (lambda t: fovea.tree_score(C[None], C[None, :, :, :3]), "key: found head width 3, needed 4"),
    (lambda t: fovea.tree_score(C[:, None], np.zeros((1, 2, 3, 4), np.float32)), "key: found 2 heads, needed a divisor of the 1"),
    (lambda t: fovea.tree_score(np.zeros((1, 2, 3, 4), np.float32), C[:, None], exponential=True), "query: found 2 heads, needed 1"),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(ERRORS)))
def test_errors(case):
    call, text = ERRORS[case]
    tree = fovea.tree_build(np.arange(64, dtype=np.float32).reshape(1, 16, 4), ratio=4)
    before = tree.nodes.copy()
    with pytest.raises(ValueError) as error:
        call(tree)
    assert str(error.value).startswith(text)
    assert np.array_equal(tree.nodes, before)


def test_budget_above_what_has_tokens():
    mask = np.arange(64).reshape(1, 64) < 17
    tree = fovea.tree_build(np.zeros((1, 64, 3), np.float32), ratio=16, levels=1, mask=mask)
    fovea.tree_select(tree, {1: 2}, score=np.zeros((1, 1, 3), np.float32))
    with pytest.raises(ValueError, match=r"budgets\[1\]: found 3, needed at most 2, the candidates"):
        fovea.tree_select(tree, {1: 3}, score=np.zeros((1, 1, 3), np.float32))
    level, index = fovea.tree_select(tree, {1: 2}, score=lambda r, l: np.array([[0.0, 1, 9, 9]]))
    assert set(index[0][level[0] == 0]) == set(range(32))
