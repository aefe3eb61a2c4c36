# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# REQUIRES: long-tests
"""fovea.conv_apply against the references."""

import numpy as np
import pytest
from conftest import BOUNDS, TYPES

import fovea
from fovea import reference

targets = pytest.mark.parametrize("target", ["cpu", "reference"])


def bases(type="float32", *, B=1, H=2, G=1, R=3, N=37, E=16, sizes=None, seed=0):
    """b, sizes and v; scores are rounded to the type that sums are kept in."""
    rng = np.random.default_rng(seed)
    if sizes is None:
        rest = rng.choice(np.arange(1, N), min(R, N) - 1, replace=False)
        sizes = [N, *sorted(rest, reverse=True), *[0] * (R - min(R, N))]
    state = np.float64 if type == "float64" else np.float32
    return (
        rng.standard_normal((B, H, R, N)).astype(state),
        np.ascontiguousarray(np.broadcast_to(sizes, (B, H, R)), np.int32),
        rng.standard_normal((B, G, N, E)).astype(TYPES[type]),
    )


def error(found, expected):
    return np.abs(found.astype(float) - expected).max(initial=0) / np.abs(expected).max(initial=1e-300)


@targets
@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("N, R, E", [(1, 1, 1), (2, 2, 3), (37, 3, 16), (64, 5, 48), (131, 64, 7)])
def test_conv_apply(type, N, R, E, target):
    b, sizes, v = bases(type, B=2, H=4, G=2, N=N, R=R, E=E)
    out, recomputed = fovea.conv_apply(b, sizes, v, return_recomputed=True, target=target)
    assert out.dtype == TYPES[type] and recomputed.shape == (2, 4)
    assert error(out, reference.conv_apply(b, sizes, v)) <= BOUNDS[type]


@targets
@pytest.mark.parametrize("sizes", [[0, 0, 0], [5, 0, 0], [37, 36, 1], [20, 19, 18]])
def test_bases_that_reach_some_rows(sizes, target):
    b, sizes, v = bases(sizes=sizes)
    out = fovea.conv_apply(b, sizes, v, target=target)
    assert not out[:, :, : 37 - sizes[0, 0, 0]].any()
    assert error(out, reference.conv_apply(b, sizes, v)) <= BOUNDS["float32"]


@targets
def test_numbers_beyond_a_size_are_not_read(target):
    b, sizes, v = bases(sizes=[37, 20, 0])
    expected = fovea.conv_apply(b, sizes, v, target=target)
    b[:, :, 1, 20:] = b[:, :, 2] = np.nan
    assert np.array_equal(fovea.conv_apply(b, sizes, v, target=target), expected)


@targets
@pytest.mark.parametrize("type", ["float16", "bfloat16"])
def test_bases_in_the_type_of_the_values(type, target):
    b, sizes, v = bases(type)
    b = b.astype(v.dtype)
    out = fovea.conv_apply(b, sizes, v, target=target)
    assert error(out, reference.conv_apply(b, sizes, v)) <= BOUNDS[type]


@targets
@pytest.mark.parametrize(
    "sizes, text",
    [
        ([38, 2, 1], r"sizes\[0, 0, 0\] must be from 0 to 37, the number of tokens, but got 38"),
        ([37, 37, 1], r"sizes\[0, 0, 1\] must be from 0 to 36, .* but got 37"),
        ([37, 0, 1], r"sizes\[0, 0, 2\] must be from 0 to 0, .* but got 1"),
        ([-1, 0, 0], r"sizes\[0, 0, 0\] must be from 0 to 37, .* but got -1"),
    ],
)
def test_refuses_sizes(sizes, text, target):
    with pytest.raises(fovea.FoveaError, match=text):
        fovea.conv_apply(*bases(sizes=sizes), target=target)


