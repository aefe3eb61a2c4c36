# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""dense and fast_multipole, and their gradients.

Gradients take that of the output, the arguments of the forward function and its
results, and return gradients in the order of the arguments, with their shapes and
types.  Sums are kept in float32 (float64) and rounded once; they have the same
bits on any number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from . import _arguments as check
from . import _fovea, _layout
from ._declarations import has_gradient
from ._entries import AdmitFunction, trace_entries
from ._trace import ScoreFunction

__all__ = [
    "dense",
    "dense_backward",
    "fast_multipole",
    "fast_multipole_backward",
    "fast_multipole_linear",
    "fast_multipole_linear_backward",
]


def dense(
    q: Any,
    k: Any,
    v: Any,
    *,
    scale: float | None = None,
    causal: bool = False,
    window: int | None = None,
    prefix: int | None = None,
    log_weight: Any = None,
    bias: Any = None,
    sink: Any = None,
    lengths: Any = None,
    query_lengths: Any = None,
    score: ScoreFunction | None = None,
    admit: AdmitFunction | None = None,
    segments: tuple[Any, Any] | None = None,
    return_lse: bool = False,
    layout: str = "bhnd",
    out: Any = None,
    target: str = "cpu",
) -> Any:
    """softmax(scale q k^T + log_weight[key] + bias[query,key] + mask) v.

    q is [B,H,N,D], k [B,G,M,D], v [B,G,M,E] with H a multiple of G: query head
    h reads head h / (H/G) of the keys.  All have one type of float16, bfloat16,
    float32 and float64.  The result is [B,H,N,E] of that type; with
    `return_lse` the natural log-sum-exp [B,H,N] in float32 (float64) follows.

    `scale` is 1/sqrt(D) by default.  Query i has position p = i + M - N among
    the keys: `causal` admits keys j <= p, `window` = w those with |p - j| < w,
    and `prefix` = m beside `causal` the first m keys to all queries.
    `log_weight` broadcasts to [B,G,M], `bias` to [B,H,N,M]; both have the type
    of q or the type of the log-sum-exp.  `sink`, which broadcasts to [B,H], is
    the score of one more entry of every row of a head, which brings no value:
    exp(sink) is added to denominators.  Batch entry b has `lengths`[b] keys and
    `query_lengths`[b] queries, all without: rows behind do not exist, whatever
    they hold, N and M are these numbers for positions, and results of queries
    that do not exist are zeros and -inf.  A query without any key gives zeros
    and -inf, or its sink.

    `score` is a function of (s, b, h, i, j) that returns what takes the place of
    s = scale q k^T, before log weights, biases and masks: of the batch entry b, the
    query head h, and the positions of the query, p, and of the key.  It is called
    once, and may do arithmetic, compare, call functions of `fovea.math`, and read
    arrays by `fovea.capture(array)[indices]`.  A score of minus infinity removes the
    entry.

        dense(q, k, v, score=lambda s, b, h, i, j: 50 * fovea.math.tanh(s / 50))
        dense(q, k, v, score=lambda s, b, h, i, j: s + slopes[h] * (j - i))

    `admit` is a function of (b, h, i, j) of the same kind that is true for the entries
    that there are.  `segments`, a pair of integers [B,N] and [B,M], leaves those whose
    query and key have the same number, such as that of a document.  Kernels skip tiles
    that these remove.

        dense(q, k, v, causal=True, admit=lambda b, h, i, j: (i - j) % 4 == 0)
        dense(q, k, v, causal=True, segments=(documents, documents))

    With `layout` "bnhd" q, k, v and the output are [B,N,H,D] arrays of the host, which
    are read and written where they lie.
    """
    is_tokens_first = _layout.is_tokens_first(layout)
    if is_tokens_first:
        q, k, v = _layout.all_heads_first(q=q, k=k, v=v)
    options = (
        scale, causal, window, log_weight, bias, sink, prefix, lengths, query_lengths,
        *trace_entries(score, admit, segments, q, k, lengths, query_lengths), return_lse, target,
    )  # fmt: skip
    if not is_tokens_first:
        return _fovea.dense(q, k, v, *options, out=out)
    return _layout.attend(partial(_fovea.dense, q, k, v, *options), q, v.shape[3], out, return_lse)


