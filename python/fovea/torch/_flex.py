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
import math as std_math
import operator
import types
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch._dynamo._trace_wrapped_higher_order_op import ModIndex
from torch.fx import GraphModule, Node
from torch.nn.attention import flex_attention as flex

from .. import math
from .._entries import trace_entries
from .._trace import capture
from ._functions import dense
from ._graph_nodes import name_of, value_of
from ._tape import check_tensor

__all__ = ["flex_attention"]

FLEX = torch.ops.higher_order.flex_attention
#: Rows and columns of the block of a call without a mask.
_ONE_BLOCK = 1 << 30
_LN_2 = std_math.log(2)
#: What exported functions apply where they read an element.
_INDEXING = f"{ModIndex.__module__}.{ModIndex.__qualname__}"


def _clamp(x: Any, min: Any = None, max: Any = None) -> Any:
    x = x if min is None else math.maximum(x, min)
    return x if max is None else math.minimum(x, max)


def _to(x: Any, type: Any = None, **options: Any) -> Any:
    type = options.get("dtype", type)
    # Numbers of a function are where its kernel is.
    if isinstance(type, (str, torch.device)) or (type is None and "device" in options):
        return x
    if not isinstance(type, torch.dtype):
        raise ValueError(f"found a conversion to {type}, needed one to a type")
    if type == torch.bool:
        return x if getattr(x, "kind", None) == "bool" else x != 0
    return x * 1.0 if type.is_floating_point else math.index(x)


def _read(array: Any, at: Sequence[Any]) -> Any:
    return array[tuple(at) if len(at) > 1 else at[0]]


def _filled(number: int) -> Callable[..., Any]:
    """A tensor of no dimensions, as masks that are joined begin with."""

    def make(x: Any, size: Sequence[int] = (), dtype: torch.dtype | None = None, **_: Any) -> Any:
        if len(size) or (dtype is None and number):
            raise ValueError(f"found a tensor of equal numbers, of shape {tuple(size)} and type {dtype}, needed no dimensions, and a type")
        return number if dtype != torch.bool else ~(x < x) if number else x < x

    return make


#: By the names that `_operation_of` has.
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
    "tensor": lambda x, **_: x, "scalar_tensor": lambda x, **_: x, "to_copy": _to,
    "new_ones": _filled(1), "new_zeros": _filled(0),
    "index": _read,
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


def _operation_of(node: Node) -> str:
    """As graphs of Dynamo call it; exported ones have operators of ATen."""
    if isinstance(node.target, torch._ops.OpOverload):
        return node.target._schema.name.removeprefix("aten::").strip("_")
    return name_of(node)


def _is_true(node: Node) -> bool:
    return _operation_of(node) == "new_ones" and node.kwargs.get("dtype") == torch.bool


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
        elif node.target is torch.ops.higher_order.flat_apply and node.args[2] == _INDEXING:
            array, *at = torch.fx.map_arg(node.args[3:], known.__getitem__)
            known[node] = _read(array, at)
        elif (operation := _OPERATIONS.get(_operation_of(node))) is None:
            raise ValueError(f"found {_operation_of(node) or node.target}, which functions of scores do not have")
        else:
            args, kwargs = torch.fx.map_arg((node.args, node.kwargs), known.__getitem__)
            known[node] = operation(*args, **kwargs)
    raise AssertionError("a graph without an output")


def _list_blocks(counts: Tensor, indices: Tensor) -> Tensor:
    """[B,H,rows,columns] of 1 where a block is one of those that its row lists, of which it counts the first ones."""
    listed = (torch.arange(indices.shape[-1], device=indices.device) < counts.unsqueeze(-1)).to(torch.int32)
    return torch.zeros_like(indices).scatter_reduce(-1, indices.long(), listed, "amax")


