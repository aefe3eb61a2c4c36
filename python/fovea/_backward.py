# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradients of the attention functions.

Each takes the gradient of the output, the arguments of the forward function and
its results, and returns gradients in the order of the arguments, with their
shapes and types.  Sums are kept in float32 (float64) and rounded once; they
have the same bits on any number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import _arguments as check
from . import _fovea
from ._arguments import Tensor
from .compiler import check_target, remember
from .ops import (
    _as_list,
    _build,
    _collect,
    _dense_arrays,
    _dense_attributes,
    _dense_terms,
    _dense_window,
    _find,
    _lookahead_flags,
    _multipole_clauses,
    _remembered,
)

__all__ = ["dense_backward", "fast_multipole_backward", "fast_multipole_linear_backward"]

Clauses = list[tuple[str, list[Tensor]]]


# ----------------------------------------------------------------------------
# Kernels
# ----------------------------------------------------------------------------


def _result_clauses(q: Tensor, v: Tensor, results: Sequence[Any]) -> Clauses:
    """The clauses of the forward's results and their gradients, checked.

    `results` are out and lse, unless the pattern needs neither, d_out and, if
    given, d_lse.
    """
    rows = q.shape[:3]
    state = check.state_type(q.element)
    shapes = {
        "out": (q.element, (*rows, v.shape[3]), "[B,H,N,E]"),
        "lse": (state, rows, "[B,H,N]"),
        "d_out": (q.element, (*rows, v.shape[3]), "[B,H,N,E]"),
        "d_lse": (state, rows, "[B,H,N]"),
    }
    names = ("out", "lse", "d_out", "d_lse") if len(results) > 1 else ("d_out",)
    tensors = []
    for name, array in zip(names, results):
        element, shape, layout = shapes[name]
        tensors.append(check.tensor(name, array, len(shape), layout))
        check.element_type(tensors[-1], element)
        check.match(name, "shape", list(tensors[-1].shape), list(shape))
    if len(tensors) == 1:
        return [("gradient", tensors)]
    return [("forward", tensors[:2]), ("gradient", tensors[2:])]


def _make(
    op: str,
    inputs: Sequence[Tensor],
    clauses: Clauses,
    results: Clauses,
    attributes: Sequence[str],
    target: str,
    reads: bool,
) -> Callable[..., Any]:
    """A kernel with a gradient for every one of `inputs` and `clauses`."""
    if not reads:
        tensors = [*inputs, *(tensor for _, group in clauses for tensor in group)]
        return _zeros_like(tensors)
    outs = [("outs", [tensor.type for tensor in inputs])]
    outs += [(f"d_{name}", [tensor.type for tensor in group]) for name, group in clauses]
    return _build(op, inputs, [*clauses, *results], outs, attributes, target)


def _zeros_like(tensors: Sequence[Tensor]) -> Callable[..., Any]:
    """What stands for a kernel when no query has a key to attend to."""

    def dtype(element: str) -> Any:
        return _fovea.bfloat16() if element == "bf16" else check.FLOAT_TYPES[element]

    kinds = [(tensor.shape, np.dtype(dtype(tensor.element))) for tensor in tensors]
    return lambda *_: tuple(np.zeros(shape, type) for shape, type in kinds)


# ----------------------------------------------------------------------------
# Dense
# ----------------------------------------------------------------------------


def dense_backward(
    d_out: Any,
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    lse: Any,
    *,
    d_lse: Any = None,
    scale: float | None = None,
    causal: bool = False,
    window: int | None = None,
    log_weight: Any = None,
    bias: Any = None,
    target: str = "cpu",
) -> tuple[Any, ...]:
    """Gradients of `dense`: (dq, dk, dv), then those of log_weight and bias where
    these are given.

    Each has the shape and type of what it is for.  `out` and `lse` are what
    `dense` gave with `return_lse`, `d_out` and `d_lse` the gradients for them;
    without `d_lse` nothing depends on `lse`.  All other arguments are those of
    `dense`.
    """
    check.flags(causal=causal)
    results = [out, lse, d_out] + ([] if d_lse is None else [d_lse])
    arrays = [*_dense_arrays(q, k, v, log_weight, bias), *results]
    terms = (log_weight is None, bias is None)
    options = ("dense_backward", target, scale, causal, window, *terms, d_lse is None)
    kernel = _remembered(
        options, arrays, lambda: _make_dense(arrays, results, terms, scale, causal, window, target)
    )
    return kernel(*arrays)


def _make_dense(
    arrays: Sequence[Any],
    results: Sequence[Any],
    terms: tuple[bool, bool],
    scale: Any,
    causal: bool,
    window: Any,
    target: str,
) -> Callable[..., Any]:
    check_target(target)
    q, k, v = check.queries_keys_values(*arrays[:3], same_length=False)
    window = _dense_window(window, q, k)
    rest = iter(arrays[3:])
    clauses = _dense_terms(q, k, *(None if absent else next(rest) for absent in terms))
    attributes = _dense_attributes(scale, q, causal, window)
    reads = 0 not in (*q.shape[:3], k.shape[2]) and window != 0
    return _make(
        "dense_backward",
        (q, k, v),
        clauses,
        _result_clauses(q, v, results),
        attributes,
        target,
        reads,
    )


