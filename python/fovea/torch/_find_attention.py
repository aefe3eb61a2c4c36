# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds attention in graphs of PyTorch: calls of it, and products with a soft-max between.

A match starts at a product whose first factor are the weights of a soft-max, and walks from
there to the product of queries and keys.  It changes nothing; who asks gets all of an
attention or the reason why there is none.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch.fx import Graph, Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from ._flex import FLEX, Flex, find_flex
from ._graph_nodes import is_writer, name_of, shape_of, value_of, writers_between, writers_of

__all__ = ["Attention", "Multihead", "NoAttention", "Term", "find_attention"]

CALL = "scaled_dot_product_attention"
MULTIHEAD = "multi_head_attention_forward"

_CASTS = frozenset(["bfloat16", "contiguous", "double", "float", "half", "to", "type", "type_as"])
_PRODUCTS = frozenset(["__matmul__", "bmm", "matmul"])


class NoAttention(Exception):
    """Why what a product reads is not the attention that Fovea has."""


class Term(NamedTuple):
    """Numbers that are added to scores, or where `low` is not None a mask: it is added to
    the scores where `node` is false, or true if `is_hiding`."""

    node: Node
    factor: float = 1.0
    low: float | None = None
    is_hiding: bool = False
    #: Of scores [B * H, N, M], where others are [B, H, N, M].
    is_flat: bool = False


class Multihead(NamedTuple):
    """`node` computes torch.nn.functional.multi_head_attention_forward, with these arguments."""

    node: Node
    arguments: dict[str, Any]


@dataclass
class Attention:
    """`node` computes soft-max(cap(scale query key^T) + terms) value."""

    node: Node
    query: Node
    key: Node
    value: Node
    scale: float | None = None
    #: Numbers that a call may change and by which scores are multiplied, or divided, too.
    factors: list[tuple[Node, bool]] = field(default_factory=list)
    terms: list[Term] = field(default_factory=list)
    sink: Node | None = None
    #: The limit of a hyperbolic tangent that scores go through.
    soft_cap: float | None = None
    #: `key` is [..., D, M].
    is_transposed: bool = False
    #: As PyTorch has it: query i reads keys up to i.
    is_causal: bool = False
    #: [B * H, N, D] where scores are [B, H, N, M].
    heads: int | None = None
    #: What makes the weights.
    softmax: Node | None = None


def _argument(node: Node, position: int, name: str, default: Any = None) -> Any:
    return node.args[position] if len(node.args) > position else node.kwargs.get(name, default)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_last(axis: Any, rank: int) -> bool:
    return axis in (-1, rank - 1)


def _number(value: Any) -> float | None:
    """A number, also as a tensor that was filled with it."""
    if _is_number(value):
        return float(value)
    if name_of(value) == "zeros" and shape_of(value) == () and not writers_of(value):
        return 0.0
    if name_of(value) in ("full", "full_like", "new_full", "scalar_tensor", "tensor") and not writers_of(value):
        found = _argument(value, 0 if name_of(value) in ("scalar_tensor", "tensor") else 1, "fill_value")
        found = _argument(value, 2, "fill_value") if name_of(value) == "new_full" else found
        return float(found) if _is_number(found) else None
    return None


def _is_scalar(value: Any) -> bool:
    """A number, known or not."""
    if _number(value) is not None:
        return True
    known = value_of(value)
    if isinstance(known, torch.Tensor):
        return known.dim() == 0 and known.dtype.is_floating_point
    return isinstance(known, (torch.SymFloat, torch.SymInt))


def _is_low(value: float, node: Node) -> bool:
    return value <= -1e9 or value <= torch.finfo(value_of(node).dtype).min


# ----------------------------------------------------------------------------
# From the product of weights and values to the soft-max
# ----------------------------------------------------------------------------


def _is_active_dropout(node: Node) -> bool:
    is_training = _argument(node, 2, "training", True)
    return is_training is not False and _argument(node, 1, "p", 0.5) != 0