class FlexAttention(nn.Module):
    """A call of FlexAttention with its functions: a tuple of its result and, where that is read, the logarithm to base 2
    of the sum, which `flex_attention` of PyTorch multiplies by that of 2."""

    def __init__(self, score: GraphModule, mask: GraphModule, has_lse: bool):
        super().__init__()
        self.score, self.mask, self.has_lse = score, mask, has_lse

    def admits_all(self) -> bool:
        """Whether the function of the mask holds everywhere, as it is written where there is none."""
        (output,) = self.mask.graph.find_nodes(op="output")
        return _is_true(output.args[0])

    def entries(
        self, query: Tensor, key: Tensor, lists: Sequence[Any], captures: Sequence[Any], mask_captures: Sequence[Any]
    ) -> tuple[Callable[..., Any], Callable[..., Any] | None]:
        """The functions of `dense`. FlexAttention counts queries from the first, `dense` from the last. `lists` are counts
        and indices of blocks, those of full ones, and the rows and columns of a block, or nothing where the function says all."""
        shift = key.shape[2] - query.shape[2]

        def from_first(i: Any) -> Any:
            return i if shift == 0 else i - int(shift)

        def score(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
            return run_graph(self.score, (s, b, h, from_first(i), j, *map(_as_operand, captures)))

        def within(b: Any, h: Any, i: Any, j: Any) -> Any:
            return run_graph(self.mask, (b, h, from_first(i), j, *map(_as_operand, mask_captures)))

        if not lists:
            return score, None if self.admits_all() else within
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
            at = from_first(i) // rows * width + j // columns
            block = capture(table)[b if many_entries else 0, h if many_heads else 0, at]
            return block > 0 if self.admits_all() else (block > 0) & ((block > 1) | within(b, h, i, j))

        return score, admit

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, scale: float, lists: Sequence[Any], captures: Sequence[Any],
        mask_captures: Sequence[Any],
    ) -> tuple[Tensor, ...]:  # fmt: skip
        key, value = (each.expand(query.shape[0], *each.shape[1:]) for each in (key, value))
        score, admit = self.entries(query, key, lists, captures, mask_captures)
        if not self.has_lse:
            return (dense(query, key, value, scale=scale, score=score, admit=admit),)
        out, lse = dense(query, key, value, scale=scale, score=score, admit=admit, return_lse=True)
        return out, lse / _LN_2


class Flex(NamedTuple):
    """`node` is a call of FlexAttention, and `module` computes its results of these arguments."""

    node: Node
    module: FlexAttention
    arguments: tuple[Any, ...]


def read_flex(node: Node, reads_lists: bool) -> Flex:
    """A call of FlexAttention. ValueError tells why it stays."""
    query, key, value, _, mask, scale, options = node.args[:7]
    score, within = (getattr(node.graph.owning_module, str(each.target)) for each in (node.args[3], mask[-1]))
    users = [each for each in node.users if each.users or name_of(each) != "getitem"]
    read = {each.args[1] if name_of(each) == "getitem" else None for each in users}
    if 2 in read:
        raise ValueError("its greatest scores are read")
    if not read <= {0, 1}:
        raise ValueError("its results are read together")
    # Of which the logarithm has another base.
    if 1 in read and options.get("BACKEND") == "FLASH":
        raise ValueError("found the logsumexp of the backend FLASH, needed that of another")
    module = FlexAttention(score, within, 1 in read)
    is_whole = mask[-3] == mask[-2] == _ONE_BLOCK
    if not reads_lists and not is_whole and module.admits_all():
        raise ValueError("found lists of blocks alone, which PyTorch reads in compiled models only, needed a mask_mod that says the same")
    lists = (*mask[2:6], *mask[-3:-1]) if reads_lists and not is_whole else ()
    return Flex(node, module, (query, key, value, scale, lists, *node.args[7:9]))


def _sample(value: Any) -> Any:
    """Something of the type and shape of a node; numbers that are not known are those of the example."""
    value = value_of(value)
    if isinstance(value, Tensor):
        return torch.empty([_sample(extent) for extent in value.shape], dtype=value.dtype, device="meta")
    return value.node.hint if isinstance(value, torch.SymInt) else value


def find_flex(node: Node) -> Flex:
    """A call of FlexAttention in a graph of Dynamo, whose functions are known to `dense`. ValueError tells why it stays."""
    found = read_flex(node, reads_lists=True)
    query, key, *rest = torch.fx.map_arg((*found.arguments[:2], *found.arguments[4:]), _sample)
    trace_entries(*found.module.entries(query, key, *rest), None, query, key, None, None)
    return found


# ----------------------------------------------------------------------------
# The function
# ----------------------------------------------------------------------------


def _call(
    query: Tensor, key: Tensor, value: Tensor, score: Any, blocks: Any, scale: float, options: Any, has_lse: bool
) -> tuple[Tensor, Tensor | None]:
    out, lse, _ = FLEX(query, key, value, score, blocks, scale, options)
    return out, lse * _LN_2 if has_lse else None


