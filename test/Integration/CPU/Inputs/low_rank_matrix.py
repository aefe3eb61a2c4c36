# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attn.rope, attn.polynomial_features and attn.low_rank against the references,
over shapes, masks, types and CPUs."""

import math

import numpy as np
from cases import BOUNDS, Checker, normal, tensor
from hidden import check_hidden, plant, somewhere
from low_rank_cases import HEADS, hidden_bound, in_columns, make_factors, make_mask, part_types, reading_rows

check = Checker()
MASKS = ["causal", "row_change", "row_interval", "distinct_rows", "distinct_columns"]

FACTORS = {
    "mask": MASKS,
    # A chunk has 16 rows under the causal mask and 32 under others, a segment 32
    # to 256, a task of rows 64.
    "rows": [0, 1, 2, 15, 16, 17, 31, 32, 33, 64, 97, 256, 257, 601],
    # Columns of the mask, beside as many as rows.
    "columns": [None, None, 1, 13, 32, 65, 200],
    "rank": [1, 2, 3, 5, 8, 16, 17, 33, 64],
    "width": [1, 3, 8, 15, 16, 17, 64, 65, 144],
    # Batch entries, heads, key heads.
    "heads": HEADS,
    "dtype": check.types(),
    "features": ["positive", "normal"],
    "per_head": [False, True],
    "cpu": check.usable_cpus(),
    "dynamic": [False, True],
}


def module(dtype, mask, shapes, parts, dynamic):
    def kind(shape, element):
        # Widths are static; so is the number of heads where it is one.
        if not dynamic:
            return tensor(shape, element)
        free = [n if i == len(shape) - 1 and element == dtype else None for i, n in enumerate(shape)]
        return tensor([1 if n == 1 and i < 2 else f for i, (n, f) in enumerate(zip(shape, free))], element)

    u1, u2, v, out = (kind(shape, dtype) for shape in shapes)
    kinds = part_types(parts, kind)
    names = [f"%m{i}" for i in range(len(parts))]
    clause = f" mask({', '.join(names)} : {', '.join(kinds)})" if parts else ""
    arguments = [f"%u1: {u1}", f"%u2: {u2}", f"%v: {v}"] + [f"{n}: {k}" for n, k in zip(names, kinds)]
    body, sizes = "", []
    for i in range(3):
        if "?" in out.split("x")[i]:
            body += f"  %c{i} = arith.constant {i} : index\n  %d{i} = tensor.dim %u1, %c{i} : {u1}\n"
            sizes.append(f"%d{i}")
    return (f"func.func @f({', '.join(arguments)}) -> {out} {{\n{body}"
            f"  %o = tensor.empty({', '.join(sizes)}) : {out}\n"
            f"  %r = attn.low_rank ins(%u1, %u2, %v : {u1}, {u2}, {v}){clause} outs(%o : {out})"
            f" {{mask = #attn.row_mask<{mask}>}} -> {out}\n  return %r : {out}\n}}\n")


def run(index, case):
    rng = np.random.default_rng(index)
    dtype, N, E = (case[key] for key in ("dtype", "rows", "width"))
    B, H, G = case["heads"]
    M = N if case["columns"] is None else case["columns"]
    if case["mask"] == "row_interval":
        M = max(M, 1)
    u1, u2, v = make_factors(rng, case, N, M)
    shapes = u1.shape, u2.shape, v.shape, (B, H, N, E)
    lead = (B, H) if case["per_head"] else (1, 1)
    if case["mask"] == "row_change" and M == 0:
        lead = (1, 1)
    parts, entries = make_mask(check.reference, rng, case["mask"], lead, N, M) if M or case["mask"] == "causal" else (
        make_mask(check.reference, rng, case["mask"], lead, 0, 0))
    if N and M == 0 and case["mask"] not in ("causal",):
        return
    kernel = check.library.compile(module(dtype, case["mask"], shapes, parts, case["dynamic"]), cpu=case["cpu"])
    what = f"case {index} {case}"
    found = check.call(kernel, (u1, u2, v, *map(np.ascontiguousarray, parts)), what)[0]
    expected = check.reference.low_rank(u1, u2, v, np.broadcast_to(entries, (B, H, N, M)))
    check.close(found, expected, BOUNDS[dtype], what)
    arrays, name = {"u1": u1, "u2": u2, "v": v}, ("u1", "u2", "v")[index % 3]
    for at, number in somewhere(rng, arrays, name):
        entries = np.broadcast_to(entries, (B, H, N, M))
        check_number(kernel, case["mask"], arrays, parts, found, entries, name, at, number, what)


def check_number(kernel, mask, arrays, parts, clean, entries, name, at, number, what):
    """A NaN or an infinity is in the rows that read it, and nowhere else."""
    what = f"{what} {name}{[int(i) for i in at]} = {number}"
    dirty = plant(arrays, name, at, number)
    rows, column = reading_rows(entries, name, at, arrays["u2"].shape[1])
    reads = in_columns(rows, column, clean.shape[3])
    found = kernel(*dirty.values(), *map(np.ascontiguousarray, parts))[0]
    expected = check.reference.low_rank(*dirty.values(), entries)
    check.require(np.array_equal(np.isnan(expected), reads), f"{what}: the reference")
    bound = hidden_bound(mask, clean.dtype, BOUNDS)
    check_hidden(check, [found], [clean], [reads], what, bound)


def rope_text(dtype, shape, positions, base):
    x, p = tensor(shape, dtype), tensor(positions, "i32")
    return (f"func.func @f(%x: {x}, %p: {p}) -> {x} {{\n  %o = tensor.empty() : {x}\n"
            f"  %r = attn.rope ins(%x, %p : {x}, {p}) outs(%o : {x}) {{base = {base!r} : f64}} -> {x}\n"
            f"  return %r : {x}\n}}\n")


def check_row(run, x, clean, what, pairs=False):
    """A row, or a pair of its columns, has its own numbers only."""
    if not x.size:
        return
    at = tuple(n // 2 for n in x.shape)
    dirty = plant({"x": x}, "x", at, np.nan)["x"]
    found = run(dirty)[0]
    row, before = found[at[:3]].copy(), clean[at[:3]]
    column = at[3] // 2 * 2
    own = np.isnan(row[column : column + 2]).all() if pairs else np.isnan(row).any()
    check.require(own, f"{what}: NaN missed")
    if pairs:
        row[column : column + 2] = before[column : column + 2]
        check.require(np.array_equal(row, before), f"{what}: differs in another pair")
    found[at[:3]] = before
    check.require(np.array_equal(found, clean), f"{what}: differs in another row")


def check_rope():
    rng = np.random.default_rng(1)
    cases = [
        ((1, 1, 1, 2), (1, 1, 1), 1e4), ((2, 3, 17, 64), (1, 1, 17), 1e4), ((2, 3, 65, 34), (2, 1, 65), 1e4),
        ((2, 2, 7, 10), (2, 2, 7), 5e5), ((1, 2, 130, 96), (1, 2, 130), 1e4), ((1, 4, 5, 6), (1, 1, 1), 7.0),
        ((1, 1, 3, 256), (1, 1, 3), 0.5), ((0, 2, 5, 4), (1, 1, 5), 1e4),
    ]
    for (shape, at, base), dtype, cpu in ((c, d, p) for c in cases for d in check.types() for p in check.usable_cpus()):
        if cpu != "native" and dtype not in ("f32", "f64"):
            continue
        x = normal(rng, shape, dtype)
        far = 1 << (30 if dtype != "f64" else 12)
        positions = rng.integers(-far, far, at).astype(np.int32)
        kernel = check.library.compile(rope_text(dtype, shape, at, base), cpu=cpu)
        found = kernel(x, positions)[0]
        expected = check.reference.rope(x, positions, base=base)
        check.close(found, expected, BOUNDS[dtype], f"rope {shape} {at} {dtype} {cpu}")

        def turn(x, kernel=kernel, positions=positions):
            return kernel(x, positions)

        check_row(turn, x, found, f"rope {shape} {at} {dtype} {cpu}", pairs=True)


def check_features():
    rng = np.random.default_rng(2)
    cases = [((1, 1, 1, 1), 0), ((1, 2, 3, 1), 5), ((2, 2, 9, 3), 3), ((1, 2, 33, 16), 2), ((1, 1, 5, 17), 3),
             ((1, 1, 2, 64), 2), ((1, 1, 70, 7), 4), ((1, 0, 3, 4), 1)]
    for (shape, degree), dtype, cpu in ((c, d, p) for c in cases for d in check.types() for p in check.usable_cpus()):
        if cpu != "native" and dtype not in ("f32", "f64"):
            continue
        x = normal(rng, shape, dtype)
        out = tensor((*shape[:3], math.comb(shape[3] + degree, degree)), dtype)
        kind = tensor(shape, dtype)
        text = (f"func.func @f(%x: {kind}) -> {out} {{\n  %o = tensor.empty() : {out}\n"
                f"  %r = attn.polynomial_features ins(%x : {kind}) outs(%o : {out})"
                f" {{degree = {degree} : i64, scale = 0.25 : f64}} -> {out}\n  return %r : {out}\n}}\n")
        kernel = check.library.compile(text, cpu=cpu)
        found = kernel(x)[0]
        if degree > 0:
            check_row(kernel, x, found, f"features {shape} {degree} {dtype} {cpu}")
        expected = check.reference.polynomial_features(x, degree=degree, scale=0.25)
        check.close(found, expected, BOUNDS[dtype], f"features {shape} {degree} {dtype} {cpu}")
        if dtype == "f64" and x.size:
            products = x @ x.swapaxes(-1, -2) * 0.25
            series = sum(products**g / math.factorial(g) for g in range(degree + 1))
            check.close(found @ found.swapaxes(-1, -2), series, 1e-13, f"series {shape} {degree} {cpu}")


check.matrix(FACTORS, 11, run)
if check.only is None:
    check_rope()
    check_features()
check.finish()
