# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The gradient of attention over quantized keys against central differences."""

import numpy as np
import pytest
from loops import ref

B, H, G, N, D, E, S, L = 2, 4, 2, 11, 3, 2, 4, 3


def value(q, k, v, bias, codebook, codes, weights, causal, weighting, memory):
    """The scalar `sum weights . (out, lse)`, written down entry by entry. Near
    keys are rows of `k`, the others codewords."""
    d_out, d_lse = weights
    total = 0.0
    for b, h, i in np.ndindex(B, H, N):
        g = h // (H // G)
        scores, values = [], []
        for j in range(i + 1 if causal else N):
            near = causal and j // L >= i // L - memory
            key = k[b, g, j] if near else codebook[g, codes[b, g, j]]
            score = 0.7 * (q[b, h, i] @ key)
            if near and bias is not None:
                score += bias[b % bias.shape[0], h % bias.shape[1], i, j - (i // L - memory) * L]
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
@pytest.mark.parametrize(
    "form,memory", [("causal", 1), ("bias", 1), ("shared bias", 1), ("encoder", 1), ("bias", 0), ("causal", 2), ("bias", 3)]
)
def test_central_differences(form, memory, weighting):
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
        arrays["bias"] = rng.standard_normal((*shape, N, (memory + 1) * L))
    weights = rng.standard_normal((B, H, N, E)), rng.standard_normal((B, H, N))
    found = ref.vq_backward(
        weights[0], arrays["q"], codes, arrays["v"], codebook, block=L, memory=memory, causal=causal,
        bias=arrays.get("bias"), scale=0.7, weighting=weighting,
        d_lse=weights[1] if weighting == "softmax" else None,
    )  # fmt: skip

    def at(name, index, step):
        moved = {key: array.copy() for key, array in arrays.items()}
        moved[name][index] += step
        return value(moved["q"], moved["k"], moved["v"], moved.get("bias"), codebook, codes,
                     weights, causal, weighting, memory)  # fmt: skip

    for (name, array), gradient in zip(arrays.items(), found):
        assert gradient.shape == array.shape
        for flat in rng.choice(array.size, 12, replace=False):
            index = np.unravel_index(flat, array.shape)
            step = 1e-5
            difference = (at(name, index, step) - at(name, index, -step)) / (2 * step)
            assert abs(difference - gradient[index]) <= 1e-6 * np.abs(gradient).max(initial=1)


def make_windows(cuts, bias=False, seed=3, memory=1):
    """Arrays of a sequence, and a function that cuts one to a window."""
    rng = np.random.default_rng(seed)
    total = cuts[-1]
    arrays = {"q": rng.standard_normal((B, H, total, D)), "k": rng.integers(0, S, (B, G, total)),
              "v": rng.standard_normal((B, G, total, E))}  # fmt: skip
    if bias:
        arrays["bias"] = rng.standard_normal((1, H, total, (memory + 1) * L))
    d_out, d_lse = rng.standard_normal((B, H, total, E)), rng.standard_normal((B, H, total))
    codebook = rng.standard_normal((G, S, D))

    def window(low, high):
        return {name: array[:, :, low:high] for name, array in arrays.items()} | {"codebook": codebook}

    return window, d_out, d_lse


@pytest.mark.parametrize("weighting", ["softmax", "squared_relu"])
@pytest.mark.parametrize("bias,memory", [(False, 1), (True, 1), (True, 0), (False, 2), (True, 3)])
@pytest.mark.parametrize("cuts", [(0, 1, 5, 14), (0, 3, 6, 12), (0, 2, 3, 4, 5, 6, 7), (0, 10, 10, 17)])
def test_windows_compose(cuts, bias, memory, weighting):
    """Gradients of windows, from the last to the first, are those of the whole."""
    window, d_out, d_lse = make_windows(cuts, bias, memory=memory)
    options = {"block": L, "memory": memory, "scale": 0.7, "weighting": weighting}
    want = ref.vq_backward(d_out, **window(0, cuts[-1]), **options, d_lse=d_lse)
    states = [ref.vq_initial_state(B, G, S, E)]
    for low, high in zip(cuts, cuts[1:]):
        states.append(ref.vq_linear(**window(low, high), **options, state=states[-1], return_state=True)[1])
    found, d_state = [], None
    for low, high, state in reversed(list(zip(cuts, cuts[1:], states))):
        *gradients, d_state = ref.vq_backward(
            d_out[:, :, low:high], **window(low, high), **options, d_lse=d_lse[:, :, low:high],
            state=state, d_next_state=d_state)  # fmt: skip
        found.insert(0, gradients)
    for index, whole in enumerate(want[: 3 + bias]):
        np.testing.assert_allclose(np.concatenate([f[index] for f in found], 2), whole, atol=1e-12)


@pytest.mark.parametrize("weighting", ["softmax", "squared_relu"])
@pytest.mark.parametrize("cut,total", [(1, 4), (4, 5), (7, 17)])
def test_central_differences_of_a_state(cut, total, weighting):
    """Of a window with a state, for that state and through the next one."""
    window, _, _ = make_windows((0, cut, total), bias=True)
    options = {"block": L, "scale": 0.7, "weighting": weighting}
    state = ref.vq_linear(**window(0, cut), **options, return_state=True)[1]
    rest = window(cut, total)
    rng = np.random.default_rng(1)

    def run(q, v, bias, mean, values):
        *results, after = ref.vq_linear(
            q, rest["k"], v, rest["codebook"], bias=bias, **options, return_lse=True, return_state=True,
            state=state._replace(mean=mean, values=values))  # fmt: skip
        return [*results[: 1 + (weighting == "softmax")], after.mean, after.values], after

    # A code that no token has has no mean.
    arrays = [rest["q"], rest["v"], rest["bias"], state.mean, state.values]
    results, after = run(*arrays)
    weights = [rng.standard_normal(x.shape) for x in results]
    weights[-2] *= (after.count > 0)[..., None]
    d_next = ref.VQStateGradient(weights[-2], np.zeros((*after.codes.shape, D)), weights[-1])
    d_q, _, d_v, d_bias, d_state = ref.vq_backward(
        weights[0], rest["q"], rest["k"], rest["v"], rest["codebook"], bias=rest["bias"], **options,
        d_lse=weights[1] if weighting == "softmax" else None, state=state, d_next_state=d_next)  # fmt: skip

    def value(arrays):
        return sum((x * w).sum() for x, w in zip(run(*arrays)[0], weights))

    for at, gradient in enumerate((d_q, d_v, d_bias, d_state.mean, d_state.values)):
        assert gradient.shape == arrays[at].shape
        for flat in rng.choice(gradient.size, min(gradient.size, 12), replace=False):
            moved = []
            for step in (1e-5, -1e-5):
                moved.append([x.copy() for x in arrays])
                moved[-1][at].flat[flat] += step
            difference = (value(moved[0]) - value(moved[1])) / 2e-5
            assert abs(difference - gradient.flat[flat]) <= 1e-6 * np.abs(gradient).max(initial=1)


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
