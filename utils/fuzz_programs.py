#!/usr/bin/env python3
# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiles random programs of PyTorch or JAX and compares them with what these compute.

Operations that models use, their shapes, dimensions and order, and for PyTorch which
extents are unknown, are drawn from a seed: program n is that of --seed plus n.  A program
that is refused is printed with the first line of its error, one that is wrong or
ends the process with its operations; both run again alone by --seed and --count 1.

    PYTHONPATH=build/python .venv-frameworks/bin/python utils/fuzz_programs.py --seconds 300
"""

import argparse
import collections
import importlib
import logging
import subprocess
import sys
import time
import traceback
import warnings

#: Programs of one process: kernels add up.
PROGRAMS_PER_PROCESS = 100


def run(seed, options):
    """How a program ends: "right", "refused" or "wrong", and what there is to say."""
    from programs.trial import Refused, Way, Wrong

    way = Way(options.target, options.element_type, options.train)
    trial = importlib.import_module(f"programs.of_{options.framework}").Trial(seed, way)
    trial.canary = options.canary
    try:
        trial.run()
    except Refused as refusal:
        return "refused", f"{refusal} (seed {seed})"
    except Wrong as wrong:
        return "wrong", f"{wrong}\nseed {seed}, {trial}"
    except Exception:
        return "wrong", f"{traceback.format_exc(limit=-3)}seed {seed}, {trial}"
    return "right", ""


def worker(options):
    """Runs programs; a line before and after each."""
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    try:
        # Or each program would be one that is wrong.
        for name in (f"programs.of_{options.framework}", "torch_mlir"):
            importlib.import_module(name)
    except ImportError as error:
        print(f"missing {error}", flush=True)
        return 1
    for seed in range(options.seed, options.seed + min(options.count, PROGRAMS_PER_PROCESS)):
        if time.monotonic() > options.deadline:
            break
        print(f"seed {seed}", flush=True)
        kind, text = run(seed, options)
        print(f"{kind} " + text.replace("\n", "\x1f"), flush=True)
    return 0


def run_process(options, first, count, deadline, counts):
    """One process of programs. Returns the seed behind the last one that it began."""
    command = [sys.executable, __file__, "--worker", "--seed", str(first), "--count", str(count)]
    command += ["--framework", options.framework, "--target", options.target, "--deadline", str(deadline)]
    command += ["--element-type", options.element_type] + ["--train"] * options.train + ["--canary"] * options.canary
    current, following = None, first
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            kind, _, text = line.rstrip("\n").partition(" ")
            if kind == "seed":
                current = int(text)
                following = current + 1
            elif kind == "missing":
                sys.exit(f"error: {sys.executable}: {text}: programs of {options.framework} need {options.framework}, torch-mlir and Fovea")
            elif kind in ("right", "refused", "wrong"):
                counts[kind] += 1
                current = None
                if text:
                    print(f"{kind}: " + text.replace("\x1f", "\n"), flush=True)
    if current is not None:
        counts["wrong"] += 1
        print(f"wrong: the process ended with {process.returncode} at seed {current}", flush=True)
    elif process.returncode:
        sys.exit(f"error: a worker ended with {process.returncode} between programs")
    return following


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=300, help="how long to go on")
    parser.add_argument("--count", type=int, default=10**9, help="stop after as many programs")
    parser.add_argument("--seed", type=int, default=1, help="of the first program")
    parser.add_argument("--framework", default="torch", choices=["torch", "jax"])
    parser.add_argument("--target", default="cpu", choices=["cpu", "gpu-sim", "reference"])
    parser.add_argument("--element-type", default="f32", choices=["f32", "f16", "bf16"])
    parser.add_argument("--train", action="store_true", help="PyTorch by torch.compile, results and gradients, rather than whole programs")
    parser.add_argument("--canary", action="store_true", help="judge wrongly, so that programs fail")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--deadline", type=float, default=float("inf"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train and (options.framework, options.target) != ("torch", "cpu"):
        parser.error("--train needs --framework torch and --target cpu")
    if options.worker:
        return worker(options)

    counts: collections.Counter[str] = collections.Counter()
    start = time.monotonic()
    following, end = options.seed, options.seed + options.count
    while following < end and time.monotonic() < start + options.seconds:
        following = run_process(options, following, end - following, start + options.seconds, counts)
    told = ", ".join(f"{counts[kind]} {kind}" for kind in ("right", "refused", "wrong"))
    print(f"{counts.total()} programs in {time.monotonic() - start:.0f} s from seed {options.seed}: {told}")
    # A run of nothing has shown nothing.
    return 1 if counts["wrong"] or not counts["right"] else 0


if __name__ == "__main__":
    sys.exit(main())