def _drops_last(node: Node) -> bool:
    """x[..., :-1]"""
    index = node.args[1]
    index = index if isinstance(index, tuple) else (index,)
    whole = (Ellipsis, slice(None), slice(None, None, None))
    return index[-1] == slice(None, -1, None) and all(each in whole for each in index[:-1])


def _keeps_matrix(node: Node, other: Node) -> bool:
    """A reshape of what is before the last two axes."""
    return len(shape_of(node)) >= 2 and shape_of(node)[-2:] == shape_of(other)[-2:]


def find_softmax(product: Node) -> tuple[Node, bool] | None:
    """The soft-max whose weights a product reads, and whether their last column is dropped."""
    if name_of(product) not in _PRODUCTS or len(product.args) < 2 or is_writer(product):
        return None
    node, is_dropped = product.args[0], False
    while isinstance(node, Node) and node.args:
        name = name_of(node)
        if name == "softmax":
            return node, is_dropped
        if name == "getitem" and not is_dropped and isinstance(node.args[0], Node) and shape_of(node.args[0]) and _drops_last(node):
            is_dropped = True
        elif name in ("view", "reshape"):
            if not _keeps_matrix(node, node.args[0]):
                return None
        elif name not in _CASTS and name != "dropout":
            return None
        node = node.args[0]
    return None


def _check_weights(product: Node, softmax: Node) -> None:
    node = product.args[0]
    while node is not softmax:
        if name_of(node) == "dropout" and _is_active_dropout(node):
            raise NoAttention("weights are dropped out")
        node = node.args[0]


# ----------------------------------------------------------------------------
# From the soft-max to the product of queries and keys
# ----------------------------------------------------------------------------


