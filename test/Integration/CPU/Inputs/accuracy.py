# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The accuracy promised at N = 4096 on unit-normal inputs."""

import numpy as np
from cases import BOUNDS, Checker, dense_text, normal, plain

check = Checker()
N = 4096
for D in (64, 128):
    for causal in (False, True):
        rng = np.random.default_rng(D)
        exact = [rng.standard_normal((1, 1, N, D)) for _ in "qkv"]
        for dtype in ("f32", "bf16", "f16") if D == 64 else ("f32",):
            q, k, v = (x.astype(normal(rng, (1,), dtype).dtype) for x in exact)
            found = check.library.compile(dense_text(dtype, 1, 1, 1, N, N, D, D, causal=causal, lse=True))(q, k, v)
            expected, lse = check.reference.dense(q, k, v, causal=causal, return_lse=True)
            what = f"{dtype} D {D} causal {causal}"
            error = np.abs(found[0] - expected).max() / np.abs(expected).max()
            print(f"{what}: error {error:.3g}, lse {np.abs(found[1] - lse).max():.3g}", end="")
            check.close(found[0], expected, BOUNDS[dtype], what)
            check.close(found[1], lse, 1e-5, what + " lse", absolute=True)
            if dtype == "f32":
                simple = np.abs(plain(q, k, v, causal=causal) - expected).max() / np.abs(expected).max()
                print(f", plain formula {simple:.3g}", end="")
                check.close(found[0], expected, 2 * simple, what + " against the plain formula")
            print()
check.finish()
