# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What modules share: projections around a pattern."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ... import _arguments as check


class Pattern(nn.Module):
    """What happens between projections: q [B,H,N,D], k [B,G,M,D] and v [B,G,M,E] to [B,H,N,E].

    A pattern is made for H, G, D and E by `Pattern(heads, key_heads, width, value_width,
    **options)`, where options are those of the module that has it.
    """

    #: For errors.
    title = "attention"

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, *, scale: float, causal: bool, present: Tensor | None, bias: Tensor | None
    ) -> Tensor:
        """`present` [B,M] is true for keys that are there; `bias` is added to scores [B,H,N,M]."""
        raise NotImplementedError

    def refuse(self, argument: str, found: Any, needed: str) -> ValueError:
        return ValueError(f"{argument}: found {found}, needed {needed} in {self.title}")

    def check_self_attention(self, q: Tensor, k: Tensor, bias: Tensor | None) -> None:
        """For patterns of the tokens of one sequence."""
        if q.shape[2] != k.shape[2]:
            raise self.refuse("key", f"{k.shape[2]} keys", f"as many as queries, {q.shape[2]},")
        if bias is not None:
            raise self.refuse("attn_mask", f"a mask of shape {tuple(bias.shape)}", "None")


class Inputs(NamedTuple):
    """Of a pattern, and how its result is to be laid out."""

    q: Tensor
    k: Tensor
    v: Tensor
    present: Tensor | None
    bias: Tensor | None
    is_batched: bool


def _read_padding(mask: Tensor, shape: tuple[int, int]) -> Tensor:
    """Which keys are absent.  Layers of torch.nn make -inf of true, and 0 of false."""
    is_boolean = mask.dtype == torch.bool
    absent = mask if is_boolean else mask == float("-inf")
    if mask.shape != shape or not (is_boolean or mask.is_floating_point()):
        raise ValueError(
            f"key_padding_mask: found {mask.dtype} of shape {tuple(mask.shape)}, needed torch.bool of shape {shape}, "
            "true for keys that are absent"
        )
    if not is_boolean and not torch.compiler.is_compiling() and not bool((absent | (mask == 0)).all()):
        raise ValueError("key_padding_mask: found numbers other than 0 and -inf, needed these or torch.bool")
    return absent


