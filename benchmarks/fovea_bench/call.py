# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The time of a call of a compiled kernel from Python, in a process of its own.

    python call.py KERNEL.mlir SECONDS INPUT.npy...

Prints seconds for each call as JSON: of groups of 200 calls, median, least, greatest.
"""

import json
import pathlib
import statistics
import sys
import time

import numpy as np

import fovea

_CALLS = 200


def main():
    path, seconds, *inputs = sys.argv[1:]
    kernel = fovea.compile(pathlib.Path(path).read_text())
    arrays = [np.load(name) for name in inputs]
    times, start = [], time.perf_counter()
    while len(times) < 5 or time.perf_counter() - start < float(seconds):
        begin = time.perf_counter()
        for _ in range(_CALLS):
            kernel(*arrays)
        times.append((time.perf_counter() - begin) / _CALLS)
    spread = {"median": statistics.median(times), "min": min(times), "max": max(times)}
    json.dump({"call_seconds": spread}, sys.stdout)


if __name__ == "__main__":
    main()
