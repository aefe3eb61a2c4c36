# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention over keys quantized to a codebook that follows them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, distributed, nn
from torch.nn import functional as F

from ... import _arguments as check
from .._functions import codebook_update, quantize, vq
from .._functions import commitment_loss as loss_of_keys
from .._vq import VQState
from ._multihead import Multihead, Pattern

__all__ = ["VQAttention", "commitment_loss"]

#: Of the slowest sinusoid, as in Transformer-XL, in tokens over 2 pi.
_WAVELENGTH = 10000.0
#: A codeword keeps its place while about no key has come for so long that its count is less.
_LEAST_COUNT = 1e-3


class _Call(NamedTuple):
    """What a call in training leaves: with it, `checkpoint` computes the call again as it was."""

    codebook: Tensor
    codes: Tensor
    loss: Tensor
    has_gradients: bool


def _is_recomputed() -> bool:
    """Whether a gradient is being computed: what runs there is a call that `checkpoint` repeats."""
    return torch._C._current_graph_task_id() != -1


@torch.library.custom_op("fovea::codebook_of_call", mutates_args=())
def _codebook_of_call(codebook: Tensor) -> Tensor:
    """The codebook that a compiled call reads. A graph has no branch for a call that is repeated."""
    if _is_recomputed():
        raise RuntimeError(
            "quantized attention: found a compiled call that torch.utils.checkpoint computes again, needed a module "
            "in training that is not compiled within checkpoint"
        )
    return codebook.clone()


@_codebook_of_call.register_fake
def _(codebook: Tensor) -> Tensor:
    return torch.empty_like(codebook)


