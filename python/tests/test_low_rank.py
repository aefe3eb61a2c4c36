# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# REQUIRES: long-tests
"""Low-rank attention and what makes its factors, with gradients, against the references."""

import math

import numpy as np
import pytest
from conftest import BOUNDS, LENGTH, TYPES, WIDTH, agree, check, make, near, refused, rows

import fovea
from fovea import reference


def factors(type="float32", *, B=2, H=4, G=2, N=37, M=37, r=9, E=11, seed=0):
    rng = np.random.default_rng(seed)
    u1, u2 = (rng.random(shape).astype(TYPES[type]) for shape in ((B, H, N, r), (B, G, M, r)))
    return u1, u2, rng.standard_normal((B, G, M, E)).astype(TYPES[type])


@pytest.mark.parametrize("type", TYPES)
def test_rope(type, target):
    x = np.random.default_rng(0).standard_normal((2, 3, 37, 10)).astype(TYPES[type])
    for positions in (np.arange(37), 5, np.arange(37)[::-1] * 10, np.arange(2 * 37).reshape(2, 1, 37)):
        found = fovea.rope(x, positions, base=500.0, target=target)
        check(found, reference.rope(x, positions, base=500.0), type)


@pytest.mark.parametrize("type", TYPES)
def test_polynomial_features(type, target):
    x = np.random.default_rng(0).standard_normal((2, 3, 5, 6)).astype(TYPES[type])
    for degree in (0, 1, 3):
        found = fovea.polynomial_features(x, degree=degree, scale=0.5, target=target)
        check(found, reference.polynomial_features(x, degree=degree, scale=0.5), type)


