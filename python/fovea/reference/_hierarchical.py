# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fast multipole attention, token by token."""

from typing import Any, NamedTuple

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
    whatever its weights for absent tokens hold does not matter.  Weights
    [W,p,m_l,D,D] mix columns.
    """
    B, A, N, D = x.shape
    p, size = weights.shape[1:3]
    count = -(-N // size)
    out = np.zeros((B, A, count * p, D), x.dtype)
    product = "atde,btd->bae" if weights.ndim == 5 else "atd,btd->bad"
    with np.errstate(invalid="ignore"):
        for head in range(A):
            w = weights[head_map[head]]
            for g in range(count):
                tokens = x[:, head, g * size : (g + 1) * size, :]
                sums = np.einsum(product, w[:, : tokens.shape[1]], tokens)
                if bias is not None:
                    sums = sums + bias[head_map[head]]
                out[:, head, g * p : (g + 1) * p, :] = sums
    return out


def _weights_and_bias(name, weights, bias, bias_name, groups, size, width, p):
    """Checks the weights [W,p,m_l,D] or [W,p,m_l,D,D] of one level and their bias [W,p,D]."""
    mixes = np.ndim(weights) == 5
    weights = _array(name, weights, 5 if mixes else 4, "[W,p,m_l,D,D]" if mixes else "[W,p,m_l,D]")
    if weights.shape[0] not in (1, groups):
        raise ValueError(f"{name}: found W = {weights.shape[0]}, needed 1 or {groups}")
    if p is None:
        p = weights.shape[1]
        if p == 0:
            raise ValueError(f"{name}: found rank p = 0, needed at least 1")
    _match(name, "rank p", weights.shape[1], p)
    _match(name, "interval size", weights.shape[2], size)
    _match(name, "width", weights.shape[3:], (width,) * (weights.ndim - 3))
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


class _Family(NamedTuple):
    """One of q, k and v, and what its summaries are made of."""

    name: str
    x: np.ndarray
    weights: Any
    biases: Any = None
    summaries: Any = None


class _Level(NamedTuple):
    """Weights and bias of a level, or its ready-made summaries [B,A,n,p,D]."""

    weights: Any
    bias: Any
    summaries: Any


def _check_level(family, index, weights, bias, summaries, groups, size, p):
    B, heads, N, width = family.x.shape
    if summaries is None:
        at = f"[{index}]"
        weights, bias = _weights_and_bias(
            f"{family.name}_weights{at}", weights, bias, f"{family.name}_biases{at}", groups, size, width, p
        )
        return _Level(weights, bias, None)
    name = f"{family.name}_summaries[{index}]"
    summaries = _array(name, summaries, 5, "[B,G,ceil(N/m_l),p,D]")
    p = summaries.shape[3] if p is None else p
    _match(name, "shape", summaries.shape, (B, heads, -(-N // size), p, width))
    return _Level(None, None, summaries)


def _multipole_levels(groups, m, families):
    """Checks the weights and biases, or summaries, of every level.

    Returns the group, L, the rank p (None without levels) and one list of levels
    for each of `families`, level 1 first.
    """
    m = _integer("group", m, 1)
    N = families[0].x.shape[2]
    L = num_levels(N, m)
    reason = f"{N} tokens in groups of {m}"
    p = None
    checked = []
    for family in families:
        name, _, weights, biases, summaries = family
        if summaries is not None and not (weights is None and biases is None):
            raise ValueError(f"{name}_summaries: found them beside weights or biases, needed one of both")
        weights = _level_list(f"{name}_weights", weights, L, summaries is not None, reason)
        biases = _level_list(f"{name}_biases", biases, L, True, reason)
        summaries = _level_list(f"{name}_summaries", summaries, L, True, reason)
        levels = []
        for index, lists in enumerate(zip(weights, biases, summaries)):
            level = _check_level(family, index, *lists, groups, 2**index * m, p)
            p = level.summaries.shape[3] if level.weights is None else level.weights.shape[1]
            if m % p != 0:
                raise ValueError(f"group: found {m}, needed a multiple of the rank p = {p}")
            levels.append(level)
        checked.append(levels)
    return m, L, p, checked


def _level_rows(x, levels, groups):
    """x [B,A,N,D] itself and its summaries, level 1 first.  Head a of A uses the
    weights of its key head."""
    rows = [x]
    for weights, bias, summaries in levels:
        if summaries is None:
            rows.append(_summaries(x, weights, bias, _head_map(weights, x.shape[1], groups)))
        else:
            rows.append(summaries.reshape(*summaries.shape[:2], -1, summaries.shape[4]))
    return rows


def _multipole_operands(
    q, k, v, key_weights, value_weights, group, key_biases, value_biases, scale,
    key_summaries=None, value_summaries=None,
):  # fmt: skip
    """What both forms of `fast_multipole` read, checked; the last is that of
    `_multipole_levels`."""
    q, k, v = _queries_keys_values(q, k, v, same_length=True)
    levels = _multipole_levels(
        k.shape[1],
        group,
        [
            _Family("key", k, key_weights, key_biases, key_summaries),
            _Family("value", v, value_weights, value_biases, value_summaries),
        ],
    )
    return q, k, v, _scale(scale, q.shape[3]), levels


def fast_multipole(
    q,
    k,
    v,
    key_weights=None,
    value_weights=None,
    *,
    group,
    causal=False,
    key_biases=None,
    value_biases=None,
    key_summaries=None,
    value_summaries=None,
    scale=None,
    multiplicity=True,
    mask=None,
    return_lse=False,
):
    """One soft-max over all tokens j, entry (i,j) scored at its owning level.

    Summaries are sums with weights, or `key_summaries` and `value_summaries` in
    place of these.

    This is the per-token form.  Its terms for the tokens of one summary are
    equal, so it equals a soft-max over distinct summaries in which each one
    carries the logarithm of how many present tokens it stands for; a summary
    that stands for none has no term.  Without `multiplicity` a summary counts
    once, however many tokens it stands for: its tokens share one term.

    Tokens that are not in `mask` [B,N] have no terms and no results, and count
    as zero in summaries.
    """
    q, k, v, scale, (m, L, p, (key_levels, value_levels)) = _multipole_operands(
        q, k, v, key_weights, value_weights, group, key_biases, value_biases, scale,
        key_summaries, value_summaries,
    )  # fmt: skip
    B, H, N, D = q.shape
    G, E = k.shape[1], v.shape[3]
    present = _present(mask, B, N)
    q, k, v = _keep(present, q, k, v)
    # Level 0 first: the tokens themselves.
    keys, values = _level_rows(k, key_levels, G), _level_rows(v, value_levels, G)

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
    query_weights=None,
    key_weights=None,
    value_weights=None,
    *,
    group,
    causal=False,
    allow_query_lookahead=False,
    query_biases=None,
    key_biases=None,
    value_biases=None,
    query_summaries=None,
    key_summaries=None,
    value_summaries=None,
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
        G,
        group,
        [
            _Family("query", q, query_weights, query_biases, query_summaries),
            _Family("key", k, key_weights, key_biases, key_summaries),
            _Family("value", v, value_weights, value_biases, value_summaries),
        ],
    )
    present = _present(mask, B, N)
    q, k, v = _keep(present, q, k, v)
    queries = _level_rows(q, query_levels, G)
    keys, values = _level_rows(k, key_levels, G), _level_rows(v, value_levels, G)

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
