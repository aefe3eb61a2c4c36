# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which entries there are: functions and segments, joined with a function of scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from . import _arguments as check
from ._trace import NO_SCORE, ScoreFunction, TracedScore, capture, trace_score

AdmitFunction = Callable[..., Any]


def trace_entries(
    score: ScoreFunction | None,
    admit: AdmitFunction | None,
    segments: tuple[Any, Any] | None,
    q: Any,
    k: Any,
    lengths: Any,
    query_lengths: Any,
    *,
    prefix: str = "",
    convert: Callable[[Any], Any] = lambda array: array,
) -> TracedScore:
    """The region of a call with these arguments, or of one of its sources: `prefix` is what errors say before their names."""
    if score is None and admit is None and segments is None:
        return NO_SCORE
    if segments is not None:
        admit = _within(prefix, segments, admit, q, k, lengths, query_lengths)
    return trace_score(score, q, convert, admit, prefix, getattr(q, "shape", ())[:2])


def _within(
    prefix: str, segments: Any, admit: AdmitFunction | None, q: Any, k: Any, lengths: Any, query_lengths: Any
) -> AdmitFunction:
    """`admit` for the entries of one segment."""
    if admit is not None and not callable(admit):
        raise ValueError(f"{prefix}admit: found {type(admit).__name__}, needed a function of (b, h, i, j)")
    ids = [each if hasattr(each, "shape") else np.asarray(each) for each in check.pair(f"{prefix}segments", segments)]
    for side, (each, of) in enumerate(zip(ids, (q, k))):
        needed = (of.shape[0], of.shape[2])
        if str(each.dtype).rpartition(".")[2] not in ("int8", "int16", "int32", "int64"):
            raise ValueError(f"{prefix}segments[{side}]: found element type {each.dtype}, needed a signed integer type")
        if tuple(each.shape) not in (needed, (1, needed[1])):
            raise ValueError(f"{prefix}segments[{side}]: found shape {tuple(each.shape)}, needed {needed}")
    # The numbers of queries and keys are read, too: another one is no other kernel.
    counts = [
        capture(np.array([of.shape[2]], np.int32) if given is None else given)
        for of, given in ((q, query_lengths), (k, lengths))
    ]
    queries, keys = map(capture, ids)

    def within(b: Any, h: Any, i: Any, j: Any) -> Any:
        num_queries, num_keys = (each[b if len(each.array) != 1 else 0] for each in counts)
        own = queries[_entry(queries, b), i - (num_keys - num_queries)]
        same = own == keys[_entry(keys, b), j]
        return same if admit is None else same & admit(b, h, i, j)

    return within


def _entry(ids: Any, b: Any) -> Any:
    return b if ids.array.shape[0] != 1 else 0
