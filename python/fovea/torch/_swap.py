# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Replaces the attention of a model by another pattern."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ._transformers import attend, read_mask
from .nn._multihead import Multihead

__all__ = ["swap"]

#: The attention of transformers by which layers with a pattern of their own run.
_NAME = "fovea-swapped"
#: What such a layer calls its pattern.
_ATTRIBUTE = "fovea_pattern"

_Match = Callable[[str, nn.Module], bool]


def swap(
    model: nn.Module,
    module: type[Multihead],
    *,
    match: str | _Match | None = None,
    inputs: dict[str, Tensor] | None = None,
    **options: Any,
) -> list[str]:
    """Replaces the attention of `model`, in place, by that of `module`; weights are kept.

        fovea.torch.swap(model, fovea.torch.nn.FastMultipoleAttention, group=64, max_length=1024)

    `model` has `torch.nn.MultiheadAttention` modules, or is a model of transformers.  `module` is
    a class of `fovea.torch.nn`, and `options` are those that it has beside the sizes of
    projections.  Parameters that a pattern brings begin as in a new module: train them.

    `match`, if any, chooses layers: a regular expression that is searched in their names, or a
    function of name and module.  Layers of a model of transformers are found by running it once
    with `inputs`, by default its `dummy_inputs`.  They get a submodule `fovea_pattern` beside
    their own projections.

    Returns the names of the layers that were replaced.
    """
    if not (isinstance(module, type) and issubclass(module, Multihead) and module is not Multihead):
        raise ValueError(f"module: found {module!r}, needed a class of fovea.torch.nn with multihead attention")
    chosen = _chooser(match)
    transformers = sys.modules.get("transformers")
    if transformers is not None and isinstance(model, transformers.PreTrainedModel):
        names = _swap_transformers(model, module, chosen, inputs, options)
    else:
        if inputs is not None:
            raise ValueError("inputs: found some, needed None for a model that is not of transformers")
        names = _swap_multihead(model, module, chosen, options)
    if not names:
        raise ValueError(f"model: found no attention to replace in {type(model).__name__}")
    return names


def _chooser(match: str | _Match | None) -> _Match:
    if match is None:
        return lambda name, layer: True
    if isinstance(match, str):
        pattern = re.compile(match)
        return lambda name, layer: pattern.search(name) is not None
    return match


# ----------------------------------------------------------------------------
# torch.nn.MultiheadAttention
# ----------------------------------------------------------------------------


def _replace(name: str, old: nn.MultiheadAttention, module: type[Multihead], options: dict[str, Any]) -> Multihead:
    lacks = dict(dropout=old.dropout, add_zero_attn=old.add_zero_attn, add_bias_kv=old.bias_k is not None)
    for what, value in lacks.items():
        if value:
            needed = "0.0" if what == "dropout" else "False"
            raise ValueError(f"{name}: found {what}={value}, needed {what}={needed}: kernels have none")
    weight = old.out_proj.weight
    new = module(
        old.embed_dim, old.num_heads, bias=old.in_proj_bias is not None, kdim=old.kdim, vdim=old.vdim,
        batch_first=old.batch_first, device=weight.device, dtype=weight.dtype, **options,
    )  # fmt: skip
    # Weights that have columns of their own for keys also where all widths are those of queries.
    known, found = dict(new.named_parameters()), dict(old.named_parameters())
    if known.keys() & found.keys() != found.keys():
        raise ValueError(f"{name}: found parameters {sorted(found)}, needed {sorted(known)}")
    with torch.no_grad():
        for key, parameter in found.items():
            known[key].copy_(parameter)
            known[key].requires_grad_(parameter.requires_grad)
    return new.train(old.training)


