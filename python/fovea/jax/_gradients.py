# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradients of calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from .._declarations import FUNCTIONS, Declaration
from ._call import is_array, run


def _split(arguments: Sequence[Any]) -> tuple[list[Any], Any]:
    """The arrays of arguments, and a function that puts others in their places."""
    leaves, tree = jax.tree.flatten(tuple(arguments), is_leaf=lambda each: each is None)
    places = [place for place, leaf in enumerate(leaves) if is_array(leaf)]

    def merge(arrays: Sequence[Any]) -> tuple[Any, ...]:
        others = dict(zip(places, arrays))
        return jax.tree.unflatten(tree, [others.get(place, leaf) for place, leaf in enumerate(leaves)])

    return [leaves[place] for place in places], merge


def apply(name: str, arguments: Sequence[Any]) -> list[jax.Array]:
    """The results of a function of `_fovea`, which have gradients where it has them."""
    declaration = FUNCTIONS.get(name)
    if declaration is None or not declaration.gradients:
        return _run_once(name, arguments)
    operands, merge = _split(arguments)

    @jax.custom_vjp
    def compute(operands: list[Any]) -> list[Any]:
        return run(name, merge(operands))

    def forward(operands: list[Any]) -> tuple[list[Any], Any]:
        arguments = merge(operands)
        asked = [given if each.kind else True for each, given in zip(declaration.arguments, arguments)]
        results = _run_once(name, asked)
        return results[: len(_results(declaration, arguments))], (operands, results)

    def backward(saved: Any, cotangents: list[Any]) -> tuple[list[Any]]:
        operands, results = saved
        return (_differentiate(name, merge(operands), results, cotangents),)

    compute.defvjp(forward, backward)
    return compute(operands)


def _run_once(name: str, arguments: Sequence[Any]) -> list[jax.Array]:
    """Results without a gradient, or with none beyond the one that is being taken."""
    operands, merge = _split(arguments)

    @jax.custom_vjp
    def compute(operands: list[Any]) -> list[Any]:
        return run(name, merge(operands))

    def backward(saved: Any, cotangents: Any) -> Any:
        known = name.removesuffix("_backward") in FUNCTIONS and FUNCTIONS[name.removesuffix("_backward")].gradients
        raise ValueError(
            f"{name}: found a derivative of a gradient, needed first derivatives"
            if known
            else f"{name}: found a gradient that depends on its results, which have none; "
            "jax.lax.stop_gradient of its arguments makes them constants"
        )

    compute.defvjp(lambda operands: (run(name, merge(operands)), None), backward)
    return compute(operands)


def _results(declaration: Declaration, arguments: Sequence[Any]) -> list[str]:
    """The names of the results that arguments ask for."""
    given = {each.name: value for each, value in zip(declaration.arguments, arguments)}
    flags = [value for each, value in zip(declaration.arguments, arguments) if not each.kind]
    names = [
        result.name
        for result in declaration.results
        if not result.conditions or any(given[name] is not None for name in result.conditions)
    ]
    # Flags ask for the last ones.
    return names[: len(names) - flags.count(False)]


def _differentiate(
    name: str, arguments: Sequence[Any], results: Sequence[Any], cotangents: Sequence[Any]
) -> list[Any]:
    """The gradients of all operands, None for those that have none."""
    declaration = FUNCTIONS[name]
    named = {each.name: value for each, value in zip(declaration.arguments, arguments)}
    known: dict[str, Any] = dict(zip((each.name for each in declaration.results), results))
    scale = None
    for result, cotangent in zip(declaration.results, cotangents):
        if not result.axes:
            # The backward function takes a number.
            scale, cotangent = cotangent, 1.0
        known[f"d_{result.name}"] = cotangent
    known.update(named)
    gradients = iter(_run_once(f"{name}_backward", [known.get(each) for each in declaration.backward]))

    found: dict[str, Any] = dict.fromkeys(named)
    for each in declaration.gradients:
        arrays, _ = _split([named[each]])
        if not arrays:
            continue
        own = [_scaled(next(gradients), scale) for _ in arrays]
        found[each] = own if isinstance(named[each], (tuple, list)) else own[0]
    # In the order of operands.
    aligned: list[Any] = []
    for each, value in named.items():
        arrays, _ = _split([value])
        got = found[each]
        aligned += [None] * len(arrays) if got is None else got if isinstance(got, list) else [got]
    # Of integers there is none, and leading axes that were left out have extent 1.
    return [
        None if gradient is None or operand.dtype.kind in "biu" else gradient.reshape(operand.shape)
        for gradient, operand in zip(aligned, _split(arguments)[0])
    ]


def _scaled(gradient: Any, scale: Any) -> Any:
    return gradient if scale is None else (gradient * scale).astype(gradient.dtype)
