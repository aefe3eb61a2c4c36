# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One random program, compiled, and compared with what its framework computes."""

import math
import random
import re
from typing import Any, NamedTuple

import numpy as np

import fovea

from .draw import KINDS, SIZES, Draw, Step

#: How far apart the numbers of a type are, as a part of them.
EPSILONS = {"f32": 1.2e-7, "f16": 9.8e-4, "bf16": 7.8e-3}
#: How many of these results may always differ by, of the largest.
SLACK = {"f32": 200, "f16": 4, "bf16": 4}

#: The most elements of a value, and its highest rank.
MOST_ELEMENTS, MOST_DIMENSIONS = 40000, 6


class Wrong(Exception):
    """A result that is not what it should be."""


class Refused(Exception):
    """A program that Fovea does not take."""


class Way(NamedTuple):
    """How programs are compiled."""

    target: str = "cpu"
    element_type: str = "f32"
    #: Of PyTorch: by its compiler, with gradients, rather than as whole programs.
    is_trained: bool = False


def evaluate(steps, results, arguments, change=lambda value: value):
    """The steps one after the other; the arguments are the first values. `change` comes between."""
    values = [change(value) for value in arguments]
    for step in steps:
        values.append(change(step.function(*[values[i] for i in step.operands])))
    return tuple(values[i] for i in results)


