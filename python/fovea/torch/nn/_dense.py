# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Dense attention, with windows and sinks."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ... import _arguments as check
from .._functions import dense
from .._masks import to_log_weight
from ._multihead import Multihead, Pattern

__all__ = ["Attention"]


class Dense(Pattern):
    title = "dense attention"

    def __init__(
        self,
        heads: int,
        key_heads: int,
        width: int,
        value_width: int,
        *,
        window: int | None = None,
        sinks: bool = False,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__()
        if window is not None:
            check.integer("window", window, 1)
        self.window = window
        self.register_parameter(
            "sinks", nn.Parameter(torch.zeros(heads, device=device, dtype=dtype)) if sinks else None
        )

    def extra_repr(self) -> str:
        parts = [] if self.window is None else [f"window={self.window}"]
        return ", ".join(parts + (["sinks=True"] if self.sinks is not None else []))

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, *, scale: float, causal: bool, present: Tensor | None, bias: Tensor | None
    ) -> Tensor:
        log_weight = None if present is None else to_log_weight(present)[:, None].to(q.dtype)
        return dense(
            q, k, v, scale=scale, causal=causal, window=self.window, log_weight=log_weight, bias=bias, sink=self.sinks
        )


class Attention(Multihead):
    """`torch.nn.MultiheadAttention` on Fovea's kernels, with grouped queries, windows and sinks.

    `num_key_heads` heads of keys serve `num_heads` heads of queries.  With `window`, a query
    reads keys less than so many tokens away.  With `sinks`, the exponential of a parameter of
    each head, zero at first, is added to denominators of soft-maxes.  Projections start as
    those of `torch.nn.MultiheadAttention`, and have the same names.

    Shapes: [N,B,F] to [N,B,F], or [B,N,F] with `batch_first`; see `forward`.

        import torch
        from fovea.torch import nn

        attention = nn.Attention(64, 4, num_key_heads=2, window=32, sinks=True, batch_first=True)
        tokens = torch.randn(2, 100, 64)
        absent = torch.arange(100) >= torch.tensor([[100], [80]])
        out, _ = attention(tokens, key_padding_mask=absent, is_causal=True)
        loss = out.square().mean()
        loss.backward()
        assert out.shape == tokens.shape and attention.pattern.sinks.grad.shape == (4,)
    """

    pattern_type = Dense

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        *,
        window: int | None = None,
        sinks: bool = False,
        device: Any = None,
        dtype: torch.dtype | None = None,
        **projections: Any,
    ):
        super().__init__(embed_dim, num_heads, dropout, bias, device=device, dtype=dtype, **projections)
        self.pattern = Dense(
            num_heads, self.num_key_heads, self.head_dim, self.head_dim, window=window, sinks=sinks, device=device,
            dtype=dtype,
        )  # fmt: skip
