# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks the table of elements and rows in docs/results/gpu-model.md: how many instructions of sm_90a
the kernels around attention take for each number, and how many bytes they load at once.

    rows.py <fovea-compile> <source> [--update]

Other versions of ptxas make other code: they may take a tenth more.
"""

import argparse
import re
import sys
import tempfile
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("compiler")
parser.add_argument("source", type=Path)
parser.add_argument("--update", action="store_true")
options = parser.parse_args()
sys.path.insert(0, str(options.source / "utils/fovea_cycles"))
import cycles  # noqa: E402
import sass  # noqa: E402

HEADER = "| kernel | instructions for a number, bytes of a load | registers |"
TOLERANCE = 0.1
NORM = """
func.func @f(%x: tensor<4096x2048xbf16>, %w: tensor<2048xbf16>) -> tensor<4096x2048xbf16> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4096xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<4096xf32>) -> tensor<4096xf32>
  %s = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
                       iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<4096x2048xbf16>) outs(%z : tensor<4096xf32>) {
  ^bb0(%v: bf16, %sum: f32):
    %f = arith.extf %v : bf16 to f32
    %square = arith.mulf %f, %f : f32
    %next = arith.addf %sum, %square : f32
    linalg.yield %next : f32
  } -> tensor<4096xf32>
  %o = tensor.empty() : tensor<4096x2048xbf16>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (j)>,
                                        affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%x, %s, %w : tensor<4096x2048xbf16>, tensor<4096xf32>, tensor<2048xbf16>) outs(%o : tensor<4096x2048xbf16>) {
  ^bb0(%v: bf16, %sum: f32, %g: bf16, %old: bf16):
    %n = arith.constant 2048.0 : f32
    %eps = arith.constant 1.0e-5 : f32
    %mean = arith.divf %sum, %n : f32
    %m = arith.addf %mean, %eps : f32
    %rs = math.rsqrt %m : f32
    %f = arith.extf %v : bf16 to f32
    %gf = arith.extf %g : bf16 to f32
    %a = arith.mulf %f, %rs : f32
    %b = arith.mulf %a, %gf : f32
    %c = arith.truncf %b : f32 to bf16
    linalg.yield %c : bf16
  } -> tensor<4096x2048xbf16>
  return %r : tensor<4096x2048xbf16>
}
"""


def add(kind):
    return f"func.func @f(%x: {kind}, %y: {kind}) -> {kind} {{\n  %r = arith.addf %x, %y : {kind}\n  return %r : {kind}\n}}\n"


#: Functions, and the kernels of each that are in the table, in their order.
FUNCTIONS = [
    (add("tensor<2x4096x2048xbf16>"), {0: "sum of two arrays, bf16"}),
    (add("tensor<?x?x2048xbf16>"), {0: "the same, of any number of tokens"}),
    (NORM, {1: "RMS norm: sums of squares", 2: "RMS norm: the rest"}),
]


def measure(code):
    """Instructions for a number of one thread: of the loop where there is one; bytes of a load; registers."""
    loop = sass.find_loop(code, "LDG")
    if loop:
        body = [x for x in code[loop[0]:loop[1] + 1] if isinstance(x, sass.Instruction)]
    else:
        body = [x for x in code if isinstance(x, sass.Instruction)]
        body = body[:1 + next(i for i, x in enumerate(body) if x.text == "EXIT")]
    widths = [16 if ".128" in x.opcode else 8 if ".64" in x.opcode else 2 if ".U16" in x.opcode else 4
              for x in body if x.name == "LDG"]  # fmt: skip
    numbers = max(widths) // 2 * (widths.count(max(widths)) if loop else 1)
    registers = 1 + max(int(r) for x in code if isinstance(x, sass.Instruction) for r in re.findall(r"\bR(\d+)", x.text))
    return len(body) / numbers, max(widths), registers


programs = cycles.Programs.find()
page_path = options.source / "docs/results/gpu-model.md"
page = page_path.read_text()
begin = page.index(HEADER)
end = page.index("\n\n", begin)
stated = {line.split(" | ")[0].strip("| "): line for line in page[begin:end].splitlines()[2:]}
lines, failures = [HEADER, "|---|---|---|"], []
with tempfile.TemporaryDirectory() as folder:
    for text, kernels in FUNCTIONS:
        path = Path(folder) / "f.mlir"
        path.write_text(text)
        cubin = programs.make_cubin(path, Path(folder), options.compiler)
        functions = sass.disassemble(programs.nvdisasm, str(cubin))
        ordered = sorted(functions, key=lambda name: int((re.search(r"_kernel_(\d+)$", name) or [0, -1])[1]))
        for number, name in kernels.items():
            instructions, width, registers = measure(functions[ordered[number]])
            lines.append(f"| {name} | {instructions:.1f}, {width} | {registers} |")
            found = re.match(r"([\d.]+), (\d+)", stated.get(name, "| | 0, 0 | |").split(" | ")[1])
            if instructions > float(found[1]) * (1 + TOLERANCE) or width != int(found[2]):
                failures.append(f"{name}: {instructions:.1f} instructions, loads of {width} bytes; the page says {found[0]}")
            if registers > 32:
                failures.append(f"{name}: {registers} registers; a multiprocessor has 32 for each of 2048 threads")
if options.update:
    page_path.write_text(page[:begin] + "\n".join(lines) + page[end:])
    failures = []
print("\n".join(failures or [f"{len(lines) - 2} kernels as stated"]))
raise SystemExit(bool(failures))
