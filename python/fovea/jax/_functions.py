# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The functions of the package on arrays of JAX."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fovea

from .._abstract import AbstractArray
from ._call import is_array
from ._gradients import apply

#: Arguments that are constants of a kernel.
_STATIC = {"frequencies"}


def _bind(signature: inspect.Signature, arguments: Any, options: Any) -> dict[str, Any]:
    """Arguments by name, NumPy's arrays as those of JAX."""
    bound = signature.bind(*arguments, **options).arguments
    return {
        name: value if name in _STATIC else jax.tree.map(_convert, value)
        for name, value in bound.items()
    }


def _convert(value: Any) -> Any:
    return jnp.asarray(value) if isinstance(value, np.ndarray) else value


def _call(function: Callable[..., Any], named: dict[str, Any]) -> Any:
    """Has the function describe its results, and computes these."""
    leaves, tree = jax.tree.flatten(named)
    known: dict[int, Any] = {}

    def abstract(leaf: Any) -> Any:
        if not is_array(leaf) or isinstance(leaf, np.ndarray):
            return leaf
        described = AbstractArray(leaf.dtype, leaf.shape)
        known[id(described)] = leaf
        return described

    described = [abstract(leaf) for leaf in leaves]
    results = function(**jax.tree.unflatten(tree, described))

    def resolve(value: Any) -> Any:
        if isinstance(value, (tuple, list)):
            return tuple(map(resolve, value))
        if not isinstance(value, AbstractArray):
            return value
        if id(value) in known:
            return known[id(value)]
        return resolve(value.base).astype(value.dtype).reshape(value.shape)

    computed: list[Any] = []

    def compute(leaf: Any) -> Any:
        if not isinstance(leaf, AbstractArray) or id(leaf) in known:
            return known.get(id(leaf), leaf)
        if not computed:
            assert leaf.call is not None
            name, arguments = leaf.call
            computed.extend(apply(name, resolve(arguments)))
        return computed[leaf.index]

    return jax.tree.map(compute, results)


def _define(name: str) -> Callable[..., Any]:
    function = getattr(fovea, name)
    signature = inspect.signature(function)
    parameters = [each for each in signature.parameters.values() if each.name != "target"]
    signature = signature.replace(parameters=parameters)

    @functools.wraps(function)
    def wrapper(*arguments: Any, **options: Any) -> Any:
        return _call(function, _bind(signature, arguments, options))

    wrapper.__signature__ = signature  # type: ignore[attr-defined]
    wrapper.__module__ = "fovea.jax"
    return wrapper


dense = _define("dense")
dense_backward = _define("dense_backward")

__all__ = ["dense", "dense_backward"]
