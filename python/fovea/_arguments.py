# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks of the arguments of the functions in ops.py.

Each says which argument is wrong, what was found and what is needed.  Those of
arrays and options run once for each combination of shapes, types and options:
later calls with the same ones find a kernel.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from . import _fovea

#: NumPy's names of the element types, by those in IR.
FLOAT_TYPES = {
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "f64": "float64",
}

#: Those of all types. Kernels know no unsigned integers.
TYPE_NAMES = {**FLOAT_TYPES, "i1": "bool", "index": "int64"}
TYPE_NAMES.update((f"i{width}", f"int{width}") for width in (8, 16, 32, 64))


class Tensor(NamedTuple):
    """An argument: its name in Python, element type in IR, and shape."""

    name: str
    element: str
    shape: tuple[int, ...]

    @property
    def value(self) -> str:
        """The value in IR: key_weights[0] is %key_weights_0."""
        return "%" + self.name.replace("[", "_").replace("]", "")

    @property
    def type(self) -> str:
        return tensor_type(self.element, self.shape)


def tensor_type(element: str, shape: tuple[int, ...]) -> str:
    return f"tensor<{''.join(f'{extent}x' for extent in shape)}{element}>"


def state_type(element: str) -> str:
    """The type of sums and of the log-sum-exp."""
    return "f64" if element == "f64" else "f32"


