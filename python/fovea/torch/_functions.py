# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The functions of the package on tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from .. import ops
from ._tape import make_call

__all__ = ["dense"]


def _documented(function: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """With the text of the function of the same name on arrays."""

    def document(on_tensors: Callable[..., Any]) -> Callable[..., Any]:
        on_tensors.__doc__ = function.__doc__
        return on_tensors

    return document


_dense = make_call("dense")


@_documented(ops.dense)
def dense(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float | None = None,
    causal: bool = False,
    window: int | None = None,
    log_weight: Tensor | None = None,
    bias: Tensor | None = None,
    return_lse: bool = False,
    target: str | None = None,
) -> Any:
    out, lse = _dense(q, k, v, scale, causal, window, log_weight, bias, target)
    return (out, lse) if return_lse else out
