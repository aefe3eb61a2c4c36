# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Main loops of kernels for Hopper, by the cycle model: here, since triton, which PyTorch needs,
brings the programs that read machine code."""

import pathlib
import subprocess
import sys

import pytest

import fovea

triton = pytest.importorskip("triton")
ROOT = pathlib.Path(__file__).parents[4]
PROGRAMS = pathlib.Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
COMPILER = pathlib.Path(fovea.__file__).parents[2] / "bin" / "fovea-compile"


@pytest.mark.skipif(not (PROGRAMS / "nvdisasm").exists(), reason="this triton has no nvdisasm")
def test_loops_take_no_more_cycles_than_stated():
    command = [sys.executable, ROOT / "test/Target/GPU/Inputs/cycles.py", COMPILER, ROOT]
    done = subprocess.run(command, capture_output=True, text=True, env={"PATH": f"{PROGRAMS}:/usr/bin:/bin"})
    assert done.returncode == 0, done.stdout + done.stderr
    if "not compared" in done.stdout:
        pytest.skip(done.stdout)
    assert "loops as stated" in done.stdout, done.stdout


@pytest.mark.skipif(not (PROGRAMS / "nvdisasm").exists(), reason="this triton has no nvdisasm")
def test_calls_take_no_longer_than_stated():
    command = [sys.executable, ROOT / "test/Target/GPU/Inputs/calls.py", COMPILER, COMPILER.with_name("fovea-opt"), ROOT]
    done = subprocess.run(command, capture_output=True, text=True, env={"PATH": f"{PROGRAMS}:/usr/bin:/bin"})
    assert done.returncode == 0 and "| convolutions, 131072 tokens |" in done.stdout, done.stdout + done.stderr


@pytest.mark.skipif(not (PROGRAMS / "nvdisasm").exists(), reason="this triton has no nvdisasm")
def test_elements_and_rows_take_no_more_instructions_than_stated():
    command = [sys.executable, ROOT / "test/Target/GPU/Inputs/rows.py", COMPILER, ROOT]
    done = subprocess.run(command, capture_output=True, text=True, env={"PATH": f"{PROGRAMS}:/usr/bin:/bin"})
    assert done.returncode == 0 and "4 kernels as stated" in done.stdout, done.stdout + done.stderr


@pytest.mark.skipif(not (PROGRAMS / "nvdisasm").exists(), reason="this triton has no nvdisasm")
def test_products_that_ptxas_moves_are_an_error():
    command = [sys.executable, ROOT / "utils/fovea_cycles", ROOT / "test/Target/GPU/Inputs/unwaited.ptx"]
    done = subprocess.run(command, capture_output=True, text=True, env={"PATH": f"{PROGRAMS}:/usr/bin:/bin"})
    assert done.returncode == 1 and "changes products of warpgroups in" in done.stderr, done.stdout + done.stderr
    assert "C75" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.skipif(not (PROGRAMS / "nvdisasm").exists(), reason="this triton has no nvdisasm")
def test_kernels_of_the_calibration_have_what_they_count(tmp_path):
    subprocess.run([sys.executable, ROOT / "benchmarks/gpu/calibrate.py", "--ptx", tmp_path], check=True)
    script = ROOT / "test/Target/GPU/Inputs/calibration_kernels.py"
    tools = [f"--{name}={PROGRAMS / name}" for name in ("ptxas", "nvdisasm")]
    done = subprocess.run([sys.executable, script, tmp_path, *tools], capture_output=True, text=True)
    assert done.returncode == 0 and "all as counted" in done.stdout, done.stdout + done.stderr
