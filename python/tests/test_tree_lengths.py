# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# REQUIRES: long-tests
"""Sequences of different lengths in one batch give what each gives alone: budgets are
upper bounds, and nodes that a short one lacks are absent."""

import pathlib
import sys

import numpy as np
import pytest
from conftest import TYPES

import fovea
from fovea.reference import _tree as reference

ALL_TARGETS = pytest.mark.parametrize("target", ["cpu", "reference", "gpu-sim"])
# Ratio, levels, roots, budgets and, for each sequence, how many tokens are present.
BATCHES = [
    (16, 1, 9, {1: 6}, (144, 40, 90)),
    (4, 2, 5, {2: 3, 1: 7}, (80, 1, 33, 17)),
    (2, 4, 3, {4: 3, 3: 4, 2: 2, 1: 4}, (48, 3, 20)),
    (3, 2, 70, {2: 40, 1: 100}, (630, 100)),
    (2, 3, 2, {3: 2, 2: 4, 1: 8}, (16, 0, 5)),
]
WIDTH = 5


def make(case, type="float32"):
    ratio, levels, roots, budgets, lengths = BATCHES[case]
    rng = np.random.default_rng(case)
    N = roots * ratio**levels
    c = rng.standard_normal((len(lengths), N, WIDTH)).astype(TYPES[type])
    mask = np.arange(N) < np.array(lengths)[:, None]
    return c, mask, dict(ratio=ratio, levels=levels), budgets


def score(rows, level):
    # NaN for absent candidates and padding must not matter, nor anything else.
    points = np.asarray(rows)[..., 0].astype(np.float64)
    return np.where(points == 0, np.nan, points)


def alone(array, b):
    return None if array is None else array[b : b + 1]


def run(c, mask, options, budgets, new_of, target):
    """All functions in turn; `new_of` makes new rows of rows."""
    tree = fovea.tree_build(c, mask=mask, target=target, **options)
    nodes = fovea.tree_select(tree, budgets, score=score, target=target)
    rows, weight = fovea.tree_fetch(tree, *nodes, return_log_weight=True, target=target)
    new = new_of(rows)
    # Whatever rows of absent nodes hold.
    new[nodes[0] < 0] = np.nan
    after = fovea.tree_update(tree, *nodes, new, target=target)
    d_tree = fovea.tree_fetch_backward(new_of(rows), tree, *nodes, target=target)
    updated = fovea.tree_update_backward(after.nodes, tree, *nodes, target=target)
    return (*nodes, rows, weight, after.nodes, fovea.tree_materialize(after), d_tree, *updated)


@ALL_TARGETS
@pytest.mark.parametrize("case", range(len(BATCHES)))
def test_a_batch_is_its_sequences(case, target):
    c, mask, options, budgets = make(case)
    new_of = lambda rows: np.sin(3 * rows) + 1  # noqa: E731
    together = run(c, mask, options, budgets, new_of, target)
    level, index, rows, weight = together[:4]
    absent = level < 0
    assert absent.any() and (index[absent] == -1).all() and (index[~absent] >= 0).all()
    assert (rows[absent] == 0).all() and (weight[absent] == -np.inf).all()
    assert (together[-1][absent] == 0).all()  # the gradient of new rows
    # Absent ones come last.
    assert (np.diff(absent.astype(int), axis=1) >= 0).all()
    for b in range(len(c)):
        one = run(alone(c, b), alone(mask, b), options, budgets, new_of, target)
        for x, y in zip(together, one, strict=True):
            assert np.array_equal(x[b], y[0], equal_nan=True)


@ALL_TARGETS
@pytest.mark.parametrize("type", ["int32", "int64"])
def test_lengths_are_a_mask(type, target):
    c, mask, options, _ = make(0)
    c[~mask] = np.nan
    tree = fovea.tree_build(c, mask=mask, target=target, **options)
    # Every second one of an array: strides are followed.
    lengths = np.repeat(mask.sum(1), 2).astype(type)[::2]
    other = fovea.tree_build(c, lengths=lengths, target=target, **options)
    assert np.array_equal(tree.nodes, other.nodes, equal_nan=True)
    assert np.array_equal(tree.counts, other.counts)