class _Scores:
    """Walks to the product, and notes what it passes."""

    def __init__(self, has_sink: bool, shape: tuple[Any, ...] = ()):
        self.scale = 1.0
        self.factors: list[tuple[Node, bool]] = []
        self.terms: list[Term] = []
        self.sink: Node | None = None
        self.soft_cap: float | None = None
        # The shape of scores here, and their heads, each time that they are [B, H, N, M].
        self.shape, self.heads = shape, [*shape[1:-2]]
        self.passed: list[Node] = []
        self._has_sink = has_sink

    def read(self, node: Any, step: Node) -> Node:
        """The product of queries and keys, from `node`, which `step` reads."""
        while True:
            if not isinstance(node, Node) or not node.args:
                raise NoAttention("scores are no product of queries and keys")
            # What is written to scores is there without naming its result.
            writers = [*writers_between(node, step, node)]
            if writers and writers[-1].args[:1] != (node,):
                raise NoAttention(f"{node.name} is written to in place")
            node = writers[-1] if writers else node
            self.passed.append(node)
            step, name = node, name_of(node)
            if name == "baddbmm" or (name in _PRODUCTS and len(node.args) == 2):
                self._check_sink()
                return node
            reader = getattr(self, f"_read_{name.rstrip('_')}", None)
            if name in _CASTS:
                node = node.args[0]
            elif reader is None:
                raise NoAttention(f"scores go through {name or node.op}, which no kernel has here")
            else:
                node = reader(node)

    def _check_sink(self) -> None:
        if self._has_sink and self.sink is None:
            raise NoAttention("the last column of weights is dropped, but it is not that of a sink")

    def _why_no_product(self, node: Any, step: Node) -> str | None:
        """None if what this class reads leads from there to the product; without a note."""
        other = _Scores(self._has_sink and self.sink is None)
        try:
            other.read(node, step)
        except NoAttention as reason:
            return str(reason)
        return None

    def _read_mul(self, node: Node) -> Any:
        first, second = node.args[:2]
        if not _is_scalar(second):
            first, second = second, first
        self._multiply(second, False)
        return first

    def _read_div(self, node: Node) -> Any:
        self._multiply(None if "rounding_mode" in node.kwargs else node.args[1], True)
        return node.args[0]

    def _multiply(self, factor: Any, is_divisor: bool) -> None:
        if not _is_scalar(factor):
            raise NoAttention("scores are multiplied or divided by a tensor")
        number = _number(factor)
        if number is None:
            self.factors.append((factor, is_divisor))
        else:
            self.scale *= 1 / number if is_divisor else number

    def _read_tanh(self, node: Node) -> Any:
        if self.factors:
            raise NoAttention("scores are limited by a number that a call may change")
        self._check_cap()
        if not self.scale or not math.isfinite(self.scale):
            raise NoAttention(f"scores are limited by {self.scale}")
        self.soft_cap, self.scale = self.scale, 1.0
        return node.args[0]

    def _check_cap(self) -> None:
        """What is added comes behind a soft-cap, and there is one at most."""
        if self.soft_cap is not None:
            raise NoAttention("scores are changed otherwise than by a factor before a soft-cap")

    def _read_add(self, node: Node) -> Any:
        first, second = node.args[:2]
        if "alpha" in node.kwargs:
            raise NoAttention("scores are added to with a factor")
        reasons = []
        for scores, term in ((first, second), (second, first)):
            reason = self._why_no_product(scores, node)
            if reason is None:
                self._add(term, self.scale)
                return scores
            reasons.append(reason)
        raise NoAttention(reasons[0])

    def _read_sub(self, node: Node) -> Any:
        scores, term = node.args[:2]
        if "alpha" in node.kwargs:
            raise NoAttention("scores are added to with a factor")
        self._check_cap()
        # A soft-max does not see what is subtracted from a whole row, such as its maximum.
        is_row = _is_number(term) or shape_of(term)[-1:] in ((), (1,))
        if not is_row or (self.sink is not None):
            self._add(term, -self.scale)
        return scores

    def _add(self, term: Any, factor: float) -> None:
        self._check_cap()
        if isinstance(term, Node) and shape_of(term)[-1:] not in ((), (1,)):
            if self.factors:
                raise NoAttention("scores and a bias are multiplied by a number that a call may change")
            read = _read_mask(term, factor) or Term(term, factor)
            self.terms.append(read._replace(is_flat=len(self.shape) == 3))
        elif self._has_sink:
            raise NoAttention("something is added to whole rows of scores beside a sink")

    def _hide(self, node: Node, mask: Any, low: Any, is_hiding: bool) -> None:
        self._check_cap()
        number = None if self.factors else _number(low)
        if number is None or not _is_low(self.scale * number, node):
            raise NoAttention("scores are replaced by numbers that may count")
        if not isinstance(mask, Node) or value_of(mask).dtype != torch.bool:
            raise NoAttention("a mask of scores is not boolean")
        self.terms.append(Term(mask, low=self.scale * number, is_hiding=is_hiding, is_flat=len(self.shape) == 3))

    def _read_masked_fill(self, node: Node) -> Any:
        scores, mask, low = node.args[:3]
        self._hide(node, mask, low, True)
        return scores

    def _read_where(self, node: Node) -> Any:
        mask, first, second = node.args[:3]
        if _number(second) is not None:
            self._hide(node, mask, second, False)
            return first
        self._hide(node, mask, first, True)
        return second

    def _read_view(self, node: Node) -> Any:
        if not _keeps_matrix(node, node.args[0]):
            raise NoAttention("scores are reshaped along queries and keys")
        self.shape = shape_of(node.args[0])
        self.heads += self.shape[1:-2]
        return node.args[0]

    _read_reshape = _read_view

    def _read_cat(self, node: Node) -> Any:
        parts, axis = node.args[0], _argument(node, 1, "dim", 0)
        if not self._has_sink or self.sink is not None or not _is_last(axis, len(shape_of(node))) or len(parts) != 2:
            raise NoAttention("scores are joined with others")
        scores, sink = parts
        self._check_cap()
        if self.scale != 1 or self.factors or self.terms or shape_of(sink)[-1] != 1:
            raise NoAttention("scores are joined with others than a sink")
        self.sink = _one_per_head(sink, shape_of(node)[1])
        return scores


