#!/usr/bin/env python3
# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What it takes to turn cached keys by their positions, beside attention over them.

    PYTHONPATH=build/python .venv/bin/python benchmarks/rope.py

Calls `fovea.dense` on one thread and `fovea.rope` on its keys, in turns, and prints medians of the
thread's own time. A kernel that turned keys inside would do the same products for each tile of queries.
"""

import argparse
import statistics
import time

import numpy as np

import fovea

# Queries, keys, heads of queries and of keys, width.
ROWS = ((1, 8192, 8, 8, 64), (1, 8192, 8, 1, 64), (1, 8192, 32, 8, 128), (64, 8192, 8, 8, 64), (2048, 2048, 8, 8, 64))


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--calls", type=int, default=15, help="of each, for a row")
    parser.add_argument("--longest", type=int, default=8192, metavar="N", help="keys at most, for a short look")
    return parser.parse_args()


def measure(functions, calls):
    """Median seconds of each, called in turns."""
    times = [[] for _ in functions]
    for number in range(calls + 1):
        for function, mine in zip(functions, times):
            start = time.thread_time()
            function()
            # The first call compiles.
            if number:
                mine.append(time.thread_time() - start)
    return [statistics.median(mine) for mine in times]


def print_row(queries, keys, heads, key_heads, width, calls):
    numbers = np.random.default_rng(0)
    q = numbers.standard_normal((1, heads, queries, width), np.float32)
    k, v = (numbers.standard_normal((1, key_heads, keys, width), np.float32) for _ in range(2))
    turned, positions = np.empty_like(k), np.arange(keys, dtype=np.int32)
    attention, turning = measure(
        [lambda: fovea.dense(q, k, v, causal=True), lambda: fovea.rope(k, positions, out=turned)], calls
    )
    print(f"| {queries} | {keys} | {heads} | {key_heads} | {width} | {attention * 1e3:.2f} | {turning * 1e3:.2f} | "
          f"{100 * turning / attention:.1f} |")  # fmt: skip


def main():
    arguments = parse_arguments()
    fovea.set_num_threads(1)
    print("| queries | keys | heads | key heads | D | attention ms | turning keys ms | % |\n|---|---|---|---|---|---|---|---|")
    for queries, keys, *row in ROWS:
        print_row(min(queries, arguments.longest), min(keys, arguments.longest), *row, arguments.calls)


if __name__ == "__main__":
    main()
