#!/usr/bin/env python3
# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Feeds broken IR to a command and checks that it never crashes.

The inputs are random garbage, token soup and mutated copies of valid IR, made
from a fixed seed. Rejecting an input is fine; dying by a signal, an assertion, a
sanitizer report or running forever is a failure, whose input is printed.

Inputs go to the command in batches, separated by `// -----`; the command is
expected to treat them one by one (--split-input-file). A batch that crashes is
tried input by input to find the culprit.
"""

import argparse
import pathlib
import random
import re
import shlex
import subprocess
import sys

SEPARATOR = "\n// -----\n"
TOKEN = re.compile(
    r"\"[^\"\n]*\"|[%#@!^][\w.$-]*|[A-Za-z_][\w.$]*|-?\d+\.?\d*(?:e[+-]?\d+)?|->|::|\s+|."
)
NUMBERS = [
    "0", "1", "-1", "2", "3", "7", "?", "255", "65536", "2147483647", "2147483648",
    "4294967296", "4611686018427387904", "9223372036854775807", "-9223372036854775808",
    "18446744073709551615", "99999999999999999999", "0.0", "1.0e400", "0x7FC00000",
]

# Extents and element types that replace another one everywhere. Code is written
# out for every column, so that wide heads would take long.
EXTENTS = ["0", "1", "2", "3", "5", "17", "96", "128", "?"]
ELEMENT_TYPES = ["bf16", "f16", "f32", "f64", "f8E4M3FN", "i1", "i8", "i32", "i64", "index", "complex<f32>"]

# Attributes that an operation may not have, or not so.
ATTRIBUTES = ["nonsense", "tool.note", "causal", "causal = false", "mask = #attn.mask<window = 3>", "scale = 1 : i32", "block = 7 : i64"]
MEMORY_SPACES = ["1", "3", "#gpu.address_space<workgroup>", "#gpu.address_space<private>", '"anywhere"']
# Bounds of ranges, which may overlap, run empty or wrap.
BOUNDS = [
    "0", "7", "-3", "rows", "n", "rows - 4", "n floordiv 2", "b * 16", "b * 16 - 32", "b * 16 + 24", "b mod 3", "b floordiv 2",
    "b * 9223372036854775807", "n * 4294967296 + 9223372036854775807", "(b * 4611686018427387904) floordiv 3",
]  # fmt: skip
# MLIR's parsers of linalg.reduce, broadcast and transpose use the list of axes that
# they failed to read: a crash that is not ours to mend.
BROKEN_AXES = re.compile(
    r"\b(?:dimensions|permutation)\s*=(?!\s*\[\s*(?:-?\d{1,18}\s*(?:,\s*-?\d{1,18}\s*)*)?\])"
)
LISTED = re.compile(r"affine_map<\(b\)\[rows, n\] -> \(([^()]*(?:\([^()]*\)[^()]*)*)\)>")


def read_corpus(paths):
    """The functions of the given files, with their aliases, without comments.

    Modules are left out: those of the tests hold transform scripts, and upstream's
    transform operations do crash when mutated.
    """
    pieces = []
    for path in paths:
        text = re.sub(r"^\s*//(?! -----).*\n", "", path.read_text(), flags=re.M)
        for chunk in text.split("// -----"):
            aliases = "".join(re.findall(r"^#\w+ = .*\n", chunk, re.M))
            chunk = re.sub(r"^module.*?^}", "", chunk, flags=re.M | re.S)
            functions = re.split(r"^(?=func\.func)", chunk, flags=re.M)
            pieces += [aliases + f for f in functions if f.startswith("func")]
    return pieces


class Generator:
    def __init__(self, seed, pieces):
        self.random = random.Random(seed)
        self.pieces = [TOKEN.findall(piece) for piece in pieces]
        self.vocabulary = sorted({t for piece in self.pieces for t in piece if t.strip()})

    def garbage(self):
        pick = self.random
        if pick.random() < 0.3:
            raw = bytes(pick.randrange(256) for _ in range(pick.randrange(1, 200)))
            return raw.decode("latin-1")
        words = [pick.choice(self.vocabulary) for _ in range(pick.randrange(1, 60))]
        return " ".join(words)

    def rename(self, tokens):
        """`tokens` with one extent, or one element type, replaced by another."""
        text, pick = "".join(tokens), self.random
        choices = EXTENTS if pick.random() < 0.7 else ELEMENT_TYPES
        shape = re.compile(r"(?<=[<x])([\d?]+|[a-z]+\d*)(?=[x>])")
        found = [
            part for part in shape.findall(text)
            if (part[0] in "0123456789?") == (choices is EXTENTS)
        ]  # fmt: skip
        if not found:
            return tokens
        old, new = pick.choice(found), pick.choice(choices)
        text = shape.sub(lambda part: new if part.group() == old else part.group(), text)
        return TOKEN.findall(text)

    def insert(self, tokens, pattern, text):
        """`tokens` with `text` behind one of the matches of `pattern`."""
        old = "".join(tokens)
        found = [match.end() for match in re.finditer(pattern, old)]
        if not found:
            return tokens
        at = self.random.choice(found)
        return TOKEN.findall(old[:at] + text + old[at:])

    def change_ranges(self, tokens):
        """`tokens` with other bounds in a range, or with one range more."""
        old, pick = "".join(tokens), self.random
        found = list(LISTED.finditer(old))
        if not found:
            return tokens
        match = pick.choice(found)
        bounds = match.group(1).split(", ")
        bounds[pick.randrange(len(bounds))] = pick.choice(BOUNDS)
        new = f"affine_map<(b)[rows, n] -> ({', '.join(bounds)})>"
        if pick.random() < 0.5:
            return self.insert(tokens, r"ranges \[", new + ", ")
        return TOKEN.findall(old[: match.start()] + new + old[match.end() :])

    def mutate(self):
        pick = self.random
        tokens = list(pick.choice(self.pieces))
        for _ in range(pick.choice([1, 1, 1, 2, 3, 6])):
            solid = [i for i, token in enumerate(tokens) if token.strip()]
            if not solid:
                break
            at = pick.choice(solid)
            kind = pick.randrange(14)
            numbers = [i for i in solid if re.match(r"-?\d", tokens[i]) or tokens[i] == "?"]
            if kind == 0:
                del tokens[at]
            elif kind == 1:
                tokens.insert(at, tokens[at])
            elif kind == 2:
                other = pick.choice(solid)
                tokens[at], tokens[other] = tokens[other], tokens[at]
            elif kind == 3:
                tokens[at] = pick.choice(self.vocabulary)
            elif kind in (4, 5, 6) and numbers:
                # Shapes and attribute values, where the verifiers are.
                tokens[pick.choice(numbers)] = pick.choice(NUMBERS)
            elif kind in (7, 8):
                # Everywhere at once, which the verifiers may accept.
                tokens = self.rename(tokens)
            elif kind == 9:
                other = pick.choice(solid)
                first, last = sorted((at, other))
                if last - first < 30:
                    del tokens[first:last]
            elif kind == 10:
                tokens = self.insert(tokens, r" \{(?=\w+ = |causal)", pick.choice(ATTRIBUTES) + ", ")
            elif kind == 11:
                tokens = self.insert(
                    tokens, r"memref<[^<>]*?(?=>)|tensor<[^<>]*?(?=>)", ", " + pick.choice(MEMORY_SPACES)
                )
            elif kind == 12:
                tokens = self.change_ranges(tokens)
            else:
                del tokens[at:]
        return "".join(tokens)

    def next(self):
        while True:
            text = self.garbage() if self.random.random() < 0.15 else self.mutate()
            if not BROKEN_AXES.search(text):
                return text


def crash_reason(command, text, timeout):
    """None unless the command crashes on `text`; else a line that says how."""
    try:
        result = subprocess.run(
            command, input=text.encode("utf-8", "surrogateescape"),
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=timeout, check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {timeout} s"
    if result.returncode < 0:
        return f"died by signal {-result.returncode}"
    # Shells and sanitizers turn signals into exit statuses.
    if result.returncode not in (0, 1):
        return f"exit status {result.returncode}"
    report = re.search(
        rb"AddressSanitizer|runtime error:|PLEASE submit a bug report|LLVM ERROR|Assertion.*failed",
        result.stderr,
    )
    return f"printed '{report.group(0).decode()}'" if report else None


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--command", required=True, help="command under test, as for a shell")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=1000, help="number of inputs")
    parser.add_argument("--every", type=int, default=1, help="run one input of so many")
    parser.add_argument("--batch", type=int, default=50, help="inputs of one run of the command")
    parser.add_argument("--timeout", type=float, default=60, help="seconds for one batch")
    parser.add_argument("--keep", type=pathlib.Path, help="file for the crashing input")
    parser.add_argument("corpus", nargs="+", type=pathlib.Path, help=".mlir files and folders")
    options = parser.parse_args()

    files = [
        file for path in options.corpus
        for file in (sorted(path.rglob("*.mlir")) if path.is_dir() else [path])
    ]
    pieces = read_corpus(files)
    if not pieces:
        sys.exit("error: the corpus holds no functions")
    command = shlex.split(options.command)
    generator = Generator(options.seed, pieces)
    # The corpus itself first: it must be harmless, and shows that the command runs.
    inputs = (pieces + [generator.next() for _ in range(options.count)])[:: options.every]
    for start in range(0, len(inputs), options.batch):
        batch = inputs[start : start + options.batch]
        reason = crash_reason(command, SEPARATOR.join(batch), options.timeout)
        if not reason:
            continue
        for text in batch:
            alone = crash_reason(command, text, options.timeout)
            if alone:
                reason = alone
                break
        else:
            # Only together: print the whole batch.
            text = SEPARATOR.join(batch)
        print(f"crash: {options.command}: {reason} on this input:\n{text}")
        if options.keep:
            options.keep.write_text(text)
        return 1
    print(f"{len(inputs)} inputs made from {len(pieces)} functions, no crash")
    return 0


if __name__ == "__main__":
    sys.exit(main())
