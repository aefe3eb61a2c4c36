# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradients of attention by sums of convolutions, and of rotary embedding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import _arguments as check
from . import _fovea
from ._arguments import Tensor
from ._conv import _algorithm, _check_bases
from ._conv_recover import _conv_attributes, _group
from ._low_rank import _check_rope, _integers
from ._vq import _remembered
from ._vq_backward import _like
from .compiler import check_target
from .ops import _float, _list

__all__ = ["conv_apply_backward", "conv_backward", "conv_recover_backward", "rope_backward"]


def _compile(
    op: str,
    clauses: dict[str, list[Tensor]],
    operands: list[Tensor],
    attributes: list[str],
    target: str,
) -> Callable[..., Any]:
    """A kernel of the gradients of `operands`, which have their types."""
    inputs = [tensor for tensors in clauses.values() for tensor in tensors]
    results = [operand._replace(name=f"d_{operand.name}") for operand in operands]
    types = ", ".join(result.type for result in results)
    text = f"attn.{op}"
    for name, tensors in {**clauses, "outs": results}.items():
        text += f"\n      {name}{_list(tensors)}"
    several = f":{len(results)}" if len(results) > 1 else ""
    outputs = ", ".join(f"%r#{index}" for index in range(len(results))) if several else "%r"
    return _fovea.compile(
        f"func.func @{op}({', '.join(f'{t.value}: {t.type}' for t in inputs)}) -> ({types}) {{\n"
        + "".join(f"  {result.value} = tensor.empty() : {result.type}\n" for result in results)
        + f"  %r{several} = {text}\n      {{{', '.join(attributes)}}} -> {types}\n"
        f"  return {outputs} : {types}\n}}\n",
        target,
        "native",
        None,
    )


# ----------------------------------------------------------------------------
# conv_apply
# ----------------------------------------------------------------------------


def _make_apply(
    d_out: Any, b: Any, sizes: Any, v: Any, out: Any, algorithm: Any, block: Any, target: str
) -> Callable[..., Any]:
    check_target(target)
    b, sizes, v = _check_bases(b, sizes, v)
    data = (*b.shape[:2], b.shape[3], v.shape[3])
    clauses = {
        "ins": [b, sizes, v],
        "forward": [_like("out", out, v.element, data)],
        "gradient": [_like("d_out", d_out, v.element, data)],
    }
    attributes = _algorithm(algorithm, block, b.shape[2])
    return _compile("conv_apply_backward", clauses, [b, v], attributes, target)


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
        raise ValueError(f"sizes: found element type {element}, needed int32")
    check.match("sizes", "shape", tuple(shape), d_b.shape[:3])
    clauses = {"ins": [q, k, Tensor("sizes", element, shape)], "gradient": [d_b]}
    attributes = [f"scale = {_float(check.scale(scale, q.shape[3]))}"]
    return _compile("conv_recover_backward", clauses, [q, k], attributes, target)


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
    clauses = {
        "ins": [q, k, v],
        "forward": [_like("out", out, q.element, data)],
        "gradient": [_like("d_out", d_out, q.element, data)],
    }
    return _compile("conv_backward", clauses, [q, k, v], attributes, target)


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
    clauses = {"ins": [positions], "gradient": [d_out]}
    return _compile(
        "rope_backward", clauses, [d_out._replace(name="x")], [attribute], target
    )


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
