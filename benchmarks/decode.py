#!/usr/bin/env python3
# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Few queries on a long cache of keys and values; see docs/Benchmarking.md.

    PYTHONPATH=build/python .venv/bin/python benchmarks/decode.py

Prints a table: the time of one call, the share of the time that reading keys and
values takes in the same round (a dot product of as many bytes with themselves, by
NumPy's BLAS), and how much longer PyTorch's scaled_dot_product_attention takes,
where there is PyTorch. Several threads are compared with one, too. --picture draws
the time over the number of keys. Exit status 1: results differ from those of NumPy.
"""

import argparse
import itertools
import os
import pathlib
import statistics
import sys
import time

# Of everyone's one thread. BLAS reads it as it is loaded.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import ml_dtypes
import numpy as np
from fovea_bench import plot

import fovea
from fovea import reference

TYPES = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "f16": np.float16}
BOUNDS = {"f32": 5e-6, "bf16": 1e-2, "f16": 2e-3}
KEY_HEADS = 8


def parse_width(text):
    """Columns of keys, and of values: `576/512` are one key head, whose values are the first columns of keys."""
    widths = [int(width) for width in text.split("/")]
    if len(widths) > 2 or min(widths) < 1 or widths[-1] > widths[0]:
        raise argparse.ArgumentTypeError(f"expected columns of keys, or of keys and at most as many of values, but got {text}")
    return text, widths[0], widths[-1]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--types", nargs="+", choices=TYPES, default=["f32", "bf16"])
    parser.add_argument(
        "--widths", nargs="+", type=parse_width, default=[parse_width(width) for width in ("64", "128", "256")],
        help="columns of keys and of values, or both: 576/512",
    )
    parser.add_argument("--groups", nargs="+", type=int, default=[1, 4, 8], help="query heads of each key head")
    parser.add_argument("--queries", nargs="+", type=int, default=[1], help="tokens of one call")
    parser.add_argument("--megabytes", type=float, default=67.1, help="of keys and values together")
    parser.add_argument("--keys", nargs="+", type=int, help="of each key head, instead of megabytes")
    parser.add_argument("--picture", type=pathlib.Path, help="an SVG file: times over keys")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=11)
    return parser.parse_args()


def make_arrays(dtype, widths, group, queries, keys):
    """Queries and a cache, whose rows differ in a few columns: memory is filled fast."""
    _, width, value_width = widths
    heads = KEY_HEADS if width == value_width else 1
    rng = np.random.default_rng(1)
    q = rng.standard_normal((1, heads * group, queries, width)).astype(dtype)
    cache = []
    for _ in "kv" if width == value_width else "k":
        array = np.empty((1, heads, keys, width), dtype)
        array[:] = rng.standard_normal(width).astype(dtype)
        array[..., :4] = rng.standard_normal((heads, keys, 4)).astype(dtype)
        cache.append(array)
    return [q, cache[0], cache[-1][..., :value_width]], cache


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


def measure_case(name, widths, group, queries, keys, arguments):
    """A row of the table, the seconds, and whether the first head of each group is right."""
    dtype = np.dtype(TYPES[name])
    width, value_width = widths[1:]
    if keys is None:
        columns = width if width != value_width else 2 * KEY_HEADS * width
        keys = max(int(arguments.megabytes * 1e6 / (columns * dtype.itemsize)), 1)
    arrays, cache = make_arrays(dtype, widths, group, queries, keys)
    q, k, v = arrays
    # Numbers whose products take no longer than others.
    lines = [np.ones(array.nbytes // 4, np.float32) for array in cache]
    out = np.empty((*q.shape[:3], value_width), dtype)

    def attend(threads):
        fovea.set_num_threads(threads)
        fovea.dense(*arrays, out=out)

    calls = [lambda: attend(arguments.threads), lambda: [line @ line for line in lines]]
    if arguments.threads > 1:
        calls.append(lambda: attend(1))
    if peer := make_peer(arrays, group):
        calls.append(peer)
    # Of one thread its own time, whatever else the machine does.
    clock = time.thread_time if arguments.threads == 1 else time.perf_counter
    own, *others = measure(calls, arguments.rounds, clock)
    # Neighbouring calls meet the same load of the machine.
    ratios = [statistics.median(b / a for a, b in zip(own, other)) for other in others]
    seconds = statistics.median(own)
    expected = reference.dense(q[:, ::group], k, v)
    error = np.abs(out[:, ::group].astype(np.float64) - expected).max() / np.abs(expected).max()
    row = [
        name, widths[0], group, queries, keys, f"{1e3 * seconds:.3g}", f"{100 * ratios[0]:.0f} %",
        f"{2 * q.shape[1] * queries * keys * (width + value_width) / seconds / 1e9:.0f}",
        f"{ratios[-1]:.1f}x" if peer else "",
    ]  # fmt: skip
    if arguments.threads > 1:
        row.append(f"{ratios[1]:.2f}x")
    return row, seconds, error <= BOUNDS[name]


def main():
    arguments = parse_arguments()
    failed = False
    header = ["type", "D", "heads of a group", "queries", "keys", "ms", "of the read's time", "GFLOP/s", "PyTorch takes"]
    if arguments.threads > 1:
        header.append("one thread takes")
    print(f"| {' | '.join(header)} |\n|{'---|' * len(header)}")
    series = {}
    cases = itertools.product(
        arguments.types, arguments.widths, arguments.groups, arguments.queries, arguments.keys or [None]
    )
    for case in cases:
        row, seconds, is_right = measure_case(*case, arguments)
        failed |= not is_right
        series.setdefault(f"{row[0]}, D = {row[1]}, {row[2]} to a group", []).append((row[4], seconds))
        print(f"| {' | '.join(map(str, row))} |", flush=True)
    if arguments.picture:
        title = "One token" if arguments.queries == [1] else "A call"
        arguments.picture.write_text(plot.svg(series, f"{title} after more and more keys", "keys", "time of a call"))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
