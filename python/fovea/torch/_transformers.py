# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fovea as the attention of models of transformers."""

from __future__ import annotations

import functools
import sys
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ._fallbacks import record_fallback
from ._functions import Source, dense, stream
from ._masks import PatternMask, soft_cap, to_log_weight

__all__ = ["register_transformers"]

# What models pass for others, or for what masks say already.
_OTHERS = frozenset(
    "cache cache_position cu_seq_lens_k cu_seq_lens_q deterministic max_length_k max_length_q num_items_in_batch "
    "output_hidden_states output_router_logits past_key_value past_key_values position_ids return_dict seq_idx "
    "sliding_window use_cache".split()
)


class _Admitted(NamedTuple):
    """What the queries of a call read: options of `dense`, of the first `length` keys."""

    length: int
    causal: bool = False
    window: int | None = None
    log_weight: Tensor | None = None
    bias: Tensor | None = None


def read_mask(mask: Tensor | None, is_causal: bool, N: int, M: int) -> _Admitted:
    if isinstance(mask, PatternMask):
        causal, window, _, offset = mask.pattern
        length = offset + N if causal else M
        log_weight = mask.log_weight()
        if log_weight is not None:
            log_weight = log_weight[..., :length]
        return _Admitted(length, causal, window, log_weight)
    if mask is None:
        # As of `scaled_dot_product_attention`: a cache that is longer than its content.
        is_causal = is_causal and N > 1
        return _Admitted(min(N, M) if is_causal else M, is_causal)
    if mask.ndim != 4 or not (mask.shape[-1] == 1 or mask.shape[-1] >= M) or mask.shape[-2] not in (1, N):
        raise ValueError(f"attention_mask: found shape {tuple(mask.shape)}, needed [B,1,{N},{M}]")
    mask = mask[..., :M].expand(*mask.shape[:3], M)
    if mask.dtype != torch.bool:
        return _Admitted(M, bias=mask)
    if mask.shape[1:3] == (1, 1):
        return _Admitted(M, log_weight=to_log_weight(mask[:, 0]))
    return _Admitted(M, bias=to_log_weight(mask))


def _with_type_of_sums(terms: Tensor | None, query: Tensor) -> Tensor | None:
    """float32, or float64 for float64."""
    return None if terms is None else terms.to(torch.promote_types(query.dtype, torch.float32))


# ----------------------------------------------------------------------------
# Lists of keys
# ----------------------------------------------------------------------------


#: Lists that may name a share of 1 / _FEW of the keys, or more, become masks: these are at most so many times as large, and faster
#: from there on.
_FEW = 4


