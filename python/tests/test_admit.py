# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# REQUIRES: long-tests
"""Functions that tell which entries there are, and segments, against NumPy, plain loops and masks."""

import itertools
import signal
import subprocess
import sys

import numpy as np
import pytest
from conftest import check, make, near, refused

import fovea
from fovea import Source, _fovea, reference
from fovea.math import maximum, tanh, where

LENGTHS = [(1, 1), (1, 300), (13, 13), (65, 65), (64, 130), (70, 40)]
TYPES = ["float32", "float64", "bfloat16", "float16"]
B, H, G = 2, 4, 2


def documents(M, seed=1):
    return np.sort(np.random.default_rng(seed).integers(0, 3, (B, M)), axis=1)


def cases(N, M):
    """Options of a call, and the entries [B,H,N,M] that it leaves."""
    i, j = np.arange(N)[:, None] + M - N, np.arange(M)
    ids, kinds = documents(M), np.random.default_rng(2).random((H, M)) < 0.5
    own = np.concatenate([np.full((B, max(N - M, 0)), -1), ids[:, max(M - N, 0) :]], axis=1)
    same = own[:, None, :, None] == ids[:, None, None]
    captured, of_kind = fovea.capture(ids), fovea.capture(kinds.astype(np.int8))
    return {
        "causal": ({"admit": lambda b, h, i, j: i >= j}, i >= j),
        "window": ({"admit": lambda b, h, i, j: (i >= j) & (i - j < 9)}, (i >= j) & (i - j < 9)),
        "prefix": ({"admit": lambda b, h, i, j: (j <= i) | (j < 5)}, (j <= i) | (j < 5)),
        "dilated": ({"admit": lambda b, h, i, j: (i - j) % 4 == 0, "causal": True}, ((i - j) % 4 == 0) & (i >= j)),
        "remainders": ({"admit": lambda b, h, i, j: ((i - j) % 3 == 1) | ((j - 2) % 6 < 4) & (i % 5 != 2)},
                       ((i - j) % 3 == 1) | ((j - 2) % 6 < 4) & (i % 5 != 2)),
        "heads": ({"admit": lambda b, h, i, j: (h < 2) | (of_kind[h, j] == 1)},
                  (np.arange(H)[:, None] < 2)[:, None] | kinds[:, None]),
        "kinds": ({"admit": lambda b, h, i, j: captured[b, j] != 1, "window": 40},
                  (ids != 1)[:, None, None] & (np.abs(i - j) < 40)),
        "segments": ({"segments": (own, ids)}, same),
        "causal segments": ({"segments": (own.astype(np.int32), ids.astype(np.int32)), "causal": True}, same & (i >= j)),
        "segments and admit": ({"segments": (own[:1], ids[:1]), "admit": lambda b, h, i, j: i != j}, same[:1] & (i != j)),
        "nothing": ({"admit": lambda b, h, i, j: False}, np.zeros((1, 1), bool)),
        "all": ({"admit": lambda b, h, i, j: True}, np.ones((1, 1), bool)),
    }  # fmt: skip


NAMES = list(cases(1, 1))


def bias(entries, N, M, type="float64"):
    """The same entries, written out."""
    return np.where(np.broadcast_to(entries, (B, H, N, M)), 0.0, -np.inf)


TURNS = itertools.cycle(TYPES)


@pytest.mark.parametrize("name,N,M,type", [(name, *each, next(TURNS)) for name in NAMES for each in LENGTHS])
def test_dense(name, N, M, type):
    arrays = make(type, B=B, H=H, G=G, N=N, M=M, D=24, E=20)
    options, entries = cases(N, M)[name]
    expected = reference.dense(*arrays, bias=bias(entries, N, M), return_lse=True)
    check(fovea.dense(*arrays, **options, return_lse=True), expected, type)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("target,type", [("reference", "float64"), ("gpu-sim", "float32")])
