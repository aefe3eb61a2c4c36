# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# REQUIRES: long-tests
"""Transposes of the functions on trees: <A x, y> = <x, A' y>."""

import numpy as np
import pytest
from conftest import TYPES

import fovea
from fovea import reference

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


@pytest.mark.parametrize("target", ["cpu", "gpu-sim"])
def test_no_sequences(target):
    tree = fovea.tree_build(np.zeros((0, 16, 4), np.float32), levels=2, target=target)
    assert fovea.tree_build_backward(tree.nodes, tree, target=target).shape == (0, 16, 4)
    assert fovea.tree_materialize_backward(np.zeros((0, 16, 4), np.float32), tree, target=target).shape == tree.nodes.shape
    nodes = [2] * 4, range(4)
    assert fovea.tree_fetch_backward(np.zeros((0, 4, 4), np.float32), tree, *nodes, target=target).shape == tree.nodes.shape
    shapes = [x.shape for x in fovea.tree_update_backward(tree.nodes, tree, *nodes, target=target)]
    assert shapes == [tree.nodes.shape, (0, 4, 4)]


@pytest.mark.parametrize("number", [np.nan, np.inf])
@pytest.mark.parametrize("shape", SHAPES)
def test_what_padding_does_not_read(shape, number, target):
    """A padded token is in no mean, so nothing that the means' gradients hold is in its
    own; and gradients do not depend on what padding holds."""
    rng, c, mask, tree = make(shape, True)
    ratio, levels = tree.ratio, tree.levels
    y, (level, index) = normal(rng, tree.nodes), cover(tree)
    clean = fovea.tree_build_backward(y, tree, target=target)
    # The gradient of a root is read by its tokens.
    dirty = y.copy()
    dirty[:, 0] = number
    found = fovea.tree_build_backward(dirty, tree, target=target)
    own = np.zeros(mask.shape, bool)
    own[:, : ratio**levels] = True
    # The root of padding alone has the mean of its padding.
    read = own & (mask | (tree.counts[:, :1] == 0))
    assert not np.isfinite(found[read]).any()
    assert found[~read].tobytes() == clean[~read].tobytes()
    held = c.copy()
    held[~mask] = number
    held = fovea.tree_build(held, ratio=ratio, levels=levels, mask=mask)
    for one, two in ((fovea.tree_build_backward(y, x, target=target) for x in (tree, held)),
                     (np.stack(fovea.tree_update_backward(y, x, level, index, target=target)[1])
                      for x in (tree, held))):  # fmt: skip
        assert one.tobytes() == two.tobytes()


@pytest.mark.parametrize("type", TYPES)
def test_types(type):
    rng, c, _, tree = make("one root", True, type)
    y = normal(rng, tree.nodes)
    found = fovea.tree_build_backward(y, tree)
    assert found.dtype == TYPES[type] and found.shape == c.shape
    equal(inner(tree.nodes, y), inner(c, found), c.size, type)
    found = fovea.tree_materialize_backward(c, tree)
    assert found.dtype == TYPES[type] and found.shape == tree.nodes.shape


def test_the_same_bits_for_any_number_of_threads():
    rng, c, _, tree = make("several roots", True, "float32")
    y, (level, index) = normal(rng, tree.nodes), cover(tree)
    found = []
    try:
        for threads in (1, 2, 3, 7):
            fovea.set_num_threads(threads)
            found.append([fovea.tree_build_backward(y, tree), fovea.tree_materialize_backward(c, tree),
                          *fovea.tree_update_backward(y, tree, level, index)])  # fmt: skip
    finally:
        fovea.set_num_threads(0)
    for other in found[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(found[0], other))


FUNCTION = """
func.func @layer(%c: tensor<2x8x3xf64>, %level: tensor<2x5xi32>, %index: tensor<2x5xi32>) -> tensor<2x8x3xf64> {
  %ti = tensor.empty() : tensor<2x15x3xf64>
  %ri = tensor.empty() : tensor<2x5x3xf64>
  %ci = tensor.empty() : tensor<2x8x3xf64>
  %tree = attn.tree_build ins(%c : tensor<2x8x3xf64>) outs(%ti : tensor<2x15x3xf64>)
      {shape = #attn.tree<ratio = 2, levels = 3>} -> tensor<2x15x3xf64>
  %rows = attn.tree_fetch ins(%tree : tensor<2x15x3xf64>) nodes(%level, %index : tensor<2x5xi32>, tensor<2x5xi32>)
      outs(%ri : tensor<2x5x3xf64>) {shape = #attn.tree<ratio = 2, levels = 3>} -> tensor<2x5x3xf64>
  %new = math.tanh %rows : tensor<2x5x3xf64>
  %next = attn.tree_update ins(%new : tensor<2x5x3xf64>) nodes(%level, %index : tensor<2x5xi32>, tensor<2x5xi32>)
      outs(%tree : tensor<2x15x3xf64>) {shape = #attn.tree<ratio = 2, levels = 3>} -> tensor<2x15x3xf64>
  %out = attn.tree_materialize ins(%next : tensor<2x15x3xf64>) outs(%ci : tensor<2x8x3xf64>)
      {shape = #attn.tree<ratio = 2, levels = 3>} -> tensor<2x8x3xf64>
  return %out : tensor<2x8x3xf64>
}
"""


