# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions of JAX as programs of Fovea, by StableHLO."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import _fovea
from .._own_calls import TARGET
from .._program import Program
from .._stablehlo import to_linalg
from ..compiler import compile as compile_text
from ._parts import split

__all__ = ["compile", "import_function"]


def _name_inputs(examples: Sequence[Any]) -> list[str]:
    """One for each array."""
    paths = (path for path, _ in jax.tree_util.tree_leaves_with_path(tuple(examples)))
    return ["_".join(("input", *(str(getattr(key, "key", getattr(key, "idx", key))) for key in path))) for path in paths]


# ---- Keys of random numbers, which a program has as the integers that they are, and complex numbers, which are pairs ----

#: In the place of a generator.
_COMPLEX = "complex"


def _type_of(each: Any) -> Any:
    """That which JAX holds it in."""
    try:
        return jnp.result_type(each)
    except TypeError:
        raise ValueError(f"found {type(each).__name__} among arguments and results, needed arrays") from None


def _key_impl(each: Any) -> Any:
    """The generator of a key, or of an array of keys, or of what has the type of one; None of all but complex numbers."""
    if jnp.issubdtype(each.dtype if hasattr(each, "dtype") else _type_of(each), jnp.complexfloating):
        return _COMPLEX
    if not jax.dtypes.issubdtype(getattr(each, "dtype", np.float32), jax.dtypes.prng_key):
        return None
    found: list[Any] = []
    jax.eval_shape(lambda key: found.append(jax.random.key_impl(key)), each)
    return found[0]


def _make_pairs(each: Any) -> Any:
    return jnp.stack([jnp.real(each), jnp.imag(each)], -1)


def _drop_key(each: Any) -> Any:
    impl = _key_impl(each)
    if impl is None:
        return each
    if impl == _COMPLEX:
        return jax.eval_shape(_make_pairs, each) if isinstance(each, jax.ShapeDtypeStruct) else _make_pairs(each)
    return jax.eval_shape(jax.random.key_data, each) if isinstance(each, jax.ShapeDtypeStruct) else jax.random.key_data(each)


def _wrap_keys(arrays: Sequence[Any], impls: Sequence[Any]) -> list[Any]:
    def wrap(each: Any, impl: Any) -> Any:
        if impl is None:
            return each
        if impl == _COMPLEX:
            return jax.lax.complex(each[..., 0], each[..., 1])
        return jax.random.wrap_key_data(each, impl=impl)

    return [wrap(each, impl) for each, impl in zip(arrays, impls, strict=True)]


def import_function(function: Any, examples: Sequence[Any], target: str) -> tuple[Program, Callable[[Sequence[Any]], Any]]:
    """The program of a call with arrays like these, and what makes the tree of results of its arrays."""
    if not callable(function):
        raise ValueError(f"function: found {type(function).__name__}, needed a function of JAX")
    leaves, tree = jax.tree_util.tree_flatten(tuple(examples))
    names = _name_inputs(examples)
    is_known = all(isinstance(extent, int) for each in leaves for extent in jnp.shape(each))
    impls = [*map(_key_impl, leaves)]
    result_impls: list[Any] = []
    leaves = [*map(_drop_key, leaves)]

    def without_keys(*arrays: Any) -> Any:
        found = function(*jax.tree_util.tree_unflatten(tree, _wrap_keys(arrays, impls)))
        result_impls[:] = map(_key_impl, jax.tree_util.tree_leaves(found))
        return jax.tree.map(_drop_key, found)

    # What a function has closed over are constants, and arguments here: their text would be long.
    closed, result = jax.make_jaxpr(without_keys, return_shape=True)(*leaves)
    const_impls = [*map(_key_impl, closed.consts)]
    consts = [*map(_drop_key, closed.consts)]

    def flat(*arrays: Any) -> Any:
        count = len(consts)
        return jax.core.eval_jaxpr(closed.jaxpr, _wrap_keys(arrays[:count], const_impls), *arrays[count:])

    shapes = [jax.ShapeDtypeStruct(jnp.shape(each), jnp.result_type(each)) for each in (*consts, *leaves)]
    jitted = jax.jit(flat, keep_unused=True)
    if is_known:
        text = to_linalg(text=jitted.trace(*shapes).lower(lowering_platforms=("cpu",)).as_text())
    else:
        own = jax.export.DisabledSafetyCheck.custom_call(TARGET)
        text = to_linalg(text=jax.export.export(jitted, platforms=["cpu"], disabled_checks=[own])(*shapes).mlir_module())
    constants = {f"constant_{number}": np.asarray(each) for number, each in enumerate(consts)}
    try:
        kernel = compile_text(text, target=target, entry="main")
    except _fovea.FoveaError as error:
        name = getattr(function, "__name__", type(function).__name__)
        raise _fovea.FoveaError(f"{name} is not compiled: {error}") from error
    structs, results = jax.tree_util.tree_flatten(result)

    # The program makes complex numbers of its pairs.
    types = [
        jnp.result_type(each.dtype, jnp.complex64) if impl == _COMPLEX else each.dtype for each, impl in zip(structs, result_impls)
    ]
    key_impls = [None if each == _COMPLEX else each for each in result_impls]
    has_keys = any(each is not None for each in key_impls)

    def unflatten(arrays: Sequence[Any]) -> Any:
        found = [*map(jnp.asarray, arrays)]
        return jax.tree_util.tree_unflatten(results, _wrap_keys(found, key_impls) if has_keys else found)

    return Program(text, kernel, constants, names, types), unflatten


