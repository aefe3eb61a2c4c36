# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attn.stream with several sources and per-block ranges, against NumPy."""

import math

import numpy as np
from cases import BOUNDS, Checker, mask_text, normal, state, tensor

check = Checker()

# Ranges of one source, as text that is both an affine expression and Python
# once floordiv is written //. `c` is the block size.
RANGES = {
    "all": ["(0, rows)"],
    "near": ["(b * c - c, b * c + 2 * c)"],
    "past": ["(0, b - 1)"],
    "around": ["(0, b - 1)", "(b + 2, rows)"],
    "levels": [
        "(b floordiv 2 * 2 - 2, b - 1, 0, n floordiv 8)",
        "(n floordiv 8 + b floordiv 2 - 2, n floordiv 8 + b floordiv 2 - 1, n floordiv 8, rows)",
    ],
    "odd": ["(b mod 3 * 5, b mod 3 * 5 + 4)", "(b * 2 + 20, b * 3 + 25)"],
    "outside": ["(0 - 10, b - 5)", "(rows + 3, rows + 9)"],
}
FACTORS = {
    "N": [1, 13, 64, 97, 200],
    "block": [4, 16, 24, 64, 100],
    "width": [(16, 16), (5, 20), (64, 64), (80, 1), (1, 130)],
    "heads": [(1, 1, 1), (2, 2, 1), (1, 4, 2)],
    "sources": [
        [("near", "same", (True, None), None, None)],
        [("near", "same", (False, None), None, None), ("around", 90, (False, None), "lw", None)],
        [("near", "same", (True, None), None, "b"), ("levels", 40, (False, None), "lw", None)],
        [("all", 700, (False, None), "lw", None), ("odd", 70, (False, None), None, "b")],
        [("all", "same", (True, 11), None, None), ("past", 30, (False, None), None, None)],
        [("outside", 20, (False, None), None, None)],
        [("near", "same", (True, 5), "lw", "b"), ("past", 30, (True, None), None, None)],
        [("all", 60, (False, 40), None, None), ("all", 35, (True, None), "lw", None),
         ("near", "same", (False, None), None, "b")],
    ],
    "dtype": ["f32", "f64", "bf16", "f16"],
    "cpu": check.usable_cpus(),
    "sink": [False, True],
    "dynamic": [False, True],
    # Types of sources and output beside the query's.
    # Kernels of GPUs multiply one type.
    "mixed": [False, True] if check.library.target == "cpu" else [False],
}
if check.chip == "sm_90a":
    # What its kernel takes: rows of 16 bytes, a few queries, blocks of 64.
    FACTORS |= {
        "N": [33, 64, 129, 300, 385],
        "block": [64, 128, 192, 256],
        "width": [(16, 16), (24, 40), (64, 64), (128, 128), (72, 200), (136, 8)],
        "dtype": ["bf16", "f16"],
        "mixed": [False],
    }


def parse(text, block):
    return text.replace(" * c", f" * {block}").replace("- c", f"- {block}").replace("2 * c", f"{2 * block}")


