# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures the rows of a suite, in rounds."""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

from . import machine
from .backends import KernelError
from .baselines import MISSING

_BASELINES = pathlib.Path(__file__).with_name("baselines.py")


def spread(values):
    """Median, least and greatest."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


class Measurement:
    """What was found for one row: `rounds` holds a report per round."""

    def __init__(self, row, threads):
        self.row, self.threads = row, threads
        self.rounds = []
        self.baselines = {}
        self.error = self.error_bound = None
        self.failure = None

    def collect(self, name):
        return [report[name] for report in self.rounds if name in report]

    def seconds(self):
        """Median over rounds of the medians; least and greatest of all runs."""
        return {
            "median": statistics.median(self.collect("median_seconds")),
            "min": min(self.collect("min_seconds")),
            "max": max(self.collect("max_seconds")),
        }

    def metric(self, name):
        """A spread, or None where the row has no such figure."""
        if self.failure or not self.rounds:
            return None
        if name == "extra_bytes_per_thread":
            return spread([value / self.threads for value in self.collect("beyond_summaries")])
        if name in ("compile_seconds", "cache_hit_seconds") and self.row.kind == "compile":
            return self.rounds[-1][name]
        values = self.collect(name)
        return spread(values) if values else None


class Driver:
    def __init__(self, tools, folder, all_threads, seed, torch_python, say):
        self.tools, self.folder = tools, pathlib.Path(folder)
        self.all_threads, self.seed = all_threads, seed
        self.torch_python, self.say = torch_python, say
        self._cached = (None, None)

    def measure(self, suite, rounds, wants_baselines=True):
        found = {}
        for row in suite.rows:
            threads = self.all_threads if row.threads == "all" else row.threads
            found[row.id] = Measurement(row, min(threads, len(self.tools.cpus)))
        for number in range(rounds):
            for index, row in enumerate(suite.rows):
                measurement = found[row.id]
                if measurement.failure or (number > 0 and (row.once or row.kind == "compile")):
                    continue
                where = f"round {number + 1}/{rounds}, row {index + 1}/{len(suite.rows)}"
                start = time.monotonic()
                try:
                    self._measure_once(measurement, number == 0, wants_baselines)
                except KernelError as error:
                    measurement.failure = str(error)
                self.say(
                    f"{where}: {row.title}: {self._describe(measurement)}"
                    f" [{time.monotonic() - start:.1f} s]"
                )
        self._forget()
        return found

    def _prepare(self, row):
        """Writes IR and inputs; neighbouring rows often have the same inputs."""
        key = (row.expected.type, row.expected.shapes())
        if self._cached[0] != key:
            self._forget()
            inputs = row.expected.inputs(self.seed)
            self._cached = (key, (self.tools.prepare(inputs, self.folder / "work"), inputs))
        prepared, inputs = self._cached[1]
        prepared.set_ir(row.workload.ir())
        return prepared, inputs

    def _forget(self):
        if self._cached[1]:
            self._cached[1][0].remove()
        self._cached = (None, None)

    def _measure_once(self, measurement, is_first, wants_baselines):
        row = measurement.row
        prepared, inputs = self._prepare(row)
        if row.kind == "compile":
            measurement.rounds.append(prepared.time_compilation(row.seconds))
            return
        report, result = prepared.run(measurement.threads, row.seconds, wants_result=is_first)
        bench = report["bench"]
        if is_first:
            # What is not correct has no time.
            error, bound = row.expected.check(inputs, result)
            measurement.error, measurement.error_bound = error, bound
            if not error <= bound:
                raise KernelError(
                    f"wrong result: differs from the reference by {error:.3g}, "
                    f"relative to its largest element; the bound is {bound:.3g}"
                )
        flops = row.workload.flops()
        if abs(bench.get("useful_gflop", flops * 1e-9) - flops * 1e-9) > 1e-6 * flops * 1e-9:
            raise KernelError(
                f"the compiler counts {bench['useful_gflop']} useful GFLOP, "
                f"the driver {flops * 1e-9}"
            )
        rate = flops / bench["median_seconds"]
        bench["gflops"] = rate * 1e-9
        bench["fraction_of_peak"] = rate * 1e-9 / bench["peak_gflops"]
        bench["seconds"] = bench["median_seconds"]
        bench["extra_bytes"] = (
            bench["peak_allocated_bytes"] + bench["peak_scratch_bytes"]
            - row.workload.result_bytes()
        )  # fmt: skip
        bench["beyond_summaries"] = bench["extra_bytes"] - row.workload.summary_bytes()
        measurement.rounds.append(bench)
        if wants_baselines:
            for library in row.baselines:
                self._measure_baseline(measurement, library)

    def _measure_baseline(self, measurement, library):
        times = measurement.baselines.setdefault(library, [])
        if times is None:
            return
        row, threads = measurement.row, measurement.threads
        spec = {
            "inputs": [str(self.folder / "work" / f"in{i}.npy") for i in range(3)],
            "causal": row.workload.causal,
            "threads": threads,
            "seconds": row.seconds,
            "clock": self.tools.clock_for(threads),
        }
        environment = dict(os.environ)
        for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
            environment[name] = str(threads)
        python = self.torch_python if library == "torch" else sys.executable
        cpus = machine.choose(self.tools.cpus, threads)
        process = subprocess.run(
            [python, str(_BASELINES), library, json.dumps(spec)],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environment,
            preexec_fn=lambda: machine.pin(cpus),
        )  # fmt: skip
        if process.returncode != 0:
            measurement.baselines[library] = None
            if process.returncode != MISSING:
                self.say(f"  {library} failed: {process.stderr.strip().splitlines()[-1:]}")
            return
        report = json.loads(process.stdout)
        times.append(statistics.median(report["times"]))

    @staticmethod
    def _describe(measurement):
        if measurement.failure:
            return "FAILED: " + measurement.failure.splitlines()[0]
        last = measurement.rounds[-1]
        if measurement.row.kind == "compile":
            return (
                f"{last['compile_seconds']['median'] * 1e3:.0f} ms, from the cache "
                f"{last['cache_hit_seconds']['median'] * 1e6:.2f} us"
            )
        return (
            f"{last['seconds'] * 1e3:.3g} ms, {100 * last['fraction_of_peak']:.1f} % of peak"
        )


def compare(comparison, found):
    """The ratio by round, where both rows were measured in it; otherwise of the
    medians. None if a row has failed or times are of different clocks."""
    of, to = found[comparison.of], found[comparison.to]
    if of.failure or to.failure or not of.rounds or not to.rounds:
        return None
    if comparison.metric == "seconds" and of.rounds[0]["clock"] != to.rounds[0]["clock"]:
        return None
    a, b = of.collect(comparison.metric), to.collect(comparison.metric)
    if len(a) != len(b):
        a, b = [statistics.median(a)], [statistics.median(b)]
    return spread([comparison.of_times * x / y for x, y in zip(a, b)])
