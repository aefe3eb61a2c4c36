# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Batches whose sequences lack tokens."""

import dataclasses

import numpy as np

from .case import flatten


@dataclasses.dataclass
class Tokens:
    """Which tokens are present, [B,N], and how a call is told."""

    here: np.ndarray
    options: dict = dataclasses.field(default_factory=dict)

    def clear(self, x):
        """Zeros in absent rows."""
        return np.where(self.here[:, None, :, None], x, 0)

    def hide(self, case, forward, arrays, clean, names):
        """Absent rows of `names` may hold anything."""
        if not self.here.all():
            b, j = np.argwhere(~self.here)[0]
            name = case.pick("dirty", names)
            case.hidden(forward, arrays, clean, (name, (b, 0, j, 0)), [True] * len(flatten(clean)), "absent")


def draw_tokens(case, B, N, name="mask"):
    """`name` is what a call calls a mask."""
    kind = case.pick("absent", [None, None, "mask", "lengths"])
    if kind is None:
        return Tokens(np.ones((B, N), bool))
    if kind == "mask":
        here = case.random.random((B, N)) < case.pick("present", [0.2, 0.8])
        return Tokens(here, {name: here})
    lengths = case.random.integers(0, N + 1, B).astype(np.int32)
    return Tokens(np.arange(N) < lengths[:, None], {"lengths": lengths})
