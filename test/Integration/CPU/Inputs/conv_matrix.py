# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attn.conv_apply: every algorithm against the definition in f64."""

import numpy as np
from cases import BOUNDS, Checker, normal, pairwise, state, tensor
from kernels import NAMES

check = Checker()
ALGORITHMS = [("toeplitz", 0), ("auto", 0), ("single", 0), ("partitioned", 0),
              ("partitioned", 8), ("partitioned", 32), ("partitioned", 128)]

# What a row may be off before it is computed again, next to the largest value.
NOISE = {"f32": 2.0**-15, "f64": 2.0**-44, "bf16": 2.0**-15, "f16": 2.0**-15}

FACTORS = {
    "rows": [1, 2, 15, 17, 63, 64, 65, 193, 331],
    "bases": [1, 2, 3, 9, 64],
    # Algorithm and block.
    "algorithm": ALGORITHMS,
    "width": [1, 3, 16, 17, 48, 64, 80, 131],
    # Batch entries, heads, heads of the values.
    "heads": [(1, 1, 1), (2, 3, 1), (1, 4, 2), (0, 2, 1), (2, 0, 1)],
    "dtype": check.types(),
    "basis": ["state", "same"],
    "scores": ["normal", "wide", "large", "rising", "falling", "masked", "none"],
    "sizes": ["full", "some", "short"],
    "cpu": check.usable_cpus(),
    "dynamic": [False, True],
}


def module(dtype, basis, B, H, G, R, N, E, algorithm, block, dynamic):
    shapes = [(B, H, R, N), (B, H, R), (B, G, N, E), (B, H, N, E), (B, H)]
    if dynamic:
        shapes = [[None] * 4, [None] * 3, [None] * 3 + [E], [None] * 3 + [E], [None] * 2]
    b, m, v, o, c = (tensor(s, t) for s, t in zip(shapes, (basis, "i32", dtype, dtype, "i32")))
    body, extents = "", ["", ""]
    if dynamic:
        body = "".join(f"  %c{i} = arith.constant {i} : index\n" for i in range(4)) + "".join(
            f"  %d{i} = tensor.dim %b, %c{i} : {b}\n" for i in (0, 1, 3))
        extents = ["%d0, %d1, %d3", "%d0, %d1"]
    body += f"  %o = tensor.empty({extents[0]}) : {o}\n  %c = tensor.empty({extents[1]}) : {c}\n"
    options = f"algorithm = #attn.conv_algorithm<{algorithm}>" + (f", block = {block} : i64" if block else "")
    return (f"func.func @f(%b: {b}, %m: {m}, %v: {v}) -> ({o}, {c}) {{\n{body}"
            f"  %r:2 = attn.conv_apply ins(%b, %m, %v : {b}, {m}, {v}) outs(%o, %c : {o}, {c})\n"
            f"      {{{options}}} -> {o}, {c}\n  return %r#0, %r#1 : {o}, {c}\n}}\n")


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
    for head in np.ndindex(*shape[:2]):
        most = N if kind != "short" else rng.integers(0, N + 1)
        count = min(shape[2], most)
        if kind == "some":
            count = rng.integers(0, count + 1)
        if count:
            rest = 1 + rng.choice(most - 1, count - 1, replace=False) if most > 1 else []
            sizes[head][:count] = [most, *sorted(rest, reverse=True)]
    return sizes


def run(index, case):
    rng = np.random.default_rng(index)
    dtype, N, R, E = (case[key] for key in ("dtype", "rows", "bases", "width"))
    B, H, G = case["heads"]
    algorithm, block = case["algorithm"]
    if algorithm == "single" and (R != 1 or case["dynamic"]):
        algorithm, block = "partitioned", 16
    basis = dtype if case["basis"] == "same" else state(dtype)
    with np.errstate(over="ignore"):
        b = make_scores(rng, (B, H, R, N), case["scores"]).astype(NAMES[basis])
    sizes = make_sizes(rng, (B, H, R), N, case["sizes"])
    for head in np.ndindex(B, H):
        for r, size in enumerate(sizes[head]):
            b[head][r, size:] = np.nan
    v = normal(rng, (B, G, N, E), dtype)
    kernel = check.library.compile(
        module(dtype, basis, B, H, G, R, N, E, algorithm, block, case["dynamic"]), cpu=case["cpu"])
    check.library.set_num_threads(1)
    found = kernel(b, sizes, v)
    check.library.set_num_threads(3)
    again = kernel(b, sizes, v)
    what = f"case {index} {case}"
    check.require(all(a.tobytes() == b.tobytes() for a, b in zip(found, again)), f"{what}: 3 threads")
    check.require(found[1].size == 0 or (0 <= found[1].min() and found[1].max() <= N), f"{what}: count")
    bound = BOUNDS[dtype]
    if algorithm not in ("toeplitz", "auto") and case["scores"] != "normal":
        bound = max(bound, NOISE[dtype])
    check.close(found[0], check.reference.conv_apply(b, sizes, v), bound, what)


for index, case in enumerate(pairwise(FACTORS, seed=11)):
    if check.wants(index):
        try:
            run(index, case)
        except Exception as failure:
            check.require(False, f"case {index} {case}: {failure}")

check.finish()
