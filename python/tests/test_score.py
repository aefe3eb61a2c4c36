# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions of scores, and the gradients behind them, against NumPy and plain loops."""

import itertools
import math

import ml_dtypes
import numpy as np
import pytest
from conftest import check, make, near, refused

import fovea
from fovea import _fovea, reference
from fovea.math import cos, exp, floor, index, log, maximum, minimum, sin, sqrt, tanh, where

LENGTHS = [(1, 1), (1, 300), (5, 131), (8, 9), (13, 13), (63, 63), (64, 64), (65, 65), (65, 200), (70, 40)]
MASKS = [{}, {"causal": True}, {"window": 9}, {"causal": True, "window": 30}, {"causal": True, "prefix": 5}]
TYPES = ["float32", "float64", "bfloat16", "float16"]
# Plain loops take long for the last ones.
GRADIENT_LENGTHS = [(1, 1), (37, 41), (9, 3), (65, 129)]


def buckets(distance):
    """T5's 32 buckets of distances in both directions, the last for 128 and more."""
    d = abs(distance)
    # A little more: at powers of two a logarithm decides by its last bit.
    far = 8 + index(log(maximum(d, 1) / 8) / math.log(16) * 8 + 1e-3)
    return where(distance > 0, 16, 0) + where(d < 8, d, minimum(far, 15))


