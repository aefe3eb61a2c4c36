# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradients of the soft-max patterns, derived by hand.

Each takes the gradient of the output, the arguments of the forward function and
its results, and gives gradients in the order of the arguments.
"""

import numpy as np

from ._arguments import _array, _broadcast, _integer, _match, _queries_keys_values, _scale
from ._dense import _apply, _dense_mask, _entries
from ._hierarchical import (
    _Family,
    _head_map,
    _keep,
    _level_rows,
    _multipole_levels,
    _present,
    _present_counts,
    owning_level,
)
from ._softmax import _product_of_read, _softmax

__all__ = [
    "dense_backward",
    "fast_multipole_backward",
    "fast_multipole_linear_backward",
    "summarize_backward",
]


def _results(d_out, out, lse, d_lse, rows, width):
    """Checks the forward's results and their gradients."""
    d_out = _array("d_out", d_out, 4, "[B,H,N,E]")
    out = _array("out", out, 4, "[B,H,N,E]")
    lse = _array("lse", lse, 3, "[B,H,N]")
    d_lse = np.zeros(rows, out.dtype) if d_lse is None else _array("d_lse", d_lse, 3, "[B,H,N]")
    for name, array, shape in (
        ("d_out", d_out, (*rows, width)),
        ("out", out, (*rows, width)),
        ("lse", lse, rows),
        ("d_lse", d_lse, rows),
    ):
        _match(name, "shape", array.shape, shape)
    return d_out, out, lse, d_lse


def _probabilities(scores, admitted, lse):
    """exp(scores - lse) where admitted; a row that read nothing has none."""
    admitted = admitted & ~np.isneginf(lse)[:, None]
    with np.errstate(invalid="ignore", over="ignore"):
        return np.where(admitted, np.exp(scores - lse[:, None]), 0.0)


def _sum_to(gradient, shape):
    """Sums over the axes along which `shape` was broadcast."""
    lead = gradient.ndim - len(shape)
    gradient = gradient.sum(axis=tuple(range(lead)))
    axes = tuple(axis for axis, extent in enumerate(shape) if extent == 1)
    return gradient.sum(axis=axes, keepdims=True)


