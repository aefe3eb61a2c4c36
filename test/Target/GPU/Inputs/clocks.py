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

CHIPS = "| kernel | H100, H200 with sm_90a, us | B200 with sm_100, us |"

page_path = options.source / "docs" / "results" / "gpu-model.md"
page = page_path.read_text()


def find_table(header):
    """Where it begins and ends, and its rows by their names."""
    begin = page.index(header)
    end = page.index("\n\n", begin)
    return begin, end, {row.split(" | ")[0].strip("| "): row for row in page[begin:end].splitlines()[2:]}


begin, end, stated = find_table(HEADER)
begin_of_chips, end_of_chips, stated_of_chips = find_table(CHIPS)


def clock(text, chip):
    """What clocks say of the kernel with the most products."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.mlir"
        path.write_text(text)
        done = subprocess.run([options.runner, str(path), "--target=gpu-sim", f"--chip={chip}", "--random", "--clocks", "--json"],
                              capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{options.runner} failed:\n{done.stderr}")
    return max(json.loads(done.stdout)["clocks"], key=lambda launch: launch["busy"]["tensor cores"] + launch["busy"]["mma.sync"])


def get_estimate(clocks, device):
    """Microseconds: middle, least and most."""
    (times,) = (estimate["milliseconds"] for estimate in clocks["estimates"] if estimate["device"] == device)
    return [1e3 * time for time in (times[1], min(times), max(times))]


def show_estimate(times):
    return f"{times[0]:.3g}, {times[1]:.3g} to {times[2]:.3g}"


lines, lines_of_chips, failures = [HEADER, "|---|---|---|---|---|"], [CHIPS, "|---|---|---|"], []
for name, (text, row) in KERNELS.items():
    found = clock(text, "sm_90a")
    # Blocks that stay have two multiprocessors in the emulator.
    if is_compared := name.startswith("dense"):
        estimates = get_estimate(found, "H100, H200"), get_estimate(clock(text, "sm_100"), "B200")
        lines_of_chips.append(f"| {name} | {' | '.join(map(show_estimate, estimates))} |")
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
    if not is_compared:
        continue
    # Which has three digits.
    said = [float(time) for time in re.findall(r"[\d.]+", stated_of_chips.get(name, "").partition(" | ")[2])]
    now = [time for times in estimates for time in times]
    if len(said) != len(now) or any(abs(time - then) > (TOLERANCE + 0.005) * then for time, then in zip(now, said)):
        failures.append(f"{lines_of_chips[-1]}; the page says {stated_of_chips.get(name, 'nothing')}")
if options.update:
    page_path.write_text(page[:begin] + "\n".join(lines) + page[end:begin_of_chips] + "\n".join(lines_of_chips) + page[end_of_chips:])
print("\n".join(failures or [f"{len(KERNELS)} kernels {'written' if options.update else 'as stated'}"]))
raise SystemExit(bool(failures))
