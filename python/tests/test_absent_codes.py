# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# REQUIRES: long-tests
"""Codes of absent tokens: functions of quantized keys against what they are of the tokens that are present."""

import numpy as np
import pytest
from conftest import TYPES, check, make, near, refused

import fovea
from fovea import reference

B, G, H, N, D, S = 3, 2, 4, 13, 16, 5
TARGETS = ["cpu", "reference", "gpu-sim"]


def skip_unsupported(type, target):
    if type == "float64" and target == "gpu-sim":
        pytest.skip("GPU kernels of codebooks take no float64")


def make_mask(kind):
    mask = np.ones((B, N), bool)
    if kind == "left":
        mask[0, :5] = mask[1, :12] = False
    elif kind == "right":
        mask[0, 5:] = mask[1, 1:] = False
    else:
        mask[0] = np.arange(N) % 3 == 1
        mask[1] = False
    return mask


def make_arrays(kind, type="float32"):
    """Queries, keys and values that are NaN where the mask leaves them out."""
    q, k, v = make(type, B=B, H=H, G=G, N=N, D=D, E=20)
    mask = make_mask(kind)
    for array in (q, k, v):
        array[~np.broadcast_to(mask[:, None], array.shape[:3])] = np.nan
    codebook = np.random.default_rng(5).standard_normal((G, S, D)).astype(TYPES[type])
    return q, k, v, codebook, mask


def expect_vq(q, codes, v, codebook, mask, **options):
    """Of each entry, the tokens present alone: without a bias no block matters."""
    out, lse = np.zeros((B, H, N, v.shape[3])), np.full((B, H, N), -np.inf)
    for b in range(B):
        rows = np.flatnonzero(mask[b])
        if len(rows):
            one = (np.asarray(array[b : b + 1, :, rows], array.dtype) for array in (q, codes, v))
            found = reference.vq(*one, codebook, return_lse=True, **options)
            out[b, :, rows], lse[b, :, rows] = np.moveaxis(found[0][0], 1, 0), found[1][0].T
    return out, lse


@pytest.mark.parametrize("kind", ["left", "right", "scattered"])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("type", TYPES)
def test_quantize(kind, target, type):
    skip_unsupported(type, target)
    _, k, _, codebook, mask = make_arrays(kind, type)
    k_hat, codes = fovea.quantize(k, codebook, mask=mask, target=target)
    present = np.where(mask[:, None, :, None], k, 0)
    expected = reference.quantize(present, codebook, mask=mask)
    np.testing.assert_array_equal(codes, expected[1])
    check(k_hat, expected[0], type)
    if kind == "right":
        again = fovea.quantize(k, codebook, lengths=mask.sum(axis=1), target=target)
        np.testing.assert_array_equal(again[1], codes)


@pytest.mark.parametrize("kind", ["left", "right", "scattered"])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("type", ["float32", "float64"])
def test_commitment_loss(kind, target, type):
    _, k, _, codebook, mask = make_arrays(kind, type)
    k_hat = fovea.quantize(k, codebook, mask=mask)[0]
    difference = np.where(mask[:, None, :, None], k - k_hat, 0)
    tokens = G * mask.sum()
    options = {"mask": mask, "target": target}
    check(fovea.commitment_loss(k, k_hat, **options), np.square(difference).sum() / tokens, type)
    check(fovea.commitment_loss_backward(0.5, k, k_hat, **options), difference / tokens, type)
    options["mask"] = np.zeros_like(mask)
    assert fovea.commitment_loss(k, k_hat, **options) == 0
    assert not fovea.commitment_loss_backward(0.5, k, k_hat, **options).any()


@pytest.mark.parametrize("kind", ["left", "right", "scattered"])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("min_count", [0.0, 0.25])
def test_codebook_update(kind, target, shared, min_count):
    _, k, _, codebook, mask = make_arrays(kind)
    codes = fovea.quantize(k, codebook, mask=mask)[1]
    W = 1 if shared else G
    sums, counts = np.zeros((W, S, D), np.float32), np.zeros((W, S), np.float32)
    options = {"rate": 0.875, "min_count": min_count}
    found = fovea.codebook_update(k, codes, sums, counts, **options, target=target)
    check(found, reference.codebook_update(k, codes, sums, counts, **options))