@ALL_TARGETS
@pytest.mark.parametrize("case", range(len(BATCHES)))
def test_by_definition(case, target):
    c, mask, options, budgets = make(case, "float64" if target != "gpu-sim" else "float32")
    tree = fovea.tree_build(c, mask=mask, target=target, **options)
    expected = reference.tree_build(c, mask=mask, **options)
    nodes = fovea.tree_select(tree, budgets, score=score, target=target)
    wanted = reference.tree_select(expected, budgets, score=score)
    assert np.array_equal(nodes[0], wanted[0]) and np.array_equal(nodes[1], wanted[1])
    rows, weight = fovea.tree_fetch(tree, *nodes, return_log_weight=True, target=target)
    np.testing.assert_allclose(rows, reference.tree_fetch(expected, *wanted), atol=1e-5)
    np.testing.assert_allclose(weight, reference.log_weights(expected, *wanted), atol=1e-5)
    after = fovea.tree_update(tree, *nodes, rows * 2, target=target)
    moved = reference.tree_update(expected, *wanted, rows * 2)
    np.testing.assert_allclose(fovea.tree_materialize(after), moved.tokens, atol=1e-4)


@ALL_TARGETS
def test_weights_of_whole_segments(target):
    """As many as a segment has, where it has any at all."""
    c, mask, options, budgets = make(0)
    mask &= np.arange(mask.shape[1]) % 5 != 0  # padding in every segment
    tree = fovea.tree_build(c, mask=mask, target=target, **options)
    nodes = fovea.tree_select(tree, budgets, score=score, target=target)
    fetch = {"return_log_weight": True, "target": target}
    rows, present = fovea.tree_fetch(tree, *nodes, **fetch)
    same, whole = fovea.tree_fetch(tree, *nodes, whole_segments=True, **fetch)
    assert np.array_equal(rows, same)
    wanted = np.where(np.isinf(present), -np.inf, nodes[0] * np.log(tree.ratio))
    np.testing.assert_allclose(whole, wanted, atol=1e-6)
    assert (whole > present + 0.1).any()  # some segments are partly padding
    everything = fovea.tree_build(c, target=target, **options)
    nodes = fovea.tree_select(everything, budgets, score=score, target=target)
    expected = fovea.tree_fetch(everything, *nodes, **fetch)[1]
    assert np.array_equal(fovea.tree_fetch(everything, *nodes, whole_segments=True, **fetch)[1], expected)


def test_a_short_sequence_is_that_without_its_padding():
    """Every segment of 3 is read whole, as if there were no others."""
    c, mask, options, budgets = make(0)
    tree = fovea.tree_build(c, mask=mask, **options)
    level, index = fovea.tree_select(tree, budgets, score=score)
    there = (level[1] >= 0) & (index[1] * 16 ** np.maximum(level[1], 0) < 48)
    assert np.array_equal(index[1][there], np.arange(48)) and not level[1][there].any()
    # The six other segments, and what three more splits would have made.
    assert (level[1][~there][:6] == 1).all() and (level[1][~there][6:] == -1).all()
    assert len(level[1]) == 9 + 6 * 15 and len(level[1][~there]) == 6 + 3 * 15