class Multihead(nn.Module):
    """Projections of queries, keys and values, a pattern, and the projection of its result.

    With as many heads of keys as of queries, parameters are those of
    `torch.nn.MultiheadAttention`: a state dictionary of one is one of the other.
    """

    pattern: Pattern
    pattern_type: type[Pattern]
    #: torch.nn.TransformerEncoderLayer then calls the module, and does not compute with its parameters.
    _qkv_same_embed_dim = False

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        *,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        num_key_heads: int | None = None,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__()
        num_key_heads = num_heads if num_key_heads is None else num_key_heads
        for name, value in (("embed_dim", embed_dim), ("num_heads", num_heads), ("num_key_heads", num_key_heads)):
            check.integer(name, value, 1)
        if embed_dim % num_heads:
            raise ValueError(f"embed_dim: found {embed_dim}, needed a multiple of the {num_heads} heads")
        if num_heads % num_key_heads:
            raise ValueError(f"num_key_heads: found {num_key_heads}, needed a divisor of the {num_heads} heads")
        if dropout:
            raise ValueError(f"dropout: found {dropout}, needed 0: kernels keep all weights")
        self.embed_dim, self.num_heads, self.num_key_heads = embed_dim, num_heads, num_key_heads
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self.batch_first, self.head_dim = batch_first, embed_dim // num_heads
        place: dict[str, Any] = dict(device=device, dtype=dtype)
        self._sizes = [embed_dim] + 2 * [num_key_heads * self.head_dim]
        self._is_joint = self.kdim == self.vdim == embed_dim

        def parameter(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(shape, **place))

        joint = parameter(sum(self._sizes), embed_dim) if self._is_joint else None
        self.register_parameter("in_proj_weight", joint)
        for name, size, width in zip("qkv", self._sizes, (embed_dim, self.kdim, self.vdim)):
            self.register_parameter(f"{name}_proj_weight", None if self._is_joint else parameter(size, width))
        self.register_parameter("in_proj_bias", parameter(sum(self._sizes)) if bias else None)
        self.out_proj = nn.Linear(embed_dim, embed_dim, bias=bias, **place)
        self._reset_projections()

    def __prepare_scriptable__(self) -> nn.Module:
        raise ValueError(f"torch.jit.script does not compile {type(self).__name__}: needed torch.export, or torch.jit.trace")

    def _reset_projections(self) -> None:
        """As torch.nn.MultiheadAttention does."""
        for name in ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight"):
            weight = getattr(self, name)
            if weight is not None:
                nn.init.xavier_uniform_(weight)
        if self.in_proj_bias is not None:
            nn.init.zeros_(self.in_proj_bias)
            nn.init.zeros_(self.out_proj.bias)

    def extra_repr(self) -> str:
        text = f"{self.embed_dim}, num_heads={self.num_heads}"
        if self.num_key_heads != self.num_heads:
            text += f", num_key_heads={self.num_key_heads}"
        if not self._is_joint:
            text += f", kdim={self.kdim}, vdim={self.vdim}"
        text += "" if self.in_proj_bias is not None else ", bias=False"
        return text + (", batch_first=True" if self.batch_first else "")

    # ------------------------------------------------------------------------
    # From tokens to heads and back
    # ------------------------------------------------------------------------

    def project(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """[B,N,embed_dim], [B,M,kdim] and [B,M,vdim] to heads: [B,H,N,D], [B,G,M,D], [B,G,M,D]."""
        biases = [None] * 3 if self.in_proj_bias is None else self.in_proj_bias.split(self._sizes)
        if self._is_joint and key is query and value is query:
            found = F.linear(query, self.in_proj_weight, self.in_proj_bias).split(self._sizes, -1)
        else:
            weights = (
                self.in_proj_weight.split(self._sizes)
                if self._is_joint
                else (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
            )
            found = [F.linear(x, weight, bias) for x, weight, bias in zip((query, key, value), weights, biases)]
        q, k, v = (x.unflatten(-1, (-1, self.head_dim)).transpose(1, 2) for x in found)
        return q, k, v

    def _check_inputs(self, query: Tensor, key: Tensor, value: Tensor) -> None:
        rank = query.ndim
        layout = {2: "[N,F]", 3: "[B,N,F]" if self.batch_first else "[N,B,F]"}
        for name, x, width in zip(
            ("query", "key", "value"), (query, key, value), (self.embed_dim, self.kdim, self.vdim)
        ):
            if rank not in layout or x.ndim != rank or x.shape[-1] != width:
                raise ValueError(
                    f"{name}: found shape {tuple(x.shape)}, needed {layout.get(rank, layout[3])} with F = {width}"
                )
        if key.shape[:-1] != value.shape[:-1]:
            raise ValueError(f"value: found shape {tuple(value.shape)}, needed the tokens of key, {tuple(key.shape)}")

    def prepare(
        self,
        query: Tensor,
        key: Tensor | None,
        value: Tensor | None,
        key_padding_mask: Tensor | None,
        need_weights: bool,
        attn_mask: Tensor | None,
        is_causal: bool,
    ) -> Inputs:
        """What the pattern gets; everything is checked first."""
        if need_weights:
            raise ValueError("need_weights: found True, needed False: kernels do not write weights out")
        key = query if key is None else key
        value = key if value is None else value
        self._check_inputs(query, key, value)
        is_batched = query.ndim == 3
        is_self = key is query and value is query

        def lay_out(x: Tensor) -> Tensor:
            return x[None] if not is_batched else x if self.batch_first else x.transpose(0, 1)

        if key_padding_mask is not None and not is_batched:
            key_padding_mask = key_padding_mask[None]
        query = lay_out(query)
        key, value = (query, query) if is_self else (lay_out(key), lay_out(value))
        B, N, M = query.shape[0], query.shape[1], key.shape[1]
        present = None
        if key_padding_mask is not None:
            present = ~_read_padding(key_padding_mask, (B, M))
        # With is_causal, a mask is the causal one.
        bias = None if attn_mask is None or is_causal else self._read_mask(attn_mask, query.dtype, B, N, M)
        return Inputs(*self.project(query, key, value), present, bias, is_batched)

    def _read_mask(self, mask: Tensor, dtype: torch.dtype, B: int, N: int, M: int) -> Tensor:
        if mask.shape not in ((N, M), (B * self.num_heads, N, M)):
            raise ValueError(
                f"attn_mask: found shape {tuple(mask.shape)}, needed {(N, M)} or {(B * self.num_heads, N, M)}"
            )
        if mask.dtype == torch.bool:
            mask = torch.zeros((), dtype=dtype, device=mask.device).masked_fill(mask, float("-inf"))
        return mask[None, None] if mask.ndim == 2 else mask.unflatten(0, (B, self.num_heads))

    def finish(self, out: Tensor, is_batched: bool) -> Tensor:
        out = self.out_proj(out.transpose(1, 2).flatten(2))
        return out[0] if not is_batched else out if self.batch_first else out.transpose(0, 1)

    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = False,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, None]:
        """The output, shaped as `query`, and None: kernels do not write weights out.

        `query` is [N,B,F], [B,N,F] with `batch_first`, or [N,F]; key and value are the query
        unless given.  `key_padding_mask` [B,M] is true for keys that are absent.  `attn_mask`
        [N,M] or [B H,N,M] is true for what must not be read, or is added to the scores.  With
        `is_causal` query i reads keys up to i + M - N, and an `attn_mask` is taken to say the same.
        """
        inputs = self.prepare(query, key, value, key_padding_mask, need_weights, attn_mask, is_causal)
        q, k, v, present, bias, is_batched = inputs
        out = self.pattern(q, k, v, scale=self.head_dim**-0.5, causal=is_causal, present=present, bias=bias)
        return self.finish(out, is_batched), None
