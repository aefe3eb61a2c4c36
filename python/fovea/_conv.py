# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention by the convolutions that are found in its scores, and its gradients."""

from __future__ import annotations

from typing import Any

from . import _arguments as check
from . import _fovea

__all__ = [
    "SlidingGroup",
    "conv",
    "conv_apply",
    "conv_apply_backward",
    "conv_backward",
    "conv_recover",
    "conv_recover_backward",
]


def conv_apply(
    b: Any,
    sizes: Any,
    v: Any,
    *,
    algorithm: str = "auto",
    block: int | None = None,
    return_recomputed: bool = False,
    out: Any = None,
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
    memory = check.first_of(2, out, return_recomputed)
    results = _fovea.conv_apply(b, sizes, v, algorithm, block, target, out=memory)
    return results if return_recomputed else results[0]


def conv_recover(
    q: Any,
    k: Any,
    *,
    num_basis: int,
    window: int,
    delta: float,
    epsilon: float,
    scale: float | None = None,
    out: Any = None,
    target: str = "cpu",
) -> Any:
    """The convolutions that `scale q k^T` below the diagonal is made of.

    q is [B,H,N,D] and k [B,G,N,D] with H a multiple of G; `scale` is 1/sqrt(D) by
    default.  Returns b [B,H,R,N] of float32 (float64), sizes [B,H,R] and found
    [B,H] of int32, where R is `num_basis`: basis r gives the score b[r, i - j] to
    query i and key j >= N - sizes[r], and scores of bases add up.

    A column whose first `window` entries differ from those of the bases so far by
    at least `delta - 2 window epsilon`, in sum, begins a new basis; columns are
    searched by halves.  Fewer than R are normal: the sizes of others are 0.
    """
    return _fovea.conv_recover(q, k, num_basis, window, delta, epsilon, scale, target, out=out)


class SlidingGroup:
    """Every query reads its own group of `group` tokens, up to itself, and the group
    before: the union of LongLoRA's groups and shifted groups of 2 `group` tokens."""

    def __init__(self, group: int):
        self.group = check.integer("group", group, 1)


def sliding_group(mask: Any) -> int | None:
    """The group of a mask; None for a causal one."""
    if isinstance(mask, SlidingGroup):
        return mask.group
    if not isinstance(mask, str) or mask != "causal":
        raise ValueError(f"mask: found {mask!r}, needed 'causal' or SlidingGroup(group)")
    return None


def conv(
    q: Any,
    k: Any,
    v: Any,
    *,
    num_basis: int,
    window: int,
    delta: float,
    epsilon: float,
    scale: float | None = None,
    mask: Any = "causal",
    token_mask: Any = None,
    lengths: Any = None,
    algorithm: str = "auto",
    return_counts: bool = False,
    out: Any = None,
    target: str = "cpu",
) -> Any:
    """Causal attention with the convolutions that `conv_recover` finds in its
    scores, applied by `conv_apply`.

    q is [B,H,N,D], k [B,G,N,D], v [B,G,N,E]; the result is [B,H,N,E].  `mask` is
    "causal" or SlidingGroup(group).  With `return_counts`, two arrays [B,H] of
    int32 follow: how many bases were found, and how many rows `conv_apply` computed
    again; under SlidingGroup, the sums over all pairs of neighbouring groups.

    `token_mask` [B,N] is true for the tokens that are present, or `lengths` [B] says
    how many are, from the first.  Each sequence is then attended to as if it had only
    these, in their order; rows of the others are zeros, whatever they hold.

    From "Conv-Basis" (arXiv:2405.05219).
    """
    check.flags(return_counts=return_counts)
    present = check.tokens(token_mask, lengths, "token_mask")
    search = num_basis, window, delta, epsilon, scale
    memory = check.first_of(3, out, return_counts)
    results = _fovea.conv(
        q, k, v, *search, sliding_group(mask), algorithm, *present, target, out=memory
    )
    return results if return_counts else results[0]


def conv_apply_backward(
    d_out: Any,
    b: Any,
    sizes: Any,
    v: Any,
    out: Any,
    *,
    algorithm: str = "auto",
    block: int | None = None,
    gradients: Any = None,
    target: str = "cpu",
) -> Any:
    """Gradients of `conv_apply`: (d_b, d_v), like b and v.

    `out` is its result for the other arguments, and `d_out` what it gets.  d_b is 0
    where b is not read.  `algorithm` and `block` are as in `conv_apply`, and need
    not be the same.
    """
    return _fovea.conv_apply_backward(
        d_out, b, sizes, v, out, algorithm, block, target, gradients=gradients
    )


def conv_recover_backward(
    d_b: Any,
    q: Any,
    k: Any,
    sizes: Any,
    *,
    scale: float | None = None,
    gradients: Any = None,
    target: str = "cpu",
) -> Any:
    """Gradients of the bases of `conv_recover`: (d_q, d_k), like q and k.

    `sizes` are those that it returned; they are constants, so that only keys where
    a basis begins have a gradient.  `d_b` [B,H,R,N] is what the bases get.
    """
    return _fovea.conv_recover_backward(d_b, q, k, sizes, scale, target, gradients=gradients)


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
    token_mask: Any = None,
    lengths: Any = None,
    algorithm: str = "auto",
    gradients: Any = None,
    target: str = "cpu",
) -> Any:
    """Gradients of `conv`: (d_q, d_k, d_v), like q, k and v.

    `out` is its result for the other arguments, and `d_out` what it gets.  Bases are
    searched once more; where they begin is a constant.
    """
    present = check.tokens(token_mask, lengths, "token_mask")
    search = num_basis, window, delta, epsilon, scale
    return _fovea.conv_backward(
        d_out, q, k, v, out, *search, sliding_group(mask), algorithm, *present, target,
        gradients=gradients,
    )  # fmt: skip
