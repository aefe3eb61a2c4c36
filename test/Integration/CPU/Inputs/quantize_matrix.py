# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attn.quantize: every code is that of a nearest codeword, and the first of those
at equal distance."""

import itertools

import numpy as np
from cases import Checker, normal, state, tensor
from kernels import NAMES

check = Checker()

# Distances are rounded in the type that they are computed in.
EXCESS = {"f32": 5e-6, "f64": 1e-14, "bf16": 5e-6, "f16": 5e-6}

FACTORS = {
    "rows": [0, 1, 2, 7, 15, 16, 17, 63, 64, 65, 127, 192, 1031],
    "codes": [1, 2, 3, 4, 5, 8, 15, 16, 17, 31, 50, 257, 512],
    "width": [1, 2, 3, 5, 8, 15, 16, 17, 33, 64, 100, 128],
    # Batch entries, heads, codebooks.
    "heads": [(1, 1, 1), (2, 3, 3), (2, 3, 1), (1, 8, 8), (0, 2, 1), (1, 0, 1), (3, 1, 1)],
    "dtype": check.types(),
    # Numbers with few distinct distances, all exact; some of them not finite.
    "data": ["normal", "ties", "nonfinite"],
    "quantized": [False, True],
    "masked": [False, True],
    # Whether the codebook is in the type of sums.
    "wide": [False, True],
    "cpu": check.usable_cpus(),
    "dynamic": [False, True],
}


def module(dtype, B, G, N, W, S, D, quantized, dynamic=False, masked=False, wide=False):
    k = tensor([None] * 3 + [D] if dynamic else (B, G, N, D), dtype)
    c = tensor((W, S, D), state(dtype) if wide else dtype)
    m = tensor([None] * 2 if dynamic else (B, N), "i1")
    z = tensor([None] * 3 if dynamic else (B, G, N), "i32")
    types = [z] + [k] * quantized
    body, sizes = "", ""
    if dynamic:
        body = "".join(f"  %c{i} = arith.constant {i} : index\n  %d{i} = tensor.dim %k, %c{i} : {k}\n"
                       for i in range(3))
        sizes = "%d0, %d1, %d2"
    body += "".join(f"  %i{i} = tensor.empty({sizes}) : {type}\n" for i, type in enumerate(types))
    inits = ", ".join(f"%i{i}" for i in range(len(types)))
    results = ", ".join(f"%r#{i}" for i in range(len(types)))
    types = ", ".join(types)
    argument, mask = (f", %m: {m}", f" mask(%m : {m})") if masked else ("", "")
    return (f"func.func @f(%k: {k}, %c: {c}{argument}) -> ({types}) {{\n{body}"
            f"  %r:{1 + quantized} = attn.quantize ins(%k, %c : {k}, {c}){mask} outs({inits} : {types}) -> {types}\n"
            f"  return {results} : {types}\n}}\n")


def make(rng, shape, dtype, data):
    if data == "normal":
        return normal(rng, shape, dtype)
    array = rng.integers(-1, 2, shape).astype(NAMES[dtype])
    if data == "nonfinite" and array.size:
        flat = array.reshape(-1)
        for number in (np.nan, np.inf, -np.inf):
            flat[rng.integers(0, flat.size, 1 + flat.size // 100)] = number
    return array


def run(index, case):
    rng = np.random.default_rng(index)
    dtype, N, S, D = (case[key] for key in ("dtype", "rows", "codes", "width"))
    B, G, W = case["heads"]
    k = make(rng, (B, G, N, D), dtype, case["data"])
    c = make(rng, (W, S, D), state(dtype) if case["wide"] else dtype, case["data"])
    present = rng.random((B, N)) < 0.7
    if not case["masked"]:
        present[:] = True
    options = {key: case[key] for key in ("dynamic", "masked", "wide")}
    kernel = check.library.compile(module(dtype, B, G, N, W, S, D, case["quantized"], **options), cpu=case["cpu"])
    what = f"case {index} {case}"
    found = check.call(kernel, (k, c, present)[: 2 + case["masked"]], what)
    codes = found[0]
    check.require(codes.shape == (B, G, N) and codes.dtype == np.int32, f"{what}: shape")
    present = np.broadcast_to(present[:, None], codes.shape)
    used = codes[present]
    check.require(used.size == 0 or (used.min() >= 0 and used.max() < S), f"{what}: range")
    check.require((codes[~present] == -1).all(), f"{what}: absent")
    books = np.broadcast_to(c, (G, S, D)) if W == 1 else c
    if case["quantized"]:
        k_hat = np.zeros((B, G, N, D), NAMES[dtype])
        for g in range(G):
            k_hat[:, g] = np.where(present[:, g, :, None], books[g][codes[:, g]], 0)
        # Copies; a NaN may come out as another one.
        check.close(found[1], k_hat, 0, f"{what}: copies")
    if codes.size == 0:
        return
    expected = check.reference.quantize(k, c)[1]
    expected = np.where(present, expected, -1)
    if case["data"] != "normal":
        check.require(np.array_equal(codes, expected), f"{what}: {np.sum(codes != expected)} of {codes.size} differ")
        return
    worst = 0.0
    for b, g in np.ndindex(B, G):
        x, y = k[b, g].astype(float), books[g].astype(float)
        distance = ((x[:, None] - y[None]) ** 2).sum(-1)
        excess = distance[np.arange(N), codes[b, g]] - distance.min(axis=1)
        worst = max(worst, (excess / distance.max())[present[b, g]].max(initial=0))
    check.require(worst <= EXCESS[dtype] * check.factor, f"{what}: farther by {worst:.3g}")
    check.require(np.mean(codes != expected) <= 0.01 * check.factor, f"{what}: codes differ")


check.matrix(FACTORS, 7, run)

# A code depends on nothing but its key: not on where the key lies, nor on how
# many there are. Near ties show it: codewords that differ in the last digits.
if check.only is None:
    for dtype, D in itertools.product([t for t in check.types() if t != "f16"], (40, 48)):
        rng = np.random.default_rng(1)
        k, c = normal(rng, (1, 1, 333, D), dtype), normal(rng, (1, 4, D), dtype).astype(np.float64)
        near = 1 + np.spacing(np.ones((), NAMES[dtype])).astype(float) * rng.standard_normal((1, 40, 1))
        c = (np.repeat(c, 10, axis=1) * near).astype(NAMES[dtype])
        whole = check.library.compile(module(dtype, 1, 1, 333, 1, 40, D, False))(k, c)[0]
        for first, count in ((0, 1), (5, 1), (3, 4), (9, 2), (3, 16), (7, 33), (100, 233), (332, 1)):
            part = np.ascontiguousarray(k[:, :, first : first + count])
            found = check.library.compile(module(dtype, 1, 1, count, 1, 40, D, False))(part, c)[0]
            check.require(np.array_equal(found, whole[:, :, first : first + count]),
                          f"{dtype}, width {D}: {count} keys at {first}")
        one = check.library.compile(module(dtype, 1, 1, 1, 1, 40, D, True))
        for row in range(0, 333, 3):
            found = one(np.ascontiguousarray(k[:, :, row : row + 1]), c)[0]
            check.require(found.item() == whole[0, 0, row], f"{dtype}, width {D}: key {row} alone")
check.finish()