def test_other_targets(name, target, type):
    arrays = make(type, B=B, H=H, G=G, N=33, M=37, D=16)
    options, entries = cases(33, 37)[name]
    expected = reference.dense(*arrays, bias=bias(entries, 33, 37), return_lse=True)
    check(fovea.dense(*arrays, **options, return_lse=True, target=target), expected, type)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("N,M", [(1, 1), (37, 41), (65, 65)])
def test_gradients(name, N, M):
    arrays = make("float64", B=B, H=H, G=G, N=N, M=M, D=8, E=12)
    options, entries = cases(N, M)[name]
    rng = np.random.default_rng(1)
    out, lse = fovea.dense(*arrays, **options, return_lse=True)
    d_out, d_lse = rng.standard_normal(out.shape), np.where(np.isfinite(lse), rng.standard_normal(lse.shape), 0)
    found = fovea.dense_backward(d_out, *arrays, out, lse, d_lse=d_lse, **options)
    expected = reference.dense_backward(d_out, *arrays, out, lse, d_lse=d_lse, bias=bias(entries, N, M))
    for mine, wanted in zip(found, expected):
        near(mine, wanted, "float64", 1e-11)


@pytest.mark.parametrize("type", ["float32", "bfloat16"])
def test_with_a_score_and_other_terms(type):
    N = 65
    arrays = make(type, B=B, H=H, G=G, N=N, D=24)
    rng = np.random.default_rng(5)
    n, m = np.array([N, 30]), np.array([N - 3, 40])
    ids = documents(N)
    options = {"lengths": m, "query_lengths": n, "sink": rng.standard_normal((1, H)).astype(np.float32), "causal": True}
    table = fovea.capture(rng.standard_normal(N).astype(np.float32))

    def score(s, b, h, i, j):
        return 2 * tanh(s / 2) + table[j]

    found = fovea.dense(*arrays, **options, score=score, admit=lambda b, h, i, j: j % 3 != 1, segments=(ids, ids), return_lse=True)

    def expected_score(s, b, h, i, j):
        own = ids[b, np.clip(i - (m[b] - n[b]), 0, N - 1)]
        return where((j % 3 != 1) & (own == ids[b, j]), score(s, b, h, i, j), -np.inf)

    check(found, reference.dense(*arrays, **options, score=expected_score, return_lse=True), type)


@pytest.mark.parametrize("name", ["dilated", "segments", "window"])
def test_removed_entries_are_not_read(name):
    q, k, v = make(B=B, H=H, G=G, N=20, M=40, D=16)
    admit = {"dilated": lambda b, h, i, j: j % 4 == 0, "window": lambda b, h, i, j: (j < 25) & (i >= j), "segments": None}[name]
    ids = np.arange(40)[None] // 30
    options = {"admit": admit, "segments": (np.zeros((1, 20), int), ids) if name == "segments" else None}
    hidden = {"dilated": np.arange(40) % 4 != 0, "window": np.arange(40) >= 25, "segments": ids[0] != 0}[name]
    expected = fovea.dense(q, k, v, **options, return_lse=True)
    gradients = fovea.dense_backward(expected[0], q, k, v, *expected, **options)
    k[:, :, hidden], v[:, :, hidden] = np.nan, np.inf
    found = fovea.dense(q, k, v, **options, return_lse=True)
    assert all(np.array_equal(*pair) for pair in zip(found, expected, strict=True))
    mine = fovea.dense_backward(expected[0], q, k, v, *expected, **options)
    assert all(np.array_equal(*pair) for pair in zip(mine, gradients, strict=True))


