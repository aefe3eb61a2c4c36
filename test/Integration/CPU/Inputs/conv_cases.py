# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Bases and sizes for the numeric tests of sums of convolutions."""

import numpy as np
from hidden import NUMBERS, somewhere

# What a row may be off before it is computed again, next to the largest value.
NOISE = {"f32": 2.0**-15, "f64": 2.0**-44, "bf16": 2.0**-15, "f16": 2.0**-15}


def make_scores(rng, shape, kind):
    """Bases, the first with the shape that `kind` says, the others small."""
    N = shape[-1]
    b = rng.standard_normal(shape) * (0.3 if kind != "normal" else 1)
    lag = np.arange(N) / max(N - 1, 1)
    b[:, :, 0] += {"normal": 0, "none": 0, "masked": 0, "wide": 30 * np.sin(40 * lag),
                   "large": 1e3 * np.sin(9 * lag), "rising": 60 * lag, "falling": -60 * lag}[kind]
    if kind == "masked":
        b[:, :, 0][rng.random(b[:, :, 0].shape) < 0.3] = -np.inf
    if kind == "none":
        b[:, :, 0] = -np.inf
    return b


def make_sizes(rng, shape, N, kind):
    sizes = np.zeros(shape, np.int32)
    for number, head in enumerate(np.ndindex(*shape[:2])):
        if kind == "nothing" or kind == "few heads" and number % 3 != 1:
            continue
        most = N if kind != "short" else rng.integers(0, N + 1)
        if kind == "even":
            sizes[head] = N - np.arange(shape[2]) * N // shape[2]
            continue
        count = min(shape[2], most)
        if kind == "some":
            count = rng.integers(0, count + 1)
        if count:
            rest = 1 + rng.choice(most - 1, count - 1, replace=False) if most > 1 else []
            sizes[head][:count] = [most, *sorted(rest, reverse=True)]
    return sizes


def make_bases(rng, sizes, N, kind, dtype):
    """Bases of these sizes; what must not be read is NaN."""
    with np.errstate(over="ignore"):
        b = make_scores(rng, (*sizes.shape, N), kind).astype(dtype)
    for head in np.ndindex(*sizes.shape[:2]):
        for r, size in enumerate(sizes[head]):
            b[head][r, size:] = np.nan
    return b


def hide_unread(v, sizes):
    """Values whose rows that no head reads, before all first columns, are NaN."""
    B, G, N, _ = v.shape
    heads = sizes.shape[1] // max(G, 1)
    hidden = v.copy()
    for b, g in np.ndindex(B, G):
        hidden[b, g, : N - sizes[b, g * heads : (g + 1) * heads].max(initial=0)] = np.nan
    return hidden


def hidden_number(rng, arrays, sizes, name):
    """One of the numbers somewhere in an operand. A basis has none behind its size, and
    one of -inf is not read."""
    for at, number in somewhere(rng, arrays, name):
        if name != "b":
            yield at, number
        elif sizes[at[:3]] > 0:
            yield (*at[:3], rng.integers(0, sizes[at[:3]])), rng.choice(NUMBERS[:2])
