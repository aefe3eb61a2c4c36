# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attn.fast_multipole and attn.fast_multipole_linear against NumPy."""

import functools

import numpy as np
from cases import BOUNDS, Checker, multipole_text, normal, state, tensor
from kernels import NAMES

check = Checker()
FACTORS = {
    "op": ["fast_multipole", "fast_multipole", "fast_multipole_linear"],
    # (group, rank); rank divides group.
    "group": [(2, 1), (2, 2), (4, 1), (4, 4), (48, 4), (64, 2), (64, 4)],
    # Relative to the group: exact powers, ragged ends, none and one level.
    "N": [lambda m: m, lambda m: 2 * m + 1, lambda m: 4 * m, lambda m: 8 * m - 3,
          lambda m: min(16 * m, 400), lambda m: 5 * m + 1, lambda m: 193, lambda m: 1],
    "width": [(16, 16), (5, 20), (64, 64), (20, 1), (80, 33)],
    "heads": [(1, 1, 1), (2, 2, 2), (1, 4, 2), (2, 3, 1)],
    "causal": [False, True],
    "multiplicity": [True, False],
    "biases": [False, True],
    # Weights for each column, or that mix columns, or ready-made summaries for some.
    "made": ["columns", "columns", "mixed", "ready"],
    "shared": [True, False],
    "dtype": ["f32", "f64", "bf16", "f16"],
    "cpu": check.usable_cpus(),
    "lse": [False, True],
}

if check.chip == "sm_90a":
    # What its kernel takes: rows of 16 bytes, blocks of 64 queries.
    FACTORS |= {
        "group": [(64, 2), (64, 4), (128, 4)],
        "width": [(16, 16), (64, 64), (24, 72), (128, 128)],
        "dtype": ["bf16", "f16"],
    }


