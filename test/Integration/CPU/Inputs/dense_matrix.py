# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attn.dense over a pairwise matrix of shapes, types, masks, terms and CPUs."""

import numpy as np
from cases import BOUNDS, Checker, dense_text, normal, pairwise, plain, state
from kernels import NAMES

check = Checker()
FACTORS = {
    "N": [1, 13, 63, 64, 65, 97, 192],
    "M": ["N", "N", "fewer", "more", 1, 300],
    "D": [1, 5, 16, 20, 64, 80, 128, 160],
    "E": [1, 5, 16, 20, 64, 80, 128, 160],
    "B": [1, 2],
    "heads": [(1, 1), (3, 3), (4, 2), (4, 1)],
    "mask": [(False, None), (True, None), (False, 7), (True, 20), (True, 1), (False, 100)],
    "dtype": ["f32", "f64", "bf16", "f16"],
    "cpu": check.usable_cpus(),
    "lse": [False, True],
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
    q, k, v = (normal(rng, s, dtype) for s in ((B, H, N, D), (B, G, M, D), (B, G, M, E)))
    extents = {"1": 1, "B": B, "H": H, "G": G, "N": N, "M": M}
    term_type = dtype if case["term_type"] == "data" else state(dtype)
    terms, arrays = {}, [q, k, v]
    for name in ("log_weight", "bias"):
        if case[name]:
            array = normal(rng, [extents[c] for c in case[name]], term_type)
            if case["hidden"]:
                array[rng.random(array.shape) < 0.2] = -np.inf
            terms[name] = array
            arrays.append(array)
    options = dict(causal=causal, window=window, scale=case["scale"])
    text = dense_text(
        dtype, B, H, G, N, M, D, E, lse=case["lse"],
        **{name: (array.shape, term_type) for name, array in terms.items()}, **options,
    )
    found = check.library.compile(text, cpu=case["cpu"])(*arrays)
    out, lse = check.reference.dense(q, k, v, **terms, **options, return_lse=True)
    what = f"case {index} {case}"
    check.close(found[0], out, BOUNDS[dtype], what)
    if case["lse"]:
        check.close(found[1], lse, 1e-5, what + " lse", absolute=True)
    if dtype == "f32" and case["cpu"] != "x86-64":
        # NumPy's sums are fused, which the baseline has no instruction for. Of a few numbers the plain formula may get all right by chance.
        error = np.abs(plain(q, k, v, **terms, **options) - out).max()
        bound = 2 * error / (np.abs(out).max() or 1) + 4e-7
        check.close(found[0], out, bound, what + " against the plain formula")
        check.worst.pop(bound, None)


cases = pairwise(FACTORS, seed=1)
for index, case in enumerate(cases):
    if check.wants(index) and case["dtype"] in check.types():
        try:
            run(index, case)
        except Exception as failure:
            check.require(False, f"case {index} {case}: {failure}")
check.finish()
