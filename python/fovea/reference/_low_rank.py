# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rotary embedding, polynomial features, low-rank attention under masks, and their
gradients."""

import itertools
import math

import numpy as np

from ._arguments import _array, _integer, _match, _poison

__all__ = [
    "causal_mask",
    "distinct_columns_mask",
    "distinct_rows_mask",
    "low_rank",
    "low_rank_backward",
    "polynomial_features",
    "polynomial_features_backward",
    "rope",
    "rope_backward",
    "row_change_mask",
    "row_interval_mask",
]


def rope(
    x, positions, *, base=10000.0, style="interleaved", width=None, frequencies=None, magnitude=1.0
):
    """Rotary position embedding of pairs of the first `width` columns.

    positions is [N], or broadcasts to [B,H,N].
    """
    x = _array("x", x, 4, "[B,H,N,D]")
    D = x.shape[3]
    if D == 0 or D % 2:
        raise ValueError(f"x: found width {D}, needed an even width of at least 2")
    if style not in ("interleaved", "half"):
        raise ValueError(f"style: found {style!r}, needed 'interleaved' or 'half'")
    w = D if width is None else width
    if w % 2 or not 2 <= w <= D:
        raise ValueError(f"width: found {w}, needed an even width from 2 to {D}")
    for name, value in (("base", base), ("magnitude", magnitude)):
        if not (value > 0 and math.isfinite(value)):
            raise ValueError(f"{name}: found {value}, needed a finite number above 0")
    positions = np.asarray(positions)
    if positions.dtype.kind not in "iu":
        raise ValueError(f"positions: found element type {positions.dtype}, needed an integer type")
    try:
        positions = np.broadcast_to(positions, x.shape[:3])
    except ValueError:
        raise ValueError(
            f"positions: found shape {positions.shape}, needed one that broadcasts to {x.shape[:3]}"
        ) from None
    # More digits than float64 where the machine has them: angles are large.
    if frequencies is None:
        frequencies = np.longdouble(base) ** (-2 * np.arange(w // 2, dtype=np.longdouble) / w)
    frequencies = np.asarray(frequencies, np.longdouble)
    if frequencies.shape != (w // 2,):
        raise ValueError(f"frequencies: found shape {frequencies.shape}, needed ({w // 2},)")
    angles = positions[..., None].astype(np.longdouble) * frequencies
    cosines, sines = (magnitude * f(angles).astype(float) for f in (np.cos, np.sin))
    first, second = (
        (slice(0, w // 2), slice(w // 2, w)) if style == "half" else (slice(0, w, 2), slice(1, w, 2))
    )
    out = x.copy()
    out[..., first] = x[..., first] * cosines - x[..., second] * sines
    out[..., second] = x[..., first] * sines + x[..., second] * cosines
    return out


def rope_backward(d_out, positions, **options):
    """The gradient for x: a turn back."""
    return rope(d_out, -np.asarray(positions, np.int64), **options)


def polynomial_features(x, *, degree, scale):
    """Features with phi(q).phi(k) = sum_(g <= degree) (scale q.k)^g / g!."""
    x = _array("x", x, 4, "[B,H,N,D]")
    degree = _integer("degree", degree, 0)
    if not (scale >= 0 and math.isfinite(scale)):
        raise ValueError(f"scale: found {scale}, needed a finite number of at least 0")
    features = []
    for g in range(degree + 1):
        for columns in itertools.combinations_with_replacement(range(x.shape[3]), g):
            factorials = math.prod(math.factorial(columns.count(c)) for c in set(columns))
            coefficient = math.sqrt(scale**g / factorials)
            features.append(coefficient * np.prod(x[..., list(columns)], axis=-1))
    return np.stack(features, axis=-1)


# ----------------------------------------------------------------------------
# Masks: entries [.., N, M], True for those that are kept
# ----------------------------------------------------------------------------


def causal_mask(rows, columns):
    return np.arange(columns) <= np.arange(rows)[:, None] + columns - rows


def row_interval_mask(first, last, columns):
    first, last = np.asarray(first), np.asarray(last)
    if not ((0 <= first) & (first <= last) & (last < columns)).all():
        raise ValueError(f"interval: needed 0 <= first <= last < {columns}")
    j = np.arange(columns)
    return (first[..., None] <= j) & (j <= last[..., None])


def row_change_mask(changes, columns):
    """`changes[i]` are the columns that enter or leave at row i."""
    mask = np.zeros((len(changes), columns), bool)
    present = np.zeros(columns, bool)
    for i, row in enumerate(changes):
        for column in row:
            present[column] = not present[column]
        mask[i] = present
    return mask


def distinct_rows_mask(group, rows):
    return np.asarray(rows, bool)[np.asarray(group)]


def distinct_columns_mask(group, columns):
    return np.asarray(columns, bool)[np.asarray(group)].T


def low_rank(u1, u2, v, mask):
    """`D^-1 (W o U1 U2^T) V`, entry by entry, for a mask that broadcasts to
    [B,H,N,M]; a row whose sum of weights is 0 gives zeros."""
    u1 = _array("u1", u1, 4, "[B,H,N,r]")
    u2 = _array("u2", u2, 4, "[B,G,M,r]")
    v = _array("v", v, 4, "[B,G,M,E]")
    B, H, N, r = u1.shape
    G, M = u2.shape[1:3]
    if G == 0 or H % G:
        raise ValueError(f"u2: found {G} heads, needed a divisor of the {H} heads of u1")
    _match("u2", "batch", u2.shape[0], B)
    _match("u2", "rank", u2.shape[3], r)
    _match("v", "shape", v.shape[:3], u2.shape[:3])
    u2, v = (np.repeat(x, H // G, axis=1) for x in (u2, v))
    mask = np.broadcast_to(mask, (B, H, N, M))
    out = np.zeros((B, H, N, v.shape[3]))
    for b, h, i in np.ndindex(B, H, N):
        kept = mask[b, h, i]
        with np.errstate(invalid="ignore", over="ignore"):
            weights = u2[b, h, kept] @ u1[b, h, i]
            weights, values = _poison(weights), _poison(v[b, h, kept])
            total = weights.sum()
            if total != 0:
                out[b, h, i] = weights @ values / total
    return out


def low_rank_backward(d_out, u1, u2, v, mask):
    """(d_u1, d_u2, d_v) of a scalar with gradient `d_out` for the result of
    `low_rank`; a row whose sum of weights is 0 passes nothing on."""
    u1 = _array("u1", u1, 4, "[B,H,N,r]")
    u2 = _array("u2", u2, 4, "[B,G,M,r]")
    v = _array("v", v, 4, "[B,G,M,E]")
    d_out = _array("d_out", d_out, 4, "[B,H,N,E]")
    B, H, N, _ = u1.shape
    G, M = u2.shape[1:3]
    _match("d_out", "shape", d_out.shape, (B, H, N, v.shape[3]))
    mask = np.broadcast_to(mask, (B, H, N, M))
    d_u1, d_u2, d_v = np.zeros_like(u1), np.zeros_like(u2), np.zeros_like(v)
    for b, h in np.ndindex(B, H):
        g = h // (H // G)
        # Entries that the mask drops have no influence, whatever they hold.
        for i in range(N):
            kept = mask[b, h, i]
            with np.errstate(invalid="ignore", over="ignore"):
                weights = _poison(u2[b, g, kept] @ u1[b, h, i])
                product = _poison(v[b, g, kept] @ d_out[b, h, i])
                total = weights.sum()
                inverse = 0.0 if total == 0 else 1 / total
                shares = weights * inverse
                d_weights = (product - shares @ product) * inverse
                d_u1[b, h, i] = d_weights @ u2[b, g, kept]
                d_u2[b, g, kept] += np.outer(d_weights, u1[b, h, i])
                d_v[b, g, kept] += np.outer(shares, d_out[b, h, i])
    return d_u1, d_u2, d_v


def polynomial_features_backward(d_out, x, *, degree, scale):
    """The gradient of a scalar with gradient `d_out` for `polynomial_features`."""
    x = _array("x", x, 4, "[B,H,N,D]")
    d_out = _array("d_out", d_out, 4, "[B,H,N,F]")
    degree = _integer("degree", degree, 0)
    d_x, feature = np.zeros_like(x), 0
    for g in range(degree + 1):
        for columns in itertools.combinations_with_replacement(range(x.shape[3]), g):
            factorials = math.prod(math.factorial(columns.count(c)) for c in set(columns))
            coefficient = math.sqrt(scale**g / factorials)
            for at in range(g):
                others = [*columns[:at], *columns[at + 1 :]]
                product = coefficient * np.prod(x[..., others], axis=-1)
                d_x[..., columns[at]] += d_out[..., feature] * product
            feature += 1
    _match("d_out", "features", d_out.shape[3], feature)
    return d_x
