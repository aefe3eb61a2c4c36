# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Low-rank attention under masks, and what makes its operands: rope,
polynomial_features, low_rank."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

import numpy as np

from . import _arguments as check
from . import _fovea
from ._arguments import Tensor, tensor_type
from .compiler import check_target
from .ops import _build, _float, _remembered

__all__ = [
    "Causal",
    "DistinctColumns",
    "DistinctRows",
    "RowChange",
    "RowInterval",
    "low_rank",
    "polynomial_features",
    "rope",
]


def _rows(name: str, array: Any) -> Tensor:
    found = check.tensor(name, array, 4, "[B,H,N,D]")
    if found.shape[3] == 0:
        raise ValueError(f"{name}: found width 0, needed at least 1")
    return found


def _integers(name: str, values: Any, rank: int) -> np.ndarray:
    """`values` as int32, with leading axes of extent 1."""
    array = check.to_numpy(name, values)
    if array.dtype.kind not in "iu" and array.size:
        raise ValueError(f"{name}: found element type {array.dtype}, needed an integer type")
    limits = np.iinfo(np.int32)
    if array.size and (array.min() < limits.min or array.max() > limits.max):
        raise ValueError(f"{name}: found a number of more than 32 bits")
    return _lead(name, array.astype(np.int32), rank)


def _lead(name: str, array: np.ndarray, rank: int) -> np.ndarray:
    if array.ndim > rank:
        raise ValueError(f"{name}: found rank {array.ndim}, needed at most {rank}")
    return array.reshape((1,) * (rank - array.ndim) + array.shape)


def _part(name: str, array: np.ndarray) -> Tensor:
    return Tensor(name, *_fovea.describe(name, array))


def _broadcasts(part: Tensor, shape: Sequence[int | None]) -> None:
    """Leading extents of `part` are those of `shape`, or 1; None is any."""
    for dim, (found, needed) in enumerate(zip(part.shape, shape)):
        if needed is not None and found != needed and not (dim < 2 and found == 1):
            raise ValueError(
                f"{part.name}: found extent {found} in dimension {dim}, needed {needed}"
                + " or 1" * (dim < 2)
            )


# ----------------------------------------------------------------------------
# rope
# ----------------------------------------------------------------------------


def _check_rope(name: str, x: Any, positions: Any, base: Any) -> tuple[Tensor, Tensor, str]:
    """The rows that are turned, their positions, and the attribute of the base."""
    x = _rows(name, x)
    if x.shape[3] % 2:
        raise ValueError(f"{name}: found width {x.shape[3]}, needed an even width")
    part = _part("positions", positions)
    for dim, (found, needed) in enumerate(zip(part.shape, x.shape)):
        if found not in (1, needed):
            raise ValueError(
                f"positions: found extent {found} in dimension {dim}, needed {needed} or 1"
            )
    base = check.number("base", base, "a finite number above 0", lambda number: number > 0)
    return x, part, f"base = {_float(base)}"


def _make_rope(x: Any, positions: Any, base: Any, target: str) -> Callable[..., Any]:
    check_target(target)
    x, part, attribute = _check_rope("x", x, positions, base)
    return _build("rope", (x, part), (), [("outs", [x.type])], [attribute], target)


def rope(x: Any, positions: Any, *, base: float = 10000.0, target: str = "cpu") -> Any:
    """Rotary position embedding: turns columns 2 i and 2 i + 1 of every row by
    `position base**(-2 i / D)`.

    x is [B,H,N,D] with D even; positions are integers and broadcast to [B,H,N].
    Returns an array like x.
    """
    positions = _integers("positions", positions, 3)
    kernel = _remembered(
        ("rope", target, base), (x, positions), lambda: _make_rope(x, positions, base, target)
    )
    return kernel(x, positions)


# ----------------------------------------------------------------------------
# polynomial_features
# ----------------------------------------------------------------------------


def _check_features(x: Any, degree: Any, scale: Any) -> tuple[Tensor, int, list[str]]:
    """The rows, the number of features of one, and the attributes of the operation."""
    rows = _rows("x", x)
    degree = check.integer("degree", degree, 0)
    scale = check.number("scale", scale, "a finite number of at least 0", lambda number: number >= 0)
    # The degree first: the binomial of a large one takes forever.
    features = math.comb(rows.shape[3] + degree, degree) if degree <= 16 else None
    if features is None or features > np.iinfo(np.int32).max:
        raise ValueError(
            f"degree: found {degree}, needed at most 16 and at most 2**31 - 1 features"
        )
    return rows, features, [f"degree = {degree} : i64", f"scale = {_float(scale)}"]


def _make_features(x: Any, degree: Any, scale: Any, target: str) -> Callable[..., Any]:
    check_target(target)
    x, features, attributes = _check_features(x, degree, scale)
    result = tensor_type(x.element, (*x.shape[:3], features))
    return _build("polynomial_features", (x,), (), [("outs", [result])], attributes, target)


def polynomial_features(x: Any, *, degree: int, scale: float, target: str = "cpu") -> Any:
    """Features with phi(q).phi(k) = sum_(g <= degree) (scale q.k)^g / g!.

    x is [B,H,N,D]; the result has binomial(D + degree, degree) columns, the
    monomials by degree and, within a degree, in lexicographic order.
    """
    kernel = _remembered(
        ("polynomial_features", target, degree, scale),
        (x,),
        lambda: _make_features(x, degree, scale, target),
    )
    return kernel(x)


