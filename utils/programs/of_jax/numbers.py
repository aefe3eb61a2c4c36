# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations of elements, and reductions: within what f32 holds, so that chains of them stay finite."""

import functools

import jax
import jax.numpy as jnp

from ..draw import kind

UNARY = {
    "exp": lambda x: jnp.exp(jnp.clip(x, -5, 5)),
    "log": lambda x: jnp.log(jnp.abs(x) + 0.1),
    "sqrt": lambda x: jnp.sqrt(jnp.abs(x) + 0.1),
    "rsqrt": lambda x: jax.lax.rsqrt(jnp.abs(x) + 0.1),
    "reciprocal": lambda x: 1 / (jnp.abs(x) + 0.5),
    "cube": lambda x: jnp.clip(x, -3, 3) ** 3,
    "add": lambda x: x + 1.5,
    "multiply": lambda x: x * -0.7,
    "where": lambda x: jnp.where(jnp.abs(x) < 0.5, 0, x),
    "where of places": lambda x: jnp.where(jnp.arange(x.shape[-1]) % 2 == 0, x, -x) if x.ndim else x,
    "int32": lambda x: ((x * 3).astype(jnp.int32) // 2 * 2).astype(x.dtype),
    "remainder of integers": lambda x: ((x * 5).astype(jnp.int32) % 3).astype(x.dtype),
    "bool": lambda x: (x > 0).astype(x.dtype),
    "exact gelu": lambda x: jax.nn.gelu(x, approximate=False),
    "leaky_relu": lambda x: jax.nn.leaky_relu(x, 0.1),
    "bits": lambda x: ((x * 9).astype(jnp.int32) & 5 | (x * 9).astype(jnp.int32) >> 1).astype(x.dtype),
}
for _module, _names in (
    (jnp, "tanh sin cos arctan abs sign floor round trunc square nan_to_num log1p sinh cbrt negative"),
    (jax.nn, "gelu silu softplus elu selu celu hard_swish hard_sigmoid log_sigmoid relu relu6 soft_sign hard_tanh sigmoid mish"),
):
    UNARY |= {name: getattr(_module, name) for name in _names.split()}

BINARY = {
    "divide": lambda a, b: a / (jnp.abs(b) + 0.5),
    "floor divide": lambda a, b: a // (jnp.abs(b) + 1),
    "remainder": lambda a, b: a % (jnp.abs(b) + 1),
    "fmod": lambda a, b: jnp.fmod(a, jnp.abs(b) + 1),
    "where": lambda a, b: jnp.where(a > b, a, b * 0.5),
    "power": lambda a, b: jnp.power(jnp.abs(a) + 0.5, jnp.clip(b, -2, 2)),
}
BINARY |= {name: getattr(jnp, name) for name in "add subtract multiply maximum minimum arctan2 hypot logaddexp copysign fmax".split()}


@kind(2)
def unary(draw):
    name, function = draw.pick(UNARY)
    return draw.step(name, function)


@kind(2)
def binary(draw):
    return draw.of_two(BINARY)


#: Reductions by several axes.
SEVERAL = "sum mean max min var std any all ptp".split()


@kind(2)
def reduction(draw):
    if not draw.rank:
        return None
    dim, (dims, keep) = draw.dim, draw.reduced()
    several = {name: functools.partial(getattr(jnp, name), axis=dims, keepdims=keep) for name in SEVERAL}
    several["logsumexp"] = functools.partial(jax.nn.logsumexp, axis=dims, keepdims=keep)
    one = {
        "argmax": lambda x: jnp.argmax(x, axis=dim, keepdims=keep).astype(jnp.int32),
        "argmin": lambda x: jnp.argmin(x, axis=dim, keepdims=keep).astype(jnp.int32),
        "prod": lambda x: jnp.clip(x, -1.5, 1.5).prod(axis=dim, keepdims=keep),
        "count": lambda x: (x > 0).sum(axis=dim, keepdims=keep, dtype=jnp.int32),
        "median": lambda x: jnp.median(x, axis=dim, keepdims=keep),
        "norm": lambda x: jnp.linalg.norm(x, axis=dim, keepdims=keep),
    }
    name, function = draw.pick(several | one)
    if name in ("any", "all"):
        return draw.step(f"{name} axis={dims}", lambda x: function(x > 0.5).astype(x.dtype))
    return draw.step(f"{name} axis={dims if name in several else dim} keepdims={keep}", function)


@kind()
def scan(draw):
    if not draw.rank:
        return None
    dim, reverse = draw.dim, draw.random.random() < 0.3
    return draw.one_of(
        {
            "cumsum": lambda x: jax.lax.cumsum(x, dim, reverse=reverse),
            "cumprod": lambda x: jax.lax.cumprod(jnp.clip(x, -1.2, 1.2), dim, reverse=reverse),
            "cummax": lambda x: jax.lax.cummax(x, dim, reverse=reverse),
            "cumlogsumexp": lambda x: jax.lax.cumlogsumexp(x, dim, reverse=reverse),
            "diff": lambda x: jnp.diff(x, axis=dim),
            "associative_scan": lambda x: jax.lax.associative_scan(jnp.maximum, x, reverse=reverse, axis=dim),
        }
    )


@kind()
def normalize(draw):
    if not draw.rank:
        return None
    dim = draw.dim
    return draw.one_of(
        {
            "softmax": lambda x: jax.nn.softmax(x, dim),
            "log_softmax": lambda x: jax.nn.log_softmax(x, dim),
            "standardize": lambda x: jax.nn.standardize(x, dim, epsilon=1e-3),
            "rms_norm": lambda x: x * jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-5),
            "glu": lambda x: jax.nn.glu(jnp.concatenate([x, x * 0.5], dim), dim),
        }
    )
