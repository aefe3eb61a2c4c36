# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One random program, compiled, and compared with eager PyTorch."""

import random
import re

import numpy as np
import torch

import fovea
import fovea.torch  # A broken installation ends here, not in each program.

from .draw import KINDS, SIZES, Draw, Step

#: The most elements of a value, and its highest rank.
MOST_ELEMENTS, MOST_DIMENSIONS = 40000, 6


class Program(torch.nn.Module):
    """Its steps one after the other; the arguments are the first values."""

    def __init__(self, steps, results):
        super().__init__()
        self.steps, self.results = steps, results

    def forward(self, *arguments):
        values = list(arguments)
        for step in self.steps:
            values.append(step.function(*[values[i] for i in step.operands]))
        return tuple(values[i] for i in self.results)


class Wrong(Exception):
    """A result that is not what it should be."""


class Refused(Exception):
    """A program that Fovea does not take."""


class Trial:
    """A program that a seed draws, and what it is called with.

    A third of them has a dimension of each argument of unknown extent, and is called
    with several lengths.
    """

    #: Whether results are judged by a spoilt rule, to show that it finds something.
    canary = False

    def __init__(self, seed, target):
        self.target = target
        self.random = random.Random(seed)
        self.generator = torch.Generator().manual_seed(seed)
        self.length = self.random.choice([4, 5, 7, 8, 16, 17])
        self.shapes = [self.draw_shape() for _ in range(self.random.choice([1, 2, 3]))]
        self.is_dynamic = self.random.random() < 0.35
        self.arguments = self.make_arguments(self.length)
        self.steps = self.draw_steps(self.random.choice([3, 6, 10, 16]))
        first = len(self.arguments)
        used = {i for step in self.steps for i in step.operands}
        unused = [i for i in range(first, first + len(self.steps)) if i not in used]
        self.program = Program(self.steps, unused[-4:])

    def draw_shape(self):
        """Sizes; None is the length."""
        shape: list[int | None] = [self.random.choice(SIZES) for _ in range(self.random.choice([1, 2, 3, 3, 4]))]
        shape[self.random.randrange(len(shape))] = None
        return shape

    def make_arguments(self, length):
        return [
            torch.randn([length if n is None else n for n in shape], generator=self.generator, dtype=torch.float64)
            for shape in self.shapes
        ]

    def draw_steps(self, count):
        steps: list[Step] = []
        values = list(self.arguments)
        kinds, weights = zip(*KINDS)
        for _ in range(20 * count):
            if len(steps) == count:
                break
            try:
                step = self.random.choices(kinds, weights)[0](Draw(values, self.random))
                if step is None:
                    continue
                result = step.function(*[values[i] for i in step.operands])
            except (IndexError, RuntimeError):
                continue  # What PyTorch refuses for these shapes is no program.
            if 0 < result.numel() <= MOST_ELEMENTS and result.dim() <= MOST_DIMENSIONS:
                steps.append(step)
                values.append(result)
        return steps

    def __str__(self):
        """The program, value by value."""
        lines = [f"shapes {self.shapes}, None is {self.length}{' and unknown' if self.is_dynamic else ''}"]
        for i, step in enumerate(self.steps, len(self.arguments)):
            lines.append(f"  {i} = {step.name} of {', '.join(map(str, step.operands))}")
        return "\n".join([*lines, f"  results {', '.join(map(str, self.program.results))}"])

    def run(self):
        """Raises `Wrong` or `Refused`; what else is raised is a finding too."""
        dynamic = {}
        if self.is_dynamic:
            dynamic = {f"input_{i}": [shape.index(None)] for i, shape in enumerate(self.shapes)}
        try:
            compiled = fovea.import_torch(
                self.program, *[x.float() for x in self.arguments], target=self.target, dynamic=dynamic
            )
        except fovea.FoveaError as error:
            raise Refused(first_line(error)) from error
        for length in [self.length, *([self.length + 1, 2 * self.length, self.length + 6] if self.is_dynamic else [])]:
            arguments = self.arguments if length == self.length else self.make_arguments(length)
            try:
                exact = self.program(*arguments)
                eager = self.program(*[x.float() for x in arguments])
            except (IndexError, RuntimeError):
                continue  # A length that this program does not take.
            try:
                found = compiled(*[x.float().numpy() for x in arguments])
            except fovea.FoveaError as error:
                if "the program was traced for" in str(error):
                    continue  # PyTorch's own exported programs take no such length either.
                raise
            found = found if isinstance(found, tuple) else (found,)
            for number, (result, single, double) in enumerate(zip(found, eager, exact)):
                self.compare(np.asarray(result), single.numpy(), double.numpy(), f"length {length}, result {number}")

    def compare(self, found, eager, exact, what):
        """Against eager f32, within what f32 itself makes of the program."""
        if (found.shape, found.dtype) != (eager.shape, eager.dtype):
            raise Wrong(f"{what}: {found.dtype} of {found.shape}, needed {eager.dtype} of {eager.shape}")
        found, eager, exact = (np.asarray(x, np.float64) for x in (found, eager, exact))
        for kind, is_kind in (("NaN", np.isnan), ("infinite", np.isinf)):
            if (is_kind(found) != is_kind(eager)).any():
                raise Wrong(f"{what}: {is_kind(found).sum()} elements are {kind}, needed {is_kind(eager).sum()}")
        finite = np.isfinite(eager) & np.isfinite(exact)
        if not finite.any():
            return
        largest = max(1e-3, np.abs(eager[finite]).max())
        bound = max(50 * np.abs(eager - exact)[finite].max(), 3e-5 * largest)
        error = np.abs(found - eager)[finite].max()
        if error > (-1 if self.canary else bound):
            raise Wrong(f"{what}: error {error:.3g}, bound {bound:.3g}, largest {largest:.3g}")


def first_line(error):
    """What an error says first."""
    text = str(error)
    found = re.search(r"error: (.{1,200})", text)
    return found[1] if found else text.splitlines()[0][:200]
