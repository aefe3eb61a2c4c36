# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# REQUIRES: long-tests
"""Sums of convolutions, the search for them, and their gradients, against the references."""

import math
import re

import numpy as np
import pytest
from conftest import BOUNDS, LENGTH, TYPES, agree, check, make, near, normal, refused, rows

import fovea
from fovea import reference

EXACT = {"window": 1, "delta": 0.0, "epsilon": 0.0}


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


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("N, R, E", [(1, 1, 1), (2, 2, 3), (37, 3, 16), (64, 5, 48), (131, 64, 7)])
def test_conv_apply(type, N, R, E, target):
    b, sizes, v = bases(type, B=2, H=4, G=2, N=N, R=R, E=E)
    out, recomputed = fovea.conv_apply(b, sizes, v, return_recomputed=True, target=target)
    assert out.dtype == TYPES[type] and recomputed.shape == (2, 4)
    assert error(out, reference.conv_apply(b, sizes, v)) <= BOUNDS[type]


@pytest.mark.parametrize("sizes", [[0, 0, 0], [5, 0, 0], [37, 36, 1], [20, 19, 18]])
def test_bases_that_reach_some_rows(sizes, target):
    b, sizes, v = bases(sizes=sizes)
    out = fovea.conv_apply(b, sizes, v, target=target)
    assert not out[:, :, : 37 - sizes[0, 0, 0]].any()
    assert error(out, reference.conv_apply(b, sizes, v)) <= BOUNDS["float32"]


def test_numbers_beyond_a_size_are_not_read(target):
    b, sizes, v = bases(sizes=[37, 20, 0])
    expected = fovea.conv_apply(b, sizes, v, target=target)
    b[:, :, 1, 20:] = b[:, :, 2] = np.nan
    assert np.array_equal(fovea.conv_apply(b, sizes, v, target=target), expected)


@pytest.mark.parametrize("type", ["float16", "bfloat16"])
def test_bases_in_the_type_of_the_values(type, target):
    b, sizes, v = bases(type)
    b = b.astype(v.dtype)
    out = fovea.conv_apply(b, sizes, v, target=target)
    assert error(out, reference.conv_apply(b, sizes, v)) <= BOUNDS[type]


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


# -- the search ---------------------------------------------------------------


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


def test_huge_and_tiny_scores(target):
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


def test_search_refuses_arguments():
    q, k, v = make(N=9)
    good = dict(num_basis=2, window=2, delta=1.0, epsilon=0.0)

    def refuses(match, function=fovea.conv_recover, arrays=(q, k), **options):
        refused(match, function, *arrays, **{**good, **options})

    refuses("window: found 10, needed at most the 9 rows of q", window=10)
    refuses("window: found 0, needed an integer of at least 1", window=0)
    refuses("num_basis: found 0, needed an integer of at least 1", num_basis=0)
    for absurd in (2**20 + 1, 2**40, 2**62):
        for call in (dict(), dict(function=fovea.conv, arrays=(q, k, v))):
            refuses(f"^num_basis: found {absurd}, needed at most 1048576$", num_basis=absurd, **call)
    refuses("delta: found -1, needed a finite number of at least 0", delta=-1)
    refuses("delta: found nan, needed a finite number of at least 0", delta=float("nan"))
    refuses("epsilon: found inf, needed a finite number of at least 0", epsilon=float("inf"))
    refuses("scale: found nan, needed a finite number", scale=float("nan"))
    refuses("k: found length 8, needed 9", arrays=(q, k[:, :, :8]))
    all_three = dict(function=fovea.conv, arrays=(q, k, v))
    refuses("mask: found 'window', needed 'causal' or SlidingGroup", mask="window", **all_three)
    refuses("algorithm: found 'fft', needed", algorithm="fft", **all_three)
    refuses("algorithm: found 'single' for 2 bases, needed one basis", algorithm="single", **all_three)
    refuses("window: found 4, needed at most the group of 3", window=4, mask=fovea.SlidingGroup(3), **all_three)
    with pytest.raises(ValueError, match="group: found 0, needed an integer of at least 1"):
        fovea.SlidingGroup(0)


def test_a_sequence_of_nothing_has_no_window():
    q, k, _ = make(N=0)
    with pytest.raises(ValueError, match="window: found 1, needed at most the 0 rows of q"):
        fovea.conv_recover(q, k, num_basis=1, window=1, delta=0.0, epsilon=0.0)


# -- gradients ----------------------------------------------------------------


