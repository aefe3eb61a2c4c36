# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Graphs of torch.export with extents that are not known, in the form that torch-mlir imports right.

Masks of transformers look for packed sequences in positions that are counted: what follows from counting is found
here, where shapes have names.  A reshape with several unknown extents becomes reshapes of neighbours: torch-mlir
takes one of them for 1 otherwise.  Arithmetic of extents becomes what torch-mlir knows.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch.fx import Graph, GraphModule, Node

__all__ = ["fold_positions", "rewrite_extents", "split_reshapes"]

aten = torch.ops.aten


# ----------------------------------------------------------------------------
# Positions
# ----------------------------------------------------------------------------


class _Uniform(NamedTuple):
    """All elements are this number."""

    number: int


class _Count(NamedTuple):
    """Elements are `first` and the index along `dim`, counted from the last dimension."""

    dim: int
    first: int


_Known = _Uniform | _Count | None

_COMPARISONS: dict[Any, Callable[[int, int], bool]] = {
    aten.eq.Scalar: operator.eq, aten.eq.Tensor: operator.eq, aten.ne.Scalar: operator.ne, aten.ne.Tensor: operator.ne,
}  # fmt: skip
_SUMS = {aten.add.Tensor: 1, aten.sub.Tensor: -1}
#: Their results are their first inputs, in other shapes.
_MOVES = (aten.unsqueeze.default, aten.expand.default, aten.slice.Tensor, aten.to.dtype_layout)


def _rank(node: Any) -> int:
    return node.meta["val"].dim()


def _from_end(dim: int, rank: int) -> int:
    return dim if dim < 0 else dim - rank


def _follow_move(node: Node, of: _Uniform | _Count) -> _Known:
    if node.target is aten.to.dtype_layout and node.kwargs.get("dtype") is not node.args[0].meta["val"].dtype:
        return None
    if isinstance(of, _Uniform):
        return of
    if node.target is aten.unsqueeze.default:
        # Dimensions behind a new one move away from the last.
        return of._replace(dim=of.dim - (_from_end(node.args[1], _rank(node)) > of.dim))
    if node.target is aten.slice.Tensor:
        given: tuple[Any, ...] = node.args[1:]
        dim, first, last, step = given + (0, 0, None, 1)[len(given) :]
        if _from_end(dim, _rank(node)) != of.dim:
            return of
        if not isinstance(first, int) or first < 0 or step != 1:
            return None
        return _Uniform(of.first + first) if last == first + 1 else of._replace(first=of.first + first)
    return of


def _evaluate(node: Node, known: dict[Node, _Known]) -> _Known:
    """What is known of the integers of a tensor, whatever its extents are."""

    def get(argument: Any) -> _Known:
        return _Uniform(argument) if type(argument) is int else known.get(argument)

    target, args = node.target, node.args
    if target is aten.arange.default:
        return _Count(-1, 0) if node.meta["val"].dtype == torch.int64 else None
    if target is aten.new_ones.default:
        return _Uniform(1)
    if target in _MOVES:
        of = get(args[0])
        return None if of is None else _follow_move(node, of)
    if target in _SUMS and node.kwargs.get("alpha", 1) == 1:
        left, right = get(args[0]), get(args[1])
        if isinstance(right, _Uniform) and left is not None:
            amount = _SUMS[target] * right.number
            return _Uniform(left.number + amount) if isinstance(left, _Uniform) else left._replace(first=left.first + amount)
        return None
    if target is aten.diff.default and len(args) == 4 and args[1] == 1:
        of, before = get(args[0]), get(args[3])
        if isinstance(of, _Count) and _from_end(args[2], _rank(node)) == of.dim and before == _Uniform(of.first - 1):
            return _Uniform(1)
        return None
    if target is aten.cumsum.default:
        return _Uniform(0) if get(args[0]) == _Uniform(0) else None
    if target is aten.index.Tensor and isinstance(get(args[0]), _Uniform):
        return get(args[0])
    if target in _COMPARISONS:
        left, right = get(args[0]), get(args[1])
        if isinstance(left, _Uniform) and isinstance(right, _Uniform):
            return _Uniform(int(_COMPARISONS[target](left.number, right.number)))
    return None


def _gathered(node: Node, known: dict[Node, _Known]) -> Node | None:
    """The indices, if what they read is the count from 0 along a dimension of its own."""
    source, indices = node.args
    of = known.get(source)
    if not isinstance(of, _Count) or of.first != 0 or len(indices) != _rank(source):
        return None
    index = indices[of.dim]
    counted = known.get(index)
    is_position = isinstance(counted, _Count) and counted.first >= 0 and index.meta["val"].dtype == torch.int64
    return index if is_position else None


def fold_positions(module: GraphModule) -> None:
    """Leaves out what is known of positions that are counted: conditions that always hold, and reading the count."""
    known: dict[Node, _Known] = {}
    for node in list(module.graph.nodes):
        if node.op != "call_function":
            continue
        known[node] = _evaluate(node, known)
        replacement = None
        if node.target is aten.index.Tensor:
            replacement = _gathered(node, known)
            if replacement is not None and known[node] is None:
                known[node] = known[replacement]
        elif node.target in (aten.__and__.Tensor, aten.bitwise_and.Tensor):
            for kept, other in (node.args, node.args[::-1]):
                if known.get(other) == _Uniform(1) and other.meta["val"].dtype == torch.bool:
                    replacement = kept
        if replacement is not None:
            node.replace_all_uses_with(replacement)
    module.graph.eliminate_dead_code()
    module.recompile()


