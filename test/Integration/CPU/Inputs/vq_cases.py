# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""IR and plain formula of attn.vq."""

import numpy as np
from cases import state, tensor


def state_types(case, E):
    B, _, G, _ = case["heads"]
    kept = 2 * case["block"]
    dtype, S = case["dtype"], case["codes"]
    return [
        tensor((B, G, S, E), state(dtype)), tensor((B, G, S), "i32"), tensor((B, G, kept), "i32"),
        tensor((B, G, kept, E), dtype), "tensor<i64>",
    ]


def module(case, N, has_state, returns_state, has_bias):
    (D, E), (B, H, G, shared) = case["width"], case["heads"]
    dtype, dynamic, S, block = case["dtype"], case["dynamic"], case["codes"], case["block"]
    length = None if dynamic else N
    q = tensor((B, H, length, D), dtype)
    z = tensor((B, G, length), "i32")
    v = tensor((B, G, length, E), dtype)
    c = tensor((1 if shared else G, S, D), dtype)
    out, lse = tensor((B, H, length, E), dtype), tensor((B, H, length), state(dtype))
    arguments = [f"%q: {q}", f"%z: {z}", f"%v: {v}", f"%c: {c}"]
    text = f"attn.vq ins(%q, %z, %v, %c : {q}, {z}, {v}, {c})\n"
    if has_bias:
        shape = (B, H, length, 2 * block) if has_bias == "full" else (1, H, 1, 2 * block)
        bias = tensor(shape, dtype)
        arguments.append(f"%b: {bias}")
        text += f"    bias(%b : {bias})\n"
    parts = state_types(case, E)
    names = [f"%s{i}" for i in range(5)]
    if has_state:
        arguments += [f"{n}: {t}" for n, t in zip(names, parts)]
        text += f"    state({', '.join(names)} : {', '.join(parts)})\n"
    results, sizes = [out], "%n" if dynamic else ""
    body = f"  %two = arith.constant 2 : index\n  %n = tensor.dim %q, %two : {q}\n"
    body += f"  %o = tensor.empty({sizes}) : {out}\n"
    outs, outs_types = ["%o"], [out]
    if case["lse"] and case["weighting"] == "softmax":
        body += f"  %l = tensor.empty({sizes}) : {lse}\n"
        outs.append("%l")
        outs_types.append(lse)
    text += f"    outs({', '.join(outs)} : {', '.join(outs_types)})\n"
    results = list(outs_types)
    if returns_state:
        for i, part in enumerate(parts):
            body += f"  %t{i} = tensor.empty() : {part}\n"
        text += f"    next_state({', '.join(f'%t{i}' for i in range(5))} : {', '.join(parts)})\n"
        results += parts
    attributes = [f"block = {block} : i64", "scale = 3.0e-01 : f64",
                  f"reduction = #attn.reduction<{case['reduction']}>",
                  f"weighting = #attn.weighting<{case['weighting']}>"]
    if case["causal"]:
        attributes.append("causal")
    types = ", ".join(results)
    return (
        f"func.func @f({', '.join(arguments)}) -> ({types}) {{\n{body}"
        f"  %r:{len(results)} = {text}    {{{', '.join(attributes)}}} -> {types}\n"
        f"  return {', '.join(f'%r#{i}' for i in range(len(results)))} : {types}\n}}\n"
    )


def expected(case, q, z, v, c, bias):
    """Dense attention over C[codes] with the local bias."""
    B, H, N, _ = q.shape
    G, block = v.shape[1], case["block"]
    groups = H // G
    c = np.broadcast_to(c, (G, *c.shape[1:])).astype(float)
    keys = np.stack([c[g][z[:, g]] for g in range(G)], axis=1)
    score = 0.3 * np.einsum("bhnd,bhmd->bhnm", q.astype(float), np.repeat(keys, groups, 1))
    i, j = np.arange(N)[:, None], np.arange(N)
    if bias is not None:
        column = j - (i // block * block - block)
        full = np.broadcast_to(bias.astype(float), (B, H, N, 2 * block))
        local = np.take_along_axis(full, np.broadcast_to(np.clip(column, 0, 2 * block - 1), score.shape), -1)
        score = score + np.where((column >= 0) & (column < 2 * block), local, 0)
    values = np.repeat(v.astype(float), groups, 1)
    holds = j <= i if case["causal"] else np.ones((N, N), bool)
    if case["weighting"] == "squared_relu":
        return np.where(holds, np.maximum(score, 0) ** 2, 0) @ values, None
    score = np.where(holds, score, -np.inf)
    top = score.max(axis=-1, keepdims=True)
    p = np.exp(score - top)
    total = p.sum(axis=-1, keepdims=True)
    return p @ values / total, (top + np.log(total))[..., 0]
