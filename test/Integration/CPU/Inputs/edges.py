# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attn.dense: dynamic extents, empty extents, thread counts, large scores."""

import numpy as np
from cases import BOUNDS, Checker, dense_text, normal, plain
from kernels import Failure

check = Checker()
compile = check.library.compile


def inputs(seed, dtype, B, H, G, N, M, D, E, factor=1.0):
    rng = np.random.default_rng(seed)
    return (normal(rng, (B, H, N, D), dtype, factor), normal(rng, (B, G, M, D), dtype, factor),
            normal(rng, (B, G, M, E), dtype))


# One kernel for all extents.
for dtype in ("f32", "bf16"):
    for causal, window in ((False, None), (True, None), (True, 9), (False, 30)):
        kernel = compile(dense_text(dtype, *[None] * 5, 16, 24, causal=causal, window=window, lse=True))
        for seed, (B, H, G, N, M) in enumerate([
            (1, 1, 1, 1, 1), (2, 4, 2, 13, 13), (1, 3, 1, 63, 97), (1, 2, 2, 64, 64), (3, 1, 1, 65, 20),
            (1, 4, 4, 192, 193), (1, 1, 1, 300, 300), (2, 2, 1, 7, 1000), (1, 2, 2, 129, 1),
            (0, 2, 1, 5, 5), (1, 0, 0, 5, 5), (1, 2, 2, 0, 5), (1, 2, 1, 5, 0), (1, 0, 1, 5, 5),
        ]):
            q, k, v = inputs(seed, dtype, B, H, G, N, M, 16, 24)
            what = f"dynamic {dtype} causal {causal} window {window} B{B} H{H} G{G} N{N} M{M}"
            try:
                out, lse = kernel(q, k, v)
            except Failure as failure:
                check.require(False, f"{what}: {failure}")
                continue
            if G == 0:
                check.require(out.shape == (B, H, N, 24) and lse.shape == (B, H, N), what)
                continue
            expected = check.reference.dense(q, k, v, causal=causal, window=window, return_lse=True)
            check.close(out, expected[0], BOUNDS[dtype], what)
            check.close(lse, expected[1], 1e-5, what + " lse", absolute=True)

# Dynamic rows under log weights and biases.
kernel = compile(dense_text("f32", 1, 2, 1, None, None, 8, 8, causal=True,
                            log_weight=((1, 1, None), "f32"), bias=((1, 1, None, None), "f32")))
for seed, (N, M) in enumerate([(5, 5), (70, 64), (64, 200), (1, 1), (0, 3), (3, 0)]):
    rng = np.random.default_rng(seed)
    q, k, v = inputs(seed, "f32", 1, 2, 1, N, M, 8, 8)
    w, x = normal(rng, (1, 1, M), "f32"), normal(rng, (1, 1, N, M), "f32")
    check.close(kernel(q, k, v, w, x)[0], check.reference.dense(q, k, v, causal=True, log_weight=w, bias=x),
                BOUNDS["f32"], f"dynamic terms N{N} M{M}")

# Empty extents known at compile time.
for B, H, N, M in ((1, 2, 5, 0), (1, 2, 0, 3), (0, 2, 5, 5), (1, 0, 5, 5), (1, 2, 0, 0)):
    for causal in (False, True):
        q, k, v = inputs(0, "f32", B, H, H, N, M, 4, 4)
        out, lse = compile(dense_text("f32", B, H, H, N, M, 4, 4, causal=causal, lse=True))(q, k, v)
        what = f"static B{B} H{H} N{N} M{M} causal {causal}"
        check.require(out.shape == (B, H, N, 4) and not out.any() and np.isneginf(lse).all(), what)

# Bit-identical whatever the number of threads, and run after run.
for dtype in ("f32", "bf16"):
    for causal in (False, True):
        q, k, v = inputs(3, dtype, 2, 4, 2, 197, 300, 20, 33)
        kernel = compile(dense_text(dtype, 2, 4, 2, 197, 300, 20, 33, causal=causal, lse=True))
        check.call(kernel, (q, k, v), f"{dtype} causal {causal}", (1, 2, 3, 7, 7, 1))

# Scores around 1e4: soft-max is nearly one-hot, and exp would overflow.
for dtype in ("f32", "f64", "bf16", "f16"):
    for causal in (False, True):
        q, k, v = inputs(4, dtype, 1, 2, 2, 130, 130, 32, 32, factor=42.0)
        out, lse = compile(dense_text(dtype, 1, 2, 2, 130, 130, 32, 32, causal=causal, lse=True))(q, k, v)
        expected, expected_lse = check.reference.dense(q, k, v, causal=causal, return_lse=True)
        what = f"large scores {dtype} causal {causal}"
        check.require(np.abs(expected_lse).max() > 1e3, what + " are large")
        check.require(np.isfinite(out.astype(float)).all() and np.isfinite(lse).all(), what + " give numbers")
        if dtype == "f64":
            check.close(out, expected, 1e-11, what)
        elif dtype == "f32":
            error = np.abs(plain(q, k, v, causal=causal) - expected).max() / np.abs(expected).max()
            check.close(out, expected, 2 * error, what + " against the plain formula")
        check.close(lse, expected_lse, 1e-6, what + " lse")

# All scores far from zero: the maximum is what counts.
for shift in (-1e4, 1e4, -1e8, 1e8):
    q, k, v = inputs(5, "f64", 1, 1, 1, 40, 90, 8, 8)
    w = np.full((1, 1, 1), shift)
    out = compile(dense_text("f64", 1, 1, 1, 40, 90, 8, 8, log_weight=((1, 1, 1), "f64")))(q, k, v, w)[0]
    check.close(out, check.reference.dense(q, k, v), 1e-6, f"scores shifted by {shift}")

# Every entry hidden by a term, whatever the score, is an empty row.
for number in (-np.inf, -1e30, np.finfo(np.float32).min):
    for factor in (1.0, 42.0):
        q, k, v = inputs(6, "f32", 1, 1, 1, 20, 30, 16, 16, factor)
        w = np.full((1, 1, 30), number, np.float32)
        x = np.full((1, 1, 20, 1), number, np.float32)
        for terms in ({"log_weight": w}, {"bias": x}, {"log_weight": w, "bias": x}):
            kernel = compile(dense_text("f32", 1, 1, 1, 20, 30, 16, 16, lse=True,
                                        **{name: (term.shape, "f32") for name, term in terms.items()}))
            out, lse = kernel(q, k, v, *terms.values())
            check.require(not out.any() and np.isneginf(lse).all(), f"all hidden by {list(terms)} = {number}")
check.finish()
