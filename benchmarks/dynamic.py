#!/usr/bin/env python3
# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares kernels for all lengths with those for one; see docs/Benchmarking.md.

    PYTHONPATH=build/python .venv/bin/python benchmarks/dynamic.py

Calls the functions of the package with the shapes of the rows of suites, with
`fovea.set_shapes` at "static" and at "dynamic" in turns, and prints a table: the
time of each, the median of the ratios of neighbouring calls, and how much longer
the first call takes. Exit status 1: a row is slower than --at-most-slower allows,
or results differ.
"""

import argparse
import os
import statistics
import sys
import time

import ml_dtypes
import numpy as np
from fovea_bench import suite

import fovea

SHAPES = ("static", "dynamic")
# First calls compile.
os.environ["FOVEA_CACHE_DIR"] = ""


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--suite", nargs="+", default=["readme", "gradients"], help="suites of benchmarks/config")
    parser.add_argument("--only", nargs="+", metavar="WORD", help="rows whose id has such a word")
    parser.add_argument("--seconds", type=float, default=1.0, help="for each row")
    parser.add_argument("--at-most-slower", type=float, default=3.0, metavar="PERCENT",
                        help="what the exit status allows (default: 3)")  # fmt: skip
    arguments = parser.parse_args()
    for name in arguments.suite:
        if not (suite.CONFIG / f"{name}.json").is_file():
            known = sorted(path.stem for path in suite.CONFIG.glob("*.json"))
            parser.error(f"--suite: found {name}, needed some of {', '.join(known)}")
    return arguments


def make_attention(workload, causal=False, window=None, **_):
    """The call of a forward row."""
    arrays = workload.inputs()
    if workload.type == "bf16":
        arrays = [array.view(ml_dtypes.bfloat16) for array in arrays]
    q, k, v, *weights = arrays
    if workload.op == "dense":
        return lambda: fovea.dense(q, k, v, causal=causal, window=window)
    keys, values = weights[: len(weights) // 2], weights[len(weights) // 2 :]
    return lambda: fovea.fast_multipole(q, k, v, keys, values, group=workload.group, causal=causal)


def make_gradient(n, width=64, heads=1, causal=False, bias=False):
    """The call of a row of `dense_backward`."""
    numbers = np.random.default_rng(1)
    d_out, q, k, v = numbers.standard_normal((4, 1, heads, n, width), dtype=np.float32)
    options = {"causal": causal}
    if bias:
        options["bias"] = numbers.standard_normal((1, heads, n, n), dtype=np.float32)
    out, lse = fovea.dense(q, k, v, return_lse=True, **options)
    return lambda: fovea.dense_backward(d_out, q, k, v, out, lse, **options)


def make_call(row):
    """The call that does what the row measures, or None where no function of the package does."""
    if row.kind != "kernel" or row.once:
        return None
    fields = {name: value for name, value in row.fields.items() if name != "op"}
    if row.fields["op"] in ("dense", "fast_multipole"):
        return make_attention(row.workload, **fields)
    if row.fields["op"] == "dense_backward":
        return make_gradient(**fields)
    return None


def make_others(n=4096, width=64, words=512):
    """Titles and calls of the functions that no suite has rows of."""
    numbers = np.random.default_rng(1)
    q, k, v = numbers.standard_normal((3, 1, 1, n, width), dtype=np.float32)
    codebook = numbers.standard_normal((1, words, width), dtype=np.float32)
    positions = np.arange(n, dtype=np.int32)
    found, codes = fovea.quantize(k, codebook)
    sums, counts = np.ones_like(codebook), np.ones(codebook.shape[:2], np.float32)
    out, lse = fovea.vq(q, codes, v, codebook, block=128, return_lse=True)
    u1, u2 = abs(q[..., :16]).copy(), abs(k[..., :16]).copy()
    ends = np.sort(numbers.integers(0, n, (2, n)), axis=0)
    masks = {"causal": fovea.Causal(), "intervals": fovea.RowInterval(*ends)}
    low_rank = {name: fovea.low_rank(u1, u2, v, mask=mask) for name, mask in masks.items()}
    scores = numbers.standard_normal((1, 1, n, 256), dtype=np.float32)
    sizes = f"D={width}, N={n}"
    ranks = f"r=16, {sizes}"
    return {
        **{f"low_rank {name}, {ranks}": lambda mask=mask: fovea.low_rank(u1, u2, v, mask=mask)
           for name, mask in masks.items()},
        **{f"gradient: low_rank {name}, {ranks}":
           lambda name=name, mask=mask: fovea.low_rank_backward(q, u1, u2, v, low_rank[name], mask=mask)
           for name, mask in masks.items()},
        **{f"conv, 8 bases, D={width}, N={tokens}":
           lambda tokens=tokens: fovea.conv(*(x[:, :, :tokens] for x in (q, k, v)), num_basis=8, window=16, delta=1.0, epsilon=0.01)
           for tokens in (256, 1024, n)},
        f"polynomial_features, degree 2 of 16, N={n}": lambda: fovea.polynomial_features(u1, degree=2, scale=0.25),
        f"pool, interval=16, {sizes}": lambda: fovea.pool(q, k, interval=16),
        f"top_k 16 of 256, N={n}": lambda: fovea.top_k(scores, 16),
        f"rope, {sizes}": lambda: fovea.rope(q, positions),
        f"quantize, S={words}, {sizes}": lambda: fovea.quantize(k, codebook),
        f"codebook_update, S={words}, {sizes}": lambda: fovea.codebook_update(k, codes, sums, counts),
        f"commitment_loss, {sizes}": lambda: fovea.commitment_loss(k, found),
        f"vq causal, S={words}, {sizes}": lambda: fovea.vq(q, codes, v, codebook, block=128),
        f"gradient: vq causal, S={words}, {sizes}":
            lambda: fovea.vq_backward(out, q, codes, v, codebook, out, lse, block=128),
    }  # fmt: skip


def make_trees(width=256, roots=1024):
    """The same of trees: with many roots, with one, and with a few."""
    numbers = np.random.default_rng(2)
    calls = {}
    for ratio, levels, count in ((16, 1, roots), (2, 4, roots), (2, 14, 1), (2, 10, 12)):
        tokens = count * ratio**levels
        c = numbers.standard_normal((1, tokens, width), dtype=np.float32)
        tree = fovea.tree_build(c, ratio=ratio, levels=levels)
        vip = 0.01 * numbers.standard_normal((1, 16, width), dtype=np.float32)
        budgets = {level: min(8, count * ratio ** (levels - level)) for level in range(levels, 0, -1)}
        nodes = fovea.tree_select(tree, budgets, score=vip)
        rows = numbers.standard_normal((1, nodes[0].shape[1], width), dtype=np.float32)
        title = f"ratio={ratio}, levels={levels}, F={width}, N={tokens}"
        calls |= {
            f"tree_build, {title}": lambda c=c, r=ratio, n=levels: fovea.tree_build(c, ratio=r, levels=n).nodes,
            f"tree_materialize, {title}": lambda tree=tree: fovea.tree_materialize(tree),
            f"tree_fetch, {title}": lambda tree=tree, nodes=nodes: fovea.tree_fetch(tree, *nodes, return_log_weight=True),
            f"tree_update, {title}": lambda tree=tree, nodes=nodes, rows=rows: fovea.tree_update(tree, *nodes, rows).nodes,
            f"tree_select, {title}": lambda tree=tree, vip=vip, budgets=budgets: fovea.tree_select(tree, budgets, score=vip),
            f"gradient: tree_build, {title}": lambda tree=tree: fovea.tree_build_backward(tree.nodes, tree),
            f"gradient: tree_materialize, {title}": lambda tree=tree, c=c: fovea.tree_materialize_backward(c, tree),
            f"gradient: tree_fetch, {title}": lambda tree=tree, nodes=nodes, rows=rows: fovea.tree_fetch_backward(rows, tree, *nodes),
            f"gradient: tree_update, {title}": lambda tree=tree, nodes=nodes: fovea.tree_update_backward(tree.nodes, tree, *nodes),
        }  # fmt: skip
    q, k = (numbers.standard_normal((1, 12, n, 64), dtype=np.float32) for n in (48, roots))
    calls[f"tree_score, 12 heads, 48 tokens, {roots} candidates"] = lambda: fovea.tree_score(q, k)
    d_score = numbers.standard_normal((1, roots), dtype=np.float32)
    calls[f"gradient: tree_score, 12 heads, 48 tokens, {roots} candidates"] = lambda: fovea.tree_score_backward(d_score, q, k)
    return calls


def timed(call, clock=time.perf_counter):
    begin = clock()
    result = call()
    return clock() - begin, result


def have_same_bits(one, other):
    ones, others = (list(r) if isinstance(r, tuple) else [r] for r in (one, other))
    return all(np.array_equal(*pair, equal_nan=True) for pair in zip(ones, others))


def compare(call, seconds, clock):
    """Times of first and of later calls for both, the ratio, and whether results have the same bits."""
    first, later, results = {}, {shapes: [] for shapes in SHAPES}, []
    for shapes in SHAPES:
        fovea.clear_cache()
        fovea.set_shapes(shapes)
        first[shapes], result = timed(call)
        results.append(result)
    for shapes in SHAPES:
        fovea.set_shapes(shapes)
        call()
    start = time.perf_counter()
    while len(later["static"]) < 5 or time.perf_counter() - start < seconds:
        for shapes in SHAPES:
            fovea.set_shapes(shapes)
            later[shapes].append(timed(call, clock)[0])
    # Neighbouring calls meet the same load of the machine.
    ratio = statistics.median(dynamic / static for static, dynamic in zip(*later.values()))
    medians = {shapes: statistics.median(times) for shapes, times in later.items()}
    return first, medians, ratio, have_same_bits(*results)


def main():
    arguments = parse_arguments()
    suites = [suite.Suite(suite.CONFIG / f"{name}.json") for name in arguments.suite]
    rows = [(row.id, row.title, row.threads, lambda row=row: make_call(row)) for one in suites for row in one.rows]
    rows += [(title, title, 1, lambda call=call: call) for title, call in (make_others() | make_trees()).items()]
    rows = [row for row in rows if not arguments.only or any(word in row[0] for word in arguments.only)]
    if not rows:
        raise SystemExit(f"--only: found no row of {', '.join(arguments.only)}")
    failed = False
    print("| row | static ms | dynamic ms | ratio | first call static ms | dynamic ms | bits |")
    print("|---|---|---|---|---|---|---|")
    for _, title, threads, make in rows:
        call = make()
        if not call:
            continue
        fovea.set_num_threads(0 if threads == "all" else threads)
        # Of one thread its own time, whatever else the machine does.
        clock = time.thread_time if threads == 1 else time.perf_counter
        first, medians, ratio, agree = compare(call, arguments.seconds, clock)
        failed |= ratio > 1 + arguments.at_most_slower / 100 or not agree
        times = [medians["static"], medians["dynamic"]]
        compile_times = [max(first[shapes] - medians[shapes], 0) for shapes in SHAPES]
        print("| " + " | ".join([
            title, *(f"{1e3 * t:.2f}" for t in times), f"{ratio:.3f}",
            *(f"{1e3 * t:.0f}" for t in compile_times), "same" if agree else "differ",
        ]) + " |", flush=True)  # fmt: skip
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
