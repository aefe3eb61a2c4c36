# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# REQUIRES: long-tests
"""low_rank_backward and polynomial_features_backward against the NumPy references."""

import math

import numpy as np
import pytest
from conftest import BOUNDS, TYPES
from test_low_rank import factors, masks, refused

import fovea
from fovea import reference


def near(found, expected, type):
    """Twice the forward's bound: a gradient is made of two of its sums."""
    assert found.dtype == TYPES[type] and found.shape == expected.shape
    error = np.abs(found.astype(np.float64) - expected).max(initial=0)
    assert error <= 2 * BOUNDS[type] * np.abs(expected).max(initial=0)


@pytest.mark.parametrize("type", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(37, 37), (20, 70), (70, 20)])
def test_low_rank(type, shape, target):
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
def test_features(type, target):
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


def test_what_leaves_leaves_no_trace():
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
def test_the_same_bits_for_any_number_of_threads(B, H, N, M):
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


def test_bad_input():
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
