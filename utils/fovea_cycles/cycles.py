# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels of a cubin and what the model says of their main loops."""

from __future__ import annotations

import collections
import re
import shutil
import subprocess
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import sass
from model import ALL, FAR, LATENCIES, MIDDLE, NEAR, Copies, Machine, Result, Shape, simulate

MULTIPROCESSORS, CLOCK_GHZ = 132, 1.6
WARPGROUP_THREADS = 128


@dataclass
class Programs:
    ptxas: str
    nvdisasm: str

    @staticmethod
    def find(ptxas: str | None = None, nvdisasm: str | None = None) -> Programs:
        """The given ones, those of PATH and /usr/local/cuda, or those in the package triton."""
        places = ["/usr/local/cuda/bin"]
        if (triton := find_spec("triton")) and triton.origin:
            places.append(str(Path(triton.origin).parent / "backends/nvidia/bin"))

        def look(name: str, given: str | None) -> str:
            if given:
                return given
            for place in [None, *places]:
                if found := shutil.which(name, path=place):
                    return found
            raise SystemExit(f"error: needs the program '{name}', but neither PATH nor {' nor '.join(places)} has it; "
                             "'pip install triton' brings it")

        return Programs(look("ptxas", ptxas), look("nvdisasm", nvdisasm))

    def make_cubin(self, path: Path, folder: Path, compiler: str, entry: str | None = None, chip: str = "sm_90a") -> Path:
        """A cubin from MLIR, PTX, or from itself."""
        def run(command: list[str]) -> str:
            try:
                done = subprocess.run(command, capture_output=True, text=True)
            except OSError as problem:
                raise SystemExit(f"error: cannot run '{command[0]}': {problem.strerror}") from None
            if done.returncode:
                raise SystemExit(f"error: '{command[0]}' failed for '{path}':\n{(done.stderr or done.stdout).strip()}")
            return done.stdout + done.stderr

        if path.suffix == ".cubin":
            return path
        cubin = folder / "kernel.cubin"
        ptx = path
        if path.suffix != ".ptx":
            ptx = folder / "kernel.ptx"
            run([compiler, str(path), "--target=nvvm", f"--chip={chip}", "--emit=ptx", "-o", str(ptx),
                 *([f"--entry={entry}"] if entry else [])])
        # Products of warpgroups in another order than the kernel has them take other times.
        said = run([self.ptxas, f"-arch={chip}", str(ptx), "-o", str(cubin)])
        if warnings := re.findall(r".*\bC75\d\d\b.*", said):
            raise SystemExit(f"error: '{self.ptxas}' changes products of warpgroups in '{path}':\n{warnings[0].strip()}")
        return cubin


@dataclass
class Kernel:
    """One kernel; `results` has one entry for each machine, and `loaded` is without waits for loads."""

    name: str
    shape: Shape
    instructions: collections.Counter
    moves: int
    spills: int
    consumers: int  # warpgroups
    cluster: int  # blocks that share tiles
    loaded: Result
    results: dict[str, Result]
    masked: Kernel | None = None  # the same where masks cut all tiles, if the producer searches those

    def get_share(self, machine: Machine) -> float:
        return self.results[machine.name].shares["tensor"]

    def get_load(self, machine: Machine) -> float:
        """Bytes of tiles that a multiprocessor asks for in a cycle."""
        return (self.shape.key_bytes + self.shape.value_bytes) / self.cluster / self.results[machine.name].cycles

    def get_teraflops(self, machine: Machine) -> float:
        return self.get_rate(self.results[machine.name])

    def get_rate(self, result: Result) -> float:
        return self.consumers * self.shape.flops / result.cycles * MULTIPROCESSORS * CLOCK_GHZ / 1000

    def describe(self) -> str:
        lines = [f"{self.name}: {self.consumers} consumers, tiles of {self.shape.keys} keys, "
                 f"width {self.shape.width}; "
                 f"{sum(self.instructions.values())} instructions for a tile, {self.moves} of them moves; "
                 f"{self.spills} loads and stores of spilled registers",
                 "| loads | cycles | tensor | shared | issue | MUFU | FMA | ALU | waits: keys, values, products, turn | TF/s |",
                 "|---|---|---|---|---|---|---|---|---|---|"]
        for name, result in [("always there", self.loaded), *self.results.items()]:
            shares = " | ".join(f"{100 * result.shares[pipe]:.0f} %"
                                for pipe in ("tensor", "shared", "issue", "mufu", "fma", "alu"))
            waits = ", ".join(f"{result.waited[kind]:.0f}" for kind in ("keys", "values", "products", "turn"))
            lines.append(f"| {name} | {result.cycles:.0f} | {shares} | {waits} | {self.get_rate(result):.0f} |")
        return "\n".join([*lines, *([self.masked.describe()] if self.masked else [])])

    def to_json(self) -> dict:
        results = {"always there": self.loaded, **self.results}
        masked = {"masked": self.masked.to_json()} if self.masked else {}
        return {"kernel": self.name, "keys": self.shape.keys, "width": self.shape.width, "moves": self.moves,
                "spills": self.spills, "instructions": dict(self.instructions),
                "loads": {name: vars(result) for name, result in results.items()}, **masked}


