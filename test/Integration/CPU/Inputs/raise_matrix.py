# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention in linalg, raised and as it is, against NumPy."""

import math
import subprocess

import numpy as np
from cases import BOUNDS, Checker, normal
from linalg_attention import FORMS, LOWEST, MASKS, Value, Writer, admits, mask_grid, permutations, softmax

check = Checker()

# B, H, G, N, M, D, E: extents of 1, primes, the edges of tiles, shared keys.
SHAPES = [
    (1, 1, 1, 1, 7, 4, 4), (1, 4, 4, 12, 12, 8, 8), (2, 4, 2, 12, 12, 8, 8), (3, 6, 1, 13, 17, 5, 7),
    (2, 2, 2, 16, 16, 16, 16), (1, 8, 2, 17, 31, 16, 24), (2, 3, 3, 5, 64, 8, 3), (1, 2, 1, 65, 65, 32, 32),
]
# Which of [B, H, N, D] is where in an argument: by number of the permutation.
LAYOUTS = {"bhnd": 0, "bnhd": 2, "nbhd": 14, "dnhb": 23}


def argument(w, name, shape, layout, flat):
    """An argument, and the value with [B, H, N, D] that it stands for."""
    order = permutations(4, LAYOUTS[layout])
    outer = [shape[k] for k in order]
    if flat:
        outer = [outer[0] * outer[1], outer[2] * outer[3]]
    x = Value(name, outer, w.dtype)
    inner = w.reshape(x, [shape[k] for k in order])
    back = [order.index(k) for k in range(4)]
    return x, inner if back == [0, 1, 2, 3] else w.transpose(inner, back)


