# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# REQUIRES: long-tests
"""Several queries of a cache on the emulated GPU: rows of a tile are heads that share keys, of several queries."""

import numpy as np
import pytest
from conftest import check, make, normal
from test_decode import OPTIONS, case
from test_decode_gpu import TYPES, compare, compare_lengths

import fovea
from fovea import Source, reference

QUERIES = [2, 3, 5, 8, 16, 17, 32]
# Heads that share a key head: one, as many as divide a tile of rows, odd numbers, more than a tile has rows, and 64 and 128,
# with which tiles are of one query.
HEADS = [(2, 2), (8, 1), (6, 2), (10, 2), (16, 4), (34, 1), (64, 1), (136, 1)]
# One less and one more than tiles (of 32 and 64) and parts (256) have, and one more than two parts.
KEYS = [63, 257, 515, 32, 300, 65]


def cases():
    """All numbers of queries and heads, with an option and a type each."""
    names = list(OPTIONS)
    for i, N in enumerate(QUERIES):
        for j, (H, G) in enumerate(HEADS):
            B = 2 if N * H < 80 else 1
            shape = {"B": B, "H": H, "G": G, "N": N, "M": KEYS[(i + 2 * j) % 6], "D": 16}
            yield TYPES[(i + j) % 3], names[(3 * i + j) % len(names)], shape


@pytest.mark.parametrize("type,name,shape", list(cases()))
def test_numbers(type, name, shape):
    arrays, options = case(name, type, shape)
    compare(type, arrays, **options)


@pytest.mark.parametrize("name", OPTIONS)
def test_against_loops(name):
    """A second reference, which shares no code with the first."""
    for shape in ({"B": 2, "H": 12, "G": 2, "N": 5, "M": 517, "D": 24, "E": 40}, {"H": 8, "G": 1, "N": 8, "M": 270, "D": 64}):
        arrays, options = case(name, "float32", shape)
        check(fovea.dense(*arrays, **options, target="gpu-sim"), fovea.dense(*arrays, **options, target="reference"))


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("D,E", [(64, 64), (128, 128), (256, 256), (20, 7), (40, 300)])
def test_widths(type, D, E):
    compare(type, make(type, H=8, G=2, N=3, M=270, D=D, E=E), causal=True)


@pytest.mark.parametrize("N", [3, 8, 32])
def test_more_queries_than_keys(N):
    """The first queries stand before all keys and read none."""
    out, lse = compare("float32", make(B=2, H=8, G=2, N=N, M=2, D=16), causal=True)
    assert not out[:, :, : N - 2].any() and np.isneginf(lse[:, :, : N - 2]).all()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("sink", [False, True])
def test_lengths(causal, sink):
    """Queries stand at the end of each length, which may be shorter than they are many."""
    lengths = np.array([0, 3, 256, 260, 700], np.int32)
    arrays = make(B=5, H=6, G=2, N=5, M=700, D=32)
    options = {"sink": normal(5, 6)} if sink else {}
    compare_lengths(arrays, lengths, causal=causal, **options)


@pytest.mark.parametrize("type", TYPES)
def test_large_scores(type):
    """One key has all of the weight, another one for each query, in parts of their own."""
    q, k, v = make(type, H=8, G=2, N=4, M=1025, D=16)
    for query in range(4):
        k[:, :, 256 * query + 7] = 40 * q[:, ::4, query]
    for arrays, options in (((q, k, v), {}), ((q * 100, k, v), {"causal": True, "window": 900})):
        found, lse = fovea.dense(*arrays, **options, return_lse=True, target="gpu-sim")
        expected, expected_lse = reference.dense(*arrays, **options, return_lse=True)
        check(found, expected, type)
        # Scores are rounded relative to their size.
        np.testing.assert_allclose(lse, expected_lse, rtol=1e-6)


def test_what_a_query_does_not_read_may_be_anything():
    """Rows of one tile are cut at different keys."""
    q, k, v = make(H=6, G=2, N=5, M=300, D=32)
    expected = fovea.dense(q, k, v, causal=True, window=40, target="gpu-sim")
    k[:, :, 299], v[:, :, 298] = np.nan, np.inf
    found = fovea.dense(q, k, v, causal=True, window=40, target="gpu-sim")
    assert np.array_equal(found[:, :, :3], expected[:, :, :3])
    assert np.isnan(found[:, :, 3:]).all()
    k[:, :, :256], v[:, :, :256] = np.nan, np.inf
    found = fovea.dense(q, k, v, causal=True, window=40, target="gpu-sim")
    assert np.array_equal(found[:, :, 0], expected[:, :, 0]) and np.array_equal(found[:, :, 2], expected[:, :, 2])


def test_biases_that_remove_entries():
    q, k, v = make(H=8, G=2, N=4, M=300, D=32)
    bias = normal(1, 8, 4, 300)
    bias[:, :, 1, 32:64] = bias[:, 5, 2] = bias[:, 3, 3, 100] = -np.inf
    out, _ = compare("float32", (q, k, v), bias=bias)
    assert not out[:, 5, 2].any()
    # Of one head for all, of one query for all, of one entry alone.
    for cut in (bias[:, :1], bias[:, :, :1], bias[:, :1, :1]):
        compare("float32", (q, k, v), bias=np.ascontiguousarray(cut))
    v[:, 0, 100] = np.nan
    is_nan = np.isnan(fovea.dense(q, k, v, bias=bias, target="gpu-sim"))
    assert is_nan.any(-1).sum() == 4 * 4 - 1 and not is_nan[:, 3, 3].any()


