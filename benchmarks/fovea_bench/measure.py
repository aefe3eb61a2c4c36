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
from .backends import KernelError, Prepared
from .baselines import MISSING

_BASELINES = pathlib.Path(__file__).with_name("baselines.py")


def spread(values):
    """Median, least and greatest."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


class Measurement:
    """What was found for one row: `rounds` holds a report per round, `ratios` how many
    times as long the build before took in it."""

    def __init__(self, row, threads):
        self.row, self.threads = row, threads
        self.rounds, self.ratios = [], []
        self.baselines = {}
        self.error = self.error_bound = None
        self.failure = None

    def collect(self, name):
        return [report[name] for report in self.rounds if report.get(name) is not None]

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
        if self.row.kind != "kernel":
            return self.rounds[-1].get(name)
        values = self.collect(name)
        return spread(values) if values else None


class Driver:
    """Measures with `tools`, and with `before`, those of another build, in turns."""

    def __init__(self, tools, before, copy, folder, all_threads, seed, torch_python, say):
        self.tools, self.before, self.folder = tools, before, pathlib.Path(folder)
        self.copy = copy
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
                if measurement.failure or (number > 0 and row.once):
                    continue
                where = f"round {number + 1}/{rounds}, row {index + 1}/{len(suite.rows)}"
                start = time.monotonic()
                try:
                    self._measure_once(measurement, number, wants_baselines)
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
            self._cached = (key, (Prepared(inputs, self.folder / "work"), inputs))
        prepared, inputs = self._cached[1]
        prepared.set_ir(row.workload.ir(self.tools.optimize))
        return prepared, inputs

    def _check_sample(self, row):
        """A smaller workload against the loops that define its operation."""
        sample = Prepared(row.sample.inputs(self.seed), self.folder / "sample")
        try:
            sample.set_ir(row.sample.ir(self.tools.optimize))
            report, _ = sample.run(self.tools, 1, wants_result=False, compares=True)
        finally:
            sample.remove()
        # Relative errors are unknown where all expected numbers are zero.
        errors = [(check["max_relative"] or 0.0, check["bound"]) for check in report["checks"]]
        return max(errors)

    def _forget(self):
        if self._cached[1]:
            self._cached[1][0].remove()
        self._cached = (None, None)

    def _measure_once(self, measurement, number, wants_baselines):
        row = measurement.row
        prepared, inputs = self._prepare(row)
        is_first = number == 0
        if is_first and row.sample:
            measurement.error, measurement.error_bound = self._check_sample(row)
        if self.before and number % 2:
            before = self._time_before(prepared, measurement)
        bench, result = self._time(self.tools, prepared, measurement, is_first)
        if self.before and number % 2 == 0:
            before = self._time_before(prepared, measurement)
        if self.before and before:
            measurement.ratios.append(before / _median(bench, row.kind))
        if row.kind != "kernel":
            measurement.rounds.append(bench)
            return
        if is_first and result is not None:
            self._check(measurement, inputs, result)
        self._add_rates(measurement, bench)
        measurement.rounds.append(bench)
        if wants_baselines:
            for library in row.baselines:
                self._measure_baseline(measurement, library)

    def _time(self, tools, prepared, measurement, wants_result):
        row = measurement.row
        if row.kind == "compile":
            return prepared.time_compilation(tools, row.seconds), None
        if row.kind == "call":
            return prepared.time_call(tools, row.seconds), None
        wants_result = wants_result and hasattr(row.expected, "check")
        report, result = prepared.run(tools, measurement.threads, row.seconds, wants_result)
        return report["bench"], result

    def _time_before(self, prepared, measurement):
        """Seconds of the other build; None where it refuses the kernel."""
        try:
            report, _ = self._time(self.before, prepared, measurement, False)
        except KernelError as error:
            self.say(f"  the build before: {error}")
            return None
        return _median(report, measurement.row.kind)

    @staticmethod
    def _check(measurement, inputs, result):
        """What is not correct has no time."""
        error, bound = measurement.row.expected.check(inputs, result)
        measurement.error, measurement.error_bound = error, bound
        if not error <= bound:
            raise KernelError(
                f"wrong result: differs from the reference by {error:.3g}, "
                f"relative to its largest element; the bound is {bound:.3g}"
            )

    def _add_rates(self, measurement, bench):
        """Shares of the copy bandwidth and memory, which fovea-run does not know."""
        row = measurement.row
        bench["seconds"] = bench["median_seconds"]
        if row.copy:
            bandwidth = self.copy["one" if measurement.threads == 1 else "all"]["median"]
            moved = row.workload.moved_bytes() or bench["bytes"]
            bench["fraction_of_copy"] = moved * 1e-9 / bandwidth / bench["seconds"]
        bench["extra_bytes"] = (
            bench["peak_allocated_bytes"] + bench["peak_scratch_bytes"]
            - row.workload.result_bytes()
        )  # fmt: skip
        bench["beyond_summaries"] = bench["extra_bytes"] - row.workload.summary_bytes()

    def _measure_baseline(self, measurement, library):
        times = measurement.baselines.setdefault(library, [])
        if times is None:
            return
        row, threads = measurement.row, measurement.threads
        spec = {
            **row.fields,
            "inputs": [str(path) for path in sorted((self.folder / "work").glob("in*.npy"))],
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
        if measurement.row.kind == "call":
            return f"{last['call_seconds']['median'] * 1e6:.2f} us for each call"
        share = last.get("fraction_of_peak")
        return f"{last['seconds'] * 1e3:.3g} ms" + (f", {100 * share:.1f} % of peak" if share else "")


def _median(report, kind):
    """What decides how fast a row is."""
    if kind == "kernel":
        return report["median_seconds"]
    return report[f"{kind}_seconds"]["median"]


def _by_round(names, metric, found):
    """The sum over rows of a metric, by round where all have as many rounds, otherwise
    of medians; None where one was not measured."""
    lists = []
    for name in names:
        row, _, library = name.partition("/")
        measurement = found[row]
        values = measurement.baselines.get(library) if library else measurement.collect(metric)
        if measurement.failure or not values:
            return None
        lists.append(values)
    if len({len(values) for values in lists}) > 1:
        lists = [[statistics.median(values)] for values in lists]
    return [sum(values) for values in zip(*lists)]


def compare(comparison, found):
    """The ratio by round, where both sides were measured in it; otherwise of the
    medians. None if a row has failed or times are of different clocks."""
    a, b = (_by_round(names, comparison.metric, found) for names in (comparison.of, comparison.to))
    if a is None or b is None:
        return None
    clocks = {found[name].rounds[0].get("clock") for name in comparison.rows() if found[name].rounds}
    if comparison.metric == "seconds" and len(clocks) > 1:
        return None
    if len(a) != len(b):
        a, b = [statistics.median(a)], [statistics.median(b)]
    return spread([comparison.of_times * x / y for x, y in zip(a, b)])
