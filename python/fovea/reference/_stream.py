# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One soft-max over a list of sources."""

import numpy as np

from ._arguments import _array, _broadcast, _scale
from ._backward import _probabilities, _results, _sum_to
from ._dense import _apply, _dense_mask, _entries, _positions, _tokens
from ._lists import _with_columns
from ._softmax import _product_of_read, _scores, _softmax, _weighted_values

__all__ = ["stream", "stream_backward"]


class _Source:
    """A source whose arrays are whole and float64."""

    def __init__(self, source, q, index, block):
        self.given, G = source, np.shape(source.v)[1]
        self.shapes = [np.shape(term) for term in (source.log_weight, source.bias)]
        B, H, N = q.shape[:3]
        source, self.lists = _with_columns(source, B, H, N, block)
        self.source, self.key_heads = source, G
        k = _array(f"sources[{index}].k", source.k, 4, "[B,G,M,D]")
        self.v = _array(f"sources[{index}].v", source.v, 4, "[B,G,M,E]")
        B, G, M = self.v.shape[:3]
        self.k = np.broadcast_to(k, (B, G, M, k.shape[3]))
        H, N = q.shape[1:3]
        self.share = H // G
        weight, bias = source.log_weight, source.bias
        self.log_weight = np.zeros((B, G, M)) if weight is None else _broadcast("log_weight", weight, (B, G, M))
        self.bias = np.zeros((B, H, N, M)) if bias is None else _broadcast("bias", bias, (B, H, N, M))
        self.stride = getattr(source, "stride", 1)
        self.tokens = [None] * B if source.lengths is None else [int(x) for x in source.lengths]
        self.lengths = [M if tokens is None else tokens // self.stride for tokens in self.tokens]

    def count_tokens(self, b, N, M):
        return _tokens(N, M, self.stride) if self.tokens[b] is None else self.tokens[b]

    def reads(self, b, N, M, block):
        """The entries of N queries and M keys that there are."""
        source, at = self.source, np.arange(M)
        tokens = self.count_tokens(b, N, M)
        holds = _dense_mask(np.arange(N), N, M, source.causal, source.window, source.prefix, self.stride, tokens)
        if source.ranges is not None:
            named = np.zeros((N, M), bool)
            for i in range(N):
                ranges = source.ranges(i // block if block else 0, M, N)
                for begin, end, *limits in ranges if isinstance(ranges, list) else [ranges]:
                    inside = (begin <= at) & (at < end)
                    if limits:
                        inside &= (limits[0] <= at) & (at < limits[1])
                    assert not (named[i] & inside).any(), "ranges that overlap"
                    named[i] |= inside
            holds &= named
        if source.segments is not None:
            own, other = (np.asarray(ids)[b if len(ids) > 1 else 0] for ids in source.segments)
            holds &= own[:N, None] == other[None, :M]
        return holds

    def give_back(self, dk, dv, d_weight, d_bias):
        """Gradients of what was given, from those of the rows of lists."""
        if self.lists is None:
            return dk, dv, d_weight, d_bias
        rows = (self.lists.give_back(d, self.key_heads) for d in (dk, dv, d_weight))
        return *rows, self.lists.give_back_bias(d_bias)

    def has_function(self, score):
        return score is not None or self.given.score is not None

    def score(self, q, b, h, N, M, block, scale, score, admit, step=0.0):
        """Scores and which of them there are; `step` is added to products before functions.  Those of the source are first,
        and what they remove gets to no other."""
        g = h // self.share
        found = scale * _scores(q, self.k[b, g, :M])
        if self.lists is None:
            positions = np.arange(N) + (self.count_tokens(b, N, M) - N)
            holds, keys = self.reads(b, N, M, block), _positions(M, self.stride)
        else:
            holds, positions, keys = self.lists.reads(b, h, N, block)
        found = found + step * (1 + np.abs(found))
        if self.given.score is not None:
            found = _apply(self.given.score, found, b, h, positions, keys)
            holds = holds & ~np.isneginf(found)
        if score is not None:
            found = _apply(score, found, b, h, positions, keys)
        for function in (self.given.admit, admit):
            if function is not None:
                holds = holds & np.broadcast_to(function(b, h, positions[:, None], keys[None, :]), (N, M))
        with np.errstate(invalid="ignore"):
            whole = found + self.log_weight[b, g, :M] + self.bias[b, h, :N, :M]
        for term in (found, self.log_weight[b, g, :M][None, :], self.bias[b, h, :N, :M]):
            holds = holds & ~np.isneginf(term)
        return whole, holds


def stream(
    q,
    sources,
    *,
    block=0,
    scale=None,
    sink=None,
    query_lengths=None,
    score=None,
    admit=None,
    return_lse=False,
):
    """The soft-max over all entries that sources have, with exp(sink) added to every denominator of a head."""
    q = _array("q", q, 4, "[B,H,N,D]")
    B, H, N, D = q.shape
    scale = _scale(scale, D)
    sources = [_Source(source, q, index, block) for index, source in enumerate(sources)]
    sinks = np.full((B, H), -np.inf) if sink is None else _broadcast("sink", sink, (B, H))
    out, lse = np.zeros((B, H, N, sources[0].v.shape[3])), np.full((B, H, N), -np.inf)
    for b, rows, _ in _entries(None, query_lengths, B, N, 0):
        for h in range(H):
            parts = [
                (s, *s.score(q[b, h, :rows], b, h, rows, s.lengths[b], block, scale, score, admit)) for s in sources
            ]
            scores, holds = (np.concatenate([part[i] for part in parts], axis=1) for i in (1, 2))
            values = np.concatenate([s.v[b, h // s.share, : s.lengths[b]] for s, *_ in parts])
            weights, lse[b, h, :rows] = _softmax(scores, holds, sinks[b, h])
            out[b, h, :rows] = _weighted_values(weights, holds, values)
    return (out, lse) if return_lse else out


def stream_backward(
    d_out,
    q,
    sources,
    out,
    lse,
    *,
    d_lse=None,
    block=0,
    scale=None,
    sink=None,
    query_lengths=None,
    score=None,
    admit=None,
):
    """(dq, a tuple for each source of the gradients of k, v, log_weight and bias, None where it has none), and that of
    the sink.  The derivative of `score` is a quotient of differences."""
    q = _array("q", q, 4, "[B,H,N,D]")
    B, H, N, D = q.shape
    scale = _scale(scale, D)
    wholes = [_Source(source, q, index, block) for index, source in enumerate(sources)]
    d_out, out, lse, d_lse = _results(d_out, out, lse, d_lse, (B, H, N), wholes[0].v.shape[3])
    sinks = np.full((B, H), -np.inf) if sink is None else _broadcast("sink", sink, (B, H))
    dq, d_sinks = np.zeros_like(q), np.zeros((B, H))
    gradients = [
        (np.zeros(s.k.shape), np.zeros(s.v.shape), np.zeros(s.log_weight.shape), np.zeros(s.bias.shape)) for s in wholes
    ]
    for b, rows, _ in _entries(None, query_lengths, B, N, 0):
        for h in range(H):
            mine = q[b, h, :rows]
            d_row, of_lse = d_out[b, h, :rows], lse[b, h, :rows]
            delta = (d_row * out[b, h, :rows]).sum(axis=-1) - d_lse[b, h, :rows]
            for s, (dk, dv, d_weight, d_bias) in zip(wholes, gradients):
                g, M = h // s.share, s.lengths[b]
                scores, holds = s.score(mine, b, h, rows, M, block, scale, score, admit)
                p = _probabilities(scores, holds, of_lse)
                with np.errstate(invalid="ignore"):
                    ds = np.where(holds, p * (d_row @ s.v[b, g, :M].T - delta[:, None]), 0.0)
                product = ds
                if s.has_function(score):
                    plain = scale * _scores(mine, s.k[b, g, :M])
                    high, low = (s.score(mine, b, h, rows, M, block, scale, score, admit, x)[0] for x in (1e-6, -1e-6))
                    with np.errstate(invalid="ignore"):
                        product = np.where(holds, ds * (high - low) / (2e-6 * (1 + np.abs(plain))), 0.0)
                dq[b, h, :rows] += scale * _product_of_read(product, holds, s.k[b, g, :M])
                dk[b, g, :M] += scale * _product_of_read(product.T, holds.T, mine)
                dv[b, g, :M] += _product_of_read(p.T, holds.T, d_row)
                d_weight[b, g, :M] += ds.sum(axis=0)
                d_bias[b, h, :rows, :M] = ds
            share = _probabilities(np.full((rows, 1), sinks[b, h]), np.ones((rows, 1), bool), of_lse)
            d_sinks[b, h] = -(share[:, 0] * delta).sum()
    found = [
        (dk, dv, *(None if given is None else _sum_to(d, shape) for given, d, shape in zip(
            (source.log_weight, source.bias), terms, s.shapes)))
        for source, s, (dk, dv, *terms) in zip(sources, wholes, map(_Source.give_back, wholes, *zip(*gradients)))
    ]  # fmt: skip
    return (dq, found) if sink is None else (dq, found, _sum_to(d_sinks, np.shape(sink)))
