# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which calls PyTorch computed, and why."""

from __future__ import annotations

import torch

from .. import _fallbacks
from .._fallbacks import Fallback, explain_fallbacks

__all__ = ["Fallback", "explain_fallbacks"]


@torch.compiler.assume_constant_result
def record_fallback(caller: str, reason: str) -> None:
    """While a graph is traced, counts once for the graph."""
    _fallbacks.record_fallback(caller, reason)