def admitted(N, rows, block, ranges, mask):
    """The entries that a source contributes."""
    holds = np.zeros((N, rows), bool)
    for i in range(N):
        for text in ranges:
            names = {"b": i // block, "rows": rows, "n": N}
            bounds = eval(text.replace("floordiv", "//").replace("mod", "%"), names)
            low, high = max(bounds[0], 0), min(bounds[1], rows)
            if len(bounds) == 4:
                low, high = max(low, bounds[2]), min(high, bounds[3])
            holds[i, low:max(low, high)] = True
    distance = np.arange(N)[:, None] + rows - N - np.arange(rows)
    causal, window = mask
    if causal:
        holds &= distance >= 0
    if window:
        holds &= np.abs(distance) < window
    return holds


def run(index, case):
    rng = np.random.default_rng(index)
    N, block, dtype, dynamic = (case[key] for key in ("N", "block", "dtype", "dynamic"))
    (D, E), (B, H, G) = case["width"], case["heads"]
    kinds = ["f32", "bf16", "f16"] if case["mixed"] and dtype != "f64" else [dtype]
    arrays, names, types = [], [], []

    def operand(name, shape, kind):
        array = normal(rng, shape, kind)
        extents = [None if dynamic and i < 3 and (i != 1 or shape[1] == H) else n for i, n in enumerate(shape)]
        arrays.append(array)
        names.append(name)
        types.append(tensor(extents, kind))
        return array, f"{name}", types[-1]

    q, _, q_type = operand("%q", (B, H, N, D), dtype)
    text = f"attn.stream query(%q : {q_type})\n"
    scores, values, scale = [], [], 1 / math.sqrt(D)
    for u, (kind, rows, mask, weight, bias) in enumerate(case["sources"]):
        rows = N if rows == "same" else rows
        k, k_name, k_type = operand(f"%k{u}", (B, G, rows, D), kinds[(index + u) % len(kinds)])
        v, v_name, v_type = operand(f"%v{u}", (B, G, rows, E), kinds[(index // 3 + u) % len(kinds)])
        text += f"    source({k_name}, {v_name} : {k_type}, {v_type})"
        groups = H // G
        score = scale * q.astype(float) @ np.repeat(k.astype(float), groups, 1).swapaxes(-1, -2)
        if weight:
            w, name, kind_type = operand(f"%w{u}", (B, G, rows), state(dtype))
            text += f" log_weight({name} : {kind_type})"
            score += np.repeat(w, groups, 1)[:, :, None]
        if bias:
            x, name, kind_type = operand(f"%b{u}", (B, H, N, rows), dtype)
            text += f" bias({name} : {kind_type})"
            score += x.astype(float)
        ranges = [parse(r, block) for r in RANGES[kind]]
        maps = ", ".join(f"affine_map<(b)[rows, n] -> {r}>" for r in ranges)
        text += f" ranges [{maps}]" + mask_text(*mask).replace("mask = #attn.mask", " mask ") + "\n"
        scores.append(np.where(admitted(N, rows, block, ranges, mask), score, -np.inf))
        values.append(np.repeat(v.astype(float), groups, 1))
    sink = np.full((1, 1, 1, 1), -np.inf)
    if case["sink"]:
        sink, name, kind_type = operand("%s", (B, H), dtype)
        text += f"    sink({name} : {kind_type})\n"
        sink = sink.astype(float)[:, :, None, None]
    out_kind = kinds[index % 2 % len(kinds)]
    out_type = tensor([None if dynamic else n for n in (B, H, N)] + [E], out_kind)
    lse_type = tensor([None if dynamic else n for n in (B, H, N)], state(dtype))
    body = "".join(f"  %c{i} = arith.constant {i} : index\n  %d{i} = tensor.dim %q, %c{i} : {q_type}\n" for i in range(3))
    sizes = "%d0, %d1, %d2" if dynamic else ""
    body += f"  %o = tensor.empty({sizes}) : {out_type}\n  %l = tensor.empty({sizes}) : {lse_type}\n"
    arguments = ", ".join(f"{n}: {t}" for n, t in zip(names, types))
    module = (
        f"func.func @f({arguments}) -> ({out_type}, {lse_type}) {{\n{body}  %r:2 = {text}"
        f"    outs(%o, %l : {out_type}, {lse_type}) {{block = {block} : i64, scale = {scale!r} : f64}}"
        f" -> {out_type}, {lse_type}\n  return %r#0, %r#1 : {out_type}, {lse_type}\n}}\n"
    )
    found = check.library.compile(module, cpu=case["cpu"])(*arrays)
    score = np.concatenate(scores, axis=-1)
    top = np.maximum(score.max(axis=-1, keepdims=True), sink)
    p = np.exp(score - np.where(top == -np.inf, 0, top))
    total = p.sum(axis=-1, keepdims=True) + np.exp(sink - np.where(top == -np.inf, 0, top))
    out = p @ np.concatenate(values, axis=2) / np.where(total == 0, 1, total)
    with np.errstate(divide="ignore"):
        lse = (np.where(total == 0, 0, top) + np.log(total))[..., 0]
    what = f"case {index} {case}"
    check.close(found[0], out, BOUNDS[out_kind], what)
    check.close(found[1], lse, 1e-5, what + " lse", absolute=True)


check.matrix(FACTORS, 2, run)
check.finish()
