# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The accuracy promised at N = 4096 on unit-normal inputs."""

import functools

import numpy as np
from cases import BOUNDS, Checker, dense_text, multipole_text, normal, plain

check = Checker()
N = 4096


def compare(found, expected, simple, dtype, what):
    """Output and lse against their bounds; f32 against the plain formula, too."""
    error = np.abs(found[0] - expected[0]).max() / np.abs(expected[0]).max()
    print(f"{what}: error {error:.3g}, lse {np.abs(found[1] - expected[1]).max():.3g}", end="")
    check.close(found[0], expected[0], BOUNDS[dtype], what)
    check.close(found[1], expected[1], 1e-5, what + " lse", absolute=True)
    if dtype == "f32":
        bound = 2 * np.abs(simple() - expected[0]).max() / np.abs(expected[0]).max()
        print(f", twice that of the plain formula {bound:.3g}", end="")
        check.close(found[0], expected[0], bound, what + " against the plain formula")
    print()


for D in (64, 128):
    for causal in (False, True):
        rng = np.random.default_rng(D)
        exact = [rng.standard_normal((1, 1, N, D)) for _ in "qkv"]
        for dtype in ("f32", "bf16", "f16") if D == 64 else ("f32",):
            q, k, v = (x.astype(normal(rng, (1,), dtype).dtype) for x in exact)
            found = check.library.compile(dense_text(dtype, 1, 1, 1, N, N, D, D, causal=causal, lse=True))(q, k, v)
            expected = check.reference.dense(q, k, v, causal=causal, return_lse=True)
            compare(found, expected, functools.partial(plain, q, k, v, causal=causal), dtype,
                    f"dense {dtype} D {D} causal {causal}")

# Summaries are sums of up to 1024 tokens, with log weights of up to ln 256.
m, p, D = 64, 4, 64
L = check.reference.num_levels(N, m)
for causal in (False, True):
    rng = np.random.default_rng(3)
    exact = [rng.standard_normal((1, 1, N, D)) for _ in "qkv"]
    for _ in ("key", "value"):
        for size in (m << level for level in range(L)):
            noise = rng.standard_normal((1, p, size, D)) / np.sqrt(size)
            exact.append(check.reference.average_weights(p, size, D) + noise)
    for dtype in ("f32", "bf16", "f16"):
        arrays = [x.astype(normal(rng, (1,), dtype).dtype) for x in exact]
        text = multipole_text(dtype, 1, 1, 1, N, D, m, p, L, causal=causal, lse=True)

        def blocked(type, arrays=arrays, causal=causal):
            return check.reference.fast_multipole_blocked(
                *arrays[:3], arrays[3 : 3 + L], arrays[3 + L :], group=m, causal=causal,
                return_lse=True, dtype=type)

        compare(check.library.compile(text)(*arrays), blocked(np.float64),
                lambda: blocked(np.float32)[0], dtype, f"multipole {dtype} causal {causal}")
check.finish()
