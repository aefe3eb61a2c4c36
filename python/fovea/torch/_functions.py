# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The functions of the package on tensors, but for those of trees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .. import _arguments as check
from .. import _conv, _low_rank, _patterns, _pool, _quantize, _rope, ops
from .. import _paged as _pages
from .. import _stream as _lists
from .. import _varlen as _packed
from .. import _vq as arrays_vq
from .._conv import SlidingGroup, sliding_group
from .._declarations import FUNCTIONS
from .._documented import documented
from .._entries import AdmitFunction, trace_entries
from .._kept_traces import FOLLOWED
from .._low_rank import Causal, DistinctColumns, DistinctRows, RowChange, RowInterval, check_mask
from .._rope import rope_frequencies
from .._stream import Source, SourceArrays, pass_call
from .._trace import NO_SCORE, ScoreFunction
from .._weights import hierarchical_weights, key_weights_from_conv1d
from ._operator import NO_COUNT, OPTIONAL_COUNTS
from ._shortcut import writes_program
from ._tape import check_tensor, make_call, refuse_gradients
from ._vq import VQState, quantize_straight_through

__all__ = [
    "Causal",
    "DistinctColumns",
    "DistinctRows",
    "RowChange",
    "RowInterval",
    "SlidingGroup",
    "Source",
    "VQState",
    "codebook_update",
    "commitment_loss",
    "conv",
    "conv_apply",
    "conv_recover",
    "dense",
    "fast_multipole",
    "fast_multipole_linear",
    "hca",
    "hierarchical_weights",
    "key_weights_from_conv1d",
    "low_rank",
    "paged",
    "polynomial_features",
    "pool",
    "quantize",
    "rope",
    "rope_frequencies",
    "selected",
    "stream",
    "top_k",
    "varlen",
    "vq",
]

_Levels = Sequence[Tensor]


def _list(levels: _Levels | None) -> list[Tensor] | None:
    return None if levels is None else list(levels)


# ----------------------------------------------------------------------------
# dense, stream and lists of sources, varlen, paged and fast_multipole
# ----------------------------------------------------------------------------

_dense = make_call("dense")
_dense_out = make_call("dense", is_first=True)


def _extend(term: Any, rank: int) -> Any:
    """With all axes, as gradients have them."""
    if not isinstance(term, Tensor) or term.dim() >= rank:
        return term
    return term[(None,) * (rank - term.dim())]


def _lengths_beside(q: Tensor) -> Callable[..., Tensor]:
    check_tensor("q", q)
    return partial(torch.full, dtype=torch.int32, device=q.device)


def _captured(array: Any, place: torch.device) -> Tensor:
    if isinstance(array, torch.SymInt):
        return torch.full((1,), array, dtype=torch.int32, device=place)
    return array if isinstance(array, Tensor) else torch.as_tensor(array, device=place)


FOLLOWED.append(torch.compiler.is_compiling)


@documented(ops.dense)
def dense(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float | None = None,
    causal: bool = False,
    window: int | None = None,
    prefix: int | None = None,
    log_weight: Tensor | None = None,
    bias: Tensor | None = None,
    sink: Tensor | None = None,
    lengths: Tensor | None = None,
    query_lengths: Tensor | None = None,
    score: ScoreFunction | None = None,
    admit: AdmitFunction | None = None,
    segments: tuple[Any, Any] | None = None,
    return_lse: bool = False,
    target: str | None = None,
) -> Any:
    log_weight, bias, sink = _extend(log_weight, 3), _extend(bias, 4), _extend(sink, 2)
    run = _dense if return_lse else _dense_out
    traced = NO_SCORE
    # Most calls have none, and are to cost little.
    if score is not None or admit is not None or segments is not None:
        for name, each in (("q", q), ("k", k)):
            check_tensor(name, each)
        convert = partial(_captured, place=q.device)
        traced = trace_entries(score, admit, segments, q, k, lengths, query_lengths, convert=convert)
    return run(
        q, k, v, scale, causal, window, log_weight, bias, sink, prefix, lengths, query_lengths, *traced, target
    )


#: Where they are behind q.
_COUNTS = [(at, each.name) for at, each in enumerate(FUNCTIONS["stream"].values[1:]) if each.kind == OPTIONAL_COUNTS]
_stream = make_call("stream")
_stream_out = make_call("stream", is_first=True)


def _count(name: str, value: Any) -> Any:
    """One of `OPTIONAL_COUNTS`."""
    if value is None:
        return NO_COUNT
    if isinstance(value, bool) or not isinstance(value, (int, torch.SymInt)):
        value = check.integer(name, value, 0)
    if value < 0:
        raise ValueError(f"{name}: found {value}, needed an integer of at least 0")
    return value


