# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The gradient of attention over quantized keys against central differences."""

import numpy as np
import pytest
from loops import ref

B, H, G, N, D, E, S, L = 2, 4, 2, 11, 3, 2, 4, 3


def value(q, k, v, bias, codebook, codes, weights, causal, weighting):
    """The scalar `sum weights . (out, lse)`, written down entry by entry. Near
    keys are rows of `k`, the others codewords."""
    d_out, d_lse = weights
    total = 0.0
    for b, h, i in np.ndindex(B, H, N):
        g = h // (H // G)
        scores, values = [], []
        for j in range(i + 1 if causal else N):
            near = causal and j // L >= i // L - 1
            key = k[b, g, j] if near else codebook[g, codes[b, g, j]]
            score = 0.7 * (q[b, h, i] @ key)
            if near and bias is not None:
                score += bias[b % bias.shape[0], h % bias.shape[1], i, j - (i // L - 1) * L]
            scores.append(score)
            values.append(v[b, g, j])
        scores, values = np.array(scores), np.array(values)
        if weighting == "softmax":
            lse = np.log(np.exp(scores).sum())
            total += d_lse[b, h, i] * lse + d_out[b, h, i] @ (np.exp(scores - lse) @ values)
        else:
            total += d_out[b, h, i] @ (np.maximum(scores, 0) ** 2 @ values)
    return total


@pytest.mark.parametrize("weighting", ["softmax", "squared_relu"])
@pytest.mark.parametrize("form", ["causal", "bias", "shared bias", "encoder"])
def test_central_differences(form, weighting):
    rng = np.random.default_rng(1)
    causal = form != "encoder"
    codebook = rng.standard_normal((G, S, D))
    codes = rng.integers(0, S, (B, G, N))
    arrays = {
        "q": rng.standard_normal((B, H, N, D)),
        "k": np.stack([codebook[g][codes[:, g]] for g in range(G)], axis=1),
        "v": rng.standard_normal((B, G, N, E)),
    }
    if "bias" in form:
        shape = (1, 1) if "shared" in form else (B, H)
        arrays["bias"] = rng.standard_normal((*shape, N, 2 * L))
    weights = rng.standard_normal((B, H, N, E)), rng.standard_normal((B, H, N))
    found = ref.vq_backward(
        weights[0], arrays["q"], codes, arrays["v"], codebook, block=L, causal=causal,
        bias=arrays.get("bias"), scale=0.7, weighting=weighting,
        d_lse=weights[1] if weighting == "softmax" else None,
    )  # fmt: skip

    def at(name, index, step):
        moved = {key: array.copy() for key, array in arrays.items()}
        moved[name][index] += step
        return value(moved["q"], moved["k"], moved["v"], moved.get("bias"), codebook, codes,
                     weights, causal, weighting)  # fmt: skip

    for (name, array), gradient in zip(arrays.items(), found):
        assert gradient.shape == array.shape
        for flat in rng.choice(array.size, 12, replace=False):
            index = np.unravel_index(flat, array.shape)
            step = 1e-5
            difference = (at(name, index, step) - at(name, index, -step)) / (2 * step)
            assert abs(difference - gradient[index]) <= 1e-6 * np.abs(gradient).max(initial=1)


def test_differences_see_a_wrong_gradient():
    """Keys that are not near pass nothing on, unlike in dense attention."""
    rng = np.random.default_rng(2)
    q, v = rng.standard_normal((1, 1, N, D)), rng.standard_normal((1, 1, N, E))
    codebook, codes = rng.standard_normal((1, S, D)), rng.integers(0, S, (1, 1, N))
    d_out = rng.standard_normal((1, 1, N, E))
    near = ref.vq_backward(d_out, q, codes, v, codebook, block=L)
    all = ref.vq_backward(d_out, q, codes, v, codebook, block=N)
    assert np.allclose(near[0], all[0]) and np.allclose(near[2], all[2])
    assert np.abs(near[1] - all[1]).max() > 1e-3
