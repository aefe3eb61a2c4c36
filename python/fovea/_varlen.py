# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Dense attention of packed sequences: varlen and varlen_backward."""

from __future__ import annotations

from typing import Any

from . import _arguments as check
from . import _fovea

__all__ = ["varlen", "varlen_backward"]


def varlen(
    q: Any,
    k: Any,
    v: Any,
    cu_seqlens_q: Any,
    cu_seqlens_k: Any,
    *,
    scale: float | None = None,
    causal: bool = False,
    window: int | None = None,
    prefix: int | None = None,
    sink: Any = None,
    max_q: int | None = None,
    max_k: int | None = None,
    return_lse: bool = False,
    out: Any = None,
    target: str = "cpu",
) -> Any:
    """`dense` of sequences that lie one after the other, without padding.

    q is [T,H,D], k [S,G,D] and v [S,G,E].  Sequence i has the queries from row
    `cu_seqlens_q`[i] to the row before `cu_seqlens_q`[i + 1], and likewise its keys:
    integers that begin with 0, never decrease, and end with T and S.  The result is
    [T,H,E]; with `return_lse` the natural log-sum-exp [H,T] follows.

    All other arguments are those of `dense`, of each sequence: the last query of a
    sequence lines up with its last key.

    GPUs take batches.  With `max_q` and `max_k`, which its lengths are at most, all sequences
    are one, and kernels read and check `cu_seqlens`.  Without them the host reads these, and
    sequences of about the same length are a batch.  CPUs need neither.
    """
    starts = check.to_readable("cu_seqlens_q", cu_seqlens_q), check.to_readable("cu_seqlens_k", cu_seqlens_k)
    options = scale, causal, window, prefix, sink, max_q, max_k, return_lse, target
    return _fovea.varlen(q, k, v, *starts, *options, out=out)


def varlen_backward(
    d_out: Any,
    q: Any,
    k: Any,
    v: Any,
    cu_seqlens_q: Any,
    cu_seqlens_k: Any,
    out: Any,
    lse: Any,
    *,
    d_lse: Any = None,
    scale: float | None = None,
    causal: bool = False,
    window: int | None = None,
    prefix: int | None = None,
    sink: Any = None,
    max_q: int | None = None,
    max_k: int | None = None,
    gradients: Any = None,
    target: str = "cpu",
) -> tuple[Any, ...]:
    """Gradients of `varlen`: (dq, dk, dv), then that of the sink, if there is one.

    Each has the shape and type of what it is for.  `out` and `lse` are what `varlen`
    gave with `return_lse`, `d_out` [T,H,E] and `d_lse` [H,T] the gradients for them.
    """
    starts = check.to_readable("cu_seqlens_q", cu_seqlens_q), check.to_readable("cu_seqlens_k", cu_seqlens_k)
    options = d_lse, scale, causal, window, prefix, sink, max_q, max_k, target
    return _fovea.varlen_backward(d_out, q, k, v, *starts, out, lse, *options, gradients=gradients)
