# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradients of attention over quantized keys, and the commitment loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from . import _arguments as check
from . import _fovea
from ._arguments import Tensor, tensor_type
from ._vq import VQState, _Call, _check_call, _check_position, _check_state, _empty, _quantize
from .compiler import check_target
from .ops import _list, _remembered, _with_rank

__all__ = ["VQStateGradient", "commitment_loss", "commitment_loss_backward", "vq_backward"]


class VQStateGradient(NamedTuple):
    """The gradient of a `VQState`: for its `mean` [B,G,S,E], and for the quantized
    `keys` [B,G,2 block,D] and the `values` [B,G,2 block,E] of the tokens it keeps."""

    mean: Any
    keys: Any
    values: Any


# ----------------------------------------------------------------------------
# vq_backward
# ----------------------------------------------------------------------------


class _Given(NamedTuple):
    """What `vq_backward` was given beside the arguments of `vq`."""

    d_out: Any
    out: Any
    lse: Any
    d_lse: Any
    state: Any
    d_next_state: Any


def _state_gradient(call: _Call, prefix: str) -> list[Tensor]:
    mean, _, codes, values, _ = call.state(prefix)
    keys = Tensor(f"{prefix}_keys", values.element, (*codes.shape, call.q.shape[3]))
    return [mean, keys, values]


def _check_results(call: _Call, given: _Given, softmax: bool) -> tuple[list[Tensor], list[Tensor]]:
    """The forward's results and their gradients."""
    element, rows = call.q.element, call.q.shape[:3]
    state, data = check.state_type(element), (*rows, call.v.shape[3])
    gradients = [check.like("d_out", given.d_out, element, data)]
    for name in ("out", "lse", "d_lse"):
        array = getattr(given, name)
        if (array is not None) and not softmax:
            raise ValueError(f"{name}: found one, needed none without a soft-max")
        if array is None and softmax and name != "d_lse":
            raise ValueError(f"{name}: found none, needed that of vq")
    if not softmax:
        return [], gradients
    if given.d_lse is not None:
        gradients.append(check.like("d_lse", given.d_lse, state, rows))
    forward = [check.like("out", given.out, element, data), check.like("lse", given.lse, state, rows)]
    return forward, gradients


def _check_next(given: Any, needed: list[Tensor]) -> None:
    if len(given) != len(needed):
        raise ValueError(f"d_next_state: found {len(given)} parts, needed {len(needed)}")
    for part, tensor, name in zip(given, needed, VQStateGradient._fields):
        check.like(f"d_next_state.{name}", part, tensor.element, tensor.shape)


def _make_backward(
    given: _Given, arguments: tuple[Any, ...], causal: bool, target: str
) -> Callable[..., Any]:
    check_target(target)
    call = _check_call(*arguments)
    has_state, has_next = given.state is not None, given.d_next_state is not None
    if not causal and (call.bias or has_state or has_next):
        raise ValueError(f"causal: found False, needed True with a {'bias' if call.bias else 'state'}")
    forward, gradients = _check_results(call, given, softmax=arguments[-1] == "softmax")
    if has_state:
        _check_state(given.state, call.state("state"))
    if has_next:
        _check_next(given.d_next_state, _state_gradient(call, "d_next"))
    d_k = Tensor("d_k", call.q.element, (*call.v.shape[:3], call.q.shape[3]))
    outs = [call.q._replace(name="d_q"), d_k, call.v._replace(name="d_v")]
    d_bias = [call.bias._replace(name="d_bias")] if call.bias else []
    d_state = _state_gradient(call, "d_state") if has_state else []
    results = [*outs, *d_bias, *d_state]
    if 0 in call.q.shape[:3]:
        # A window of nothing passes the gradient of its state on.
        def nothing(*arrays: Any) -> tuple[Any, ...]:
            found = [_empty(tensor) for tensor in results]
            if d_state and has_next:
                for to, part in zip(found[-3:], arrays[-3:]):
                    to[...] = part
            return tuple(found)

        return nothing
    body, codes = _quantize(call)
    clauses = [
        ("ins", [call.q, codes, call.v, call.codebook]),
        ("bias", [call.bias] if call.bias else []),
        ("state", call.state("state") if has_state else []),
        ("forward", forward),
        ("gradient", gradients),
        ("d_next_state", _state_gradient(call, "d_next") if has_next else []),
    ]
    parameters = ", ".join(
        f"{t.value}: {t.type}"
        for t in [*call.inputs, *(t for _, group in clauses[2:] for t in group)]
    )
    clauses += [("outs", outs), ("d_bias", d_bias), ("d_state", d_state)]
    text = "attn.vq_backward"
    for name, group in clauses:
        text += f" {name}{_list(group)}\n     " if group else ""
    for tensor in results:
        body += f"  {tensor.value} = tensor.empty() : {tensor.type}\n"
    types = ", ".join(tensor.type for tensor in results)
    attributes = call.attributes + ["causal"] * bool(causal)
    returned = ", ".join(f"%r#{index}" for index in range(len(results)))
    return _fovea.compile(
        f"func.func @vq_backward({parameters}) -> ({types}) {{\n{body}"
        f"  %r:{len(results)} = {text} {{{', '.join(attributes)}}} -> {types}\n"
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
    state: VQState | None = None,
    d_lse: Any = None,
    d_next_state: VQStateGradient | None = None,
    target: str = "cpu",
) -> tuple[Any, ...]:
    """The gradients of `vq`: (d_q, d_k, d_v), d_bias with a bias, and a
    `VQStateGradient` with a state.

    `out` and `lse` are what `vq` returned, None for "squared_relu"; `d_out`
    [B,H,N,E] and `d_lse` [B,H,N] are the gradients for them.  d_k [B,G,N,D] is that
    for the quantized keys, passed straight through to the keys: from the scores of
    the present and the previous block only, since older tokens are read as
    codewords, which are constants.  The codebook has no gradient; it moves by
    `codebook_update`.

    `d_next_state` is the gradient for the state that `vq` returned: the last result
    of `vq_backward` of the window after this one.  So gradients of windows, taken
    from the last to the first, are those of the whole sequence.
    """
    check.flags(causal=causal)
    if bias is not None and len(getattr(bias, "shape", (0,) * 4)) < 4:
        bias = _with_rank("bias", bias, 4)
    given = _Given(d_out, out, lse, d_lse, state, d_next_state)
    arrays = [q, k, v, codebook, *([] if bias is None else [bias])]
    arrays += [] if state is None else list(state)
    arrays += [x for x in (out, lse, d_out, d_lse) if x is not None]
    arrays += [] if d_next_state is None else list(d_next_state)
    options = (
        "vq_backward", target, block, causal, scale, weighting, bias is None, *(x is None for x in given)
    )  # fmt: skip
    arguments = (q, k, v, codebook, block, bias, scale, weighting)
    kernel = _remembered(
        options, arrays, lambda: _make_backward(given, arguments, causal, target)
    )
    if state is not None:
        _check_position(VQState(*state))
    found = kernel(*arrays)
    if state is None:
        return found
    return (*found[:-3], VQStateGradient(*found[-3:]))


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
    d_loss = check.number("d_loss", d_loss)
    kernel = _remembered(
        ("commitment_loss_backward", target),
        [k, k_hat],
        lambda: _make_loss_backward(k, k_hat, target),
    )
    return kernel(d_loss, k, k_hat)
