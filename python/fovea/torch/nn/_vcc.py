# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Encoders over compressed sequences."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ... import _arguments as check
from .._functions import dense
from .._tree import Tree, tree_build, tree_fetch, tree_materialize, tree_score, tree_select, tree_update
from ._dense import Attention

__all__ = ["VccEncoder", "VccEncoderLayer"]

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"gelu": F.gelu, "relu": F.relu}


class VccEncoderLayer(nn.Module):
    """An encoder layer that reads a tree of averages where its VIP tokens look.

    At each level l of the tree, the `budgets[l]` nodes that matter most to the VIP tokens are
    split.  Attention is that of VIP tokens and the nodes left, each counting for its tokens;
    the layer moves both, and all tokens under a node move with it.  What matters is the
    probability that the layer's own heads give to a node ("heads"), or the sum over VIP tokens
    of exp(vip . node) ("exponential").  Gradients take the choice as a constant.

    Other arguments, and the names of parameters, are those of `torch.nn.TransformerEncoderLayer`.

    Shapes: VIP tokens [B,np,F] and a tree of rows [B,nodes,F], to the same.

    From "VCC" (arXiv:2305.04241).

        import torch
        from fovea.torch import nn, tree_build

        layer = nn.VccEncoderLayer(64, 4, dim_feedforward=128, budgets={1: 3})
        vip, tokens = torch.randn(2, 5, 64), torch.randn(2, 80, 64)
        tree = tree_build(tokens, ratio=8, levels=1)
        moved, tree = layer(vip, tree)
        loss = moved.square().mean()
        loss.backward()
        assert moved.shape == vip.shape and tree.nodes.shape == (2, 10 + 80, 64)
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.0,
        activation: str | Callable[[Tensor], Tensor] = "gelu",
        layer_norm_eps: float = 1e-5,
        norm_first: bool = True,
        bias: bool = True,
        *,
        budgets: Mapping[int, int],
        selection: str = "heads",
        device: Any = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__()
        if selection not in ("heads", "exponential"):
            raise ValueError(f"selection: found {selection!r}, needed 'heads' or 'exponential'")
        if isinstance(activation, str) and activation not in _ACTIVATIONS:
            raise ValueError(f"activation: found {activation!r}, needed one of {sorted(_ACTIVATIONS)} or a function")
        place: dict[str, Any] = dict(device=device, dtype=dtype)
        self.budgets, self.selection, self.norm_first = dict(budgets), selection, norm_first
        self.activation = _ACTIVATIONS[activation] if isinstance(activation, str) else activation
        self.self_attn = Attention(d_model, nhead, bias=bias, batch_first=True, **place)
        self.linear1 = nn.Linear(d_model, dim_feedforward, bias=bias, **place)
        self.linear2 = nn.Linear(dim_feedforward, d_model, bias=bias, **place)
        self.norm1 = nn.LayerNorm(d_model, layer_norm_eps, bias=bias, **place)
        self.norm2 = nn.LayerNorm(d_model, layer_norm_eps, bias=bias, **place)
        self.dropout, self.dropout1, self.dropout2 = (nn.Dropout(dropout) for _ in range(3))

    def extra_repr(self) -> str:
        return f"budgets={self.budgets}, selection={self.selection!r}, norm_first={self.norm_first}"

    def _heads(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of rows [B,n,F], as attention sees them."""
        rows = self.norm1(rows) if self.norm_first else rows
        return self.self_attn.project(rows, rows, rows)

    @torch.no_grad()
    def select(self, vip: Tensor, tree: Tree, vip_present: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The nodes at which the layer reads the sequence: level and index, [B,r] each."""
        if self.selection == "exponential":
            return tree_select(tree, self.budgets, score=vip)
        queries = self._heads(vip)[0].contiguous()

        def score(rows: Tensor, level: int) -> Tensor:
            return tree_score(queries, self._heads(rows)[1].contiguous(), mask=vip_present)

        return tree_select(tree, self.budgets, score=score)

    def _feed_forward(self, x: Tensor) -> Tensor:
        return self.dropout2(self.linear2(self.dropout(self.activation(self.linear1(x)))))

    def _move(self, rows: Tensor, log_weight: Tensor) -> Tensor:
        q, k, v = self._heads(rows)
        attended = dense(q, k, v, log_weight=log_weight[:, None])
        moved = rows + self.dropout1(self.self_attn.finish(attended, True))
        if self.norm_first:
            return moved + self._feed_forward(self.norm2(moved))
        moved = self.norm1(moved)
        return self.norm2(moved + self._feed_forward(moved))

    def forward(self, vip: Tensor, tree: Tree, vip_padding_mask: Tensor | None = None) -> tuple[Tensor, Tree]:
        """VIP tokens [B,np,F] and the tree of the others, to both after the layer.
        `vip_padding_mask` [B,np] is true for VIP tokens that are absent."""
        present = None if vip_padding_mask is None else ~vip_padding_mask
        level, index = self.select(vip.detach(), tree, present)
        rows, log_weight = tree_fetch(tree, level, index, return_log_weight=True)
        weight = torch.zeros(vip.shape[:2], dtype=log_weight.dtype, device=vip.device)
        if present is not None:
            weight = weight.masked_fill(~present, float("-inf"))
        count = vip.shape[1]
        moved = self._move(torch.cat([vip, rows], 1), torch.cat([weight, log_weight.detach()], 1))
        return moved[:, :count], tree_update(tree, level, index, moved[:, count:])


class VccEncoder(nn.Module):
    """A stack of copies of a `VccEncoderLayer` over one tree, as `torch.nn.TransformerEncoder`.

    The first `num_vip` tokens of a sequence are its VIP tokens; of the others, a tree of segments
    of `ratio` tokens, `levels` times over, is built once and moved by every layer.

    Shapes: [B,N,F] to [B,N,F], for any N.

    From "VCC" (arXiv:2305.04241).

        import torch
        from fovea.torch import nn

        layer = nn.VccEncoderLayer(64, 4, dim_feedforward=128, budgets={1: 3})
        encoder = nn.VccEncoder(layer, num_layers=2, num_vip=5, ratio=8)
        tokens = torch.randn(2, 100, 64)
        absent = torch.arange(100) >= torch.tensor([[100], [80]])
        out = encoder(tokens, src_key_padding_mask=absent)
        loss = out[~absent].square().mean()
        loss.backward()
        assert out.shape == tokens.shape
    """

    def __init__(
        self,
        encoder_layer: VccEncoderLayer,
        num_layers: int,
        norm: nn.Module | None = None,
        *,
        num_vip: int,
        ratio: int = 16,
        levels: int = 1,
    ):
        super().__init__()
        for name, value, least in (
            ("num_layers", num_layers, 1), ("num_vip", num_vip, 1), ("ratio", ratio, 2), ("levels", levels, 1)
        ):  # fmt: skip
            check.integer(name, value, least)
        self.layers = nn.ModuleList(copy.deepcopy(encoder_layer) for _ in range(num_layers))
        self.norm, self.num_vip, self.ratio, self.levels = norm, num_vip, ratio, levels

    def extra_repr(self) -> str:
        return f"num_vip={self.num_vip}, ratio={self.ratio}, levels={self.levels}"

    def forward(self, src: Tensor, src_key_padding_mask: Tensor | None = None) -> Tensor:
        """[B,N,F] to [B,N,F]; `src_key_padding_mask` [B,N] is true for tokens that are absent."""
        if src.ndim != 3 or src.shape[1] <= self.num_vip:
            raise ValueError(f"src: found shape {tuple(src.shape)}, needed [B,N,F] with N > num_vip = {self.num_vip}")
        absent = src_key_padding_mask
        if absent is not None and (absent.dtype != torch.bool or absent.shape != src.shape[:2]):
            raise ValueError(
                f"src_key_padding_mask: found {absent.dtype} of shape {tuple(absent.shape)}, needed torch.bool of "
                f"shape {tuple(src.shape[:2])}"
            )
        vip, tokens = src[:, : self.num_vip], src[:, self.num_vip :]
        count = tokens.shape[1]
        # Whole segments.
        padding = -count % self.ratio**self.levels
        vip_absent = mask = None
        if absent is not None or padding:
            absent = absent if absent is not None else src.new_zeros(src.shape[:2], dtype=torch.bool)
            vip_absent = absent[:, : self.num_vip]
            mask = F.pad(~absent[:, self.num_vip :], (0, padding))
            tokens = F.pad(tokens, (0, 0, 0, padding))
        tree = tree_build(tokens.contiguous(), ratio=self.ratio, levels=self.levels, mask=mask)
        for layer in self.layers:
            vip, tree = layer(vip, tree, vip_absent)
        out = torch.cat([vip, tree_materialize(tree)[:, :count]], 1)
        return out if self.norm is None else self.norm(out)
