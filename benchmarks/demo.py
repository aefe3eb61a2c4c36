#!/usr/bin/env python3
# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Dense and fast multipole attention on a real and on long inputs.

    benchmarks/demo.py [--sizes 4096 ... 65536] [--heads 2]

First on queries, keys and values of a real transformer (examples/README.md),
then causally on random ones of growing length. Every result is checked against
the NumPy references in f64: on the real input all of it, on the long ones a
sample of queries (dense) or one head (fast multipole). Ends in a table. Exit
status 1: a kernel failed or its result is wrong.
"""

import argparse
import pathlib
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

try:
    import numpy as np
    from fovea_bench import backends, machine, reference, report
    from fovea_bench.workloads import BOUNDS, Workload
except ImportError as error:
    sys.exit(f"error: {error}; the demo needs NumPy, which utils/build.sh puts into .venv")

_HEADER = ("input", "attention", "time", "speed-up", "error", "peak memory", "beyond in and out")


class Demo:
    def __init__(self, tools, threads, folder):
        self.tools, self.threads, self.folder = tools, threads, folder
        self.lines, self.failures = [], []

    def run(self, workload, inputs, title, attention, check, dense_seconds):
        """Adds a line to the table. Returns the time and the result."""
        print(f"{title}: {attention} ...", end=" ", flush=True)
        start = time.monotonic()
        prepared = backends.Prepared(inputs, self.folder)
        try:
            prepared.set_ir(workload.ir())
            found, result = prepared.run(self.tools, self.threads, seconds=0.3)
        except backends.KernelError as error:
            print("FAILED: " + str(error), flush=True)
            self.failures.append(f"{title}, {attention}: {error}")
            self.lines.append([title, attention, "FAILED"] + [""] * 4)
            return None, None
        finally:
            prepared.remove()
        bench = found["bench"]
        seconds = bench["median_seconds"]
        print(f"{report.duration(seconds)}, checking ...", end=" ", flush=True)
        error, bound = check(inputs, result)
        is_right = error <= bound
        if not is_right:
            self.failures.append(
                f"{title}, {attention}: found a relative error of {error:.3g}, "
                f"needed at most {bound:.3g}"
            )
        working = bench["peak_allocated_bytes"] + bench["peak_scratch_bytes"]
        self.lines.append(
            [
                title,
                attention,
                report.duration(seconds),
                report.factor(dense_seconds / seconds) if dense_seconds else "1x",
                f"{error:.1e}" if is_right else f"{error:.1e} WRONG",
                report.memory(working + sum(array.nbytes for array in inputs)),
                report.memory(working - workload.result_bytes()),
            ]
        )
        print(f"error {error:.1e} [{time.monotonic() - start:.1f} s]", flush=True)
        return seconds, result


def check_whole(found, expected):
    """The error of a whole result in f32, and its bound."""
    difference = np.abs(found - expected)
    return float(difference.max() / np.abs(expected).max()), BOUNDS["f32"]


def run_real(demo, data):
    """All heads of a layer, without a mask, as the model has it."""
    qkv = [np.load(data / f"{name}.npy") for name in "qkv"]
    _, heads, n, width = qkv[0].shape
    title = f"transformer layer, {heads} heads, N={n}, D={width}"
    sizes = dict(heads=heads, n=n, width=width)
    dense = Workload(op="dense", **sizes)
    exact = reference.dense(*qkv)
    seconds, _ = demo.run(
        dense, qkv, title, "dense", lambda _, out: check_whole(out, exact), None
    )
    multipole = Workload(op="fast_multipole", **sizes)
    weights = [
        reference.average_weights(multipole.rank, multipole.group << level, width)
        for level in range(multipole.levels)
    ]
    expected = reference.fast_multipole(*qkv, weights, weights, group=multipole.group)
    inputs = qkv + [w.astype(np.float32) for w in weights + weights]
    demo.run(
        multipole, inputs, title, "fast multipole",
        lambda _, out: check_whole(out, expected), seconds,
    )  # fmt: skip
    return np.linalg.norm(expected - exact) / np.linalg.norm(exact)


def run_random(demo, n, heads):
    title = f"random, causal, {heads} heads, N={n}, D=64"
    dense = Workload(op="dense", n=n, heads=heads, causal=True)
    seconds, _ = demo.run(dense, dense.inputs(), title, "dense", dense.check, None)
    multipole = Workload(op="fast_multipole", n=n, heads=heads, causal=True)
    demo.run(
        multipole, multipole.inputs(), title, "fast multipole", multipole.check, seconds
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", default=HERE.parent / "build", help="build folder")
    parser.add_argument("--sizes", type=int, nargs="+", default=[4096, 8192, 16384, 32768, 65536],
                        metavar="N", help="lengths of the random inputs")  # fmt: skip
    parser.add_argument("--heads", type=int, default=2, help="heads of the random inputs")
    parser.add_argument("--threads", type=int, help="default: all CPUs")
    arguments = parser.parse_args()
    cpus = machine.available_cpus()
    threads = arguments.threads or len(cpus)
    try:
        machine.choose(cpus, threads)
        tools = backends.Tools(arguments.build, cpus, "wall")
        with tempfile.TemporaryDirectory(prefix="fovea-demo-") as folder:
            demo = Demo(tools, threads, pathlib.Path(folder) / "work")
            distance = run_real(demo, HERE.parent / "examples" / "data")
            for n in arguments.sizes:
                run_random(demo, n, arguments.heads)
    except (ValueError, FileNotFoundError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    facts = machine.describe(HERE.parent, arguments.build, cpus)
    print(f"\n{facts['cpu']}, threads: {threads}, commit {facts['commit']}, f32")
    print("fast multipole: groups of 64, 4 summaries per interval, making them included")
    print("error: max |a - b| / max |b| against the pattern's own reference in f64\n")
    print(report.table(_HEADER, demo.lines))
    print(
        f"\nThe model was trained with dense attention; fast multipole attention with averaging"
        f"\nweights changes the output of this layer by {100 * distance:.0f} % (Frobenius norm)."
    )
    for failure in demo.failures:
        print(f"error: {failure}", file=sys.stderr)
    return 1 if demo.failures else 0


if __name__ == "__main__":
    sys.exit(main())
