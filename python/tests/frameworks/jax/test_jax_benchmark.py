# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""benchmarks/jax_attention.py prints its table."""

import pathlib
import subprocess
import sys

SCRIPT = pathlib.Path(__file__).parents[4] / "benchmarks" / "jax_attention.py"


def test_prints_a_row_for_every_case():
    done = subprocess.run(
        [sys.executable, SCRIPT, "--seconds=0", "--longest=64"], capture_output=True, text=True, check=True
    )
    _, _, *rows = done.stdout.splitlines()
    assert [row.split(" | ")[1:3] for row in rows] == [
        [type, causal] for type in ("float32", "bfloat16") for causal in ("no", "yes")
    ]
    for row in rows:
        assert all(float(cell) > 0 for cell in row.strip("| ").split(" | ")[3:])
