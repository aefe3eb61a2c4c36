# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rotary position embedding, its gradient, and the frequencies of its published forms."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import _arguments as check
from . import _fovea

__all__ = ["rope", "rope_backward", "rope_frequencies"]


def rope_frequencies(
    width: int,
    *,
    scaling: str = "none",
    base: float = 10000.0,
    factor: float = 1.0,
    original_length: int | None = None,
    length: int | None = None,
    beta_fast: float = 32.0,
    beta_slow: float = 1.0,
    low_factor: float = 1.0,
    high_factor: float = 4.0,
) -> tuple[np.ndarray, float]:
    """The frequencies, an array of shape [width / 2], by which `rope` turns `width`
    columns, in radians for each position, and its magnitude.

    `scaling` is what is done to base**(-2 i / width) for contexts that are `factor`
    times as long as those of training:

    - "none";
    - "linear": divided by the factor (arXiv:2306.15595);
    - "ntk": base factor**(width / (width - 2)) is the base;
    - "dynamic_ntk": the same with a factor that grows with `length`, the tokens of the
      present context, from `original_length`, those of training;
    - "yarn": interpolated where a pair makes fewer than `beta_slow` turns in
      `original_length`, kept where it makes more than `beta_fast`, and between these
      both (arXiv:2309.00071); the magnitude is 0.1 ln(factor) + 1;
    - "llama3": divided by the factor where wavelengths are above original_length /
      `low_factor`, kept below original_length / `high_factor`, and between these both.

    They agree with those of the library transformers.
    """
    table, magnitude = _fovea.rope_frequencies(
        width,
        scaling,
        base,
        factor,
        original_length,
        length,
        beta_fast,
        beta_slow,
        low_factor,
        high_factor,
        "cpu",
    )
    return np.array(table), magnitude


def check_table(frequencies: Any) -> tuple[float, ...] | None:
    """Of frequencies, if there is one, as numbers."""
    if frequencies is None:
        return None
    table = check.to_numpy("frequencies", frequencies)
    if table.dtype.kind not in "iuf" or table.ndim != 1 or not table.size:
        raise ValueError(f"frequencies: found {table.dtype} of shape {table.shape}, needed numbers of shape (width / 2,)")
    return tuple(table.astype(np.float64).tolist())


def _turns(
    positions: Any, base: Any, style: Any, width: Any, frequencies: Any, magnitude: Any
) -> tuple[Any, ...]:
    frequencies = check_table(frequencies)
    if not check.is_on_gpu(positions):
        positions = check.integers("positions", positions, 3)
    return positions, base, style, width, frequencies, magnitude


def rope(
    x: Any,
    positions: Any,
    *,
    base: float = 10000.0,
    style: str = "interleaved",
    width: int | None = None,
    frequencies: Any = None,
    magnitude: float = 1.0,
    out: Any = None,
    target: str = "cpu",
) -> Any:
    """Rotary position embedding: turns pairs of columns of every row.

    x is [B,H,N,D] with D even; positions are integers and broadcast to [B,H,N]: those of
    sequences [B,N] are positions[:, None].  Pair i of the first `width` columns, all by
    default, turns by `position frequencies[i]`, which is base**(-2 i / width) unless a
    table [width / 2] is given, as `rope_frequencies` makes it.  A pair is columns 2 i and
    2 i + 1 or, with the style "half", i and i + width / 2.  Columns behind are copied.
    Those that turn are multiplied by `magnitude`.

    Returns an array like x.  The table is a constant of the kernel: each new one compiles.
    """
    return _fovea.rope(
        x, *_turns(positions, base, style, width, frequencies, magnitude), target, out=out
    )


def rope_backward(
    d_out: Any,
    positions: Any,
    *,
    base: float = 10000.0,
    style: str = "interleaved",
    width: int | None = None,
    frequencies: Any = None,
    magnitude: float = 1.0,
    out: Any = None,
    target: str = "cpu",
) -> Any:
    """The gradient of `rope` for x, where its result gets `d_out`: pairs of columns
    are turned back."""
    return _fovea.rope_backward(
        d_out, *_turns(positions, base, style, width, frequencies, magnitude), target, out=out
    )
