# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Graphs of torch.export with extents that are not known, in the form that torch-mlir imports right.

Masks of transformers look for packed sequences in positions that are counted: what follows from counting is found
here, where shapes have names.  A reshape with several unknown extents becomes reshapes of neighbours: torch-mlir
takes one of them for 1 otherwise.  Arithmetic of extents becomes what torch-mlir knows, also where a model computes
it in a tensor of one number.
"""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import sympy
import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils import _pytree as pytree
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

__all__ = [
    "call_node", "find_result", "fold_positions", "resolve_items", "rewrite_extents", "split_reshapes", "state_extents", "take_assertions",
]  # fmt: skip

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


def _bounds(difference: Any) -> tuple[Any, Any]:
    """Of a number, where all extents are 1 or more: examples of 2 tell PyTorch more than holds of calls."""
    if not isinstance(difference, torch.SymInt):
        return difference, difference
    expression = difference.node.expr
    found = bound_sympy(expression, {symbol: ValueRanges(1, int_oo) for symbol in expression.free_symbols})
    return found.lower, found.upper


def _write_extreme(graph: Graph, function: Any, first: Any, second: Any) -> Any:
    low, high = _bounds(_value(first) - _value(second))
    if low >= 0 or high <= 0:
        return first if (low >= 0) == (function is torch.sym_max) else second
    found = graph.call_function(torch.ops.prim.max.int, (first, second))
    found.meta["val"] = torch.sym_max(_value(first), _value(second))
    if function is torch.sym_min:
        found = _compute(graph, operator.sub, _compute(graph, operator.add, first, second), found)
    return found


def _write_root(graph: Graph, node: Node) -> None:
    """A power to 1/2 or -1/2 of an extent."""
    root, power = node.args[0].args, node.args[1]
    if power > 0:
        node.target, node.args = aten.sqrt.int, root
        return
    with graph.inserting_before(node):
        of_extent = graph.call_function(aten.sqrt.int, root)
    of_extent.meta["val"] = node.args[0].meta["val"] ** 0.5
    node.target, node.args = operator.truediv, (1.0, of_extent)


def rewrite_extents(module: GraphModule) -> None:
    """Greater and lesser ones, remainders, and extents as numbers of tensors and their roots: torch-mlir has no word for
    them, or does not lower it."""
    graph = module.graph
    for node in list(graph.nodes):
        if node.target is torch.sym_float:
            node.target = aten.Float.Scalar
        elif node.target is operator.pow and node.args[1] in (0.5, -0.5) and node.args[0].target is aten.Float.Scalar:
            _write_root(graph, node)
        if node.target not in (torch.sym_max, torch.sym_min, operator.mod) or not isinstance(node.meta.get("val"), torch.SymInt):
            continue
        first, second = node.args
        with graph.inserting_before(node):
            if node.target is operator.mod:
                quotient = _compute(graph, operator.floordiv, first, second)
                found = _compute(graph, operator.sub, first, _compute(graph, operator.mul, quotient, second))
            else:
                found = _write_extreme(graph, node.target, first, second)
        if isinstance(found, Node):
            found.meta["val"] = node.meta["val"]
        node.replace_all_uses_with(found)
        graph.erase_node(node)
    # What is 1 is repeated, which torch-mlir sees only of extents that are known.
    for node in graph.find_nodes(op="call_function", target=aten.slice.Tensor):
        if any(isinstance(extent, torch.SymInt) for extent in node.meta["val"].shape):
            node.meta["val"] = find_result(node.target, node.args)
            node.meta.pop("tensor_meta", None)
    module.recompile()


#: Of one number, what only moves it, and sums and products, by their functions of numbers.
_KEEPS = (aten.to.device, aten.to.dtype, aten.to.dtype_layout, aten.detach_.default, aten.detach.default, aten.clone.default)
_ARITHMETIC: dict[Any, Callable[[Any, Any], Any]] = {
    aten.add.Tensor: operator.add, aten.sub.Tensor: operator.sub, aten.mul.Tensor: operator.mul, aten.rsub.Scalar: operator.sub,
}  # fmt: skip


def _number_of(graph: Graph, node: Any) -> Any:
    """The number that a tensor has, of extents, before the place where nodes are inserted; None for others."""
    if type(node) is int:
        return node
    if not isinstance(node, Node) or not isinstance(node.meta.get("val"), torch.Tensor) or node.meta["val"].dtype != torch.int64:
        return None
    if node.target is aten.scalar_tensor.default:
        return node.args[0]
    if node.target in _KEEPS:
        return _number_of(graph, node.args[0])
    if node.target in _ARITHMETIC and len(node.args) == 2 and not node.kwargs:
        first, second = (_number_of(graph, each) for each in node.args)
        if first is None or second is None:
            return None
        if node.target is aten.rsub.Scalar:
            first, second = second, first
        return _compute(graph, _ARITHMETIC[node.target], first, second)
    return None


def _reads_offset(node: Node) -> bool:
    return node.target is aten.sym_storage_offset.default or any(map(_reads_offset, node.all_input_nodes))


def resolve_items(module: GraphModule) -> None:
    """Numbers that a model computes of extents in tensors, and reads for slices, are extents.

    Where slices begin in memory was asked for these alone, and matters to no program.
    """
    graph = module.graph
    for node in graph.find_nodes(op="call_function", target=aten.item.default):
        with graph.inserting_before(node):
            found = _number_of(graph, node.args[0])
        if found is not None:
            node.replace_all_uses_with(found)
            graph.erase_node(node)
    for node in graph.find_nodes(op="call_function", target=aten._assert_scalar.default):
        if isinstance(node.args[0], Node) and all(map(_reads_offset, node.args[0].all_input_nodes)):
            graph.erase_node(node)
    graph.eliminate_dead_code()
    module.recompile()


def take_assertions(module: GraphModule) -> list[Any]:
    """Takes what is asserted of extents of inputs out of the graph, as expressions."""
    graph, found = module.graph, []
    for node in graph.find_nodes(op="call_function", target=aten._assert_scalar.default):
        value = _value(node.args[0])
        condition = value.node.expr if isinstance(value, torch.SymBool) else sympy.sympify(value)
        if condition is not sympy.true and free_unbacked_symbols(value):
            continue
        if condition is not sympy.true:
            found.append(condition)
        graph.erase_node(node)
    graph.eliminate_dead_code()
    module.recompile()
    return found


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


def find_result(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> Any:
    values, named = (torch.fx.node.map_arg(each, lambda node: node.meta["val"]) for each in (args, kwargs or {}))
    modes = (each.fake_mode for each in pytree.tree_leaves((values, named)) if isinstance(each, FakeTensor))
    with next(modes, contextlib.nullcontext()), enable_python_dispatcher():
        return target(*values, **named)


def call_node(graph: Graph, target: Any, *args: Any, **kwargs: Any) -> Node:
    """A node that knows its result."""
    node = graph.call_function(target, args, kwargs)
    node.meta["val"] = find_result(target, args, kwargs)
    return node


def _known_sizes(graph: Graph, source: Node, dim: int, sizes: Sequence[Any]) -> list[Any]:
    """The extents that a dimension becomes: torch-mlir finds none that is to follow from the others."""
    if -1 not in sizes:
        return list(sizes)
    others = functools.reduce(lambda a, b: _compute(graph, operator.mul, a, b), (each for each in sizes if each != -1), 1)
    rest = _compute(graph, operator.floordiv, call_node(graph, aten.sym_size.int, source, dim), others)
    return [rest if each == -1 else each for each in sizes]


def _with_extents(value: FakeTensor, sizes: dict[int, Any]) -> FakeTensor:
    """A tensor with what is known of its extents."""
    shape = [size if isinstance(size := sizes.get(dim), int) and size >= 0 else each for dim, each in enumerate(value.shape)]
    if all(map(_same, shape, value.shape)):
        return value
    with value.fake_mode:
        return torch.empty(shape, dtype=value.dtype)


def _split(graph: Graph, source: Node, sizes: Sequence[Any], target: Sequence[Any]) -> Node:
    shape = source.meta["val"].shape
    # From the last on, where numbers of dimensions stay.
    for before, after in reversed(_groups(shape, target)):
        if [str(shape[k]) for k in before] == [str(target[k]) for k in after]:
            continue
        if len(before) > 1:
            source = call_node(graph, aten.flatten.using_ints, source, before.start, before.stop - 1)
        if len(after) > 1:
            known = _known_sizes(graph, source, before.start, [target[k] if isinstance(target[k], int) else sizes[k] for k in after])
            source = call_node(graph, aten.unflatten.int, source, before.start, known)
            source.meta["val"] = _with_extents(source.meta["val"], {before.start + k: size for k, size in enumerate(known)})
    return source


_RESHAPES = (aten.view.default, aten._unsafe_view.default, aten.reshape.default)


def state_extents(module: GraphModule) -> None:
    """Extents that reshapes name are known: where another is found by division, PyTorch has quotients for these as well."""
    changed: set[Node] = set()
    for node in module.graph.nodes:
        is_reshape = node.target in _RESHAPES
        if node.op != "call_function" or not (is_reshape or changed.intersection(node.all_input_nodes)):
            continue
        value = find_result(node.target, node.args, node.kwargs) if changed.intersection(node.all_input_nodes) else node.meta["val"]
        if is_reshape:
            value = _with_extents(value, dict(enumerate(node.args[1])))
        if value is not node.meta["val"]:
            node.meta["val"] = value
            node.meta.pop("tensor_meta", None)
            changed.add(node)


def split_reshapes(module: GraphModule) -> None:
    """Reshapes with extents that are not known, as those of neighbours; none where the shape stays."""
    graph = module.graph
    for node in list(graph.nodes):
        if node.target not in (*_RESHAPES, aten.expand.default):
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
