#!/usr/bin/env python3
# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares dense attention on [B,N,H,D] memory with contiguous arrays; see docs/Benchmarking.md.

    PYTHONPATH=build/python .venv/bin/python benchmarks/strides.py

Calls `fovea.dense` on one thread with arrays that are contiguous as [B,H,N,D], with the same numbers
in [B,N,H,D] memory, and with copies of its keys and values, which it makes first, in turns. Prints the
time of the first and the medians of the ratios of neighbouring calls. Exit status 1: a row with at
least 1024 queries is slower than --at-most-slower allows, or results differ.
"""

import argparse
import statistics
import sys
import time

import numpy as np

import fovea

# Queries, keys, heads, width, causal.
ROWS = (
    (256, 256, 8, 64, True),
    (512, 512, 8, 64, True),
    (1024, 1024, 8, 64, True),
    (2048, 2048, 8, 64, True),
    (4096, 4096, 8, 64, True),
    (2048, 2048, 8, 64, False),
    (2048, 2048, 8, 128, True),
    (2048, 2048, 32, 64, True),
    (16, 4096, 8, 64, False),
    (64, 4096, 8, 64, False),
)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=2.0, help="for each row")
    parser.add_argument("--longest", type=int, default=4096, metavar="N", help="leaves out rows of more keys")
    parser.add_argument("--shapes", choices=("auto", "static", "dynamic"), default="auto", help="of the kernels")
    parser.add_argument("--at-most-slower", type=float, default=10.0, metavar="PERCENT",
                        help="what the exit status allows (default: 10)")  # fmt: skip
    arguments = parser.parse_args()
    if arguments.longest < (least := min(row[1] for row in ROWS)):
        parser.error(f"--longest: found {arguments.longest}, needed at least {least}, the keys of the shortest row")
    return arguments


def make_calls(queries, keys, heads, width, causal):
    """The calls by what they read."""
    numbers = np.random.default_rng(1)
    strided = [
        numbers.standard_normal((1, tokens, heads, width), dtype=np.float32).transpose(0, 2, 1, 3)
        for tokens in (queries, keys, keys)
    ]
    contiguous = [np.ascontiguousarray(array) for array in strided]
    q, k, v = strided
    return {
        "contiguous": lambda: fovea.dense(*contiguous, causal=causal),
        "strided": lambda: fovea.dense(q, k, v, causal=causal),
        "copied": lambda: fovea.dense(q, np.ascontiguousarray(k), np.ascontiguousarray(v), causal=causal),
    }


def compare(calls, seconds):
    """Median time of the contiguous call, ratios to it, and whether results have the same bits."""
    results = [call() for call in calls.values()]
    times = {name: [] for name in calls}
    start = time.perf_counter()
    while len(times["contiguous"]) < 5 or time.perf_counter() - start < seconds:
        for name, call in calls.items():
            # The thread's own time, whatever else the machine does.
            begin = time.thread_time()
            call()
            times[name].append(time.thread_time() - begin)
    base = times["contiguous"]
    # Neighbouring calls meet the same load of the machine.
    ratios = {name: statistics.median(t / b for t, b in zip(times[name], base)) for name in ("strided", "copied")}
    return statistics.median(base), ratios, all(np.array_equal(results[0], other) for other in results)


def main():
    arguments = parse_arguments()
    fovea.set_num_threads(1)
    fovea.set_shapes(arguments.shapes)
    failed = False
    print("| queries | keys | heads | D | mask | contiguous ms | strided | keys and values copied first | bits |")
    print("|---|---|---|---|---|---|---|---|---|")
    for queries, keys, heads, width, causal in (row for row in ROWS if row[1] <= arguments.longest):
        seconds, ratios, agree = compare(make_calls(queries, keys, heads, width, causal), arguments.seconds)
        failed |= not agree or (queries >= 1024 and ratios["strided"] > 1 + arguments.at_most_slower / 100)
        print(f"| {queries} | {keys} | {heads} | {width} | {'causal' if causal else ''} | {1e3 * seconds:.2f} "
              f"| {ratios['strided']:.2f} | {ratios['copied']:.2f} | {'same' if agree else 'differ'} |",
              flush=True)  # fmt: skip
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
