# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Causal attention whose scores are a sum of convolutions, how these are found in a
score matrix, and gradients, from all N x N entries: sizes, the columns where bases
begin, are constants there.
"""

import math

import numpy as np

from ._arguments import _array, _integer, _match, _poison, _scale

__all__ = [
    "conv_apply",
    "conv_apply_backward",
    "conv_apply_fft",
    "conv_backward",
    "conv_recover",
    "conv_recover_backward",
    "conv_scores",
    "recover_from_scores",
]


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


def _threshold(window, delta, epsilon):
    for name, value in (("delta", delta), ("epsilon", epsilon)):
        if not (value >= 0 and math.isfinite(value)):
            raise ValueError(f"{name}: found {value}, needed a finite number of at least 0")
    return delta - 2 * window * epsilon


def recover_from_scores(scores, *, num_basis, window, delta, epsilon):
    """Algorithms 2 and 3 on a lower triangular matrix: b [R,N], sizes [R], found."""
    N = scores.shape[0]
    threshold = _threshold(window, delta, epsilon)
    b, sizes = np.zeros((num_basis, N)), np.zeros(num_basis, np.int32)
    u = np.zeros(N)

    def is_new(column):
        """Whether a column differs from the bases so far."""
        return np.abs(scores[column : column + window, column] - u[:window]).sum() >= threshold

    column = 0
    for r in range(num_basis):
        if r:
            # The first new column among the rest; the last one may not be new.
            low, high = column + 1, N - window
            if low > high:
                return b, sizes, r
            while low < high:
                middle = (low + high) // 2
                if is_new(middle):
                    high = middle
                else:
                    low = middle + 1
            if not is_new(low):
                return b, sizes, r
            column = low
        sizes[r] = N - column
        b[r, : sizes[r]] = scores[column:, column] - u[: sizes[r]]
        u[: sizes[r]] += b[r, : sizes[r]]
    return b, sizes, num_basis


def conv_recover(q, k, *, num_basis, window, delta, epsilon, scale=None):
    """The bases of `scale q k^T` below the diagonal: b [B,H,R,N], sizes [B,H,R]
    and how many were found [B,H]."""
    q = _array("q", q, 4, "[B,H,N,D]")
    k = _array("k", k, 4, "[B,G,N,D]")
    B, H, N, D = q.shape
    G = k.shape[1]
    if G == 0 or H % G:
        raise ValueError(f"k: found {G} heads, needed a divisor of the {H} heads of q")
    _match("k", "shape", k.shape, (B, G, N, D))
    num_basis = _integer("num_basis", num_basis, 1)
    window = _integer("window", window, 1)
    if window > N:
        raise ValueError(f"window: found {window}, needed at most the {N} rows of q")
    scale = _scale(scale, D)
    b = np.zeros((B, H, num_basis, N))
    sizes, found = np.zeros((B, H, num_basis), np.int32), np.zeros((B, H), np.int32)
    for i, h in np.ndindex(B, H):
        scores = scale * np.tril(q[i, h] @ k[i, h // (H // G)].T)
        b[i, h], sizes[i, h], found[i, h] = recover_from_scores(
            scores, num_basis=num_basis, window=window, delta=delta, epsilon=epsilon
        )
    return b, sizes, found


def _scores_backward(d_out, scores, values):
    """The gradients of one head's scores [N,N] and values."""
    d_scores, d_values = np.zeros_like(scores), np.zeros_like(values)
    for i, row in enumerate(scores):
        # What has a score of -inf is not read, whatever it holds.
        present = ~np.isneginf(row)
        if present.any():
            row = _poison(row[present])
            weights = np.exp(row - row.max())
            weights /= weights.sum()
            product = _poison(values[present] @ d_out[i])
            d_scores[i, present] = weights * (product - weights @ product)
            d_values[present] += np.outer(weights, d_out[i])
    return d_scores, d_values


