# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# REQUIRES: long-tests
"""Trees of averages against their definitions."""

import ml_dtypes
import numpy as np
import pytest
from conftest import TYPES
from tree_cases import MASKS, ROUNDING, SHAPES, build_both, close, make_mask, random_cover, tokens

import fovea
from fovea.reference import _tree as reference


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


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", ["end", "random", "segments"])
@pytest.mark.parametrize("shape", SHAPES)
def test_what_padding_holds(shape, kind, number, target):
    """Nodes with a token keep their bits, whatever padding holds: what is built, updated
    with any rows for nodes without one, fetched and materialized."""
    B, ratio, levels, roots, F = shape
    mask = make_mask(kind, B, roots * ratio**levels, ratio)
    found = []
    for padding in (1.0, number):
        c = tokens(*shape)
        c[~mask] = padding
        tree, _ = build_both(shape, mask=mask, target=target, c=c)
        level, index = random_cover(tree, np.random.default_rng(1))
        weight = fovea.tree_fetch(tree, level, index, return_log_weight=True, target=target)[1]
        rows = np.random.default_rng(2).standard_normal((*level.shape, F)).astype(np.float32)
        rows[np.isneginf(weight)] = padding
        moved = fovea.tree_update(tree, level, index, rows, target=target)
        fetched = fovea.tree_fetch(moved, level, index, target=target)
        whole = fovea.tree_materialize(moved, target=target)
        present = tree.counts > 0
        found.append([tree.nodes[present], moved.nodes[present], fetched[~np.isneginf(weight)], whole[mask]])
    for clean, other in zip(*found):
        assert np.isfinite(clean).all() and clean.tobytes() == other.tobytes()


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
        # Both are f32: each is as far from the exact sums as SPEC allows.
        bound = 5e-6 * np.abs(wanted).max()
        np.testing.assert_allclose(found[:, :, kept], wanted[:, :, at[kept]], rtol=0, atol=bound)


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
    for wrong in ("x", 1.0, None, [1]):
        with pytest.raises(ValueError, match="^level: found .*, needed an integer"):
            tree.level(wrong)
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
        ((tree, roots, roots, rows[:2]), r"%l\) of @f: attn.tree_update expects extent 2, .* argument 3 \(%r\)"),
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
    # A sequence with fewer nodes that have tokens splits those.
    index = kernel(tree, np.array([[0, 4, 0, 0] + [1] * 16], np.int32), scores)
    assert index.tolist() == [[0, 4, 5, 6, 7, 2, 3, -1, -1, -1]]


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
