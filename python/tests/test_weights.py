# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Weights of summaries from convolutions, and from the level before."""

import numpy as np
import pytest

import fovea
from fovea import reference


def conv1d(x, weight, bias, stride):
    """PyTorch's definition, with groups of as many channels of x [B,C,N] as weights have."""
    B, channels, N = x.shape
    size = weight.shape[1]
    each = weight.shape[0] // (channels // size)
    out = np.zeros((B, weight.shape[0], N // stride))
    for o in range(weight.shape[0]):
        group = slice(o // each * size, (o // each + 1) * size)
        for u in range(out.shape[2]):
            out[:, o, u] = bias[o] + (x[:, group, u * stride : (u + 1) * stride] * weight[o]).sum((1, 2))
    return out


@pytest.mark.parametrize("mixes", [False, True])
@pytest.mark.parametrize("heads,width,rank,interval", [(1, 1, 1, 1), (1, 5, 2, 4), (3, 4, 2, 6), (2, 3, 1, 7)])
def test_summaries_are_those_of_the_convolution(heads, width, rank, interval, mixes):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, heads, 3 * interval, width))
    weight = rng.standard_normal((heads * width * rank, width if mixes else 1, interval))
    bias = rng.standard_normal(heads * width * rank)
    weights, biases = fovea.key_weights_from_conv1d(weight, bias, width=width, heads=heads)
    assert weights.shape[:4] == (heads, rank, interval, width) and biases.shape == (heads, rank, width)
    found = reference.summarize(x, weights, biases, interval=interval)
    channels = x.transpose(0, 1, 3, 2).reshape(2, heads * width, -1)
    expected = conv1d(channels, weight, bias, interval).reshape(2, heads, width, rank, 3)
    np.testing.assert_allclose(found, expected.transpose(0, 1, 4, 3, 2).reshape(found.shape), rtol=0, atol=1e-12)
    assert np.array_equal(fovea.key_weights_from_conv1d(weight, width=width, heads=heads), weights)


@pytest.mark.parametrize("mixes", [False, True])
@pytest.mark.parametrize("sets,rank,group,width", [(1, 1, 1, 1), (2, 2, 4, 3), (1, 3, 6, 5)])
def test_levels_from_the_level_before(sets, rank, group, width, mixes):
    rng = np.random.default_rng(1)
    columns = (width,) * (1 + mixes)
    first = rng.standard_normal((sets, rank, group, *columns))
    steps = [rng.standard_normal((sets, rank, 2 * rank, *columns)) for _ in range(2)]
    x = rng.standard_normal((2, 2, 8 * group, width))
    rows = x
    for level, weights in enumerate(fovea.hierarchical_weights(first, steps)):
        step = first if level == 0 else steps[level - 1]
        # The summaries of the level before are the rows of this one.
        rows = reference.summarize(rows, step, interval=step.shape[2])
        assert weights.shape == (sets, rank, group << level, *columns)
        np.testing.assert_allclose(reference.summarize(x, weights, interval=group << level), rows, rtol=0, atol=1e-11)


def test_attention_takes_them():
    """With zeros behind the last token, as with any weights."""
    rng = np.random.default_rng(2)
    q, k, v = (rng.standard_normal((1, 2, 61, 4)).astype(np.float32) for _ in range(3))
    weights = [
        fovea.hierarchical_weights(rng.standard_normal((2, 2, 8, 4)), [rng.standard_normal((2, 2, 4, 4))]) for _ in "kv"
    ]
    weights = [[array.astype(np.float32) / 4 for array in side] for side in weights]
    found = fovea.fast_multipole(q, k, v, *weights, group=8)
    np.testing.assert_allclose(found, reference.fast_multipole(q, k, v, *weights, group=8), rtol=0, atol=1e-5)


def test_refused():
    weight, first = np.zeros((12, 1, 4)), np.zeros((1, 2, 4, 3))
    for message, call in (
        ("weight: found rank 2, needed 3", lambda: fovea.key_weights_from_conv1d(weight[:, 0], width=3)),
        ("width: found 'x', needed an integer of at least 1", lambda: fovea.key_weights_from_conv1d(weight, width="x")),
        ("heads: found True, needed an integer of at least 1", lambda: fovea.key_weights_from_conv1d(weight, width=3, heads=True)),
        ("weight: found int, needed an array", lambda: fovea.key_weights_from_conv1d(3, width=3)),
        ("weight: found 12 channels, needed a multiple of 1 heads of width 5", lambda: fovea.key_weights_from_conv1d(weight, width=5)),
        ("weight: found 2 channels mixed, needed 1 or the 3 of a head",
         lambda: fovea.key_weights_from_conv1d(np.zeros((12, 2, 4)), width=3)),
        (r"bias: found shape \(11,\), needed \(12,\)", lambda: fovea.key_weights_from_conv1d(weight, np.zeros(11), width=3)),
        ("bias: found list, needed an array", lambda: fovea.key_weights_from_conv1d(weight, [0.0] * 12, width=3)),
        ("first: found list, needed an array", lambda: fovea.hierarchical_weights(first.tolist(), [])),
        ("steps: found NoneType, needed a list of arrays", lambda: fovea.hierarchical_weights(first, None)),
        (r"steps\[1\]: found NoneType, needed an array", lambda: fovea.hierarchical_weights(first, [first, None])),
        (r"first: found shape \(2, 4, 3\), needed \[W,p,m,D\] or", lambda: fovea.hierarchical_weights(first[0], [])),
        (r"first: found shape \(1, 2, 4, 3, 2\), needed", lambda: fovea.hierarchical_weights(np.zeros((1, 2, 4, 3, 2)), [])),
        (r"steps\[0\]: found shape \(1, 2, 3, 3\), needed \(1, 2, 4, 3\)",
         lambda: fovea.hierarchical_weights(first, [np.zeros((1, 2, 3, 3))])),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            call()

