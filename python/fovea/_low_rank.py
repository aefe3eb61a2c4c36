# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Low-rank attention under masks, what makes its operands, and their gradients."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np

from . import _arguments as check
from . import _fovea

__all__ = [
    "Causal",
    "DistinctColumns",
    "DistinctRows",
    "RowChange",
    "RowInterval",
    "low_rank",
    "low_rank_backward",
    "polynomial_features",
    "polynomial_features_backward",
]


def polynomial_features(
    x: Any, *, degree: int, scale: float, out: Any = None, target: str = "cpu"
) -> Any:
    """Features with phi(q).phi(k) = sum_(g <= degree) (scale q.k)^g / g!.

    x is [B,H,N,D]; the result has binomial(D + degree, degree) columns, the
    monomials by degree and, within a degree, in lexicographic order.
    """
    return _fovea.polynomial_features(x, degree, scale, target, out=out)


def polynomial_features_backward(
    d_out: Any, x: Any, *, degree: int, scale: float, out: Any = None, target: str = "cpu"
) -> Any:
    """The gradient for x [B,H,N,D] of `polynomial_features`, given that for its
    result, d_out [B,H,N,F]."""
    return _fovea.polynomial_features_backward(d_out, x, degree, scale, target, out=out)


# ----------------------------------------------------------------------------
# Masks
# ----------------------------------------------------------------------------


class Causal:
    """Row i keeps columns j <= i + M - N."""

    kind: ClassVar[str] = "causal"
    parts: ClassVar[dict[str, Any]] = {"first": None, "second": None}


class RowInterval:
    """Row i keeps columns first[i] .. last[i], the last one included.

    Both are [N], or broadcast to [B,H,N].
    """

    kind: ClassVar[str] = "row_interval"

    def __init__(self, first: Any, last: Any):
        self.parts = {"first": check.integers("first", first, 3), "last": check.integers("last", last, 3)}
        check.match("last", "shape", self.parts["last"].shape, self.parts["first"].shape)


def _lists(name: str, rows: Any) -> list[list[Any]]:
    try:
        return [list(row) for row in rows]
    except TypeError:
        raise ValueError(f"{name}: found {rows!r}, needed a list of columns for every row") from None


class RowChange:
    """Row i keeps what row i - 1 does, with the columns `entering[i]` and without
    `leaving[i]`; before row 0 there are none.

    Both are sequences with a sequence of columns for every row.
    """

    kind: ClassVar[str] = "row_change"

    def __init__(self, entering: Iterable[Iterable[int]], leaving: Iterable[Iterable[int]]):
        entering, leaving = _lists("entering", entering), _lists("leaving", leaving)
        check.match("leaving", "number of rows", len(leaving), len(entering))
        present: set[int] = set()
        ends, columns = [], []
        for row, (new, old) in enumerate(zip(entering, leaving)):
            for name, changes, is_old in (("leaving", old, True), ("entering", new, False)):
                for column in changes:
                    column = check.integer(f"{name}[{row}]", column, 0)
                    if (column in present) != is_old:
                        raise ValueError(
                            f"{name}[{row}]: found column {column}, needed one that is "
                            + ("there" if is_old else "not there yet")
                        )
                    (present.remove if is_old else present.add)(column)
                    columns.append(column)
            ends.append(len(columns))
        self._set(np.array(ends, np.int32), np.array(columns, np.int32))

    def _set(self, ends: np.ndarray, columns: np.ndarray) -> None:
        self.parts = {"ends": ends.reshape(1, 1, -1), "columns": columns.reshape(1, 1, -1)}

    @classmethod
    def from_entries(cls, entries: Any) -> RowChange:
        """The changes of a mask [N,M] of booleans."""
        entries = check.to_numpy("entries", entries)
        if entries.dtype != bool or entries.ndim != 2:
            raise ValueError(
                f"entries: found {entries.dtype} of rank {entries.ndim}, needed bool of rank 2"
            )
        before = np.vstack([np.zeros((1, entries.shape[1]), bool), entries[:-1]])
        rows, columns = np.nonzero(entries != before)
        mask = cls.__new__(cls)
        ends = np.searchsorted(rows, np.arange(len(entries)), side="right")
        mask._set(ends.astype(np.int32), columns.astype(np.int32))
        return mask


