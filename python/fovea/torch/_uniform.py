# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tensors of one number in graphs of torch.export, computed by PyTorch.

torch-mlir computes them, too, and wrong: comparisons of floating-point numbers with integers, sums with negative
integers, remainders.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

__all__ = ["fold_uniform"]

aten = torch.ops.aten

#: Operations without tensors of numbers as operands, or whose result does not depend on these: where the number is.
_FULL = {aten.full.default: 1, aten.full_like.default: 1, aten.new_full.default: 2}
_NUMBERS = {
    aten.ones.default: 1, aten.ones_like.default: 1, aten.new_ones.default: 1, aten.zeros.default: 0, aten.zeros_like.default: 0,
    aten.new_zeros.default: 0,
}  # fmt: skip
#: Their results are their first inputs, in other shapes.
_MOVES = (
    aten.clone.default, aten.expand.default, aten.permute.default, aten.reshape.default, aten.select.int, aten.slice.Tensor,
    aten.squeeze.default, aten.squeeze.dim, aten.transpose.int, aten.unsqueeze.default, aten.view.default,
)  # fmt: skip


def _evaluate(node: Node, known: dict[Node, Tensor]) -> Tensor | None:
    """The number that all elements are, in as many dimensions, each of extent 1: types follow from how many there are."""
    result, target = node.meta.get("val"), node.target
    if not isinstance(result, Tensor) or not all(isinstance(extent, int) for extent in result.shape):
        return None
    if target in _FULL or target in _NUMBERS:
        number = node.args[_FULL[target]] if target in _FULL else _NUMBERS[target]
        return torch.full((1,) * result.dim(), number, dtype=result.dtype) if isinstance(number, (bool, int, float)) else None
    if target in _MOVES:
        source = known.get(node.args[0])
        return None if source is None else source.reshape((1,) * result.dim())
    if not isinstance(target, torch._ops.OpOverload) or torch.Tag.pointwise not in target.tags:
        return None
    if torch.Tag.nondeterministic_seeded in target.tags or not all(each in known for each in node.all_input_nodes):
        return None
    args, kwargs = torch.fx.node.map_arg((node.args, dict(node.kwargs)), lambda each: known[each])
    found = target(*args, **kwargs)
    is_right = isinstance(found, Tensor) and found.dtype == result.dtype and found.dim() == result.dim() and not found.is_complex()
    return found if is_right else None


def fold_uniform(module: GraphModule) -> None:
    """Writes what is computed of tensors of one number as such a tensor."""
    known: dict[Node, Tensor] = {}
    for node in list(module.graph.nodes):
        if node.op != "call_function":
            continue
        number = _evaluate(node, known)
        if number is None:
            continue
        known[node] = number
        if node.target in _FULL or node.target in _NUMBERS or node.target in _MOVES:
            continue
        with module.graph.inserting_before(node):
            new = module.graph.call_function(aten.full.default, (list(node.meta["val"].shape), number.item()), {"dtype": number.dtype})
        new.meta.update(node.meta)
        node.replace_all_uses_with(new)
        known[new] = number
    module.graph.eliminate_dead_code()
    module.recompile()
