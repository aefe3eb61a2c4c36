#!/usr/bin/env python3
# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The time of functions of scores, over that of attention without one.

    PYTHONPATH=build/python .venv/bin/python benchmarks/scores.py

Calls `fovea.dense` and `fovea.dense_backward` on one thread, without a function and with each, in turns, and
prints the medians of the thread's own time and of the ratios of neighbouring calls. Decoding has one query for
each of 8 heads that share keys. Masks that are built in are those of `dense`, and a call for each of 8 documents. A
dilated mask stands beside the causal one, whose tiles it reads, and beside a call for each of 4 residues of positions.
"""

import argparse
import statistics
import time

import numpy as np

import fovea
from fovea.math import minimum, tanh

PARTS = ["functions", "captures", "masks", "decode"]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--calls", type=int, default=15, help="of each, for a row")
    parser.add_argument("--tokens", type=int, default=4096, metavar="N")
    parser.add_argument("--heads", type=int, default=2)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--causal", action="store_true")
    parser.add_argument("--keys", type=int, default=8192, help="that one token is decoded behind")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    return parser.parse_args()


def make_functions(numbers, heads, tokens):
    slopes = fovea.capture((2.0 ** -np.arange(1, heads + 1)).astype(np.float32))
    buckets = fovea.capture(numbers.standard_normal((32, heads)).astype(np.float32))
    table = fovea.capture(numbers.standard_normal((heads, 2 * tokens - 1)).astype(np.float32))
    return {
        "none": None,
        "soft-cap": lambda s, b, h, i, j: 50 * tanh(s / 50),
        "ALiBi": lambda s, b, h, i, j: s + slopes[h] * (j - i),
        "relative table": lambda s, b, h, i, j: s + table[h, j - i + tokens - 1],
        "32 buckets": lambda s, b, h, i, j: s + buckets[minimum(abs(i - j) // 8, 31), h],
    }


def measure(calls, functions):
    """Seconds of each function, called in turns."""
    times = {name: [] for name in functions}
    for number in range(calls + 1):
        for name, function in functions.items():
            start = time.thread_time()
            function()
            # The first call compiles.
            if number:
                times[name].append(time.thread_time() - start)
    return times


def make_masks(q, k, v, tokens):
    """Calls, arrays and options, with a mask that is built in, and one call with it as a function."""
    size, window = tokens // 8, max(tokens // 16, 1)
    ids = np.arange(tokens)[None] // size
    whole = (q, k, v)
    parts = [[x[:, :, first : first + size].copy() for x in whole] for first in range(0, 8 * size, size)]
    residues = [[x[:, :, first::4].copy() for x in whole] for first in range(4)]
    dilated = {"causal": True, "admit": lambda b, h, i, j: (i - j) % 4 == 0}
    return {
        "causal": ([(whole, {"causal": True})], {"admit": lambda b, h, i, j: i >= j}),
        "window": (
            [(whole, {"causal": True, "window": window})],
            {"admit": lambda b, h, i, j: (i >= j) & (i - j < window)},
        ),
        "prefix": (
            [(whole, {"causal": True, "prefix": window})],
            {"admit": lambda b, h, i, j: (i >= j) | (j < window)},
        ),
        "documents": ([(part, {"causal": True}) for part in parts], {"causal": True, "segments": (ids, ids)}),
        "dilated, beside causal": ([(whole, {"causal": True})], dilated),
        "dilated, beside residues": ([(part, {"causal": True}) for part in residues], dilated),
    }


def make_decode_masks(q, k, v):
    """The same of one query that stands at the last key."""
    keys, whole = k.shape[2], (q, k, v)
    ids = np.arange(keys)[None] * 8 // keys
    last = [q, *(x[:, :, -keys // 8 :].copy() for x in (k, v))]
    return {
        "window of 256": (
            [(whole, {"causal": True, "window": 256})],
            {"admit": lambda b, h, i, j: (i >= j) & (i - j < 256)},
        ),
        "last of 8 documents": ([(last, {})], {"segments": (ids[:, -1:], ids)}),
    }


def measure_masks(what, masks, whole, arguments, d_out=None):
    """Forward, and backward where there is a `d_out`."""
    for name, (built_in, function) in masks.items():
        sides = {"built in": built_in, "as a function": [(whole, function)]}
        print_rows(f"{what}{name}", measure(arguments.calls, {
            side: lambda calls=calls: [fovea.dense(*arrays, **options) for arrays, options in calls]
            for side, calls in sides.items()
        }))  # fmt: skip
        if d_out is None:
            continue
        inputs = {
            side: [
                ((d_out[:, :, : arrays[0].shape[2]].copy(), *arrays, *fovea.dense(*arrays, **options, return_lse=True)), options)
                for arrays, options in calls
            ]
            for side, calls in sides.items()
        }
        print_rows(f"{what}{name}, backward", measure(arguments.calls, {
            side: lambda calls=calls: [fovea.dense_backward(*arrays, **options) for arrays, options in calls]
            for side, calls in inputs.items()
        }))  # fmt: skip


def print_rows(what, times):
    first, *_ = times.values()
    for name, mine in times.items():
        ratio = statistics.median(each / plain for each, plain in zip(mine, first))
        print(f"| {what} | {name} | {statistics.median(mine) * 1e3:.2f} | {ratio:.2f} |")


def main():
    arguments = parse_arguments()
    fovea.set_num_threads(1)
    numbers = np.random.default_rng(0)
    shape = (1, arguments.heads, arguments.tokens, arguments.width)
    q, k, v, d_out = (numbers.standard_normal(shape, np.float32) for _ in range(4))
    options = {
        name: {"causal": arguments.causal, "score": score}
        for name, score in make_functions(numbers, arguments.heads, arguments.tokens).items()
    }
    print("| pass | function | ms | over none |\n|---|---|---|---|")
    if "functions" in arguments.parts:
        print_rows("forward", measure(arguments.calls, {
            name: lambda mine=mine: fovea.dense(q, k, v, **mine) for name, mine in options.items()
        }))  # fmt: skip
    for part, what, more in (
        ("functions", "backward", {}),
        ("captures", "backward, with what is captured", {"return_d_captures": True}),
    ):
        if part not in arguments.parts:
            continue
        results = {name: fovea.dense(q, k, v, return_lse=True, **mine) for name, mine in options.items()}
        print_rows(what, measure(arguments.calls, {
            name: lambda name=name, mine=mine, more=more, results=results: fovea.dense_backward(
                d_out, q, k, v, *results[name], **mine, **more
            )
            for name, mine in options.items()
        }))  # fmt: skip
    if "masks" in arguments.parts:
        measure_masks("", make_masks(q, k, v, arguments.tokens), (q, k, v), arguments, d_out)
    heads, width = 8 * arguments.heads, 2 * arguments.width
    q = numbers.standard_normal((1, heads, 1, width), np.float32)
    k, v = (numbers.standard_normal((1, arguments.heads, arguments.keys, width), np.float32) for _ in range(2))
    if "decode" in arguments.parts:
        print_rows("decode", measure(arguments.calls, {
            name: lambda score=score: fovea.dense(q, k, v, score=score)
            for name, score in make_functions(numbers, heads, arguments.keys).items()
        }))  # fmt: skip
        measure_masks("decode, ", make_decode_masks(q, k, v), (q, k, v), arguments)


if __name__ == "__main__":
    main()
