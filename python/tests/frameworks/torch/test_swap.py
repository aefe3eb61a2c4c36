# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models keep their weights when their attention is replaced."""

import copy

import pytest
import torch
from nn_cases import OPTIONS, gradients, near, normal

from fovea.torch import nn, swap

ABSENT = torch.arange(29) >= torch.tensor([[29], [21]])


def make_encoder(dtype=torch.float32):
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True, dtype=dtype)
    return torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


@pytest.mark.parametrize("is_training", [False, True])
def test_dense(is_training):
    model = make_encoder()
    model.layers[1].self_attn.in_proj_weight.requires_grad_(False)
    expected = copy.deepcopy(model).double().train(is_training)
    assert swap(model.train(is_training), nn.Attention) == ["layers.0.self_attn", "layers.1.self_attn"]
    assert isinstance(model.layers[0].self_attn, nn.Attention) and model.state_dict().keys() == expected.state_dict().keys()
    assert model.layers[0].self_attn.training == is_training
    x = normal(2, 29, 16)
    found = model(x, src_key_padding_mask=ABSENT)[~ABSENT]
    expected_out = expected(x.double(), src_key_padding_mask=ABSENT)[~ABSENT]
    near(found, expected_out)
    wanted = gradients(expected, expected_out)
    given = gradients(model, found)
    assert given.keys() == wanted.keys() and "layers.1.self_attn.in_proj_weight" not in given
    for name in wanted:
        near(given[name], wanted[name], 5e-5)


@pytest.mark.parametrize("name", OPTIONS)
def test_patterns(name):
    """Projections are those of before; the pattern is a new one."""
    module, options = OPTIONS[name]
    options = {key: value for key, value in options.items() if key != "num_key_heads"}
    model = make_encoder()
    before = model.layers[1].self_attn
    assert swap(model, module, match=r"layers\.1", **options) == ["layers.1.self_attn"]
    after = model.layers[1].self_attn
    assert isinstance(after, module) and isinstance(model.layers[0].self_attn, torch.nn.MultiheadAttention)
    for key, parameter in before.named_parameters():
        assert torch.equal(dict(after.named_parameters())[key], parameter)
    mask = torch.nn.Transformer.generate_square_subsequent_mask(29)
    model.train()(normal(2, 29, 16), mask=mask, is_causal=True).sum().backward()


def test_exact_where_a_pattern_is():
    """A multipole of one group reads everything token by token."""
    model = make_encoder(torch.float64)
    expected = copy.deepcopy(model)
    swap(model, nn.FastMultipoleAttention, group=32, max_length=64)
    x = normal(2, 29, 16, dtype=torch.float64)
    near(model(x), expected(x), 1e-12)


def test_shared_modules_stay_shared():
    model = torch.nn.ModuleDict(dict(one=torch.nn.MultiheadAttention(16, 2)))
    model["other"] = model["one"]
    assert swap(model, nn.Attention, match=lambda name, module: True) == ["one", "other"]
    assert model["one"] is model["other"]


def test_errors():
    model = make_encoder()
    before = [layer.self_attn for layer in model.layers]
    for message, call in {
        "module: found 'dense', needed a class of fovea.torch.nn": lambda: swap(model, "dense"),
        "module: found .*VccEncoder": lambda: swap(model, nn.VccEncoder),
        "model: found no attention to replace in Linear": lambda: swap(torch.nn.Linear(1, 1), nn.Attention),
        "model: found no attention to replace in TransformerEncoder": lambda: swap(model, nn.Attention, match="cross"),
        "model: found torch.nn.MultiheadAttention itself": lambda: swap(before[0], nn.Attention),
        "inputs: found some": lambda: swap(model, nn.Attention, inputs={}),
        "rank: found 3": lambda: swap(model, nn.FastMultipoleAttention, rank=3),
    }.items():
        with pytest.raises(ValueError, match=message):
            call()
    model.layers[1].self_attn.dropout = 0.1
    with pytest.raises(ValueError, match=r"layers.1.self_attn: found dropout=0.1, needed dropout=0.0"):
        swap(model, nn.Attention)
    for options, message in ((dict(add_bias_kv=True), "add_bias_kv=True"), (dict(add_zero_attn=True), "add_zero_attn=True")):
        model = torch.nn.Sequential(torch.nn.MultiheadAttention(16, 2, **options))
        with pytest.raises(ValueError, match=f"0: found {message}"):
            swap(model, nn.Attention)
    # Nothing was replaced before the error.
    assert [layer.self_attn for layer in make_encoder().layers] != before
    assert all(isinstance(each, torch.nn.MultiheadAttention) for each in before)
