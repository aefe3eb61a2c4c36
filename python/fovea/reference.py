# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""NumPy float64 references for the soft-max patterns.

Written from the definitions alone, so that they can disagree with the
compiler.  They favour being obviously right over being fast: `dense`,
`fast_multipole` and `fast_multipole_linear` visit every (query, key) entry.
`fast_multipole_blocked` is the exception: it does the same sums in time linear
in N, for checks at lengths the others cannot reach, and is itself tested
against `fast_multipole`.

Arrays may have any floating type (bfloat16 from ml_dtypes included); all
arithmetic and all results are float64 (`fast_multipole_blocked`: `dtype`).

Non-finite numbers.  Every query that reads a key with a NaN or an infinity
gets a NaN row; every query that reads a value with one gets a NaN in that
column.  A query reads an entry that its mask admits and whose bias and log
weight are not -inf.  Queries that do not read it are unaffected.  A
non-finite query makes its own row NaN.
"""

import math
import operator

import numpy as np

__all__ = [
    "average_weights",
    "dense",
    "dense_flops",
    "fast_multipole",
    "fast_multipole_blocked",
    "fast_multipole_flops",
    "fast_multipole_linear",
    "num_levels",
    "owning_level",
    "summarize",
    "summary_counts",
]

# Query rows scored at a time: bounds the memory at rows x keys.
_ROWS = 256


# ----------------------------------------------------------------------------
# Arguments
# ----------------------------------------------------------------------------


def _array(name, value, rank, layout):
    """The float64 copy of an argument, after checking its type and rank."""
    array = np.asarray(value)
    if array.dtype.kind != "f" and array.dtype.name != "bfloat16":
        raise ValueError(
            f"{name}: found element type {array.dtype}, needed a floating type"
        )
    if array.ndim != rank:
        raise ValueError(f"{name}: found rank {array.ndim}, needed rank {rank} {layout}")
    return array.astype(np.float64)


def _integer(name, value, least):
    if isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name}: found {value!r}, needed an integer of at least {least}")
    try:
        number = operator.index(value)
    except TypeError:
        raise ValueError(
            f"{name}: found {value!r}, needed an integer of at least {least}"
        ) from None
    if number < least:
        raise ValueError(f"{name}: found {number}, needed an integer of at least {least}")
    return number


def _scale(scale, width):
    if scale is None:
        return 1.0 / math.sqrt(width)
    try:
        number = float(scale)
    except (TypeError, ValueError):
        raise ValueError(f"scale: found {scale!r}, needed a finite number") from None
    if not math.isfinite(number):
        raise ValueError(f"scale: found {number}, needed a finite number")
    return number


def _match(name, what, found, needed):
    if found != needed:
        raise ValueError(f"{name}: found {what} {found}, needed {needed}")


def _queries_keys_values(q, k, v, same_length):
    """Checks q [B,H,N,D], k [B,G,M,D] and v [B,G,M,E] against each other."""
    q = _array("q", q, 4, "[B,H,N,D]")
    k = _array("k", k, 4, "[B,G,M,D]")
    v = _array("v", v, 4, "[B,G,M,E]")
    _match("k", "batch", k.shape[0], q.shape[0])
    _match("v", "batch", v.shape[0], q.shape[0])
    heads, groups = q.shape[1], k.shape[1]
    if groups == 0 or heads % groups != 0:
        raise ValueError(
            f"k: found {groups} heads, needed a divisor of the {heads} heads of q"
        )
    _match("v", "head count", v.shape[1], groups)
    if q.shape[3] == 0:
        raise ValueError("q: found head width 0, needed at least 1")
    _match("k", "head width", k.shape[3], q.shape[3])
    _match("v", "length", v.shape[2], k.shape[2])
    if same_length:
        _match("k", "length", k.shape[2], q.shape[2])
    return q, k, v


def _broadcast(name, value, shape):
    array = np.asarray(value)
    array = _array(name, value, array.ndim, "")
    try:
        return np.broadcast_to(array, shape)
    except ValueError:
        raise ValueError(
            f"{name}: found shape {array.shape}, needed one that broadcasts to {shape}"
        ) from None


# ----------------------------------------------------------------------------
# Soft-max with masks
# ----------------------------------------------------------------------------


def _scores(q, k):
    """q k^T, NaN wherever the query or the key is not finite."""
    finite_q = np.isfinite(q).all(axis=-1)
    finite_k = np.isfinite(k).all(axis=-1)
    scores = np.where(finite_q[:, None], q, 0.0) @ np.where(finite_k[:, None], k, 0.0).T
    scores[~finite_q, :] = np.nan
    scores[:, ~finite_k] = np.nan
    return scores


def _softmax(scores, admitted):
    """Row-wise soft-max over the admitted entries, and its log-sum-exp.

    A row without an admitted entry has weights 0 and log-sum-exp -inf.
    """
    scores = np.where(admitted, scores, -np.inf)
    if scores.shape[1] == 0:
        return scores, np.full(scores.shape[0], -np.inf)
    with np.errstate(invalid="ignore", divide="ignore"):
        top = scores.max(axis=1)
        shift = np.where(top == -np.inf, 0.0, top)
        weights = np.exp(scores - shift[:, None])
        total = weights.sum(axis=1)
        lse = shift + np.log(total)
        weights /= np.where(total == 0.0, 1.0, total)[:, None]
    return weights, lse


def _weighted_values(weights, admitted, v):
    """weights @ v, in which an entry that is not admitted is not read.

    The plain product would turn a weight of 0 times NaN into NaN.
    """
    finite = np.isfinite(v)
    out = weights @ np.where(finite, v, 0.0)
    if not finite.all():
        read = (admitted.astype(np.float64) @ (~finite).astype(np.float64)) > 0
        out[read] = np.nan
    return out


# ----------------------------------------------------------------------------
# Dense
# ----------------------------------------------------------------------------


def _dense_mask(rows, N, M, causal, window):
    """Entry (i,j) is admitted, for the query rows `rows` and all M keys."""
    distance = rows[:, None] + (M - N) - np.arange(M)[None, :]
    admitted = np.ones(distance.shape, dtype=bool)
    if causal:
        admitted &= distance >= 0
        if window is not None:
            admitted &= distance < window
    elif window is not None:
        admitted &= np.abs(distance) < window
    return admitted


def dense(
    q,
    k,
    v,
    *,
    scale=None,
    causal=False,
    window=None,
    log_weight=None,
    bias=None,
    return_lse=False,
):
    """softmax(scale q k^T + log_weight[key] + bias[query,key] + mask) v."""
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

    out = np.zeros((B, H, N, E))
    lse = np.full((B, H, N), -np.inf)
    for b, h in np.ndindex(B, H):
        g = h // (H // G)
        for first in range(0, N, _ROWS):
            rows = np.arange(first, min(first + _ROWS, N))
            admitted = _dense_mask(rows, N, M, causal, window)
            scores = scale * _scores(q[b, h, rows], k[b, g])
            for term in (
                None if log_weight is None else log_weight[b, g][None, :],
                None if bias is None else bias[b, h, rows],
            ):
                if term is not None:
                    # Minus infinity removes the entry, like the mask.
                    admitted &= ~np.isneginf(term)
                    scores += term
            weights, lse[b, h, rows] = _softmax(scores, admitted)
            out[b, h, rows] = _weighted_values(weights, admitted, v[b, g])
    return (out, lse) if return_lse else out


# ----------------------------------------------------------------------------
# Levels and summaries of the fast multipole pattern
# ----------------------------------------------------------------------------


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


def _summaries(x, weights, bias, head_map):
    """Summaries of x [B,A,N,D]; head a uses weights[head_map[a]].

    Only present tokens enter a sum: the last interval is cut, not padded, so
    whatever its weights for absent tokens hold does not matter.
    """
    B, A, N, D = x.shape
    p, size = weights.shape[1:3]
    count = -(-N // size)
    out = np.zeros((B, A, count * p, D))
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


# ----------------------------------------------------------------------------
# Fast multipole
# ----------------------------------------------------------------------------


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
    return_lse=False,
):
    """One soft-max over all tokens j, entry (i,j) scored at its owning level.

    This is the per-token form.  Its terms for the tokens of one summary are
    equal, so it equals a soft-max over distinct summaries in which each one
    carries the logarithm of how many present tokens it stands for; a summary
    that stands for none has no term.  Without `multiplicity` a summary counts
    once, however many tokens it stands for: its tokens share one term.
    """
    q, k, v = _queries_keys_values(q, k, v, same_length=True)
    B, H, N, D = q.shape
    G, E = k.shape[1], v.shape[3]
    scale = _scale(scale, D)
    m, L, p, (key_levels, value_levels) = _multipole_levels(
        N,
        G,
        group,
        [
            ("key", key_weights, key_biases, D),
            ("value", value_weights, value_biases, E),
        ],
    )
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
            admitted = np.ones(owner.shape, dtype=bool)
            if causal:
                admitted = tokens[None, :] <= rows[:, None]
            scores = scale * _scores(q[b, h, rows], k[b, g])
            for level in range(1, L + 1):
                size = 2 ** (level - 1) * m
                index = tokens * p // size
                coarse = scale * _scores(q[b, h, rows], keys[level][b, g])[:, index]
                if not multiplicity:
                    coarse = coarse - np.log(summary_counts(N, p, size)[index])
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
                admitted = owner == level
                if causal:
                    admitted &= past
                scores = scale * _scores(queries[level][b, h], keys[level][b, g])
                weights, lse = _softmax(scores[row_index][:, token_index], admitted)
                out[b, h, rows] += _weighted_values(
                    weights, admitted, values[level][b, g][token_index]
                )
    return out


# ----------------------------------------------------------------------------
# Fast multipole in linear time
# ----------------------------------------------------------------------------


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
    q, k, v = _queries_keys_values(q, k, v, same_length=True)
    B, H, N, D = q.shape
    G, E = k.shape[1], v.shape[3]
    scale = _scale(scale, D)
    m, L, p, (key_levels, value_levels) = _multipole_levels(
        N,
        G,
        group,
        [
            ("key", key_weights, key_biases, D),
            ("value", value_weights, value_biases, E),
        ],
    )
    dtype = np.dtype(dtype).type
    q, k, v = (x.astype(dtype) for x in (q, k, v))
    keys = [_fast_summaries(k, w, b, dtype) for w, b in key_levels]
    values = [_fast_summaries(v, w, b, dtype) for w, b in value_levels]

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
        block_keys = np.concatenate(block_keys, axis=2)[:, :, None]
        block_values = np.concatenate(block_values, axis=2)[:, :, None]
        rows = q[:, :, first:last].reshape(B, G, H // G, last - first, D)
        scores = (rows @ block_keys.swapaxes(-1, -2)) * dtype(scale)
        scores += np.concatenate(log_weights).astype(dtype)
        if causal:
            future = np.arange(near.start, near.stop) > np.arange(first, last)[:, None]
            scores[..., : near.stop - near.start][..., future] = -np.inf
        # Never empty: a query always reads its own token.
        top = scores.max(axis=-1, keepdims=True)
        terms = np.exp(scores - top)
        total = terms.sum(axis=-1, keepdims=True)
        out[:, :, first:last] = (terms @ block_values / total).reshape(
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


# ----------------------------------------------------------------------------
# Useful work
# ----------------------------------------------------------------------------


def dense_flops(N, M, D, E, *, causal=False, window=None):
    """Useful floating-point operations of one head: 2 (D + E) per admitted
    (query, key) pair."""
    pairs = 0
    for first in range(0, N, _ROWS):
        rows = np.arange(first, min(first + _ROWS, N))
        last = rows + (M - N) if causal else np.full(rows.shape, M - 1)
        begin = np.zeros(rows.shape, dtype=np.int64)
        if window is not None:
            begin = np.maximum(begin, rows + (M - N) - window + 1)
            last = np.minimum(last, rows + (M - N) + window - 1)
        count = np.minimum(last, M - 1) - np.maximum(begin, 0) + 1
        pairs += int(np.maximum(count, 0).sum())
    return 2 * (D + E) * pairs


def fast_multipole_flops(N, m, p, D, E, *, causal=False):
    """Useful floating-point operations of one head, (attention, summaries).

    Attention: 2 (D + E) per pair of a query and a token or summary that it
    reads.  Summaries: 2 p N per level and column, of keys and values.
    """
    L = num_levels(N, m)
    counts = [summary_counts(N, p, 2**index * m) for index in range(L)]
    pairs = 0
    for block in range(-(-N // m)):
        first, last = block * m, min(block * m + m, N)
        rows, begin = last - first, max(first - m, 0)
        if causal:
            pairs += rows * (first - begin) + rows * (rows + 1) // 2
        else:
            pairs += rows * (min(last + m, N) - begin)
        for level, (start, stop) in _far_intervals(block, N, m, L, causal):
            present = np.count_nonzero(counts[level - 1][start * p : stop * p])
            pairs += rows * int(present)
    return 2 * (D + E) * pairs, 2 * p * N * L * (D + E)
