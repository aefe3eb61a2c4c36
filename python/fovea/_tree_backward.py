# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradients of the functions on trees, which are linear: their transposes.

All are sums over children and shares of parents, level by level, in time
O(nodes F), written as IR from tensor and linalg operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from . import _arguments as check
from . import _fovea
from ._arguments import Tensor, tensor_type
from .compiler import _callables, check_target, remember
from .tree import Tree, _check_tree, _describe, _lists

__all__ = [
    "tree_build_backward",
    "tree_fetch_backward",
    "tree_materialize_backward",
    "tree_update_backward",
]


# ----------------------------------------------------------------------------
# IR
# ----------------------------------------------------------------------------


class _Value:
    """A tensor [B,n,F] in the type of sums."""

    def __init__(self, name: str, type: str, rows: int):
        self.name, self.type, self.rows = name, type, rows


class _Writer:
    """A function on the nodes of a tree, level by level."""

    def __init__(self, tree: Tree, element: str):
        self.tree, self.element = tree, element
        self.batch, _, self.width = tree.shape
        self.state = check.state_type(element)
        self.body: list[str] = []

    def line(self, text: str) -> None:
        self.body.append(f"  {text}\n")

    def fresh(self) -> str:
        return f"%v{len(self.body)}"

    def type(self, rows: int) -> str:
        return tensor_type(self.state, (self.batch, rows, self.width))

    def rows(self, level: int) -> int:
        return self.tree.roots * self.tree.ratio ** (self.tree.levels - level)

    def widen(self, argument: Tensor) -> _Value:
        """The argument in the type of sums."""
        rows = argument.shape[1]
        if self.element == self.state:
            return _Value(argument.value, self.type(rows), rows)
        name = self.fresh()
        self.line(f"{name} = arith.extf {argument.value} : {argument.type} to {self.type(rows)}")
        return _Value(name, self.type(rows), rows)

    def level(self, nodes: _Value, level: int) -> _Value:
        """The rows of a level."""
        rows, name = self.rows(level), self.fresh()
        first = self.tree.slice(level).start
        self.line(
            f"{name} = tensor.extract_slice {nodes.name}[0, {first}, 0]"
            f" [{self.batch}, {rows}, {self.width}] [1, 1, 1] : {nodes.type} to {self.type(rows)}"
        )
        return _Value(name, self.type(rows), rows)

    def families(self, value: _Value) -> tuple[str, str, int]:
        """Its rows by parent: [B,n/ratio,ratio,F]."""
        parents, name = value.rows // self.tree.ratio, self.fresh()
        shape = (self.batch, parents, self.tree.ratio, self.width)
        type = tensor_type(self.state, shape)
        self.line(
            f"{name} = tensor.expand_shape {value.name} [[0], [1, 2], [3]] output_shape"
            f" {list(shape)} : {value.type} into {type}"
        )
        return name, type, parents

    def add_children(self, value: _Value, children: _Value) -> _Value:
        """Adds to every node the sum of its children's rows."""
        family, family_type, _ = self.families(children)
        name = self.fresh()
        self.line(
            f"{name} = linalg.generic {{indexing_maps = [affine_map<(b, p, i, f) -> (b, p, i, f)>,"
            " affine_map<(b, p, i, f) -> (b, p, f)>],"
            ' iterator_types = ["parallel", "parallel", "reduction", "parallel"]}'
            f" ins({family} : {family_type}) outs({value.name} : {value.type})"
            f" {{ ^bb0(%x: {self.state}, %s: {self.state}): %t = arith.addf %s, %x : {self.state}"
            f" linalg.yield %t : {self.state} }} -> {value.type}"
        )
        return _Value(name, value.type, value.rows)

    def add_parents(self, value: _Value, share: str, parents: _Value) -> _Value:
        """Adds to every node its share [B,n] of its parent's row."""
        family, family_type, count = self.families(value)
        shape = (self.batch, count, self.tree.ratio)
        shares, name, flat = self.fresh(), f"%w{len(self.body)}", f"%u{len(self.body)}"
        share_type = tensor_type(self.state, shape)
        self.line(
            f"{shares} = tensor.expand_shape {share} [[0], [1, 2]] output_shape {list(shape)} :"
            f" {tensor_type(self.state, (self.batch, value.rows))} into {share_type}"
        )
        self.line(
            f"{name} = linalg.generic {{indexing_maps = [affine_map<(b, p, i, f) -> (b, p, i)>,"
            " affine_map<(b, p, i, f) -> (b, p, f)>, affine_map<(b, p, i, f) -> (b, p, i, f)>],"
            ' iterator_types = ["parallel", "parallel", "parallel", "parallel"]}'
            f" ins({shares}, {parents.name} : {share_type}, {parents.type})"
            f" outs({family} : {family_type}) {{ ^bb0(%c: {self.state}, %x: {self.state},"
            f" %s: {self.state}): %y = arith.mulf %c, %x : {self.state}"
            f" %t = arith.addf %s, %y : {self.state} linalg.yield %t : {self.state} }} -> {family_type}"
        )
        self.line(f"{flat} = tensor.collapse_shape {name} [[0], [1, 2], [3]] : {family_type} into {value.type}")
        return _Value(flat, value.type, value.rows)

    def negate(self, value: _Value) -> _Value:
        name = self.fresh()
        self.line(f"{name} = arith.negf {value.name} : {value.type}")
        return _Value(name, value.type, value.rows)

    def pack(self, levels: Sequence[_Value]) -> _Value:
        """The tree with these rows, the tokens' first."""
        nodes = sum(value.rows for value in levels)
        type, name = self.type(nodes), self.fresh()
        self.line(f"{name} = tensor.empty() : {type}")
        for level, value in enumerate(levels):
            packed, first = self.fresh(), self.tree.slice(level).start
            self.line(
                f"{packed} = tensor.insert_slice {value.name} into {name}[0, {first}, 0]"
                f" [{self.batch}, {value.rows}, {self.width}] [1, 1, 1] : {value.type} into {type}"
            )
            name = packed
        return _Value(name, type, nodes)

    def pack_sums(self, levels: Sequence[_Value]) -> _Value:
        """The tree with sums of gradients over everything that a row stands for:
        what the roots give, every other node takes away."""
        *below, roots = levels
        return self.pack([*map(self.negate, below), roots])

    def function(self, name: str, arguments: Sequence[Tensor], result: _Value) -> str:
        type, value = result.type, result.name
        if self.element != self.state:
            type = tensor_type(self.element, (self.batch, result.rows, self.width))
            self.line(f"%narrow = arith.truncf {value} : {result.type} to {type}")
            value = "%narrow"
        parameters = ", ".join(f"{a.value}: {a.type}" for a in arguments)
        return (
            f"func.func @{name}({parameters}) -> {type} {{\n{''.join(self.body)}"
            f"  return {value} : {type}\n}}\n"
        )


