# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Absent tokens of both forms of multipole attention."""

import numpy as np
import pytest
from conftest import TYPES, check

import fovea
from fovea import reference

ALL_TARGETS = pytest.mark.parametrize("target", ["cpu", "reference", "gpu-sim"])
FORMS = pytest.mark.parametrize("form", ["fast_multipole", "fast_multipole_linear"])
# Tokens, group, rank: levels with ragged ends, one token per summary, none.
SHAPES = [(61, 8, 2), (37, 4, 4), (64, 8, 1), (15, 8, 2)]
B, H, G, D, E = 4, 4, 2, 5, 3


def masks(N):
    """Padding on the right, on the left, between, and nothing present."""
    tokens = np.arange(N)
    scattered = np.random.default_rng(N).random(N) < 0.4
    return np.stack([tokens < N // 2, tokens >= N - 9, scattered, np.zeros(N, bool)])


def make(form, shape, type, seed=0):
    rng = np.random.default_rng(seed)
    N, m, p = shape
    q, k, v = (rng.standard_normal(s).astype(type) for s in ((B, H, N, D), (B, G, N, D), (B, G, N, E)))
    sides = [("query", D)] * (form == "fast_multipole_linear") + [("key", D), ("value", E)]
    levels = reference.num_levels(N, m)
    weights = [
        [(rng.standard_normal((1, p, m << level, width)) / (m << level)).astype(type) for level in range(levels)]
        for _, width in sides
    ]
    options = {"group": m}
    for (side, width), family in zip(sides, weights, strict=True):
        if levels:
            options[f"{side}_biases"] = [rng.standard_normal((1, p, width)).astype(type) for _ in family]
    return (q, k, v), weights, options


def poison(arrays, mask):
    """NaN in rows of absent tokens."""
    return [np.where(mask[:, None, :, None], x, np.array(np.nan, x.dtype)) for x in arrays]


def flatten(found):
    return [x for part in found for x in (part if isinstance(part, list | tuple) else [part])]


def gradients(module, form, tensors, weights, options, d_out, mask, **more):
    """Gradients of all operands, in one list."""
    backward = getattr(module, form + "_backward")
    if form == "fast_multipole_linear":
        return flatten(backward(d_out, *tensors, *weights, mask=mask, **options, **more))
    out, lse = fovea.fast_multipole(*tensors, *weights, mask=mask, return_lse=True, **options)
    return flatten(backward(d_out, *tensors, *weights, out, lse, mask=mask, **options, **more))


@ALL_TARGETS
@FORMS
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("causal", [False, True])
def test_by_definition(form, shape, causal, target):
    tensors, weights, options = make(form, shape, np.float32)
    mask = masks(shape[0])
    options["causal"] = causal
    if form == "fast_multipole_linear":
        options["allow_query_lookahead"] = causal
    else:
        options["multiplicity"] = not causal
    expected = getattr(reference, form)(*tensors, *weights, mask=mask, **options)
    found = getattr(fovea, form)(*poison(tensors, mask), *weights, mask=mask, target=target, **options)
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5)


@ALL_TARGETS
@FORMS
@pytest.mark.parametrize("type", ["bfloat16", "float16"])
def test_narrow_types(form, type, target):
    tensors, weights, options = make(form, SHAPES[0], TYPES[type])
    mask = masks(SHAPES[0][0])
    expected = getattr(reference, form)(*tensors, *weights, mask=mask, **options)
    found = getattr(fovea, form)(*poison(tensors, mask), *weights, mask=mask, target=target, **options)
    check(found, expected, type)
    assert not found.transpose(0, 2, 1, 3)[~mask].any()


@ALL_TARGETS
def test_lse_of_absent_rows(target):
    tensors, weights, options = make("fast_multipole", SHAPES[0], np.float32)
    mask = masks(SHAPES[0][0])
    options["return_lse"] = True
    _, expected = reference.fast_multipole(*tensors, *weights, mask=mask, **options)
    _, found = fovea.fast_multipole(*poison(tensors, mask), *weights, mask=mask, target=target, **options)
    assert (found.transpose(0, 2, 1)[~mask] == -np.inf).all()
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5)


