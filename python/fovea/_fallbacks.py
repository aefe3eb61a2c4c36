# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which calls others computed, and why."""

from __future__ import annotations

import collections
import threading
from typing import NamedTuple

__all__ = ["Fallback", "explain_fallbacks"]


class Fallback(NamedTuple):
    """Calls by `caller` that were computed otherwise, how many and why."""

    caller: str
    reason: str
    calls: int


_counts: collections.Counter[tuple[str, str]] = collections.Counter()
_lock = threading.Lock()


def record_fallback(caller: str, reason: str) -> None:
    """While a graph is traced, counts once for the graph."""
    with _lock:
        _counts[caller, reason] += 1


def explain_fallbacks(*, clear: bool = False) -> list[Fallback]:
    """Which calls Fovea was asked for, left to others, and why; the most frequent first.

    Counts are since the program started or the last `clear`.  A compiled graph counts once.
    """
    with _lock:
        found = [Fallback(*key, count) for key, count in _counts.most_common()]
        if clear:
            _counts.clear()
    return found
