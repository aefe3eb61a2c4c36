# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Causal attention whose scores are a sum of convolutions."""

import numpy as np

from ._arguments import _array, _match, _poison


def _sizes(sizes, shape, length):
    """Checks sizes [B,H,R]: N or less, decreasing down to zeros."""
    sizes = np.asarray(sizes)
    if sizes.dtype.kind not in "iu":
        raise ValueError(f"sizes: found element type {sizes.dtype}, needed an integer type")
    _match("sizes", "shape", sizes.shape, tuple(shape))
    sizes = sizes.astype(np.int64)
    for position in np.ndindex(*sizes.shape):
        *head, r = position
        most = length if r == 0 else max(sizes[(*head, r - 1)] - 1, 0)
        if not 0 <= sizes[position] <= most:
            raise ValueError(
                f"sizes{list(position)}: found {sizes[position]}, needed 0 to {most}"
            )
    return sizes


def conv_scores(b, sizes):
    """The causal scores [N,N] of one head with bases b [R,N]; -inf where no basis
    reaches."""
    length = b.shape[1]
    scores = np.zeros((length, length), np.asarray(b).dtype)
    scores[np.triu_indices(length, 1)] = -np.inf
    scores[:, : length - sizes[0]] = -np.inf
    for basis, size in zip(b, sizes):
        # Definition 3.9: the trailing corner.
        first = length - size
        for i in range(first, length):
            scores[i, first : i + 1] += basis[i - first :: -1] if i > first else basis[:1]
    return scores


def conv_apply(b, sizes, v):
    """Soft-max of the sum of conv(b[r], sizes[r]), times v.

    b is [B,H,R,N], sizes [B,H,R] decreasing from at most N, with zeros for bases
    that do not exist, and v [B,G,N,E].  Returns [B,H,N,E]; a row that no basis
    reaches is zero.
    """
    b = _array("b", b, 4, "[B,H,R,N]")
    v = _array("v", v, 4, "[B,G,N,E]")
    B, H, R, N = b.shape
    if R == 0:
        raise ValueError("b: found no bases, needed at least 1")
    sizes = _sizes(sizes, (B, H, R), N)
    _match("v", "batch", v.shape[0], B)
    _match("v", "length", v.shape[2], N)
    groups = v.shape[1]
    if groups == 0 or H % groups:
        raise ValueError(f"v: found {groups} heads, needed a divisor of the {H} heads of b")
    out = np.zeros((B, H, N, v.shape[3]))
    for batch, head in np.ndindex(B, H):
        scores = conv_scores(b[batch, head], sizes[batch, head])
        values = v[batch, head // (H // groups)]
        for i, row in enumerate(scores):
            # What has a score of -inf is not read, whatever it holds.
            present = ~np.isneginf(row)
            if present.any():
                row = _poison(row[present])
                weights = np.exp(row - row.max())
                out[batch, head, i] = weights @ _poison(values[present]) / weights.sum()
    return out


def conv_apply_fft(b, sizes, v, fft=np.fft):
    """conv_apply as algorithm 1 is written: R convolutions by FFT, each of the whole
    sequence, with the exponential transform of lemma A.13.

    Without a bound on rounding errors: rows whose normaliser is small against the
    largest weights are wrong.  For comparisons of time and accuracy; `fft` is the
    module whose transforms are used.
    """
    b = np.asarray(b)
    B, H, R, N = b.shape
    groups = v.shape[1]
    length = 1 << max(2 * N - 1, 1).bit_length()
    out = np.zeros((B, H, N, v.shape[3]), b.dtype)
    for batch, head in np.ndindex(B, H):
        scores = np.cumsum(b[batch, head], axis=0)
        shift = max(
            (row[:size].max() for row, size in zip(scores, sizes[batch, head]) if size),
            default=0.0,
        )
        before = np.zeros(N, b.dtype)
        spectrum, normaliser = 0, np.zeros(N, b.dtype)
        values = v[batch, head // (H // groups)]
        for row, size in zip(scores, sizes[batch, head]):
            if size == 0:
                break
            after = np.exp(row - shift)
            kernel = (after - before)[:size]
            before = after
            tail = np.zeros_like(values)
            tail[N - size :] = values[N - size :]
            spectrum = spectrum + (
                fft.rfft(kernel, length)[:, None] * fft.rfft(tail, length, axis=0)
            )
            normaliser[N - size :] += np.cumsum(kernel)
        if np.ndim(spectrum) == 0:
            continue
        rows = fft.irfft(spectrum, length, axis=0)[:N]
        with np.errstate(divide="ignore", invalid="ignore"):
            out[batch, head] = np.where(normaliser[:, None] > 0, rows / normaliser[:, None], 0.0)
    return out
