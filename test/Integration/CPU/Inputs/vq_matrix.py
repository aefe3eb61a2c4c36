# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attn.vq against dense attention over the quantized keys, token by token in
NumPy, and against the reference pipeline: whole, and in windows with a state."""

import numpy as np
from cases import BOUNDS, Checker, normal, state
from vq_cases import codebook_type, distance_shapes, drop_tokens, expected, module, read_tokens, spoil_absent

check = Checker()

FACTORS = {
    "N": [1, 7, 31, 32, 33, 96, 130],
    "block": [1, 5, 16, 32, 64, 200],
    "memory": [1, 1, 0, 2, 5],
    "codes": [1, 3, 16, 50],
    "width": [(16, 16), (5, 20), (64, 64), (80, 1), (1, 130)],
    # B, H, G, and whether heads share the codebook.
    "heads": [(1, 1, 1, True), (2, 2, 2, False), (2, 4, 2, True), (1, 4, 1, False), (1, 6, 2, False)],
    "causal": [True, True, False],
    "bias": [None, "full", "broadcast"],
    # Whether heads share a term by distance; None for none of it.
    "relative": [None, None, False, True],
    "distance_bias": [None, None, False, True],
    "spare": [0, 5],
    "reduction": ["auto", "serial", "matmul", "associative", "input_scan"],
    "weighting": ["softmax", "softmax", "squared_relu"],
    "lse": [True, False],
    # Where the sequence is cut in two windows: None for no state, 0 for a state
    # but one window.
    "cut": [None, None, 0, 0.3, 0.5, 0.9],
    "padded": [False, False, True],
    "wide": [False, False, True],
    "spread": ["random", "one code", "half the codes"],
    "dtype": check.types(),
    "cpu": check.usable_cpus(),
    "dynamic": [False, True],
}

if check.chip == "sm_90a":
    # What its kernel takes: rows of 16 bytes, blocks of 64 queries.
    FACTORS |= {
        "N": [64, 130, 193, 390],
        "block": [64, 128],
        "width": [(16, 16), (24, 72), (64, 64), (128, 40)],
        "dtype": ["bf16", "f16"],
    }


def run(index, case):
    rng = np.random.default_rng(index)
    (D, E), (B, H, G, shared) = case["width"], case["heads"]
    N, S, block, dtype = (case[key] for key in ("N", "codes", "block", "dtype"))
    if not case["causal"]:
        case = case | {"bias": None, "cut": None, "relative": None, "distance_bias": None}
    q, v = normal(rng, (B, H, N, D), dtype), normal(rng, (B, G, N, E), dtype)
    c = normal(rng, (1 if shared else G, S, D), codebook_type(case))
    limit = {"random": S, "one code": 1, "half the codes": (S + 1) // 2}[case["spread"]]
    z = rng.integers(0, limit, (B, G, N), np.int32)
    if case["spread"] == "one code":
        z += S - 1
    if case["padded"]:
        drop_tokens(rng, z)
        spoil_absent(z, q, v)
    bias = None
    if case["bias"]:
        kept = read_tokens(case)
        bias = normal(rng, (B, H, N, kept) if case["bias"] == "full" else (1, H, 1, kept), dtype)
    terms = {name: normal(rng, shape, codebook_type(case)) for name, shape in distance_shapes(case).items()}
    out, lse = expected(case, q, z, v, c, bias, terms)
    has_lse = case["lse"] and lse is not None
    cuts = [0, N]
    if case["cut"]:
        cuts = sorted({0, max(1, round(case["cut"] * N)), N})
    for target in check.targets():
        parts, found = [], None
        for step, (low, high) in enumerate(zip(cuts, cuts[1:])):
            returns = case["cut"] is not None
            text = module(case, high - low, step > 0, returns, case["bias"])
            arrays = [np.ascontiguousarray(x) for x in (q[:, :, low:high], z[:, :, low:high], v[:, :, low:high], c)]
            if bias is not None:
                arrays.append(np.ascontiguousarray(bias[:, :, low:high]) if case["bias"] == "full" else bias)
            arrays += terms.values()
            if step:
                arrays += found[-5:]
            found = check.library.compile(text, target=target, cpu=case["cpu"])(*arrays)
            parts.append(found)
        what = f"case {index} {case} {target}"
        check.close(np.concatenate([p[0] for p in parts], axis=2), out, BOUNDS[dtype], what)
        if has_lse:
            check.close(np.concatenate([p[1] for p in parts], axis=2), lse, 1e-5, what + " lse", absolute=True)
        if case["cut"] is not None:
            mean, count, kept_codes, kept_values, position = found[-5:]
            old = max(N // block - case["memory"], 0) * block
            exact = (z[:, :, :old, None] == np.arange(S)).sum(axis=2)
            check.require((count == exact).all(), what + " count")
            check.require(position == N, what + f" position {position}")
            sums = np.zeros((B, G, S, E))
            for b in range(B):
                for g in range(G):
                    tokens = np.flatnonzero(z[b, g, :old] >= 0)
                    np.add.at(sums[b, g], z[b, g, tokens], v[b, g, tokens].astype(float))
            check.close(mean, sums / np.maximum(exact, 1)[..., None], BOUNDS[state(dtype)], what + " mean")
            for t in range(old, N):
                row = t % read_tokens(case)
                check.require((kept_codes[:, :, row] == z[:, :, t]).all(), what + f" kept code {t}")
                same = (kept_values[:, :, row] == v[:, :, t]) | (z[:, :, t] < 0)[..., None]
                check.require(same.all(), what + f" kept value {t}")


check.matrix(FACTORS, 4, run)
check.finish()