# ----------------------------------------------------------------------------
# Extents
# ----------------------------------------------------------------------------


def rewrite_extents(module: GraphModule) -> None:
    """Greater and lesser ones, and remainders: torch-mlir has no word for them, or does not lower it."""
    graph = module.graph
    for node in list(graph.nodes):
        if node.target not in (torch.sym_max, torch.sym_min, operator.mod) or not isinstance(node.meta.get("val"), torch.SymInt):
            continue
        first, second = node.args
        with graph.inserting_before(node):
            if node.target is operator.mod:
                quotient = _compute(graph, operator.floordiv, first, second)
                found = _compute(graph, operator.sub, first, _compute(graph, operator.mul, quotient, second))
            else:
                found = graph.call_function(torch.ops.prim.max.int, (first, second))
                found.meta["val"] = torch.sym_max(_value(first), _value(second))
                if node.target is torch.sym_min:
                    found = _compute(graph, operator.sub, _compute(graph, operator.add, first, second), found)
        found.meta["val"] = node.meta["val"]
        node.replace_all_uses_with(found)
        graph.erase_node(node)
    module.recompile()


# ----------------------------------------------------------------------------
# Reshapes
# ----------------------------------------------------------------------------


def _groups(source: Sequence[Any], target: Sequence[Any]) -> list[tuple[range, range]]:
    """Neighbouring dimensions of two shapes that have as many elements."""

    def products(shape: Sequence[Any]) -> list[Any]:
        product, found = 1, []
        for extent in shape:
            product = product * (extent.node.expr if isinstance(extent, torch.SymInt) else extent)
            found.append(product)
        return found

    first, second = products(source), products(target)
    groups, start, begin = [], 0, 0
    for stop, product in enumerate(first, 1):
        for end in range(begin + 1, len(second) + 1):
            if second[end - 1] == product:
                groups.append((range(start, stop), range(begin, end)))
                start, begin = stop, end
                break
    # Dimensions of extent 1 at the end.
    if groups and (start < len(first) or begin < len(second)):
        groups[-1] = (range(groups[-1][0].start, len(first)), range(groups[-1][1].start, len(second)))
    return groups or [(range(len(first)), range(len(second)))]


def _same(first: Any, second: Any) -> bool:
    return str(first) == str(second)


def _value(argument: Any) -> Any:
    return argument.meta["val"] if isinstance(argument, Node) else argument


def _compute(graph: Graph, function: Callable[..., Any], *args: Any) -> Any:
    """A number of numbers, or a node."""
    value = function(*map(_value, args))
    if not any(isinstance(each, Node) for each in args):
        return value
    node = graph.call_function(function, args)
    node.meta["val"] = value
    return node


def _call(graph: Graph, target: Any, *args: Any) -> Node:
    """A node that knows its result."""
    node = graph.call_function(target, args)
    values = torch.fx.node.map_arg(args, lambda each: each.meta["val"])
    with args[0].meta["val"].fake_mode:
        node.meta["val"] = target(*values)
    return node


def _known_sizes(graph: Graph, source: Node, dim: int, sizes: Sequence[Any]) -> list[Any]:
    """The extents that a dimension becomes: torch-mlir finds none that is to follow from the others."""
    if -1 not in sizes:
        return list(sizes)
    others = functools.reduce(lambda a, b: _compute(graph, operator.mul, a, b), (each for each in sizes if each != -1), 1)
    rest = _compute(graph, operator.floordiv, _call(graph, aten.sym_size.int, source, dim), others)
    return [rest if each == -1 else each for each in sizes]


def _split(graph: Graph, source: Node, sizes: Sequence[Any], target: Sequence[Any]) -> Node:
    shape = source.meta["val"].shape
    # From the last on, where numbers of dimensions stay.
    for before, after in reversed(_groups(shape, target)):
        if [str(shape[k]) for k in before] == [str(target[k]) for k in after]:
            continue
        if len(before) > 1:
            source = _call(graph, aten.flatten.using_ints, source, before.start, before.stop - 1)
        if len(after) > 1:
            known = _known_sizes(graph, source, before.start, [target[k] if isinstance(target[k], int) else sizes[k] for k in after])
            source = _call(graph, aten.unflatten.int, source, before.start, known)
    return source


def split_reshapes(module: GraphModule) -> None:
    """Reshapes with extents that are not known, as those of neighbours; none where the shape stays."""
    graph = module.graph
    for node in list(graph.nodes):
        if node.target not in (aten.view.default, aten._unsafe_view.default, aten.reshape.default, aten.expand.default):
            continue
        source, sizes = node.args
        found, needed = source.meta["val"].shape, node.meta["val"].shape
        if all(isinstance(extent, int) for extent in (*found, *needed)):
            continue
        if len(found) == len(needed) and all(map(_same, found, needed)):
            node.replace_all_uses_with(source)
        elif node.target is aten.expand.default:
            # Of what it does not know to stay, torch-mlir asks at run time.
            added = len(needed) - len(found)
            node.update_arg(1, [-1 if k >= added and _same(found[k - added], needed[k]) else sizes[k] for k in range(len(needed))])
        else:
            with graph.inserting_before(node):
                node.replace_all_uses_with(_split(graph, source, sizes, needed))
    graph.eliminate_dead_code()
    module.recompile()
