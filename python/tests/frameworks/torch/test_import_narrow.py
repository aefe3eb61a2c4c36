# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sums and products of many elements of bf16 and f16 by import_torch are those of f32, rounded once, as PyTorch's are."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from test_import_operations import Call

import fovea

pytest.importorskip("torch_mlir")

N = 700


def factors(x):
    """That all types have."""
    return torch.where(x > 2, 1.0078125, 0.9921875).to(x.dtype)


def places(x):
    return torch.arange(N).expand(x.shape[0], -1) % 3


FUNCTIONS = {
    "sum": lambda x: x.sum(-1),
    "sum of columns": lambda x: x.T.sum(0),
    "sum of all": lambda x: x.sum(),
    "sum of integers": lambda x: (x > 1).sum(dtype=x.dtype),
    "sum in f32": lambda x: x.sum(dtype=torch.float32),
    "mean": lambda x: x.mean(-1),
    "mean of all": lambda x: x.mean(),
    "cumsum": lambda x: x.cumsum(-1),
    "prod": lambda x: factors(x).prod(-1),
    "cumprod": lambda x: factors(x).cumprod(-1),
    "var": lambda x: x.var(-1),
    "std": lambda x: x.std(0),
    "var_mean": lambda x: torch.var_mean(x, -1),
    "norm": lambda x: (x * 100).norm(),
    "norm of power 1": lambda x: torch.linalg.vector_norm(x, ord=1, dim=-1),
    "norm of power 3": lambda x: torch.linalg.vector_norm(x * 100, ord=3),
    "normalize": lambda x: F.normalize(x, dim=-1),
    "cosine_similarity": lambda x: F.cosine_similarity(x * 100, x.roll(1, -1) + 0.5, dim=-1),
    "rms_norm": lambda x: F.rms_norm(x, x.shape[-1:], x[0], 1e-5),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "adaptive_avg_pool1d": lambda x: F.adaptive_avg_pool1d(x[None], 2),
    "scatter_add": lambda x: x.new_zeros(x.shape[0], 3).scatter_add(1, places(x), x),
    "index_add": lambda x: x.new_zeros(3, x.shape[0]).index_add(0, places(x)[0], x.T),
    "embedding_bag": lambda x: F.embedding_bag(torch.arange(N)[None], x.T.contiguous(), mode="sum"),
    "mse_loss": lambda x: F.mse_loss(x, x * 0.5),
    "l1_loss": lambda x: F.l1_loss(x, x * 0.5),
    "binary_cross_entropy_with_logits": lambda x: F.binary_cross_entropy_with_logits(x, (x > 1).to(x.dtype)),
}


def as_tuple(results):
    return results if isinstance(results, tuple) else (results,)


@pytest.mark.parametrize("target", ["cpu", "gpu-sim"])
@pytest.mark.parametrize("type", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_many_elements(name, type, target):
    x = (4 * torch.rand(4, N, generator=torch.Generator().manual_seed(0)) + 0.5).to(type)
    model = Call(FUNCTIONS[name])
    exact = as_tuple(model(x.double()))
    for found, rounded, each in zip(as_tuple(fovea.import_torch(model, x, target=target)(x)), as_tuple(model(x)), exact):
        found = torch.as_tensor(found.astype(np.float64))
        bound = 2 * (rounded.double() - each).abs().max() + 1.5 * torch.finfo(type).eps / 2 * each.abs().max()
        assert (found - each).abs().max() <= bound
