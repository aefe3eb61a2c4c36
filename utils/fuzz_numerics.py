#!/usr/bin/env python3
# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls Fovea's functions at random and compares them with formulas of NumPy.

Operations, shapes, heads, masks, splits into windows, element types, targets and
numbers of threads are drawn from a seed.  Memory that a kernel has not written is
poisoned.  Every case is forward and backward, and where a mask hides something,
once more with a NaN or an infinity there.  A case that fails is printed with what
was drawn for it, and runs again alone by --family, --seed and --case.

    PYTHONPATH=build/python .venv/bin/python utils/fuzz_numerics.py --seconds 120
"""

import argparse
import collections
import os
import subprocess
import sys
import time
import traceback

# Before the library is loaded, which reads them once.
os.environ.setdefault("FOVEA_POISON_MEMORY", "1")

#: Cases of one process: kernels add up.
CASES_PER_PROCESS = 200


def schedule(families, seed):
    """The family of every case, without an end."""
    import numpy as np

    random = np.random.default_rng(seed)
    names = sorted(families)
    weights = np.array([families[name][1] for name in names], float)
    while True:
        yield names[random.choice(len(names), p=weights / weights.sum())]


def run_case(family, seed, index, options):
    """What is wrong with a case, and its description; None if nothing is."""
    import numpy as np
    from numerics import FAMILIES
    from numerics.case import Case

    case = Case(family, seed, index, options.target)
    case.canary = options.canary
    try:
        with np.errstate(all="ignore"):
            FAMILIES[family][0](case)
    except Exception as error:  # whatever a call raises is a finding
        last = traceback.extract_tb(error.__traceback__)[-1]
        what = f"{type(error).__name__}: {error}"
        return f"{what}\n  in {last.name}, line {last.lineno}\n  {' '.join(case.log)}"
    return None


def worker(options):
    """Runs the cases from `first` on; a line before and after each."""
    from numerics import FAMILIES

    chosen = {name: FAMILIES[name] for name in options.family or FAMILIES}
    for index, family in enumerate(schedule(chosen, options.seed)):
        if index < options.first:
            continue
        if index == options.count or index == options.first + CASES_PER_PROCESS:
            return 0
        if time.monotonic() > options.deadline:
            return 0
        print(f"case {index} {family}", flush=True)
        failure = run_case(family, options.seed, index, options)
        print("right" if failure is None else "WRONG " + failure.replace("\n", "\x1f"), flush=True)
    return 0


class Campaign:
    """Processes that run cases one after the other, and what they found."""

    def __init__(self, options):
        self.options = options
        self.counts: collections.Counter[tuple[str, str]] = collections.Counter()
        self.failures = []
        self.next = 0

    def fail(self, family, text):
        self.failures.append(text)
        self.counts[family, "wrong"] += 1
        print(f"FAILED: {text}", flush=True)

    def run_process(self, deadline):
        options = self.options
        command = [sys.executable, __file__, "--worker", "--seed", str(options.seed), "--first", str(self.next)]
        command += ["--deadline", str(deadline)]
        command += [part for name in options.family or () for part in ("--family", name)]
        command += ["--count", str(options.count)] if options.count is not None else []
        command += ["--target", options.target] if options.target else []
        command += ["--canary", options.canary] if options.canary else []
        family, index = None, self.next
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                kind, _, rest = line.rstrip("\n").partition(" ")
                if kind == "case":
                    number, _, family = rest.partition(" ")
                    index = int(number)
                    self.next = index + 1
                elif kind == "WRONG":
                    self.fail(family, rest.replace("\x1f", "\n"))
                    family = None
                elif kind == "right" and family is not None:
                    self.counts[family, "right"] += 1
                    family = None
        if family is not None:
            self.fail(family, f"the process ended with {process.returncode}\n  family={family} seed={options.seed} case={index}")
        elif process.returncode:
            sys.exit(f"error: a worker ended with {process.returncode}")

    def run(self):
        options = self.options
        start = time.monotonic()
        deadline, told = start + options.seconds, start
        while time.monotonic() < deadline and (options.count is None or self.next < options.count):
            self.run_process(deadline)
            if options.progress and time.monotonic() - told > 60:
                told = time.monotonic()
                left = (deadline - told) / 60
                print(f"{self.next} cases, {len(self.failures)} wrong, {left:.0f} min left", flush=True)
        names = sorted({family for family, _ in self.counts})
        for name in names:
            print(f"{name:18} {self.counts[name, 'right']:7} right {self.counts[name, 'wrong']:5} wrong")
        right = sum(count for (_, kind), count in self.counts.items() if kind == "right")
        spent = time.monotonic() - start
        print(f"{right + len(self.failures)} cases in {spent:.0f} s with seed {options.seed}: {len(self.failures)} wrong")
        # A run of nothing has shown nothing.
        return 1 if self.failures or not right else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120, help="how long to go on")
    parser.add_argument("--count", type=int, help="stop after as many cases")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--family", action="append", help="draw from this family only; may be repeated")
    parser.add_argument("--target", help="one target instead of a random one")
    parser.add_argument("--case", type=int, help="run this case of --family and --seed alone")
    parser.add_argument("--canary", choices=["bounds", "hidden"], help="judge wrongly, so that cases fail")
    parser.add_argument("--progress", action="store_true", help="a line each minute")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--first", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--deadline", type=float, default=float("inf"), help=argparse.SUPPRESS)
    options = parser.parse_args()

    from numerics import FAMILIES

    for name in options.family or ():
        if name not in FAMILIES:
            parser.error(f"--family: found {name}, needed one of {', '.join(FAMILIES)}")
    if options.worker:
        return worker(options)
    if options.case is not None:
        if not options.family or len(options.family) != 1:
            parser.error("--case needs one --family")
        failure = run_case(options.family[0], options.seed, options.case, options)
        print("right" if failure is None else f"FAILED: {failure}")
        return 0 if failure is None else 1
    return Campaign(options).run()


if __name__ == "__main__":
    sys.exit(main())
