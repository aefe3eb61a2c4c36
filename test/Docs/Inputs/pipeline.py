# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares the table of docs/Pipelines.md with the passes of the CPU pipeline: the table
has all of this project's, and those that it has are in order."""

import argparse
import re
import subprocess
from pathlib import Path


def read_table(page):
    """The passes of the table, in order."""
    section = page.read_text().split("\n## The CPU pipeline\n")[1].split("\n## ")[0]
    cells = re.findall(r"^\| (`.*?) \|", section, re.M)
    return [name for cell in cells for name in re.findall(r"`([\w-]+)`", cell)]


def read_pipeline(opt):
    """The passes that run, in order."""
    run = subprocess.run([opt, "--attn-cpu-pipeline", "--dump-pass-pipeline", "-o", "/dev/null"],
                         input="module {}", capture_output=True, text=True, check=True)  # fmt: skip
    return re.findall(r"[\w.-]+", re.sub(r"\{[^}]*\}", "", run.stderr))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("opt", help="fovea-opt")
    parser.add_argument("page", type=Path, help="docs/Pipelines.md")
    args = parser.parse_args()
    table, pipeline = read_table(args.page), read_pipeline(args.opt)
    own = [name for name in pipeline if "attn-" in name]

    errors = [f"{name} is not in the table" for name in own if name not in table]
    rest = iter(pipeline)
    for name in table:
        if name not in pipeline:
            errors.append(f"{name} is in the table, but not in the pipeline")
        elif name not in rest:
            # What follows is compared with the passes from here on.
            errors.append(f"{name} is in the table, but runs earlier")
            rest = iter(pipeline[pipeline.index(name) + 1 :])
    for error in errors:
        print(f"error: {args.page.name}: {error}")
    print(f"{len(own)} passes, {len(errors)} errors")
    return bool(errors)


if __name__ == "__main__":
    raise SystemExit(main())