class VectorQuantized(Pattern):
    title = "quantized attention"

    codebook: Tensor
    sums: Tensor
    counts: Tensor

    def __init__(
        self,
        heads: int,
        key_heads: int,
        width: int,
        value_width: int,
        *,
        num_codes: int = 512,
        block: int = 512,
        memory: int = 1,
        rate: float = 0.99,
        normalize: bool = True,
        relative: bool = False,
        synchronize: bool = False,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__()
        for name, value, least in (("num_codes", num_codes, 1), ("block", block, 1), ("memory", memory, 0)):
            check.integer(name, value, least)
        if not 0 <= rate <= 1:
            raise ValueError(f"rate: found {rate}, needed a number of [0,1]")
        self.num_codes, self.block, self.memory = num_codes, block, memory
        self.rate, self.normalize, self.synchronize = rate, normalize, synchronize
        codebook = torch.empty(key_heads, num_codes, width, device=device, dtype=dtype)
        sums = torch.promote_types(codebook.dtype, torch.float32)
        self.register_buffer("codebook", codebook)
        self.register_buffer("sums", torch.empty_like(codebook, dtype=sums))
        self.register_buffer("counts", torch.empty(key_heads, num_codes, device=device, dtype=sums))
        self._last: _Call | None = None
        self.relative_proj: nn.Linear | None = None
        if relative:
            self.relative_proj = nn.Linear(heads * width, heads * width, bias=False, device=device, dtype=dtype)
            self.content_bias = nn.Parameter(torch.empty(heads, width, device=device, dtype=dtype))
            self.relative_bias = nn.Parameter(torch.empty(heads, width, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Codewords begin as random keys do: normal, and as long as keys are."""
        nn.init.normal_(self.codebook)
        self.codebook.copy_(self._normalized(self.codebook))
        self.counts.fill_(1.0)
        self.sums.copy_(self.codebook)
        if self.relative_proj is not None:
            nn.init.zeros_(self.content_bias)
            nn.init.zeros_(self.relative_bias)

    def __getstate__(self) -> dict[str, Any]:
        # The loss belongs to a graph, which cannot be copied.
        return {**super().__getstate__(), "_last": None}

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        # Sums stay wide where a model is made narrower: small shares of keys would not change others.
        before = {name: getattr(self, name) for name in ("sums", "counts")}
        super()._apply(fn, recurse)
        wide = torch.promote_types(self.codebook.dtype, torch.float32)
        for name, each in before.items():
            if (moved := getattr(self, name)).dtype != wide:
                setattr(self, name, each.to(moved.device, wide))
        return self

    def extra_repr(self) -> str:
        text = f"num_codes={self.num_codes}, block={self.block}, memory={self.memory}, rate={self.rate}"
        text += "" if self.normalize else ", normalize=False"
        text += ", synchronize=True" if self.synchronize else ""
        return text + ("" if self.relative_proj is None else ", relative=True")

    def _normalized(self, x: Tensor) -> Tensor:
        """Rows of root mean square tau^-1/2, where tau = sqrt(D) is the temperature."""
        return F.rms_norm(x, x.shape[-1:]) * x.shape[-1] ** -0.25 if self.normalize else x

    def _relative_terms(self, q: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Queries with the bias of content, and keys by distance with what to add to those
        queries for them."""
        assert self.relative_proj is not None
        heads, width = self.content_bias.shape
        distances = torch.arange((self.memory + 1) * self.block, device=q.device, dtype=torch.float32)
        places = torch.arange(0, heads * width, 2, device=q.device, dtype=torch.float32)
        angles = distances[:, None] * _WAVELENGTH ** (-places / (heads * width))
        embedded = torch.cat([angles.sin(), angles.cos()], -1)[:, : heads * width]
        keys = self.relative_proj(embedded.to(self.relative_proj.weight.dtype))
        # Normalised queries and keys are that long, too.
        factor = width**-0.25 if self.normalize else 1.0
        r = (factor * keys).unflatten(-1, (heads, width)).transpose(0, 1).to(q.dtype)
        content = (factor * self.content_bias).to(q.dtype)
        return q + content[:, None], (r.contiguous(), (factor * self.relative_bias).to(q.dtype) - content)

    @torch.no_grad()
    def _follow(self, k: Tensor, codes: Tensor) -> None:
        """Moves the codebook to the keys that chose it."""
        codebook, sums, counts = codebook_update(k, codes, self.sums, self.counts, rate=self.rate)
        if self.synchronize and distributed.is_available() and distributed.is_initialized():
            # Both are linear in the keys of a call.
            for each in (sums, counts):
                distributed.all_reduce(each)
                each /= distributed.get_world_size()
            codebook = sums / counts[..., None]
        is_used = (counts > _LEAST_COUNT)[..., None]
        self.codebook.copy_(torch.where(is_used, codebook.to(self.codebook.dtype), self.codebook))
        self.sums.copy_(sums)
        self.counts.copy_(counts)

    def _train(self, k: Tensor, present: Tensor | None) -> Tensor:
        """The codebook of a call in training, which moves behind it: gradients are of this one."""
        last = None if torch.compiler.is_compiling() or not _is_recomputed() else self._last
        codebook = _codebook_of_call(self.codebook.to(k.dtype)) if last is None else last.codebook
        k_hat, codes = quantize(k.detach(), codebook, mask=present)
        loss = loss_of_keys(k, k_hat, mask=present) if k.numel() > 0 else (0 * k).sum()
        if last is None:
            self._last = _Call(codebook, codes, loss, torch.is_grad_enabled())
            # Other processes wait for each other's keys, even for none.
            if k.numel() > 0 or self.synchronize:
                self._follow(k.detach(), codes)
        elif not torch.equal(codes, last.codes):
            raise RuntimeError(
                "quantized attention: found a call that torch.utils.checkpoint computes again after others in training, "
                "which moved the codebook; needed the gradient of a call before the next one"
            )
        return codebook

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        scale: float,
        causal: bool,
        present: Tensor | None,
        bias: Tensor | None,
        state: VQState | None = None,
        return_state: bool = False,
    ) -> Any:
        self.check_self_attention(q, k, bias)
        q, k = self._normalized(q), self._normalized(k)
        codebook = self._train(k, present) if self.training else self.codebook.to(k.dtype).clone()
        relative = None
        if self.relative_proj is not None:
            if not causal:
                raise ValueError("is_causal: found False, needed True with relative=True")
            q, relative = self._relative_terms(q)
        return vq(
            q, k, v, codebook, block=self.block, memory=self.memory, causal=causal, mask=present, relative=relative,
            scale=1.0 if self.normalize else scale, state=state, return_state=return_state,
        )  # fmt: skip


class VQAttention(Multihead):
    """Attention over quantized keys: O(N (S + (memory + 1) block)), in windows of any length.

    Keys are replaced by the nearest of `num_codes` codewords of their head.  Causal queries read
    the tokens of their own block and of `memory` blocks before it one by one, from which keys
    have gradients, and older ones as codewords.  Queries and keys
    are first divided by their root mean square and the square root of the temperature,
    sqrt(D); `normalize=False` leaves them and scales scores by 1/sqrt(D).  The codebook is a
    buffer: in training, every call moves it towards the means of the keys that chose each
    codeword, exponentially smoothed with `rate`.  Gradients pass straight through to keys.

    `commitment_loss(model)` is what training adds, times 1e-4 in the paper, to the loss of the
    task: the mean over keys of |k - codeword|^2, summed over modules, of their last calls.

    With `synchronize`, the codebook follows the keys of all processes of `torch.distributed`, where
    that is initialized: each of them calls the module as often as the others.  Without it, each
    process has a codebook of its own keys, and DistributedDataParallel sends that of the first.

    With `relative`, and `is_causal` then, scores of the tokens read one by one depend on
    distances as in Transformer-XL: `pattern.relative_proj` makes keys of sinusoids of
    distances, `pattern.content_bias` and `pattern.relative_bias` are added to queries.

    With `gated`, values and a projection of the query pass through SiLU and the output is
    multiplied by the latter: the paper's gated attention unit.

    Shapes: [N,B,F] to [N,B,F], or [B,N,F] with `batch_first`; see `forward`.  Queries and keys
    are of the same tokens; of masks, there are `key_padding_mask` and `is_causal`.

    From "Transformer-VQ" (arXiv:2309.16354).

        import torch
        from fovea.torch import nn

        attention = nn.VQAttention(64, 4, num_codes=32, block=16, batch_first=True)
        tokens = torch.randn(2, 100, 64)
        first, state = attention(tokens[:, :60], is_causal=True, return_state=True)
        second, _ = attention(tokens[:, 60:], is_causal=True, state=state)
        loss = torch.cat([first, second], 1).square().mean() + 1e-4 * nn.commitment_loss(attention)
        loss.backward()
        assert second.shape == (2, 40, 64) and attention.pattern.codebook.shape == (4, 32, 16)
    """

    pattern: VectorQuantized
    pattern_type = VectorQuantized

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        *,
        num_codes: int = 512,
        block: int = 512,
        memory: int = 1,
        rate: float = 0.99,
        normalize: bool = True,
        relative: bool = False,
        synchronize: bool = False,
        gated: bool = False,
        device: Any = None,
        dtype: torch.dtype | None = None,
        **projections: Any,
    ):
        super().__init__(embed_dim, num_heads, dropout, bias, device=device, dtype=dtype, **projections)
        self.gate_proj = nn.Linear(embed_dim, embed_dim, bias=bias, device=device, dtype=dtype) if gated else None
        self.pattern = VectorQuantized(
            num_heads, self.num_key_heads, self.head_dim, self.head_dim, num_codes=num_codes, block=block, memory=memory,
            rate=rate, normalize=normalize, relative=relative, synchronize=synchronize, device=device, dtype=dtype,
        )  # fmt: skip

    def forward(  # type: ignore[override]
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = False,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
        state: VQState | None = None,
        return_state: bool = False,
    ) -> tuple[Tensor, VQState | None]:
        """The output, shaped as `query`, and None or, with `return_state`, the state after it.

        `state` is what the call for the tokens before returned: a sequence may come in windows,
        and gradients reach earlier windows through it unless it is detached.  Other arguments
        are those of `Attention`.
        """
        inputs = self.prepare(query, key, value, key_padding_mask, need_weights, attn_mask, is_causal)
        q, k, v, present, bias, is_batched = inputs
        found = self.pattern(
            q, k, v if self.gate_proj is None else F.silu(v), scale=self.head_dim**-0.5, causal=is_causal,
            present=present, bias=bias, state=state, return_state=return_state,
        )  # fmt: skip
        out, after = found if return_state else (found, None)
        if self.gate_proj is not None:
            gate = F.silu(self.gate_proj(query))
            gate = gate[None] if not is_batched else gate if self.batch_first else gate.transpose(0, 1)
            out = out * gate.unflatten(-1, (self.num_heads, self.head_dim)).transpose(1, 2)
        return self.finish(out, is_batched), after


def commitment_loss(model: nn.Module) -> Tensor:
    """The sum of the commitment losses of all quantized attention in `model`, of their last
    calls in training."""
    calls = [module._last for module in model.modules() if isinstance(module, VectorQuantized)]
    found = [call for call in calls if call is not None]
    if not calls or len(found) < len(calls):
        missing = "no quantized attention" if not calls else "some that was not called in training"
        raise ValueError(f"model: found {missing}, needed quantized attention after a call in training")
    if torch.is_grad_enabled() and not all(call.has_gradients for call in found):
        raise ValueError(
            "model: found a last call without gradients, under torch.no_grad or within checkpoint(..., use_reentrant=True), "
            "needed use_reentrant=False, or torch.no_grad here, too"
        )
    return torch.stack([call.loss for call in found]).sum()
