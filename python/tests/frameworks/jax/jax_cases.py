# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the tests of fovea.jax share."""

import jax
import jax.numpy as jnp
import numpy as np

# Of the host, for tests of programs on several devices.
jax.config.update("jax_num_cpu_devices", 2)


def to_jax(*arrays):
    return tuple(jnp.asarray(array) for array in arrays)


def near(found, expected, bound=5e-6):
    """`bound` is relative to the largest number, or to the inputs, which are near 1."""
    found, expected = (np.asarray(each, np.float64) for each in (found, expected))
    assert found.shape == expected.shape
    largest = max(1, np.abs(expected).max(initial=0))
    assert np.abs(found - expected).max(initial=0) <= bound * largest


def gradients(function, arguments, numbers=(0, 1, 2), seed=7):
    """Of a sum of results with random weights."""

    def loss(*arguments):
        out = function(*arguments)
        weights = np.random.default_rng(seed).standard_normal(out.shape)
        return (out * jnp.asarray(weights, out.dtype)).sum()

    return jax.grad(loss, numbers)(*arguments)
