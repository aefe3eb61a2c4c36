# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Few queries, whose rows are multiplied along the columns, four in a vector, in
pairs or by AMX: tiles of rows, keys and columns that are whole and that are not,
over several parts of the keys, for any number of threads; values that are not
finite where no row reads them."""

import numpy as np
from cases import BOUNDS, Checker, dense_factors, dense_inputs, dense_text, state

check = Checker()
WIDTHS = [32, 64, 96, 128, 48, 37]
FACTORS = dense_factors(
    check, D=WIDTHS, E=WIDTHS, N=[1, 2, 3, 4, 7, 8, 16, 33], M=[1, 16, 31, 33, 77, 130, 1100],
    heads=[(5, 1), (8, 1), (6, 1), (16, 2), (3, 1), (20, 1)], dtype=["bf16", "f32", "f16", "f64"],
)  # fmt: skip


def run(index, case):
    rng = np.random.default_rng(index)
    (q, k, v), terms, options = dense_inputs(rng, case)
    (B, H, N, D), (G, M, E) = q.shape, v.shape[1:]
    dtype = case["dtype"]
    term_type = dtype if case["term_type"] == "data" else state(dtype)
    text = dense_text(
        dtype, B, H, G, N, M, D, E, lse=case["lse"],
        **{name: (array.shape, term_type) for name, array in terms.items()}, **options,
    )  # fmt: skip
    kernel = check.library.compile(text, cpu=case["cpu"])
    what = f"case {index} {case}"
    found = check.call(kernel, (q, k, v, *terms.values()), what)
    out, lse = check.reference.dense(q, k, v, **terms, **options, return_lse=True)
    check.close(found[0], out, BOUNDS[dtype], what)
    if case["lse"]:
        check.close(found[1], lse, 1e-5, what + " lse", absolute=True)
    if case["log_weight"] != "BGM" or not case["hidden"]:
        return
    removed = np.isneginf(terms["log_weight"].astype(np.float32))
    v[removed] = rng.choice(np.array([np.nan, np.inf, -np.inf], v.dtype), v[removed].shape)
    again = kernel(q, k, v, *terms.values())
    same = again[0].tobytes() == found[0].tobytes()
    check.require(same, what + ": values that no row reads change the result")


check.matrix(FACTORS, 1, run)
check.finish()
