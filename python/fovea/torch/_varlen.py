# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Packed sequences on GPUs, whose kernels take batches.

Sequences whose lengths are between the same powers of two are the entries of one batch, which is less than twice as large.
Keys begin with the first row of an entry, as `lengths` says. Queries end with the last one: the last query stands at the last
key, and rows of padding before it, which are zeros, pass nothing on.

With the longest lengths that a caller tells, all sequences are one batch, and nothing of the starts is read on the host: CUDA
graphs hold that.
"""

from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import _arguments as check
from .. import _fovea
from .._abstract import AbstractArray

#: The log-sum-exp of a row of padding: it weighs nothing, without being infinite.
_NEVER = 1e4


class _Rows:
    """Rows of some sequences among packed ones [T,H,D], and in a batch [B,H,N,D] with padding."""

    def __init__(self, spans: Sequence[tuple[int, int]], device: torch.device, *, at_end: bool):
        lengths = [end - begin for begin, end in spans]
        self.batch, self.length = len(spans), max(1, *lengths)
        firsts = [
            (entry + 1) * self.length - length if at_end else entry * self.length for entry, length in enumerate(lengths)
        ]
        self.packed = torch.cat([torch.arange(*span) for span in spans]).to(device)
        self.padded = torch.cat([torch.arange(first, first + length) for first, length in zip(firsts, lengths)]).to(device)
        self.lengths = torch.tensor(lengths, dtype=torch.int32, device=device)

    def pad(self, rows: Tensor, filled: float = 0.0) -> Tensor:
        padded = rows.new_full((self.batch * self.length, *rows.shape[1:]), filled)
        padded.index_copy_(0, self.padded, rows.index_select(0, self.packed))
        return padded.unflatten(0, (self.batch, self.length)).transpose(1, 2)

    def unpad(self, found: Tensor, rows: Tensor) -> None:
        """Writes those of a batch to `rows`."""
        rows.index_copy_(0, self.packed, found.transpose(1, 2).flatten(0, 1).index_select(0, self.padded))


class _BoundedRows:
    """Rows of all sequences among packed ones, and in a batch with `most` places for each: the device computes where.

    Rows are within the batch whatever the starts are. Attention checks lengths, which are -1 where starts do not begin with 0
    and end with the number of rows.
    """

    def __init__(self, starts: Tensor, num_rows: int, most: int):
        self.batch, self.most = starts.numel() - 1, most
        starts = starts.to(torch.int64)
        is_whole = (starts[0] == 0) & (starts[-1] == num_rows)
        lengths = torch.where(is_whole, starts.diff(), -1)
        self.lengths = lengths.clamp(-1, most + 1).to(torch.int32)
        rows = torch.arange(num_rows, device=starts.device)
        entries = (torch.searchsorted(starts, rows, right=True) - 1).clamp(0, self.batch - 1)
        self.places = entries * most + (rows - starts.index_select(0, entries)).clamp(0, most - 1)

    def pad(self, rows: Tensor) -> Tensor:
        padded = rows.new_zeros((self.batch * self.most, *rows.shape[1:])).index_copy(0, self.places, rows)
        return padded.unflatten(0, (self.batch, self.most)).transpose(1, 2)

    def unpad(self, found: Tensor) -> Tensor:
        return found.transpose(1, 2).flatten(0, 1).index_select(0, self.places)


class _Batch(NamedTuple):
    queries: _Rows
    keys: _Rows


def _describe(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    name = str(value.dtype).removeprefix("torch.")
    return AbstractArray(_fovea.bfloat16() if name == "bfloat16" else name, value.shape)


def _make_batches(function: Any, values: Sequence[Any], place: int) -> list[_Batch]:
    """Of a call of `function` of the package, which checks its arguments; those from `place` on are the starts of sequences."""
    if values[0].is_cuda and torch.cuda.is_current_stream_capturing():
        raise _fovea.FoveaError(
            "varlen: the host reads cu_seqlens, which a CUDA graph that is being captured cannot hold: give max_q and max_k"
        )
    starts = [each.cpu().numpy() for each in values[place : place + 2]]
    function(*map(_describe, values[:place]), *starts, *map(_describe, values[place + 2 :]), "cpu")
    groups = collections.defaultdict(list)
    spans = [list(zip(each.tolist(), each.tolist()[1:])) for each in starts]
    for pair in zip(*spans):
        lengths = [end - begin for begin, end in pair]
        if lengths[0]:
            groups[tuple((length - 1).bit_length() for length in lengths)].append(pair)
    device = values[0].device
    return [
        _Batch(*(_Rows(side, device, at_end=is_query) for side, is_query in zip(zip(*pairs), (True, False))))
        for pairs in groups.values()
    ]


def _give(found: list[Tensor], places: Sequence[Tensor | None] | None) -> list[Tensor]:
    return [
        each if place is None else place.copy_(each) for each, place in zip(found, places or [None] * len(found), strict=True)
    ]


def _is_on_cpu(q: Tensor, target: str | None) -> bool:
    return not q.is_cuda and target != "gpu-sim"


def find_longest(q: Tensor, target: str | None, max_q: int | None, max_k: int | None) -> tuple[int, int] | None:
    """The longest lengths that a caller tells, for `run_bounded`. The CPU does not need them."""
    for name, most in (("max_q", max_q), ("max_k", max_k)):
        if most is not None:
            check.integer(name, most, 1)
    if max_q is not None and max_k is not None:
        return None if _is_on_cpu(q, target) else (max_q, max_k)
    if max_q is not None or max_k is not None:
        name = "max_q" if max_q is None else "max_k"
        raise ValueError(f"{name}: found None, needed the longest length, as the other is given")
    return None


def run_bounded(dense: Any, values: Sequence[Any], longest: tuple[int, int], return_lse: bool, target: str | None) -> Any:
    """`varlen` of its arguments, by the function `dense` of tensors, whose gradients are all that there are."""
    q, k, v, query_starts, key_starts, scale, causal, window, prefix, sink = values
    if not torch.compiler.is_compiling():
        _fovea.varlen(*map(_describe, values), return_lse, "cpu")
    queries, keys = _BoundedRows(query_starts, q.shape[0], longest[0]), _BoundedRows(key_starts, k.shape[0], longest[1])
    found = dense(
        queries.pad(q), keys.pad(k), keys.pad(v), scale=scale, causal=causal, window=window, prefix=prefix, sink=sink,
        lengths=keys.lengths, query_lengths=queries.lengths, return_lse=return_lse, target=target,
    )  # fmt: skip
    return (queries.unpad(found[0]), queries.unpad(found[1]).T.contiguous()) if return_lse else queries.unpad(found)


def _varlen(*values: Any, out: Any = None) -> Any:
    q, k, v, _, _, scale, causal, window, prefix, sink, return_lse, target = values
    if _is_on_cpu(q, target):
        return _fovea.tensors.varlen(*values, out=out)
    batches = _make_batches(_fovea.varlen, values[:-1], 3)
    rows = q.new_zeros(*q.shape[:2], v.shape[2])
    sums = q.new_zeros(*q.shape[:2], dtype=torch.float32)
    for queries, keys in batches:
        options = scale, causal, window, None, None, sink, prefix, keys.lengths, None, None, None
        found = _fovea.tensors.dense(queries.pad(q), keys.pad(k), keys.pad(v), *options, return_lse, target)
        queries.unpad(found[0] if return_lse else found, rows)
        if return_lse:
            queries.unpad(found[1], sums)
    results = _give([rows, sums.T.contiguous()] if return_lse else [rows], out)
    return tuple(results) if return_lse else results[0]


def _varlen_backward(*values: Any, out: Any = None) -> Any:
    d_out, q, k, v, _, _, rows, lse, d_lse, scale, causal, window, prefix, sink, target = values
    if _is_on_cpu(q, target):
        return _fovea.tensors.varlen_backward(*values, out=out)
    gradients = [torch.zeros_like(each, memory_format=torch.contiguous_format) for each in (q, k, v)]
    # Sums over batches are rounded once.
    wide = None if sink is None else sink.float()
    d_sink = None if wide is None else torch.zeros_like(wide)
    for queries, keys in _make_batches(_fovea.varlen_backward, values[:-1], 4):
        d_sums = None if d_lse is None else queries.pad(d_lse.T)
        options = scale, causal, window, None, None, wide, prefix, keys.lengths, None, None, None, False, False, False
        found = _fovea.tensors.dense_backward(
            queries.pad(d_out), queries.pad(q), keys.pad(k), keys.pad(v), queries.pad(rows),
            queries.pad(lse.T, _NEVER), d_sums, *options, target,
        )  # fmt: skip
        for side, each, gradient in zip((queries, keys, keys), found, gradients):
            side.unpad(each, gradient)
        if d_sink is not None:
            d_sink += found[3].reshape(d_sink.shape)
    if d_sink is not None:
        gradients.append(d_sink.to(sink.dtype))
    return tuple(_give(gradients, out))


#: What operators call in place of the compiled functions.
ADAPTED = {"varlen": _varlen, "varlen_backward": _varlen_backward}
