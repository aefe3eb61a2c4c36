# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention over quantized keys: the definition, and the forms linear in N.

`vq` is the definition: every query reads the quantized keys one by one, in
O(N^2).  `vq_linear` computes the same from sources, as Theorem 3.7 of
Transformer-VQ has it, and takes and returns a state; `vq_encoder` is Theorem
3.5.
"""

from typing import NamedTuple

import numpy as np

from ._arguments import _array, _integer, _match, _scale
from ._quantized import _codebook, _codes, codebook_accumulate, quantize

_WEIGHTINGS = ("softmax", "squared_relu")


class VQState(NamedTuple):
    """What later tokens need of earlier ones.

    `position` tokens were taken in.  Those of blocks before the last whole one
    are in `mean` [B,G,S,E] and `count` [B,G,S]; the others, from the beginning of
    the block before the one that `position` lies in, are `codes` [B,G,R] and
    `values` [B,G,R,E].
    """

    mean: np.ndarray
    # A field hides the method of tuples.
    count: np.ndarray  # type: ignore[assignment]
    codes: np.ndarray
    values: np.ndarray
    position: int


def _arguments(q, k, v, codebook, weighting):
    q = _array("q", q, 4, "[B,H,N,D]")
    v = _array("v", v, 4, "[B,G,N,E]")
    B, H, N, D = q.shape
    G = v.shape[1]
    _match("v", "batch", v.shape[0], B)
    _match("v", "length", v.shape[2], N)
    if G == 0 or H % G:
        raise ValueError(f"v: found {G} heads, needed a divisor of the {H} heads of q")
    if weighting not in _WEIGHTINGS:
        raise ValueError(f"weighting: found {weighting!r}, needed one of {_WEIGHTINGS}")
    codebook = _codebook(codebook, G, D)
    codes = np.asarray(k)
    if codes.dtype.kind not in "iu":
        codes = quantize(k, codebook)[1]
    return q, _codes(codes, (B, G, N), codebook.shape[1]), v, codebook


def _local_bias(bias, shape, block, position=0):
    """The bias [.,.,N,2 Lb] of queries from `position` on as a function of
    query i and keys j: column 0 is the first key of the block before."""
    if bias is None:
        return lambda b, h, i, j: 0.0
    bias = np.broadcast_to(_array("bias", bias, 4, "[B,H,N,2 Lb]"), (*shape, 2 * block))

    def value(b, h, i, j):
        column = j - ((position + i) // block - 1) * block
        inside = (column >= 0) & (column < 2 * block)
        return np.where(inside, bias[b, h, i, np.clip(column, 0, 2 * block - 1)], 0.0)

    return value


def _attend(scores, values, multiplicity, weighting):
    """Output and log-sum-exp of one query; keys count `multiplicity` times."""
    # A bias of minus infinity masks.
    present = (multiplicity > 0) & (scores != -np.inf)
    scores, values, multiplicity = scores[present], values[present], multiplicity[present]
    if weighting == "squared_relu":
        return (np.square(np.maximum(scores, 0)) * multiplicity) @ values, np.nan
    if not len(scores):
        return np.zeros(values.shape[1]), -np.inf
    top = scores.max()
    weights = np.exp(scores - top) * multiplicity
    return weights @ values / weights.sum(), top + np.log(weights.sum())


def vq(q, k, v, codebook, *, block, causal=True, bias=None, scale=1.0, weighting="softmax",
       return_lse=False):  # fmt: skip
    """The definition: dense attention over the quantized keys C[codes].

    `k` holds keys, which are quantized first, or integer codes [B,G,N].  With
    `causal`, `bias` [.,.,N,2 Lb] is added to the scores of the keys of a query's
    own block and of the one before.
    """
    q, codes, v, codebook = _arguments(q, k, v, codebook, weighting)
    block = _integer("block", block, 1)
    if bias is not None and not causal:
        raise ValueError("bias: found one without causal, needed both or none")
    B, H, N, _ = q.shape
    G, E = v.shape[1], v.shape[3]
    scale = _scale(scale, q.shape[3])
    local = _local_bias(bias, (B, H, N), block)
    out, lse = np.zeros((B, H, N, E)), np.zeros((B, H, N))
    for b, h, i in np.ndindex(B, H, N):
        g = h // (H // G)
        j = np.arange(i + 1 if causal else N)
        scores = scale * (codebook[g][codes[b, g, j]] @ q[b, h, i]) + local(b, h, i, j)
        out[b, h, i], lse[b, h, i] = _attend(scores, v[b, g, j], np.ones(len(j)), weighting)
    return (out, lse) if return_lse else out


def vq_encoder(q, k, v, codebook, *, scale=1.0, weighting="softmax", return_lse=False):
    """Every query reads the codewords, each as often as a key has it, with the
    mean of the values of those keys (Theorems 3.4 and 3.5)."""
    q, codes, v, codebook = _arguments(q, k, v, codebook, weighting)
    B, H, N, _ = q.shape
    G, E, S = v.shape[1], v.shape[3], codebook.shape[1]
    mean, count = codebook_accumulate(codes, v, np.zeros((B, G, S, E)), np.zeros((B, G, S), int))
    out, lse = np.zeros((B, H, N, E)), np.zeros((B, H, N))
    for b, h, i in np.ndindex(B, H, N):
        g = h // (H // G)
        scores = scale * (codebook[g] @ q[b, h, i])
        out[b, h, i], lse[b, h, i] = _attend(scores, mean[b, g], count[b, g], weighting)
    return (out, lse) if return_lse else out


def vq_initial_state(B, G, S, E):
    """The state before the first token."""
    return VQState(
        np.zeros((B, G, S, E)),
        np.zeros((B, G, S), np.int32),
        np.zeros((B, G, 0), np.int64),
        np.zeros((B, G, 0, E)),
        0,
    )


def vq_linear(q, k, v, codebook, *, block, bias=None, scale=1.0, weighting="softmax", state=None,
              return_state=False, return_lse=False):  # fmt: skip
    """Causal `vq` from sources (Theorems 3.6 and 3.7): the block of a query and
    the one before token by token, and everything older through the codebook, with
    the counts and mean values of its codes.

    The tokens continue those of `state`, if there is one.
    """
    q, codes, v, codebook = _arguments(q, k, v, codebook, weighting)
    block = _integer("block", block, 1)
    B, H, N, _ = q.shape
    G, E, S = v.shape[1], v.shape[3], codebook.shape[1]
    if state is None:
        state = vq_initial_state(B, G, S, E)
    position, mean, count = state.position, state.mean, state.count
    _match("state", "shape of mean", mean.shape, (B, G, S, E))
    local = _local_bias(bias, (B, H, N), block, position)
    # Token j of the sequence is row j - start of these.
    start = max(position // block - 1, 0) * block
    _match("state", "number of local tokens", state.codes.shape[2], position - start)
    codes = np.concatenate([state.codes, codes], axis=2)
    values = np.concatenate([state.values, v], axis=2)

    out, lse = np.zeros((B, H, N, E)), np.zeros((B, H, N))
    for n in range(position // block, (position + N) // block + 1):
        # The cache holds the blocks up to n - 2.
        first = max(n - 1, 0) * block
        if first > start:
            rows = slice(0, first - start)
            mean, count = codebook_accumulate(codes[:, :, rows], values[:, :, rows], mean, count)
            codes, values, start = codes[:, :, rows.stop :], values[:, :, rows.stop :], first
        for t in range(max(n * block, position), min((n + 1) * block, position + N)):
            i, j = t - position, np.arange(start, t + 1)
            for b, h in np.ndindex(B, H):
                g = h // (H // G)
                table = scale * (codebook[g] @ q[b, h, i])
                near = table[codes[b, g, j - start]] + local(b, h, i, j)
                out[b, h, i], lse[b, h, i] = _attend(
                    np.concatenate([near, table]),
                    np.concatenate([values[b, g, j - start], mean[b, g]]),
                    np.concatenate([np.ones(len(j)), count[b, g]]),
                    weighting,
                )
    results: list[np.ndarray | VQState] = [out]
    if return_lse:
        results.append(lse)
    if return_state:
        results.append(VQState(mean, count, codes, values, position + N))
    return results[0] if len(results) == 1 else tuple(results)


def vq_decode(q, k, v, codebook, state, *, block, bias=None, scale=1.0, weighting="softmax"):
    """One token: its output and the next state."""
    _match("q", "length", np.asarray(q).shape[2], 1)
    return vq_linear(q, k, v, codebook, block=block, bias=bias, scale=scale, weighting=weighting,
                     state=state, return_state=True)  # fmt: skip
