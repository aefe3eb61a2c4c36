# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The pages of patterns on tensors, and the gradients of all that they have, against those of a formula."""

import math
import types

import numpy as np
import pytest
import torch
from pattern_cases import ARRAYS, CODE, FORMULAS, INDEXERS, N, run

import fovea
import fovea.torch

#: What of NumPy the pages use.
NUMPY = types.SimpleNamespace(
    amax=torch.amax, arange=torch.arange, concatenate=torch.cat, exp=torch.exp, inf=math.inf, log=math.log,
    maximum=lambda x, least: x.clamp(min=least), where=torch.where,
)  # fmt: skip
#: Choices have no gradient, which callers have to say.
FUNCTIONS = types.SimpleNamespace(
    **{**vars(fovea.torch), "top_k": lambda scores, *rest, **options: fovea.torch.top_k(scores.detach(), *rest, **options)},
    capture=fovea.capture,
)


def make(name, only_read):
    """Leaves of all arrays that the code of a page, or its formula, reads."""
    found = {key: torch.from_numpy(each.copy()) for key, each in {**ARRAYS, **INDEXERS.get(name, {})}.items()}
    for key, each in found.items():
        each.requires_grad_(each.is_floating_point() and key in only_read and not key.startswith("index"))
    return found


def differentiate(out, arrays):
    leaves = {key: each for key, each in arrays.items() if each.requires_grad}
    torch.manual_seed(0)
    return dict(zip(leaves, torch.autograd.grad(out, list(leaves.values()), torch.randn_like(out), allow_unused=True)))


@pytest.mark.parametrize("name", FORMULAS)
def test_pattern(name):
    words = {key for key in ARRAYS if key in CODE[name]}
    found, expected = make(name, words), make(name, words)
    out, wanted = run(name, FUNCTIONS, NUMPY, found), FORMULAS[name](torch, expected)
    torch.testing.assert_close(out, wanted, rtol=0, atol=1e-12)
    gradients, others = differentiate(out, found), differentiate(wanted, expected)
    assert {"q", "k"} <= {key for key, each in others.items() if each is not None}
    for key, other in others.items():
        assert (gradients[key] is None) == (other is None), key
        if other is not None:
            torch.testing.assert_close(gradients[key], other, rtol=0, atol=1e-11 * max(1, other.abs().max().item()))


def test_a_wrong_formula_is_noticed(monkeypatch):
    monkeypatch.setitem(FORMULAS, "gpt-oss", lambda xp, a: FORMULAS["documents"](xp, a))
    with pytest.raises(AssertionError):
        test_pattern("gpt-oss")


def test_errors_name_arguments_of_patterns():
    q, k = torch.zeros(1, 2, 8, 4), torch.zeros(1, 1, 8, 4)
    with pytest.raises(ValueError, match="^summaries: found rank 3"):
        fovea.torch.hca(q, k, k[0])
    with pytest.raises(ValueError, match=r"^local\[0\]: found rank 3"):
        fovea.torch.selected(q, k, k, torch.zeros(1, 1, 8, 1, dtype=torch.int32), local=(k[0], k), window=3)


@pytest.mark.parametrize("name", ["deepseek-v4-hca", "deepseek-v4-csa"])
def test_graphs(name):
    """In one graph, with fewer queries than tokens as well."""
    arrays = {key: each.float() if each.is_floating_point() else each for key, each in make(name, ()).items()}

    def call(q, k, summaries, rows):
        if name == "deepseek-v4-hca":
            return fovea.torch.hca(q, k, summaries, window=9, interval=8)
        return fovea.torch.selected(q, summaries, summaries, rows, stride=8, local=(k, k), window=9)

    k = arrays["k"]
    summaries = fovea.torch.pool(arrays["compressed"], arrays["gate"], interval=8)
    compiled = torch.compile(call, backend="aot_eager", fullgraph=True, dynamic=True)
    for few in (N, 3):
        q = arrays["q"][:, :, -few:]
        rows = torch.from_numpy(np.random.default_rng(0).integers(-1, N // 8, (2, 1, few, 4)))
        torch.testing.assert_close(compiled(q, k, summaries, rows), call(q, k, summaries, rows))