class Trial:
    """A program that a seed draws, and what it is called with: subclasses know its framework."""

    #: The `Draw` of the framework, and what it raises where shapes do not fit.
    draw: type[Draw]
    refuses: tuple[type[Exception], ...]
    #: Whether results are judged by a spoilt rule, to show that it finds something.
    canary = False

    def __init__(self, seed, way):
        self.way = way
        self.random = random.Random(seed)
        self.length = self.random.choice([4, 5, 7, 8, 16, 17])
        self.shapes = [self.draw_shape() for _ in range(self.random.choice([1, 2, 3]))]
        self.is_dynamic = self.choose_dynamic()
        self.arguments = self.make_arguments(self.length)
        self.steps = self.draw_steps(self.random.choice([3, 6, 10, 16]))
        first = len(self.arguments)
        used = {i for step in self.steps for i in step.operands}
        self.results = [i for i in range(first, first + len(self.steps)) if i not in used][-4:]

    # What the framework does.

    def choose_dynamic(self) -> bool:
        """Whether the length is unknown."""
        return False

    def weigh(self, function, weight):
        """How often a kind of operation, which has a weight, is asked."""
        return weight

    def make_argument(self, shape):
        """Normal numbers of f64."""
        raise NotImplementedError

    def run_eagerly(self, arguments) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Results in the type of the elements and in f64."""
        raise NotImplementedError

    def run_disturbed(self, arguments, change) -> list[np.ndarray]:
        """Results in f64, where `change` is made to each value of floats between the steps."""
        raise NotImplementedError

    def compile(self) -> Any:
        """A function of arguments of f64, which computes in the type of the elements."""
        raise NotImplementedError

    # What is drawn.

    def draw_shape(self):
        """Sizes; None is the length."""
        shape: list[int | None] = [self.random.choice(SIZES) for _ in range(self.random.choice([1, 2, 3, 3, 4]))]
        shape[self.random.randrange(len(shape))] = None
        return shape

    def make_arguments(self, length):
        return [self.make_argument([length if n is None else n for n in shape]) for shape in self.shapes]

    def draw_steps(self, count):
        steps: list[Step] = []
        values = list(self.arguments)
        kinds = [function for function, _ in KINDS]
        weights = [self.weigh(*each) for each in KINDS]
        for _ in range(20 * count):
            if len(steps) == count:
                break
            try:
                step = self.random.choices(kinds, weights)[0](self.draw(values, self.random))
                if step is None:
                    continue
                result = step.function(*[values[i] for i in step.operands])
            except self.refuses:
                continue  # What the framework refuses for these shapes is no program.
            if 0 < math.prod(result.shape) <= MOST_ELEMENTS and result.ndim <= MOST_DIMENSIONS:
                steps.append(step)
                values.append(result)
        return steps

    def __str__(self):
        """The program, value by value."""
        lines = [f"shapes {self.shapes}, None is {self.length}{' and unknown' if self.is_dynamic else ''}"]
        for i, step in enumerate(self.steps, len(self.arguments)):
            lines.append(f"  {i} = {step.name} of {', '.join(map(str, step.operands))}")
        return "\n".join([*lines, f"  results {', '.join(map(str, self.results))}"])

    # How it is judged.

    def run(self):
        """Raises `Wrong` or `Refused`; what else is raised is a finding too."""
        try:
            compiled = self.compile()
        except fovea.FoveaError as error:
            raise Refused(first_line(error)) from error
        for length in [self.length, *([self.length + 1, 2 * self.length, self.length + 6] if self.is_dynamic else [])]:
            arguments = self.arguments if length == self.length else self.make_arguments(length)
            try:
                single, exact = self.run_eagerly(arguments)
            except self.refuses:
                continue  # A length that this program does not take.
            try:
                found = compiled(arguments)
            except fovea.FoveaError as error:
                if length == self.length:
                    raise
                # Exported programs of the framework take no such length either.
                if "the program was traced for" in str(error):
                    continue
                raise Refused(f"length {length}: {first_line(error)}") from error
            found = found if isinstance(found, tuple | list) else (found,)
            for number, (result, *expected) in enumerate(zip(found, single, exact, strict=True)):
                self.compare(np.asarray(result), expected, arguments, number)

    def compare(self, found, expected, arguments, number):
        """With the framework, within what the type of the elements itself makes of the program."""
        single, exact = expected
        what = f"length {self.length_of(arguments)}, result {number}"
        if (found.shape, found.dtype) != (single.shape, single.dtype):
            raise Wrong(f"{what}: {found.dtype} of {found.shape}, needed {single.dtype} of {single.shape}")
        found, single, exact = (np.asarray(x, np.float64) for x in (found, single, exact))
        # What overflows in a narrow type may have been kept in f32.
        judged = np.isfinite(single) if self.way.element_type != "f32" else np.ones(single.shape, bool)
        for kind, is_kind in (("NaN", np.isnan), ("infinite", np.isinf)):
            if (is_kind(found) != is_kind(single))[judged].any():
                raise Wrong(f"{what}: {is_kind(found).sum()} elements are {kind}, needed {is_kind(single).sum()}")
        finite = np.isfinite(single) & np.isfinite(exact)
        if not finite.any():
            return
        largest = max(1e-3, np.abs(single[finite]).max())
        bound = max(50 * np.abs(single - exact)[finite].max(), SLACK[self.way.element_type] * EPSILONS[self.way.element_type] * largest)
        error = np.abs(found - single)[finite].max()
        if self.canary:
            bound = -1
        elif error > bound:
            bound = max(bound, 50 * self.estimate_noise(exact, arguments, number))
        if error > bound:
            raise Wrong(f"{what}: error {error:.3g}, bound {bound:.3g}, largest {largest:.3g}")

    def length_of(self, arguments):
        return arguments[0].shape[self.shapes[0].index(None)]

    def estimate_noise(self, exact, arguments, number):
        """How far rounding of each value may move a result: programs can be lucky in one type."""
        noise = np.random.default_rng(1)

        def change(value):
            return value * (1 + EPSILONS[self.way.element_type] * noise.standard_normal(value.shape))

        runs = [np.asarray(self.run_disturbed(arguments, change)[number], np.float64) for _ in range(4)]
        return max(np.nanmax(np.abs(run - exact), initial=0, where=np.isfinite(run) & np.isfinite(exact)) for run in runs)


def first_line(error):
    """What an error says first."""
    text = str(error)
    found = re.search(r"error: (.{1,200})", text)
    return found[1] if found else text.splitlines()[0][:200]
