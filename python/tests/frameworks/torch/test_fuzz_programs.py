# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""utils/fuzz_programs.py: random programs, compiled, agree with PyTorch and JAX."""

import os
import pathlib
import subprocess
import sys

import pytest

SCRIPT = pathlib.Path(__file__).parents[4] / "utils" / "fuzz_programs.py"


def fuzz(*arguments, **environment):
    command = [sys.executable, SCRIPT, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | environment)


@pytest.mark.parametrize("framework, target, count", [("torch", "cpu", 100), ("torch", "gpu-sim", 10), ("jax", "cpu", 30)])
def test_programs_agree(framework, target, count):
    count = max(5, count // int(os.environ.get("FOVEA_EVERY", 1)))
    done = fuzz("--framework", framework, "--target", target, "--count", count)
    assert done.returncode == 0, done.stdout
    assert ", 0 wrong" in done.stdout


def test_comparison_compares():
    done = fuzz("--count", 2, "--canary")
    assert done.returncode == 1
    assert "wrong: length " in done.stdout and "2 wrong" in done.stdout


def test_process_that_dies_is_a_finding(tmp_path):
    (tmp_path / "fovea").mkdir()
    (tmp_path / "fovea" / "torch.py").touch()
    dies = "import os\nclass FoveaError(Exception): pass\ndef import_torch(*_, **__): os.abort()\n"
    (tmp_path / "fovea" / "__init__.py").write_text(dies)
    done = fuzz("--count", 1, "--seed", 7, PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    assert "wrong: the process ended with -6 at seed 7" in done.stdout


def test_run_of_nothing_shows_nothing():
    done = fuzz("--seconds", 0)
    assert done.returncode == 1 and "0 programs" in done.stdout
