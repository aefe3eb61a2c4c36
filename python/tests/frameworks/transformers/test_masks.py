# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Masks say what those of transformers say, in a cheap form where there is one."""

import itertools
import types

import pytest
import torch
import transformers
from transformers import masking_utils as reference

from fovea.torch._mask_functions import make_mask
from fovea.torch._masks import PatternMask
from fovea.torch._transformers import attend

FUNCTIONS = {
    "causal": reference.causal_mask_function,
    "full": reference.bidirectional_mask_function,
    "window": reference.sliding_window_causal_mask_function(4),
    "two-sided": reference.sliding_window_bidirectional_mask_function(3),
    "one-sided": reference.sliding_window_overlay(4),
    "two windows": reference.and_masks(
        reference.sliding_window_causal_mask_function(6), reference.sliding_window_overlay(3)
    ),
    "chunks": reference.chunked_causal_mask_function(4, torch.zeros(2, dtype=int)),
    "packed": reference.and_masks(
        reference.causal_mask_function,
        reference.packed_sequence_mask_function(torch.tensor([[0] * 5 + [1] * 20] * 2)),
    ),
    "user": lambda b, h, q, k: (k <= q) | (k < 3),
}
PATTERNS = ("causal", "full", "window", "two-sided", "two windows")

# q_length, kv_length, q_offset, kv_offset
PLACES = {
    "one": (1, 1, 0, 0),
    "square": (9, 9, 0, 0),
    "cache": (5, 12, 7, 0),
    "one with cache": (1, 12, 11, 0),
    "static, empty": (7, 16, 0, 0),
    "static, one": (1, 16, 9, 0),
    "static, more": (4, 16, 9, 0),
    "sliding cache": (4, 7, 10, 7),
    "longer than keys": (9, 5, 0, 0),
    "tensor": (4, 16, torch.tensor(9), 0),
}


