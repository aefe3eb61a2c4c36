# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fovea as a backend of torch.compile: attention by its kernels, the rest by another backend."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._dynamo import list_backends, lookup_backend, register_backend
from torch._dynamo.backends import registry
from torch.fx import GraphModule, Node
from torch.nn.functional import linear

from ._constant_masks import evaluate_masks
from ._fallbacks import record_fallback
from ._find_attention import Attention, Multihead, Term, find_attention
from ._flex import Flex
from ._functions import dense
from ._graph_nodes import is_writer, name_of, shape_of, value_of
from ._masks import soft_cap, to_log_weight
from ._sdpa import read_call
from ._vq import sum_type

__all__ = ["compile_graph"]

_CALLER = 'torch.compile(backend="fovea")'


# ----------------------------------------------------------------------------
# What stands in a graph
# ----------------------------------------------------------------------------


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    scale: float | None,
    *,
    is_causal: bool = False,
    causal: bool = False,
    window: int | None = None,
    prefix: int | None = None,
    sink: Tensor | None = None,
    cap: float | None = None,
    heads: int | None = None,
) -> Tensor:
    """Attention of [B,H,N,D], [B,N,D], or [B*H,N,D] with `heads`.  `is_causal` and `mask` are
    those of PyTorch's function, `cap` is the limit of a soft-cap, the rest options of `dense`."""
    shape, inner = query.shape, (query, key, value)
    if heads is not None:
        inner = tuple(each.unflatten(0, (-1, heads)) for each in inner)
    elif query.dim() == 3:
        inner = tuple(each.unsqueeze(1) for each in inner)
        mask = mask.unsqueeze(1) if mask is not None and mask.dim() == 3 else mask
    if mask is not None:
        mask = mask[(None,) * (4 - mask.dim())]
        mask = to_log_weight(mask) if mask.dtype == torch.bool else mask
    tensors, log_weight, bias = read_call(*inner, is_causal, mask)
    out = dense(
        *tensors, scale=scale, causal=is_causal or causal, window=window, prefix=prefix, log_weight=log_weight, bias=bias,
        sink=None if sink is None else sink.to(sum_type(query.dtype)), score=soft_cap(cap),
    )  # fmt: skip
    return out if query.dim() == 4 else out.reshape(*shape[:-1], value.shape[-1])


def attend_multihead(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    heads: int,
    in_weights: tuple[Tensor, Tensor, Tensor] | Tensor,
    in_bias: Tensor | None,
    out_weight: Tensor,
    out_bias: Tensor | None,
    attn_mask: Tensor | None,
    key_padding_mask: Tensor | None,
    is_causal: bool,
) -> tuple[Tensor, None]:
    """torch.nn.functional.multi_head_attention_forward without weights: [N,B,F], or [N,F] without
    a batch.  Its boolean masks are true for what is hidden."""
    is_single = query.dim() == 2
    inputs = [each.unsqueeze(1) if is_single else each for each in (query, key, value)]
    weights = in_weights.chunk(3) if isinstance(in_weights, Tensor) else in_weights
    biases = (None,) * 3 if in_bias is None else in_bias.chunk(3)
    q, k, v = (
        linear(each, weight, bias).unflatten(-1, (heads, -1)).permute(1, 2, 0, 3)
        for each, weight, bias in zip(inputs, weights, biases)
    )
    # By its contract, a causal mask then says no more.
    is_causal = is_causal and key_padding_mask is None
    masks = []
    if attn_mask is not None and not is_causal:
        masks.append(attn_mask.unflatten(0, (-1, heads)) if attn_mask.dim() == 3 else attn_mask)
    if key_padding_mask is not None:
        masks.append(key_padding_mask[None, None, None] if is_single else key_padding_mask[:, None, None])
    mask = None
    for each in masks:
        each = to_log_weight(~each) if each.dtype == torch.bool else each
        mask = each if mask is None else mask + each
    out = attend(q, k, v, mask, None, is_causal=is_causal)
    out = linear(out.permute(2, 0, 1, 3).flatten(2), out_weight, out_bias)
    return out.squeeze(1) if is_single else out, None


def _replace_multihead(found: Multihead) -> None:
    given, node = found.arguments, found.node
    weights: Any = given["in_proj_weight"]
    if given["use_separate_proj_weight"]:
        weights = (given["q_proj_weight"], given["k_proj_weight"], given["v_proj_weight"])
    names = ("in_proj_bias", "out_proj_weight", "out_proj_bias", "attn_mask", "key_padding_mask", "is_causal")
    first = (given["query"], given["key"], given["value"], given["num_heads"], weights)
    node.target, node.args, node.kwargs = attend_multihead, (*first, *(given[name] for name in names)), {}


def _replace_flex(module: GraphModule, found: Flex) -> None:
    graph, node = module.graph, found.node
    name = f"fovea_{node.name}"
    module.add_submodule(name, found.module)
    # What nobody reads of it.
    for user in [each for each in node.users if not each.users]:
        graph.erase_node(user)
    with graph.inserting_before(node):
        new = graph.call_module(name, found.arguments)
    new.meta.update({key: each for key, each in node.meta.items() if key in ("example_value", "stack_trace", "nn_module_stack")})
    node.replace_all_uses_with(new)
    _erase(node)


def _write_term(graph: Any, term: Term, heads: Any) -> Node:
    node = term.node
    if term.is_flat and len(shape_of(node)) == 3:
        is_shared = shape_of(node)[0] == 1
        node = graph.call_method(*(("unsqueeze", (node, 0)) if is_shared else ("unflatten", (node, 0, (-1, heads)))))
    if term.low is None:
        return node if term.factor == 1 else graph.call_function(torch.mul, (node, term.factor))
    # To kernels much less is -inf, and a row of it has no keys.
    low = max(term.low, -1e9) if math.isfinite(term.low) else term.low
    first, second = (low, 0.0) if term.is_hiding else (0.0, low)
    return graph.call_function(torch.where, (node, first, second))


