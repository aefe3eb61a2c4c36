# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention over quantized keys: vq and vq_decode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from . import _arguments as check
from . import _fovea
from ._arguments import Tensor, tensor_type
from .compiler import check_target
from .ops import _float, _list, _remembered, _with_rank

__all__ = ["VQState", "vq", "vq_decode"]

WEIGHTINGS = ("softmax", "squared_relu")
REDUCTIONS = ("auto", "serial", "matmul", "associative", "input_scan")


class VQState(NamedTuple):
    """What `vq` and `vq_decode` know of the tokens so far, p = `position` of them.

    With n = p // block, `mean` [B,G,S,E] and `count` [B,G,S] are the mean value and
    the number of the tokens of blocks 0 .. n-2 with each code; `codes` [B,G,2 block]
    and `values` [B,G,2 block,E] keep the last tokens, token t in row t % (2 block).
    """

    mean: Any
    count: Any
    codes: Any
    values: Any
    position: Any


# ----------------------------------------------------------------------------
# Checks
# ----------------------------------------------------------------------------


class _Call(NamedTuple):
    """The checked arguments that both functions have."""

    q: Tensor
    k: Tensor
    v: Tensor
    codebook: Tensor
    bias: Tensor | None
    block: int
    attributes: list[str]

    @property
    def key_is_code(self) -> bool:
        return self.k.element == "i32"

    @property
    def inputs(self) -> list[Tensor]:
        return [self.q, self.k, self.v, self.codebook] + ([self.bias] if self.bias else [])

    def state(self, prefix: str) -> list[Tensor]:
        batch, groups, _, width = self.v.shape
        codes, kept = self.codebook.shape[1], 2 * self.block
        state = check.state_type(self.q.element)
        return [
            Tensor(f"{prefix}_mean", state, (batch, groups, codes, width)),
            Tensor(f"{prefix}_count", "i32", (batch, groups, codes)),
            Tensor(f"{prefix}_codes", "i32", (batch, groups, kept)),
            Tensor(f"{prefix}_values", self.v.element, (batch, groups, kept, width)),
            Tensor(f"{prefix}_position", "i64", ()),
        ]


def _check_call(
    q: Any, k: Any, v: Any, codebook: Any, block: Any, bias: Any, scale: Any, weighting: Any
) -> _Call:
    q = check.tensor("q", q, 4, "[B,H,N,D]")
    v = check.tensor("v", v, 4, "[B,G,N,E]")
    element, shape = _fovea.describe("k", k)
    if element in check.FLOAT_TYPES:
        k = check.tensor("k", k, 4, "[B,G,N,D], or codes [B,G,N]")
        check.element_type(k, q.element)
    elif element != "i32":
        raise ValueError(
            f"k: found element type {check.TYPE_NAMES[element]}, needed that of q, or int32 for codes"
        )
    elif len(shape) != 3:
        raise ValueError(f"k: found rank {len(shape)}, needed rank 3 [B,G,N] of codes")
    else:
        k = Tensor("k", element, shape)
    codebook = check.tensor("codebook", codebook, 3, "[G,S,D] or [1,S,D]")
    check.element_type(v, q.element)
    check.element_type(codebook, q.element)
    batch, heads, length, width = q.shape
    groups = v.shape[1]
    check.match("v", "batch", v.shape[0], batch)
    if groups == 0 or heads % groups:
        raise ValueError(
            f"v: found {groups} heads, needed a divisor of the {heads} heads of q"
        )
    check.match("v", "length", v.shape[2], length)
    check.match("k", "batch, heads and length", k.shape[:3], v.shape[:3])
    if k.element != "i32":
        check.match("k", "head width", k.shape[3], width)
    for argument in (q, v):
        if argument.shape[3] == 0:
            raise ValueError(f"{argument.name}: found width 0, needed at least 1")
    if codebook.shape[0] not in (1, groups):
        raise ValueError(
            f"codebook: found {codebook.shape[0]} heads, needed 1 or the {groups} of v"
        )
    if codebook.shape[1] == 0:
        raise ValueError("codebook: found no codewords, needed at least 1")
    check.match("codebook", "width", codebook.shape[2], width)
    block = check.integer("block", block, 1)
    if bias is not None:
        bias = check.score_term("bias", bias, q.element, (batch, heads, length, 2 * block))
        check.match("bias", "width", bias.shape[3], 2 * block)
    check.choice("weighting", weighting, WEIGHTINGS)
    attributes = [
        f"block = {block} : i64",
        f"scale = {_float(check.scale(scale, width))}",
        f"weighting = #attn.weighting<{weighting}>",
    ]
    return _Call(q, k, v, codebook, bias, block, attributes)


def _check_state(state: Any, needed: Sequence[Tensor]) -> None:
    if len(state) != len(needed):
        raise ValueError(f"state: found {len(state)} parts, needed {len(needed)}")
    for part, tensor, name in zip(state, needed, VQState._fields):
        element, shape = _fovea.describe(f"state.{name}", part)
        check.match(f"state.{name}", "element type", *(check.TYPE_NAMES[type] for type in (element, tensor.element)))
        check.match(f"state.{name}", "shape", tuple(shape), tensor.shape)


