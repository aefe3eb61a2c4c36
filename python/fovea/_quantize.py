# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Vector quantization of keys: quantize and codebook_update."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import _arguments as check
from . import _fovea
from ._arguments import Tensor, tensor_type
from .compiler import check_target
from .ops import _float, _list, _remembered

__all__ = ["codebook_update", "quantize"]


# ----------------------------------------------------------------------------
# Checks
# ----------------------------------------------------------------------------


def _keys(k: Any) -> Tensor:
    k = check.tensor("k", k, 4, "[B,G,N,D]")
    if k.shape[3] == 0:
        raise ValueError("k: found width 0, needed at least 1")
    return k


def _sets(name: str, array: Any, k: Tensor) -> Tensor:
    """An array [G,S,D] or [1,S,D]: one set of codewords for each head of k, or one
    for all."""
    found = check.tensor(name, array, 3, "[G,S,D] or [1,S,D]")
    if found.shape[0] not in (1, k.shape[1]):
        raise ValueError(
            f"{name}: found {found.shape[0]} sets, needed 1 or one for each of the "
            f"{k.shape[1]} heads of k"
        )
    if found.shape[1] == 0:
        raise ValueError(f"{name}: found no codewords, needed at least 1")
    check.match(name, "width", found.shape[2], k.shape[3])
    return found


def _codes(codes: Any, k: Tensor) -> Tensor:
    element, shape = _fovea.describe("codes", codes)
    if element != "i32":
        raise ValueError(f"codes: found element type {check.TYPE_NAMES[element]}, needed int32")
    check.match("codes", "shape", shape, k.shape[:3])
    return Tensor("codes", element, shape)


# ----------------------------------------------------------------------------
# quantize
# ----------------------------------------------------------------------------


def _make_quantize(k: Any, codebook: Any, target: str) -> Callable[..., Any]:
    check_target(target)
    k = _keys(k)
    codebook = _sets("codebook", codebook, k)
    check.element_type(codebook, k.element)
    codes = tensor_type("i32", k.shape[:3])
    return _fovea.compile(
        f"func.func @quantize(%k: {k.type}, %codebook: {codebook.type}) -> ({k.type}, {codes}) {{\n"
        f"  %codes = tensor.empty() : {codes}\n"
        f"  %copies = tensor.empty() : {k.type}\n"
        f"  %out:2 = attn.quantize ins{_list([k, codebook])}\n"
        f"      outs(%codes, %copies : {codes}, {k.type}) -> {codes}, {k.type}\n"
        f"  return %out#1, %out#0 : {k.type}, {codes}\n"
        "}\n",
        target,
        "native",
        None,
    )


def quantize(k: Any, codebook: Any, *, target: str = "cpu") -> Any:
    """The nearest codeword of every key, and its code.

    k is [B,G,N,D]; codebook is [G,S,D], or [1,S,D] for all heads, of the same type.
    Returns k_hat [B,G,N,D] = codebook[codes] and codes [B,G,N] of int32.  Of
    several codewords at the least distance the first is chosen; a key with a NaN or
    an infinity has code 0.
    """
    kernel = _remembered(
        ("quantize", target), (k, codebook), lambda: _make_quantize(k, codebook, target)
    )
    return kernel(k, codebook)


# ----------------------------------------------------------------------------
# codebook_update
# ----------------------------------------------------------------------------


def _make_update(
    k: Any, codes: Any, sums: Any, counts: Any, rate: Any, target: str
) -> Callable[..., Any]:
    check_target(target)
    k = _keys(k)
    codes = _codes(codes, k)
    state = check.state_type(k.element)
    sums = _sets("sums", sums, k)
    check.element_type(sums, state)
    counts = check.tensor("counts", counts, 2, "[G,S] or [1,S]")
    check.element_type(counts, state)
    check.match("counts", "shape", counts.shape, sums.shape[:2])
    number = check.number("rate", rate, "a number from 0 to 1", lambda number: 0 <= number <= 1)
    arguments = ", ".join(f"{t.value}: {t.type}" for t in (k, codes, sums, counts))
    codebook = tensor_type(k.element, sums.shape)
    types = f"{codebook}, {sums.type}, {counts.type}"
    return _fovea.compile(
        f"func.func @codebook_update({arguments}) -> ({types}) {{\n"
        f"  %codebook = tensor.empty() : {codebook}\n"
        f"  %out:3 = attn.codebook_update ins{_list([k, codes])}\n"
        f"      outs(%codebook, %sums, %counts : {types}) {{rate = {_float(number)}}} -> {types}\n"
        f"  return %out#0, %out#1, %out#2 : {types}\n"
        "}\n",
        target,
        "native",
        None,
    )


def codebook_update(
    k: Any, codes: Any, sums: Any, counts: Any, *, rate: float = 0.99, target: str = "cpu"
) -> Any:
    """One step of exponentially smoothed k-means.

    k is [B,G,N,D] and codes [B,G,N] of int32, as of `quantize`; sums is [G,S,D] and
    counts [G,S], or [1,S,D] and [1,S] for all heads, in float32 (float64 for
    float64 keys).  With the sum and the number of the keys of every code,

        counts = rate counts + (1 - rate) number
        sums = rate sums + (1 - rate) sum
        codebook = sums / counts

    Returns codebook, in the type of k, sums and counts.  A codeword whose count is
    0 is zero.  A code that is not one of 0 .. S-1 raises FoveaError.
    """
    arrays = (k, codes, sums, counts)
    kernel = _remembered(
        ("codebook_update", target, rate),
        arrays,
        lambda: _make_update(k, codes, sums, counts, rate, target),
    )
    return kernel(*arrays)
