# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attn.dense_backward against NumPy, over shapes, types, masks, terms and CPUs."""

import numpy as np
from backward_cases import close, dense_case
from cases import Checker, normal, pairwise, state
from kernels import NAMES

check = Checker()
FACTORS = {
    "N": [1, 13, 63, 64, 65, 97, 192],
    "M": ["N", "N", "fewer", "more", 1, 300],
    "D": [1, 5, 16, 64, 80, 130],
    "E": [1, 5, 16, 64, 80, 130],
    "B": [1, 2],
    "heads": [(1, 1), (3, 3), (4, 2), (4, 1)],
    "mask": [(False, None), (True, None), (False, 7), (True, 20), (True, 1), (False, 100)],
    "dtype": ["f32", "f64", "bf16", "f16"],
    "cpu": check.usable_cpus(),
    "d_lse": [False, True],
    "log_weight": [None, "111", "B11", "1G1", "11M", "BGM"],
    "bias": [None, "1111", "111M", "11N1", "11NM", "B1NM", "1HNM", "BHNM", "BHN1", "BH1M"],
    "term_type": ["state", "data"],
    "hidden": [False, True],
    "scale": [None, 0.3],
}


def run(index, case):
    rng = np.random.default_rng(index)
    N, D, E, B, dtype = (case[key] for key in ("N", "D", "E", "B", "dtype"))
    H, G = case["heads"]
    M = {"N": N, "fewer": max(N * 2 // 3, 1), "more": N + 37}.get(case["M"], case["M"])
    causal, window = case["mask"]
    q, k, v, d_out = (normal(rng, s, dtype) for s in ((B, H, N, D), (B, G, M, D), (B, G, M, E), (B, H, N, E)))
    extents = {"1": 1, "B": B, "H": H, "G": G, "N": N, "M": M}
    term_type = dtype if case["term_type"] == "data" else state(dtype)
    terms = []
    for name in ("log_weight", "bias"):
        if case[name]:
            array = normal(rng, [extents[c] for c in case[name]], term_type)
            if case["hidden"]:
                array[rng.random(array.shape) < 0.2] = -np.inf
            terms.append((name, array))
    options = dict(causal=causal, window=window, scale=case["scale"])
    out, lse = check.reference.dense(q, k, v, **dict(terms), **options, return_lse=True)
    out, lse = out.astype(NAMES[dtype]), lse.astype(NAMES[state(dtype)])
    d_lse = normal(rng, lse.shape, state(dtype)) if case["d_lse"] else None
    text, arrays = dense_case(q, k, v, out, lse, d_out, d_lse=d_lse, terms=terms, **options)
    found = check.library.compile(text, cpu=case["cpu"])(*arrays)
    expected = check.reference.dense_backward(d_out, q, k, v, out, lse, d_lse=d_lse, **dict(terms), **options)
    close(check, found, expected, dtype, f"case {index} {case}", rows=B * H * N)


cases = pairwise(FACTORS, seed=7)
for index, case in enumerate(cases):
    if check.wants(index) and case["dtype"] in check.types():
        try:
            run(index, case)
        except Exception as failure:
            check.require(False, f"case {index} {case}: {failure}")
check.finish()
