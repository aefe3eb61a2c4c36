# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradients at N = 4096 against those of the plain formula in f32."""

import numpy as np
from backward_cases import dense_case
from cases import Checker

check = Checker()
N, D = 4096, 64


def formula(q, k, v, out, lse, d_out, causal, type):
    """The gradients as one writes them down, every operation in `type`."""
    q, k, v, out, d_out = (x[0, 0].astype(type) for x in (q, k, v, out, d_out))
    scale = type(1 / np.sqrt(D))
    scores = (q @ k.T) * scale
    if causal:
        scores[np.triu_indices(N, 1)] = -np.inf
    p = np.exp(scores - lse[0, 0].astype(type)[:, None])
    ds = p * (d_out @ v.T - (d_out * out).sum(axis=1)[:, None])
    return ds @ k * scale, ds.T @ q * scale, p.T @ d_out


for causal in (False, True):
    rng = np.random.default_rng(1)
    q, k, v, d_out = (rng.standard_normal((1, 1, N, D)).astype(np.float32) for _ in range(4))
    exact = check.reference.dense(q, k, v, causal=causal, return_lse=True)
    out, lse = (x.astype(np.float32) for x in exact)
    text, arrays = dense_case(q, k, v, out, lse, d_out, causal=causal)
    found = check.library.compile(text)(*arrays)
    expected = formula(q, k, v, out, lse, d_out, causal, np.float64)
    simple = formula(q, k, v, out, lse, d_out, causal, np.float32)
    for name, mine, want, plain in zip(("dq", "dk", "dv"), found, expected, simple):
        error, bound = (np.abs(x - want).max() / np.abs(want).max() for x in (mine, plain))
        print(f"causal {causal} {name}: error {error:.3g}, that of the plain formula {bound:.3g}")
        check.close(mine[0, 0], want, 2 * bound, f"causal {causal} {name}")
check.finish()
