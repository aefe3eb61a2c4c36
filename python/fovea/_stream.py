# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One soft-max over a list of sources: Source, stream and stream_backward."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, NamedTuple

from . import _arguments as check
from . import _fovea, _layout
from ._entries import AdmitFunction
from ._ranges import trace_ranges
from ._trace import ScoreFunction, trace_score

__all__ = ["Source", "SourceGradients", "stream", "stream_backward"]


@dataclass(frozen=True, eq=False)
class Source:
    """Keys [B,G,M,D] and values [B,G,M,E], and which of their M rows a query reads.

    `causal`, `window`, `prefix`, `log_weight`, `bias` and `lengths` are those of
    `dense`, for this source: the last query stands at its last key.

    `ranges` is a function of (b, rows, n), the number of a block of queries, M, and
    the number of queries, which is called once and returns the rows that the
    queries of the block read: a tuple (begin, end), or a list of tuples that do not
    overlap.  Bounds are made of integers by + and -, and by *, // and % with
    integers; they may lie outside of the rows.  With (begin, end, lower, upper) a
    range is cut to the rows from lower to upper first.  Without `ranges` queries
    read all rows.

        Source(k, v, causal=True, ranges=lambda b, rows, n: (16 * b - 16, 16 * b + 16))

    Ranges decide what is read, and cost nothing; a mask cuts single entries.

    `segments` is a pair of integers [B,N] and [B,M]: a query reads keys of its own
    segment.  It is for the only source of a call.

    Not yet: `stride`, lists of `rows`, and `score` and `admit` of a source.
    """

    k: Any
    v: Any
    _: KW_ONLY
    causal: bool = False
    window: int | None = None
    prefix: int | None = None
    stride: int = 1
    log_weight: Any = None
    bias: Any = None
    rows: Any = None
    ranges: Callable[..., Any] | None = None
    lengths: Any = None
    segments: tuple[Any, Any] | None = None
    score: Callable[..., Any] | None = None
    admit: Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        if check.integer("stride", self.stride, 1) != 1:
            raise ValueError(f"stride: found {self.stride}, needed 1: positions of summaries are not there yet")
        if self.rows is not None:
            raise ValueError("rows: found a list of rows, needed None: lists are not there yet, ranges are")
        for name in ("score", "admit"):
            if getattr(self, name) is not None:
                raise ValueError(f"{name}: found one of a source, needed that of the call, which holds for all sources")

    def _pass(self, name: str, heads_first: bool) -> Iterator[Any]:
        """What the extension takes."""
        arrays = {f"{name}.k": self.k, f"{name}.v": self.v}
        yield from arrays.values() if heads_first else _layout.all_heads_first(**arrays)
        yield from (self.causal, self.window, self.prefix, self.log_weight, self.bias, self.lengths)
        yield from check.segments(f"{name}.segments", self.segments)
        yield trace_ranges(f"{name}.ranges", self.ranges)


class SourceGradients(NamedTuple):
    """Gradients of what a `Source` holds; those of others are None."""

    k: Any
    v: Any
    log_weight: Any = None
    bias: Any = None


def _pass_sources(sources: Sequence[Source], heads_first: bool) -> list[Any]:
    if not isinstance(sources, (list, tuple)):
        raise ValueError(f"sources: found {type(sources).__name__}, needed a list of fovea.Source")
    passed: list[Any] = [len(sources)]
    for index, source in enumerate(sources):
        if not isinstance(source, Source):
            raise ValueError(f"sources[{index}]: found {type(source).__name__}, needed a fovea.Source")
        passed.extend(source._pass(f"sources[{index}]", heads_first))
    return passed


def stream(
    q: Any,
    sources: Sequence[Source],
    *,
    block: int = 0,
    scale: float | None = None,
    sink: Any = None,
    query_lengths: Any = None,
    score: ScoreFunction | None = None,
    admit: AdmitFunction | None = None,
    return_lse: bool = False,
    layout: str = "bhnd",
    out: Any = None,
    target: str = "cpu",
) -> Any:
    """One soft-max over the keys of all `sources`, and their values: attention as a list.

        window = Source(k, v, causal=True, window=128)
        far = Source(means_k, means_v, log_weight=..., ranges=lambda b, rows, n: (0, b - 1))
        out = stream(q, [window, far], block=16, sink=sinks)

    q is [B,H,N,D] with H a multiple of the heads G of sources, the result [B,H,N,E] of
    its type; sources may have other types of as many or fewer bits than that of sums.
    A key that several sources name counts as often.

    `block` is how many queries are a block, where ranges depend on it.  `scale`, `sink`,
    `query_lengths`, `score`, `admit`, `return_lse`, `layout` and `target` are those of `dense`;
    `layout` holds for the keys and values of sources, too.  The functions are for
    entries of all sources, and positions are those of the source that a key is of.
    """
    first_heads = not _layout.is_tokens_first(layout)
    options = (
        block, scale, sink, query_lengths, *trace_score(score, q, admit=admit), return_lse, *_pass_sources(sources, first_heads), target,
    )  # fmt: skip
    if first_heads:
        return _fovea.stream(q, *options, out=out)
    q = _layout.heads_first("q", q)
    width = _fovea.describe("sources[0].v", sources[0].v)[1][3] if sources else 0
    return _layout.attend(partial(_fovea.stream, q, *options), q, width, out, return_lse)


