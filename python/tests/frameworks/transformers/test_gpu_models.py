# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# REQUIRES: long-tests
"""Whole models as kernels for GPUs, which the emulator runs."""

import numpy as np
import pytest
import torch
import transformers

import fovea

pytest.importorskip("torch_mlir")

TEXT = {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
GROUPED = {**TEXT, "num_key_value_heads": 2}
IMAGE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "image_size": 32, "patch_size": 8}
MODELS = {
    "GPT2": {"vocab_size": 50, "n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 32, "bos_token_id": 1, "eos_token_id": 2},
    "Bert": TEXT,
    "Llama": GROUPED,
    "Gemma2": {**GROUPED, "head_dim": 8},
    "ModernBert": {**TEXT, "pad_token_id": 0, "cls_token_id": 1, "sep_token_id": 2, "bos_token_id": 1, "eos_token_id": 2},
    "Bloom": {"vocab_size": 50, "hidden_size": 32, "n_layer": 2, "n_head": 4},
    "Mixtral": {**GROUPED, "num_local_experts": 4},
    "GptOss": {**GROUPED, "head_dim": 8, "num_local_experts": 4, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2},
    "ViT": IMAGE,
    "Swin": {"image_size": 32, "patch_size": 4, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4},
    "ConvNext": {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1], "image_size": 32},
    "FNet": TEXT,
}
IMAGES = ("ViT", "Swin", "ConvNext")


def make(name):
    torch.manual_seed(0)
    return getattr(transformers, name + "Model")(getattr(transformers, name + "Config")(**MODELS[name])).eval()


def first(results):
    return np.asarray(results[0] if isinstance(results, tuple) else results)


def near(found, expected, bound=1e-5):
    expected = expected.detach().numpy()
    assert found.shape == expected.shape and np.abs(found - expected).max() <= bound * np.abs(expected).max()


@pytest.mark.parametrize("name", MODELS)
def test_models(name):
    model = make(name)
    inputs = torch.randn(1, 3, 32, 32) if name in IMAGES else torch.randint(0, 50, (2, 9))
    options = {} if name in (*IMAGES, "Bert", "ModernBert") else {"use_cache": False}
    program = fovea.import_torch(model, inputs, target="gpu-sim", **options)
    near(first(program(inputs)), model(inputs, **options)[0])


@pytest.mark.parametrize("name", ["Bert", "Llama"])
def test_any_length(name):
    model, options = make(name), {} if name == "Bert" else {"use_cache": False}
    program = fovea.import_torch(model, torch.randint(0, 50, (2, 9)), target="gpu-sim", dynamic=(0, 1), **options)
    for shape in ((3, 13), (2, 5)):
        ids = torch.randint(0, 50, shape)
        near(first(program(ids)), model(ids, **options)[0])


class Last(torch.nn.Module):
    """A part of one result, and the first of a batch."""

    def __init__(self):
        super().__init__()
        self.model = make("Llama")

    def forward(self, ids):
        hidden = self.model(ids, use_cache=False)[0]
        return hidden[:, -1], hidden[0], hidden[:1]


def test_parts_of_results():
    model, ids = Last(), torch.randint(0, 50, (2, 9))
    for found, expected in zip(fovea.import_torch(model, ids, target="gpu-sim")(ids), model(ids), strict=True):
        near(np.asarray(found), expected)


def test_tokens_out_of_the_vocabulary():
    """The text is that of the CPU, and the next call is right."""
    model, ids = make("Llama"), torch.randint(0, 50, (2, 9))
    program = fovea.import_torch(model, ids, target="gpu-sim", use_cache=False)
    for wrong, text in ((50, "smaller than dim size"), (-1, "larger or equal to 0")):
        with pytest.raises(fovea.FoveaError, match=f"index must be {text}"):
            program(torch.full((2, 9), wrong))
    near(first(program(ids)), model(ids, use_cache=False)[0])