# ----------------------------------------------------------------------------
# Masks
# ----------------------------------------------------------------------------


class Causal:
    """Row i keeps columns j <= i + M - N."""

    kind: ClassVar[str] = "causal"
    parts: dict[str, np.ndarray] = {}

    def shapes(self, batch: int, heads: int, rows: int, columns: int) -> list[Any]:
        return []


class RowInterval:
    """Row i keeps columns first[i] .. last[i], the last one included.

    Both are [N], or broadcast to [B,H,N].
    """

    kind: ClassVar[str] = "row_interval"

    def __init__(self, first: Any, last: Any):
        self.parts = {"first": _integers("first", first, 3), "last": _integers("last", last, 3)}
        check.match("last", "shape", self.parts["last"].shape, self.parts["first"].shape)

    def shapes(self, batch: int, heads: int, rows: int, columns: int) -> list[Any]:
        return [(batch, heads, rows)] * 2


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

    def shapes(self, batch: int, heads: int, rows: int, columns: int) -> list[Any]:
        return [(batch, heads, rows), (batch, heads, None)]


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
            "group": _integers("group", group, 3),
            self.entries: _lead(self.entries, entries, 4),
        }


class DistinctRows(_Groups):
    """Row i keeps the columns that are True in rows[group[i]].

    group is [N] of integers, rows [R,M] of booleans; both may lead with [B,H].
    """

    kind: ClassVar[str] = "distinct_rows"
    entries: ClassVar[str] = "rows"

    def __init__(self, group: Any, rows: Any):
        super().__init__(group, rows)

    def shapes(self, batch: int, heads: int, rows: int, columns: int) -> list[Any]:
        return [(batch, heads, rows), (batch, heads, None, columns)]


class DistinctColumns(_Groups):
    """Column j is kept by the rows that are True in columns[group[j]].

    group is [M] of integers, columns [R,N] of booleans; both may lead with
    [B,H].
    """

    kind: ClassVar[str] = "distinct_columns"
    entries: ClassVar[str] = "columns"

    def __init__(self, group: Any, columns: Any):
        super().__init__(group, columns)

    def shapes(self, batch: int, heads: int, rows: int, columns: int) -> list[Any]:
        return [(batch, heads, columns), (batch, heads, None, rows)]


# ----------------------------------------------------------------------------
# low_rank
# ----------------------------------------------------------------------------


def _check_mask(mask: Any) -> None:
    if not isinstance(mask, (Causal, RowInterval, RowChange, _Groups)):
        raise ValueError(
            f"mask: found {mask!r}, needed Causal(), RowInterval(...), RowChange(...), "
            "DistinctRows(...) or DistinctColumns(...)"
        )


def _check_low_rank(u1: Any, u2: Any, v: Any, mask: Any) -> tuple[list[Tensor], list[Tensor]]:
    """The factors and values, and the parts of the mask."""
    u1, u2, v = (_rows(name, array) for name, array in (("u1", u1), ("u2", u2), ("v", v)))
    check.element_type(u2, u1.element)
    check.element_type(v, u1.element)
    batch, heads, rows, rank = u1.shape
    check.match("u2", "batch", u2.shape[0], batch)
    check.match("u2", "rank", u2.shape[3], rank)
    check.match("v", "shape", v.shape[:3], u2.shape[:3])
    groups, columns = u2.shape[1:3]
    if groups == 0 or heads % groups:
        raise ValueError(f"u2: found {groups} heads, needed a divisor of the {heads} heads of u1")
    parts = [_part(name, array) for name, array in mask.parts.items()]
    for part, shape in zip(parts, mask.shapes(batch, heads, rows, columns)):
        _broadcasts(part, shape)
    return [u1, u2, v], parts


def _make_low_rank(u1: Any, u2: Any, v: Any, mask: Any, target: str) -> Callable[..., Any]:
    check_target(target)
    inputs, parts = _check_low_rank(u1, u2, v, mask)
    u1, _, v = inputs
    result = tensor_type(u1.element, (*u1.shape[:3], v.shape[3]))
    return _build(
        "low_rank",
        inputs,
        [("mask", parts)],
        [("outs", [result])],
        [f"mask = #attn.row_mask<{mask.kind}>"],
        target,
    )


def low_rank(u1: Any, u2: Any, v: Any, *, mask: Any, target: str = "cpu") -> Any:
    """`D^-1 (W o U1 U2^T) V`, without forming `U1 U2^T`.

    u1 is [B,H,N,r], u2 [B,G,M,r], v [B,G,M,E] with H a multiple of G.  `mask`,
    which is W, is Causal(), RowInterval(first, last), RowChange(entering,
    leaving), DistinctRows(group, rows) or DistinctColumns(group, columns).  D
    has the sums of the weights of every row; where that is 0 the row is zeros.

    The masks and their costs are those of "Conv-Basis" (arXiv:2405.05219).
    """
    _check_mask(mask)
    arrays = (u1, u2, v, *mask.parts.values())
    kernel = _remembered(
        ("low_rank", target, mask.kind), arrays, lambda: _make_low_rank(u1, u2, v, mask, target)
    )
    return kernel(*arrays)
