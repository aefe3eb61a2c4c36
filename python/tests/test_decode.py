# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Few queries on many keys: all heads that share keys go through them at once, in parts."""

import numpy as np
import pytest
from conftest import TYPES, check, make

import fovea
from fovea import reference

# Rows of a set (queries times the heads of a group) from one to more than a set
# has, vectors and tiles with a rest, keys in one part and in several.
SHAPES = [
    {"H": 1, "G": 1, "N": 1, "M": 1, "D": 16},
    {"B": 2, "H": 8, "G": 2, "N": 1, "M": 1031, "D": 64},
    {"H": 4, "G": 2, "N": 1, "M": 4097, "D": 128, "E": 64},
    {"H": 6, "G": 2, "N": 1, "M": 129, "D": 48},
    {"H": 8, "G": 1, "N": 1, "M": 640, "D": 256},
    {"H": 32, "G": 1, "N": 1, "M": 300, "D": 64},
    {"B": 2, "H": 4, "G": 2, "N": 3, "M": 131, "D": 64, "E": 48},
    {"H": 4, "G": 1, "N": 2, "M": 1500, "D": 32},
    {"B": 2, "H": 3, "G": 1, "N": 5, "M": 77, "D": 20, "E": 24},
    {"H": 2, "G": 2, "N": 17, "M": 1100, "D": 64},
    {"H": 4, "G": 1, "N": 32, "M": 257, "D": 64, "E": 32},
    {"H": 1, "G": 1, "N": 48, "M": 64, "D": 64},
    {"H": 7, "G": 1, "N": 40, "M": 65, "D": 5, "E": 7},
    {"H": 1, "G": 1, "N": 3, "M": 600, "D": 576, "E": 512},
    {"H": 16, "G": 1, "N": 1, "M": 1063, "D": 576, "E": 512},
    {"B": 2, "H": 131, "G": 1, "N": 1, "M": 65, "D": 64, "E": 80},
    {"H": 5, "G": 1, "N": 8, "M": 290, "D": 24, "E": 13},
    {"B": 2, "H": 6, "G": 2, "N": 8, "M": 1234, "D": 128, "E": 6},
]
OPTIONS = {
    "plain": {},
    "causal": {"causal": True},
    "window": {"causal": True, "window": 37},
    "both sides": {"window": 20},
    "bias": {},
    "log weight": {"causal": True},
    "sink": {"window": 9},
}


def case(name, type, shape, seed=5):
    """Arrays and options; some biases and log weights are minus infinity."""
    arrays = make(type, **shape)
    rng = np.random.default_rng(seed)
    options = dict(OPTIONS[name])
    (B, H, N, _), (_, G, M, _) = arrays[0].shape, arrays[1].shape
    terms = {"bias": (1, H, N, M), "log weight": (B, G, M), "sink": (B, H)}
    if name in terms:
        term = rng.standard_normal(terms[name]).astype(TYPES[type])
        term[rng.random(term.shape) < 0.2] = -np.inf
        options[name.replace(" ", "_")] = term
    return arrays, options


def pairs():
    """Every shape with every option in one type, and with one in each of the others."""
    names = list(OPTIONS)
    for shape in range(len(SHAPES)):
        yield from (("float32", name, shape) for name in names)
        for offset, type in enumerate(TYPES):
            if type != "float32":
                yield type, names[(shape + offset) % len(names)], shape


@pytest.mark.parametrize("type,name,shape", list(pairs()))
def test_numbers(type, name, shape):
    arrays, options = case(name, type, SHAPES[shape])
    found = fovea.dense(*arrays, **options, return_lse=True)
    check(found, reference.dense(*arrays, **options, return_lse=True), type)


@pytest.mark.parametrize("name", OPTIONS)
def test_against_loops(name):
    """A second reference, which shares no code with the first."""
    for shape in SHAPES[:9]:
        arrays, options = case(name, "float32", shape)
        check(fovea.dense(*arrays, **options), fovea.dense(*arrays, **options, target="reference"))


