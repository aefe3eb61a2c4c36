# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Dense attention."""

import numpy as np

from ._arguments import _broadcast, _integer, _queries_keys_values, _scale
from ._softmax import _ROWS, _scores, _softmax, _weighted_values

__all__ = ["dense"]


def _tokens(N, M, stride):
    """What M rows of `stride` tokens stand for beside N queries: some may make no row yet."""
    return min(max(N, M * stride), M * stride + stride - 1)


def _positions(M, stride):
    """Where rows stand: at the last of their tokens."""
    return np.arange(1, M + 1) * stride - 1


def _dense_mask(rows, N, M, causal, window, prefix=None, stride=1, tokens=None):
    """Entry (i,j) is admitted, for the query rows `rows` and all M keys."""
    tokens = _tokens(N, M, stride) if tokens is None else tokens
    positions = _positions(M, stride)
    distance = rows[:, None] + (tokens - N) - positions[None, :]
    admitted = np.ones(distance.shape, dtype=bool)
    if causal:
        admitted &= (distance >= 0) | (positions < (prefix or 0))
        if window is not None:
            admitted &= distance < window
    elif window is not None:
        admitted &= np.abs(distance) < window
    return admitted


def _entries(lengths, query_lengths, B, N, M):
    """The number of each batch entry, and how many queries and keys it has."""
    for b in range(B):
        yield b, N if query_lengths is None else int(query_lengths[b]), M if lengths is None else int(lengths[b])


def _apply(score, scores, b, h, positions, keys=None):
    """What a function makes of the scores of queries and keys at some positions."""
    keys = (np.arange(scores.shape[1]) if keys is None else keys)[None, :]
    with np.errstate(all="ignore"):
        return np.broadcast_to(score(scores, b, h, positions[:, None], keys), scores.shape).astype(scores.dtype)


def dense(
    q,
    k,
    v,
    *,
    scale=None,
    causal=False,
    window=None,
    prefix=None,
    log_weight=None,
    bias=None,
    sink=None,
    lengths=None,
    query_lengths=None,
    score=None,
    return_lse=False,
):
    """softmax(scale q k^T + log_weight[key] + bias[query,key] + mask) v, with
    exp(sink) added to every denominator of a head.  `score`, a function of arrays
    (s, b, h, i, j), gives what takes the place of scale q k^T."""
    q, k, v = _queries_keys_values(q, k, v, same_length=False)
    B, H, N, D = q.shape
    G, M, E = k.shape[1], k.shape[2], v.shape[3]
    scale = _scale(scale, D)
    if window is not None:
        window = _integer("window", window, 0)
    if log_weight is not None:
        log_weight = _broadcast("log_weight", log_weight, (B, G, M))
    if bias is not None:
        bias = _broadcast("bias", bias, (B, H, N, M))
    sinks = np.full((B, H), -np.inf) if sink is None else _broadcast("sink", sink, (B, H))

    out = np.zeros((B, H, N, E))
    lse = np.full((B, H, N), -np.inf)
    if lengths is not None or query_lengths is not None:
        # Every batch entry on its own, cut to what it has.
        for b, rows, keys in _entries(lengths, query_lengths, B, N, M):
            one, queries = slice(b, b + 1), slice(0, rows)
            out[one, :, queries], lse[one, :, queries] = dense(
                q[one, :, queries], k[one, :, :keys], v[one, :, :keys], scale=scale, causal=causal, window=window,
                prefix=prefix, log_weight=None if log_weight is None else log_weight[one, :, :keys],
                bias=None if bias is None else bias[one, :, queries, :keys], sink=sinks[one], return_lse=True,
                score=score and (lambda s, _, *place, b=b: score(s, b, *place)),
            )  # fmt: skip
        return (out, lse) if return_lse else out
    for b, h in np.ndindex(B, H):
        g = h // (H // G)
        for first in range(0, N, _ROWS):
            rows = np.arange(first, min(first + _ROWS, N))
            admitted = _dense_mask(rows, N, M, causal, window, prefix)
            scores = scale * _scores(q[b, h, rows], k[b, g])
            if score is not None:
                scores = _apply(score, scores, b, h, rows + (M - N))
                admitted &= ~np.isneginf(scores)
            for term in (
                None if log_weight is None else log_weight[b, g][None, :],
                None if bias is None else bias[b, h, rows],
            ):
                if term is not None:
                    # Minus infinity removes the entry, like the mask.
                    admitted &= ~np.isneginf(term)
                    scores += term
            weights, lse[b, h, rows] = _softmax(scores, admitted, sinks[b, h])
            out[b, h, rows] = _weighted_values(weights, admitted, v[b, g])
    return (out, lse) if return_lse else out
