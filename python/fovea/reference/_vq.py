# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention over quantized keys: the definition, and the forms linear in N.

`vq` is the definition: every query reads the quantized keys one by one, in
O(N^2).  `vq_linear` computes the same from sources, as Theorem 3.7 of
Transformer-VQ has it, and takes and returns a state; `vq_encoder` is Theorem
3.5.

`vq_backward` forms all entries: N x N, and with a state those of the tokens that it
keeps and of its means.  Keys of a query's own block and of the `memory` blocks before
pass a gradient on to `k`, straight through the quantizer; older ones are read as codewords,
which are constants.

With `padded` a code may be -1: nobody reads that token, and it reads nothing.
"""

from typing import NamedTuple

import numpy as np

from ._arguments import _array, _integer, _match, _scale
from ._quantized import _codebook, _codes, codebook_accumulate, quantize
from ._softmax import _product_of_read

__all__ = [
    "VQState",
    "VQStateGradient",
    "vq",
    "vq_backward",
    "vq_decode",
    "vq_encoder",
    "vq_initial_state",
    "vq_linear",
]

_WEIGHTINGS = ("softmax", "squared_relu")


class VQState(NamedTuple):
    """What later tokens need of earlier ones.

    `position` tokens were taken in.  Those that are older than the memory of the block
    that `position` lies in are in `mean` [B,G,S,E] and `count` [B,G,S]; the others are `codes` [B,G,R] and
    `values` [B,G,R,E].
    """

    mean: np.ndarray
    # A field hides the method of tuples.
    count: np.ndarray  # type: ignore[assignment]
    codes: np.ndarray
    values: np.ndarray
    position: int


def _arguments(q, k, v, codebook, weighting, padded):
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
    return q, _codes(codes, (B, G, N), codebook.shape[1], absent=padded), v, codebook


def _local_bias(bias, shape, block, memory, position=0):
    """The bias [.,.,N,(M + 1) Lb] of queries from `position` on as a function of
    query i and keys j: column 0 is the first key of the memory."""
    if bias is None:
        return lambda b, h, i, j: 0.0
    columns = (memory + 1) * block
    bias = np.broadcast_to(_array("bias", bias, 4, "[B,H,N,(M + 1) Lb]"), (*shape, columns))

    def value(b, h, i, j):
        column = j - ((position + i) // block - memory) * block
        inside = (column >= 0) & (column < columns)
        return np.where(inside, bias[b, h, i, np.clip(column, 0, columns - 1)], 0.0)

    return value


def _of_head(terms, h):
    """Those of a head, or of all."""
    return np.asarray(terms)[min(h, len(terms) - 1)]


def _distances(block, memory, position, length):
    """[length, (M + 1) Lb]: of queries from `position` on from the keys of their columns."""
    column = np.arange((memory + 1) * block)
    return (position + np.arange(length))[:, None] % block + memory * block - column


def _relative_bias(q, relative, distance_bias, bias, block, memory, position, scale):
    """`bias` with the terms by distance, which say the same in its columns: `relative` is
    (r [.,R,D], u [.,D]) and adds `scale (q_i + u) . r[i - j]`."""
    if relative is None and distance_bias is None:
        return bias
    B, H, N, _ = q.shape
    distance = _distances(block, memory, position, N)
    total = np.zeros((B, H, *distance.shape))
    if bias is not None:
        total += _array("bias", bias, 4, "[B,H,N,(M + 1) Lb]")
    nearest = np.maximum(distance, 0)
    for b, h in np.ndindex(B, H):
        terms = np.zeros(distance.shape)
        if relative is not None:
            r, u = (_of_head(part, h) for part in relative)
            terms += np.take_along_axis(scale * (q[b, h] + u) @ r.T, nearest, 1)
        if distance_bias is not None:
            terms += _of_head(distance_bias, h)[nearest]
        total[b, h] += np.where(distance >= 0, terms, 0.0)
    return total


def _present(codes, query, last):
    """The tokens below `last` that a query reads: none if it is absent itself."""
    return np.flatnonzero(codes[:last] >= 0) if codes[query] >= 0 else np.zeros(0, int)


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


def vq(q, k, v, codebook, *, block, memory=1, causal=True, padded=False, bias=None, relative=None,
       distance_bias=None, scale=1.0, weighting="softmax", return_lse=False):  # fmt: skip
    """The definition: dense attention over the quantized keys C[codes].

    `k` holds keys, which are quantized first, or integer codes [B,G,N].  With
    `causal`, `bias` [.,.,N,(M + 1) Lb] is added to the scores of the keys of a query's
    own block and of the `memory` before; so are terms by distance (see `_relative_bias`).
    """
    q, codes, v, codebook = _arguments(q, k, v, codebook, weighting, padded)
    block, memory = _integer("block", block, 1), _integer("memory", memory, 0)
    scale = _scale(scale, q.shape[3])
    bias = _relative_bias(q, relative, distance_bias, bias, block, memory, 0, scale)
    if bias is not None and not causal:
        raise ValueError("bias: found one without causal, needed both or none")
    B, H, N, _ = q.shape
    G, E = v.shape[1], v.shape[3]
    local = _local_bias(bias, (B, H, N), block, memory)
    out, lse = np.zeros((B, H, N, E)), np.zeros((B, H, N))
    for b, h, i in np.ndindex(B, H, N):
        g = h // (H // G)
        j = _present(codes[b, g], i, i + 1 if causal else N)
        scores = scale * (codebook[g][codes[b, g, j]] @ q[b, h, i]) + local(b, h, i, j)
        out[b, h, i], lse[b, h, i] = _attend(scores, v[b, g, j], np.ones(len(j)), weighting)
    return (out, lse) if return_lse else out


def vq_encoder(q, k, v, codebook, *, padded=False, scale=1.0, weighting="softmax",
               return_lse=False):  # fmt: skip
    """Every query reads the codewords, each as often as a key has it, with the
    mean of the values of those keys (Theorems 3.4 and 3.5)."""
    q, codes, v, codebook = _arguments(q, k, v, codebook, weighting, padded)
    B, H, N, _ = q.shape
    G, E, S = v.shape[1], v.shape[3], codebook.shape[1]
    mean, count = codebook_accumulate(codes, v, np.zeros((B, G, S, E)), np.zeros((B, G, S), int))
    out, lse = np.zeros((B, H, N, E)), np.zeros((B, H, N))
    for b, h, i in np.ndindex(B, H, N):
        g = h // (H // G)
        scores = scale * (codebook[g] @ q[b, h, i])
        read = count[b, g] * (codes[b, g, i] >= 0)
        out[b, h, i], lse[b, h, i] = _attend(scores, mean[b, g], read, weighting)
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


def vq_linear(q, k, v, codebook, *, block, memory=1, padded=False, bias=None, relative=None,
              distance_bias=None, scale=1.0, weighting="softmax", state=None, return_state=False,
              return_lse=False):  # fmt: skip
    """Causal `vq` from sources (Theorems 3.6 and 3.7): the block of a query and
    `memory` before it token by token, and everything older through the codebook, with
    the counts and mean values of its codes.

    The tokens continue those of `state`, if there is one.
    """
    q, codes, v, codebook = _arguments(q, k, v, codebook, weighting, padded)
    block, memory = _integer("block", block, 1), _integer("memory", memory, 0)
    B, H, N, _ = q.shape
    G, E, S = v.shape[1], v.shape[3], codebook.shape[1]
    if state is None:
        state = vq_initial_state(B, G, S, E)
    position, mean, count = state.position, state.mean, state.count
    _match("state", "shape of mean", mean.shape, (B, G, S, E))
    bias = _relative_bias(q, relative, distance_bias, bias, block, memory, position, scale)
    local = _local_bias(bias, (B, H, N), block, memory, position)
    # Token j of the sequence is row j - start of these.
    start = max(position // block - memory, 0) * block
    _match("state", "number of local tokens", state.codes.shape[2], position - start)
    codes = np.concatenate([state.codes, codes], axis=2)
    values = np.concatenate([state.values, v], axis=2)

    out, lse = np.zeros((B, H, N, E)), np.zeros((B, H, N))
    for n in range(position // block, (position + N) // block + 1):
        # The cache holds the blocks before the memory.
        first = max(n - memory, 0) * block
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
                present = codes[b, g, j - start] >= 0
                out[b, h, i], lse[b, h, i] = _attend(
                    np.concatenate([near, table]),
                    np.concatenate([values[b, g, j - start], mean[b, g]]),
                    np.concatenate([present, count[b, g]]) * present[-1],
                    weighting,
                )
    results: list[np.ndarray | VQState] = [out]
    if return_lse:
        results.append(lse)
    if return_state:
        results.append(VQState(mean, count, codes, values, position + N))
    return results[0] if len(results) == 1 else tuple(results)


def vq_decode(q, k, v, codebook, state, *, block, memory=1, padded=False, bias=None, relative=None,
              distance_bias=None, scale=1.0, weighting="softmax"):  # fmt: skip
    """One token: its output and the next state."""
    _match("q", "length", np.asarray(q).shape[2], 1)
    return vq_linear(q, k, v, codebook, block=block, memory=memory, padded=padded, bias=bias,
                     relative=relative, distance_bias=distance_bias, scale=scale, weighting=weighting, state=state,
                     return_state=True)  # fmt: skip


class VQStateGradient(NamedTuple):
    """Gradients for the means of a VQState, and for the keys and the values of the
    tokens that it keeps."""

    mean: np.ndarray
    keys: np.ndarray
    values: np.ndarray


def _near(query, token, block, memory, causal):
    """Which tokens a query reads at all, and which of them one by one."""
    i, j = query[:, None], token
    if not causal:
        return np.ones((len(query), len(token)), bool), np.zeros((len(query), len(token)), bool)
    return j <= i, (j <= i) & (j // block >= i // block - memory)


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


def _pass_relative(q, relative, distance_bias, d_bias, block, memory, position, scale):
    """(d_q, d_r, d_u, d_distance_bias), that of q to be added, of the terms that `_relative_bias`
    adds to a bias with the gradient `d_bias`."""
    distance = _distances(block, memory, position, q.shape[2])
    d_q = np.zeros_like(q)
    d_r, d_u = (None, None) if relative is None else (np.zeros(np.shape(part)) for part in relative)
    d_t = None if distance_bias is None else np.zeros(np.shape(distance_bias))
    for b, h in np.ndindex(*q.shape[:2]):
        i, column = np.nonzero((d_bias[b, h] != 0) & (distance >= 0))
        d, gradient = distance[i, column], d_bias[b, h][i, column]
        if relative is not None:
            r, u = (_of_head(part, h) for part in relative)
            scaled = scale * gradient[:, None]
            np.add.at(d_q[b, h], i, scaled * r[d])
            np.add.at(_of_head(d_r, h), d, scaled * (q[b, h, i] + u))
            _of_head(d_u, h)[:] += (scaled * r[d]).sum(0)
        if d_t is not None:
            np.add.at(_of_head(d_t, h), d, gradient)
    return d_q, d_r, d_u, d_t


def vq_backward(d_out, q, k, v, codebook, *, block, memory=1, causal=True, padded=False, bias=None,
                relative=None, distance_bias=None, scale=1.0, weighting="softmax", d_lse=None, state=None,
                d_next_state=None):  # fmt: skip
    """(d_q, d_k, d_v, d_bias) of a scalar with gradients `d_out` and `d_lse` for
    the results of `vq`; d_bias is None without a bias.

    With terms by distance (d_r, d_u, d_distance_bias) follow as one tuple.
    With `state`, which `vq_linear` was given, its gradient, a VQStateGradient,
    follows; `d_next_state` is that for the state that it returned.
    """
    q, codes, v, codebook = _arguments(q, k, v, codebook, weighting, padded)
    block, memory = _integer("block", block, 1), _integer("memory", memory, 0)
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
    exists = codes >= 0
    values = np.concatenate([state.values, v, state.mean], 2).astype(v.dtype)
    query, token = state.position + np.arange(N), state.position - kept + np.arange(tokens)
    reads, near = _near(query, token, block, memory, causal)
    # Column of the bias for every pair; it means something for near ones.
    column = token - (query[:, None] // block - memory) * block
    read = (memory + 1) * block
    given, has_distances = bias, relative is not None or distance_bias is not None
    bias = _relative_bias(q, relative, distance_bias, bias, block, memory, state.position, scale)
    d_q, d_k, d_values = np.zeros_like(q), np.zeros((B, G, tokens, D)), np.zeros_like(values)
    d_bias = None
    if bias is not None:
        bias = np.broadcast_to(_array("bias", bias, 4, "[B,H,N,(M + 1) Lb]"), (B, H, N, read))
        d_bias = np.zeros(bias.shape)
    for b, h in np.ndindex(B, H):
        g = h // (H // G)
        keys = np.concatenate([codebook[g][codes[b, g]], codebook[g]])
        scores = scale * (q[b, h] @ keys.T)
        if bias is not None:
            local = np.take_along_axis(bias[b, h], np.clip(column, 0, read - 1), 1)
            scores[:, :tokens] += np.where(near, local, 0.0)
        count = np.concatenate([np.ones(tokens), state.count[b, g]]).astype(v.dtype)
        present = np.concatenate([reads & exists[b, g], np.broadcast_to(state.count[b, g] > 0, (N, S))], 1)
        present &= exists[b, g, kept:, None]
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
    terms: list = []
    if has_distances:
        d_near, *terms = _pass_relative(
            q, relative, distance_bias, d_bias, block, memory, state.position, scale)  # fmt: skip
        d_q += d_near
    if given is None or d_bias is None:
        d_bias = None
    else:
        shape = np.shape(given)
        axes = tuple(a for a in range(3) if shape[a] == 1 and d_bias.shape[a] != 1)
        d_bias = d_bias.sum(axes, keepdims=True)
    d_v, d_mean = d_values[:, :, :tokens], d_values[:, :, tokens:]
    if d_next_state is not None:
        end = state.position + N
        start = max(end // block - memory, 0) * block
        _pass_next(d_next_state, start - (state.position - kept), codes, state.count, d_k, d_v, d_mean)
        d_k[~exists] = d_v[~exists] = 0.0
    found = d_q, d_k[:, :, kept:], d_v[:, :, kept:], d_bias, *([tuple(terms)] if has_distances else [])
    if not has_state:
        return found
    return *found, VQStateGradient(d_mean, d_k[:, :, :kept], d_v[:, :, :kept])
