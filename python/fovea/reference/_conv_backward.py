# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradients of causal attention whose scores are a sum of convolutions, from
all N x N entries.  Sizes, the columns where bases begin, are constants.
"""

import numpy as np

from ._arguments import _array, _match, _poison, _scale
from ._conv import _sizes, conv_scores
from ._conv_recover import conv_recover
from ._low_rank import rope


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


def rope_backward(d_out, positions, *, base=10000.0):
    """The gradient for x: a turn back."""
    return rope(d_out, -np.asarray(positions, np.int64), base=base)
