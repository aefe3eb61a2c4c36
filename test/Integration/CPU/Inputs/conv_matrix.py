# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attn.conv_apply: every algorithm against the definition in f64."""

import numpy as np
from cases import BOUNDS, Checker, normal, state, tensor
from conv_cases import NOISE, hidden_number, hide_unread, make_bases, make_sizes
from hidden import check_hidden, plant
from kernels import NAMES

check = Checker()
ALGORITHMS = [("toeplitz", 0), ("auto", 0), ("single", 0), ("partitioned", 0),
              ("partitioned", 8), ("partitioned", 32), ("partitioned", 128)]

FACTORS = {
    "rows": [1, 2, 15, 17, 63, 64, 65, 193, 331, 1031],
    "bases": [1, 2, 3, 9, 64],
    # Algorithm and block.
    "algorithm": ALGORITHMS,
    "width": [1, 3, 7, 16, 17, 48, 64, 80, 131],
    # Batch entries, heads, heads of the values.
    "heads": [(1, 1, 1), (2, 3, 1), (1, 4, 2), (4, 8, 4), (0, 2, 1), (2, 0, 1)],
    "dtype": check.types(),
    "basis": ["state", "same"],
    "scores": ["normal", "wide", "large", "rising", "falling", "masked", "none"],
    "sizes": ["full", "some", "short"],
    "cpu": check.usable_cpus(),
    "dynamic": [False, True],
}


def module(dtype, basis, B, H, G, R, N, E, algorithm, block, dynamic):
    shapes = [(B, H, R, N), (B, H, R), (B, G, N, E), (B, H, N, E), (B, H)]
    if dynamic == "heads":
        shapes = [(None, None, *shape[2:]) for shape in shapes]
    elif dynamic:
        shapes = [[None] * 4, [None] * 3, [None] * 3 + [E], [None] * 3 + [E], [None] * 2]
    b, m, v, o, c = (tensor(s, t) for s, t in zip(shapes, (basis, "i32", dtype, dtype, "i32")))
    body, extents = "", ["", ""]
    if dynamic:
        body = "".join(f"  %c{i} = arith.constant {i} : index\n" for i in range(4)) + "".join(
            f"  %d{i} = tensor.dim %b, %c{i} : {b}\n" for i in (0, 1, 3))
        extents = ["%d0, %d1" + ", %d3" * (dynamic is True), "%d0, %d1"]
    body += f"  %o = tensor.empty({extents[0]}) : {o}\n  %c = tensor.empty({extents[1]}) : {c}\n"
    options = f"algorithm = #attn.conv_algorithm<{algorithm}>" + (f", block = {block} : i64" if block else "")
    return (f"func.func @f(%b: {b}, %m: {m}, %v: {v}) -> ({o}, {c}) {{\n{body}"
            f"  %r:2 = attn.conv_apply ins(%b, %m, %v : {b}, {m}, {v}) outs(%o, %c : {o}, {c})\n"
            f"      {{{options}}} -> {o}, {c}\n  return %r#0, %r#1 : {o}, {c}\n}}\n")


def run(index, case):
    rng = np.random.default_rng(index)
    dtype, N, R, E = (case[key] for key in ("dtype", "rows", "bases", "width"))
    B, H, G = case["heads"]
    algorithm, block = case["algorithm"]
    if algorithm == "single" and (R != 1 or case["dynamic"]):
        algorithm, block = "partitioned", 16
    basis = dtype if case["basis"] == "same" else state(dtype)
    sizes = make_sizes(rng, (B, H, R), N, case["sizes"])
    b = make_bases(rng, sizes, N, case["scores"], NAMES[basis])
    v = normal(rng, (B, G, N, E), dtype)
    kernel = check.library.compile(
        module(dtype, basis, B, H, G, R, N, E, algorithm, block, case["dynamic"]), cpu=case["cpu"])
    what = f"case {index} {case}"
    found = check.call(kernel, (b, sizes, hide_unread(v, sizes)), what)
    check.require(found[1].size == 0 or (0 <= found[1].min() and found[1].max() <= N), f"{what}: count")
    bound = BOUNDS[dtype]
    if algorithm not in ("toeplitz", "auto") and case["scores"] != "normal":
        bound = max(bound, NOISE[dtype])
    check.close(found[0], check.reference.conv_apply(b, sizes, v), bound, what)
    arrays, name = {"b": b, "v": v}, "vvb"[index % 3]
    for at, number in hidden_number(rng, arrays, sizes, name):
        # Without transforms, values of other rows leave no trace of rounding.
        limit = None if algorithm == "toeplitz" and name == "v" else 2 * bound
        check_number(kernel, arrays, sizes, found[0], name, at, number, limit, what)


def check_number(kernel, arrays, sizes, clean, name, at, number, bound, what):
    """A NaN or an infinity is in the rows that read it, and nowhere else."""
    what = f"{what} {name}{[int(i) for i in at]} = {number}"
    b, v = plant(arrays, name, at, number).values()
    i, head, row, column = at
    reads = np.zeros(clean.shape, bool)
    if name == "b":
        reads[i, head, b.shape[3] - sizes[i, head, row] + column :] = True
    else:
        shared = b.shape[1] // v.shape[1]
        for h in range(head * shared, head * shared + shared):
            scores = check.reference.conv_scores(b[i, h], sizes[i, h])
            reads[i, h, :, column] = ~np.isneginf(scores[:, row])
    expected = check.reference.conv_apply(b, sizes, v)
    check.require(np.array_equal(np.isnan(expected), reads), f"{what}: the reference")
    check_hidden(check, kernel(b, sizes, v)[:1], [clean], [reads], what, bound)


