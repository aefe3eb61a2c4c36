# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares the table of docs/GPU.md that says which operation has kernels for which
target with what the pipelines do to the examples of the operations."""

import argparse
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

PIPELINES = {"CPU": "--attn-cpu-pipeline", "GPU": "--attn-nvvm-pipeline=host=false"}
# A region's last operation is compiled with what has the region.
NOT_COMPILED = {"attn.yield"}


def read_page(page):
    """The operations of a reference page, which is generated."""
    return set(re.findall(r"^## `(attn\.\w+)`", page.read_text(), re.M)) - NOT_COMPILED


def read_table(docs):
    """operation: {target: whether it has a form there}. A row has operations, or links to
    the pages of families."""
    section = (docs / "GPU.md").read_text().split("\n## Operations by target\n")[1].split("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")]
            for line in section.splitlines() if line.startswith("|")]  # fmt: skip
    targets = rows[0][1:]
    table = {}
    for row in rows[2:]:
        pages = re.findall(r"\((Dialect/\w+\.md)\)", row[0])
        for name in set(re.findall(r"`(attn\.\w+)`", row[0])).union(*(read_page(docs / page) for page in pages)):
            if name in table:
                sys.exit(f"{name} is in two rows of the table")
            table[name] = {target: cell == "yes" for target, cell in zip(targets, row[1:])}
    return table


def read_examples(folder):
    """The functions of the example files, one for each operation, by operation."""
    examples = defaultdict(list)
    for path in sorted(folder.glob("*/doctest.mlir")):
        text = path.read_text()
        aliases = dict(re.findall(r"^([!#]\w+) = (.*)$", text, re.M))
        for function in re.findall(r"^func\.func.*?^}$", text, re.M | re.S):
            used = [f"{alias} = {aliases[alias]}\n" for alias in aliases if re.search(rf"{alias}\b", function)]
            for name in set(re.findall(r"\battn\.\w+", function)):
                examples[name].append("".join(used) + function)
    return examples


def compile_all(opt, pipeline, modules):
    """The errors of each module."""
    text, first_lines = "", []
    for module in modules:
        first_lines.append(text.count("\n") + 1)
        text += module + "\n// -----\n"
    run = subprocess.run([opt, "--split-input-file", pipeline, "-o", "/dev/null"], input=text,
                         capture_output=True, text=True)  # fmt: skip
    errors = [[] for _ in modules]
    for line, message in re.findall(r"^<stdin>:(\d+):\d+: error: (.*)$", run.stderr, re.M):
        errors[sum(first <= int(line) for first in first_lines) - 1].append(message)
    if run.returncode not in (0, 1):
        sys.exit(f"{pipeline} ended with {run.returncode}: {run.stderr[-2000:]}")
    return errors


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("opt")
    parser.add_argument("source", type=Path)
    parser.add_argument("--docs", type=Path)
    # For the canary: compiles these only.
    parser.add_argument("--only", nargs="*")
    arguments = parser.parse_args()
    docs = arguments.docs or arguments.source / "docs"
    table = read_table(docs)
    operations = set().union(*map(read_page, (docs / "Dialect").glob("*.md")))
    failures = [f"{name} is not in the table" for name in sorted(operations - set(table))]
    failures += [f"{name} is in the table, but is no operation" for name in sorted(set(table) - operations)]
    examples = read_examples(arguments.source / "test" / "Dialect" / "Attn" / "IR")
    # Where several examples have an operation, the one with the fewest others.
    names = sorted(operations & set(table))
    failures += [f"{name} has no example" for name in names if name not in examples]
    names = [name for name in names if name in examples and name in (arguments.only or names)]
    modules = [min(examples[name], key=lambda m: len(set(re.findall(r"\battn\.\w+", m)))) for name in names]
    for target, pipeline in PIPELINES.items():
        for name, errors in zip(names, compile_all(arguments.opt, pipeline, modules)):
            if table[name][target] and errors:
                failures.append(f"{name} has no form for {target}: {errors[0]}")
            elif not table[name][target] and not errors:
                failures.append(f"{name} has a form for {target}, but the table says no")
            elif len(errors) > 1:
                failures.append(f"{name} is {len(errors)} errors for {target}: {errors}")
    print("\n".join(failures + [f"{len(names)} operations, {len(failures)} differences"]))
    sys.exit(bool(failures))


main()