def _check_position(state: VQState) -> None:
    position = int(state.position)
    if position < 0:
        raise ValueError(f"state.position: found {position}, needed at least 0")


def _empty(tensor: Tensor) -> np.ndarray:
    types = {"i32": np.int32, "i64": np.int64, "bf16": None}
    dtype = types.get(tensor.element, check.FLOAT_TYPES.get(tensor.element))
    return np.zeros(tensor.shape, _fovea.bfloat16() if dtype is None else dtype)


# ----------------------------------------------------------------------------
# Kernels
# ----------------------------------------------------------------------------


def _quantize(call: _Call) -> tuple[str, Tensor]:
    """IR that turns the keys into codes, where they are none yet."""
    if call.key_is_code:
        return "", call.k
    codes = Tensor("codes", "i32", call.v.shape[:3])
    keys = [call.k, call.codebook]
    return (
        f"  %codes_init = tensor.empty() : {codes.type}\n"
        f"  %codes = attn.quantize ins{_list(keys)}\n"
        f"      outs(%codes_init : {codes.type}) -> {codes.type}\n"
    ), codes


def _make_vq(
    call: _Call,
    causal: bool,
    reduction: str,
    has_state: bool,
    return_state: bool,
    return_lse: bool,
    target: str,
) -> _fovea.Kernel:
    body, codes = _quantize(call)
    batch, heads, length, _ = call.q.shape
    rows = (batch, heads, length)
    text = f"attn.vq ins{_list([call.q, codes, call.v, call.codebook])}\n"
    arguments = call.inputs
    if call.bias:
        text += f"      bias{_list([call.bias])}\n"
    if has_state:
        arguments = arguments + call.state("state")
        text += f"      state{_list(call.state('state'))}\n"
    outs = [Tensor("out", call.q.element, (*rows, call.v.shape[3]))]
    if return_lse:
        outs.append(Tensor("lse", check.state_type(call.q.element), rows))
    following = call.state("next") if return_state else []
    text += f"      outs{_list(outs)}\n"
    if following:
        text += f"      next_state{_list(following)}\n"
    for tensor in outs + following:
        body += f"  {tensor.value} = tensor.empty() : {tensor.type}\n"
    attributes = call.attributes + [f"reduction = #attn.reduction<{reduction}>"]
    attributes += ["causal"] * causal
    types = [tensor.type for tensor in outs + following]
    results = ", ".join(f"%r#{index}" for index in range(len(types)))
    parameters = ", ".join(f"{tensor.value}: {tensor.type}" for tensor in arguments)
    return _fovea.compile(
        f"func.func @vq({parameters}) -> ({', '.join(types)}) {{\n{body}"
        f"  %r:{len(types)} = {text}      {{{', '.join(attributes)}}} -> {', '.join(types)}\n"
        f"  return {results} : {', '.join(types)}\n}}\n",
        target,
        "native",
        None,
    )


def _make_decode(call: _Call, target: str) -> _fovea.Kernel:
    """A kernel that updates the state that it is given, and returns the output."""
    body, codes = _quantize(call)
    batch, heads, _, _ = call.q.shape
    out = tensor_type(call.q.element, (batch, heads, 1, call.v.shape[3]))
    state = call.state("state")
    buffers = [(f"%{t.name}_buffer", t.type.replace("tensor", "memref")) for t in state]
    parameters = [(tensor.value, tensor.type) for tensor in call.inputs] + buffers
    for tensor, (buffer, type) in zip(state, buffers):
        body += (
            f"  {tensor.value} = bufferization.to_tensor {buffer} restrict writable"
            f" : {type} to {tensor.type}\n"
        )
    text = f"attn.vq_decode ins{_list([call.q, codes, call.v, call.codebook])}\n"
    if call.bias:
        text += f"      bias{_list([call.bias])}\n"
    types = ", ".join([out] + [tensor.type for tensor in state])
    body += (
        f"  %init = tensor.empty() : {out}\n"
        f"  %r:6 = {text}      outs(%init : {out}) state{_list(state)}\n"
        f"      {{{', '.join(call.attributes)}}} -> {types}\n"
    )
    for index, (tensor, (buffer, type)) in enumerate(zip(state, buffers)):
        body += (
            f"  bufferization.materialize_in_destination %r#{index + 1} in restrict"
            f" writable {buffer} : ({tensor.type}, {type}) -> ()\n"
        )
    arguments = ", ".join(f"{name}: {type}" for name, type in parameters)
    return _fovea.compile(
        f"func.func @vq_decode({arguments}) -> {out} {{\n{body}"
        f"  return %r#0 : {out}\n}}\n",
        target,
        "native",
        None,
    )


# ----------------------------------------------------------------------------
# Functions
# ----------------------------------------------------------------------------


