# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Suites: the rows to measure, their targets and the comparisons between rows.

A configuration file is a JSON object:

    rounds       how often to go through all rows
    seconds, machine_seconds  time for each row and round, and for each peak
    rows         a list of
        id, title    name in comparisons, name in the table
        workload     fields of workloads.Workload, or of quantize_workload's
        kind         "kernel" (the default) or "compile": compilation and cache
        threads      a number, or "all" (default 1)
        seconds      instead of those of the suite
        once         true: in the first round only
        baselines    any of "torch", "numpy"
        series       name of the line of the plot the row is a point of
        targets      a list of {metric, at_least or at_most}
        canary       fields in which the kernel is made to differ from the check
    comparisons  a list of
        title, metric, of, to        the metric of row `of` over that of row `to`
        of_times                     factor for `of`, such as a number of heads
        at_least or at_most
"""

import json

from .quantize_workload import QuantizeWorkload
from .workloads import Workload

# By op; Workload has all others.
_WORKLOADS = {"quantize": QuantizeWorkload}

METRICS = (
    "fraction_of_peak",
    "extra_bytes_per_thread",
    "compile_seconds",
    "cache_hit_seconds",
)
COMPARISONS = ("seconds", "fraction_of_peak")


class Target:
    def __init__(self, metric, at_least=None, at_most=None):
        if (at_least is None) == (at_most is None):
            raise ValueError(f"target {metric}: needed one of at_least and at_most")
        self.metric, self.at_least, self.at_most = metric, at_least, at_most

    def is_reached(self, value):
        return value >= self.at_least if self.at_least is not None else value <= self.at_most

    @property
    def bound(self):
        return self.at_least if self.at_least is not None else self.at_most


def _take(what, entry, defaults):
    unknown = set(entry) - set(defaults)
    if unknown:
        raise ValueError(f"{what}: found unknown keys {sorted(unknown)}")
    missing = {key for key, value in defaults.items() if value is ...} - set(entry)
    if missing:
        raise ValueError(f"{what}: needed keys {sorted(missing)}")
    return {**defaults, **entry}


class Row:
    def __init__(self, entry, seconds):
        name = f"row {entry.get('id', '?')!r}"
        entry = _take(name, entry, {
            "id": ..., "title": ..., "workload": ..., "kind": "kernel", "threads": 1,
            "seconds": seconds, "once": False, "baselines": [], "series": None,
            "targets": [], "canary": None,
        })  # fmt: skip
        self.__dict__.update(entry)
        if self.kind not in ("kernel", "compile"):
            raise ValueError(f"{name}: found kind {self.kind!r}, needed kernel or compile")
        unknown = set(self.baselines) - {"torch", "numpy"}
        if unknown:
            raise ValueError(f"{name}: found baselines {sorted(unknown)}, needed torch or numpy")
        try:
            make = _WORKLOADS.get(self.workload.get("op"), Workload)
            self.expected = make(**self.workload)
            self.workload = make(**{**self.workload, **(self.canary or {})})
            self.targets = [Target(**target) for target in self.targets]
        except (TypeError, ValueError) as error:
            raise ValueError(f"{name}: {error}") from None
        for target in self.targets:
            if target.metric not in METRICS:
                raise ValueError(f"{name}: found metric {target.metric!r}, needed one of {METRICS}")


class Comparison:
    def __init__(self, entry, rows):
        name = f"comparison {entry.get('title', '?')!r}"
        entry = _take(name, entry, {
            "title": ..., "metric": ..., "of": ..., "to": ..., "of_times": 1,
            "at_least": None, "at_most": None,
        })  # fmt: skip
        self.__dict__.update(entry)
        if self.metric not in COMPARISONS:
            raise ValueError(
                f"{name}: found metric {self.metric!r}, needed one of {COMPARISONS}"
            )
        for row in (self.of, self.to):
            if row not in rows:
                raise ValueError(f"{name}: found no row {row!r}")
        self.target = Target("ratio", self.at_least, self.at_most)


class Suite:
    def __init__(self, path):
        with open(path) as file:
            try:
                entry = json.load(file)
            except json.JSONDecodeError as error:
                raise ValueError(f"{path}: {error}") from None
        entry = _take(path, entry, {
            "description": "", "rounds": 3, "seconds": 0.3, "machine_seconds": 0.3,
            "rows": ..., "comparisons": [],
        })  # fmt: skip
        self.machine_seconds = entry["machine_seconds"]
        self.description, self.rounds = entry["description"], entry["rounds"]
        self.rows = [Row(row, entry["seconds"]) for row in entry["rows"]]
        ids = [row.id for row in self.rows]
        twice = sorted({name for name in ids if ids.count(name) > 1})
        if twice:
            raise ValueError(f"{path}: found ids more than once: {twice}")
        self.comparisons = [Comparison(c, ids) for c in entry["comparisons"]]

    def keep(self, words):
        """Only the rows whose id contains one of the words."""
        self.rows = [row for row in self.rows if any(word in row.id for word in words)]
        ids = {row.id for row in self.rows}
        self.comparisons = [c for c in self.comparisons if c.of in ids and c.to in ids]