@ALL_TARGETS
def test_only_minus_one_twice_is_absent(target):
    tree = fovea.tree_build(np.ones((1, 4, 2), np.float32))
    for level, index, text in (
        ([-1], [0], r"level\[0, 0\]: found -1, needed 0 to 2"),
        ([1], [-1], r"index\[0, 0\]: found -1, needed 0 to 1"),
        ([-2], [-2], r"level\[0, 0\]: found -2, needed 0 to 2"),
        ([0], [4], r"index\[0, 0\]: found 4, needed 0 to 3"),
    ):
        with pytest.raises(ValueError, match=text):
            fovea.tree_fetch(tree, level, index, target=target)
    text = """
func.func @f(%tree: tensor<1x7x2xf32>, %level: tensor<1x3xi32>, %index: tensor<1x3xi32>) -> tensor<1x3x2xf32> {
  %ri = tensor.empty() : tensor<1x3x2xf32>
  %rows = attn.tree_fetch ins(%tree : tensor<1x7x2xf32>) nodes(%level, %index : tensor<1x3xi32>, tensor<1x3xi32>)
      outs(%ri : tensor<1x3x2xf32>) {shape = #attn.tree<ratio = 2, levels = 2>} -> tensor<1x3x2xf32>
  return %rows : tensor<1x3x2xf32>
}
"""
    kernel = fovea.compile(text, target=target)
    lists = lambda *entries: np.array([entries], np.int32)  # noqa: E731
    found = kernel(tree.nodes, lists(-1, 2, -1), lists(-1, 0, -1))
    assert np.array_equal(found, [[[0, 0], [1, 1], [0, 0]]])
    for level, index in (((0, -1, 0), (0, 0, 0)), ((0, 0, 0), (0, -1, 0)), ((-1, -2, 0), (-1, -2, 0))):
        for run, more in ((kernel, ()), (kernel.vjp(), (np.ones((1, 3, 2), np.float32),))):
            with pytest.raises(fovea.FoveaError):
                run(tree.nodes, lists(*level), lists(*index), *more)


@ALL_TARGETS
def test_an_update_of_nodes_in_any_order(target):
    tree = fovea.tree_build(np.arange(8, dtype=np.float32).reshape(1, 4, 2))
    rows = np.array([[[9, 9], [1, 2], [np.nan, np.nan], [3, 4]]], np.float32)
    found = fovea.tree_update(tree, [1, 0, -1, 0], [1, 0, -1, 1], rows, target=target)
    assert np.array_equal(fovea.tree_materialize(found), [[[1, 2], [3, 4], [8, 8], [10, 10]]])
    with pytest.raises(ValueError, match="index: found nodes that cover 2 tokens"):
        fovea.tree_update(tree, [0, -1, 0], [0, -1, 1], rows[:, :3], target=target)


SELECT = """
func.func @f(%c: tensor<2x16x3xf64>, %mask: tensor<2x16xi1>, %q: tensor<2x1x2x3xf64>) -> tensor<2x9x3xf64> {
  %ti = tensor.empty() : tensor<2x28x3xf64>
  %ni = tensor.empty() : tensor<2x28xi32>
  %li = tensor.empty() : tensor<2x9xi32>
  %fi = tensor.empty() : tensor<2x9xf64>
  %ri = tensor.empty() : tensor<2x9x3xf64>
  %t, %n = attn.tree_build ins(%c : tensor<2x16x3xf64>) mask(%mask : tensor<2x16xi1>)
      outs(%ti, %ni : tensor<2x28x3xf64>, tensor<2x28xi32>) {shape = #attn.tree<ratio = 2, levels = 2>}
      -> tensor<2x28x3xf64>, tensor<2x28xi32>
  %level, %index, %factor = attn.tree_select ins(%t : tensor<2x28x3xf64>) counts(%n : tensor<2x28xi32>)
      outs(%li, %li : tensor<2x9xi32>, tensor<2x9xi32>) straight_through(%fi : tensor<2x9xf64>)
      {shape = #attn.tree<ratio = 2, levels = 2>, budgets = array<i64: 3, 2>}
      -> tensor<2x9xi32>, tensor<2x9xi32>, tensor<2x9xf64> score {
  ^bb0(%rows: tensor<2x4x3xf64>, %weights: tensor<2x4xf64>):
    %keys = tensor.expand_shape %rows [[0, 1], [2], [3]] output_shape [2, 1, 4, 3] : tensor<2x4x3xf64> into tensor<2x1x4x3xf64>
    %si = tensor.empty() : tensor<2x4xf64>
    %score = attn.tree_score ins(%q, %keys : tensor<2x1x2x3xf64>, tensor<2x1x4x3xf64>) log_weight(%weights : tensor<2x4xf64>)
        outs(%si : tensor<2x4xf64>) -> tensor<2x4xf64>
    attn.yield %score : tensor<2x4xf64>
  }
  %x = attn.tree_fetch ins(%t : tensor<2x28x3xf64>) nodes(%level, %index : tensor<2x9xi32>, tensor<2x9xi32>)
      counts(%n : tensor<2x28xi32>) outs(%ri : tensor<2x9x3xf64>) {shape = #attn.tree<ratio = 2, levels = 2>} -> tensor<2x9x3xf64>
  %out = linalg.generic {indexing_maps = [affine_map<(b, r, f) -> (b, r, f)>, affine_map<(b, r, f) -> (b, r)>,
                                          affine_map<(b, r, f) -> (b, r, f)>],
                         iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x, %factor : tensor<2x9x3xf64>, tensor<2x9xf64>) outs(%ri : tensor<2x9x3xf64>) {
  ^bb0(%a: f64, %f: f64, %o: f64):
    %y = arith.mulf %a, %f : f64
    linalg.yield %y : f64
  } -> tensor<2x9x3xf64>
  return %out : tensor<2x9x3xf64>
}
"""


