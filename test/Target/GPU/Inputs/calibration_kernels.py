# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Assembles the kernels of benchmarks/gpu/calibrate.py and counts what their loops are about: ptxas
leaves out what it can compute beforehand, and unrolls.

    calibration_kernels.py <folder> --ptxas PTXAS --nvdisasm NVDISASM
"""

import argparse
import re
import subprocess
from pathlib import Path

COUNTED = {"addition-of-products": (512, "FFMA"), "addition-of-products-of-integers": (512, "IMAD"), "maximum": (512, "FMNMX"),
           "exponential": (512, "MUFU.EX2"), "shuffle": (512, "SHFL"), "latency-of-an-exponential": (512, "MUFU.EX2"),
           "latency-of-a-shuffle": (512, "SHFL"), "product-64-x-64-x-16": (8, "HGMMA.64x64x16"),
           "product-64-x-128-x-16": (8, "HGMMA.64x128x16"), "product-64-x-256-x-16": (8, "HGMMA.64x256x16"),
           "copy-of-16-kB-from-memory": (1, "UBLKCP"), "copy-of-16-kB-from-the-second-level-cache": (1, "UBLKCP"),
           "bytes": (8, "LDG.E.128")}

parser = argparse.ArgumentParser()
parser.add_argument("folder", type=Path)
parser.add_argument("--ptxas", required=True)
parser.add_argument("--nvdisasm", required=True)
options = parser.parse_args()
found = sorted(path.stem for path in options.folder.glob("*.ptx"))
failures = [] if found == sorted(COUNTED) else [f"expected {sorted(COUNTED)}, found {found}"]
for name in found:
    source, cubin = options.folder / f"{name}.ptx", options.folder / f"{name}.cubin"
    chip = re.search(r"\.target (\w+)", source.read_text())[1]
    subprocess.run([options.ptxas, f"-arch={chip}", str(source), "-o", str(cubin)], check=True)
    code = subprocess.run([options.nvdisasm, str(cubin)], check=True, capture_output=True, text=True).stdout
    count, instruction = COUNTED[name]
    number = len(re.findall(rf"\*/\s+(?:@!?U?P\w+ )?{re.escape(instruction)}[ .]", code))
    # Plain moves are integer products, too.
    if instruction == "IMAD":
        number = len(re.findall(r"\*/\s+IMAD R", code))
    print(f"{name}: {number} of {instruction}")
    if not count <= number <= count + (4 if instruction == "IMAD" else 0):
        failures.append(f"{name}: expected {count}")
print("\n".join(failures) or "all as counted")
raise SystemExit(bool(failures))
