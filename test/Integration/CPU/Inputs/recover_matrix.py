# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attn.conv_recover against the reference: the same columns, and their bases."""

import numpy as np
from cases import BOUNDS, Checker, normal, state, tensor
from hidden import plant, somewhere
from kernels import NAMES

check = Checker()

FACTORS = {
    # A block has 64 rows, a task 512 rows or 2048 lags.
    "rows": [1, 2, 7, 16, 17, 63, 64, 65, 193, 577, 2100],
    "width": [2, 6, 16, 18, 34, 64],
    "bases": [1, 2, 3, 4, 5, 9, 40],
    # How many there are.
    "exist": [1, 2, 3, 8],
    "window": [1, 2, 5, 17, None],
    # Batch entries, heads, key heads.
    "heads": [(1, 1, 1), (2, 3, 3), (2, 4, 2), (1, 4, 1), (0, 2, 1), (1, 0, 1)],
    "dtype": check.types(),
    "scale": [1.0, 0.3],
    "cpu": check.usable_cpus(),
}


def module(dtype, B, H, G, N, D, R, window, delta, epsilon, scale):
    q, k = tensor((B, H, N, D), dtype), tensor((B, G, N, D), dtype)
    types = [tensor((B, H, R, N), state(dtype)), tensor((B, H, R), "i32"), tensor((B, H), "i32")]
    body = "".join(f"  %o{i} = tensor.empty() : {t}\n" for i, t in enumerate(types))
    kinds = ", ".join(types)
    return (f"func.func @f(%q: {q}, %k: {k}) -> ({kinds}) {{\n{body}"
            f"  %r:3 = attn.conv_recover ins(%q, %k : {q}, {k}) outs(%o0, %o1, %o2 : {kinds})"
            f" {{window = {window} : i64, delta = {delta:.17e} : f64, epsilon = {epsilon:.17e} : f64,"
            f" scale = {scale!r} : f64}} -> {kinds}\n"
            f"  return %r#0, %r#1, %r#2 : {kinds}\n}}\n")


def pieces(rng, B, H, G, N, D, exist, dtype):
    """Queries that are one vector turned by their positions, and keys that are a
    few: scores are a convolution from each key to the next one."""
    at = np.arange(N)
    q = check.reference.rope(np.repeat(rng.standard_normal((B, H, 1, D)), N, axis=2), at)
    k = np.zeros((B, G, N, D))
    for b, g in np.ndindex(B, G):
        starts = np.sort(rng.choice(np.arange(1, N), min(exist, N) - 1, replace=False)) if N > 1 else []
        for start in (0, *starts):
            k[b, g, start:] = 3 * rng.standard_normal(D)
    k = check.reference.rope(k, at)
    return q.astype(NAMES[dtype]), k.astype(NAMES[dtype])


def run(index, case):
    rng = np.random.default_rng(index)
    dtype, N, D, R = (case[key] for key in ("dtype", "rows", "width", "bases"))
    B, H, G = case["heads"]
    window = N if case["window"] is None else min(case["window"], N)
    q, k = pieces(rng, B, H, G, N, D, case["exist"], dtype)
    # Far above the rounding of the data, far below the distance of two keys.
    delta = window * {"f32": 1e-3, "f64": 1e-9, "bf16": 0.4, "f16": 5e-2}[dtype]
    delta = float(delta * case["scale"] * np.sqrt(D))
    options = dict(window=window, delta=delta, epsilon=0.0, scale=case["scale"])
    kernel = check.library.compile(module(dtype, B, H, G, N, D, R, **options), cpu=case["cpu"])
    what = f"case {index} {case}"
    b, sizes, found = check.call(kernel, (q, k), what)
    expected = check.reference.conv_recover(q, k, num_basis=R, **options)
    check.require(np.array_equal(sizes, expected[1]), f"{what}: sizes {sizes.tolist()}, not {expected[1].tolist()}")
    check.require(np.array_equal(found, expected[2]), f"{what}: found {found.tolist()}")
    bound = BOUNDS["f64" if dtype == "f64" else "f32"]
    check.close(b, expected[0], bound, what)
    # A NaN or an infinity is in the bases that read it, and nowhere else.
    arrays, name = {"q": q, "k": k}, "qk"[index % 2]
    for at, number in somewhere(rng, arrays, name):
        dirty = plant(arrays, name, at, number)
        what = f"{what} {name}{[int(i) for i in at]} = {number}"
        b, sizes, _ = kernel(*dirty.values())
        with np.errstate(invalid="ignore"):
            expected = check.reference.conv_recover(*dirty.values(), num_basis=R, **options)
        # Whether infinities differ depends on how a difference is taken, so that one
        # decides in its own head where bases begin.
        same = np.ones((B, H), bool)
        if not np.isnan(number):
            same[at[0]] = np.arange(H) // (1 if name == "q" else H // G) != at[1]
        check.require(np.array_equal(sizes[same], expected[1][same]), f"{what}: sizes")
        check.close(b[same], expected[0][same], bound, what)


def every_column(dtype, N, D):
    """R = N, window 1, no tolerance: every column, and sums as good as one score."""
    rng = np.random.default_rng(N)
    q, k = normal(rng, (1, 2, N, D), dtype, 4.0), normal(rng, (1, 2, N, D), dtype)
    b, sizes, found = check.library.compile(module(dtype, 1, 2, 2, N, D, N, 1, 0.0, 0.0, 1.0))(q, k)
    check.require((found == N).all() and (sizes == np.arange(N, 0, -1)).all(), f"every column of {N} {dtype}")
    for h in range(2):
        total = check.reference.conv_scores(b[0, h].astype(float), sizes[0, h])
        scores = q[0, h].astype(float) @ k[0, h].astype(float).T
        below = np.tril_indices(N)
        check.close(total[below], scores[below], 3e-7 if dtype == "f32" else 1e-15, f"sums of {N} columns {dtype}")


check.matrix(FACTORS, 13, run)
if check.only is None:
    for dtype in set(check.types()) & {"f32", "f64"}:
        for N in (1, 2, 61, 200):
            every_column(dtype, N, 16)
check.finish()
