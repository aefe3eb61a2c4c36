#!/usr/bin/env python3
# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Everything that a machine with a GPU can say about Fovea, in one command and less than half an hour.

    pip install fovea_attention-*.whl fovea_attention_runtime-*.whl torch triton numpy ml_dtypes
    python utils/check_gpu.py report

Needs this checkout and the package `fovea`, of a wheel or of a build, but no LLVM and no compiler. The
folder gets report.md, report.json and what the steps print:

    numbers      the shape matrices of the tests, on the GPU, against NumPy
    torch        functions, caches and CUDA graphs of fovea.torch on tensors of the GPU, against the CPU
    sanitizer    a sample of them under compute-sanitizer: memory, races, barriers
    calibration  rates and latencies that the cycle model takes from publications
    benchmarks   kernels beside PyTorch's own, a large product and a large copy
    pytorch      calls of fovea.torch, with gradients and in CUDA graphs, beside PyTorch's
    model        what the cycle model says of these kernels, beside what was measured

A step whose programs are missing is skipped, and the report says why. The exit status is 1 if a step
failed, and 2 if there is no GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1]
BENCHMARKS = SOURCE / "benchmarks" / "gpu"
INPUTS = SOURCE / "test" / "Integration" / "CPU" / "Inputs"
MATRICES = ["dense", "stream", "table", "list", "summarize", "summarize_backward", "multipole", "backward", "quantize", "codebook",
            "vq", "vq_backward", "low_rank", "low_rank_backward", "recover", "conv", "conv_backward", "relative", "product"]
#: What the sanitizers look for, and how.
SANITIZERS = {"memory": "memcheck", "races": "racecheck", "barriers": "synccheck"}
SANITIZED = ["dense", "multipole", "vq", "backward"]
#: Where a model and a device that differ by more are worth a line.
TOLERANCE = 0.15
sys.path[:0] = [str(BENCHMARKS), str(SOURCE / "utils" / "fovea_cycles")]


class Skipped(Exception):
    """Why a step cannot run here."""


@dataclass
class Outcome:
    """Of one step: `lines` of Markdown, `failures` in words, `data` for the JSON."""

    lines: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    data: dict = field(default_factory=dict)


@dataclass
class Visit:
    folder: Path
    target: str
    every: int
    jobs: int
    deadline: float
    compiler: str
    runner: str
    matrices: list[str]

    def run(self, name: str, command: list[str], limit: float = float("inf")) -> tuple[int | None, str]:
        """The exit status, or None when its time was over, and what it printed, which is kept as a file."""
        limit = max(1.0, min(limit, self.deadline - time.monotonic()))
        log = self.folder / f"{name}.txt"
        environment = os.environ | {"FOVEA_CACHE_DIR": ""}
        with log.open("w") as output:
            try:
                status = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, timeout=limit,
                                        env=environment).returncode
            except subprocess.TimeoutExpired:
                status = None
        return status, log.read_text(errors="replace")

    def matrix(self, name: str, every: int) -> list[str]:
        return [sys.executable, str(INPUTS / f"{name}_matrix.py"), "package", str(SOURCE), f"--target={self.target}",
                f"--every={every}"]

    def left(self) -> str:
        return f"{max(0.0, self.deadline - time.monotonic()) / 60:.0f} min left"


def last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "printed nothing"


def run_all(visit: Visit, commands: dict[str, list[str]], limit: float) -> dict[str, tuple[int | None, str, float]]:
    """What each command gives, and its seconds; `jobs` run at a time."""
    done = 0

    def run(name: str) -> tuple[int | None, str, float]:
        nonlocal done
        begin = time.monotonic()
        status, text = visit.run(name, commands[name], limit)
        done += 1
        print(f"  {name} ({done} of {len(commands)}, {visit.left()})", flush=True)
        return status, text, time.monotonic() - begin

    with ThreadPoolExecutor(visit.jobs) as pool:
        return dict(zip(commands, pool.map(run, commands)))


def check_numbers(visit: Visit) -> Outcome:
    outcome = Outcome(["| matrix | result | seconds |", "|---|---|---|"])
    commands = {f"numbers-{name}": visit.matrix(name, visit.every) for name in visit.matrices}
    for name, (status, text, seconds) in zip(visit.matrices, run_all(visit, commands, limit=300).values()):
        result = "time was over" if status is None else last_line(text)
        if status:
            outcome.failures.append(f"{name}: {result}")
        outcome.data[name] = {"status": status, "result": result}
        outcome.lines.append(f"| {name} | {result} | {seconds:.0f} |")
    return outcome


def check_torch(visit: Visit) -> Outcome:
    script = SOURCE / "python" / "tests" / "frameworks" / "torch" / "check_device.py"
    device = "cuda" if visit.target == "gpu" else visit.target
    status, text = visit.run("torch", [sys.executable, str(script), f"--device={device}", f"--every={visit.every}"], limit=400)
    result = "time was over" if status is None else last_line(text)
    if status == 2:
        raise Skipped(result)
    outcome = Outcome([f"{result}.", ""], [], {"status": status, "result": result})
    failed = [line for line in text.splitlines() if ": FAILED: " in line]
    outcome.lines += [f"- {line}" for line in text.splitlines() if ": refused: " in line or line in failed]
    if status:
        outcome.failures += failed or [result]
    return outcome


