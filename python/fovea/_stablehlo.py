# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""StableHLO to linalg, by a tool of torch-mlir."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from . import _fovea

__all__ = ["to_linalg"]

_PASSES = ("--inline", "--stablehlo-aggressive-simplification", "--stablehlo-legalize-to-linalg", "--canonicalize")


def to_linalg(source: str = "-", text: str | None = None) -> str:
    """The module of a file, or of a text, in linalg."""
    beside = Path(sys.executable).with_name("torch-mlir-opt")
    tool = str(beside) if beside.exists() else shutil.which("torch-mlir-opt")
    if tool is None:
        raise ValueError("StableHLO is made linalg by torch-mlir-opt: pip install torch-mlir")
    found = subprocess.run([tool, source, *_PASSES], input=text, capture_output=True, text=True)
    if found.returncode:
        raise _fovea.FoveaError(found.stderr.strip() or f"torch-mlir-opt: status {found.returncode}")
    # The tool leaves what it does not know; of operations on extents it knows none.
    if left := re.search(r"\bstablehlo\.(?:get_dimension_size|dynamic_\w+|\w+_dynamic_\w+)", found.stdout):
        raise _fovea.FoveaError(
            f"found extents that are not known, in {left.group()}, of which torch-mlir-opt makes no linalg: needed known shapes"
        )
    if left := re.search(r"\b(?:stablehlo|chlo)\.\w+", found.stdout):
        raise _fovea.FoveaError(f"torch-mlir-opt has no linalg for {left.group()}")
    return found.stdout