@pytest.mark.parametrize("name", ["plain", "window", "bias"])
def test_kernels_for_one_length_have_the_same_bits(name):
    for shape in (SHAPES[1], SHAPES[6], SHAPES[9]):
        arrays, options = case(name, "float32", shape)
        found = []
        for shapes in ("dynamic", "static"):
            fovea.set_shapes(shapes)
            try:
                found.append(fovea.dense(*arrays, **options))
            finally:
                fovea.set_shapes("auto")
        assert np.array_equal(*found)


def test_a_key_that_is_left_out_is_seen():
    q, k, v = make(**SHAPES[1])
    with pytest.raises(AssertionError):
        check(fovea.dense(q, k[:, :, :-1], v[:, :, :-1]), reference.dense(q, k, v))


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("N", [1, 4, 20])
def test_threads_give_the_same_bits(type, N):
    arrays = make(type, H=4, G=1, N=N, M=9001, D=32)
    results = []
    try:
        for threads in (1, 2, 3, 7):
            fovea.set_num_threads(threads)
            results.append(fovea.dense(*arrays, causal=True, return_lse=True))
    finally:
        fovea.set_num_threads(0)
    for out, lse in results[1:]:
        assert np.array_equal(out, results[0][0]) and np.array_equal(lse, results[0][1])


@pytest.mark.parametrize("type", ["float32", "bfloat16"])
@pytest.mark.parametrize("shape", [1, 2, 5, 6, 9, 10, 14, 16, 17])
def test_what_is_not_read_may_be_anything(type, shape):
    """Rows of a longer cache behind the keys, and those that a mask or a log weight removes."""
    q, k, v = make(type, **SHAPES[shape])
    M, N = k.shape[2], q.shape[2]
    rng = np.random.default_rng(3)
    weight = np.zeros((k.shape[0], k.shape[1], M), TYPES[type])
    removed = rng.random(M) < 0.1
    weight[..., removed] = -np.inf
    options = {"causal": True, "window": M // 2, "log_weight": weight}
    expected = fovea.dense(q, k, v, **options)
    assert np.isfinite(expected.astype(np.float64)).all()
    poisoned = []
    for array in (k, v):
        cache = np.full((*array.shape[:2], M + 40, array.shape[3]), np.nan).astype(array.dtype)
        cache[:, :, :M] = array
        cache[:, :, :M][:, :, removed] = np.inf
        cache[:, :, : max(M - N - M // 2 + 1, 0)] = np.nan
        poisoned.append(cache[:, :, :M])
    assert np.array_equal(fovea.dense(q, *poisoned, **options), expected)


@pytest.mark.parametrize("type", ["float32", "bfloat16"])
@pytest.mark.parametrize("N", [3, 20])
def test_a_key_that_some_queries_do_not_read_poisons_the_others_only(type, N):
    q, k, v = make(type, H=4, G=2, N=N, M=50, D=64)
    expected = fovea.dense(q, k, v, causal=True)
    k[:, :, -2], v[:, :, -1] = np.nan, np.inf
    found = fovea.dense(q, k, v, causal=True)
    assert np.array_equal(found[:, :, :-2], expected[:, :, :-2])
    assert np.isnan(found[:, :, -2:].astype(np.float32)).all()


@pytest.mark.parametrize("N", [1, 5, 30])
def test_rows_without_keys_are_zero(N):
    q, k, v = make(H=4, G=2, N=N, M=N // 2, D=16)
    out, lse = fovea.dense(q, k, v, causal=True, return_lse=True)
    empty = N - N // 2
    assert not out[:, :, :empty].any() and np.isneginf(lse[:, :, :empty]).all()
    assert out[:, :, empty:].all()


@pytest.mark.parametrize("N", [1, 6, 33])
def test_rows_with_gaps_have_the_same_bits(N):
    """Caches of [B, M, H, D] and those that are longer than what they hold."""
    for type in ("float32", "bfloat16"):
        q, k, v = make(type, B=2, H=4, G=2, N=N, M=700, D=64)
        caches = [np.ascontiguousarray(a.swapaxes(1, 2)).swapaxes(1, 2) for a in (k, v)]
        assert np.array_equal(fovea.dense(q, *caches), fovea.dense(q, k, v))
