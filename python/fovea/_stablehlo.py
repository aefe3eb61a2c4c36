# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""StableHLO to linalg, by a tool of torch-mlir."""

from __future__ import annotations

import re
from collections.abc import Sequence

from . import _fovea
from ._own_calls import insert_definitions
from ._rewriting import drop_signs, rewrite
from ._stablehlo_fourier import FourierWriter
from ._stablehlo_functions import FunctionWriter
from ._stablehlo_windows import WindowWriter
from ._torch_mlir import run_passes

__all__ = ["to_linalg"]

_SIMPLIFICATION = ("--inline", "--stablehlo-aggressive-simplification", "--canonicalize")
_LEGALIZATION = ("--inline", "--stablehlo-legalize-to-linalg", "--canonicalize", "--cse", "--canonicalize")
#: In which no dialect needs to be known.
_GENERIC = "--mlir-print-op-generic"
#: What is rewritten only where the same line has this, too: torch-mlir-opt has linalg for others.
_ONLY_WITH = {
    # Parts of complex numbers follow from transforms alone.
    "real": "^$", "imag": "^$",
    "convolution": r"\?", "dynamic_conv": r"\?", "reverse": r"\?", "dot_general": "algorithm = <",
    "custom_call": r"@(?:ApproxTopK|fovea\b|shape_assertion|stablehlo\.dynamic_reduce_window)",
}  # fmt: skip


class _OperationWriter(WindowWriter, FourierWriter):
    """All that is rewritten before torch-mlir-opt makes linalg."""


def _find_rewritten() -> re.Pattern[str]:
    """Operations that the writer has a method for."""
    found = []
    for name in (each.removeprefix("write_") for each in dir(_OperationWriter) if each.startswith("write_")):
        full = name.replace("chlo_", r"chlo\.") if name.startswith("chlo_") else rf"stablehlo\.{name}"
        found.append(rf"{full}\b.*{_ONLY_WITH[name]}" if name in _ONLY_WITH else rf"{full}\b")
    return re.compile(rf"\b(?:{'|'.join(found)})")


_REWRITTEN = _find_rewritten()


def _run(passes: Sequence[str], source: str = "-", text: str | None = None) -> str:
    # JAX says how results are spread over devices in a dialect that the tool does not know.
    return run_passes(["--allow-unregistered-dialect", *passes], "StableHLO", source, text)


def list_result_types(source: str) -> list[str]:
    """The element types of the results of a file's public function, by NumPy's names if they are unsigned; none of several functions."""
    headers = re.findall(r'"func\.func"\(\) <\{.*', _run([_GENERIC], source))
    public = [each for each in headers if 'sym_visibility = "private"' not in each]
    results = re.search(r"function_type = \([^()]*\) -> (\([^()]*\)|tensor<\S*>)", public[0]) if len(public) == 1 else None
    types = re.findall(r"tensor<(?:[?\d]+x)*([^>,]*)", results[1]) if results else []
    return [each.replace("ui", "uint") for each in types]


def to_linalg(source: str = "-", text: str | None = None) -> str:
    """The module of a file, or of a text, in linalg."""
    found = _run(_SIMPLIFICATION, source, text)
    if _REWRITTEN.search(found):
        found = rewrite(_run([_GENERIC], text=found), _OperationWriter)
    found = _run(_LEGALIZATION, text=found)
    if "chlo." in found:
        found = rewrite(_run([_GENERIC], text=found), FunctionWriter)
    # The tool leaves what it does not know.
    if left := re.search(r"\bstablehlo\.(?:get_dimension_size|dynamic_\w+|\w+_dynamic_\w+)", found):
        raise _fovea.FoveaError(
            f"found extents that are not known, in {left.group()}, of which torch-mlir-opt makes no linalg: needed known shapes"
        )
    if left := re.search(r"\b(?:stablehlo\.custom_call @\w+|(?:stablehlo|chlo)\.(?!return\b)\w+)", found):
        raise _fovea.FoveaError(f"torch-mlir-opt has no linalg for {left.group()}")
    return insert_definitions(drop_signs(_run([_GENERIC], text=found)) if re.search(r"[<x ]ui\d+\b", found) else found)
