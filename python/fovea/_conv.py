# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention by sums of convolutions: conv_apply."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import _arguments as check
from . import _fovea
from ._arguments import Tensor, tensor_type
from .compiler import check_target
from .ops import _list, _remembered

__all__ = ["ALGORITHMS", "conv_apply"]

#: The algorithms of conv_apply.
ALGORITHMS = ("auto", "toeplitz", "partitioned", "single")


def _algorithm(algorithm: Any, block: Any, bases: int) -> list[str]:
    """The attributes that say how to evaluate the sum."""
    check.choice("algorithm", algorithm, ALGORITHMS)
    if algorithm == "single" and bases != 1:
        raise ValueError(f"algorithm: found 'single' for {bases} bases, needed one basis")
    attributes = [f"algorithm = #attn.conv_algorithm<{algorithm}>"]
    if block is None:
        return attributes
    block = check.integer("block", block, 8)
    if block & (block - 1) or block > 1 << 20:
        raise ValueError(f"block: found {block}, needed a power of two from 8 to 2^20")
    if algorithm != "partitioned":
        raise ValueError(
            f"block: found {block} with the algorithm {algorithm!r}, needed 'partitioned'"
        )
    return attributes + [f"block = {block} : i64"]


def _check_bases(b: Any, sizes: Any, v: Any) -> tuple[Tensor, Tensor, Tensor]:
    """b [B,H,R,N], sizes [B,H,R] and v [B,G,N,E], checked against each other."""
    b = check.tensor("b", b, 4, "[B,H,R,N]")
    v = check.tensor("v", v, 4, "[B,G,N,E]")
    if check.state_type(b.element) != check.state_type(v.element):
        needed = [t for t in check.FLOAT_TYPES if check.state_type(t) == check.state_type(v.element)]
        check.element_type(b, *needed)
    batch, heads, bases, length = b.shape
    if bases == 0:
        raise ValueError("b: found no bases, needed at least 1")
    element, shape = _fovea.describe("sizes", sizes)
    if element != "i32":
        raise ValueError(f"sizes: found element type {check.TYPE_NAMES[element]}, needed int32")
    check.match("sizes", "shape", tuple(shape), (batch, heads, bases))
    check.match("v", "batch", v.shape[0], batch)
    check.match("v", "length", v.shape[2], length)
    groups, width = v.shape[1], v.shape[3]
    if groups == 0 or heads % groups:
        raise ValueError(f"v: found {groups} heads, needed a divisor of the {heads} heads of b")
    if width == 0:
        raise ValueError("v: found width 0, needed at least 1")
    return b, Tensor("sizes", element, shape), v


def _make_conv_apply(
    b: Any, sizes: Any, v: Any, algorithm: Any, block: Any, target: str
) -> Callable[..., Any]:
    check_target(target)
    b, sizes, v = _check_bases(b, sizes, v)
    batch, heads, bases, length = b.shape
    attributes = _algorithm(algorithm, block, bases)
    inputs = [b, sizes, v]
    parameters = ", ".join(f"{tensor.value}: {tensor.type}" for tensor in inputs)
    out = tensor_type(v.element, (batch, heads, length, v.shape[3]))
    count = tensor_type("i32", (batch, heads))
    return _fovea.compile(
        f"func.func @conv_apply({parameters}) -> ({out}, {count}) {{\n"
        f"  %init = tensor.empty() : {out}\n"
        f"  %count = tensor.empty() : {count}\n"
        f"  %r:2 = attn.conv_apply ins{_list(inputs)}\n"
        f"      outs(%init, %count : {out}, {count}) {{{', '.join(attributes)}}} -> {out}, {count}\n"
        f"  return %r#0, %r#1 : {out}, {count}\n"
        "}\n",
        target,
        "native",
        None,
    )


def conv_apply(
    b: Any,
    sizes: Any,
    v: Any,
    *,
    algorithm: str = "auto",
    block: int | None = None,
    return_recomputed: bool = False,
    target: str = "cpu",
) -> Any:
    """Causal attention whose scores are a sum of convolutions.

    b is [B,H,R,N] and sizes [B,H,R] of int32, as of `conv_recover`: basis r gives
    the score b[r, i - j] to query i and key j >= N - sizes[r].  Sizes decrease from
    at most N, and are zero for bases that do not exist.  v is [B,G,N,E].  Returns
    out [B,H,N,E] and, with `return_recomputed`, [B,H] of int32: how many rows
    were small against the rounding errors of a transform and were therefore
    computed again without one.

    `algorithm` is "toeplitz" (a product for every pair of tokens), "partitioned"
    (transforms of blocks, of `block` tokens if that is given), "single" (one
    transform of the sequence, for one basis) or "auto", the fastest of them by a
    model.  Sizes that are out of range or do not decrease raise FoveaError.
    """
    check.flags(return_recomputed=return_recomputed)
    arrays = (b, sizes, v)
    kernel = _remembered(
        ("conv_apply", target, algorithm, block),
        arrays,
        lambda: _make_conv_apply(b, sizes, v, algorithm, block, target),
    )
    out, recomputed = kernel(*arrays)
    return (out, recomputed) if return_recomputed else out
