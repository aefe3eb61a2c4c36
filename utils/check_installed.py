#!/usr/bin/env python3
# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks what a wheel has installed, for utils/check-wheel.sh.

    check_installed.py <README.md> <example.py> [folder]     fovea-attention
    check_installed.py --runtime <twice.so>                  fovea-attention-runtime

Stands alone: only what is installed is there, and NumPy. The library has the function
@twice of IR below. The folder has PyTorch or JAX, whose glue is checked with them.
"""

import argparse
import ctypes
import importlib
import importlib.metadata
import importlib.util
import re
import runpy
import subprocess
import sys
import sysconfig
from pathlib import Path

IR = """
func.func @twice(%a: tensor<?xf32>, %init: tensor<?xf32>) -> tensor<?xf32> {
  %0 = linalg.add ins(%a, %a : tensor<?xf32>, tensor<?xf32>) outs(%init : tensor<?xf32>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}
"""


def check_programs(readme, example):
    """The first program of the page, and an example with data."""
    program = re.search(r"```python\n(.*?)```", readme.read_text(), re.S)
    assert program, f"{readme} has no program"
    exec(program.group(1), {})
    runpy.run_path(str(example), run_name="__main__")


def run(*command):
    return subprocess.run(command, input=IR, capture_output=True, text=True)


def check_tools():
    scripts = Path(sysconfig.get_path("scripts"))
    entries = importlib.metadata.distribution("fovea-attention").entry_points
    names = [each.name for each in entries if each.group == "console_scripts"]
    (backend,) = [each for each in entries if each.group == "torch_dynamo_backends"]
    assert (backend.name, backend.value) == ("fovea", "fovea.torch._backend:compile_graph"), backend
    for name in names:
        done = run(scripts / name, "--help")
        assert done.returncode == 0 and f"usage: {name} " in done.stdout.replace("USAGE", "usage"), (name, done)
    done = run(scripts / "fovea-opt", "-", "--attn-cpu-pipeline")
    assert done.returncode == 0 and "llvm.func" in done.stdout, done
    done = run(scripts / "fovea-run", "-", "--random", "--shape=7", "--shape=7", "--compare=reference")
    assert done.returncode == 0, done
    done = run(scripts / "fovea-compile", "-", "--emit=asm")
    assert done.returncode == 0 and "twice_packed" in done.stdout, done
    done = run(scripts / "fovea-compile", "-", "--emit=ptx", "--target=nvvm", "--chip=sm_90a")
    assert done.returncode == 0 and ".target sm_90a" in done.stdout, done
    return names


def check_one_copy():
    """LLVM is inside, and nothing of it elsewhere."""
    maps = Path("/proc/self/maps").read_text()
    found = sorted({line.split()[-1] for line in maps.splitlines() if re.search(r"/lib(LLVM|MLIR|fovea)", line)})
    folder = Path(importlib.import_module("fovea").__path__[0])
    assert [Path(x).parent for x in found] == [folder], found


def check_framework(name):
    """Whether the glue for PyTorch or JAX is there and computes."""
    if not importlib.util.find_spec(name) or not importlib.util.find_spec(f"fovea.{name}"):
        return False
    import numpy as np

    from fovea import reference

    if name == "torch":
        # Before `fovea.torch` is imported.
        import torch

        assert torch.compile(torch.sin, backend="fovea", options={"rest": "eager"})(torch.zeros(1)) == 0
    module = importlib.import_module(f"fovea.{name}")
    make = importlib.import_module(name).from_numpy if name == "torch" else importlib.import_module("jax.numpy").asarray
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((1, 2, 37, 16)).astype(np.float32) for _ in range(3)]
    found = np.asarray(module.dense(*map(make, arrays), causal=True))
    expected = reference.dense(*arrays, causal=True)
    assert np.abs(found - expected).max() < 1e-5 * np.abs(expected).max()
    return True


def check_installed(readme, example, *frameworks):
    check_programs(readme, example)
    names = check_tools()
    check_one_copy()
    sys.path += frameworks
    glue = [x for x in ("torch", "jax") if check_framework(x)]
    print(f"Python {sys.version.split()[0]}: programs, {', '.join(names)}" + "".join(f", fovea.{x}" for x in glue))


def check_runtime(library):
    """A kernel runs where there is no compiler."""
    import fovea_runtime

    assert (Path(fovea_runtime.get_include()) / "fovea_rt" / "fovea_rt.h").is_file()
    assert Path(fovea_runtime.get_archive()).is_file()
    assert not importlib.util.find_spec("fovea"), "the compiler is here, too"
    kernels = fovea_runtime.load(library)
    runtime = ctypes.CDLL(fovea_runtime.get_library())

    class Tensor(ctypes.Structure):
        _fields_ = [
            ("base", ctypes.c_void_p),
            ("data", ctypes.POINTER(ctypes.c_float)),
            ("offset", ctypes.c_int64),
            ("extent", ctypes.c_int64),
            ("stride", ctypes.c_int64),
        ]

    numbers = (ctypes.c_float * 5)(1, 2, 3, 4, 5)
    address = ctypes.cast(numbers, ctypes.POINTER(ctypes.c_float))
    given = Tensor(ctypes.addressof(numbers), address, 0, 5, 1)
    result = Tensor()
    arguments = (ctypes.c_void_p * 3)(*(ctypes.addressof(x) for x in (result, given, given)))
    runtime.fovea_rt_last_error.restype = ctypes.c_char_p
    status = runtime.fovea_rt_invoke(ctypes.cast(kernels.twice_packed, ctypes.c_void_p), arguments)
    assert status == 0, runtime.fovea_rt_last_error()
    assert result.data[:5] == [2, 4, 6, 8, 10], result.data[:5]
    print(f"Python {sys.version.split()[0]}: a kernel with the runtime alone")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("readme", type=Path, nargs="?", help="a page whose first program is run")
    parser.add_argument("example", type=Path, nargs="?", help="a program with data")
    parser.add_argument("folder", nargs="*", help="of PyTorch or JAX")
    parser.add_argument("--runtime", metavar="twice.so", help="check the runtime alone, with this library")
    options = parser.parse_args()
    if (options.runtime is None) == (options.example is None):
        parser.error("needed a page and an example, or --runtime and a library")
    for file in (options.readme, options.example, options.runtime):
        if file is not None and not Path(file).is_file():
            parser.error(f"there is no file {file}")
    if options.runtime is not None:
        check_runtime(options.runtime)
    else:
        check_installed(options.readme, options.example, *options.folder)


if __name__ == "__main__":
    main()