def _run(key: tuple[Any, ...], make: Any, target: str, arrays: Sequence[Any]) -> Any:
    kernel = _callables.get(key)
    if kernel is None:
        check_target(target)
        kernel = _fovea.compile(make(), target, "native", None)
        remember(key, kernel)
    return kernel(*arrays)


def _gradient(name: str, array: Any, element: str, shape: tuple[int, ...]) -> Tensor:
    found = check.tensor(name, array, 3, f"{list(shape)}")
    check.element_type(found, element)
    check.match(name, "shape", found.shape, shape)
    return found


def _nodes(tree: Tree) -> tuple[int, int, int]:
    return tuple(tree.nodes.shape)


# ----------------------------------------------------------------------------
# Functions
# ----------------------------------------------------------------------------


def _shares(tree: Tree, state: str) -> list[np.ndarray]:
    """Of every level below the roots: how much of its parent's row a node is."""
    batch, shares = tree.shape[0], []
    for level in range(tree.levels):
        part = tree.slice(level)
        rows = part.stop - part.start
        share = np.full((batch, rows), 1 / tree.ratio)
        if tree.counts is not None:
            above = np.repeat(tree.counts[:, tree.slice(level + 1)], tree.ratio, axis=1)
            share = np.where(above > 0, tree.counts[:, part] / np.maximum(above, 1), share)
        shares.append(share.astype(check.FLOAT_TYPES[state]))
    return shares


def tree_build_backward(d_tree: Any, tree: Tree, *, target: str = "cpu") -> Any:
    """The gradient [B,N,F] of the sequence that `tree` was built of, from that of
    its nodes, d_tree [B,n,F]."""
    tree = _check_tree(tree)
    element, type = _describe(tree)
    gradient = _gradient("d_tree", d_tree, element, _nodes(tree))
    shares = _shares(tree, check.state_type(element))

    def make() -> str:
        writer = _Writer(tree, element)
        arguments = [Tensor(f"share{i}", writer.state, s.shape) for i, s in enumerate(shares)]
        nodes = writer.widen(gradient)
        # The gradient of a row: from its own node, and from its children's.
        levels = [writer.level(nodes, level) for level in range(tree.levels + 1)]
        rows = [writer.negate(value) for value in levels[:-1]] + levels[-1:]
        rows[1:] = [
            writer.add_children(row, children) for row, children in zip(rows[1:], levels)
        ]
        for level in reversed(range(tree.levels)):
            rows[level] = writer.add_parents(rows[level], arguments[level].value, rows[level + 1])
        return writer.function("tree_build_backward", [gradient, *arguments], rows[0])

    key = ("tree_build_backward", target, type, tree.ratio, tree.levels)
    return _run(key, make, target, [d_tree, *shares])


