# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Summaries and updates of codebooks: attn.codebook_accumulate, codebook_scan with
every reduction, log_count and codebook_update, against NumPy."""

import itertools

import numpy as np
from cases import Checker, normal, tensor
from kernels import NAMES, Failure

check = Checker()

# Means, sums and log weights are kept in f32 (f64) whatever the type of the data.
BOUNDS = {"f32": 5e-6, "f64": 1e-13, "bf16": 5e-6, "f16": 5e-6}
REDUCTIONS = ("serial", "matmul", "associative")

FACTORS = {
    "tokens": [0, 1, 2, 7, 31, 64, 100, 513],
    "codes": [1, 2, 5, 16, 37],
    "width": [1, 3, 4, 8, 15, 16, 17, 64, 100],
    # Batch entries, heads, codebooks.
    "heads": [(1, 1, 1), (2, 3, 3), (2, 3, 1), (1, 4, 4), (0, 2, 1), (1, 0, 1)],
    "block": [1, 3, 16, 64, 1000],
    # Entries less than there could be.
    "fewer": [0, 1, 2],
    "used": ["all", "one", "half"],
    "start": ["nothing", "state"],
    # Which values, and means of no token, are NaN: they stay with their codeword.
    "spoiled": [None, "values", "means"],
    "absent": [False, True],
    # Codewords of a smaller count are replaced, and the codebook is in the type of sums.
    "replace_below": [0.0, 0.5, 100.0],
    "wide": [False, True],
    # Means of scans have the type of the data, too.
    "rounded": [False, True],
    "dtype": check.types(),
    "cpu": check.usable_cpus(),
    "dynamic": [False, True],
}


def result(name, shape, type, dynamic, like):
    """`tensor.empty` of a shape whose dynamic extents are those of arguments."""
    text = tensor(shape, type)
    sizes = ", ".join(size for extent, size in zip(shape, like) if extent is None)
    return text, f"  %{name} = tensor.empty({sizes if dynamic else ''}) : {text}\n"


def module(dtype, B, G, W, N, S, E, entries, block, dynamic=False, replace_below=0.0, wide=False, rounded=False):
    state = "f64" if dtype == "f64" else "f32"
    if dynamic:
        B, G, N, shape_s, shape_t = None, None, None, None, None
    else:
        shape_s, shape_t = S, entries
    z, v = tensor((B, G, N), "i32"), tensor((B, G, N, E), dtype)
    m, n = tensor((B, G, shape_s, E), state), tensor((B, G, shape_s), "i32")
    c, s, f = tensor((W, S, E), state if wide else dtype), tensor((W, S, E), state), tensor((W, S), state)
    seed = " seed(%seed : tensor<i64>)" if replace_below else ""
    body = "".join(f"  %c{i} = arith.constant {i} : index\n" for i in range(4))
    # A constant would fold into shapes: levels of the tree are to be counted at run time.
    body += "  %te = tensor.extract %e[] : tensor<i32>\n  %t = arith.index_cast %te : i32 to index\n"
    body += f"  %b = tensor.dim %v, %c0 : {v}\n  %g = tensor.dim %v, %c1 : {v}\n  %s = tensor.dim %m, %c2 : {m}\n"
    names = ("%b", "%g", "%t", "%s")
    ms, text = result("ms", (B, G, shape_t, shape_s, E), state, dynamic, (*names, ""))
    body += text
    ns, text = result("ns", (B, G, shape_t, shape_s), "i32", dynamic, names)
    body += text
    w, text = result("w", (B, G, shape_t, shape_s), "f32", dynamic, names)
    body += text
    body += f"  %ci = tensor.empty() : {c}\n"
    body += (f"  %a:2 = attn.codebook_accumulate ins(%z, %v : {z}, {v}) outs(%m, %n : {m}, {n}) -> {m}, {n}\n")
    results = [("%a#0", m), ("%a#1", n)]
    for reduction in REDUCTIONS:
        body += (f"  %{reduction}:2 = attn.codebook_scan ins(%z, %v, %m, %n : {z}, {v}, {m}, {n}) outs(%ms, %ns : {ms}, {ns})"
                 f" {{block = {block} : i64, reduction = #attn.reduction<{reduction}>}} -> {ms}, {ns}\n")
        results += [(f"%{reduction}#0", ms), (f"%{reduction}#1", ns)]
    body += (f"  %l = attn.log_count ins(%serial#1 : {ns}) outs(%w : {w}) -> {w}\n"
             f"  %u:3 = attn.codebook_update ins(%v, %z : {v}, {z}){seed} outs(%ci, %sums, %counts : {c}, {s}, {f})"
             f" {{rate = 0.9 : f64, replace_below = {replace_below} : f64}} -> {c}, {s}, {f}\n")
    results += [("%l", w), ("%u#0", c), ("%u#1", s), ("%u#2", f)]
    if rounded:
        rs, text = result("rs", (B, G, shape_t, shape_s, E), dtype, dynamic, (*names, ""))
        body += text
        for reduction in REDUCTIONS:
            body += (f"  %behind_{reduction} = arith.truncf %{reduction}#0 : {ms} to {rs}\n"
                     f"  %within_{reduction}:2 = attn.codebook_scan ins(%z, %v, %m, %n : {z}, {v}, {m}, {n})"
                     f" outs(%rs, %ns : {rs}, {ns}) {{block = {block} : i64, reduction = #attn.reduction<{reduction}>}}"
                     f" -> {rs}, {ns}\n")
            results += [(f"%behind_{reduction}", rs), (f"%within_{reduction}#0", rs), (f"%within_{reduction}#1", ns)]
    types = ", ".join(type for _, type in results)
    return (f"func.func @f(%z: {z}, %v: {v}, %m: {m}, %n: {n}, %sums: {s}, %counts: {f}, %e: tensor<i32>, %seed: tensor<i64>)"
            f" -> ({types}) {{\n{body}"
            f"  return {', '.join(name for name, _ in results)} : {types}\n}}\n")


def choose(rng, shape, S, used):
    if used == "one":
        return np.full(shape, S - 1, np.int32)
    return rng.integers(0, max(1, S // 2) if used == "half" else S, shape).astype(np.int32)


def run(index, case):
    rng = np.random.default_rng(index)
    dtype, N, S, E, block = (case[key] for key in ("dtype", "tokens", "codes", "width", "block"))
    B, G, W = case["heads"]
    entries = max(1, -(-N // block) + 1 - case["fewer"])
    state = np.float64 if dtype == "f64" else np.float32
    z, v = choose(rng, (B, G, N), S, case["used"]), normal(rng, (B, G, N, E), dtype)
    m, n = rng.standard_normal((B, G, S, E)).astype(state), np.zeros((B, G, S), np.int32)
    if case["start"] == "state":
        n = rng.integers(0, 5, n.shape).astype(np.int32)
    if case["spoiled"] == "values":
        v[rng.random(v.shape) < 1 / max(N, 4)] = np.nan
    if case["spoiled"] == "means":
        m[n == 0] = np.nan
    if case["absent"]:
        z[rng.random(z.shape) < 0.4] = -1
    sums, counts = rng.standard_normal((W, S, E)).astype(state), rng.random((W, S)).astype(state)
    options = {key: case[key] for key in ("dynamic", "replace_below", "wide")}
    options["rounded"] = case["rounded"] and dtype in ("bf16", "f16")
    kernel = check.library.compile(module(dtype, B, G, W, N, S, E, entries, block, **options), cpu=case["cpu"])
    what, bound, ref = f"case {index} {case}", BOUNDS[dtype], check.reference
    arguments = z, v, m, n, sums, counts, np.array(entries, np.int32), np.array(-index << 40)
    found = check.call(kernel, arguments, what)

    mean, count = ref.codebook_accumulate(z, v, m, n)
    check.close(found[0], mean, bound, f"{what}: accumulate")
    check.require(np.array_equal(found[1], count), f"{what}: counts")
    means, scanned = ref.codebook_scan(z, v, m, n, block=block, entries=entries)
    for i, reduction in enumerate(REDUCTIONS):
        check.close(found[2 + 2 * i], means, bound, f"{what}: {reduction}")
        check.require(np.array_equal(found[3 + 2 * i], scanned), f"{what}: counts, {reduction}")
    for i, reduction in enumerate(REDUCTIONS if options["rounded"] else ()):
        behind, within, rounded_counts = found[12 + 3 * i : 15 + 3 * i]
        check.require(behind.tobytes() == within.tobytes(), f"{what}: {reduction}, rounded within and behind it")
        check.require(np.array_equal(rounded_counts, scanned), f"{what}: counts, {reduction}, rounded")
    with np.errstate(divide="ignore"):
        logs = np.log(scanned.astype(float))
    check.close(found[8], logs, 2e-7, f"{what}: log_count")
    updated = ref.codebook_update(v, z, sums, counts, rate=0.9, replace_below=case["replace_below"], seed=-index << 40)
    rounding = {} if case["wide"] else {"bf16": 1e-2, "f16": 2e-3}
    check.close(found[9], updated[0], rounding.get(dtype, bound), f"{what}: codebook")
    check.close(found[10], updated[1], bound, f"{what}: sums")
    check.close(found[11], updated[2], bound, f"{what}: smoothed counts")


check.matrix(FACTORS, 11, run)

if check.only is None:
    # A bf16 number cannot count beyond 256, nor an f16 one beyond 2048.
    for dtype in ("bf16", "f16", "f32"):
        kernel = check.library.compile(module(dtype, 1, 1, 1, 5000, 2, 3, 11, 500))
        v = normal(np.random.default_rng(2), (1, 1, 5000, 3), dtype)
        z, m, n = np.zeros((1, 1, 5000), np.int32), np.zeros((1, 1, 2, 3), np.float32), np.zeros((1, 1, 2), np.int32)
        n[0, 0, 0] = (1 << 24) + 1  # nor an f32 one beyond 2^24
        found = kernel(z, v, m, n, np.zeros((1, 2, 3), np.float32), np.zeros((1, 2), np.float32), np.array(11, np.int32),
                       np.array(0))
        for i in (3, 5, 7):
            expected = n[0, 0, 0] + 500 * np.arange(11)
            check.require(np.array_equal(found[i][0, 0, :, 0], expected) and not found[i][..., 1].any(), f"{dtype}: counts")

    # All counts, and what is none; a count alone.
    counts = np.r_[np.arange(-3, 70000), 2 ** np.arange(17, 31), 2**31 - 1].astype(np.int32)
    for given, (type, bound) in itertools.product((counts, np.array(7, np.int32)), (("f32", 2e-7), ("f64", 3e-16))):
        if type not in check.types():
            continue
        i, o = tensor(given.shape, "i32"), tensor(given.shape, type)
        text = (f"func.func @f(%n: {i}) -> {o} {{\n  %e = tensor.empty() : {o}\n"
                f"  %l = attn.log_count ins(%n : {i}) outs(%e : {o}) -> {o}\n  return %l : {o}\n}}\n")
        with np.errstate(divide="ignore", invalid="ignore"):
            expected = np.log(given.astype(float))
        found = check.library.compile(text)(given)[0]
        check.close(found, expected, bound, f"log_count {type}")
        finite = np.isfinite(expected)
        error = np.abs(found[finite].astype(float) - expected[finite]) / np.spacing(expected[finite].astype(NAMES[type]).clip(0.5))
        check.require(error.max() <= 1.0, f"log_count {type}: {error.max():.3g} ulp")

    # A code that is none ends the call, on every path, with its position.
    for target in check.targets():
        kernel = check.library.compile(module("f32", 2, 3, 3, 40, 5, 4, 2, 20), target=target)
        for position, code in (((0, 0, 0), 5), ((1, 2, 39), -2), ((1, 0, 17), 1 << 30)):
            z = np.zeros((2, 3, 40), np.int32)
            z[position] = code
            z[1, 2, 39] = -2 if position == (1, 2, 39) else 7
            try:
                kernel(z, np.zeros((2, 3, 40, 4), np.float32), np.zeros((2, 3, 5, 4), np.float32),
                       np.zeros((2, 3, 5), np.int32), np.zeros((3, 5, 4), np.float32), np.zeros((3, 5), np.float32),
                       np.array(2, np.int32), np.array(0))
                text = "no failure"
            except Failure as failure:
                text = str(failure)
            needed = f"attn.codebook_accumulate: codes{list(position)} must be -1, or at least 0 and below 5, but got {code}"
            check.require(needed in text, f"{target} {position}: {text}")
check.finish()
