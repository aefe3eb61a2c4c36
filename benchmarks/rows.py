#!/usr/bin/env python3
# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rows around attention, against copies and against what their arithmetic takes.

    .venv/bin/python benchmarks/rows.py [--build build]

Norms, soft-max, gelu, silu, a residual, an embedding and rotary embedding of f32 on one thread, by fovea-run, in the
thread's own time. Each is beside a copy of an array as large, timed just before: of it is the share of the rate of
bytes, and of memcpy, as NumPy copies the array, that of the time of one copy. The floor is the larger of the time of a
copy of as many bytes, and of the instructions on units that multiply, at the peak of fovea-machine; of it is the share
of the time. Figures are medians.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile
import time

import numpy as np

HEADER = """
#x = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#column = affine_map<(i, j) -> (j)>
#head = affine_map<(i, h, j) -> (i, h, j)>
#angle = affine_map<(i, h, j) -> (i, j)>
func.func @rows(%x: tensor<{m}x{n}xf32>, %y: tensor<{m}x{n}xf32>, %w: tensor<{n}xf32>, %ids: tensor<{m}xi64>) -> tensor<{m}x{n}xf32> {{
  %zero = arith.constant 0.0 : f32
  %half = arith.constant 0.5 : f32
  %cubic = arith.constant 0.044715 : f32
  %slope = arith.constant 0.79788456 : f32
  %epsilon = arith.constant 1.0e-6 : f32
  %one = arith.constant 1.0 : f32
  %root = arith.constant 0.70710678 : f32
  %count = arith.constant {n}.0 : f32
  %least = arith.constant 0 : i64
  %most = arith.constant {m} : i64
  %empty = tensor.empty() : tensor<{m}x{n}xf32>
  %rows = tensor.empty() : tensor<{m}xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%rows : tensor<{m}xf32>) -> tensor<{m}xf32>
"""

def rotary(columns, rotated):
    """Rotary embedding of the first `columns` of heads of 64, of which `rotated` makes `%rotated` of `%x0`."""
    turned, half = f"tensor<{{m}}x{{h}}x{columns}xf32>", f"tensor<{{m}}x{{h}}x{columns // 2}xf32>"
    heads, angles = "tensor<{m}x{h}x64xf32>", f"tensor<{{m}}x{columns}xf32>"
    text = f"""
  %heads = tensor.expand_shape %x [[0], [1, 2]] output_shape [{{m}}, {{h}}, 64] : tensor<{{m}}x{{n}}xf32> into {heads}
  %x0 = tensor.extract_slice %heads[0, 0, 0] [{{m}}, {{h}}, {columns}] [1, 1, 1] : {heads} to {turned}
  %cos = tensor.extract_slice %y[0, 0] [{{m}}, {columns}] [1, 1] : tensor<{{m}}x{{n}}xf32> to {angles}
  %sin = tensor.extract_slice %y[0, 64] [{{m}}, {columns}] [1, 1] : tensor<{{m}}x{{n}}xf32> to {angles}
  %half_empty = tensor.empty() : {half}
{rotated.replace("TURNED", turned).replace("HALF", half).replace("COLUMNS", str(columns // 2))}\
  %turned_empty = tensor.empty() : {turned}
  %turned = linalg.generic {{{{indexing_maps = [#head, #head, #angle, #angle, #head],
      iterator_types = ["parallel", "parallel", "parallel"]}}}}
      ins(%x0, %rotated, %cos, %sin : {turned}, {turned}, {angles}, {angles})
      outs(%turned_empty : {turned}) {{{{
    ^bb0(%a: f32, %b: f32, %c: f32, %s: f32, %o: f32):
      %p = arith.mulf %a, %c : f32
      %q = arith.mulf %b, %s : f32
      %r = arith.addf %p, %q : f32
      linalg.yield %r : f32
  }}}} -> {turned}
"""
    if columns < 64:
        rest = f"tensor<{{m}}x{{h}}x{64 - columns}xf32>"
        text += f"""\
  %passed = tensor.extract_slice %heads[0, 0, {columns}] [{{m}}, {{h}}, {64 - columns}] [1, 1, 1] : {heads} to {rest}
  %both = tensor.concat dim(2) %turned, %passed : ({turned}, {rest}) -> {heads}
"""
    result = "%both" if columns < 64 else "%turned"
    return text + f"  %out = tensor.collapse_shape {result} [[0], [1, 2]] : {heads} into tensor<{{m}}x{{n}}xf32>\n"


