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

from collections.abc import Sequence
from typing import Any

from . import _fovea

__all__ = ["dense_backward", "fast_multipole_backward", "fast_multipole_linear_backward"]


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
    return _fovea.dense_backward(
        d_out, q, k, v, out, lse, d_lse, scale, causal, window, log_weight, bias, target
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
    return _fovea.fast_multipole_backward(
        d_out, q, k, v, group, key_weights, value_weights, key_biases, value_biases, scale, causal,
        multiplicity, out, lse, d_lse, target,
    )  # fmt: skip


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
    return _fovea.fast_multipole_linear_backward(
        d_out, q, k, v, group, query_weights, key_weights, value_weights, query_biases, key_biases,
        value_biases, scale, causal, allow_query_lookahead, target,
    )  # fmt: skip
