# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Summaries whose weights are data, and the choice of keys by their scores."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import _arguments as check
from . import _fovea

__all__ = ["PoolState", "pool", "pool_backward", "top_k"]


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


class PoolState:
    """`pool` token by token, on the CPU: the summaries of the tokens so far.

        state = fovea.PoolState(interval=128, position_bias=places)
        state.append(x, gate)                  # [B,G,N,E] each: one token or many
        state.summaries                        # [B,G,state.length // interval,E]

    The options are those of `pool`, and the summaries have the bits that it gives for all tokens at once.  Kept are the
    summaries, in memory that doubles when it is full, and the tokens of the open interval, of the one before it and of
    those that `overlap` reaches from there.  Sequences of a batch have one length.  A call that raises leaves the state as it was.
    """

    def __init__(self, *, interval: int, overlap: int = 0, position_bias: Any = None) -> None:
        self.interval, self.overlap = check.integer("interval", interval, 1), check.integer("overlap", overlap, 0)
        self.position_bias = position_bias
        #: How many tokens were appended.
        self.length = 0
        # x and gate of the tokens from `_begin` on, which begins an interval.
        self._tokens: tuple[Any, ...] | None = None
        self._begin = 0
        self._rows: Any = None

    @property
    def _reach(self) -> int:
        """The tokens of whole intervals that the overlap touches."""
        return -(-self.overlap // self.interval) * self.interval

    @property
    def summaries(self) -> Any:
        """[B,G,length // interval,E]: a view, whose rows stay as they are when tokens are appended."""
        if self._rows is None:
            raise ValueError("summaries: found no tokens, needed some by append first")
        return self._rows[:, :, : self.length // self.interval]

    @property
    def nbytes(self) -> int:
        """Of the tokens that are kept, and of summaries, whether used or not."""
        return 0 if self._tokens is None else sum(each.nbytes for each in (*self._tokens, self._rows))

    def append(self, x: Any, gate: Any) -> None:
        """Adds tokens, x and gate [B,G,N,E]."""
        given = check.to_numpy("x", x), check.to_numpy("gate", gate)
        for name, each, like in zip(("x", "gate"), given, self._tokens or (given[0], given[0])):
            if each.ndim != 4:
                raise ValueError(f"{name}: found rank {each.ndim}, needed rank 4 [B,G,N,E]")
            needed = (*like.shape[:2], given[0].shape[2], like.shape[3])
            check.match(name, "shape", each.shape, needed)
            check.match(name, "element type", each.dtype.name, like.dtype.name)
        tokens: tuple[Any, ...] = given
        if self._tokens is not None:
            tokens = tuple(np.concatenate(each, 2) for each in zip(self._tokens, given))
        done, whole = self.length // self.interval, (self.length + given[0].shape[2]) // self.interval
        rows = self._rows
        if whole > done or rows is None:
            # Errors of the options are those of `pool`.
            last = whole * self.interval - self._begin
            options = {"interval": self.interval, "overlap": self.overlap, "position_bias": self.position_bias}
            found = pool(*(np.ascontiguousarray(each[:, :, :last]) for each in tokens), **options)
            new = found[:, :, done - self._begin // self.interval :]
            if rows is None or whole > rows.shape[2]:
                rows = np.empty((*new.shape[:2], max(whole, 2 * done), new.shape[3]), new.dtype)
                if done:
                    rows[:, :, :done] = self._rows[:, :, :done]
            rows[:, :, done:whole] = new
        begin = max(self._begin, (whole - 1) * self.interval - self._reach)
        self._tokens = tuple(each[:, :, begin - self._begin :].copy() for each in tokens)
        self._rows, self._begin = rows, begin
        self.length += given[0].shape[2]

    def truncate(self, length: int) -> None:
        """Forgets what comes after the first `length` tokens, which may be those since the interval before the open one."""
        least = self._begin + self._reach if self._begin else 0
        if not least <= check.integer("length", length, 0) <= self.length:
            raise ValueError(f"length: found {length}, needed {least} to {self.length}: of others summaries are kept alone")
        if self._tokens is not None:
            # Views that were given out stay as they are.
            self._rows = self._rows.copy()
            self._tokens = tuple(each[:, :, : length - self._begin] for each in self._tokens)
        self.length = length

    def fork(self) -> PoolState:
        """A state of the same content.  Neither sees what the other appends from then on."""
        other = PoolState(interval=self.interval, overlap=self.overlap, position_bias=self.position_bias)
        other.length, other._begin, other._tokens = self.length, self._begin, self._tokens
        other._rows = None if self._rows is None else self._rows.copy()
        return other
