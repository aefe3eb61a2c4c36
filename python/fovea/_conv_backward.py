# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradients of attention by sums of convolutions."""

from __future__ import annotations

from typing import Any

from . import _fovea
from ._conv import _group

__all__ = ["conv_apply_backward", "conv_backward", "conv_recover_backward"]


def conv_apply_backward(
    d_out: Any,
    b: Any,
    sizes: Any,
    v: Any,
    out: Any,
    *,
    algorithm: str = "auto",
    block: int | None = None,
    target: str = "cpu",
) -> Any:
    """Gradients of `conv_apply`: (d_b, d_v), like b and v.

    `out` is its result for the other arguments, and `d_out` what it gets.  d_b is 0
    where b is not read.  `algorithm` and `block` are as in `conv_apply`, and need
    not be the same.
    """
    return _fovea.conv_apply_backward(d_out, b, sizes, v, out, algorithm, block, target)


def conv_recover_backward(
    d_b: Any, q: Any, k: Any, sizes: Any, *, scale: float | None = None, target: str = "cpu"
) -> Any:
    """Gradients of the bases of `conv_recover`: (d_q, d_k), like q and k.

    `sizes` are those that it returned; they are constants, so that only keys where
    a basis begins have a gradient.  `d_b` [B,H,R,N] is what the bases get.
    """
    return _fovea.conv_recover_backward(d_b, q, k, sizes, scale, target)


def conv_backward(
    d_out: Any,
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    *,
    num_basis: int,
    window: int,
    delta: float,
    epsilon: float,
    scale: float | None = None,
    mask: Any = "causal",
    algorithm: str = "auto",
    target: str = "cpu",
) -> Any:
    """Gradients of `conv`: (d_q, d_k, d_v), like q, k and v.

    `out` is its result for the other arguments, and `d_out` what it gets.  Bases are
    searched once more; where they begin is a constant.
    """
    return _fovea.conv_backward(
        d_out, q, k, v, out, num_basis, window, delta, epsilon, scale, _group(mask), algorithm, target
    )