def test_a_function_of_trees(target):
    """Build, fetch, move and materialize, against central differences."""
    rng = np.random.default_rng(4)
    c, d_out = rng.standard_normal((2, 2, 8, 3))
    level = np.array([[0, 0, 1, 1, 1], [1, 0, 0, 1, 1]], np.int32)
    index = np.array([[0, 1, 1, 2, 3], [0, 2, 3, 2, 3]], np.int32)
    kernel = fovea.compile(FUNCTION, target=target)
    gradient = kernel.vjp()(c, level, index, d_out)
    for at in np.ndindex(c.shape):
        step = np.zeros(c.shape)
        step[at] = 1e-5
        above, below = (kernel(c + s * step, level, index) for s in (1, -1))
        assert abs(inner(d_out, above - below) / 2e-5 - gradient[at]) <= 1e-6 * np.abs(gradient).max()


def score_function(shape, heads, groups, weight, exponential):
    """attn.tree_score of VIP tokens and candidates."""
    batch, tokens, count, width = shape
    q, k = f"tensor<{batch}x{heads}x{tokens}x{width}xf64>", f"tensor<{batch}x{groups}x{count}x{width}xf64>"
    out = f"tensor<{batch}x{count}xf64>"
    clause = f"log_weight(%w : {out})" if weight else ""
    return (
        f"func.func @f(%q: {q}, %k: {k}{f', %w: {out}' * weight}) -> {out} {{\n  %e = tensor.empty() : {out}\n"
        f"  %s = attn.tree_score ins(%q, %k : {q}, {k}) {clause} outs(%e : {out})"
        f" {{scale = 0.7 : f64{', exponential' * exponential}}} -> {out}\n  return %s : {out}\n}}\n"
    )


@pytest.mark.parametrize("heads,groups,weight,exponential",
                         [(1, 1, False, True), (1, 1, False, False), (2, 2, True, False), (4, 2, True, False)])  # fmt: skip
def test_scores(heads, groups, weight, exponential, target):
    """Against central differences; a masked candidate passes nothing on."""
    rng = np.random.default_rng(6)
    shape = batch, tokens, count, width = 2, 3, 5, 4
    arrays = [rng.standard_normal((batch, heads, tokens, width)), rng.standard_normal((batch, groups, count, width))]
    if weight:
        arrays.append(rng.standard_normal((batch, count)))
        arrays[2][0, 1] = -np.inf
    kernel = fovea.compile(score_function(shape, heads, groups, weight, exponential), target=target)
    d = rng.standard_normal((batch, count))
    found = kernel.vjp()(*arrays, d)
    assert len(found) == len(arrays)
    if weight:
        assert not found[1][0, :, 1].any() and found[2][0, 1] == 0
    for at, gradient in enumerate(found):
        for index in np.ndindex(gradient.shape):
            moved = [[x.copy() for x in arrays] for _ in range(2)]
            for one, step in zip(moved, (1e-5, -1e-5)):
                one[at][index] += step
            difference = inner(d, kernel(*moved[0]) - kernel(*moved[1])) / 2e-5
            assert abs(difference - gradient[index]) <= 1e-6 * np.abs(gradient).max()


STRAIGHT_THROUGH = """
func.func @layer(%t: tensor<2x15x3xf64>, %q: tensor<2x2x4x3xf64>) -> (tensor<2x4x3xf64>, tensor<2x4xi32>, tensor<2x4xi32>) {
  %li = tensor.empty() : tensor<2x4xi32>
  %fi = tensor.empty() : tensor<2x4xf64>
  %ri = tensor.empty() : tensor<2x4x3xf64>
  %level, %index, %factor = attn.tree_select ins(%t : tensor<2x15x3xf64>) outs(%li, %li : tensor<2x4xi32>, tensor<2x4xi32>)
      straight_through(%fi : tensor<2x4xf64>) {shape = #attn.tree<ratio = 2, levels = 3>, budgets = array<i64: 1, 1, 1>}
      -> tensor<2x4xi32>, tensor<2x4xi32>, tensor<2x4xf64> score {
  ^bb0(%candidates: tensor<2x2x3xf64>):
    %keys = tensor.expand_shape %candidates [[0, 1], [2], [3]] output_shape [2, 1, 2, 3] : tensor<2x2x3xf64> into tensor<2x1x2x3xf64>
    %si = tensor.empty() : tensor<2x2xf64>
    %score = attn.tree_score ins(%q, %keys : tensor<2x2x4x3xf64>, tensor<2x1x2x3xf64>) outs(%si : tensor<2x2xf64>) -> tensor<2x2xf64>
    attn.yield %score : tensor<2x2xf64>
  }
  %rows = attn.tree_fetch ins(%t : tensor<2x15x3xf64>) nodes(%level, %index : tensor<2x4xi32>, tensor<2x4xi32>)
      outs(%ri : tensor<2x4x3xf64>) {shape = #attn.tree<ratio = 2, levels = 3>} -> tensor<2x4x3xf64>
  %out = linalg.generic {indexing_maps = [affine_map<(b, r, f) -> (b, r, f)>, affine_map<(b, r, f) -> (b, r)>,
                                          affine_map<(b, r, f) -> (b, r, f)>],
                         iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%rows, %factor : tensor<2x4x3xf64>, tensor<2x4xf64>) outs(%ri : tensor<2x4x3xf64>) {
  ^bb0(%x: f64, %f: f64, %o: f64):
    %y = arith.mulf %x, %f : f64
    linalg.yield %y : f64
  } -> tensor<2x4x3xf64>
  return %out, %level, %index : tensor<2x4x3xf64>, tensor<2x4xi32>, tensor<2x4xi32>
}
"""


