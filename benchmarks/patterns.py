#!/usr/bin/env python3
# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The time of Longformer and BigBird, as docs/patterns writes them, beside that of dense attention.

    PYTHONPATH=build/python .venv/bin/python benchmarks/patterns.py

Calls them on one thread in turns, and prints the medians of the thread's own time, how many keys a query reads in the
mean, and the medians of the ratios of neighbouring calls.
"""

import argparse
import statistics
from functools import partial

import numpy as np
from scores import measure

import fovea

FAR = 1 << 30


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--calls", type=int, default=9, help="of each")
    parser.add_argument("--tokens", type=int, default=4096, metavar="N")
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--block", type=int, default=64, help="global tokens, and those of a block of BigBird")
    parser.add_argument("--window", type=int, default=256, help="of Longformer, to either side")
    parser.add_argument("--random", type=int, default=3, help="blocks that a query of BigBird reads at random")
    arguments = parser.parse_args()
    if arguments.tokens % arguments.block:
        parser.error(f"--tokens: found {arguments.tokens}, needed a multiple of the block of {arguments.block}")
    return arguments


def make_longformer(k, v, window, g):
    return [
        fovea.Source(k, v, window=window, ranges=lambda b, rows, n: (FAR - b * FAR, rows, g, rows)),
        fovea.Source(k, v, ranges=lambda b, rows, n: (0, g)),
        fovea.Source(k, v, ranges=lambda b, rows, n: (b * FAR, rows, g, rows)),
    ]


def make_bigbird(k, v, count, g):
    blocks = k.shape[2] // g
    numbers, lists = np.random.default_rng(1), np.full((1, 1, blocks, count), -1, np.int32)
    for block in range(1, blocks):
        others = [each for each in range(1, blocks) if abs(each - block) > 1]
        chosen = numbers.choice(others, min(count, len(others)), replace=False)
        lists[0, 0, block, : len(chosen)] = np.sort(chosen)
    return [
        fovea.Source(k, v, ranges=lambda b, rows, n: (g * b - g, g * b + 2 * g, g, b * FAR)),
        fovea.Source(k, v, ranges=lambda b, rows, n: (0, g)),
        fovea.Source(k, v, ranges=lambda b, rows, n: (b * FAR, rows, g, rows)),
        fovea.Source(k, v, rows=lists, unit=g),
    ]


def count_keys(sources, block):
    """How many keys a query reads in the mean: the weights of scores that are 0 add up to their number."""
    _, lse = fovea.stream(np.zeros_like(sources[0].k), sources, block=block, return_lse=True)
    return np.exp(lse.astype(np.float64)).mean()


def main():
    arguments = parse_arguments()
    fovea.set_num_threads(1)
    numbers, g = np.random.default_rng(0), arguments.block
    shape = (1, arguments.heads, arguments.tokens, arguments.width)
    q, k, v = (numbers.standard_normal(shape, np.float32) for _ in range(3))
    sources = {
        "Longformer": make_longformer(k, v, arguments.window, g),
        "BigBird": make_bigbird(k, v, arguments.random, g),
    }
    calls = {name: partial(fovea.stream, q, each, block=g) for name, each in sources.items()}
    keys = {"dense": arguments.tokens} | {name: count_keys(each, g) for name, each in sources.items()}
    times = measure(arguments.calls, {"dense": partial(fovea.dense, q, k, v), **calls})
    print("| pattern | keys of a query, in the mean | ms | over dense |\n|---|---|---|---|")
    for name, mine in times.items():
        ratio = statistics.median(each / whole for each, whole in zip(mine, times["dense"], strict=True))
        print(f"| {name} | {keys[name]:.0f} | {statistics.median(mine) * 1e3:.1f} | {ratio:.2f} |")


if __name__ == "__main__":
    main()
