# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models as they are, compiled with torch.compile and the backend "fovea"."""

import pytest
import torch
import transformers
from small_models import CONFIGURATIONS, make, make_inputs

from fovea.torch import _backend

BOUND = 1e-5

# How many attentions are computed by Fovea, and why others are not.
ATTENTIONS = dict.fromkeys(CONFIGURATIONS, 2) | {"t5": 6, "whisper": 6}
REASONS = {
    # Of routers, which choose experts.
    "gpt_oss": "no product reads the weights as they are",
}
# They have no implementation by scaled_dot_product_attention.
EAGER_ALONE = {"gemma2", "gpt_oss"}

CASES = [
    (name, implementation, padding)
    for name in CONFIGURATIONS
    for implementation in ("eager", "sdpa")
    for padding in (None, "left")
    if not (implementation == "sdpa" and name in EAGER_ALONE)
]


@pytest.fixture
def compile(fallbacks):
    """torch.compile with backends for the rest that count, and these counts."""
    torch._dynamo.reset()

    def compile(model, rest="eager", **options):
        counts = []

        def count(module, inputs):
            counts.append(sum(node.target is _backend.attend for node in module.graph.nodes))
            return torch._dynamo.lookup_backend(rest)(module, inputs)

        return torch.compile(model, backend="fovea", options={"rest": count}, **options), counts

    return compile


def near(found, expected):
    assert found.shape == expected.shape
    assert (found - expected).abs().max() <= BOUND * expected.abs().max()


def check_reasons(name, found):
    assert bool(found) == (name in REASONS)
    assert all(REASONS[name] in each.reason for each in found)


@pytest.mark.parametrize("name, implementation, padding", CASES)
@torch.no_grad()
def test_forward(name, implementation, padding, compile, fallbacks):
    model = make(name)
    model.set_attn_implementation(implementation)
    inputs, present = make_inputs(name, padding)
    if padding is None:
        inputs.pop("attention_mask", None)
    compiled, counts = compile(model)
    near(compiled(**inputs).logits[present.bool()], model(**inputs).logits[present.bool()])
    assert sum(counts) == ATTENTIONS[name]
    check_reasons(name, fallbacks())


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "t5"])
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@torch.no_grad()
def test_lengths_compile_once(name, implementation, compile, fallbacks):
    model = make(name)
    model.set_attn_implementation(implementation)
    compiled, counts = compile(model, dynamic=True)
    for tokens in (9, 13, 21):
        inputs, _ = make_inputs(name, None, tokens)
        inputs.pop("attention_mask")
        near(compiled(**inputs).logits, model(**inputs).logits)
    assert counts == [ATTENTIONS[name]] and not fallbacks()


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "gemma2", "t5", "gpt_oss"])
def test_gradients(name, compile):
    model = make(name)
    inputs, present = make_inputs(name)
    compiled, counts = compile(model, "aot_eager")
    gradients = []
    for each in (model, compiled):
        model.zero_grad(set_to_none=True)
        logits = each(**inputs).logits[present.bool()]
        torch.nn.functional.cross_entropy(logits, torch.arange(len(logits)) % logits.shape[-1]).backward()
        gradients.append({key: value.grad for key, value in model.named_parameters() if value.grad is not None})
    expected, found = gradients
    assert found.keys() == expected.keys() and sum(counts) == ATTENTIONS[name]
    largest = max(each.abs().max() for each in expected.values())
    for key, gradient in expected.items():
        size = gradient.abs().max().clamp(min=0.02 * largest)
        assert (found[key] - gradient).abs().max() <= BOUND * size, key


def test_inductor(compile):
    """What it assumes of operators is what they do, also in gradients of sinks."""
    model = make("gpt_oss")
    inputs, _ = make_inputs("gpt_oss")
    compiled, counts = compile(model, "inductor")
    expected = model(**inputs).logits
    found = compiled(**inputs).logits
    near(found, expected)
    found.square().mean().backward()
    assert sum(counts) == 2


@torch.no_grad()
def test_vision(compile, fallbacks):
    torch.manual_seed(0)
    configuration = transformers.ViTConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, image_size=24, patch_size=8
    )
    for implementation in ("eager", "sdpa"):
        torch._dynamo.reset()
        model = transformers.ViTModel._from_config(configuration, attn_implementation=implementation).eval()
        compiled, counts = compile(model)
        images = torch.randn(2, 3, 24, 24)
        near(compiled(images).last_hidden_state, model(images).last_hidden_state)
        assert sum(counts) == 2 and not fallbacks()


@torch.no_grad()
def test_caches(compile, fallbacks):
    """Token by token, with one query and keys of before."""
    model = make("llama")
    model.set_attn_implementation("sdpa")
    ids = make_inputs("llama")[0]["input_ids"]
    expected = model.generate(ids, max_new_tokens=6, min_new_tokens=6, do_sample=False)
    model.forward, counts = compile(model.forward)
    assert torch.equal(model.generate(ids, max_new_tokens=6, min_new_tokens=6, do_sample=False), expected)
    assert counts and all(count == 2 for count in counts) and not fallbacks()
