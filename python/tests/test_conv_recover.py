# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# REQUIRES: long-tests
"""fovea.conv_recover and fovea.conv: what is found, and how good the attention is."""

import math

import numpy as np
import pytest
from conftest import BOUNDS, TYPES, check, make

import fovea
from fovea import reference

EXACT = dict(window=1, delta=0.0, epsilon=0.0)


def from_scores(scores):
    """Queries and keys whose products are the scores [..,N,N]."""
    scores = np.asarray(scores, np.float32)
    k = np.broadcast_to(np.eye(scores.shape[-1], dtype=np.float32), scores.shape)
    return scores, np.ascontiguousarray(k)


def of_bases(b, sizes):
    scores = reference.conv_scores(np.asarray(b, float), sizes)
    return np.where(np.isneginf(scores), 0.0, scores)[None, None]


def test_known_bases_are_recovered_exactly(target):
    """Small integers, so that nothing is rounded."""
    rng = np.random.default_rng(0)
    sizes = np.array([40, 33, 18, 9, 5])
    b = np.where(np.arange(40) < sizes[:, None], rng.integers(1, 9, (5, 40)), 0)
    q, k = from_scores(of_bases(b, sizes))
    found = fovea.conv_recover(q, k, num_basis=5, window=4, delta=3.0, epsilon=0.0, scale=1.0, target=target)
    assert np.array_equal(found[0][0, 0], b)
    assert found[1].ravel().tolist() == sizes.tolist() and found[2].item() == 5
    # More than there are; the sizes of others are 0.
    found = fovea.conv_recover(q, k, num_basis=9, window=4, delta=3.0, epsilon=0.0, scale=1.0, target=target)
    assert found[2].item() == 5 and found[1][0, 0].tolist() == [*sizes, 0, 0, 0, 0] and not found[0][0, 0, 5:].any()
    # Fewer: the first ones.
    found = fovea.conv_recover(q, k, num_basis=2, window=4, delta=3.0, epsilon=0.0, scale=1.0, target=target)
    assert np.array_equal(found[0][0, 0], b[:2]) and found[2].item() == 2


def test_constant_rows_under_rope_are_one_basis(target):
    q, k = (np.repeat(x, 211, axis=2) for x in make(H=4, N=1, D=32)[:2])
    at = np.arange(211)
    q, k = (fovea.rope(x, at, target=target) for x in (q, k[:, :2]))
    b, sizes, found = fovea.conv_recover(q, k, num_basis=8, window=8, delta=1e-3, epsilon=0.0, target=target)
    assert (found == 1).all() and (sizes[:, :, 0] == 211).all() and not sizes[:, :, 1:].any()
    scores = q.astype(float) @ np.repeat(k.astype(float), 2, axis=1).swapaxes(-1, -2) / math.sqrt(32)
    assert np.abs(b[:, :, 0] - scores[:, :, :, 0]).max() < 1e-5


@pytest.mark.parametrize("N, window", [(1, 1), (2, 2), (53, 53), (53, 1)])
def test_every_length(N, window, target):
    q, k, _ = make(N=N)
    found = fovea.conv_recover(q, k, num_basis=3, window=window, delta=0.5, epsilon=0.0, target=target)
    expected = reference.conv_recover(q, k, num_basis=3, window=window, delta=0.5, epsilon=0.0)
    assert np.array_equal(found[1], expected[1]) and np.array_equal(found[2], expected[2])
    check(found[0], expected[0])
    if window == N:
        assert (found[2] == 1).all()


@pytest.mark.parametrize("type", TYPES)
def test_every_type(type, target):
    q, k, _ = make(type, H=4, G=2, N=40)
    found = fovea.conv_recover(q, k, num_basis=40, scale=1.0, **EXACT, target=target)
    assert found[0].dtype == (np.float64 if type == "float64" else np.float32) and (found[2] == 40).all()
    expected = reference.conv_recover(q, k, num_basis=40, scale=1.0, **EXACT)
    error = np.abs(found[0].astype(float) - expected[0]).max()
    assert error <= BOUNDS["float64" if type == "float64" else "float32"] * np.abs(expected[0]).max()


# ----------------------------------------------------------------------------
# conv
# ----------------------------------------------------------------------------


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("N", [1, 47, 64])
def test_all_columns_are_exact_attention(type, N, target):
    """Logits to +-30."""
    q, k, v = make(type, B=2, H=4, G=2, N=N, E=5, seed=3)
    scale = 30 / max(np.abs(q.astype(float) @ np.repeat(k, 2, axis=1).astype(float).swapaxes(-1, -2)).max(), 1)
    found, bases, _ = fovea.conv(q, k, v, num_basis=N, scale=scale, **EXACT, return_counts=True, target=target)
    assert (bases == N).all()
    check(found, reference.dense(q, k, v, scale=scale, causal=True), type)


