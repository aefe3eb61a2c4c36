# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""benchmarks/scores_torch.py times functions of scores beside PyTorch's, whose results agree."""

import pathlib
import subprocess
import sys

SCRIPT = pathlib.Path(__file__).parents[4] / "benchmarks" / "scores_torch.py"


def test_a_row_of_each_pass():
    small = ["--calls=1", "--tokens=128", "--heads=1", "--width=16", "--rows", "soft-cap"]
    done = subprocess.run([sys.executable, SCRIPT, *small], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    _, _, *rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in done.stdout.splitlines()]
    assert [row[:2] for row in rows] == [["forward", "soft-cap"], ["forward and backward", "soft-cap"]]
    assert all(float(row[2]) > 0 and float(row[-1]) <= 1e-4 for row in rows)


def test_rows_that_do_not_exist():
    done = subprocess.run([sys.executable, SCRIPT, "--tokens=128", "--rows", "none", "hard-cap"], capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.startswith("--rows: found hard-cap, needed some of none, soft-cap, ")