def test_straight_through(target):
    """The gradient of a short sequence's score in a batch is that of it alone."""
    rng = np.random.default_rng(8)
    c, q, d_out = (rng.standard_normal(s) for s in ((2, 16, 3), (2, 1, 2, 3), (2, 9, 3)))
    mask = np.arange(16) < np.array([[16], [3]])
    both = fovea.compile(SELECT, target=target)
    found = both(c, mask, q), *both.vjp()(c, mask, q, d_out)
    text = SELECT.replace("<2x", "<1x").replace("output_shape [2,", "output_shape [1,")
    one = fovea.compile(text, target=target)
    for b in range(2):
        part = [alone(x, b) for x in (c, mask, q, d_out)]
        for x, y in zip(found, (one(*part[:3]), *one.vjp()(*part)), strict=True):
            np.testing.assert_allclose(x[b], y[0], rtol=0, atol=1e-13)
    # Two of the short one's nine nodes are absent: one root of four has tokens, and
    # two nodes below it.
    assert not found[0][1, 7:].any() and np.isfinite(found[2]).all()


def test_a_layer():
    """An encoder over a batch of a long and a short sequence, in IR."""
    sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "examples"))
    from vcc_builder import WEIGHTS, Shape, encoder
    from vcc_encoder import random_weights

    rng = np.random.default_rng(9)
    options = dict(vip=3, tokens=48, heads=2, width=8, hidden=32, ratio=8, budgets={1: 4}, masked=True)
    shape = Shape(batch=2, **options)
    layers = random_weights(shape, 2)
    weights = [layer[name] for layer in layers for name in WEIGHTS]
    vip, tokens = (rng.standard_normal((2, n, 16)).astype(np.float32) for n in (3, 48))
    mask = np.arange(48) < np.array([[48], [11]])
    found = fovea.compile(encoder(shape, 2, return_nodes=True))(vip, tokens, mask, *weights)
    one = fovea.compile(encoder(Shape(batch=1, **options), 2, return_nodes=True))
    assert (found[2][1] == -1).any()
    for b in range(2):
        wanted = one(*(alone(x, b) for x in (vip, tokens, mask)), *weights)
        np.testing.assert_allclose(found[0][b], wanted[0][0], atol=1e-5)
        np.testing.assert_allclose(found[1][b][mask[b]], wanted[1][0][mask[b]], atol=1e-5)
        for x, y in zip(found[2:], wanted[2:], strict=True):
            assert np.array_equal(x[b], y[0])
    # What lies behind the padding of the short one has no influence on it.
    other = tokens.copy()
    other[1, 11:] = 1e3
    moved = fovea.compile(encoder(shape, 2, return_nodes=True))(vip, other, mask, *weights)
    np.testing.assert_allclose(moved[0], found[0], atol=1e-5)