def conv_apply_backward(d_out, b, sizes, v):
    """(d_b, d_v) of a scalar with gradient `d_out` for the result of
    `conv_apply`.  Entries of d_b from a basis's size on are 0."""
    b = _array("b", b, 4, "[B,H,R,N]")
    v = _array("v", v, 4, "[B,G,N,E]")
    d_out = _array("d_out", d_out, 4, "[B,H,N,E]")
    B, H, R, N = b.shape
    sizes = _sizes(sizes, (B, H, R), N)
    _match("d_out", "shape", d_out.shape, (B, H, N, v.shape[3]))
    d_b, d_v = np.zeros(b.shape), np.zeros(v.shape)
    for i, h in np.ndindex(B, H):
        g = h // (H // v.shape[1])
        # Numbers from the size on may be anything.
        bases = np.where(np.arange(N) < sizes[i, h][:, None], b[i, h], 0.0)
        scores = conv_scores(bases, sizes[i, h])
        d_scores, d_values = _scores_backward(d_out[i, h], scores, v[i, g])
        d_v[i, g] += d_values
        for r, size in enumerate(sizes[i, h]):
            corner = d_scores[N - size :, N - size :]
            for lag in range(size):
                d_b[i, h, r, lag] = np.trace(corner, -lag)
    return d_b, d_v


def conv_recover_backward(d_b, q, k, sizes, *, scale=None):
    """(d_q, d_k) of a scalar with gradient `d_b` for the bases that
    `conv_recover` returns with `sizes`."""
    d_b = _array("d_b", d_b, 4, "[B,H,R,N]")
    q = _array("q", q, 4, "[B,H,N,D]")
    k = _array("k", k, 4, "[B,G,N,D]")
    B, H, R, N = d_b.shape
    sizes = _sizes(sizes, (B, H, R), N)
    scale = _scale(scale, q.shape[3])
    d_q, d_k = np.zeros(q.shape), np.zeros(k.shape)
    for i, h in np.ndindex(B, H):
        g = h // (H // k.shape[1])
        for r, size in enumerate(sizes[i, h]):
            column, d_column = N - size, d_b[i, h, r, :size].copy()
            if r + 1 < R:
                # The next basis is its column less this one.
                d_column[: sizes[i, h, r + 1]] -= d_b[i, h, r + 1, : sizes[i, h, r + 1]]
            if size:
                d_q[i, h, column:] += scale * np.outer(d_column, k[i, g, column])
                d_k[i, g, column] += scale * (d_column @ q[i, h, column:])
    return d_q, d_k


def conv_backward(d_out, q, k, v, *, num_basis, window, delta, epsilon, scale=None, group=None):
    """(d_q, d_k, d_v) of a scalar with gradient `d_out` for attention with the
    convolutions that are found in its scores; by pairs of neighbouring groups of
    `group` tokens if that is given, the second one of which is the pair's own."""
    q, k, v = (_array(name, x, 4, "") for name, x in (("q", q), ("k", k), ("v", v)))
    d_out = _array("d_out", d_out, 4, "[B,H,N,E]")
    N = q.shape[2]
    gradients = np.zeros(q.shape), np.zeros(k.shape), np.zeros(v.shape)
    group = N if group is None else group
    for own in range(min(group, max(N - 1, 0)), N, group) if group < N else [0]:
        rows = slice(max(own - group, 0), min(own + group, N))
        first = 0 if own <= group else own
        search = {"window": window, "delta": delta, "epsilon": epsilon, "scale": scale}
        b, sizes, _ = conv_recover(q[:, :, rows], k[:, :, rows], num_basis=num_basis, **search)
        d_rows = np.where(np.arange(N)[:, None] >= first, d_out, 0.0)[:, :, rows]
        d_b, d_v = conv_apply_backward(d_rows, b, sizes, v[:, :, rows])
        d_q, d_k = conv_recover_backward(d_b, q[:, :, rows], k[:, :, rows], sizes, scale=scale)
        for gradient, part in zip(gradients, (d_q, d_k, d_v)):
            gradient[:, :, rows] += part
    return gradients
