# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks the table of kernels in docs/GPU.md: instructions in the PTX, and, where
there is ptxas, that no register is spilled and no more are used than it says.

    registers.py <fovea-compile> <docs/GPU.md> [--ptxas PROGRAM] [--update]
"""

import argparse
import re
import subprocess
import tempfile

ROWS = [("f16", 64), ("bf16", 64), ("f16", 128), ("bf16", 128), ("f16", 256), ("f32", 64), ("f32", 128)]
HEADER = "| data | D | threads | shared KB | registers | mma / ldmatrix / cp.async |"
parser = argparse.ArgumentParser()
parser.add_argument("compiler")
parser.add_argument("page")
parser.add_argument("--ptxas")
parser.add_argument("--update", action="store_true")
options = parser.parse_args()


def emit(kind, text):
    command = [options.compiler, "-", "--target=nvvm", "--chip=sm_80", f"--emit={kind}", "-o", "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def measure(dtype, width):
    q, k = (f"tensor<1x{h}x?x{width}x{dtype}>" for h in (8, 2))
    text = (
        f"func.func @f(%q: {q}, %k: {k}, %v: {k}, %o: {q}) -> {q} {{\n"
        f"  %r = attn.dense ins(%q, %k, %v : {q}, {k}, {k}) outs(%o : {q}) {{mask = #attn.mask<causal>}} -> {q}\n"
        f"  return %r : {q}\n}}\n"
    )
    ptx = emit("ptx", text)
    threads = int(re.search(r"\.maxntid (\d+)", ptx)[1])
    mlir = emit("mlir", text)
    shared = int(re.search(r"dynamic_shared_memory_size %c(\d+)_i32", mlir)[1])
    counts = " / ".join(str(len(re.findall(p, ptx))) for p in (r"\bmma\.sync", r"\bldmatrix\.sync", r"\bcp\.async\.c[ga]"))
    registers = spills = None
    if options.ptxas:
        with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
            file.write(ptx)
            file.flush()
            log = subprocess.run([options.ptxas, "-arch=sm_80", "-v", file.name, "-o", "/dev/null"],
                                 capture_output=True, text=True, check=True)
        said = log.stdout + log.stderr
        registers = int(re.search(r"Used (\d+) registers", said)[1])
        spills = sum(map(int, re.findall(r"(\d+) bytes spill", said)))
    return threads, shared // 1024, registers, counts, spills


with open(options.page) as file:
    page = file.read()
start = page.index(HEADER)
end = page.index("\n\n", start)
found, failures = {}, []
for line in page[start:end].splitlines()[2:]:
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    found[cells[0], int(cells[1])] = cells[2:]
lines = [HEADER, "|---|---|---|---|---|---|"]
for dtype, width in ROWS:
    threads, shared, registers, counts, spills = measure(dtype, width)
    lines.append(f"| {dtype} | {width} | {threads} | {shared} | {registers} | {counts} |")
    stated = found.get((dtype, width), ["0"] * 4)
    if spills:
        failures.append(f"{dtype} {width}: {spills} bytes of registers are spilled")
    if [str(threads), str(shared), counts] != [stated[0], stated[1], stated[3]]:
        failures.append(f"{dtype} {width}: {threads} threads, {shared} KB, {counts}; the page says {stated}")
    if registers is not None and registers > int(stated[2]):
        failures.append(f"{dtype} {width}: {registers} registers; the page says {stated[2]}")
if options.update:
    with open(options.page, "w") as file:
        file.write(page[:start] + "\n".join(lines) + page[end:])
else:
    print("\n".join(failures or [f"{len(lines) - 2} kernels as stated"]))
    raise SystemExit(bool(failures))
