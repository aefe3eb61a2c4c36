# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares the rates of lib/Emulator/Runtime/Rates.h with those of utils/fovea_cycles."""

import re
import sys
from pathlib import Path

source = Path(sys.argv[1])
sys.path[:0] = [str(source / "utils/fovea_cycles")]
import cycles  # noqa: E402
import decode  # noqa: E402
import model  # noqa: E402

MODEL = {
    "kFma": model.PIPES["FFMA"][1], "kAlu": model.PIPES["FMNMX"][1], "kMufu": model.PIPES["MUFU"][1],
    "kLsu": model.PIPES["LDS"][1], "kProduct": decode.H100.product, "kTryWait": model.TRY_WAIT,
    "kWake": model.WAKE, "kArrive": model.ARRIVE, "kArriveThere": model.ARRIVE_THERE, "kBarrier": model.BARRIER,
    "kCopyStart": model.TMA_ISSUE, "kProductStart": model.PRODUCT_START, "kProductsInFlight": model.MIDDLE.queue,
    "kSharedBytes": model.SHARED_BYTES}
# The emulator's alone.
MODEL["kIssueAlone"] = None

text = (source / "lib/Emulator/Runtime/Rates.h").read_text()
found = {name: float(value) for name, value in re.findall(r"constexpr double (k\w+) = ([\d.]+);", text)}
levels = [(name, *map(float, values)) for name, *values in
          re.findall(r'\{"(\w+)", ([\d.]+), ([\d.]+), ([\d.]+)\}', text)]
expected = [(machine.name, machine.latency, machine.rate, machine.tail)
            for machine in (model.NEAR, model.MIDDLE, model.FAR, model.ALL)]
# Of one kind of multiprocessors each, with the levels that follow it.
devices = {names: (int(count), float(clock), found["kProduct"] if product == "kProduct" else float(product))
           for names, count, clock, product in
           re.findall(r'"([A-Z0-9, ]+)", (\d+), ([\d.]+), (\w+|[\d.]+), (?:true|false),', " ".join(text.split()))}
expected_devices = {"H100, H200": (cycles.MULTIPROCESSORS, cycles.CLOCK_GHZ, decode.H100.product),
                    "B200": (decode.B200.multiprocessors, decode.B200.clock_ghz, decode.B200.product)}
problems = [f"{name}: the emulator has {found.get(name)}, the model {MODEL.get(name, 'none')}"
            for name in sorted(MODEL.keys() | found.keys())
            if name not in MODEL or name not in found or MODEL[name] not in (None, found[name])]
# Those of a B200 are the emulator's alone.
if levels[:4] != expected:
    problems.append(f"levels: the emulator has {levels[:4]}, the model {expected}")
if devices != expected_devices:
    problems.append(f"devices: the emulator has {devices}, the model {expected_devices}")
print("\n".join(problems) or f"{len(found) + 3 * len(expected) + 3 * len(devices)} rates agree")
raise SystemExit(bool(problems))