def find_copies(code: list[sass.Line]) -> Copies | None:
    """How the threads of a producer copy tiles; none where one thread starts boxes, of some tiles or of all."""
    if not (loop := sass.find_loop(code, "LDGSTS")):
        return None
    names = {x.name for x in code[loop[0]:loop[1]] if isinstance(x, sass.Instruction)}
    # Copies of a tile may be a loop of their own, in which nothing says that they are started.
    if "UTMALDG" in names or not names & {"ARRIVES", "DEPBAR"}:
        return None
    body = sass.find_main_loop(code, "LDGSTS", needed=("LDGSTS", "BAR"))
    return Copies(len(body), waits="DEPBAR" in names, is_ahead="BAR" in names)


def find_search(code: list[sass.Line], shape: Shape) -> float:
    """Cycles in which the threads of a producer look through the values of a tile, 0 if they do not: loads
    of 16 bytes, each with four products of two numbers, which wait for them."""
    if not (loop := sass.find_loop(code, "HFMA2")):
        return 0
    body = [x for x in code[loop[0]:loop[1] + 1] if isinstance(x, sass.Instruction)]
    loads = sum(x.opcode == "LDS.128" for x in body)
    if not loads or sum(x.name == "HFMA2" for x in body) != 4 * loads:
        return 0
    turns = shape.value_bytes / (loads * 16 * WARPGROUP_THREADS)
    return turns * (sum(max(1, x.stall) for x in body) + LATENCIES["LDS"])


def measure(name: str, code: list[sass.Line], body: list[sass.Instruction], search: float = 0) -> Kernel:
    """A kernel whose loop is `body`, in each turn of which the producer may `search` so many cycles."""
    instructions = [x for x in code if isinstance(x, sass.Instruction)]
    # What the producer's and the consumers' warpgroups get of the registers, 512 for a thread of each.
    counts = sorted(int(x.text.split(", ")[-1].split()[-1], 16) for x in instructions if x.name == "USETMAXREG")
    warps = (512 - counts[0]) // counts[-1] if counts else 1
    by_threads = any(x.name == "LDGSTS" for x in instructions)
    copies = find_copies(code)
    cluster = 2 if any(x.name == "UTMALDG" and "MULTICAST" in x.opcode for x in instructions) else 1
    return Kernel(
        name=name, shape=Shape.of(body), instructions=collections.Counter(x.name for x in body),
        moves=sum(bool(re.match(r"(MOV|IMAD\.MOV\S*) R\d+, (RZ, RZ, )?R\d+$", x.bare)) for x in body),
        spills=sum(x.name in ("LDL", "STL") for x in instructions),
        consumers=warps, cluster=cluster, loaded=simulate(body, NEAR, is_loaded=False, warps=warps, cluster=cluster),
        results={machine.name: simulate(body, machine, by_threads=by_threads, copies=copies, warps=warps, cluster=cluster,
                                        search=search)
                 for machine in (NEAR, MIDDLE, FAR, ALL)})


def measure_cubin(programs: Programs, cubin: Path) -> list[Kernel]:
    """The kernels of a cubin that have products of warpgroups."""
    kernels = []
    for name, code in sass.disassemble(programs.nvdisasm, str(cubin)).items():
        if not (body := sass.find_main_loop(code)):
            continue
        kernels.append(measure(name, code, body))
        if search := find_search(code, kernels[-1].shape):
            # Bits of masks become predicates, and the producer's word is waited for.
            body = sass.find_main_loop(code, needed=("SYNCS.ARRIVE", "SYNCS.PHASECHK", "R2P"))
            kernels[-1].masked = measure(f"{name}, with a mask", code, body, search)
    return kernels