@pytest.mark.parametrize("epsilon", [1e-3, 1e-2, 1e-1])
def test_the_bound_of_the_paper(epsilon, target):
    """Bases and noise of at most epsilon: off by 2 (exp(2 epsilon) - 1) max|v|."""
    N, window = 60, 6
    for seed in range(3):
        rng = np.random.default_rng(seed)
        sizes = np.array([N, 41, 17])
        b = 2 * rng.random((3, N)) + 5 * window * epsilon
        scores = of_bases(b, sizes) + np.tril(rng.uniform(-epsilon, epsilon, (1, 1, N, N)))
        q, k = from_scores(scores)
        v = rng.uniform(-1, 1, (1, 1, N, 4)).astype(np.float32)
        delta = min(np.abs(b[i : j + 1, :window].sum(0)).sum() for i in range(3) for j in range(i, 3))
        assert epsilon <= delta / (5 * window)
        found, count, _ = fovea.conv(q, k, v, num_basis=3, window=window, delta=delta, epsilon=epsilon,
                                     scale=1.0, return_counts=True, target=target)  # fmt: skip
        assert count.item() == 3
        error = np.abs(found - reference.dense(q, k, v, scale=1.0, causal=True)).max()
        assert 0 < error <= 2 * (math.exp(2 * epsilon) - 1) * np.abs(v).max()


def test_huge_and_tiny_values(target):
    q, k, v = make(N=50, E=4)
    v *= np.float32([1e-25, 1.0, 1e25, 1e-5])
    found = fovea.conv(q, k, v, num_basis=50, **EXACT, target=target).astype(float)
    expected = reference.dense(q, k, v, causal=True)
    assert (np.abs(found - expected).max(axis=(0, 1, 2)) <= 5e-6 * np.abs(expected).max(axis=(0, 1, 2))).all()


@pytest.mark.parametrize("N, group", [(40, 8), (45, 8), (17, 8), (16, 8), (9, 8), (8, 8), (5, 8), (30, 1), (31, 10)])
def test_sliding_groups(N, group, target):
    q, k, v = make(H=4, G=2, N=N, E=5)
    found, bases, _ = fovea.conv(q, k, v, num_basis=2 * group, **EXACT, mask=fovea.SlidingGroup(group),
                                 return_counts=True, target=target)  # fmt: skip
    block = np.arange(N) // group
    mask = np.tril(block[:, None] - block <= 1)
    check(found, reference.dense(q, k, v, bias=np.where(mask, 0.0, -np.inf)))
    pairs = max(-(-N // group) - 1, 1)
    assert (bases == N + (pairs - 1) * group).all()


# ----------------------------------------------------------------------------
# Errors
# ----------------------------------------------------------------------------


def test_bad_input():
    q, k, v = make(N=9)
    good = dict(num_basis=2, window=2, delta=1.0, epsilon=0.0)

    def refused(match, function=fovea.conv_recover, arrays=(q, k), **options):
        with pytest.raises(ValueError, match=match):
            function(*arrays, **{**good, **options})

    refused("window: found 10, needed at most the 9 rows of q", window=10)
    refused("window: found 0, needed an integer of at least 1", window=0)
    refused("num_basis: found 0, needed an integer of at least 1", num_basis=0)
    refused("delta: found -1, needed a finite number of at least 0", delta=-1)
    refused("delta: found nan, needed a finite number of at least 0", delta=float("nan"))
    refused("epsilon: found inf, needed a finite number of at least 0", epsilon=float("inf"))
    refused("scale: found nan, needed a finite number", scale=float("nan"))
    refused("k: found length 8, needed 9", arrays=(q, k[:, :, :8]))
    all_three = dict(function=fovea.conv, arrays=(q, k, v))
    refused("mask: found 'window', needed 'causal' or SlidingGroup", mask="window", **all_three)
    refused("algorithm: found 'fft', needed", algorithm="fft", **all_three)
    refused("algorithm: found 'single' for 2 bases, needed one basis", algorithm="single", **all_three)
    refused("window: found 4, needed at most the group of 3", window=4, mask=fovea.SlidingGroup(3), **all_three)
    with pytest.raises(ValueError, match="group: found 0, needed an integer of at least 1"):
        fovea.SlidingGroup(0)


def test_a_sequence_of_nothing_has_no_window():
    q, k, _ = make(N=0)
    with pytest.raises(ValueError, match="window: found 1, needed at most the 0 rows of q"):
        fovea.conv_recover(q, k, num_basis=1, window=1, delta=0.0, epsilon=0.0)
