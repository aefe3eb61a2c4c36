# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradients of attention over quantized keys, and the commitment loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import _arguments as check
from . import _fovea
from ._arguments import Tensor, tensor_type
from ._vq import _check_call, _empty, _quantize
from .compiler import check_target
from .ops import _list, _with_rank, _remembered

__all__ = ["commitment_loss", "commitment_loss_backward", "vq_backward"]


# ----------------------------------------------------------------------------
# vq_backward
# ----------------------------------------------------------------------------


def _make_backward(
    d_out: Any, arguments: tuple[Any, ...], out: Any, lse: Any, d_lse: Any, causal: bool, target: str
) -> Callable[..., Any]:
    check_target(target)
    call = _check_call(*arguments)
    if not causal and call.bias:
        raise ValueError("causal: found False, needed True with a bias")
    batch, heads, length, width = call.q.shape
    element, rows = call.q.element, (batch, heads, length)
    state = check.state_type(element)
    data = (*rows, call.v.shape[3])
    gradients = [check.like("d_out", d_out, element, data)]
    forward = []
    softmax = arguments[-1] == "softmax"
    for name, array in (("out", out), ("lse", lse), ("d_lse", d_lse)):
        if (array is not None) and not softmax:
            raise ValueError(f"{name}: found one, needed none without a soft-max")
        if array is None and softmax and name != "d_lse":
            raise ValueError(f"{name}: found none, needed that of vq")
    if softmax:
        forward = [check.like("out", out, element, data), check.like("lse", lse, state, rows)]
        if d_lse is not None:
            gradients.append(check.like("d_lse", d_lse, state, rows))
    d_k = Tensor("d_k", element, (*call.v.shape[:3], width))
    results = [call.q._replace(name="d_q"), d_k, call.v._replace(name="d_v")]
    if 0 in rows:
        found = [*results, *([call.bias._replace(name="d_bias")] if call.bias else [])]
        return lambda *_: tuple(map(_empty, found))
    body, codes = _quantize(call)
    text = f"attn.vq_backward ins{_list([call.q, codes, call.v, call.codebook])}\n"
    if call.bias:
        text += f"      bias{_list([call.bias])}\n"
    if forward:
        text += f"      forward{_list(forward)}\n"
    text += f"      gradient{_list(gradients)}\n      outs{_list(results)}\n"
    if call.bias:
        results.append(call.bias._replace(name="d_bias"))
        text += f"      d_bias{_list(results[3:])}\n"
    for tensor in results:
        body += f"  {tensor.value} = tensor.empty() : {tensor.type}\n"
    parameters = ", ".join(f"{t.value}: {t.type}" for t in call.inputs + forward + gradients)
    types = ", ".join(tensor.type for tensor in results)
    attributes = call.attributes + ["causal"] * bool(causal)
    returned = ", ".join(f"%r#{index}" for index in range(len(results)))
    return _fovea.compile(
        f"func.func @vq_backward({parameters}) -> ({types}) {{\n{body}"
        f"  %r:{len(results)} = {text}      {{{', '.join(attributes)}}} -> {types}\n"
        f"  return {returned} : {types}\n}}\n",
        target,
        "native",
        None,
    )


def vq_backward(
    d_out: Any,
    q: Any,
    k: Any,
    v: Any,
    codebook: Any,
    out: Any,
    lse: Any,
    *,
    block: int,
    causal: bool = True,
    bias: Any = None,
    scale: float = 1.0,
    weighting: str = "softmax",
    d_lse: Any = None,
    target: str = "cpu",
) -> tuple[Any, ...]:
    """The gradients of `vq` of a whole sequence: (d_q, d_k, d_v), and d_bias with a
    bias.

    `out` and `lse` are what `vq` returned, None for "squared_relu"; `d_out`
    [B,H,N,E] and `d_lse` [B,H,N] are the gradients for them.  d_k [B,G,N,D] is that
    for the quantized keys, passed straight through to the keys: from the scores of
    the present and the previous block only, since older tokens are read as
    codewords, which are constants.  The codebook has no gradient; it moves by
    `codebook_update`.
    """
    if bias is not None and len(getattr(bias, "shape", (0,) * 4)) < 4:
        bias = _with_rank(bias, 4)
    optional = [x for x in (bias, out, lse) if x is not None]
    arrays = [q, k, v, codebook, *optional, d_out] + ([] if d_lse is None else [d_lse])
    options = (
        "vq_backward", target, block, causal, scale, weighting, bias is None, out is None,
        lse is None, d_lse is None,
    )  # fmt: skip
    arguments = (q, k, v, codebook, block, bias, scale, weighting)
    kernel = _remembered(
        options,
        arrays,
        lambda: _make_backward(d_out, arguments, out, lse, d_lse, causal, target),
    )
    return kernel(*arrays)


# ----------------------------------------------------------------------------
# The commitment loss
# ----------------------------------------------------------------------------

_ALL = "affine_map<(b, g, n, d) -> (b, g, n, d)>"
_ROWS = "affine_map<(b, g, n, d) -> (b, g, n)>"


def _check_keys(k: Any, k_hat: Any) -> Tensor:
    k = check.tensor("k", k, 4, "[B,G,N,D]")
    if 0 in k.shape:
        raise ValueError(f"k: found shape {list(k.shape)}, needed keys")
    check.like("k_hat", k_hat, k.element, k.shape)
    return k


