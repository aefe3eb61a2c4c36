#!/usr/bin/env python3
# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fast multipole attention token by token after histories of any length.

    PYTHONPATH=build/python .venv/bin/python benchmarks/decode_multipole.py

Prints a table: the time of a token, the sums of its group included, as a mean over
whole groups; beside that of the shortest history, as the median of the ratios of
neighbouring groups; what of it is the group's, which one call appends to a fork; what
a token reads; and the time that NumPy's BLAS takes for dot products of as many bytes,
which lie in caches as well. --picture draws the times over
the history, beside those of dense attention to as many keys. --pieces appends so many
tokens at a time after the longest history, and does nothing else. Exit status 1: results
differ from those of the whole call.
"""

import argparse
import os
import pathlib
import statistics
import sys
import time

# Of everyone's one thread. BLAS reads it as it is loaded.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from fovea_bench import plot

import fovea


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--histories", nargs="+", type=int, default=[1024, 4096, 16384, 65536, 262144, 1048576])
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--group", type=int, default=64)
    parser.add_argument("--rank", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=30, help="groups of each history")
    parser.add_argument("--picture", type=pathlib.Path, help="an SVG file")
    parser.add_argument("--pieces", nargs="+", type=int, metavar="TOKENS", help="tokens that are appended at a time")
    arguments = parser.parse_args()
    most = 8 * arguments.group
    if any(not 1 <= count <= most for count in arguments.pieces or []):
        parser.error(f"--pieces: found {arguments.pieces}, needed numbers of 1 to {most}, eight groups")
    return arguments


def make_weights(arguments, levels, rng):
    """Random rows for the first level, which the others repeat: memory is filled fast."""
    shape = (1, arguments.rank, arguments.group, arguments.width)
    first = rng.standard_normal(shape, np.float32) / arguments.group
    return [np.tile(first / (1 << level), (1, 1, 1 << level, 1)) for level in range(levels)]


def make_caches(arguments, tokens, weights):
    """A cache after each history, made of the same tokens again and again."""
    cache = fovea.MultipoleCache(*weights, group=arguments.group, heads=arguments.heads)
    caches = []
    for history in arguments.histories:
        while cache.length < history:
            count = min(tokens.shape[2], history - cache.length)
            cache.append(tokens[:, :, :count], tokens[:, :, :count])
        caches.append(cache.fork())
    return caches


def is_right(arguments, tokens, weights):
    """Whether tokens are as the whole call has them."""
    count = min(tokens.shape[2], 7 * arguments.group + 3)
    rows = tokens[:, :, :count]
    levels = len(weights[0])
    while levels > 1 and count <= arguments.group << levels:
        levels -= 1
    expected = fovea.fast_multipole(rows, rows, rows, *(side[:levels] for side in weights), group=arguments.group, causal=True)
    cache = fovea.MultipoleCache(*weights, group=arguments.group, heads=arguments.heads)
    worst = 0.0
    for i in range(count):
        token = rows[:, :, i : i + 1]
        out = fovea.fast_multipole_decode(token, token, token, cache)
        worst = max(worst, np.abs(out - expected[:, :, i : i + 1]).max() / np.abs(expected[:, :, i]).max())
    return worst <= 1e-5


def count_bytes(arguments, history):
    """Rows that a token reads on average: near ones, summaries, and weights of all levels."""
    near = 1.5 * arguments.group + 0.5
    read = sum(1.5 for level in range(64) if history >= 3 * arguments.group << level)
    far = read * arguments.rank
    return 4 * 2 * arguments.width * arguments.heads * (near + far)


def time_group(cache, tokens):
    begin = time.thread_time()
    for i in range(tokens.shape[2]):
        token = tokens[:, :, i : i + 1]
        fovea.fast_multipole_decode(token, token, token, cache)
    return (time.thread_time() - begin) / tokens.shape[2]


def time_append(cache, tokens):
    """Seconds for each token of a group that comes at once, with the sums of the one before."""
    begin = time.thread_time()
    cache.append(tokens, tokens)
    return (time.thread_time() - begin) / tokens.shape[2]


def time_pieces(cache, tokens, least):
    """Seconds for each of at least `least` tokens that come in pieces like `tokens`."""
    cache, count = cache.fork(), tokens.shape[2]
    pieces = -(-least // count)
    begin = time.thread_time()
    for _ in range(pieces):
        cache.append(tokens, tokens)
    return (time.thread_time() - begin) / (pieces * count)


def time_read(size, repeats):
    line = np.ones(int(size / 4), np.float32)
    begin = time.thread_time()
    for _ in range(repeats):
        line @ line
    return (time.thread_time() - begin) / repeats


def time_dense(arguments, token):
    """Seconds of a token of `dense` after each history, whose keys repeat one row: memory is filled fast."""
    k, v = (np.tile(token, (1, 1, arguments.histories[-1], 1)) for _ in "kv")
    times = {}
    for history in arguments.histories:
        rows = [each[:, :, :history] for each in (k, v)]
        found = []
        for _ in range(6):
            begin = time.thread_time()
            fovea.dense(token, *rows)
            found.append(time.thread_time() - begin)
        times[history] = statistics.median(found[1:])
    return times


def main():
    arguments = parse_arguments()
    arguments.histories.sort()
    fovea.set_num_threads(1)
    rng = np.random.default_rng(1)
    most = arguments.histories[-1] + max(arguments.rounds + 1, 17 if arguments.pieces else 0) * arguments.group
    levels = 1
    while arguments.group << (levels + 1) < most:
        levels += 1
    weights = [make_weights(arguments, levels, rng) for _ in "kv"]
    tokens = rng.standard_normal((1, arguments.heads, 8 * arguments.group, arguments.width), np.float32)
    caches = make_caches(arguments, tokens, weights)
    if arguments.pieces:
        print("| tokens at a time | us a token |\n|---|---|")
        for count in arguments.pieces:
            found = [time_pieces(caches[-1], tokens[:, :, :count], 8 * arguments.group) for _ in range(arguments.rounds)]
            print(f"| {count} | {1e6 * statistics.median(found):.1f} |")
        return 0
    group = tokens[:, :, : arguments.group]
    sizes = [count_bytes(arguments, history) for history in arguments.histories]
    times, appends, reads = ([[] for _ in caches] for _ in range(3))
    forks = [cache.fork() for cache in caches]
    for cache, fork in zip(caches, forks):
        time_group(cache, group)
        time_append(fork, group)
    for _ in range(arguments.rounds):
        for cache, fork, size, own, append, read in zip(caches, forks, sizes, times, appends, reads):
            append.append(time_append(fork, group))
            own.append(time_group(cache, group))
            read.append(time_read(size, arguments.group))
    print(f"{levels} levels of weights, {caches[0].nbytes / 1e6:.2f} MB of cache")
    print("| tokens before | us a token | of the first row's | of which sums | bytes read, kB | reading takes us |")
    print("|---|---|---|---|---|---|")
    for history, size, own, append, read in zip(arguments.histories, sizes, times, appends, reads):
        ratio = statistics.median(a / b for a, b in zip(own, times[0]))
        row = [history, f"{1e6 * statistics.median(own):.1f}", f"{ratio:.2f}", f"{1e6 * statistics.median(append):.1f}",
               f"{size / 1e3:.0f}", f"{1e6 * statistics.median(read):.1f}"]  # fmt: skip
        print(f"| {' | '.join(map(str, row))} |")
    if arguments.picture:
        dense = time_dense(arguments, tokens[:, :, :1])
        print("\n| tokens before | us a token of dense |\n|---|---|")
        for history, seconds in dense.items():
            print(f"| {history} | {1e6 * seconds:.0f} |")
        series = {
            "dense": list(dense.items()),
            "fast multipole": [(history, statistics.median(own)) for history, own in zip(arguments.histories, times)],
        }
        title = f"A token of {arguments.heads} heads of width {arguments.width} after a history"
        arguments.picture.write_text(plot.svg(series, title, "tokens before", "time of a token"))
    return 0 if is_right(arguments, tokens, weights) else 1


if __name__ == "__main__":
    sys.exit(main())
