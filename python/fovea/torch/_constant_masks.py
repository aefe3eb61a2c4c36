# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Masks that a graph computes from nothing but numbers.

They are evaluated, not matched: each way to write a causal mask is one.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx import Node
from torch.fx.node import map_arg

from ._find_attention import Term
from ._graph_nodes import is_writer, name_of, shape_of, writers_of

__all__ = ["Admitted", "evaluate_masks", "masks_as_given"]

#: Larger grids are added to scores as they are.
_MOST_ELEMENTS = 1 << 26

# Numbers of these differ from call to call.
_RANDOM = ("bernoulli", "dropout", "empty", "multinomial", "normal", "poisson", "rand", "uniform")


#: Of who changes a function of PyTorch and puts it back.
_CHANGES = threading.RLock()


@contextmanager
def masks_as_given() -> Iterator[None]:
    """`nn.TransformerEncoder` and `nn.TransformerDecoder` without a look at whether their mask is the causal one, which is a hint and
    no number of a graph: it is added to scores either way."""
    module = torch.nn.modules.transformer
    name = "_detect_is_causal_mask"
    with _CHANGES:
        detect = getattr(module, name, None)
        if detect is None:
            yield
            return
        setattr(module, name, lambda mask, is_causal=None, size=None: is_causal is True)
        try:
            yield
        finally:
            setattr(module, name, detect)


class Admitted(NamedTuple):
    """Options of `dense`."""

    causal: bool = False
    window: int | None = None
    prefix: int | None = None


def _is_known(node: Node, known: dict[Node, bool]) -> bool:
    """Whether nothing that comes from outside is computed with."""
    pending = [node]
    while pending:
        top = pending[-1]
        if top in known:
            pending.pop()
            continue
        name = name_of(top)
        if not name or is_writer(top) or writers_of(top) or any(each in name for each in _RANDOM):
            known[top] = False
            continue
        open_inputs = [each for each in top.all_input_nodes if each not in known]
        if open_inputs:
            pending += open_inputs
        else:
            known[top] = all(known[each] for each in top.all_input_nodes)
    return known[node]


def _compute(node: Node, values: dict[Node, Any]) -> Any:
    pending = [node]
    while pending:
        top = pending[-1]
        missing = [each for each in top.all_input_nodes if each not in values]
        if missing:
            pending += missing
            continue
        pending.pop()
        if top in values:
            continue
        args = map_arg(top.args, values.__getitem__)
        kwargs = map_arg(top.kwargs, values.__getitem__)
        function = getattr(type(args[0]), top.target) if top.op == "call_method" else top.target
        values[top] = function(*args, **kwargs)
    return values[node]


def _admits(term: Term, value: Tensor) -> Tensor | None:
    """What a mask leaves as it is, where it hides all else."""
    if term.low is not None:
        return ~value if term.is_hiding else value
    value = value * term.factor
    is_kept = value == 0
    is_hidden = (value <= -1e9) | (value <= torch.finfo(value.dtype).min)
    return is_kept if bool((is_kept | is_hidden).all()) else None


def _read_grid(grid: Tensor) -> Admitted | None:
    """The options of which a grid [N,M] is made."""
    N, M = grid.shape
    distance = torch.arange(N)[:, None] + (M - N) - torch.arange(M)
    causal = distance >= 0
    if bool(grid.all()):
        return Admitted()
    if torch.equal(grid, causal):
        return Admitted(causal=True)
    is_causal = not bool((grid & ~causal).any())
    reach = distance[grid].abs().max()
    window = int(reach) + 1
    in_window = distance.abs() < window
    if torch.equal(grid, in_window & causal if is_causal else in_window):
        return Admitted(is_causal, window)
    prefix = int(grid[0].sum())
    if torch.equal(grid, causal | (torch.arange(M) < prefix)):
        return Admitted(causal=True, prefix=prefix)
    return None


def evaluate_masks(terms: Sequence[Term], N: Any, M: Any) -> tuple[Admitted, list[Term]]:
    """What masks that are known come to, and the terms that remain.

    A query that reads no key gives zeros with the options, and with numbers that are finite
    the mean of all values: masks with such rows remain as they are.
    """
    everything = Admitted(), list(terms)
    if not (isinstance(N, int) and isinstance(M, int) and N * M <= _MOST_ELEMENTS):
        return everything
    grid, rest = torch.ones(N, M, dtype=torch.bool), []
    known: dict[Node, bool] = {}
    with unset_fake_temporarily(), torch.no_grad():
        for term in terms:
            if not all(isinstance(size, int) for size in shape_of(term.node)) or not _is_known(term.node, known):
                rest.append(term)
                continue
            value = _compute(term.node, {})
            admitted = _admits(term, value) if value.device.type == "cpu" and value.dim() <= 4 else None
            if admitted is not None:
                admitted = admitted.expand(*[1] * max(0, 2 - admitted.dim()), *admitted.shape)
                outer = admitted.reshape(-1, *admitted.shape[-2:])
                admitted = outer[0] if bool((outer == outer[:1]).all()) else None
            if admitted is None:
                rest.append(term)
            else:
                grid = grid & admitted
        if bool(grid.any(-1).all()):
            found = _read_grid(grid)
            if found is not None:
                return found, rest
    return everything