# ----------------------------------------------------------------------------
# Fast multipole
# ----------------------------------------------------------------------------


def _call_multipole(
    op: str,
    inputs: Sequence[Any],
    weights: Sequence[Any],
    biases: Sequence[Any],
    results: Sequence[Any],
    group: Any,
    scale: Any,
    flags: tuple[str, ...],
    target: str,
) -> tuple[Any, ...]:
    # Iterators can be read once only.
    weights = [_as_list(entries) for entries in weights]
    biases = [entries if entries is None else _as_list(entries) for entries in biases]
    arrays: list[Any] = []
    counts: tuple[int | None, ...] = ()
    key, kernel = None, None
    try:
        levels, counts = _collect(*weights, *biases)
        arrays = [*inputs, *levels, *results]
        options = (op, target, group, scale, flags, len(results), counts)
        key, kernel = _find(options, arrays)
    except TypeError:
        pass  # what is no list is named by the checks
    if kernel is None:
        kernel = _make_multipole(
            op, inputs, weights, biases, results, group, scale, flags, target
        )
        if key is not None:
            remember(key, kernel)
    gradients = list(kernel(*arrays))
    # One list for each of the lists of arguments.
    found, first = gradients[:3], 3
    for count in counts:
        if count is not None:
            found.append(gradients[first : first + count])
            first += count
    return tuple(found)


def _make_multipole(
    op: str,
    inputs: Sequence[Any],
    weights: Sequence[Any],
    biases: Sequence[Any],
    results: Sequence[Any],
    group: Any,
    scale: Any,
    flags: Sequence[str],
    target: str,
) -> Callable[..., Any]:
    check_target(target)
    q, k, v = check.queries_keys_values(*inputs, same_length=True)
    clauses, attributes = _multipole_clauses(q, k, v, weights, biases, group, scale)
    return _make(
        op,
        (q, k, v),
        clauses,
        _result_clauses(q, v, results),
        [*attributes, *flags],
        target,
        0 not in q.shape[:3],
    )


def fast_multipole_backward(
    d_out: Any,
    q: Any,
    k: Any,
    v: Any,
    key_weights: Sequence[Any],
    value_weights: Sequence[Any],
    out: Any,
    lse: Any,
    *,
    group: int,
    d_lse: Any = None,
    causal: bool = False,
    key_biases: Sequence[Any] | None = None,
    value_biases: Sequence[Any] | None = None,
    scale: float | None = None,
    multiplicity: bool = True,
    target: str = "cpu",
) -> tuple[Any, ...]:
    """Gradients of `fast_multipole`: (dq, dk, dv, d_key_weights, d_value_weights),
    then those of key_biases and value_biases where these are given.  Weights and
    biases have lists of gradients, level 1 first.

    Each has the shape and type of what it is for.  `out` and `lse` are what
    `fast_multipole` gave with `return_lse`, `d_out` and `d_lse` the gradients
    for them.
    """
    check.flags(causal=causal, multiplicity=multiplicity)
    flags = (
        *(("causal",) if causal else ()),
        *(() if multiplicity else ("multiplicity = false",)),
    )
    return _call_multipole(
        "fast_multipole_backward",
        (q, k, v),
        (key_weights, value_weights),
        (key_biases, value_biases),
        [out, lse, d_out] + ([] if d_lse is None else [d_lse]),
        group,
        scale,
        flags,
        target,
    )


def fast_multipole_linear_backward(
    d_out: Any,
    q: Any,
    k: Any,
    v: Any,
    query_weights: Sequence[Any],
    key_weights: Sequence[Any],
    value_weights: Sequence[Any],
    *,
    group: int,
    causal: bool = False,
    allow_query_lookahead: bool = False,
    query_biases: Sequence[Any] | None = None,
    key_biases: Sequence[Any] | None = None,
    value_biases: Sequence[Any] | None = None,
    scale: float | None = None,
    target: str = "cpu",
) -> tuple[Any, ...]:
    """Gradients of `fast_multipole_linear`: (dq, dk, dv, d_query_weights,
    d_key_weights, d_value_weights), then those of the biases that are given.

    Each has the shape and type of what it is for, and `d_out` those of the result.
    The output is no argument: its parts, one for each level, are computed again.
    """
    flags = _lookahead_flags(causal, allow_query_lookahead)
    return _call_multipole(
        "fast_multipole_linear_backward",
        (q, k, v),
        (query_weights, key_weights, value_weights),
        (query_biases, key_biases, value_biases),
        [d_out],
        group,
        scale,
        flags,
        target,
    )
