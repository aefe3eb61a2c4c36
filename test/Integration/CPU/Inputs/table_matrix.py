# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attn.stream whose keys are rows of a table, against NumPy."""

import math

import numpy as np
from cases import BOUNDS, Checker, normal, softmax_of, state, tensor

check = Checker()

FACTORS = {
    "N": [1, 13, 64, 97, 200],
    "block": [4, 16, 24, 64, 100],
    "rows": [1, 3, 16, 50, 70],
    "width": [(16, 16), (5, 20), (64, 64), (80, 1), (1, 130)],
    # B, H, G, and whether batches and heads share the table.
    "heads": [(1, 1, 1, False), (2, 2, 1, True), (1, 4, 2, False), (2, 4, 2, True)],
    "causal": [False, True],
    "bias": [None, "local", "local broadcast", "rows"],
    # Another source of the table's rows: None, with a log weight, and with
    # values and log weights of their own for every block.
    "cache": [None, "plain", "weighted", "blocks"],
    "other": [False, True],
    "weighting": ["softmax", "squared_relu"],
    "dtype": check.types(),
    "cpu": check.usable_cpus(),
    "dynamic": [False, True],
    "mixed": [False, True],
}


def run(index, case):
    rng = np.random.default_rng(index)
    N, block, S, dtype, dynamic = (case[key] for key in ("N", "block", "rows", "dtype", "dynamic"))
    (D, E), (B, H, G, shared) = case["width"], case["heads"]
    softmax = case["weighting"] == "softmax"
    wide = "f32" if case["mixed"] and dtype != "f64" else dtype
    blocks = -(-N // block)
    arguments, arrays = [], []

    def operand(name, shape, kind, keep=()):
        array = rng.integers(0, S, shape, np.int32) if kind == "i32" else normal(rng, shape, kind)
        # Heads, widths, table rows and bias columns stay as they are.
        extents = [None if dynamic and i in (0, 2) and i not in keep and n != 1 else n for i, n in enumerate(shape)]
        arrays.append(array)
        arguments.append(f"{name}: {tensor(extents, kind)}")
        return array.astype(float) if kind != "i32" else array, f"{name}", tensor(extents, kind)

    def repeat(x):
        return np.repeat(np.broadcast_to(x, (B, G, *x.shape[2:])), H // G, 1)

    q, _, q_type = operand("%q", (B, H, N, D), dtype)
    c, _, c_type = operand("%c", (1 if shared else B, 1 if shared else G, S, D), dtype, keep=(0, 2))
    v, _, v_type = operand("%v", (B, G, N, E), dtype)
    z, _, z_type = operand("%z", (B, G, N), "i32")
    scale = 1 / math.sqrt(D)
    table = scale * np.einsum("bhnd,bhsd->bhns", q, repeat(c))
    score = np.take_along_axis(table, np.repeat(z, H // G, 1)[:, :, None].repeat(N, 2), -1)
    i, j = np.arange(N)[:, None], np.arange(N)
    holds = (j >= i // block * block - block) & (j < i // block * block + block)
    if case["causal"]:
        holds &= j <= i
    text = f"    source(%c, %v : {c_type}, {v_type}) codes(%z : {z_type})"
    if case["bias"] == "rows":
        x, _, x_type = operand("%x", (1, H, N, N), dtype)
        score = score + x
        text += f" bias(%x : {x_type})"
    elif case["bias"]:
        shape = (B, 1, 1, 2 * block) if "broadcast" in case["bias"] else (B, H, N, 2 * block)
        x, _, x_type = operand("%x", shape, dtype)
        column = np.clip(j - (i // block * block - block), 0, 2 * block - 1)
        score = score + np.take_along_axis(
            np.broadcast_to(x, (B, H, N, 2 * block)), np.broadcast_to(column, score.shape), -1)
        text += f" local_bias(%x : {x_type})"
    text += f" ranges [affine_map<(b)[rows, n] -> (b * {block} - {block}, b * {block} + {block})>]"
    text += " mask <causal>\n" if case["causal"] else "\n"
    # Weights and values of every query and entry: values may differ by query.
    scores, logs = [np.where(holds, score, -np.inf)], [np.zeros(score.shape)]
    values = [np.broadcast_to(repeat(v)[:, :, None], (B, H, N, N, E))]
    query_block = np.arange(N) // block
    if case["cache"]:
        has_blocks = case["cache"] == "blocks"
        m, _, m_type = operand("%m", (B, G, blocks, S, E) if has_blocks else (B, G, S, E), wide, keep=(2,))
        text += f"    source(%c, %m : {c_type}, {m_type})"
        weight = np.zeros((B, H, N, S))
        if case["cache"] != "plain":
            w, _, w_type = operand("%w", (B, G, blocks, S) if has_blocks else (B, G, S), state(dtype), keep=(2,))
            arrays[-1][..., :: 3] = -np.inf
            w[..., :: 3] = -np.inf
            text += f" log_weight(%w : {w_type})"
            weight = repeat(w)[:, :, query_block] if has_blocks else repeat(w)[:, :, None].repeat(N, 2)
        text += " ranges [affine_map<(b)[rows, n] -> (0, rows)>]\n"
        scores.append(table)
        logs.append(weight)
        m = repeat(m)
        values.append(m[:, :, query_block] if has_blocks else np.broadcast_to(m[:, :, None], (B, H, N, S, E)))
    if case["other"]:
        k, _, k_type = operand("%k", (B, G, 7, D), wide)
        u, _, u_type = operand("%u", (B, G, 7, E), wide)
        text += f"    source(%k, %u : {k_type}, {u_type}) ranges [affine_map<(b)[rows, n] -> (0, rows)>]\n"
        scores.append(scale * np.einsum("bhnd,bhmd->bhnm", q, repeat(k)))
        logs.append(np.zeros(scores[-1].shape))
        values.append(np.broadcast_to(repeat(u)[:, :, None], (B, H, N, 7, E)))

    out_type = tensor([None if dynamic else n for n in (B, H, N)] + [E], wide)
    lse_type = tensor([None if dynamic else n for n in (B, H, N)], state(dtype))
    body = "".join(f"  %c{i} = arith.constant {i} : index\n  %d{i} = tensor.dim %q, %c{i} : {q_type}\n" for i in range(3))
    sizes = "%d0, %d1, %d2" if dynamic else ""
    inits, types = ["%o"], [out_type]
    if softmax:
        inits.append("%l")
        types.append(lse_type)
    for init, type in zip(inits, types):
        body += f"  {init} = tensor.empty({sizes}) : {type}\n"
    types = ", ".join(types)
    results = ", ".join(f"%r#{i}" for i in range(len(inits)))
    weighting = "" if softmax else ", weighting = #attn.weighting<squared_relu>"
    module = (
        f"func.func @f({', '.join(arguments)}) -> ({types}) {{\n{body}"
        f"  %r:{len(inits)} = attn.stream query(%q : {q_type})\n{text}"
        f"    outs({', '.join(inits)} : {types}) {{block = {block} : i64, scale = {scale!r} : f64{weighting}}}"
        f" -> {types}\n  return {results} : {types}\n}}\n"
    )
    score, log, value = (np.concatenate(x, axis=3) for x in (scores, logs, values))
    what = f"case {index} {case}"
    if softmax:
        score = score + log
        p, lse = softmax_of(score)
    else:
        p = np.maximum(np.where(np.isfinite(score), score, 0), 0) ** 2 * np.exp(log)
    out = np.einsum("bhnm,bhnme->bhne", p, value)
    for target in check.targets():
        found = check.library.compile(module, target=target, cpu=case["cpu"])(*arrays)
        check.close(found[0], out, BOUNDS[wide], f"{what} {target}")
        if softmax:
            check.close(found[1], lse, 1e-5, f"{what} {target} lse", absolute=True)


check.matrix(FACTORS, 3, run)
check.finish()
