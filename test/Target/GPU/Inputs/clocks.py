# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks the table of docs/results/gpu-model.md of whole blocks: what the emulator's clocks say of
kernels for sm_90a, beside the cycles of a tile that the model of machine code has in its table.

    clocks.py <fovea-run> <source> [--update]
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("runner")
parser.add_argument("source", type=Path)
parser.add_argument("--update", action="store_true")
options = parser.parse_args()
sys.path[:0] = [str(options.source / folder) for folder in ("benchmarks/gpu", "utils/fovea_cycles")]
import artefacts  # noqa: E402
from cycles import CLOCK_GHZ  # noqa: E402

HEADER = ("| kernel | cycles of a tile: machine code, clocks | tiles of the longest block | its cycles: L2, middle, HBM, all | "
          "beside its tiles, us |")
TOLERANCE = 0.03
# The function, its shapes, and the row of the table of loops.
KERNELS = {
    "dense, D = 64": (artefacts.dense(64, False, 1, 1, 1280), "dense, causal, D = 64"),
    "dense, D = 128": (artefacts.dense(128, False, 1, 1, 1024), "dense, causal, D = 128"),
    "dense, causal, D = 64": (artefacts.dense(64, True, 1, 1, 1280), "dense, causal, D = 64"),
    "dense, causal, D = 128": (artefacts.dense(128, True, 1, 1, 1024), "dense, causal, D = 128"),
    "fast multipole": (artefacts.multipole(128, 2048, 128, 4, 1, 1)[0], "fast multipole, 128 tokens near, D = 128"),
    "vq": (artefacts.vq(128, 4096, 512, 512, 1, 1), "vq, blocks of 512, 512 codewords, D = 128"),
}

page_path = options.source / "docs" / "results" / "gpu-model.md"
page = page_path.read_text()
begin = page.index(HEADER)
end = page.index("\n\n", begin)
stated = {row.split(" | ")[0].strip("| "): row for row in page[begin:end].splitlines()[2:]}


def clock(text):
    """What clocks say of the kernel with the products of warpgroups."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.mlir"
        path.write_text(text)
        done = subprocess.run([options.runner, str(path), "--target=gpu-sim", "--chip=sm_90a", "--random", "--clocks", "--json"],
                              capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{options.runner} failed:\n{done.stderr}")
    return max(json.loads(done.stdout)["clocks"], key=lambda launch: launch["busy"]["tensor cores"])


lines, failures = [HEADER, "|---|---|---|---|---|"], []
for name, (text, row) in KERNELS.items():
    found = clock(text)
    model = int(re.search(rf"^\| {re.escape(row)} \|.*?\| \d+, (\d+), \d+ \|", page, re.M)[1])
    tile, longest = found["tile_cycles"][1], found["longest_cycles"]
    beside = [cycles / CLOCK_GHZ * 1e-3 for cycles in found["beside_cycles"]]
    lines.append(f"| {name} | {model}, {tile:.0f} | {found['tiles']:.3g} | {', '.join(f'{cycles:.0f}' for cycles in longest)} | "
                 f"{min(beside):.1f} to {max(beside):.1f} |")
    if options.update:
        continue
    before = stated.get(name)
    if not before:
        failures.append(f"{name}: is not in the table")
        continue
    cells = before.strip("| ").split(" | ")
    then = [int(cells[1].split(", ")[1]), *map(int, cells[3].split(", "))]
    failures += [f"{name}: {now:.0f} cycles; the page says {said}"
                 for now, said in zip([tile, *longest], then) if abs(now - said) > TOLERANCE * said]
    # Which the page has in tenths.
    then = map(float, cells[4].split(" to "))
    failures += [f"{name}: {now:.2f} us beside its tiles; the page says {said}"
                 for now, said in zip((min(beside), max(beside)), then) if abs(now - said) > 0.1 + TOLERANCE * said]
if options.update:
    page_path.write_text(page[:begin] + "\n".join(lines) + page[end:])
print("\n".join(failures or [f"{len(KERNELS)} kernels {'written' if options.update else 'as stated'}"]))
raise SystemExit(bool(failures))
