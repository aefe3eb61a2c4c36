#!/usr/bin/env python3
# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What one token of each sequence costs a PagedCache in memory of the CPU.

    PYTHONPATH=build/python .venv/bin/python benchmarks/append.py

Prints a table of the least and the median of the rounds, in microseconds for an append.
"""

import argparse
import statistics
import time

import numpy as np

import fovea


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sequences", type=int, default=64)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--page", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=7)
    return parser.parse_args()


def time_appends(arguments, dtype):
    sequences, heads, width = arguments.sequences, arguments.heads, arguments.width
    tokens = np.ones((sequences, heads, 1, width), dtype)
    pages = -(-(arguments.tokens + 1) // arguments.page) * sequences
    cache = fovea.PagedCache(pages, arguments.page, heads, width, batch=sequences, dtype=dtype)
    cache.append(tokens, tokens)
    begin = time.perf_counter()
    for _ in range(arguments.tokens):
        cache.append(tokens, tokens)
    return (time.perf_counter() - begin) / arguments.tokens * 1e6


def main():
    arguments = parse_arguments()
    print("| type | least | median |\n|---|---|---|")
    for dtype in ("float32", "float16"):
        times = [time_appends(arguments, dtype) for _ in range(arguments.rounds)]
        print(f"| {dtype} | {min(times):.1f} | {statistics.median(times):.1f} |")


if __name__ == "__main__":
    main()