def tree_materialize_backward(d_c: Any, tree: Tree, *, target: str = "cpu") -> Any:
    """The gradient [B,n,F] of the nodes of a tree, from that of the sequence that
    it stands for, d_c [B,N,F]."""
    tree = _check_tree(tree)
    element, type = _describe(tree)
    gradient = _gradient("d_c", d_c, element, tree.shape)

    def make() -> str:
        writer = _Writer(tree, element)
        levels = [writer.widen(gradient)]
        for level in range(1, tree.levels + 1):
            zeros = f"%zero{level}"
            kind = writer.type(writer.rows(level))
            writer.line(f"{zeros} = arith.constant dense<0.0> : {kind}")
            levels.append(
                writer.add_children(_Value(zeros, kind, writer.rows(level)), levels[-1])
            )
        result = writer.pack_sums(levels)
        return writer.function("tree_materialize_backward", [gradient], result)

    key = ("tree_materialize_backward", target, type, tree.ratio, tree.levels)
    return _run(key, make, target, [d_c])


def _positions(tree: Tree, level: np.ndarray, index: np.ndarray) -> np.ndarray:
    first = np.array([tree.slice(l).start for l in range(tree.levels + 1)])
    return (first[level] + index).astype(np.int32)


def tree_fetch_backward(
    d_rows: Any, tree: Tree, level: Any, index: Any, *, target: str = "cpu"
) -> Any:
    """The gradient [B,n,F] of the nodes of a tree, from that of the rows of nodes
    (level, index), d_rows [B,r,F]."""
    tree = _check_tree(tree)
    level, index = _lists(tree, level, index)
    element, type = _describe(tree)
    batch, count = level.shape
    gradient = _gradient("d_rows", d_rows, element, (batch, count, tree.shape[2]))
    positions = _positions(tree, level, index)

    def make() -> str:
        writer = _Writer(tree, element)
        list = Tensor("position", "i32", (batch, count))
        rows, nodes = writer.widen(gradient), _nodes(tree)[1]
        kind, row = writer.type(nodes), tensor_type(writer.state, (1, 1, writer.width))
        # Rows are added one after the other: a node may be listed twice.
        for text in (
            f"%none = arith.constant dense<0.0> : {kind}",
            "%c0 = arith.constant 0 : index",
            "%c1 = arith.constant 1 : index",
            f"%batch = arith.constant {batch} : index",
            f"%count = arith.constant {count} : index",
            f"%added = scf.for %b = %c0 to %batch step %c1 iter_args(%outer = %none) -> ({kind}) {{",
            f"  %one = scf.for %j = %c0 to %count step %c1 iter_args(%to = %outer) -> ({kind}) {{",
            f"    %at = tensor.extract %position[%b, %j] : {list.type}",
            "    %x = arith.index_cast %at : i32 to index",
            f"    %old = tensor.extract_slice %to[%b, %x, 0] [1, 1, {writer.width}] [1, 1, 1] : {kind} to {row}",
            f"    %more = tensor.extract_slice {rows.name}[%b, %j, 0] [1, 1, {writer.width}] [1, 1, 1] : {rows.type} to {row}",
            f"    %sum = arith.addf %old, %more : {row}",
            f"    %next = tensor.insert_slice %sum into %to[%b, %x, 0] [1, 1, {writer.width}] [1, 1, 1] : {row} into {kind}",
            f"    scf.yield %next : {kind}",
            "  }",
            f"  scf.yield %one : {kind}",
            "}",
        ):
            writer.line(text)
        added = _Value("%added", kind, nodes)
        levels = [writer.level(added, l) for l in range(tree.levels + 1)]
        for l in range(tree.levels):
            levels[l + 1] = writer.add_children(levels[l + 1], levels[l])
        result = writer.pack_sums(levels)
        return writer.function("tree_fetch_backward", [gradient, list], result)

    key = ("tree_fetch_backward", target, type, tree.ratio, tree.levels, count)
    return _run(key, make, target, [d_rows, positions])


def tree_update_backward(
    d_tree: Any, tree: Tree, level: Any, index: Any, *, target: str = "cpu"
) -> tuple[Any, Any]:
    """The gradients [B,n,F] of the nodes of the tree before an update, and [B,r,F]
    of its new rows, from that of the nodes after it, d_tree [B,n,F]."""
    tree = _check_tree(tree)
    level, index = _lists(tree, level, index)
    # Tokens move by the difference of a node's new row and its old one.
    d_tokens = tree_build_backward(d_tree, tree, target=target)
    sums = tree_materialize_backward(d_tokens, tree, target=target)
    positions = _positions(tree, level, index)
    d_rows = np.take_along_axis(sums, positions[:, :, None], 1)
    d_rows = np.where((level == tree.levels)[:, :, None], d_rows, -d_rows)
    if tree.counts is not None:
        # Rows of nodes of padding alone are ignored.
        present = np.take_along_axis(tree.counts, positions, 1) > 0
        d_rows = np.where(present[:, :, None], d_rows, np.zeros_like(d_rows))
    d_old = tree_fetch_backward(d_rows, tree, level, index, target=target)
    return np.asarray(d_tree) - d_old, d_rows