def gradient(q, v, type, seed=4):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((*q.shape[:3], v.shape[3])).astype(TYPES[type])


def make_bases(N, sizes, type, heads=(1, 2)):
    b = np.random.default_rng(2).standard_normal((*heads, len(sizes), N)).astype(TYPES[type])
    return b, np.broadcast_to(np.array(sizes, np.int32), (*heads, len(sizes))).copy()


@pytest.mark.parametrize("algorithm", ["auto", "toeplitz", "partitioned"])
@pytest.mark.parametrize("type", list(TYPES))
def test_conv_apply_backward(algorithm, type, target):
    b, sizes = make_bases(70, (70, 41, 40), "float64" if type == "float64" else "float32")
    _, _, v = make(type, H=2, G=1, N=70)
    out = fovea.conv_apply(b, sizes, v, algorithm=algorithm, target=target)
    d_out = gradient(out, v, type)
    found = fovea.conv_apply_backward(d_out, b, sizes, v, out, algorithm=algorithm, target=target)
    expected = reference.conv_apply_backward(d_out, b, sizes, v)
    assert found[0].dtype == b.dtype
    near(found[0].astype(TYPES[type]), expected[0], type)
    near(found[1], expected[1], type)


def test_gradients_of_any_alignment():
    """Of so many values they are stored past the caches, where vectors are aligned."""
    n, width = 1030, 2112
    b, v = f"memref<1x1x2x{n}xf32>", f"memref<1x1x{n}x{width}xf32>"
    kernel = fovea.compile(f"""
        func.func @f(%b: {b}, %m: memref<1x1x2xi32>, %v: {v}, %o: {v}, %d: {v}, %db: {b}, %dv: {v}) {{
          attn.conv_apply_backward ins(%b, %m, %v : {b}, memref<1x1x2xi32>, {v}) forward(%o : {v}) gradient(%d : {v})
              outs(%db, %dv : {b}, {v}) {{algorithm = #attn.conv_algorithm<partitioned>, block = 64 : i64}}
          return
        }}""")
    numbers = np.random.default_rng(5)
    scores = -np.abs(numbers.normal(size=(1, 1, 2, n))).astype(np.float32)
    rows = [numbers.normal(size=(1, 1, n, width)).astype(np.float32) for _ in range(3)]
    results = []
    for offset in (0, 1):
        d_bases = np.full_like(scores, np.nan)
        room = np.full(n * width + 32, np.nan, np.float32)
        first = -room.ctypes.data % 64 // 4 + offset
        d_values = room[first : first + n * width].reshape(1, 1, n, width)
        kernel(scores, np.array([[[n, n // 2]]], np.int32), *rows, d_bases, d_values)
        assert np.isnan(room[:first]).all() and np.isnan(room[first + n * width :]).all()
        results.append((d_bases, d_values))
    for one, other in zip(*results):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("type", ["float32", "float64", "bfloat16"])
def test_conv_recover_backward(type, target):
    q, k, _ = make(type, H=4, G=2, N=40)
    b, sizes, found = fovea.conv_recover(q, k, num_basis=50, **EXACT, target=target)
    assert (found == 40).all()
    d_b = np.random.default_rng(3).standard_normal(b.shape).astype(b.dtype)
    gradients = fovea.conv_recover_backward(d_b, q, k, sizes, target=target)
    for one, other in zip(gradients, reference.conv_recover_backward(d_b, q, k, sizes)):
        near(one, other, type)


@pytest.mark.parametrize("group", [None, 8, 16, 64])
@pytest.mark.parametrize("num_basis", [3, 50])
def test_conv_backward(num_basis, group, target):
    q, k, v = make("float64", H=4, G=2, N=45)
    options = {"num_basis": num_basis, **EXACT}
    mask = "causal" if group is None else fovea.SlidingGroup(group)
    out = fovea.conv(q, k, v, **options, mask=mask, target=target)
    d_out = gradient(q, v, "float64")
    found = fovea.conv_backward(d_out, q, k, v, out, **options, mask=mask, target=target)
    expected = reference.conv_backward(d_out, q, k, v, **options, group=group)
    for one, other in zip(found, expected):
        near(one, other, "float64")


def test_exact_backward(target):
    """A basis for every column: causal attention, whose gradient is known."""
    q, k, v = make("float32", H=4, G=2, N=64)
    out = fovea.conv(q, k, v, num_basis=64, **EXACT, target=target)
    d_out = gradient(q, v, "float32")
    found = fovea.conv_backward(d_out, q, k, v, out, num_basis=64, **EXACT, target=target)
    dense = reference.dense(q, k, v, causal=True, return_lse=True)
    for one, other in zip(found, reference.dense_backward(d_out, q, k, v, *dense, causal=True)):
        near(one, other, "float32", bound=2e-5)


def test_gradient_of_a_function(target):
    """The same gradients from a function of the operations."""
    q, k, v = make("float32", H=2, G=1, N=24, D=6, E=5)
    text = """
func.func @f(%q: Q, %k: K, %v: V, %p: tensor<1x1x24xi32>) -> O {
  %q0 = tensor.empty() : Q
  %k0 = tensor.empty() : K
  %qr = attn.rope ins(%q, %p : Q, tensor<1x1x24xi32>) outs(%q0 : Q) -> Q
  %kr = attn.rope ins(%k, %p : K, tensor<1x1x24xi32>) outs(%k0 : K) -> K
  %o = tensor.empty() : O
  %n = tensor.empty() : tensor<1x2xi32>
  %c = tensor.empty() : tensor<1x2xi32>
  %r:3 = attn.conv ins(%qr, %kr, %v : Q, K, V) outs(%o, %n, %c : O, tensor<1x2xi32>, tensor<1x2xi32>)
      {num_basis = 4 : i64, window = 1 : i64, delta = 0.0 : f64, epsilon = 0.0 : f64} -> O, tensor<1x2xi32>, tensor<1x2xi32>
  return %r#0 : O
}
"""
    for name, array in (("Q", q), ("K", k), ("V", v), ("O", np.empty((1, 2, 24, 5)))):
        text = re.sub(rf"\b{name}\b", f"tensor<{'x'.join(map(str, array.shape))}xf32>", text)
    kernel = fovea.compile(text, target=target)
    positions = np.arange(24, dtype=np.int32).reshape(1, 1, 24)
    d_out = gradient(q, v, "float32")
    found = kernel.vjp()(q, k, v, positions, d_out)
    turned = [reference.rope(x, positions) for x in (q, k)]
    options = {"num_basis": 4, **EXACT}
    expected = reference.conv_backward(d_out, *turned, v, **options)
    for one, other in zip(found[:2], expected):
        near(one, reference.rope_backward(other, positions), "float32")
    near(found[2], expected[2], "float32")


def test_gradients_refuse_arguments():
    b, sizes = make_bases(20, (20, 5), "float32")
    q, k, v = make("float32", H=2, G=1, N=20)
    out = np.zeros((1, 2, 20, v.shape[3]), np.float32)
    call = fovea.conv_apply_backward
    refused("d_out: found shape", call, out[:, :, :7], b, sizes, v, out)
    refused("out: found element type float64", call, out, b, sizes, v, out.astype(np.float64))
    refused("sizes: found element type int64, needed int32", call, out, b, sizes.astype(np.int64), v, out)
    refused("algorithm: found 'fft'", call, out, b, sizes, v, out, algorithm="fft")
    sizes_refused = r"attn.conv_apply_backward: sizes\[0, 1, 1\]"
    refused(sizes_refused, call, out, b, np.array([[[20, 5], [20, 20]]], np.int32), v, out, error=fovea.FoveaError)
    refused("d_b: found element type float64", fovea.conv_recover_backward, b.astype(np.float64), q, k, sizes)
    refused(r"d_b: found shape \(1, 2, 2, 19\)", fovea.conv_recover_backward, b[..., :19].copy(), q, k, sizes)
    sizes_refused = r"attn.conv_recover_backward: sizes\[0, 0, 0\]"
    refused(sizes_refused, fovea.conv_recover_backward, b, q, k, sizes + 1, error=fovea.FoveaError)
    refused("window: found 21", fovea.conv_backward, out, q, k, v, out, num_basis=1, **{**EXACT, "window": 21})
    refused("mask: found 'full'", fovea.conv_backward, out, q, k, v, out, num_basis=1, **EXACT, mask="full")


# -- the emulated GPU ---------------------------------------------------------


def single(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("scores", ["rising", "falling"])
def test_conv_apply_on_a_gpu(scores):
    N = 200
    b = single(1, 2, 2, N) + np.linspace(0, {"rising": 120, "falling": -120}[scores], N, dtype=np.float32)
    sizes = np.array([[[N, 0], [N - 3, 9]]], np.int32)
    v = single(1, 1, N, 5)
    (found, count), (expected, as_many) = (
        fovea.conv_apply(b, sizes, v, algorithm="toeplitz", return_recomputed=True, target=target)
        for target in ("gpu-sim", "cpu")
    )
    assert error(found, reference.conv_apply(b, sizes, v)) < 5e-6
    # The first rows of rising scores weigh nothing next to the last.
    assert np.array_equal(count, as_many) and (count.min() > 0) == (scores == "rising")


def test_conv_on_a_gpu():
    N = 90
    row = np.repeat(single(1, 2, 1, 8), N, axis=2)
    q = k = reference.rope(row, np.arange(N)).astype(np.float32)
    v = single(1, 2, N, 8)
    for mask in ("causal", fovea.SlidingGroup(24)):
        options = dict(num_basis=2, window=4, delta=1.0, epsilon=0.01, mask=mask)
        found = fovea.conv(q, k, v, target="gpu-sim", **options)
        assert error(found, fovea.conv(q, k, v, **options)) < 5e-6


def test_gradients_on_a_gpu():
    q, k = (single(1, heads, 40, 6) for heads in (4, 2))
    v, d = k + 1, q[..., ::-1].copy()
    options = dict(num_basis=3, window=2, delta=1.0, epsilon=0.01)
    agree(fovea.conv_backward, d, q, k, v, fovea.conv(q, k, v, **options), **options)


# ----------------------------------------------------------------------------
# For tests of all families
# ----------------------------------------------------------------------------


def make_calls(q, k, v, out):
    """For test_options.py."""
    b, sizes = np.ones((1, 2, 1, 20), np.float32), np.full((1, 2, 1), 20, np.int32)
    search = dict(num_basis=1, window=2, delta=1.0, epsilon=0.5)
    return {
        "conv_apply": ((b, sizes, v), dict(algorithm="partitioned", block=8)),
        "conv_apply_backward": ((out, b, sizes, v, out), dict(algorithm="partitioned", block=8)),
        "conv_recover": ((q, k), dict(search, scale=1.0)),
        "conv_recover_backward": ((b, q, k, sizes), dict(scale=1.0)),
        "conv": ((q, k, v), dict(search, scale=1.0)),
        "conv_backward": ((out, q, k, v, out), dict(search, scale=1.0)),
    }


def conv_apply_case():
    b, v, d_out = 0.5 * normal(1, 1, 2, LENGTH), rows(seed=1), rows(seed=3)
    sizes = np.array([[[LENGTH, LENGTH // 3]]], np.int32)
    # That of Fourier transforms has a bound of its own.
    out = fovea.conv_apply(b, sizes, v, algorithm="toeplitz")
    found = fovea.conv_apply_backward(d_out, b, sizes, v, out, algorithm="toeplitz")
    return found, reference.conv_apply_backward, (d_out, b, sizes, v), {}


def conv_recover_case():
    q, k, d_b = rows(), rows(seed=1), normal(1, 1, 3, LENGTH, seed=2)
    sizes = np.array([[[LENGTH, 2000, 77]]], np.int32)
    found = fovea.conv_recover_backward(d_b, q, k, sizes)
    return found, reference.conv_recover_backward, (d_b, q, k, sizes), {}


def conv_case():
    q, k, v, d_out = (0.3 * rows(), 0.3 * rows(seed=1), rows(seed=2), rows(seed=3))
    options = {"num_basis": 2, "window": 4, "delta": 1.0, "epsilon": 0.1}
    out = fovea.conv(q, k, v, **options)
    found = fovea.conv_backward(d_out, q, k, v, out, **options)
    return found, reference.conv_backward, (d_out, q, k, v), options


# For test_gradient_accuracy.py.
GRADIENTS = {"conv_apply": conv_apply_case, "conv_recover": conv_recover_case, "conv": conv_case}


def test_later_tokens_change_nothing():
    """With as many bases as asked for, whatever comes later: a language model may use them."""
    rng = np.random.default_rng(0)
    first = [rng.standard_normal((1, 2, 96, 16)).astype(np.float32) for _ in range(3)]
    later = [each.copy() for each in first]
    for each in later:
        each[:, :, 40:] += rng.standard_normal(each[:, :, 40:].shape).astype(np.float32)
    one, other = (fovea.conv(*qkv, num_basis=8, window=1, delta=0.0, epsilon=0.0) for qkv in (first, later))
    assert np.abs(one - other)[:, :, :40].max() < 1e-5 < np.abs(one - other)[:, :, 40:].max()