def _difference(k: Tensor, state: str) -> str:
    """The difference of %a and %c as %x, in the type of sums."""
    if k.element == state:
        return f"    %x = arith.subf %a, %c : {state}\n"
    return (
        f"    %a1 = arith.extf %a : {k.element} to {state}\n"
        f"    %c1 = arith.extf %c : {k.element} to {state}\n"
        f"    %x = arith.subf %a1, %c1 : {state}\n"
    )


def _make_loss(k: Any, k_hat: Any, target: str) -> Callable[..., Any]:
    check_target(target)
    k = _check_keys(k, k_hat)
    state = check.state_type(k.element)
    rows = tensor_type(state, k.shape[:3])
    tokens = k.shape[0] * k.shape[1] * k.shape[2]
    # The sum of each row first: sums of sums are more accurate.
    return _fovea.compile(
        f"func.func @commitment_loss(%k: {k.type}, %k_hat: {k.type}) -> tensor<{state}> {{\n"
        f"  %zero = arith.constant 0.0 : {state}\n"
        f"  %e0 = tensor.empty() : {rows}\n"
        f"  %z0 = linalg.fill ins(%zero : {state}) outs(%e0 : {rows}) -> {rows}\n"
        f"  %rows = linalg.generic {{indexing_maps = [{_ALL}, {_ALL}, {_ROWS}],"
        ' iterator_types = ["parallel", "parallel", "parallel", "reduction"]}\n'
        f"      ins(%k, %k_hat : {k.type}, {k.type}) outs(%z0 : {rows}) {{\n"
        f"  ^bb0(%a: {k.element}, %c: {k.element}, %s: {state}):\n"
        f"{_difference(k, state)}"
        f"    %y = arith.mulf %x, %x : {state}\n"
        f"    %t = arith.addf %s, %y : {state}\n"
        f"    linalg.yield %t : {state}\n"
        f"  }} -> {rows}\n"
        f"  %e1 = tensor.empty() : tensor<{state}>\n"
        f"  %z1 = linalg.fill ins(%zero : {state}) outs(%e1 : tensor<{state}>) -> tensor<{state}>\n"
        f"  %sum = linalg.generic {{indexing_maps = [affine_map<(b, g, n) -> (b, g, n)>,"
        ' affine_map<(b, g, n) -> ()>], iterator_types = ["reduction", "reduction", "reduction"]}\n'
        f"      ins(%rows : {rows}) outs(%z1 : tensor<{state}>) {{\n"
        f"  ^bb0(%a: {state}, %s: {state}):\n"
        f"    %t = arith.addf %s, %a : {state}\n"
        f"    linalg.yield %t : {state}\n"
        f"  }} -> tensor<{state}>\n"
        f"  %total = tensor.extract %sum[] : tensor<{state}>\n"
        f"  %count = arith.constant {float(tokens):.17e} : {state}\n"
        f"  %mean = arith.divf %total, %count : {state}\n"
        f"  %loss = tensor.from_elements %mean : tensor<{state}>\n"
        f"  return %loss : tensor<{state}>\n}}\n",
        target,
        "native",
        None,
    )


def commitment_loss(k: Any, k_hat: Any, *, target: str = "cpu") -> Any:
    """The mean over all keys of |k - k_hat|^2, an array of rank 0 of the type of sums.

    k is [B,G,N,D]; k_hat are the codewords that `quantize` found for it, which count
    as constants.
    """
    kernel = _remembered(
        ("commitment_loss", target), [k, k_hat], lambda: _make_loss(k, k_hat, target)
    )
    return kernel(k, k_hat)


def _make_loss_backward(k: Any, k_hat: Any, target: str) -> Callable[..., Any]:
    check_target(target)
    k = _check_keys(k, k_hat)
    state = check.state_type(k.element)
    factor = 2.0 / (k.shape[0] * k.shape[1] * k.shape[2])
    result = "%z" if k.element == state else "%w"
    narrow = "" if k.element == state else f"    %w = arith.truncf %z : {state} to {k.element}\n"
    return _fovea.compile(
        f"func.func @commitment_loss_backward(%d: {state}, %k: {k.type}, %k_hat: {k.type})"
        f" -> {k.type} {{\n"
        f"  %two = arith.constant {factor:.17e} : {state}\n"
        f"  %factor = arith.mulf %two, %d : {state}\n"
        f"  %e = tensor.empty() : {k.type}\n"
        f"  %r = linalg.generic {{indexing_maps = [{_ALL}, {_ALL}, {_ALL}],"
        ' iterator_types = ["parallel", "parallel", "parallel", "parallel"]}\n'
        f"      ins(%k, %k_hat : {k.type}, {k.type}) outs(%e : {k.type}) {{\n"
        f"  ^bb0(%a: {k.element}, %c: {k.element}, %o: {k.element}):\n"
        f"{_difference(k, state)}"
        f"    %z = arith.mulf %x, %factor : {state}\n{narrow}"
        f"    linalg.yield {result} : {k.element}\n"
        f"  }} -> {k.type}\n"
        f"  return %r : {k.type}\n}}\n",
        target,
        "native",
        None,
    )


def commitment_loss_backward(d_loss: float, k: Any, k_hat: Any, *, target: str = "cpu") -> Any:
    """The gradient of `commitment_loss` for k, times `d_loss`."""
    kernel = _remembered(
        ("commitment_loss_backward", target),
        [k, k_hat],
        lambda: _make_loss_backward(k, k_hat, target),
    )
    return kernel(float(d_loss), k, k_hat)
