# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention by sums of convolutions."""

import numpy as np
import pytest
from loops import ref


def bases(B=1, H=2, G=1, R=3, N=14, E=5, sizes=None, seed=0):
    rng = np.random.default_rng(seed)
    if sizes is None:
        sizes = [N] + sorted(rng.choice(np.arange(1, N), R - 1, replace=False), reverse=True)
    return (
        rng.standard_normal((B, H, R, N)),
        np.broadcast_to(sizes, (B, H, R)).astype(np.int32),
        rng.standard_normal((B, G, N, E)),
    )


def test_is_the_softmax_of_the_sum_of_corners():
    b, sizes, v = bases()
    N = v.shape[2]
    out = ref.conv_apply(b, sizes, v)
    for h in range(2):
        scores = np.full((N, N), -np.inf)
        for i in range(N):
            for j in range(i + 1):
                scores[i, j] = sum(b[0, h, r, i - j] for r in range(3) if j >= N - sizes[0, h, r])
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        expected = weights @ v[0, 0] / weights.sum(axis=1, keepdims=True)
        assert np.allclose(out[0, h], expected, rtol=1e-13)


def test_equals_dense_attention_with_a_basis_for_every_column():
    rng = np.random.default_rng(1)
    N = 9
    q, k, v = (rng.standard_normal((1, 1, N, 4)) for _ in range(3))
    scores = q[0, 0] @ k[0, 0].T / 2
    b = np.zeros((1, 1, N, N))
    before = np.zeros(N)
    for r in range(N):
        column = scores[r:, r]
        b[0, 0, r, : N - r] = column - before[: N - r]
        before[: N - r] = column
    sizes = np.arange(N, 0, -1, dtype=np.int32)[None, None]
    assert np.allclose(ref.conv_apply(b, sizes, v), ref.dense(q, k, v, causal=True), rtol=1e-12)


def test_rows_that_no_basis_reaches_are_zero():
    b, sizes, v = bases(sizes=[4, 2, 0])
    out = ref.conv_apply(b, sizes, v)
    assert not out[:, :, :10].any() and np.allclose(out[:, :, 10], v[:, :, 10])
    # What lies beyond a size is not read.
    b[:, :, 0, 4:] = b[:, :, 1, 2:] = b[:, :, 2] = np.nan
    assert np.array_equal(ref.conv_apply(b, sizes, v), out)


@pytest.mark.parametrize("N", [1, 2, 37])
def test_the_form_with_transforms_agrees(N):
    b, sizes, v = bases(B=2, H=4, G=2, R=min(N, 4), N=N, seed=N)
    assert np.allclose(ref.conv_apply_fft(b, sizes, v), ref.conv_apply(b, sizes, v), rtol=1e-9)


@pytest.mark.parametrize(
    "sizes, text",
    [
        ([15, 2, 1], r"sizes\[0, 0, 0\]: found 15, needed 0 to 14"),
        ([14, 14, 1], r"sizes\[0, 0, 1\]: found 14, needed 0 to 13"),
        ([14, 0, 1], r"sizes\[0, 0, 2\]: found 1, needed 0 to 0"),
        ([14, -1, 1], r"sizes\[0, 0, 1\]: found -1, needed 0 to 13"),
    ],
)
def test_refuses_sizes(sizes, text):
    with pytest.raises(ValueError, match=text):
        ref.conv_apply(*bases(sizes=sizes))


def test_refuses_shapes():
    b, sizes, v = bases()
    for arguments, text in [
        ((b[:, :, :0], sizes, v), "b: found no bases"),
        ((b, sizes[:, :, :2], v), "sizes: found shape"),
        ((b, sizes.astype(float), v), "sizes: found element type float64"),
        ((b, sizes, v[:, :, :3]), "v: found length 3, needed 14"),
        ((b, sizes, np.concatenate([v] * 3, axis=1)), "v: found 3 heads"),
        ((b[0], sizes, v), "b: found rank 3"),
    ]:
        with pytest.raises(ValueError, match=text):
            ref.conv_apply(*arguments)