@documented(_lists.stream)
def stream(
    q: Tensor,
    sources: Sequence[Source],
    *,
    block: int = 0,
    scale: float | None = None,
    sink: Tensor | None = None,
    query_lengths: Tensor | None = None,
    score: ScoreFunction | None = None,
    admit: AdmitFunction | None = None,
    return_lse: bool = False,
    target: str | None = None,
) -> Any:
    check_tensor("q", q)
    arrays = SourceArrays(term=_extend, captured=partial(_captured, place=q.device))
    run = _stream if return_lse else _stream_out
    passed = list(pass_call(q, sources, arrays, block, scale, _extend(sink, 2), query_lengths, score, admit))
    for at, name in _COUNTS:
        passed[at] = [_count(f"sources[{index}].{name}", value) for index, value in enumerate(passed[at])]
    return run(q, *passed, target)


@documented(_patterns.hca)
def hca(
    q: Tensor,
    kv: Tensor,
    summaries: Tensor,
    *,
    window: int = 128,
    interval: int = 128,
    sink: Tensor | None = None,
    scale: float | None = None,
    lengths: Tensor | None = None,
    query_lengths: Tensor | None = None,
    return_lse: bool = False,
    target: str | None = None,
) -> Any:
    check_tensor("kv", kv)
    sources = _patterns.hca_sources(q, kv, summaries, window, interval, lengths, full=_lengths_beside(q))
    with _patterns.calling(_patterns.HCA_NAMES):
        return stream(q, sources, scale=scale, sink=sink, query_lengths=query_lengths, return_lse=return_lse, target=target)


@documented(_patterns.selected)
def selected(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    rows: Tensor,
    *,
    unit: int = 1,
    block: int = 1,
    stride: int = 1,
    causal: bool = True,
    local: tuple[Tensor, Tensor] | None = None,
    window: int | None = None,
    sink: Tensor | None = None,
    scale: float | None = None,
    lengths: Tensor | None = None,
    query_lengths: Tensor | None = None,
    return_lse: bool = False,
    target: str | None = None,
) -> Any:
    sources = _patterns.selected_sources(q, k, v, rows, unit, stride, causal, local, window, lengths, full=_lengths_beside(q))
    with _patterns.calling(_patterns.SELECTED_NAMES, unit):
        return stream(
            q, sources, block=block, scale=scale, sink=sink, query_lengths=query_lengths, return_lse=return_lse, target=target
        )


_varlen = make_call("varlen")
_varlen_out = make_call("varlen", is_first=True)


@documented(_packed.varlen)
def varlen(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    *,
    scale: float | None = None,
    causal: bool = False,
    window: int | None = None,
    prefix: int | None = None,
    sink: Tensor | None = None,
    max_q: int | None = None,
    max_k: int | None = None,
    return_lse: bool = False,
    target: str | None = None,
) -> Any:
    run = _varlen if return_lse else _varlen_out
    return run(q, k, v, cu_seqlens_q, cu_seqlens_k, scale, causal, window, prefix, sink, max_q, max_k, target)


_paged = make_call("paged")
_paged_out = make_call("paged", is_first=True)


@documented(_pages.paged)
def paged(
    q: Tensor,
    k_pages: Tensor,
    v_pages: Tensor,
    block_table: Tensor,
    lengths: Tensor,
    *,
    scale: float | None = None,
    causal: bool = True,
    window: int | None = None,
    sink: Tensor | None = None,
    query_lengths: Tensor | None = None,
    max_length: int | None = None,
    return_lse: bool = False,
    target: str | None = None,
) -> Any:
    run = _paged if return_lse else _paged_out
    return run(q, k_pages, v_pages, block_table, lengths, max_length, scale, causal, window, sink, query_lengths, target)


_fast_multipole = make_call("fast_multipole")
_fast_multipole_out = make_call("fast_multipole", is_first=True)


@documented(ops.fast_multipole)
def fast_multipole(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    key_weights: _Levels | None = None,
    value_weights: _Levels | None = None,
    *,
    group: int,
    causal: bool = False,
    key_biases: _Levels | None = None,
    value_biases: _Levels | None = None,
    key_summaries: _Levels | None = None,
    value_summaries: _Levels | None = None,
    scale: float | None = None,
    multiplicity: bool = True,
    return_lse: bool = False,
    mask: Tensor | None = None,
    lengths: Tensor | None = None,
    target: str | None = None,
) -> Any:
    lists = map(_list, (key_weights, value_weights, key_biases, value_biases, key_summaries, value_summaries))
    run = _fast_multipole if return_lse else _fast_multipole_out
    return run(q, k, v, group, *lists, scale, causal, multiplicity, mask, lengths, target)