@pytest.mark.parametrize("kind", ["left", "right", "scattered"])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"causal": False},
        {"reduction": "associative"},
        {"reduction": "matmul"},
        {"reduction": "serial"},
        {"scale": 0.25, "block": 16},
    ],
)
def test_vq(kind, target, options):
    q, k, v, codebook, mask = make_arrays(kind)
    codes = fovea.quantize(k, codebook, mask=mask)[1]
    options = {"block": 3, **options}
    found = fovea.vq(q, codes, v, codebook, padded=True, return_lse=True, **options, target=target)
    options.pop("reduction", None)
    check(found, expect_vq(q, codes, v, codebook, mask, **options))


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("heads", [(2, 2), (4, 2), (3, 1)])
def test_vq_of_types_and_heads(type, target, heads):
    skip_unsupported(type, target)
    q, k, v, codebook, mask = make_arrays("scattered", type)
    q, k, v, codebook = np.repeat(q, 2, 1)[:, : heads[0]], *(a[:, : heads[1]] for a in (k, v)), codebook[: heads[1]]
    codes = fovea.quantize(k, codebook, mask=mask)[1]
    out = np.zeros((B, heads[0], N, v.shape[3]))
    for b in range(B):
        rows = np.flatnonzero(mask[b])
        if len(rows):
            one = (array[b : b + 1][:, :, rows] for array in (q, codes, v))
            out[b][:, rows] = reference.vq(*one, codebook, block=3)[0]
    check(fovea.vq(q, codes, v, codebook, padded=True, block=3, target=target), out, type)


@pytest.mark.parametrize("kind", ["left", "right", "scattered"])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("weighting", ["softmax", "squared_relu"])
def test_biases_of_blocks(kind, target, weighting):
    """A bias counts tokens that are absent, too: against all entries, one by one."""
    q, k, v, codebook, mask = make_arrays(kind)
    k_hat, codes = fovea.quantize(k, codebook, mask=mask)
    block = 4
    bias = np.random.default_rng(8).standard_normal((B, H, N, 2 * block)).astype(np.float32)
    out = fovea.vq(
        q, codes, v, codebook, block=block, bias=bias, weighting=weighting, padded=True, scale=0.3, target=target
    )
    wanted = np.zeros(out.shape)
    for b, h, i in np.ndindex(B, H, N):
        rows = np.flatnonzero(mask[b] & (np.arange(N) <= i))
        if not mask[b, i] or not len(rows):
            continue
        g, first = h // (H // G), (i // block - 1) * block
        scores = 0.3 * k_hat[b, g, rows].astype(float) @ q[b, h, i]
        near = rows >= first
        scores[near] += bias[b, h, i, rows[near] - first]
        if weighting == "softmax":
            weights = np.exp(scores - scores.max())
            weights /= weights.sum()
        else:
            weights = np.maximum(scores, 0) ** 2
        wanted[b, h, i] = weights @ v[b, g, rows]
    check(out, wanted)


@pytest.mark.parametrize("kind", ["left", "right", "scattered"])
@pytest.mark.parametrize("target", TARGETS)
def test_windows_and_decoding(kind, target):
    q, k, v, codebook, mask = make_arrays(kind)
    codes = fovea.quantize(k, codebook, mask=mask)[1]
    expected = expect_vq(q, codes, v, codebook, mask, block=2)[0]
    state, parts = None, []
    for first, last in [(0, 4), (4, 5), (5, 10)]:
        part = slice(first, last)
        out, state = fovea.vq(
            q[:, :, part], codes[:, :, part], v[:, :, part], codebook, padded=True, block=2, state=state,
            return_state=True, target=target,
        )  # fmt: skip
        parts.append(out)
    for i in range(10, N):
        part = slice(i, i + 1)
        out, state = fovea.vq_decode(
            q[:, :, part], codes[:, :, part], v[:, :, part], codebook, state, padded=True, block=2, target=target
        )
        parts.append(out)
    check(np.concatenate(parts, axis=2), expected)


def gradients(d_out, q, codes, v, codebook, *, target="cpu", **options):
    """What `vq` gives, and its gradients."""
    is_softmax = options.get("weighting", "softmax") == "softmax"
    found = fovea.vq(q, codes, v, codebook, return_lse=is_softmax, **options, target=target)
    out, lse = found if is_softmax else (None, None)
    backward = fovea.vq_backward(d_out, q, codes, v, codebook, out, lse, **options, target=target)
    return out if is_softmax else found, *backward


@pytest.mark.parametrize("kind", ["left", "right", "scattered"])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("options", [{}, {"causal": False}, {"weighting": "squared_relu"}, {"bias": True}])
def test_gradients(kind, target, options):
    q, k, v, codebook, mask = make_arrays(kind)
    codes = fovea.quantize(k, codebook, mask=mask)[1]
    rng = np.random.default_rng(9)
    d_out = rng.standard_normal((B, H, N, 20)).astype(np.float32)
    d_out[~np.broadcast_to(mask[:, None], d_out.shape[:3])] = np.nan
    options = {"block": 3, "scale": 0.3, "padded": True, **options}
    if "bias" in options:
        options["bias"] = rng.standard_normal((1, H, N, 6)).astype(np.float32)
    found = gradients(d_out, q, codes, v, codebook, **options, target=target)[1:]
    expected = reference.vq_backward(d_out, q, codes, v, codebook, **options)
    for one, other in zip(found, expected, strict="bias" in options):
        near(one, other, "float32")
        if one.shape[0] == B:
            assert not one[~np.broadcast_to(mask[:, None], one.shape[:3])].any()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("options", [{}, {"causal": False}, {"weighting": "squared_relu"}])