#: `%rotated` of halves, and of neighbours.
OF_HALVES = """\
  %low = tensor.extract_slice %x0[0, 0, 0] [{m}, {h}, COLUMNS] [1, 1, 1] : TURNED to HALF
  %high = tensor.extract_slice %x0[0, 0, COLUMNS] [{m}, {h}, COLUMNS] [1, 1, 1] : TURNED to HALF
  %negative = linalg.negf ins(%high : HALF) outs(%half_empty : HALF) -> HALF
  %rotated = tensor.concat dim(2) %negative, %low : (HALF, HALF) -> TURNED
"""
OF_NEIGHBOURS = """\
  %even = tensor.extract_slice %x0[0, 0, 0] [{m}, {h}, COLUMNS] [1, 1, 2] : TURNED to HALF
  %odd = tensor.extract_slice %x0[0, 0, 1] [{m}, {h}, COLUMNS] [1, 1, 2] : TURNED to HALF
  %negative = linalg.negf ins(%odd : HALF) outs(%half_empty : HALF) -> HALF
  %first = tensor.expand_shape %negative [[0], [1], [2, 3]] output_shape [{m}, {h}, COLUMNS, 1]
      : HALF into tensor<{m}x{h}xCOLUMNSx1xf32>
  %second = tensor.expand_shape %even [[0], [1], [2, 3]] output_shape [{m}, {h}, COLUMNS, 1]
      : HALF into tensor<{m}x{h}xCOLUMNSx1xf32>
  %stack = tensor.concat dim(3) %first, %second
      : (tensor<{m}x{h}xCOLUMNSx1xf32>, tensor<{m}x{h}xCOLUMNSx1xf32>) -> tensor<{m}x{h}xCOLUMNSx2xf32>
  %rotated = tensor.collapse_shape %stack [[0], [1], [2, 3]] : tensor<{m}x{h}xCOLUMNSx2xf32> into TURNED
"""

