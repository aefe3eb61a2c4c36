# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradients of sums of convolutions: every algorithm, and plain loops, against all
N x N entries in NumPy."""

import numpy as np
from cases import BOUNDS, Checker, normal, state, tensor
from conv_cases import NOISE, hidden_number, hide_unread, make_bases, make_sizes
from hidden import plant
from kernels import NAMES

check = Checker()

FACTORS = {
    "rows": [1, 2, 15, 17, 63, 64, 65, 129, 211],
    "bases": [1, 2, 3, 9, 64],
    # Algorithm and block.
    "algorithm": [("toeplitz", 0), ("auto", 0), ("single", 0), ("partitioned", 0),
                  ("partitioned", 8), ("partitioned", 32), ("partitioned", 128)],
    "width": [1, 3, 16, 17, 48, 64, 80, 131],
    # Batch entries, heads, heads of the values.
    "heads": [(1, 1, 1), (2, 3, 1), (1, 4, 2), (4, 8, 4), (0, 2, 1), (2, 0, 1)],
    "dtype": ["f32", "f64", "bf16", "f16"],
    "basis": ["state", "same"],
    # Of the gradients.
    "sums": ["state", "same"],
    "scores": ["normal", "wide", "large", "rising", "falling", "masked", "none"],
    "sizes": ["full", "some", "short"],
    "cpu": check.usable_cpus(),
    # Of all extents, or of batch entries and heads only.
    "dynamic": [False, True, "heads"],
}


def apply_module(types, results, options):
    operands = {name: types[name] for name in ("b", "m", "v", "o", "d")}

    def clause(keyword, names, kinds):
        return f"{keyword}({', '.join('%' + n for n in names)} : {', '.join(kinds[n] for n in names)})"

    body = "".join(f"  %c{i} = arith.constant {i} : index\n" for i in range(4))
    for name, of in (("db", "b"), ("dv", "v")):
        extents = []
        for i, extent in enumerate(types[of].split("<")[1].split("x")[:4]):
            if extent == "?":
                body += f"  %{name}{i} = tensor.dim %{of}, %c{i} : {types[of]}\n"
                extents.append(f"%{name}{i}")
        body += f"  %{name} = tensor.empty({', '.join(extents)}) : {results[name]}\n"
    kinds = ", ".join(results.values())
    return (f"func.func @f({', '.join(f'%{n}: {t}' for n, t in operands.items())}) -> ({kinds}) {{\n{body}"
            f"  %r:2 = attn.conv_apply_backward {clause('ins', 'bmv', types)} {clause('forward', 'o', types)}\n"
            f"      {clause('gradient', 'd', types)} {clause('outs', ['db', 'dv'], results)}\n"
            f"      {{{options}}} -> {kinds}\n  return %r#0, %r#1 : {kinds}\n}}\n")


def recover_module(types, results):
    q, k, m, d = (types[name] for name in "qkmd")
    kinds = f"{results['dq']}, {results['dk']}"
    return (f"func.func @f(%q: {q}, %k: {k}, %m: {m}, %d: {d}) -> ({kinds}) {{\n"
            f"  %dq = tensor.empty() : {results['dq']}\n  %dk = tensor.empty() : {results['dk']}\n"
            f"  %r:2 = attn.conv_recover_backward ins(%q, %k, %m : {q}, {k}, {m}) gradient(%d : {d})\n"
            f"      outs(%dq, %dk : {kinds}) {{scale = 3.0e-01 : f64}} -> {kinds}\n"
            f"  return %r#0, %r#1 : {kinds}\n}}\n")


def compare(what, text, cpu, arrays, expected, names, bound, sizes=(0, 0)):
    """On the CPU, with any number of threads, and as plain loops. `sizes` are those
    of the numbers that gradients are differences of, where these are greater."""
    for target in check.targets():
        kernel = check.library.compile(text, target=target, cpu=cpu if target == "cpu" else "native")
        found = check.call(kernel, arrays, f"{what} {target}", (1, 2, 3, 7) if target == "cpu" else (1,))
        for name, one, other, size in zip(names, found, expected, sizes):
            # An infinity may have become a NaN on the way.
            one, other = (np.where(np.isfinite(x.astype(float)), x.astype(float), np.nan) for x in (one, other))
            size = max(size, np.nanmax(np.abs(other), initial=0)) or 1
            check.close(one / size, other / size, bound, f"{what} {target} {name}", absolute=True)


def run_apply(index, case):
    rng = np.random.default_rng(index)
    dtype, N, R, E = (case[key] for key in ("dtype", "rows", "bases", "width"))
    B, H, G = case["heads"]
    algorithm, block = case["algorithm"]
    if algorithm == "single" and (R != 1 or case["dynamic"]):
        algorithm, block = "partitioned", 16
    basis = dtype if case["basis"] == "same" else state(dtype)
    sizes = make_sizes(rng, (B, H, R), N, case["sizes"])
    b = make_bases(rng, sizes, N, case["scores"], NAMES[basis])
    v, d = normal(rng, (B, G, N, E), dtype), normal(rng, (B, H, N, E), dtype)
    out = check.reference.conv_apply(b, sizes, v).astype(NAMES[dtype])
    shapes = {name: array.shape for name, array in dict(b=b, m=sizes, v=v, o=out, d=d).items()}
    if case["dynamic"] == "heads":
        shapes = {name: (None, None, *shape[2:]) for name, shape in shapes.items()}
    elif case["dynamic"]:
        shapes = {name: (*[None] * (len(shape) - 1), E if len(shape) == 4 and name != "b" else None)
                  for name, shape in shapes.items()}
    types = {name: tensor(shapes[name], kind)
             for name, kind in dict(b=basis, m="i32", v=dtype, o=dtype, d=dtype).items()}
    sums = (lambda kind: kind) if case["sums"] == "same" else state
    results = {"db": tensor(shapes["b"], sums(basis)), "dv": tensor(shapes["v"], sums(dtype))}
    options = f"algorithm = #attn.conv_algorithm<{algorithm}>" + (f", block = {block} : i64" if block else "")
    # A row's scores get d_out . value less d_out . out, equal where one weight is 1.
    bound, size = 2 * BOUNDS[dtype], np.abs((d.astype(float) * out).sum(-1)).max(initial=0)
    if algorithm not in ("toeplitz", "auto") and case["scores"] != "normal":
        bound = max(bound, 2 * NOISE[dtype])
        # A transform's errors are small next to products of rows, not their differences.
        norms = [np.linalg.norm(x.astype(float), axis=-1).max(initial=0) for x in (d, v)]
        size = max(size, norms[0] * norms[1])
    what, text = f"case {index} {case}", apply_module(types, results, options)
    compare(what, text, case["cpu"], (b, sizes, hide_unread(v, sizes), out, d), check.reference.conv_apply_backward(d, b, sizes, v),
            ("d_b", "d_v"), bound, (size, 0))
    # A NaN or an infinity is in the gradients that read it, and nowhere else.
    arrays, name = {"b": b, "v": v, "d": d}, "bvd"[index % 3]
    for at, number in hidden_number(rng, arrays, sizes, name):
        b, v, d = plant(arrays, name, at, number).values()
        out = check.reference.conv_apply(b, sizes, v).astype(NAMES[dtype])
        with np.errstate(invalid="ignore"):
            expected = check.reference.conv_apply_backward(d, b, sizes, v)
        compare(f"{what} {name}{[int(i) for i in at]} = {number}", text, case["cpu"], (b, sizes, v, out, d), expected,
                ("d_b", "d_v"), bound, (size, np.abs(d[np.isfinite(d)].astype(float)).max(initial=0)))


def run_recover(index, case):
    rng = np.random.default_rng(index)
    dtype, N, R, D = (case[key] for key in ("dtype", "rows", "bases", "width"))
    B, H, G = case["heads"]
    sizes = make_sizes(rng, (B, H, R), N, case["sizes"])
    q, k = normal(rng, (B, H, N, D), dtype), normal(rng, (B, G, N, D), dtype)
    d = normal(rng, (B, H, R, N), state(dtype))
    for head in np.ndindex(B, H):
        for r, size in enumerate(sizes[head]):
            d[head][r, size:] = np.nan
    types = {"q": tensor(q.shape, dtype), "k": tensor(k.shape, dtype), "m": tensor(sizes.shape, "i32"),
             "d": tensor(d.shape, state(dtype))}
    sums = dtype if case["sums"] == "same" else state(dtype)
    results = {"dq": tensor(q.shape, sums), "dk": tensor(k.shape, sums)}
    compare(f"case {index} recover {case}", recover_module(types, results), case["cpu"], (q, k, sizes, d),
            check.reference.conv_recover_backward(d, q, k, sizes, scale=0.3), ("d_q", "d_k"), 2 * BOUNDS[dtype])
    arrays, name = {"q": q, "k": k}, "qk"[index % 2]
    for at, number in hidden_number(rng, arrays, sizes, name):
        q, k = plant(arrays, name, at, number).values()
        with np.errstate(invalid="ignore"):
            expected = check.reference.conv_recover_backward(d, q, k, sizes, scale=0.3)
        compare(f"case {index} recover {case} {name}{[int(i) for i in at]} = {number}", recover_module(types, results), case["cpu"],
                (q, k, sizes, d), expected, ("d_q", "d_k"), 2 * BOUNDS[dtype])


def run(index, case):
    run_apply(index, case)
    # Fewer choices.
    if index % 3 == 0:
        run_recover(index, case)


# No basis at all, or in some heads only.
EMPTY = {
    "rows": [1, 5, 8, 100],
    "bases": [1, 3],
    "algorithm": FACTORS["algorithm"],
    "width": [3, 16],
    "heads": [(1, 1, 1), (2, 3, 1), (4, 8, 4)],
    "sizes": ["nothing", "few heads", "short"],
    "dtype": FACTORS["dtype"],
    "dynamic": [False, "heads", True],
}


def run_empty(index, case):
    case = case | {"basis": "state", "sums": "state", "scores": "normal", "cpu": "native"}
    if case["algorithm"][0] == "single":
        case = case | {"bases": 1, "dynamic": False}
    run_apply(index, case)
    run_recover(index, case)


# Transforms of every length, whose inverses give lags as well as rows.
TRANSFORMS = {
    "rows": [7, 64, 129, 257],
    "algorithm": [("single", 0), *(("partitioned", 2**n) for n in range(3, 12))],
    "width": [1, 16, 33, 64],
    "dtype": FACTORS["dtype"],
    "cpu": FACTORS["cpu"],
}


def run_transform(index, case):
    run_apply(index, case | {"bases": 1, "heads": (1, 1, 1), "basis": "state", "sums": "state", "scores": "normal",
                             "sizes": "full", "dynamic": False})  # fmt: skip


check.matrix(FACTORS, 11, run)
check.matrix(EMPTY, 12, run_empty)
check.matrix(TRANSFORMS, 13, run_transform)
# Several tasks sum windows, of which some are longer than a task has rows.
LONG = dict(rows=700, algorithm=("partitioned", 32), width=16, heads=(1, 2, 1), dtype="f32", basis="state",
            sums="state", scores="normal", sizes="full", cpu="native", dynamic=False)  # fmt: skip
for bases in (1, 2, 64):
    run_apply(bases, {**LONG, "bases": bases})
# Spectra that are stored past the caches of a CPU.
if not check.is_canary and check.library.target == "cpu":
    run_apply(3, {**LONG, "rows": 300, "bases": 3, "algorithm": ("partitioned", 64), "width": 7040, "heads": (1, 1, 1)})
    # Rows of a block that are transformed right behind their products, too, some after a value that is not finite.
    for index in (4, 6):
        run_apply(index, {**LONG, "rows": 1030, "bases": 3, "algorithm": ("partitioned", 64), "width": 72, "heads": (1, 1, 1)})
check.finish()