def repeat(w, x, H):
    """Heads of keys for each of H query heads, as torch repeats them."""
    B, G, M, D = x.shape
    if G == H:
        return x
    into = w.empty([B, G, H // G, M, D])
    wide = w.generic([x], ["d0, d1, d3, d4"], into, "d0, d1, d2, d3, d4", ["parallel"] * 5,
                     [f"linalg.yield %a0 : {x.dtype}"])
    return w.reshape(wide, [B, H, M, D])


def write_function(w, case, s, arguments):
    """A function of scores, before masks and biases."""
    _, H, _, N, *_ = case["shape"]
    if case["function"] == "soft-cap":
        return w.scale(w.unary("math.tanh", w.scale(s, 2.0, "divf")), 2.0)
    if case["function"] == "leaky":
        zero, quarter = w.constant(0.0), w.constant(0.25)
        return w.map([s], [f"%c = arith.cmpf olt, %a0, {zero} : {w.dtype}", f"%l = arith.mulf %a0, {quarter} : {w.dtype}",
                           f"%r = arith.select %c, %l, %a0 : {w.dtype}"])
    if case["function"] == "none":
        return s
    shape = {"of heads": (H, 1, 1), "of rows": (N, 1)}[case["function"]]
    arguments.append(Value("%f", shape, w.dtype))
    if case["function"] == "of heads":
        return w.binary("mulf", s, arguments[-1])
    return w.binary("maximumf", w.binary("addf", w.unary("math.absf", s), s), arguments[-1])


def write_weights(w, case, s, arguments):
    """A soft-max, which a sink may have a part of: behind all scores, or before."""
    if case["sink"] == "none":
        return softmax(w, s, case["softmax"])
    B, H, N, M = s.shape
    arguments.append(Value("%sink", (H,), w.dtype))
    column = w.generic([w.reshape(arguments[-1], [1, H, 1, 1])], ["0, d1, 0, 0"], w.empty([B, H, N, 1]), "d0, d1, d2, d3",
                       ["parallel"] * 4, [f"linalg.yield %a0 : {w.dtype}"])
    scores = [s, column] if case["sink"] == "behind" else [column, s]
    return w.slice(softmax(w, w.concat(scores, 3), case["softmax"]), 3, 0 if case["sink"] == "behind" else 1, M)


def expect_function(case, s, numbers):
    return {
        "none": lambda: s, "soft-cap": lambda: 2 * np.tanh(s / 2), "leaky": lambda: np.where(s < 0, s / 4, s),
        "of heads": lambda: s * numbers, "of rows": lambda: np.maximum(np.abs(s) + s, numbers),
    }[case["function"]]()


def write(case):
    """The function, names of its arguments, and their shapes and types."""
    B, H, G, N, M, D, E = case["shape"]
    w = Writer(case["dtype"])
    arguments = []

    def take(name, shape):
        x, value = argument(w, name, shape, case["layout"], case["flat"])
        arguments.append(x)
        return value

    q, k, v = take("%q", (B, H, N, D)), take("%k", (B, G, M, D)), take("%v", (B, G, M, E))
    scale = case["scale"]
    if scale == "query":
        q = w.scale(q, 1 / math.sqrt(D))
    k, v = repeat(w, k, H), repeat(w, v, H)
    if scale == "both":
        q, k = w.scale(q, D**-0.25), w.scale(k, D**-0.25)
    if case["product"] == "batch":
        s = w.batch_matmul(w.reshape(q, [B * H, N, D]), w.transpose(w.reshape(k, [B * H, M, D]), (0, 2, 1)))
        s = w.reshape(s, [B, H, N, M])
    elif case["product"] == "keys first":
        s = w.transpose(w.einsum("bhmd,bhnd->bhmn", k, q), (0, 1, 3, 2))
    else:
        s = w.einsum("bhnd,bhmd->bhnm", q, k)
    if scale == "scores":
        s = w.scale(s, math.sqrt(D), "divf")

    s = write_function(w, case, s, arguments)
    # Masks of positions by selection or as a sum; then what is known at run time.
    grid = mask_grid(w, case["mask"], N, M, 4)
    hidden = -math.inf if case["hidden"] == "infinite" else LOWEST[w.dtype]
    if case["padding"] == "lengths":
        arguments.append(Value("%n", (B,), "i64"))
        keys = [w.iota(M, 4, 3), w.reshape(arguments[-1], [B, 1, 1, 1])]
        near = w.map(keys, ["%r = arith.cmpi slt, %a0, %a1 : i64"], "i1")
        low = w.fill(hidden, s.shape)
        s = w.map([near, s, low], [f"%r = arith.select %a0, %a1, %a2 : {w.dtype}"], w.dtype)
    elif case["padding"] != "none":
        arguments.append(Value("%pad", (B, M), "i1"))
        pad = w.reshape(arguments[-1], [B, 1, 1, M])
    if case["padding"] == "and" and grid:
        grid = w.binary("andi", grid, pad)
    elif case["padding"] in ("and", "sum"):
        zero, low = w.constant(0.0), w.constant(hidden)
        s = w.binary("addf", s, w.map([pad], [f"%r = arith.select %a0, {zero}, {low} : {w.dtype}"], w.dtype))
    if case["bias"] != "none":
        shape = {"heads": (H, N, M), "keys": (H, 1, M), "all": (B, H, N, M)}[case["bias"]]
        arguments.append(Value("%b", shape, w.dtype))
        s = w.binary("addf", s, arguments[-1]) if case["padding"] != "and" else w.binary("addf", arguments[-1], s)
    if grid and case["hides by"] == "select":
        low = w.fill(hidden, s.shape)
        s = w.map([grid, s, low], [f"%r = arith.select %a0, %a1, %a2 : {w.dtype}"], w.dtype)
    elif grid:
        zero, low = w.constant(0.0), w.constant(hidden)
        s = w.binary("addf", s, w.map([grid], [f"%r = arith.select %a0, {zero}, {low} : {w.dtype}"], w.dtype))

    p = write_weights(w, case, s, arguments)
    if case["product"] == "batch":
        o = w.batch_matmul(w.reshape(p, [B * H, N, M]), w.reshape(v, [B * H, M, E]))
        o = w.reshape(o, [B, H, N, E])
    elif case["product"] == "keys first":
        o = w.einsum("bhme,bhnm->bnhe", v, p)
    else:
        o = w.einsum("bhnm,bhme->bhen", p, v)
    return w.function(arguments, o), arguments


def expect(case, q, k, v, pad, bias, numbers, sink):
    """The definition, in f64, with rows without keys as zeros."""
    B, H, G, N, M, D, E = case["shape"]
    k, v = (np.repeat(x, H // G, axis=1) for x in (k, v))
    s = np.einsum("bhnd,bhmd->bhnm", q, k) * (1 if case["scale"] == "none" else D**-0.5)
    s = expect_function(case, s, numbers) + bias
    keep = np.array([[admits(case["mask"], i, j, N, M, 4) for j in range(M)] for i in range(N)])
    keep = keep & pad[:, None, None, :]
    s = np.where(keep, s, -np.inf)
    highest = np.where(keep.any(-1, keepdims=True), s.max(-1, keepdims=True), 0)
    e = np.exp(s - highest)
    total = e.sum(-1, keepdims=True)
    if case["sink"] != "none":
        total = total + np.exp(sink[:, None, None] - highest)
    out = np.einsum("bhnm,bhme->bhne", e / np.where(total == 0, 1, total), v)
    order = {"batch": "bhne", "keys first": "bnhe", "generic": "bhen"}[case["product"]]
    return np.einsum(f"bhne->{order}", out), keep


def raised(text):
    command = ["fovea-opt", "-", "--attn-raise", "--canonicalize"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def layout(x, case):
    order = permutations(4, LAYOUTS[case["layout"]])
    x = np.ascontiguousarray(x.transpose(order))
    return x.reshape(x.shape[0] * x.shape[1], -1) if case["flat"] else x


def run(index, case):
    B, H, G, N, M, D, E = case["shape"]
    rng = np.random.default_rng(index)
    text, arguments = write(case)
    q, k, v = (normal(rng, s, case["dtype"]) for s in ((B, H, N, D), (B, G, M, D), (B, G, M, E)))
    values = {"%q": layout(q, case), "%k": layout(k, case), "%v": layout(v, case)}
    pad, bias, numbers, sink = np.ones((B, M), bool), np.zeros(1), np.zeros(1), np.zeros(1)
    for x in arguments[3:]:
        if x.name == "%pad":
            pad = values["%pad"] = np.arange(M) < rng.integers(1, M + 1, (B, 1))
        elif x.name == "%n":
            # More than there are is all of them.
            values["%n"] = rng.integers(1, M + 3, B)
            pad = np.arange(M) < values["%n"][:, None]
        elif x.name == "%sink":
            sink = values["%sink"] = normal(rng, x.shape, case["dtype"])
        elif x.name == "%f":
            numbers = values["%f"] = normal(rng, x.shape, case["dtype"])
        else:
            bias = values["%b"] = normal(rng, x.shape, case["dtype"])
    inputs = [values[x.name] for x in arguments]
    wide = [x.astype(np.float64) for x in (q, k, v)]
    expected, keep = expect(case, *wide, pad, bias.astype(np.float64), numbers.astype(np.float64),
                            sink.astype(np.float64))
    what = f"case {index} {case}"
    dense = raised(text)
    if "attn.dense" not in dense or "math.exp" in dense:
        return check.require(False, f"{what}: not raised")
    # Rows without keys are not what programs agree about.
    rows = keep.any(-1, keepdims=True) & np.ones((B, H, N, 1), bool)
    order = {"batch": "bhne", "keys first": "bnhe", "generic": "bhen"}[case["product"]]
    rows = np.einsum(f"bhne->{order}", rows)
    (found,) = check.library.compile(dense, target="reference")(*inputs)
    check.close(found * rows, expected * rows, BOUNDS[case["dtype"]], f"{what}, raised")
    # Pipelines raise by themselves.
    (found,) = check.library.compile(text)(*inputs)
    check.close(found * rows, expected * rows, BOUNDS[case["dtype"]], f"{what}, raised, compiled")
    # As it is, narrow types round scores and weights.
    if case["dtype"] in ("f32", "f64"):
        (found,) = check.library.compile(text, target="reference")(*inputs)
        found = np.where(rows, found, 0)
        check.close(found, expected * rows, 2 * BOUNDS[case["dtype"]], f"{what}, as it is")


check.matrix(
    {
        "shape": SHAPES,
        "dtype": ["f32", "f64", "bf16", "f16"],
        "layout": list(LAYOUTS),
        "flat": [False, True],
        "scale": ["none", "both", "query", "scores"],
        "product": ["batch", "generic", "keys first"],
        "function": ["none", "soft-cap", "leaky", "of heads", "of rows"],
        "mask": list(MASKS),
        "hidden": ["infinite", "lowest"],
        "hides by": ["select", "sum"],
        "padding": ["none", "and", "sum", "lengths"],
        "bias": ["none", "heads", "keys", "all"],
        "softmax": list(FORMS),
        "sink": ["none", "behind", "before"],
    },
    21,
    run,
)
check.finish()
