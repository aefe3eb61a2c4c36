# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attn.low_rank against the references, over shapes, masks, types and CPUs."""

import numpy as np
from cases import BOUNDS, Checker, tensor
from hidden import check_hidden, plant, somewhere
from low_rank_cases import HEADS, MASKS, hidden_bound, in_columns, make_factors, make_mask, mask_heads, part_types, reading_rows

check = Checker()

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
    lead = mask_heads(case, M)
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


check.matrix(FACTORS, 11, run)
check.finish()
