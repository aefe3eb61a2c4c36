# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls a kernel for the CPU as benchmarks/gpu calls those of GPUs."""

import ctypes
import pathlib
import subprocess
import sys

import numpy as np

compiler, build, folder = sys.argv[1], *map(pathlib.Path, sys.argv[2:])
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "benchmarks" / "gpu"))
from kernel import Kernel, Runtime  # noqa: E402

folder.mkdir(parents=True, exist_ok=True)
q = "tensor<1x2x?x16xf32>"
text = (f"func.func @f(%q: {q}, %k: {q}, %o: {q}) -> {q} {{\n"
        f"  %r = attn.dense ins(%q, %k, %k : {q}, {q}, {q}) outs(%o : {q}) -> {q}\n  return %r : {q}\n}}\n")
subprocess.run([compiler, "-", "--target=cpu", "--emit=so", "-o", str(folder / "f.so")], input=text, text=True, check=True)
kernel = Kernel(Runtime(str(build / "lib" / "libfovea_rt.so")), str(folder / "f.so"))
rng = np.random.default_rng(0)
q, k, o = (rng.standard_normal((1, 2, n, 16)).astype(np.float32) for n in (9, 7, 9))
address, shape = kernel([(x.ctypes.data, x.shape) for x in (q, k, o)])
found = np.ctypeslib.as_array((ctypes.c_float * np.prod(shape)).from_address(address)).reshape(shape).copy()
kernel.free()
p = np.exp(q @ k.transpose(0, 1, 3, 2) / 4)
expected = p @ k / p.sum(-1, keepdims=True)
print("agrees" if np.abs(found - expected).max() < 1e-5 else "differs")
