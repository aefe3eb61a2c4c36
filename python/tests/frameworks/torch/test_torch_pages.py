# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The code of pages about PyTorch runs as it is printed."""

import pytest
import torch
from test_page_code import read_blocks, run

import fovea.torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.attention = torch.nn.Embedding(20, 16), torch.nn.MultiheadAttention(16, 2, batch_first=True)

    def forward(self, input_ids, attention_mask=None):
        x = self.table(input_ids)
        hidden = None if attention_mask is None else attention_mask == 0
        return x + self.attention(x, x, x, key_padding_mask=hidden, need_weights=False)[0]


def test_pytorch(tmp_path, monkeypatch):
    pytest.importorskip("torch_mlir", reason="needs torch-mlir")
    monkeypatch.chdir(tmp_path)
    ids = torch.arange(10).reshape(2, 5)
    model = Model().eval()
    named = {"model": model, "tokens": ids, "input_ids": ids, "ids": ids, "mask": torch.ones_like(ids)}
    run("docs/PyTorch.md", read_blocks("docs/PyTorch.md"), [named, *[{}] * 4, named, named])


def make_config(transformers):
    return transformers.LlamaConfig(
        vocab_size=20, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1
    )


def test_modules(tmp_path):
    transformers = pytest.importorskip("transformers", reason="needs transformers")
    saved = transformers.LlamaForCausalLM(make_config(transformers))
    fovea.torch.swap(saved, fovea.torch.nn.FastMultipoleAttention, group=64, rank=4, max_length=4096)
    saved.save_pretrained(tmp_path)
    quantized = fovea.torch.nn.VQAttention(16, 2)
    out, _ = quantized(torch.randn(9, 2, 16))
    given = [{"torch": torch, "model": quantized, "task_loss": out.sum()}, {"model": Model()}, {"path": tmp_path}]
    run("docs/Modules.md", read_blocks("docs/Modules.md"), given)


def test_transformers(tmp_path):
    transformers = pytest.importorskip("transformers", reason="needs transformers")
    transformers.AutoModel.from_config(make_config(transformers)).save_pretrained(tmp_path)
    run("docs/Transformers.md", read_blocks("docs/Transformers.md"), [{"path": tmp_path}, {}])
