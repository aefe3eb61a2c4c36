# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""FlexAttention in whole models, against arrays of all scores."""

import numpy as np
import pytest
import torch
from test_flex import MASKS, OPERATIONS, SCORES, B, H, block_mask, exact, read_lse, tensors
from torch.nn.attention import flex_attention as flex
from torch_models import Call, make_gemma

import fovea
import fovea.torch

pytest.importorskip("torch_mlir")


def near(found, expected, error=2e-5):
    np.testing.assert_allclose(np.asarray(found, np.float32), expected.float().numpy(), rtol=error, atol=error)


@pytest.mark.parametrize("score", [None, *SCORES])
@pytest.mark.parametrize("mask", [None, *MASKS])
def test_functions(score, mask):
    given, blocks = tensors(), mask and block_mask(MASKS[mask])
    score, mask = SCORES.get(score), MASKS.get(mask)
    program = fovea.import_torch(Call(lambda q, k, v: flex.flex_attention(q, k, v, score, blocks)), *given)
    near(program(*given), exact(*given, score, mask))


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations(name):
    given = tensors(G=2, M=170)
    model = Call(lambda q, k, v: flex.flex_attention(q, k, v, OPERATIONS[name], enable_gqa=True))
    near(fovea.import_torch(model, *given)(*given), exact(*given, OPERATIONS[name]))


@pytest.mark.parametrize("mask", ["causal", "documents", "tensor", "number of a tensor"])
def test_masks_and_lengths_of_the_model(mask):
    """Its lists of blocks sort and scatter, and are not read."""

    def attend(q, k, v):
        blocks = flex.create_block_mask(MASKS[mask], B, H, q.shape[2], k.shape[2], device="cpu")
        return flex.flex_attention(q, k, v, SCORES["alibi"], blocks)

    program = fovea.import_torch(Call(attend), *tensors(), dynamic=(2,))
    for length in (150, 201, 255):
        given = tensors(N=length)
        near(program(*given), exact(*given, SCORES["alibi"], MASKS[mask]))


@pytest.mark.parametrize("target", ["cpu", "gpu-sim"])
@pytest.mark.parametrize("function", [flex.flex_attention, fovea.torch.flex_attention])
def test_lse(function, target):
    score, mask = SCORES["alibi"], MASKS["rows without keys"]
    model = Call(lambda q, k, v: read_lse(q, k, v, score, block_mask(mask), function))
    given = tensors()
    found = fovea.import_torch(model, *given, target=target)(*given)
    for one, other in zip(found, exact(*given, score, mask, return_lse=True), strict=True):
        near(one, other)


def test_lse_of_any_length():
    model = Call(lambda q, k, v: flex.flex_attention(q, k, v, SCORES["alibi"], return_lse=True)[1])
    program = fovea.import_torch(model, *tensors(), dynamic=(2,))
    for length in (150, 7):
        given = tensors(N=length)
        near(program(*given), exact(*given, SCORES["alibi"], return_lse=True)[1])


@pytest.mark.parametrize("target", ["cpu", "gpu-sim"])
def test_own_function_and_types(target):
    given = [each.bfloat16() for each in tensors(N=70, G=2)]
    blocks = block_mask(MASKS["window"], N=70)
    model = Call(lambda q, k, v: fovea.torch.flex_attention(q, k, v, SCORES["soft-cap"], blocks, enable_gqa=True))
    expected = exact(*(each.float() for each in given), SCORES["soft-cap"], MASKS["window"])
    near(fovea.import_torch(model, *given, target=target)(*given), expected, 2e-2)


def test_transformers():
    model = make_gemma()
    ids = torch.randint(3, 90, (2, 29), generator=torch.Generator().manual_seed(1))
    program = fovea.import_torch(model, ids, use_cache=False, dynamic=(1,))
    model.set_attn_implementation("eager")
    for length in (29, 5):
        with torch.no_grad():
            near(program(ids[:, :length]), model(ids[:, :length], use_cache=False).logits)


#: Of a list of the first block alone.
LISTS = flex.BlockMask.from_kv_blocks(
    torch.ones(1, 1, 2, dtype=torch.int32), torch.zeros(1, 1, 2, 2, dtype=torch.int32), seq_lengths=(150, 150)
)
REFUSED = {
    "found lists of blocks alone, .* needed a mask_mod": lambda q, k, v: flex.flex_attention(q, k, v, block_mask=LISTS),
    "found erf, which functions of scores do not have": lambda q, k, v: flex.flex_attention(q, k, v, lambda s, b, h, i, j: torch.erf(s)),
    "found the logsumexp of the backend FLASH": lambda q, k, v: flex.flex_attention(
        q, k, v, return_lse=True, kernel_options={"BACKEND": "FLASH"}
    ),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_is_refused_is_named(reason):
    with pytest.raises(fovea.FoveaError, match=rf"FlexAttention is no part of a whole program here: .*{reason}.*, called at .*\.py:\d+"):
        fovea.import_torch(Call(REFUSED[reason]), *tensors())
