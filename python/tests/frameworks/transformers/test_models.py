# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models with random weights compute with Fovea what their eager attention does."""

import pytest
import torch
import transformers
from small_models import CONFIGURATIONS, ENCODERS, make, make_inputs

import fovea.torch
from fovea.torch import _transformers

BOUND = 1e-5

DECODERS = CONFIGURATIONS.keys() - ENCODERS

# Those whose queries list their keys, which are masks where keys are as few as here.
LISTED = {"deepseek_v32", "minimax_m3"}


@pytest.fixture(autouse=True)
def share(request, monkeypatch):
    """How many of all keys lists may name before they are masks: 1 / share, and any number with 0."""
    found = getattr(request, "param", None)
    if found is not None:
        monkeypatch.setattr(_transformers, "_FEW", found)


# The indexer of MiniMax chooses blocks by padded keys, too: what rows of left padding hold, zeros or
# the mean of all values, changes what others read.
CASES = [
    (name, padding, share)
    for name in CONFIGURATIONS
    for padding in (None, "left", "right")
    for share in ([None, 0] if name in LISTED else [None])
    if (name, padding) != ("minimax_m3", "left")
]
EVERY = pytest.mark.parametrize("name, padding, share", CASES, indirect=["share"])


def near(found, expected):
    assert found.shape == expected.shape
    assert (found - expected).abs().max() <= BOUND * expected.abs().max()


@EVERY
@torch.no_grad()
def test_forward(name, padding, fallbacks):
    model = make(name)
    inputs, present = make_inputs(name, padding)
    expected = model(**inputs).logits[present.bool()]
    model.set_attn_implementation("fovea")
    near(model(**inputs).logits[present.bool()], expected)
    assert not fallbacks()


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize(
    "name, padding, share", [each for each in CASES if each[0] in DECODERS and each[1] != "right"], indirect=["share"]
)
def test_generate(name, padding, cache, fallbacks):
    model = make(name)
    inputs, _ = make_inputs(name, padding)
    if name in ("t5", "whisper"):
        inputs = {key: value for key, value in inputs.items() if not key.startswith("decoder")}
    options = dict(
        max_new_tokens=12, min_new_tokens=12, do_sample=False, return_dict_in_generate=True, output_logits=True,
        cache_implementation=cache if cache == "static" else None,
    )  # fmt: skip
    expected = model.generate(**inputs, **options)
    model.set_attn_implementation("fovea")
    found = model.generate(**inputs, **options)
    assert torch.equal(found.sequences, expected.sequences)
    for one, other in zip(found.logits, expected.logits, strict=True):
        near(one, other)
    assert not fallbacks()


@pytest.mark.parametrize("first", [7, 12])
@pytest.mark.parametrize("padding", [None, "left"])
@pytest.mark.parametrize("name", sorted(DECODERS - {"t5", "whisper", "minimax_m3"}))
@torch.no_grad()
def test_continued(name, padding, first, fallbacks):
    """A prompt in two parts, as in a conversation: the second reads what a cache has of the first."""
    model = make(name)
    inputs, present = make_inputs(name, padding)
    ids, mask = inputs["input_ids"], inputs["attention_mask"] if padding else None
    found = []
    for implementation in ("eager", "fovea"):
        model.set_attn_implementation(implementation)
        begin = model(ids[:, :first], attention_mask=mask if mask is None else mask[:, :first], use_cache=True)
        end = model(ids[:, first:], attention_mask=mask, past_key_values=begin.past_key_values)
        found.append(torch.cat([begin.logits, end.logits], 1)[present.bool()])
    near(found[1], found[0])
    assert not fallbacks()


@pytest.mark.parametrize("name", ["gpt2", "llama", "gemma2"])
@torch.no_grad()
def test_generate_with_tokens_that_are_looked_up(name, fallbacks):
    """Several tokens at once, of which the cache may lose some."""
    model = make(name)
    ids = make_inputs(name)[0]["input_ids"][:1]
    options = dict(max_new_tokens=20, do_sample=False)
    expected = model.generate(ids, **options)
    model.set_attn_implementation("fovea")
    assert torch.equal(model.generate(ids, prompt_lookup_num_tokens=2, **options), expected)
    assert not fallbacks()


def test_generate_batch(fallbacks):
    """Of several lengths at once, in another thread."""
    model = make("llama")
    prompts = [[5, 6, 7, 8, 9, 10, 11], [3, 4], [20, 21, 22, 23, 24]]
    options = dict(max_new_tokens=6, do_sample=False)
    expected = [model.generate(torch.tensor([each]), **options)[0, len(each) :].tolist() for each in prompts]
    model.set_attn_implementation("sdpa")
    generation = transformers.GenerationConfig(**options, eos_token_id=-1, pad_token_id=0, use_cuda_graph=False)
    with fovea.torch.sdpa():
        # Else it takes what memory there is.
        small = transformers.ContinuousBatchingConfig(num_blocks=16, max_batch_tokens=64)
        found = model.generate_batch(inputs=prompts, generation_config=generation, continuous_batching_config=small)
    assert [each.generated_tokens for each in found.values()] == expected
    assert not fallbacks()


@EVERY
def test_gradients(name, padding, fallbacks):
    """Of one step of training, of every parameter."""
    gradients = []
    for implementation in ("eager", "fovea"):
        model = make(name).train()
        _disable_dropout(model)
        model.set_attn_implementation(implementation)
        inputs, present = make_inputs(name, padding)
        logits = model(**inputs).logits[present.bool()]
        torch.nn.functional.cross_entropy(logits, torch.arange(len(logits)) % logits.shape[-1]).backward()
        gradients.append({key: value.grad for key, value in model.named_parameters()})
    expected, found = gradients
    largest = max(gradient.abs().max() for gradient in expected.values() if gradient is not None)
    for key, gradient in expected.items():
        assert (gradient is None) == (found[key] is None), key
        if gradient is not None:
            # Gradients that cancel, such as those of biases of keys, are noise of others.
            size = gradient.abs().max().clamp(min=0.02 * largest)
            assert (found[key] - gradient).abs().max() <= BOUND * size, key
    assert not fallbacks()


