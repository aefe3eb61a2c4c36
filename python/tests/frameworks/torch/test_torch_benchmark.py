# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""benchmarks/pytorch.py prints what a call costs, and ratios."""

import pathlib
import subprocess
import sys

SCRIPT = pathlib.Path(__file__).parents[4] / "benchmarks" / "pytorch.py"


def test_prints_the_cost_of_calls():
    done = subprocess.run([sys.executable, SCRIPT, "--calls", "--rounds=1"], capture_output=True, text=True, check=True)
    _, _, table = done.stdout.partition("| call | least | beyond arrays | median |\n|---|---|---|---|\n")
    rows = [row.strip("| ").split(" | ") for row in table.splitlines()]
    assert [row[0] for row in rows][:2] == ["fovea.dense on NumPy arrays", "fovea.torch.dense"]
    assert all(float(row[column].removesuffix(" us")) > 0 for row in rows for column in (1, 3))
    assert [bool(row[2].strip()) for row in rows] == [False, True, True, *[False] * 7]


def test_prints_ratios():
    command = [sys.executable, SCRIPT, "--ratios", "--rounds=1", "--longest=64"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    _, _, table = done.stdout.partition("|---|---|---|---|---|\n")
    rows = [row.strip("| ").split(" | ") for row in table.splitlines()]
    assert [row[0] for row in rows] == ["64", "64, causal", "1 of 64"]
    assert all(float(cell.removesuffix("x")) > 0 for row in rows[:2] for cell in row[1:])


def test_prints_tables():
    command = [sys.executable, SCRIPT, "--tables", "decode", "training", "--rounds=1", "--longest=64"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    head, decode, training = done.stdout.split("\n## ")
    assert head.startswith("PyTorch") and decode.startswith("Decoding") and training.startswith("Forward and backward")
    tables = [[line.strip("| ").split(" | ") for line in each.splitlines() if line.startswith("| ")] for each in (decode, training)]
    assert [len(each) for each in tables] == [1 + 4, 1 + 8]
    assert all("x" in row[6] for each in tables for row in each[1:])


def test_lengths_that_are_too_short():
    done = subprocess.run([sys.executable, SCRIPT, "--longest=63"], capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.endswith("error: --longest: found 63, needed at least 64\n")
