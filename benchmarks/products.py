#!/usr/bin/env python3
# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What surrounds attention in a layer, against what the machine can do.

    PYTHONPATH=build/python .venv/bin/python benchmarks/products.py [--build build]

Products x W^T of f32, as layers have them, on one thread: the share of the peak of multiply-adds; of one
row, that of the speed at which weights larger than caches are read. Then a layer norm, a soft-max, a gelu, a
residual and an embedding: bytes read and written over those of a copy as large. Peaks are those of fovea-machine,
and of a copy that is measured beside; figures are medians.
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
func.func @product(%x: tensor<{m}x{k}xf32>, %w: tensor<{n}x{k}xf32>) -> tensor<{m}x{n}xf32> {{
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<{m}x{n}xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<{m}x{n}xf32>) -> tensor<{m}x{n}xf32>
  %out = linalg.contract
      indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
      ins(%x, %w : tensor<{m}x{k}xf32>, tensor<{n}x{k}xf32>) outs(%init : tensor<{m}x{n}xf32>) -> tensor<{m}x{n}xf32>
  return %out : tensor<{m}x{n}xf32>
}}
"""

HEADER = """
#x = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#column = affine_map<(i, j) -> (j)>
func.func @rows(%x: tensor<{m}x{n}xf32>, %y: tensor<{m}x{n}xf32>, %w: tensor<{n}xf32>, %ids: tensor<{m}xi64>) -> tensor<{m}x{n}xf32> {{
  %zero = arith.constant 0.0 : f32
  %half = arith.constant 0.5 : f32
  %one = arith.constant 1.0 : f32
  %root = arith.constant 0.70710678 : f32
  %count = arith.constant {n}.0 : f32
  %least = arith.constant 0 : i64
  %most = arith.constant {m} : i64
  %empty = tensor.empty() : tensor<{m}x{n}xf32>
  %rows = tensor.empty() : tensor<{m}xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%rows : tensor<{m}xf32>) -> tensor<{m}xf32>
"""

# Bodies, and how many arrays as large as x they must read and write.
ROWS = {
    "layer norm": (2, """
  %sum = linalg.generic {{indexing_maps = [#x, #row], iterator_types = ["parallel", "reduction"]}}
      ins(%x : tensor<{m}x{n}xf32>) outs(%zeros : tensor<{m}xf32>) {{
    ^bb0(%a: f32, %s: f32):
      %r = arith.addf %a, %s : f32
      linalg.yield %r : f32
  }} -> tensor<{m}xf32>
  %centred = linalg.generic {{indexing_maps = [#x, #row, #x], iterator_types = ["parallel", "parallel"]}}
      ins(%x, %sum : tensor<{m}x{n}xf32>, tensor<{m}xf32>) outs(%empty : tensor<{m}x{n}xf32>) {{
    ^bb0(%a: f32, %s: f32, %o: f32):
      %mean = arith.divf %s, %count : f32
      %r = arith.subf %a, %mean : f32
      linalg.yield %r : f32
  }} -> tensor<{m}x{n}xf32>
  %squares = linalg.generic {{indexing_maps = [#x, #row], iterator_types = ["parallel", "reduction"]}}
      ins(%centred : tensor<{m}x{n}xf32>) outs(%zeros : tensor<{m}xf32>) {{
    ^bb0(%a: f32, %s: f32):
      %p = arith.mulf %a, %a : f32
      %r = arith.addf %p, %s : f32
      linalg.yield %r : f32
  }} -> tensor<{m}xf32>
  %out = linalg.generic {{indexing_maps = [#x, #row, #column, #x], iterator_types = ["parallel", "parallel"]}}
      ins(%centred, %squares, %w : tensor<{m}x{n}xf32>, tensor<{m}xf32>, tensor<{n}xf32>) outs(%empty : tensor<{m}x{n}xf32>) {{
    ^bb0(%a: f32, %s: f32, %c: f32, %o: f32):
      %v = arith.divf %s, %count : f32
      %f = math.rsqrt %v : f32
      %p = arith.mulf %a, %f : f32
      %r = arith.mulf %p, %c : f32
      linalg.yield %r : f32
  }} -> tensor<{m}x{n}xf32>
"""),
    "soft-max": (2, """
  %out = linalg.softmax dimension(1) ins(%x : tensor<{m}x{n}xf32>) outs(%empty : tensor<{m}x{n}xf32>) -> tensor<{m}x{n}xf32>
"""),
    "gelu": (2, """
  %out = linalg.generic {{indexing_maps = [#x, #x], iterator_types = ["parallel", "parallel"]}}
      ins(%x : tensor<{m}x{n}xf32>) outs(%empty : tensor<{m}x{n}xf32>) {{
    ^bb0(%a: f32, %o: f32):
      %s = arith.mulf %a, %root : f32
      %e = math.erf %s : f32
      %p = arith.addf %e, %one : f32
      %h = arith.mulf %a, %half : f32
      %r = arith.mulf %h, %p : f32
      linalg.yield %r : f32
  }} -> tensor<{m}x{n}xf32>
"""),
    "residual": (3, """
  %out = linalg.add ins(%x, %y : tensor<{m}x{n}xf32>, tensor<{m}x{n}xf32>) outs(%empty : tensor<{m}x{n}xf32>) -> tensor<{m}x{n}xf32>
"""),
    "embedding": (2, """
  %out = linalg.generic {{indexing_maps = [#row, #x], iterator_types = ["parallel", "parallel"]}}
      ins(%ids : tensor<{m}xi64>) outs(%empty : tensor<{m}x{n}xf32>) {{
    ^bb0(%id: i64, %o: f32):
      %j = linalg.index 1 : index
      %i = arith.index_cast %id : i64 to index
      %below = arith.cmpi slt, %id, %most : i64
      cf.assert %below, "index must be smaller than dim size"
      %positive = arith.cmpi sge, %id, %least : i64
      cf.assert %positive, "index must be larger or equal to 0"
      %r = tensor.extract %x[%i, %j] : tensor<{m}x{n}xf32>
      linalg.yield %r : f32
  }} -> tensor<{m}x{n}xf32>
"""),
}  # fmt: skip

FOOTER = """
  return %out : tensor<{m}x{n}xf32>
}}
"""


def measure(call, seconds):
    """The median of the times of a call."""
    call()
    times, start = [], time.perf_counter()
    while time.perf_counter() - start < seconds or len(times) < 5:
        before = time.perf_counter()
        call()
        times.append(time.perf_counter() - before)
    return statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default="build")
    parser.add_argument("--seconds", type=float, default=0.5, help="of each row")
    parser.add_argument("--largest", type=int, default=1 << 30, help="leave out shapes with a larger extent")
    options = parser.parse_args()
    fovea.set_num_threads(1)
    peaks = subprocess.run([options.build / "bin/fovea-machine", "--threads=1"], check=True, capture_output=True, text=True)
    peaks = {name: value["one"]["median"] for name, value in json.loads(peaks.stdout).items() if name in ("f32_gflops", "copy_gbytes")}
    rng = np.random.default_rng(0)
    print(f"peak {peaks['f32_gflops']:.1f} GFLOP/s, copies of 256 MB {peaks['copy_gbytes']:.1f} GB/s\n")
    print("| rows | columns | depth | ms | GFLOP/s | of peak |\n|---|---|---|---|---|---|")
    for m, n, k in [
        (512, 256, 256), (512, 768, 256), (512, 1024, 256), (512, 256, 1024), (256, 256, 256), (1024, 1024, 1024),
        (64, 256, 256), (64, 1024, 256), (64, 768, 768), (64, 3072, 768), (197, 256, 768),
    ]:  # fmt: skip
        if max(m, n, k) > options.largest:
            continue
        x, w = (rng.standard_normal(shape, np.float32) for shape in ((m, k), (n, k)))
        kernel = fovea.compile(PRODUCT.format(m=m, n=n, k=k))
        seconds = measure(partial(kernel, x, w), options.seconds)
        rate = 2e-9 * m * n * k / seconds
        print(f"| {m} | {n} | {k} | {1e3 * seconds:.3f} | {rate:.1f} | {100 * rate / peaks['f32_gflops']:.0f} % |", flush=True)
    print("\n| one row: columns | depth | ms | GB/s | of reading as much |\n|---|---|---|---|---|")
    for n, k in [(256, 256), (1024, 256), (768, 768), (4096, 4096), (8192, 4096)]:
        if max(n, k) > options.largest:
            continue
        x, w = (rng.standard_normal(shape, np.float32) for shape in ((1, k), (n, k)))
        kernel = fovea.compile(PRODUCT.format(m=1, n=n, k=k))
        seconds = measure(partial(kernel, x, w), options.seconds)
        reading = measure(w.max, options.seconds)
        print(f"| {n} | {k} | {1e3 * seconds:.3f} | {1e-9 * w.nbytes / seconds:.1f} | {100 * reading / seconds:.0f} % |", flush=True)
    print("\n| rows | columns | operation | ms | GB/s | of a copy |\n|---|---|---|---|---|---|")
    for m, n in (256, 256), (512, 256), (512, 1024), (8192, 1024):
        if max(m, n) > options.largest:
            continue
        x, y = (rng.standard_normal((m, n), np.float32) for _ in range(2))
        w, ids = rng.standard_normal(n, np.float32), rng.integers(0, m, m)
        target = np.empty_like(x)
        copy = 2e-9 * x.nbytes / measure(partial(np.copyto, target, x), options.seconds)
        for name, (arrays, body) in ROWS.items():
            kernel = fovea.compile((HEADER + body + FOOTER).format(m=m, n=n))
            seconds = measure(partial(kernel, x, y, w, ids), options.seconds)
            rate = 1e-9 * arrays * x.nbytes / seconds
            print(f"| {m} | {n} | {name} | {1e3 * seconds:.3f} | {rate:.1f} | {100 * rate / copy:.0f} % |", flush=True)


if __name__ == "__main__":
    main()
