# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What runs kernels: `fovea-run`, one process per measurement.

fovea-run measures the peak of the machine between the runs of a kernel, in the
same process and on the same cores, so that every figure has its own peak.
"""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np

from . import machine

_CALL = pathlib.Path(__file__).with_name("call.py")


class KernelError(Exception):
    """The compiler or the runtime refused; the text says why."""


class Prepared:
    """A kernel with its inputs, ready to be run any number of times. Without inputs,
    on random numbers."""

    def __init__(self, inputs, folder):
        self._folder = pathlib.Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        self.path = self._folder / "kernel.mlir"
        self._arguments = ["--random"] if inputs is None else []
        for index, array in enumerate(inputs or []):
            path = self._folder / f"in{index}.npy"
            np.save(path, array)
            self._arguments.append(f"--arg={path}")

    def set_ir(self, text):
        self.path.write_text(text)

    def run(self, tools, threads, seconds=None, wants_result=True, compares=False):
        """Runs and, with `seconds`, times the kernel. Returns the report of
        fovea-run and the result (None unless wanted). With `compares` it is compared
        with the loops that define its operations."""
        out = self._folder / "out.npy"
        arguments = [str(self.path), *self._arguments, f"--threads={threads}", "--json"]
        if seconds is not None:
            arguments.append(f"--bench={seconds}")
            arguments.append(f"--bench-clock={tools.clock_for(threads)}")
        if wants_result:
            arguments.append(f"--out={out}")
        if compares:
            arguments.append("--compare=reference")
        report = tools.call("fovea-run", arguments, threads)
        return report, np.load(out) if wants_result else None

    def time_compilation(self, tools, seconds):
        arguments = [f"--compile={self.path}", f"--seconds={seconds}"]
        arguments.append(f"--clock={tools.clock}")
        return tools.call("fovea-machine", arguments, 1)

    def time_call(self, tools, seconds):
        """A call from Python, with arrays of NumPy."""
        paths = [argument.partition("=")[2] for argument in self._arguments]
        command = [sys.executable, _CALL, self.path, str(seconds), *paths]
        return tools.execute(command, 1, {"PYTHONPATH": tools.build / "python"})

    def remove(self):
        for path in self._folder.iterdir():
            path.unlink()
        self._folder.rmdir()


class Tools:
    """The programs of a build folder."""

    def __init__(self, build, cpus, clock):
        self.build = pathlib.Path(build)
        self.folder = self.build / "bin"
        self.cpus, self.clock = cpus, clock
        for name in ("fovea-run", "fovea-machine"):
            if not (self.folder / name).exists():
                raise FileNotFoundError(f"found no {name} in {self.folder}: build Fovea first")

    def clock_for(self, threads):
        """The time of one thread says nothing about several."""
        return self.clock if threads == 1 else "wall"

    def measure_machine(self, threads, seconds):
        arguments = [f"--threads={threads}", f"--seconds={seconds}", f"--clock={self.clock}"]
        return self.call("fovea-machine", arguments, threads)

    def call(self, name, arguments, threads):
        """Runs a tool on as many CPUs as it has threads; returns its report."""
        return self.execute([self.folder / name, *arguments], threads)

    def execute(self, command, threads, environment=()):
        cpus = machine.choose(self.cpus, threads)
        inherited = {k: v for k, v in os.environ.items() if k != "FOVEA_NUM_THREADS"}
        process = subprocess.run(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=inherited | {k: str(v) for k, v in dict(environment).items()},
            preexec_fn=lambda: machine.pin(cpus),
        )
        if process.returncode != 0:
            raise KernelError(_reason(process, pathlib.Path(command[0]).name))
        return json.loads(process.stdout)

    def optimize(self, text, *passes):
        """What fovea-opt makes of a module."""
        command = [str(self.folder / "fovea-opt"), "-", *passes]
        process = subprocess.run(command, input=text, capture_output=True, text=True)
        if process.returncode != 0:
            raise KernelError(_reason(process, "fovea-opt"))
        return process.stdout


def _reason(process, name):
    """The first line says what is wrong, without the place in a file that is gone by
    the time this is read."""
    lines = process.stderr.strip().splitlines()
    text = lines[0] if lines else f"{name} ended with status {process.returncode}"
    return text.rpartition("error: ")[2]
