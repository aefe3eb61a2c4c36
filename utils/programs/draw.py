# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a program has so far, from which its next operation is drawn."""

import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

#: Sizes of dimensions, odd and even, one among them.
SIZES = [1, 2, 3, 4, 5, 8, 16, 17]


class Step(NamedTuple):
    """An operation, and which values it is of."""

    name: str
    function: Callable[..., Any]
    operands: list[int]


#: Functions of a `Draw` that give a `Step`, or None where they have none for the value
#: that was drawn, and how often each is asked.
KINDS: list[tuple[Callable[[Any], Step | None], float]] = []


def kind(weight=1.0):
    """Adds a kind of operation."""

    def add(function):
        KINDS.append((function, weight))
        return function

    return add


def broadcast(left, right):
    """Whether shapes broadcast."""
    return all(m == n or 1 in (m, n) for m, n in zip(reversed(left), reversed(right)))


class Draw:
    """A value `x`, number `at` of a program, and one of its dimensions."""

    def __init__(self, values: Sequence[Any], source: random.Random):
        self.values, self.random = values, source
        floats = [i for i, value in enumerate(values) if self.is_float(value)]
        # The last one more often, so that chains are long.
        self.at = source.choice(floats) if source.random() < 0.5 else floats[-1]
        self.x = values[self.at]
        self.rank = self.x.ndim
        self.dim = source.randrange(self.rank) if self.rank else 0

    def is_float(self, value):
        raise NotImplementedError

    @property
    def size(self):
        return self.x.shape[self.dim]

    def pick(self, choices):
        """One of a list, or a name and its function of a table."""
        if isinstance(choices, dict):
            return self.random.choice(list(choices.items()))
        return self.random.choice(choices)

    def others(self, holds):
        """The numbers of values of the same type for which `holds`."""
        return [i for i, value in enumerate(self.values) if value.dtype == self.x.dtype and holds(value)]

    def flip(self, probability):
        return self.random.random() < probability

    def fit_to_join(self):
        """The number of a value with the same extents but that of the dimension."""

        def fits(value):
            return value.ndim == self.rank and all(value.shape[i] == self.x.shape[i] for i in range(self.rank) if i != self.dim)

        return self.pick(self.others(fits))

    def attended(self):
        """The numbers of keys and values of the queries `x`, and whether masks are causal."""
        x = self.x
        fits = self.others(lambda value: value.shape[:-2] == x.shape[:-2] and value.shape[-1] == x.shape[-1])
        key = self.pick(fits)
        length = self.values[key].shape[-2]
        value = self.pick([i for i in fits if self.values[i].shape[-2] == length])
        return key, value, self.flip(0.4) and length == x.shape[-2]

    def reduced(self):
        """Some dimensions, and whether they are kept as 1."""
        dims = tuple(sorted(self.random.sample(range(self.rank), self.random.randint(1, self.rank))))
        return dims, self.flip(0.5)

    def of_two(self, table):
        """An operation of the value and one that broadcasts with it, in either order."""
        name, function = self.pick(table)
        step = self.step(name, function, self.pick(self.others(lambda value: broadcast(value.shape, self.x.shape))))
        return step if self.flip(0.5) else step._replace(operands=step.operands[::-1])

    def step(self, name, function, *others):
        return Step(name, function, [self.at, *others])

    def one_of(self, table):
        """An operation of the value from a table; the name says the dimension."""
        name, function = self.pick(table)
        return self.step(f"{name} dim={self.dim}", function)

    def normal(self, *shape):
        """Constants of a program, drawn with it."""
        raise NotImplementedError

    def integers(self, most, *shape):
        """The same, from 0 on and below `most`."""
        raise NotImplementedError
