# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradients of what functions of scores capture, against sums over entries in NumPy and plain loops."""

from functools import partial

import numpy as np
import pytest
from conftest import BOUNDS, TYPES, make, near, refused

import fovea
from fovea import reference
from fovea.math import maximum, minimum, tanh, where

B, H, G, D = 2, 4, 2, 16


def cases(N, M, type="float64"):
    """Captured arrays; the function that reads them; what it is of products s, and where each entry reads and the
    derivative by that, for NumPy."""
    numbers, shift = np.random.default_rng(3), M - N
    i, j, h = np.arange(N)[:, None] + shift, np.arange(M), np.arange(H)[:, None, None]
    b = np.arange(B)[:, None, None, None]

    def array(*shape):
        return (numbers.standard_normal(shape) / 2).astype(TYPES[type])

    slopes, buckets, table, heats, pair = array(H), array(8, H), array(H, N + M - 1), array(N) + 1, array(2)
    whole, keys = array(B, H, N, M), array(M)
    bucket, row, distance = np.minimum(abs(i - j) // 3, 7), i - shift, j - i + M - 1
    wide = {id(each): each.astype(np.float64) for each in (slopes, buckets, table, heats, pair, whole, keys)}

    def of(each):
        return wide[id(each)]

    return {
        "slope": ([slopes], lambda s, c, b, h, i, j: s + c[h] * (j - i),
                  lambda s: s + of(slopes)[h] * (j - i), [(lambda s: j - i, (h,))]),
        "buckets": ([buckets], lambda s, c, b, h, i, j: s + c[minimum(abs(i - j) // 3, 7), h],
                    lambda s: s + of(buckets)[bucket, h], [(lambda s: 1.0, (bucket, h))]),
        "distances": ([table], lambda s, c, b, h, i, j: s + c[h, j - i + (M - 1)],
                      lambda s: s + of(table)[h, distance], [(lambda s: 1.0, (h, distance))]),
        "mirrored": ([table], lambda s, c, b, h, i, j: s + c[h, i - j + (N - 1)],
                     lambda s: s + of(table)[h, i - j + N - 1], [(lambda s: 1.0, (h, i - j + N - 1))]),
        "temperature": ([heats], lambda s, c, b, h, i, j: s * c[i - shift],
                        lambda s: s * of(heats)[row], [(lambda s: s, (row,))]),
        "two numbers": ([pair], lambda s, c, b, h, i, j: s * c[0] + c[1] * (h + 1) * (i % 3),
                        lambda s: s * of(pair)[0] + of(pair)[1] * (h + 1) * (i % 3),
                        [(lambda s: s, (0,)), (lambda s: (h + 1) * (i % 3) * 1.0, (1,))]),
        "whole": ([whole], lambda s, c, b, h, i, j: s + c[b, h, i - shift, j],
                  lambda s: s + of(whole), [(lambda s: 1.0, (b, h, row, j))]),
        "keys": ([keys], lambda s, c, b, h, i, j: s + 2 * c[j],
                 lambda s: s + 2 * of(keys)[j], [(lambda s: 2.0, (j,))]),
        "capped": ([table], lambda s, c, b, h, i, j: 2 * tanh((s + c[h, j - i + (M - 1)]) / 2),
                   lambda s: 2 * np.tanh((s + of(table)[h, distance]) / 2),
                   [(lambda s: 1 - np.tanh((s + of(table)[h, distance]) / 2) ** 2, (h, distance))]),
        # In no lines of entries, and not along the head.
        "products": ([buckets], lambda s, c, b, h, i, j: s + c[(i * j) % 8, 3 - h],
                     lambda s: s + of(buckets)[(i * j) % 8, 3 - h], [(lambda s: 1.0, ((i * j) % 8, 3 - h))]),
        # Lanes behind the queries read out of bounds.
        "several": ([pair, table], lambda s, c, t, b, h, i, j: s * c[1] + t[h, j - i + (M - 1)],
                    lambda s: s * of(pair)[1] + of(table)[h, distance],
                    [(lambda s: s, (1,)), (lambda s: 1.0, (h, distance), 1)]),
    }  # fmt: skip


def expect(q, k, v, d_out, d_lse, scores, reads, arrays, entries, change=lambda share: share):
    """The gradients of `arrays`: sums over entries of what each passes on."""
    q, k, v = (each.astype(np.float64) for each in (q, k, v))
    k, v = (np.repeat(each, H // G, axis=1) for each in (k, v))
    products = q @ k.swapaxes(2, 3) / np.sqrt(D)
    found = np.where(entries, scores(products), -np.inf)
    highest = found.max(axis=-1, keepdims=True, initial=-1e300)
    weights = np.exp(found - highest)
    weights /= np.maximum(weights.sum(axis=-1, keepdims=True), 1e-300)
    d_weights = d_out @ v.swapaxes(2, 3)
    delta = (weights * d_weights).sum(axis=-1, keepdims=True) - d_lse[..., None]
    d_scores = np.where(entries, weights * (d_weights - delta), 0)
    gradients = [np.zeros(each.shape) for each in arrays]
    for derivative, at, *number in reads:
        share = np.broadcast_to(d_scores * derivative(products), products.shape)
        np.add.at(gradients[number[0] if number else 0], tuple(np.broadcast_to(each, products.shape) for each in at), change(share))
    return gradients


def differentiate(arrays, function, q, k, v, target="cpu", **options):
    captured = [fovea.capture(each) for each in arrays]
    options["score"] = lambda s, *places: function(s, *captured, *places)
    out, lse = fovea.dense(q, k, v, return_lse=True, target=target, **options)
    numbers = np.random.default_rng(4)
    d_out = numbers.standard_normal(out.shape).astype(out.dtype)
    d_lse = np.where(np.isfinite(lse), numbers.standard_normal(lse.shape), 0).astype(lse.dtype)
    found = fovea.dense_backward(
        d_out, q, k, v, out, lse, d_lse=d_lse, return_d_captures=True, target=target, **options
    )
    return found[3:], d_out.astype(np.float64), d_lse.astype(np.float64)


def differentiate_stream(arrays, function, q, sources, target="cpu", **options):
    """The same for a list of sources; the keys of the first one are causal."""
    captured = [fovea.capture(each) for each in arrays]
    sources = [fovea.Source(k, v, causal=not index) for index, (k, v) in enumerate(sources)]
    options["score"] = lambda s, *places: function(s, *captured, *places)
    out, lse = fovea.stream(q, sources, return_lse=True, target=target, **options)
    numbers = np.random.default_rng(4)
    d_out, d_lse = (numbers.standard_normal(each.shape).astype(each.dtype) for each in (out, lse))
    call = partial(
        fovea.stream_backward, d_out, q, sources, out, lse, d_lse=d_lse, return_d_captures=True, target=target, **options
    )
    return call, d_out, d_lse


NAMES = list(cases(1, 1))


@pytest.mark.parametrize("N,M", [(1, 1), (37, 41), (65, 65), (130, 70), (70, 200)])
@pytest.mark.parametrize("name", NAMES)
def test_sums_over_entries(name, N, M):
    arrays, function, scores, reads = cases(N, M)[name]
    q, k, v = make("float64", B=B, H=H, G=G, N=N, M=M, D=D, E=12)
    i, j = np.arange(N)[:, None] + M - N, np.arange(M)
    for options, entries in (
        ({}, np.ones((N, M), bool)),
        ({"causal": True}, i >= j),
        ({"causal": True, "window": 9}, (i >= j) & (i - j < 9)),
        ({"admit": lambda b, h, i, j: j % 3 != 1}, np.broadcast_to(j % 3 != 1, (N, M))),
    ):
        found, d_out, d_lse = differentiate(arrays, function, q, k, v, **options)
        expected = expect(q, k, v, d_out, d_lse, scores, reads, arrays, entries)
        for mine, wanted in zip(found, expected, strict=True):
            near(mine, wanted, "float64", 1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_plain_loops(name):
    arrays, function, _, _ = cases(13, 19)[name]
    q, k, v = make("float64", B=B, H=H, G=G, N=13, M=19, D=D)
    mine, *_ = differentiate(arrays, function, q, k, v, causal=True)
    others, *_ = differentiate(arrays, function, q, k, v, target="reference", causal=True)
    for one, other in zip(mine, others, strict=True):
        near(one, other, "float64", 1e-10)


@pytest.mark.parametrize("N,M", [(1, 1), (37, 41), (70, 130)])
@pytest.mark.parametrize("name", NAMES)
def test_on_the_emulated_gpu(name, N, M):
    arrays, function, scores, reads = cases(N, M, "float32")[name]
    q, k, v = make("float32", B=B, H=H, G=G, N=N, M=M, D=D, E=12)
    i, j = np.arange(N)[:, None] + M - N, np.arange(M)
    options, entries = {
        1: ({}, np.ones((N, M), bool)),
        37: ({"causal": True, "window": 9}, (i >= j) & (i - j < 9)),
        70: ({"admit": lambda b, h, i, j: j % 3 != 1}, np.broadcast_to(j % 3 != 1, (N, M))),
    }[N]
    found, d_out, d_lse = differentiate(arrays, function, q, k, v, target="gpu-sim", **options)
    given = q, k, v, d_out, d_lse, scores, reads, arrays, entries
    # Shares of either sign cancel: the error is one of the sum of their sizes.
    for mine, wanted, most in zip(found, expect(*given), expect(*given, change=abs), strict=True):
        assert np.abs(mine - wanted).max(initial=0) <= 2 * BOUNDS["float32"] * most.max(initial=0)


@pytest.mark.parametrize("type", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", ["slope", "buckets", "distances", "whole"])
def test_types_on_the_emulated_gpu(name, type):
    arrays, function, scores, reads = cases(70, 70, type)[name]
    q, k, v = make(type, B=B, H=H, G=G, N=70, D=D)
    found, d_out, d_lse = differentiate(arrays, function, q, k, v, causal=True, target="gpu-sim")
    i, j = np.arange(70)[:, None], np.arange(70)
    expected = expect(q, k, v, d_out, d_lse, scores, reads, arrays, i >= j)
    near(found[0], expected[0], type)


def test_lengths_and_sources_on_the_emulated_gpu():
    """Distances and places are those of what there is of a batch entry, and of a source."""
    arrays, function, *_ = cases(70, 90, "float32")["distances"]
    q, k, v = make("float32", B=B, H=H, G=G, N=70, M=90, D=D)
    options = {"lengths": np.array([90, 33], np.int32), "query_lengths": np.array([70, 20], np.int32), "causal": True}
    found, *_ = differentiate(arrays, function, q, k, v, target="gpu-sim", **options)
    expected, *_ = differentiate(arrays, function, q, k, v, **options)
    near(found[0], expected[0], "float32")
    q, k, v, sources, arrays, function, *_ = with_sources(65, 64)
    q, arrays = q.astype(np.float32), [each.astype(np.float32) for each in arrays]
    sources = [tuple(each.astype(np.float32) for each in source) for source in sources]
    call, *_ = differentiate_stream(arrays, function, q, sources, target="gpu-sim")
    wanted, *_ = differentiate_stream(arrays, function, q, sources)
    for mine, other in zip(call()[2:], wanted()[2:], strict=True):
        near(mine, other, "float32")


@pytest.mark.parametrize("type", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("name", ["slope", "buckets", "distances", "keys"])
def test_types(name, type):
    arrays, function, scores, reads = cases(70, 70, type)[name]
    q, k, v = make(type, B=B, H=H, G=G, N=70, D=D)
    found, d_out, d_lse = differentiate(arrays, function, q, k, v, causal=True)
    i, j = np.arange(70)[:, None], np.arange(70)
    expected = expect(q, k, v, d_out, d_lse, scores, reads, arrays, i >= j)
    near(found[0], expected[0], type)


def with_sources(N, M):
    """Two sources of M and N + 3 keys, a table of distances and a factor, and all as one list of keys."""
    numbers = np.random.default_rng(5)
    q, k, v = make("float64", B=B, H=H, G=G, N=N, M=M + N + 3, D=D, E=12)
    sources = [(k[:, :, :M], v[:, :, :M]), (k[:, :, M:], v[:, :, M:])]
    zero = N + M + 2
    table, heats = numbers.standard_normal((H, 2 * zero + 1)), numbers.standard_normal(H)
    distance = np.concatenate([np.arange(m) - (np.arange(N)[:, None] + m - N) for m in (M, N + 3)], axis=1)
    entries = (distance <= 0) | (np.arange(M + N + 3) >= M)
    heads = np.arange(H)[:, None, None]
    reads = [(lambda s: 1.0, (heads, distance + zero), 0), (lambda s: s, (heads,), 1)]
    return (
        q, k, v, sources, [table, heats], lambda s, t, c, b, h, i, j: t[h, j - i + zero] + s * c[h],
        lambda s: s * heats[heads] + table[heads, distance + zero], reads, entries,
    )  # fmt: skip


@pytest.mark.parametrize("N,M", [(1, 1), (13, 17), (65, 64)])
def test_sums_over_sources(N, M):
    q, k, v, sources, arrays, function, scores, reads, entries = with_sources(N, M)
    call, d_out, d_lse = differentiate_stream(arrays, function, q, sources)
    dq, of_sources, *found = call()
    expected = expect(q, k, v, d_out, d_lse, scores, reads, arrays, entries)
    loops, *_ = differentiate_stream(arrays, function, q, sources, target="reference")
    for mine, wanted, other in zip(found, expected, loops()[2:], strict=True):
        near(mine, wanted, "float64", 1e-10)
        near(mine, other, "float64", 1e-10)

    # The same with tokens before heads, and with a sink between.
    turned = [[np.ascontiguousarray(each.swapaxes(1, 2)) for each in source] for source in sources]
    other, *_ = differentiate_stream(arrays, function, q.swapaxes(1, 2), turned, layout="bnhd", sink=np.zeros(H))
    expected, *_ = differentiate_stream(arrays, function, q, sources, sink=np.zeros(H))
    for one, wanted in zip(other()[2:], expected()[2:], strict=True):
        assert one.shape == wanted.shape

    # In memory that is given.
    places = [np.full(each.shape, np.nan) for each in found]
    again = call(gradients=[np.empty_like(dq), [each for each in of_sources], *places])
    for place, result, mine in zip(places, again[2:], found, strict=True):
        assert place is result and np.array_equal(place, mine)


def test_removed_entries_pass_nothing_on():
    """Not even where their keys, values and captured numbers are NaN."""
    arrays, function, *_ = cases(40, 40)["distances"]
    q, k, v = make("float64", B=B, H=H, G=G, N=40, D=D)
    options = {"admit": lambda b, h, i, j: (j < 25) & (i >= j)}
    expected, *_ = differentiate(arrays, function, q, k, v, **options)
    k[:, :, 25:], v[:, :, 25:], arrays[0][:, 40:] = np.nan, np.inf, np.nan
    found, *_ = differentiate(arrays, function, q, k, v, **options)
    assert np.array_equal(found[0], expected[0])


def test_threads_change_no_bit():
    arrays, function, *_ = cases(300, 300)["distances"]
    q, k, v = make("float32", B=B, H=H, G=G, N=300, D=D)
    arrays = [each.astype(np.float32) for each in arrays]
    before = fovea.num_threads()
    results = []
    for threads in (1, 2, 5):
        fovea.set_num_threads(threads)
        results.append(differentiate(arrays, function, q, k, v, causal=True)[0][0].tobytes())
    fovea.set_num_threads(before)
    assert len(set(results)) == 1


def test_nothing_to_sum():
    q, k, v = make("float32", B=0, H=H, G=G, N=5, D=D)
    found, *_ = differentiate([np.ones(H, np.float32)], lambda s, c, b, h, i, j: s + c[h], q, k, v)
    assert np.array_equal(found[0], np.zeros(H, np.float32))
    q, k, v = make("float32", B=B, H=H, G=G, N=5, D=D)
    empty = np.ones((0,), np.float32)
    found, *_ = differentiate([empty], lambda s, c, b, h, i, j: where(i < 0, c[maximum(i, 0)], s), q, k, v)
    assert found[0].shape == (0,)
    # An array that is read by no entry, beside integers, which have no gradient.
    unread, numbers = np.ones(3, np.float32), np.arange(5, dtype=np.int32)
    found, *_ = differentiate(
        [unread, numbers], lambda s, c, n, b, h, i, j: where(n[j] > 9, s + c[0], s), q, k, v
    )
    assert len(found) == 1 and np.array_equal(found[0], np.zeros(3, np.float32))


def test_errors():
    arrays, function, *_ = cases(8, 8, "float32")["slope"]
    q, k, v = make("float32", B=B, H=H, G=G, N=8, D=D)
    out, lse = fovea.dense(q, k, v, return_lse=True)
    refused("return_d_captures: found 2, needed True or False", fovea.dense_backward, out, q, k, v, out, lse,
            return_d_captures=2)  # fmt: skip
    call, *_ = differentiate_stream(arrays, function, q, [(k, v)])
    refused("return_d_captures: found 2, needed True or False", call, return_d_captures=2)
    refused("gradients: found parts 2, needed 3", call, gradients=[None, [(None, None)]])


@pytest.mark.parametrize("target", ["reference", "cpu", "gpu-sim"])
def test_places_that_the_score_decides_on(target):
    q, k, v = make("float32", B=B, H=H, G=G, N=8, D=D)
    table = np.array([0.5, -0.25], np.float32)
    options = {"score": lambda s, b, h, i, j: s + fovea.capture(table)[where(s > 0, 1, 0)], "target": target}
    out, lse = fovea.dense(q, k, v, return_lse=True, **options)
    arguments = out, q, k, v, out, lse
    expected = reference.dense_backward(*arguments, score=options["score"])
    for found, wanted in zip(fovea.dense_backward(*arguments, **options), expected):
        near(found, wanted, "float32")
    if target == "reference":
        assert fovea.dense_backward(*arguments, return_d_captures=True, **options)[-1].shape == (2,)
    else:
        refused("a capture that is read at a place which depends on the score; only the reference computes it",
                fovea.dense_backward, *arguments, return_d_captures=True, error=fovea.FoveaError, **options)  # fmt: skip


def test_a_wrong_gradient_is_noticed():
    arrays, function, scores, reads = cases(20, 20)["slope"]
    q, k, v = make("float64", B=B, H=H, G=G, N=20, D=D)
    found, d_out, d_lse = differentiate(arrays, function, q, k, v)
    wrong = [(lambda s: 1.0, at) for _, at in reads]
    expected = expect(q, k, v, d_out, d_lse, scores, wrong, arrays, np.ones((20, 20), bool))
    with pytest.raises(AssertionError):
        near(found[0], expected[0], "float64", 1e-10)