def vq(
    q: Any,
    k: Any,
    v: Any,
    codebook: Any,
    *,
    block: int,
    causal: bool = True,
    bias: Any = None,
    scale: float = 1.0,
    weighting: str = "softmax",
    reduction: str = "auto",
    state: VQState | None = None,
    return_state: bool = False,
    return_lse: bool = False,
    target: str = "cpu",
) -> Any:
    """Dense attention over keys quantized to `codebook`, in linear time.

    q is [B,H,N,D], v [B,G,N,E], codebook [G,S,D] or [1,S,D].  k is either float
    keys [B,G,N,D], which are replaced by their nearest codewords, or int32 codes
    [B,G,N].  The result [B,H,N,E] is that of `dense` over these keys to rounding.

    `block` tokens form a block; with `causal`, `bias` [B,H,N,2 block] is added to
    the scores of the block before the query's (its first half) and of the query's
    own.  `weighting` "squared_relu" takes max(score, 0)^2 instead of the soft-max.
    `reduction` chooses how block summaries are combined, with the same result.

    `state` is what an earlier call with `return_state` returned for the tokens
    before; a new one is returned then.  With `return_lse` the natural log-sum-exp
    [B,H,N] follows the output, and the state follows that.

    From "Transformer-VQ" (arXiv:2309.16354).
    """
    check.flags(causal=causal, return_state=return_state, return_lse=return_lse)
    if bias is not None and len(getattr(bias, "shape", (0,) * 4)) < 4:
        bias = _with_rank("bias", bias, 4)
    arrays = [q, k, v, codebook] + ([] if bias is None else [bias])
    arrays += [] if state is None else list(state)
    options = (
        "vq", target, block, causal, bias is None, scale, weighting, reduction,
        state is None, return_state, return_lse,
    )

    def make() -> Callable[..., Any]:
        check_target(target)
        call = _check_call(q, k, v, codebook, block, bias, scale, weighting)
        check.choice("reduction", reduction, REDUCTIONS)
        if not causal and (bias is not None or state is not None or return_state):
            raise ValueError("causal: found False, needed True with a bias or a state")
        if return_lse and weighting != "softmax":
            raise ValueError("return_lse: found True, needed False without a soft-max")
        if state is not None:
            _check_state(state, call.state("state"))
        rows = call.q.shape[:3]
        if 0 in rows:
            return _nothing(call, state is not None, return_state, return_lse)
        return _make_vq(
            call, bool(causal), reduction, state is not None, return_state, return_lse, target
        )

    kernel = _remembered(options, arrays, make)
    if state is not None:
        _check_position(VQState(*state))
    results = kernel(*arrays)
    if not return_state:
        return results
    following = VQState(*results[-5:])
    return (*results[:-5], following)


def _nothing(
    call: _Call, has_state: bool, return_state: bool, return_lse: bool
) -> Callable[..., Any]:
    """What stands for a kernel when there is no query."""
    rows = call.q.shape[:3]
    outs = [Tensor("out", call.q.element, (*rows, call.v.shape[3]))]
    if return_lse:
        outs.append(Tensor("lse", check.state_type(call.q.element), rows))

    def run(*arrays: Any) -> Any:
        results = [_empty(tensor) for tensor in outs]
        if return_state:
            results += (
                [np.array(part) for part in arrays[-5:]]
                if has_state
                else [_empty(tensor) for tensor in call.state("state")]
            )
        return tuple(results) if len(results) > 1 else results[0]

    return run


def vq_decode(
    q: Any,
    k: Any,
    v: Any,
    codebook: Any,
    state: VQState | None = None,
    *,
    block: int,
    bias: Any = None,
    scale: float = 1.0,
    weighting: str = "softmax",
    target: str = "cpu",
) -> tuple[Any, VQState]:
    """One token of `vq`: q [B,H,1,D], k [B,G,1,D] or int32 codes [B,G,1], v [B,G,1,E].

    Returns the output [B,H,1,E] and the state after the token.  The arrays of
    `state` are updated in place and are those of the state returned; None is the
    state before the first token.  The time does not depend on how many tokens came
    before.
    """
    if bias is not None and len(getattr(bias, "shape", (0,) * 4)) < 4:
        bias = _with_rank("bias", bias, 4)
    inputs = [q, k, v, codebook] + ([] if bias is None else [bias])
    options = ("vq_decode", target, block, bias is None, scale, weighting, state is None)
    arrays = inputs + ([] if state is None else list(state))

    def make() -> tuple[Any, list[Tensor]]:
        check_target(target)
        call = _check_call(q, k, v, codebook, block, bias, scale, weighting)
        check.match("q", "length", call.q.shape[2], 1)
        needed = call.state("state")
        if state is not None:
            _check_state(state, needed)
        return _make_decode(call, target), needed

    kernel, needed = _remembered(options, arrays, make)
    if state is None:
        state = VQState(*map(_empty, needed))
    else:
        state = VQState(*state)
        _check_position(state)
    return kernel(*inputs, *state), state
