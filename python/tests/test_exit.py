# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Nothing is printed when a process ends, whoever still holds arrays, trees and
kernels; and this package keeps nothing alive."""

import os
import subprocess
import sys

import pytest

START = """
import ctypes, gc, sys
import numpy as np
import fovea
x = np.ones((1, 8, 4), np.float32)
def hold(object):
    # As a graph of C++ objects does that nobody frees.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(object))
def work():
    tree = fovea.tree_build(x, ratio=2)
    kernel = fovea.compile("func.func @f(%a: tensor<2xf32>) -> tensor<2xf32> {\\n  return %a : tensor<2xf32>\\n}")
    out = fovea.dense(*3 * [x[:, None]])
    gradient = kernel.vjp()(np.ones(2, np.float32), np.ones(2, np.float32))
    try:
        fovea.compile("garbage")
    except fovea.FoveaError:
        pass
    return tree, kernel, out, gradient
"""
CASES = {
    "nothing is held": "work()",
    "a cycle": "a = list(work()); a.append(a)",
    "a global": "kept = work()",
    "a function": "class Kept:\n  work = work()\n  def __del__(self): pass\nkept = Kept()",
    "a tree": "hold(work()[0])",
    "a kernel": "hold(work()[1])",
    "an array": "hold(work()[2])",
    "a thread": """
import threading, time
done = threading.Event()
def task():
    kept = work()
    done.set()
    time.sleep(100)
threading.Thread(target=task, daemon=True).start()
done.wait()
""",
    "an error": "work()\ntry:\n  fovea.compile('garbage')\nexcept fovea.FoveaError as error:\n  hold(error)",
}
TORCH = """
import torch
kept = []
class C(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.t, ctx.k = work()[:2]
        return 2 * x
    @staticmethod
    def backward(ctx, d_out):
        return d_out
kept.append(C.apply(torch.ones(3, requires_grad=True)))
"""


def run(text, **environment):
    environment = {**os.environ, **environment}
    return subprocess.run([sys.executable, "-c", START + text], env=environment, capture_output=True, text=True)


@pytest.mark.parametrize("case", CASES)
def test_nothing_is_printed(case):
    result = run(CASES[case])
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


@pytest.mark.parametrize("case", ["nothing is held", "a cycle", "a global", "a function"])
def test_nothing_is_leaked(case):
    """The binding itself holds nothing; it would be told here."""
    result = run(CASES[case], FOVEA_LEAK_WARNINGS="1")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_a_leak_is_told():
    result = run(CASES["a kernel"], FOVEA_LEAK_WARNINGS="1")
    assert "nanobind: leaked" in result.stderr


def test_torch():
    pytest.importorskip("torch", reason="PyTorch is not installed")
    result = run(TORCH)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
