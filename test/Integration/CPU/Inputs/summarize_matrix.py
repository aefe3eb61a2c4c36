# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attn.summarize at one level and at several, which become one loop nest."""

import numpy as np
from cases import BOUNDS, Checker, normal, state, tensor
from hidden import NUMBERS, check_hidden, plant

check = Checker()

FACTORS = {
    # Finest interval in units of the rank, and levels.
    "interval": [(1, 1), (2, 5), (8, 1), (13, 3), (16, 6), (50, 2), (97, 1)],
    # Whether each level has intervals twice as long as the one before, or as long.
    "doubles": [True, True, False],
    "rank": [1, 2, 3, 4, 5, 8, 16],
    # Rows in units of the coarsest interval, and rows more or less.
    "rows": [(0, 1), (1, -1), (1, 0), (1, 1), (2, 1), (3, -2), (3, 7), (4, 0), (4, 1), (9, 5)],
    "width": [1, 5, 16, 20, 37, 64, 130],
    # Batch entries, heads, sets of weights.
    "heads": [(1, 1, 1), (2, 1, 1), (1, 8, 1), (1, 8, 2), (2, 6, 3), (3, 4, 4), (0, 2, 1), (1, 11, 1)],
    "dtype": ["f32", "f64", "bf16", "f16"],
    "bias": [False, True],
    "cpu": check.usable_cpus(),
    "dynamic": [False, True],
    # Rounded to the data type, or not.
    "rounded": [True, False],
    # Whether a summary's column depends on all columns: with fewer of them.
    "mixes": [False, False, True],
}


def summarize(x, weights, bias):
    """The definition, in float64."""
    B, G, N, D = x.shape
    W, p, interval = weights.shape[:3]
    count = -(-N // interval)
    padded = np.zeros((B, G, count * interval, D))
    padded[:, :, :N] = x
    weights = np.repeat(weights.astype(float), G // W, axis=0)
    product = "gatde,bgutd->bguae" if weights.ndim == 5 else "gatd,bgutd->bguad"
    sums = np.einsum(product, weights, padded.reshape(B, G, count, interval, D))
    if bias is not None:
        sums += np.repeat(bias.astype(float), G // W, axis=0)[None, :, None]
    return sums.reshape(B, G, count * p, D)


def run(index, case):
    rng = np.random.default_rng(index)
    dtype, D, p, dynamic = (case[key] for key in ("dtype", "width", "rank", "dynamic"))
    (first, levels), (B, G, W) = case["interval"], case["heads"]
    if case["mixes"]:
        D, p, levels = min(D, 37), min(p, 3), min(levels, 3)
    out = dtype if case["rounded"] else state(dtype)
    intervals = [first * p << level * case["doubles"] for level in range(levels)]
    N = max(0, case["rows"][0] * intervals[-1] + case["rows"][1])

    x = normal(rng, (B, G, N, D), dtype)
    x_type = tensor([None] * 3 + [D] if dynamic else (B, G, N, D), dtype)
    arrays, arguments, body, results, expected = [x], [f"%x: {x_type}"], "", [], []
    if dynamic:
        body += "".join(f"  %c{i} = arith.constant {i} : index\n"
                        f"  %d{i} = tensor.dim %x, %c{i} : {x_type}\n" for i in range(3))
    for level, interval in enumerate(intervals):
        weights = normal(rng, (W, p, interval, D) + (D,) * case["mixes"], dtype)
        bias = normal(rng, (W, p, D), dtype) if case["bias"] else None
        w_type, b_type = tensor(weights.shape, dtype), tensor((W, p, D), dtype)
        rows, sizes = -(-N // interval) * p, ""
        if dynamic:
            body += (f"  %rows{level} = affine.apply affine_map<(n) -> (n ceildiv {interval} * {p})>(%d2)\n")
            rows, sizes = None, f"%d0, %d1, %rows{level}"
        o_type = tensor([None, None, None, D] if dynamic else (B, G, rows, D), out)
        arrays.append(weights)
        arguments.append(f"%w{level}: {w_type}")
        text = f"attn.summarize ins(%x : {x_type}) weights(%w{level} : {w_type})"
        if case["bias"]:
            arrays.append(bias)
            arguments.append(f"%b{level}: {b_type}")
            text += f" bias(%b{level} : {b_type})"
        body += (f"  %o{level} = tensor.empty({sizes}) : {o_type}\n"
                 f"  %s{level} = {text} outs(%o{level} : {o_type}) -> {o_type}\n")
        results.append((f"%s{level}", o_type))
        expected.append(summarize(x.astype(float), weights, bias))
    types = ", ".join(t for _, t in results)
    module = (f"func.func @f({', '.join(arguments)}) -> ({types}) {{\n{body}"
              f"  return {', '.join(n for n, _ in results)} : {types}\n}}\n")

    what = f"case {index} {case}"
    kernel = check.library.compile(module, cpu=case["cpu"])
    found = check.call(kernel, arrays, what)
    for level, (one, reference) in enumerate(zip(found, expected)):
        check.close(one, reference, BOUNDS[out], f"{what} level {level}")
    if arrays[0].size:
        check_numbers(rng, kernel, arrays, found, intervals, BOUNDS[out], what)


def check_numbers(rng, kernel, arrays, clean, intervals, bound, what):
    """A NaN or an infinity of a token, or of the weight of one, is in the summaries
    that read it, and nowhere else."""
    names = [str(i) for i in range(len(arrays))]
    x, step = arrays[0], (len(arrays) - 1) // len(intervals)
    B, G, N, D = x.shape
    level = rng.integers(0, len(intervals))
    weights = arrays[1 + level * step]
    W, p, interval = weights.shape[:3]
    mixes = weights.ndim == 5
    # Weights of the last token of an interval, which may be absent, too.
    token = rng.choice([interval - 1, rng.integers(0, interval)])
    columns = rng.integers(0, D, 1 + mixes)
    places = ((0, tuple(rng.integers(0, n) for n in x.shape)),
              (1 + level * step, (rng.integers(0, W), rng.integers(0, p), token, *columns)))  # fmt: skip
    for operand, at in places:
        number, readers = rng.choice(NUMBERS), [np.zeros(one.shape, bool) for one in clean]
        if operand == 0:
            for reads, size in zip(readers, intervals):
                columns = slice(None) if mixes else at[3]
                reads[at[0], at[1], at[2] // size * p : (at[2] // size + 1) * p, columns] = True
        else:
            last = -(-(N - token) // interval) if token < N else 0
            heads = slice(at[0] * G // W, (at[0] + 1) * G // W)
            readers[level][:, heads, at[1] : last * p : p, at[-1]] = True
        dirty = plant(dict(zip(names, arrays)), str(operand), at, number)
        found = kernel(*dirty.values())
        # An interval that lacks the token of the weight is summed again, in another order.
        check_hidden(check, found, clean, readers, f"{what} {operand}{list(at)} = {number}", bound if operand else None)


check.matrix(FACTORS, 3, run)
check.finish()
