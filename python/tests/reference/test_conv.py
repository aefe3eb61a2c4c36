# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention by sums of convolutions, and its gradients against central differences."""

import numpy as np
import pytest
from differences import check_gradients
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


# -- gradients ----------------------------------------------------------------


B, H, G, N, D, E = 2, 4, 2, 11, 4, 3


def make(seed=1):
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((B, heads, N, width)) for heads, width in ((H, D), (G, D), (G, E)))


def without_lse(forward, backward):
    return {
        "forward": lambda *arrays: (forward(*arrays), None),
        "backward": lambda d_out, _, out, lse, *arrays: backward(d_out, *arrays),
    }


@pytest.mark.parametrize("sizes", [(11, 7, 2), (9, 0, 0), (1, 0, 0), (0, 0, 0)])
def test_conv_apply_backward(sizes):
    rng = np.random.default_rng(2)
    b, v = rng.standard_normal((B, H, 3, N)), rng.standard_normal((B, G, N, E))
    sizes = np.broadcast_to(np.array(sizes, np.int32), (B, H, 3))
    check_gradients(
        **without_lse(
            lambda b, v: ref.conv_apply(b, sizes, v),
            lambda d_out, b, v: ref.conv_apply_backward(d_out, b, sizes, v),
        ),
        arrays=(b, v),
    )


def test_conv_recover_backward():
    """The bases, with the columns that the search has found."""
    q, k, _ = make()
    sizes = np.broadcast_to(np.array([11, 6, 5, 0], np.int32), (B, H, 4))

    def bases(q, k):
        b = np.zeros((B, H, 4, N))
        for i, h in np.ndindex(B, H):
            scores = 0.7 * q[i, h] @ k[i, h // (H // G)].T
            for r, size in enumerate(sizes[i, h]):
                b[i, h, r, :size] = scores[N - size :, N - size] if size else 0
                if r:
                    b[i, h, r, :size] -= scores[N - sizes[i, h, r - 1] :, N - sizes[i, h, r - 1]][:size]
        return b

    check_gradients(
        **without_lse(
            bases, lambda d_b, q, k: ref.conv_recover_backward(d_b, q, k, sizes, scale=0.7)
        ),
        arrays=(q, k),
    )


@pytest.mark.parametrize("group", [None, 4, 2, 11])
@pytest.mark.parametrize("num_basis", [2, 22])
def test_conv_backward(group, num_basis):
    """Sizes do not change under small steps: a basis begins where there is room."""
    options = dict(num_basis=num_basis, window=1, delta=1e-9, epsilon=0.0)

    def forward(q, k, v):
        out = np.zeros((B, H, N, E))
        width = N if group is None else group
        for own in range(0, N, width):
            rows = slice(max(own - width, 0), own + width)
            b, sizes, _ = ref.conv_recover(q[:, :, rows], k[:, :, rows], **options)
            part = ref.conv_apply(b, sizes, v[:, :, rows])
            if own == width:
                # The first pair has its first group, too.
                out[:, :, :own] = part[:, :, :own]
            out[:, :, own : own + width] = part[:, :, own - rows.start :]
        return out

    check_gradients(
        **without_lse(
            forward,
            lambda d_out, q, k, v: ref.conv_backward(d_out, q, k, v, **options, group=group),
        ),
        arrays=tuple(make()),
    )


def test_exact_backward():
    """With a basis for every column the gradient is that of causal attention."""
    q, k, v = make()
    d_out = np.random.default_rng(3).standard_normal((B, H, N, E))
    options = dict(num_basis=N, window=1, delta=0.0, epsilon=0.0)
    out, lse = ref.dense(q, k, v, causal=True, return_lse=True)
    dense = ref.dense_backward(d_out, q, k, v, out, lse, causal=True)
    for one, other in zip(ref.conv_backward(d_out, q, k, v, **options), dense):
        assert np.abs(one - other).max() < 1e-12


def test_wrong_gradients_are_noticed():
    q, _, _ = make()
    with pytest.raises(AssertionError, match="argument 0: error"):
        check_gradients(
            **without_lse(lambda x: ref.rope(x, np.arange(N)), lambda d_out, x: [d_out]), arrays=(q,)
        )