# Bodies, how many arrays as large as x they must read and write, and how many instructions of units that multiply
# an element takes, by the vector: products, quotients, minima and maxima.
ROWS = {
    "copy": (2, 0, """
  %out = linalg.generic {{indexing_maps = [#x, #x], iterator_types = ["parallel", "parallel"]}}
      ins(%x : tensor<{m}x{n}xf32>) outs(%empty : tensor<{m}x{n}xf32>) {{
    ^bb0(%r: f32, %o: f32):
      linalg.yield %r : f32
  }} -> tensor<{m}x{n}xf32>
"""),
    "layer norm": (2, 3, """
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
    "RMS norm": (2, 3, """
  %sum = linalg.generic {{indexing_maps = [#x, #row], iterator_types = ["parallel", "reduction"]}}
      ins(%x : tensor<{m}x{n}xf32>) outs(%zeros : tensor<{m}xf32>) {{
    ^bb0(%a: f32, %s: f32):
      %p = arith.mulf %a, %a : f32
      %r = arith.addf %p, %s : f32
      linalg.yield %r : f32
  }} -> tensor<{m}xf32>
  %out = linalg.generic {{indexing_maps = [#x, #row, #column, #x], iterator_types = ["parallel", "parallel"]}}
      ins(%x, %sum, %w : tensor<{m}x{n}xf32>, tensor<{m}xf32>, tensor<{n}xf32>) outs(%empty : tensor<{m}x{n}xf32>) {{
    ^bb0(%a: f32, %s: f32, %c: f32, %o: f32):
      %mean = arith.divf %s, %count : f32
      %v = arith.addf %mean, %epsilon : f32
      %f = math.rsqrt %v : f32
      %p = arith.mulf %a, %f : f32
      %r = arith.mulf %p, %c : f32
      linalg.yield %r : f32
  }} -> tensor<{m}x{n}xf32>
"""),
    "soft-max": (2, 14.5, """
  %out = linalg.softmax dimension(1) ins(%x : tensor<{m}x{n}xf32>) outs(%empty : tensor<{m}x{n}xf32>) -> tensor<{m}x{n}xf32>
"""),
    "gelu": (2, 17, """
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
    "gelu by tanh": (2, 18, """
  %out = linalg.generic {{indexing_maps = [#x, #x], iterator_types = ["parallel", "parallel"]}}
      ins(%x : tensor<{m}x{n}xf32>) outs(%empty : tensor<{m}x{n}xf32>) {{
    ^bb0(%a: f32, %o: f32):
      %c = arith.mulf %a, %cubic : f32
      %d = arith.mulf %c, %a : f32
      %e = arith.mulf %d, %a : f32
      %f = arith.addf %a, %e : f32
      %g = arith.mulf %f, %slope : f32
      %t = math.tanh %g : f32
      %p = arith.addf %t, %one : f32
      %h = arith.mulf %a, %half : f32
      %r = arith.mulf %h, %p : f32
      linalg.yield %r : f32
  }} -> tensor<{m}x{n}xf32>
"""),
    "silu, times an array": (3, 14, """
  %out = linalg.generic {{indexing_maps = [#x, #x, #x], iterator_types = ["parallel", "parallel"]}}
      ins(%x, %y : tensor<{m}x{n}xf32>, tensor<{m}x{n}xf32>) outs(%empty : tensor<{m}x{n}xf32>) {{
    ^bb0(%a: f32, %b: f32, %o: f32):
      %c = arith.negf %a : f32
      %e = math.exp %c : f32
      %d = arith.addf %e, %one : f32
      %q = arith.divf %one, %d : f32
      %s = arith.mulf %a, %q : f32
      %r = arith.mulf %s, %b : f32
      linalg.yield %r : f32
  }} -> tensor<{m}x{n}xf32>
"""),
    "residual": (3, 0, """
  %out = linalg.add ins(%x, %y : tensor<{m}x{n}xf32>, tensor<{m}x{n}xf32>) outs(%empty : tensor<{m}x{n}xf32>) -> tensor<{m}x{n}xf32>
"""),
    "embedding": (2, 0, """
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
    "RoPE by halves": (2, 2, rotary(64, OF_HALVES)),
    "RoPE of neighbours": (2, 2, rotary(64, OF_NEIGHBOURS)),
    "RoPE of a quarter, by halves": (2, 0.5, rotary(16, OF_HALVES)),
    "RoPE of a quarter, of neighbours": (2, 0.5, rotary(16, OF_NEIGHBOURS)),
}  # fmt: skip

SHAPES = (256, 256), (512, 1024), (8192, 1024), (8192, 4096)

FOOTER = """
  return %out : tensor<{m}x{n}xf32>
}}
"""


def measure_memcpy(array, seconds, choose):
    """The time of a copy of `array`, as the thread counts it."""
    target, times, start = np.empty_like(array), [], time.perf_counter()
    calls = max(1, (8 << 20) // array.nbytes)
    while time.perf_counter() - start < seconds or len(times) < 3:
        before = time.thread_time()
        for _ in range(calls):
            np.copyto(target, array)
        times.append((time.thread_time() - before) / calls)
    return choose(times[1:])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default="build")
    parser.add_argument("--seconds", type=float, default=0.5, help="of each measurement")
    parser.add_argument("--largest", type=int, default=1 << 30, help="leave out shapes with a larger extent")
    parser.add_argument("--only", default="", help="rows whose names begin so")
    parser.add_argument("--least", action="store_true", help="least times, not medians, of calls that are long beside a tick")
    options = parser.parse_args()
    if not any(name.startswith(options.only) for name in ROWS):
        parser.error(f"--only: found {options.only!r}, needed how one of these begins: {', '.join(ROWS)}")
    if options.largest < (least := min(map(max, SHAPES))):
        parser.error(f"--largest: found {options.largest}, needed at least {least}, the extents of the smallest shape")
    machine = subprocess.run([options.build / "bin/fovea-machine", "--threads=1"], check=True, capture_output=True, text=True)
    peak = json.loads(machine.stdout)["f32_gflops"]["one"]["median"]
    print(f"peak {peak:.1f} GFLOP/s\n")
    print("| rows | columns | operation | ms | GB/s | of a copy | of memcpy | floor, ms | of it |\n|---|---|---|---|---|---|---|---|---|")
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:

        def measure(name, shape, arguments):
            path = pathlib.Path(folder, "rows.mlir")
            path.write_text((HEADER + ROWS[name][2] + FOOTER).format(m=shape[0], n=shape[1], h=shape[1] // 64))
            command = [options.build / "bin/fovea-run", path, "--threads=1", f"--bench={options.seconds}", "--bench-clock=cpu", "--json"]
            command += [f"--arg={each}" for each in arguments]
            result = subprocess.run(command, check=True, capture_output=True, text=True)
            return json.loads(result.stdout)["bench"]["min_seconds" if options.least else "median_seconds"]

        for shape in SHAPES:
            if max(shape) > options.largest:
                continue
            arrays = [rng.standard_normal(shape, np.float32), rng.standard_normal(shape, np.float32),
                      rng.standard_normal(shape[1], np.float32), rng.integers(0, shape[0], shape[0])]  # fmt: skip
            arguments = [pathlib.Path(folder, f"{number}.npy") for number in range(len(arrays))]
            for path, array in zip(arguments, arrays):
                np.save(path, array)
            for name, (count, instructions, _) in ROWS.items():
                if not name.startswith(options.only):
                    continue
                copy = measure("copy", shape, arguments)
                seconds = measure(name, shape, arguments)
                memcpy = measure_memcpy(arrays[0], options.seconds / 4, min if options.least else statistics.median)
                bytes_ = count * arrays[0].nbytes
                # Each such instruction does two operations for an element at the peak.
                floor = max(count / 2 * copy, 2e-9 * instructions * arrays[0].size / peak)
                copies = [100 * count / 2 * copy / seconds, 100 * memcpy / seconds]
                of_copy = f"{copies[0]:.0f} % | {copies[1]:.0f} % | {1e3 * floor:.3f} | {100 * floor / seconds:.0f} %"
                rate = 1e-9 * bytes_ / seconds
                print(f"| {shape[0]} | {shape[1]} | {name} | {1e3 * seconds:.3f} | {rate:.1f} | {of_copy} |", flush=True)


if __name__ == "__main__":
    main()