def run(index, case):
    rng = np.random.default_rng(index)
    (m, p), (D, E), (B, H, G), dtype = (case[k] for k in ("group", "width", "heads", "dtype"))
    N, linear = case["N"](m), case["op"] == "fast_multipole_linear"
    L = check.reference.num_levels(N, m)
    W = 1 if case["shared"] else G
    arrays, names, types = [], [], []

    def operand(name, array):
        array = array.astype(NAMES[dtype])
        arrays.append(array)
        names.append(f"%{name}")
        types.append(tensor(array.shape, dtype))
        return array

    def group(keyword, count, make):
        """One clause with an operand for each level."""
        first = len(names)
        made = [operand(f"{keyword}{level}", make(level)) for level in range(count)]
        if not made:
            return made, ""
        return made, f"    {keyword}({', '.join(names[first:])} : {', '.join(types[first:])})\n"

    q, k, v = (operand(n, rng.standard_normal(s)) for n, s in
               zip("qkv", ((B, H, N, D), (B, G, N, D), (B, G, N, E))))
    text = f"attn.{case['op']} ins(%q, %k, %v : {', '.join(types)})\n"
    keywords = {}
    sides = [("query", D)] * linear + [("key", D), ("value", E)]

    def make_weights(width, level):
        """Nearly averages."""
        noise = rng.standard_normal((W, p, m << level, width))
        weights = check.reference.average_weights(p, m << level, width, W) + noise * 0.3 / (m << level)
        if case["made"] != "mixed":
            return weights
        return weights[..., None] * rng.standard_normal((width, width)) / np.sqrt(width)

    def make_summaries(heads, width, level):
        return rng.standard_normal((B, heads, -(-N // (m << level)), p, width)) * 0.3

    ready = {side for side, _ in sides if case["made"] == "ready" and rng.random() < 0.6}

    for side, width in sides:
        if side in ready:
            keywords[f"{side}_weights"] = None
            continue
        made, clause = group(f"{side}_weights", L, functools.partial(make_weights, width))
        keywords[f"{side}_weights"] = made
        text += clause
    for side, width in sides:
        if case["biases"] and L and side not in ready:
            made, clause = group(f"{side}_biases", L, lambda level, width=width: rng.standard_normal((W, p, width)) * 0.1)
            keywords[f"{side}_biases"] = made
            text += clause
    for side, width in sides:
        if side in ready:
            heads = H if side == "query" else G
            made, clause = group(f"{side}_summaries", L, functools.partial(make_summaries, heads, width))
            keywords[f"{side}_summaries"] = made
            text += clause
    results = [tensor((B, H, N, E), dtype)]
    if case["lse"] and not linear:
        results.append(tensor((B, H, N), state(dtype)))
    attributes = [f"group = {m} : i64"]
    options = {"group": m, "causal": case["causal"]}
    if case["causal"]:
        attributes.append("causal")
        if linear:
            attributes.append("allow_query_lookahead")
            options["allow_query_lookahead"] = True
    if not linear:
        attributes.append(f"multiplicity = {str(case['multiplicity']).lower()}")
        options["multiplicity"] = case["multiplicity"]
        options["return_lse"] = True
    outs = ", ".join(f"%o{i}" for i in range(len(results)))
    body = "".join(f"  %o{i} = tensor.empty() : {result}\n" for i, result in enumerate(results))
    arguments = ", ".join(f"{n}: {t}" for n, t in zip(names, types))
    module = (
        f"func.func @f({arguments}) -> ({', '.join(results)}) {{\n{body}"
        f"  %r:{len(results)} = {text}    outs({outs} : {', '.join(results)}) "
        f"{{{', '.join(attributes)}}} -> {', '.join(results)}\n"
        f"  return {', '.join(f'%r#{i}' for i in range(len(results)))} : {', '.join(results)}\n}}\n"
    )
    found = check.library.compile(module, cpu=case["cpu"])(*arrays)
    expected = getattr(check.reference, case["op"])(q, k, v, **keywords, **options)
    out, lse = (expected, None) if linear else expected
    what = f"case {index} N {N} {case}"
    check.close(found[0], out, BOUNDS[dtype], what)
    if len(found) > 1:
        # Kernels of GPUs round summaries to the type of the tokens.
        exact = check.library.target == "cpu" or dtype == "f32"
        check.close(found[1], lse, 1e-5 if exact else 2e-3, what + " lse", absolute=True)


check.matrix(FACTORS, 3, run)

# A NaN reaches the rows that read it or a summary of it, and no other head or
# batch entry. The same bits for any number of threads.
B, H, N, D, m, p = 2, 2, 81, 16, 8, 2
L = check.reference.num_levels(N, m)
for causal in (False, True):
    rng = np.random.default_rng(9)
    arrays = [normal(rng, (B, H, N, D), "f32") for _ in "qkv"]
    weights = [check.reference.average_weights(p, m << level, D).astype(np.float32) for level in range(L)]
    weights += weights
    kernel = check.library.compile(multipole_text("f32", B, H, H, N, D, m, p, L, causal=causal))
    clean = check.call(kernel, (*arrays, *weights), f"multipole causal {causal}", (1, 2, 3, 7))[0]
    expected = check.reference.fast_multipole(*arrays, weights[:L], weights[L:], group=m, causal=causal)
    check.close(clean, expected, BOUNDS["f32"], f"multipole causal {causal}")
    for operand, row, number in ((1, N - 1, np.nan), (1, 3, np.inf), (2, 40, np.nan), (2, 3, -np.inf)):
        dirty = [array.copy() for array in arrays]
        dirty[operand][1, 0, row, 0] = number
        found = kernel(*dirty, *weights)[0]
        expected = check.reference.fast_multipole(*dirty, weights[:L], weights[L:], group=m, causal=causal)
        what = f"multipole causal {causal} operand {operand} row {row} = {number}"
        missed = np.isnan(expected) & ~np.isnan(found)
        check.require(not missed.any(), f"{what}: {missed.sum()} NaN missed")
        same = (found == clean).all(axis=(-1, -2))
        check.require(same[0].all() and same[1, 1], f"{what}: differs in another head or batch entry")
check.finish()
