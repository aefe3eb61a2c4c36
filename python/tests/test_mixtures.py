# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One soft-max over tokens, summaries and a codebook: fast multipole attention whose far field is quantized, and a window
beside a codebook and sinks. Results and gradients are compared with a formula and with plain loops."""

import numpy as np
import pytest
from derivatives import differentiate

import fovea
from fovea import Source

B, H, G, N, D, BLOCK, CODES = 2, 4, 2, 53, 16, 16, 11
SUMMARIES = -(-N // 4)


def arrays_of(type):
    rng = np.random.default_rng(0)
    shapes = {"q": (B, H, N, D), "k": (B, G, N, D), "v": (B, G, N, D), "sk": (B, G, SUMMARIES, D), "sv": (B, G, SUMMARIES, D),
              "words": (B, G, CODES, D), "means": (B, G, CODES, D)}  # fmt: skip
    arrays = {name: rng.standard_normal(shape).astype(type) for name, shape in shapes.items()}
    # A codeword that no token has is not read.
    counts = rng.integers(0, 9, (B, G, CODES))
    counts[:, :, 3] = 0
    with np.errstate(divide="ignore"):
        arrays["counts"] = np.log(counts).astype(np.float64 if type == np.float64 else np.float32)
    arrays["sink"] = rng.standard_normal((1, H)).astype(arrays["counts"].dtype)
    return arrays


def sources_of(name, a):
    """Options and sources: blocks of queries read their own and the one before token by token."""
    near = Source(a["k"], a["v"], causal=True, ranges=lambda b, rows, n: (BLOCK * b - BLOCK, BLOCK * b + BLOCK))
    codebook = Source(a["words"], a["means"], log_weight=a["counts"])
    if name == "window_codebook_sinks":
        return [Source(a["k"], a["v"], causal=True, window=9), codebook], {"sink": a["sink"]}
    # Summaries of four tokens each of the two blocks before these.
    middle = Source(a["sk"], a["sv"], ranges=lambda b, rows, n: (4 * b - 12, 4 * b - 4))
    return [near, middle, codebook], {"block": BLOCK}


READ = {"window_codebook_sinks": ("q", "k", "v", "words", "means", "counts", "sink"),
        "quantized_far_field": ("q", "k", "v", "sk", "sv", "words", "means", "counts")}  # fmt: skip


def formula(name):
    i, j = np.arange(N)[:, None], np.arange(N)
    if name == "window_codebook_sinks":
        near = (j <= i) & (i - j < 9)
    else:
        near = (j <= i) & (j // BLOCK >= i // BLOCK - 1)
    row, block = np.arange(SUMMARIES), i // BLOCK
    middle = (row >= 4 * block - 12) & (row < 4 * block - 4)
    heads = np.arange(H) // (H // G)

    def attention(xp, a):
        def spread(key):
            return a[key][:, heads]

        def scores(key, removed):
            products = a["q"] @ spread(key).swapaxes(-1, -2) * (1 / np.sqrt(D))
            return xp.where(removed, -np.inf, products)

        parts, values = [scores("k", ~near)], [spread("v")]
        if name == "quantized_far_field":
            parts.append(scores("sk", ~middle))
            values.append(spread("sv"))
        counts = spread("counts").reshape(B, H, 1, CODES)
        parts.append(a["q"] @ spread("words").swapaxes(-1, -2) * (1 / np.sqrt(D)) + counts)
        values.append(spread("means"))
        weights = [xp.exp(each) for each in parts]
        total = sum((each.sum(-1) for each in weights[1:]), weights[0].sum(-1))
        if name == "window_codebook_sinks":
            total = total + xp.exp(a["sink"]).reshape(1, H, 1)
        out = sum((one @ other for one, other in zip(weights[1:], values[1:])), weights[0] @ values[0])
        return out / total.reshape(B, H, N, 1)

    return attention


def go_through(name, a, d_out, target):
    sources, options = sources_of(name, a)
    out, lse = fovea.stream(a["q"], sources, return_lse=True, target=target, **options)
    d_q, gradients, *d_sink = fovea.stream_backward(d_out, a["q"], sources, out, lse, target=target, **options)
    found = [out, d_q, *(each for of in gradients for each in (of.k, of.v))]
    return [*found, gradients[-1].log_weight, *d_sink]


@pytest.mark.parametrize("type", [np.float32, np.float64, "bfloat16"])
@pytest.mark.parametrize("target", ["cpu", "gpu-sim"])
@pytest.mark.parametrize("name", READ)
def test_mixture(name, target, type):
    if target == "gpu-sim" and type == np.float64:
        pytest.skip("GPUs have no kernels of f64")
    if type == "bfloat16":
        type = pytest.importorskip("ml_dtypes").bfloat16
    a = arrays_of(type)
    d_out = np.random.default_rng(1).standard_normal((B, H, N, D)).astype(type)
    wide = {key: each.astype(np.float64) for key, each in a.items() if key in READ[name]}
    with np.errstate(invalid="ignore"):
        out, gradients = differentiate(formula(name), wide, d_out.astype(np.float64))
    expected = [out, *(gradients[key] for key in READ[name])]
    bound = {np.float32: 2e-5, np.float64: 1e-12}.get(type, 3e-2)
    for of_target in (target, "reference"):
        found = go_through(name, a, d_out, of_target)
        assert len(found) == len(expected)
        for one, other in zip(found, expected):
            one = one.astype(np.float64).reshape(other.shape)
            assert np.abs(one - other).max() <= bound * np.abs(other).max()


def test_a_wrong_mixture_is_noticed(monkeypatch):
    """A codebook without its counts."""
    stream = fovea.stream

    def without_counts(q, sources, **options):
        return stream(q, [*sources[:-1], Source(sources[-1].k, sources[-1].v)], **options)

    monkeypatch.setattr(fovea, "stream", without_counts)
    with pytest.raises(AssertionError):
        test_mixture("quantized_far_field", "cpu", np.float32)