def _read_mask(node: Node, factor: float) -> Term | None:
    """A sum with 0 or a number that hides, chosen by a boolean tensor."""
    if name_of(node) != "where" or len(node.args) < 3 or writers_of(node) or any(map(writers_of, node.all_input_nodes)):
        return None
    mask, *chosen = node.args
    first, second = map(_number, chosen)
    if first is None or second is None or 0 not in (first, second) or shape_of(mask) != shape_of(node):
        return None
    low = factor * (first or second)
    return Term(mask, low=low, is_hiding=second == 0) if _is_low(low, node) else None


def _one_per_head(node: Any, heads: int) -> Node:
    """[H], of which `node` [B,H,N,1] is made."""
    while isinstance(node, Node):
        if shape_of(node) == (heads,) and not writers_of(node):
            return node
        if name_of(node) not in ("expand", "reshape", "to", "unsqueeze", "view"):
            break
        node = node.args[0]
    raise NoAttention("a sink differs from row to row")


# ----------------------------------------------------------------------------
# All of it
# ----------------------------------------------------------------------------


def _without_repeats(node: Node, heads: int, reader: Node) -> Node:
    """Keys or values before they were repeated for all queries' heads of a group, which `reader` reads then."""
    if name_of(node) == "repeat_interleave" and _argument(node, 2, "dim") in (1, -3):
        return node if any(writers_between(node, reader, node.args[0])) else node.args[0]
    if name_of(node) not in ("reshape", "view"):
        return node
    wide = node.args[0]
    if name_of(wide) != "expand" or name_of(wide.args[0]) not in ("getitem", "unsqueeze"):
        return node
    narrow = wide.args[0].args[0]
    before, between, after = shape_of(narrow), shape_of(wide), shape_of(node)
    is_repeated = (
        len(before) == 4
        and len(after) == 4
        and len(between) == 5
        and shape_of(wide.args[0]) == (*before[:2], 1, *before[2:])
        and between[:2] + between[3:] == before
        and after == (before[0], heads, *before[2:])
        and not any(writers_between(wide, reader, narrow))
    )
    return narrow if is_repeated else node


def _check_operands(found: Attention) -> None:
    query, key, value = (value_of(each) for each in (found.query, found.key, found.value))
    if not all(isinstance(each, torch.Tensor) for each in (query, key, value)):
        raise NoAttention("queries, keys or values are no tensors")
    if any(each.device.type != "cpu" for each in (query, key, value)):
        raise NoAttention(f"found tensors on {query.device.type}, needed tensors on the CPU")
    types = {each.dtype for each in (query, key, value)}
    if len(types) > 1 or not query.dtype.is_floating_point or query.dtype.itemsize == 1:
        raise NoAttention(f"found types {', '.join(sorted(map(str, types)))}, needed one floating-point type")
    if len({each.dim() for each in (query, key, value)}) > 1 or query.dim() not in (3, 4):
        raise NoAttention(f"found queries of rank {query.dim()}, needed [B,H,N,D] or [B,N,D], and keys and values alike")
    if any(statically_known_true(size == 0) for each in (query, key, value) for size in each.shape):
        raise NoAttention("found a tensor without elements")


def _find_heads(scores: _Scores, query: tuple[Any, ...]) -> int | None:
    """Those of queries [B * H, N, D], whose scores are [B, H, N, M] somewhere."""
    heads = scores.heads[0] if scores.heads else None
    is_flat = len(query) == 3 and heads is not None
    is_split = is_flat or (heads is not None and any(term.is_flat for term in scores.terms))
    if (
        len(scores.shape) != len(query)
        or any(each != heads for each in scores.heads)
        or (is_split and not isinstance(heads, int))
        or (len(query) == 4 and heads != query[1])
    ):
        raise NoAttention("scores are reshaped otherwise than to heads")
    return heads if is_flat else None


