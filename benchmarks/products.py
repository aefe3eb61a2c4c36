#!/usr/bin/env python3
# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What surrounds attention in a layer, against what the machine can do.

    PYTHONPATH=build/python .venv/bin/python benchmarks/products.py [--build build]

Products of f32 on one thread, of weights [N, K] as PyTorch's layers have them, and [K, N]: the share of the peak of
multiply-adds; of one row, that of the speed at which weights larger than caches are read. Peaks are those of
fovea-machine; figures are medians.
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


def compile_product(m, n, k, transposed):
    """A product by weights, and the shape of these: [N, K] where they are transposed."""
    shape, axes = ((n, k), "n, k") if transposed else ((k, n), "k, n")
    return fovea.compile(PRODUCT.format(m=m, n=n, k=k, w=f"{shape[0]}x{shape[1]}", axes=axes)), shape


def measure(call, seconds, choose=statistics.median):
    """The median, or what `choose` takes, of the times of a call."""
    call()
    times, start = [], time.perf_counter()
    while time.perf_counter() - start < seconds or len(times) < 5:
        before = time.perf_counter()
        call()
        times.append(time.perf_counter() - before)
    return choose(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default="build")
    parser.add_argument("--seconds", type=float, default=0.5, help="of each row")
    parser.add_argument("--largest", type=int, default=1 << 30, help="leave out shapes with a larger extent")
    parser.add_argument("--least", action="store_true", help="least times, not medians")
    options = parser.parse_args()
    fovea.set_num_threads(1)
    peaks = subprocess.run([options.build / "bin/fovea-machine", "--threads=1"], check=True, capture_output=True, text=True)
    peaks = {name: value["one"]["median"] for name, value in json.loads(peaks.stdout).items() if name in ("f32_gflops", "copy_gbytes")}
    rng = np.random.default_rng(0)
    print(f"peak {peaks['f32_gflops']:.1f} GFLOP/s, copies of 256 MB {peaks['copy_gbytes']:.1f} GB/s\n")
    choose = min if options.least else statistics.median
    layouts = [(name, name == "transposed") for name in ("transposed", "plain")]
    print("| rows | columns | depth | weights | ms | GFLOP/s | of peak |\n|---|---|---|---|---|---|---|")
    for m, n, k in [
        (512, 256, 256), (512, 768, 256), (512, 1024, 256), (512, 256, 1024), (256, 256, 256), (512, 512, 512), (1024, 1024, 1024),
        (64, 256, 256), (64, 1024, 256), (64, 768, 768), (64, 3072, 768), (64, 768, 3072), (64, 1024, 1024), (197, 256, 768),
    ]:  # fmt: skip
        if max(m, n, k) > options.largest:
            continue
        for name, transposed in layouts:
            kernel, shape = compile_product(m, n, k, transposed)
            x, w = rng.standard_normal((m, k), np.float32), rng.standard_normal(shape, np.float32)
            seconds = measure(partial(kernel, x, w), options.seconds, choose)
            rate = 2e-9 * m * n * k / seconds
            share = f"{100 * rate / peaks['f32_gflops']:.0f} %"
            print(f"| {m} | {n} | {k} | {name} | {1e3 * seconds:.3f} | {rate:.1f} | {share} |", flush=True)
    print("\n| one row: columns | depth | weights | ms | GB/s | of reading as much |\n|---|---|---|---|---|---|")
    for n, k in [(256, 256), (1024, 256), (768, 768), (1024, 1024), (4096, 4096), (8192, 4096)]:
        if max(n, k) > options.largest:
            continue
        for name, transposed in layouts:
            kernel, shape = compile_product(1, n, k, transposed)
            x, w = rng.standard_normal((1, k), np.float32), rng.standard_normal(shape, np.float32)
            seconds = measure(partial(kernel, x, w), options.seconds, choose)
            share = f"{100 * measure(w.max, options.seconds, choose) / seconds:.0f} %"
            print(f"| {n} | {k} | {name} | {1e3 * seconds:.3f} | {1e-9 * w.nbytes / seconds:.1f} | {share} |", flush=True)


if __name__ == "__main__":
    main()
