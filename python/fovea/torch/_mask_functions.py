# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Masks that models of transformers give to their layers.

Kernels take causal masks and windows as options, and absent keys as logarithms of
weights, one for each key.  `make_mask` is what `register_transformers` registers: it
looks at what a mask is made of and returns the first of these that says the same.

- None, where all keys are present, the first query stands at the first key, and a layer is causal, or
  not, by its own `is_causal`.
- A `PatternMask`: causal or not, a window, and which keys are present, [B,M].  To a model
  it is the boolean mask [B,1,N,M]; it is written out when one computes with it.
- The boolean mask [B,1,N,M]: for masks of another making, such as packed sequences,
  chunks and functions of the user, and while a graph is traced.  One query, N = 1, has no
  more than keys, too.

Models that know eager attention alone get its mask of numbers, always.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel, masking_utils
from transformers.utils.import_utils import is_tracing

from ._masks import Pattern, PatternMask

# ----------------------------------------------------------------------------
# What functions of transformers say
# ----------------------------------------------------------------------------


def _variables(function: Callable[..., Any]) -> dict[str, Any]:
    cells = function.__closure__ or ()
    return {name: cell.cell_contents for name, cell in zip(function.__code__.co_freevars, cells)}


def _is_made_by(maker: Callable[..., Any], function: Callable[..., Any]) -> bool:
    return getattr(function, "__code__", None) is maker(1).__code__


def _read(function: Callable[..., Any]) -> tuple[bool, int | None] | None:
    """Whether a mask function is causal, and its window, if it says no more than that.

    Functions are known by who made them; one that changes in a later version of
    transformers is no longer known, and its mask written out.
    """
    if function is masking_utils.causal_mask_function:
        return True, None
    if function is masking_utils.bidirectional_mask_function:
        return False, None
    if _is_made_by(masking_utils.sliding_window_bidirectional_overlay, function):
        return False, _variables(function)["sliding_window"] + 1
    if getattr(function, "__code__", None) is not masking_utils.and_masks().__code__:
        return None
    causal, windows, is_one_sided = False, [], False
    for part in _variables(function)["mask_functions"]:
        if _is_made_by(masking_utils.sliding_window_overlay, part):
            is_one_sided = True
            windows.append(_variables(part)["sliding_window"])
            continue
        found = _read(part)
        if found is None:
            return None
        causal |= found[0]
        windows += [found[1]] if found[1] is not None else []
    # A window that looks back only has no kernel unless nothing looks forward.
    return None if is_one_sided and not causal else (causal, min(windows, default=None))


def _read_pattern(
    q_length: int, kv_length: int, q_offset: Any, kv_offset: int, mask_function: Any, attention_mask: Tensor | None
) -> Pattern | None:
    found = _read(mask_function)
    if found is None:
        return None
    causal, window = found
    offset = int(q_offset) - kv_offset
    last = offset + q_length
    # In kernels the last query stands at the last key; keys behind what is causal are cut off.
    is_aligned = 0 <= offset and (last <= kv_length if causal else last == kv_length)
    if (causal or window is not None) and not is_aligned:
        return None
    keys = masking_utils.prepare_padding_mask(attention_mask, kv_length, kv_offset)
    if keys is not None:
        keys = keys[:, kv_offset : kv_offset + kv_length]
        if bool(keys[:, :last].all() if causal else keys.all()):
            keys = None
    return Pattern(causal, None if window is None or window >= last else window, keys, offset)


def _classes(module: Any) -> list[type[PreTrainedModel]]:
    """Of models, that a module makes."""
    found = [each for each in vars(module).values() if isinstance(each, type) and issubclass(each, PreTrainedModel)]
    return [each for each in found if each.__module__ == module.__name__]


def _module(kind: type) -> Any:
    """That of the models of a configuration, if it is known."""
    return sys.modules.get(kind.__module__.replace(".configuration_", ".modeling_"))


def _check_model(kind: type) -> None:
    """A model of which transformers does not compute the attention would add a mask to scores, or miss one that is None."""
    module = _module(kind)
    if module is None or module.__name__ == kind.__module__ or hasattr(module, "ALL_ATTENTION_FUNCTIONS"):
        return
    if not any(each._supports_attention_backend for each in _classes(module)):
        raise ValueError(
            f'attn_implementation: models of {kind.__name__} compute their attention themselves, needed "eager": '
            'torch.compile(model, backend="fovea") finds it'
        )


@torch.compiler.assume_constant_result
def _has_eager_alone(kind: type) -> bool:
    """Whether models know no attention but eager.  Their layers need not say whether they are causal, and some
    add the mask to scores of their own."""
    module = _module(kind)
    models = [] if module is None else _classes(module)
    return bool(models) and not any(each._supports_sdpa or each._supports_attention_backend for each in models)


def make_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: Any = 0,
    kv_offset: int = 0,
    mask_function: Callable[..., Any] = masking_utils.causal_mask_function,
    attention_mask: Tensor | None = None,
    allow_is_causal_skip: bool = True,
    allow_is_bidirectional_skip: bool = False,
    use_vmap: bool = False,
    device: Any = "cpu",
    **options: Any,
) -> Tensor | None:
    """The mask function of transformers for Fovea; see the top of this file."""
    if options.get("config") is not None:
        _check_model(type(options["config"]))
        if _has_eager_alone(type(options["config"])):
            return masking_utils.eager_mask(
                batch_size, q_length, kv_length, q_offset, kv_offset, mask_function, attention_mask, use_vmap=use_vmap,
                device=device, **options,
            )  # fmt: skip
    pattern = None
    if q_length > 1 and not use_vmap and not is_tracing(attention_mask) and not is_tracing(q_offset):
        pattern = _read_pattern(q_length, kv_length, q_offset, kv_offset, mask_function, attention_mask)
    if pattern is None:
        return masking_utils.sdpa_mask(
            batch_size,
            q_length,
            kv_length,
            q_offset,
            kv_offset,
            mask_function,
            attention_mask,
            allow_is_causal_skip=allow_is_causal_skip,
            allow_is_bidirectional_skip=allow_is_bidirectional_skip,
            use_vmap=use_vmap,
            device=device,
            **options,
        )
    may_skip = allow_is_causal_skip if pattern.causal else allow_is_bidirectional_skip
    # Without a mask the first query stands at the first key, as in `scaled_dot_product_attention`.
    is_square = not pattern.causal or (pattern.offset == 0 and q_length == kv_length)
    if may_skip and is_square and pattern.window is None and pattern.keys is None:
        return None
    return PatternMask(pattern, (batch_size, 1, q_length, kv_length), device)
