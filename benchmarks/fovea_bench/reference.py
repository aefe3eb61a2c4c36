# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The NumPy references of the Python package, loaded by path: they need no
built extension."""

import importlib.util
import pathlib
import sys

_FOLDER = pathlib.Path(__file__).resolve().parents[2] / "python" / "fovea" / "reference"
_spec = importlib.util.spec_from_file_location("fovea_reference", _FOLDER / "__init__.py")
_module = sys.modules["fovea_reference"] = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)

average_weights = _module.average_weights
dense = _module.dense
fast_multipole = _module.fast_multipole
fast_multipole_blocked = _module.fast_multipole_blocked
conv_apply_fft = _module.conv_apply_fft
num_levels = _module.num_levels
