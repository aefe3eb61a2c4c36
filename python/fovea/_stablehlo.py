# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""StableHLO to linalg, by a tool of torch-mlir."""

from __future__ import annotations

import re

from . import _fovea
from ._extents import has_unknown_extents, write_extents
from ._torch_mlir import run_passes

__all__ = ["to_linalg"]

_SIMPLIFICATION = ("--inline", "--stablehlo-aggressive-simplification", "--canonicalize")
_LEGALIZATION = ("--stablehlo-legalize-to-linalg", "--canonicalize", "--cse", "--canonicalize")
#: In which no dialect needs to be known.
_GENERIC = "--mlir-print-op-generic"


def to_linalg(source: str = "-", text: str | None = None) -> str:
    """The module of a file, or of a text, in linalg."""
    found = run_passes(_SIMPLIFICATION, "StableHLO", source, text)
    if has_unknown_extents(found):
        found = write_extents(run_passes([_GENERIC], "StableHLO", text=found))
    found = run_passes(_LEGALIZATION, "StableHLO", text=found)
    # The tool leaves what it does not know.
    if left := re.search(r"\bstablehlo\.(?:get_dimension_size|dynamic_\w+|\w+_dynamic_\w+)", found):
        raise _fovea.FoveaError(
            f"found extents that are not known, in {left.group()}, of which torch-mlir-opt makes no linalg: needed known shapes"
        )
    if left := re.search(r"\b(?:stablehlo|chlo)\.\w+", found):
        raise _fovea.FoveaError(f"torch-mlir-opt has no linalg for {left.group()}")
    return found