_fast_multipole_linear = make_call("fast_multipole_linear")


@documented(ops.fast_multipole_linear)
def fast_multipole_linear(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    query_weights: _Levels | None = None,
    key_weights: _Levels | None = None,
    value_weights: _Levels | None = None,
    *,
    group: int,
    causal: bool = False,
    allow_query_lookahead: bool = False,
    query_biases: _Levels | None = None,
    key_biases: _Levels | None = None,
    value_biases: _Levels | None = None,
    query_summaries: _Levels | None = None,
    key_summaries: _Levels | None = None,
    value_summaries: _Levels | None = None,
    scale: float | None = None,
    mask: Tensor | None = None,
    lengths: Tensor | None = None,
    target: str | None = None,
) -> Tensor:
    weights = query_weights, key_weights, value_weights, query_biases, key_biases, value_biases
    lists = map(_list, (*weights, query_summaries, key_summaries, value_summaries))
    return _fast_multipole_linear(
        q, k, v, group, *lists, scale, causal, allow_query_lookahead, mask, lengths, target
    )


# ----------------------------------------------------------------------------
# vq
# ----------------------------------------------------------------------------

_vq = make_call("vq")


@documented(arrays_vq.vq)
def vq(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    codebook: Tensor,
    *,
    block: int,
    memory: int = 1,
    causal: bool = True,
    padded: bool = False,
    mask: Tensor | None = None,
    lengths: Tensor | None = None,
    bias: Tensor | None = None,
    relative: tuple[Tensor, Tensor] | None = None,
    distance_bias: Tensor | None = None,
    scale: float = 1.0,
    weighting: str = "softmax",
    reduction: str = "auto",
    state: VQState | None = None,
    return_state: bool = False,
    return_lse: bool = False,
    target: str | None = None,
) -> Any:
    # Backward functions need it.
    has_lse = return_lse or weighting == "softmax"
    parts = None if state is None else list(state.of_width(q))
    terms = None if relative is None else list(relative)
    out, lse, *after = _vq(
        q, k, v, codebook, block, memory, mask, lengths, padded, bias, terms, distance_bias, scale, weighting,
        causal, reduction, parts, return_state, has_lse, target,
    )  # fmt: skip
    found = (out, lse) if return_lse else (out,)
    if return_state:
        return (*found, VQState(*after))
    return found if return_lse else out


_quantize_call = make_call("quantize")


@documented(_quantize.quantize)
def quantize(
    k: Tensor, codebook: Tensor, *, mask: Tensor | None = None, lengths: Tensor | None = None, target: str | None = None
) -> tuple[Tensor, Tensor]:
    values = k, codebook, mask, lengths, target
    if writes_program() or not (torch.is_grad_enabled() and getattr(k, "requires_grad", False)):
        return _quantize_call(*values)
    return quantize_straight_through(_quantize_call, *values)


_codebook_update = make_call("codebook_update")