@ALL_TARGETS
@FORMS
def test_all_present_is_no_mask(form, target):
    tensors, weights, options = make(form, SHAPES[0], np.float32)
    function = getattr(fovea, form)
    plain = function(*tensors, *weights, target=target, **options)
    full = function(*tensors, *weights, mask=np.ones((B, SHAPES[0][0]), bool), target=target, **options)
    np.testing.assert_allclose(full, plain, rtol=0, atol=2e-6)


@ALL_TARGETS
@FORMS
def test_a_batch_is_its_sequences(form, target):
    """Those of as many levels: the same bits, where tiles do not depend on the length, as a GPU's do."""
    (N, m, p), lengths = (61, 8, 2), np.array([61, 40, 33, 50])
    assert len({reference.num_levels(int(length), m) for length in lengths}) == 1
    tensors, weights, options = make(form, (N, m, p), np.float32)
    function = getattr(fovea, form)
    together = function(*tensors, *weights, lengths=lengths, target=target, **options)
    for b, length in enumerate(lengths):
        part = [x[b : b + 1, :, :length] for x in tensors]
        alone = function(*part, *weights, lengths=[length], target=target, **options)
        if target == "gpu-sim":
            np.testing.assert_allclose(together[b, :, :length], alone[0], rtol=0, atol=2e-6)
        else:
            assert np.array_equal(together[b, :, :length], alone[0])
        plain = function(*part, *weights, target=target, **options)
        np.testing.assert_allclose(together[b, :, :length], plain[0], rtol=0, atol=2e-6)


@ALL_TARGETS
@FORMS
@pytest.mark.parametrize("shape", SHAPES)
def test_gradients(form, shape, target):
    tensors, weights, options = make(form, shape, np.float32)
    mask = masks(shape[0])
    d_out = np.random.default_rng(5).standard_normal((B, H, shape[0], E)).astype(np.float32)
    expected = gradients(reference, form, tensors, weights, options, d_out, mask)
    found = gradients(
        fovea, form, poison(tensors, mask), weights, options, *poison([d_out], mask), mask, target=target
    )
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=0, atol=5e-5 * max(1, np.abs(y).max()))
    for x in found[:3]:
        assert not x.transpose(0, 2, 1, 3)[~mask].any()


@FORMS
@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_by_differences(form, shape):
    tensors, weights, options = make(form, shape, np.float64)
    mask = masks(shape[0])
    rng = np.random.default_rng(6)
    d_out = rng.standard_normal((B, H, shape[0], E))
    found = gradients(fovea, form, tensors, weights, options, d_out, mask)
    families = len(weights)
    levels = len(weights[0])
    names = [name for name in options if name.endswith("_biases")]

    def value(tensors, weights, biases):
        more = {"group": options["group"], **dict(zip(names, biases, strict=True))}
        return (d_out * getattr(fovea, form)(*tensors, *weights, mask=mask, **more)).sum()

    flat = [*tensors, *flatten(weights), *flatten([options[name] for name in names])]

    def at(step, index, direction):
        moved = [x + step * direction if i == index else x for i, x in enumerate(flat)]
        lists = [moved[3 + i * levels : 3 + (i + 1) * levels] for i in range(families + len(names))]
        return value(moved[:3], lists[:families], lists[families:])

    for index, x in enumerate(flat):
        direction = rng.standard_normal(x.shape)
        difference = (at(1e-5, index, direction) - at(-1e-5, index, direction)) / 2e-5
        np.testing.assert_allclose((found[index] * direction).sum(), difference, rtol=1e-6, atol=1e-7)


def test_errors():
    tensors, weights, options = make("fast_multipole", SHAPES[0], np.float32)
    N = SHAPES[0][0]
    for more, text in (
        ({"mask": np.ones((B, N - 1), bool)}, r"mask: found shape \(4, 60\), needed \(4, 61\)"),
        ({"mask": np.ones((B, N), bool), "lengths": [1] * B}, "lengths: found mask as well, needed one of the two"),
        ({"lengths": [N + 1] * B}, "lengths: found 62 for batch entry 0, needed 0 to 61"),
    ):
        with pytest.raises(ValueError, match=text):
            fovea.fast_multipole(*tensors, *weights, **options, **more)
