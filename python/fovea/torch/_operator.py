# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operators of PyTorch, made of the declarations of functions.

`fovea::dense(Tensor q, ..., str? target) -> (Tensor, Tensor)` and, where there are
gradients, `fovea::dense_backward(Tensor? d_out, ...) -> Tensor[]`.  Kernels compile
when an operator first runs: those who trace see shapes and types only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from .. import _fovea
from .._declarations import FUNCTIONS, Argument, Declaration
from ._vq import ADAPTED, sum_type

TARGET = Argument("target", "str?", None)


def _define(
    name: str, arguments: Sequence[Argument], returns: str, run: Callable[..., Any], fake: Callable[..., Any]
) -> Any:
    schema = ", ".join(f"{each.kind} {each.name}" for each in (*arguments, TARGET) if each.kind)
    full = f"fovea::{name}"
    torch.library.define(full, f"({schema}) -> {returns}", tags=(torch.Tag.pt2_compliant_tag,))
    torch.library.impl(full, ("cpu", "cuda"), run)
    torch.library.register_fake(full, fake)
    return getattr(torch.ops.fovea, name).default


def _compiled(name: str, arguments: Sequence[Argument]) -> Callable[..., Any]:
    """The compiled function, for arguments of the operator: those of the declaration and
    the target, which by default is that of where the tensors lie."""
    function = ADAPTED.get(name) or getattr(_fovea.tensors, name)
    given = [each for each in arguments if each.kind]
    first = next(index for index, each in enumerate(given) if each.kind == "Tensor")
    flags = len(arguments) - len(given)
    # As a rule, what is passed on is what is given, and flags that ask for results.
    is_same = all(arguments[len(given) + at].kind == "" for at in range(flags)) and not any(
        each.kind.startswith(("float[]", "int[]")) for each in arguments
    )
    asks = (True,) * flags

    def read(values: Sequence[Any]) -> list[Any]:
        rest, found = iter(values), []
        for each in arguments:
            value: Any = next(rest) if each.kind else True
            if each.kind.startswith("float[]") and value is not None:
                value = np.array(value, np.float64)
            elif each.kind == "int[]":
                value = dict(zip(value[::2], value[1::2]))
            found.append(value)
        return found

    def call(*values: Any) -> Any:
        *rest, target = values
        target = target or ("gpu" if values[first].is_cuda else "cpu")
        return function(*rest, *asks, target) if is_same else function(*read(rest), target)

    return call


def _type(like: str, values: dict[str, Any], first: torch.Tensor) -> torch.dtype:
    like, _, wide = like.partition("|")
    if wide and values[wide]:
        like = "sums"
    if like in values:
        return values[like].dtype
    if like == "sums":
        return sum_type(first.dtype)
    return {"int32": torch.int32, "int64": torch.int64}[like]


def _flat(found: Any) -> list[torch.Tensor]:
    """The tensors among results, which may be in tuples and lists."""
    if isinstance(found, (tuple, list)):
        return [each for part in found for each in _flat(part)]
    return [found] if isinstance(found, torch.Tensor) else []


def _define_forward(name: str, declaration: Declaration) -> Any:
    compiled = _compiled(name, declaration.arguments)
    names = [each.name for each in declaration.values]
    count = len(declaration.results)
    is_complete = not any(each.conditions for each in declaration.results)

    def run(*values: Any) -> Any:
        found = compiled(*values)
        named, there = dict(zip(names, values)), iter(_flat(found))
        # No operator returns None.
        return tuple(
            next(there) if each.is_there(named) else values[0].new_empty(0, dtype=_type(each.like, named, values[0]))
            for each in declaration.results
        )

    def fake(*values: Any) -> Any:
        first, named = values[0], dict(zip(names, values))
        found = [
            first.new_empty(0 if shape is None else shape, dtype=_type(result.like, named, first))
            for result, shape in zip(declaration.results, declaration.shapes(values))
        ]
        return found[0] if count == 1 else tuple(found)

    returns = "Tensor" if count == 1 else f"({', '.join(['Tensor'] * count)})"
    return _define(name, declaration.values, returns, compiled if is_complete else run, fake)


def _define_backward(name: str, declaration: Declaration) -> Any:
    arguments = declaration.backward_arguments
    compiled = _compiled(f"{name}_backward", arguments)

    def run(*values: Any) -> list[torch.Tensor]:
        return _flat(compiled(*values))

    def fake(*values: Any) -> list[torch.Tensor]:
        return [like.new_empty(shape) for shape, like in declaration.gradient_shapes(values)]

    return _define(f"{name}_backward", arguments, "Tensor[]", run, fake)


FORWARD: dict[str, Any] = {name: _define_forward(name, each) for name, each in FUNCTIONS.items()}
BACKWARD: dict[str, Any] = {
    name: _define_backward(name, each) for name, each in FUNCTIONS.items() if each.backward
}
