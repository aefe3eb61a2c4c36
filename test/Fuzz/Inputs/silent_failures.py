#!/usr/bin/env python3
# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs passes on IR that they may not be made for: each says why it fails.

Pairs of a pass of the dialect and a piece of the corpus are drawn with a fixed
seed. A pass that fails has to print an error, and never crashes.
"""

import argparse
import pathlib
import random
import re
import subprocess
import sys


def judge(command, text):
    """None, or what is wrong with how `command` ends on `text`."""
    result = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if result.returncode not in (0, 1):
        return f"ends with {result.returncode}"
    if result.returncode == 1 and "error: " not in result.stderr:
        return "fails without an error"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--command", help="command instead of a pass, for every piece")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=100)
    # Does one run of so many.
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("corpus", nargs="+", type=pathlib.Path)
    options = parser.parse_args()
    files = [f for path in options.corpus for f in (sorted(path.rglob("*.mlir")) if path.is_dir() else [path])]
    pieces = [(file, chunk) for file in files for chunk in file.read_text().split("// -----")]
    commands = [options.command.split()] if options.command else []
    if not commands:
        text = subprocess.run(["fovea-opt", "--help"], capture_output=True, text=True, check=True).stdout
        names = sorted(set(re.findall(r"^ +(--attn-[\w-]+)", text, re.M)))
        commands = [["fovea-opt", name] for name in names if "debug" not in name]
    pick = random.Random(options.seed)
    problems = 0
    for _ in range(0, options.count, options.every):
        command, (file, text) = pick.choice(commands), pick.choice(pieces)
        wrong = judge(command, text)
        if wrong:
            print(f"error: {' '.join(command)} {wrong} on this piece of {file.name}:\n{text}")
            problems += 1
    print(f"{len(commands)} commands, {len(pieces)} pieces, {options.count} runs, {problems} problems")
    return 1 if problems or not pieces else 0


if __name__ == "__main__":
    sys.exit(main())