def dense_backward(
    d_out: Any,
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    lse: Any,
    *,
    d_lse: Any = None,
    scale: float | None = None,
    causal: bool = False,
    window: int | None = None,
    prefix: int | None = None,
    log_weight: Any = None,
    bias: Any = None,
    sink: Any = None,
    lengths: Any = None,
    query_lengths: Any = None,
    score: ScoreFunction | None = None,
    admit: AdmitFunction | None = None,
    segments: tuple[Any, Any] | None = None,
    return_d_log_weight: bool = True,
    return_d_bias: bool = True,
    return_d_captures: bool = False,
    layout: str = "bhnd",
    gradients: Any = None,
    target: str = "cpu",
) -> tuple[Any, ...]:
    """Gradients of `dense`: (dq, dk, dv), then those of log_weight, bias and
    sink where these are given, unless `return_d_log_weight` or `return_d_bias`
    is false: the gradient of a mask that is a bias has as many numbers as that,
    and no use.  With `return_d_captures` those of the floating-point arrays that
    functions capture follow, in the order in which they are read first.

    Each has the shape and type of what it is for.  `out` and `lse` are what
    `dense` gave with `return_lse`, `d_out` and `d_lse` the gradients for them;
    without `d_lse` nothing depends on `lse`.  All other arguments are those of
    `dense`.
    """
    check.flags(return_d_captures=return_d_captures)
    is_tokens_first = _layout.is_tokens_first(layout)
    if is_tokens_first:
        d_out, q, k, v, out = _layout.all_heads_first(d_out=d_out, q=q, k=k, v=v, out=out)
    traced = trace_entries(score, admit, segments, q, k, lengths, query_lengths)
    options = (
        lse, d_lse, scale, causal, window, log_weight, bias, sink, prefix, lengths, query_lengths,
        *traced, return_d_log_weight, return_d_bias, return_d_captures, target,
    )  # fmt: skip
    if not is_tokens_first:
        return _fovea.dense_backward(d_out, q, k, v, out, *options, gradients=gradients)
    wanted = {
        "log_weight": log_weight is not None and return_d_log_weight,
        "bias": bias is not None and return_d_bias,
        "sink": sink is not None,
    }
    others = {name: None for name, is_wanted in wanted.items() if is_wanted}
    if return_d_captures:
        others.update((f"captures[{at}]", None) for at, each in enumerate(traced.captures or ()) if has_gradient("captures", each))
    call = partial(_fovea.dense_backward, d_out, q, k, v, out, *options)
    return _layout.differentiate(call, {"q": q, "k": k, "v": v, **others}, gradients)


def fast_multipole(
    q: Any,
    k: Any,
    v: Any,
    key_weights: Sequence[Any] | None = None,
    value_weights: Sequence[Any] | None = None,
    *,
    group: int,
    causal: bool = False,
    key_biases: Sequence[Any] | None = None,
    value_biases: Sequence[Any] | None = None,
    key_summaries: Sequence[Any] | None = None,
    value_summaries: Sequence[Any] | None = None,
    scale: float | None = None,
    multiplicity: bool = True,
    return_lse: bool = False,
    mask: Any = None,
    lengths: Any = None,
    out: Any = None,
    target: str = "cpu",
) -> Any:
    """Hierarchical attention: near keys one by one, far ones by summaries.

    Queries attend to the keys of their own and the neighbouring groups of
    m = `group` tokens, and to intervals of m_l = 2^(l-1) m tokens farther away
    through p weighted sums of their keys and values.  q, k and v are as in
    `dense` with M = N.  `key_weights` and `value_weights` are lists with one
    array for each level l = 1..L, level 1 first: [W,p,m_l,D] and [W,p,m_l,E],
    where W is 1 or divides the heads of k, and L is the least number with
    N <= m 2^(L+1).  Biases, if any, are [W,p,D] and [W,p,E].  Weights [W,p,m_l,D,D]
    and [W,p,m_l,E,E] mix columns, as a strided convolution does: the last axis is
    the column of the summary.

    `key_summaries` and `value_summaries` are ready-made summaries in place of
    weights, which are then None: [B,G,ceil(N/m_l),p,D] and [..,E] for each level.
    They may come from anything; summary a of interval u stands for the tokens
    u m_l + [a m_l/p, (a+1) m_l/p).

    A summary that stands for several tokens counts as often, unless
    `multiplicity` is false.

    `mask` [B,N], if any, is true for the tokens that are present, or `lengths`
    [B] says how many are, from the first row.  Absent ones are no keys, count as
    zero in summaries and not at all in multiplicities; what their rows hold does
    not matter.  Their results are zeros, with a log-sum-exp of -inf.

    From "Fast Multipole Attention" (arXiv:2310.11960).
    """
    return _fovea.fast_multipole(
        q, k, v, group, key_weights, value_weights, key_biases, value_biases, key_summaries,
        value_summaries, scale, causal, multiplicity, *check.tokens(mask, lengths), return_lse, target, out=out,
    )  # fmt: skip