def masks(N, M, seed=1):
    """Masks of all kinds and their entries."""
    rng = np.random.default_rng(seed)
    yield fovea.Causal(), reference.causal_mask(N, M)
    ends = np.sort(rng.integers(0, M, (2, N)), axis=0)
    yield fovea.RowInterval(*ends), reference.row_interval_mask(*ends, M)
    entries = rng.random((N, M)) < 0.3
    entries[N // 2] = False
    yield fovea.RowChange.from_entries(entries), entries
    before = np.vstack([np.zeros((1, M), bool), entries[:-1]])
    lists = [[np.flatnonzero(row).tolist() for row in part] for part in (entries & ~before, before & ~entries)]
    yield fovea.RowChange(*lists), entries
    rows, group = rng.random((3, M)) < 0.5, rng.integers(0, 3, N)
    yield fovea.DistinctRows(group, rows), reference.distinct_rows_mask(group, rows)
    columns, group = rng.random((3, N)) < 0.5, rng.integers(0, 3, M)
    yield fovea.DistinctColumns(group, columns), reference.distinct_columns_mask(group, columns)


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("shape", [(37, 37), (20, 70), (70, 20), (1, 1)])
def test_low_rank(type, shape, target):
    u1, u2, v = factors(type, N=shape[0], M=shape[1])
    for mask, entries in masks(*shape):
        check(fovea.low_rank(u1, u2, v, mask=mask, target=target), reference.low_rank(u1, u2, v, entries), type)


def test_masks_of_heads(target):
    u1, u2, v = factors()
    first, last = np.sort(np.random.default_rng(2).integers(0, 37, (2, 2, 4, 37)), axis=0)
    found = fovea.low_rank(u1, u2, v, mask=fovea.RowInterval(first, last), target=target)
    check(found, reference.low_rank(u1, u2, v, reference.row_interval_mask(first, last, 37)))


def test_what_leaves_leaves_no_trace():
    """A column of huge values that has left is as if it had never been there."""
    u1, u2, v = factors(B=1, H=1, G=1)
    v[0, 0, 0] = 1e12
    entries = np.ones((37, 37), bool)
    entries[3:, 0] = False
    found = fovea.low_rank(u1, u2, v, mask=fovea.RowChange.from_entries(entries))
    want = reference.low_rank(u1, u2, v, entries)
    check(found[:, :, 3:], want[:, :, 3:])
    entries[20:] = False
    found = fovea.low_rank(u1, u2, v, mask=fovea.RowChange.from_entries(entries))
    assert not found[:, :, 20:].any()


@pytest.mark.parametrize("mask", [fovea.Causal(), fovea.RowInterval(np.zeros(20001, int), np.arange(20001))])
def test_long_sums(mask):
    """Small numbers do not drown in their own sum."""
    ones = np.full((1, 1, 20001, 1), 0.1, np.float32)
    v = np.tile(np.float32([0.1, 0.3, 1e-20, 1e20]), (1, 1, 20001, 1))
    found = fovea.low_rank(ones, ones, v, mask=mask)
    # Added up one by one in f32 they are off by more than 1e-4.
    assert np.abs(found / v - 1).max() < BOUNDS["float32"]


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("heads, M", [((1, 1), 1100), ((2, 1), 1100), ((1, 1), 1400), ((1, 1), 700)])
def test_segments_of_few_heads_are_tasks(type, heads, M):
    """They take turns: the same bits for any number of threads."""
    H, G = heads
    u1, u2, v = factors(type, B=1, H=H, G=G, N=1100, M=M, r=17, E=40)
    found = []
    try:
        for threads in (1, 2, 3, 7):
            fovea.set_num_threads(threads)
            found.append(fovea.low_rank(u1, u2, v, mask=fovea.Causal()))
    finally:
        fovea.set_num_threads(0)
    assert all(np.array_equal(found[0], other) for other in found[1:])
    check(found[0], reference.low_rank(u1, u2, v, reference.causal_mask(1100, M)), type)
    # So are heads, where there are many.
    many = fovea.low_rank(*(np.repeat(x, 4, axis=0) for x in (u1, u2, v)), mask=fovea.Causal())
    assert all(np.array_equal(found[0][0], other) for other in many)


def test_features_approximate_attention():
    rng = np.random.default_rng(4)
    q, k, v = (0.3 * rng.standard_normal((3, 1, 2, 70, 4))).astype(np.float32)
    phi = [fovea.polynomial_features(x, degree=5, scale=0.5) for x in (q, k)]
    found = fovea.low_rank(*phi, v, mask=fovea.Causal())
    check(found, fovea.dense(q, k, v, scale=0.5, causal=True).astype(float))


def test_bad_masks(target):
    u1, u2, v = factors(N=5, M=6)
    good = np.zeros(5, int)

    def run(mask):
        return fovea.low_rank(u1, u2, v, mask=mask, target=target)

    failed = dict(error=fovea.FoveaError)
    refused(r"attn.low_rank: interval\[0, 0, 2\] must have 0 <= first <= last < 6, but got 3 and 2",
            run, fovea.RowInterval([0, 0, 3, 0, 0], [5, 5, 2, 5, 5]), **failed)
    refused(r"interval\[0, 0, 4\] must have 0 <= first <= last < 6, but got 0 and 6",
            run, fovea.RowInterval(good, [5, 5, 5, 5, 6]), **failed)
    refused(r"interval\[0, 0, 0\] .*, but got -1 and 0", run, fovea.RowInterval(good - 1, good), **failed)
    refused(r"attn.low_rank: group\[0, 0, 3\] must be at least 0 and below 2, but got 2",
            run, fovea.DistinctRows([0, 1, 0, 2, 0], np.ones((2, 6), bool)), **failed)
    refused(r"attn.low_rank: group\[0, 0, 5\] must be at least 0 and below 2, but got -1",
            run, fovea.DistinctColumns([0, 1, 0, 1, 0, -1], np.ones((2, 5), bool)), **failed)
    refused(r"attn.low_rank: columns\[0, 0, 1\] must be at least 0 and below 6, but got 6",
            run, fovea.RowChange([[0], [6], [], [], []], [[]] * 5), **failed)

    refused("first: found extent 4 in dimension 2, needed 5", run, fovea.RowInterval(good[:4], good[:4]))
    refused("rows: found extent 5 in dimension 3, needed 6", run, fovea.DistinctRows(good, np.ones((2, 5), bool)))
    refused("columns: found extent 6 in dimension 3, needed 5", run, fovea.DistinctColumns([0] * 6, np.ones((2, 6), bool)))
    refused("ends: found extent 4 in dimension 2, needed 5", run, fovea.RowChange([[]] * 4, [[]] * 4))
    refused("group: found extent 3 in dimension 1, needed 4 or 1", run,
            fovea.DistinctRows(np.zeros((1, 3, 5), int), np.ones((2, 6), bool)))
    refused("mask: found 'causal', needed Causal", run, "causal")


def test_bad_mask_arguments():
    refused("last: found shape", fovea.RowInterval, [0, 1], [0])
    refused("first: found element type float64, needed an integer type", fovea.RowInterval, [0.5], [1])
    refused("first: found list, needed an array or lists that make one", fovea.RowInterval, [[0], [1, 2]], [1])
    refused("rows: found element type int64, needed bool", fovea.DistinctRows, [0], [[1, 0]])
    refused("columns: found rank 1, needed at least 2", fovea.DistinctColumns, [0], np.ones(3, bool))
    refused(r"entering\[1\]: found column 0, needed one that is not there yet", fovea.RowChange, [[0], [0]], [[], []])
    refused(r"leaving\[0\]: found column 3, needed one that is there", fovea.RowChange, [[]], [[3]])
    refused("leaving: found number of rows 1, needed 2", fovea.RowChange, [[], []], [[]])
    refused(r"leaving: found \[0\], needed a list of columns for every row", fovea.RowChange, [[]], [0])
    refused("entering: found None, needed a list of columns", fovea.RowChange, None, [[]])
    refused(r"entering\[0\]: found -1, needed an integer of at least 0", fovea.RowChange, [[-1]], [[]])
    refused("entries: found float64 of rank 2, needed bool of rank 2", fovea.RowChange.from_entries, np.ones((2, 2)))
    refused("group: found a number of more than 32 bits", fovea.DistinctRows, [1 << 40], np.ones((1, 1), bool))


def test_bad_arrays():
    u1, u2, v = factors(N=5, M=6)
    mask = fovea.Causal()
    refused("u2: found element type float64, needed float32", fovea.low_rank, u1, u2.astype(float), v, mask=mask)
    refused("u2: found extent 8 in dimension 3, needed 9", fovea.low_rank, u1, u2[..., :8], v, mask=mask)
    refused("v: found length", fovea.low_rank, u1, u2, v[:, :, :5], mask=mask)
    refused("u2: found 2 heads, needed a divisor of the 3 heads", fovea.low_rank, u1[:, :3], u2, v, mask=mask)
    x = np.ones((1, 1, 3, 4), np.float32)
    refused("x: found width 3, needed an even width", fovea.rope, x[..., :3], np.arange(3))
    refused("positions: found extent 2 in dimension 2, needed 3 or 1", fovea.rope, x, np.arange(2))
    refused("positions: found element type float64, needed an integer type", fovea.rope, x, np.arange(3.0))
    refused("base: found 0, needed a finite number above 0", fovea.rope, x, 0, base=0)
    refused("scale: found -1, needed a finite number of at least 0", fovea.polynomial_features, x, degree=1, scale=-1)
    refused("scale: found nan", fovea.polynomial_features, x, degree=1, scale=float("nan"))
    refused("degree: found -1", fovea.polynomial_features, x, degree=-1, scale=1)
    for degree in (17, 2**62):
        refused(f"degree: found {degree}", fovea.polynomial_features, x, degree=degree, scale=1)


# -- gradients ----------------------------------------------------------------


@pytest.mark.parametrize("type", list(TYPES))
def test_rope_backward(type, target):
    x, _, _ = make(type, N=33, D=6)
    positions = np.arange(33) * 1000
    d_out = np.random.default_rng(1).standard_normal(x.shape).astype(TYPES[type])
    found = fovea.rope_backward(d_out, positions, target=target)
    near(found, reference.rope_backward(d_out, positions), type)
    back = fovea.rope(found, positions, target=target)
    near(back, d_out.astype(np.float64), type)


@pytest.mark.parametrize("type", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(37, 37), (20, 70), (70, 20)])
def test_low_rank_backward(type, shape, target):
    u1, u2, v = factors(type, N=shape[0], M=shape[1])
    d_out = np.random.default_rng(5).standard_normal((*u1.shape[:3], v.shape[3])).astype(TYPES[type])
    for mask, entries in masks(*shape):
        out = fovea.low_rank(u1, u2, v, mask=mask, target=target)
        found = fovea.low_rank_backward(d_out, u1, u2, v, out, mask=mask, target=target)
        expected = reference.low_rank_backward(d_out, u1, u2, v, entries)
        assert isinstance(found, tuple) and len(found) == 3
        for one, other in zip(found, expected):
            near(one, other, type)


