# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attn.dense over a pairwise matrix of shapes, types, masks, terms and CPUs."""

import numpy as np
from cases import BOUNDS, Checker, dense_factors, dense_inputs, dense_text, plain, state

check = Checker()
WIDTHS = [1, 5, 16, 20, 64, 80, 128, 160]
FACTORS = dense_factors(check, D=WIDTHS, E=WIDTHS)


def run(index, case):
    dtype = case["dtype"]
    (q, k, v), terms, options = dense_inputs(np.random.default_rng(index), case)
    (B, H, N, D), (G, M, E) = q.shape, v.shape[1:]
    term_type = dtype if case["term_type"] == "data" else state(dtype)
    text = dense_text(
        dtype, B, H, G, N, M, D, E, lse=case["lse"],
        **{name: (array.shape, term_type) for name, array in terms.items()}, **options,
    )
    found = check.library.compile(text, cpu=case["cpu"])(q, k, v, *terms.values())
    out, lse = check.reference.dense(q, k, v, **terms, **options, return_lse=True)
    what = f"case {index} {case}"
    check.close(found[0], out, BOUNDS[dtype], what)
    if case["lse"]:
        check.close(found[1], lse, 1e-5, what + " lse", absolute=True)
    if dtype == "f32" and case["cpu"] != "x86-64":
        # NumPy's sums are fused, which the baseline has no instruction for. Of a few numbers the plain formula may get all right by chance.
        error = np.abs(plain(q, k, v, **terms, **options) - out).max()
        bound = 2 * error / (np.abs(out).max() or 1) + 4e-7
        if check.library.target == "gpu":
            bound += 2**-22  # which the exponentials of a device may be off by
        check.close(found[0], out, bound, what + " against the plain formula")
        check.worst.pop(bound, None)


check.matrix(FACTORS, 1, run)
check.finish()