@documented(_quantize.codebook_update)
def codebook_update(
    k: Tensor,
    codes: Tensor,
    sums: Tensor,
    counts: Tensor,
    *,
    rate: float = 0.99,
    min_count: float = 0.0,
    replace_below: float = 0.0,
    seed: int = 0,
    wide: bool = False,
    target: str | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    return _codebook_update(k, codes, sums, counts, rate, min_count, replace_below, seed, wide, target)


_commitment_loss = make_call("commitment_loss")


@documented(_quantize.commitment_loss)
def commitment_loss(
    k: Tensor, k_hat: Tensor, *, mask: Tensor | None = None, lengths: Tensor | None = None, target: str | None = None
) -> Tensor:
    return _commitment_loss(k, k_hat, mask, lengths, target)


# ----------------------------------------------------------------------------
# conv
# ----------------------------------------------------------------------------

_conv_call = make_call("conv")
_conv_apply = make_call("conv_apply")
_conv_recover = make_call("conv_recover")


@documented(_conv.conv)
def conv(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    num_basis: int,
    window: int,
    delta: float,
    epsilon: float,
    scale: float | None = None,
    mask: Any = "causal",
    token_mask: Tensor | None = None,
    lengths: Tensor | None = None,
    algorithm: str = "auto",
    return_counts: bool = False,
    target: str | None = None,
) -> Any:
    found = _conv_call(
        q, k, v, num_basis, window, delta, epsilon, scale, sliding_group(mask), algorithm, token_mask,
        lengths, target,
    )  # fmt: skip
    return found if return_counts else found[0]


@documented(_conv.conv_apply)
def conv_apply(
    b: Tensor,
    sizes: Tensor,
    v: Tensor,
    *,
    algorithm: str = "auto",
    block: int | None = None,
    return_recomputed: bool = False,
    target: str | None = None,
) -> Any:
    found = _conv_apply(b, sizes, v, algorithm, block, target)
    return found if return_recomputed else found[0]


@documented(_conv.conv_recover)
def conv_recover(
    q: Tensor,
    k: Tensor,
    *,
    num_basis: int,
    window: int,
    delta: float,
    epsilon: float,
    scale: float | None = None,
    target: str | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    return _conv_recover(q, k, num_basis, window, delta, epsilon, scale, target)


# ----------------------------------------------------------------------------
# low_rank
# ----------------------------------------------------------------------------

_low_rank_call = make_call("low_rank")
_polynomial_features = make_call("polynomial_features")


def _part(part: np.ndarray | None, place: torch.device) -> Tensor | None:
    return None if part is None else torch.from_numpy(part).to(place)


@documented(_low_rank.low_rank)
def low_rank(
    u1: Tensor,
    u2: Tensor,
    v: Tensor,
    *,
    mask: Any,
    query_mask: Tensor | None = None,
    key_mask: Tensor | None = None,
    lengths: Tensor | None = None,
    target: str | None = None,
) -> Tensor:
    check_mask(mask)
    check_tensor("u1", u1)
    first, second = (_part(each, u1.device) for each in mask.parts.values())
    return _low_rank_call(u1, u2, v, mask.kind, first, second, query_mask, key_mask, lengths, target)


@documented(_low_rank.polynomial_features)
def polynomial_features(x: Tensor, *, degree: int, scale: float, target: str | None = None) -> Tensor:
    return _polynomial_features(x, degree, scale, target)


# ----------------------------------------------------------------------------
# pool
# ----------------------------------------------------------------------------

_pool_call = make_call("pool")
_top_k = make_call("top_k")


@documented(_pool.pool)
def pool(
    x: Tensor,
    gate: Tensor,
    *,
    interval: int,
    overlap: int = 0,
    position_bias: Tensor | None = None,
    target: str | None = None,
) -> Tensor:
    return _pool_call(x, gate, interval, overlap, position_bias, target)


@documented(_pool.top_k)
def top_k(scores: Tensor, k: int, *, causal_unit: int | None = None, target: str | None = None) -> Tensor:
    return _top_k(scores, k, causal_unit, target)


# ----------------------------------------------------------------------------
# rope
# ----------------------------------------------------------------------------

_rope_call = make_call("rope")


def _check_integers(positions: Tensor) -> Tensor:
    check_tensor("positions", positions)
    kind = positions.dtype
    if kind.is_floating_point or kind.is_complex or kind == torch.bool:
        raise ValueError(f"positions: found element type {str(kind).removeprefix('torch.')}, needed an integer type")
    return positions


def _table(frequencies: Any) -> Sequence[float] | None:
    """The numbers of a table, which are constants of a kernel."""
    is_tensor = isinstance(frequencies, Tensor)
    if torch.compiler.is_compiling():
        # Arrays of NumPy are tensors of a graph there.
        if is_tensor or (torch.compiler.is_dynamo_compiling() and isinstance(frequencies, np.ndarray)):
            raise ValueError(
                f"frequencies: found {type(frequencies).__name__}, needed a list where torch.compile or torch.export trace the call: "
                "pass frequencies.tolist()"
            )
        if isinstance(frequencies, (list, tuple)):
            return [float(each) for each in frequencies]
    if not is_tensor:
        return _rope.check_table(frequencies)
    if torch.is_grad_enabled():
        refuse_gradients("rope", {"frequencies": frequencies})
    known = frequencies.detach().cpu()
    return _rope.check_table(known.double() if known.is_floating_point() else known)


@documented(_rope.rope)
def rope(
    x: Tensor,
    positions: Tensor,
    *,
    base: float = 10000.0,
    style: str = "interleaved",
    width: int | None = None,
    frequencies: Any = None,
    magnitude: float = 1.0,
    target: str | None = None,
) -> Tensor:
    return _rope_call(x, _check_integers(positions), base, style, width, _table(frequencies), magnitude, target)
