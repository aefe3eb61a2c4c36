# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the tests of fovea.jax share."""

import jax
import jax.numpy as jnp
import numpy as np
from conftest import TYPES, make

import fovea

# Of the host, for tests of programs on several devices.
jax.config.update("jax_num_cpu_devices", 2)

LENGTHS = {"lengths": np.array([21, 15], np.int32)}


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


def qkv(type, N=21, **shape):
    return dict(zip("qkv", make(type, B=2, H=4, G=2, N=N, D=8, **shape)))


def random(type, *shape, seed=5):
    return np.random.default_rng(seed).standard_normal(shape).astype(TYPES[type])


def sources(type):
    """A window over the tokens with a bias, and three summaries with weights."""
    own, far = qkv(type), qkv(type, 3)
    window = fovea.Source(own["k"], own["v"], causal=True, window=9, bias=random(type, 1, 4, 21, 21), ranges=blocks)
    return {
        "q": own["q"],
        "sources": [window, fovea.Source(far["k"], far["v"], log_weight=random(type, 3), ranges=past)],
        "sink": random(type, 4),
    }


def blocks(b, rows, n):
    return 8 * b - 8, 8 * b + 8


def past(b, rows, n):
    return 0, b


def blocks_of_keys(type):
    """Blocks of four keys for each block of four queries and each head of keys; -1 is none."""
    own, rows = qkv(type), np.random.default_rng(3).integers(-1, 5, (2, 2, 6, 3)).astype(np.int32)
    return {"q": own["q"], "sources": [fovea.Source(own["k"], own["v"], rows=rows, unit=4), fovea.Source(own["k"], own["v"], window=2)]}


def documents(type):
    own, ids = qkv(type), np.arange(21)[None] // 4
    return {"q": own["q"], "sources": [fovea.Source(own["k"], own["v"], segments=(ids, ids), **LENGTHS)]}


def make_mesh():
    return jax.make_mesh((2,), ("devices",), axis_types=(jax.sharding.AxisType.Auto,))


def check_program(function, *arrays, target="cpu", bound=2e-6):
    """A function as one program: shapes, types, and numbers relative to the largest; integers exactly."""
    program = fovea.import_jax(function, *arrays, target=target)
    found = program(*map(np.asarray, arrays))
    found = found if isinstance(found, tuple) else (found,)
    expected = jax.tree.leaves(function(*arrays))
    assert len(found) == len(expected)
    for one, other in zip(found, expected):
        assert one.shape == other.shape and one.dtype == other.dtype
        if other.dtype.kind in "fc":
            assert np.abs(one - np.asarray(other)).max() <= bound * max(1.0, np.abs(other).max())
        else:
            np.testing.assert_array_equal(one, other)


def normal(*shape):
    return jax.random.normal(jax.random.PRNGKey(sum(shape)), shape)
