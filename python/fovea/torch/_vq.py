# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""States of vq, and how its operators call the compiled functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import _arguments as check
from .. import _fovea
from .. import _vq as arrays
from .._documented import documented


class VQState(NamedTuple):
    """What `vq` and `vq_decode` know of the tokens so far: as `fovea.VQState`, and `keys`
    [B,G,(memory + 1) block,D], which are zeros.

    Gradients pass from window to window through `mean`, `values` and `keys`, whose gradient
    is that of the quantized keys of the tokens that the state keeps.
    """

    mean: Tensor
    count: Tensor
    codes: Tensor
    values: Tensor
    position: Tensor
    keys: Tensor

    def detach(self) -> VQState:
        """The same state, through which no gradient passes."""
        return VQState(*(part.detach() for part in self))

    @property
    def nbytes(self) -> int:
        """Of all tensors; it does not grow."""
        return sum(part.nbytes for part in self)

    @documented(arrays.VQState.fork)
    def fork(self) -> VQState:
        return VQState(*(part.clone() for part in self))

    @documented(arrays.VQState.save)
    def save(self, path: Any) -> None:
        parts = tuple(part.detach().cpu() for part in self[:COMPILED_PARTS])
        _fovea.save_vq_state(parts, check.file_name(path), "cpu")

    @staticmethod
    def load(path: Any) -> VQState:
        """The state that `save` wrote, on the CPU.  A damaged file raises ValueError."""
        mean, count, codes, values, position = map(_to_tensor, arrays.VQState.load(path))
        # How wide keys are is known with the next query.
        return VQState(mean, count, codes, values, position, values.new_zeros(*values.shape[:3], 0))

    def of_width(self, q: Tensor) -> VQState:
        """With keys as wide as queries, which a file does not tell."""
        return self if self.keys.shape[3] else self._replace(keys=_keys(q, self.values, self.values.shape[2]))


def _to_tensor(array: Any) -> Tensor:
    # NumPy has no bfloat16 that PyTorch knows.
    is_narrow = array.dtype.name == "bfloat16"
    tensor = torch.from_numpy(array.view("int16") if is_narrow else array)
    return tensor.view(torch.bfloat16) if is_narrow else tensor


class _StraightThrough(torch.autograd.Function):
    """Codewords, which pass their gradient to the keys that are present."""

    generate_vmap_rule = True

    @staticmethod
    def forward(k: Tensor, k_hat: Tensor, codes: Tensor) -> Tensor:
        return k_hat.view_as(k_hat)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.save_for_backward(inputs[2])

    @staticmethod
    def backward(ctx: Any, d_k_hat: Tensor) -> Any:
        (codes,) = ctx.saved_tensors
        return torch.where(codes[..., None] >= 0, d_k_hat, 0), None, None


def quantize_straight_through(quantize: Callable[..., tuple[Tensor, Tensor]], k: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    """Codewords whose gradient is that of the keys, and codes."""
    k_hat, codes = quantize(k.detach(), *rest)
    return _StraightThrough.apply(k, k_hat, codes), codes


#: Those of the compiled functions.
COMPILED_PARTS = 5


def compiled_state(state: Any) -> Any:
    return None if state is None else tuple(state[:COMPILED_PARTS])


def sum_type(type: torch.dtype) -> torch.dtype:
    return torch.float64 if type == torch.float64 else torch.float32


def empty_state(q: Tensor, v: Tensor, codebook: Tensor, kept: int) -> VQState:
    """That before the first token; `kept` tokens of later ones have room."""
    heads = v.shape[:2]
    return VQState(
        q.new_zeros(*heads, codebook.shape[1], v.shape[3], dtype=sum_type(q.dtype)),
        q.new_zeros(*heads, codebook.shape[1], dtype=torch.int32),
        q.new_zeros(*heads, kept, dtype=torch.int32),
        v.new_zeros(*heads, kept, v.shape[3]),
        q.new_zeros((), dtype=torch.int64),
        _keys(q, v, kept),
    )


def _keys(q: Tensor, v: Tensor, kept: int) -> Tensor:
    return q.new_zeros(v.shape[0], v.shape[1], kept, q.shape[3])


def _vq(*values: Any, out: Any = None) -> Any:
    *given, state, return_state, return_lse, target = values
    if out is not None and return_state:
        out = out[:-1]
    found = _fovea.tensors.vq(*given, compiled_state(state), return_state, return_lse, target, out=out)
    q, _, v, _, block, memory, *_ = given
    return (*found, _keys(q, v, (memory + 1) * block)) if return_state else found


def _vq_backward(*values: Any, out: Any = None) -> Any:
    *given, state, d_mean, d_keys, d_values, target = values
    _, q, _, v, codebook, block, memory, *_ = given
    d_next = None
    if d_mean is not None or d_keys is not None or d_values is not None:
        zeros = empty_state(q, v, codebook, (memory + 1) * block)
        given_or_zeros = ((d_mean, zeros.mean), (d_keys, zeros.keys), (d_values, zeros.values))
        d_next = tuple(zero if given is None else given for given, zero in given_or_zeros)
    compiled = compiled_state(state)
    if out is not None and state is not None:
        *out, mean, _, _, kept, _, keys = out
        out += [mean, keys, kept]
    found = _fovea.tensors.vq_backward(*given, compiled, d_next, target, out=out)
    if state is None:
        return found
    *gradients, (mean, keys, kept) = found
    integers = (torch.zeros_like(part) for part in (state[1], state[2], state[4]))
    count, codes, position = integers
    return *gradients, mean, count, codes, kept, position, keys


#: What operators call in place of the compiled functions.
ADAPTED = {"vq": _vq, "vq_backward": _vq_backward}
