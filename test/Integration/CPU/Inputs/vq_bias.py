# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attn.vq with a bias over blocks of several tiles, whose bias is copied during
the products of the tiles before, against dense attention in NumPy."""

import numpy as np
from cases import BOUNDS, Checker, normal
from vq_cases import expected, module, read_tokens

check = Checker()

FACTORS = {
    # Whole tiles, and some rows or queries more or less.
    "N": [1, 256, 257, 333, 500],
    "block": [100, 128, 250, 256],
    "memory": [1, 0, 2],
    "codes": [1, 70],
    # Many turns of the product for each vector of the bias, a few, and too few.
    "width": [(16, 16), (5, 20), (64, 64), (16, 130), (80, 1)],
    "heads": [(1, 1, 1, True), (2, 2, 2, False), (2, 4, 2, True)],
    "weighting": ["softmax", "softmax", "squared_relu"],
    # Where the sequence is cut in two windows.
    "cut": [None, 0.3, 0.9],
    "masks": [False, True],
    "dtype": check.types(),
    "cpu": check.usable_cpus(),
    "dynamic": [False, True],
}


def run(index, case):
    rng = np.random.default_rng(index)
    case = case | {"causal": True, "reduction": "auto", "lse": True}
    (D, E), (B, H, G, shared) = case["width"], case["heads"]
    N, S, block, dtype = (case[key] for key in ("N", "codes", "block", "dtype"))
    q, v = normal(rng, (B, H, N, D), dtype), normal(rng, (B, G, N, E), dtype)
    c = normal(rng, (1 if shared else G, S, D), dtype)
    z = rng.integers(0, S, (B, G, N), np.int32)
    kept = read_tokens(case)
    bias = normal(rng, (B, H, N, kept), dtype)
    if case["masks"]:
        masked = rng.random(bias.shape) < 0.3
        masked[:, :, np.arange(N), kept - block + np.arange(N) % block] = False
        bias[masked] = -np.inf
    # Each window reads a bias that ends where its memory ends.
    out, lse = expected(case, q, z, v, c, bias)
    cuts = sorted({0, max(1, round((case["cut"] or 1) * N)), N})
    for target in check.targets():
        parts, found = [], []
        for low, high in zip(cuts, cuts[1:]):
            text = module(case, high - low, low > 0, high < N, "full")
            arrays = [q[:, :, low:high], z[:, :, low:high], v[:, :, low:high], c, bias[:, :, low:high]]
            arrays = [np.ascontiguousarray(x) for x in arrays] + found[-5:] * (low > 0)
            found = check.library.compile(text, target=target, cpu=case["cpu"])(*arrays)
            parts.append(found)
        what = f"case {index} {case} {target}"
        check.close(np.concatenate([p[0] for p in parts], axis=2), out, BOUNDS[dtype], what)
        if lse is not None:
            check.close(np.concatenate([p[1] for p in parts], axis=2), lse, 1e-5, what + " lse", absolute=True)


check.matrix(FACTORS, 2, run)
check.finish()
