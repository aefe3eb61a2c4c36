#!/usr/bin/env python3
# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One query that reads rows of lists, and pages; see docs/Benchmarking.md.

    PYTHONPATH=build/python .venv/bin/python benchmarks/lists.py

Prints two tables: rows that a list names, as a share of the time in which NumPy gathers
them, and pages as a share of the time of the same keys in one piece. Exit status 1:
results differ from those of rows that were gathered, or of keys in one piece.
"""

import argparse
import statistics
import sys
import time

import numpy as np
from decode import BOUNDS, TYPES, measure

import fovea


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--types", nargs="+", choices=TYPES, default=["f32", "bf16"])
    parser.add_argument("--rows", type=int, default=60000, help="of the keys that lists choose from")
    parser.add_argument("--chosen", type=int, default=2048, help="rows of a list")
    parser.add_argument("--heads", nargs="+", type=int, default=[1, 16, 128], help="query heads that share a list")
    parser.add_argument("--keys", type=int, default=8192, help="of a sequence in pages of 16, with 8 heads of 128 columns")
    parser.add_argument("--groups", nargs="+", type=int, default=[1, 4, 8], help="query heads of each key head")
    parser.add_argument("--rounds", type=int, default=11)
    arguments = parser.parse_args()
    if arguments.chosen > arguments.rows:
        parser.error(f"--chosen: found {arguments.chosen}, needed at most {arguments.rows}, the rows")
    return arguments


def fill(dtype, *shape):
    """Rows that differ in a few columns: memory is filled fast."""
    rng = np.random.default_rng(1)
    array = np.empty(shape, dtype)
    array[:] = rng.standard_normal(shape[-1]).astype(dtype)
    array[..., :4] = rng.standard_normal((*shape[:-1], 4)).astype(dtype)
    return array


def compare(own, peer, rounds):
    """The times of both, and the share, in milliseconds."""
    times = measure([own, peer], rounds, time.thread_time)
    share = statistics.median(b / a for a, b in zip(*times))
    return [f"{1e3 * statistics.median(each):.3g}" for each in times] + [f"{100 * share:.0f} %"]


def is_near(found, expected, name):
    found, expected = found.astype(np.float64), expected.astype(np.float64)
    return np.abs(found - expected).max() <= 2 * BOUNDS[name] * np.abs(expected).max()


def measure_list(name, heads, arguments):
    """A list of single rows of 576 columns, of which 512 are values, as DeepSeek's models have them."""
    dtype = np.dtype(TYPES[name])
    kv = fill(dtype, 1, 1, arguments.rows, 576)
    rng = np.random.default_rng(2)
    q = rng.standard_normal((1, heads, 1, 576)).astype(dtype)
    lists = [rng.choice(arguments.rows, arguments.chosen, replace=False).astype(np.int32)[None, None, None] for _ in range(16)]
    turn = [0, 0]

    def choose(which):
        # Another one each time: rows are not in the cache.
        turn[which] += 1
        return lists[(turn[which] + 8 * which) % 16]

    flat = kv[0, 0].view(np.uint8)
    room = np.empty((arguments.chosen, flat.shape[1]), np.uint8)
    row = compare(
        lambda: fovea.selected(q, kv, kv[..., :512], choose(0)),
        lambda: np.take(flat, choose(1)[0, 0, 0], axis=0, out=room, mode="clip"),
        arguments.rounds,
    )
    own = kv[:, :, lists[0][0, 0, 0]]
    right = is_near(fovea.selected(q, kv, kv[..., :512], lists[0]), fovea.dense(q, own, own[..., :512]), name)
    return [name, heads, *row], right


def measure_pages(name, group, is_first, arguments):
    dtype = np.dtype(TYPES[name])
    pages = arguments.keys // 16
    shape = (pages, 16, 8, 128) if is_first else (pages, 8, 16, 128)
    k, v = (fill(dtype, *shape) for _ in "kv")
    table = np.random.default_rng(2).permutation(pages)[None].astype(np.int32)
    q = np.random.default_rng(3).standard_normal((1, 8 * group, 1, 128)).astype(dtype)
    heads_first = [each.swapaxes(1, 2) if is_first else each for each in (k, v)]
    own = [np.ascontiguousarray(each[table[0]].swapaxes(0, 1)).reshape(1, 8, -1, 128) for each in heads_first]
    lengths = np.array([pages * 16])
    row = compare(
        lambda: fovea.paged(q, *heads_first, table, lengths), lambda: fovea.dense(q, *own, causal=True), arguments.rounds
    )
    right = is_near(fovea.paged(q, *heads_first, table, lengths), fovea.dense(q, *own, causal=True), name)
    return [name, "[P,page,G,D]" if is_first else "[P,G,page,D]", group, *row], right


def show(header, rows):
    print(f"| {' | '.join(header)} |\n|{'---|' * len(header)}")
    failed = False
    for row, right in rows:
        failed |= not right
        print(f"| {' | '.join(map(str, row))} |", flush=True)
    return failed


def main():
    arguments = parse_arguments()
    fovea.set_num_threads(1)
    failed = show(
        ["type", "heads", "ms", "ms of the gathered read", "share"],
        (measure_list(name, heads, arguments) for name in arguments.types for heads in arguments.heads),
    )
    print()
    failed |= show(
        ["type", "pages", "heads of a group", "ms", "ms in one piece", "share"],
        (
            measure_pages(name, group, is_first, arguments)
            for name in arguments.types
            for is_first in (False, True)
            for group in arguments.groups
        ),
    )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
