#!/usr/bin/env python3
# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures kernels against the peaks of the machine; see docs/Benchmarking.md.

    benchmarks/run.py --suite quick
    benchmarks/run.py --suite readme --torch-python ~/venv-torch/bin/python
    benchmarks/run.py --suite recorded --before ../main/build --at-most-slower 3

With --before, every row is measured with another build, too, in turns. Writes
results.json, results.md and time-against-n.svg to the --out folder.
Exit status 1: a kernel failed or computed something wrong, or, with --strict, a
target was missed, or a row is slower than --at-most-slower allows.
"""

import argparse
import json
import os
import pathlib
import shlex
import shutil
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

try:
    from fovea_bench import backends, machine, measure, plot, report, suite
except ImportError as error:
    sys.exit(f"error: {error}; the benchmarks need NumPy, which utils/build.sh puts into .venv")


def parse_arguments():
    suites = sorted(path.stem for path in (HERE / "config").glob("*.json"))
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--suite", default="quick", help=f"one of {', '.join(suites)}, or a file")
    parser.add_argument("--build", default=HERE.parent / "build", help="build folder")
    parser.add_argument("--before", metavar="BUILD", help="another build folder, to compare with in pairs")
    parser.add_argument("--at-most-slower", type=float, metavar="PERCENT",
                        help="with --before, fail where a row is slower by more")  # fmt: skip
    parser.add_argument("--out", help="folder for results (default: BUILD/benchmarks/SUITE)")
    parser.add_argument("--only", nargs="+", metavar="WORD", help="rows whose id has such a word")
    parser.add_argument("--rounds", type=int, help="how often to go through all rows")
    parser.add_argument("--threads", type=int, help="what 'all' threads are (default: all CPUs)")
    parser.add_argument("--cpus", help="CPUs to pin to, such as 2,3 (default: all, the last first)")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall",
                        help="cpu: the time of the thread where there is one (default: wall)")  # fmt: skip
    parser.add_argument("--seed", type=int, default=1, help="of the random inputs")
    parser.add_argument("--torch-python", default=sys.executable, metavar="PYTHON",
                        help="interpreter that has PyTorch (default: this one)")  # fmt: skip
    parser.add_argument("--no-baselines", action="store_true", help="only Fovea")
    parser.add_argument("--strict", action="store_true", help="fail when a target is missed")
    return parser.parse_args()


def say(text):
    print(text, file=sys.stderr, flush=True)


def run(arguments):
    path = pathlib.Path(arguments.suite)
    if path.suffix != ".json":
        path = HERE / "config" / f"{arguments.suite}.json"
    if not path.exists():
        raise ValueError(f"found no suite {arguments.suite!r}: there is no {path}")
    chosen = suite.Suite(path)
    if arguments.only:
        chosen.keep(arguments.only)
    if not chosen.rows:
        raise ValueError("found no rows to measure")
    rounds = arguments.rounds or chosen.rounds
    if rounds < 1:
        raise ValueError(f"--rounds: found {rounds}, needed at least 1")
    if not shutil.which(arguments.torch_python):
        raise ValueError(f"--torch-python: found no program {arguments.torch_python!r}")
    cpus = machine.available_cpus()
    if arguments.cpus:
        usable = {str(cpu): cpu for cpu in cpus}
        names = arguments.cpus.split(",")
        if not usable.keys() >= set(names):
            raise ValueError(f"--cpus: found {arguments.cpus}, needed some of {','.join(usable)}")
        cpus = [usable[name] for name in names]
    all_threads = arguments.threads or len(cpus)
    machine.choose(cpus, all_threads)
    tools = backends.Tools(arguments.build, cpus, arguments.clock)
    before = arguments.before and backends.Tools(arguments.before, cpus, arguments.clock)
    out = pathlib.Path(arguments.out or pathlib.Path(arguments.build) / "benchmarks" / path.stem)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"--out: cannot write to {out}: {error.strerror}") from None

    facts = machine.describe(HERE.parent, arguments.build, cpus)
    if facts["load"] and facts["load"][0] > 0.5:
        say(
            f"warning: the machine is busy (load {facts['load'][0]:.1f}); times will be too long"
            + ("" if arguments.clock == "cpu" else ", less so with --clock=cpu")
        )
    say(f"measuring the machine: {facts['cpu']}, CPUs {cpus}")
    # A row may have more threads than "all" are.
    most = max([all_threads, *(row.threads for row in chosen.rows if row.threads != "all")])
    peaks = tools.measure_machine(min(most, len(cpus)), chosen.machine_seconds)
    say(report.peaks_text(peaks))
    with tempfile.TemporaryDirectory(prefix="fovea-bench-") as folder:
        driver = measure.Driver(
            tools, before, peaks["copy_gbytes"], folder, all_threads, arguments.seed,
            arguments.torch_python, say,
        )  # fmt: skip
        found = driver.measure(chosen, rounds, not arguments.no_baselines)
    result = {
        "suite": path.stem,
        "command": shlex.join([os.path.basename(sys.executable), *sys.argv]),
        "clock": arguments.clock,
        "machine": facts,
        "peaks": peaks,
        "rows": report.rows(chosen, found),
        "comparisons": report.comparisons(chosen, found),
    }
    lines = {}
    for row, entry in zip(chosen.rows, result["rows"]):
        if row.series and "seconds" in entry:
            heads = row.fields.get("batch", 1) * row.fields.get("heads", 1)
            point = (row.fields["n"], entry["seconds"]["median"] / heads)
            lines.setdefault(row.series, []).append(point)
    (out / "results.json").write_text(json.dumps(result, indent=1) + "\n")
    text = report.markdown(result)
    if before:
        text += "\n" + report.paired(result["rows"])
    (out / "results.md").write_text(text)
    print(text, end="", flush=True)
    title = f"Time against N, {facts['cpu']}"
    written = ["results.json", "results.md"] + [p.name for p in plot.write(lines, title, out)]
    say(f"wrote {', '.join(written)} to {out}")

    failed = [entry["title"] for entry in result["rows"] if not entry["passed"]]
    if failed:
        say(f"error: {len(failed)} of {len(result['rows'])} rows failed: {'; '.join(failed)}")
        return 1
    if arguments.at_most_slower is not None:
        bound = 1 / (1 + arguments.at_most_slower / 100)
        slower = [e["title"] for e in result["rows"] if e.get("before_ratio", {"median": 1})["median"] < bound]
        if slower:
            say(f"error: slower than before by more than {arguments.at_most_slower:g} %: {'; '.join(slower)}")
            return 1
    judged = [t for entry in result["rows"] for t in entry["targets"]]
    judged += [c for c in result["comparisons"] if c["target"]]
    missed = sum(not target["is_reached"] for target in judged)
    if judged:
        say(f"{len(judged) - missed} of {len(judged)} targets reached")
    return 1 if missed and arguments.strict else 0


def main():
    try:
        return run(parse_arguments())
    except (ValueError, FileNotFoundError, backends.KernelError) as error:
        say(f"error: {error}")
        return 1


if __name__ == "__main__":
    sys.exit(main())