class _Groups:
    kind: ClassVar[str]
    entries: ClassVar[str]

    def __init__(self, group: Any, entries: Any):
        entries = check.to_numpy(self.entries, entries)
        if entries.dtype != bool:
            raise ValueError(
                f"{self.entries}: found element type {entries.dtype}, needed bool"
            )
        if entries.ndim < 2:
            raise ValueError(f"{self.entries}: found rank {entries.ndim}, needed at least 2")
        self.parts = {
            "group": check.integers("group", group, 3),
            self.entries: check.lead(self.entries, entries, 4),
        }


class DistinctRows(_Groups):
    """Row i keeps the columns that are True in rows[group[i]].

    group is [N] of integers, rows [R,M] of booleans; both may lead with [B,H].
    """

    kind: ClassVar[str] = "distinct_rows"
    entries: ClassVar[str] = "rows"

    def __init__(self, group: Any, rows: Any):
        super().__init__(group, rows)


class DistinctColumns(_Groups):
    """Column j is kept by the rows that are True in columns[group[j]].

    group is [M] of integers, columns [R,N] of booleans; both may lead with
    [B,H].
    """

    kind: ClassVar[str] = "distinct_columns"
    entries: ClassVar[str] = "columns"

    def __init__(self, group: Any, columns: Any):
        super().__init__(group, columns)


# ----------------------------------------------------------------------------
# low_rank
# ----------------------------------------------------------------------------


def check_mask(mask: Any) -> None:
    if not isinstance(mask, (Causal, RowInterval, RowChange, _Groups)):
        raise ValueError(
            f"mask: found {mask!r}, needed Causal(), RowInterval(...), RowChange(...), "
            "DistinctRows(...) or DistinctColumns(...)"
        )


def _present(query_mask: Any, key_mask: Any, lengths: Any) -> tuple[Any, Any, Any]:
    query_mask, lengths = check.tokens(query_mask, lengths, "query_mask")
    return query_mask, check.tokens(key_mask, None, "key_mask")[0], lengths


def low_rank(
    u1: Any,
    u2: Any,
    v: Any,
    *,
    mask: Any,
    query_mask: Any = None,
    key_mask: Any = None,
    lengths: Any = None,
    out: Any = None,
    target: str = "cpu",
) -> Any:
    """`D^-1 (W o U1 U2^T) V`, without forming `U1 U2^T`.

    u1 is [B,H,N,r], u2 [B,G,M,r], v [B,G,M,E] with H a multiple of G.  `mask`,
    which is W, is Causal(), RowInterval(first, last), RowChange(entering,
    leaving), DistinctRows(group, rows) or DistinctColumns(group, columns).  D
    has the sums of the weights of every row; where that is 0 the row is zeros.

    `query_mask` [B,N] and `key_mask` [B,M] are true for the rows that are present, or
    `lengths` [B] says how many rows of both are, from the first.  The others have no
    weight, whatever they hold; rows of absent queries are zeros.

    The masks and their costs are those of "Conv-Basis" (arXiv:2405.05219).
    """
    check_mask(mask)
    present = _present(query_mask, key_mask, lengths)
    return _fovea.low_rank(u1, u2, v, mask.kind, *mask.parts.values(), *present, target, out=out)


def low_rank_backward(
    d_out: Any,
    u1: Any,
    u2: Any,
    v: Any,
    out: Any,
    *,
    mask: Any,
    query_mask: Any = None,
    key_mask: Any = None,
    lengths: Any = None,
    gradients: Any = None,
    target: str = "cpu",
) -> tuple[Any, ...]:
    """Gradients of `low_rank`: (d_u1, d_u2, d_v).

    `out` is what `low_rank` returned for the same arguments, `d_out` [B,H,N,E] the
    gradient for it.  A row whose sum of weights is 0 passes nothing on.
    """
    check_mask(mask)
    present = _present(query_mask, key_mask, lengths)
    return _fovea.low_rank_backward(
        d_out, u1, u2, v, out, mask.kind, *mask.parts.values(), *present, target, gradients=gradients
    )
