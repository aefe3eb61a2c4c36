# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Summaries of both forms of multipole attention that mix columns, or are ready-made."""

import numpy as np
import pytest
from conftest import TYPES, check

import fovea
from fovea import reference

ALL_TARGETS = pytest.mark.parametrize("target", ["cpu", "reference", "gpu-sim"])
FORMS = pytest.mark.parametrize("form", ["fast_multipole", "fast_multipole_linear"])
KINDS = pytest.mark.parametrize("kind", ["mixed", "ready", "both"])
# Tokens, group, rank: levels with ragged ends, one token per summary, none.
SHAPES = [(61, 8, 2), (37, 4, 4), (64, 8, 1), (15, 8, 2)]
B, H, G, D, E = 2, 4, 2, 5, 3


def make(form, kind, shape, type, seed=0):
    """q, k and v, and keywords: weights and biases, or summaries, of all of them."""
    rng = np.random.default_rng(seed)
    N, m, p = shape
    arrays = [rng.standard_normal(s).astype(type) for s in ((B, H, N, D), (B, G, N, D), (B, G, N, E))]
    options = {}
    sides = [("query", H, D)] * (form == "fast_multipole_linear") + [("key", G, D), ("value", G, E)]
    intervals = [m << level for level in range(reference.num_levels(N, m))]
    for side, heads, width in sides:
        if kind == "ready" or (kind == "both" and side == "value"):
            options[f"{side}_summaries"] = [
                rng.standard_normal((B, heads, -(-N // size), p, width)).astype(type) for size in intervals
            ]
        else:
            sets = G if side == "key" else 1
            options[f"{side}_weights"] = [
                (rng.standard_normal((sets, p, size, width, width)) / (size * width) ** 0.5).astype(type)
                for size in intervals
            ]
            options[f"{side}_biases"] = [rng.standard_normal((sets, p, width)).astype(type) for _ in intervals]
    return arrays, {"group": m, **options}


def flatten(found):
    return [x for part in found for x in (part if isinstance(part, list | tuple) else [part])]


def gradients(module, form, arrays, options, d_out, **more):
    options = dict(options)
    backward = getattr(module, form + "_backward")
    if form == "fast_multipole_linear":
        return flatten(backward(d_out, *arrays, **options, **more))
    out, lse = fovea.fast_multipole(*arrays, return_lse=True, **options)
    lists = [options.pop(f"{side}_weights", None) for side in ("key", "value")]
    return flatten(backward(d_out, *arrays, *lists, out, lse, **options, **more))


@ALL_TARGETS
@FORMS
@KINDS
@pytest.mark.parametrize("shape", SHAPES)
def test_by_definition(form, kind, shape, target):
    arrays, options = make(form, kind, shape, np.float32)
    expected = getattr(reference, form)(*arrays, **options)
    found = getattr(fovea, form)(*arrays, target=target, **options)
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5)


@ALL_TARGETS
@FORMS
@KINDS
@pytest.mark.parametrize("type", ["bfloat16", "float16"])
def test_narrow_types(form, kind, type, target):
    arrays, options = make(form, kind, SHAPES[0], TYPES[type])
    expected = getattr(reference, form)(*arrays, **options)
    check(getattr(fovea, form)(*arrays, target=target, **options), expected, type)


@FORMS
def test_summaries_of_narrow_tokens_may_be_wide(form):
    arrays, options = make(form, "ready", SHAPES[0], TYPES["bfloat16"])
    wide = {name: [x.astype(np.float32) for x in of] for name, of in options.items() if name != "group"}
    function = getattr(fovea, form)
    found, narrow = function(*arrays, group=8, **wide), function(*arrays, **options)
    assert np.array_equal(found, narrow)


@ALL_TARGETS
@FORMS
@KINDS
@pytest.mark.parametrize("shape", SHAPES)
def test_gradients(form, kind, shape, target):
    arrays, options = make(form, kind, shape, np.float32)
    d_out = np.random.default_rng(5).standard_normal((B, H, shape[0], E)).astype(np.float32)
    expected = gradients(reference, form, arrays, options, d_out)
    found = gradients(fovea, form, arrays, options, d_out, target=target)
    for x, y in zip(found, expected, strict=True):
        assert x.shape == y.shape
        np.testing.assert_allclose(x, y, rtol=0, atol=5e-5 * max(1, np.abs(y).max()))


@FORMS
@pytest.mark.parametrize("kind", ["mixed", "both"])
def test_gradients_by_differences(form, kind):
    arrays, options = make(form, kind, SHAPES[0], np.float64)
    rng = np.random.default_rng(6)
    d_out = rng.standard_normal((B, H, SHAPES[0][0], E))
    found = gradients(fovea, form, arrays, options, d_out)
    # Gradients of weights come before those of biases, and these before those of summaries.
    kinds = ["weights", "biases", "summaries"]
    names = sorted((name for name in options if name != "group"), key=lambda name: kinds.index(name.split("_")[1]))
    flat = [*arrays, *flatten(options[name] for name in names)]
    levels = len(options[names[0]])

    def at(step, index, direction):
        moved = [x + step * direction if i == index else x for i, x in enumerate(flat)]
        lists = {name: moved[3 + i * levels : 3 + (i + 1) * levels] for i, name in enumerate(names)}
        return (d_out * getattr(fovea, form)(*moved[:3], group=8, **lists)).sum()

    for index, x in enumerate(flat):
        direction = rng.standard_normal(x.shape)
        difference = (at(1e-5, index, direction) - at(-1e-5, index, direction)) / 2e-5
        np.testing.assert_allclose((found[index] * direction).sum(), difference, rtol=1e-6, atol=1e-7)


@ALL_TARGETS
@FORMS
@pytest.mark.parametrize("kind", ["mixed", "ready"])
@pytest.mark.parametrize("causal", [False, True])
def test_absent_tokens(form, kind, causal, target):
    """With NaN in their rows, and in summaries of none but absent tokens."""
    (N, m, p), rng = SHAPES[0], np.random.default_rng(7)
    arrays, options = make(form, kind, (N, m, p), np.float32)
    options["causal"] = causal
    if form == "fast_multipole_linear":
        options["allow_query_lookahead"] = causal
    mask = np.stack([np.arange(N) < N // 2, rng.random(N) < 0.4])
    expected = getattr(reference, form)(*arrays, mask=mask, **options)
    dirty = [np.where(mask[:, None, :, None], x, np.float32(np.nan)) for x in arrays]
    for name in ("key_summaries", "value_summaries"):
        for level, summaries in enumerate(options.get(name, [])):
            part = (m << level) // p
            padded = np.zeros((B, summaries.shape[2] * p * part), bool)
            padded[:, :N] = mask
            absent = ~padded.reshape(B, 1, -1, p, part).any(-1)
            options[name][level] = np.where(absent[..., None], np.float32(np.nan), summaries)
    found = getattr(fovea, form)(*dirty, mask=mask, target=target, **options)
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5)


@FORMS
def test_ready_made_ones_may_be_those_of_weights(form):
    arrays, options = make(form, "mixed", SHAPES[0], np.float64)
    sides = zip(("query", "key", "value"), arrays, strict=True)
    summaries = {"group": 8}
    for side, x in sides:
        if f"{side}_weights" not in options:
            continue
        lists = zip(options[f"{side}_weights"], options[f"{side}_biases"], strict=True)
        summaries[f"{side}_summaries"] = [
            reference.summarize(x, weights, bias, interval=weights.shape[2]).reshape(*x.shape[:2], -1, 2, x.shape[3])
            for weights, bias in lists
        ]
    function = getattr(fovea, form)
    np.testing.assert_allclose(function(*arrays, **summaries), function(*arrays, **options), rtol=0, atol=1e-12)


def test_errors():
    arrays, options = make("fast_multipole", "ready", SHAPES[0], np.float32)
    keys, values = options["key_summaries"], options["value_summaries"]
    weights = [np.zeros((1, 2, size, D), np.float32) for size in (8, 16)]
    for more, text in (
        ({"key_weights": weights}, "key_summaries: found them beside key_weights, needed one of both"),
        ({"key_summaries": None}, "key_weights: found NoneType, needed a list of 2 arrays"),
        ({"key_summaries": keys[:1]}, "key_summaries: found 1 levels, needed 2 for 61 tokens in groups of 8"),
        ({"value_summaries": [values[0], values[1][:, :, 1:]]},
         r"value_summaries\[1\]: found shape \(2, 2, 3, 2, 3\), needed \(2, 2, 4, 2, 3\)"),
        ({"value_summaries": [x[:, :, :, 1:] for x in values]}, r"value_summaries\[0\]: found rank p = 1, needed 2"),
        ({"key_summaries": [x[:, 0] for x in keys]}, r"key_summaries\[0\]: found rank 4"),
        ({"key_summaries": None, "key_weights": [np.zeros((1, 2, size, D, E), np.float32) for size in (8, 16)]},
         r"key_weights\[0\]: found width 3, needed 5"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=text):
            fovea.fast_multipole(*arrays, **{**options, **more})
