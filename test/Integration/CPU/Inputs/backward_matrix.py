# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attn.dense_backward against NumPy, over shapes, types, masks, terms and CPUs."""

import numpy as np
from backward_cases import close, dense_case
from cases import Checker, dense_factors, dense_inputs, normal, state
from kernels import NAMES

check = Checker()
WIDTHS = [1, 5, 16, 64, 80, 130]
# What kernels of warpgroups sum alone, and wider than what a block of a GPU sums.
WIDTHS += [] if check.library.target == "cpu" else [192, 256, 320, 576]
FACTORS = dense_factors(check, D=WIDTHS, E=WIDTHS)


def run(index, case):
    rng, dtype = np.random.default_rng(index), case["dtype"]
    (q, k, v), terms, options = dense_inputs(rng, case)
    d_out = normal(rng, (*q.shape[:3], v.shape[3]), dtype)
    out, lse = check.reference.dense(q, k, v, **terms, **options, return_lse=True)
    out, lse = out.astype(NAMES[dtype]), lse.astype(NAMES[state(dtype)])
    d_lse = normal(rng, lse.shape, state(dtype)) if case["lse"] else None
    text, arrays = dense_case(q, k, v, out, lse, d_out, d_lse=d_lse, terms=list(terms.items()), **options)
    found = check.library.compile(text, cpu=case["cpu"])(*arrays)
    expected = check.reference.dense_backward(d_out, q, k, v, out, lse, d_lse=d_lse, **terms, **options)
    close(check, found, expected, dtype, f"case {index} {case}", rows=q[..., 0].size, width=case["E"])


check.matrix(FACTORS, 7, run)
check.finish()