@pytest.mark.parametrize("type", ["float32", "bfloat16", "float64"])
@pytest.mark.parametrize("N", [5, 70])
def test_queries_that_read_nothing_are_not_read(N, type):
    q, k, v = make(type, B=B, H=H, G=G, N=N, M=70, D=20)
    options = {"admit": lambda b, h, i, j: (i % 3 == 1) & (j % 4 != i % 4)}
    hidden = (np.arange(N) + 70 - N) % 3 != 1
    results = []
    d_out = q * 2
    for fill in (0, np.nan, np.inf):
        q[:, :, hidden], d_out[:, :, hidden] = fill, fill
        out, lse = fovea.dense(q, k, v, **options, return_lse=True)
        results.append((out, *fovea.dense_backward(d_out, q, k, v, out, lse, **options)[1:3]))
    for found in results[1:]:
        assert all(np.array_equal(*pair) for pair in zip(found, results[0], strict=True))


def skipping(M):
    """Conditions on integers, by which kernels skip tiles, and the same on numbers, by which they do not.

    Quotients do not become masks: what does is compared with these in test_conditions_that_are_masks."""
    kinds = fovea.capture(np.sort(np.random.default_rng(5).integers(0, 4, (B, M)), axis=1))
    widths, short = fovea.capture(np.arange(H, dtype=np.int32) * 40 + 20), fovea.capture(np.zeros(M // 2, np.float32))
    return {
        "causal": (lambda b, h, i, j: (i - j) // 2048 >= 0, lambda b, h, i, j: i * 1.0 >= j),
        "window": (lambda b, h, i, j: (i - j) // 70 == 0, lambda b, h, i, j: (i * 1.0 >= j) & (i * 1.0 < j + 70)),
        "prefix": (lambda b, h, i, j: ((i - j) // 2048 >= 0) | (j < 33), lambda b, h, i, j: (i * 1.0 >= j) | (j * 1.0 < 33)),
        "blocks": (lambda b, h, i, j: ~(i // 64 != j // 64), lambda b, h, i, j: (i // 64) * 1.0 == j // 64),
        "heads": (lambda b, h, i, j: abs(i - j) < widths[h], lambda b, h, i, j: abs(i - j) * 1.0 < widths[h]),
        "remainders": (lambda b, h, i, j: (i - j) % 5 == 3, lambda b, h, i, j: (i - j) % 5 * 1.0 == 3),
        "bands": (lambda b, h, i, j: (i - j + h) % 128 < 20, lambda b, h, i, j: (i - j + h) % 128 * 1.0 < 20),
        "kinds": (lambda b, h, i, j: kinds[b, j] == 2, lambda b, h, i, j: kinds[b, j] * 1.0 == 2),
        "documents": (lambda b, h, i, j: kinds[b, maximum(i, 0)] == kinds[b, j],
                      lambda b, h, i, j: kinds[b, maximum(i, 0)] * 1.0 == kinds[b, j]),
        # Half of the keys are out of bounds: such scores are NaN, removed or not.
        "bounds": (lambda b, h, i, j: (i >= j) & (short[j] < 1), lambda b, h, i, j: (i * 1.0 >= j) & (short[j] < 1)),
        "nothing": (lambda b, h, i, j: (i < -j) & (i > j), lambda b, h, i, j: (i * 1.0 < -j) & (i > j)),
    }  # fmt: skip


@pytest.mark.parametrize(
    "N, M, type",
    [(130, 517, "float32"), (20, 1300, "float32"), (200, 130, "float64"), (300, 300, "bfloat16"), (129, 257, "float16")],
)
@pytest.mark.parametrize("name", list(skipping(2)))
def test_skipped_tiles_change_no_bit(name, N, M, type):
    q, k, v = make(B=B, H=H, G=G, N=N, M=M, D=16, type=type)
    v[0, 0, M - 40] = np.nan
    results = []
    for admit in skipping(M)[name]:
        for options in ({}, {"causal": True}):
            forward = fovea.dense(q, k, v, admit=admit, return_lse=True, **options)
            gradients = fovea.dense_backward(forward[0], q, k, v, *forward, admit=admit, return_d_bias=True,
                                             bias=np.zeros((1, H, N, M), q.dtype), **options)  # fmt: skip
            results.append([np.asarray(each) for each in (*forward, *gradients)])
    for skipped, computed in zip(results[:2], results[2:], strict=True):
        assert all(one.tobytes() == other.tobytes() for one, other in zip(skipped, computed, strict=True))
    assert np.isfinite(np.asarray(results[0][0], np.float32)).any() != (name == "bounds")


@pytest.mark.parametrize("N, M, type", [(1, 1300, "float32"), (5, 700, "bfloat16"), (8, 1100, "float64")])
@pytest.mark.parametrize("name", list(skipping(2)))
def test_few_queries_skip_tiles(name, N, M, type):
    q, k, v = make(B=B, H=H, G=G, N=N, M=M, D=16, type=type)
    v[0, 0, M - 40] = np.nan
    for options in ({}, {"causal": True}, {"lengths": np.array([M - 3, M // 2])}):
        skipped, computed = (fovea.dense(q, k, v, admit=each, return_lse=True, **options) for each in skipping(M)[name])
        bound = {"float32": 1e-5, "float64": 1e-12}.get(type, 1e-2)
        for one, other in zip(skipped, computed, strict=True):
            one, other = (np.asarray(each, np.float64) for each in (one, other))
            np.testing.assert_allclose(one, other, rtol=bound, atol=bound)


def spelled():
    """Conditions, and the options of the masks that they become."""
    return {
        "causal": ({"causal": True}, [
            lambda b, h, i, j: j <= i, lambda b, h, i, j: i >= j, lambda b, h, i, j: i - j >= 0, lambda b, h, i, j: ~(j > i),
            lambda b, h, i, j: j - i < 1, lambda b, h, i, j: i + 1 > j, lambda b, h, i, j: -i <= -j,
            lambda b, h, i, j: maximum(i, j) <= i, lambda b, h, i, j: (i >= j) & (j >= 0), lambda b, h, i, j: 2 * (i - j) > -1]),
        "window": ({"causal": True, "window": 9}, [
            lambda b, h, i, j: (j <= i) & (i - j < 9), lambda b, h, i, j: ~((j > i) | (i - j >= 9)),
            lambda b, h, i, j: (abs(i - j) <= 8) & (i >= j), lambda b, h, i, j: (i < j + 9) & (j <= i) & (j < i + 40)]),
        "itself": ({"causal": True, "window": 1}, [lambda b, h, i, j: (j <= i) & (i - j < 1), lambda b, h, i, j: abs(i - j) < 1]),
        "both sides": ({"window": 9}, [
            lambda b, h, i, j: abs(i - j) < 9, lambda b, h, i, j: (i - j < 9) & (j - i < 9), lambda b, h, i, j: abs(j - i) <= 8]),
        "prefix": ({"causal": True, "prefix": 5}, [
            lambda b, h, i, j: (j <= i) | (j < 5), lambda b, h, i, j: j <= maximum(i, 4), lambda b, h, i, j: ~((j > i) & (j >= 5))]),
        "no prefix": ({"causal": True}, [lambda b, h, i, j: (j <= i) | (j < 0), lambda b, h, i, j: j <= maximum(i, -3)]),
        "prefix beyond": ({"causal": True, "prefix": 1000}, [lambda b, h, i, j: (j <= i) | (j < 1000)]),
        "all": ({}, [lambda b, h, i, j: j >= 0, lambda b, h, i, j: (j <= i) | (i < j)]),
    }  # fmt: skip


@pytest.mark.parametrize("N, M", [(1, 1), (13, 13), (70, 40), (40, 70), (1, 300)])
@pytest.mark.parametrize("name", list(spelled()))
@pytest.mark.parametrize("are_short", [False, True])
def test_conditions_that_are_masks(are_short, name, N, M):
    """They are the masks, bit by bit, and what these say of positions where batch entries have lengths."""
    q, k, v = make(B=B, H=H, G=G, N=N, M=M, D=16)
    k[1, 0, M // 2], v[0, 1, M // 3] = np.nan, np.inf
    lengths = {"lengths": np.array([M, M // 2 + 1]), "query_lengths": np.array([N, N // 2 + 1])}
    masks, conditions = spelled()[name]
    options = lengths if are_short else {}
    wanted = fovea.dense(q, k, v, **masks, **options, return_lse=True)
    gradients = fovea.dense_backward(q @ np.eye(16, dtype=q.dtype), q, k, v, *wanted, **masks, **options)
    for admit in conditions:
        mine = fovea.dense(q, k, v, admit=admit, **options, return_lse=True)
        assert all(one.tobytes() == other.tobytes() for one, other in zip(mine, wanted, strict=True))
        mine = fovea.dense_backward(q @ np.eye(16, dtype=q.dtype), q, k, v, *wanted, admit=admit, **options)
        assert all(one.tobytes() == other.tobytes() for one, other in zip(mine, gradients, strict=True))
    # The reference pipeline knows nothing of this.
    k[np.isnan(k)], v[np.isinf(v)] = 0, 0
    for admit in conditions:
        found, wanted = (fovea.dense(q, k, v, admit=admit, return_lse=True, **lengths, target=t) for t in ("cpu", "reference"))
        check(found, wanted, "float32")


def beside_masks(N):
    """Masks, a condition beside them, and the entries that both leave."""
    i, j = np.arange(N)[:, None], np.arange(N)
    return [
        ({"causal": True}, lambda b, h, i, j: (i - j < 9) & ((i - j) % 4 == 0), (i >= j) & (i - j < 9) & ((i - j) % 4 == 0)),
        ({"causal": True, "prefix": 20}, lambda b, h, i, j: (j <= i) | (j < 9), (i >= j) | (j < 9)),
        ({"causal": True, "prefix": 20}, lambda b, h, i, j: abs(i - j) < 9, ((i >= j) | (j < 20)) & (abs(i - j) < 9)),
        ({"window": 20}, lambda b, h, i, j: j <= maximum(i, 8), (abs(i - j) < 20) & ((i >= j) | (j < 9))),
        ({"window": 20}, lambda b, h, i, j: j < i, (i > j) & (i - j < 20)),
        ({}, lambda b, h, i, j: (j < i) & (j <= i), i > j),
        ({}, lambda b, h, i, j: (j <= i + 1) & (i - j < 5), (j <= i + 1) & (i - j < 5)),
        ({}, lambda b, h, i, j: (h < 2) | (j <= i), (np.arange(H)[:, None, None] < 2) | (i >= j)),
        ({"causal": True}, lambda b, h, i, j: i - j < 0, (i < j) & (i >= j)),
    ]


@pytest.mark.parametrize("case", range(len(beside_masks(1))))
def test_conditions_beside_masks(case):
    """What is left of a conjunction stays, and what is no mask."""
    N = 70
    arrays = make("float64", B=B, H=H, G=G, N=N, D=16)
    masks, admit, entries = beside_masks(N)[case]
    found = fovea.dense(*arrays, **masks, admit=admit, return_lse=True)
    check(found, reference.dense(*arrays, bias=bias(entries, N, N), return_lse=True), "float64")
    mine = fovea.dense_backward(found[0], *arrays, *found, **masks, admit=admit)
    wanted = reference.dense_backward(found[0], *arrays, *found, bias=bias(entries, N, N))
    for one, other in zip(mine, wanted):
        near(one, other, "float64", 1e-11)


@pytest.mark.parametrize("N, M, type, target", [(40, 70, "float32", "cpu"), (70, 40, "bfloat16", "cpu"), (33, 37, "float32", "gpu-sim")])
def test_conditions_beside_slopes_that_are_masks(N, M, type, target):
    """Arrays have extents that are not known when compiling."""
    arrays = make(type, B=B, H=H, G=G, N=N, M=M, D=16)
    slopes = fovea.capture(np.float32([0.5, 0.25, 0.125, 0.0625]))
    heats = fovea.capture(np.float32([[1], [0.5]]))
    options = {"score": lambda s, b, h, i, j: s * heats[b, 0] + slopes[h] * (j - i), "target": target}
    results = []
    for mask in ({"causal": True}, {"admit": lambda b, h, i, j: i >= j}):
        out, lse = fovea.dense(*arrays, **options, **mask, return_lse=True)
        gradients = fovea.dense_backward(out, *arrays, out, lse, **options, **mask, return_d_captures=True)
        results.append([out, lse, *gradients[:3], *gradients[-1]])
    for built_in, function in zip(*results, strict=True):
        assert np.array_equal(built_in, function, equal_nan=True)


@pytest.mark.parametrize("case", range(5))
def test_conditions_of_sources_that_are_masks(case):
    q, k, v = make("float64", B=B, H=H, G=G, N=65, D=24)
    _, far_k, far_v = make("float64", B=B, H=H, G=G, N=65, M=9, D=24, seed=3)
    of_all = lambda b, h, i, j: j <= i  # noqa: E731
    sources, admit = (
        ([Source(k, v, admit=of_all), Source(far_k, far_v)], None),
        ([Source(k, v, window=7), Source(far_k, far_v, causal=True)], of_all),
        ([Source(k, v, admit=lambda b, h, i, j: abs(i - j) < 7), Source(far_k, far_v, stride=7)], of_all),
        ([Source(k, v, admit=lambda b, h, i, j: i - j < 7), Source(far_k, far_v)], of_all),
        ([Source(k, v, score=lambda s, b, h, i, j: s / 2), Source(far_k, far_v, admit=of_all)], of_all),
    )[case]
    found, wanted = (fovea.stream(q, sources, admit=admit, return_lse=True, target=t) for t in ("cpu", "reference"))
    check(found, wanted, "float64")
    mine, other = (fovea.stream_backward(found[0], q, sources, *found, admit=admit, target=t) for t in ("cpu", "reference"))
    near(mine[0], other[0], "float64", 1e-7)
    for one, its in zip(mine[1], other[1], strict=True):
        near(one.k, its.k, "float64", 1e-7)
        near(one.v, its.v, "float64", 1e-7)


PROTECTED = """
import ctypes, mmap, sys
import numpy as np
import fovea

keys, width, left = 65536, 16, 1024
pages = [mmap.mmap(-1, keys * width * 4) for _ in range(2)]
k, v = (np.frombuffer(each, np.float32).reshape(1, 1, keys, width) for each in pages)
for each in (k, v):
    each[:, :, -left:] = np.random.default_rng(0).standard_normal((left, width))
    size = (keys - left) * width * 4
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(each.ctypes.data), ctypes.c_size_t(size), 0) == 0
q = np.ones((1, 1, int(sys.argv[2]), width), np.float32)
admit = {
    "mask": lambda b, h, i, j: (i >= j) & (i - j < 256),
    "skips": lambda b, h, i, j: (i - j) // 256 == 0,
    "computes": lambda b, h, i, j: (i >= j) & (i * 1.0 < j + 256),
}[sys.argv[1]]
out = fovea.dense(q, k, v, admit=admit)
near = [x[:, :, -left:].copy() for x in (k, v)]
expected = fovea.dense(q, *near, causal=True, window=256)
assert np.abs(out - expected).max() < 1e-5
"""


@pytest.mark.parametrize("queries", [1, 4, 100])
def test_keys_that_are_removed_are_not_touched(queries):
    """Reading them would end the process, as it does where conditions are on numbers."""
    for how, code in (("mask", 0), ("skips", 0), ("computes", -signal.SIGSEGV)):
        assert subprocess.run([sys.executable, "-c", PROTECTED, how, str(queries)]).returncode == code


@pytest.mark.parametrize("type", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", list(skipping(2)))
def test_tiles_that_gpus_skip(name, type):
    check_tiles_that_gpus_skip(name, type)


def check_tiles_that_gpus_skip(name, type, N=75, M=300):
    admit, _ = skipping(M)[name]
    for n in (N, 1):
        q, k, v = make(B=B, H=H, G=G, N=n, M=M, D=16, type=type)
        v[0, 0, M - 40] = np.nan
        on_cpu, on_gpu = (fovea.dense(q, k, v, admit=admit, return_lse=True, target=t) for t in ("cpu", "gpu-sim"))
        bound = 1e-5 if type == "float32" else 2e-2
        for one, other in zip(on_cpu, on_gpu, strict=True):
            one, other = (np.asarray(each, np.float64) for each in (one, other))
            np.testing.assert_allclose(one, other, rtol=bound, atol=bound)
    if type != "float32" or name == "bounds":
        return
    v[np.isnan(v)] = 0
    out, lse = fovea.dense(q, k, v, admit=admit, return_lse=True)
    one, other = (fovea.dense_backward(q, q, k, v, out, lse, admit=admit, target=t) for t in ("cpu", "gpu-sim"))
    for mine, wanted in zip(other, one, strict=True):
        near(mine, wanted, type, 1e-4)


def test_layouts_and_one_kernel():
    before = _fovea.cache_statistics()[2]
    for N, M in ((40, 40), (30, 50), (65, 70)):
        q, k, v = make(B=B, H=H, G=G, N=N, M=M, D=20)
        options, entries = cases(N, M)["causal segments"]
        found = fovea.dense(q, k, v, **options)
        near(found, reference.dense(q, k, v, bias=bias(entries, N, M)), "float32")
        swapped = [np.ascontiguousarray(x.swapaxes(1, 2)) for x in (q, k, v)]
        assert np.array_equal(fovea.dense(*swapped, **options, layout="bnhd").swapaxes(1, 2), found)
    # Its own, and one that reads and writes in another order.
    assert _fovea.cache_statistics()[2] - before == 2


@pytest.mark.parametrize("batch", [1, B])
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("are_short", [False, True])
def test_segments_of_all_kinds(batch, shared, are_short):
    """Each type again: regions of segments are kept by what they follow from."""
    N = 40
    q, k, v = make(B=B, H=H, G=G, N=N, D=8)
    lengths = np.array([N, 31])
    options = {"lengths": lengths, "query_lengths": lengths} if are_short else {}
    for type in ("int8", "int64", "int8"):
        ids = documents(N)[:batch].astype(type)
        found = fovea.dense(q, k, v, segments=(ids, ids if shared else ids.copy()), **options)
        entries = ids[:, None, :, None] == ids[:, None, None]
        near(found, reference.dense(q, k, v, bias=bias(entries, N, N), **options), "float32")


@pytest.mark.parametrize("size", [63, 64, 65, 128, 192])
@pytest.mark.parametrize("type", ["float32", "bfloat16"])
def test_documents_that_begin_at_tiles(size, type):
    """Before, at and behind where tiles of keys, runs whose bounds are kept, and blocks of queries begin; a document goes on
    in the last block, and another in the midst of others."""
    N = 1111
    q, k, v = make(type, B=2, H=2, G=1, N=N, D=16)
    ids = np.stack([np.arange(N) // size, (np.arange(N) + 7) // size])
    ids[0, -5:], ids[0, 700:703] = 0, 1
    options = {"segments": (ids, ids), "causal": True}
    entries = (ids[:, None, :, None] == ids[:, None, None]) & (np.arange(N)[:, None] >= np.arange(N))
    found = fovea.dense(q, k, v, **options, return_lse=True)
    mask = np.where(entries, 0.0, -np.inf)
    check(found, reference.dense(q, k, v, bias=mask, return_lse=True), type)
    # Queries that begin within a run of keys.
    last = fovea.dense(q[:, :, 37:], k, v, segments=(ids[:, 37:], ids), causal=True)
    near(last, found[0][:, :, 37:], type)
    if type == "float32":
        gradients = fovea.dense_backward(found[0], q, k, v, *found, **options)
        for mine, wanted in zip(gradients, reference.dense_backward(found[0], q, k, v, *found, bias=mask)):
            near(mine, wanted, type, 1e-4)
    # What is removed is not read, in a tile that is admitted as in others.
    v[:, :, size] = np.nan
    hidden = fovea.dense(q, k, v, **options)
    reads = np.broadcast_to(entries[..., size], hidden.shape[:3])
    assert np.isnan(hidden[reads]).all() and np.array_equal(hidden[~reads], found[0][~reads])


@pytest.mark.parametrize("type", ["float32", "float64"])
def test_stream(type):
    """Of all sources, by the positions of each."""
    q, k, v = make(type, B=B, H=H, G=G, N=65, D=24)
    _, far_k, far_v = make(type, B=B, H=H, G=G, N=65, M=9, D=24, seed=3)
    sources = [Source(k, v, causal=True), Source(far_k, far_v)]
    options = {"admit": lambda b, h, i, j: (j + h) % 3 != 0, "score": lambda s, b, h, i, j: s + (j - i) / 9}
    found = fovea.stream(q, sources, **options, return_lse=True)
    check(found, reference.stream(q, sources, **options, return_lse=True), type)
    if type == "float64":
        mine = fovea.stream_backward(found[0], q, sources, *found, **options)
        wanted = reference.stream_backward(found[0], q, sources, *found, **options)
        near(mine[0], wanted[0], type, 1e-7)
        near(mine[1][1].v, wanted[1][1][1], type, 1e-7)


def test_a_wrong_function_is_noticed():
    arrays = make(B=B, H=H, G=G)
    options, entries = cases(37, 37)["causal"]
    with pytest.raises(AssertionError):
        check(fovea.dense(*arrays, admit=lambda b, h, i, j: i > j), reference.dense(*arrays, bias=bias(entries, 37, 37)))


def test_errors():
    arrays = make(B=B)
    here = rf"^admit: {__file__}:\d+: "
    ids = np.zeros((2, 37), int)
    for admit, match in (
        ("causal", "^admit: found str, needed a function of"),
        (lambda b, h, i, j: i - j, here + "found an integer, needed a condition"),
        (lambda b, h, i, j: i if i > j else j, here + "found if, and, or"),
        (lambda b, h, i, j: i >= j and i < 3, here + "found if, and, or"),
        (lambda s, b, h, i, j: i > j, "^admit: "),
        (lambda b, h, i, j: None, "^admit: "),
    ):
        refused(match, fovea.dense, *arrays, admit=admit)
        refused(match, fovea.dense, *arrays, admit=admit, segments=(ids, ids))
        refused(match, fovea.stream, arrays[0], [Source(*arrays[1:])], admit=admit)
    for segments, match in (
        (ids, "^segments: found ndarray, needed a pair"),
        ((ids, ids[:, 1:]), r"^segments\[1\]: found shape \(2, 36\), needed \(2, 37\)"),
        ((ids[0], ids), r"^segments\[0\]: found shape \(37,\), needed \(2, 37\)"),
        ((ids, ids * 1.0), r"^segments\[1\]: found element type float64, needed a signed integer type"),
        ((ids, ids, ids), "^segments: found tuple, needed a pair"),
    ):
        refused(match, fovea.dense, *arrays, segments=segments)
    for changes, match in (
        ({"q": None}, "^q: found NoneType, needed an array of rank 4 beside segments"),
        ({"k": arrays[1][0]}, "^k: found rank 3, needed an array of rank 4 beside segments"),
        ({"lengths": 3}, r"^lengths: found int, needed an array \[B\] beside segments"),
        ({"query_lengths": ids}, r"^query_lengths: found rank 2, needed an array \[B\] beside segments"),
    ):
        given = dict(zip("qkv", arrays)) | {"segments": (ids, ids)} | changes
        refused(match, fovea.dense, **given)
