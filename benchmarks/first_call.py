#!/usr/bin/env python3
# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Times the first call of processes, with and without compiled code on disk.

    PYTHONPATH=build/python .venv/bin/python benchmarks/first_call.py

Each time is that of a process of its own, from the end of `import fovea` to the
first result. Prints medians, and the second call, in milliseconds; both kinds
run in turns.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile

SETUP = """
import time
import numpy as np
import fovea
numbers = np.random.default_rng(1)
def make(*shape):
    return numbers.standard_normal(shape, dtype=np.float32)
q, k, v = (make(1, 8, 256, 64) for _ in range(3))
weights = [make(1, 2, 32, 64), make(1, 2, 64, 64)]
def call():
    return CALL
times = [time.perf_counter()]
for _ in range(2):
    call()
    times.append(time.perf_counter())
print(times[1] - times[0], times[2] - times[1])
"""
TEXT = """func.func @f(%x: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %init = tensor.empty() : tensor<64x64xf32>
  %0 = linalg.exp ins(%x : tensor<64x64xf32>) outs(%init : tensor<64x64xf32>) -> tensor<64x64xf32>
  return %0 : tensor<64x64xf32>
}"""
CALLS = {
    "dense": "fovea.dense(q, k, v)",
    "dense causal": "fovea.dense(q, k, v, causal=True)",
    "dense gradients": "fovea.dense_backward(q, q, k, v, q, q[..., 0])",
    "fast multipole": "fovea.fast_multipole(q, k, v, weights, weights, group=32, causal=True)",
    "compile": f"fovea.compile({TEXT!r})(q[0, 0, :64])",
}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="+", choices=CALLS, default=list(CALLS), help="rows")
    parser.add_argument("--rounds", type=int, default=9, help="processes of each kind (default: 9)")
    return parser.parse_args()


def measure(call, folder):
    """Seconds of the first and the second call of a new process."""
    program = SETUP.replace("CALL", call)
    environment = {**os.environ, "FOVEA_CACHE_DIR": folder}
    result = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"error: {call}\n{result.stderr}")
    return tuple(map(float, result.stdout.split()))


def main():
    arguments = parse_arguments()
    print("| row | compiled ms | from disk ms | second call ms |")
    print("|---|---|---|---|")
    for row in arguments.only:
        with tempfile.TemporaryDirectory() as folder:
            measure(CALLS[row], folder)
            rounds = [(measure(CALLS[row], ""), measure(CALLS[row], folder)) for _ in range(arguments.rounds)]
        columns = [[compiled[0] for compiled, _ in rounds], [disk[0] for _, disk in rounds], [disk[1] for _, disk in rounds]]
        cells = [f"{statistics.median(column) * 1e3:.1f}" for column in columns]
        print(f"| {row} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
