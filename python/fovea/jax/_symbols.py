# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Arrays of symbolic shapes, as `jax.export` has them: what a call is of them follows from samples of their extents."""

from __future__ import annotations

import operator
import random
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from .. import _fovea

__all__ = ["Symbols"]

_T = TypeVar("_T")

Shape = tuple[Any, ...]

#: Functions of extents, as JAX writes them.
_WORDS = {"floordiv": operator.floordiv, "mod": operator.mod, "max": max, "min": min}
#: Extents of samples are no greater, unless constraints say so: larger ones are for calls that have no result for less.
_SCALES = (16, 64, 256)
_COUNT = 6


def _evaluate(expression: str, numbers: Mapping[str, int]) -> int:
    return int(eval(expression.replace("^", "**"), {"__builtins__": {}}, {**_WORDS, **numbers}))


class Symbols:
    """The extents of some shapes. Without a symbol there is one sample: these shapes."""

    def __init__(self, shapes: Sequence[Shape]):
        self.shapes = [tuple(each) for each in shapes]
        self.extents = list({str(each): each for shape in shapes for each in shape if not isinstance(each, int)}.values())
        self.names = sorted({name for each in self.extents for name in re.findall(r"[A-Za-z_]\w*", str(each))} - _WORDS.keys())
        # Samples without these hold for more than a program may be given.
        scope = self.extents[0].scope if self.extents else None
        constraints = [str(each.debug_str) for each in getattr(scope, "_explicit_constraints", ())]
        self.constraints = [each for each in constraints if set(re.findall(r"[A-Za-z_]\w*", each)) <= {*self.names, *_WORDS}]

    def __bool__(self) -> bool:
        return bool(self.extents)

    def _sample(self, numbers: Mapping[str, int]) -> list[tuple[int, ...]]:
        return [tuple(each if isinstance(each, int) else _evaluate(str(each), numbers) for each in shape) for shape in self.shapes]

    def _holds(self, constraint: str, numbers: Mapping[str, int]) -> bool:
        left, relation, right = re.split(r"(==|>=|<=)", constraint)
        compare = {"==": operator.eq, ">=": operator.ge, "<=": operator.le}[relation]
        return bool(compare(_evaluate(left, numbers), _evaluate(right, numbers)))

    def _find_numbers(self, scale: int) -> list[dict[str, int]]:
        """Numbers of symbols that tell all extents apart."""
        choose = random.Random(0)
        found: list[dict[str, int]] = []
        for _ in range(5000):
            numbers = {name: choose.randint(2, scale) for name in self.names}
            values = [_evaluate(str(each), numbers) for each in self.extents]
            is_new = len(set(values)) == len(values) and min(values) > 1 and numbers not in found
            if is_new and all(self._holds(each, numbers) for each in self.constraints):
                found.append(numbers)
            if len(found) == _COUNT:
                break
        return found

    def try_samples(self, call: Callable[[list[tuple[int, ...]]], _T]) -> list[tuple[list[tuple[int, ...]], _T]]:
        """Shapes of samples that a call takes, and what it gives for them."""
        if not self:
            return [(self.shapes, call(self.shapes))]
        refusal, where = None, ""
        for scale in _SCALES:
            given = self._find_numbers(scale)
            if len(given) < _COUNT:
                continue
            try:
                return [(shapes, call(shapes)) for shapes in map(self._sample, given)]
            except (ValueError, _fovea.FoveaError) as error:
                if refusal is None:
                    refusal, where = error, ", ".join(f"{name} = {number}" for name, number in given[0].items())
        shapes = ", ".join(f"({', '.join(map(str, shape))})" for shape in self.shapes)
        if refusal is None:
            raise ValueError(f"found arrays of shapes {shapes}, whose constraints no extents up to {_SCALES[-1]} fulfil")
        raise ValueError(f"{refusal}, where {where} in arrays of shapes {shapes}") from refusal

    def _find_known(self, extent: Any, samples: Sequence[Sequence[tuple[int, ...]]]) -> list[int]:
        """How many an extent is in samples."""
        shape, place = next((n, k) for n, shape in enumerate(self.shapes) for k, each in enumerate(shape) if str(each) == str(extent))
        return [shapes[shape][place] for shapes in samples]

    def find_extent(self, values: Sequence[int], samples: Sequence[Sequence[tuple[int, ...]]]) -> Any:
        """The extent that is so many in samples, of an array that a call makes: that of another array, or a part of it."""
        if len(set(values)) == 1:
            return values[0]
        known = [(each, self._find_known(each, samples)) for each in self.extents]
        for extent, numbers in known:
            if numbers == [*values]:
                return extent
        for extent, numbers in known:
            for divisor in range(2, max(numbers) // max(min(values), 1) + 2):
                if [each // divisor for each in numbers] == [*values]:
                    return extent // divisor
                if [-(-each // divisor) for each in numbers] == [*values]:
                    return -(-extent // divisor)
        found = ", ".join(map(str, values))
        raise ValueError(f"found a result whose extents in samples are {found}, needed those of an argument, or a part of these")

    def find_shape(self, shapes: Sequence[tuple[int, ...]], samples: Sequence[Sequence[tuple[int, ...]]]) -> Shape:
        return tuple(self.find_extent(values, samples) for values in zip(*shapes, strict=True))