# Segments a little longer than a block, which is 32 then: pieces are as long.
LONG_PIECES = {
    "segment": [33, 34],
    "bases": [2, 9, 16],
    "width": [3, 11, 16, 48, 64],
    "dtype": check.types(),
    "sizes": ["even", "full", "short"],
    "cpu": check.usable_cpus(),
}


# Windows of more lags than there are in a chunk, beside others that have fewer columns than a
# task has rows.
LONG_WINDOWS = {
    "rows": [1300, 2500, 4099],
    "bases": [1, 3, 9],
    "algorithm": [("toeplitz", 0), ("partitioned", 256)],
    "width": [3, 16],
    "dtype": check.types(),
    "scores": ["normal", "rising", "falling"],
    "sizes": ["even", "full", "short"],
    "cpu": check.usable_cpus(),
}


def run_windows(index, case):
    run(index, {**case, "heads": (1, 1, 1), "basis": "state", "dynamic": False})


def run_long(index, case):
    run(index, {**case, "rows": case["segment"] * case["bases"], "algorithm": ("partitioned", 0), "heads": (1, 2, 1),
                "basis": "state", "scores": "normal", "dynamic": False})


# Segments that begin anywhere, cut in pieces: every pair of a row and a column of its past is
# multiplied by the weight of its lag, whatever the sizes.
PIECES = {"block": [8, 16, 32, 64], "seed": range(5)}


def run_pieces(index, case):
    rng = np.random.default_rng(index)
    kernel = check.library.compile(module("f32", "f32", 1, 1, 1, 1, 1, 3, "partitioned", case["block"], True))
    for trial in range(100 if check.library.target == "cpu" else 8):
        R = rng.integers(1, 13)
        N = rng.integers(R, 200)
        sizes = make_sizes(rng, (1, 1, R), N, ["short", "full", "even", "some"][trial % 4])
        b = make_bases(rng, sizes, N, "normal", np.float32)
        v = normal(rng, (1, 1, N, 3), "f32")
        what = f"case {index} {case}: {N} tokens, sizes {sizes}"
        found = check.call(kernel, (b, sizes, hide_unread(v, sizes)), what)
        check.close(found[0], check.reference.conv_apply(b, sizes, v), NOISE["f32"], what)


# As many heads as make them tasks, or fewer, where only their number or all extents
# are known at run time.
SOME_HEADS = {
    "rows": [1, 64, 193],
    "bases": [1, 3],
    "algorithm": ALGORITHMS,
    "width": [3, 16, 64],
    "heads": [(4, 8, 4), (16, 1, 1), (2, 3, 1), (0, 2, 1)],
    "dtype": check.types(),
    "cpu": check.usable_cpus(),
    "dynamic": ["heads", True],
}


def run_some(index, case):
    run(index, {**case, "basis": "state", "scores": "normal", "sizes": "some"})


# No basis at all, or in some heads only: rows without one are zero.
EMPTY = {
    "rows": [1, 5, 8, 100, 331],
    "bases": [1, 3],
    "algorithm": ALGORITHMS,
    "width": [4, 16, 48],
    "heads": [(1, 1, 1), (2, 3, 1), (1, 4, 4), (4, 8, 4)],
    "sizes": ["nothing", "few heads", "short"],
    "dtype": check.types(),
    "dynamic": [False, False, "heads", True],
}


def run_empty(index, case):
    run(index, {**case, "basis": "state", "scores": "normal", "cpu": "native"})
    if case["algorithm"][0] == "single":
        run(index, {**case, "bases": 1, "basis": "state", "scores": "normal", "cpu": "native", "dynamic": False})


# Transforms of every length, up to those that the second cache does not hold, of whole blocks
# and of parts of them, in rows that columns fill or not.
TRANSFORMS = {
    "block": [8, 16, 32, 64, 128, 256, 512, 1024, 2048],
    "rows": ["all", "two", "most", "few", "one"],
    "algorithm": ["single", "partitioned"],
    "width": [1, 7, 16, 32, 33, 64, 80],
    "dtype": check.types(),
    "cpu": check.usable_cpus(),
}
if check.library.target == "cpu":
    TRANSFORMS["block"].append(16384)


def run_transform(index, case):
    rng = np.random.default_rng(index)
    block, E, dtype = (case[key] for key in ("block", "width", "dtype"))
    N = {"all": block, "two": 2 * block, "most": block - 1, "few": block // 3 + 1, "one": 1}[case["rows"]]
    algorithm, block = ("single", 0) if case["algorithm"] == "single" else ("partitioned", block)
    sizes = np.full((1, 1, 1), N, np.int32)
    b, v = normal(rng, (1, 1, 1, N), state(dtype)), normal(rng, (1, 1, N, E), dtype)
    text = module(dtype, state(dtype), 1, 1, 1, 1, N, E, algorithm, block, False)
    what = f"case {index} {case}"
    found = check.call(check.library.compile(text, cpu=case["cpu"]), (b, sizes, v), what)
    # A sample of the rows: all N x N weights of long sequences are too many.
    rows = np.unique(np.linspace(0, N - 1, 64).astype(int))
    weights, values = np.exp(b[0, 0, 0].astype(float)), v[0, 0].astype(float)
    expected = np.array([weights[i::-1] @ values[: i + 1] / weights[: i + 1].sum() for i in rows])
    check.close(found[0][0, 0, rows], expected, BOUNDS[dtype], what)


check.matrix(FACTORS, 11, run)
check.matrix(LONG_PIECES, 12, run_long)
check.matrix(PIECES, 18, run_pieces)
check.matrix(LONG_WINDOWS, 13, run_windows)
check.matrix(SOME_HEADS, 14, run_some)
check.matrix(EMPTY, 15, run_empty)
check.matrix(TRANSFORMS, 16, run_transform)
check.finish()
