# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loops, sums of what came before and random numbers of whole functions of JAX, on CPUs and in the emulator."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax_cases import check_program, normal

from fovea._stablehlo import to_linalg

pytest.importorskip("torch_mlir")

TARGETS = ["cpu", "gpu-sim"]


def sums(x):
    return tuple(
        each
        for axis in range(x.ndim)
        for each in (
            jnp.cumsum(x, axis), lax.cumsum(x, axis, reverse=True), lax.cummax(x, axis), lax.cummin(x, axis), jnp.cumprod(x, axis),
            lax.cumlogsumexp(x, axis), lax.associative_scan(jnp.add, x, axis=axis),
        )
    )  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("shape", [(5,), (3, 7), (2, 3, 4), (1, 1), (2, 33)])
def test_what_came_before(shape, target):
    check_program(sums, normal(*shape), target=target)


def states(x):
    """A state beside rows, one after the other and backward, and of a product."""
    weights = jnp.ones((x.shape[-1], x.shape[-1])) / x.shape[-1]

    def step(state, row):
        return jnp.tanh(state @ weights + row), (state * row, state.sum())

    return lax.scan(step, jnp.zeros(x.shape[1:]), x), lax.scan(step, x[0], x, reverse=True), lax.map(jax.nn.softmax, x)


def exchanged(x):
    """States that change places, one of them with a number."""
    return lax.fori_loop(0, x.shape[0] + 9, lambda i, s: (s[1], s[0] + s[1] / (i + 1), s[2] * 2 + i), (x, x * 2, 1))


def nested(x):
    def inner(i):
        return lambda j, t: (t + j / i - t[::-1]) / 3

    def outer(i, s):
        s = lax.cond(i % 3 == 0, lambda s: s + 1, lambda s: s * 0.5, s)
        return lax.switch(i % 3, [lambda s: s - 1 / i, jnp.sin, lambda s: s], lax.fori_loop(0, i, inner(i), s) / 8)

    return lax.fori_loop(2, 2 + x.shape[0], outer, x)


def until(x):
    """Until elements say so, and until a number does."""

    def count(s):
        return s[0] + 3, s[1] * 2, s[2].at[s[0] % s[2].shape[0]].add(1.5)

    grown = lax.while_loop(lambda s: jnp.abs(s).sum() < 1000, lambda s: s * 2 + 1, x)
    return grown, lax.while_loop(lambda s: s[0] < 17, count, (0, x, x)), lax.while_loop(lambda s: s[0] < 1, count, (4, x, x))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("shape", [(3, 4), (20, 6), (12, 2, 5)])
@pytest.mark.parametrize("function", [states, exchanged, nested, until])
def test_loops(function, shape, target):
    check_program(function, normal(*shape), target=target, bound=1e-5)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("first, end", [(0, 3), (0, 30), (2, 2), (5, 3), (-4, 9)])
def test_counts_that_are_arguments(first, end, target):
    def function(x, first, end):
        return lax.fori_loop(first, end, lambda i, s: (s[0] * 0.9 + i, s[1] + 1), (x, 0))

    check_program(function, normal(3, 4), jnp.int32(first), jnp.int32(end), target=target)


@pytest.mark.parametrize("target", TARGETS)
def test_gradients_of_scans(target):
    def loss(x, weights):
        return lax.scan(lambda s, row: (jnp.tanh(s @ weights + row), s.sum()), x[0], x)[1].sum()

    check_program(jax.grad(loss, (0, 1)), normal(12, 2, 4), normal(4, 4), target=target, bound=1e-5)


def draws(x, key):
    one, two, three = jax.random.split(key, 3)
    return (
        x + jax.random.normal(one, x.shape), jax.random.uniform(two, x.shape), jax.random.randint(three, x.shape, -5, 9),
        jax.random.permutation(one, x), jax.random.categorical(two, x), jnp.where(jax.random.bernoulli(three, 0.5, x.shape), x, 0),
        jax.random.fold_in(key, 7), jax.random.bits(jax.random.PRNGKey(3), (4,)),
    )  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("shape", [(5,), (4, 6), (2, 3, 5)])
def test_random_numbers(shape, target):
    """Bits are those of JAX."""
    check_program(draws, normal(*shape), jax.random.PRNGKey(11), target=target)


def lower(function, *arrays):
    return to_linalg(text=jax.jit(function).lower(*arrays).as_text())


def test_loops_that_count():
    """They are loops over numbers, and a few iterations are none; others go on while a condition holds."""
    x = normal(20, 4)
    counted = lower(lambda x: lax.scan(lambda s, row: (s + row, None), x[0], x)[0], x)
    assert "scf.for" in counted and "scf.while" not in counted
    few = lower(lambda x: lax.fori_loop(0, 5, lambda i, s: s * i, x), x)
    assert "scf." not in few
    for step in (lambda s: (s[0] + 2, s[1] * 2), lambda s: (s[0] * 2, s[1] * 2), lambda s: (s[0] + 1, s[1] * 2)):
        other = lower(lambda x: lax.while_loop(lambda s: s[0] <= 30, step, (1, x)), x)  # noqa: B023
        assert "scf.while" in other
    unsigned = lower(lambda x: lax.while_loop(lambda s: s[0] < 30, lambda s: (s[0] + 1, s[1] * 2), (jnp.uint32(1), x)), x)
    assert "scf.while" in unsigned