def soft_rows(nodes, query, level, index, stopped=None):
    """Rows of chosen nodes of a binary tree of three levels, times 1 + p - stop(p) for
    the score of every ancestor at levels 1 and 2; also these scores. At level 3 there
    is one node, so no choice."""
    rows = [nodes[:, :1]]
    for first, last in ((1, 3), (3, 7), (7, 15)):
        rows.insert(0, np.repeat(rows[0], 2, axis=1) - nodes[:, first:last])
    out = np.stack([[rows[l][b, x] for l, x in zip(level[b], index[b])] for b in range(len(level))])
    scores = np.zeros((len(level), 3))
    for b in range(len(level)):
        finest = index[b][level[b] == 0][0]
        for l in (1, 2):
            # The candidates are the two children of the node that was split above.
            chosen = finest >> l
            pair = rows[l][b, chosen // 2 * 2 :][:2]
            scores[b, l] = reference.head_probability(query[b : b + 1], pair[None, None])[0, chosen % 2]
            if stopped is not None:
                under = (level[b] < l) & (index[b] >> np.maximum(l - level[b], 0) == chosen)
                out[b, under] *= 1 + scores[b, l] - stopped[b, l]
    return out, scores


def test_straight_through(target):
    """The choice is hard forward; backward the scores of what was chosen count."""
    rng = np.random.default_rng(7)
    nodes, query = rng.standard_normal((2, 15, 3)), rng.standard_normal((2, 2, 4, 3))
    d_out = rng.standard_normal((2, 4, 3))
    kernel = fovea.compile(STRAIGHT_THROUGH, target=target)
    out, level, index = kernel(nodes, query)
    want, stopped = soft_rows(nodes, query, level, index)
    np.testing.assert_allclose(out, want, atol=1e-14)
    found = kernel.vjp()(nodes, query, d_out)
    for at, gradient in enumerate(found):
        assert np.abs(gradient).max() > 1e-3
        for position in np.ndindex(gradient.shape):
            values = []
            for step in (1e-5, -1e-5):
                moved = [nodes.copy(), query.copy()]
                moved[at][position] += step
                values.append(inner(d_out, soft_rows(*moved, level, index, stopped)[0]))
            difference = (values[0] - values[1]) / 2e-5
            assert abs(difference - gradient[position]) <= 1e-6 * np.abs(gradient).max()
    # Without the factor no gradient reaches the queries.
    hard = STRAIGHT_THROUGH.replace("ins(%rows, %factor", "ins(%rows, %ones").replace(
        "  %out =", "  %ones = arith.constant dense<1.0> : tensor<2x4xf64>\n  %out =")
    assert not fovea.compile(hard, target=target).vjp()(nodes, query, d_out)[1].any()


@pytest.mark.parametrize("wrong", [(0, 4, "level.* must be at least 0 and below 4, but got 4"),
                                   (1, 8, "index and last.* but got 8 and 7")])  # fmt: skip
def test_nodes_that_a_tree_does_not_have(wrong, target):
    """Fail, though the gradient of a linear operation does not run it."""
    text = """
func.func @f(%tree: tensor<1x15x3xf32>, %level: tensor<1x2xi32>, %index: tensor<1x2xi32>) -> tensor<1x2x3xf32> {
  %ri = tensor.empty() : tensor<1x2x3xf32>
  %rows = attn.tree_fetch ins(%tree : tensor<1x15x3xf32>) nodes(%level, %index : tensor<1x2xi32>, tensor<1x2xi32>)
      outs(%ri : tensor<1x2x3xf32>) {shape = #attn.tree<ratio = 2, levels = 3>} -> tensor<1x2x3xf32>
  return %rows : tensor<1x2x3xf32>
}
"""
    lists = np.zeros((2, 1, 2), np.int32)
    lists[wrong[0], 0, 1] = wrong[1]
    tree, d_rows = np.zeros((1, 15, 3), np.float32), np.zeros((1, 2, 3), np.float32)
    with pytest.raises(fovea.FoveaError, match=wrong[2]):
        fovea.compile(text, target=target).vjp()(tree, *lists, d_rows)


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
