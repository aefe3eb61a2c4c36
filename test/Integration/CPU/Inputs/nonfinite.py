# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A NaN or an infinity in a query, key, value or term: NaN in the rows that
read it, and the same bits as without it in all others."""

import numpy as np
from cases import BOUNDS, Checker, dense_text, normal

check = Checker()
B, H, G = 2, 4, 2
SHAPES = [
    # N, M, D, E, mask
    (70, 70, 16, 16, (False, None)),
    (70, 43, 20, 5, (True, None)),
    (33, 90, 5, 20, (True, 12)),
    (400, 400, 16, 16, (True, None)),
    (400, 400, 16, 16, (False, 9)),
    (1, 1, 1, 1, (False, None)),
]


def admitted(N, M, causal, window):
    distance = np.arange(N)[:, None] + (M - N) - np.arange(M)
    holds = np.ones((N, M), bool)
    if causal:
        holds &= distance >= 0
    if window:
        holds &= np.abs(distance) < window
    return holds


def run(kernels, shape, dtype, operand, number, row, arrays):
    N, M, D, E, (causal, window) = shape
    b, g, column = 1, 1, (D if operand != "v" else E) - 1
    h = 3  # reads key head 1
    dirty = dict(arrays)
    dirty[operand] = arrays[operand].copy()
    dirty[operand][b, h if operand == "q" else g, row, column] = number
    reference = check.reference.dense(*dirty.values(), causal=causal, window=window, return_lse=True)
    heads = [h] if operand == "q" else [2, 3]
    elsewhere = np.ones((B, H), bool)
    elsewhere[b, heads] = False
    reading = np.arange(N) == row
    if operand != "q":
        reading = admitted(N, M, causal, window)[:, row]
    # Inside the head, the rows that do not read it keep their bits.
    for cpu, (kernel, clean) in kernels.items():
        what = f"{cpu} {dtype} {shape}: {operand}[{row}] = {number}: "
        for result, expected, before in zip(kernel(*dirty.values()), reference, clean):
            missed = np.isnan(expected) & ~np.isnan(result)
            check.require(not missed.any(), f"{what}{missed.sum()} NaN missed")
            same = result == before
            check.require(same[elsewhere].all(), f"{what}differs in another head or batch entry")
            check.require(same[b, heads][:, ~reading].all(), f"{what}differs in a row that does not read it")


cpus = check.usable_cpus()
for index, shape in enumerate(SHAPES):
    N, M, D, E, (causal, window) = shape
    for dtype in (("f32", "bf16"), ("f64", "f16"))[index] if index < 2 else ("f32",):
        if dtype not in check.types():
            continue
        rng = np.random.default_rng(index)
        arrays = {"q": normal(rng, (B, H, N, D), dtype), "k": normal(rng, (B, G, M, D), dtype),
                  "v": normal(rng, (B, G, M, E), dtype)}
        text = dense_text(dtype, B, H, G, N, M, D, E, causal=causal, window=window, lse=True)
        kernels = {}
        for cpu in cpus:
            kernel = check.library.compile(text, cpu=cpu)
            kernels[cpu] = kernel, kernel(*arrays.values())
        for operand, rows in (("q", N), ("k", M), ("v", M)):
            for row in sorted({0, rows // 2, rows - 1}):
                for number in (np.nan, np.inf, -np.inf):
                    run(kernels, shape, dtype, operand, number, row, arrays)

# Infinite keys against queries of one sign give scores of one infinity only.
for cpu in cpus:
    for dtype in check.types():
        for N, M in ((64, 200), (3, 7)):
            kernel = check.library.compile(dense_text(dtype, 1, 1, 1, N, M, 4, 4, lse=True), cpu=cpu)
            rng = np.random.default_rng(0)
            q, k, v = (normal(rng, (1, 1, n, 4), dtype) for n in (N, M, M))
            q = np.abs(q) + q.dtype.type(0.1)
            for number in (np.inf, -np.inf):
                k[0, 0, M - 1, 2] = number
                for result in kernel(q, k, v):
                    check.require(np.isnan(result).all(), f"{dtype} {cpu} k = {number}: {np.sum(~np.isnan(result))} numbers")

# A NaN in a log weight or a bias is a NaN score; +inf and -inf as documented.
for dtype in ("f32", "bf16"):
    N, M = 40, 50
    rng = np.random.default_rng(5)
    q, k, v = (normal(rng, (1, 1, n, 8), dtype) for n in (N, M, M))
    for name, size in (("log_weight", (1, 1, M)), ("bias", (1, 1, N, M)), ("bias", (1, 1, 1, M))):
        kernel = check.library.compile(dense_text(dtype, 1, 1, 1, N, M, 8, 8, lse=True, **{name: (size, "f32")}))
        for number in (np.nan, np.inf, -np.inf, -1e30, np.finfo(np.float32).min):
            term = normal(rng, size, "f32")
            term[..., 7] = number
            expected = check.reference.dense(q, k, v, return_lse=True, **{name: term})
            for result, reference, bound in zip(kernel(q, k, v, term), expected, (BOUNDS[dtype], 1e-5)):
                check.close(result, reference, bound, f"{dtype} {name} {size} = {number}")
check.finish()
