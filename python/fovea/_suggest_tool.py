# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The command `fovea-suggest`: which pattern fits the attention of a module."""

from __future__ import annotations

import argparse
import json
import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from . import _fovea
from ._program import load
from ._suggest import suggest

_EXAMPLES = """
examples:
  fovea-suggest model.mlir --arg=ids.npy
  fovea-suggest attention.mlir --arg=q.npy --arg=k.npy --arg=v.npy --json -o fits.json
  fovea-suggest attention.mlir --arg=q.npy --arg=k.npy --arg=v.npy --svg -o fits.svg
"""


def _read(value: str) -> np.ndarray:
    """A file, or a number."""
    if value.endswith(".npy"):
        try:
            return np.load(value, allow_pickle=False)
        except (ValueError, EOFError) as error:
            raise ValueError(f"--arg={value}: {error}") from None
    try:
        return np.array(json.loads(value))
    except ValueError:
        raise ValueError(f"--arg: found {value!r}, needed a file that ends in .npy, or a number") from None


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; its status is returned."""
    parser = argparse.ArgumentParser(
        prog="fovea-suggest", epilog=_EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Runs a function, and tells for each of its dense attention what error fast multipole, quantized, convolutional "
        "and compressed attention would have on the same queries, keys and values, and what they cost.",
    )  # fmt: skip
    parser.add_argument("source", type=Path, help="FILE.mlir, a module; constants that lie beside it are its first arguments")
    parser.add_argument("--arg", action="append", default=[], help="another argument, in order: a file of NumPy, or a number")
    parser.add_argument("--entry", help="function to run (default: the first public one)")
    parser.add_argument("--seconds", type=float, default=0.05, help="how long each form is timed (default: 0.05)")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--json", action="store_true", help="write a list of objects")
    kind.add_argument("--svg", action="store_true", help="write a picture of time and error; of one attention")
    parser.add_argument("-o", "--output", type=Path, help="file to write (default: standard output)")
    parser.add_argument("--version", action="version", version=f"fovea {_fovea.VERSION}")
    options = parser.parse_args(arguments)
    try:
        if not 0 <= options.seconds < math.inf:
            raise ValueError(f"--seconds: found {options.seconds}, needed 0 or more")
        sources = [options.source, *(Path(value) for value in options.arg)]
        if options.output and options.output.is_file() and any(each.exists() and options.output.samefile(each) for each in sources):
            raise ValueError(f"--output: found {str(options.output)!r}, which is read, needed another file")
        inputs = [_read(value) for value in options.arg]
        found = suggest(load(options.source, entry=options.entry), *inputs, seconds=options.seconds)
        found = [replace(each, place=each.place.replace("<kernel>", str(options.source))) for each in found]
        if not found:
            raise ValueError(f"{options.source}: found no dense attention to compare")
        if options.svg and len(found) != 1:
            raise ValueError(f"--svg: found {len(found)} attention operations, needed one")
        text = json.dumps([each.json() for each in found], indent=1) if options.json else "\n\n".join(map(str, found))
        if options.svg:
            text = found[0].svg()
        if options.output:
            options.output.write_text(text.rstrip() + "\n")
        else:
            print(text.rstrip())
    except (OSError, ValueError, _fovea.FoveaError) as error:
        print(f"fovea-suggest: error: {error}", file=sys.stderr)
        return 1
    return 0
