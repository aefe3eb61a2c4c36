# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""PyTorch's own scaled_dot_product_attention on a CPU, computed by Fovea.

PyTorch has a registry of flash attention implementations: while one of them is active,
its kernels take the place of PyTorch's.  What `scaled_dot_product_attention` does not
give to a flash kernel, it computes by a formula.  Fovea takes the place of that where it
can; the reason why it cannot is recorded.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import attention

from .. import _arguments as check
from .. import _fovea
from ._fallbacks import record_fallback
from ._functions import dense
from ._vq import sum_type

__all__ = ["sdpa"]

_NAME = "fovea"
_CALLER = "torch.nn.functional.scaled_dot_product_attention"
_FLASH = "_scaled_dot_product_flash_attention_for_cpu"
_MATH = "_scaled_dot_product_attention_math"
_TYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def _refusal(query: Tensor, key: Tensor, dropout: float, is_causal: bool) -> str | None:
    """Why Fovea does not compute a call that is made for a flash kernel."""
    if dropout:
        return f"dropout_p: found {dropout}, needed 0"
    if query.dtype not in _TYPES:
        return f"query: found {query.dtype}, needed a floating-point type"
    if is_causal and query.shape[2] > key.shape[2]:
        return f"is_causal: found {query.shape[2]} queries and {key.shape[2]} keys, needed as many keys at least"
    return None


def read_call(
    query: Tensor, key: Tensor, value: Tensor, is_causal: bool, mask: Tensor | None
) -> tuple[list[Tensor], Tensor | None, Tensor | None]:
    """q, k, v, log_weight and bias of `dense`.  A causal mask of PyTorch aligns the first query with
    the first key, that of `dense` the last ones: keys that no query reads are left out."""
    if is_causal and query.shape[2] < key.shape[2]:
        key, value = key[:, :, : query.shape[2]], value[:, :, : query.shape[2]]
        mask = None if mask is None else mask[..., : query.shape[2]]
    if mask is not None and mask.dtype != query.dtype:
        mask = mask.to(sum_type(query.dtype))
    log_weight = None
    # The same for all heads and queries: a weight of keys costs less than a bias.
    if mask is not None and mask.dim() == 4 and all(mask.shape[axis] == 1 for axis in (1, 2)):
        log_weight, mask = mask[:, 0], None
    return [query, key, value], log_weight, mask


def _arguments(
    query: Tensor, key: Tensor, value: Tensor, is_causal: bool, mask: Tensor | None, scale: float | None
) -> tuple[list[Tensor], list[Any]]:
    """q, k, v and options of the compiled `dense`."""
    tensors, log_weight, bias = read_call(query, key, value, is_causal, mask)
    return tensors, [scale, is_causal, None, log_weight, bias, *[None] * 6]


def _turned(like: Tensor, *, tokens: int | None = None) -> tuple[Tensor, Tensor]:
    """Memory for a gradient of `like`, in which heads lie within tokens, and the part of it
    for the first `tokens`; others are zeros."""
    whole = like.new_empty(like.shape[0], like.shape[2], like.shape[1], like.shape[3]).transpose(1, 2)
    if tokens is None or tokens == like.shape[2]:
        return whole, whole
    whole[:, :, tokens:].zero_()
    return whole, whole[:, :, :tokens]


