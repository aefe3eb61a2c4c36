# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One soft-max over a list of sources: Source, stream and stream_backward."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, NamedTuple

from . import _arguments as check
from . import _fovea, _layout
from ._declarations import ASKS, FUNCTIONS, has_gradient
from ._entries import AdmitFunction, trace_entries
from ._ranges import trace_ranges
from ._trace import ScoreFunction, TracedScore, as_it_is, trace_score

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
    read all rows.  A source may have no rows, as an empty cache has: it adds nothing.

        Source(k, v, causal=True, ranges=lambda b, rows, n: (16 * b - 16, 16 * b + 16))

    Ranges decide what is read, and cost nothing; a mask cuts single entries.

    `score`, `admit` and `segments` are those of `dense`, for the entries of this source.
    What they leave gets to the functions of the call.

        Source(k, v, causal=True, score=lambda s, b, h, i, j: s + slopes[h] * (j - i))

    `rows` is a list for each block of queries, [B,G',T,R] of int32 or int64 with G' one
    of 1, G and H; with B or T of 1 it is that of all: each entry x names the `unit` rows
    from `unit` x on, and -1 none.  Queries read what their list names, as often as it
    names it, and of it what ranges and mask admit.  What no list names may hold anything.

        Source(k, v, causal=True, rows=chosen, unit=64)

    Rows stand where they are `"stored"`; with `positions="listed"` where they are listed,
    entry n at `unit` n: as pages of a cache do.  Keys and values with a batch of 1
    are then a pool for all batch entries, and `lengths` counts listed rows.

    With `stride` = r the rows are summaries of r tokens each, and stand at the last of
    these: `causal` leaves a query those that are complete where it stands, and
    `window`, `prefix` and `lengths` count tokens.  The last query stands at the last
    token.  M rows stand for M r tokens, and for up to r - 1 more, as many as there are
    queries for: N queries of a whole sequence of N tokens stand at their own ones.

        Source(summaries, summaries, causal=True, stride=128)
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
    unit: int = 1
    positions: str = "stored"
    ranges: Callable[..., Any] | None = None
    lengths: Any = None
    segments: tuple[Any, Any] | None = None
    score: ScoreFunction | None = None
    admit: AdmitFunction | None = None

    def _trace(self, name: str, arrays: SourceArrays, q: Any, query_lengths: Any) -> TracedScore:
        """What its functions do."""
        if self.segments is not None and self.stride != 1:
            raise ValueError(f"{name}.segments: found them beside a stride, needed one of 1, or admit")
        k, _ = arrays.rows(name, self.k, self.v)
        return trace_entries(
            self.score, self.admit, self.segments, q, k, self.lengths, query_lengths, prefix=f"{name}.", convert=arrays.captured
        )

    def _pass(self, name: str, arrays: SourceArrays, traced: TracedScore) -> tuple[Any, ...]:
        """Its properties, in the order of FUNCTIONS["stream"]."""
        return (
            *arrays.rows(name, self.k, self.v), self.causal, self.window, self.prefix, self.stride,
            arrays.term(self.log_weight, 3), arrays.term(self.bias, 4), self.lengths, self.rows, self.unit, self.positions,
            "; ".join(trace_ranges(f"{name}.ranges", self.ranges)), traced.body or "", len(traced.captures or ()),
        )  # fmt: skip


def _heads_first(name: str, k: Any, v: Any) -> tuple[Any, ...]:
    return tuple(_layout.all_heads_first(**{f"{name}.k": k, f"{name}.v": v}))


class SourceArrays(NamedTuple):
    """What is made of the arrays of sources: of keys and values, of terms that may lack leading axes of `rank`, and of
    what functions capture."""

    rows: Callable[[str, Any, Any], Sequence[Any]] = lambda name, k, v: (k, v)
    term: Callable[[Any, int], Any] = lambda term, rank: term
    captured: Callable[[Any], Any] = as_it_is


#: Arrays of a source that have a gradient each, in the order of `SourceGradients`.
_ARRAYS = ("k", "v", "log_weight", "bias")
#: Where `pass_call` has how many arrays functions of sources capture.
_CAPTURES = [each.name for each in FUNCTIONS["stream"].values].index("source_captures") - 1


class SourceGradients(NamedTuple):
    """Gradients of what a `Source` holds; those of others are None."""

    k: Any
    v: Any
    log_weight: Any = None
    bias: Any = None
    #: Of the floating-point arrays that its functions capture, where they are asked for.
    captures: tuple[Any, ...] = ()


def trace_sources(sources: Sequence[Source], arrays: SourceArrays, q: Any, query_lengths: Any) -> list[TracedScore]:
    """What the functions of each source do."""
    if not isinstance(sources, (list, tuple)):
        raise ValueError(f"sources: found {type(sources).__name__}, needed a list of fovea.Source")
    if not sources:
        raise ValueError("sources: found none, needed at least 1")
    for index, source in enumerate(sources):
        if not isinstance(source, Source):
            raise ValueError(
                f"sources[{index}]: found {type(source).__name__}, needed a fovea.Source: rows of keys and values; "
                "what is no soft-max over rows, as convolutions are, is added to the result instead"
            )
    return [source._trace(f"sources[{index}]", arrays, q, query_lengths) for index, source in enumerate(sources)]


def pass_call(
    q: Any,
    sources: Sequence[Source],
    arrays: SourceArrays,
    block: int,
    scale: float | None,
    sink: Any,
    query_lengths: Any,
    score: ScoreFunction | None,
    admit: AdmitFunction | None,
) -> tuple[Any, ...]:
    """The arguments of FUNCTIONS["stream"] behind q, which has heads first: lists for each property of sources, and the
    others."""
    traced = trace_sources(sources, arrays, q, query_lengths)
    passed = [source._pass(f"sources[{index}]", arrays, own) for index, (source, own) in enumerate(zip(sources, traced))]
    common = trace_score(score, q, arrays.captured, admit, extents=getattr(q, "shape", ())[:2])
    captures = [array for own in (*traced, common) for array in own.captures or ()]
    return *map(list, zip(*passed)), block, scale, sink, query_lengths, common.body, captures or None


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
    entries of all sources, behind those of a source, and positions are those of the
    source that a key is of.
    """
    first_heads = not _layout.is_tokens_first(layout)
    if not first_heads:
        q = _layout.heads_first("q", q)
    arrays = SourceArrays() if first_heads else SourceArrays(rows=_heads_first)
    options = *pass_call(q, sources, arrays, block, scale, sink, query_lengths, score, admit), return_lse, target
    if first_heads:
        return _fovea.stream(q, *options, out=out)
    width = _fovea.describe("sources[0].v", sources[0].v)[1][3]
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
    return_d_captures: bool = False,
    layout: str = "bhnd",
    gradients: Any = None,
    target: str = "cpu",
) -> tuple[Any, ...]:
    """Gradients of `stream`: (dq, [a `SourceGradients` for each source]), and that of the
    sink where there is one.  With `return_d_captures` those of the floating-point arrays
    that functions capture follow, in the order in which they are read first; those of
    sources are in their `captures`.

    Each has the shape and type of what it is for, with leading axes of 1 where that has
    fewer than it broadcasts to.  `out` and `lse` are what `stream`
    gave with `return_lse`, `d_out` and `d_lse` the gradients for them; without `d_lse`
    nothing depends on `lse`.  All other arguments are those of `stream`; as in
    `dense_backward`, those of log weights and biases may be left out.  `gradients` is
    memory for them, arranged like them.
    """
    first_heads = not _layout.is_tokens_first(layout)
    arrays = SourceArrays() if first_heads else SourceArrays(rows=_heads_first)
    own = q if first_heads else _layout.heads_first("q", q)
    wanted = {"return_d_log_weight": return_d_log_weight, "return_d_bias": return_d_bias, "return_d_captures": return_d_captures}
    check.flags(**wanted)
    passed = pass_call(own, sources, arrays, block, scale, sink, query_lengths, score, admit)
    options = lse, d_lse, *passed, *wanted.values(), target
    given = [
        (name, index)
        for name in _ARRAYS
        for index, source in enumerate(sources)
        if wanted.get(ASKS + name, True) and getattr(source, name) is not None
    ]
    # How many gradients of captures there are of each source, and of the call.
    counts = [0] * (len(sources) + 1)
    if return_d_captures:
        counts = _count_gradients(passed[-1] or [], passed[_CAPTURES])
    # Arrays whose gradients have heads behind tokens with another layout, None for others.
    like: dict[str, Any] = {"q": q}
    for name, index in given:
        like[f"sources[{index}].{name}"] = getattr(sources[index], name) if name in ("k", "v") else None
    if sink is not None:
        like["sink"] = None
    like.update((f"captures[{at}]", None) for at in range(sum(counts)))
    memory = None if gradients is None else _flatten(gradients, given, counts, int(sink is not None))
    if first_heads:
        found = _fovea.stream_backward(d_out, q, out, *options, gradients=memory)
    else:
        views = {name: None if array is None else _layout.heads_first(name, array) for name, array in like.items()}
        d_out, out = _layout.all_heads_first(d_out=d_out, out=out)
        call = partial(_fovea.stream_backward, d_out, views["q"], out, *options)
        found = _layout.differentiate(call, views, memory)
    rest = iter(found[1:])
    of_sources: list[dict[str, Any]] = [{} for _ in sources]
    for name, index in given:
        of_sources[index][name] = next(rest)
    of_sink = [next(rest)] if sink is not None else []
    for each, count in zip(of_sources, counts):
        each["captures"] = tuple(itertools.islice(rest, count))
    return (found[0], [SourceGradients(**each) for each in of_sources], *of_sink, *rest)


def _count_gradients(captures: Sequence[Any], numbers: Sequence[int]) -> list[int]:
    """How many of the captures of each source, which are so many, have a gradient, and of those behind them."""
    rest = iter(captures)
    parts = [list(itertools.islice(rest, number)) for number in numbers] + [list(rest)]
    return [sum(has_gradient("captures", each) for each in part) for part in parts]


def _flatten(gradients: Any, given: list[tuple[str, int]], counts: list[int], has_sink: int) -> list[Any]:
    """The arrays of memory that is arranged like the gradients."""
    check.parts("gradients", "parts", gradients, 2 + has_sink + counts[-1])
    of_sources = check.parts("gradients[1]", "sources", gradients[1], len(counts) - 1)
    for index, each in enumerate(of_sources):
        check.parts(f"gradients[1][{index}]", "parts", each, 0, len(SourceGradients._fields))
    memory = {(name, index): array for index, each in enumerate(of_sources) for name, array in zip(_ARRAYS, each)}
    for name, index in memory:
        if memory[name, index] is not None and (name, index) not in given:
            raise ValueError(f"gradients[1][{index}].{name}: found an array, needed None: it is not computed")
    captures: list[Any] = []
    for index, (each, count) in enumerate(zip(of_sources, counts)):
        own = each[len(_ARRAYS)] if len(each) > len(_ARRAYS) else ()
        check.match(f"gradients[1][{index}].captures", "arrays", len(own), count)
        captures += own
    sink = gradients[2 : 2 + has_sink]
    return [gradients[0], *(memory.get(each) for each in given), *sink, *captures, *gradients[2 + has_sink :]]