#: As many as Dynamo ever compiles of one code.
_CASES = torch._dynamo.config.accumulated_recompile_limit


@functools.lru_cache(maxsize=256)
def _compiled(*codes: Any) -> Callable[..., tuple[Tensor, Tensor | None]]:
    """For functions of these codes: Dynamo compiles one code for so many cases alone, of which each function would be one. Types,
    heads, widths and who requires a gradient are others, of which a process may have more than the 8 that it allows else."""
    function = types.FunctionType(_call.__code__.replace(co_name="flex_attention"), globals(), "flex_attention")
    return torch.compile(function, backend="fovea", options={"rest": "eager"}, fullgraph=True, recompile_limit=_CASES)


def _same(score: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
    return score


def flex_attention(
    query: Tensor, key: Tensor, value: Tensor, score_mod: Callable[..., Any] | None = None, block_mask: Any = None,
    scale: float | None = None, enable_gqa: bool = False, return_lse: bool = False, *, return_aux: flex.AuxRequest | None = None,
) -> Any:  # fmt: skip
    """`torch.nn.attention.flex_attention.flex_attention` with gradients of tensors on CPUs, those that functions capture too.

    Queries are [B,H,N,D], keys [B,G,M,D], values [B,G,M,E], the result is [B,H,N,E].
    `score_mod(score, b, h, q, kv)` and the `mask_mod(b, h, q, kv)` of `create_block_mask` compute
    with operators and functions of PyTorch that docs/Scores.md has, too.  With `return_lse`, or
    `return_aux=AuxRequest(lse=True)`, the logarithm of the sum [B,H,N] follows.  In a model that
    is compiled, the backend has to be "fovea".
    """
    for name, each in (("query", query), ("key", key), ("value", value)):
        check_tensor(name, each)
        if each.dim() != 4:
            raise ValueError(f"{name}: found {each.dim()} dimensions, needed 4")
        if each.dtype != query.dtype:
            raise ValueError(f"{name}: found {each.dtype}, needed {query.dtype}, that of query")
        if each.shape[0] not in (1, query.shape[0]):
            raise ValueError(f"{name}: found batch {each.shape[0]}, needed {query.shape[0]}")
    for name, each, axis, found, needed in (
        ("key", key, 3, "width", query.shape[3]), ("value", value, 2, "length", key.shape[2]), ("value", value, 1, "heads", key.shape[1]),
    ):  # fmt: skip
        if each.shape[axis] != needed:
            raise ValueError(f"{name}: found {found} {each.shape[axis]}, needed {needed}")
    if query.shape[1] != key.shape[1] and not enable_gqa:
        raise ValueError(f"key: found {key.shape[1]} heads beside {query.shape[1]} of query, needed enable_gqa=True, or as many")
    lengths = query.shape[2], key.shape[2]
    if block_mask is not None and block_mask.shape[-2:] != lengths:
        raise ValueError(f"block_mask: found one for {block_mask.shape[-2:]} queries and keys, needed one for {lengths}")
    if return_lse and return_aux is not None:
        raise ValueError("return_lse: found it beside return_aux, needed one of them")
    if return_aux is not None and return_aux.max_scores:
        raise ValueError("return_aux: found max_scores=True, needed lse alone")
    # Whole programs have no gradients.
    if torch.compiler.is_exporting():
        return flex.flex_attention(query, key, value, score_mod, block_mask, scale, enable_gqa, return_lse, return_aux=return_aux)
    blocks = flex._create_empty_block_mask(query, key) if block_mask is None else block_mask
    options = flex._apply_kernel_options(query, key, value, False, None)
    if torch.compiler.is_dynamo_compiling():
        call: Callable[..., tuple[Tensor, Tensor | None]] = _call
    else:
        codes: list[Any] = [getattr(each, "__code__", type(each)) for each in (score_mod, blocks.mask_mod)]
        call = _compiled(*codes)
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    has_lse = return_lse or (return_aux is not None and return_aux.lse)
    out, lse = call(query, key, value, score_mod or _same, blocks.as_tuple(), scale, options, has_lse)
    if return_aux is not None:
        return out, flex.AuxOutput(lse=lse)
    return (out, lse) if return_lse else out
