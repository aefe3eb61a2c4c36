#!/usr/bin/env python3
# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whether fewer queries take longer than more do; see docs/Benchmarking.md.

    PYTHONPATH=build/python .venv/bin/python benchmarks/queries.py

Times dense attention of every number of queries up to --most on the same keys, on one thread, in the thread's own time,
the fastest call of each. A number that takes longer than a larger one is measured again beside that one. Prints a row for
each that then takes more than --allowed times as long, and exits with status 1.
"""

import argparse
import itertools
import random
import sys
import time

import numpy as np
from decode import TYPES, make_arrays, parse_width

import fovea


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--types", nargs="+", choices=TYPES, default=list(TYPES))
    parser.add_argument("--widths", nargs="+", type=parse_width, default=[parse_width("64"), parse_width("128")])
    parser.add_argument("--groups", nargs="+", type=int, default=[1, 4], help="query heads of each key head")
    parser.add_argument("--keys", type=int, default=8192, help="of each of eight key heads")
    parser.add_argument("--most", type=int, default=128, help="queries")
    parser.add_argument("--step", type=int, default=1, help="of the numbers of queries behind the first 48")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--again", type=int, default=21, help="rounds of two numbers beside each other, where one seems too slow")
    parser.add_argument("--allowed", type=float, default=1.05)
    return parser.parse_args()


def make_calls(name, widths, group, arguments):
    """A call for each number of queries."""
    arrays, _ = make_arrays(np.dtype(TYPES[name]), widths, group, arguments.most, arguments.keys)
    q, k, v = arrays

    def make_call(count):
        own = np.ascontiguousarray(q[:, :, :count])
        out = np.empty((*own.shape[:3], widths[2]), q.dtype)
        return lambda: fovea.dense(own, k, v, out=out)

    few = min(48, arguments.most)
    counts = [*range(1, few + 1), *range(few + arguments.step, arguments.most + 1, arguments.step)]
    return {count: make_call(count) for count in counts}


def measure(calls, rounds):
    """The fastest of each. What a call finds in the caches depends on the one before: each round has another order. The
    first compiles."""
    times = {count: [] for count in calls}
    counts = list(calls)
    for turn in range(rounds + 1):
        random.Random(turn).shuffle(counts)
        for count in counts:
            begin = time.thread_time()
            calls[count]()
            times[count].append(time.thread_time() - begin)
    return {count: min(found[1:]) for count, found in times.items()}


def find_slower(times, allowed):
    """Numbers of queries that take longer than a larger one, and that one."""
    fastest = max(times)
    for count in sorted(times, reverse=True)[1:]:
        if times[count] > allowed * times[fastest]:
            yield count, fastest
        elif times[count] < times[fastest]:
            fastest = count


def main():
    arguments = parse_arguments()
    fovea.set_num_threads(1)
    failed = False
    header = ["type", "D", "heads of a group", "queries", "ms", "more", "ms of these", "as long"]
    print(f"| {' | '.join(header)} |\n|{'---|' * len(header)}")
    for name, widths, group in itertools.product(arguments.types, arguments.widths, arguments.groups):
        calls = make_calls(name, widths, group, arguments)
        times = measure(calls, arguments.rounds)
        for count, more in reversed(list(find_slower(times, arguments.allowed))):
            # Beside each other, so that they meet the same load of the machine.
            pair = measure({number: calls[number] for number in (count, more)}, arguments.again)
            ratio = pair[count] / pair[more]
            if ratio <= arguments.allowed:
                continue
            failed = True
            row = [name, widths[0], group, count, f"{1e3 * pair[count]:.3g}", more, f"{1e3 * pair[more]:.3g}", f"{ratio:.2f}x"]
            print(f"| {' | '.join(map(str, row))} |", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
