# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What kernels that `fovea-compile` has made need to run.

    kernels = fovea_runtime.load("dense.so")     # of fovea-compile --emit=so

For programs in C there are the header and the libraries:

    cc program.c dense.o -I$(python -c "import fovea_runtime as r; print(r.get_include())") \
        $(python -c "import fovea_runtime as r; print(r.get_archive())") -lm -lpthread -ldl
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

__all__ = ["get_archive", "get_include", "get_library", "load"]

_FOLDER = Path(__file__).parent


def get_include() -> str:
    """The folder of the header `fovea_rt/fovea_rt.h`."""
    return str(_FOLDER / "include")


def get_library() -> str:
    """The shared library, whose name has the version of the boundary that kernels call."""
    (library,) = _FOLDER.glob("lib/libfovea_rt.so.*")
    return str(library)


def get_archive() -> str:
    """The same as an archive, for programs that have it inside."""
    return str(_FOLDER / "lib" / "libfovea_rt.a")


def load(path: str | os.PathLike[str]) -> ctypes.CDLL:
    """Loads a library of kernels from a file, wherever the runtime was when it was compiled.

    Its C header says how they are called. Raises OSError where the library needs a
    runtime of another version.
    """
    # A library finds by its name what is loaded already, and that stays.
    ctypes.CDLL(get_library())
    # A name without a folder would be looked for where the system's libraries are.
    return ctypes.CDLL(os.path.abspath(path))