def _swap_multihead(
    model: nn.Module, module: type[Multihead], chosen: _Match, options: dict[str, Any]
) -> list[str]:
    if isinstance(model, nn.MultiheadAttention):
        raise ValueError("model: found torch.nn.MultiheadAttention itself, needed a module that has one")
    found: dict[str, nn.MultiheadAttention] = {}
    for name, layer in model.named_modules(remove_duplicate=False):
        if isinstance(layer, nn.MultiheadAttention) and chosen(name, layer):
            found[name] = layer
    # All are made before one is replaced: after an error, nothing has changed.
    made: dict[int, Multihead] = {}
    for name, layer in found.items():
        if id(layer) not in made:
            made[id(layer)] = _replace(name, layer, module, options)
    for name, layer in found.items():
        parent, _, last = name.rpartition(".")
        setattr(model.get_submodule(parent), last, made[id(layer)])
    return list(found)


# ----------------------------------------------------------------------------
# Models of transformers
# ----------------------------------------------------------------------------


def _attend_by_pattern(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    **others: Any,
) -> tuple[Tensor, Tensor | None]:
    """The attention function of layers of a model whose attention was swapped."""
    pattern = getattr(module, _ATTRIBUTE, None)
    if pattern is None:
        return attend(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, is_causal=is_causal, **others
        )
    for name in ("softcap", "s_aux", "position_bias", "indices", "block_indices", "output_attentions"):
        if others.get(name) is not None and others[name] is not False:
            raise pattern.refuse(name, "one", "None")
    if dropout:
        raise pattern.refuse("dropout", dropout, "0")
    is_causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    admitted = read_mask(attention_mask, is_causal, query.shape[2], key.shape[2])
    if admitted.window is not None:
        raise pattern.refuse("attention_mask", f"a window of {admitted.window} tokens", "none")
    present = None if admitted.log_weight is None else admitted.log_weight[:, 0] == 0
    out = pattern(
        query,
        key[:, :, : admitted.length],
        value[:, :, : admitted.length],
        scale=query.shape[-1] ** -0.5 if scaling is None else scaling,
        causal=admitted.causal,
        present=present,
        bias=admitted.bias,
    )
    return out.transpose(1, 2).contiguous(), None


def _find_layers(model: Any, inputs: dict[str, Tensor] | None) -> dict[Any, tuple[int, int, int, int]]:
    """The layers that ask for attention, and their H, G, D and E."""
    from transformers import AttentionInterface, AttentionMaskInterface

    from ._mask_functions import make_mask

    found: dict[Any, tuple[int, int, int, int]] = {}

    def record(module: Any, query: Tensor, key: Tensor, value: Tensor, *args: Any, **options: Any) -> Any:
        found[module] = (query.shape[1], key.shape[1], query.shape[3], value.shape[3])
        # Each model has its own form of the call.
        return attend(module, query, key, value, *args, **options)

    AttentionInterface.register(_NAME, record)
    AttentionMaskInterface.register(_NAME, make_mask)
    before, was_training = model.config._attn_implementation, model.training
    try:
        model.eval().set_attn_implementation(_NAME)
        with torch.no_grad():
            model(**(model.dummy_inputs if inputs is None else inputs))
    finally:
        AttentionInterface.register(_NAME, _attend_by_pattern)
        model.set_attn_implementation(before)
        model.train(was_training)
    return found


def _swap_transformers(
    model: Any,
    module: type[Multihead],
    chosen: _Match,
    inputs: dict[str, Tensor] | None,
    options: dict[str, Any],
) -> list[str]:
    found = _find_layers(model, inputs)
    patterns = {}
    for name, layer in model.named_modules():
        if layer in found and chosen(name, layer):
            weight = next(layer.parameters())
            patterns[name] = module.pattern_type(*found[layer], device=weight.device, dtype=weight.dtype, **options)
    for name, pattern in patterns.items():
        layer = model.get_submodule(name)
        setattr(layer, _ATTRIBUTE, pattern.train(layer.training))
    if patterns:
        model.set_attn_implementation(_NAME)
    return list(patterns)
