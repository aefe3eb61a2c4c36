# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which entries there are: functions and segments, joined with a function of scores."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from . import _arguments as check
from . import _kept_traces as kept
from ._trace import NO_SCORE, ScoreFunction, TracedScore, as_it_is, capture, trace_score

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
    convert: Callable[[Any], Any] = as_it_is,
) -> TracedScore:
    """The region of a call with these arguments, or of one of its sources: `prefix` is what errors say before their names."""
    if score is None and admit is None and segments is None:
        return NO_SCORE
    if segments is None:
        return trace_score(score, q, convert, admit, prefix, getattr(q, "shape", ())[:2])
    if admit is not None and not callable(admit):
        raise ValueError(f"{prefix}admit: found {type(admit).__name__}, needed a function of (b, h, i, j)")
    is_plain = score is None and admit is None and lengths is None and query_lengths is None and convert is as_it_is
    if is_plain and (known := _last.find(segments, q, k)) is not None:
        return known
    arrays = _arrays_of(prefix, segments, q, k, lengths, query_lengths, convert)
    traced = trace_score(score, q, convert, _Within(arrays, admit), prefix, getattr(q, "shape", ())[:2])
    if is_plain:
        _last.keep(segments, q, k, arrays, traced)
    return traced


class _Last:
    """Segments of the last call that had nothing else, which layers of a model share: what they are took as long as fifty
    tokens do, since kernels have driven its code out of the caches."""

    def __init__(self) -> None:
        self.kept: tuple[Any, ...] | None = None

    def find(self, segments: Any, q: Any, k: Any) -> TracedScore | None:
        if self.kept is None or type(segments) is not tuple or len(segments) != 2 or not type(q) is type(k) is np.ndarray:
            return None
        owners, key, counts, body, read = self.kept
        if segments[0] is not owners[0]() or segments[1] is not owners[1]() or self._key(segments, q, k) != key:
            return None
        arrays = *counts, *segments
        return TracedScore(body, [arrays[number] for number in read])

    def keep(self, segments: Any, q: Any, k: Any, arrays: list[Any], traced: TracedScore) -> None:
        if type(segments) is not tuple or not all(type(each) is np.ndarray for each in (*segments, q, k)):
            return
        read = [next(n for n, array in enumerate(arrays) if array is each) for each in traced.captures or ()]
        # Arrays are those of callers, and end when these want.
        owners = [weakref.ref(each) for each in segments]
        self.kept = owners, self._key(segments, q, k), arrays[:2], traced.body, read

    @staticmethod
    def _key(ids: Any, q: Any, k: Any) -> tuple[Any, ...]:
        return q.dtype, q.shape, k.shape, ids[0].dtype, ids[0].shape, ids[1].dtype, ids[1].shape


_last = _Last()


def _arrays_of(
    prefix: str, segments: Any, q: Any, k: Any, lengths: Any, query_lengths: Any, convert: Callable[[Any], Any]
) -> list[Any]:
    """The numbers of queries and of keys, and the segments of either, those given as what they are read as."""
    for name, each in (("q", q), ("k", k)):
        if len(getattr(each, "shape", ())) != 4:
            raise ValueError(f"{prefix}{name}: found {_describe(each)}, needed an array of rank 4 beside segments")
    for name, each in (("query_lengths", query_lengths), ("lengths", lengths)):
        if each is not None and len(getattr(each, "shape", ())) != 1:
            raise ValueError(f"{prefix}{name}: found {_describe(each)}, needed an array [B] beside segments")
    ids = [each if hasattr(each, "shape") else np.asarray(each) for each in check.pair(f"{prefix}segments", segments)]
    for side, (each, of) in enumerate(zip(ids, (q, k))):
        needed = (of.shape[0], of.shape[2])
        if not _is_signed(each.dtype):
            raise ValueError(f"{prefix}segments[{side}]: found element type {each.dtype}, needed a signed integer type")
        if tuple(each.shape) not in (needed, (1, needed[1])):
            raise ValueError(f"{prefix}segments[{side}]: found shape {tuple(each.shape)}, needed {needed}")
        if convert is not as_it_is:
            with check.named(f"{prefix}segments[{side}]"):
                ids[side] = convert(each)
    # Numbers of queries and keys are read, too: another one is no other kernel.
    counts = [
        _count(of.shape[2], convert) if given is None else convert(given)
        for of, given in ((q, query_lengths), (k, lengths))
    ]
    return [*counts, *ids]


def _describe(value: Any) -> str:
    return f"rank {len(value.shape)}" if hasattr(value, "shape") else type(value).__name__


def _count(extent: Any, convert: Callable[[Any], Any]) -> Any:
    """An array of one number; frameworks make those of extents that are not known."""
    return np.array([extent], np.int32) if isinstance(extent, int) else convert(extent)


def _is_signed(dtype: Any) -> bool:
    """Of NumPy, PyTorch or JAX."""
    return str(dtype).rpartition(".")[2] in ("int8", "int16", "int32", "int64")


class _Within:
    """`admit` for the entries of one segment."""

    def __init__(self, arrays: list[Any], admit: AdmitFunction | None) -> None:
        self.arrays = arrays
        # Errors name its line.
        self.__wrapped__ = admit

    def __call__(self, b: Any, h: Any, i: Any, j: Any) -> Any:
        *counts, queries, keys = map(capture, self.arrays)
        num_queries, num_keys = (each[b if len(each.array) != 1 else 0] for each in counts)
        own = queries[_entry(queries, b), i - (num_keys - num_queries)]
        same = own == keys[_entry(keys, b), j]
        return same if self.__wrapped__ is None else same & self.__wrapped__(b, h, i, j)


kept.DESCRIBE[_Within] = lambda reads, within: (_Within, *map(reads.add_array, within.arrays), reads.describe(within.__wrapped__))


def _entry(ids: Any, b: Any) -> Any:
    return b if ids.array.shape[0] != 1 else 0
