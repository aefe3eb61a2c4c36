# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The references of low-rank attention against formulas of their own, their gradients
against central differences."""

import math

import numpy as np
import pytest
from differences import check_gradients
from loops import ref


def test_rope_turns_pairs():
    x = np.random.default_rng(0).standard_normal((2, 3, 5, 6))
    found = ref.rope(x, np.arange(5), base=100.0)
    pairs = x[..., 0::2] + 1j * x[..., 1::2]
    turned = pairs * np.exp(1j * np.arange(5)[:, None] * 100.0 ** (-np.arange(3) / 3))
    assert np.allclose(found[..., 0::2], turned.real) and np.allclose(found[..., 1::2], turned.imag)


def test_rope_scores_depend_on_distances():
    q, k = np.random.default_rng(1).standard_normal((2, 1, 1, 1, 8))
    at = np.arange(50)
    scores = ref.rope(np.repeat(q, 50, 2), at)[0, 0] @ ref.rope(np.repeat(k, 50, 2), at)[0, 0].T
    for lag in range(-49, 50):
        assert np.ptp(np.diagonal(scores, -lag)) < 1e-12


@pytest.mark.parametrize("degree", range(5))
def test_features_are_a_series(degree):
    q, k = np.random.default_rng(2).standard_normal((2, 1, 1, 4, 3))
    phi = [ref.polynomial_features(x, degree=degree, scale=0.7) for x in (q, k)]
    assert phi[0].shape[-1] == math.comb(3 + degree, degree)
    z = 0.7 * (q @ k.swapaxes(-1, -2))
    series = sum(z**g / math.factorial(g) for g in range(degree + 1))
    assert np.allclose(phi[0] @ phi[1].swapaxes(-1, -2), series)


def test_features_come_in_order():
    x = np.array([2.0, 3.0]).reshape(1, 1, 1, 2)
    found = ref.polynomial_features(x, degree=2, scale=1.0).ravel()
    assert np.allclose(found, [1, 2, 3, 4 / math.sqrt(2), 6, 9 / math.sqrt(2)])


def test_masks():
    assert ref.causal_mask(2, 3).tolist() == [[True, True, False], [True, True, True]]
    assert ref.causal_mask(3, 2).tolist() == [[False, False], [True, False], [True, True]]
    assert ref.row_interval_mask([1, 0], [1, 2], 3).tolist() == [[False, True, False], [True] * 3]
    assert ref.row_change_mask([[0, 2], [], [0, 1]], 3).tolist() == [
        [True, False, True],
        [True, False, True],
        [False, True, True],
    ]
    rows = [[True, False], [False, True]]
    assert ref.distinct_rows_mask([1, 0, 1], rows).tolist() == [rows[1], rows[0], rows[1]]
    assert ref.distinct_columns_mask([1, 1, 0], rows).tolist() == [
        [False, False, True],
        [True, True, False],
    ]
    with pytest.raises(ValueError, match="needed 0 <= first <= last < 3"):
        ref.row_interval_mask([2], [1], 3)


def test_low_rank_is_masked_attention():
    rng = np.random.default_rng(3)
    u1, u2, v = (rng.random(shape) for shape in ((2, 4, 5, 3), (2, 2, 6, 3), (2, 2, 6, 7)))
    mask = rng.random((5, 6)) < 0.5
    mask[2] = False
    weights = mask * (u1 @ np.repeat(u2, 2, axis=1).swapaxes(-1, -2))
    total = weights.sum(axis=-1, keepdims=True)
    want = (weights @ np.repeat(v, 2, axis=1)) / np.where(total == 0, 1, total)
    found = ref.low_rank(u1, u2, v, mask)
    assert np.allclose(found, want) and not found[:, :, 2].any()


def test_features_and_low_rank_are_attention():
    """Where scores are small, a few features are dense attention: at most 0.62
    here, so that the rest of the series is below 1e-10."""
    rng = np.random.default_rng(4)
    q, k, v = 0.3 * rng.standard_normal((3, 1, 2, 20, 3))
    phi = [ref.polynomial_features(x, degree=10, scale=1.0) for x in (q, k)]
    found = ref.low_rank(*phi, v, ref.causal_mask(20, 20))
    assert np.allclose(found, ref.dense(q, k, v, scale=1.0, causal=True), atol=1e-9)


# -- gradients ----------------------------------------------------------------


B, H, G, N, M, R, E = 2, 4, 2, 7, 9, 3, 5


def gradient_masks():
    rng = np.random.default_rng(0)
    yield "causal", ref.causal_mask(N, M)
    yield "fewer keys", ref.causal_mask(N, 4)
    yield "interval", ref.row_interval_mask(*np.sort(rng.integers(0, M, (2, N)), axis=0), M)
    yield "entries of heads", rng.random((B, H, N, M)) < 0.5


@pytest.mark.parametrize("name,mask", gradient_masks())
def test_low_rank_backward(name, mask):
    rng = np.random.default_rng(1)
    columns = mask.shape[-1]
    arrays = [rng.random((B, H, N, R)), rng.random((B, G, columns, R)),
              rng.standard_normal((B, G, columns, E))]  # fmt: skip
    check_gradients(
        lambda *factors: (ref.low_rank(*factors, mask), None),
        lambda d_out, _d, _o, _l, *factors: ref.low_rank_backward(d_out, *factors, mask),
        arrays,
    )


def test_rows_without_weight_pass_nothing_on():
    rng = np.random.default_rng(2)
    u1, u2 = rng.random((1, 1, 3, R)), rng.random((1, 1, M, R))
    u1[0, 0, 1] = 0
    v, d_out = rng.random((1, 1, M, E)), np.zeros((1, 1, 3, E))
    d_out[0, 0, 1] = 1
    mask = np.ones((3, M), bool)
    assert not any(gradient.any() for gradient in ref.low_rank_backward(d_out, u1, u2, v, mask))


@pytest.mark.parametrize("degree", range(5))
def test_features_backward(degree):
    x = np.random.default_rng(3).standard_normal((1, 2, 3, 4))
    options = {"degree": degree, "scale": 0.7}
    check_gradients(
        lambda x: (ref.polynomial_features(x, **options), None),
        lambda d_out, _d, _o, _l, x: [ref.polynomial_features_backward(d_out, x, **options)],
        [x],
    )


def test_rope_backward():
    x, positions = np.random.default_rng(4).standard_normal((2, 4, 11, 4)), np.arange(11) * 7
    check_gradients(
        lambda x: (ref.rope(x, positions, base=50.0), None),
        lambda d_out, _d, _o, _l, x: [ref.rope_backward(d_out, positions, base=50.0)],
        [x],
    )
