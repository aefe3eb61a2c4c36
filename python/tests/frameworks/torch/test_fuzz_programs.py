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


def check(count, *arguments):
    count = max(5, count // int(os.environ.get("FOVEA_EVERY", 1)))
    done = fuzz("--count", count, *arguments)
    assert done.returncode == 0, done.stdout
    assert ", 0 wrong" in done.stdout


def test_programs_of_torch():
    check(100)


def test_programs_of_torch_in_the_emulator():
    check(10, "--target", "gpu-sim")


def test_programs_of_torch_that_train():
    check(40, "--train")


def test_programs_of_narrow_types():
    check(40, "--element-type", "bf16")
    check(10, "--framework", "jax", "--element-type", "f16")


def test_programs_of_jax():
    check(30, "--framework", "jax")


def test_only_pytorch_trains():
    done = fuzz("--framework", "jax", "--train")
    assert done.returncode == 2 and "--train needs --framework torch and --target cpu" in done.stderr


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


@pytest.mark.parametrize("name", ["torch", "torch_mlir", "fovea"])
def test_what_is_missing_is_named(tmp_path, name):
    (tmp_path / f"{name}.py").write_text(f"raise ImportError('No module named {name}')")
    done = fuzz("--count", 2, PYTHONPATH=os.pathsep.join([str(tmp_path), *sys.path]))
    assert done.returncode == 1 and "wrong" not in done.stdout
    assert f"No module named {name}: programs of torch need torch, torch-mlir and Fovea" in done.stderr


def test_run_of_nothing_shows_nothing():
    done = fuzz("--seconds", 0)
    assert done.returncode == 1 and "0 programs" in done.stdout