@pytest.mark.parametrize("type", TYPES)
def test_polynomial_features_backward(type, target):
    rng = np.random.default_rng(6)
    x = rng.standard_normal((2, 3, 5, 6)).astype(TYPES[type])
    for degree in (0, 1, 3):
        d_out = rng.standard_normal((2, 3, 5, math.comb(6 + degree, degree))).astype(TYPES[type])
        found = fovea.polynomial_features_backward(d_out, x, degree=degree, scale=0.5, target=target)
        near(found, reference.polynomial_features_backward(d_out, x, degree=degree, scale=0.5), type)


def test_central_differences():
    """Of the compiled functions themselves, through features and attention."""
    rng = np.random.default_rng(7)
    q, k, v = (0.5 * rng.standard_normal((3, 1, 1, 6, 2)))
    options, d_out = {"degree": 2, "scale": 0.5}, rng.standard_normal((1, 1, 6, 2))

    def value(q, k, v, mask):
        phi = [fovea.polynomial_features(x, **options) for x in (q, k)]
        return (d_out * fovea.low_rank(*phi, v, mask=mask)).sum()

    for mask, _ in masks(6, 6):
        phi = [fovea.polynomial_features(x, **options) for x in (q, k)]
        out = fovea.low_rank(*phi, v, mask=mask)
        *d_phi, d_v = fovea.low_rank_backward(d_out, *phi, v, out, mask=mask)
        d_q, d_k = (fovea.polynomial_features_backward(d, x, **options) for d, x in zip(d_phi, (q, k)))
        for at, gradient in enumerate((d_q, d_k, d_v)):
            for index in np.ndindex(gradient.shape):
                step = np.zeros(gradient.shape)
                step[index] = 1e-5
                moved = [[x + s * step * (i == at) for i, x in enumerate((q, k, v))] for s in (1, -1)]
                difference = (value(*moved[0], mask) - value(*moved[1], mask)) / 2e-5
                assert abs(difference - gradient[index]) <= 1e-6 * np.abs(gradient).max(initial=1)


