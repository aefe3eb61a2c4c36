#!/usr/bin/env python3
# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gives every operation of valid IR an attribute that it does not have.

Each operation of the dialect `attn` in the files is tried once with an unknown
attribute among its properties and once beside them, both of which fovea-opt has
to refuse, and with one that has another tool's prefix, which it has to keep.
"""

import argparse
import pathlib
import re
import subprocess
import sys

OP = re.compile(r'"(attn\.\w+)"\(')
REFUSED = re.compile(r"error: .*?(attn\.\w+)(?:' op|:) has no attribute 'nonsense', only")


def run(options, text):
    result = subprocess.run(
        ["fovea-opt", "--split-input-file", "--mlir-print-op-generic", *options],
        input=text, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return result.stdout, result.stderr


def add_beside(lines, number, attribute):
    """`lines` with `attribute` in the dictionary after the operation's regions."""
    lines = list(lines)
    indent = re.match(r" *", lines[number]).group()
    while lines[number].endswith("({") or not re.search(r" : \(", lines[number]):
        number += 1
        while not lines[number].startswith(indent + "})"):
            number += 1
    lines[number] = re.sub(r"(?: \{(.*?)\})? : \(", lambda old: " {"
                           + (old.group(1) + ", " if old.group(1) else "")
                           + attribute + "} : (", lines[number], count=1)  # fmt: skip
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    options = parser.parse_args()
    refused, kept, names = [], [], []
    for file in options.files:
        generic, _ = run([], file.read_text())
        for chunk in generic.split("// -----"):
            lines = chunk.split("\n")
            for number, line in enumerate(lines):
                name = OP.search(line)
                # Aliases of constants need no attributes.
                if not name:
                    continue
                names.append(name.group(1))
                refused.append(add_beside(lines, number, "nonsense"))
                kept.append(add_beside(lines, number, "tool.note"))
                if "<{" in line:
                    inside = [*lines[:number], line.replace("<{", "<{nonsense, ", 1)]
                    refused.append("\n".join(inside + lines[number + 1 :]))
    separator = "\n// -----\n"
    _, errors = run([], separator.join(refused))
    found = REFUSED.findall(errors)
    problems = abs(len(refused) - len(found))
    for name in sorted(set(names) - set(found)):
        print(f"error: {name} takes any attribute")
        problems += 1
    output, errors = run([], separator.join(kept))
    if errors or output.count("tool.note") < len(kept):
        print(f"error: an attribute with a prefix is refused or lost\n{errors}")
        problems += 1
    print(f"{len(set(names))} operations, {len(refused)} unknown attributes, {problems} problems")
    return 1 if problems or not names else 0


if __name__ == "__main__":
    sys.exit(main())
