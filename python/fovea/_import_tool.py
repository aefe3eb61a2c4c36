# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The command `fovea-import`: models of frontends to files that `fovea.load` compiles."""

from __future__ import annotations

import argparse
import runpy
import sys
import traceback
from pathlib import Path
from typing import Any

from . import _fovea
from ._program import check_folder, has_types_alone, import_onnx, import_torch, list_left_out, read_module, write_types
from ._stablehlo import list_result_types, to_linalg


def _read_dims(text: str) -> tuple[int, ...]:
    parts = text.split(",") if text else []
    if not all(part.isdecimal() for part in parts):
        raise ValueError(f"--dynamic: found {text!r}, needed dimensions, as in 0,1")
    return tuple(int(part) for part in parts)


def _read_extents(texts: list[str]) -> dict[str, int]:
    extents = {}
    for text in texts:
        name, _, number = text.rpartition("=")
        if not name or not number.isdecimal():
            raise ValueError(f"--extent: found {text!r}, needed a name and a number, as in batch=1")
        extents[name] = int(number)
    return extents


def _call(source: Path, name: str) -> Any:
    """What the function of the file returns. An error of the file names its line."""
    if not source.is_file():
        raise ValueError(f"{source}: found no file, needed one with a function {name}")
    try:
        function = runpy.run_path(str(source)).get(name)
        if callable(function):
            return function()
    except Exception as error:
        lines = [each.lineno for each in traceback.extract_tb(error.__traceback__) if each.filename == str(source)]
        line = error.lineno if isinstance(error, SyntaxError) and error.filename == str(source) else lines[-1] if lines else None
        place = source if line is None else f"{source}:{line}"
        said = error.msg if isinstance(error, SyntaxError) else error
        raise ValueError(f"{place}: {type(error).__name__}: {said}") from error
    raise ValueError(f"{source}: found no function {name}")


def _import_module(source: Path, output: Path) -> None:
    read_module(source)
    if output.exists() and output.samefile(source):
        raise ValueError(f"--output: found {str(output)!r}, which is the source, needed another file")
    beside = output.with_suffix(".safetensors")
    if beside.exists() and not has_types_alone(beside):
        raise ValueError(f"--output: found {str(beside)!r} of another module, whose arguments fovea.load would take, needed another name")
    text = to_linalg(str(source))
    if "func.func" not in text:
        raise ValueError(f"{source}: found no function, needed one")
    types = list_left_out(list_result_types(str(source)))
    output.write_text(text)
    write_types(beside, types)


def _import_function(source: Path, name: str, output: Path, dynamic: tuple[int, ...]) -> None:
    made = _call(source, name)
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
        "others if any; FILE.onnx, a model of ONNX; or FILE.mlir, a module in StableHLO as jax.export writes it",
    )
    parser.add_argument("-o", "--output", required=True, type=Path, help="a file that ends in .mlir; constants go beside it")
    parser.add_argument(
        "--dynamic", default="", metavar="DIMS", help="dimensions of all inputs that have any extent, as 0,1 for batch and length"
    )
    parser.add_argument(
        "--extent", default=[], action="append", metavar="NAME=NUMBER", help="of a model of ONNX: a number for an extent that has a name"
    )
    parser.add_argument("--version", action="version", version=f"fovea {_fovea.VERSION}")
    options = parser.parse_args(arguments)
    file, _, name = options.source.rpartition(":")
    try:
        if options.output.suffix != ".mlir":
            raise ValueError(f"--output: found {str(options.output)!r}, needed a file that ends in .mlir")
        check_folder(options.output, "--output")
        dynamic = _read_dims(options.dynamic)
        extents = _read_extents(options.extent)
        if extents and not options.source.endswith(".onnx"):
            raise ValueError("--extent: found none with a name, needed FILE.onnx")
        if dynamic and options.source.endswith((".mlir", ".onnx")):
            raise ValueError("--dynamic: found a module, needed FILE.py:FUNCTION")
        if options.source.endswith(".onnx"):
            import_onnx(options.source, path=options.output, extents=extents)
        elif options.source.endswith(".mlir"):
            _import_module(Path(options.source), options.output)
        elif file.endswith(".py"):
            _import_function(Path(file), name, options.output, dynamic)
        else:
            raise ValueError(f"source: found {options.source!r}, needed FILE.py:FUNCTION, FILE.onnx or FILE.mlir")
    except (OSError, ValueError, _fovea.FoveaError) as error:
        print(f"fovea-import: error: {error}", file=sys.stderr)
        return 1
    return 0