def num_levels(length: int, group: int) -> int:
    """The least L with length <= group 2^(L+1)."""
    return max((-(-length // group) - 1).bit_length() - 1, 0)


# ----------------------------------------------------------------------------
# Numbers
# ----------------------------------------------------------------------------


def integer(name: str, value: Any, least: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool) or number < least:
        raise ValueError(f"{name}: found {value!r}, needed an integer of at least {least}")
    return number


def number(
    name: str, value: Any, kind: str = "a finite number", fits: Callable[[float], bool] = lambda _: True
) -> float:
    """A finite number that fits, neither a boolean nor what only reads like one."""
    try:
        found = math.nan if isinstance(value, (bool, np.bool_, str, bytes)) else float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        found = math.nan
    if not math.isfinite(found) or not fits(found):
        raise ValueError(f"{name}: found {value!r}, needed {kind}")
    return found


def scale(value: Any, width: int) -> float:
    return 1.0 / math.sqrt(width) if value is None else number("scale", value)


def flags(**values: Any) -> None:
    """Each is True or False: anything else would be taken for one of them."""
    for name, value in values.items():
        if value is not True and value is not False and not isinstance(value, np.bool_):
            raise ValueError(f"{name}: found {value!r}, needed True or False")


def choice(name: str, value: Any, choices: Sequence[str]) -> str:
    if not isinstance(value, str) or value not in choices:
        *names, last = map(repr, choices)
        raise ValueError(f"{name}: found {value!r}, needed {', '.join(names)} or {last}")
    return value


# ----------------------------------------------------------------------------
# Arrays
# ----------------------------------------------------------------------------


def match(name: str, what: str, found: Any, needed: Any) -> None:
    if found != needed:
        raise ValueError(f"{name}: found {what} {found}, needed {needed}")


def to_numpy(name: str, values: Any) -> np.ndarray:
    """Small arguments, such as positions, which may be lists as well."""
    is_foreign = hasattr(values, "__dlpack__") and not isinstance(values, np.ndarray)
    if is_foreign:
        _fovea.describe(name, values)
    try:
        return np.from_dlpack(values) if is_foreign else np.asarray(values)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise ValueError(
            f"{name}: found {type(values).__name__}, needed an array or lists that make one: {error}"
        ) from None


def tensor(name: str, array: Any, rank: int, layout: str) -> Tensor:
    element, shape = _fovea.describe(name, array)
    if element not in FLOAT_TYPES:
        raise ValueError(
            f"{name}: found element type {TYPE_NAMES[element]}, needed one of "
            f"{', '.join(FLOAT_TYPES.values())}"
        )
    if len(shape) != rank:
        raise ValueError(f"{name}: found rank {len(shape)}, needed rank {rank} {layout}")
    return Tensor(name, element, shape)


def element_type(argument: Tensor, *needed: str) -> None:
    if argument.element not in needed:
        names = " or ".join(FLOAT_TYPES[element] for element in dict.fromkeys(needed))
        raise ValueError(
            f"{argument.name}: found element type {FLOAT_TYPES[argument.element]}, "
            f"needed {names}"
        )


def like(name: str, array: Any, element: str, shape: tuple[int, ...]) -> Tensor:
    """An array of that type and shape, such as a gradient."""
    found = tensor(name, array, len(shape), f"{list(shape)}")
    element_type(found, element)
    match(name, "shape", found.shape, shape)
    return found


def queries_keys_values(
    q: Any, k: Any, v: Any, *, same_length: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """q [B,H,N,D], k [B,G,M,D] and v [B,G,M,E], checked against each other."""
    q = tensor("q", q, 4, "[B,H,N,D]")
    k = tensor("k", k, 4, "[B,G,M,D]")
    v = tensor("v", v, 4, "[B,G,M,E]")
    element_type(k, q.element)
    element_type(v, q.element)
    match("k", "batch", k.shape[0], q.shape[0])
    match("v", "batch", v.shape[0], q.shape[0])
    heads, groups = q.shape[1], k.shape[1]
    if groups == 0 or heads % groups:
        raise ValueError(
            f"k: found {groups} heads, needed a divisor of the {heads} heads of q"
        )
    match("v", "head count", v.shape[1], groups)
    for argument in (q, v):
        if argument.shape[3] == 0:
            raise ValueError(f"{argument.name}: found width 0, needed at least 1")
    match("k", "head width", k.shape[3], q.shape[3])
    match("v", "length", v.shape[2], k.shape[2])
    if same_length:
        match("k", "length", k.shape[2], q.shape[2])
    return q, k, v


def score_term(name: str, array: Any, data: str, shape: tuple[int, ...]) -> Tensor:
    """An array that is added to scores of the given shape, extents of 1
    broadcast."""
    found = tensor(name, array, len(shape), f"that broadcasts to {list(shape)}")
    element_type(found, data, state_type(data))
    if any(extent not in (1, full) for extent, full in zip(found.shape, shape)):
        raise ValueError(
            f"{name}: found shape {list(found.shape)}, needed one that broadcasts to "
            f"{list(shape)}"
        )
    return found


class Family(NamedTuple):
    """The weights, and biases if any, of one tensor at all levels."""

    weights: list[Tensor]
    biases: list[Tensor]


def _level_list(name: str, arrays: Any, levels: int, reason: str) -> list[Any]:
    try:
        found = list(arrays)
    except TypeError:
        raise ValueError(
            f"{name}: found {type(arrays).__name__}, needed a list of {levels} arrays"
        ) from None
    if len(found) != levels:
        raise ValueError(
            f"{name}: found {len(found)} levels, needed {levels} for {reason}"
        )
    return found


def family(
    prefix: str, weights: Any, biases: Any, of: Tensor, group: int, rank: int | None
) -> tuple[Family, int | None]:
    """Checks weights [W,p,m_l,D] and biases [W,p,D] for summaries of `of`.

    `rank` is p where another tensor has settled it.  Returns it as well: None
    without levels.
    """
    _, heads, length, width = of.shape
    levels = num_levels(length, group)
    reason = f"{length} tokens in groups of {group}"
    weights = _level_list(f"{prefix}_weights", weights, levels, reason)
    if biases is not None:
        biases = _level_list(f"{prefix}_biases", biases, levels, reason)
    checked = Family([], [])
    for level in range(levels):
        weight = tensor(f"{prefix}_weights[{level}]", weights[level], 4, "[W,p,m_l,D]")
        element_type(weight, of.element)
        sets, found_rank, interval, found_width = weight.shape
        if sets == 0 or heads % sets:
            raise ValueError(
                f"{weight.name}: found W = {sets}, needed 1 or a divisor of the {heads} "
                f"heads of {of.name}"
            )
        if rank is None:
            rank = found_rank
            if rank == 0 or group % rank:
                raise ValueError(
                    f"group: found {group}, needed a multiple of the rank p = {rank} of "
                    f"{weight.name}"
                )
        match(weight.name, "rank p =", found_rank, rank)
        match(weight.name, "interval", interval, group << level)
        match(weight.name, "width", found_width, width)
        checked.weights.append(weight)
        if biases is not None:
            bias = tensor(f"{prefix}_biases[{level}]", biases[level], 3, "[W,p,D]")
            element_type(bias, of.element)
            match(bias.name, "shape", bias.shape, (sets, rank, width))
            checked.biases.append(bias)
    return checked, rank
