# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# REQUIRES: long-tests
"""Gradients of what functions of scores capture, where lists name the rows, against sums over entries in NumPy."""

import numpy as np
import pytest
from conftest import BOUNDS, make, near
from test_captures import NAMES, B, D, G, H, cases, expect

import fovea


def with_lists(layout, N, M, type):
    """A causal source with lists of rows, no row twice in one, the options of a call, keys and values where they
    stand, and the entries that are read."""
    numbers = np.random.default_rng(6)
    unit, block, heads = {"blocks": (8, 16, G), "queries": (1, 1, 1), "heads": (3, 0, H), "listed": (8, 0, 1)}[layout]
    batch, stored, blocks = 1 if layout == "heads" else B, -(-M // unit), -(-N // block) if block else 1
    rows = np.array([numbers.permutation(stored) for _ in range(batch * heads * blocks)], np.int32)
    rows = rows.reshape(batch, heads, blocks, stored)
    if layout != "listed":
        rows[numbers.random(rows.shape) < 0.4] = -1
    q, k, v = make(type, B=B, H=H, G=G, N=N, M=unit * stored if layout == "listed" else M, D=D, E=12)
    source = {"rows": rows, "unit": unit, "causal": True}
    i, j = np.arange(N)[:, None], np.arange(k.shape[2])
    entries = np.broadcast_to(i + k.shape[2] - N >= j, (B, H, N, k.shape[2]))
    if layout == "listed":
        source["positions"] = "listed"
        places = (rows[:, 0, 0, :, None] * unit + np.arange(unit)).reshape(B, 1, -1, 1)
        return q, fovea.Source(k, v, **source), {}, *(np.take_along_axis(each, places, axis=2) for each in (k, v)), entries
    named = (rows[..., None] == np.arange(stored)).any(axis=3)[..., j // unit]
    named = np.repeat(named, H // heads, axis=1)[:, :, i[:, 0] // block if block else i[:, 0] * 0]
    return q, fovea.Source(k, v, **source), {"block": block} if block else {}, k, v, entries & named


LAYOUTS = ["blocks", "queries", "heads", "listed"]
CASES = [
    (target, name, layout, *size)
    for size in ((1, 1), (37, 41), (70, 130))
    for layout in LAYOUTS
    for name in NAMES
    for target in ("cpu", "gpu-sim")
    # The emulator takes half a minute for a list for each query.
    if target == "cpu" or (size == (37, 41) and (layout != "queries" or name in ("temperature", "keys", "capped")))
    or (layout == "blocks" and name in ("slope", "temperature", "keys", "capped"))
]


@pytest.mark.parametrize("target,name,layout,N,M", CASES)
def test_sums_over_listed_rows(target, name, layout, N, M):
    type, M = "float64" if target == "cpu" else "float32", -(-M // 8) * 8 if layout == "listed" else M
    q, source, options, k, v, entries = with_lists(layout, N, M, type)
    arrays, function, scores, reads = cases(N, M, type)[name]
    captured = [fovea.capture(each) for each in arrays]
    options["score"] = lambda s, *places: function(s, *captured, *places)
    out, lse = fovea.stream(q, [source], return_lse=True, target=target, **options)
    numbers = np.random.default_rng(4)
    d_out = numbers.standard_normal(out.shape).astype(out.dtype)
    d_lse = np.where(np.isfinite(lse), numbers.standard_normal(lse.shape), 0).astype(lse.dtype)
    found = fovea.stream_backward(
        d_out, q, [source], out, lse, d_lse=d_lse, return_d_captures=True, target=target, **options
    )[2:]
    given = q, k, v, d_out.astype(np.float64), d_lse.astype(np.float64), scores, reads, arrays, entries
    bound = 1e-10 if target == "cpu" else 2 * BOUNDS["float32"]
    for mine, wanted, most in zip(found, expect(*given), expect(*given, change=abs), strict=True):
        assert np.abs(mine - wanted).max(initial=0) <= bound * max(most.max(initial=0), target == "cpu")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_beside_others_on_the_emulated_gpu(layout):
    """Rows that are listed twice, lengths of batch entries, and a source without lists; and the same bits again."""
    q, source, options, *_ = with_lists(layout, 37, 48, "float32")
    lengths = np.array([48, 19], np.int32)
    rows = np.concatenate([source.rows, source.rows[..., :2]], axis=3)
    listed = fovea.Source(source.k, source.v, rows=rows, unit=source.unit, positions=source.positions, lengths=lengths)
    window = fovea.Source(source.k, source.v, causal=True, window=5)
    slopes, table, heats = (np.random.default_rng(8).standard_normal(shape).astype(np.float32) for shape in (H, (H, 160), 160))
    d_out, results = np.random.default_rng(9).standard_normal((B, H, 37, 12)).astype(np.float32), []

    def make_score(slope, distance, heat):
        return lambda s, b, h, i, j: s * heat[j] + slope[h] * (j - i) / 64 + distance[h, j - i + 80]

    for target in ("cpu", "gpu-sim", "gpu-sim"):
        options["score"] = make_score(*map(fovea.capture, (slopes, table, heats)))
        out, lse = fovea.stream(q, [listed, window], return_lse=True, target=target, **options)
        results.append(fovea.stream_backward(
            d_out, q, [listed, window], out, lse, return_d_captures=True, target=target, **options)[2:])  # fmt: skip
    for wanted, mine, again in zip(*results, strict=True):
        near(mine, wanted, "float32")
        assert np.array_equal(mine, again)


def test_a_wrong_list_is_noticed():
    """Entries that the formula takes for read, and are not."""
    q, _, _, k, v, entries = with_lists("blocks", 37, 41, "float64")
    arrays, _, scores, reads = cases(37, 41)["slope"]
    given = q, k, v, np.ones_like(q[..., :12]), np.zeros(q.shape[:3]), scores, reads, arrays
    right, wrong = expect(*given, entries), expect(*given, np.ones_like(entries))
    with pytest.raises(AssertionError):
        near(right[0], wrong[0], "float64", 1e-10)
