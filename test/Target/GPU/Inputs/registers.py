# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks the table of dense attention in docs/results/gpu-kernels.md: instructions in
the PTX, and, where there is ptxas, that no register is spilled and no more are used
than it says.

    registers.py <fovea-compile> <docs/results/gpu-kernels.md> [--ptxas PROGRAM] [--update]
"""

import argparse
import re
import subprocess

import ptxas

ROWS = [("sm_80", dtype, width) for dtype, width in
        (("f16", 64), ("bf16", 64), ("f16", 128), ("bf16", 128), ("f16", 256), ("f32", 64), ("f32", 128))]
ROWS += [("sm_90a", dtype, width) for dtype, width in (("bf16", 64), ("f16", 128), ("bf16", 128), ("bf16", 256))]
HEADER = "| chip | data | D | threads | shared KB | registers | mma / ldmatrix / cp.async, or wgmma / TMA |"
parser = argparse.ArgumentParser()
parser.add_argument("compiler")
parser.add_argument("page")
parser.add_argument("--ptxas")
parser.add_argument("--update", action="store_true")
options = parser.parse_args()


def emit(chip, kind, text):
    command = [options.compiler, "-", "--target=nvvm", f"--chip={chip}", f"--emit={kind}", "-o", "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def measure(chip, dtype, width):
    q, k = (f"tensor<1x{h}x?x{width}x{dtype}>" for h in (8, 2))
    text = (
        f"func.func @f(%q: {q}, %k: {k}, %v: {k}, %o: {q}) -> {q} {{\n"
        f"  %r = attn.dense ins(%q, %k, %v : {q}, {k}, {k}) outs(%o : {q}) {{mask = #attn.mask<causal>}} -> {q}\n"
        f"  return %r : {q}\n}}\n"
    )
    ptx = emit(chip, "ptx", text)
    threads = int(re.search(r"\.(?:max|req)ntid (\d+)", ptx)[1])
    mlir = emit(chip, "mlir", text)
    shared = int(re.search(r"dynamic_shared_memory_size %c(\d+)_i32", mlir)[1])
    patterns = (r"\bmma\.sync", r"\bldmatrix\.sync", r"\bcp\.async\.c[ga]")
    if "wgmma" in ptx:
        patterns = (r"\bwgmma\.mma_async", r"\bcp\.async\.bulk")
    counts = " / ".join(str(len(re.findall(p, ptx))) for p in patterns)
    registers = spills = None
    if options.ptxas:
        registers, spills = ptxas.measure(options.ptxas, chip, ptx)
    return threads, shared // 1024, registers, counts, spills


with open(options.page) as file:
    page = file.read()
start = page.index(HEADER)
end = page.index("\n\n", start)
found, failures = {}, []
for line in page[start:end].splitlines()[2:]:
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    found[cells[0], cells[1], int(cells[2])] = cells[3:]
lines = [HEADER, "|---|---|---|---|---|---|---|"]
for chip, dtype, width in ROWS:
    threads, shared, registers, counts, spills = measure(chip, dtype, width)
    lines.append(f"| {chip} | {dtype} | {width} | {threads} | {shared} | {registers} | {counts} |")
    stated = found.get((chip, dtype, width), ["0"] * 4)
    if spills:
        failures.append(f"{chip} {dtype} {width}: {spills} bytes of registers are spilled")
    if [str(threads), str(shared), counts] != [stated[0], stated[1], stated[3]]:
        failures.append(f"{chip} {dtype} {width}: {threads} threads, {shared} KB, {counts}; the page says {stated}")
    if registers is not None and registers > int(stated[2]):
        failures.append(f"{chip} {dtype} {width}: {registers} registers; the page says {stated[2]}")
if options.update:
    with open(options.page, "w") as file:
        file.write(page[:start] + "\n".join(lines) + page[end:])
else:
    print("\n".join(failures or [f"{len(lines) - 2} kernels as stated"]))
    raise SystemExit(bool(failures))