def test_refuses_arguments():
    b, sizes, v = bases()
    for arguments, options, text in [
        ((b[:, :, :0], sizes[:, :, :0], v), {}, "b: found no bases, needed at least 1"),
        ((b, sizes[:, :, :2], v), {}, r"sizes: found shape \(1, 2, 2\), needed \(1, 2, 3\)"),
        ((b, sizes.astype(np.int64), v), {}, "sizes: found element type int64, needed int32"),
        ((b, sizes, v[:, :, :3]), {}, "v: found length 3, needed 37"),
        ((b, sizes, np.repeat(v, 3, axis=1)), {}, "v: found 3 heads, needed a divisor of the 2 heads of b"),
        ((b.astype(float), sizes, v), {}, "b: found element type float64, needed float16 or bfloat16 or float32"),
        ((b[0], sizes, v), {}, "b: found rank 3, needed rank 4"),
        ((b, sizes, v), {"algorithm": "fast"}, "algorithm: found 'fast', needed 'auto', 'toeplitz'"),
        ((b, sizes, v), {"algorithm": "single"}, "algorithm: found 'single' for 3 bases, needed one basis"),
        ((b, sizes, v), {"algorithm": "partitioned", "block": 24}, "block: found 24, needed a power of two"),
        ((b, sizes, v), {"block": 64}, "block: found 64 with the algorithm 'auto', needed 'partitioned'"),
    ]:
        with pytest.raises(ValueError, match=text):
            fovea.conv_apply(*arguments, **options)


# -- algorithms ---------------------------------------------------------------

ALGORITHMS = [("toeplitz", None), ("partitioned", None), ("partitioned", 8), ("partitioned", 64), ("single", None)]


@pytest.mark.parametrize("algorithm, block", ALGORITHMS)
@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("N, R, E", [(1, 1, 1), (61, 1, 16), (130, 5, 48), (257, 2, 65)])
def test_algorithms(type, N, R, E, algorithm, block):
    b, sizes, v = bases(type, B=1, H=2, N=N, R=1 if algorithm == "single" else R, E=E)
    out = fovea.conv_apply(b, sizes, v, algorithm=algorithm, block=block)
    assert error(out, reference.conv_apply(b, sizes, v)) <= BOUNDS[type]


@pytest.mark.parametrize("algorithm, block", ALGORITHMS)
def test_equals_dense_attention_with_a_basis_for_every_column(algorithm, block):
    """Corollary 4.5, with scores of 30 either way."""
    if algorithm == "single":
        return
    rng = np.random.default_rng(3)
    N = 96
    q, k, v = (rng.standard_normal((1, 1, N, 16)).astype(np.float32) for _ in range(3))
    scores = q[0, 0].astype(float) @ k[0, 0].astype(float).T
    q *= np.float32(30 / np.abs(scores).max())
    scores *= 30 / np.abs(scores).max()
    b = np.zeros((1, 1, N, N), np.float32)
    before = np.zeros(N)
    for r in range(N):
        column = scores[r:, r] - before[: N - r]
        b[0, 0, r, : N - r] = column
        before[: N - r] += b[0, 0, r, : N - r]
    sizes = np.arange(N, 0, -1, dtype=np.int32)[None, None]
    out = fovea.conv_apply(b, sizes, v, algorithm=algorithm, block=block)
    expected = reference.dense(q, k, v, causal=True, scale=1.0)
    assert error(out, expected) <= (BOUNDS["float32"] if algorithm == "toeplitz" else 2.0**-15)


def test_rows_below_the_noise_are_computed_again():
    """Row 0 alone has a weight of e^-40 next to those of other rows."""
    b, sizes, v = bases(R=1, N=512, E=64)
    b[:] = 0
    b[..., 0] = -40
    expected = reference.conv_apply(b, sizes, v)
    for algorithm, most in (("partitioned", 1), ("single", 4)):
        out, recomputed = fovea.conv_apply(b, sizes, v, algorithm=algorithm, return_recomputed=True)
        assert 1 <= recomputed.min() and recomputed.max() <= most
        assert error(out[:, :, :1], expected[:, :, :1]) <= 1e-6 and error(out, expected) <= 5e-6
    out, recomputed = fovea.conv_apply(b, sizes, v, algorithm="toeplitz", return_recomputed=True)
    assert recomputed.tolist() == [[0, 0]] and error(out, expected) <= 5e-6


