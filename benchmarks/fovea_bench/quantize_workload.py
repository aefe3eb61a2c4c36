# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The workload of attn.quantize: codes of the nearest codewords."""

import math

import numpy as np

from . import bfloat
from .fields import set_fields
from .ir import Kernel, operand

# How much farther than the nearest a codeword may lie, in units of the largest
# distance: distances are compared in f32 (f64) whatever the type of the keys.
BOUNDS = {"f32": 5e-6, "f64": 1e-12, "bf16": 5e-6, "f16": 5e-6}

_FIELDS = {
    "op": "quantize",
    "type": "f32",
    "batch": 1,
    "heads": 1,
    "n": None,
    "width": 64,
    "codes": 512,
    "shared_codebook": False,
}


class QuantizeWorkload:
    """One kernel at one size. `fields` are those of the configuration file."""

    def __init__(self, **fields):
        set_fields(self, fields, _FIELDS)
        if self.type not in BOUNDS:
            raise ValueError(f"type: found {self.type!r}, needed one of {sorted(BOUNDS)}")
        for name in ("n", "codes", "width"):
            if not isinstance(getattr(self, name), int) or getattr(self, name) < 1:
                raise ValueError(f"{name}: found {getattr(self, name)!r}, needed a number")

    def shapes(self):
        sets = 1 if self.shared_codebook else self.heads
        return [
            ("k", (self.batch, self.heads, self.n, self.width)),
            ("c", (sets, self.codes, self.width)),
        ]

    def inputs(self, seed=1):
        """Standard normal numbers, in the type of the kernel."""
        return [
            bfloat.encode(
                np.random.default_rng([seed, index]).standard_normal(shape, dtype=np.float32),
                self.type,
            )
            for index, (_, shape) in enumerate(self.shapes())
        ]

    def ir(self, optimize=None):
        """The text of a module with one function, @run."""
        arguments = [operand(name, *shape, element=self.type) for name, shape in self.shapes()]
        codes = operand("z", *self.result_shape(), element="i32")
        return Kernel("quantize", [("ins", arguments)], [("outs", [codes])]).ir()

    def result_shape(self):
        return (self.batch, self.heads, self.n)

    def result_bytes(self):
        return 4 * math.prod(self.result_shape())

    def summary_bytes(self):
        return 0

    def moved_bytes(self):
        return None

    def check(self, inputs, found, rows=256):
        """How much farther a chosen codeword lies than the nearest one, relative
        to the largest distance, over a sample of every head; and its bound."""
        k, c = (bfloat.decode(array, self.type).astype(np.float64) for array in inputs)
        if found.shape != self.result_shape():
            raise ValueError(f"result: found shape {found.shape}, needed {self.result_shape()}")
        if found.min() < 0 or found.max() >= self.codes:
            return math.inf, BOUNDS[self.type]
        sample = np.unique(np.r_[np.arange(0, self.n, max(self.n // rows, 1)), self.n - 1])
        worst = 0.0
        for b, g in np.ndindex(self.batch, self.heads):
            codebook = c[0 if len(c) == 1 else g]
            x = k[b, g, sample]
            distances = (
                (x**2).sum(1)[:, None] - 2 * x @ codebook.T + (codebook**2).sum(1)[None]
            )
            chosen = distances[np.arange(len(sample)), found[b, g, sample]]
            excess = (chosen - distances.min(axis=1)) / distances.max()
            worst = max(worst, float(excess.max()))
        return worst, BOUNDS[self.type]
