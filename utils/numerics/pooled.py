# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Summaries whose weights are data, at once and token by token, and the choice among them."""

import numpy as np

import fovea

from .case import wide


def formula(x, gate, position_bias=None, *, interval, overlap):
    B, G, N, E = x.shape
    if position_bias is not None:
        gate = gate + np.tile(position_bias, (-(-N // interval), 1))[:N]
    rows = np.zeros((B, G, N // interval, E), np.result_type(x, gate))
    for e in range(N // interval):
        tokens = slice(max(e * interval - overlap, 0), (e + 1) * interval)
        scores = gate[:, :, tokens]
        weights = np.exp(scores - scores.real.max(2, keepdims=True))
        rows[:, :, e] = (weights * x[:, :, tokens]).sum(2) / weights.sum(2)
    return [rows]


def pool(case):
    B, _, G = case.heads()
    N, E = case.length("N"), case.width("E")
    interval, overlap = case.pick("interval", [1, 2, 3, 4, 8, 16, 33]), case.pick("overlap", [0, 0, 1, 4, 20])
    options = {"interval": interval, "overlap": overlap}
    arrays = {"x": case.normal(B, G, N, E), "gate": case.normal(B, G, N, E, size=case.pick("size", [1.0, 20.0]))}
    if case.flip("position_bias"):
        arrays["position_bias"] = case.normal(interval, E)
    rows = case.twice(lambda: fovea.pool(**arrays, **options, target=case.target))
    (expected,) = formula(**{name: wide(array) for name, array in arrays.items()}, **options)
    case.close(rows, expected, "pool", factor=4, size=3)
    if rows.size:
        b, g, j, e = (int(case.random.integers(n)) for n in arrays["x"].shape)
        intervals = np.arange(rows.shape[2]) * interval
        keep = np.ones(rows.shape, bool)
        keep[b, g, (intervals - overlap <= j) & (j < intervals + interval), e] = False
        forward = lambda **x: fovea.pool(**x, **options, target=case.target)  # noqa: E731
        case.hidden(forward, arrays, rows, ("x", (b, g, j, e)), [keep], "pool")
    d_out = case.normal(*rows.shape)
    backward = lambda: fovea.pool_backward(d_out, **arrays, **options, target=case.target)  # noqa: E731
    gradients = dict(zip(arrays, case.twice(backward), strict=True))
    case.gradients(lambda **x: formula(**x, **options), arrays, [d_out], gradients, factor=8)
    if case.target == "cpu":
        by_token(case, arrays, options, rows)


def by_token(case, arrays, options, rows):
    """The bits of all tokens at once, whatever was forgotten or forked in between."""
    bias = arrays.get("position_bias")
    state = fovea.PoolState(**options, position_bias=bias)
    N = arrays["x"].shape[2]
    while state.length < N:
        few = min(int(case.random.choice([1, 1, 2, 5, 40])), N - state.length)
        tokens = [arrays[name][:, :, state.length : state.length + few] for name in ("x", "gate")]
        before = state.length
        kind = case.random.choice(["append", "append", "fork", "truncate"])
        if kind == "fork":
            other = state.fork()
            other.append(*(np.full_like(each, 3) for each in tokens))
        elif kind == "truncate" and before:
            # As many as can be forgotten.
            state.append(*(np.full_like(each[:, :, : options["interval"]], 3) for each in tokens))
            state.truncate(before)
        state.append(*tokens)
        whole = state.length // options["interval"]
        case.same(state.summaries, rows[:, :, :whole], f"summaries of {state.length} tokens")


def top_k(case):
    B, H, _ = case.heads()
    N, M = case.length("N", 65), case.length("M")
    k, unit = case.pick("k", [1, 2, 5, 16, 64]), case.pick("causal_unit", [None, 1, 4])
    # Few different numbers, so that many are equal.
    scores = np.round(wide(case.normal(B, H, N, M)), case.pick("digits", [0, 1, 8])).astype(case.dtype)
    for what in (-np.inf, np.nan, np.inf):
        scores[case.random.random(scores.shape) < case.pick(f"share of {what}", [0.0, 0.1, 0.9])] = what
    found = case.twice(lambda: fovea.top_k(scores, k, causal_unit=unit, target=case.target))
    needed = np.full((B, H, N, k), -1)
    tokens = N if unit is None else min(max(N, M * unit), (M + 1) * unit - 1)
    for b, h, i in np.ndindex(B, H, N):
        row = wide(scores[b, h, i])
        open_ = ~np.isnan(row) & ~np.isneginf(row)
        if unit is not None:
            open_ &= (np.arange(M) + 1) * unit - 1 <= i + tokens - N
        order = sorted(np.flatnonzero(open_), key=lambda j: (-row[j], j))[:k]
        needed[b, h, i, : len(order)] = order
    case.same(found.astype(int), needed, "top_k")
