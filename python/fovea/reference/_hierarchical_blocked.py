# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fast multipole attention in linear time, and how much work that is."""

import numpy as np

from ._hierarchical import _multipole_operands, summary_counts

__all__ = ["fast_multipole_blocked"]


def _fast_summaries(x, weights, bias, dtype):
    """`_summaries` for finite x, all intervals and heads at once."""
    B, G, N, D = x.shape
    W, p, size, _ = weights.shape
    count = -(-N // size)
    padded = np.zeros((B, G, count * size, D), dtype)
    padded[:, :, :N] = x
    weights = np.broadcast_to(weights.astype(dtype), (G, p, size, D))
    # For each (head, column) a product [p, size] x [size, B count].
    left = weights.transpose(0, 3, 1, 2)
    right = padded.reshape(B, G, count, size, D).transpose(1, 4, 3, 0, 2)
    sums = left @ right.reshape(G, D, size, B * count)
    sums = sums.reshape(G, D, p, B, count).transpose(3, 0, 4, 2, 1)
    if bias is not None:
        sums = sums + bias.astype(dtype)[None, :, None]
    return sums.reshape(B, G, count * p, D)


def fast_multipole_blocked(
    q,
    k,
    v,
    key_weights,
    value_weights,
    *,
    group,
    causal=False,
    key_biases=None,
    value_biases=None,
    scale=None,
    multiplicity=True,
    return_lse=False,
    dtype=np.float64,
):
    """`fast_multipole` in O(N (m + p L)) time: a soft-max over distinct
    summaries with log weights, one block of m queries at a time.

    Computes in `dtype`.  Inputs must be finite; a NaN may spread to the rows
    of its block.
    """
    q, k, v, scale, (m, L, p, (key_levels, value_levels)) = _multipole_operands(
        q, k, v, key_weights, value_weights, group, key_biases, value_biases, scale
    )
    B, H, N, D = q.shape
    G, E = k.shape[1], v.shape[3]
    dtype = np.dtype(dtype).type
    q, k, v = (x.astype(dtype) for x in (q, k, v))
    keys = [_fast_summaries(k, w, b, dtype) for w, b, _ in key_levels]
    values = [_fast_summaries(v, w, b, dtype) for w, b, _ in value_levels]

    out = np.zeros((B, H, N, E), dtype)
    lse = np.full((B, H, N), -np.inf, dtype)
    for block in range(-(-N // m)):
        first, last = block * m, min(block * m + m, N)
        near = slice(max(first - m, 0), last if causal else min(last + m, N))
        block_keys, block_values = [k[:, :, near]], [v[:, :, near]]
        log_weights = [np.zeros(block_keys[0].shape[2])]
        for level, (start, stop) in _far_intervals(block, N, m, L, causal):
            counts = summary_counts(N, p, 2 ** (level - 1) * m)[start * p : stop * p]
            present = np.nonzero(counts)[0] + start * p
            block_keys.append(keys[level - 1][:, :, present])
            block_values.append(values[level - 1][:, :, present])
            counts = counts[counts > 0]
            log_weights.append(np.log(counts) if multiplicity else 0.0 * counts)
        all_keys = np.concatenate(block_keys, axis=2)[:, :, None]
        all_values = np.concatenate(block_values, axis=2)[:, :, None]
        rows = q[:, :, first:last].reshape(B, G, H // G, last - first, D)
        scores = (rows @ all_keys.swapaxes(-1, -2)) * dtype(scale)
        scores += np.concatenate(log_weights).astype(dtype)
        if causal:
            future = np.arange(near.start, near.stop) > np.arange(first, last)[:, None]
            scores[..., : near.stop - near.start][..., future] = -np.inf
        # Never empty: a query always reads its own token.
        top = scores.max(axis=-1, keepdims=True)
        terms = np.exp(scores - top)
        total = terms.sum(axis=-1, keepdims=True)
        out[:, :, first:last] = (terms @ all_values / total).reshape(
            B, H, last - first, E
        )
        lse[:, :, first:last] = (top + np.log(total)).reshape(B, H, last - first)
    return (out, lse) if return_lse else out


def _far_intervals(block, N, m, L, causal):
    """The far field of query block `block`: (level, (first, past-the-last))
    runs of intervals, at most two per level."""
    runs = []
    for level in range(1, L + 1):
        mine = block >> (level - 1)
        count = -(-N // (2 ** (level - 1) * m))
        parent = mine // 2
        # Children of the neighbouring parents, less the neighbours at this level.
        before = (max(2 * (parent - 1), 0), mine - 1)
        after = (mine + 2, min(2 * (parent + 2), count))
        for start, stop in (before,) if causal else (before, after):
            if start < stop:
                runs.append((level, (start, stop)))
    return runs
