# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradients of both forms of multipole attention against NumPy, and their bits on
several threads."""

import numpy as np
from backward_cases import close, flat, gradient_text
from cases import Checker, normal, state
from kernels import NAMES

check = Checker()
FACTORS = {
    "op": ["fast_multipole", "fast_multipole", "fast_multipole_linear"],
    # (group, rank); rank divides group.
    "group": [(2, 1), (2, 2), (4, 1), (20, 5), (48, 4), (64, 4)],
    "N": [lambda m: m, lambda m: 2 * m + 1, lambda m: 4 * m, lambda m: 8 * m - 3,
          lambda m: min(16 * m, 400), lambda m: 193],
    "width": [(16, 16), (5, 20), (64, 64), (20, 1)],
    "heads": [(1, 1, 1), (2, 2, 2), (1, 4, 2), (2, 3, 1)],
    "causal": [False, True],
    "multiplicity": [True, False],
    "biases": [False, True],
    # Weights for each column, or that mix columns, or ready-made summaries for some.
    "made": ["columns", "columns", "mixed", "ready"],
    "shared": [True, False],
    "dtype": ["f32", "f64", "bf16", "f16"],
    "cpu": check.usable_cpus(),
    "d_lse": [False, True],
}
# Several chunks of at least 256 queries, which are tasks.
LONG = {
    **{name: values[:1] for name, values in FACTORS.items()},
    "op": ["fast_multipole", "fast_multipole_linear"],
    "group": [(20, 5), (64, 4)],
    "N": [lambda m: 1100 + m],
    "width": [(16, 16), (5, 20)],
    "heads": [(1, 1, 1), (1, 2, 1)],
    "causal": [False, True],
    "dtype": ["f32", "bf16"],
}

# Queries enough for GPUs to gather far rows of bf16 and f16.
FAR = {
    **LONG,
    "op": ["fast_multipole"],
    "group": [(64, 4)],
    "N": [lambda m: 32 * m, lambda m: 1100 + m],
    "width": [(64, 64), (16, 24)],
    "heads": [(1, 1, 1), (2, 2, 1)],
    "dtype": ["bf16", "f16"],
}


def run(index, case):
    rng = np.random.default_rng(index)
    (m, p), (D, E), (B, H, G), dtype = (case[k] for k in ("group", "width", "heads", "dtype"))
    N, linear = case["N"](m), case["op"] == "fast_multipole_linear"
    L = check.reference.num_levels(N, m)
    # One key head has one set of weights, for the reference's sake.
    sets = 1 if case["shared"] or (linear and H != G) else G
    q, k, v, d_out = (normal(rng, s, dtype) for s in ((B, H, N, D), (B, G, N, D), (B, G, N, E), (B, H, N, E)))
    sides = [("query", D)] * linear + [("key", D), ("value", E)]
    ready = {side for side, _ in sides if case["made"] == "ready" and rng.random() < 0.6}

    def make_weights(width, level):
        weights = check.reference.average_weights(p, m << level, width, sets)
        weights = weights + rng.standard_normal((sets, p, m << level, width)) * 0.3 / (m << level)
        if case["made"] == "mixed":
            weights = weights[..., None] * rng.standard_normal((width, width)) / np.sqrt(width)
        return weights.astype(NAMES[dtype])

    clauses = [(f"{side}_weights", [make_weights(width, level) for level in range(L)])
               for side, width in sides if side not in ready]  # fmt: skip
    for side, width in sides:
        if case["biases"] and L and side not in ready:
            clauses.append((f"{side}_biases", [
                normal(rng, (sets, p, width), dtype, 0.1) for _ in range(L)]))
    for side, width in sides:
        if side in ready:
            heads = H if side == "query" else G
            clauses.append((f"{side}_summaries", [
                normal(rng, (B, heads, -(-N // (m << level)), p, width), dtype, 0.3) for level in range(L)]))
    options = dict(clauses)
    lists = [options.pop(f"{side}_weights", None) for side, _ in sides]
    options |= {"group": m, "causal": case["causal"]}
    attributes = [f"group = {m} : i64"] + ["causal"] * case["causal"]
    if linear:
        if case["causal"]:
            attributes.append("allow_query_lookahead")
            options["allow_query_lookahead"] = True
        results = [("gradient", [d_out])]
        expected = check.reference.fast_multipole_linear_backward(d_out, q, k, v, *lists, **options)
    else:
        attributes.append(f"multiplicity = {str(case['multiplicity']).lower()}")
        options["multiplicity"] = case["multiplicity"]
        out, lse = check.reference.fast_multipole(q, k, v, *lists, **options, return_lse=True)
        out, lse = out.astype(NAMES[dtype]), lse.astype(NAMES[state(dtype)])
        d_lse = normal(rng, lse.shape, state(dtype)) if case["d_lse"] else None
        results = [("forward", [out, lse]), ("gradient", [d_out] + ([] if d_lse is None else [d_lse]))]
        expected = check.reference.fast_multipole_backward(
            d_out, q, k, v, *lists, out, lse, d_lse=d_lse, **options)
    text, arrays = gradient_text(case["op"] + "_backward", [q, k, v], clauses, results, attributes)
    kernel = check.library.compile(text, cpu=case["cpu"])
    what = f"case {index} N {N} {case}"
    found = check.call(kernel, arrays, what, (0, 1, 2, 3, 7) if index % 4 == 0 or N > 1000 else (0,))
    close(check, found, flat(expected), dtype, what, factor=2)


check.matrix(FACTORS, 11, run)
check.matrix(LONG, 11, run)
check.matrix(FAR, 11, run)
check.finish()