def check_with_sanitizer(visit: Visit) -> Outcome:
    sanitizer = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")
    if not sanitizer:
        raise Skipped("there is no compute-sanitizer in PATH")
    outcome = Outcome(["| matrix | looked for | result |", "|---|---|---|"])
    runs = [(name, what, tool) for name in SANITIZED for what, tool in SANITIZERS.items()]
    # The runtime asks the driver what pointers are; for those of the host that is an error.
    flags = {"memcheck": ["--report-api-errors=no"], "racecheck": [], "synccheck": []}
    commands = {
        f"sanitizer-{name}-{tool}":
            [sanitizer, f"--tool={tool}", "--error-exitcode=9", *flags[tool], *visit.matrix(name, 101 * visit.every)]
        for name, _, tool in runs
    }  # fmt: skip
    for (name, what, tool), (status, text, _) in zip(runs, run_all(visit, commands, limit=120).values()):
        summary = [line for line in text.splitlines() if "SUMMARY" in line]
        result = "time was over" if status is None else (summary or [last_line(text)])[-1].lstrip("= ")
        if status:
            outcome.failures.append(f"{name}, {what}: {result}")
        outcome.data[f"{name} {tool}"] = {"status": status, "result": result}
        outcome.lines.append(f"| {name} | {what} | {result} |")
    return outcome


def calibrate(visit: Visit) -> Outcome:
    import calibrate as calibration

    path = visit.folder / "calibration.json"
    status, text = visit.run("calibration", [sys.executable, str(BENCHMARKS / "calibrate.py"), f"--json={path}"], limit=120)
    if status != 0:
        if "nothing to measure" in text:
            raise Skipped(last_line(text))
        return Outcome(failures=["time was over" if status is None else last_line(text)])
    found = json.loads(path.read_text())
    return Outcome([calibration.describe(found)], [], found)


def find_runtime() -> str:
    """The runtime library that the package uses."""
    code = ("import numpy, fovea; x = numpy.zeros((1, 1, 1, 1), 'f4'); fovea.dense(x, x, x)\n"
            "print(next((line.split()[-1] for line in open('/proc/self/maps') if 'libfovea_rt' in line), ''))")
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip()
    if not found:
        try:
            import fovea_runtime
        except ImportError:
            raise Skipped("there is no libfovea_rt.so: install fovea-attention-runtime") from None
        found = str(next(Path(fovea_runtime.__file__).parent.glob("**/libfovea_rt.so*"), ""))
    return found


def run_benchmarks(visit: Visit) -> Outcome:
    import run as benchmarks

    _, reason = benchmarks.find_torch()
    if reason:
        raise Skipped(reason)
    runtime, kernels, report = find_runtime(), visit.folder / "kernels", visit.folder / "benchmarks.json"
    print(f"  compiling ({visit.left()})", flush=True)
    command = [sys.executable, str(BENCHMARKS / "artefacts.py"), str(kernels), f"--compiler={visit.compiler}",
               f"--runner={visit.runner}"]
    status, text = visit.run("artefacts", command, limit=300)
    if status == 0:
        print(f"  measuring ({visit.left()})", flush=True)
        command = [sys.executable, str(BENCHMARKS / "run.py"), str(kernels), f"--runtime={runtime}", f"--json={report}"]
        status, text = visit.run("benchmarks", command, limit=600)
    if status != 0:
        return Outcome(failures=["time was over" if status is None else last_line(text)])
    return Outcome(text.splitlines(), [], json.loads(report.read_text()))


def run_pytorch(visit: Visit) -> Outcome:
    status, text = visit.run("pytorch", [sys.executable, str(BENCHMARKS / "pytorch.py")], limit=300)
    if status != 0:
        if "nothing to measure" in text:
            raise Skipped(last_line(text))
        return Outcome(text.splitlines() if "|" in text else [], ["time was over" if status is None else last_line(text)])
    return Outcome(text.splitlines(), [], {"rows": [line.strip("| ").split(" | ") for line in text.splitlines()[2:]]})