def test_what_leaves_leaves_no_trace_in_gradients():
    """Huge gradients of rows that do not read a key are as if they were not there."""
    u1, u2, v = factors(B=1, H=1, G=1)
    first, last = np.zeros(37, int), np.full(37, 5)
    first[20:], last[20:] = 6, 36
    d_out = np.ones((1, 1, 37, 11), np.float32)
    d_out[:, :, :20] = 1e12
    entries = reference.row_interval_mask(first, last, 37)
    for mask in (fovea.RowInterval(first, last), fovea.RowChange.from_entries(entries)):
        out = fovea.low_rank(u1, u2, v, mask=mask)
        _, _, d_v = fovea.low_rank_backward(d_out, u1, u2, v, out, mask=mask)
        want = reference.low_rank_backward(d_out, u1, u2, v, entries)[2]
        near(d_v[:, :, 6:], want[:, :, 6:], "float32")


def test_rows_without_weight_pass_nothing_on(target):
    u1, u2, v = factors()
    u1[:, :, 5] = 0
    entries = np.ones((37, 37), bool)
    entries[9] = False
    mask = fovea.RowChange.from_entries(entries)
    d_out = np.zeros((2, 4, 37, 11), np.float32)
    d_out[:, :, [5, 9]] = 1
    out = fovea.low_rank(u1, u2, v, mask=mask, target=target)
    assert not any(g.any() for g in fovea.low_rank_backward(d_out, u1, u2, v, out, mask=mask, target=target))


