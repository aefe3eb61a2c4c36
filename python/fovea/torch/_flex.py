# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls of FlexAttention in graphs of Dynamo as `dense`: their functions are graphs, which functions of scores run.

`score_mod` is the function of the score, and `mask_mod` tells which entries there are in blocks that the mask lists as
partial. Those of blocks that it lists as full are all there, and of others none.
`flex_attention` is the function of PyTorch with gradients on CPUs, which PyTorch refuses.
"""

from __future__ import annotations

import functools
import operator
import types
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.fx import GraphModule, Node
from torch.nn.attention import flex_attention as flex

from .. import math
from .._entries import trace_entries
from .._trace import capture
from ._functions import dense
from ._graph_nodes import name_of, value_of

__all__ = ["flex_attention"]

FLEX = torch.ops.higher_order.flex_attention
#: Rows and columns of the block of a call without a mask.
_ONE_BLOCK = 1 << 30


def _clamp(x: Any, min: Any = None, max: Any = None) -> Any:
    x = x if min is None else math.maximum(x, min)
    return x if max is None else math.minimum(x, max)


def _to(x: Any, type: Any = None, **options: Any) -> Any:
    type = options.get("dtype", type)
    if not isinstance(type, torch.dtype):
        raise ValueError(f"found a conversion to {type}, needed one to a type")
    if type == torch.bool:
        return x != 0
    return x * 1.0 if type.is_floating_point else math.index(x)


#: By the names that `name_of` has.
_OPERATIONS: dict[str, Callable[..., Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv, "neg": operator.neg,
    "rsub": lambda x, y: y - x, "floordiv": operator.floordiv, "floor_divide": operator.floordiv, "mod": operator.mod,
    "remainder": operator.mod, "pow": operator.pow, "square": lambda x: x * x, "abs": abs, "getitem": operator.getitem,
    "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge, "eq": operator.eq, "ne": operator.ne,
    "less": operator.lt, "greater": operator.gt, "and": operator.and_, "or": operator.or_, "xor": operator.xor,
    "invert": operator.invert, "logical_not": operator.invert, "bitwise_not": operator.invert,
    "logical_and": operator.and_, "logical_or": operator.or_, "logical_xor": operator.xor, "bitwise_and": operator.and_,
    "bitwise_or": operator.or_, "bitwise_xor": operator.xor,
    "where": math.where, "maximum": math.maximum, "minimum": math.minimum, "clamp": _clamp, "tanh": math.tanh, "exp": math.exp,
    "log": math.log, "sqrt": math.sqrt, "sin": math.sin, "cos": math.cos, "floor": math.floor,
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)), "relu": lambda x: math.maximum(x, 0.0), "reciprocal": lambda x: 1 / x,
    "rsqrt": lambda x: 1 / math.sqrt(x), "to": _to, "float": lambda x: x * 1.0, "int": math.index, "long": math.index,
    "tensor": lambda x, **_: x,
}  # fmt: skip


class _Conditions:
    """A captured tensor of bool."""

    def __init__(self, tensor: Tensor):
        self.numbers = capture(tensor.to(torch.int8))

    def __getitem__(self, at: Any) -> Any:
        return self.numbers[at] != 0


def _as_operand(value: Any) -> Any:
    """What a function captures: tensors are read by the element."""
    if not isinstance(value, Tensor):
        return value
    if value.dim() == 0:
        return _as_operand(value.reshape(1))[0]
    return _Conditions(value) if value.dtype == torch.bool else capture(value)


def _is_true(node: Node) -> bool:
    """A condition that holds everywhere, as it is written where there is no `mask_mod`."""
    return name_of(node) == "new_ones" and node.kwargs.get("dtype") == torch.bool


def run_graph(function: GraphModule, arguments: Sequence[Any]) -> Any:
    """What a function is of numbers that are traced."""
    known: dict[Node, Any] = {}
    rest = iter(arguments)
    for node in function.graph.nodes:
        if node.op == "placeholder":
            known[node] = next(rest)
        elif node.op == "get_attr":
            known[node] = _as_operand(getattr(function, node.target))
        elif node.op == "output":
            return torch.fx.map_arg(node.args[0], known.__getitem__)
        elif _is_true(node):
            known[node] = True
        elif (operation := _OPERATIONS.get(name_of(node))) is None:
            raise ValueError(f"found {name_of(node) or node.target}, which functions of scores do not have")
        else:
            args, kwargs = torch.fx.map_arg((node.args, node.kwargs), known.__getitem__)
            known[node] = operation(*args, **kwargs)
    raise AssertionError("a graph without an output")


def _list_blocks(counts: Tensor, indices: Tensor) -> Tensor:
    """[B,H,rows,columns] of 1 where a block is one of those that its row lists, of which it counts the first ones."""
    listed = (torch.arange(indices.shape[-1], device=indices.device) < counts.unsqueeze(-1)).to(torch.int32)
    return torch.zeros_like(indices).scatter_reduce(-1, indices.long(), listed, "amax")


class FlexAttention(nn.Module):
    """A call of FlexAttention with its functions."""

    def __init__(self, score: GraphModule, mask: GraphModule):
        super().__init__()
        self.score, self.mask = score, mask

    def entries(
        self, query: Tensor, key: Tensor, lists: Sequence[Any], captures: Sequence[Any], mask_captures: Sequence[Any]
    ) -> tuple[Callable[..., Any], Callable[..., Any] | None]:
        """The functions of `dense`. FlexAttention counts queries from the first, `dense` from the last. `lists` are counts
        and indices of blocks, those of full ones, and the rows and columns of a block, or nothing for a call without a mask."""
        shift = key.shape[2] - query.shape[2]

        def from_first(i: Any) -> Any:
            return i if shift == 0 else i - int(shift)

        def score(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
            return run_graph(self.score, (s, b, h, from_first(i), j, *map(_as_operand, captures)))

        if not lists:
            return score, None
        # A number that is not known is fixed here.
        rows, columns = map(int, lists[4:])
        table = _list_blocks(*lists[:2])
        if lists[2] is not None:
            table = torch.maximum(table, 2 * _list_blocks(*lists[2:4]))
        many_entries, many_heads = table.shape[0] != 1, table.shape[1] != 1
        # With one index for both, of which kernels know the bounds within a tile, and few widths, for which they are compiled.
        width = 64
        while width < table.shape[3]:
            width *= 2
        table = nn.functional.pad(table, (0, width - table.shape[3])).flatten(2)

        def admit(b: Any, h: Any, i: Any, j: Any) -> Any:
            i = from_first(i)
            block = capture(table)[b if many_entries else 0, h if many_heads else 0, i // rows * width + j // columns]
            within = run_graph(self.mask, (b, h, i, j, *map(_as_operand, mask_captures)))
            return block > 0 if within is True else (block > 0) & ((block > 1) | within)

        return score, admit

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, scale: float, lists: Sequence[Any], captures: Sequence[Any],
        mask_captures: Sequence[Any],
    ) -> Tensor:  # fmt: skip
        key, value = (each.expand(query.shape[0], *each.shape[1:]) for each in (key, value))
        score, admit = self.entries(query, key, lists, captures, mask_captures)
        return dense(query, key, value, scale=scale, score=score, admit=admit)


class Flex(NamedTuple):
    """`node` is result 0 of a call of FlexAttention, and `module` computes it of these arguments."""

    node: Node
    module: FlexAttention
    arguments: tuple[Any, ...]


def _sample(value: Any) -> Any:
    """Something of the type and shape of a node; numbers that are not known are those of the example."""
    value = value_of(value)
    if isinstance(value, Tensor):
        return torch.empty([_sample(extent) for extent in value.shape], dtype=value.dtype, device="meta")
    return value.node.hint if isinstance(value, torch.SymInt) else value


def find_flex(node: Node) -> Flex:
    """A call of FlexAttention. ValueError tells why it stays."""
    query, key, value, score, mask, scale = node.args[:6]
    captures, mask_captures = node.args[7:9]
    owner = node.graph.owning_module
    score, within = (getattr(owner, str(each.target)) for each in (score, mask[-1]))
    if [each.args[1:] for each in node.users if name_of(each) == "getitem"] != [(0,)] or len(node.users) != 1:
        raise ValueError("its logsumexp is read")
    module = FlexAttention(score, within)
    is_whole = mask[-3] == mask[-2] == _ONE_BLOCK
    rest = () if is_whole else (*mask[2:6], *mask[-3:-1]), captures, mask_captures
    samples = torch.fx.map_arg((query, key, *rest), _sample)
    score, admit = module.entries(*samples)
    trace_entries(score, admit, None, samples[0], samples[1], None, None)
    (result,) = node.users
    return Flex(result, module, (query, key, value, scale, *rest))


# ----------------------------------------------------------------------------
# The function
# ----------------------------------------------------------------------------


def _call(query: Tensor, key: Tensor, value: Tensor, score: Any, blocks: Any, scale: float, options: Any) -> Tensor:
    return FLEX(query, key, value, score, blocks, scale, options)[0]


@functools.lru_cache(maxsize=256)
def _compiled(*codes: Any) -> Callable[..., Tensor]:
    """For functions of these codes: Dynamo compiles one code for so many cases alone, of which each function would be one."""
    function = types.FunctionType(_call.__code__.replace(co_name="flex_attention"), globals(), "flex_attention")
    return torch.compile(function, backend="fovea", options={"rest": "eager"}, fullgraph=True)


def _same(score: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
    return score


def flex_attention(
    query: Tensor, key: Tensor, value: Tensor, score_mod: Callable[..., Any] | None = None, block_mask: Any = None,
    scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """`torch.nn.attention.flex_attention.flex_attention` with gradients of tensors on CPUs, those that functions capture too.

    Queries are [B,H,N,D], keys [B,G,M,D], values [B,G,M,E], the result is [B,H,N,E].
    `score_mod(score, b, h, q, kv)` and the `mask_mod(b, h, q, kv)` of `create_block_mask` compute
    with operators and functions of PyTorch that docs/Scores.md has, too.  In a model that is
    compiled, the backend has to be "fovea".
    """
    for name, each in (("query", query), ("key", key), ("value", value)):
        if each.dim() != 4:
            raise ValueError(f"{name}: found {each.dim()} dimensions, needed 4")
    if query.shape[1] != key.shape[1] and not enable_gqa:
        raise ValueError(f"key: found {key.shape[1]} heads beside {query.shape[1]} of query, needed enable_gqa=True, or as many")
    lengths = query.shape[2], key.shape[2]
    if block_mask is not None and block_mask.shape[-2:] != lengths:
        raise ValueError(f"block_mask: found one for {block_mask.shape[-2:]} queries and keys, needed one for {lengths}")
    blocks = flex._create_empty_block_mask(query, key) if block_mask is None else block_mask
    options = flex._apply_kernel_options(query, key, value, False, None)
    if torch.compiler.is_dynamo_compiling():
        call: Callable[..., Tensor] = _call
    else:
        codes: list[Any] = [getattr(each, "__code__", type(each)) for each in (score_mod, blocks.mask_mod)]
        call = _compiled(*codes)
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    return call(query, key, value, score_mod or _same, blocks.as_tuple(), scale, options)
