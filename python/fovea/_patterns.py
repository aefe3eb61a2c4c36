# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Patterns of models as lists of sources: hca and selected."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from . import _arguments as check
from . import _layout
from ._fovea import FoveaError
from ._stream import Source, SourceGradients, stream, stream_backward

__all__ = ["HCAGradients", "SelectedGradients", "hca", "hca_backward", "selected", "selected_backward"]


class HCAGradients(NamedTuple):
    """Those of the arguments of `hca`; that of the sink is None without one."""

    q: Any
    kv: Any
    summaries: Any
    sink: Any = None


class SelectedGradients(NamedTuple):
    """Those of the arguments of `selected`; None of what a call does not have. `local` is a pair."""

    q: Any
    k: Any
    v: Any
    local: Any = None
    sink: Any = None


#: What arguments of sources are called by those who call `hca` or `selected`.
HCA_NAMES = {
    "sources[0].k": "kv", "sources[0].v": "kv", "sources[0].window": "window", "sources[0].lengths": "lengths",
    "sources[1].k": "summaries", "sources[1].v": "summaries", "sources[1].stride": "interval", "sources[1].lengths": "lengths",
}  # fmt: skip
SELECTED_NAMES = {
    **{f"sources[0].{name}": name for name in ("k", "v", "rows", "unit", "stride", "causal", "lengths")},
    "sources[1].k": "local[0]", "sources[1].v": "local[1]", "sources[1].window": "window", "sources[1].lengths": "lengths",
}  # fmt: skip


@contextlib.contextmanager
def calling(names: dict[str, str], unit: int = 1) -> Iterator[None]:
    """Errors name arguments as the caller does. A row is out of bounds by the `unit` as well."""
    try:
        yield
    except FoveaError as error:
        text, count = re.subn(r"\brows of source 0\[", "rows[", str(error))
        if not count:
            raise
        raise FoveaError(text if unit == 1 else f"{text}, of unit={unit} rows each") from None
    except ValueError as error:
        name, colon, text = str(error).partition(": ")
        if name not in names:
            raise
        raise ValueError(names[name] + colon + text) from None


_full = partial(np.full, dtype=np.int32)


def _count_tokens(q: Any, name: str, tokens: Any, lengths: Any, layout: str, full: Callable[..., Any]) -> Any:
    """The lengths of sources beside `tokens`: where there are fewer queries, tokens that make no summary yet are known
    from these alone."""
    for label, array in (("q", q), (name, tokens)):
        if not hasattr(array, "shape"):
            raise ValueError(f"{label}: found {type(array).__name__}, needed an array")
    axis = 1 if _layout.is_tokens_first(layout) else 2
    if lengths is not None or not len(q.shape) == len(tokens.shape) == 4 or q.shape[axis] == tokens.shape[axis]:
        return lengths
    return full((q.shape[0],), tokens.shape[axis])


def hca_sources(
    q: Any, kv: Any, summaries: Any, window: int, interval: int, lengths: Any, layout: str = "bhnd", full: Callable[..., Any] = _full
) -> list[Source]:
    """`full` makes an array of lengths."""
    lengths = _count_tokens(q, "kv", kv, lengths, layout, full)
    return [
        Source(kv, kv, causal=True, window=window, lengths=lengths),
        Source(summaries, summaries, causal=True, stride=interval, lengths=lengths),
    ]


def selected_sources(
    q: Any,
    k: Any,
    v: Any,
    rows: Any,
    unit: int,
    stride: int,
    causal: bool,
    local: Any,
    window: int | None,
    lengths: Any,
    layout: str = "bhnd",
    full: Callable[..., Any] = _full,
) -> list[Source]:
    if local is not None and (not isinstance(local, (list, tuple)) or len(local) != 2):
        raise ValueError(f"local: found {type(local).__name__}, needed a pair of keys and values")
    if (local is None) != (window is None):
        given, missing = ("window", "local") if local is None else ("local", "window")
        raise ValueError(f"{given}: found it without {missing}, needed both or none")
    if rows is None:
        raise ValueError("rows: found None, needed lists of rows")
    if local is not None and check.integer("stride", stride, 1) != 1:
        lengths = _count_tokens(q, "local[0]", local[0], lengths, layout, full)
    chosen = Source(k, v, causal=causal, stride=stride, rows=rows, unit=unit, lengths=lengths)
    return [chosen] if local is None else [chosen, Source(*local, causal=causal, window=window, lengths=lengths)]


def _add(name: str, one: Any, other: Any) -> Any:
    """In the memory of the first."""
    if not hasattr(one, "__iadd__"):
        raise ValueError(f"{name}: found an array on a GPU, whose gradients only fovea.torch adds up, needed stream_backward")
    one += other
    return one


def hca(
    q: Any,
    kv: Any,
    summaries: Any,
    *,
    window: int = 128,
    interval: int = 128,
    sink: Any = None,
    scale: float | None = None,
    lengths: Any = None,
    query_lengths: Any = None,
    return_lse: bool = False,
    layout: str = "bhnd",
    out: Any = None,
    target: str = "cpu",
) -> Any:
    """DeepSeek-V4's heavily compressed attention: the last `window` tokens, and a summary
    of each complete interval of `interval` tokens, in one soft-max with a sink.

    q is [B,H,N,D].  kv [B,G,M,D] are the keys of tokens, and their values; summaries
    [B,G,M // interval,D] are those of intervals, such as `pool` makes them of projections
    of the tokens, before norm and rotation.

    The last query stands at the last token.  With `lengths` [B] of int32 batch entry b has
    so many tokens, of what kv and summaries have room for: so a cache is read.
    `sink`, `scale`, `query_lengths`, `return_lse` and `layout` are those of `dense`.
    """
    with calling(HCA_NAMES):
        return stream(
            q, hca_sources(q, kv, summaries, window, interval, lengths, layout), scale=scale, sink=sink,
            query_lengths=query_lengths, return_lse=return_lse, layout=layout, out=out, target=target,
        )  # fmt: skip