class _Provider:
    """While it lives, kernels of Fovea are those of PyTorch."""

    def __init__(self) -> None:
        self._library = torch.library.Library("aten", "IMPL")
        self._kernels: dict[str, Any] = {}
        self._add(_FLASH, "CPU", self.forward)
        self._add(f"{_FLASH}_backward", "CPU", self.backward)
        self._add(_MATH, "CompositeImplicitAutograd", self.compute)

    def _add(self, name: str, key: str, kernel: Any) -> None:
        self._kernels[name] = torch.library.get_kernel(f"aten::{name}", "CPU")
        self._library.impl(name, kernel, key, with_keyset=True, allow_override=True)

    def remove(self) -> None:
        """PyTorch's kernels are those of before."""
        self._library._destroy()

    def forward(
        self,
        keys: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        *,
        attn_mask: Tensor | None = None,
        scale: float | None = None,
    ) -> tuple[Tensor, Tensor]:
        refusal = _refusal(query, key, dropout_p, is_causal)
        if refusal is not None:
            record_fallback(_CALLER, refusal)
            return self._kernels[_FLASH].call_boxed(
                keys, query, key, value, dropout_p, is_causal, attn_mask=attn_mask, scale=scale
            )
        tensors, options = _arguments(query, key, value, is_causal, attn_mask, scale)
        place = None if query.is_contiguous() else (torch.empty_like(query), None)
        out, rows = _fovea.tensors.dense(*tensors, *options, True, "cpu", out=place)
        if attn_mask is not None:
            # Of a row that reads no key PyTorch has 0, which its gradients need where they run.
            rows = torch.where(rows == -torch.inf, 0, rows)
        # In memory, heads lie within queries: with one query or one head they do already.
        return out, rows.mT.contiguous().mT

    def backward(
        self,
        keys: Any,
        grad_out: Tensor,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        out: Tensor,
        logsumexp: Tensor,
        dropout_p: float,
        is_causal: bool,
        *,
        attn_mask: Tensor | None = None,
        scale: float | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        if _refusal(query, key, dropout_p, is_causal) is not None:
            return self._kernels[f"{_FLASH}_backward"].call_boxed(
                keys, grad_out, query, key, value, out, logsumexp, dropout_p, is_causal,
                attn_mask=attn_mask, scale=scale,
            )  # fmt: skip
        tensors, options = _arguments(query, key, value, is_causal, attn_mask, scale)
        tokens = tensors[1].shape[2]
        d_query, *places = _turned(query)
        (d_key, key_place), (d_value, value_place) = (_turned(each, tokens=tokens) for each in (key, value))
        # Of masks there is none here.
        _fovea.tensors.dense_backward(
            grad_out, *tensors, out, logsumexp, None, *options, False, False, False, "cpu",
            gradients=(*places, key_place, value_place),
        )  # fmt: skip
        return d_query, d_key, d_value

    def compute(
        self,
        keys: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        dropout_mask: Tensor | None = None,
        *,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Any:
        """What PyTorch does not give to a flash kernel.  The weights that its formula returns
        as well are for callers of its own, which `scaled_dot_product_attention` is not."""
        reason = _explain(query, key, value, attn_mask, dropout_p, is_causal, enable_gqa)
        if reason is None:
            (q, k, v), log_weight, bias = read_call(query, key, value, is_causal, attn_mask)
            out = dense(q, k, v, scale=scale, causal=is_causal, log_weight=log_weight, bias=bias)
            return out, query.new_empty(0)
        record_fallback(_CALLER, reason)
        return self._kernels[_MATH].call_boxed(
            keys, query, key, value, attn_mask, dropout_p, is_causal, dropout_mask, scale=scale, enable_gqa=enable_gqa
        )


def _explain(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float, is_causal: bool, is_grouped: bool
) -> str | None:
    """Why neither a flash kernel nor Fovea computes a call, None if Fovea does."""
    if query.device.type != "cpu":
        return f"query: found a tensor on {query.device.type}, needed one on the CPU"
    if any(each.is_nested for each in (query, key, value)):
        return "query, key, value: found nested tensors, needed [B,H,N,D]"
    if any(each.dim() != 4 for each in (query, key, value)):
        return f"query: found rank {query.dim()}, needed [B,H,N,D], and key and value of rank 4"
    if any(0 in each.shape for each in (query, key, value)):
        return "query: found a tensor without elements"
    refusal = _refusal(query, key, dropout, is_causal)
    if refusal is not None:
        return refusal
    if not (mask is not None and mask.requires_grad) and value.shape[-1] == query.shape[-1]:
        return "PyTorch chose to compute it without a flash kernel"
    if not torch.backends.cuda.flash_sdp_enabled():
        return "flash kernels are switched off, by torch.nn.attention.sdpa_kernel or torch.backends.cuda"
    if torch._C._are_functorch_transforms_active():
        return "a transform of torch.func, under which PyTorch computes this"
    (B, H, _, D), G = query.shape, key.shape[1]
    if not (key.shape[:3] == value.shape[:3] and key.shape[::3] == (B, D) and (G == H or is_grouped and H % G == 0)):
        shapes = ", ".join(str(list(each.shape)) for each in (query, key, value))
        return f"query, key, value: found {shapes}, needed [B,H,N,D], [B,G,M,D], [B,G,M,E], and enable_gqa unless G = H"
    return None


attention.register_flash_attention_impl(_NAME, register_fn=_Provider)


@contextmanager
def _active() -> Iterator[None]:
    before = attention.current_flash_attention_impl()
    attention.activate_flash_attention_impl(_NAME)
    try:
        yield
    finally:
        attention.restore_flash_attention_impl()
        if before is not None:
            attention.activate_flash_attention_impl(before)


def sdpa(*, enable: bool | None = None) -> Any:
    """torch.nn.functional.scaled_dot_product_attention on a CPU is computed by Fovea.

        with fovea.torch.sdpa():
            model(tokens)

    or from now on, `fovea.torch.sdpa(enable=True)`, until `sdpa(enable=False)`.  Models need
    no change: forward, backward, masks and grouped heads go through it, and torch.compile
    traces the same operators as ever.  Calls that Fovea does not compute are PyTorch's, as
    before; `explain_fallbacks` lists them.
    """
    if enable is None:
        return _active()
    check.flags(enable=enable)
    is_active = attention.current_flash_attention_impl() == _NAME
    if enable and not is_active:
        attention.activate_flash_attention_impl(_NAME)
    elif not enable and is_active:
        attention.restore_flash_attention_impl()
    return None