def test_lengths_are_separate_calls(target, type, options):
    """Forward and backward, a batch of different lengths."""
    skip_unsupported(type, target)
    q, k, v, codebook, mask = make_arrays("right", type)
    codes = fovea.quantize(k, codebook, lengths=mask.sum(axis=1), target=target)[1]
    d_out = np.random.default_rng(9).standard_normal((B, H, N, 20)).astype(TYPES[type])
    options = {"block": 3, "scale": 0.3, "target": target, **options}
    found = gradients(d_out, q, codes, v, codebook, padded=True, **options)
    # Keys with lengths are these codes.
    for one, other in zip(gradients(d_out, q, k, v, codebook, lengths=mask.sum(axis=1), **options), found):
        np.testing.assert_array_equal(one, other)
    for b, length in enumerate(mask.sum(axis=1)):
        one = (np.ascontiguousarray(array[b : b + 1, :, :length]) for array in (d_out, q, codes, v))
        for whole, part in zip(found, gradients(*one, codebook, **options)):
            near(whole[b : b + 1, :, :length], part, type)
            assert not whole[b, :, length:].any()


@pytest.mark.parametrize("kind", ["left", "right", "scattered"])
@pytest.mark.parametrize("target", TARGETS)
def test_keys_with_a_mask(kind, target):
    q, k, v, codebook, mask = make_arrays(kind)
    codes = fovea.quantize(k, codebook, mask=mask)[1]
    options = {"block": 3, "target": target}
    whole = fovea.vq(q, k, v, codebook, mask=mask, **options)
    np.testing.assert_array_equal(whole, fovea.vq(q, codes, v, codebook, padded=True, **options))
    state, parts = None, []
    for i in range(N):
        one = (array[:, :, i : i + 1] for array in (q, k, v))
        out, state = fovea.vq_decode(*one, codebook, state, mask=mask[:, i : i + 1], **options)
        parts.append(out)
    check(np.concatenate(parts, axis=2), whole.astype(float))


def test_presence_of_all_changes_nothing():
    q, k, v = make(B=2, H=4, G=2, N=N)
    codebook = np.random.default_rng(5).standard_normal((2, S, D)).astype(np.float32)
    codes = fovea.quantize(k, codebook)[1]
    np.testing.assert_array_equal(codes, fovea.quantize(k, codebook, mask=np.ones((2, N), bool))[1])
    plain = fovea.vq(q, codes, v, codebook, block=4)
    check(fovea.vq(q, codes, v, codebook, block=4, padded=True), plain)


def test_errors():
    q, k, v, codebook, mask = make_arrays("left")
    codes = fovea.quantize(k, codebook, mask=mask)[1]
    refused("at least 0 and below 5, but got -1", fovea.vq, q, codes, v, codebook, block=4, error=fovea.FoveaError)
    refused("padded: found True with keys", fovea.vq, q, k, v, codebook, block=4, padded=True)
    refused("padded: found True with keys", fovea.vq_backward, v, q, k, v, codebook, v, v, block=4, padded=True)
    refused("mask: found with codes, needed keys", fovea.vq, q, codes, v, codebook, block=4, mask=mask)
    lengths = np.full(B, N)
    refused("lengths: found with codes", fovea.vq_backward, v, q, codes, v, codebook, v, v, block=4, lengths=lengths)
    refused("lengths: found mask as well", fovea.vq, q, k, v, codebook, block=4, mask=mask, lengths=lengths)
    refused("lengths: found 14 for batch entry 0", fovea.vq, q, k, v, codebook, block=4, lengths=lengths + 1)
    wrong = np.where(codes < 0, -2, codes).astype(np.int32)
    message = "must be -1, or at least 0 and below 5, but got -2"
    refused(message, fovea.vq, q, wrong, v, codebook, block=4, padded=True, error=fovea.FoveaError)
    sums, counts = np.zeros((G, S, D), np.float32), np.zeros((G, S), np.float32)
    refused(message, fovea.codebook_update, k, wrong, sums, counts, error=fovea.FoveaError)
    refused("min_count: found -1", fovea.codebook_update, k, codes, sums, counts, min_count=-1)
    refused("mask: found shape", fovea.quantize, k, codebook, mask=mask[:, 1:])
    refused("lengths: found mask as well", fovea.quantize, k, codebook, mask=mask, lengths=[1] * B)
