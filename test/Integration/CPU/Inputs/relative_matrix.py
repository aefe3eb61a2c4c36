# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attn.stream with terms by distance, against NumPy: keys of their own or rows of a table,
masks, origins, other terms, another source and a sink beside."""

import math

import numpy as np
from cases import BOUNDS, Checker, mask_text, normal, softmax_of, state, tensor

check = Checker()

FACTORS = {
    "N": [1, 2, 13, 63, 65, 97, 200],
    "block": [4, 16, 24, 64, 100],
    "width": [(16, 16), (5, 20), (64, 64), (80, 1), (1, 130), (33, 7)],
    "heads": [(1, 1, 1), (2, 2, 1), (1, 4, 2), (2, 6, 3)],
    # Ranges and mask: rows of two blocks, all rows, a window. "before" has rows that lie
    # before the first query, as its origin says.
    "rows": ["near", "near", "all", "window", "before"],
    "codes": [False, True],
    # Whether heads share a term; None for none of it.
    "relative": [None, False, True],
    "distance_bias": [None, False, True],
    # Terms beyond the largest distance.
    "spare": [0, 3, 40],
    "bias": [None, "rows"],
    "weight": [False, True],
    "other": [False, True],
    "sink": [False, True],
    "weighting": ["softmax", "softmax", "squared_relu"],
    "dtype": check.types(),
    # Terms in the type of sums.
    "wide": [False, True],
    "cpu": check.usable_cpus(),
    "dynamic": [False, True],
}

if check.chip == "sm_90a":
    # What its kernel takes: rows of 16 bytes, blocks of 64 queries.
    FACTORS |= {
        "N": [33, 64, 129, 300],
        "block": [64, 128],
        "width": [(16, 16), (24, 40), (64, 64), (128, 128)],
        "dtype": ["bf16", "f16"],
    }


def run(index, case):
    rng = np.random.default_rng(index)
    N, block, dtype, dynamic = (case[key] for key in ("N", "block", "dtype", "dynamic"))
    (D, E), (B, H, G) = case["width"], case["heads"]
    if case["relative"] is None and case["distance_bias"] is None:
        case = case | {"relative": False}
    S, scale = 11, 1 / math.sqrt(D)
    kind = state(dtype) if case["wide"] else dtype
    rows = block if case["rows"] == "before" else N
    arguments, arrays = [], []

    def operand(name, shape, type, keep=()):
        array = rng.integers(0, S, shape, np.int32) if type == "i32" else normal(rng, shape, type)
        extents = [None if dynamic and i in (0, 2) and i not in keep and n != 1 else n for i, n in enumerate(shape)]
        arrays.append(array)
        arguments.append(f"{name}: {tensor(extents, type)}")
        return (array if type == "i32" else array.astype(float)), tensor(extents, type)

    def repeat(x):
        return np.repeat(x, H // G, 1)

    i, j = np.arange(N)[:, None], np.arange(rows)
    q, q_type = operand("%q", (B, H, N, D), dtype)
    v, v_type = operand("%v", (B, G, rows, E), dtype)
    if case["codes"]:
        k, k_type = operand("%k", (B, G, S, D), dtype, keep=(2,))
        z, z_type = operand("%z", (B, G, rows), "i32")
        k = np.take_along_axis(k, z[..., None], 2)
    else:
        k, k_type = operand("%k", (B, G, rows, D), dtype)
    text = f"    source(%k, %v : {k_type}, {v_type})" + (f" codes(%z : {z_type})" if case["codes"] else "")
    score = scale * np.einsum("bhnd,bhmd->bhnm", q, repeat(k))
    weight = np.zeros((B, H, N, rows))
    if case["weight"]:
        w, w_type = operand("%w", (B, G, rows), state(dtype))
        arrays[-1][..., ::3] = -np.inf
        w[..., ::3] = -np.inf
        weight = repeat(w)[:, :, None].repeat(N, 2)
        text += f" log_weight(%w : {w_type})"
    if case["bias"]:
        x, x_type = operand("%x", (1, H, N, rows), dtype)
        score = score + x
        text += f" bias(%x : {x_type})"
    # Rows that are read, and how far before the queries they are.
    origin, mask = "", (True, None)
    first, last = i // block * block - block, i // block * block + block
    ranges = f"b * {block} - {block}, b * {block} + {block}"
    if case["rows"] in ("all", "window"):
        first, last, ranges = 0, rows, "0, rows"
    if case["rows"] == "window":
        mask = (True, block)
    distance = i - j
    if case["rows"] == "before":
        # Of which only the first block reads something.
        distance, mask, origin = i - j + block, (False, None), f" origin affine_map<()[rows, n] -> (-{block})>"
        first, last, ranges = i // block * block, rows, f"b * {block}, rows"
    reads = (j >= first) & (j < last) & (distance >= 0)
    if mask[1]:
        reads &= distance < block
    most = {"near": 2 * block, "before": 2 * block, "all": N, "window": block}[case["rows"]]
    R = most + case["spare"]
    nearest = np.clip(distance, 0, R - 1)
    if case["relative"] is not None:
        heads = 1 if case["relative"] else H
        r, r_type = operand("%r", (heads, R, D), kind, keep=(0, 1, 2))
        u, u_type = operand("%u", (H if case["spare"] else heads, D), kind, keep=(0, 1))
        text += f" relative(%r, %u : {r_type}, {u_type})"
        r = np.broadcast_to(r, (H, R, D))
        score = score + scale * np.einsum("bhnd,hnmd->bhnm", q + u[:, None], r[:, nearest])
    if case["distance_bias"] is not None:
        t, t_type = operand("%t", (1 if case["distance_bias"] else H, R), kind, keep=(0, 1))
        if case["spare"] == 3:
            arrays[-1][:, 1::4] = -np.inf
            t[:, 1::4] = -np.inf
        text += f" distance_bias(%t : {t_type})"
        score = score + np.broadcast_to(t, (H, R))[:, nearest]
    text += origin + f" ranges [affine_map<(b)[rows, n] -> ({ranges})>]"
    text += mask_text(*mask).replace("mask = #attn.mask", " mask ") + "\n"
    scores, logs, values = [np.where(reads, score, -np.inf)], [weight], [repeat(v)]
    if case["other"]:
        l, l_type = operand("%l", (B, G, 7, D), dtype)
        m, m_type = operand("%m", (B, G, 7, E), dtype)
        text += f"    source(%l, %m : {l_type}, {m_type}) ranges [affine_map<(b)[rows, n] -> (0, rows)>]\n"
        scores.append(scale * np.einsum("bhnd,bhmd->bhnm", q, repeat(l)))
        logs.append(np.zeros(scores[-1].shape))
        values.append(repeat(m))

    softmax = case["weighting"] == "softmax"
    if case["sink"] and softmax:
        sink, sink_type = operand("%s", (1, H), dtype, keep=(0, 1))
        text += f"    sink(%s : {sink_type})\n"
    sizes = [None if dynamic else n for n in (B, H, N)]
    out_type, lse_type = tensor([*sizes, E], dtype), tensor(sizes, state(dtype))
    body = "".join(f"  %c{i} = arith.constant {i} : index\n  %d{i} = tensor.dim %q, %c{i} : {q_type}\n" for i in range(3))
    inits, types = ["%o"] + ["%lse"] * softmax, [out_type] + [lse_type] * softmax
    for init, type in zip(inits, types):
        body += f"  {init} = tensor.empty({'%d0, %d1, %d2' if dynamic else ''}) : {type}\n"
    types, results = ", ".join(types), ", ".join(f"%f#{n}" for n in range(len(inits)))
    weighting = "" if softmax else ", weighting = #attn.weighting<squared_relu>"
    module = (
        f"func.func @f({', '.join(arguments)}) -> ({types}) {{\n{body}"
        f"  %f:{len(inits)} = attn.stream query(%q : {q_type})\n{text}"
        f"    outs({', '.join(inits)} : {types}) {{block = {block} : i64, scale = {scale!r} : f64{weighting}}}"
        f" -> {types}\n  return {results} : {types}\n}}\n"
    )
    score, log, value = (np.concatenate(x, axis=axis) for x, axis in ((scores, 3), (logs, 3), (values, 2)))
    if softmax:
        score = score + log
        if case["sink"]:
            score = np.concatenate([score, np.broadcast_to(sink[..., None, None], (B, H, N, 1))], 3)
            value = np.concatenate([value, np.zeros((B, H, 1, E))], 2)
        p, lse = softmax_of(score)
    else:
        p = np.maximum(np.where(np.isfinite(score), score, 0), 0) ** 2 * np.exp(log)
    what = f"case {index} {case}"
    for target in check.targets():
        found = check.library.compile(module, target=target, cpu=case["cpu"])(*arrays)
        check.close(found[0], p @ value, BOUNDS[dtype], f"{what} {target}")
        if softmax:
            check.close(found[1], lse, 1e-5, f"{what} {target} lse", absolute=True)


check.matrix(FACTORS, 5, run)
check.finish()
