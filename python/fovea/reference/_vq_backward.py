# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The gradient of attention over quantized keys, from its definition.

All N x N entries are formed.  Keys of a query's own block and of the block
before pass a gradient on to `k`, straight through the quantizer; older ones are
read as codewords, which are constants.
"""

import numpy as np

from ._arguments import _array, _integer, _scale
from ._vq import _arguments


def _near(N, block, causal):
    """Which keys j query i reads at all, and which of them one by one."""
    i, j = np.arange(N)[:, None], np.arange(N)
    if not causal:
        return np.ones((N, N), bool), np.zeros((N, N), bool)
    return j <= i, (j <= i) & (j // block >= i // block - 1)


def vq_backward(d_out, q, k, v, codebook, *, block, causal=True, bias=None, scale=1.0,
                weighting="softmax", d_lse=None):  # fmt: skip
    """(d_q, d_k, d_v, d_bias) of a scalar with gradients `d_out` and `d_lse` for
    the results of `vq`; d_bias is None without a bias."""
    q, codes, v, codebook = _arguments(q, k, v, codebook, weighting)
    block = _integer("block", block, 1)
    d_out = _array("d_out", d_out, 4, "[B,H,N,E]")
    B, H, N, D = q.shape
    G, E = v.shape[1], v.shape[3]
    scale = _scale(scale, D)
    d_lse = np.zeros((B, H, N)) if d_lse is None else _array("d_lse", d_lse, 3, "[B,H,N]")
    reads, near = _near(N, block, causal)
    # Column of the bias for every pair; it means something for near ones.
    column = np.arange(N) - (np.arange(N)[:, None] // block - 1) * block
    d_q, d_k, d_v = np.zeros_like(q), np.zeros((B, G, N, D)), np.zeros_like(v)
    d_bias = None
    if bias is not None:
        given = _array("bias", bias, 4, "[B,H,N,2 Lb]")
        bias = np.broadcast_to(given, (B, H, N, 2 * block))
        d_bias = np.zeros(bias.shape)
    for b, h in np.ndindex(B, H):
        g = h // (H // G)
        keys = codebook[g][codes[b, g]]
        scores = scale * (q[b, h] @ keys.T)
        if bias is not None:
            local = np.take_along_axis(bias[b, h], np.clip(column, 0, 2 * block - 1), 1)
            scores = scores + np.where(near, local, 0.0)
        product = d_out[b, h] @ v[b, g].T
        if weighting == "softmax":
            scores = np.where(reads, scores, -np.inf)
            top = scores.max(1, keepdims=True)
            top = np.where(np.isfinite(top), top, 0.0)
            weights = np.exp(scores - top)
            total = weights.sum(1, keepdims=True)
            weights = weights / np.where(total > 0, total, 1.0)
            mean = (weights * product).sum(1, keepdims=True)
            d_scores = weights * (product - mean + d_lse[b, h][:, None])
        else:
            positive = np.where(reads, np.maximum(scores, 0.0), 0.0)
            weights = positive**2
            d_scores = 2 * positive * product
        d_q[b, h] = scale * (d_scores @ keys)
        d_k[b, g] += scale * (np.where(near, d_scores, 0.0).T @ q[b, h])
        d_v[b, g] += weights.T @ d_out[b, h]
        if d_bias is not None:
            rows, columns = np.nonzero(near)
            d_bias[b, h][rows, column[rows, columns]] = d_scores[rows, columns]
    if d_bias is not None:
        axes = tuple(a for a in range(3) if given.shape[a] == 1 and d_bias.shape[a] != 1)
        d_bias = d_bias.sum(axes, keepdims=True)
    return d_q, d_k, d_v, d_bias
