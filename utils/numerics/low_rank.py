# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Low-rank attention under masks, rotary embedding and polynomial features."""

import itertools
import math

import numpy as np

import fovea

from .case import spread, wide
from .tokens import draw_tokens


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


def draw_absent(case, B, N, M):
    """Options that say which queries and keys there are, and the entries [B,1,N,M] that this leaves."""
    if N == M and case.flip("lengths", 0.2):
        tokens = draw_tokens(case, B, N)
        options = {name.replace("mask", "key_mask"): each for name, each in tokens.options.items()}
        queries = np.ones((B, N), bool) if "mask" in tokens.options else tokens.here
        return options, queries[:, None, :, None] & tokens.here[:, None, None]
    options, masks = {}, []
    for name, count in (("query_mask", N), ("key_mask", M)):
        masks.append(np.ones((B, count), bool))
        if case.flip(name, 0.2):
            masks[-1] = options[name] = case.random.random((B, count)) < 0.7
    return options, masks[0][:, None, :, None] & masks[1][:, None, None]


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
    absent, here = draw_absent(case, B, N, M)
    entries = entries & here
    options = {"mask": mask, "target": case.target, **absent}
    forward = lambda **x: fovea.low_rank(**x, **options)  # noqa: E731
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
            d_out, arrays["u1"], arrays["u2"], arrays["v"], out, **options
        )
    )
    case.gradients(naive, arrays, [d_out], dict(zip(arrays, gradients)), factor=4 * np.sqrt(M))


def rows(case):
    """rope and polynomial_features."""
    B, H, N = case.pick("B", [1, 2]), case.pick("H", [1, 2, 3]), case.length("N")
    D = 2 * case.pick("D/2", [1, 2, 3, 8, 16, 17, 32])
    x = case.normal(B, H, N, D)
    at = case.random.integers(-50, 3000, case.leading((B, H, N))).astype(np.int32)
    base, style = case.pick("base", [10000.0, 100.0]), case.pick("style", ["interleaved", "half"])
    width = 2 * case.note(pairs=int(case.random.integers(1, D // 2 + 1))) if case.flip("partial") else D
    frequencies = base ** (-np.arange(0, width, 2) / width)
    options = {"base": base, "style": style, "width": width, "target": case.target}
    if case.flip("table", 0.2):
        frequencies = case.random.random(width // 2)
        options |= {"base": 10000.0, "frequencies": frequencies}
    magnitude = options["magnitude"] = case.pick("magnitude", [1.0, 1.0, 1.3])
    turned = case.twice(lambda: fovea.rope(x, at, **options))
    first = np.arange(width // 2) * (2 if style == "interleaved" else 1)
    second = first + (1 if style == "interleaved" else width // 2)

    def turn(x):
        angle = at[..., None] * frequencies
        cosine, sine = magnitude * np.cos(angle), magnitude * np.sin(angle)
        found = x.copy()
        found[..., first] = x[..., first] * cosine - x[..., second] * sine
        found[..., second] = x[..., first] * sine + x[..., second] * cosine
        return [found]

    # Angles of thousands are known to their own rounding.
    factor = 1 if case.type in ("bf16", "f16") else 100 if case.type == "f32" else 1000
    case.close(turned, turn(wide(x))[0], "rope", factor=factor)
    d_out = case.normal(*x.shape)
    back = fovea.rope_backward(d_out, at, **options)
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