def functions(N, M, seed=3):
    """Functions of scores for 2 batch entries and 4 heads."""
    rng = np.random.default_rng(seed)
    slopes = fovea.capture(2.0 ** -np.arange(1, 5))
    table = fovea.capture(rng.standard_normal((4, 2 * (N + M))).astype(np.float32))
    per_bucket = fovea.capture(rng.standard_normal((32, 4)).astype(ml_dtypes.bfloat16))
    heat = fovea.capture(np.linspace(0.5, 2, 2 * (N + M)).astype(np.float16))
    kinds = fovea.capture(rng.integers(0, 3, (2, M)))
    of_kind = fovea.capture(rng.standard_normal(3).astype(np.float32))
    cap = fovea.capture(np.array(2.0, np.float32))
    return {
        "cap": lambda s, b, h, i, j: 2 * tanh(s / 2),
        "captured cap": lambda s, b, h, i, j: cap[()] * tanh(s / cap[()]),
        "alibi": lambda s, b, h, i, j: s + slopes[h] * (j - i),
        "table": lambda s, b, h, i, j: s + table[h, j - i + N + M],
        "table backwards": lambda s, b, h, i, j: s + table[h, i - j + N + M],
        "t5": lambda s, b, h, i, j: s + per_bucket[buckets(j - i), h],
        "temperature": lambda s, b, h, i, j: s * heat[i + N + M],
        "temperature of keys": lambda s, b, h, i, j: s * heat[j],
        "kinds": lambda s, b, h, i, j: s + of_kind[kinds[b, j]] * (1 + b),
        "parity": lambda s, b, h, i, j: where(((i + 2 * N) % 3 == j % 3) & ~(h == 1), s, s - 3),
        "removed": lambda s, b, h, i, j: where(j % 5 == 2, -np.inf, s),
        "products": lambda s, b, h, i, j: s + (i * i * j - j * j * i) * 1e-6 / sqrt(1 + abs(s)),
        "functions": lambda s, b, h, i, j: exp(minimum(s, 1.0)) / 4 + sin(s) * cos(j / 9) - (-s) ** 3 / 50,
        # Scores that are only added to may be exponents of 2 before it.
        "difference": lambda s, b, h, i, j: of_kind[kinds[b, j]] + (s - slopes[h] * (i - j)) + 0.5,
        "sum and removal": lambda s, b, h, i, j: where(j % 4 != i // 8, where(j % 5 == 2, -np.inf, s) + slopes[h], -np.inf),
        "subtracted": lambda s, b, h, i, j: slopes[h] * j / 9 - s,
        "steps": lambda s, b, h, i, j: s + floor(i / 3) / (4 + abs(i - j)),
        "constant": lambda s, b, h, i, j: 1.5,
    }  # fmt: skip


NAMES = list(functions(1, 1))


def cases():
    """Every function with all lengths; pairs of types and masks in turn, which meet all lengths."""
    turns = itertools.cycle(itertools.product(TYPES, MASKS))
    return [(name, *lengths, *next(turns)) for name in NAMES for lengths in LENGTHS]


@pytest.mark.parametrize("outer,inner", [(1, 1), (50, 0.02), (-3, -700), (1e5, 1e-5), (2, 3)])
@pytest.mark.parametrize("N", [1, 4001])
def test_tangents(outer, inner, N):
    """Of one key the logarithm of the sum is the score. The tangent may be off by 4e-7, and four roundings by 2.4e-7."""
    x = np.concatenate([np.geomspace(1e-9, 1e-2, 1000), np.linspace(1e-2, 12, 3000), [1e30]]).astype(np.float32)[-N:] / abs(inner)
    for q in (x, -x):
        q = q[None, None, :, None].astype(np.float32)
        one = np.ones((1, 1, 1, 1), np.float32)
        _, lse = fovea.dense(q, one, one, scale=1.0, score=lambda s, b, h, i, j: outer * tanh(s * inner), return_lse=True)
        expected = outer * np.tanh(q[..., 0].astype(np.float64) * float(np.float32(inner)))
        assert np.all(np.abs(lse - expected) <= 6.5e-7 * np.abs(expected))
    q[0, 0, 0] = np.nan
    assert np.isnan(fovea.dense(q, one, one, score=lambda s, b, h, i, j: outer * tanh(s * inner))[0, 0, 0]).all()


@pytest.mark.parametrize("name,N,M,type,mask", cases())
def test_dense(name, N, M, type, mask):
    arrays = make(type, B=2, H=4, G=2, N=N, M=M, D=24, E=20)
    options = {"score": functions(N, M)[name], "return_lse": True, **mask}
    found = fovea.dense(*arrays, **options)
    expected = reference.dense(*arrays, **options)
    if name == "products":
        # Terms of the size of positions cubed.
        near(found[0], expected[0], type, {"float64": 1e-11}.get(type, 2e-2))
    else:
        check(found, expected, type)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("type", ["float32", "float64"])
def test_plain_loops(name, type):
    arrays = make(type, B=2, H=4, G=2, N=9, M=14, D=8)
    options = {"score": functions(9, 14)[name], "return_lse": True, "causal": True}
    check(fovea.dense(*arrays, **options, target="reference"), reference.dense(*arrays, **options), type)


@pytest.mark.parametrize("type", ["float32", "bfloat16"])
@pytest.mark.parametrize("N", [1, 64, 131])
def test_with_other_terms(N, type):
    """Terms and lengths come behind the function."""
    rng = np.random.default_rng(5)
    arrays = make(type, B=2, H=4, G=2, N=N, M=131, D=64, E=64)
    options = {
        "log_weight": rng.standard_normal((2, 2, 131)).astype(np.float32),
        "bias": np.where(rng.random((1, 4, N, 131)) < 0.2, -np.inf, 0.5).astype(np.float32),
        "sink": rng.standard_normal((2, 4)).astype(np.float32),
        "lengths": np.array([131, 77]), "query_lengths": np.array([N, (N + 1) // 2]), "causal": True,
        "score": functions(N, 131)["table"], "return_lse": True,
    }  # fmt: skip
    check(fovea.dense(*arrays, **options), reference.dense(*arrays, **options), type)


@pytest.mark.parametrize("heads", [1, 12, 32])
@pytest.mark.parametrize("N", [1, 3, 8])
@pytest.mark.parametrize("type", ["float32", "bfloat16", "float64"])
def test_few_queries(N, heads, type):
    """Sets of rows of several heads, and of a part of those that share their keys; parts of the keys."""
    rng = np.random.default_rng(6)
    arrays = make(type, B=2, H=heads, G=1, N=N, M=1300, D=40, E=24)
    table, heat = (fovea.capture(rng.standard_normal(shape).astype(np.float32)) for shape in ((32, 1400), (2,)))
    options = {
        "score": lambda s, b, h, i, j: where((j + h) % 7 == 3, -np.inf, s * heat[b] + table[h, i - j + 60]),
        "bias": rng.standard_normal((1, heads, N, 1300)).astype("float64" if type == "float64" else "float32"),
        "window": 50, "causal": True, "lengths": np.array([1300, 1111]), "return_lse": True,
    }  # fmt: skip
    found, lse = fovea.dense(*arrays, **options)
    check((found, lse), reference.dense(*arrays, **options), type)
    del options["window"], options["lengths"]
    options["score"] = lambda s, b, h, i, j: where((j + h) % 7 == 3, -np.inf, s * heat[b] + h / 9)
    check(fovea.dense(*arrays, **options), reference.dense(*arrays, **options), type)
    unread = 3 + 7 * np.arange(100)
    if heads == 1:
        before = fovea.dense(*arrays, **options)
        for array in arrays[1:]:
            array[:, :, unread] = np.nan
        assert all(map(np.array_equal, before, fovea.dense(*arrays, **options)))


def check_removed_entries(type, target):
    q, k, v = make(type, B=2, H=4, G=2, N=70, M=70, D=64)
    found = fovea.dense(q, k, v, score=functions(70, 70)["removed"], target=target)
    k[:, :, 2::5], v[:, :, 2::5] = np.nan, np.inf
    hidden = fovea.dense(q, k, v, score=lambda s, b, h, i, j: where(j % 5 == 2, -np.inf, s), target=target)
    assert np.array_equal(found, hidden)
    out, lse = fovea.dense(q, k, v, score=lambda s, b, h, i, j: -np.inf, return_lse=True, target=target)
    assert not out.any() and np.isneginf(lse).all()
    # Positions are those of each source, the second of which has other keys.
    near_k, near_v, far_k, far_v = k[:, :, :33], v[:, :, :33], k[:, :, 30:], v[:, :, 30:]
    sources = [fovea.Source(near_k, near_v), fovea.Source(far_k, far_v)]
    assert not np.isfinite(near_v.astype(float)).all()
    score = fovea.stream(q, sources, score=lambda s, b, h, i, j: where(j % 5 == 2, -np.inf, s), target=target)
    kept = [np.nan_to_num(x.astype(np.float64), nan=0, posinf=0).astype(x.dtype) for x in (near_k, near_v, far_k, far_v)]
    clean = [fovea.Source(*kept[:2]), fovea.Source(*kept[2:])]
    expected = fovea.stream(q, clean, score=lambda s, b, h, i, j: where(j % 5 == 2, -np.inf, s), target=target)
    assert np.array_equal(score, expected)


@pytest.mark.parametrize("target", ["cpu", "gpu-sim"])
@pytest.mark.parametrize("type", ["float32", "bfloat16"])
def test_values_of_removed_entries_are_not_read(type, target):
    check_removed_entries(type, target)


@pytest.mark.parametrize("target", ["cpu", "gpu-sim", "reference"])
def test_reads_out_of_bounds_give_nan(target):
    q, k, v = make(N=40, M=40)
    table = fovea.capture(np.ones(40, np.float32))
    ahead = fovea.dense(q, k, v, score=lambda s, b, h, i, j: s + table[i - j], causal=True, target=target)
    assert np.allclose(ahead, reference.dense(q, k, v, causal=True), atol=1e-5)
    found = fovea.dense(q, k, v, score=lambda s, b, h, i, j: s + table[i + 3], target=target)
    assert np.isfinite(found[:, :, :37]).all() and np.isnan(found[:, :, 37:]).all()
    # With fewer keys than queries these stand before the first key, which is no last place.
    options = {"score": lambda s, b, h, i, j: s * table[i], "lengths": np.array([9])}
    found, expected = fovea.dense(q, k, v, target=target, **options), reference.dense(q, k, v, **options)
    assert np.isnan(expected).any() and np.array_equal(np.isnan(found), np.isnan(expected))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "N,M,target", [*((*each, "cpu") for each in GRADIENT_LENGTHS), *((*each, "reference") for each in GRADIENT_LENGTHS[:3])]
)
def test_gradients(name, N, M, target):
    rng = np.random.default_rng(1)
    q, k, v = make("float64", B=2, H=4, G=2, N=N, M=M, D=8, E=12)
    options = {"causal": True, "score": functions(N, M)[name], "bias": rng.standard_normal((1, 4, N, M)),
               "log_weight": rng.standard_normal((2, 1, M))}  # fmt: skip
    out, lse = reference.dense(q, k, v, **options, return_lse=True)
    compare_gradients((q, k, v), out, lse, options, target)


def check_on_the_emulated_gpu(name):
    turns = itertools.cycle(itertools.product(["bfloat16", "float32", "float16"], MASKS))
    start = NAMES.index(name)
    for (N, M), (type, mask) in zip([(1, 70), (65, 65), (130, 70)], itertools.islice(turns, start, None), strict=False):
        arrays = make(type, B=2, H=4, G=2, N=N, M=M, D=24, E=24)
        options = {"score": functions(N, M)[name], "return_lse": True, **mask}
        found, lse = fovea.dense(*arrays, **options, target="gpu-sim")
        expected, expected_lse = reference.dense(*arrays, **options)
        near(found, expected, type, 2e-2 if name == "products" else None)
        assert np.allclose(lse, expected_lse, rtol=1e-3 if name == "products" else 1e-5, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_on_the_emulated_gpu(name):
    check_on_the_emulated_gpu(name)


@pytest.mark.parametrize("name", NAMES)
def test_gradients_on_the_emulated_gpu(name):
    N, M = 37, 70
    rng = np.random.default_rng(1)
    arrays = make("float32", B=2, H=4, G=2, N=N, M=M, D=16, E=12)
    options = {"causal": True, "score": functions(N, M)[name],
               "log_weight": rng.standard_normal((2, 1, M)).astype(np.float32),
               "bias": np.where(rng.random((1, 4, N, M)) < 0.2, -np.inf, 0.5).astype(np.float32)}  # fmt: skip
    out, lse = fovea.dense(*arrays, **options, return_lse=True)
    d_out = rng.standard_normal(out.shape).astype(np.float32)
    found, expected = (
        fovea.dense_backward(d_out, *arrays, out, lse, **options, target=target) for target in ("gpu-sim", "cpu")
    )
    for mine, wanted in zip(found, expected, strict=True):
        near(mine, wanted, "float32", 1e-2 if name == "products" else 3e-5)


def test_terms_and_lengths_on_the_emulated_gpu():
    """Positions count from the lengths, and terms come behind."""
    rng = np.random.default_rng(5)
    arrays = make("bfloat16", B=2, H=4, G=2, N=70, M=131, D=64, E=64)
    options = {
        "log_weight": rng.standard_normal((2, 2, 131)).astype(np.float32),
        "sink": rng.standard_normal((2, 4)).astype(np.float32),
        "lengths": np.array([131, 77]), "query_lengths": np.array([70, 35]), "causal": True,
        "score": functions(70, 131)["table"], "return_lse": True,
    }  # fmt: skip
    check(fovea.dense(*arrays, **options, target="gpu-sim"), reference.dense(*arrays, **options), "bfloat16")


def compare_gradients(arrays, out, lse, options, target="cpu"):
    rng = np.random.default_rng(2)
    options = {**options, "d_lse": np.where(np.isfinite(lse), rng.standard_normal(lse.shape), 0)}
    d_out = rng.standard_normal(out.shape)
    found = fovea.dense_backward(d_out, *arrays, out, lse, target=target, **options)
    expected = reference.dense_backward(d_out, *arrays, out, lse, **options)
    for mine, wanted in zip(found, expected, strict=True):
        assert mine.dtype == wanted.dtype and mine.shape == wanted.shape
        # That of the reference is a quotient of differences.
        assert np.abs(mine - wanted).max() <= 1e-7 * max(1, np.abs(wanted).max())


@pytest.mark.parametrize("name", ["cap", "table", "removed", "temperature of keys"])
@pytest.mark.parametrize("what", ["prefix", "sink", "lengths"])
def test_gradients_with_other_terms(name, what):
    N, M = 37, 41
    more = {
        "prefix": {"causal": True, "prefix": 7},
        "sink": {"sink": np.random.default_rng(4).standard_normal((1, 4))},
        "lengths": {"lengths": np.array([M, M // 2]), "query_lengths": np.array([N, N // 2]), "causal": True},
    }[what]
    arrays = make("float64", B=2, H=4, G=2, N=N, M=M, D=8, E=12)
    options = {"score": functions(N, M)[name], **more}
    compare_gradients(arrays, *reference.dense(*arrays, **options, return_lse=True), options)


@pytest.mark.parametrize("type", ["float32", "bfloat16", "float16"])
def test_gradients_of_all_types(type):
    rng = np.random.default_rng(1)
    arrays = make(type, B=2, H=4, G=2, N=131, D=24)
    options = {"window": 40, "score": functions(131, 131)["cap"]}
    out, lse = fovea.dense(*arrays, **options, return_lse=True)
    d_out = rng.standard_normal(out.shape).astype(out.dtype)
    wide = (np.asarray(each, np.float64) for each in (d_out, *arrays, out, lse))
    for mine, wanted in zip(fovea.dense_backward(d_out, *arrays, out, lse, **options), reference.dense_backward(*wide, **options)):
        near(mine, wanted, type, 3e-2 if type != "float32" else None)


def test_same_bits_on_any_number_of_threads():
    arrays = make("float32", B=1, H=4, G=2, N=1400, D=16)
    options = {"score": functions(1400, 1400)["table"], "causal": True}
    results = []
    try:
        for threads in (1, 2, 3, 7):
            fovea.set_num_threads(threads)
            out, lse = fovea.dense(*arrays, **options, return_lse=True)
            results.append([out, lse, *fovea.dense_backward(out, *arrays, out, lse, **options)])
    finally:
        fovea.set_num_threads(0)
    for other in results[1:]:
        assert all(np.array_equal(*pair) for pair in zip(results[0], other, strict=True))


def test_one_kernel_for_functions_that_say_the_same():
    """Kernels are found by what a function does, not by the function."""
    q, k, v = make(D=20)
    before = _fovea.cache_statistics()[2]
    results = [fovea.dense(q, k, v, score=lambda s, b, h, i, j, c=cap: c * tanh(s / c)) for cap in (1.0, 1.0, 3.0)]
    assert _fovea.cache_statistics()[2] - before == 2
    assert np.array_equal(results[0], results[1]) and not np.allclose(results[0], results[2])
    for far in (10, 80):
        table = fovea.capture(np.full(2 * far, float(far), np.float32))
        arrays = make(N=far)
        found = fovea.dense(*arrays, score=lambda s, b, h, i, j, t=table, m=far: s * t[i - j + m], causal=True)
        near(found, reference.dense(*arrays, causal=True, scale=far / 4), "float32", 1e-5)


def test_a_wrong_function_is_noticed():
    arrays = make()
    with pytest.raises(AssertionError):
        check(fovea.dense(*arrays, score=functions(37, 37)["cap"]), reference.dense(*arrays))


def test_errors():
    arrays = make()
    table = np.ones((3, 4), np.float32)
    here = rf"^score: {__file__}:\d+: "
    for score, match in (
        ("cap", "^score: found str, needed a function"),
        (lambda s, b, h, i, j: s if s > 0 else 0, here + "found if, and, or"),
        (lambda s, b, h, i, j: min(s, 1), here + "found if, and, or"),
        (lambda s, b, h, i, j: math.tanh(s), here + "found a function of plain numbers, needed one of fovea.math"),
        (lambda s, b, h, i, j: np.tanh(s), here),
        (lambda s, b, h, i, j: s + table[h, j], here),
        (lambda s, b, h, i, j: s + table, here + "found ndarray, needed a number"),
        (lambda s, b, h, i, j: s + fovea.capture(table)[h], here + "found 1 indices, needed 2"),
        (lambda s, b, h, i, j: s + fovea.capture(table)[s, j], here + "found a number, needed an integer"),
        (lambda s, b, h, i, j: s + fovea.capture(table)[1.5, j], here + "found a number, needed an integer"),
        (lambda s, b, h, i, j: where((i > j) & 3, s, 0), here + "found an integer, needed a condition"),
        (lambda s, b, h, i, j: s + fovea.capture(table > 0)[h, j], here + "found an array of bool"),
        (lambda s, b, h, i, j: i > j, here + "found a condition, needed a number"),
        (lambda s, b, h, i, j: s + (i > j), here + "found a condition among numbers, needed fovea.math.where"),
        (lambda s, b, h, i, j: s + j // i, here + "found // or % of something else than an integer and a constant"),
        (lambda s, b, h, i, j: s + j // 0, here + "found // or % by 0, needed another constant"),
        (lambda s, b, h, i, j: s + j % np.int64(0), here + "found // or % by 0, needed another constant"),
        (lambda s, b, h, i, j: s**0.5, here + "found the exponent 0.5"),
        (lambda s, b, h, i, j: [x for x in s], here + "found a loop over a number"),
        (lambda s, b, h, i: s, here + ".*takes 4 positional arguments"),
        (lambda s, b, h, i, j: None, here + "found NoneType as its result, needed a number"),
        (lambda s, b, h, i, j: table[0], here + "found ndarray as its result, needed a number"),
        (lambda s, b, h, i, j: s + fovea.capture([1.0, 2.0])[h], here + "found list in fovea.capture, needed an array"),
        (lambda s, b, h, i, j: s + (i << 1), here + r"unsupported operand.*\(needed arithmetic, comparisons, functions of fovea.math"),
        (lambda s, b, h, i, j: s + undefined, here + "name 'undefined' is not defined$"),  # noqa: F821
    ):
        refused(match, fovea.dense, *arrays, score=score)


def test_errors_of_indices_that_are_known():
    """Those of batch entries, heads and constants: each is read out of bounds for all keys or for none."""
    arrays = make(B=2, H=4, G=2, N=9, M=9, D=8)
    own, few = fovea.capture(np.ones((2, 4), np.float32)), fovea.capture(np.ones(3, np.float32))
    here = rf"^score: {__file__}:\d+: found index "
    for score, match in (
        (lambda s, b, h, i, j: s + few[h], here + r"3 for axis 0 of an array of shape \(3,\), needed 0 to 2"),
        (lambda s, b, h, i, j: s + few[-1], here + "-1 for axis 0"),
        (lambda s, b, h, i, j: s + own[0, 7], here + "7 for axis 1"),
        (lambda s, b, h, i, j: s + own[b + 1, h], here + "2 for axis 0"),
        (lambda s, b, h, i, j: s + few[minimum(h, 3)], here + "3 for axis 0"),
        (lambda s, b, h, i, j: s + few[h * 2 - b], here + "-1 for axis 0"),
        (lambda s, b, h, i, j: s + few[abs(h - 7)], here + "7 for axis 0"),
    ):
        refused(match, fovea.dense, *arrays, score=score)
        refused("^sources.0..score" + match[6:], fovea.stream, arrays[0], [fovea.Source(*arrays[1:], score=score)])
        refused(match, fovea.stream, arrays[0], [fovea.Source(*arrays[1:])], score=score)
    for score in (
        lambda s, b, h, i, j: s + few[minimum(h, 2)] + own[1 - b, 3 - h] + few[h // 2 + 1] + few[(h + b) % 3],
        lambda s, b, h, i, j: s + few[abs(h - 2)] + few[(h - h) * 7],
    ):
        assert np.isfinite(fovea.dense(*arrays, score=score)).all()


def test_numbers_of_another_call_are_refused():
    arrays, kept = make(), []

    def score(s, b, h, i, j):
        kept.append(s)
        return kept[0] + 1

    fovea.dense(*arrays, score=score)
    refused(rf"^score: {__file__}:\d+: found a number of another call", fovea.dense, *arrays, score=score)


def of_places():
    """A function that tells positions of queries apart, for 4 heads and up to 9 tokens."""
    heat, slopes = (fovea.capture(np.linspace(0.5, 2, n).astype(np.float32)) for n in (9, 4))
    return lambda s, b, h, i, j: s * heat[i] + slopes[h] * abs(j - i)


@pytest.mark.parametrize("layout", ["bhnd", "bnhd"])
def test_cache_of_different_lengths(layout):
    def own(x):
        return x if layout == "bhnd" else np.ascontiguousarray(x.swapaxes(1, 2))

    q, k, v = make(B=2, H=4, G=2, N=9, D=16)
    score = of_places()
    cache = fovea.KVCache(2, 2, 16, capacity=9, layout=layout)
    cache.append(own(k), own(v), lengths=[4, 9])
    out, lse = cache.attend(own(q[:, :, -2:]), score=score, window=3, return_lse=True)
    for b, n in enumerate((4, 9)):
        one = slice(b, b + 1)
        expected = reference.dense(
            q[one, :, -2:], k[one, :, :n], v[one, :, :n], causal=True, window=3, score=score, return_lse=True
        )
        check((own(out)[one], lse[one]), expected)


def test_cache():
    """One token after the other, as all at once."""
    q, k, v = make("float32", B=2, H=4, G=2, N=9, D=16)
    options = {"score": of_places()}
    cache = fovea.KVCache(2, 2, 16, capacity=9)
    for token in range(9):
        cache.append(k[:, :, token : token + 1], v[:, :, token : token + 1])
        found = cache.attend(q[:, :, token : token + 1], **options)
        seen = slice(0, token + 1)
        check(found, reference.dense(q[:, :, token : token + 1], k[:, :, seen], v[:, :, seen], causal=True, **options))


def comparisons(x, y):
    """What each comparison of IR gives for arrays; those that begin with u take numbers without a sign."""
    a, b = (np.broadcast_to(each, np.broadcast_shapes(x.shape, y.shape)).astype(np.int64) for each in (x, y))
    u, w = a.view(np.uint64), b.view(np.uint64)
    return {
        "eq": a == b, "ne": a != b, "slt": a < b, "sle": a <= b, "sgt": a > b, "sge": a >= b,
        "ult": u < w, "ule": u <= w, "ugt": u > w, "uge": u >= w,
    }  # fmt: skip


@pytest.mark.parametrize("queries", [1, 70])
@pytest.mark.parametrize("predicate", ["eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge"])
def test_comparisons_of_positions(predicate, queries):
    """Those of numbers without a sign are not those of differences; queries before the first key have large ones."""
    keys = 60
    query, key = f"tensor<1x1x{queries}x8xf32>", f"tensor<1x1x{keys}x8xf32>"
    kernel = fovea.compile(
        f"""func.func @f(%q: {query}, %k: {key}, %v: {key}) -> {query} {{
              %init = tensor.empty() : {query}
              %r = attn.dense ins(%q, %k, %v : {query}, {key}, {key}) score {{
                ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
                  %c = arith.constant -2.0 : f32
                  %p = arith.cmpi {predicate}, %j, %i : index
                  %m = arith.mulf %s, %c : f32
                  %t = arith.select %p, %m, %s : f32
                  attn.yield %t : f32
              }} outs(%init : {query}) {{scale = 1.0 : f64}} -> {query}
              return %r : {query}
            }}"""
    )
    rng = np.random.default_rng(6)
    q, k, v = (rng.standard_normal((1, 1, n, 8)).astype(np.float32) for n in (queries, keys, keys))
    i, j = np.arange(queries)[:, None] + keys - queries, np.arange(keys)[None]
    scores = (q.astype(np.float64) @ k.swapaxes(-1, -2))[0, 0]
    scores = np.where(comparisons(j, i)[predicate], -2 * scores, scores)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    expected = weights @ v[0, 0] / weights.sum(-1, keepdims=True)
    np.testing.assert_allclose(kernel(q, k, v)[0, 0], expected, rtol=2e-5, atol=2e-5)
