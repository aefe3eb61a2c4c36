# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Inputs of attn.low_rank and its gradient."""

import math

import numpy as np
from cases import normal, tensor
from kernels import NAMES

# Batch entries, heads, key heads.
HEADS = [(1, 1, 1), (2, 3, 3), (2, 4, 2), (1, 4, 1), (0, 2, 1), (1, 0, 1)]
MASKS = ["causal", "row_change", "row_interval", "distinct_rows", "distinct_columns"]


def part_types(parts, kind=tensor):
    elements = {np.dtype(np.int32): "i32", np.dtype(bool): "i1"}
    return [kind(part.shape, elements[part.dtype]) for part in parts]


def hidden_bound(mask, dtype, bounds):
    """How far results may move that do not read a number: not at all, but where
    columns enter a sum and leave it again, which may leave the rounding error of a
    rounding error. Gradients for intervals are such sums, too."""
    moves = dtype == np.float64 or mask in ("row_change", "row_interval")
    names = {np.dtype(type): name for name, type in NAMES.items()}
    return bounds[names[np.dtype(dtype)]] if moves else None


def make_factors(rng, case, N, M):
    """u1, u2 and values, whose sums of weights are away from zero."""
    dtype, r, (B, H, G) = case["dtype"], case["rank"], case["heads"]
    shapes = (B, H, N, r), (B, G, M, r), (B, G, M, case["width"])
    u1, u2, v = (normal(rng, shape, dtype) for shape in shapes)
    if case["features"] == "positive":
        return abs(u1), abs(u2), v
    # One positive feature.
    u1[..., 0] = u2[..., 0] = 4 * math.sqrt(r)
    return u1, u2, v


def mask_heads(case, columns):
    """Batch entries and heads of a mask; heads share the changes of no column."""
    shared = not case["per_head"] or (case["mask"] == "row_change" and columns == 0)
    return (1, 1) if shared else case["heads"][:2]


def make_mask(ref, rng, mask, lead, N, M):
    """The parts of a mask, and its entries."""
    if mask == "causal":
        return [], ref.causal_mask(N, M)
    B, H = lead
    if mask == "row_interval":
        ends = np.sort(rng.integers(0, M, (2, B, H, N)), axis=0).astype(np.int32)
        return list(ends), ref.row_interval_mask(*ends, M)
    if mask == "row_change":
        entries, ends, columns = np.zeros((B, H, N, M), bool), np.zeros((B, H, N), np.int32), []
        for b, h in np.ndindex(B, H):
            # The same number of changes for every head; rows without any, and
            # a stretch of rows with no column.
            counts = np.random.default_rng(N).integers(0, 4, N)
            present, changes = set(), []
            for i, count in enumerate(counts):
                empties = i == N // 2 and len(present) <= count
                row = sorted(present) if empties else []
                row += list(rng.integers(0, M, count - len(row)))
                for column in row:
                    present ^= {int(column)}
                changes.append(row)
            entries[b, h] = ref.row_change_mask(changes, M)
            ends[b, h] = np.cumsum([len(row) for row in changes])
            columns.append(np.concatenate([np.zeros(0, int), *changes]))
        changes = int(ends.max(initial=0))
        return [ends, np.array(columns, np.int32).reshape(B, H, changes)], entries
    by_row = mask == "distinct_rows"
    inner, outer = (M, N) if by_row else (N, M)
    rows = rng.random((B, H, 3, inner)) < 0.5
    rows[:, :, 1] = False
    group = rng.integers(0, 3, (B, H, outer)).astype(np.int32)
    expand = ref.distinct_rows_mask if by_row else ref.distinct_columns_mask
    entries = np.zeros((B, H, N, M), bool)
    for b, h in np.ndindex(B, H):
        entries[b, h] = expand(group[b, h], rows[b, h])
    return [group, rows], entries


def reading_rows(entries, name, at, heads):
    """The rows [B,H,N] that read a number of u1, u2, v or d_out, and with v and d_out
    the column that it is in."""
    B, H, N, _ = entries.shape
    b, head, row, column = at
    rows = np.zeros((B, H, N), bool)
    if name in ("u1", "d_out"):
        rows[b, head, row] = entries[b, head, row].any()
    else:
        shared = slice(head * (H // heads), (head + 1) * (H // heads))
        rows[b, shared] = entries[b, shared, :, row]
    return rows, column if name in ("v", "d_out") else slice(None)


def in_columns(rows, column, width):
    """Rows as entries of `width` columns."""
    entries = np.zeros((*rows.shape, width), bool)
    entries[..., column] = rows[..., None] if isinstance(column, slice) else rows
    return entries
