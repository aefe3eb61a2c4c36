# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What functions of trees say of bad input."""

import numpy as np
import pytest

import fovea

C = np.zeros((1, 16, 4), np.float32)
ERRORS = [
    (lambda t: fovea.tree_build(C[:, :15]), "c: found 15 tokens, needed a power of the ratio 2"),
    (lambda t: fovea.tree_build(C, ratio=3), "c: found 16 tokens, needed a power of the ratio 3"),
    (lambda t: fovea.tree_build(C[:, :1]), "c: found 1 tokens, needed a power of the ratio 2"),
    (lambda t: fovea.tree_build(C[:, :0], levels=1), "c: found 0 tokens, needed a multiple of 2^1"),
    (lambda t: fovea.tree_build(C, ratio=3, levels=1), "c: found 16 tokens, needed a multiple of 3^1"),
    (lambda t: fovea.tree_build(C, ratio=1), "ratio: found 1, needed an integer of at least 2"),
    (lambda t: fovea.tree_build(C, levels=0), "levels: found 0, needed an integer of at least 1"),
    (lambda t: fovea.tree_build(C, levels=2**62), f"c: found 16 tokens, needed a multiple of 2^{2**62}"),
    (lambda t: fovea.tree_build(C[0]), "c: found rank 2, needed rank 3"),
    (lambda t: fovea.tree_build(C.astype(int)), "c: found element type int64"),
    (lambda t: fovea.tree_build(C[:, :, :0]), "c: found width 0, needed at least 1"),
    (lambda t: fovea.tree_build(C, mask=np.ones((1, 15), bool)), "mask: found shape (1, 15), needed (1, 16)"),
    (lambda t: fovea.tree_build(C, mask=np.full((1, 16), 2)), "mask: found values other than 0 and 1"),
    (lambda t: fovea.tree_build(C, mask=[[1], [1, 0]]), "mask: found list, needed an array or lists that make one"),
    (lambda t: fovea.tree_build(C, lengths=[[16]]), "lengths: found shape (1, 1), needed (1,)"),
    (lambda t: fovea.tree_build(C, lengths=[17]), "lengths: found 17 for batch entry 0, needed 0 to 16"),
    (lambda t: fovea.tree_build(C, lengths=[-1]), "lengths: found -1 for batch entry 0, needed 0 to 16"),
    (lambda t: fovea.tree_build(C, lengths=[1.0]), "lengths: found element type float64, needed int32 or int64"),
    (
        lambda t: fovea.tree_build(C, mask=np.ones((1, 16), bool), lengths=[16]),
        "lengths: found mask as well, needed one of the two",
    ),
    (lambda t: fovea.tree_build(C, target="tpu"), "target: found 'tpu'"),
    (lambda t: fovea.tree_build(C, target=["cpu"]), "target: found ['cpu']"),
    (lambda t: fovea.tree_fetch(C, [0], [0]), "tree: found ndarray, needed a tree of tree_build"),
    (lambda t: fovea.tree_fetch(t, [3], [0]), "level[0, 0]: found 3, needed 0 to 2"),
    (lambda t: fovea.tree_fetch(t, [0, -1], [0, 0]), "level[0, 1]: found -1, needed 0 to 2"),
    (lambda t: fovea.tree_fetch(t, [0], [16]), "index[0, 0]: found 16, needed 0 to 15"),
    (lambda t: fovea.tree_fetch(t, [1], [4]), "index[0, 0]: found 4, needed 0 to 3"),
    (lambda t: fovea.tree_fetch(t, [0.5], [0]), "level: found element type float64, needed integers"),
    (lambda t: fovea.tree_fetch(t, [0, 0], [0]), "index: found 1 nodes, needed 2, as in level"),
    (lambda t: fovea.tree_fetch(t, [[0], [0]], [0]), "level: found shape [2, 1], needed [r] or [1, r]"),
    (lambda t: fovea.tree_fetch(t, [[0], []], [0]), "level: found list, needed an array"),
    (lambda t: fovea.Tree(t.nodes.tolist(), None, 4, 2), "nodes: found list, needed a NumPy array"),
    (lambda t: fovea.Tree(t.nodes[0], None, 4, 2), "nodes: found rank 2, needed rank 3 [B,n,F]"),
    (lambda t: fovea.Tree(t.nodes, None, 4, 1), "nodes: found shape [1, 21, 4], needed the nodes of a tree of ratio 4 with 1"),
    (lambda t: fovea.Tree(t.nodes, None, 4, 2**62), "nodes: found shape [1, 21, 4]"),
    (lambda t: fovea.Tree(t.nodes, None, "4", 2), "ratio: found '4', needed an integer of at least 2"),
    (lambda t: fovea.Tree(t.nodes, None, 4, 2.0), "levels: found 2.0, needed an integer of at least 1"),
    (lambda t: fovea.Tree(t.nodes, np.ones((1, 21)), 4, 2), "counts: found element type float64, needed int32"),
    (lambda t: fovea.Tree(t.nodes, np.ones((1, 20), np.int32), 4, 2), "counts: found shape (1, 20), needed (1, 21)"),
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
    (
        lambda t: fovea.tree_score(C[None], C[None], mask=np.ones((1, 15), bool)),
        "mask: found shape (1, 15), needed (1, 16)",
    ),
    (
        lambda t: fovea.tree_score_backward(C[0], C[None], C[None]),
        "d_score: found",
    ),
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


def test_log_weight_of_a_gradient_whose_kernel_is_there():
    """Kernels of gradients are for any extents, and compare what they read with none of these."""
    query, key, d_score = C[:, None, :3], C[:, None], np.zeros((1, 16), np.float32)
    fovea.tree_score_backward(d_score, query, key, log_weight=d_score)
    for shape in ((1, 15), (1, 17), (0, 16), (2, 16)):
        with pytest.raises(ValueError, match=rf"^log_weight: found shape \({shape[0]}, {shape[1]}\), needed \(1, 16\)$"):
            fovea.tree_score_backward(d_score, query, key, log_weight=np.zeros(shape, np.float32))
