#!/usr/bin/env python3
# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks that the examples in op and attribute descriptions are tested.

usage: check_doc_examples.py <folder of .td files> <folder of tests>

Every operation and attribute must have an example, a fenced block of language
mlir, and the text of each must appear, white space aside, in a doctest.mlir.
"""

import pathlib
import re
import sys


def normalise(text):
    return " ".join(text.split())


def definitions(text):
    """Yields the name and body of each op and attribute definition."""
    starts = list(re.finditer(r"^def (Attn_\w+(?:Op|Attr))\s*:\s*(\w+)", text, re.M))
    ends = [start.start() for start in starts[1:]] + [len(text)]
    for start, end in zip(starts, ends):
        if start.group(2) in ("Attn_Op", "Attn_Attr", "Op", "EnumAttr"):
            yield start.group(1), text[start.start() : end]


def main(td_folder, test_folder):
    tested = [
        normalise(path.read_text())
        for path in sorted(pathlib.Path(test_folder).rglob("doctest.mlir"))
    ]
    found, problems = 0, []
    for path in sorted(pathlib.Path(td_folder).rglob("*.td")):
        for name, body in definitions(path.read_text()):
            examples = re.findall(r"```mlir\n(.*?)```", body, re.S)
            if not examples:
                problems.append(f"{path.name}: {name} has no example")
            for example in examples:
                found += 1
                if not any(normalise(example) in text for text in tested):
                    problems.append(
                        f"{path.name}: an example of {name} is in no doctest.mlir:\n{example}"
                    )
    if not found:
        problems.append(f"no examples found under {td_folder}")
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    print(f"{found} examples, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2]))