def _check_batches(found: Attention, result: tuple[Any, ...], is_grouped: bool = False) -> None:
    """One batch, which is that of the result, and heads of keys for each of queries, all of them, or a group."""
    queries, keys, values = (shape_of(each)[:-2] for each in (found.query, found.key, found.value))
    is_shared = len(queries) == 2 and keys[0] == queries[0] and (is_grouped or keys[1] == 1)
    # A bias may make more of them.
    is_wider = math.prod(result[:-2]) != math.prod(queries)
    if keys != values or is_wider or not (keys == queries or is_shared):
        raise NoAttention("queries, keys and values differ in their batch or heads")


def _find_in_products(product: Node) -> Attention | None:
    reads = find_softmax(product)
    if reads is None:
        return None
    softmax, is_dropped = reads
    if not _is_last(_argument(softmax, 1, "dim"), len(shape_of(softmax))):
        raise NoAttention("the soft-max is not over the axis of keys")
    _check_weights(product, softmax)
    scores = _Scores(is_dropped, shape_of(softmax))
    inner = scores.read(softmax.args[0], softmax)
    if name_of(inner) != "baddbmm":
        query, key = inner.args[:2]
    else:
        start, query, key = inner.args[0], _argument(inner, 1, "batch1"), _argument(inner, 2, "batch2")
        beta, alpha = inner.kwargs.get("beta", 1), inner.kwargs.get("alpha", 1)
        if not (_is_number(beta) and _is_number(alpha)):
            raise NoAttention("scores are multiplied by a number that a call may change")
        if beta != 0:
            scores._add(start, scores.scale * beta)
        scores.scale *= alpha
    value = product.args[1]
    # The function of `dense` divides by the limit.
    scale = scores.scale * (1 if scores.soft_cap is None else scores.soft_cap)
    found = Attention(
        product, query, key, value, scale, scores.factors, scores.terms, scores.sink, scores.soft_cap, is_transposed=True, softmax=softmax,
    )  # fmt: skip
    _check_operands(found)
    found.heads = _find_heads(scores, shape_of(query))
    if found.heads is None and len(shape_of(query)) == 3:
        found.terms = [term._replace(is_flat=False) for term in found.terms]
    if found.sink is not None and not scores.heads:
        raise NoAttention("a sink, but no heads")
    _check_batches(found, shape_of(softmax))
    _check_writes(scores.passed, product)
    return found


def _check_writes(scores: Sequence[Node], product: Node) -> None:
    """What the attention reads is, where its last product is, what it was; steps of scores may write to them."""
    weights = [product.args[0]]
    while weights[-1] not in scores:
        weights.append(weights[-1].args[0])
    steps = {*scores, *weights}
    for writer in writers_between(scores[-1], product):
        if writer in steps and "out" not in writer.kwargs:
            continue
        written = [each.name for each in (*scores, *weights) if writer in writers_of(each)]
        if written:
            raise NoAttention(f"{written[0]} is written to in place")
        raise NoAttention(f"{writer.name} writes to a tensor between the products")


