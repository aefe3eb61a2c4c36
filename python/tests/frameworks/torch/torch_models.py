# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models that several tests import or compile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch


class Call(torch.nn.Module):
    """A function as a model."""

    def __init__(self, function: Callable[..., Any]):
        super().__init__()
        self.function = function

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs)


def make_gemma() -> Any:
    """Two layers of Gemma 2 by FlexAttention, with a soft-cap, one of them with a window."""
    transformers = pytest.importorskip("transformers")
    configuration = transformers.Gemma2Config(
        vocab_size=97, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=48,
        head_dim=8, sliding_window=8,
    )  # fmt: skip
    model = transformers.AutoModelForCausalLM.from_config(configuration, attn_implementation="flex_attention")
    return model.eval().requires_grad_(False)
