# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention as models write it, loops, branches, and what JAX makes of functions."""

import jax
import jax.numpy as jnp

from ..draw import kind


@kind(1.5)
def attention(draw):
    if draw.rank < 3:
        return None
    key, value, causal = draw.attended()
    scale, change = draw.pick([None, 0.3, 1.0]), draw.pick(["plain", "bias", "soft-cap", "shift"])

    def call(q, k, v):
        scores = jnp.einsum("...nd,...md->...nm", q, k) * (scale or q.shape[-1] ** -0.5)
        if change == "bias":
            scores = scores + jnp.arange(scores.shape[-1], dtype=scores.dtype) * 0.05
        elif change == "soft-cap":
            scores = 5 * jnp.tanh(scores / 5)
        elif change == "shift":
            scores = scores * 1.3 - 0.2
        if causal:
            scores = jnp.where(jnp.tri(scores.shape[-1], dtype=bool), scores, jnp.finfo(scores.dtype).min)
        return jax.nn.softmax(scores, -1) @ v

    return draw.step(f"attention {change} causal={causal} scale={scale}", call, key, value)


@kind(1.5)
def loop(draw):
    if not draw.rank:
        return None
    count = draw.random.randint(1, 4)
    return draw.step(
        *draw.pick(
            {
                f"fori_loop {count}": lambda x: jax.lax.fori_loop(0, count, lambda i, y: jnp.sin(y) + i, x),
                "scan": lambda x: jax.lax.scan(lambda carry, row: (carry * 0.5 + row, carry - row), jnp.zeros_like(x[0]), x)[1],
                "reverse scan": lambda x: jax.lax.scan(lambda carry, row: (carry + row, carry), x[0] * 0, x, reverse=True)[0],
                "while_loop": lambda x: jax.lax.while_loop(
                    lambda state: (state[0] < count) & (jnp.abs(state[1]).max() < 50), lambda state: (state[0] + 1, state[1] * 2), (0, x)
                )[1],
                "cond": lambda x: jax.lax.cond(x.sum() > 0, lambda x: x + 1, jnp.cos, x),
                "map": lambda x: jax.lax.map(lambda row: jnp.tanh(row) + row.sum(), x),
                "vmap": lambda x: jax.vmap(lambda row: row - row.mean())(x),
                "switch": lambda x: jax.lax.switch(jnp.argmax(x) % 3, [jnp.sin, lambda x: x * 2, jnp.abs], x),
            }
        )
    )


@kind()
def derivative(draw):
    if not draw.rank:
        return None
    return draw.step(
        *draw.pick(
            {
                "grad": jax.grad(lambda x: (jnp.tanh(x) * jax.nn.softmax(x, -1)).sum()),
                "grad of a norm": jax.grad(lambda x: jnp.square(jax.nn.standardize(x, epsilon=1e-2)).max(-1).sum()),
                "jvp": lambda x: jax.jvp(lambda x: jnp.sin(x).cumsum(-1), (x,), (x * 0.5,))[1],
                "checkpoint": jax.grad(jax.checkpoint(lambda x: jnp.sin(jnp.sin(x)).sum())),
                "jit": jax.jit(lambda x: jnp.where(x > x.mean(), x, 0)),
            }
        )
    )
