# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention over quantized keys: vq, vq_decode and vq_backward."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from . import _arguments as check
from . import _fovea

__all__ = ["VQState", "VQStateGradient", "vq", "vq_backward", "vq_decode"]


class VQState(NamedTuple):
    """What `vq` and `vq_decode` know of the tokens so far, p = `position` of them.

    With n = p // block, `mean` [B,G,S,E] and `count` [B,G,S] are the mean value and
    the number of the tokens of blocks 0 .. n-memory-1 with each code; `codes` [B,G,R]
    and `values` [B,G,R,E] keep the last R = (memory + 1) block tokens, token t in row
    t % R.
    """

    mean: Any
    count: Any
    codes: Any
    values: Any
    position: Any

    @property
    def nbytes(self) -> int:
        """Of all arrays; it does not grow."""
        return sum(part.nbytes for part in self)

    def fork(self) -> VQState:
        """A state of the same content, which `vq_decode` updates alone."""
        return VQState(*(np.array(part) for part in self))

    def save(self, path: Any) -> None:
        """Writes the state to a file, in the format of safetensors.  One that is there
        is replaced at once."""
        _fovea.save_vq_state(self, check.file_name(path), "cpu")

    @staticmethod
    def load(path: Any) -> VQState:
        """The state that `save` wrote.  A damaged file raises ValueError."""
        return VQState(*_fovea.load_vq_state(check.file_name(path), "cpu"))


class VQStateGradient(NamedTuple):
    """The gradient of a `VQState`: for its `mean` [B,G,S,E], and for the quantized
    `keys` [B,G,R,D] and the `values` [B,G,R,E] of the R tokens it keeps."""

    mean: Any
    keys: Any
    values: Any


def vq(
    q: Any,
    k: Any,
    v: Any,
    codebook: Any,
    *,
    block: int,
    memory: int = 1,
    causal: bool = True,
    padded: bool = False,
    mask: Any = None,
    lengths: Any = None,
    bias: Any = None,
    relative: tuple[Any, Any] | None = None,
    distance_bias: Any = None,
    scale: float = 1.0,
    weighting: str = "softmax",
    reduction: str = "auto",
    state: VQState | None = None,
    return_state: bool = False,
    return_lse: bool = False,
    out: Any = None,
    target: str = "cpu",
) -> Any:
    """Dense attention over keys quantized to `codebook`, in linear time.

    q is [B,H,N,D], v [B,G,N,E], codebook [G,S,D] or [1,S,D].  k is either float
    keys [B,G,N,D], which are replaced by their nearest codewords, or int32 or int64
    codes [B,G,N].  The result [B,H,N,E] is that of `dense` over these keys to rounding.
    With float16 and bfloat16 queries the codebook may be float32: scores are of these
    codewords then.

    `block` tokens form a block; with `causal`, a query reads the tokens of its own
    block and of `memory` blocks before it one by one.  `bias` [B,H,N,(memory + 1) block]
    is added to their scores, oldest first.  `relative` = (r [H,R,D] or [1,R,D], u [H,D]) adds
    `scale (q_i + u) . r[i - j]` to these scores, as Transformer-XL has it, and `distance_bias`
    [H,R] or [1,R] its entry `i - j`: R is (memory + 1) block or more.
    `weighting` "squared_relu" takes max(score, 0)^2 instead of the soft-max.
    `reduction` chooses how block summaries are combined, with the same result.

    `mask` [B,N], if any, is true for tokens that are present; `lengths` [B] says the
    same of right padding.  No query reads an absent token, its rows may hold anything,
    and as a query its row of the result is zeros.  Codes say themselves which tokens are
    absent: with `padded`, -1 stands for one, as `quantize` gives it.

    `state` is what an earlier call with `return_state` returned for the tokens
    before; a new one is returned then.  With `return_lse` the natural log-sum-exp
    [B,H,N] follows the output, and the state follows that.

    From "Transformer-VQ" (arXiv:2309.16354).
    """
    results = _fovea.vq(
        q, k, v, codebook, block, memory, *check.tokens(mask, lengths), padded, bias, relative,
        distance_bias, scale, weighting, causal, reduction, state, return_state, return_lse, target,
        out=out,
    )  # fmt: skip
    if return_state:
        return (*results[:-1], VQState(*results[-1]))
    return results if return_lse else results[0]


def vq_decode(
    q: Any,
    k: Any,
    v: Any,
    codebook: Any,
    state: VQState | None = None,
    *,
    block: int,
    memory: int = 1,
    padded: bool = False,
    mask: Any = None,
    lengths: Any = None,
    bias: Any = None,
    relative: tuple[Any, Any] | None = None,
    distance_bias: Any = None,
    scale: float = 1.0,
    weighting: str = "softmax",
    out: Any = None,
    target: str = "cpu",
) -> tuple[Any, VQState]:
    """One token of `vq`: q [B,H,1,D], k [B,G,1,D] or codes [B,G,1], v [B,G,1,E].

    Returns the output [B,H,1,E] and the state after the token.  The arrays of
    `state` are updated in place and are those of the state returned; None is the
    state before the first token.  `bias` [B,H,1,(memory + 1) block], `relative` and
    `distance_bias` are those of `vq`.  The time does not depend on how many tokens came
    before.
    """
    out, first = _fovea.vq_decode(
        q, k, v, codebook, block, memory, *check.tokens(mask, lengths), padded, bias, relative,
        distance_bias, scale, weighting, state, target, out=out,
    )  # fmt: skip
    return out, VQState(*(first if state is None else state))


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
    memory: int = 1,
    causal: bool = True,
    padded: bool = False,
    mask: Any = None,
    lengths: Any = None,
    bias: Any = None,
    relative: tuple[Any, Any] | None = None,
    distance_bias: Any = None,
    scale: float = 1.0,
    weighting: str = "softmax",
    state: VQState | None = None,
    d_lse: Any = None,
    d_next_state: VQStateGradient | None = None,
    gradients: Any = None,
    target: str = "cpu",
) -> tuple[Any, ...]:
    """The gradients of `vq`: (d_q, d_k, d_v), d_bias with a bias, (d_r, d_u) with
    `relative`, d_distance_bias with that, and a `VQStateGradient` with a state.

    `out` and `lse` are what `vq` returned, None for "squared_relu"; `d_out`
    [B,H,N,E] and `d_lse` [B,H,N] are the gradients for them.  d_k [B,G,N,D] is that
    for the quantized keys, passed straight through to the keys: from the scores of
    the tokens read one by one only, since older ones are read as codewords, which are
    constants.  The codebook has no gradient; it moves by
    `codebook_update`.  Gradients of absent tokens are zeros, and their rows of q, k, v and d_out
    may hold anything.

    `d_next_state` is the gradient for the state that `vq` returned: the last result
    of `vq_backward` of the window after this one.  So gradients of windows, taken
    from the last to the first, are those of the whole sequence.
    """
    gradients = _fovea.vq_backward(
        d_out, q, k, v, codebook, block, memory, *check.tokens(mask, lengths), padded, bias, relative,
        distance_bias, scale, weighting, causal, out, lse, d_lse, state, d_next_state, target, gradients=gradients,
    )  # fmt: skip
    return gradients if state is None else (*gradients[:-1], VQStateGradient(*gradients[-1]))
