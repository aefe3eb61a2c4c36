# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares the cycle model's products with measurements on an H100 that others have published.

    cycles_calibration.py <source> [--tail CYCLES]

With another tail of products than the model's, it must fail.
"""

import argparse
import dataclasses
import sys
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("source", type=Path)
parser.add_argument("--tail", type=int)
options = parser.parse_args()
sys.path.insert(0, str(options.source / "utils" / "fovea_cycles"))
import model  # noqa: E402
import sass  # noqa: E402

# Cycles of 64 x n x 16 with both factors in shared memory, one after the other without waits.
RATES = {8: 18.9, 16: 20.7, 32: 24.7, 64: 32.8, 96: 48.7, 128: 65.0, 192: 97.1, 256: 129.3}
# Cycles of each of `count` products of n = 64 between two waits for all.
GROUPS = {1: 79.0, 2: 55.6, 4: 44.6, 8: 38.2}
# Of each product with so many in flight: a wait for all but the last ones after each.
IN_FLIGHT = {2: 42.0, 4: 33.4, 8: 32.3}
TOLERANCE = 0.08
MACHINE = dataclasses.replace(model.MIDDLE, tail=options.tail or model.MIDDLE.tail)


def build(columns: int, count: int, pending: int) -> list[sass.Instruction]:
    """A loop of one group of products and a wait."""
    body = [sass.Instruction(f"HGMMA.64x{columns}x16.F32.BF16 R24, gdesc[UR4], R24" + (", gsb0" * (i == count - 1)),
                             stall=1, write=7, read=7, wait=0) for i in range(count)]
    body.append(sass.Instruction(f"WARPGROUP.DEPBAR.LE gsb0, {pending:#x}", stall=1, write=7, read=7, wait=0))
    return body


def measure(columns: int, count: int, pending: int) -> float:
    """Cycles of a product; a back edge is no part of what was measured."""
    body = build(columns, count, pending)
    return model.simulate(body, MACHINE, is_loaded=False, warps=1, back_edge=0).cycles / count


failures = []


def check(name: str, found: float, expected: float) -> None:
    print(f"{name}: {found:.1f} cycles, measured {expected}")
    if abs(found / expected - 1) > TOLERANCE:
        failures.append(name)


for columns, expected in RATES.items():
    check(f"n = {columns}", measure(columns, 32, 1), expected)
for count, expected in GROUPS.items():
    check(f"groups of {count}", measure(64, count, 0), expected)
for count, expected in IN_FLIGHT.items():
    check(f"{count} in flight", measure(64, 1, count - 1), expected)
print("\n".join(f"off by more than 8 %: {each}" for each in failures) or "all within 8 %")
raise SystemExit(bool(failures))
