#!/usr/bin/env python3
# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Few queries on a long cache of keys and values; see docs/Benchmarking.md.

    PYTHONPATH=build/python .venv/bin/python benchmarks/decode.py

Prints a table: the time of one call, the share of the time that reading keys and
values takes in the same round (a dot product of the same bytes with themselves, by
NumPy's BLAS), and how much longer PyTorch's scaled_dot_product_attention takes,
where there is PyTorch. Exit status 1: results differ from those of NumPy.
"""

import argparse
import itertools
import os
import statistics
import sys
import time

# Of everyone's one thread. BLAS reads it as it is loaded.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import ml_dtypes
import numpy as np

import fovea
from fovea import reference

TYPES = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "f16": np.float16}
BOUNDS = {"f32": 5e-6, "bf16": 1e-2, "f16": 2e-3}
KEY_HEADS = 8


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--types", nargs="+", choices=TYPES, default=["f32", "bf16"])
    parser.add_argument("--widths", nargs="+", type=int, default=[64, 128, 256], help="columns of keys and of values")
    parser.add_argument("--groups", nargs="+", type=int, default=[1, 4, 8], help="query heads of each key head")
    parser.add_argument("--queries", nargs="+", type=int, default=[1], help="tokens of one call")
    parser.add_argument("--megabytes", type=float, default=67.1, help="of keys and values together")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=11)
    return parser.parse_args()


def make_arrays(dtype, width, group, queries, keys):
    """Queries and a cache, whose rows differ in a few columns: memory is filled fast."""
    rng = np.random.default_rng(1)
    q = rng.standard_normal((1, KEY_HEADS * group, queries, width)).astype(dtype)
    cache = []
    for _ in "kv":
        array = np.empty((1, KEY_HEADS, keys, width), dtype)
        array[:] = rng.standard_normal(width).astype(dtype)
        array[..., :4] = rng.standard_normal((KEY_HEADS, keys, 4)).astype(dtype)
        cache.append(array)
    return q, *cache


def make_peer(arrays, group):
    """PyTorch's call, or None without it."""
    try:
        import torch
    except ImportError:
        return None
    torch.set_num_threads(1)

    def to_torch(array):
        if array.dtype == ml_dtypes.bfloat16:
            return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(array)

    tensors = [to_torch(array) for array in arrays]
    attend = torch.nn.functional.scaled_dot_product_attention
    return lambda: attend(*tensors, enable_gqa=group > 1)


def measure(calls, rounds, clock):
    """Times of each call, in turns, which meet the same load of the machine."""
    for call in calls:
        call()
    times = [[] for _ in calls]
    for _ in range(rounds):
        for call, found in zip(calls, times):
            begin = clock()
            call()
            found.append(clock() - begin)
    return times


def measure_case(name, width, group, queries, arguments):
    """A row of the table, and whether the first head of each group is right."""
    dtype = np.dtype(TYPES[name])
    keys = max(int(arguments.megabytes * 1e6 / (2 * KEY_HEADS * width * dtype.itemsize)), 1)
    arrays = make_arrays(dtype, width, group, queries, keys)
    q, k, v = arrays
    lines = [array.view(np.float32).reshape(-1) for array in (k, v)]
    out = np.empty_like(q)
    calls = [lambda: fovea.dense(*arrays, out=out), lambda: [line @ line for line in lines]]
    if peer := make_peer(arrays, group):
        calls.append(peer)
    # Of one thread its own time, whatever else the machine does.
    clock = time.thread_time if arguments.threads == 1 else time.perf_counter
    own, *others = measure(calls, arguments.rounds, clock)
    # Neighbouring calls meet the same load of the machine.
    read, *beside = (statistics.median(b / a for a, b in zip(own, other)) for other in others)
    seconds = statistics.median(own)
    expected = reference.dense(q[:, ::group], k, v)
    error = np.abs(out[:, ::group].astype(np.float64) - expected).max() / np.abs(expected).max()
    row = [
        name, width, group, queries, keys, f"{1e3 * seconds:.3g}", f"{100 * read:.0f} %",
        f"{4 * KEY_HEADS * group * queries * keys * width / seconds / 1e9:.0f}",
        f"{beside[0]:.1f}x" if beside else "",
    ]  # fmt: skip
    return row, error <= BOUNDS[name]


def main():
    arguments = parse_arguments()
    fovea.set_num_threads(arguments.threads)
    failed = False
    print("| type | D | heads of a group | queries | keys | ms | of the read's time | GFLOP/s | PyTorch takes |")
    print("|---|---|---|---|---|---|---|---|---|")
    cases = itertools.product(arguments.types, arguments.widths, arguments.groups, arguments.queries)
    for case in cases:
        row, is_right = measure_case(*case, arguments)
        failed |= not is_right
        print(f"| {' | '.join(map(str, row))} |", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
