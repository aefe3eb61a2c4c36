# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# REQUIRES: long-tests
"""Compilations in processes with little memory end in an error, not the process."""

import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
import numpy as np
import fovea

megabytes, warm = map(int, sys.argv[1:])
fovea.set_num_threads(1)
q = np.ones((1, 2, 64, 32), np.float32)
if warm:
    fovea.dense(q, q, q)
x = np.zeros((1, 1, 4096, 64), np.float32)
weights = [np.ones((1, 4, 64 << i, 64), np.float32) for i in range(5)]
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
most = resource.getrlimit(resource.RLIMIT_AS)[1]
resource.setrlimit(resource.RLIMIT_AS, (used + megabytes * 2**20, most))
try:
    fovea.fast_multipole(x, x, x, weights, weights, group=64, causal=True)
    print("compiled")
except (fovea.FoveaError, MemoryError) as error:
    print("error:", error)
if warm:
    assert np.all(fovea.dense(q, q, q) == 1)
resource.setrlimit(resource.RLIMIT_AS, (most, most))
assert np.isfinite(fovea.fast_multipole(x, x, x, weights, weights, group=64, causal=True)).all()
print("afterwards right")
"""


@pytest.mark.parametrize("warm", [0, 1])
@pytest.mark.parametrize("megabytes", [7, 9, 88, 4096])
def test_compiling_in_little_memory(megabytes, warm):
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(megabytes), str(warm)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert process.returncode == 0, process.stderr
    first, last = process.stdout.splitlines()
    assert first == "compiled" if megabytes == 4096 else first.startswith(("compiled", "error: "))
    assert last == "afterwards right"
