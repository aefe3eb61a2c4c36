# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The command `fovea-import`: models of frontends to files that `fovea.load` compiles."""

from __future__ import annotations

import argparse
import runpy
import sys
from pathlib import Path

from . import _fovea
from ._program import import_torch
from ._stablehlo import to_linalg


def _read_dims(text: str) -> tuple[int, ...]:
    parts = text.split(",") if text else []
    if not all(part.isdecimal() for part in parts):
        raise ValueError(f"--dynamic: found {text!r}, needed dimensions, as in 0,1")
    return tuple(int(part) for part in parts)


def _import_function(source: Path, name: str, output: Path, dynamic: tuple[int, ...]) -> None:
    function = runpy.run_path(str(source)).get(name)
    if not callable(function):
        raise ValueError(f"{source}: found no function {name}")
    made = function()
    if not (isinstance(made, tuple) and len(made) in (2, 3) and isinstance(made[1], tuple)):
        raise ValueError(f"{name}: found {type(made).__name__}, needed a model, a tuple of examples, and a dict of others if any")
    model, args, *others = made
    import_torch(model, *args, path=output, dynamic=dynamic, **(others[0] if others else {}))


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; its status is returned."""
    parser = argparse.ArgumentParser(prog="fovea-import", description="Writes a model as a module that fovea.load compiles.")
    parser.add_argument(
        "source",
        help="FILE.py:FUNCTION, a function that returns a torch.nn.Module, a tuple of examples of its arguments, and a dict of "
        "others if any; or FILE.mlir, a module in StableHLO as jax.export writes it",
    )
    parser.add_argument("-o", "--output", required=True, type=Path, help="a file that ends in .mlir; constants go beside it")
    parser.add_argument(
        "--dynamic", default="", metavar="DIMS", help="dimensions of all inputs that have any extent, as 0,1 for batch and length"
    )
    options = parser.parse_args(arguments)
    file, _, name = options.source.rpartition(":")
    try:
        if options.output.suffix != ".mlir":
            raise ValueError(f"--output: found {str(options.output)!r}, needed a file that ends in .mlir")
        dynamic = _read_dims(options.dynamic)
        if options.source.endswith(".mlir"):
            if dynamic:
                raise ValueError("--dynamic: found a module, needed FILE.py:FUNCTION")
            options.output.write_text(to_linalg(options.source))
        elif file.endswith(".py"):
            _import_function(Path(file), name, options.output, dynamic)
        else:
            raise ValueError(f"source: found {options.source!r}, needed FILE.py:FUNCTION or FILE.mlir")
    except (OSError, ValueError, _fovea.FoveaError) as error:
        print(f"fovea-import: error: {error}", file=sys.stderr)
        return 1
    return 0
