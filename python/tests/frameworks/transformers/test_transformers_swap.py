# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Layers of models of transformers get patterns beside their projections."""

import copy

import pytest
import safetensors.torch
import torch
import transformers
from small_models import make, make_inputs

from fovea.torch import _swap as swapped
from fovea.torch import nn, swap


def near(found, expected, bound=1e-5):
    assert (found - expected).abs().max() <= bound * expected.abs().max()


@pytest.mark.parametrize("padding", [None, "left", "right"])
@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "qwen3", "modernbert"])
def test_dense(name, padding):
    """As before: the pattern is the same."""
    model = make(name)
    inputs, present = make_inputs(name, padding)
    expected = model(**inputs).logits[present.bool()]
    # Its first layer has a window, for which options are none of its pattern's.
    names = swap(model, nn.Attention, match=r"\.1\." if name == "modernbert" else None)
    assert len(names) == (1 if name == "modernbert" else 2)
    near(model(**inputs).logits[present.bool()], expected)


@pytest.mark.parametrize("padding", [None, "right"])
@pytest.mark.parametrize("name", ["bert", "llama"])
def test_multipole(name, padding):
    """One group is exact; more train, as well as what the model had."""
    model = make(name)
    inputs, present = make_inputs(name, padding)
    expected = model(**inputs).logits[present.bool()]
    exact = copy.deepcopy(model)
    swap(exact, nn.FastMultipoleAttention, group=16, max_length=64)
    near(exact(**inputs).logits[present.bool()], expected)

    names = swap(model, nn.FastMultipoleAttention, group=2, rank=1, max_length=16, match=r"1")
    pattern = model.get_submodule(names[0]).fovea_pattern
    assert len(names) == 1 and len(pattern.key_weights) == 2
    assert any("fovea_pattern.key_weights.0" in key for key in model.state_dict())
    found = model(**inputs).logits[present.bool()]
    assert (found - expected).abs().max() > 1e-3
    found.logsumexp(-1).sum().backward()
    assert all(parameter.grad is not None for parameter in pattern.parameters())


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_saved_and_loaded(name, tmp_path):
    """What patterns have learned comes back behind another swap; GPT-2 shares weights."""
    model = make(name)
    swap(model, nn.FastMultipoleAttention, group=2, rank=1, max_length=16)
    for key, weight in model.named_parameters():
        if "fovea_pattern" in key:
            torch.nn.init.normal_(weight)
    inputs, _ = make_inputs(name)
    expected = model(**inputs).logits
    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path)
    swap(loaded, nn.FastMultipoleAttention, group=2, rank=1, max_length=16)
    assert not torch.equal(loaded(**inputs).logits, expected)
    safetensors.torch.load_model(loaded, tmp_path / "model.safetensors")
    assert torch.equal(loaded(**inputs).logits, expected)


def test_quantized():
    model = make("llama").train()
    names = swap(model, nn.VQAttention, num_codes=8, block=4, normalize=False)
    inputs, _ = make_inputs("llama")
    before = model.get_submodule(names[0]).fovea_pattern.codebook.clone()
    loss = model(**inputs, labels=inputs["input_ids"]).loss + 1e-4 * nn.commitment_loss(model)
    loss.backward()
    assert not torch.equal(model.get_submodule(names[0]).fovea_pattern.codebook, before)


def test_cross_attention_stays():
    """With a pattern for one layer, others run as they did."""
    model = make("whisper")
    inputs, present = make_inputs("whisper", "right")
    expected = model(**inputs).logits[present.bool()]
    names = swap(model, nn.FastMultipoleAttention, match="encoder.layers", inputs=inputs, group=8, max_length=15)
    assert names == ["model.encoder.layers.0.self_attn", "model.encoder.layers.1.self_attn"]
    near(model(**inputs).logits[present.bool()], expected)


def test_errors():
    model = make("llama")
    before = model.config._attn_implementation
    for message, call in {
        "model: found no attention to replace in LlamaForCausalLM": lambda: swap(model, nn.Attention, match="cross"),
        "rank: found 3, needed a divisor": lambda: swap(model, nn.FastMultipoleAttention, rank=3),
    }.items():
        with pytest.raises(ValueError, match=message):
            call()
        assert model.config._attn_implementation == before
    swap(model, nn.FastMultipoleAttention, group=4, max_length=64)
    inputs, _ = make_inputs("llama")
    with pytest.raises(ValueError, match="key: found 14 keys, needed as many as queries, 1, in fast multipole attention"):
        model.generate(**inputs, max_new_tokens=2, do_sample=False)
    assert model.generate(**inputs, max_new_tokens=2, do_sample=False, use_cache=False).shape == (2, 15)


@pytest.mark.parametrize(
    "name, message",
    [("gemma2", "softcap: found one, needed None in fast"), ("gpt_oss", "s_aux: found one"), ("t5", "position_bias: found one")],
)
def test_what_patterns_lack(name, message):
    model = make(name)
    inputs, _ = make_inputs(name)
    swap(model, nn.FastMultipoleAttention, inputs=inputs, group=4, max_length=64)
    with pytest.raises(ValueError, match=message):
        model(**inputs)
    model = make("mistral")
    swap(model, nn.FastMultipoleAttention, group=4, max_length=64)
    with pytest.raises(ValueError, match="attention_mask: found a window of 5 tokens, needed none in fast"):
        model(**make_inputs("mistral")[0])


def test_the_attention_is_registered():
    swap(make("bert"), nn.Attention)
    registered = transformers.AttentionInterface()[swapped._NAME]
    assert registered is swapped._attend_by_pattern