@pytest.mark.parametrize("H,G", [(6, 2), (16, 1), (3, 3)])
def test_functions_of_scores_see_their_own_head_and_query(H, G):
    q, k, v = make(B=2, H=H, G=G, N=5, M=330, D=32)
    slopes = fovea.capture(np.abs(normal(H)))

    def score(s, b, h, i, j):
        return s + slopes[h] * (j - i)

    v[:, :, 330 - 5] = np.inf
    for admit in (lambda b, h, i, j: (i + h - j) % 3 != 0, lambda b, h, i, j: (j <= i) & (i - j < 70 + h)):
        options = {"score": score, "admit": admit, "return_lse": True}
        found = fovea.dense(q, k, v, **options, target="gpu-sim")
        expected = fovea.dense(q, k, v, **options, target="reference")
        assert np.array_equal(np.isnan(found[0]), np.isnan(expected[0]))
        check(tuple(map(np.nan_to_num, found)), tuple(map(np.nan_to_num, expected)))


@pytest.mark.parametrize("H,G,N", [(4, 2, 1), (4, 2, 3), (4, 1, 5)])
def test_local_biases_of_ranges(H, G, N):
    """Beside another source and alone."""
    query, rows, bias = f"tensor<1x{H}x{N}x16xf32>", f"tensor<1x{G}x300x16xf32>", f"tensor<1x{H}x{N}x20xf32>"
    arrays = [*make(H=H, G=G, N=N, M=300, D=16), normal(1, H, N, 20), normal(1, G, 300)]
    other = f"source(%v, %k : {rows}, {rows}) log_weight(%w : tensor<1x{G}x300xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]"
    for more in ("", other):
        text = f"""
        func.func @f(%q: {query}, %k: {rows}, %v: {rows}, %b: {bias}, %w: tensor<1x{G}x300xf32>) -> {query} {{
          %init = tensor.empty() : {query}
          %r = attn.stream query(%q : {query})
              source(%k, %v : {rows}, {rows}) local_bias(%b : {bias}) ranges [affine_map<(b)[rows, n] -> (7, 27)>] {more}
              outs(%init : {query}) {{scale = 0.25 : f64}} -> {query}
          return %r : {query}
        }}"""
        check(fovea.compile(text, target="gpu-sim")(*arrays), fovea.compile(text, target="reference")(*arrays))


@pytest.mark.parametrize("N", [3, 8])
def test_several_sources_and_lists(N):
    q, k, v = make(B=2, H=6, G=2, N=N, M=400, D=32)
    far, near = Source(k, v, log_weight=normal(2, 2, 400)), Source(k + 1, v, causal=True, window=90)
    lists = np.stack([np.arange(0, 400, 3), np.arange(133, -1, -1)])[None, :, None].astype(np.int32)
    listed = Source(k, v - 1, causal=True, rows=np.repeat(lists, 2, 0))
    means = [np.ascontiguousarray(x[:, :, :50]) for x in (k, v)]
    first, last = Source(*means, causal=True, stride=8, prefix=24), Source(*means, causal=True, stride=8, window=100)
    for sources in ([far, near], [listed], [near, listed, far], [first, near, last]):
        found = fovea.stream(q, sources, return_lse=True, target="gpu-sim")
        check(found, reference.stream(q, sources, return_lse=True))


@pytest.mark.parametrize("block,N,H", [(4, 4, 8), (3, 8, 12), (2, 19, 8), (5, 23, 40)])
def test_lists_of_a_few_queries(block, N, H):
    """Queries of a block share a list, and the last block has fewer."""
    q, k, v = make(B=2, H=H, G=1, N=N, M=200, D=32)
    blocks = -(-N // block)
    rows = np.random.default_rng(3).integers(-1, 50, (2, 1, blocks, 40)).astype(np.int32)
    for options in ({}, {"window": 60}):
        sources = [Source(k, v, causal=True, rows=rows, unit=4, **options),
                   Source(v, k, ranges=lambda b, rows, n: (b * 7, b * 7 + 40))]
        found = fovea.stream(q, sources, block=block, return_lse=True, target="gpu-sim")
        check(found, reference.stream(q, sources, block=block, return_lse=True))


def test_entries_and_heads_do_not_depend_on_others():
    q, k, v = make("float16", B=3, H=8, G=2, N=4, M=700, D=32)
    lengths = np.array([700, 300, 259], np.int32)
    out = fovea.dense(q, k, v, causal=True, lengths=lengths, target="gpu-sim")
    for entry, length in enumerate(lengths):
        one = [x[entry : entry + 1] for x in (q[:, 4:], k[:, 1:, :length], v[:, 1:, :length])]
        assert np.array_equal(fovea.dense(*one, causal=True, target="gpu-sim")[0], out[entry, 4:])


def test_a_row_of_another_query_or_head_is_noticed():
    q, k, v = make(H=4, G=2, N=3, M=300, D=32)
    expected = reference.dense(q, k, v, causal=True)
    for changed in (q[:, :, [0, 2, 1]], q[:, [0, 1, 3, 2]]):
        with pytest.raises(AssertionError):
            check(fovea.dense(changed, k, v, causal=True, target="gpu-sim"), expected)
