# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`dense` with attention sinks."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ._functions import dense


def dense_with_sinks(q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, **options: Any) -> Tensor:
    """`dense` with exp(sinks), [H], added to the denominator of every row of a head, if any.

    The soft-max without sinks is scaled by exp(lse) / (exp(lse) + exp(sinks)): its gradient for
    lse brings that of the sinks.
    """
    if sinks is None:
        return dense(q, k, v, **options)
    out, lse = dense(q, k, v, return_lse=True, **options)
    # A row without keys is zeros already.
    return out * torch.sigmoid(lse - sinks.to(lse.dtype)[:, None])[..., None].to(out.dtype)
