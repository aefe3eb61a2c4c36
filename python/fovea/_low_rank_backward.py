# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradients of low-rank attention and of polynomial features."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import _arguments as check
from ._low_rank import _check_features, _check_low_rank, _check_mask
from .compiler import check_target
from .ops import _build, _remembered

__all__ = ["low_rank_backward", "polynomial_features_backward"]


def _make_low_rank(
    d_out: Any, factors: tuple[Any, Any, Any], out: Any, mask: Any, target: str
) -> Callable[..., Any]:
    check_target(target)
    inputs, parts = _check_low_rank(*factors, mask)
    u1, _, v = inputs
    shape = (*u1.shape[:3], v.shape[3])
    results = [check.like(name, x, u1.element, shape) for name, x in (("out", out), ("d_out", d_out))]
    return _build(
        "low_rank_backward",
        inputs,
        [("mask", parts), ("forward", results[:1]), ("gradient", results[1:])],
        [("outs", [tensor.type for tensor in inputs])],
        [f"mask = #attn.row_mask<{mask.kind}>"],
        target,
    )


def low_rank_backward(
    d_out: Any, u1: Any, u2: Any, v: Any, out: Any, *, mask: Any, target: str = "cpu"
) -> tuple[Any, ...]:
    """Gradients of `low_rank`: (d_u1, d_u2, d_v).

    `out` is what `low_rank` returned for the same arguments, `d_out` [B,H,N,E] the
    gradient for it.  A row whose sum of weights is 0 passes nothing on.
    """
    _check_mask(mask)
    arrays = (u1, u2, v, *mask.parts.values(), out, d_out)
    kernel = _remembered(
        ("low_rank_backward", target, mask.kind),
        arrays,
        lambda: _make_low_rank(d_out, (u1, u2, v), out, mask, target),
    )
    return tuple(kernel(*arrays))


def _make_features(d_out: Any, x: Any, degree: Any, scale: Any, target: str) -> Callable[..., Any]:
    check_target(target)
    x, features, attributes = _check_features(x, degree, scale)
    gradient = check.like("d_out", d_out, x.element, (*x.shape[:3], features))
    return _build(
        "polynomial_features_backward",
        (x,),
        [("gradient", [gradient])],
        [("outs", [x.type])],
        attributes,
        target,
    )


def polynomial_features_backward(
    d_out: Any, x: Any, *, degree: int, scale: float, target: str = "cpu"
) -> Any:
    """The gradient for x [B,H,N,D] of `polynomial_features`, given that for its
    result, d_out [B,H,N,F]."""
    kernel = _remembered(
        ("polynomial_features_backward", target, degree, scale),
        (x, d_out),
        lambda: _make_features(d_out, x, degree, scale, target),
    )
    return kernel(x, d_out)
