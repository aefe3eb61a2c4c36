# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sums and products of many elements of bf16 and f16 in programs of JAX are those of f32, rounded once, as XLA's are."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fovea

pytest.importorskip("torch_mlir")

N = 700
PLACES = np.arange(N) % 3


def factors(x):
    """That all types have."""
    return jnp.where(x > 2, 1.0078125, 0.9921875).astype(x.dtype)


def of_windows(x, *numbers):
    return jax.lax.reduce_window(x, jnp.zeros((), x.dtype), jax.lax.add, *numbers, "valid")


FUNCTIONS = {
    "sum": lambda x: x.sum(-1),
    "sum of all": lambda x: x.sum(),
    "reduction": lambda x: jax.lax.reduce(x, jnp.zeros((), x.dtype), jax.lax.add, (1,)),
    "reduction of columns": lambda x: jax.lax.reduce(x.T, jnp.zeros((), x.dtype), jax.lax.add, (0,)),
    "mean": lambda x: x.mean(),
    "var": lambda x: x.var(-1),
    "prod": lambda x: jnp.prod(factors(x), -1),
    "cumsum": lambda x: jnp.cumsum(x, -1),
    "cumprod from the end": lambda x: jax.lax.cumprod(factors(x), axis=1, reverse=True),
    "norm": lambda x: jnp.linalg.norm(x),
    "inner products": lambda x: jnp.einsum("ij,ij->i", x, x),
    "products": lambda x: x @ x.T,
    "windows": lambda x: of_windows(x, (1, 350), (1, 350)),
    "add at": lambda x: jnp.zeros((3, 4), x.dtype).at[PLACES].add(x.T),
    "segment_sum": lambda x: jax.ops.segment_sum(x.T, PLACES, 3),
    "softmax": lambda x: jax.nn.softmax(x),
    "gradient of a mean": jax.grad(lambda x: (x * x.mean()).sum()),
    # What it is broadcast to sums up its gradient.
    "gradient of a bias": jax.grad(lambda x: ((jnp.ones((900, 4), x.dtype) + x[:, 0]) ** 2).sum()),
}


@pytest.mark.parametrize("target", ["cpu", "gpu-sim"])
@pytest.mark.parametrize("type", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_many_elements(name, type, target):
    function = FUNCTIONS[name]
    x = (4 * np.random.default_rng(0).random((4, N)) + 0.5).astype(type)
    found, rounded = fovea.import_jax(function, x, target=target)(x), function(jnp.asarray(x))
    exact = np.asarray(function(jnp.asarray(x, jnp.float32)))
    assert found.dtype == rounded.dtype
    bound = 2 * np.abs(np.asarray(rounded, np.float32) - exact).max() + 0.75 * float(jnp.finfo(type).eps) * np.abs(exact).max()
    assert np.abs(found.astype(np.float32) - exact).max() <= bound