#: Which makes the results of a call of its leaves.
_Call = Callable[[list[Any]], Any]


def _make_call(function: Callable[..., Any], examples: Sequence[Any]) -> _Call:
    """A program on the CPU, for calls with arrays of the shapes and types of the examples."""
    program, unflatten = import_function(function, examples, "cpu")
    leaves = jax.tree_util.tree_leaves(tuple(examples))
    keys = [number for number, each in enumerate(leaves) if _key_impl(each) is not None]
    types = [jnp.result_type(_drop_key(each)) for each in leaves]

    def run(leaves: list[Any]) -> Any:
        for number in keys:
            leaves[number] = _drop_key(leaves[number])
        found = program(*map(np.asarray, leaves, types))
        if found is None:  # of a function without results
            found = ()
        return unflatten(found if isinstance(found, tuple) else (found,))

    return run


def _make_parts(function: Callable[..., Any], examples: Sequence[Any], reason: str) -> _Call:
    """The same where some operation has no program, which JAX computes."""
    leaves, tree = jax.tree_util.tree_flatten(tuple(examples))
    results = jax.tree_util.tree_structure(jax.eval_shape(function, *examples))

    def flat(*leaves: Any) -> list[Any]:
        return jax.tree_util.tree_leaves(function(*jax.tree_util.tree_unflatten(tree, leaves)))

    def take(part: Callable[..., Any], structs: Sequence[Any]) -> Callable[..., Any]:
        call = _make_call(part, structs)
        return lambda *arguments: call([*arguments])

    run = split(flat, leaves, take, reason, f"fovea.jax.compile({getattr(function, '__name__', type(function).__name__)})")
    return lambda leaves: jax.tree_util.tree_unflatten(results, run(*leaves))


def _take_names(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same of a tuple of arguments and a dictionary of those that are given by name."""

    def call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return function(*args, **kwargs)

    call.__name__ = getattr(function, "__name__", type(function).__name__)
    return call


def compile(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, compiled by Fovea instead of XLA, for the CPU; its attention is raised.

        fast = fovea.jax.compile(model)
        logits = fast(parameters, tokens)

    Arguments, also by name, and results are trees of arrays; there is a program for each tree of
    shapes and types.  What the function closes over is as it was at the first call with them.  Operations
    that have no program, such as solvers, are computed by JAX between programs of the rest:
    `explain_fallbacks` lists them, with the reason.  It needs torch-mlir, whose torch-mlir-opt
    legalises StableHLO, and is called outside of `jax.jit`.
    """
    if not callable(function):
        raise ValueError(f"function: found {type(function).__name__}, needed a function of JAX")
    programs: dict[Any, _Call] = {}
    # Of most leaves: others may be keys, tracers, or of a type that JAX takes for another.
    array_type = type(jnp.zeros(()))

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        given = (args, kwargs) if kwargs else args
        leaves, tree = jax.tree_util.tree_flatten(given)
        if any(isinstance(each, jax.core.Tracer) for each in leaves if type(each) is not array_type):
            raise ValueError("fovea.jax.compile: found a tracer of JAX, needed arrays: call it outside of jax.jit and jax.grad")
        key = bool(kwargs), tree, tuple(
            (each.shape, each.dtype) if type(each) is array_type else (jnp.shape(each), _type_of(each)) for each in leaves
        )
        if key not in programs:
            called = _take_names(function) if kwargs else function
            try:
                programs[key] = _make_call(called, given)
            except _fovea.FoveaError as error:
                programs[key] = _make_parts(called, given, str(error))
        return programs[key](leaves)

    return call
