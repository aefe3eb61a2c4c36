# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""IR and plain formula of attn.vq, and IR of attn.vq_decode and attn.vq_backward."""

import numpy as np
from cases import state, tensor
from kernels import NAMES


def read_tokens(case):
    """How many tokens are read one by one at most, which a state keeps."""
    return (case["memory"] + 1) * case["block"]


def attributes_of(case):
    """What all three operations have."""
    return [f"block = {case['block']} : i64", f"memory = {case['memory']} : i64", "scale = 3.0e-01 : f64",
            f"weighting = #attn.weighting<{case['weighting']}>"]  # fmt: skip


def state_types(case, E):
    B, _, G, _ = case["heads"]
    kept = read_tokens(case)
    dtype, S = case["dtype"], case["codes"]
    return [
        tensor((B, G, S, E), state(dtype)), tensor((B, G, S), "i32"), tensor((B, G, kept), "i32"),
        tensor((B, G, kept, E), dtype), "tensor<i64>",
    ]


def drop_tokens(rng, codes):
    """Makes some tokens absent, and in one entry the first half of them."""
    codes[rng.random(codes.shape) < 0.3] = -1
    codes[0, 0, : codes.shape[2] // 2] = -1


def spoil_absent(codes, *arrays):
    """Rows [B, heads, N, ..] of absent tokens may hold anything."""
    for array in arrays:
        array[np.repeat(codes < 0, array.shape[1] // codes.shape[1], axis=1)] = np.nan


def flags(case):
    """The unit attributes of a case."""
    return [name for name in ("causal", "padded") if case.get(name)]


def codebook_type(case):
    """That of sums, or of the queries."""
    return state(case["dtype"]) if case.get("wide") else case["dtype"]


def distance_shapes(case):
    """The shapes of a case's terms by distance, by name: `relative` and `distance_bias` say
    whether heads share them."""
    (D, _), (_, H, _, _) = case["width"], case["heads"]
    distances, shapes = read_tokens(case) + case.get("spare", 0), {}
    if case.get("relative") is not None:
        heads = 1 if case["relative"] else H
        shapes |= {"r": (heads, distances, D), "u": (heads, D)}
    if case.get("distance_bias") is not None:
        shapes["t"] = (1 if case["distance_bias"] else H, distances)
    return shapes


def distance_clauses(types):
    text = f"    relative(%r, %u : {types['r']}, {types['u']})\n" if "r" in types else ""
    return text + (f"    distance_bias(%t : {types['t']})\n" if "t" in types else "")


def module(case, N, has_state, returns_state, has_bias):
    (D, E), (B, H, G, shared) = case["width"], case["heads"]
    dtype, dynamic, S, kept = case["dtype"], case["dynamic"], case["codes"], read_tokens(case)
    length = None if dynamic else N
    q = tensor((B, H, length, D), dtype)
    z = tensor((B, G, length), "i32")
    v = tensor((B, G, length, E), dtype)
    c = tensor((1 if shared else G, S, D), codebook_type(case))
    out, lse = tensor((B, H, length, E), dtype), tensor((B, H, length), state(dtype))
    arguments = [f"%q: {q}", f"%z: {z}", f"%v: {v}", f"%c: {c}"]
    text = f"attn.vq ins(%q, %z, %v, %c : {q}, {z}, {v}, {c})\n"
    if has_bias:
        shape = (B, H, length, kept) if has_bias == "full" else (1, H, 1, kept)
        bias = tensor(shape, dtype)
        arguments.append(f"%b: {bias}")
        text += f"    bias(%b : {bias})\n"
    types = {name: tensor(shape, codebook_type(case)) for name, shape in distance_shapes(case).items()}
    arguments += [f"%{name}: {type}" for name, type in types.items()]
    text += distance_clauses(types)
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
    attributes = [*attributes_of(case), f"reduction = #attn.reduction<{case['reduction']}>", *flags(case)]
    types = ", ".join(results)
    return (
        f"func.func @f({', '.join(arguments)}) -> ({types}) {{\n{body}"
        f"  %found:{len(results)} = {text}    {{{', '.join(attributes)}}} -> {types}\n"
        f"  return {', '.join(f'%found#{i}' for i in range(len(results)))} : {types}\n}}\n"
    )


def decoder(case, has_bias):
    """attn.vq_decode as a function of everything that returns everything."""
    (D, E), (B, H, G, shared) = case["width"], case["heads"]
    dtype, S, kept = case["dtype"], case["codes"], read_tokens(case)
    names = ["%q", "%z", "%v", "%c"]
    types = [tensor((B, H, 1, D), dtype), tensor((B, G, 1), "i32"), tensor((B, G, 1, E), dtype),
             tensor((1 if shared else G, S, D), codebook_type(case))]
    text = f"attn.vq_decode ins({', '.join(names)} : {', '.join(types)})\n"
    if has_bias:
        names.append("%b")
        types.append(tensor((B, H, 1, kept), dtype))
        text += f"    bias(%b : {types[-1]})\n"
    parts = state_types(case, E)
    out = tensor((B, H, 1, E), dtype)
    names_of_state = [f"%s{i}" for i in range(5)]
    text += f"    outs(%o : {out}) state({', '.join(names_of_state)} : {', '.join(parts)})\n"
    results = ", ".join([out] + parts)
    arguments = ", ".join(f"{n}: {t}" for n, t in zip(names + names_of_state, types + parts))
    attributes = attributes_of(case) + ["padded"] * case.get("padded", False)
    return (
        f"func.func @f({arguments}) -> ({results}) {{\n  %o = tensor.empty() : {out}\n  %found:6 = {text}"
        f"    {{{', '.join(attributes)}}} -> {results}\n  return {', '.join(f'%found#{i}' for i in range(6))} : {results}\n}}\n"
    )


def empty_state(case):
    (_, E), (B, _, G, _) = case["width"], case["heads"]
    S, kept = case["codes"], read_tokens(case)
    return [np.zeros((B, G, S, E), NAMES[state(case["dtype"])]), np.zeros((B, G, S), np.int32),
            np.zeros((B, G, kept), np.int32), np.zeros((B, G, kept, E), NAMES[case["dtype"]]),
            np.zeros((), np.int64)]


# Arguments whose third extent is the length.
ROWS = {"q", "z", "v", "bias", "out", "lse", "d_out", "d_lse"}


def backward_module(case, shapes):
    """attn.vq_backward on arguments of `shapes`, by name, and the names of its results."""
    dtype, types = case["dtype"], {}
    sums = state(dtype) if case["sums"] else dtype
    kinds = {"z": "i32", "count": "i32", "kz": "i32", "position": "i64", "nk": sums, "nv": sums}
    kinds |= dict.fromkeys(("lse", "d_lse", "mean", "nm"), state(dtype)) | {"c": codebook_type(case)}
    for name, shape in shapes.items():
        dynamic = case["dynamic"] and name in ROWS
        extents = [None if dynamic and i == 2 and n != 1 else n for i, n in enumerate(shape)]
        types[name] = tensor(extents, kinds.get(name, dtype))
    results = {"dq": types["q"], "dk": types["v"], "dv": types["v"].replace(dtype + ">", sums + ">")}
    B, G, N, _ = shapes["v"]
    length = None if case["dynamic"] and N != 1 else N
    results["dk"] = tensor((B, G, length, shapes["q"][3]), sums)
    if "bias" in types and case["d_bias"]:
        results["db"] = types["bias"]
    results |= {"d" + name: types[name] for name in "rut" if name in types and case["d_bias"]}
    if "mean" in types:
        S, kept = shapes["count"][2], shapes["kz"][2]
        results |= {"dm": tensor((B, G, S, shapes["v"][3]), state(dtype)),
                    "dkk": tensor((B, G, kept, shapes["q"][3]), sums),
                    "dkv": tensor((B, G, kept, shapes["v"][3]), sums)}  # fmt: skip

    def clause(keyword, names):
        names = [n for n in names if n in types | results]
        if not names:
            return ""
        return f" {keyword}({', '.join('%' + n for n in names)} : {', '.join((types | results)[n] for n in names)})"

    body = "  %two = arith.constant 2 : index\n"
    body += f"  %n = tensor.dim %q, %two : {types['q']}\n"
    for name, kind in results.items():
        body += f"  %{name} = tensor.empty({'%n' if '?' in kind else ''}) : {kind}\n"
    text = "attn.vq_backward" + clause("ins", ["q", "z", "v", "c"]) + clause("bias", ["bias"])
    text += clause("relative", ["r", "u"]) + clause("distance_bias", ["t"])
    text += clause("state", ["mean", "count", "kz", "kv", "position"])
    text += clause("forward", ["out", "lse"]) + clause("gradient", ["d_out", "d_lse"])
    text += clause("d_next_state", ["nm", "nk", "nv"]) + clause("outs", ["dq", "dk", "dv"])
    text += clause("d_bias", ["db"]) + clause("d_relative", ["dr", "du"])
    text += clause("d_distance_bias", ["dt"]) + clause("d_state", ["dm", "dkk", "dkv"])
    attributes = [*attributes_of(case), *flags(case)]
    found = ", ".join(results.values())
    arguments = ", ".join(f"%{n}: {t}" for n, t in types.items())
    text = (
        f"func.func @f({arguments}) -> ({found}) {{\n{body}  %found:{len(results)} = {text}\n"
        f"    {{{', '.join(attributes)}}} -> {found}\n"
        f"  return {', '.join(f'%found#{i}' for i in range(len(results)))} : {found}\n}}\n"
    )
    return text, list(results)


def expected(case, q, z, v, c, bias, terms=None):
    """Dense attention over C[codes] with the local bias and terms by distance."""
    B, H, N, _ = q.shape
    G, block, kept = v.shape[1], case["block"], read_tokens(case)
    groups = H // G
    c = np.broadcast_to(c, (G, *c.shape[1:])).astype(float)
    absent = z < 0
    v = np.where(absent[..., None], 0, v)
    absent = np.repeat(absent, groups, 1)
    q = np.where(absent[..., None], 0, q)
    keys = np.stack([c[g][z[:, g]] for g in range(G)], axis=1)
    score = 0.3 * np.einsum("bhnd,bhmd->bhnm", q.astype(float), np.repeat(keys, groups, 1))
    i, j = np.arange(N)[:, None], np.arange(N)
    if bias is not None:
        column = j - (i // block - case["memory"]) * block
        full = np.broadcast_to(bias.astype(float), (B, H, N, kept))
        local = np.take_along_axis(full, np.broadcast_to(np.clip(column, 0, kept - 1), score.shape), -1)
        score = score + np.where((column >= 0) & (column < kept), local, 0)
    terms = {name: array.astype(float) for name, array in (terms or {}).items()}
    nearest, near = np.clip(i - j, 0, kept - 1), (j <= i) & (j >= (i // block - case["memory"]) * block)
    if "r" in terms:
        r = np.broadcast_to(terms["r"], (H, *terms["r"].shape[1:]))[:, nearest]
        score = score + np.where(near, 0.3 * np.einsum("bhnd,hnmd->bhnm", q + terms["u"][:, None], r), 0)
    if "t" in terms:
        score = score + np.where(near, terms["t"][:, nearest], 0)
    values = np.repeat(v.astype(float), groups, 1)
    holds = j <= i if case["causal"] else np.ones((N, N), bool)
    holds = holds & ~absent[:, :, None, :] & ~absent[..., None]
    if case["weighting"] == "squared_relu":
        return np.where(holds, np.maximum(score, 0) ** 2, 0) @ values, None
    score = np.where(holds, score, -np.inf)
    top = score.max(axis=-1, keepdims=True)
    top = np.where(np.isfinite(top), top, 0)
    p = np.exp(score - top)
    total = p.sum(axis=-1, keepdims=True)
    with np.errstate(divide="ignore"):
        lse = (top + np.log(total))[..., 0]
    return p @ values / np.where(total > 0, total, 1), lse
