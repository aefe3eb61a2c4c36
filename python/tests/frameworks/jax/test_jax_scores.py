# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions of scores in fovea.jax, with arrays that they capture."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import TYPES, make
from jax_cases import make_mesh, near, random

import fovea
import fovea.jax
from fovea.math import tanh


def relative(q, k, v, table, scale):
    """A relative table, and a factor for each batch entry."""
    table, scale = fovea.capture(table), fovea.capture(scale)
    return fovea.jax.dense(q, k, v, score=lambda s, b, h, i, j: 3 * tanh(s * scale[b] / 3) + table[h, j - i + 20])


def relative_stream(q, k, v, table, scale):
    """The same, of two sources: the keys at odd tokens, and at even ones."""
    table, scale = fovea.capture(table), fovea.capture(scale)

    def score(s, b, h, i, j):
        return 3 * tanh(s * scale[b] / 3) + table[h, j - i + 20]

    odd = [fovea.jax.Source(k, v, log_weight=jnp.where(jnp.arange(21) % 2 == part, 0, -jnp.inf).astype(q.dtype)) for part in (0, 1)]
    return fovea.jax.stream(q, odd, score=score)


def relative_formula(q, k, v, table, scale):
    k, v = (jnp.repeat(each, 2, axis=1) for each in (k, v))
    scores = jnp.einsum("bhnd,bhmd->bhnm", q, k) / np.sqrt(q.shape[3])
    distances = np.arange(21) - np.arange(21)[:, None] + 20
    scores = 3 * jnp.tanh(scores * scale[:, None, None, None] / 3) + table[:, distances]
    return jnp.einsum("bhnm,bhme->bhne", jax.nn.softmax(scores, axis=-1), v)


def relative_arrays(type="float32"):
    arrays = *make(type, B=2, H=4, G=2, N=21, D=8), random(type, 4, 41), np.array([0.5, 2], TYPES[type])
    return [jnp.asarray(each) for each in arrays]


def test_scores_with_arrays_that_are_traced():
    with jax.enable_x64(True):
        arrays = relative_arrays("float64")
        for compile in (lambda f: f, jax.jit):
            near(compile(relative)(*arrays), relative_formula(*arrays), 1e-12)
        own, other = (jax.jit(jax.grad(lambda *each, f=f: jnp.sin(f(*each)).sum(), (0, 1, 2))) for f in (relative, relative_formula))
        for found, expected in zip(own(*arrays), other(*arrays), strict=True):
            near(found, expected, 1e-11)


@pytest.mark.parametrize("axes", [(0, 0, 0, None, None), (0, None, None, 0, None), (None, 0, 0, None, 0), (0, 0, 0, 0, 0)])
def test_scores_in_parts_of_a_batch(axes):
    """A batch entry keeps its number, and each part its arrays."""
    arrays = [each if axis is None else jnp.stack([each, 0.3 * each]) for each, axis in zip(relative_arrays(), axes)]
    near(jax.vmap(relative, axes)(*arrays), jax.vmap(relative_formula, axes)(*arrays))


def test_scores_on_several_devices():
    """Each has a part of the batch, and all have the table."""
    *arrays, table, scale = relative_arrays()
    mesh = make_mesh()
    rows, same = jax.sharding.PartitionSpec("devices"), jax.sharding.PartitionSpec()
    split = jax.shard_map(relative, mesh=mesh, in_specs=(rows, rows, rows, same, rows), out_specs=rows)
    near(jax.jit(split)(*arrays, table, scale), relative(*arrays, table, scale))
    gradient = jax.jit(jax.grad(lambda *each: split(*each).sum(), (0, 1, 2)))(*arrays, table, scale)
    expected = jax.grad(lambda *each: relative(*each).sum(), (0, 1, 2))(*arrays, table, scale)
    for one, other in zip(gradient, expected, strict=True):
        near(one, other, 1e-5)


def test_gradients_of_captured_arrays():
    with jax.enable_x64(True):
        arrays = relative_arrays("float64")
        for wanted in ((0, 1, 2, 3, 4), (3,), (0, 4)):
            own, other = (jax.jit(jax.grad(lambda *each, f=f: jnp.sin(f(*each)).sum(), wanted)) for f in (relative, relative_formula))
            for found, expected in zip(own(*arrays), other(*arrays), strict=True):
                near(found, expected, 1e-11)
        # Of a list of sources, too.
        (own, other) = (
            jax.jit(jax.grad(lambda *each, f=f: jnp.sin(f(*each)).sum(), (0, 1, 2, 3, 4))) for f in (relative_stream, relative_formula)
        )
        for found, expected in zip(own(*arrays), other(*arrays), strict=True):
            near(found, expected, 1e-11)
    constant = jax.grad(lambda *each: relative(*each[:3], *map(jax.lax.stop_gradient, each[3:])).sum(), 3)
    assert not np.asarray(constant(*relative_arrays())).any()


def test_entries_that_there_are():
    """Segments may be traced, functions join that of scores."""
    q, k, v = (jnp.asarray(each) for each in make(B=2, H=4, G=2, N=21, D=8))
    ids = jnp.asarray(np.arange(21)[None] // np.array([[5], [8]]))
    slopes = jnp.arange(4.0)

    def score(s, b, h, i, j):
        return s + fovea.capture(slopes)[h] * (j - i)

    def run(q, k, v, ids):
        return fovea.jax.dense(q, k, v, causal=True, score=score, admit=lambda b, h, i, j: j % 4 != 2, segments=(ids, ids))

    i, j = np.arange(21)[:, None], np.arange(21)
    holds = (ids[:, None, :, None] == ids[:, None, None]) & (j <= i) & (j % 4 != 2)

    def formula(q, k, v):
        k, v = (jnp.repeat(each, 2, axis=1) for each in (k, v))
        scores = jnp.einsum("bhnd,bhmd->bhnm", q, k) / np.sqrt(8) + slopes[:, None, None] * (j - i)
        scores = jnp.where(holds, scores, -1e30)
        # The first of a segment may be left out alone.
        return jnp.einsum("bhnm,bhme->bhne", jnp.where(holds, jax.nn.softmax(scores, axis=-1), 0), v)

    for compile in (lambda f: f, jax.jit):
        near(compile(run)(q, k, v, ids), formula(q, k, v))
        own = compile(jax.grad(lambda *each: jnp.sin(run(*each)).sum(), (0, 1, 2)))(q, k, v, ids)
        for found, expected in zip(own, jax.grad(lambda *each: jnp.sin(formula(*each)).sum(), (0, 1, 2))(q, k, v), strict=True):
            near(found, expected)


def test_scores_that_are_refused():
    q, k, v, *_ = relative_arrays()
    for score, match in (
        ("cap", "^score: found str, needed a function"),
        (lambda s, b, h, i, j: jnp.tanh(s), "^score: .* type <class 'fovea._trace.Traced'>"),
        (lambda s, b, h, i, j: s if s > 0 else 0, f"^score: {__file__}:.* found if, and, or"),
        (lambda s, b, h, i, j: s + q, "found .*, needed a number: arrays are read by fovea.capture"),
    ):
        with pytest.raises(ValueError, match=match):
            jax.jit(lambda q, score=score: fovea.jax.dense(q, k, v, score=score))(q)
