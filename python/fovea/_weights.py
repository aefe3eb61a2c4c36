# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Weights of summaries: from convolutions of PyTorch, and of a level from the level before.

Arrays may be of NumPy, PyTorch or JAX, whose gradients pass: only methods that all of them
have are called.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import _arguments as check

__all__ = ["hierarchical_weights", "key_weights_from_conv1d"]


def key_weights_from_conv1d(weight: Any, bias: Any = None, *, width: int, heads: int = 1) -> Any:
    """Weights of `fast_multipole` from those of a strided convolution over tokens.

    With H = `heads` and D = `width`, `weight` [H D p,1,m_l] and `bias` [H D p] are those of
    `torch.nn.Conv1d(H * D, H * D * p, m_l, stride=m_l, groups=H * D)`: channel h D + d is column
    d of head h, and makes channels (h D + d) p + a, for each of p summaries a.  Returns weights
    [H,p,m_l,D], and with a bias (weights, biases [H,p,D]).  They are for keys and for values.

    With `groups=H` a channel depends on all columns of its head: `weight` [H D p,D,m_l] gives
    weights [H,p,m_l,D,D], from column to column.  A convolution of fewer groups mixes heads, too:
    what it makes is for `key_summaries` and `value_summaries`.
    """
    check.integer("width", width, 1)
    check.integer("heads", heads, 1)
    if not hasattr(weight, "swapaxes"):
        raise ValueError(f"weight: found {type(weight).__name__}, needed an array [H D p,1 or D,m_l]")
    if weight.ndim != 3:
        raise ValueError(f"weight: found rank {weight.ndim}, needed 3, [H D p,1 or D,m_l]")
    if weight.shape[0] % (heads * width):
        raise ValueError(f"weight: found {weight.shape[0]} channels, needed a multiple of {heads} heads of width {width}")
    mixed = weight.shape[1]
    if mixed not in (1, width):
        raise ValueError(
            f"weight: found {mixed} channels mixed, needed 1 or the {width} of a head: "
            "a convolution with a group for each channel or head"
        )
    rank = weight.shape[0] // (heads * width)
    # [H,D,p,C,m] as [H,p,m,C,D].
    weights = weight.reshape(heads, width, rank, mixed, weight.shape[2]).swapaxes(1, 4).swapaxes(1, 2)
    if mixed == 1:
        weights = weights[:, :, :, 0]
    if bias is None:
        return weights
    if not hasattr(bias, "swapaxes"):
        raise ValueError(f"bias: found {type(bias).__name__}, needed an array [H D p]")
    if tuple(bias.shape) != (weight.shape[0],):
        raise ValueError(f"bias: found shape {tuple(bias.shape)}, needed ({weight.shape[0]},)")
    return weights, bias.reshape(heads, width, rank).swapaxes(1, 2)


def hierarchical_weights(first: Any, steps: Sequence[Any]) -> list[Any]:
    """Weights of all levels where each level sums up the summaries of the level before.

    `first` [W,p,m,D] are the weights of level 1.  `steps` are [W,p,2 p,D], one for each
    further level: summary a of an interval is the sum over its halves, the earlier one
    first, and over their p summaries.  Returns the list [W,p,2^(l-1) m,D] that
    `fast_multipole` takes for keys or values: sums of sums are sums, so nothing else is
    computed.  With one axis of columns more, [W,p,m,D,D] and [W,p,2 p,D,D], they mix columns.
    """
    if not hasattr(steps, "__iter__"):
        raise ValueError(f"steps: found {type(steps).__name__}, needed a list of arrays")
    steps = list(steps)
    for name, array in (("first", first), *((f"steps[{number}]", step) for number, step in enumerate(steps))):
        if not hasattr(array, "swapaxes"):
            raise ValueError(f"{name}: found {type(array).__name__}, needed an array")
    columns = tuple(first.shape[3:])
    if len(columns) not in (1, 2) or columns[0] != columns[-1]:
        raise ValueError(f"first: found shape {tuple(first.shape)}, needed [W,p,m,D] or [W,p,m,D,D]")
    sets, rank = first.shape[:2]
    levels = [first]
    for number, step in enumerate(steps):
        if tuple(step.shape) != (sets, rank, 2 * rank, *columns):
            raise ValueError(f"steps[{number}]: found shape {tuple(step.shape)}, needed {(sets, rank, 2 * rank, *columns)}")
        size = levels[-1].shape[2]
        below = levels[-1].reshape(sets, 1, 1, rank, size, *columns)
        step = step.reshape(sets, rank, 2, rank, 1, *columns)
        halves = below * step if len(columns) == 1 else below @ step
        levels.append(halves.sum(3).reshape(sets, rank, 2 * size, *columns))
    return levels
