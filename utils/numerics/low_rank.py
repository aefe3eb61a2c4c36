# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Low-rank attention under masks, rotary embedding and polynomial features."""

import itertools
import math

import numpy as np

import fovea

from .case import spread, wide


def draw_mask(case, N, M, heads):
    """A mask of the package, and its entries [N,M] or [B,H,N,M]."""
    kind = case.pick("mask", ["causal", "interval", "change", "rows", "columns"])
    i, j = np.arange(N)[:, None], np.arange(M)[None]
    random = case.random
    if kind == "causal":
        return fovea.Causal(), j <= i + M - N
    if kind == "interval":
        shape = case.leading(heads) + (N,)
        first, last = np.sort(random.integers(0, M, (2, *shape)), axis=0)
        mask = fovea.RowInterval(first.astype(np.int32), last.astype(np.int32))
        return mask, (j >= first[..., None]) & (j <= last[..., None])
    if kind == "change":
        entries = random.random((N, M)) < random.choice([0.1, 0.5, 0.9])
        for row in range(1, N):
            if random.random() < 0.6:
                entries[row] = entries[row - 1]
                entries[row, random.integers(M)] ^= True
        return fovea.RowChange.from_entries(entries), entries
    groups = int(random.integers(1, 5))
    if kind == "rows":
        group, rows = random.integers(0, groups, N), random.random((groups, M)) < 0.5
        return fovea.DistinctRows(group, rows), rows[group]
    group, columns = random.integers(0, groups, M), random.random((groups, N)) < 0.5
    return fovea.DistinctColumns(group, columns), columns[group].T


def formula(u1, u2, v, entries):
    weights = np.where(entries, u1 @ spread(u2, u1.shape[1]).swapaxes(2, 3), 0)
    total = weights.sum(-1, keepdims=True)
    nothing = total.real == 0
    return [np.where(nothing, 0, weights @ spread(v, u1.shape[1])) / np.where(nothing, 1, total)]


def low_rank(case):
    B, H, G = case.heads()
    N = case.length("N")
    M = N if case.flip("square", 0.6) else case.length("M")
    r, E = case.width("r"), case.width("E")
    mask, entries = draw_mask(case, N, M, (B, H))
    # Positive, so that no sum of weights cancels.
    factors = [np.abs(wide(case.normal(*shape))) + 0.2 for shape in ((B, H, N, r), (B, G, M, r))]
    arrays = {"u1": factors[0].astype(case.dtype), "u2": factors[1].astype(case.dtype), "v": case.normal(B, G, M, E)}
    forward = lambda **x: fovea.low_rank(**x, mask=mask, target=case.target)  # noqa: E731
    out = case.twice(lambda: forward(**arrays))
    naive = lambda **x: formula(**x, entries=entries)  # noqa: E731
    (expected,) = naive(**{name: wide(array) for name, array in arrays.items()})
    size = np.abs(wide(arrays["v"])).max()
    case.close(out, expected, "out", factor=4 * np.sqrt(M), size=size)
    admitted = np.broadcast_to(entries, (B, H, N, M))
    b, g, j = (int(case.random.integers(n)) for n in (B, G, M))
    keep = np.ones((B, H, N), bool)
    heads = slice(g * (H // G), (g + 1) * (H // G))
    keep[b, heads] = ~admitted[b, heads, :, j]
    changed = dict(arrays)
    name = case.pick("dirty", ["u2", "v"])
    changed[name] = arrays[name].copy()
    changed[name][b, g, j, int(case.random.integers(arrays[name].shape[3]))] = case.random.choice([np.nan, np.inf])
    keep = case.unread(keep)
    rows = wide(forward(**changed))[keep]
    if rows.size:
        what = f"rows that do not read a NaN of {name}[{b}, {g}, {j}]"
        case.close(rows, expected[keep], what, factor=4 * np.sqrt(M), size=size)
    d_out = case.normal(*out.shape)
    gradients = case.twice(
        lambda: fovea.low_rank_backward(
            d_out, arrays["u1"], arrays["u2"], arrays["v"], out, mask=mask, target=case.target
        )
    )
    case.gradients(naive, arrays, [d_out], dict(zip(arrays, gradients)), factor=4 * np.sqrt(M))


def rows(case):
    """rope and polynomial_features."""
    B, H, N = case.pick("B", [1, 2]), case.pick("H", [1, 2, 3]), case.length("N")
    D = 2 * case.pick("D/2", [1, 2, 3, 8, 16, 17, 32])
    x = case.normal(B, H, N, D)
    at = case.random.integers(-50, 3000, case.leading((B, H, N))).astype(np.int32)
    base = case.pick("base", [10000.0, 100.0])
    turned = case.twice(lambda: fovea.rope(x, at, base=base, target=case.target))

    def turn(x):
        angle = at[..., None] * base ** (-np.arange(0, D, 2) / D)
        even, odd = x[..., 0::2], x[..., 1::2]
        cosine, sine = np.cos(angle), np.sin(angle)
        return [np.stack([even * cosine - odd * sine, even * sine + odd * cosine], -1).reshape(x.shape)]

    # Angles of thousands are known to their own rounding.
    factor = 1 if case.type in ("bf16", "f16") else 100 if case.type == "f32" else 1000
    case.close(turned, turn(wide(x))[0], "rope", factor=factor)
    d_out = case.normal(*x.shape)
    back = fovea.rope_backward(d_out, at, base=base, target=case.target)
    case.gradients(turn, {"x": x}, [d_out], {"x": back}, factor=20)

    D, degree = case.width("width of features", 8), case.pick("degree", [0, 1, 2, 3])
    x, scale = case.normal(B, H, N, D), case.pick("scale", [0.5, 1.0])
    found = case.twice(lambda: fovea.polynomial_features(x, degree=degree, scale=scale, target=case.target))

    def features(x):
        columns = []
        for total in range(degree + 1):
            for chosen in itertools.combinations_with_replacement(range(D), total):
                powers = [chosen.count(d) for d in set(chosen)]
                factor = np.sqrt(scale**total / np.prod([float(math.factorial(n)) for n in powers]))
                term = factor * np.ones(x.shape[:3], x.dtype)
                for d in chosen:
                    term = term * x[..., d]
                columns.append(term)
        return [np.stack(columns, -1)]

    case.close(found, features(wide(x))[0], "polynomial_features", factor=4)
    d_out = case.normal(*found.shape)
    back = fovea.polynomial_features_backward(d_out, x, degree=degree, scale=scale, target=case.target)
    case.gradients(features, {"x": x}, [d_out], {"x": back}, factor=20)
