# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# REQUIRES: long-tests
"""Attention to chosen keys, against a formula that counts how often every key is read."""

import numpy as np
import pytest
from conftest import TYPES, near, refused

import fovea

B, H, G, D, E = 2, 4, 2, 24, 20


def normal(type, *shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(TYPES[type])


def choose(shape, number, seed=1):
    rng = np.random.default_rng(seed)
    lists = rng.integers(0, max(number, 1), shape).astype(np.int32)
    lists[(rng.random(shape) < 0.2) | (number == 0)] = -1
    return lists


def blocks(type, N):
    """Of 8 keys, chosen by the queries of each key head, in blocks of 4."""
    q, k, v = normal(type, B, H, N, D), normal(type, B, G, N, D, seed=2), normal(type, B, G, N, E, seed=3)
    return [q, k, v, choose((B, G, -(-N // 4), 3), -(-N // 8))], {"unit": 8, "block": 4}


def rows_of_heads(type, N):
    """Single keys, for every query head, and no mask."""
    q, k, v = normal(type, B, H, N, D), normal(type, B, G, 30, D, seed=2), normal(type, B, G, 30, E, seed=3)
    return [q, k, v, choose((1, H, N, 5), 30)], {"causal": False}


def summaries_and_window(type, N):
    """As DeepSeek-V4's compressed sparse attention has them."""
    q, kv, x = normal(type, B, H, N, D), normal(type, B, 1, N, D, seed=2), normal(type, B, 1, N, D, seed=3)
    far = fovea.pool(x, normal(type, B, 1, N, D, seed=4), interval=4, overlap=4)
    rows = choose((B, 1, N, 6), N // 4)
    return [q, far, far, rows], {"stride": 4, "local": (kv, kv), "window": 9, "sink": normal(type, 1, H, seed=5)}


CASES = [blocks, rows_of_heads, summaries_and_window]


def count_reads(rows, N, M, unit, block, stride, causal):
    """How often query i reads row j, [B,H,N,M]."""
    lists = np.broadcast_to(rows, (B, *rows.shape[1:]))
    lists = np.repeat(lists, H // lists.shape[1], axis=1).repeat(block, axis=2)[:, :, :N]
    counts = (lists[..., None] == np.arange(M) // unit).sum(axis=-2)
    return counts * ((np.arange(M) + 1) * stride - 1 <= np.arange(N)[:, None] if causal else 1)


def formula(q, k, v, rows, *, unit=1, block=1, stride=1, causal=True, local=None, window=None, sink=None):
    heads = [(k, v), *([] if local is None else [local])]
    counts = [count_reads(rows, q.shape[2], k.shape[2], unit, block, stride, causal)]
    if local is not None:
        distance = np.arange(q.shape[2])[:, None] - np.arange(q.shape[2])
        counts.append(np.broadcast_to((distance >= 0) & (distance < window), (*q.shape[:3], q.shape[2])))
    keys, values = (
        np.concatenate([np.repeat(each[side].astype(np.float64), H // each[side].shape[1], 1) for each in heads], axis=2)
        for side in (0, 1)
    )
    weights = np.concatenate(counts, axis=-1) * np.exp(q.astype(np.float64) @ keys.swapaxes(2, 3) / np.sqrt(D))
    total = weights.sum(axis=-1, keepdims=True)
    total = total if sink is None else total + np.exp(sink.astype(np.float64))[..., None, None]
    return weights @ values / np.where(total == 0, 1, total)


@pytest.mark.parametrize("N", [1, 13, 64, 65])
@pytest.mark.parametrize("case", CASES)
def test_formula(case, N):
    for type in TYPES:
        given, options = case(type, N)
        near(fovea.selected(*given, **options), formula(*given, **options), type)


@pytest.mark.parametrize("N", [1, 13, 64])
def test_a_unit_of_more_rows_than_there_are_is_all_of_them(N):
    """And takes as long: kernels visit the rows of a unit, of which there are a billion here."""
    q, k, v = normal("float32", B, H, N, D), normal("float32", B, G, 30, D, seed=2), normal("float32", B, G, 30, E, seed=3)
    rows = choose((B, G, N, 3), 1)
    for unit in (30, 31, 1 << 40):
        options = {"unit": unit, "causal": False}
        out, lse = fovea.selected(q, k, v, rows, return_lse=True, **options)
        near(out, formula(q, k, v, rows, unit=30, causal=False), "float32")
        found = fovea.selected_backward(out, q, k, v, rows, out, lse, **options)
        if unit == 30:
            expected = found
        for one, other in zip(found[:3], expected[:3], strict=True):
            np.testing.assert_array_equal(one, other)
    with pytest.raises(fovea.FoveaError, match="must be -1, or at least 0 and below 1, but got 1"):
        fovea.selected(q, k, v, rows * 0 + 1, unit=1 << 40, causal=False)


def test_a_wrong_list_is_noticed():
    (*arrays, rows), options = blocks("float32", 65)
    wrong = rows.copy()
    wrong[0, 0, 12] = [0, 1, 2]
    with pytest.raises(AssertionError):
        near(fovea.selected(*arrays, wrong, **options), formula(*arrays, rows, **options), "float32")


@pytest.mark.parametrize("case", CASES)
def test_slopes(case):
    (q, k, v, rows), options = case("float64", 37)
    options = {"local": None, "sink": None, **options}
    rng = np.random.default_rng(1)
    given = [q, k, v, *(options["local"] or ()), *([] if options["sink"] is None else [options["sink"]])]
    steps = [rng.standard_normal(each.shape) for each in given]
    out, lse = fovea.selected(q, k, v, rows, **options, return_lse=True)
    d_out = rng.standard_normal(out.shape)

    def value(h):
        q, k, v, *rest = (each + h * step for each, step in zip(given, steps))
        moved = dict(options)
        if options["local"]:
            moved["local"], rest = rest[:2], rest[2:]
        if rest:
            moved["sink"] = rest[0]
        return (fovea.selected(q, k, v, rows, **moved) * d_out).sum()

    slope = (value(1e-5) - value(-1e-5)) / 2e-5
    gradients = fovea.selected_backward(d_out, q, k, v, rows, out, lse, **options)
    assert (gradients.local is None) == (options["local"] is None) and (gradients.sink is None) == (options["sink"] is None)
    parts = [*gradients[:3], *(gradients.local or ()), *([] if gradients.sink is None else [gradients.sink])]
    found = sum((each * step).sum() for each, step in zip(parts, steps, strict=True))
    assert abs(found - slope) <= 1e-7 * max(1, abs(slope))


@pytest.mark.parametrize("few", [1, 3])
def test_last_tokens(few):
    """From keys as they are, and from a cache, with its room."""
    for N in (33, 40):
        (q, far, _, rows), options = summaries_and_window("float32", N)
        expected = fovea.selected(q, far, far, rows, **options)[:, :, -few:].astype(float)
        last = q[:, :, -few:], far, far, rows[:, :, -few:]
        near(fovea.selected(*last, **options), expected, "float32")
        far, kv = (np.concatenate([each, np.full_like(each[:, :, :5], np.nan)], axis=2) for each in (far, options["local"][0]))
        options["local"] = kv, kv
        near(fovea.selected(last[0], far, far, last[3], **options, lengths=np.full(B, N)), expected, "float32")


def test_tokens_first():
    (q, far, _, rows), options = summaries_and_window("float32", 40)
    expected = fovea.selected(q, far, far, rows, **options).astype(float)
    q, far, kv = (np.ascontiguousarray(each.swapaxes(1, 2)) for each in (q, far, options["local"][0]))
    options["local"] = kv, kv
    near(fovea.selected(q, far, far, rows, **options, layout="bnhd").swapaxes(1, 2), expected, "float32")


def test_errors():
    (q, k, v, rows), options = blocks("float32", 37)
    refused("^window: found it without local", fovea.selected, q, k, v, rows, **options, window=3)
    refused("^local: found it without window", fovea.selected, q, k, v, rows, **options, local=(k, v))
    refused("^local: found ndarray, needed a pair", fovea.selected, q, k, v, rows, **options, local=k, window=3)
    refused("^rows: found None", fovea.selected, q, k, v, None, **options)
    refused("^rows: found element type float64, needed int32 or int64", fovea.selected, q, k, v, rows + 0.5, **options)
    refused("^rows: found extent 10 in dimension 2, needed 1 or at least 37", fovea.selected, q, k, v, rows, unit=8)
    refused("^unit: found 0", fovea.selected, q, k, v, rows, unit=0)
    wide = r"rows\[0, 0, 0, 0\] must be -1, or at least 0 and below 1, but got 2, of unit=2147483648 rows each$"
    with pytest.raises(fovea.FoveaError, match=wide):
        fovea.selected(q, k, v, np.full_like(rows, 2), **{**options, "unit": 2**31})
    refused("^v: found extent 30 in dimension 2, needed 37", fovea.selected, q, k, v[:, :, :30], rows, **options)
    refused(r"^local\[1\]: found extent 30 in dimension 2", fovea.selected, q, k, v, rows, **options, local=(k, v[:, :, :30]), window=3)
