# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Packed sequences on GPUs, whose kernels take batches.

Sequences whose lengths are between the same powers of two are the entries of one batch, which is less than twice as large.
Keys begin with the first row of an entry, as `lengths` says. Queries end with the last one: the last query stands at the last
key, and rows of padding before it, which are zeros, pass nothing on.

With the longest lengths that a caller tells, the compiled function makes one batch of all sequences, as it does in C++: nothing
of the starts is read on the host.
"""

from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

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


def _varlen(*values: Any, out: Any = None) -> Any:
    q, k, v, _, _, scale, causal, window, prefix, sink, max_q, max_k, return_lse, target = values
    if _is_on_cpu(q, target) or max_q is not None or max_k is not None:
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
    d_out, q, k, v, _, _, rows, lse, d_lse, scale, causal, window, prefix, sink, max_q, max_k, target = values
    if _is_on_cpu(q, target) or max_q is not None or max_k is not None:
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
