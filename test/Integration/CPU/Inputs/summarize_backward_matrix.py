# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attn.summarize_backward at one level and at several, which become one loop nest."""

import numpy as np
from cases import BOUNDS, Checker, normal, state, tensor
from hidden import NUMBERS, check_hidden, plant

check = Checker()

FACTORS = {
    # Finest interval in units of the rank, and levels: with few rows, with chunks
    # that end early, and with intervals that are divided into parts or cannot be.
    "interval": [(1, 1), (2, 5), (4, 3), (8, 1), (13, 3), (16, 4), (16, 6), (20, 2), (32, 2), (97, 1)],
    "rank": [1, 2, 3, 4, 5, 8],
    # Rows in units of the coarsest interval, and rows more or less.
    "rows": [(0, 1), (1, -1), (1, 0), (1, 1), (2, 1), (3, -2), (3, 7), (4, 0), (9, 5)],
    "width": [1, 5, 16, 20, 37, 64, 96, 130, 160],
    # Batch entries, heads, sets of weights: also more strips than a block has.
    "heads": [(1, 1, 1), (2, 1, 1), (1, 8, 1), (1, 8, 2), (2, 6, 3), (3, 4, 4), (1, 11, 1)],
    "dtype": ["f32", "f64", "bf16", "f16"],
    "bias": [False, True],
    "cpu": check.usable_cpus(),
    "dynamic": [False, True],
    # Whether a summary's column depends on all columns: with fewer of them.
    "mixes": [False, False, True],
}


def run(index, case):
    rng = np.random.default_rng(index)
    dtype, D, p, dynamic = (case[key] for key in ("dtype", "width", "rank", "dynamic"))
    (first, levels), (B, G, W) = case["interval"], case["heads"]
    if case["mixes"]:
        D, p, levels = min(D, 37), min(p, 3), min(levels, 3)
    total = state(dtype)
    intervals = [first * p << level for level in range(levels)]
    N = max(1, case["rows"][0] * intervals[-1] + case["rows"][1])

    arrays, arguments = [], []

    def argument(shape, kind, free=()):
        arrays.append(normal(rng, shape, kind))
        shape = [None if dynamic and dim in free else extent for dim, extent in enumerate(shape)]
        arguments.append((f"%a{len(arguments)}", tensor(shape, kind)))
        return arrays[-1], *arguments[-1]

    x, x_name, x_type = argument((B, G, N, D), dtype, (0, 1, 2))
    # Gradients of all levels add up in one destination.
    dx, sum_name, sum_type = argument(x.shape, total, (0, 1, 2))
    expected, body, weight_gradients = [dx.astype(float)], "", []
    for level, interval in enumerate(intervals):
        w, w_name, w_type = argument((W, p, interval, D) + (D,) * case["mixes"], dtype)
        d, d_name, d_type = argument((B, G, -(-N // interval) * p, D), dtype, (0, 1, 2))
        inits = [argument(w.shape, total)]
        if case["bias"]:
            inits.append(argument((W, p, D), total))
        names = ", ".join([sum_name] + [name for _, name, _ in inits])
        kinds = ", ".join([sum_type] + [kind for _, _, kind in inits])
        body += (f"  %r{level}:{1 + len(inits)} = attn.summarize_backward ins({x_name} : {x_type})"
                 f" weights({w_name} : {w_type}) gradient({d_name} : {d_type})\n"
                 f"      outs({names} : {kinds}) -> {kinds}\n")
        sum_name = f"%r{level}#0"
        weight_gradients += [(f"%r{level}#{i + 1}", kind) for i, (_, _, kind) in enumerate(inits)]
        parts = check.reference.summarize_backward(d, x, w, np.zeros((W, p, D)), interval=interval)
        expected[0] = expected[0] + parts[0]
        expected += [init + part for (init, _, _), part in zip(inits, parts[1:])]
    results = [(sum_name, sum_type)] + weight_gradients
    kinds = ", ".join(kind for _, kind in results)
    module = (f"func.func @f({', '.join(f'{name}: {kind}' for name, kind in arguments)}) -> ({kinds}) {{\n{body}"
              f"  return {', '.join(name for name, _ in results)} : {kinds}\n}}\n")

    what = f"case {index} {case}"
    kernel = check.library.compile(module, cpu=case["cpu"])
    found = check.call(kernel, arrays, what, threads=(1, 2, 3, 7))
    for number, (one, wanted) in enumerate(zip(found, expected)):
        check.close(one, wanted, BOUNDS[total], f"{what} gradient {number}")
    check_numbers(rng, kernel, arrays, found, intervals, what)


def check_numbers(rng, kernel, arrays, clean, intervals, what):
    """A NaN or an infinity of a token, of the weight of one, or of the gradient of a
    summary is in the gradients that read it, and nowhere else."""
    names = [str(i) for i in range(len(arrays))]
    x, step = arrays[0], (len(arrays) - 2) // len(intervals)
    B, G, N, D = x.shape
    level = rng.integers(0, len(intervals))
    first = 2 + level * step
    W, p, interval = arrays[first].shape[:3]
    mixes = arrays[first].ndim == 5
    every = slice(None)
    # The last interval may have absent tokens.
    summaries = arrays[first + 1].shape[2]
    summary = rng.choice([summaries - 1, rng.integers(0, summaries)])
    token = rng.choice([interval - 1, rng.integers(0, interval)])
    columns = rng.integers(0, D, 1 + mixes)
    places = ((0, tuple(rng.integers(0, n) for n in x.shape)),
              (first, (rng.integers(0, W), rng.integers(0, p), token, *columns)),
              (first + 1, (rng.integers(0, B), rng.integers(0, G), summary, rng.integers(0, D))))  # fmt: skip
    for operand, at in places:
        number, readers = rng.choice(NUMBERS), [np.zeros(one.shape, bool) for one in clean]
        own = 1 + level * (step - 2)
        if operand == 0:
            for other, size in enumerate(intervals):
                readers[1 + other * (step - 2)][at[1] * W // G, :, at[2] % size, at[3]] = True
        elif operand == first:
            heads = slice(at[0] * G // W, (at[0] + 1) * G // W)
            # From a column of the summary to one of the token.
            readers[0][:, heads, token::interval, at[3]] = True
        else:
            begin = at[2] // p * interval
            present = min(interval, N - begin)
            readers[0][at[0], at[1], begin : begin + present, every if mixes else at[3]] = True
            columns = (every, at[3]) if mixes else (at[3],)
            readers[own][(at[1] * W // G, at[2] % p, slice(0, present), *columns)] = True
            if step == 4:
                readers[own + 1][at[1] * W // G, at[2] % p, at[3]] = True
        dirty = plant(dict(zip(names, arrays)), str(operand), at, number)
        found = kernel(*dirty.values())
        check_hidden(check, found, clean, readers, f"{what} {operand}{list(at)} = {number}")


check.matrix(FACTORS, 3, run)
check.finish()