def paddings(length):
    left = torch.ones(2, length, dtype=torch.bool)
    left[0, : length // 2] = False
    yield None
    yield torch.ones_like(left)
    yield left
    yield left.flip(1)
    yield torch.zeros_like(left)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_elements(name, place):
    """Written out, they have the elements of transformers' own."""
    q_length, kv_length, q_offset, kv_offset = PLACES[place]
    seen = kv_offset + kv_length if name == "full" else int(q_offset) + q_length
    for padding in paddings(seen):
        arguments = dict(
            batch_size=2, q_length=q_length, kv_length=kv_length, q_offset=q_offset, kv_offset=kv_offset,
            mask_function=FUNCTIONS[name], attention_mask=padding,
        )  # fmt: skip
        expected = reference.sdpa_mask(**arguments, allow_is_causal_skip=False)
        found = make_mask(**arguments, allow_is_causal_skip=False)
        assert found.dtype == torch.bool and found.shape == expected.shape
        assert torch.equal(found & True, expected)
        assert isinstance(found, PatternMask) == (
            q_length > 1 and name in PATTERNS and (place != "longer than keys" or name == "full")
            and (name != "two-sided" or int(q_offset) + q_length == kv_offset + kv_length)
        )  # fmt: skip


def test_forms():
    """None where nothing is to be said, keys where some are absent."""
    for name, padding in itertools.product(PATTERNS, paddings(9)):
        mask = make_mask(
            2, 9, 9, mask_function=FUNCTIONS[name], attention_mask=padding, allow_is_bidirectional_skip=True
        )
        is_padded = padding is not None and not padding.all()
        assert (mask is None) == (name in ("causal", "full") and not is_padded)
        if mask is not None:
            assert (mask.pattern.keys is None) == (not is_padded)
            assert mask.pattern.causal == (name not in ("full", "two-sided"))
            assert mask.pattern.window == {"window": 4, "two-sided": 4, "two windows": 3}.get(name)


# Of one token and a static cache transformers lets none be None.
@pytest.mark.parametrize("place", [each for each in PLACES if each not in ("static, one", "longer than keys")])
@pytest.mark.parametrize("name, options", [("causal", {}), ("window", dict(local_size=4))], ids=["causal", "window"])
def test_attention(name, options, place):
    """Where transformers lets a causal mask be None, a layer reads what the mask says."""
    q_length, kv_length, q_offset, kv_offset = PLACES[place]
    torch.manual_seed(0)
    query, key, value = (torch.randn(2, 2, length, 4) for length in (q_length, kv_length, kv_length))
    for padding in paddings(int(q_offset) + q_length):
        arguments = dict(
            batch_size=2, q_length=q_length, kv_length=kv_length, q_offset=q_offset, kv_offset=kv_offset,
            mask_function=FUNCTIONS[name], attention_mask=padding, **options,
        )  # fmt: skip
        mask = reference.sdpa_mask(**arguments, allow_is_causal_skip=False)
        scores = (query @ key.mT / 2).masked_fill(~mask, float("-inf"))
        expected = (scores.softmax(-1).nan_to_num(0.0) @ value).transpose(1, 2)
        found, _ = attend(types.SimpleNamespace(is_causal=True), query, key, value, make_mask(**arguments))
        assert (found - expected).abs().max() < 1e-5


def test_long_windows_are_none():
    assert make_mask(1, 4, 4, mask_function=FUNCTIONS["window"], local_size=4) is None


def test_written_out_where_it_is_used():
    """Models take rows, combine masks and convert them."""
    mask = make_mask(2, 9, 9, attention_mask=next(itertools.islice(paddings(9), 2, None)))
    elements = mask.write_out()
    assert "causal=True" in repr(mask)
    for found, expected in (
        (mask[:, 0, 3:5], elements[:, 0, 3:5]),
        (torch.where(mask, 0.0, 1.0), torch.where(elements, 0.0, 1.0)),
        (mask.to(torch.float16), elements.half()),
        (torch.cat([mask, mask], -1), torch.cat([elements, elements], -1)),
        (mask.clone(), elements),
    ):
        assert type(found) is torch.Tensor and torch.equal(found, expected)


def test_traced_masks_have_elements():
    """A compiled model makes its masks in its graph."""

    def make(padding):
        return make_mask(2, 9, 9, attention_mask=padding)

    compiled = torch.compile(make, backend="aot_eager", fullgraph=True)
    for padding in itertools.islice(paddings(9), 1, None):
        assert torch.equal(compiled(padding), reference.sdpa_mask(2, 9, 9, attention_mask=padding, allow_is_causal_skip=False))


def test_models_that_compute_their_attention_themselves_are_refused():
    """They would add what is no mask of theirs, or read all keys where there is none."""
    configuration = transformers.BloomConfig(vocab_size=31, hidden_size=16, n_layer=1, n_head=2)
    model = transformers.BloomModel._from_config(configuration, attn_implementation="fovea")
    with pytest.raises(ValueError, match='models of BloomConfig compute their attention themselves, needed "eager"'):
        model(torch.arange(5)[None])


SIZES = dict(vocab_size=31, hidden_size=16, num_attention_heads=2, bos_token_id=0, eos_token_id=0)
TABLES = [
    ("GPTNeo", dict(num_layers=1, num_heads=2, attention_types=[[["global"], 1]]), '"eager"'),
    ("Falcon", dict(num_hidden_layers=1), '"eager" or "sdpa"'),
    ("Git", dict(num_hidden_layers=1, intermediate_size=16), '"eager"'),
]


@pytest.mark.parametrize("name, sizes, known", TABLES)
def test_models_that_choose_classes_are_refused(name, sizes, known):
    """It was a bare KeyError."""
    configuration = getattr(transformers, name + "Config")(**{**SIZES, **sizes})
    with pytest.raises(ValueError, match=f"compute their attention themselves, found 'fovea', needed {known}: torch.compile"):
        getattr(transformers, name + "Model")._from_config(configuration, attn_implementation="fovea")