def _find_call(node: Node) -> Attention:
    query, key, value = (_argument(node, *each) for each in ((0, "query"), (1, "key"), (2, "value")))
    dropout = _argument(node, 4, "dropout_p", 0.0)
    if not _is_number(dropout) or dropout != 0:
        raise NoAttention(f"dropout_p: found {dropout}, needed 0")
    mask, scale, factors, terms = _argument(node, 3, "attn_mask"), node.kwargs.get("scale"), [], []
    if isinstance(scale, Node):
        scale, factors = 1.0, [(scale, False)]
    if mask is not None:
        is_boolean = value_of(mask).dtype == torch.bool
        terms = [Term(mask, low=-math.inf if is_boolean else None)]
    found = Attention(
        node, query, key, value, scale, factors, terms, is_causal=_argument(node, 5, "is_causal", False)
    )
    _check_operands(found)
    N, M = shape_of(query)[-2], shape_of(key)[-2]
    if found.is_causal and not statically_known_true(N <= M):
        raise NoAttention(f"is_causal: found {N} queries and {M} keys, needed as many keys at least")
    _check_batches(found, shape_of(node), node.kwargs.get("enable_gqa", False))
    return found


def _untransposed(key: Node) -> Node | None:
    """Keys [..., M, D], where `key` is their transpose."""
    rank = len(shape_of(key))
    if name_of(key) == "mT":
        return key.args[0]
    if name_of(key) in ("transpose", "swapaxes"):
        axes = {axis % rank for axis in key.args[1:3]}
        return key.args[0] if axes == {rank - 2, rank - 1} else None
    return None


def _simplify(found: Attention) -> None:
    """Reads keys and values before they are transposed and repeated, where that is seen."""
    key = _untransposed(found.key)
    if key is None:
        return
    found.key, found.is_transposed = key, False
    if len(shape_of(found.query)) == 4:
        heads = shape_of(found.query)[1]
        key, value = (_without_repeats(each, heads, found.node) for each in (key, found.value))
        if shape_of(key)[1] == shape_of(value)[1]:
            found.key, found.value = key, value


_MULTIHEAD_ARGUMENTS = inspect.signature(torch.nn.functional.multi_head_attention_forward)


def _find_multihead(node: Node) -> Multihead:
    bound = _MULTIHEAD_ARGUMENTS.bind(*node.args, **node.kwargs)
    bound.apply_defaults()
    given = bound.arguments
    lacks = [name for name in ("bias_k", "bias_v", "static_k", "static_v") if given[name] is not None]
    lacks += ["add_zero_attn"] if given["add_zero_attn"] else []
    lacks += ["dropout_p"] if given["dropout_p"] != 0 and given["training"] else []
    # The second result are the weights.
    if any(name_of(user) != "getitem" or (user.args[1] != 0 and user.users) for user in node.users):
        lacks.append("need_weights")
    query = value_of(given["query"])
    if query.device.type != "cpu" or query.dtype not in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        lacks.append(f"{query.dtype} on {query.device.type}")
    if lacks:
        raise NoAttention(f"{MULTIHEAD}: found {', '.join(lacks)}, which kernels do not have")
    return Multihead(node, given)


def _find_flex(node: Node) -> Flex:
    query = value_of(node.args[0])
    if query.device.type != "cpu":
        raise NoAttention(f"found tensors on {query.device.type}, needed tensors on the CPU")
    try:
        return find_flex(node)
    except ValueError as reason:
        raise NoAttention(str(reason)) from reason


def find_attention(graph: Graph) -> tuple[list[Attention | Multihead | Flex], list[str]]:
    """All attention of a graph; and of calls and soft-maxes that are not, why."""
    found: list[Attention | Multihead | Flex] = []
    reasons: dict[Node, str] = {}
    for node in graph.nodes:
        if name_of(node) == "softmax":
            reasons[node] = "no product reads the weights as they are"
        try:
            if name_of(node) == MULTIHEAD:
                found.append(_find_multihead(node))
                continue
            if node.target is FLEX:
                found.append(_find_flex(node))
                continue
            attention = _find_call(node) if name_of(node) == CALL else _find_in_products(node)
        except NoAttention as reason:
            reads = find_softmax(node)
            reasons[node if reads is None else reads[0]] = str(reason)
            continue
        if attention is None:
            continue
        if attention.softmax is not None:
            reasons.pop(attention.softmax, None)
            _simplify(attention)
        found.append(attention)
    return found, list(reasons.values())
