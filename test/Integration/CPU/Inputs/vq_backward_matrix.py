# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attn.vq_backward against all N x N entries in NumPy, and the reference pipeline
against the same."""

import numpy as np
from cases import BOUNDS, Checker, normal, state, tensor
from kernels import NAMES

check = Checker()

FACTORS = {
    # The longest one is divided into chunks.
    "N": [1, 31, 63, 64, 65, 130, 1100],
    "block": [1, 5, 16, 64, 200],
    "codes": [1, 3, 16, 50],
    "width": [(16, 16), (5, 20), (64, 64), (80, 1), (1, 130)],
    # B, H, G, and whether heads share the codebook.
    "heads": [(1, 1, 1, True), (2, 2, 2, False), (1, 4, 2, True), (1, 4, 1, False)],
    "causal": [True, True, False],
    "bias": [None, "full", "heads", "broadcast", "masked"],
    "d_bias": [True, False],
    "d_lse": [True, False],
    "weighting": ["softmax", "softmax", "squared_relu"],
    # Of the gradients of keys and values.
    "sums": [True, False],
    "dtype": ["f32", "f64", "bf16", "f16"],
    "cpu": check.usable_cpus(),
    "dynamic": [False, True],
}


def module(case, shapes):
    """The operation on arguments of `shapes`, by name, and the types of results."""
    dtype, types = case["dtype"], {}
    for name, shape in shapes.items():
        dynamic = [None if case["dynamic"] and i == 2 and n != 1 else n for i, n in enumerate(shape)]
        element = "i32" if name == "z" else state(dtype) if name in ("lse", "d_lse") else dtype
        types[name] = tensor(shape if name == "c" else dynamic, element)
    sums = state(dtype) if case["sums"] else dtype
    results = {"dq": types["q"], "dk": types["v"], "dv": types["v"].replace(dtype + ">", sums + ">")}
    B, G, N, _ = shapes["v"]
    length = None if case["dynamic"] and N != 1 else N
    results["dk"] = tensor((B, G, length, shapes["q"][3]), sums)
    if "bias" in types and case["d_bias"]:
        results["db"] = types["bias"]

    def clause(keyword, names):
        names = [n for n in names if n in types]
        if not names:
            return ""
        return f" {keyword}({', '.join('%' + n for n in names)} : {', '.join(types[n] for n in names)})"

    body = "  %two = arith.constant 2 : index\n"
    body += f"  %n = tensor.dim %q, %two : {types['q']}\n"
    for name, kind in results.items():
        body += f"  %{name} = tensor.empty({'%n' if '?' in kind else ''}) : {kind}\n"
    text = "attn.vq_backward" + clause("ins", ["q", "z", "v", "c"]) + clause("bias", ["bias"])
    text += clause("forward", ["out", "lse"]) + clause("gradient", ["d_out", "d_lse"])
    text += f" outs(%dq, %dk, %dv : {results['dq']}, {results['dk']}, {results['dv']})"
    if "db" in results:
        text += f" d_bias(%db : {results['db']})"
    attributes = [f"block = {case['block']} : i64", "scale = 3.0e-01 : f64",
                  f"weighting = #attn.weighting<{case['weighting']}>"] + ["causal"] * case["causal"]
    kinds = ", ".join(results.values())
    arguments = ", ".join(f"%{n}: {t}" for n, t in types.items())
    return (
        f"func.func @f({arguments}) -> ({kinds}) {{\n{body}  %r:{len(results)} = {text}\n"
        f"    {{{', '.join(attributes)}}} -> {kinds}\n"
        f"  return {', '.join(f'%r#{i}' for i in range(len(results)))} : {kinds}\n}}\n"
    )


def make_bias(rng, case, B, H, N):
    full = {
        "full": (B, H, N), "masked": (B, H, N), "heads": (1, H, N), "broadcast": (1, H, 1),
    }[case["bias"]]  # fmt: skip
    bias = normal(rng, (*full, 2 * case["block"]), case["dtype"])
    if case["bias"] == "masked":
        # Whole rows, too: such a query reads only what is cached, or nothing.
        bias[rng.random(bias.shape) < 0.3] = -np.inf
        bias[:, :, N // 2 :: 3] = -np.inf
    return bias


def run(index, case):
    rng = np.random.default_rng(index)
    (D, E), (B, H, G, shared) = case["width"], case["heads"]
    N, S, dtype = case["N"], case["codes"], case["dtype"]
    if not case["causal"]:
        case = case | {"bias": None}
    if case["weighting"] != "softmax" and case["bias"] == "masked":
        case = case | {"bias": "full"}
    arrays = {
        "q": normal(rng, (B, H, N, D), dtype), "z": rng.integers(0, S, (B, G, N), np.int32),
        "v": normal(rng, (B, G, N, E), dtype), "c": normal(rng, (1 if shared else G, S, D), dtype),
    }  # fmt: skip
    options = {key: case[key] for key in ("block", "causal", "weighting")} | {"scale": 0.3}
    inputs = [arrays[n] for n in "qzvc"]
    if case["bias"]:
        arrays["bias"] = options["bias"] = make_bias(rng, case, B, H, N)
    if case["weighting"] == "softmax":
        out, lse = check.reference.vq(*inputs, **options, return_lse=True)
        arrays["out"], arrays["lse"] = out.astype(NAMES[dtype]), lse.astype(NAMES[state(dtype)])
    arrays["d_out"] = normal(rng, (B, H, N, E), dtype)
    if case["weighting"] == "softmax" and case["d_lse"]:
        arrays["d_lse"] = options["d_lse"] = normal(rng, (B, H, N), state(dtype))
        if case["bias"] == "masked":
            options["d_lse"] = np.where(np.isfinite(lse), arrays["d_lse"], 0)
    expected = check.reference.vq_backward(arrays["d_out"], *inputs, **options)
    text = module(case, {name: array.shape for name, array in arrays.items()})
    for target in check.targets():
        found = check.library.compile(text, target=target, cpu=case["cpu"])(*arrays.values())
        for name, one, other in zip(("d_q", "d_k", "d_v", "d_bias"), found, expected):
            what = f"case {index} {case} {target} {name}"
            if np.abs(other).max(initial=0) < 1e-6:
                # The gradient of a soft-max over one key.
                check.require(np.abs(one.astype(float)).max(initial=0) < 0.1 if dtype in ("bf16", "f16")
                              else np.abs(one.astype(float)).max(initial=0) < 1e-5, what)  # fmt: skip
            else:
                check.close(one, other, 2 * BOUNDS[dtype], what)


check.matrix(FACTORS, 5, run)
check.finish()
