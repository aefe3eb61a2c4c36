# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""vq_decode on tensors: the one function that writes to its arguments."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .. import _fovea
from .. import _vq as arrays
from .._documented import documented
from ._operator import with_rows
from ._tape import refuse_gradients
from ._vq import VQState, empty_state

__all__ = ["vq_decode"]

_STATE = "Tensor(a!) mean, Tensor(b!) count, Tensor(c!) codes, Tensor(d!) values, Tensor(e!) position"


def _run(*values: Any) -> Tensor:
    *given, mean, count, codes, kept, position, target = values
    return _fovea.tensors.vq_decode(*given, (mean, count, codes, kept, position), target)[0]


def _run_on_gpu(*values: Any) -> Tensor:
    # The state is written where it lies.
    given, state = values[:-6], values[-6:]
    return with_rows(lambda *given: _run(*given, *state))(*given)


def _fake(q: Tensor, k: Tensor, v: Tensor, *_: Any) -> Tensor:
    return q.new_empty(*q.shape[:3], v.shape[3])


torch.library.define(
    "fovea::vq_decode",
    "(Tensor q, Tensor k, Tensor v, Tensor codebook, SymInt block, SymInt memory, Tensor? mask, Tensor? lengths, "
    f"bool padded, Tensor? bias, Tensor[]? relative, Tensor? distance_bias, float scale, str weighting, {_STATE}, str? target) -> Tensor",
    tags=(torch.Tag.pt2_compliant_tag,),
)
torch.library.impl("fovea::vq_decode", "cpu", _run)
torch.library.impl("fovea::vq_decode", "cuda", _run_on_gpu)
torch.library.register_fake("fovea::vq_decode", _fake)


@documented(arrays.vq_decode)
def vq_decode(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    codebook: Tensor,
    state: VQState | None = None,
    *,
    block: int,
    memory: int = 1,
    padded: bool = False,
    mask: Tensor | None = None,
    lengths: Tensor | None = None,
    bias: Tensor | None = None,
    relative: tuple[Tensor, Tensor] | None = None,
    distance_bias: Tensor | None = None,
    scale: float = 1.0,
    weighting: str = "softmax",
    target: str | None = None,
) -> tuple[Tensor, VQState]:
    if state is None:
        state = empty_state(q, v, codebook, (memory + 1) * block)
    terms = {"bias": bias, "relative": relative, "distance_bias": distance_bias}
    named = {"q": q, "k": k, "v": v, "codebook": codebook, **terms, "state": list(state)}
    refuse_gradients("vq_decode", named)
    parts = state.mean, state.count, state.codes, state.values, state.position
    out = torch.ops.fovea.vq_decode.default(
        q, k, v, codebook, block, memory, mask, lengths, padded, bias, relative, distance_bias, scale, weighting, *parts, target
    )
    return out, state