def hca_backward(
    d_out: Any,
    q: Any,
    kv: Any,
    summaries: Any,
    out: Any,
    lse: Any,
    *,
    d_lse: Any = None,
    window: int = 128,
    interval: int = 128,
    sink: Any = None,
    scale: float | None = None,
    lengths: Any = None,
    query_lengths: Any = None,
    layout: str = "bhnd",
    gradients: Any = None,
    target: str = "cpu",
) -> HCAGradients:
    """The gradients of `hca` from that of its output; `out` and `lse` are what it returned.

    Those of kv and of summaries are the sums of what they get as keys and as values.  Each
    gradient is like what it is for, that of a sink [H] is [1,H]; `gradients` is memory for them."""
    memory = None
    if gradients is not None:
        d_q, d_kv, d_summaries, *rest = check.parts("gradients", "parts", gradients, 3 if sink is None else 4)
        memory = (d_q, [SourceGradients(d_kv, None), SourceGradients(d_summaries, None)], *rest)
    with calling(HCA_NAMES):
        d_q, found, *d_sink = stream_backward(
            d_out, q, hca_sources(q, kv, summaries, window, interval, lengths, layout), out, lse, d_lse=d_lse, scale=scale,
            sink=sink, query_lengths=query_lengths, layout=layout, gradients=memory, target=target,
        )  # fmt: skip
    d_kv, d_summaries = (_add(name, each.k, each.v) for name, each in zip(("kv", "summaries"), found))
    return HCAGradients(d_q, d_kv, d_summaries, *d_sink)


def selected(
    q: Any,
    k: Any,
    v: Any,
    rows: Any,
    *,
    unit: int = 1,
    block: int = 1,
    stride: int = 1,
    causal: bool = True,
    local: Any = None,
    window: int | None = None,
    sink: Any = None,
    scale: float | None = None,
    lengths: Any = None,
    query_lengths: Any = None,
    return_lse: bool = False,
    layout: str = "bhnd",
    out: Any = None,
    target: str = "cpu",
) -> Any:
    """Attention to chosen keys, and to the last tokens beside them, in one soft-max.

        blocks = top_k(scores, 16, causal_unit=64)
        out = selected(q, k, v, blocks, unit=64)

    q is [B,H,N,D], k [B,G,M,D] and v [B,G,M,E].  `rows` are the lists of `Source`: one for
    each `block` queries, [B,G',T,R] with G' one of 1, G and H, whose entries name `unit` rows
    each, and -1 none.  The choice itself, such as by `top_k`, has no gradient.

    With `stride` = r the rows are summaries of r tokens, as those of `pool`.  `local` is a
    pair of keys and values of tokens, of which a query reads the last `window`, too: what the
    lists name as well counts twice.

    Without `causal` queries read whole what their lists name, and a window to both sides.
    The last query stands at the last token.  With `lengths` [B] of int32 batch entry b has so
    many tokens, of what k, v and `local` have room for.  `sink`, `scale`, `query_lengths`,
    `return_lse` and `layout` are those of `dense`.
    """
    with calling(SELECTED_NAMES, unit):
        sources = selected_sources(q, k, v, rows, unit, stride, causal, local, window, lengths, layout)
        return stream(
            q, sources, block=block, scale=scale, sink=sink, query_lengths=query_lengths, return_lse=return_lse, layout=layout,
            out=out, target=target,
        )  # fmt: skip


def selected_backward(
    d_out: Any,
    q: Any,
    k: Any,
    v: Any,
    rows: Any,
    out: Any,
    lse: Any,
    *,
    d_lse: Any = None,
    unit: int = 1,
    block: int = 1,
    stride: int = 1,
    causal: bool = True,
    local: Any = None,
    window: int | None = None,
    sink: Any = None,
    scale: float | None = None,
    lengths: Any = None,
    query_lengths: Any = None,
    layout: str = "bhnd",
    gradients: Any = None,
    target: str = "cpu",
) -> SelectedGradients:
    """The gradients of `selected` from that of its output; `out` and `lse` are what it returned.

    Each is like what it is for, that of a sink [H] is [1,H]; an array that is keys and values has two, whose sum is its
    gradient.  `gradients` is memory for them, arranged like them."""
    memory = None
    if gradients is not None:
        d_q, d_k, d_v, d_local, d_sink = SelectedGradients(*check.parts("gradients", "parts", gradients, 3, 5))
        for name, memory, array in (("local", d_local, local), ("sink", d_sink, sink)):
            if memory is not None and array is None:
                raise ValueError(f"gradients.{name}: found memory, needed None: there is no {name}")
        d_local = (None, None) if d_local is None else check.parts("gradients.local", "arrays", d_local, 2)
        parts = [SourceGradients(d_k, d_v), *([] if local is None else [SourceGradients(*d_local)])]
        memory = (d_q, parts, *([] if sink is None else [d_sink]))
    with calling(SELECTED_NAMES, unit):
        d_q, found, *d_sink = stream_backward(
            d_out, q, selected_sources(q, k, v, rows, unit, stride, causal, local, window, lengths, layout), out, lse,
            d_lse=d_lse, block=block, scale=scale, sink=sink, query_lengths=query_lengths, layout=layout, gradients=memory,
            target=target,
        )  # fmt: skip
    d_local = None if local is None else (found[1].k, found[1].v)
    return SelectedGradients(d_q, found[0].k, found[0].v, d_local, *(d_sink or [None]))
