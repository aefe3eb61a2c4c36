# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fast multipole attention, token by token."""

import numpy as np

from ._arguments import _array, _integer, _match, _queries_keys_values, _scale
from ._softmax import _ROWS, _scores, _softmax, _weighted_values

__all__ = [
    "average_weights",
    "fast_multipole",
    "fast_multipole_linear",
    "num_levels",
    "owning_level",
    "summarize",
    "summary_counts",
]


def num_levels(N, m):
    """The least L with N <= m 2^(L+1)."""
    N = _integer("N", N, 0)
    m = _integer("m", m, 1)
    L = 0
    while N > m * 2 ** (L + 1):
        L += 1
    return L


def owning_level(i, j, m, L):
    """Which level owns entry (i,j); i and j broadcast against each other.

    Level l owns whole pairs of intervals of m_l = 2^(l-1) m tokens (level 0:
    of m tokens): those at least two apart whose parents are equal or
    neighbours.  So for one query block every summary belongs to one level,
    with all the tokens it stands for.
    """
    i, j = np.broadcast_arrays(np.asarray(i), np.asarray(j))
    owner = np.where(np.abs(i // m - j // m) <= 1, 0, -1)
    for level in range(1, L + 1):
        size = 2 ** (level - 1) * m
        apart = np.abs(i // size - j // size) >= 2
        parents_near = np.abs(i // (2 * size) - j // (2 * size)) <= 1
        owner = np.where(apart & (parents_near | (level == L)), level, owner)
    return owner


def average_weights(p, m_l, D, W=1):
    """Weights [W,p,m_l,D] with which summary a averages tokens
    [a m_l/p, (a+1) m_l/p) of its interval."""
    p = _integer("p", p, 1)
    m_l = _integer("m_l", m_l, 1)
    D = _integer("D", D, 1)
    W = _integer("W", W, 1)
    if m_l % p != 0:
        raise ValueError(f"m_l: found {m_l}, needed a multiple of p = {p}")
    part = m_l // p
    weights = np.zeros((W, p, m_l, D))
    for a in range(p):
        weights[:, a, a * part : (a + 1) * part, :] = 1.0 / part
    return weights


def summary_counts(N, p, m_l):
    """How many of the N tokens each summary stands for, [ceil(N/m_l) p].

    Summary a of interval g stands for tokens g m_l + [a m_l/p, (a+1) m_l/p).
    """
    part = m_l // p
    first = np.arange(-(-N // m_l) * p) * part
    return np.clip(N - first, 0, part)


def _present(mask, B, N):
    """Which tokens are present, [B,N]: all without a mask."""
    if mask is None:
        return np.ones((B, N), dtype=bool)
    mask = np.asarray(mask, dtype=bool)
    _match("mask", "shape", mask.shape, (B, N))
    return mask


def _keep(present, *arrays):
    """Arrays [B,A,N,...] with zeros for absent tokens, whatever was there."""
    return [
        np.where(present.reshape(present.shape[0], 1, -1, *[1] * (x.ndim - 3)), x, 0)
        for x in arrays
    ]


def _present_counts(present, p, m_l):
    """How many of the tokens `present` [N] each summary stands for."""
    part = m_l // p
    N = len(present)
    padded = np.zeros(-(-N // m_l) * m_l, dtype=int)
    padded[:N] = present
    return padded.reshape(-1, part).sum(axis=1)


def _summaries(x, weights, bias, head_map):
    """Summaries of x [B,A,N,D]; head a uses weights[head_map[a]].

    Only present tokens enter a sum: the last interval is cut, not padded, so
    whatever its weights for absent tokens hold does not matter.
    """
    B, A, N, D = x.shape
    p, size = weights.shape[1:3]
    count = -(-N // size)
    out = np.zeros((B, A, count * p, D), x.dtype)
    with np.errstate(invalid="ignore"):
        for head in range(A):
            w = weights[head_map[head]]
            for g in range(count):
                tokens = x[:, head, g * size : (g + 1) * size, :]
                sums = np.einsum("atd,btd->bad", w[:, : tokens.shape[1], :], tokens)
                if bias is not None:
                    sums = sums + bias[head_map[head]]
                out[:, head, g * p : (g + 1) * p, :] = sums
    return out


def _weights_and_bias(name, weights, bias, bias_name, groups, size, width, p):
    """Checks the weights [W,p,m_l,D] of one level and their bias [W,p,D]."""
    weights = _array(name, weights, 4, "[W,p,m_l,D]")
    if weights.shape[0] not in (1, groups):
        raise ValueError(f"{name}: found W = {weights.shape[0]}, needed 1 or {groups}")
    if p is None:
        p = weights.shape[1]
        if p == 0:
            raise ValueError(f"{name}: found rank p = 0, needed at least 1")
    _match(name, "rank p", weights.shape[1], p)
    _match(name, "interval size", weights.shape[2], size)
    _match(name, "width", weights.shape[3], width)
    if bias is not None:
        bias = _array(bias_name, bias, 3, "[W,p,D]")
        _match(bias_name, "shape", bias.shape, (weights.shape[0], p, width))
    return weights, bias


def summarize(x, weights, bias=None, *, interval):
    """out[g p + a] = bias[a] + sum_t weights[a,t] * x[g interval + t]."""
    x = _array("x", x, 4, "[B,G,N,D]")
    interval = _integer("interval", interval, 1)
    groups, width = x.shape[1], x.shape[3]
    weights, bias = _weights_and_bias(
        "weights", weights, bias, "bias", groups, interval, width, None
    )
    return _summaries(x, weights, bias, _head_map(weights, groups, groups))


def _head_map(weights, heads, groups):
    """Row of the weights' leading axis for each of `heads` heads."""
    shared = weights.shape[0] == 1
    return [0 if shared else h // (heads // groups) for h in range(heads)]


def _level_list(name, values, L, optional, reason):
    if values is None and optional:
        return [None] * L
    try:
        values = list(values)
    except TypeError:
        raise ValueError(
            f"{name}: found {type(values).__name__}, needed a list of {L} arrays"
        ) from None
    if len(values) != L:
        raise ValueError(f"{name}: found {len(values)} levels, needed {L} ({reason})")
    return values


def _multipole_levels(N, groups, m, tensors):
    """Checks the weights and biases of every level.

    `tensors` lists (name, weights, biases, width).  Returns L, the rank p
    (None without levels) and one list of (weights, bias) per tensor, level 1
    first.
    """
    m = _integer("group", m, 1)
    L = num_levels(N, m)
    reason = f"{N} tokens in groups of {m}"
    p = None
    checked = []
    for name, weights, biases, width in tensors:
        weights = _level_list(f"{name}_weights", weights, L, False, reason)
        biases = _level_list(f"{name}_biases", biases, L, True, reason)
        pairs = []
        for index in range(L):
            pair = _weights_and_bias(
                f"{name}_weights[{index}]",
                weights[index],
                biases[index],
                f"{name}_biases[{index}]",
                groups,
                2**index * m,
                width,
                p,
            )
            p = pair[0].shape[1]
            if m % p != 0:
                raise ValueError(f"group: found {m}, needed a multiple of the rank p = {p}")
            pairs.append(pair)
        checked.append(pairs)
    return m, L, p, checked


def _multipole_operands(
    q, k, v, key_weights, value_weights, group, key_biases, value_biases, scale
):
    """What both forms of `fast_multipole` read, checked; the last is that of
    `_multipole_levels`."""
    q, k, v = _queries_keys_values(q, k, v, same_length=True)
    levels = _multipole_levels(
        q.shape[2],
        k.shape[1],
        group,
        [
            ("key", key_weights, key_biases, q.shape[3]),
            ("value", value_weights, value_biases, v.shape[3]),
        ],
    )
    return q, k, v, _scale(scale, q.shape[3]), levels


def fast_multipole(
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
    mask=None,
    return_lse=False,
):
    """One soft-max over all tokens j, entry (i,j) scored at its owning level.

    This is the per-token form.  Its terms for the tokens of one summary are
    equal, so it equals a soft-max over distinct summaries in which each one
    carries the logarithm of how many present tokens it stands for; a summary
    that stands for none has no term.  Without `multiplicity` a summary counts
    once, however many tokens it stands for: its tokens share one term.

    Tokens that are not in `mask` [B,N] have no terms and no results, and count
    as zero in summaries.
    """
    q, k, v, scale, (m, L, p, (key_levels, value_levels)) = _multipole_operands(
        q, k, v, key_weights, value_weights, group, key_biases, value_biases, scale
    )
    B, H, N, D = q.shape
    G, E = k.shape[1], v.shape[3]
    present = _present(mask, B, N)
    q, k, v = _keep(present, q, k, v)
    # Level 0 first: the tokens themselves.
    keys = [k] + [_summaries(k, w, b, _head_map(w, G, G)) for w, b in key_levels]
    values = [v] + [_summaries(v, w, b, _head_map(w, G, G)) for w, b in value_levels]

    tokens = np.arange(N)
    out = np.zeros((B, H, N, E))
    lse = np.full((B, H, N), -np.inf)
    for b, h in np.ndindex(B, H):
        g = h // (H // G)
        for first in range(0, N, _ROWS):
            rows = np.arange(first, min(first + _ROWS, N))
            owner = owning_level(rows[:, None], tokens[None, :], m, L)
            admitted = present[b, rows, None] & present[b, None, :]
            if causal:
                admitted &= tokens[None, :] <= rows[:, None]
            scores = scale * _scores(q[b, h, rows], k[b, g])
            for level in range(1, L + 1):
                size = 2 ** (level - 1) * m
                index = tokens * p // size
                coarse = scale * _scores(q[b, h, rows], keys[level][b, g])[:, index]
                if not multiplicity:
                    counts = _present_counts(present[b], p, size)[index]
                    coarse = coarse - np.log(np.maximum(counts, 1))
                scores = np.where(owner == level, coarse, scores)
            weights, lse[b, h, rows] = _softmax(scores, admitted)
            for level in range(L + 1):
                mine = admitted & (owner == level)
                level_values = values[level][b, g]
                if level > 0:
                    level_values = level_values[tokens * p // (2 ** (level - 1) * m)]
                out[b, h, rows] += _weighted_values(
                    np.where(mine, weights, 0.0), mine, level_values
                )
            # A row whose scores hold a NaN is NaN, its masked weights too.
            out[b, h, rows[np.isnan(lse[b, h, rows])]] = np.nan
    return (out, lse) if return_lse else out


def fast_multipole_linear(
    q,
    k,
    v,
    query_weights,
    key_weights,
    value_weights,
    *,
    group,
    causal=False,
    allow_query_lookahead=False,
    query_biases=None,
    key_biases=None,
    value_biases=None,
    scale=None,
    mask=None,
):
    """Queries are summarised too, each level has its own soft-max over the
    tokens of its set, and the outputs of the levels are summed.

    A query summary mixes later queries of its interval into a row, so the
    causal form is not strictly causal and has to be asked for.
    """
    q, k, v = _queries_keys_values(q, k, v, same_length=True)
    if causal and not allow_query_lookahead:
        raise ValueError(
            "causal: found True with allow_query_lookahead False, needed "
            "allow_query_lookahead True (query summaries contain later queries)"
        )
    B, H, N, D = q.shape
    G, E = k.shape[1], v.shape[3]
    scale = _scale(scale, D)
    m, L, p, (query_levels, key_levels, value_levels) = _multipole_levels(
        N,
        G,
        group,
        [
            ("query", query_weights, query_biases, D),
            ("key", key_weights, key_biases, D),
            ("value", value_weights, value_biases, E),
        ],
    )
    present = _present(mask, B, N)
    q, k, v = _keep(present, q, k, v)
    # Query head h uses the weights of its key/value head.
    queries = [q] + [_summaries(q, w, b, _head_map(w, H, G)) for w, b in query_levels]
    keys = [k] + [_summaries(k, w, b, _head_map(w, G, G)) for w, b in key_levels]
    values = [v] + [_summaries(v, w, b, _head_map(w, G, G)) for w, b in value_levels]

    tokens = np.arange(N)
    out = np.zeros((B, H, N, E))
    for b, h in np.ndindex(B, H):
        g = h // (H // G)
        for first in range(0, N, _ROWS):
            rows = np.arange(first, min(first + _ROWS, N))
            owner = owning_level(rows[:, None], tokens[None, :], m, L)
            past = tokens[None, :] <= rows[:, None]
            for level in range(L + 1):
                row_index, token_index = rows, tokens
                if level > 0:
                    size = 2 ** (level - 1) * m
                    row_index, token_index = rows * p // size, tokens * p // size
                admitted = (owner == level) & present[b, rows, None] & present[b, None, :]
                if causal:
                    admitted &= past
                scores = scale * _scores(queries[level][b, h], keys[level][b, g])
                weights, lse = _softmax(scores[row_index][:, token_index], admitted)
                out[b, h, rows] += _weighted_values(
                    weights, admitted, values[level][b, g][token_index]
                )
    return out
