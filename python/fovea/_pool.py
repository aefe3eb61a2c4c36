# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Summaries whose weights are data, and the choice of keys by their scores."""

from __future__ import annotations

from typing import Any

from . import _fovea

__all__ = ["pool", "pool_backward", "top_k"]


def pool(
    x: Any,
    gate: Any,
    *,
    interval: int,
    overlap: int = 0,
    position_bias: Any = None,
    out: Any = None,
    target: str = "cpu",
) -> Any:
    """A summary of every `interval` tokens, with weights that are data.

    x and gate are [B,G,N,E].  Row e of the result [B,G,N // interval,E] is a mean of the
    tokens of interval e, and of the `overlap` tokens before them, weighted in every column
    by the soft-max of gate + position_bias[token % interval], where `position_bias` is
    [interval,E], over these tokens.  Tokens that make no whole interval are in no row yet.

        summaries = fovea.pool(x, gate, interval=128)
        fovea.stream(q, [fovea.Source(summaries, summaries, causal=True, stride=128)])

    See `attn.pool`.
    """
    return _fovea.pool(x, gate, interval, overlap, position_bias, target, out=out)


def pool_backward(
    d_out: Any,
    x: Any,
    gate: Any,
    *,
    interval: int,
    overlap: int = 0,
    position_bias: Any = None,
    gradients: Any = None,
    target: str = "cpu",
) -> tuple[Any, ...]:
    """The gradients of `pool` for x, gate and, if there is one, position_bias.

    `d_out` [B,G,M,E] is the gradient for its result; each gradient is like what it is for.
    """
    return _fovea.pool_backward(d_out, x, gate, interval, overlap, position_bias, target, gradients=gradients)


def top_k(
    scores: Any,
    k: int,
    *,
    causal_unit: int | None = None,
    out: Any = None,
    target: str = "cpu",
) -> Any:
    """The keys of the k largest scores of every query: int32 [B,H,N,k] of [B,H,N,M].

    From the largest down; of equal ones the lower index comes first.  Minus infinity and
    NaN are not taken, and -1 stands where there are fewer than k others.  With
    `causal_unit` = r the keys are summaries of r tokens, and a query takes those that are
    complete where it stands, as by a Source with `causal` and that `stride`.

    It has no gradient.  See `attn.top_k`.
    """
    return _fovea.top_k(scores, k, causal_unit, target, out=out)