def fast_multipole_backward(
    d_out: Any,
    q: Any,
    k: Any,
    v: Any,
    key_weights: Sequence[Any] | None,
    value_weights: Sequence[Any] | None,
    out: Any,
    lse: Any,
    *,
    group: int,
    d_lse: Any = None,
    causal: bool = False,
    key_biases: Sequence[Any] | None = None,
    value_biases: Sequence[Any] | None = None,
    key_summaries: Sequence[Any] | None = None,
    value_summaries: Sequence[Any] | None = None,
    scale: float | None = None,
    multiplicity: bool = True,
    mask: Any = None,
    lengths: Any = None,
    gradients: Any = None,
    target: str = "cpu",
) -> tuple[Any, ...]:
    """Gradients of `fast_multipole`: (dq, dk, dv, d_key_weights, d_value_weights),
    then those of biases and of summaries where these are given; of weights only
    where there are weights.  They are lists of gradients, level 1 first.

    Each has the shape and type of what it is for.  `out` and `lse` are what
    `fast_multipole` gave with `return_lse`, `d_out` and `d_lse` the gradients
    for them.  Gradients of absent rows are zero, those for them are not looked at.
    """
    return _fovea.fast_multipole_backward(
        d_out, q, k, v, group, key_weights, value_weights, key_biases, value_biases, key_summaries,
        value_summaries, scale, causal, multiplicity, *check.tokens(mask, lengths), out, lse, d_lse, target, gradients=gradients,
    )  # fmt: skip


def fast_multipole_linear(
    q: Any,
    k: Any,
    v: Any,
    query_weights: Sequence[Any] | None = None,
    key_weights: Sequence[Any] | None = None,
    value_weights: Sequence[Any] | None = None,
    *,
    group: int,
    causal: bool = False,
    allow_query_lookahead: bool = False,
    query_biases: Sequence[Any] | None = None,
    key_biases: Sequence[Any] | None = None,
    value_biases: Sequence[Any] | None = None,
    query_summaries: Sequence[Any] | None = None,
    key_summaries: Sequence[Any] | None = None,
    value_summaries: Sequence[Any] | None = None,
    scale: float | None = None,
    mask: Any = None,
    lengths: Any = None,
    out: Any = None,
    target: str = "cpu",
) -> Any:
    """Hierarchical attention in which queries are summarised as well.

    As `fast_multipole`, but at level l a summary of queries attends for the
    queries it stands for; each level has a soft-max of its own, and the levels
    are summed.  `query_weights` is like `key_weights`, with a W that divides the
    heads of q; `query_summaries` may be given in place of it.

    A summary of queries mixes later queries into earlier rows.  `causal` is
    therefore not strictly causal, and needs `allow_query_lookahead`.

    The linear form of "Fast Multipole Attention" (arXiv:2310.11960).
    """
    return _fovea.fast_multipole_linear(
        q, k, v, group, query_weights, key_weights, value_weights, query_biases, key_biases,
        value_biases, query_summaries, key_summaries, value_summaries, scale, causal,
        allow_query_lookahead, *check.tokens(mask, lengths), target,
        out=out,
    )  # fmt: skip


def fast_multipole_linear_backward(
    d_out: Any,
    q: Any,
    k: Any,
    v: Any,
    query_weights: Sequence[Any] | None = None,
    key_weights: Sequence[Any] | None = None,
    value_weights: Sequence[Any] | None = None,
    *,
    group: int,
    causal: bool = False,
    allow_query_lookahead: bool = False,
    query_biases: Sequence[Any] | None = None,
    key_biases: Sequence[Any] | None = None,
    value_biases: Sequence[Any] | None = None,
    query_summaries: Sequence[Any] | None = None,
    key_summaries: Sequence[Any] | None = None,
    value_summaries: Sequence[Any] | None = None,
    scale: float | None = None,
    mask: Any = None,
    lengths: Any = None,
    gradients: Any = None,
    target: str = "cpu",
) -> tuple[Any, ...]:
    """Gradients of `fast_multipole_linear`: (dq, dk, dv, d_query_weights,
    d_key_weights, d_value_weights), then those of the biases and summaries that are
    given.

    Each has the shape and type of what it is for, and `d_out` those of the result.
    The output is no argument: its parts, one for each level, are computed again.
    """
    return _fovea.fast_multipole_linear_backward(
        d_out, q, k, v, group, query_weights, key_weights, value_weights, query_biases, key_biases,
        value_biases, query_summaries, key_summaries, value_summaries, scale, causal,
        allow_query_lookahead, *check.tokens(mask, lengths), target,
        gradients=gradients,
    )  # fmt: skip
