#!/usr/bin/env python3
# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Packed sequences, whose lengths are Zipf's, against a call for each of them.

    PYTHONPATH=build/python .venv/bin/python benchmarks/varlen.py

Prints a table: of the forward function, its gradient, and one query for each sequence,
the time of one thread, as a share of the sum of the sequences' own calls in the same
round, and how much faster the threads of the last column are. PyTorch has no packed
attention on CPUs. Exit status 1: bits differ from those of the sequences' own calls.
"""

import argparse
import statistics
import sys
import time

import numpy as np

import fovea


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sequences", type=int, default=64)
    parser.add_argument("--longest", type=int, default=8192)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    return parser.parse_args()


def views(array, starts):
    """Each sequence of [T,H,D] as [1,H,N,D]."""
    return [array[low:high].swapaxes(0, 1)[None] for low, high in zip(starts, starts[1:])]


def make_cases(arguments):
    """Of each row: its name, the packed call, the sequences' own calls, and the results of both."""
    rng = np.random.default_rng(1)
    lengths = np.maximum(arguments.longest // np.arange(1, arguments.sequences + 1), 1)
    rng.shuffle(lengths)
    keys = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    single = np.arange(arguments.sequences + 1, dtype=np.int32)
    shape = (keys[-1], arguments.heads, arguments.width)
    q, k, v, d_out = (rng.standard_normal(shape, np.float32) for _ in range(4))
    one = q[single[:-1]].copy()
    for name, rows, starts in (("forward", q, keys), ("one query each", one, single)):
        packed, own = np.empty_like(rows), np.empty_like(rows)
        calls = list(zip(*(views(x, at) for x, at in ((rows, starts), (k, keys), (v, keys), (own, starts)))))
        yield (
            name,
            lambda rows=rows, starts=starts, packed=packed: fovea.varlen(rows, k, v, starts, keys, causal=True, out=packed),
            lambda calls=calls: [fovea.dense(*arrays, causal=True, out=out) for *arrays, out in calls],
            [packed], [own],
        )  # fmt: skip
    out, lse = fovea.varlen(q, k, v, keys, keys, causal=True, return_lse=True)
    packed, own = ([np.empty_like(q) for _ in range(3)] for _ in range(2))
    sums = [lse[None, :, low:high] for low, high in zip(keys, keys[1:])]
    calls = list(zip(*(views(x, keys) for x in (d_out, q, k, v, out)), sums, zip(*(views(x, keys) for x in own))))
    yield (
        "gradient",
        lambda: fovea.varlen_backward(d_out, q, k, v, keys, keys, out, lse, causal=True, gradients=packed),
        lambda: [fovea.dense_backward(*arrays, causal=True, gradients=memory) for *arrays, memory in calls],
        packed, own,
    )  # fmt: skip


def time_call(call, clock):
    begin = clock()
    call()
    return clock() - begin


def main():
    arguments = parse_arguments()
    failed = False
    print(f"| row | ms | of the sum of own calls | {arguments.threads} threads |\n|---|---|---|---|")
    for name, packed, own, found, expected in make_cases(arguments):
        packed(), own()
        failed |= not all(np.array_equal(*pair) for pair in zip(found, expected))
        times, others, shared, alone = [], [], [], []
        for _ in range(arguments.rounds):
            fovea.set_num_threads(1)
            # Of one thread its own time, whatever else the machine does.
            times.append(time_call(packed, time.thread_time))
            others.append(time_call(own, time.thread_time))
            alone.append(time_call(packed, time.perf_counter))
            fovea.set_num_threads(arguments.threads)
            shared.append(time_call(packed, time.perf_counter))
        ratio = statistics.median(a / b for a, b in zip(times, others))
        faster = statistics.median(a / b for a, b in zip(alone, shared))
        print(f"| {name} | {1e3 * statistics.median(times):.2f} | {ratio:.2f} | {faster:.2f}x |", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