def stream_backward(
    d_out: Any,
    q: Any,
    sources: Sequence[Source],
    out: Any,
    lse: Any,
    *,
    d_lse: Any = None,
    block: int = 0,
    scale: float | None = None,
    sink: Any = None,
    query_lengths: Any = None,
    score: ScoreFunction | None = None,
    admit: AdmitFunction | None = None,
    return_d_log_weight: bool = True,
    return_d_bias: bool = True,
    layout: str = "bhnd",
    gradients: Any = None,
    target: str = "cpu",
) -> tuple[Any, ...]:
    """Gradients of `stream`: (dq, [a `SourceGradients` for each source]), and that of the
    sink where there is one.

    Each has the shape and type of what it is for, with leading axes of 1 where that has
    fewer than it broadcasts to.  `out` and `lse` are what `stream`
    gave with `return_lse`, `d_out` and `d_lse` the gradients for them; without `d_lse`
    nothing depends on `lse`.  All other arguments are those of `stream`; as in
    `dense_backward`, those of log weights and biases may be left out, and arrays that
    functions capture are constant.  `gradients` is memory for them, arranged like them.
    """
    first_heads = not _layout.is_tokens_first(layout)
    options = (
        lse, d_lse, block, scale, sink, query_lengths, *trace_score(score, q, admit=admit), return_d_log_weight, return_d_bias,
        *_pass_sources(sources, first_heads), target,
    )  # fmt: skip
    check.flags(return_d_log_weight=return_d_log_weight, return_d_bias=return_d_bias)
    # Arrays whose gradients have heads behind tokens with another layout, None for others.
    arrays: dict[str, Any] = {"q": q}
    given = [("k", "v", *_terms(source, return_d_log_weight, return_d_bias)) for source in sources]
    for index, (source, names) in enumerate(zip(sources, given)):
        for name in names:
            arrays[f"sources[{index}].{name}"] = getattr(source, name) if name in ("k", "v") else None
    if sink is not None:
        arrays["sink"] = None
    memory = None if gradients is None else _flatten(gradients, given, sink is not None)
    if first_heads:
        found = _fovea.stream_backward(d_out, q, out, *options, gradients=memory)
    else:
        views = {name: None if array is None else _layout.heads_first(name, array) for name, array in arrays.items()}
        d_out, out = _layout.all_heads_first(d_out=d_out, out=out)
        call = partial(_fovea.stream_backward, d_out, views["q"], out, *options)
        found = _layout.differentiate(call, views, memory)
    rest = iter(found[1:])
    of_sources = [SourceGradients(**{name: next(rest) for name in names}) for names in given]
    return (found[0], of_sources, *rest)


def _terms(source: Source, log_weight: bool, bias: bool) -> Iterator[str]:
    """Those that have a gradient."""
    if source.log_weight is not None and log_weight:
        yield "log_weight"
    if source.bias is not None and bias:
        yield "bias"


def _flatten(gradients: Any, given: list[tuple[str, ...]], has_sink: bool) -> list[Any]:
    """The arrays of memory that is arranged like the gradients."""
    needed = 3 if has_sink else 2
    check.match("gradients", "parts", len(gradients), needed)
    check.match("gradients[1]", "sources", len(gradients[1]), len(given))
    flat = [gradients[0]]
    for index, (memory, names) in enumerate(zip(gradients[1], given)):
        by_name = dict(zip(SourceGradients._fields, memory))
        for name, array in by_name.items():
            if name not in names and array is not None:
                raise ValueError(f"gradients[1][{index}].{name}: found an array, needed None: it is not computed")
        flat.extend(by_name.get(name) for name in names)
    return flat + list(gradients[2:])
