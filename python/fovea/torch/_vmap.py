# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""torch.vmap of operators: its axis becomes a part of the batch where all arrays that
depend on it have one, and is gone through one by one elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .._declarations import FUNCTIONS, Argument, Declaration
from .._trace import reads_batch
from ._operator import BACKWARD, FORWARD

#: Without a batch of their own, these are the same for all of it.
_SHARED = ("captures", "codebook")


def _has_batch(axes: str | None) -> bool:
    return axes is not None and axes.startswith("B")


def _is_shared(dim: Any) -> bool:
    return dim is None or (not isinstance(dim, int) and all(map(_is_shared, dim)))


def _is_absent(value: Any) -> bool:
    return value is None or (isinstance(value, (list, tuple)) and all(map(_is_absent, value)))


def _folds(arguments: Sequence[Argument], dims: Sequence[Any], values: Sequence[Any]) -> bool:
    # The number of a batch entry would be another one.
    if any(reads_batch(each.name, value) for each, value in zip(arguments, values)):
        return False
    return all(
        _is_absent(value) or _has_batch(each.axes) or (each.name in _SHARED and _is_shared(dim))
        for each, dim, value in zip(arguments, dims, values)
        if each.is_array
    )


def _fold(value: Any, dim: Any, size: int) -> Any:
    if isinstance(value, (list, tuple)):
        return [_fold(each, at, size) for each, at in zip(value, dim or [None] * len(value))]
    spread = value.expand(size, *value.shape) if dim is None else value.movedim(dim, 0)
    return spread.flatten(0, 1)


def _entry(value: Any, dim: Any, index: int) -> Any:
    if isinstance(value, (list, tuple)) and isinstance(dim, (list, tuple)):
        return [_entry(each, at, index) for each, at in zip(value, dim)]
    return value if dim is None else value.select(dim, index)


def _register(operator: Any, arguments: Sequence[Argument], axes: Sequence[str | None]) -> None:
    """`axes` are those of the results, whose number matters only where all have a batch."""
    results_have_batch = all(map(_has_batch, axes))

    def rule(info: Any, dims: tuple[Any, ...], *values: Any) -> Any:
        size = info.batch_size
        if size == 0:
            raise ValueError("torch.vmap: found an axis without entries, needed one at least")
        if results_have_batch and _folds(arguments, dims, values):
            folded = [
                _fold(value, dim, size) if each.is_array and value is not None and _has_batch(each.axes) else value
                for each, dim, value in zip(arguments, dims, values)
            ]
            found = operator(*folded, values[-1])
            if isinstance(found, torch.Tensor):
                return found.unflatten(0, (size, found.shape[0] // size)), 0
            split = [each.unflatten(0, (size, each.shape[0] // size)) for each in found]
        else:
            rows = [
                operator(*(_entry(value, dim, index) for value, dim in zip(values, dims)))
                for index in range(size)
            ]
            if isinstance(rows[0], torch.Tensor):
                return torch.stack(rows), 0
            split = [torch.stack(each) for each in zip(*rows)]
        return tuple(split), (0,) * len(split)

    torch.library.register_vmap(operator, rule)


def _register_all(name: str, declaration: Declaration) -> None:
    conditional = any(each.conditions for each in declaration.results)
    axes = [None if conditional else each.axes for each in declaration.results]
    _register(FORWARD[name], declaration.values, axes)
    if name in BACKWARD:
        known = {each.name: each.axes for each in declaration.arguments}
        _register(
            BACKWARD[name], declaration.backward_arguments, [known[each] for each in declaration.gradients]
        )


for _name, _declaration in FUNCTIONS.items():
    _register_all(_name, _declaration)