def _disable_dropout(model):
    """That of attention is left to eager attention, tested elsewhere."""
    for module in model.modules():
        for key in ("p", "dropout", "attention_dropout", "activation_dropout"):
            if isinstance(getattr(module, key, None), float):
                setattr(module, key, 0.0)


# ----------------------------------------------------------------------------
# What runs
# ----------------------------------------------------------------------------


@pytest.fixture
def calls(monkeypatch):
    """The arguments and options of all calls of kernels."""
    found = []
    dense = _transformers.dense

    def call(*arguments, **options):
        found.append((arguments, options))
        return dense(*arguments, **options)

    monkeypatch.setattr(_transformers, "dense", call)
    return found


@pytest.mark.parametrize("padding", [None, "left", "right"])
@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "mistral", "qwen3", "gemma2", "gpt_oss", "modernbert", "whisper"])
@torch.no_grad()
def test_nothing_of_queries_and_keys_is_made(name, padding, calls):
    """Causal masks, windows and padding are options, and keys are not repeated."""
    model = make(name)
    model.set_attn_implementation("fovea")
    model(**make_inputs(name, padding)[0])
    assert len(calls) == (6 if name == "whisper" else 2)
    assert all(options["bias"] is None for _, options in calls)
    padded = [options["log_weight"] is not None for _, options in calls]
    assert any(padded) == (padding is not None)
    assert all((options["score"] is not None) == (name == "gemma2") for _, options in calls)
    if name in ("llama", "mistral", "qwen3", "gemma2", "gpt_oss"):
        assert all(key.shape[1] == 2 for (_, key, *_), _ in calls)


@torch.no_grad()
def test_canary():
    """Without the masks that come with it, an attention function does not know of padding."""
    transformers.AttentionInterface.register("fovea-without-masks", _transformers.attend)
    model = make("bert")
    inputs, present = make_inputs("bert", "right")
    expected = model(**inputs).logits[present.bool()]
    model.set_attn_implementation("fovea-without-masks")
    with pytest.raises(AssertionError):
        near(model(**inputs).logits[present.bool()], expected)


@pytest.mark.parametrize("padding", [None, "left", "right"])
@pytest.mark.parametrize("name", ["bert", "llama", "gemma2", "gpt_oss", "t5"])
def test_compile(name, padding):
    """One graph, forward and backward."""
    model = make(name)
    inputs, present = make_inputs(name, padding)
    model(**inputs).logits[present.bool()].logsumexp(-1).sum().backward()
    expected = {key: value.grad.clone() for key, value in model.named_parameters() if value.grad is not None}
    model.zero_grad()
    model.set_attn_implementation("fovea")
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    compiled(**inputs).logits[present.bool()].logsumexp(-1).sum().backward()
    largest = max(gradient.abs().max() for gradient in expected.values())
    for key, gradient in expected.items():
        found = dict(model.named_parameters())[key].grad
        assert (found - gradient).abs().max() <= BOUND * largest, key


@pytest.mark.parametrize("share", [None, 0], indirect=True)
@torch.no_grad()
def test_compile_lists_of_keys(share, fallbacks):
    model = make("deepseek_v32")
    inputs, _ = make_inputs("deepseek_v32", "left")
    expected = model(**inputs).logits
    model.set_attn_implementation("fovea")
    torch._dynamo.reset()
    found = torch.compile(model, backend="aot_eager", fullgraph=True)(**inputs).logits
    near(found[0], expected[0])
    assert not fallbacks()


# ----------------------------------------------------------------------------
# Models that know eager attention alone
# ----------------------------------------------------------------------------

_PAIR = dict(
    vocab_size=97, d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=4, decoder_attention_heads=4,
    encoder_ffn_dim=48, decoder_ffn_dim=48, pad_token_id=0, decoder_start_token_id=2,
)  # fmt: skip
_SINGLE = dict(vocab_size=97, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, pad_token_id=0)
EAGER_ALONE = {
    "PegasusX": _PAIR,  # whose decoders do not say that they are causal
    "NllbMoe": dict(_PAIR, num_experts=2, encoder_sparse_step=0, decoder_sparse_step=0),
    "BigBirdPegasus": dict(_PAIR, attention_type="original_full"),  # whose encoders add masks themselves
    "Splinter": _SINGLE,  # whose layers do not say that they are not causal
    "Git": dict(_SINGLE, vision_config=dict(hidden_size=32, num_hidden_layers=1, num_attention_heads=4, image_size=32)),
}


@pytest.mark.parametrize("is_compiled", [False, True])
@pytest.mark.parametrize("padding", [None, "right"])
@pytest.mark.parametrize("name", EAGER_ALONE)
@torch.no_grad()
def test_eager_alone(name, padding, is_compiled, fallbacks):
    torch.manual_seed(0)
    configuration = getattr(transformers, name + "Config")(**EAGER_ALONE[name])
    model = getattr(transformers, name + "Model")._from_config(configuration, attn_implementation="eager").eval()
    inputs, present = make_inputs("t5" if "d_model" in EAGER_ALONE[name] else "bert", padding)
    expected = model(**inputs)[0][present.bool()]
    model.set_attn_implementation("fovea")
    torch._dynamo.reset()
    run = torch.compile(model, backend="aot_eager") if is_compiled else model
    near(run(**inputs)[0][present.bool()], expected)
    assert not fallbacks()
