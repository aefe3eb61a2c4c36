# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention to keys in pages: paged."""

from __future__ import annotations

from functools import partial
from typing import Any

from . import _arguments as check
from . import _fovea, _layout

__all__ = ["paged"]


def paged(
    q: Any,
    k_pages: Any,
    v_pages: Any,
    block_table: Any,
    lengths: Any,
    *,
    scale: float | None = None,
    causal: bool = True,
    window: int | None = None,
    sink: Any = None,
    query_lengths: Any = None,
    max_length: int | None = None,
    return_lse: bool = False,
    layout: str = "bhnd",
    out: Any = None,
    target: str = "cpu",
) -> Any:
    """`dense` of sequences whose keys and values are in pages, which are read where they lie.

    q is [B,H,N,D], k_pages [P,G,page,D] and v_pages [P,G,page,E]; with `layout` "bnhd" q is
    [B,N,H,D] and pages are [P,page,G,D].  Sequence b has `lengths`[b] tokens, in the pages that
    `block_table`[b] names, [B,R] of int32 or int64, from the first on.  Entries behind its last
    page may hold anything.  Its last query stands at its last token.

    On a GPU kernels read `block_table` and `lengths` where they lie there, as they do other arrays.  With
    `max_length`, which the longest sequence has at most in whole pages, the host does not check lengths there
    and wait for them: kernels do, and read no more of a table.

    `scale`, `causal`, `window`, `sink`, `query_lengths` and `return_lse` are those of `dense`.
    It has no gradient.
    """
    table, counts = check.to_readable("block_table", block_table), check.to_readable("lengths", lengths)
    options = table, counts, max_length, scale, causal, window, sink, query_lengths, return_lse, target
    if not _layout.is_tokens_first(layout):
        return _fovea.paged(q, k_pages, v_pages, *options, out=out)
    q, k_pages, v_pages = _layout.all_heads_first(q=q, k_pages=k_pages, v_pages=v_pages)
    width = _fovea.describe("v_pages", v_pages)[1][3]
    return _layout.attend(partial(_fovea.paged, q, k_pages, v_pages, *options), q, width, out, return_lse)
