# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attn.vq_backward against all N x N entries in NumPy, and the reference pipeline
against the same; whole, and windows with a state, a gradient for the next, or both."""

import numpy as np
from cases import BOUNDS, Checker, normal, state
from kernels import NAMES
from vq_cases import backward_module, codebook_type, distance_shapes, drop_tokens, read_tokens, spoil_absent
from vq_state_gradients import backward, forward, make_gradient, make_state

check = Checker()

FACTORS = {
    # The CPU divides the longest one into chunks.
    "N": [1, 31, 63, 64, 65, 130, 1100 if check.library.target == "cpu" else 300],
    "block": [1, 5, 16, 64, 200],
    "memory": [1, 1, 0, 2, 5],
    "codes": [1, 3, 16, 50],
    # Each wider than what a block of a GPU sums.
    "width": [(16, 16), (5, 20), (64, 64), (80, 1), (1, 130), (24, 300), (320, 24)],
    # B, H, G, and whether heads share the codebook.
    "heads": [(1, 1, 1, True), (2, 2, 2, False), (1, 4, 2, True), (1, 4, 1, False)],
    "causal": [True, True, False],
    "bias": [None, "full", "heads", "broadcast", "masked"],
    "d_bias": [True, False],
    # Whether heads share a term by distance; None for none of it.
    "relative": [None, None, False, True],
    "distance_bias": [None, None, False, True],
    "spare": [0, 5],
    "d_lse": [True, False],
    "weighting": ["softmax", "softmax", "squared_relu"],
    # Of the gradients of keys and values.
    "sums": [True, False],
    # Tokens before the window in blocks and in tokens; None is a sequence without
    # a state.
    "position": [None, None, (0, 0), (0, 3), (1, 0), (1, 2), (5, 1)],
    "next": [False, True],
    "padded": [False, False, True],
    "wide": [False, False, True],
    "dtype": ["f32", "f64", "bf16", "f16"],
    "cpu": check.usable_cpus(),
    "dynamic": [False, True],
}

if check.chip == "sm_90a":
    # What kernels of warpgroups take: rows of 16 bytes, blocks of 64 queries, soft-max without relative keys.
    FACTORS |= {
        "N": [33, 64, 127, 193, 300],
        "block": [64, 64, 128],
        "memory": [1, 0, 2],
        "codes": [1, 63, 64, 65, 130],
        "width": [(16, 16), (24, 72), (64, 64), (128, 40), (8, 128)],
        "bias": [None, None, "full", "heads", "broadcast", "masked"], "relative": [None], "weighting": ["softmax"], "wide": [False],
        "position": [None, (0, 0), (0, 3), (1, 0), (1, 62), (5, 40)], "dtype": ["bf16", "f16"],
    }  # fmt: skip


def make_bias(rng, case, B, H, N):
    full = {
        "full": (B, H, N), "masked": (B, H, N), "heads": (1, H, N), "broadcast": (1, H, 1),
    }[case["bias"]]  # fmt: skip
    bias = normal(rng, (*full, read_tokens(case)), case["dtype"])
    if case["bias"] == "masked":
        # Whole rows, too: such a query reads only what is cached, or nothing.
        bias[rng.random(bias.shape) < 0.3] = -np.inf
        bias[:, :, N // 2 :: 3] = -np.inf
    return bias


def run(index, case):
    rng = np.random.default_rng(index)
    (D, E), (B, H, G, shared) = case["width"], case["heads"]
    N, S, dtype = case["N"], case["codes"], case["dtype"]
    if not case["causal"]:
        case = case | {"bias": None, "position": None, "next": False, "relative": None, "distance_bias": None}
    if case["weighting"] != "softmax" and case["bias"] == "masked":
        case = case | {"bias": "full"}
    arrays = {
        "q": normal(rng, (B, H, N, D), dtype), "z": rng.integers(0, S, (B, G, N), np.int32),
        "v": normal(rng, (B, G, N, E), dtype), "c": normal(rng, (1 if shared else G, S, D), codebook_type(case)),
    }  # fmt: skip
    options = {key: case[key] for key in ("block", "memory", "causal", "weighting", "padded")} | {"scale": 0.3}
    inputs = [arrays[n] for n in "qzvc"]
    if case["padded"]:
        drop_tokens(rng, arrays["z"])
        spoil_absent(arrays["z"], arrays["q"], arrays["v"])
    parts, d_next = None, None
    if case["bias"]:
        arrays["bias"] = options["bias"] = make_bias(rng, case, B, H, N)
    terms = {name: normal(rng, shape, dtype) for name, shape in distance_shapes(case).items()}
    arrays |= terms
    if "r" in terms:
        options["relative"] = terms["r"], terms["u"]
    if "t" in terms:
        options["distance_bias"] = terms["t"]
    if case["position"]:
        blocks, tokens = case["position"]
        position = blocks * case["block"] + tokens % case["block"]
        parts = make_state(rng, position, case["block"], case["memory"], B, G, S, E, dtype)
        if case["padded"]:
            drop_tokens(rng, parts[2])
            spoil_absent(parts[2], parts[3])
        arrays |= dict(zip(("mean", "count", "kz", "kv", "position"), parts))
    if case["weighting"] == "softmax":
        out, lse = forward(check.reference, inputs, parts, **options)
        arrays["out"], arrays["lse"] = out.astype(NAMES[dtype]), lse.astype(NAMES[state(dtype)])
    arrays["d_out"] = normal(rng, (B, H, N, E), dtype)
    if case["weighting"] == "softmax" and case["d_lse"]:
        arrays["d_lse"] = options["d_lse"] = normal(rng, (B, H, N), state(dtype))
    if case["padded"]:
        spoil_absent(arrays["z"], arrays["d_out"], *[arrays[n] for n in ("d_lse",) if n in arrays])
    if case["next"]:
        sums = state(dtype) if case["sums"] else dtype
        d_next = make_gradient(rng, read_tokens(case), B, G, S, D, E, dtype, sums)
        arrays |= dict(zip(("nm", "nk", "nv"), d_next))
    expected = dict(zip(("dq", "dk", "dv", "db", "dr", "du", "dt", "dm", "dkk", "dkv"), backward(
        check.reference, arrays["d_out"], inputs, parts, d_next, **options)))  # fmt: skip
    text, names = backward_module(case, {name: array.shape for name, array in arrays.items()})
    alone = N == 1 and case["weighting"] == "softmax" and not (parts and parts[4])
    for target in check.targets():
        found = check.library.compile(text, target=target, cpu=case["cpu"])(*arrays.values())
        for name, one in zip(names, found, strict=True):
            what, other = f"case {index} {case} {target} {name}", expected[name]
            if alone and dtype == "f32" and name in ("dq", "dk", "db"):
                # Scores of one key get what is left of d_lse in a sum of products.
                check.close(one, other, 2 * BOUNDS[dtype], what, absolute=True)
            elif np.abs(other).max(initial=0) < 1e-6:
                # The gradient of a soft-max over one key.
                check.require(np.abs(one.astype(float)).max(initial=0) < 0.1 if dtype in ("bf16", "f16")
                              else np.abs(one.astype(float)).max(initial=0) < 1e-5, what)  # fmt: skip
            else:
                check.close(one, other, 2 * BOUNDS[dtype], what)


check.matrix(FACTORS, 5, run)
check.finish()
