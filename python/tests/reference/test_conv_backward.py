# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradients of sums of convolutions against central differences."""

import numpy as np
import pytest
from differences import check_gradients
from loops import ref

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
def test_apply(sizes):
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


def test_recover():
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
def test_conv(group, num_basis):
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


def test_exact():
    """With a basis for every column the gradient is that of causal attention."""
    q, k, v = make()
    d_out = np.random.default_rng(3).standard_normal((B, H, N, E))
    options = dict(num_basis=N, window=1, delta=0.0, epsilon=0.0)
    out, lse = ref.dense(q, k, v, causal=True, return_lse=True)
    dense = ref.dense_backward(d_out, q, k, v, out, lse, causal=True)
    for one, other in zip(ref.conv_backward(d_out, q, k, v, **options), dense):
        assert np.abs(one - other).max() < 1e-12


def test_rope():
    q, _, _ = make()
    positions = np.arange(N) * 7
    check_gradients(
        **without_lse(
            lambda x: ref.rope(x, positions, base=50.0),
            lambda d_out, x: [ref.rope_backward(d_out, positions, base=50.0)],
        ),
        arrays=(q,),
    )


def test_wrong_gradients_are_noticed():
    q, _, _ = make()
    with pytest.raises(AssertionError, match="argument 0: error"):
        check_gradients(
            **without_lse(lambda x: ref.rope(x, np.arange(N)), lambda d_out, x: [d_out]), arrays=(q,)
        )
