# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention by sums of convolutions."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ... import _arguments as check
from .._functions import conv
from ._multihead import Multihead, Pattern

__all__ = ["ConvBasisAttention"]


class ConvBasis(Pattern):
    title = "attention by convolutions"

    def __init__(
        self,
        heads: int,
        key_heads: int,
        width: int,
        value_width: int,
        *,
        num_basis: int = 8,
        window: int = 8,
        delta: float = 1.0,
        epsilon: float = 0.0,
        **place: Any,
    ):
        super().__init__()
        for name, value in (("num_basis", num_basis), ("window", window)):
            check.integer(name, value, 1)
        self.num_basis, self.window, self.delta, self.epsilon = num_basis, window, delta, epsilon

    def extra_repr(self) -> str:
        return f"num_basis={self.num_basis}, window={self.window}, delta={self.delta}, epsilon={self.epsilon}"

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, *, scale: float, causal: bool, present: Tensor | None, bias: Tensor | None
    ) -> Tensor:
        self.check_self_attention(q, k, bias)
        if not causal:
            raise self.refuse("is_causal", False, "True")
        # The search looks at the first `window` entries of columns, which short sequences lack.
        count = q.shape[2]
        if count == 0:
            return v.repeat_interleave(q.shape[1] // v.shape[1], 1)
        window = self.window if count >= self.window else int(count)
        # A whole program of any length has room for all bases in short sequences, too: results are the same.
        num_basis = self.num_basis if isinstance(count, torch.SymInt) else min(self.num_basis, count)
        return conv(
            q, k, v, num_basis=num_basis, window=window, delta=self.delta, epsilon=self.epsilon, scale=scale, token_mask=present
        )


class ConvBasisAttention(Multihead):
    """Causal attention whose scores are taken for a sum of convolutions: O(R N log N).

    At most `num_basis` convolutions are found in the scores of each head: a column of scores
    begins a new one where its first `window` entries differ from what the convolutions so far
    say by `delta - 2 window epsilon` in sum.  With `num_basis` = N, a window of 1 and zeros the
    result is exact.  The pattern has no parameters; gradients take what was found as constants.

    Shapes: [N,B,F] to [N,B,F], or [B,N,F] with `batch_first`; see `forward`.  Queries and keys
    are of the same tokens, and `is_causal` must be true; of masks, there is `key_padding_mask`.

    From "Conv-Basis" (arXiv:2405.05219).

        import torch
        from fovea.torch import nn

        attention = nn.ConvBasisAttention(64, 4, num_basis=16, window=4, batch_first=True)
        tokens = torch.randn(2, 100, 64)
        out, _ = attention(tokens, is_causal=True)
        assert out.shape == tokens.shape
        loss = out.square().mean()
        loss.backward()
        assert attention.in_proj_weight.grad is not None
    """

    pattern_type = ConvBasis

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        *,
        num_basis: int = 8,
        window: int = 8,
        delta: float = 1.0,
        epsilon: float = 0.0,
        **projections: Any,
    ):
        super().__init__(embed_dim, num_heads, dropout, bias, **projections)
        self.pattern = ConvBasis(
            num_heads, self.num_key_heads, self.head_dim, self.head_dim, num_basis=num_basis, window=window, delta=delta,
            epsilon=epsilon,
        )  # fmt: skip
