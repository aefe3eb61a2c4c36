# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The tool torch-mlir-opt, which knows dialects of frontends."""

from __future__ import annotations

import math
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from . import _fovea

__all__ = ["run_passes"]


def _pack_booleans(text: str) -> str:
    """Constants of bits: newer versions of MLIR write each as a byte, the one that reads them eight as one."""

    def pack(found: re.Match[str]) -> str:
        bits = np.frombuffer(bytes.fromhex(found[1]), np.uint8)
        count = math.prod(int(extent) for extent in found[2].split("x") if extent)
        if bits.size != count:
            return found[0]
        return f'dense<"0x{np.packbits(bits, bitorder="little").tobytes().hex().upper()}"> : tensor<{found[2]}i1>'

    return re.sub(r'dense<"0x([0-9A-Fa-f]+)"> : tensor<((?:\d+x)*)i1>', pack, text)


def run_passes(passes: Sequence[str], what: str, source: str = "-", text: str | None = None) -> str:
    """The module of a file, or of a text, after passes. `what` is what needs them."""
    beside = Path(sys.executable).with_name("torch-mlir-opt")
    tool = str(beside) if beside.exists() else shutil.which("torch-mlir-opt")
    if tool is None:
        raise ValueError(f"{what} is made linalg by torch-mlir-opt: pip install torch-mlir")
    found = subprocess.run([tool, source, *passes], input=text, capture_output=True, text=True)
    if found.returncode < 0:
        raise _fovea.FoveaError(f"torch-mlir-opt was ended by signal {-found.returncode}")
    if found.returncode:
        raise _fovea.FoveaError(found.stderr.strip() or f"torch-mlir-opt: status {found.returncode}")
    return _pack_booleans(found.stdout)
