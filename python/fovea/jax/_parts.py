# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions of JAX of which Fovea does not compile all: in parts, between operations that JAX computes.

A function is a list of steps, one for each equation of its jaxpr, within which functions of
`jax.jit` and the like are taken apart.  Halves of the list, and halves of these, tell which steps
have no program.  The steps between two of them are one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.extend as jex
import jax.numpy as jnp

from .. import _fovea
from .._fallbacks import record_fallback

__all__ = ["split"]

#: Equations that call a function, and the name of it among their parameters.
_CALLS = {"jit": "jaxpr", "pjit": "jaxpr", "closed_call": "call_jaxpr", "custom_jvp_call": "call_jaxpr", "custom_vjp_call": "call_jaxpr"}

Compile = Callable[[Callable[..., Any], Sequence[Any]], Callable[..., Any]]


def _results_of(equation: Any) -> list[Any]:
    return [each for each in equation.outvars if not isinstance(each, jex.core.DropVar)]


class Step(NamedTuple):
    """An equation, with the numbers of the values that it is of, None for literals, and those of its results."""

    equation: Any
    operands: list[int | None]
    results: list[int]

    def run(self, values: dict[int, Any]) -> None:
        read = {each: values[number] for each, number in zip(self.equation.invars, self.operands) if number is not None}
        results = _results_of(self.equation)
        names = jex.core.DebugInfo("fovea.jax.compile", self.equation.primitive.name, ("",) * len(read), ("",) * len(results))
        jaxpr = jex.core.Jaxpr((), [*read], results, [self.equation], self.equation.effects, names)
        values.update(zip(self.results, jax.core.eval_jaxpr(jaxpr, (), *read.values()), strict=True))


class _Steps:
    """All steps of a jaxpr; `types` are those of values."""

    def __init__(self, jaxpr: Any, consts: Sequence[Any]):
        self.types: list[Any] = []
        self.values: dict[int, Any] = {}
        self.steps: list[Step] = []
        numbers = {each: self.add(each.aval) for each in (*jaxpr.constvars, *jaxpr.invars)}
        self.values.update(zip((numbers[each] for each in jaxpr.constvars), consts, strict=True))
        self.inputs = [numbers[each] for each in jaxpr.invars]
        self.results = self.read(jaxpr, numbers)

    def add(self, type: Any) -> int:
        self.types.append(type)
        return len(self.types) - 1

    def read(self, jaxpr: Any, numbers: dict[Any, int]) -> list[int]:
        """Adds the steps of a jaxpr, the numbers of whose inputs are known; those of its results."""

        for equation in jaxpr.eqns:
            called = equation.params.get(_CALLS.get(equation.primitive.name, ""))
            if called is not None:
                inner = {each: self.add(each.aval) for each in called.jaxpr.constvars}
                self.values.update(zip(inner.values(), called.consts, strict=True))
                given = [self.find(each, numbers) for each in equation.invars]
                inner |= dict(zip(called.jaxpr.invars, given, strict=True))
                numbers |= dict(zip(equation.outvars, self.read(called.jaxpr, inner), strict=True))
                continue
            operands = [None if isinstance(each, jex.core.Literal) else numbers[each] for each in equation.invars]
            results = [self.add(each.aval) for each in _results_of(equation)]
            numbers |= dict(zip(_results_of(equation), results, strict=True))
            self.steps.append(Step(equation, operands, results))
        return [self.find(each, numbers) for each in jaxpr.outvars]

    def find(self, value: Any, numbers: dict[Any, int]) -> int:
        """The number of a value; a literal gets one."""
        if not isinstance(value, jex.core.Literal):
            return numbers[value]
        number = self.add(value.aval)
        self.values[number] = jnp.asarray(value.val, value.aval.dtype)
        return number


@dataclass(eq=False)
class Part:
    """Steps of a function of some values, of which others are needed."""

    steps: list[Step]
    inputs: list[int]
    results: list[int]

    def __call__(self, *arguments: Any) -> list[Any]:
        values = dict(zip(self.inputs, arguments, strict=True))
        for step in self.steps:
            step.run(values)
        return [values[each] for each in self.results]


def _make_part(steps: list[Step], needed: set[int]) -> Part:
    made = [each for step in steps for each in step.results]
    read = {each: None for step in steps for each in step.operands if each is not None}
    return Part(steps, [each for each in read if each not in made], [each for each in made if each in needed])


def split(function: Callable[..., Any], examples: Sequence[Any], compile: Compile, reason: str, caller: str) -> Callable[..., Any]:
    """A function of flat arrays like `examples`, which gives a flat list. `compile` makes a program of a function, or raises
    `FoveaError`; what it does not take of this one is left to JAX, and counted."""
    closed = jax.make_jaxpr(function)(*examples)
    whole = _Steps(closed.jaxpr, closed.consts)

    def needed_behind(end: int) -> set[int]:
        read = {each for step in whole.steps[end:] for each in step.operands if each is not None}
        return read | set(whole.results)

    def take(begin: int, end: int) -> Callable[..., Any]:
        part = _make_part(whole.steps[begin:end], needed_behind(end))
        return compile(part, [jax.ShapeDtypeStruct(whole.types[each].shape, whole.types[each].dtype) for each in part.inputs])

    def find_left(begin: int, end: int, error: _fovea.FoveaError | None = None) -> dict[int, str]:
        """The steps that have no program, and why."""
        if error is None:
            try:
                take(begin, end)
                return {}
            except _fovea.FoveaError as found:
                error = found
        if end - begin == 1:
            return {begin: str(error)}
        middle = (begin + end) // 2
        return find_left(begin, middle) | find_left(middle, end)

    count = len(whole.steps)
    left = find_left(0, count, _fovea.FoveaError(reason)) if count > 1 else {number: reason for number in range(count)}
    stages: list[tuple[Part, Callable[..., Any]]] = []
    begin = 0
    for end in (*sorted(left), count):
        if end > begin:
            stages.append((_make_part(whole.steps[begin:end], needed_behind(end)), take(begin, end)))
        if end < count:
            part = _make_part(whole.steps[end : end + 1], needed_behind(end + 1))
            stages.append((part, jax.jit(part)))
            record_fallback(caller, f"{whole.steps[end].equation.primitive.name} is computed by JAX: {left[end]}")
        begin = end + 1

    def run(*arguments: Any) -> list[Any]:
        values = whole.values | dict(zip(whole.inputs, arguments, strict=True))
        for part, stage in stages:
            values.update(zip(part.results, stage(*[values[each] for each in part.inputs]), strict=True))
        return [values[each] for each in whole.results]

    return run
