# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations that move elements, by shapes and by indices, and products."""

import jax
import jax.numpy as jnp
import numpy as np

from ..draw import SIZES, broadcast, kind


@kind(2)
def move(draw):
    if not draw.rank:
        return None
    dim, by, times = draw.dim, draw.random.randint(-3, 3), draw.pick([2, 3])
    order = draw.random.sample(range(draw.rank), draw.rank)
    name, function = draw.pick(
        {
            f"transpose {order}": lambda x: x.transpose(order),
            "flip": lambda x: jnp.flip(x, dim),
            f"roll {by}": lambda x: jnp.roll(x, by, dim),
            "expand_dims": lambda x: jnp.expand_dims(x, dim),
            f"repeat {times}": lambda x: jnp.repeat(x, times, dim),
            f"tile {times}": lambda x: jnp.tile(x, times),
            "broadcast_to": lambda x: jnp.broadcast_to(x[None], (times, *x.shape)),
            "flatten": lambda x: x.reshape(-1),
            "swapaxes": lambda x: jnp.swapaxes(x, 0, -1),
        }
    )
    return draw.step(f"{name} axis={dim}", function)


@kind()
def heads(draw):
    if not draw.rank or draw.x.shape[-1] % 2:
        return None
    count = draw.pick([each for each in (2, 4) if draw.x.shape[-1] % each == 0])
    return draw.step(f"{count} heads", lambda x: jnp.moveaxis(x.reshape(*x.shape[:-1], count, -1), -2, 0))


@kind()
def part(draw):
    if not draw.rank:
        return None
    dim, size = draw.dim, draw.size
    first, step, place = draw.random.randint(-size, size - 1), draw.pick([1, 2, 3, -1]), draw.random.randrange(size)
    before = (slice(None),) * dim
    name, function = draw.pick(
        {
            f"from {first}": lambda x: x[(*before, slice(first, None))],
            f"to {first}": lambda x: x[(*before, slice(None, first))],
            f"step {step}": lambda x: x[(*before, slice(None, None, step))],
            f"index {place}": lambda x: x[(*before, place)],
            "new axis": lambda x: x[(*before, None)],
            f"dynamic_slice {place}": lambda x: jax.lax.dynamic_slice_in_dim(x, jnp.argmax(x) % x.shape[dim], 1, dim),
            f"dynamic_update_slice {place}": lambda x: jax.lax.dynamic_update_slice_in_dim(
                x, jnp.ones_like(x[(*before, slice(0, 1))]), place, dim
            ),
        }
    )
    return draw.step(f"{name} axis={dim}", function)


@kind()
def join(draw):
    if not draw.rank:
        return None
    dim, other = draw.dim, draw.fit_to_join()
    if draw.values[other].shape == draw.x.shape and draw.random.random() < 0.3:
        return draw.step(f"stack axis={dim}", lambda a, b: jnp.stack([a, b], dim), other)
    return draw.step(f"concatenate axis={dim}", lambda a, b: jnp.concatenate([a, b], dim), other)


@kind()
def pad(draw):
    if not draw.rank:
        return None
    dim = draw.dim
    before, behind, between = draw.random.randint(-1, 2), draw.random.randint(0, 2), draw.pick([0, 0, 1])
    low_high = [(before, behind, between) if i == dim else (0, 0, 0) for i in range(draw.rank)]
    mode = draw.pick(["reflect", "edge", "wrap"])
    widths = [(1, 0) if i == dim else (0, 0) for i in range(draw.rank)]
    name, function = draw.pick(
        {
            f"pad {before} {behind} {between}": lambda x: jax.lax.pad(x, jnp.asarray(0.25, x.dtype), low_high),
            f"pad {mode}": lambda x: jnp.pad(x, widths, mode=mode),
        }
    )
    return draw.step(f"{name} axis={dim}", function)


@kind(1.5)
def index(draw):
    if not draw.rank:
        return None
    dim, places = draw.dim, draw.integers(draw.size, draw.pick([1, 3, 5])).astype(np.int32)
    most, before = draw.random.randint(1, min(3, draw.size)), (slice(None),) * draw.dim
    table = np.arange(12.0).reshape(4, 3) / 6
    name, function = draw.pick(
        {
            "take": lambda x: jnp.take(x, places, axis=dim),
            "take beyond": lambda x: jnp.take(x, places + 2, axis=dim, mode="clip"),
            "take_along_axis": lambda x: jnp.take_along_axis(x, jnp.argsort(x, axis=dim), axis=dim),
            "at set": lambda x: x.at[(*before, int(places[0]))].set(0.5),
            "at add": lambda x: x.at[(*before, places)].add(0.25),
            "at max": lambda x: x.at[(*before, places)].max(0.25),
            "at get": lambda x: x.at[(*before, places + 3)].get(mode="fill", fill_value=2.0),
            f"top_k {most}": lambda x: jax.lax.top_k(jnp.moveaxis(x, dim, -1), most)[0],
            "sort": lambda x: jnp.sort(x, axis=dim),
            "argsort": lambda x: jnp.argsort(x, axis=dim).astype(jnp.int32),
            "one_hot": lambda x: jax.nn.one_hot((jnp.abs(x) * 2).astype(jnp.int32) % 6, 5, dtype=x.dtype),
            "table": lambda x: jnp.asarray(table, x.dtype)[(jnp.abs(x) * 3).astype(jnp.int32) % 4],
            "segment_sum": lambda x: jax.ops.segment_sum(x, jnp.arange(x.shape[0]) % 3, 4),
            "triangle": lambda x: jnp.tril(x, 1) if x.ndim > 1 else x,
            "searchsorted": lambda x: jnp.searchsorted(jnp.asarray([-1.0, 0.0, 1.0], x.dtype), x).astype(jnp.int32),
        }
    )
    return draw.step(f"{name} axis={dim}", function)


@kind(2)
def product(draw):
    if draw.rank < 2:
        return None
    x = draw.x
    other = draw.pick(draw.others(lambda value: value.ndim == draw.rank))
    shape = draw.values[other].shape
    if broadcast(shape[:-2], x.shape[:-2]) and draw.random.random() < 0.7:
        if shape[-2] == x.shape[-1]:
            return draw.step("matmul", jnp.matmul, other)
        if shape[-1] == x.shape[-1]:
            return draw.step("matmul of a transpose", lambda a, b: a @ b.swapaxes(-1, -2) * 0.3, other)
    weights = draw.normal(x.shape[-1], draw.pick(SIZES))
    table = {
        f"dense {weights.shape}": lambda x: x @ jnp.asarray(weights, x.dtype),
        "einsum": lambda x: jnp.einsum("...ij,...kj->...ki", x, x) * 0.2,
        "outer": lambda x: x[..., None] * x[..., None, :],
    }
    if draw.rank == 3:
        kernel = draw.normal(4, x.shape[1], min(3, x.shape[2]))
        table |= {
            "conv": lambda x: jax.lax.conv(x, jnp.asarray(kernel, x.dtype), (1,), "SAME"),
            "max pool": lambda x: jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, 2), (1, 1, 2), "VALID"),
            "sum pool": lambda x: jax.lax.reduce_window(x, 0.0, jax.lax.add, (1, 2, 2), (1, 1, 1), "SAME"),
        }
    return draw.step(*draw.pick(table))
