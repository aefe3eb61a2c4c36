# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Suites: the rows to measure, their targets and the comparisons between rows.

A configuration file is a JSON object:

    rounds       how often to go through all rows
    seconds, machine_seconds  time for each row and round, and for each peak
    copy         true: the table also has shares of the copy bandwidth
    include      names of suites whose rows and comparisons come first
    rows         a list of
        id, title    name in comparisons, name in the table
        workload     fields of workloads.Workload, of quantize_workload's, or the
                     arguments of the function in operations.py
        for          {field: [values]}: one row for each combination, whose fields are
                     added to the workload; "{field}" in other texts is the value
        kind         "kernel" (the default), "compile": compilation and cache, or
                     "call": a call of the compiled kernel from Python
        threads      a number, or "all" (default 1)
        seconds      instead of those of the suite
        once         true: in the first round only
        check        fields of a smaller workload that is compared with the loops that
                     define its operation, where the workload has no reference itself
        baselines    any of BASELINES
        series       name of the line of the plot the row is a point of
        targets      a list of {metric, at_least or at_most}
        canary       fields in which the kernel is made to differ from the check
    comparisons  a list of
        title, metric, of, to        the metric of row `of` over that of row `to`; a list
                                     of rows is their sum, "row/library" a baseline
        for                          as above
        of_times                     factor for `of`, such as a number of heads
        at_least or at_most          where there is a target
"""

import inspect
import itertools
import json
import pathlib

from .operations import OPERATIONS
from .quantize_workload import QuantizeWorkload
from .workloads import OPS, Workload

CONFIG = pathlib.Path(__file__).resolve().parents[1] / "config"
KINDS = ("kernel", "compile", "call")
BASELINES = ("torch", "numpy", "scipy")
METRICS = (
    "fraction_of_peak",
    "fraction_of_copy",
    "extra_bytes",
    "extra_bytes_per_thread",
    "compile_seconds",
    "cache_hit_seconds",
    "call_seconds",
)
COMPARISONS = ("seconds", "fraction_of_peak", "useful_gflop")


def make_workload(fields):
    """The workload of a row's fields."""
    op = fields.get("op")
    if op in OPS:
        return Workload(**fields)
    if op == "quantize":
        return QuantizeWorkload(**fields)
    if op not in OPERATIONS:
        raise ValueError(f"op: found {op!r}, needed one of {(*OPS, 'quantize', *OPERATIONS)}")
    function = OPERATIONS[op]
    arguments = {name: value for name, value in fields.items() if name != "op"}
    try:
        inspect.signature(function).bind(**arguments)
    except TypeError as error:
        raise ValueError(f"{op}: {error}") from None
    return function(**arguments)


def _expand(entry):
    """The entries for each combination of the values of `for`."""
    def put(value, fields):
        if isinstance(value, str):
            for name, text in fields.items():
                value = value.replace(f"{{{name}}}", str(text))
            return value
        if isinstance(value, list):
            return [put(item, fields) for item in value]
        if isinstance(value, dict):
            return {name: put(item, fields) for name, item in value.items()}
        return value

    loops = entry.get("for", {})
    for values in itertools.product(*loops.values()):
        fields = dict(zip(loops, values))
        one = put({name: value for name, value in entry.items() if name != "for"}, fields)
        if "workload" in one:
            one["workload"] = {**one["workload"], **fields}
        yield one


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
    def __init__(self, entry, seconds, copy):
        name = f"row {entry.get('id', '?')!r}"
        entry = _take(name, entry, {
            "id": ..., "title": ..., "workload": ..., "kind": "kernel", "threads": 1,
            "seconds": seconds, "once": False, "baselines": [], "series": None,
            "targets": [], "canary": None, "check": None,
        })  # fmt: skip
        self.__dict__.update(entry)
        self.fields, self.copy = self.workload, copy
        if self.kind not in KINDS:
            raise ValueError(f"{name}: found kind {self.kind!r}, needed one of {KINDS}")
        unknown = set(self.baselines) - set(BASELINES)
        if unknown:
            raise ValueError(f"{name}: found baselines {sorted(unknown)}, needed {BASELINES}")
        try:
            self.expected = make_workload(self.fields)
            self.workload = make_workload({**self.fields, **(self.canary or {})})
            self.sample = make_workload({**self.fields, **(self.canary or {}), **self.check}) if self.check else None
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
        self.of, self.to = ([s] if isinstance(s, str) else s for s in (self.of, self.to))
        for row in self.rows():
            if row not in rows:
                raise ValueError(f"{name}: found no row {row!r}")
        has_target = self.at_least is not None or self.at_most is not None
        self.target = Target("ratio", self.at_least, self.at_most) if has_target else None

    def rows(self):
        return [name.partition("/")[0] for name in self.of + self.to]


class Suite:
    def __init__(self, path):
        with open(path) as file:
            try:
                entry = json.load(file)
            except json.JSONDecodeError as error:
                raise ValueError(f"{path}: {error}") from None
        entry = _take(path, entry, {
            "description": "", "rounds": 3, "seconds": 0.3, "machine_seconds": 0.3, "copy": False,
            "include": [], "rows": [], "comparisons": [],
        })  # fmt: skip
        self.machine_seconds = entry["machine_seconds"]
        self.description, self.rounds = entry["description"], entry["rounds"]
        included = [Suite(CONFIG / f"{name}.json") for name in entry["include"]]
        self.rows = [row for suite in included for row in suite.rows]
        self.rows += [Row(one, entry["seconds"], entry["copy"]) for row in entry["rows"] for one in _expand(row)]
        ids = [row.id for row in self.rows]
        twice = sorted({name for name in ids if ids.count(name) > 1})
        if twice:
            raise ValueError(f"{path}: found ids more than once: {twice}")
        self.comparisons = [c for suite in included for c in suite.comparisons]
        self.comparisons += [Comparison(one, ids) for c in entry["comparisons"] for one in _expand(c)]

    def keep(self, words):
        """Only the rows whose id contains one of the words."""
        self.rows = [row for row in self.rows if any(word in row.id for word in words)]
        ids = {row.id for row in self.rows}
        self.comparisons = [c for c in self.comparisons if ids.issuperset(c.rows())]