def test_no_rows_and_no_keys(target):
    for N, M in ((0, 5), (5, 0)):
        u1, u2, v = factors(N=N, M=M)
        out = fovea.low_rank(u1, u2, v, mask=fovea.Causal(), target=target)
        found = fovea.low_rank_backward(out, u1, u2, v, out, mask=fovea.Causal(), target=target)
        assert [g.shape for g in found] == [u1.shape, u2.shape, v.shape]
        assert not any(g.any() for g in found)


@pytest.mark.parametrize("B, H, N, M", [(2, 4, 200, 170), (1, 2, 400, 370)])
def test_gradients_have_the_same_bits_for_any_number_of_threads(B, H, N, M):
    u1, u2, v = factors(B=B, H=H, G=H // 2, N=N, M=M)
    d_out = np.random.default_rng(5).standard_normal((B, H, N, 11)).astype(np.float32)
    for mask, _ in masks(N, M):
        out = fovea.low_rank(u1, u2, v, mask=mask)
        found = []
        try:
            for threads in (1, 2, 3, 7):
                fovea.set_num_threads(threads)
                found.append(fovea.low_rank_backward(d_out, u1, u2, v, out, mask=mask))
        finally:
            fovea.set_num_threads(0)
        for other in found[1:]:
            assert all(np.array_equal(a, b) for a, b in zip(found[0], other))


def test_bad_gradients():
    u1, u2, v = factors(N=5, M=6)
    out = np.zeros((2, 4, 5, 11), np.float32)

    def refuses(match, **changes):
        arguments = {"d_out": out, "u1": u1, "u2": u2, "v": v, "out": out, "mask": fovea.Causal()}
        refused(match, fovea.low_rank_backward, **{**arguments, **changes})

    refuses(r"d_out: found shape \(2, 4, 4, 11\), needed \(2, 4, 5, 11\)", d_out=out[:, :, :4])
    refuses("d_out: found element type float64, needed float32", d_out=out.astype(float))
    refuses(r"out: found shape \(2, 4, 5, 10\), needed \(2, 4, 5, 11\)", out=out[..., :10].copy())
    refuses("u2: found extent 8 in dimension 3, needed 9", u2=u2[..., :8])
    refuses("first: found extent 4 in dimension 2, needed 5", mask=fovea.RowInterval([0] * 4, [0] * 4))
    refuses("mask: found None, needed Causal", mask=None)
    refused(r"attn.low_rank_backward: interval\[0, 0, 2\] must have 0 <= first <= last < 6, but got 3 and 2",
            fovea.low_rank_backward, out, u1, u2, v, out, mask=fovea.RowInterval([0, 0, 3, 0, 0], [5, 5, 2, 5, 5]),
            error=fovea.FoveaError)  # fmt: skip
    x = np.ones((1, 1, 3, 4), np.float32)
    refused(r"d_out: found shape \(1, 1, 3, 4\), needed \(1, 1, 3, 5\)",
            fovea.polynomial_features_backward, x, x, degree=1, scale=1)  # fmt: skip
    refused("scale: found -1", fovea.polynomial_features_backward, x, x, degree=1, scale=-1)
    refused("d_out: found width 5", fovea.rope_backward, np.zeros((1, 1, 4, 5), np.float32), np.arange(4))


# -- the emulated GPU ---------------------------------------------------------


def half(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float16)


def test_low_rank_on_a_gpu():
    q, k, v = half(1, 2, 40, 4), half(1, 2, 40, 4), half(1, 2, 40, 9)
    positions = np.arange(40, dtype=np.int32)
    found = [fovea.rope(x, positions, target="gpu-sim") for x in (q, k)]
    for x, turned in zip((q, k), found):
        check(turned, reference.rope(x, positions), "float16")
    features = [fovea.polynomial_features(x, degree=2, scale=0.5, target="gpu-sim") for x in found]
    out = fovea.low_rank(*features, v, mask=fovea.Causal(), target="gpu-sim")
    check(out, reference.low_rank(*features, v, reference.causal_mask(40, 40)), "float16")


def test_gradients_on_a_gpu():
    q, k = (half(1, heads, 40, 6).astype(np.float32) for heads in (4, 2))
    v, d, mask = k + 1, q[..., ::-1].copy(), fovea.Causal()
    agree(fovea.rope_backward, d, np.arange(40, dtype=np.int32))
    u1, u2 = (fovea.polynomial_features(x, degree=2, scale=0.5) for x in (q, k))
    agree(fovea.polynomial_features_backward, u1[..., ::-1].copy(), q, degree=2, scale=0.5)
    out = fovea.low_rank(u1, u2, v, mask=mask)
    agree(fovea.low_rank_backward, d, u1, u2, v, out, mask=mask)


# ----------------------------------------------------------------------------
# For tests of all families
# ----------------------------------------------------------------------------


def make_calls(q, k, v, out):
    """For test_options.py."""
    features, mask = fovea.polynomial_features(q, degree=2, scale=1.0), fovea.Causal()
    return {
        "rope": ((q, np.arange(20)), dict(width=q.shape[3])),
        "rope_backward": ((q, np.arange(20)), dict(width=q.shape[3])),
        "rope_frequencies": ((8,), dict(scaling="dynamic_ntk", original_length=8, length=9)),
        "polynomial_features": ((q,), dict(degree=2, scale=1.0)),
        "polynomial_features_backward": ((features, q), dict(degree=2, scale=1.0)),
        "low_rank": ((abs(q), abs(k), v), dict(mask=mask)),
        "low_rank_backward": ((out, abs(q), abs(k), v, out), dict(mask=mask)),
    }


def low_rank_case():
    u1, u2 = abs(rows(width=32)), abs(rows(width=32, seed=1))
    v, d_out, mask = rows(seed=2), rows(seed=3), fovea.Causal()
    out = fovea.low_rank(u1, u2, v, mask=mask)
    found = fovea.low_rank_backward(d_out, u1, u2, v, out, mask=mask)
    return found, reference.low_rank_backward, (d_out, u1, u2, v, np.tri(LENGTH, dtype=bool)), {}


def features_case():
    options = {"degree": 2, "scale": 0.125}
    x, d_out = rows(width=16), rows(width=153, seed=1)
    found = (fovea.polynomial_features_backward(d_out, x, **options),)
    return found, reference.polynomial_features_backward, (d_out, x), options


def plain_rope(d_out, positions):
    """Every operation but the angles in float32."""
    angles = np.asarray(positions)[:, None] * 10000.0 ** (-np.arange(0, WIDTH, 2) / WIDTH)
    cosines, sines = (f(angles).astype(np.float32) for f in (np.cos, np.sin))
    even, odd = d_out[..., 0::2], d_out[..., 1::2]
    return np.stack([even * cosines + odd * sines, odd * cosines - even * sines], -1).reshape(d_out.shape)


def rope_case():
    d_out, positions = rows(), np.arange(LENGTH)
    found = (fovea.rope_backward(d_out, positions),)
    return found, reference.rope_backward, (d_out, positions), {}


# For test_gradient_accuracy.py.
GRADIENTS = {"low_rank": low_rank_case, "polynomial_features": features_case, "rope": rope_case}
