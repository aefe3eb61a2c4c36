# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations that move elements: other shapes, parts, and several as one."""

import torch
import torch.nn.functional as F

from ..draw import kind


@kind(2)
def move(draw):
    if not draw.rank:
        return None
    dim, by, times = draw.dim, draw.random.randint(-3, 3), draw.pick([2, 3])
    order = draw.random.sample(range(draw.rank), draw.rank)
    name, function = draw.pick(
        {
            f"permute {order}": lambda x: x.permute(order),
            "flip": lambda x: x.flip(dim),
            f"roll {by}": lambda x: x.roll(by, dim),
            "unsqueeze": lambda x: x.unsqueeze(dim),
            "squeeze": lambda x: x.squeeze(dim),
            f"expand {times}": lambda x: x.unsqueeze(dim).expand(*x.shape[:dim], times, *x.shape[dim:]),
            "transpose": lambda x: x.transpose(0, -1),
        }
    )
    return draw.step(f"{name} dim={dim}", function)


@kind()
def part(draw):
    if not draw.rank:
        return None
    dim, size = draw.dim, draw.size
    first, step, parts = draw.random.randint(-size, size - 1), draw.pick([1, 2, 3]), draw.pick([2, 3])
    place = first if -2 <= first < 2 else 0

    def along(what):
        return (slice(None),) * dim + (what,)

    name, function = draw.pick(
        {
            f"from {first}": lambda x: x[along(slice(first, None))],
            f"to {first}": lambda x: x[along(slice(None, first))],
            f"step {step}": lambda x: x[along(slice(None, None, step))],
            f"select {place}": lambda x: x.select(dim, place),
            "narrow": lambda x: x.narrow(dim, 0, 1),
            "last two": lambda x: x[along(slice(-2, None))],
            f"chunk {parts}": lambda x: x.chunk(parts, dim)[-1],
        }
    )
    return draw.step(f"{name} dim={dim}", function)


@kind()
def join(draw):
    if not draw.rank:
        return None
    dim, other = draw.dim, draw.fit_to_join()
    if draw.values[other].shape == draw.x.shape and draw.random.random() < 0.3:
        return draw.step(f"stack dim={dim}", lambda a, b: torch.stack([a, b], dim), other)
    return draw.step(f"cat dim={dim}", lambda a, b: torch.cat([a, b], dim), other)


@kind()
def pad(draw):
    if not draw.rank:
        return None
    dim, (before, behind) = draw.dim, draw.pick([(1, 0), (0, 2), (2, 1)])
    name, function = draw.pick(
        {
            f"pad {before} {behind}": lambda x: F.pad(x, (before, behind), value=0.25),
            "repeat the first": lambda x: torch.cat([x.narrow(dim, 0, 1), x], dim),
            "unfold": lambda x: x.unfold(dim, 2, 1),
        }
    )
    return draw.step(f"{name} dim={dim}", function)


@kind()
def triangle(draw):
    if draw.rank < 2:
        return None
    diagonal = draw.random.randint(-2, 2)
    table = {
        f"tril {diagonal}": lambda x: x.tril(diagonal),
        f"triu {diagonal}": lambda x: x.triu(diagonal),
    }
    if draw.x.shape[-1] == draw.x.shape[-2]:
        table["diagonal"] = lambda x: x.diagonal(dim1=-2, dim2=-1)
    return draw.step(*draw.pick(table))


@kind(2)
def reshape(draw):
    if not draw.rank:
        return None
    dim, heads = draw.dim, draw.pick([2, 4])
    table = {
        "flatten": lambda x: x.flatten(),
        "view": lambda x: x.reshape(*x.shape[:-1], 1, x.shape[-1]),
        "repeat": lambda x: x.repeat(*([2 if i == dim else 1 for i in range(x.dim())])),
        "repeat_interleave": lambda x: x.repeat_interleave(2, dim),
        "interleave": lambda x: torch.stack([x, -x], -1).flatten(-2),
    }
    if draw.size % heads == 0:
        table[f"unflatten {heads}"] = lambda x: x.unflatten(dim, (x.shape[dim] // heads, heads))
    if draw.rank >= 2:
        first = min(dim, draw.rank - 2)
        table[f"flatten two from {first}"] = lambda x: x.flatten(first, first + 1)
        table["contiguous"] = lambda x: x.transpose(0, 1).contiguous().view(-1)
        if draw.x.shape[-1] % heads == 0:
            table[f"{heads} heads"] = lambda x: x.unflatten(-1, (heads, x.shape[-1] // heads)).transpose(-2, -3)
    name, function = draw.pick(table)
    return draw.step(f"{name} dim={dim}", function)