@pytest.mark.parametrize("algorithm", ["toeplitz", "partitioned", "single"])
def test_rows_whose_weights_vanish_are_computed_again(algorithm):
    b, sizes, v = bases(R=1, N=200, E=16)
    b[..., :150] -= 300
    out, recomputed = fovea.conv_apply(b, sizes, v, algorithm=algorithm, return_recomputed=True)
    assert recomputed.min() >= 150
    assert error(out, reference.conv_apply(b, sizes, v)) <= 5e-6


@pytest.mark.parametrize("target", ["cpu", "reference", "gpu-sim"])
@pytest.mark.parametrize("algorithm", ["toeplitz", "partitioned"])
def test_scores_that_only_fit_without_a_factor_are_read(algorithm, target):
    """log2(e) times these is beyond float32, but it is not minus infinity."""
    b, sizes, v = bases(R=2, N=75, E=5, sizes=[75, 54])
    b[0, 1, 0, :3] = -3e38
    out = fovea.conv_apply(b, sizes, v, algorithm=algorithm, target=target)
    assert error(out, reference.conv_apply(b, sizes, v)) <= 5e-6
    d_out = np.random.default_rng(1).standard_normal(out.shape).astype(np.float32)
    found = fovea.conv_apply_backward(d_out, b, sizes, v, out, target=target)
    for one, other in zip(found, reference.conv_apply_backward(d_out, b, sizes, v)):
        assert error(one, other) <= 1e-5


@pytest.mark.parametrize("block", [8, 16])
def test_weights_whose_squares_underflow(block):
    """Weights fall far below 1e-154, lag by lag: norms of their windows are still not zero."""
    b, sizes, v = bases("float64", R=1, N=331)
    b[:] = 1e3 * np.sin(9 * np.arange(331) / 331)
    out = fovea.conv_apply(b, sizes, v, algorithm="partitioned", block=block)
    assert error(out, reference.conv_apply(b, sizes, v)) <= BOUNDS["float64"]


@pytest.mark.parametrize("algorithm", ["toeplitz", "partitioned", "single"])
def test_huge_and_tiny_values(algorithm):
    b, sizes, v = bases(R=1, N=300, E=40)
    v[:, :, 150:, 3] *= np.float32(1e8)
    out = fovea.conv_apply(b, sizes, v, algorithm=algorithm)
    expected = reference.conv_apply(b, sizes, v)
    # What comes before the huge ones is none the worse.
    assert error(out[:, :, :150], expected[:, :, :150]) <= 2.0**-15
    assert error(out, expected) <= 5e-6


@pytest.mark.parametrize("sizes", [[930], [930, 500], [985, 933, 870, 3]])
@pytest.mark.parametrize("at", [130, 135, 700])
def test_a_huge_value_behind_the_rows_of_its_piece(sizes, at):
    """Pieces begin with their segments, here within a block, and reach past it."""
    b, sizes, v = bases(R=len(sizes), N=1000, E=48, sizes=sizes)
    v[:, :, at] *= np.float32(1e9)
    out, recomputed = fovea.conv_apply(b, sizes, v, algorithm="partitioned", block=64, return_recomputed=True)
    expected = reference.conv_apply(b, sizes, v)
    assert error(out[:, :, :at], expected[:, :, :at]) <= 2.0**-15
    assert error(out, expected) <= 5e-6
    assert 1 <= recomputed.min() and recomputed.max() < 200


def test_spectra_of_windows_that_outgrow_the_caches():
    b, sizes, v = bases(H=1, R=64, N=16384, E=4)
    out = fovea.conv_apply(b, sizes, v, algorithm="partitioned", block=128)
    assert error(out, fovea.conv_apply(b, sizes, v, algorithm="toeplitz").astype(float)) <= 5e-6


@pytest.mark.parametrize("algorithm", ["toeplitz", "partitioned", "single"])
def test_a_nan_reaches_the_rows_that_read_it(algorithm):
    b, sizes, v = bases(R=1, N=100, E=16)
    v[0, 0, 40, 5] = np.nan
    out = fovea.conv_apply(b, sizes, v, algorithm=algorithm)
    expected = reference.conv_apply(np.array(b), sizes, np.nan_to_num(v))
    assert error(out[:, :, :40], expected[:, :, :40]) <= 5e-6
    assert np.isnan(out[:, :, 40:, 5]).all()