def dense_backward(
    d_out,
    q,
    k,
    v,
    out,
    lse,
    *,
    d_lse=None,
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
):
    """(dq, dk, dv), then d_log_weight, d_bias and d_sink where these are given.

    With P = exp(s - lse), delta = rowsum(d_out * out) - d_lse and
    dS = P (d_out v^T - delta): dq = scale dS k, dk = scale dS^T q,
    dv = P^T d_out, and sums of dS; of a sink -sum(exp(sink - lse) delta).  With
    `score` = f, dS f'(scale q k^T) takes the place of dS in dq and dk; f' is a quotient
    of differences.
    """
    q, k, v = _queries_keys_values(q, k, v, same_length=False)
    B, H, N, D = q.shape
    G, M, E = k.shape[1], k.shape[2], v.shape[3]
    scale = _scale(scale, D)
    if window is not None:
        window = _integer("window", window, 0)
    d_out, out, lse, d_lse = _results(d_out, out, lse, d_lse, (B, H, N), E)
    term_shapes = [np.shape(term) for term in (log_weight, bias, sink)]
    if log_weight is not None:
        log_weight = _broadcast("log_weight", log_weight, (B, G, M))
    if bias is not None:
        bias = _broadcast("bias", bias, (B, H, N, M))
    sinks = np.full((B, H), -np.inf) if sink is None else _broadcast("sink", sink, (B, H))
    admitted = _dense_mask(np.arange(N), N, M, causal, window, prefix)

    dq, dk, dv = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    if lengths is not None or query_lengths is not None:
        d_weight, d_bias, d_sinks = np.zeros((B, G, M)), np.zeros((B, H, N, M)), np.zeros((B, H))
        for b, rows, keys in _entries(lengths, query_lengths, B, N, M):
            one, queries = slice(b, b + 1), slice(0, rows)
            d_out_b, q_b, out_b, lse_b, d_lse_b = (each[one, :, queries] for each in (d_out, q, out, lse, d_lse))
            dq[one, :, queries], dk[one, :, :keys], dv[one, :, :keys], *terms = dense_backward(
                d_out_b, q_b, k[one, :, :keys], v[one, :, :keys], out_b, lse_b,
                d_lse=d_lse_b, scale=scale, causal=causal, window=window, prefix=prefix, sink=sinks[one],
                log_weight=np.zeros((1, G, keys)) if log_weight is None else log_weight[one, :, :keys],
                bias=np.zeros((1, H, rows, keys)) if bias is None else bias[one, :, queries, :keys],
                score=score and (lambda s, _, *place, b=b: score(s, b, *place)),
            )  # fmt: skip
            d_weight[one, :, :keys], d_bias[one, :, queries, :keys], d_sinks[one] = (
                np.broadcast_to(term, shape)
                for term, shape in zip(terms, ((1, G, keys), (1, H, rows, keys), (1, H)))
            )
        wanted = zip((log_weight, bias, sink), (d_weight, d_bias, d_sinks), term_shapes)
        return (dq, dk, dv, *(_sum_to(d, shape) for given, d, shape in wanted if given is not None))
    d_scores, d_sinks = np.zeros((B, H, N, M), q.dtype), np.zeros((B, H), q.dtype)
    for b, h in np.ndindex(B, H):
        g = h // (H // G)
        scores, mine, slope = scale * (q[b, h] @ k[b, g].T), admitted, 1.0
        if score is not None:
            step, positions = 1e-6 * (1 + np.abs(scores)), np.arange(N) + (M - N)
            high, low = (_apply(score, scores + side, b, h, positions) for side in (step, -step))
            scores = _apply(score, scores, b, h, positions)
            mine = mine & ~np.isneginf(scores)
            with np.errstate(invalid="ignore"):
                slope = (high - low) / (2 * step)
        for term in (
            None if log_weight is None else log_weight[b, g][None, :],
            None if bias is None else bias[b, h],
        ):
            if term is not None:
                mine = mine & ~np.isneginf(term)
                scores = scores + term
        p = _probabilities(scores, mine, lse[b, h])
        delta = (d_out[b, h] * out[b, h]).sum(axis=-1) - d_lse[b, h]
        ds = np.where(mine, p * (d_out[b, h] @ v[b, g].T - delta[:, None]), 0.0)
        product = np.where(mine, ds * slope, 0.0)
        dq[b, h] = scale * _product_of_read(product, mine, k[b, g])
        dk[b, g] += scale * _product_of_read(product.T, mine.T, q[b, h])
        dv[b, g] += _product_of_read(p.T, mine.T, d_out[b, h])
        d_scores[b, h] = ds
        share = _probabilities(np.full((N, 1), sinks[b, h]), np.ones((N, 1), bool), lse[b, h])
        d_sinks[b, h] = -(share[:, 0] * delta).sum()
    gradients = [dq, dk, dv]
    if log_weight is not None:
        per_key = d_scores.reshape(B, G, H // G, N, M).sum(axis=(2, 3))
        gradients.append(_sum_to(per_key, term_shapes[0]))
    if bias is not None:
        gradients.append(_sum_to(d_scores, term_shapes[1]))
    if sink is not None:
        gradients.append(_sum_to(d_sinks, term_shapes[2]))
    return tuple(gradients)


def _summaries_backward(x, weights, bias, head_map, d_sums):
    """Gradients of `_summaries` for x, weights and bias (None without one)."""
    p, size = weights.shape[1:3]
    dx, dw = np.zeros_like(x), np.zeros_like(weights)
    db = None if bias is None else np.zeros_like(bias)
    mixes = weights.ndim == 5
    for head in range(x.shape[1]):
        of = head_map[head]
        for g in range(-(-x.shape[2] // size)):
            tokens = x[:, head, g * size : (g + 1) * size, :]
            here = d_sums[:, head, g * p : (g + 1) * p, :]
            length = tokens.shape[1]
            dx[:, head, g * size : g * size + length] += np.einsum(
                "atde,bae->btd" if mixes else "atd,bad->btd", weights[of][:, :length], here
            )
            dw[of, :, :length] += np.einsum(
                "btd,bae->atde" if mixes else "btd,bad->atd", tokens, here
            )
            if db is not None:
                db[of] += here.sum(axis=0)
    return dx, dw, db


def summarize_backward(d_out, x, weights, bias=None, *, interval):
    """(dx, d_weights), and d_bias where there is a bias."""
    x = _array("x", x, 4, "[B,G,N,D]")
    mixes = np.ndim(weights) == 5
    weights = _array("weights", weights, 5 if mixes else 4, "[W,p,I,D,D]" if mixes else "[W,p,I,D]")
    d_out = _array("d_out", d_out, 4, "[B,G,ceil(N/I) p,D]")
    _match("weights", "interval", weights.shape[2], interval)
    head_map = [g * weights.shape[0] // x.shape[1] for g in range(x.shape[1])]
    bias = None if bias is None else _array("bias", bias, 3, "[W,p,D]")
    dx, dw, db = _summaries_backward(x, weights, bias, head_map, d_out)
    return (dx, dw) if bias is None else (dx, dw, db)


class _Levels:
    """One of q, k and v with its summaries, and the gradients of all rows."""

    def __init__(self, x, levels, groups):
        self.levels, self.groups = levels, groups
        self.rows = _level_rows(x, levels, groups)
        self.gradients = [np.zeros_like(rows) for rows in self.rows]

    def finish(self):
        """The gradients of x, of the weights, of the biases and of ready-made summaries."""
        x, dx = self.rows[0], self.gradients[0]
        d_weights, d_biases, d_summaries = [], [], []
        for (weights, bias, summaries), d_sums in zip(self.levels, self.gradients[1:]):
            if summaries is not None:
                d_summaries.append(d_sums.reshape(summaries.shape))
                continue
            of = _head_map(weights, x.shape[1], self.groups)
            part, dw, db = _summaries_backward(x, weights, bias, of, d_sums)
            dx = dx + part
            d_weights.append(dw)
            d_biases.append(db)
        return dx, d_weights, d_biases, d_summaries


def _gradients(families, *given):
    """Gradients of q, k, v or fewer, then of their weights, of their biases and of their
    ready-made summaries, as far as they are `given`."""
    found = [family.finish() for family in families]
    lists = [
        part[1 + kind]
        for kind, arguments in enumerate(given)
        for part, argument in zip(found, arguments)
        if argument is not None
    ]
    return (*(part[0] for part in found), *lists)


def fast_multipole_backward(
    d_out,
    q,
    k,
    v,
    key_weights,
    value_weights,
    out,
    lse,
    *,
    group,
    d_lse=None,
    causal=False,
    key_biases=None,
    value_biases=None,
    key_summaries=None,
    value_summaries=None,
    scale=None,
    multiplicity=True,
    mask=None,
):
    """(dq, dk, dv), then the gradients of key_weights, value_weights, of biases and of
    summaries where these are given; lists have one entry per level."""
    q, k, v = _queries_keys_values(q, k, v, same_length=True)
    B, H, N, D = q.shape
    G, E = k.shape[1], v.shape[3]
    scale = _scale(scale, D)
    d_out, out, lse, d_lse = _results(d_out, out, lse, d_lse, (B, H, N), E)
    m, L, p, (key_levels, value_levels) = _multipole_levels(
        G,
        group,
        [
            _Family("key", k, key_weights, key_biases, key_summaries),
            _Family("value", v, value_weights, value_biases, value_summaries),
        ],
    )
    present = _present(mask, B, N)
    q, k, v, d_out, out, d_lse = _keep(present, q, k, v, d_out, out, d_lse)
    keys, values = _Levels(k, key_levels, G), _Levels(v, value_levels, G)
    tokens = np.arange(N)
    owner = owning_level(tokens[:, None], tokens[None, :], m, L)
    past = tokens[None, :] <= tokens[:, None]
    dq = np.zeros_like(q)
    for b, h in np.ndindex(B, H):
        g = h // (H // G)
        delta = (d_out[b, h] * out[b, h]).sum(axis=-1) - d_lse[b, h]
        for level in range(L + 1):
            index = tokens if level == 0 else tokens * p // (2 ** (level - 1) * m)
            level_keys = keys.rows[level][b, g][index]
            level_values = values.rows[level][b, g][index]
            scores = scale * q[b, h] @ level_keys.T
            if level > 0 and not multiplicity:
                counts = _present_counts(present[b], p, 2 ** (level - 1) * m)[index]
                scores = scores - np.log(np.maximum(counts, 1))
            mine = (owner == level) & (past if causal else True)
            mine &= present[b, :, None] & present[b, None, :]
            weights = _probabilities(scores, mine, lse[b, h])
            ds = weights * (d_out[b, h] @ level_values.T - delta[:, None])
            ds = np.where(mine, ds, 0.0)
            dq[b, h] += scale * _product_of_read(ds, mine, level_keys)
            # Tokens of one summary share its row.
            for gradients, rows in (
                (keys.gradients[level], scale * _product_of_read(ds.T, mine.T, q[b, h])),
                (values.gradients[level], _product_of_read(weights.T, mine.T, d_out[b, h])),
            ):
                np.add.at(gradients[b, g], index, rows)
    dk, dv, *others = _gradients(
        (keys, values), (key_weights, value_weights), (key_biases, value_biases),
        (key_summaries, value_summaries),
    )  # fmt: skip
    return (*_keep(present, dq, dk, dv), *others)


def fast_multipole_linear_backward(
    d_out,
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
    """(dq, dk, dv), then the gradients of query_weights, key_weights, value_weights,
    of biases and of summaries where these are given.

    Neither the output nor a log-sum-exp is an argument: every level has its own.
    """
    q, k, v = _queries_keys_values(q, k, v, same_length=True)
    B, H, N, D = q.shape
    G, E = k.shape[1], v.shape[3]
    if causal and not allow_query_lookahead:
        raise ValueError(
            "causal: found True with allow_query_lookahead False, needed "
            "allow_query_lookahead True (query summaries contain later queries)"
        )
    scale = _scale(scale, D)
    d_out = _array("d_out", d_out, 4, "[B,H,N,E]")
    _match("d_out", "shape", d_out.shape, (B, H, N, E))
    m, L, p, levels = _multipole_levels(
        G,
        group,
        [
            _Family("query", q, query_weights, query_biases, query_summaries),
            _Family("key", k, key_weights, key_biases, key_summaries),
            _Family("value", v, value_weights, value_biases, value_summaries),
        ],
    )
    present = _present(mask, B, N)
    q, k, v, d_out = _keep(present, q, k, v, d_out)
    queries = _Levels(q, levels[0], G)
    keys, values = _Levels(k, levels[1], G), _Levels(v, levels[2], G)
    tokens = np.arange(N)
    owner = owning_level(tokens[:, None], tokens[None, :], m, L)
    past = tokens[None, :] <= tokens[:, None]
    for b, h in np.ndindex(B, H):
        g = h // (H // G)
        for level in range(L + 1):
            index = tokens if level == 0 else tokens * p // (2 ** (level - 1) * m)
            level_queries = queries.rows[level][b, h][index]
            level_keys = keys.rows[level][b, g][index]
            level_values = values.rows[level][b, g][index]
            mine = (owner == level) & (past if causal else True)
            mine &= present[b, :, None] & present[b, None, :]
            weights, lse = _softmax(scale * level_queries @ level_keys.T, mine)
            weights = np.where(mine & ~np.isneginf(lse)[:, None], weights, 0.0)
            products = d_out[b, h] @ level_values.T
            products = np.where(mine, products, 0.0)
            ds = weights * (products - (weights * products).sum(axis=-1, keepdims=True))
            ds = np.where(mine, ds, 0.0)
            for gradients, at, rows in (
                (queries.gradients[level][b, h], index, scale * _product_of_read(ds, mine, level_keys)),
                (keys.gradients[level][b, g], index, scale * _product_of_read(ds.T, mine.T, level_queries)),
                (values.gradients[level][b, g], index, _product_of_read(weights.T, mine.T, d_out[b, h])),
            ):
                np.add.at(gradients, at, rows)
    dq, dk, dv, *others = _gradients(
        (queries, keys, values),
        (query_weights, key_weights, value_weights),
        (query_biases, key_biases, value_biases),
        (query_summaries, key_summaries, value_summaries),
    )
    return (*_keep(present, dq, dk, dv), *others)
