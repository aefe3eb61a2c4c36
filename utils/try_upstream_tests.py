#!/usr/bin/env python3
# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiles every function of other people's .mlir files, each on its own.

Files are taken apart at `// -----` and at functions. Every function that
fovea-opt accepts goes through the pipelines of the CPU, of GPUs and of the
reference, and what comes out to LLVM IR. It may compile, or be refused by one
error at the user's line. Anything else is bad, and printed: a crash, no answer,
a failure without an error, several errors of a function, an error without a place, and one
about something that the user did not write.

The tests of MLIR itself are what this was written for; they come with LLVM's
sources:

  utils/try_upstream_tests.py llvm-project/mlir/test/Dialect/{Linalg,Tensor,Arith,Math}
"""

import argparse
import bisect
import collections
import dataclasses
import pathlib
import re
import subprocess
import sys

SEPARATOR = "\n// -----\n"
PIPELINES = {
    "cpu": "--attn-cpu-pipeline=cpu=x86-64-v3",
    "gpu": "--attn-nvvm-pipeline=chip=sm_80",
    "reference": "--attn-reference-pipeline",
}
INTERNAL = re.compile(
    r"unrealized_conversion_cast|LLVM Translation failed|null operand|does not dominate"
    r"|cannot be converted to LLVM IR"
)
CRASH = re.compile(
    r"AddressSanitizer|runtime error:|PLEASE submit a bug report|LLVM ERROR|Assertion.*failed"
)
ERROR = re.compile(r"^(?:within split at \S+ offset )?(\S*?):(\d+):(?:\d+:)? error: (.*)|^(?:loc\(.*\): )?error: .*", re.M)


@dataclasses.dataclass(frozen=True)
class Unit:
    """A function, with what it needs of its file."""

    name: str
    text: str


def split_items(chunk):
    """The aliases, and the operations, that start a line."""
    items: list[str] = []
    for line in chunk.splitlines():
        if re.match(r"[^\s})/]", line) or not items:
            items.append(line)
        else:
            items[-1] += "\n" + line
    return items


def split_file(path):
    text = re.sub(r"^\s*//(?! -----).*\n", "", path.read_text(errors="replace"), flags=re.M)
    for number, chunk in enumerate(re.split(r"^\s*// -----.*$", text, flags=re.M)):
        items = split_items(chunk)
        aliases = "\n".join(item for item in items if item[:1] in "#!")
        symbols = {}
        for item in items:
            start = re.match(r"(?:func\.func|memref\.global)[^@(]*@([\w$.-]+)", item)
            if start:
                symbols[start[1]] = item
        for name, item in symbols.items():
            # Functions without a body are what others call.
            if not item.startswith("func") or not re.search(r"\{\s*\n", item):
                continue
            needed, left = {}, [item]
            while left:
                for use in re.findall(r"@([\w$.-]+)", left.pop()):
                    if use != name and use in symbols and use not in needed:
                        needed[use] = symbols[use]
                        left.append(symbols[use])
            parts = [aliases, *needed.values(), item]
            yield Unit(f"{path}#{number}@{name}", "\n".join(filter(None, parts)))


def merge_errors(text, errors):
    """The messages of `errors`, which have lines: one if each is of another function."""
    starts = [n for n, line in enumerate(text.splitlines(), 1) if line.startswith("func.func")]
    owners = {bisect.bisect(starts, line) for line, _ in errors}
    return [message for _, message in errors][: 1 if len(owners) == len(errors) else None]


class Runner:
    """Runs a command on units together, and finds out what became of each."""

    def __init__(self, command, timeout):
        self.command = command
        self.timeout = timeout
        # Of units that succeeded.
        self.outputs = {}

    def execute(self, units):
        text = SEPARATOR.join(unit.text for unit in units)
        try:
            result = subprocess.run(
                self.command, input=text.encode(), capture_output=True, check=False,
                timeout=self.timeout,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return "no answer", "", ""
        errors = result.stderr.decode(errors="replace")
        if result.returncode not in (0, 1) or CRASH.search(errors):
            return f"exit status {result.returncode}", "", errors
        return result.returncode, result.stdout.decode(errors="replace"), errors

    def run(self, units):
        """Yields each unit and its errors: none if it succeeded, a str if it did worse than to fail."""
        if not units:
            return
        code, output, messages = self.execute(units)
        if code == 0:
            outputs = re.split(r"^// -----\n", output, flags=re.M)
            for unit, text in zip(units, outputs, strict=True):
                self.outputs[unit.name] = text
                yield unit, []
            return
        if len(units) == 1:
            found = [(int(match[2] or 0), match[3] or match[0]) for match in ERROR.finditer(messages)]
            lost = any(not match[3] or int(match[2]) == 0 for match in ERROR.finditer(messages))
            if isinstance(code, str):
                yield units[0], code
            elif not found:
                yield units[0], "fails without an error"
            elif lost:
                yield units[0], "error without a place: " + found[0][1]
            else:
                yield units[0], merge_errors(units[0].text, found)
            return
        failed = {} if isinstance(code, str) else self.assign(units, messages)
        if not failed:
            # Something that cannot be told from outside: ask each half.
            half = len(units) // 2
            yield from self.run(units[:half])
            yield from self.run(units[half:])
            return
        for unit in units:
            if unit.name in failed:
                yield unit, failed[unit.name]
        yield from self.run([unit for unit in units if unit.name not in failed])

    @staticmethod
    def assign(units, messages):
        """The errors of each unit, by its lines; none if one has no line."""
        ends, line = [], 0
        for unit in units:
            line += unit.text.count("\n") + SEPARATOR.count("\n")
            ends.append(line)
        failed = collections.defaultdict(list)
        for match in ERROR.finditer(messages):
            number = int(match[2] or 0)
            if number == 0:
                return {}
            place = bisect.bisect_left(ends, number)
            start = ends[place - 1] if place > 0 else 0
            failed[units[place]].append((number - start, match[3]))
        return {unit.name: merge_errors(unit.text, errors) for unit, errors in failed.items()}


def judge(unit, errors):
    """None if a user may be told so; else what is wrong with it."""
    if isinstance(errors, str):
        return errors
    if len(errors) > 1:
        return "several errors: " + "; ".join(errors)
    if INTERNAL.search(errors[0]):
        return "internal error: " + errors[0]
    # Conversions name what they were left with: it may be the user's.
    operation = re.search(r"failed to legalize (?:unresolved )?operation '([^']*)'", errors[0])
    if operation and operation[1] not in unit.text:
        return "internal error: " + errors[0]
    return None


def batches(units, size):
    for start in range(0, len(units), size):
        yield units[start : start + size]


def try_pipeline(options, name, units):
    """Prints what is bad and the counts; true if nothing is."""
    split = ["--split-input-file", "--output-split-marker=// -----"]
    compiler = Runner([options.fovea_opt, *split, "--mlir-disable-threading", PIPELINES[name]], options.timeout)
    translator = Runner([options.mlir_translate, *split, "--mlir-to-llvmir"], options.timeout)
    compiled, clear, bad = 0, 0, 0
    for batch in batches(units, options.batch):
        lowered = []
        results = list(compiler.run(batch))
        lowered = [Unit(unit.name, compiler.outputs.pop(unit.name)) for unit, errors in results if not errors]
        results = [(unit, errors) for unit, errors in results if errors]
        results += translator.run(lowered)
        for unit, errors in results:
            if not errors:
                compiled += 1
                continue
            reason = judge(unit, errors)
            if reason is None:
                clear += 1
                if options.verbose:
                    print(f"{name}: clear: {unit.name}: {errors[0]}", flush=True)
            else:
                bad += 1
                print(f"{name}: bad: {unit.name}: {reason}", flush=True)
    print(f"{name}: {len(units)} functions: {compiled} compile, {clear} are refused by one error, {bad} are bad", flush=True)
    return bad == 0


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--fovea-opt", default="build/bin/fovea-opt")
    parser.add_argument("--mlir-translate", default="/usr/lib/llvm-22/bin/mlir-translate")
    parser.add_argument("--pipeline", action="append", choices=sorted(PIPELINES), help="default: all")
    parser.add_argument("--batch", type=int, default=40, help="functions of one run of a command")
    parser.add_argument("--timeout", type=float, default=60, help="seconds for one run")
    parser.add_argument("--every", type=int, default=1, help="take every n-th function only")
    parser.add_argument("--filter", default="", help="regular expression of FILE#CHUNK@FUNCTION")
    parser.add_argument("--verbose", action="store_true", help="print the errors that are clear, too")
    parser.add_argument("paths", nargs="+", type=pathlib.Path, help=".mlir files and folders")
    options = parser.parse_args()
    files = [
        file for path in options.paths
        for file in (sorted(path.rglob("*.mlir")) if path.is_dir() else [path])
    ]  # fmt: skip
    units = [unit for file in files for unit in split_file(file)]
    units = [unit for unit in units if re.search(options.filter, unit.name)][:: options.every]
    parser_only = Runner([options.fovea_opt, "--split-input-file", "--output-split-marker=// -----"], options.timeout)
    accepted, good = [], True
    for batch in batches(units, 200):
        for unit, errors in parser_only.run(batch):
            if not errors:
                accepted.append(unit)
            elif isinstance(errors, str) and "exit status" in errors:
                good = False
                print(f"parser: bad: {unit.name}: {errors}")
    print(f"{len(files)} files, {len(units)} functions, {len(accepted)} of them valid", flush=True)
    for name in options.pipeline or PIPELINES:
        good &= try_pipeline(options, name, accepted)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
