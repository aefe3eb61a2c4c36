# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The gradient of attention over quantized keys, from its definition.

All entries are formed: N x N, and with a state those of the tokens that it keeps
and of its means.  Keys of a query's own block and of the block before pass a
gradient on to `k`, straight through the quantizer; older ones are read as
codewords, which are constants.
"""

from typing import NamedTuple

import numpy as np

from ._arguments import _array, _integer, _scale
from ._softmax import _product_of_read
from ._vq import _arguments, vq_initial_state


class VQStateGradient(NamedTuple):
    """Gradients for the means of a VQState, and for the keys and the values of the
    tokens that it keeps."""

    mean: np.ndarray
    keys: np.ndarray
    values: np.ndarray


def _near(query, token, block, causal):
    """Which tokens a query reads at all, and which of them one by one."""
    i, j = query[:, None], token
    if not causal:
        return np.ones((len(query), len(token)), bool), np.zeros((len(query), len(token)), bool)
    return j <= i, (j <= i) & (j // block >= i // block - 1)


def _weigh(scores, product, reads, count, d_lse, weighting):
    """P and dS of all entries of a head."""
    if weighting != "softmax":
        positive = np.where(reads, np.maximum(scores, 0.0), 0.0)
        d_scores = np.where(reads, 2 * positive * product * count, 0.0)
        return positive**2 * count, d_scores
    scores = np.where(reads, scores, -np.inf)
    top = scores.max(1, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    weights = np.exp(scores - top) * count
    total = weights.sum(1, keepdims=True)
    weights = weights / np.where(total > 0, total, 1.0)
    mean = np.where(reads, weights * product, 0.0).sum(1, keepdims=True)
    return weights, np.where(reads, weights * (product - mean + d_lse[:, None]), 0.0)


def _pass_next(gradient, taken, codes, count, d_k, d_v, d_mean):
    """Adds what `gradient`, that of the next state, passes back: the first `taken`
    tokens have gone to the means, the others are kept."""
    B, G, S = count.shape
    d_k[:, :, taken:] += gradient.keys
    d_v[:, :, taken:] += gradient.values
    for b, g, s in np.ndindex(B, G, S):
        members = np.nonzero(codes[b, g, :taken] == s)[0]
        total = count[b, g, s] + len(members)
        if total:
            d_v[b, g, members] += gradient.mean[b, g, s] / total
            d_mean[b, g, s] += gradient.mean[b, g, s] * count[b, g, s] / total


def vq_backward(d_out, q, k, v, codebook, *, block, causal=True, bias=None, scale=1.0,
                weighting="softmax", d_lse=None, state=None, d_next_state=None):  # fmt: skip
    """(d_q, d_k, d_v, d_bias) of a scalar with gradients `d_out` and `d_lse` for
    the results of `vq`; d_bias is None without a bias.

    With `state`, which `vq_linear` was given, its gradient, a VQStateGradient,
    follows; `d_next_state` is that for the state that it returned.
    """
    q, codes, v, codebook = _arguments(q, k, v, codebook, weighting)
    block = _integer("block", block, 1)
    d_out = _array("d_out", d_out, 4, "[B,H,N,E]")
    B, H, N, D = q.shape
    G, E, S = v.shape[1], v.shape[3], codebook.shape[1]
    scale = _scale(scale, D)
    d_lse = np.zeros((B, H, N), q.dtype) if d_lse is None else _array("d_lse", d_lse, 3, "[B,H,N]")
    has_state = state is not None
    state = state if has_state else vq_initial_state(B, G, S, E)
    # The tokens kept, then those of the window, and the codewords behind them.
    kept = state.codes.shape[2]
    codes, tokens = np.concatenate([state.codes, codes], 2), kept + N
    values = np.concatenate([state.values, v, state.mean], 2).astype(v.dtype)
    query, token = state.position + np.arange(N), state.position - kept + np.arange(tokens)
    reads, near = _near(query, token, block, causal)
    # Column of the bias for every pair; it means something for near ones.
    column = token - (query[:, None] // block - 1) * block
    d_q, d_k, d_values = np.zeros_like(q), np.zeros((B, G, tokens, D)), np.zeros_like(values)
    d_bias = None
    if bias is not None:
        given = _array("bias", bias, 4, "[B,H,N,2 Lb]")
        bias = np.broadcast_to(given, (B, H, N, 2 * block))
        d_bias = np.zeros(bias.shape)
    for b, h in np.ndindex(B, H):
        g = h // (H // G)
        keys = np.concatenate([codebook[g][codes[b, g]], codebook[g]])
        scores = scale * (q[b, h] @ keys.T)
        if bias is not None:
            local = np.take_along_axis(bias[b, h], np.clip(column, 0, 2 * block - 1), 1)
            scores[:, :tokens] += np.where(near, local, 0.0)
        count = np.concatenate([np.ones(tokens), state.count[b, g]]).astype(v.dtype)
        present = np.concatenate([reads, np.broadcast_to(state.count[b, g] > 0, (N, S))], 1)
        if bias is not None:
            # Minus infinity removes the entry.
            present[:, :tokens] &= ~(near & np.isneginf(local))
        product = d_out[b, h] @ values[b, g].T
        weights, d_scores = _weigh(scores, product, present, count, d_lse[b, h], weighting)
        d_q[b, h] = scale * _product_of_read(d_scores, present, keys)
        passed = np.where(near, d_scores[:, :tokens], 0.0)
        d_k[b, g] += scale * _product_of_read(passed.T, (near & present[:, :tokens]).T, q[b, h])
        d_values[b, g] += _product_of_read(weights.T, present.T, d_out[b, h])
        if d_bias is not None:
            rows, columns = np.nonzero(near)
            d_bias[b, h][rows, column[rows, columns]] = d_scores[rows, columns]
    if d_bias is not None:
        axes = tuple(a for a in range(3) if given.shape[a] == 1 and d_bias.shape[a] != 1)
        d_bias = d_bias.sum(axes, keepdims=True)
    d_v, d_mean = d_values[:, :, :tokens], d_values[:, :, tokens:]
    if d_next_state is not None:
        end = state.position + N
        start = max(end // block - 1, 0) * block
        _pass_next(d_next_state, start - (state.position - kept), codes, state.count, d_k, d_v, d_mean)
    found = d_q, d_k[:, :, kept:], d_v[:, :, kept:], d_bias
    if not has_state:
        return found
    return *found, VQStateGradient(d_mean, d_k[:, :, :kept], d_v[:, :, :kept])