def compare_with_model(visit: Visit) -> Outcome:
    """Teraflops of the longest call of each kernel for sm_90a beside the model's bracket."""
    import artefacts
    from cycles import Programs, measure_cubin
    from model import FAR, NEAR

    path = visit.folder / "benchmarks.json"
    if not path.is_file():
        raise Skipped("there are no measurements to compare with")
    try:
        programs = Programs.find()
    except SystemExit as problem:
        raise Skipped(str(problem).removeprefix("error: ")) from None
    rows = [row for row in json.loads(path.read_text())["rows"] if row["chip"] == "sm_90a"]
    if not rows:
        raise Skipped("the model is of sm_90a, for which nothing was measured")
    outcome = Outcome(["| pattern | D | mask | N | measured, TF/s | model, TF/s | |", "|---|---|---|---|---|---|---|"])
    for number, (entry, text) in enumerate(artefacts.kernels()):
        own = [row for row in rows if all(row[key] == entry[key] for key in ("pattern", "D", "causal"))]
        if not own:
            continue
        source = visit.folder / f"model-{number}.mlir"
        source.write_text(text)
        kernels = measure_cubin(programs, programs.make_cubin(source, visit.folder, visit.compiler, "f"))
        row = max(own, key=lambda row: row["N"])
        low, high = (max((kernel.get_teraflops(machine) for kernel in kernels), default=0.0) for machine in (FAR, NEAR))
        fits = low * (1 - TOLERANCE) <= row["tflops"] <= high * (1 + TOLERANCE)
        verdict = "" if fits else "**disagrees**"
        outcome.data[f"{row['pattern']} {row['D']} {row['causal']}"] = {"measured": row["tflops"], "model": [low, high]}
        outcome.lines.append(f"| {row['pattern']} | {row['D']} | {'causal' if row['causal'] else 'full'} | {row['N']} "
                             f"| {row['tflops']:.0f} | {low:.0f} to {high:.0f} | {verdict} |")
    outcome.lines += ["", "The model is of main loops alone, without prologue, epilogue and other kernels of a pattern."]
    return outcome


STEPS = {"numbers": check_numbers, "torch": check_torch, "sanitizer": check_with_sanitizer, "calibration": calibrate,
         "benchmarks": run_benchmarks, "pytorch": run_pytorch, "model": compare_with_model}


def describe_machine(target: str) -> list[str]:
    """Versions, and a first kernel; raises Skipped without a GPU."""
    try:
        import fovea
    except ImportError:
        raise Skipped("there is no package 'fovea': install the wheel, or set PYTHONPATH to build/python") from None
    import numpy

    x = numpy.ones((1, 1, 4, 8), numpy.float32)
    try:
        fovea.dense(x, x, x, target=target)
    except fovea.FoveaError as problem:
        raise Skipped(str(problem)) from None
    lines = [f"- fovea {fovea.VERSION}, Python {sys.version.split()[0]}"]
    if program := shutil.which("nvidia-smi"):
        query = [program, "--query-gpu=name,driver_version,memory.total,clocks.max.sm", "--format=csv,noheader"]
        lines += [f"- {line}" for line in subprocess.run(query, capture_output=True, text=True).stdout.splitlines()]
    return lines


def find_tool(name: str) -> str:
    """A console command of the wheel, or a program of the build."""
    beside = Path(sys.executable).parent / name
    return str(beside) if beside.exists() else shutil.which(name) or str(SOURCE / "build" / "bin" / name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="of the report; made if it is not there")
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=list(STEPS), help="only these; default: all")
    parser.add_argument("--matrices", nargs="+", choices=MATRICES, default=MATRICES, metavar="NAME", help="only these; default: all")
    parser.add_argument("--every", type=int, default=4, metavar="N",
                        help="one case of N of each matrix, one function of N of fovea.torch; default: 4")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) // 2), metavar="N",
                        help="matrices at a time; default: half of the cores")
    parser.add_argument("--minutes", type=float, default=28, help="after which what is left is cut off; default: 28")
    parser.add_argument("--target", choices=["gpu", "gpu-sim"], default="gpu",
                        help="gpu-sim rehearses the matrices on the emulator")
    parser.add_argument("--compiler", default=find_tool("fovea-compile"), help="fovea-compile; default: %(default)s")
    parser.add_argument("--runner", default=find_tool("fovea-run"), help="fovea-run; default: %(default)s")
    options = parser.parse_args()
    if min(options.every, options.jobs) < 1 or options.minutes <= 0:
        parser.error("--every, --jobs and --minutes: needed positive numbers")
    try:
        lines = describe_machine(options.target)
    except Skipped as reason:
        print(f"nothing to check: {reason}", file=sys.stderr)
        raise SystemExit(2) from None
    options.folder.mkdir(parents=True, exist_ok=True)
    visit = Visit(options.folder, options.target, options.every, options.jobs, time.monotonic() + 60 * options.minutes,
                  options.compiler, options.runner, options.matrices)
    report, data, failures = ["# Fovea on this GPU", "", *lines], {}, []
    for name in options.steps:
        print(f"{name} ({visit.left()})", flush=True)
        try:
            outcome = STEPS[name](visit)
        except Skipped as reason:
            outcome = Outcome([f"Skipped: {reason}"], [], {"skipped": str(reason)})
            print(f"  skipped: {reason}", flush=True)
        failures += [f"{name}: {failure}" for failure in outcome.failures]
        data[name] = outcome.data | {"failures": outcome.failures}
        report += ["", f"## {name.capitalize()}", "", *outcome.lines]
        # After each step: a machine that goes away leaves what there is.
        summary = ["", "## Failures", "", *(f"- {each}" for each in failures)] if failures else []
        text = re.sub(r"\n{3,}", "\n\n", "\n".join(report + summary))
        (options.folder / "report.md").write_text(text + "\n")
        (options.folder / "report.json").write_text(json.dumps(data, indent=1) + "\n")
    print(f"{len(failures)} failures; {options.folder / 'report.md'}")
    raise SystemExit(bool(failures))


if __name__ == "__main__":
    main()
