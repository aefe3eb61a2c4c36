# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pooled summaries, their gradients, and the choice of keys, against NumPy and plain loops."""

import numpy as np
import pytest
from conftest import TYPES, near, refused

import fovea
from fovea import reference

B, G, E = 2, 3, 10
# Intervals and what they share: none, some, all and more than one interval.
FORMS = [(1, 0), (4, 0), (4, 3), (4, 4), (5, 12), (16, 0), (64, 1)]
ALL_TARGETS = pytest.mark.parametrize("target", ["cpu", "reference", "gpu-sim"])


def make(type, N, interval, has_bias, E=E):
    rng = np.random.default_rng(N + interval)
    x, gate = (rng.standard_normal((B, G, N, E)).astype(TYPES[type]) for _ in range(2))
    state = np.float64 if type == "float64" else np.float32
    bias = rng.standard_normal((interval, E)).astype(state) if has_bias else None
    return x, gate, {"interval": interval, "position_bias": bias}


def differentiate(x, gate, options, type, target="cpu"):
    rng = np.random.default_rng(7)
    shape = (*x.shape[:2], x.shape[2] // options["interval"], x.shape[3])
    d_out = rng.standard_normal(shape).astype(x.dtype)
    found = fovea.pool_backward(d_out, x, gate, **options, target=target)
    expected = reference.pool_backward(d_out, x, gate, **options)
    assert len(found) == len(expected) == (2 if options["position_bias"] is None else 3)
    for one, other in zip(found, expected):
        assert one.shape == other.shape
        if other.any():
            # That of the bias adds up what the gate's has rounded.
            wide = one.dtype != TYPES[type]
            near(one, other, "float32" if wide else type, 3e-2 if wide else None)
        else:
            assert not one.any()


@ALL_TARGETS
@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("interval,overlap", FORMS)
def test_pool(interval, overlap, type, target):
    if target == "gpu-sim" and type == "float64":
        pytest.skip("not on GPUs")
    for N, has_bias in ((65, True), (64, False), (3, True)):
        x, gate, options = make(type, N, interval, has_bias)
        options["overlap"] = overlap
        found = fovea.pool(x, gate, **options, target=target)
        expected = reference.pool(x, gate, **options)
        assert found.shape == expected.shape and found.dtype == x.dtype
        if found.size:
            near(found, expected, type)
        differentiate(x, gate, options, type, target)


@pytest.mark.parametrize("E", [1, 15, 16, 17, 130])
def test_widths(E):
    for type in ("float32", "bfloat16"):
        x, gate, options = make(type, 37, 8, True, E)
        near(fovea.pool(x, gate, **options), reference.pool(x, gate, **options), type)
        differentiate(x, gate, options, type)


@ALL_TARGETS
def test_tokens_without_weight_have_no_influence(target):
    x, gate, options = make("float32", 40, 8, True)
    gate[:, :, 3], gate[:, :, 16:24, 2] = -np.inf, -np.inf
    expected = reference.pool(x, gate, **options)
    x[:, :, 3], x[:, :, 16:24, 2] = np.nan, np.inf
    found = fovea.pool(x, gate, **options, target=target)
    near(found, expected, "float32")
    assert not found[:, :, 2, 2].any()
    d_out = np.ones_like(found)
    for one, other in zip(
        fovea.pool_backward(d_out, x, gate, **options, target=target), reference.pool_backward(d_out, x, gate, **options)
    ):
        near(one, other, "float32")


@ALL_TARGETS
def test_tokens_that_make_no_interval_have_no_influence(target):
    x, gate, options = make("float32", 37, 8, False)
    expected = fovea.pool(x, gate, **options, target=target)
    x[:, :, 32:], gate[:, :, 32:] = np.nan, np.nan
    assert np.array_equal(fovea.pool(x, gate, **options, target=target), expected)
    for one in fovea.pool_backward(np.ones_like(expected), x, gate, **options, target=target):
        assert np.isfinite(one).all() and not one[:, :, 32:].any()


def test_nan_is_passed_on():
    x, gate, options = make("float32", 40, 8, False)
    x[0, 0, 9, 1], gate[1, 1, 20, 3] = np.nan, np.nan
    found = fovea.pool(x, gate, **options)
    wrong = np.zeros(found.shape, bool)
    wrong[0, 0, 1, 1] = wrong[1, 1, 2, 3] = True
    assert np.array_equal(np.isnan(found), wrong)


def test_slopes():
    rng = np.random.default_rng(0)
    x, gate, options = make("float64", 23, 4, True)
    options["overlap"] = 3
    steps = [rng.standard_normal(each.shape) for each in (x, gate, options["position_bias"])]
    d_out = rng.standard_normal(fovea.pool(x, gate, **options).shape)

    def value(h):
        moved = {**options, "position_bias": options["position_bias"] + h * steps[2]}
        return (fovea.pool(x + h * steps[0], gate + h * steps[1], **moved) * d_out).sum()

    slope = (value(1e-4) - value(-1e-4)) / 2e-4
    found = sum((each * step).sum() for each, step in zip(fovea.pool_backward(d_out, x, gate, **options), steps))
    assert abs(found - slope) <= 1e-7 * max(1, abs(slope))


def test_same_bits_on_any_number_of_threads():
    x, gate, options = make("float32", 1030, 16, True)
    results = []
    try:
        for threads in (1, 2, 5):
            fovea.set_num_threads(threads)
            out = fovea.pool(x, gate, **options)
            results.append([out, *fovea.pool_backward(out, x, gate, **options)])
    finally:
        fovea.set_num_threads(0)
    for other in results[1:]:
        assert all(np.array_equal(*pair) for pair in zip(results[0], other, strict=True))


def test_a_wrong_interval_is_noticed():
    x, gate, options = make("float32", 64, 8, False)
    with pytest.raises(AssertionError):
        near(fovea.pool(x, gate, **options, overlap=1), reference.pool(x, gate, **options), "float32")


def test_errors():
    x, gate, options = make("float32", 40, 8, True)
    refused("^interval: found 0", fovea.pool, x, gate, interval=0)
    refused("^interval: found 70000, needed at most 65536", fovea.pool, x, gate, interval=70000)
    refused("^overlap: found -1", fovea.pool, x, gate, interval=8, overlap=-1)
    refused("^gate: found shape", fovea.pool, x, gate[:, :, 1:], interval=8)
    refused("^gate: found element type float64, needed float32", fovea.pool, x, gate.astype(float), interval=8)
    refused("^x: found rank 3", fovea.pool, x[0], gate[0], interval=8)
    short = options["position_bias"][1:]
    refused(r"^position_bias: found shape \(7, 10\), needed \(8, 10\)", fovea.pool, x, gate, interval=8, position_bias=short)
    refused("^d_out: found shape", fovea.pool_backward, x, x, gate, interval=8)
    refused("^k: found 0", fovea.top_k, x, 0)
    refused("^k: found 1048577, needed at most 1048576$", fovea.top_k, x, 2**20 + 1)
    refused("^k: found 1000000000, needed at most 1048576$", fovea.top_k, x, 10**9)
    refused("^causal_unit: found 0", fovea.top_k, x, 2, causal_unit=0)
    refused("^scores: found rank 3", fovea.top_k, x[0], 2)


# ----------------------------------------------------------------------------
# Choice
# ----------------------------------------------------------------------------


@ALL_TARGETS
@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("unit", [None, 1, 4])
def test_top_k(unit, type, target):
    if target == "gpu-sim" and type == "float64":
        pytest.skip("not on GPUs")
    rng = np.random.default_rng(2)
    for N, M in ((1, 1), (33, 9), (40, 10), (3, 65), (37, 0)):
        scores = rng.standard_normal((B, G, N, M)).astype(TYPES[type])
        # Many that are equal.
        ties = rng.integers(0, 3, (B, G, N, M)).astype(TYPES[type])
        for given in (scores, ties):
            for k in (1, 2, 7, 64, 70):
                found = fovea.top_k(given, k, causal_unit=unit, target=target)
                assert found.dtype == np.int32
                assert np.array_equal(found, reference.top_k(given, k, causal_unit=unit)), (N, M, k)


@ALL_TARGETS
def test_numbers_that_are_not_taken(target):
    scores = np.array([[[[np.nan, 1, -np.inf, 3, np.inf, -np.inf, np.nan, -4]]]], np.float32)
    assert np.array_equal(fovea.top_k(scores, 6, target=target)[0, 0, 0], [4, 3, 1, 7, -1, -1])


def test_large_choices():
    scores = np.random.default_rng(0).standard_normal((1, 1, 5, 5000)).astype(np.float32)
    for given in (scores, np.sort(scores), -np.sort(-scores)):
        for k in (1000, 4999, 5000):
            assert np.array_equal(fovea.top_k(given, k), reference.top_k(given, k))


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("interval,overlap", FORMS)
def test_state(interval, overlap, type):
    """Tokens in parts have the bits of all at once, of which none is kept for long."""
    N = 70
    x, gate, options = make(type, N, interval, has_bias=True)
    expected = fovea.pool(x, gate, **options, overlap=overlap)
    for sizes in ([1] * N, [3, 0, 30, 1, 36], [N]):
        state, at = fovea.PoolState(**options, overlap=overlap), 0
        for size in sizes:
            state.append(x[:, :, at : at + size], gate[:, :, at : at + size])
            at += size
            assert state.length == at and np.array_equal(state.summaries, expected[:, :, : at // interval])
            kept = 2 * interval + -(-overlap // interval) * interval
            assert state.nbytes <= 2 * x[:, :, :kept].nbytes + 2 * expected[:, :, : max(1, at // interval)].nbytes


def test_state_goes_back_and_forks():
    x, gate, options = make("float32", 60, 8, has_bias=True)
    state = fovea.PoolState(**options, overlap=8)
    state.append(x[:, :, :45], gate[:, :, :45])
    given = state.summaries
    before, fork = given.copy(), state.fork()
    for length in (42, 39, 33):
        state.truncate(length)
        # Other tokens are taken in their place, and what was given out stays.
        state.append(-x[:, :, length:50], gate[:, :, length:50])
        mixed = np.concatenate([x[:, :, :length], -x[:, :, length:50]], 2)
        assert np.array_equal(state.summaries, fovea.pool(mixed, gate[:, :, :50], **options, overlap=8))
        assert np.array_equal(given, before)
        state = fork.fork()
    fork.append(x[:, :, 45:], gate[:, :, 45:])
    assert np.array_equal(fork.summaries, fovea.pool(x, gate, **options, overlap=8)) and state.length == 45
    refused("^length: found 31, needed 32 to 45", state.truncate, 31)
    refused("^length: found 46", state.truncate, 46)
    # Tokens that are no longer there do not come back by going back twice.
    state.truncate(33)
    refused("^length: found 31, needed 32 to 33", state.truncate, 31)
    short = fovea.PoolState(**options, overlap=8)
    short.append(x[:, :, :0], gate[:, :, :0])
    short.append(x[:, :, :20], gate[:, :, :20])
    short.truncate(0)
    short.append(x, gate)
    assert np.array_equal(short.summaries, fovea.pool(x, gate, **options, overlap=8))


def test_state_decodes():
    """DeepSeek-V4's compressed attention token by token: each output is the row of the whole call."""
    rng = np.random.default_rng(5)
    N, interval, window = 45, 8, 12
    q, k = rng.standard_normal((2, 4, N, 16)), rng.standard_normal((2, 1, N, 16))
    gate, places = rng.standard_normal((2, 1, N, 16)), rng.standard_normal((interval, 16))
    whole = fovea.hca(q, k, fovea.pool(k, gate, interval=interval, position_bias=places), window=window, interval=interval)
    state = fovea.PoolState(interval=interval, position_bias=places)
    for n in range(1, N + 1):
        state.append(k[:, :, n - 1 : n], gate[:, :, n - 1 : n])
        row = fovea.hca(
            q[:, :, n - 1 : n], k[:, :, :n], state.summaries, window=window, interval=interval, lengths=np.full(2, n)
        )
        assert np.allclose(row[:, :, 0], whole[:, :, n - 1], rtol=0, atol=1e-13)


def test_errors_of_states():
    x, gate, options = make("float32", 9, 4, has_bias=False)
    state = fovea.PoolState(**options)
    refused("^interval: found 0", fovea.PoolState, interval=0)
    refused("^summaries: found no tokens", lambda: state.summaries)
    refused("^x: found rank 3, needed rank 4", state.append, x[0], gate[0])
    refused("^gate: found shape", state.append, x, gate[:, :, 1:])
    refused("^gate: found element type float64, needed float32", state.append, x, gate.astype(np.float64))
    refused("^position_bias: ", fovea.PoolState(interval=4, position_bias=np.ones((3, E), np.float32)).append, x, gate)
    state.append(x, gate)
    before = state.summaries.copy()
    refused("^x: found shape", state.append, x[:, 1:], gate[:, 1:])
    refused("^x: found element type float64", state.append, x.astype(np.float64), gate.astype(np.float64))
    assert state.length == 9 and np.array_equal(state.summaries, before)
