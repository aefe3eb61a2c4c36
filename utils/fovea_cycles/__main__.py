# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Says, without a GPU, how busy the main loop of an sm_90a kernel keeps a Hopper GPU.

    python3 utils/fovea_cycles kernel.mlir|kernel.ptx|kernel.cubin

Kernels without products of warpgroups have no such loop and are left out. Needs ptxas and nvdisasm:
of a CUDA toolkit, or of the package 'triton' on PyPI. docs/GPUModel.md explains the figures.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from cycles import CLOCK_GHZ, MULTIPROCESSORS, Programs, measure_cubin


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="fovea_cycles", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("input", type=Path, help="MLIR, PTX or a cubin, by its suffix")
    parser.add_argument("--entry", help="with MLIR: the function to compile, if there are several")
    parser.add_argument("--json", action="store_true", help="print numbers as JSON")
    parser.add_argument("--compiler", default="build/bin/fovea-compile", help="fovea-compile (default: %(default)s)")
    parser.add_argument("--ptxas", help="another ptxas than the one that is found")
    parser.add_argument("--nvdisasm", help="another nvdisasm than the one that is found")
    options = parser.parse_args()
    if not options.input.is_file():
        parser.error(f"there is no file '{options.input}'")
    programs = Programs.find(options.ptxas, options.nvdisasm)
    with tempfile.TemporaryDirectory() as folder:
        cubin = programs.make_cubin(options.input, Path(folder), options.compiler, options.entry)
        kernels = measure_cubin(programs, cubin)
    if options.json:
        print(json.dumps([kernel.to_json() for kernel in kernels], indent=1))
        return
    if not kernels:
        print("no kernel has products of warpgroups")
    for kernel in kernels:
        print(kernel.describe())
    if kernels:
        print(f"TF/s: {MULTIPROCESSORS} multiprocessors at {CLOCK_GHZ} GHz, loop alone. Modelled, not measured.")


if __name__ == "__main__":
    main()
