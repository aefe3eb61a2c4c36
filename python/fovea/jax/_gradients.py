# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradients of calls."""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from .._declarations import ASKS, FUNCTIONS, Declaration, has_gradient
from ._call import is_array, run, vary_like

#: In the place of an array.
_ARRAY = object()


def _split(arguments: Sequence[Any]) -> tuple[list[Any], Any]:
    """The arrays of arguments, and a function that puts others in their places."""
    leaves, tree = jax.tree.flatten(tuple(arguments), is_leaf=lambda each: each is None)
    found = [leaf for leaf in leaves if is_array(leaf)]
    # JAX keeps the function: with the arrays of a call it would keep these, too, and leak tracers.
    others = [_ARRAY if is_array(leaf) else leaf for leaf in leaves]

    def merge(arrays: Sequence[Any]) -> tuple[Any, ...]:
        rest = iter(arrays)
        return jax.tree.unflatten(tree, [next(rest) if leaf is _ARRAY else leaf for leaf in others])

    return found, merge


def apply(name: str, arguments: Sequence[Any]) -> list[jax.Array]:
    """The results of a function of `_fovea`, which have gradients where it has them."""
    if name == "tree_select":
        # A choice, which passes none on.
        arguments = jax.tree.map(lambda each: jax.lax.stop_gradient(each) if is_array(each) else each, tuple(arguments))
    if name == "quantize":
        return _quantize(arguments)
    declaration = FUNCTIONS.get(name)
    if declaration is None or not declaration.gradients:
        return _run_once(name, arguments)
    operands, merge = _split(_refuse_others(name, declaration, arguments))

    def forward(operands: list[Any], constants: dict[str, None]) -> tuple[list[Any], Any]:
        arguments = merge(operands)
        asked = _ask_all(name, declaration, arguments)
        results = dict(zip(_results(declaration, asked), _run_once(name, asked)))
        return [results[each] for each in _results(declaration, arguments)], (operands, results, constants)

    def forward_symbolic(given: list[Any]) -> tuple[list[Any], Any]:
        depends = merge([each.perturbed for each in given])
        # Without leaves: what a gradient is asked for is known before a program runs.
        constants = {
            each.name: None
            for each, value in zip(declaration.arguments, depends)
            if not any(leaf is True for leaf in jax.tree.leaves(value))
        }
        return forward([each.value for each in given], constants)

    def backward(saved: Any, cotangents: list[Any]) -> tuple[list[Any]]:
        operands, results, constants = saved
        arguments = merge(operands)
        given = {
            result: _instantiate(cotangent)
            for result, cotangent in zip(_results(declaration, arguments), cotangents)
            if not _is_zero(cotangent) or f"d_{result}" == declaration.backward[0]
        }
        return (_differentiate(name, arguments, results, given, constants),)

    def compute(symbolic: bool) -> list[jax.Array]:
        function = jax.custom_vjp(lambda operands: run(name, merge(operands)))
        if symbolic:
            function.defvjp(forward_symbolic, backward, symbolic_zeros=True)
        else:
            function.defvjp(lambda given: forward(given, {}), backward)
        return function(operands)

    # Only where a gradient may be left out: JAX cannot say of which there is none within
    # jax.shard_map, so that all are taken there.
    named = _named(declaration, arguments)
    if any(ASKS + each in declaration.backward and _split([value])[0] for each, value in named.items()):
        try:
            return compute(symbolic=True)
        except NotImplementedError:
            pass
    return compute(symbolic=False)


def _refuse_others(name: str, declaration: Declaration, arguments: Sequence[Any]) -> list[Any]:
    """The same arguments; a gradient for one that has none is an error, which would else be zeros."""

    def refuse(argument: str, leaf: Any) -> Any:
        if not isinstance(leaf, jax.core.Tracer) or not jnp.issubdtype(leaf.dtype, jnp.floating):
            return leaf

        @jax.custom_vjp
        def same(leaf: Any) -> Any:
            return leaf

        def backward(_: None, cotangent: Any) -> Any:
            raise ValueError(
                f"{name}: found a gradient for {argument}, which has none: jax.lax.stop_gradient makes it a constant"
            )

        same.defvjp(lambda leaf: (leaf, None), backward)
        return same(leaf)

    return [
        value if each.name in declaration.gradients else jax.tree.map(functools.partial(refuse, each.name), value)
        for each, value in zip(declaration.arguments, arguments)
    ]


def _is_zero(cotangent: Any) -> bool:
    """Whether JAX knows it without computing."""
    return isinstance(cotangent, jax.custom_derivatives.SymbolicZero)


def _instantiate(cotangent: Any) -> Any:
    return jnp.zeros(cotangent.shape, cotangent.dtype) if _is_zero(cotangent) else cotangent


