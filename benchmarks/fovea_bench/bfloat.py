# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""bf16 without a NumPy type for it: the upper halves of f32, in uint16."""

import numpy as np

WIDTHS = {"f32": 4, "f64": 8, "bf16": 2, "f16": 2}
_TYPES = {"f32": np.float32, "f64": np.float64, "f16": np.float16}


def encode(array, element_type):
    """An array of f32 in the given type, bf16 rounded to nearest even."""
    if element_type != "bf16":
        return np.ascontiguousarray(array, dtype=_TYPES[element_type])
    bits = np.ascontiguousarray(array, dtype=np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def decode(array, element_type):
    """The numbers of an array, as f32 or wider."""
    if element_type != "bf16":
        return np.asarray(array)
    bits = np.asarray(array).view(np.uint16)
    return (bits.astype(np.uint32) << 16).view(np.float32)
