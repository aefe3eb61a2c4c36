# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradients of attention by sums of convolutions, and of rotary embedding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from . import _arguments as check
from . import _fovea
from ._arguments import Tensor
from ._conv import _algorithm, _check_bases
from ._conv_recover import _conv_attributes, _group
from ._low_rank import _check_rope, _integers
from .compiler import check_target
from .ops import _build, _float, _remembered

__all__ = ["conv_apply_backward", "conv_backward", "conv_recover_backward", "rope_backward"]


def _make(
    op: str,
    inputs: Sequence[Tensor],
    clauses: Sequence[tuple[str, Sequence[Tensor]]],
    operands: Sequence[Tensor],
    attributes: Sequence[str],
    target: str,
) -> Callable[..., Any]:
    """A kernel of the gradients of `operands`, which have their types."""
    results = [("outs", [operand.type for operand in operands])]
    return _build(op, inputs, clauses, results, attributes, target)


# ----------------------------------------------------------------------------
# conv_apply
# ----------------------------------------------------------------------------


def _make_apply(
    d_out: Any, b: Any, sizes: Any, v: Any, out: Any, algorithm: Any, block: Any, target: str
) -> Callable[..., Any]:
    check_target(target)
    b, sizes, v = _check_bases(b, sizes, v)
    data = (*b.shape[:2], b.shape[3], v.shape[3])
    clauses = [
        ("forward", [check.like("out", out, v.element, data)]),
        ("gradient", [check.like("d_out", d_out, v.element, data)]),
    ]
    attributes = _algorithm(algorithm, block, b.shape[2])
    return _make("conv_apply_backward", (b, sizes, v), clauses, (b, v), attributes, target)


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
    arrays = (b, sizes, v, out, d_out)
    kernel = _remembered(
        ("conv_apply_backward", target, algorithm, block),
        arrays,
        lambda: _make_apply(d_out, b, sizes, v, out, algorithm, block, target),
    )
    return tuple(kernel(*arrays))


# ----------------------------------------------------------------------------
# conv_recover and conv
# ----------------------------------------------------------------------------


def _make_recover(
    d_b: Any, q: Any, k: Any, sizes: Any, scale: Any, target: str
) -> Callable[..., Any]:
    check_target(target)
    q, k, _ = check.queries_keys_values(q, k, k, same_length=True)
    d_b = check.tensor("d_b", d_b, 4, "[B,H,R,N]")
    check.element_type(d_b, check.state_type(q.element))
    check.match("d_b", "shape", d_b.shape, (*q.shape[:2], d_b.shape[2], q.shape[2]))
    element, shape = _fovea.describe("sizes", sizes)
    if element != "i32":
        raise ValueError(f"sizes: found element type {check.TYPE_NAMES[element]}, needed int32")
    check.match("sizes", "shape", tuple(shape), d_b.shape[:3])
    inputs = (q, k, Tensor("sizes", element, shape))
    attributes = [f"scale = {_float(check.scale(scale, q.shape[3]))}"]
    return _make(
        "conv_recover_backward", inputs, [("gradient", [d_b])], (q, k), attributes, target
    )


def conv_recover_backward(
    d_b: Any, q: Any, k: Any, sizes: Any, *, scale: float | None = None, target: str = "cpu"
) -> Any:
    """Gradients of the bases of `conv_recover`: (d_q, d_k), like q and k.

    `sizes` are those that it returned; they are constants, so that only keys where
    a basis begins have a gradient.  `d_b` [B,H,R,N] is what the bases get.
    """
    arrays = (q, k, sizes, d_b)
    kernel = _remembered(
        ("conv_recover_backward", target, scale),
        arrays,
        lambda: _make_recover(d_b, q, k, sizes, scale, target),
    )
    return tuple(kernel(*arrays))


def _make_conv(
    d_out: Any,
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    options: tuple[Any, ...],
    group: Any,
    algorithm: Any,
    target: str,
) -> Callable[..., Any]:
    check_target(target)
    q, k, v = check.queries_keys_values(q, k, v, same_length=True)
    attributes = _conv_attributes(q, options, group, algorithm)
    data = (*q.shape[:3], v.shape[3])
    clauses = [
        ("forward", [check.like("out", out, q.element, data)]),
        ("gradient", [check.like("d_out", d_out, q.element, data)]),
    ]
    return _make("conv_backward", (q, k, v), clauses, (q, k, v), attributes, target)


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
    group = _group(mask)
    options = (num_basis, window, delta, epsilon, scale)
    arrays = (q, k, v, out, d_out)
    kernel = _remembered(
        ("conv_backward", target, *options, group, algorithm),
        arrays,
        lambda: _make_conv(d_out, q, k, v, out, options, group, algorithm, target),
    )
    return tuple(kernel(*arrays))


# ----------------------------------------------------------------------------
# rope
# ----------------------------------------------------------------------------


def _make_rope(d_out: Any, positions: Any, base: Any, target: str) -> Callable[..., Any]:
    check_target(target)
    d_out, positions, attribute = _check_rope("d_out", d_out, positions, base)
    clauses = [("gradient", [d_out])]
    return _make("rope_backward", (positions,), clauses, (d_out,), [attribute], target)


def rope_backward(
    d_out: Any, positions: Any, *, base: float = 10000.0, target: str = "cpu"
) -> Any:
    """The gradient of `rope` for x, where its result gets `d_out`: pairs of columns
    are turned back."""
    positions = _integers("positions", positions, 3)
    arrays = (positions, d_out)
    kernel = _remembered(
        ("rope_backward", target, base),
        arrays,
        lambda: _make_rope(d_out, positions, base, target),
    )
    return kernel(*arrays)
