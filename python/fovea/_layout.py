# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Arrays [B,N,H,D] as the [B,H,N,D] that functions take: views, without copies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from . import _arguments as check
from . import _fovea

_TYPES = {"f16": np.float16, "f32": np.float32, "f64": np.float64}


def is_tokens_first(layout: str) -> bool:
    if isinstance(layout, str) and layout in ("bhnd", "bnhd"):
        return layout == "bnhd"
    raise ValueError(f"layout: found {layout!r}, needed 'bhnd' or 'bnhd'")


def heads_first(name: str, array: Any) -> Any:
    if not hasattr(array, "swapaxes"):
        array = check.to_numpy(name, array)
    if array.ndim != 4:
        raise ValueError(f"{name}: found rank {array.ndim}, needed rank 4 [B,N,H,D]")
    return array.swapaxes(1, 2)


def all_heads_first(**arrays: Any) -> list[Any]:
    return [heads_first(name, array) for name, array in arrays.items()]


def place_heads_first(name: str, array: Any) -> Any:
    """The same of memory for a result, of which a list would give a copy."""
    if not hasattr(array, "swapaxes"):
        raise ValueError(f"{name}: found {type(array).__name__}, needed an array")
    return heads_first(name, array)


def memory(name: str, like: Any, width: int | None = None) -> Any:
    """New memory [B,N,H,E] for what has the type of `like` [B,H,N,D]."""
    element, (batch, heads, length, own) = _fovea.describe(name, like)
    return np.empty((batch, length, heads, own if width is None else width), _TYPES.get(element) or _fovea.bfloat16())


def attend(call: Callable[..., Any], q: Any, value_width: int, out: Any, return_lse: bool) -> Any:
    """What `call` returns for `q` with heads first, where the output is [B,N,H,E]."""
    output, lse = check.parts("out", "arrays", out, 2) if out is not None and return_lse else (out, None)
    if output is None:
        output = memory("q", q, value_width)
    place = place_heads_first("out", output)
    found = call(out=(place, lse) if return_lse else place)
    return (output, found[1]) if return_lse else output


def differentiate(call: Callable[..., Any], arrays: dict[str, Any], gradients: Any) -> tuple[Any, ...]:
    """What `call` returns, a gradient for each of `arrays`: [B,N,H,D] for those with heads first, and as it is for
    None."""
    given = [None] * len(arrays) if gradients is None else list(gradients)
    check.match("gradients", "arrays", len(given), len(arrays))
    own = [
        memory(name, array) if place is None and array is not None else place
        for (name, array), place in zip(arrays.items(), given)
    ]
    places = [
        place if array is None else place_heads_first(f"gradients[{index}]", place)
        for index, (array, place) in enumerate(zip(arrays.values(), own))
    ]
    found = call(gradients=places)
    return tuple(result if array is None else place for array, place, result in zip(arrays.values(), own, found))
