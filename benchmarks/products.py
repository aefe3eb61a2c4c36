#!/usr/bin/env python3
# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What surrounds attention in a layer, against what the machine can do.

    OPENBLAS_NUM_THREADS=1 PYTHONPATH=build/python .venv/bin/python benchmarks/products.py [--build build]

Products of f32 on one thread, of weights [N, K] as PyTorch's layers have them, and [K, N]: the share of the peak of
multiply-adds, which is measured before each. Weights are constants of the function, or arguments; NumPy's product, by
the BLAS that it has, takes turns with both. Of one row it is the share of the speed at which weights are read. Times
are those of the process; figures are least times, and medians in brackets.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import time
from functools import partial

import numpy as np

import fovea

PRODUCT = """
func.func @product(%x: tensor<{m}x{k}xf32>, %w: tensor<{w}xf32>) -> tensor<{m}x{n}xf32> {{
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<{m}x{n}xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<{m}x{n}xf32>) -> tensor<{m}x{n}xf32>
  %out = linalg.contract
      indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> ({axes})>, affine_map<(m, n, k) -> (m, n)>]
      ins(%x, %w : tensor<{m}x{k}xf32>, tensor<{w}xf32>) outs(%init : tensor<{m}x{n}xf32>) -> tensor<{m}x{n}xf32>
  return %out : tensor<{m}x{n}xf32>
}}
"""


CONSTANT = """  %w = arith.constant dense_resource<weights> : tensor<{w}xf32>
"""
RESOURCE = """
{{-# dialect_resources: {{ builtin: {{ weights: "0x04000000{data}" }} }} #-}}
"""


def compile_product(m, n, k, transposed, weights=None):
    """A product by weights, and the shape of these: [N, K] where they are transposed. Those that are given are constants."""
    shape, axes = ((n, k), "n, k") if transposed else ((k, n), "k, n")
    parts = dict(m=m, n=n, k=k, w=f"{shape[0]}x{shape[1]}", axes=axes)
    text = PRODUCT.format(**parts)
    if weights is not None:
        text = text.replace(", %w: tensor<{w}xf32>) ->".format(**parts), ") ->").replace("{\n", "{\n" + CONSTANT.format(**parts), 1)
        text += RESOURCE.format(data=weights.tobytes().hex())
    return fovea.compile(text), shape


def measure(calls, seconds):
    """The least times of calls that take turns, and the medians."""
    times = [[] for _ in calls]
    start = time.perf_counter()
    while time.perf_counter() - start < seconds or len(times[0]) < 6:
        for call, own in zip(calls, times):
            before = time.process_time()
            call()
            own.append(time.process_time() - before)
    # The first one brings what it needs.
    return [(min(own[1:]), statistics.median(own[1:])) for own in times]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default="build")
    parser.add_argument("--seconds", type=float, default=0.5, help="of each row")
    parser.add_argument("--largest", type=int, default=1 << 30, help="leave out shapes with a larger extent")
    options = parser.parse_args()
    fovea.set_num_threads(1)

    def measure_peak():
        command = [options.build / "bin/fovea-machine", "--threads=1"]
        return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["f32_gflops"]["one"]["median"]

    rng = np.random.default_rng(0)
    layouts = [(name, name == "transposed") for name in ("transposed", "plain")]
    print("| rows x columns x depth | weights | peak, GFLOP/s | constants | arguments | NumPy |\n|---|---|---|---|---|---|")
    for m, n, k in [
        (256, 256, 256), (512, 512, 512), (1024, 1024, 1024), (64, 256, 256), (64, 768, 768), (64, 1024, 1024), (64, 3072, 768),
        (64, 768, 3072), (64, 4096, 1024), (197, 256, 768),
    ]:  # fmt: skip
        if max(m, n, k) > options.largest:
            continue
        for name, transposed in layouts:
            kernel, shape = compile_product(m, n, k, transposed)
            x, w = rng.standard_normal((m, k), np.float32), rng.standard_normal(shape, np.float32)
            constant, _ = compile_product(m, n, k, transposed, w)
            out = np.empty((m, n), np.float32)
            peak = measure_peak()
            calls = [partial(constant, x), partial(kernel, x, w), partial(np.matmul, x, w.T if transposed else w, out)]
            shares = [[f"{200e-9 * m * n * k / each / peak:.0f} %" for each in pair] for pair in measure(calls, options.seconds)]
            cells = " | ".join(f"{least} ({median})" for least, median in shares)
            print(f"| {m} x {n} x {k} | {name} | {peak:.0f} | {cells} |", flush=True)
    print("\n| one row: columns x depth | weights | ms | GB/s | of reading as much |\n|---|---|---|---|---|")
    for n, k in [(256, 256), (1024, 256), (768, 768), (1024, 1024), (4096, 4096), (8192, 4096)]:
        if max(n, k) > options.largest:
            continue
        for name, transposed in layouts:
            kernel, shape = compile_product(1, n, k, transposed)
            x, w = rng.standard_normal((1, k), np.float32), rng.standard_normal(shape, np.float32)
            (least, median), (reading, usual) = measure([partial(kernel, x, w), w.max], options.seconds)
            shares = f"{100 * reading / least:.0f} % ({100 * usual / median:.0f} %)"
            rates = f"{1e-9 * w.nbytes / least:.1f} ({1e-9 * w.nbytes / median:.1f})"
            print(f"| {n} x {k} | {name} | {1e3 * least:.3f} ({1e3 * median:.3f}) | {rates} | {shares} |", flush=True)


if __name__ == "__main__":
    main()
