# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Vector quantization of keys: quantize, codebook_update and the commitment loss."""

from __future__ import annotations

from typing import Any

from . import _arguments as check
from . import _fovea

__all__ = ["codebook_update", "commitment_loss", "commitment_loss_backward", "quantize"]


def quantize(
    k: Any,
    codebook: Any,
    *,
    mask: Any = None,
    lengths: Any = None,
    out: Any = None,
    target: str = "cpu",
) -> Any:
    """The nearest codeword of every key, and its code.

    k is [B,G,N,D]; codebook is [G,S,D], or [1,S,D] for all heads, of the same type or
    float32.  Returns k_hat [B,G,N,D] = codebook[codes] and codes [B,G,N] of int32.  Of
    several codewords at the least distance the first is chosen; a key with a NaN or
    an infinity has code 0.

    `mask` [B,N], if any, is true for tokens that are present; `lengths` [B] says the
    same of right padding.  An absent token has code -1 and a codeword of zeros, and its
    keys may hold anything.

    In `fovea.torch` and `fovea.jax` the gradient of a codeword passes straight through to
    its key, zeros for absent tokens.  The codebook has none.
    """
    return _fovea.quantize(k, codebook, *check.tokens(mask, lengths), target, out=out)


def codebook_update(
    k: Any,
    codes: Any,
    sums: Any,
    counts: Any,
    *,
    rate: float = 0.99,
    min_count: float = 0.0,
    replace_below: float = 0.0,
    seed: int = 0,
    wide: bool = False,
    out: Any = None,
    target: str = "cpu",
) -> Any:
    """One step of exponentially smoothed k-means.

    k is [B,G,N,D] and codes [B,G,N] of int32 or int64, as of `quantize`; sums is
    [G,S,D] and counts [G,S], or [1,S,D] and [1,S] for all heads, in float32 (float64
    for float64 keys).  With the sum and the number of the keys of every code,

        counts = rate counts + (1 - rate) number
        sums = rate sums + (1 - rate) sum
        codebook = sums / max(counts, min_count)

    Returns codebook, sums and counts; the codebook has the type of k, or with `wide`
    that of sums.  A codeword whose count is 0 is zero where `min_count` is 0.  A key
    with code -1 is absent: it is not read.  Any other code that is not one of 0 .. S-1
    raises FoveaError.

    A codeword whose count is below `replace_below` afterwards is dead.  A random key of
    the batch replaces it: codebook = k, sums = replace_below k, counts = replace_below.
    `seed`, at least 0, chooses the keys, the same ones on every target; give each step another one.
    """
    return _fovea.codebook_update(
        k, codes, sums, counts, rate, min_count, replace_below, seed, wide, target, out=out
    )


def commitment_loss(
    k: Any,
    k_hat: Any,
    *,
    mask: Any = None,
    lengths: Any = None,
    out: Any = None,
    target: str = "cpu",
) -> Any:
    """The mean over all keys of |k - k_hat|^2, an array of rank 0 of the type of sums.

    k is [B,G,N,D]; k_hat are the codewords that `quantize` found for it, which count
    as constants.  With `mask` or `lengths`, as in `quantize`, the mean is that over the
    keys of tokens present.  Without any key it is 0.
    """
    return _fovea.commitment_loss(k, k_hat, *check.tokens(mask, lengths), target, out=out)


def commitment_loss_backward(
    d_loss: float,
    k: Any,
    k_hat: Any,
    *,
    mask: Any = None,
    lengths: Any = None,
    out: Any = None,
    target: str = "cpu",
) -> Any:
    """The gradient of `commitment_loss` for k, zeros for absent tokens, times `d_loss`."""
    present = check.tokens(mask, lengths)
    return _fovea.commitment_loss_backward(d_loss, k, k_hat, *present, target, out=out)
