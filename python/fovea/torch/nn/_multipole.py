# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fast multipole attention."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ... import _arguments as check
from .._functions import fast_multipole
from .._shortcut import writes_program
from ._multihead import Multihead, Pattern

__all__ = ["FastMultipoleAttention"]


class _Beside(torch.autograd.Function):
    """The first tensor, with gradients of zeros for all others."""

    generate_vmap_rule = True

    @staticmethod
    def forward(out: Tensor, *others: Tensor) -> Tensor:
        return out.view_as(out)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.save_for_backward(*inputs[1:])

    @staticmethod
    def backward(ctx: Any, d_out: Tensor) -> Any:
        return d_out, *map(torch.zeros_like, ctx.saved_tensors)


class FastMultipole(Pattern):
    title = "fast multipole attention"

    def __init__(
        self,
        heads: int,
        key_heads: int,
        width: int,
        value_width: int,
        *,
        group: int = 64,
        rank: int = 4,
        max_length: int = 4096,
        share_heads: bool = True,
        multiplicity: bool = True,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__()
        for name, value in (("group", group), ("rank", rank), ("max_length", max_length)):
            check.integer(name, value, 1)
        if group % rank:
            raise ValueError(f"rank: found {rank}, needed a divisor of the group, {group}")
        self.group, self.rank, self.max_length, self.multiplicity = group, rank, max_length, multiplicity
        sizes = [group << level for level in range(self._levels(max_length))]
        sharing = 1 if share_heads else key_heads

        def weights(columns: int) -> nn.ParameterList:
            shapes = [(sharing, rank, size, columns) for size in sizes]
            return nn.ParameterList(nn.Parameter(torch.empty(shape, device=device, dtype=dtype)) for shape in shapes)

        self.key_weights, self.value_weights = weights(width), weights(value_width)
        self.reset_parameters()

    def _levels(self, tokens: int) -> int:
        """The least L with tokens <= group 2^(L+1)."""
        levels = 0
        while tokens > self.group << (levels + 1):
            levels += 1
        return levels

    def reset_parameters(self) -> None:
        """Summaries begin as means: that of a trained model's keys is the best guess that does
        not look at them."""
        with torch.no_grad():
            for weight in (*self.key_weights, *self.value_weights):
                share = weight.shape[2] // self.rank
                tokens = torch.arange(weight.shape[2], device=weight.device) // share
                chosen = tokens == torch.arange(self.rank, device=weight.device)[:, None]
                weight.copy_((chosen / share)[None, :, :, None].to(weight.dtype).expand_as(weight))

    def extra_repr(self) -> str:
        text = f"group={self.group}, rank={self.rank}, max_length={self.max_length}"
        return text + ("" if self.multiplicity else ", multiplicity=False")

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, *, scale: float, causal: bool, present: Tensor | None, bias: Tensor | None
    ) -> Tensor:
        self.check_self_attention(q, k, bias)
        if q.shape[2] > self.max_length:
            raise self.refuse("query", f"{q.shape[2]} tokens", f"at most max_length, {self.max_length},")
        # Of lengths that are not known, all: those that a length does not need are not read.
        levels = self._levels(q.shape[2] if isinstance(q.shape[2], int) else self.max_length)
        out = fast_multipole(
            q, k, v, list(self.key_weights)[:levels], list(self.value_weights)[:levels], group=self.group,
            causal=causal, scale=scale, multiplicity=self.multiplicity, mask=present,
        )  # fmt: skip
        unread = [each for each in (*self.key_weights[levels:], *self.value_weights[levels:]) if each.requires_grad]
        if not unread or not torch.is_grad_enabled() or writes_program():
            return out
        # Who gathers gradients of several processes waits for those of all parameters.
        return _Beside.apply(out, *unread)


class FastMultipoleAttention(Multihead):
    """Near tokens one by one, far ones by learned summaries: O(N log N).

    Queries read the tokens of their own and the neighbouring groups of `group` tokens, and
    `rank` weighted sums of each interval of group, 2 group, 4 group ... tokens farther away.
    The weights of the sums are parameters, for each level and column; all heads share them
    unless `share_heads` is false.  They begin as means; the paper's code leaves them to the
    defaults of a convolution.  `max_length` bounds the sequence, and thereby the levels.  A
    summary of s tokens counts s times unless `multiplicity` is false.

    Shapes: [N,B,F] to [N,B,F], or [B,N,F] with `batch_first`; see `forward`.  Queries and keys
    are of the same tokens; of masks, there are `key_padding_mask` and `is_causal`.

    From "Fast Multipole Attention" (arXiv:2310.11960).

        import torch
        from fovea.torch import nn

        attention = nn.FastMultipoleAttention(64, 4, group=16, rank=4, max_length=1024, batch_first=True)
        assert len(attention.pattern.key_weights) == 5  # levels: 16 2^6 = 1024
        tokens = torch.randn(2, 300, 64)
        out, _ = attention(tokens, is_causal=True)
        loss = out.square().mean()
        loss.backward()
        assert out.shape == tokens.shape
    """

    pattern_type = FastMultipole

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        *,
        group: int = 64,
        rank: int = 4,
        max_length: int = 4096,
        share_heads: bool = True,
        multiplicity: bool = True,
        device: Any = None,
        dtype: torch.dtype | None = None,
        **projections: Any,
    ):
        super().__init__(embed_dim, num_heads, dropout, bias, device=device, dtype=dtype, **projections)
        self.pattern = FastMultipole(
            num_heads, self.num_key_heads, self.head_dim, self.head_dim, group=group, rank=rank,
            max_length=max_length, share_heads=share_heads, multiplicity=multiplicity, device=device, dtype=dtype,
        )  # fmt: skip
