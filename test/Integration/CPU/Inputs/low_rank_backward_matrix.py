# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attn.low_rank_backward against all entries in NumPy, the reference pipeline
against the same, and the bits of threads."""

import numpy as np
from cases import BOUNDS, Checker, normal, state, tensor
from hidden import check_hidden, plant, somewhere
from kernels import NAMES
from low_rank_cases import HEADS, MASKS, hidden_bound, in_columns, make_factors, make_mask, mask_heads, part_types, reading_rows

check = Checker()

FACTORS = {
    "mask": MASKS,
    # A chunk has 16 or 32 rows, a segment 32 to 256, a task of rows 64.
    "rows": [0, 1, 32, 33, 150, 270],
    # Columns of the mask, beside as many as rows.
    "columns": [None, 1, 65, 200],
    # A run of a tree has 32 columns, or 64.
    "rank": [1, 8, 17, 33],
    "width": [1, 15, 16, 40],
    "heads": HEADS,
    "dtype": ["f32", "f64", "bf16", "f16"],
    "features": ["positive", "normal"],
    "per_head": [False, True],
    # The types of the gradients.
    "sums": [True, False],
    "cpu": check.usable_cpus(),
    "dynamic": [False, True],
}


def module(case, shapes, parts):
    dtype = case["dtype"]

    def kind(shape, element):
        if not case["dynamic"]:
            return tensor(shape, element)
        return tensor([1 if n == 1 else None if i == 2 else n for i, n in enumerate(shape)], element)

    types = {name: kind(shape, dtype) for name, shape in shapes.items()}
    results = {f"d_{name}": kind(shapes[name], state(dtype) if case["sums"] else dtype)
               for name in ("u1", "u2", "v")}  # fmt: skip
    kinds = part_types(parts)
    names = [f"%m{i}" for i in range(len(parts))]
    clause = f" mask({', '.join(names)} : {', '.join(kinds)})" if parts else ""
    arguments = [f"%{n}: {t}" for n, t in types.items()] + [f"{n}: {k}" for n, k in zip(names, kinds)]
    body = "  %c2 = arith.constant 2 : index\n"
    for name, result in results.items():
        source = name[2:]
        body += f"  %n_{source} = tensor.dim %{source}, %c2 : {types[source]}\n"
        size = f"%n_{source}" if "?" in result else ""
        body += f"  %{name} = tensor.empty({size}) : {result}\n"
    outs = ", ".join(results.values())
    return (
        f"func.func @f({', '.join(arguments)}) -> ({outs}) {{\n{body}"
        f"  %r:3 = attn.low_rank_backward ins(%u1, %u2, %v : {types['u1']}, {types['u2']}, {types['v']}){clause}"
        f" forward(%out : {types['out']}) gradient(%d_out : {types['d_out']})"
        f" outs({', '.join('%' + n for n in results)} : {outs})"
        f" {{mask = #attn.row_mask<{case['mask']}>}} -> {outs}\n"
        f"  return %r#0, %r#1, %r#2 : {outs}\n}}\n"
    )


def sizes(d_out, u1, u2, v, entries):
    """The largest sums of absolute values in each of the gradients: a gradient that
    cancels, as that of u1 does for one feature or one key, is only as good."""
    found = [np.zeros(x.shape) for x in (u1, u2, v)]
    d_out, u1, u2, v = (abs(x.astype(float)) for x in (d_out, u1, u2, v))
    for b, h in np.ndindex(u1.shape[:2]):
        g = h // (u1.shape[1] // u2.shape[1])
        weights = entries[b, h] * (u1[b, h] @ u2[b, g].T)
        inverse = 1 / np.maximum(weights.sum(1, keepdims=True), 1e-30)
        products = entries[b, h] * (d_out[b, h] @ v[b, g].T) * inverse
        found[0][b, h] = products @ u2[b, g]
        found[1][b, g] += products.T @ u1[b, h]
        found[2][b, g] += (weights * inverse).T @ d_out[b, h]
    return [x.max(initial=0) for x in found]


def run(index, case):
    rng = np.random.default_rng(index)
    dtype, N = case["dtype"], case["rows"]
    B, H, G = case["heads"]
    M = N if case["columns"] is None else case["columns"]
    if M == 0 and case["mask"] != "causal":
        return
    u1, u2, v = make_factors(rng, case, N, M)
    lead = mask_heads(case, M)
    parts, entries = make_mask(check.reference, rng, case["mask"], lead, N, M)
    entries = np.broadcast_to(entries, (B, H, N, M))
    out = check.reference.low_rank(u1, u2, v, entries).astype(NAMES[dtype])
    d_out = normal(rng, out.shape, dtype)
    arrays = {"u1": u1, "u2": u2, "v": v, "out": out, "d_out": d_out}
    text = module(case, {name: array.shape for name, array in arrays.items()}, parts)
    arguments = [*arrays.values(), *map(np.ascontiguousarray, parts)]
    expected = check.reference.low_rank_backward(d_out, u1, u2, v, entries)
    largest = sizes(d_out, u1, u2, v, entries)
    for target in check.targets():
        kernel = check.library.compile(text, target=target, cpu=case["cpu"])
        what = f"case {index} {case} {target}"
        found = check.call(kernel, arguments, what, (1, 2, 3, 7) if target == "cpu" else (1,))
        for name, one, other, size in zip(("d_u1", "d_u2", "d_v"), found, expected, largest):
            cancels = np.abs(other).max(initial=0) < 0.1 * size
            unit = size if cancels and size else 1.0
            check.close(one / unit, other / unit, 2 * BOUNDS[dtype], f"{what} {name}", absolute=cancels)
        name = ("u1", "u2", "v", "d_out")[index % 4]
        for at, number in somewhere(np.random.default_rng(index), arrays, name):
            check_number(kernel, case["mask"], arrays, parts, found, entries, name, at, number, what)


def check_number(kernel, mask, arrays, parts, clean, entries, name, at, number, what):
    """A NaN or an infinity is in the gradients that read it, and nowhere else."""
    what = f"{what} {name}{[int(i) for i in at]} = {number}"
    dirty = plant(arrays, name, at, number)
    u1, u2, v, out, d_out = dirty.values()
    G, dtype = u2.shape[1], out.dtype
    dirty["out"] = check.reference.low_rank(u1, u2, v, entries).astype(dtype)
    rows, column = reading_rows(entries, name, at, G)
    # Keys that one of the rows reads.
    keys = (entries & rows[..., None]).any(2)
    keys = keys.reshape(keys.shape[0], G, -1, keys.shape[2]).any(2)
    d_v = in_columns(keys, column if name == "d_out" else slice(None), v.shape[3])
    reads = (in_columns(rows, slice(None), u1.shape[3]), in_columns(keys, slice(None), u2.shape[3]),
             d_v if name != "v" else np.zeros(v.shape, bool))  # fmt: skip
    found = kernel(*dirty.values(), *map(np.ascontiguousarray, parts))
    expected = check.reference.low_rank_backward(d_out, u1, u2, v, entries)
    for one, read in zip(expected, reads):
        check.require(np.array_equal(~np.isfinite(one), read), f"{what}: the reference")
    check_hidden(check, found, clean, reads, what, hidden_bound(mask, dtype, BOUNDS))


check.matrix(FACTORS, 11, run)
check.finish()
