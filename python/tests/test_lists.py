# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# REQUIRES: long-tests
"""Sources with lists of rows, and their gradients, against NumPy and plain loops."""

import numpy as np
import pytest
from conftest import TYPES, check, make, refused
from test_stream import compare_gradients, compare_threads

import fovea
from fovea import Source, _fovea, reference

B, H, G, D, E = 2, 4, 2, 24, 20


def choose(shape, number, seed=0):
    """Lists of entries, some twice, with -1 between them."""
    rng = np.random.default_rng(seed)
    lists = rng.integers(0, number, shape)
    lists[rng.random(shape) < 0.2] = -1
    return lists


def normal(type, *shape, seed=5):
    return np.random.default_rng(seed).standard_normal(shape).astype(TYPES[type])


def blocks_of_rows(type, N):
    """A list for each block of queries and key head, beside a window."""
    q, k, v = make(type, B=B, H=H, G=G, N=N, D=D, E=E)
    chosen = Source(k, v, causal=True, rows=choose((B, G, -(-N // 16), 5), -(-N // 8)), unit=8)
    return q, [chosen, Source(k, v, causal=True, window=5)], {"block": 16}


def rows_of_queries(type, N):
    """A list of single rows for each query, that all heads share."""
    q, k, v = make(type, B=B, H=H, G=G, N=N, D=D, E=E)
    weight = normal("float64" if type == "float64" else "float32", 1, G, N)
    return q, [Source(k, v, causal=True, log_weight=weight, rows=choose((B, 1, N, 9), N).astype(np.int32))], {"block": 1}


def lists_of_heads(type, N):
    """A list for each query head, and a bias of stored rows."""
    q, k, v = make(type, B=B, H=H, G=G, N=N, M=50, D=D, E=E)
    bias = normal(type, 1, H, N, 50)
    return q, [Source(k, v, bias=bias, rows=choose((1, H, 1, 4), 17), unit=3)], {"sink": normal(type, 1, H)}


def sequences_of_pages(type, N):
    q, k, v = make(type, B=B, H=H, G=G, N=N, M=96, D=D, E=E)
    rng = np.random.default_rng(N)
    pages = np.stack([rng.permutation(12) for _ in range(B)])[:, None, None]
    lengths = np.array([96, 41])
    return q, [Source(k, v, causal=True, rows=pages, unit=8, positions="listed", lengths=lengths)], {}


CASES = [blocks_of_rows, rows_of_queries, lists_of_heads, sequences_of_pages]


@pytest.mark.parametrize("N", [1, 13, 64, 65])
@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("case", CASES)
def test_lists(case, type, N):
    q, sources, options = case(type, N)
    found = fovea.stream(q, sources, **options, return_lse=True)
    check(found, reference.stream(q, sources, **options, return_lse=True), type)


@pytest.mark.parametrize("case", CASES)
def test_plain_loops(case):
    q, sources, options = case("float64", 37)
    found = fovea.stream(q, sources, **options, return_lse=True, target="reference")
    check(found, reference.stream(q, sources, **options, return_lse=True), "float64")
    compare_gradients(q, sources, options, "float64", "reference", bound=1e-11)


@pytest.mark.parametrize("N", [1, 37, 65])
@pytest.mark.parametrize("case", CASES)
def test_gradients(case, N):
    compare_gradients(*case("float64", N), "float64", bound=1e-11)


@pytest.mark.parametrize("type", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("case", CASES)
def test_gradients_of_all_types(case, type):
    compare_gradients(*case(type, 65), type, bound=None if type == "float32" else 4e-2)


def test_pages_are_the_sequence():
    """Pages of a pool, in order, are keys in one piece."""
    q, k, v = make(B=B, H=H, G=G, N=5, M=64, D=D, E=E)
    rng = np.random.default_rng(1)
    places = rng.permutation(20)[:16].reshape(B, 8)
    pool = [np.full((1, G, 160, x.shape[3]), np.nan, x.dtype) for x in (k, v)]
    for b in range(B):
        for page, place in enumerate(places[b]):
            for to, of in zip(pool, (k, v)):
                to[0, :, 8 * place : 8 * place + 8] = of[b, :, 8 * page : 8 * page + 8]
    for options in ({}, {"causal": True}, {"causal": True, "window": 11}, {"lengths": np.array([9, 64])}):
        paged = Source(*pool, rows=places[:, None, None], unit=8, positions="listed", **options)
        found = fovea.stream(q, [paged], return_lse=True)
        check(found, reference.dense(q, k, v, **options, return_lse=True))


def test_all_rows_listed_are_all_rows():
    q, k, v = make(B=B, H=H, G=G, N=70, D=D, E=E)
    every = np.arange(9)[None, None, None]
    found = fovea.stream(q, [Source(k, v, causal=True, rows=every, unit=8)], return_lse=True)
    check(found, reference.dense(q, k, v, causal=True, return_lse=True))
    # Twice listed counts twice.
    twice = fovea.stream(q, [Source(k, v, causal=True, rows=np.tile(every, 2), unit=8)], return_lse=True)
    assert np.allclose(twice[1] - found[1], np.log(2), atol=1e-5)


def test_nothing_listed():
    q, k, v = make(B=B, H=H, G=G, N=5, D=D, E=E)
    for lists in (np.full((1, 1, 1, 4), -1), np.zeros((1, 1, 1, 0), int)):
        out, lse = fovea.stream(q, [Source(k, v, rows=lists, unit=2)], return_lse=True)
        assert not out.any() and np.isneginf(lse).all()


@pytest.mark.parametrize("type", ["float32", "bfloat16"])
def test_rows_that_no_list_names_may_hold_anything(type):
    q, sources, options = blocks_of_rows(type, 65)
    chosen = sources[0]
    lists = np.where(chosen.rows > 3, 3, chosen.rows)
    sources = [Source(chosen.k, chosen.v, causal=True, rows=lists, unit=8)]
    expected = fovea.stream(q, sources, **options, return_lse=True)
    k, v = chosen.k.copy(), chosen.v.copy()
    k[:, :, 32:], v[:, :, 32:] = np.nan, np.inf
    sources = [Source(k, v, causal=True, rows=lists, unit=8)]
    found = fovea.stream(q, sources, **options, return_lse=True)
    assert all(np.array_equal(*pair) for pair in zip(found, expected))
    dq, ((dk, dv, *_),) = fovea.stream_backward(found[0], q, sources, *found, **options)
    assert np.isfinite(dq.astype(float)).all() and not dk[:, :, 32:].any() and not dv[:, :, 32:].any()


def test_same_bits_on_any_number_of_threads():
    compare_threads(*blocks_of_rows("float32", 300))


def test_one_kernel_for_all_lengths():
    before = _fovea.cache_statistics()[2]
    for N in (30, 65, 130):
        q, sources, options = blocks_of_rows("float32", N)
        q, k = q[..., :22].copy(), sources[0].k[..., :22].copy()
        fovea.stream(q, [Source(k, sources[0].v, rows=sources[0].rows, unit=8)], **options)
    assert _fovea.cache_statistics()[2] - before == 1


@pytest.mark.parametrize("case", CASES)
def test_gpu(case):
    q, sources, options = case("bfloat16", 37)
    check(fovea.stream(q, sources, **options, target="gpu-sim"), reference.stream(q, sources, **options), "bfloat16")


@pytest.mark.parametrize("type", ["float32", "bfloat16"])
def test_many_heads_on_gpu(type):
    """More heads share a list than a tile has rows."""
    q, k, v = make(type, B=B, H=135, G=1, N=3, M=40, D=D, E=E)
    source = Source(k, v, causal=True, rows=choose((B, 1, 3, 9), 40).astype(np.int32))
    options = {"block": 1, "sink": normal(type, B, 135)}
    found = fovea.stream(q, [source], **options, return_lse=True, target="gpu-sim")
    check(found, reference.stream(q, [source], **options, return_lse=True), type)


@pytest.mark.parametrize("case", CASES)
def test_gradients_on_gpu(case):
    compare_gradients(*case("float32", 13), "float32", "gpu-sim")


@pytest.mark.parametrize("target", ["cpu", "gpu-sim"])
@pytest.mark.parametrize("case", CASES)
def test_gradients_of_queries_that_do_not_exist(case, target):
    q, sources, options = case("float32", 13)
    compare_gradients(q, sources, {**options, "query_lengths": np.array([5, 0])}, "float32", target)


def test_a_wrong_list_is_noticed():
    q, (chosen, window), options = blocks_of_rows("float32", 65)
    wrong = chosen.rows.copy()
    wrong[0, 0, 4] = [0, 1, 2, 3, 4]
    with pytest.raises(AssertionError):
        check(fovea.stream(q, [Source(chosen.k, chosen.v, causal=True, rows=wrong, unit=8), window], **options),
              reference.stream(q, [chosen, window], **options))  # fmt: skip


def test_errors():
    q, k, v = make(B=B, H=H, G=G, N=37, D=D, E=E)
    lists = np.zeros((B, G, 3, 4), np.int32)

    def fails(match, *, block=16, target="cpu", keys=k, values=v, error=ValueError, **source):
        refused(match, fovea.stream, q, [Source(keys, values, **source)], block=block, target=target, error=error)

    fails(r"^sources\[0\]\.rows: found rank 3", rows=lists[0])
    fails(r"^sources\[0\]\.rows: found element type float64, needed int32 or int64", rows=lists + 0.5)
    fails(r"^sources\[0\]\.rows: found extent 3 in dimension 1, needed 1 or 2 or 4", rows=lists[:, [0, 0, 0]])
    fails(r"^sources\[0\]\.rows: found extent 3 in dimension 0, needed 1 or 2", rows=lists[[0, 0, 0]])
    fails(r"^sources\[0\]\.rows: found extent 2 in dimension 2, needed 1 or at least 3", rows=lists[:, :, :2])
    fails(r"^block: found 0, needed at least 1, since sources\[0\]\.rows has a list for each block", rows=lists, block=0)
    fails(r"^sources\[0\]\.unit: found 0, needed an integer of at least 1", rows=lists, unit=0)
    fails(r"^sources\[0\]\.unit: found it without rows", unit=3)
    fails(r"^sources\[0\]\.positions: found it without rows", positions="listed")
    fails(r"^sources\[0\]\.positions: found 'random', needed", rows=lists, positions="random")
    bias = np.zeros((1, 1, 37, 37), np.float32)
    fails(r"^sources\[0\]\.bias: found it beside listed positions", rows=lists, positions="listed", bias=bias)
    fails(r"^sources\[0\]\.lengths: found 5 for batch entry 1, needed 0 to 4", rows=lists, positions="listed", lengths=np.array([4, 5]))
    fails(r"^sources\[0\]\.v: found batch 1, needed 2", rows=lists, keys=k[:1], values=v[:1])
    for entry in (-2, 5):
        wrong = lists.copy()
        wrong[1, 0, 2, 3] = entry
        match = rf"rows of source 0\[1, 0, 2, 3\] must be -1, or at least 0 and below 5, but got {entry}"
        for target in ("cpu", "gpu-sim"):
            fails(match, rows=wrong, unit=8, target=target, error=fovea.FoveaError)
    wrong = lists.astype(np.int64)
    wrong[0, 0, 0, 0] = 1 << 40
    narrowed = r"rows of source 0\[0, 0, 0, 0\] must be -1, or at least 0 and below 5, but got 2147483647"
    fails(narrowed, rows=wrong, unit=8, target="gpu-sim", error=fovea.FoveaError)
    fails(r"^sources\[0\]\.rows: found 1099511627776, needed codes of 32 bits", rows=wrong)
