#!/usr/bin/env python3
# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What surrounds attention in a layer, against what the machine can do.

    OPENBLAS_NUM_THREADS=1 PYTHONPATH=build/python .venv/bin/python benchmarks/products.py

Products of f32 on one thread, of weights [N, K] as PyTorch's layers have them, and [K, N]: the share of the peak of
multiply-adds. Weights are constants of the function, or arguments; NumPy's product, by the BLAS that it has, takes
turns with both. The speed of a core changes many times a second, so that the peak is measured before and after
each call, and a share is that of the mean of these two: medians, and in brackets the least time of all calls against
the greatest peak. Of one row it is the share of the speed at which weights are read, of least times, and of medians in
brackets. Times are those of the process.
"""

import argparse
import statistics
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


# Rows, columns and depth; columns and depth of one row.
SHAPES = (
    (256, 256, 256), (512, 512, 512), (1024, 1024, 1024), (64, 256, 256), (64, 768, 768), (64, 1024, 1024), (64, 3072, 768),
    (64, 768, 3072), (64, 4096, 1024), (197, 256, 768),
)  # fmt: skip
ROW_SHAPES = (256, 256), (1024, 256), (768, 768), (1024, 1024), (4096, 4096), (8192, 4096)

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


def write_peak(lanes, count):
    """A loop of multiply-adds that wait for none but themselves, in `count` vectors."""

    def join(text):
        return ", ".join(text.format(i=i) for i in range(count))

    vector = f"vector<{lanes}xf32>"
    steps = "".join(f"    %n{i} = vector.fma %f, %f, %a{i} : {vector}\n" for i in range(count))
    sums = "".join(f"  %s{i + 1} = arith.addf %s{i}, %r#{i} : {vector}\n" for i in range(count))
    return f"""
func.func @peak(%x: tensor<{lanes}xf32>, %turns: index) -> tensor<{lanes}xf32> {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %f = vector.transfer_read %x[%c0], %zero {{in_bounds = [true]}} : tensor<{lanes}xf32>, {vector}
  %r:{count} = scf.for %i = %c0 to %turns step %c1 iter_args({join("%a{i} = %f")}) -> ({join(vector)}) {{
{steps}    scf.yield {join("%n{i}")} : {join(vector)}
  }}
  %s0 = arith.constant dense<0.0> : {vector}
{sums}  %empty = tensor.empty() : tensor<{lanes}xf32>
  %out = vector.transfer_write %s{count}, %empty[%c0] {{in_bounds = [true]}} : {vector}, tensor<{lanes}xf32>
  return %out : tensor<{lanes}xf32>
}}
"""


def compile_peak():
    """What measures the multiply-adds of a second, twice that in FLOP/s, for half a millisecond."""
    meters = []
    # 16 registers of 8 numbers, or 32 of 16: what is faster is what the machine has.
    for lanes, count in [(8, 12), (16, 20)]:
        kernel, x = fovea.compile(write_peak(lanes, count)), np.full(lanes, 0.5, np.float32)

        def measure_peak(kernel=kernel, x=x, flops=2 * lanes * count, turns=20000):
            start = time.process_time()
            kernel(x, turns)
            return flops * turns / (time.process_time() - start)

        most = max(measure_peak() for _ in range(20))
        meters.append((most, partial(measure_peak, turns=int(5e-4 * most / (2 * lanes * count)))))
    return max(meters, key=lambda meter: meter[0])[1]


def measure_shares(calls, flops, measure_peak, seconds):
    """For each of calls that take turns the median share of its peak, and that of the least time; and all peaks."""
    shares, times, peaks = [[] for _ in calls], [[] for _ in calls], [measure_peak()]
    start = time.perf_counter()
    while time.perf_counter() - start < seconds or len(shares[0]) < 6:
        for call, own, own_times in zip(calls, shares, times):
            before = time.process_time()
            call()
            own_times.append(time.process_time() - before)
            peaks.append(measure_peak())
            own.append(flops / own_times[-1] / statistics.mean(peaks[-2:]))
    # The first one brings what it needs.
    best = [flops / min(own[1:]) / max(peaks) for own in times]
    return list(zip((statistics.median(own[1:]) for own in shares), best)), peaks


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
    parser.add_argument("--seconds", type=float, default=0.5, help="of each row")
    parser.add_argument("--largest", type=int, default=1 << 30, help="leave out shapes with a larger extent")
    options = parser.parse_args()
    if options.largest < (least := min(map(max, SHAPES + ROW_SHAPES))):
        parser.error(f"--largest: found {options.largest}, needed at least {least}, the extents of the smallest shape")
    fovea.set_num_threads(1)
    measure_peak = compile_peak()
    rng = np.random.default_rng(0)
    layouts = [(name, name == "transposed") for name in ("transposed", "plain")]
    print("| rows x columns x depth | weights | peak, GFLOP/s | constants | arguments | NumPy |\n|---|---|---|---|---|---|")
    for m, n, k in SHAPES:
        if max(m, n, k) > options.largest:
            continue
        for name, transposed in layouts:
            kernel, shape = compile_product(m, n, k, transposed)
            x, w = rng.standard_normal((m, k), np.float32), rng.standard_normal(shape, np.float32)
            constant, _ = compile_product(m, n, k, transposed, w)
            out = np.empty((m, n), np.float32)
            calls = [partial(constant, x), partial(kernel, x, w), partial(np.matmul, x, w.T if transposed else w, out)]
            shares, peaks = measure_shares(calls, 2 * m * n * k, measure_peak, options.seconds)
            cells = " | ".join(f"{100 * median:.0f} % ({100 * least:.0f} %)" for median, least in shares)
            low, *_, high = statistics.quantiles([1e-9 * peak for peak in peaks], n=10)
            print(f"| {m} x {n} x {k} | {name} | {low:.0f} to {high:.0f} | {cells} |", flush=True)
    print("\n| one row: columns x depth | weights | ms | GB/s | of reading as much |\n|---|---|---|---|---|")
    for n, k in ROW_SHAPES:
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