def _is_viewed(node: Node) -> bool:
    """Whether something depends on the order of elements in memory."""
    for user in node.users:
        name = name_of(user)
        if name in ("view", "view_as", "as_strided", "stride", "is_contiguous"):
            return True
        if name in ("transpose", "permute", "squeeze", "unsqueeze", "getitem", "swapaxes", "to") and _is_viewed(user):
            return True
    return False


def _replace(module: GraphModule, found: Attention) -> None:
    graph, node = module.graph, found.node
    query, key, value = found.query, found.key, found.value
    N, M = shape_of(query)[-2], shape_of(key)[-1 if found.is_transposed else -2]
    # What is added below has no shape yet.
    heads = found.heads or shape_of(query)[1]
    admitted, terms = evaluate_masks(found.terms, N, M)
    with graph.inserting_before(node):
        for factor, is_divisor in found.factors:
            query = graph.call_function(torch.div if is_divisor else torch.mul, (query, factor))
        if found.is_transposed:
            key = graph.call_method("transpose", (key, -2, -1))
        mask = None
        # A boolean mask of a call is written by `attend`.
        if len(terms) == 1 and found.softmax is None:
            mask = terms[0].node
        else:
            for term in terms:
                written = _write_term(graph, term, heads)
                mask = written if mask is None else graph.call_function(torch.add, (mask, written))
        options: dict[str, Any] = {name: each for name, each in admitted._asdict().items() if each}
        if found.is_causal:
            options["is_causal"] = True
        if found.sink is not None:
            options["sink"] = found.sink
        if found.soft_cap is not None:
            options["cap"] = found.soft_cap
        if found.heads is not None:
            options["heads"] = found.heads
        new = graph.call_function(attend, (query, key, value, mask, found.scale), options)
        result = value_of(node)
        if isinstance(result, Tensor) and result.dtype != value_of(found.query).dtype:
            new = graph.call_method("to", (new, result.dtype))
        if _is_viewed(node):
            new = graph.call_method("contiguous", (new,))
    new.meta.update({key: each for key, each in node.meta.items() if key in ("example_value", "stack_trace", "nn_module_stack")})
    node.replace_all_uses_with(new)
    _erase(node)


def _erase(node: Node) -> None:
    """And what was computed for it alone.  Graphs write to tensors: what nobody reads may yet matter."""
    pending = [node]
    while pending:
        top = pending.pop()
        if not top.users and not top._erased and not is_writer(top) and top.op in ("call_function", "call_method"):
            pending += top.all_input_nodes
            top.graph.erase_node(top)


def raise_attention(module: GraphModule) -> int:
    """Makes the attention of a graph, and of those within, calls of Fovea; how many."""
    count = 0
    for each in module.modules():
        if not isinstance(each, GraphModule):
            continue
        found, reasons = find_attention(each.graph)
        for reason in reasons:
            record_fallback(_CALLER, reason)
        # The last one first: operands of another may be the result of one.
        for attention in reversed(found):
            if isinstance(attention, Multihead):
                _replace_multihead(attention)
            elif isinstance(attention, Flex):
                _replace_flex(each, attention)
            else:
                _replace(each, attention)
        if found:
            each.graph.lint()
            each.recompile()
            count += len(found)
    return count


# ----------------------------------------------------------------------------
# The backend
# ----------------------------------------------------------------------------


def _choose(options: dict[str, Any] | None) -> tuple[str, Callable[..., Any], dict[str, Any]]:
    """The name of the backend for the rest, itself, and options that are its own."""
    others = dict(options or {})
    rest = others.pop("rest", "inductor")
    if callable(rest):
        name, chosen = getattr(rest, "__name__", "rest"), rest
    elif isinstance(rest, str) and rest != "fovea" and rest in list_backends(None):
        name, chosen = rest, lookup_backend(rest)
    else:
        raise ValueError(f"options: found rest={rest!r}, needed the name of another backend of torch.compile, or a function")
    if others and name != "inductor":
        raise ValueError(f"options: found {', '.join(sorted(others))}, needed rest alone, or options of inductor")
    return name, chosen, others


def compile_graph(
    module: GraphModule, example_inputs: list[Any], *, mode: str | None = None, options: dict[str, Any] | None = None
) -> Callable[..., Any]:
    """The backend "fovea" of torch.compile.

        model = torch.compile(model, backend="fovea")

    Attention in graphs is computed by Fovea: calls of `scaled_dot_product_attention`, and
    products with a soft-max between.  The rest is compiled by the backend that
    `options={"rest": ...}` names, by default "inductor", which gets `mode` and other options;
    "eager" does not compile.  Parameters stay those of the model, and gradients go through.
    `explain_fallbacks()` tells which attention is left to the rest, why, and which graphs ran
    eagerly since the rest did not compile them.
    """
    name, rest, others = _choose(options)
    raise_attention(module)
    if name == "inductor":
        from torch._inductor import list_mode_options

        others = {**(list_mode_options(mode) if mode else {}), **others}
    elif mode is not None:
        raise ValueError(f"mode: found {mode!r}, needed None, or inductor for the rest")
    try:
        return rest(module, example_inputs, **({"config_patches": others} if others else {}))
    except Exception as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        record_fallback(_CALLER, f"{name} did not compile a graph, which runs eagerly: {reason[0]}")
        return module.forward


# A look at the name that finds the entry point of the package imports this module, then registers
# what it loads, and refuses a name that is there by then.
if registry._BACKENDS.get("fovea") is None:
    register_backend(compile_graph, name="fovea")
