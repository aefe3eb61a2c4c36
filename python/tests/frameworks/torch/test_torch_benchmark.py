# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""benchmarks/pytorch.py prints what a call costs."""

import pathlib
import subprocess
import sys

SCRIPT = pathlib.Path(__file__).parents[4] / "benchmarks" / "pytorch.py"


def test_prints_the_cost_of_calls():
    done = subprocess.run([sys.executable, SCRIPT, "--calls", "--rounds=1"], capture_output=True, text=True, check=True)
    _, _, table = done.stdout.partition("| call | least | median |\n|---|---|---|\n")
    rows = [row.strip("| ").split(" | ") for row in table.splitlines()]
    assert [row[0] for row in rows][:2] == ["fovea.dense on NumPy arrays", "fovea.torch.dense"]
    assert all(float(cell.removesuffix(" us")) > 0 for row in rows for cell in row[1:])
