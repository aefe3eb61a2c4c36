# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pooled summaries, and the choice of keys."""

import numpy as np

from ._arguments import _array
from ._dense import _dense_mask
from ._softmax import _softmax, _weighted_values

__all__ = ["pool", "pool_backward", "top_k"]


def _rows(x, gate, interval, overlap, position_bias):
    """Of every summary its tokens, and of every column the weights of these."""
    x, gate = _array("x", x, 4, "[B,G,N,E]"), _array("gate", gate, 4, "[B,G,N,E]")
    N = x.shape[2]
    if position_bias is not None:
        gate = gate + np.asarray(position_bias, np.float64)[np.arange(N) % interval]
    for row in range(N // interval):
        at = slice(max(row * interval - overlap, 0), (row + 1) * interval)
        for place in np.ndindex(x.shape[0], x.shape[1], x.shape[3]):
            b, g, column = place
            scores = gate[b, g, at, column][None, :]
            holds = ~np.isneginf(scores)
            yield (b, g, row, column), (b, g, at, column), _softmax(scores, holds)[0], holds


def pool(x, gate, *, interval, overlap=0, position_bias=None):
    x = _array("x", x, 4, "[B,G,N,E]")
    B, G, N, E = x.shape
    out = np.zeros((B, G, N // interval, E))
    for row, tokens, weights, holds in _rows(x, gate, interval, overlap, position_bias):
        out[row] = _weighted_values(weights, holds, x[tokens][:, None])[0, 0]
    return out


def pool_backward(d_out, x, gate, *, interval, overlap=0, position_bias=None):
    x, d_out = _array("x", x, 4, "[B,G,N,E]"), _array("d_out", d_out, 4, "[B,G,M,E]")
    out = pool(x, gate, interval=interval, overlap=overlap, position_bias=position_bias)
    dx, d_gate = np.zeros_like(x), np.zeros_like(x)
    for row, tokens, weights, holds in _rows(x, gate, interval, overlap, position_bias):
        part = np.where(holds[0], weights[0] * d_out[row], 0.0)
        dx[tokens] += part
        with np.errstate(invalid="ignore"):
            d_gate[tokens] += np.where(holds[0], part * (x[tokens] - out[row]), 0.0)
    if position_bias is None:
        return dx, d_gate
    sums = np.zeros((interval, x.shape[3]))
    np.add.at(sums, np.arange(x.shape[2]) % interval, d_gate.sum(axis=(0, 1)))
    return dx, d_gate, sums


def top_k(scores, k, *, causal_unit=None):
    scores = _array("scores", scores, 4, "[B,H,N,M]")
    N, M = scores.shape[2:]
    holds = np.ones((N, M), bool)
    if causal_unit is not None:
        holds = _dense_mask(np.arange(N), N, M, True, None, stride=causal_unit)
    kept = np.where(holds & ~np.isnan(scores), scores, -np.inf)
    order = np.argsort(-kept, axis=-1, kind="stable")
    order = np.where(np.isneginf(np.take_along_axis(kept, order, axis=-1)), -1, order)[..., :k]
    missing = np.full((*order.shape[:-1], k - order.shape[-1]), -1)
    return np.concatenate([order, missing], axis=-1).astype(np.int32)
