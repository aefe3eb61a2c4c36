# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention by the convolutions that are found in its scores: conv_recover, conv."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import _arguments as check
from ._arguments import Tensor, tensor_type
from ._conv import ALGORITHMS
from .compiler import check_target
from .ops import _build, _float, _remembered

__all__ = ["SlidingGroup", "conv", "conv_recover"]


class SlidingGroup:
    """Every query reads its own group of `group` tokens, up to itself, and the group
    before: the union of LongLoRA's groups and shifted groups of 2 `group` tokens."""

    def __init__(self, group: int):
        self.group = check.integer("group", group, 1)


def _search(
    q: Tensor, num_basis: Any, window: Any, delta: Any, epsilon: Any, scale: Any
) -> tuple[int, int, list[str]]:
    """The number of bases, the window, and the attributes of a search."""
    length = q.shape[2]
    num_basis = check.integer("num_basis", num_basis, 1)
    window = check.integer("window", window, 1)
    if window > length:
        raise ValueError(f"window: found {window}, needed at most the {length} rows of q")
    attributes = [f"window = {window} : i64"]
    for name, value in (("delta", delta), ("epsilon", epsilon)):
        number = check.number(
            name, value, "a finite number of at least 0", lambda number: number >= 0
        )
        attributes.append(f"{name} = {_float(number)}")
    attributes.append(f"scale = {_float(check.scale(scale, q.shape[3]))}")
    return num_basis, window, attributes


# ----------------------------------------------------------------------------
# conv_recover
# ----------------------------------------------------------------------------


def _make_recover(q: Any, k: Any, options: tuple[Any, ...], target: str) -> Callable[..., Any]:
    check_target(target)
    # The keys stand in for the values, which there are none of.
    q, k, _ = check.queries_keys_values(q, k, k, same_length=True)
    num_basis, _, attributes = _search(q, *options)
    heads = q.shape[:2]
    results = [
        tensor_type(check.state_type(q.element), (*heads, num_basis, q.shape[2])),
        tensor_type("i32", (*heads, num_basis)),
        tensor_type("i32", heads),
    ]
    return _build("conv_recover", (q, k), (), [("outs", results)], attributes, target)


def conv_recover(
    q: Any,
    k: Any,
    *,
    num_basis: int,
    window: int,
    delta: float,
    epsilon: float,
    scale: float | None = None,
    target: str = "cpu",
) -> Any:
    """The convolutions that `scale q k^T` below the diagonal is made of.

    q is [B,H,N,D] and k [B,G,N,D] with H a multiple of G; `scale` is 1/sqrt(D) by
    default.  Returns b [B,H,R,N] of float32 (float64), sizes [B,H,R] and found
    [B,H] of int32, where R is `num_basis`: basis r gives the score b[r, i - j] to
    query i and key j >= N - sizes[r], and scores of bases add up.

    A column whose first `window` entries differ from those of the bases so far by
    at least `delta - 2 window epsilon`, in sum, begins a new basis; columns are
    searched by halves.  Fewer than R are normal: the sizes of others are 0.
    """
    options = (num_basis, window, delta, epsilon, scale)
    kernel = _remembered(
        ("conv_recover", target, *options), (q, k), lambda: _make_recover(q, k, options, target)
    )
    return kernel(q, k)


# ----------------------------------------------------------------------------
# conv
# ----------------------------------------------------------------------------


def _conv_attributes(
    q: Tensor, options: tuple[Any, ...], group: Any, algorithm: Any
) -> list[str]:
    num_basis, window, attributes = _search(q, *options)
    check.choice("algorithm", algorithm, ALGORITHMS)
    if algorithm == "single" and num_basis != 1:
        raise ValueError(f"algorithm: found 'single' for {num_basis} bases, needed one basis")
    attributes += [
        f"num_basis = {num_basis} : i64",
        f"algorithm = #attn.conv_algorithm<{algorithm}>",
    ]
    if group is not None:
        if window > group:
            raise ValueError(f"window: found {window}, needed at most the group of {group}")
        attributes.append(f"group = {group} : i64")
    return attributes


def _group(mask: Any) -> int | None:
    """The group of a mask; None for a causal one."""
    if isinstance(mask, SlidingGroup):
        return mask.group
    if not isinstance(mask, str) or mask != "causal":
        raise ValueError(f"mask: found {mask!r}, needed 'causal' or SlidingGroup(group)")
    return None


def _make_conv(
    q: Any, k: Any, v: Any, options: tuple[Any, ...], group: Any, algorithm: Any, target: str
) -> Callable[..., Any]:
    check_target(target)
    q, k, v = check.queries_keys_values(q, k, v, same_length=True)
    attributes = _conv_attributes(q, options, group, algorithm)
    counts = tensor_type("i32", q.shape[:2])
    results = [tensor_type(q.element, (*q.shape[:3], v.shape[3])), counts, counts]
    return _build("conv", (q, k, v), (), [("outs", results)], attributes, target)


def conv(
    q: Any,
    k: Any,
    v: Any,
    *,
    num_basis: int,
    window: int,
    delta: float,
    epsilon: float,
    scale: float | None = None,
    mask: Any = "causal",
    algorithm: str = "auto",
    return_counts: bool = False,
    target: str = "cpu",
) -> Any:
    """Causal attention with the convolutions that `conv_recover` finds in its
    scores, applied by `conv_apply`.

    q is [B,H,N,D], k [B,G,N,D], v [B,G,N,E]; the result is [B,H,N,E].  `mask` is
    "causal" or SlidingGroup(group).  With `return_counts`, two arrays [B,H] of
    int32 follow: how many bases were found, and how many rows `conv_apply` computed
    again; under SlidingGroup, the sums over all pairs of neighbouring groups.

    From "Conv-Basis" (arXiv:2405.05219).
    """
    check.flags(return_counts=return_counts)
    group = _group(mask)
    options = (num_basis, window, delta, epsilon, scale)
    kernel = _remembered(
        ("conv", target, *options, group, algorithm),
        (q, k, v),
        lambda: _make_conv(q, k, v, options, group, algorithm, target),
    )
    results = kernel(q, k, v)
    return tuple(results) if return_counts else results[0]