class _Lists(NamedTuple):
    """The keys that queries read: each of `entries` [B,1|G|H,N,k] names the `unit` keys from `unit` times itself on, and -1 none."""

    entries: Tensor
    unit: int

    def are_few(self, M: int) -> bool:
        return self.entries.shape[-1] * self.unit * _FEW < M

    def to_mask(self, heads: int, M: int) -> Tensor:
        """Whether a query reads a key, a boolean [B,1|H,N,M]."""
        entries, count = self.entries.long(), -(-M // self.unit)
        listed = torch.zeros((*entries.shape[:-1], count + 1), dtype=torch.bool, device=entries.device)
        listed = listed.scatter(-1, torch.where(entries < 0, count, entries), True)[..., :count]
        return self._of_heads(listed.repeat_interleave(self.unit, -1)[..., :M], (1, heads), heads)

    def to_rows(self, groups: int, heads: int, M: int) -> Tensor:
        """Lists of a source of `M` keys: a key that is named twice counts once."""
        entries = self.entries.int().sort(-1).values
        repeats = torch.nn.functional.pad(entries[..., 1:] == entries[..., :-1], (1, 0))
        entries = entries.masked_fill(repeats | (entries >= -(-M // self.unit)), -1)
        return self._of_heads(entries, (1, groups, heads), heads)

    @staticmethod
    def _of_heads(each: Tensor, allowed: tuple[int, ...], heads: int) -> Tensor:
        return each if each.shape[1] in allowed else each.repeat_interleave(heads // each.shape[1], 1)


def _block_size(module: Any) -> int:
    for owner, name in ((getattr(module, "indexer", None), "block_size"), (module.config, "index_block_size")):
        size = getattr(owner, name, None)
        if size is not None:
            return int(size)
    raise ValueError(f"block_indices: {type(module).__name__} says nothing about the size of blocks")


def _read_lists(module: Any, indices: Tensor | None, block_indices: Tensor | None) -> _Lists | None:
    if indices is not None:
        return _Lists(indices[:, None], 1)
    return None if block_indices is None else _Lists(block_indices, _block_size(module))


# ----------------------------------------------------------------------------
# The attention of a layer
# ----------------------------------------------------------------------------


def _attend_eagerly(
    module: Any, query: Tensor, key: Tensor, value: Tensor, admitted: _Admitted, **options: Any
) -> tuple[Tensor, Tensor | None]:
    """By the eager implementation that comes with the model."""
    eager = None
    for each in type(module).__mro__:
        eager = eager or getattr(sys.modules.get(each.__module__), "eager_attention_forward", None)
    if eager is None:
        raise ValueError(
            f"{type(module).__name__} has no eager_attention_forward to fall back to: see explain_fallbacks()"
        )
    N, length = query.shape[2], admitted.length
    mask = admitted.bias
    if admitted.causal or admitted.window is not None or admitted.log_weight is not None:
        distance = torch.arange(N, device=query.device)[:, None] + (length - N)
        distance = distance - torch.arange(length, device=query.device)
        present = distance >= 0 if admitted.causal else torch.ones_like(distance, dtype=torch.bool)
        if admitted.window is not None:
            present = present & (distance.abs() < admitted.window)
        written = to_log_weight(present)
        if admitted.log_weight is not None:
            written = written + admitted.log_weight[:, :, None]
        mask = written if mask is None else written + mask
    if mask is not None:
        # Rows without a key would be NaN.
        mask = mask.to(query.dtype).clamp(min=torch.finfo(query.dtype).min)
    out, weights = eager(module, query, key[:, :, :length], value[:, :, :length], mask, **options)
    return out.contiguous(), weights


def attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    position_bias: Tensor | None = None,
    indices: Tensor | None = None,
    block_indices: Tensor | None = None,
    output_attentions: bool | None = None,
    **others: Any,
) -> tuple[Tensor, Tensor | None]:
    """The attention function of transformers: query [B,H,N,D], key [B,G,M,D] and value
    [B,G,M,E] to [B,N,H,E], and no weights.

    `attention_mask` is what `make_mask` of _mask_functions makes, or any mask [B,1,N,M] that is boolean
    or added to the scores.  `s_aux` [H] are sinks: exp(s_aux) is added to the denominators.
    `softcap` is the limit of scores, and `position_bias` is added to them.  `indices` [B,N,k] and `block_indices` [B,G,N,k]
    list the keys, or blocks of keys, that a query reads.
    """
    heads, N, M = query.shape[1], query.shape[2], key.shape[2]
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    admitted = read_mask(attention_mask, is_causal, N, M)
    length = admitted.length

    unknown = [name for name, given in others.items() if given is not None and name not in _OTHERS]
    reason = (
        f"dropout={dropout}" if dropout
        else "output_attentions" if output_attentions
        else f"unknown arguments: {', '.join(unknown)}" if unknown
        else f"tensors of {query.device.type}" if query.device.type not in ("cpu", "cuda")
        else None
    )  # fmt: skip
    lists = _read_lists(module, indices, block_indices)
    if lists is not None and (reason is not None or not lists.are_few(length)):
        listed = to_log_weight(lists.to_mask(heads, M)[..., :length])
        admitted = admitted._replace(bias=listed if admitted.bias is None else listed + admitted.bias)
        lists = None
    if reason is not None:
        record_fallback("transformers", f"{reason}: the model's eager attention")
        options = dict(
            dropout=dropout, softcap=softcap, s_aux=s_aux, position_bias=position_bias, is_causal=is_causal, **others
        )
        options = {name: given for name, given in options.items() if given is not None}
        return _attend_eagerly(module, query, key, value, admitted, scaling=scaling, **options)

    bias = admitted.bias
    if position_bias is not None:
        position_bias = position_bias[..., :length]
        bias = position_bias if bias is None else position_bias + bias
    own: dict[str, Any] = dict(
        causal=admitted.causal,
        window=admitted.window,
        log_weight=_with_type_of_sums(admitted.log_weight, query),
        bias=bias if bias is not None and bias.dtype == query.dtype else _with_type_of_sums(bias, query),
    )
    of_call: dict[str, Any] = dict(scale=scaling, sink=_with_type_of_sums(s_aux, query), score=soft_cap(softcap))
    key, value = key[:, :, :length], value[:, :, :length]
    if lists is None:
        out = dense(query, key, value, **own, **of_call)
    else:
        rows = lists.to_rows(key.shape[1], heads, length)
        out = stream(query, [Source(key, value, rows=rows, unit=lists.unit, **own)], block=1, **of_call)
    return out.transpose(1, 2).contiguous(), None


def _refuse_classes(kind: type, name: str) -> None:
    """A few models choose a class for each implementation from a table, where another is a bare KeyError."""
    module = sys.modules[kind.__module__]
    for table_name, table in list(vars(module).items()):
        if not table_name.endswith("_ATTENTION_CLASSES") or not isinstance(table, dict) or name in table:
            continue
        known = " or ".join(f'"{each}"' for each in table if "flash" not in each)

        def refuse(*args: Any, known: str = known, **options: Any) -> None:
            raise ValueError(
                f"attn_implementation: layers of {module.__name__} compute their attention themselves, found {name!r}, needed {known}: "
                'torch.compile(model, backend="fovea") finds it'
            )

        table[name] = refuse


def _check_tables(kind: type, name: str) -> None:
    """Lets models look for such tables before they make layers."""
    choose = kind.get_correct_attn_implementation  # type: ignore[attr-defined]

    @functools.wraps(choose)
    def check(self: Any, requested: str | None, *args: Any, **options: Any) -> Any:
        if requested == name:
            _refuse_classes(type(self), name)
        return choose(self, requested, *args, **options)

    kind.get_correct_attn_implementation = check  # type: ignore[attr-defined]


def register_transformers(name: str = "fovea") -> None:
    """Gives models of transformers Fovea as `attn_implementation=name`.

        fovea.torch.register_transformers()
        model = AutoModel.from_pretrained(path, attn_implementation="fovea")

    or `model.set_attn_implementation("fovea")` later.  Both the attention and its masks are
    registered.  Padding, causal masks, windows, caches, sinks, soft-caps, biases of positions,
    lists of keys and grouped queries are served, with gradients.  Dropout and attention weights
    are left to the model's eager attention, call by call: `explain_fallbacks()` tells which
    calls and why.
    """
    from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel

    from ._mask_functions import make_mask

    if name not in AttentionInterface._global_mapping:
        _check_tables(PreTrainedModel, name)
    AttentionInterface.register(name, attend)
    AttentionMaskInterface.register(name, make_mask)