def _run_once(name: str, arguments: Sequence[Any]) -> list[jax.Array]:
    """Results without a gradient, or with none beyond the one that is being taken."""
    operands, merge = _split(arguments)

    @jax.custom_vjp
    def compute(operands: list[Any]) -> list[Any]:
        return run(name, merge(operands))

    def backward(saved: Any, cotangents: Any) -> Any:
        forward = FUNCTIONS.get(name.removesuffix("_backward"))
        if forward and forward.gradients:
            raise ValueError(f"{name}: found a derivative of a gradient, needed first derivatives")
        raise ValueError(
            f"{name}: found a gradient that depends on its results, which have none: "
            "jax.lax.stop_gradient makes them constants"
        )

    compute.defvjp(lambda operands: (run(name, merge(operands)), None), backward)
    return compute(operands)


def _quantize(arguments: Sequence[Any]) -> list[jax.Array]:
    """Codewords pass their gradient straight through to the keys that are present."""
    k, *others = arguments

    @jax.custom_vjp
    def compute(k: Any, others: Any) -> list[Any]:
        return run("quantize", [k, *others])

    def forward(k: Any, others: Any) -> tuple[list[Any], Any]:
        results = _run_once("quantize", [k, *others])
        return results, (k, results[1])

    def backward(saved: Any, cotangents: Any) -> Any:
        k, codes = saved
        return vary_like(jnp.where(codes[..., None] >= 0, cotangents[0], 0), k), None

    compute.defvjp(forward, backward)
    return compute(k, others)


def _named(declaration: Declaration, arguments: Sequence[Any]) -> dict[str, Any]:
    return {each.name: value for each, value in zip(declaration.arguments, arguments)}


def _results(declaration: Declaration, arguments: Sequence[Any]) -> list[str]:
    """The names of the results that arguments ask for.  Flags ask for the last ones."""
    named = _named(declaration, arguments)
    names = [result.name for result in declaration.results if result.is_there(named)]
    missing = sum(not each.kind and not named[each.name] for each in declaration.arguments)
    return names[: len(names) - missing]


def _ask_all(name: str, declaration: Declaration, arguments: Sequence[Any]) -> list[Any]:
    """Arguments that ask for all results that the backward function needs."""
    asked = [value if each.kind else True for each, value in zip(declaration.arguments, arguments)]
    if name == "vq":
        named = _named(declaration, asked)
        if named["state"] is not None or named["return_state"]:
            raise ValueError(
                "state: found one in a vq whose gradient is taken, needed none: "
                "a gradient ends where a state does"
            )
        # There is none without a soft-max.
        asked[-1] = named["weighting"] == "softmax"
    return asked


def _differentiate(
    name: str,
    arguments: Sequence[Any],
    results: dict[str, Any],
    cotangents: dict[str, Any],
    constants: Collection[str],
) -> list[Any]:
    """The gradients of all operands, None for integers and for constants.  Zeros for others without a
    gradient get to where that is an error."""
    declaration = FUNCTIONS[name]
    named = _named(declaration, arguments)
    known: dict[str, Any] = dict(results)
    scale = None
    for result in declaration.results:
        cotangent = cotangents.get(result.name)
        if not result.axes and cotangent is not None:
            # The backward function takes a number.
            scale, cotangent = cotangent, 1.0
        known[f"d_{result.name}"] = cotangent
    known.update(named)
    known.update((ASKS + each, each not in constants) for each in named)
    wanted = []
    for each in declaration.backward:
        argument, *conditions = each.split("/")
        wanted.append(None if any(known.get(other) is None for other in conditions) else known.get(argument))
    if name == "vq":
        # The gradient of a state is one argument.
        wanted[-3:] = [None]
    gradients = iter(_run_once(f"{name}_backward", wanted))

    found: dict[str, Any] = dict.fromkeys(named)
    for each in declaration.gradients:
        arrays, _ = _split([named[each]])
        if arrays and (known[ASKS + each] or ASKS + each not in declaration.backward):
            found[each] = [_scaled(next(gradients), scale) if has_gradient(each, array) else None for array in arrays]
    # In the order of operands.
    aligned: list[Any] = []
    for each, value in named.items():
        arrays, _ = _split([value])
        has_one = each in declaration.gradients
        aligned += found[each] or [None if has_one else jnp.zeros_like(array) for array in arrays]
    # Of integers there is none, and leading axes that were left out have extent 1.
    return [
        None if gradient is None or operand.dtype.kind in "biu" else vary_like(gradient.reshape(operand.shape), operand)
        for gradient, operand in zip(aligned, _split(arguments)[0])
    ]


def _scaled(gradient: Any, scale: Any) -> Any:
    return gradient if scale is None else (gradient * scale).astype(gradient.dtype)
