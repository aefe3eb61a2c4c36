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

import numpy as np

from . import machine


class KernelError(Exception):
    """The compiler or the runtime refused; the text says why."""


class Prepared:
    """A kernel with its inputs, ready to be run any number of times."""

    def __init__(self, backend, inputs, folder):
        self._backend = backend
        self._folder = pathlib.Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        self.path = self._folder / "kernel.mlir"
        self._arguments = []
        for index, array in enumerate(inputs):
            path = self._folder / f"in{index}.npy"
            np.save(path, array)
            self._arguments.append(f"--arg={path}")

    def set_ir(self, text):
        self.path.write_text(text)

    def run(self, threads, seconds=None, wants_result=True, target="cpu"):
        """Runs and, with `seconds`, times the kernel. Returns the report of
        fovea-run and the result (None unless wanted)."""
        out = self._folder / "out.npy"
        arguments = [str(self.path), *self._arguments, f"--threads={threads}", "--json"]
        arguments.append(f"--target={target}")
        if seconds is not None:
            arguments.append(f"--bench={seconds}")
            arguments.append(f"--bench-clock={self._backend.clock_for(threads)}")
        if wants_result:
            arguments.append(f"--out={out}")
        report = self._backend.call("fovea-run", arguments, threads)
        return report, np.load(out) if wants_result else None

    def time_compilation(self, seconds):
        arguments = [f"--compile={self.path}", f"--seconds={seconds}"]
        arguments.append(f"--clock={self._backend.clock}")
        return self._backend.call("fovea-machine", arguments, 1)

    def remove(self):
        for path in self._folder.iterdir():
            path.unlink()
        self._folder.rmdir()


class Tools:
    """The programs of a build folder."""

    def __init__(self, build, cpus, clock):
        self.folder = pathlib.Path(build) / "bin"
        self.cpus, self.clock = cpus, clock
        for name in ("fovea-run", "fovea-machine"):
            if not (self.folder / name).exists():
                raise FileNotFoundError(f"found no {name} in {self.folder}: build Fovea first")

    def prepare(self, inputs, folder):
        return Prepared(self, inputs, folder)

    def clock_for(self, threads):
        """The time of one thread says nothing about several."""
        return self.clock if threads == 1 else "wall"

    def measure_machine(self, threads, seconds):
        arguments = [f"--threads={threads}", f"--seconds={seconds}", f"--clock={self.clock}"]
        return self.call("fovea-machine", arguments, threads)

    def call(self, name, arguments, threads):
        """Runs a tool on as many CPUs as it has threads; returns its report."""
        cpus = machine.choose(self.cpus, threads)
        environment = {k: v for k, v in os.environ.items() if k != "FOVEA_NUM_THREADS"}
        process = subprocess.run(
            [str(self.folder / name), *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=environment,
            preexec_fn=lambda: machine.pin(cpus),
        )
        if process.returncode != 0:
            lines = process.stderr.strip().splitlines()
            # The first says what is wrong, without the place in a file that
            # is gone by the time this is read.
            text = lines[0] if lines else f"{name} ended with status {process.returncode}"
            raise KernelError(text.rpartition(" error: ")[2])
        return json.loads(process.stdout)
