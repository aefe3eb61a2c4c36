# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# REQUIRES: long-tests
"""Tokens that are absent, in convolutions and low-rank products: a sequence of a batch gives
what its own tokens give alone, whatever the others hold, forward and backward."""

import numpy as np
import pytest
from conftest import BOUNDS, TYPES, check, make
from test_low_rank import factors, masks

import fovea
from fovea import reference

ALL_TARGETS = pytest.mark.parametrize("target", ["cpu", "reference", "gpu-sim"])
SEARCH = {"num_basis": 3, "window": 2, "delta": 0.5, "epsilon": 0.01}
N = 37


def token_mask(kind, length=N):
    """Two sequences of a batch: padded on the left, on the right, between; and empty."""
    at = np.arange(length)
    scattered = np.random.default_rng(3).random(length) < 0.6
    second = {"none": at < 0, "one": at == 5, "all": at >= 0}.get(kind, at < length // 3)
    first = {"left": at >= length - 23, "right": at < 23}.get(kind, scattered)
    return np.stack([first, second])


KINDS = ["left", "right", "scattered", "none", "one", "all"]
MASKS = {"causal": ("causal", None), "groups": (fovea.SlidingGroup(8), 8)}


def poison(x, mask):
    x = x.copy()
    x[~np.broadcast_to(mask[:, None, :], x.shape[:3])] = np.nan
    return x


def alone(x, mask, b):
    return np.ascontiguousarray(x[b : b + 1, :, mask[b]])


def spread(x, mask, b, length=N):
    """Rows of the tokens that are present where these are, among zeros."""
    out = np.zeros((*x.shape[:2], length, x.shape[3]))
    out[:, :, mask[b]] = x
    return out


def error(found, expected):
    return np.abs(found.astype(float) - expected).max(initial=0) / np.abs(expected).max(initial=1e-300)


# ----------------------------------------------------------------------------
# Lists of tokens
# ----------------------------------------------------------------------------

LIST = """
func.func @list(%mask: tensor<BxNxi1>) -> (tensor<BxNxi32>, tensor<BxNxi32>, tensor<Bxi32>) {
  %t = tensor.empty() : tensor<BxNxi32>
  %c = tensor.empty() : tensor<Bxi32>
  %l:3 = attn.list_tokens ins(%mask : tensor<BxNxi1>) outs(%t, %t, %c : tensor<BxNxi32>, tensor<BxNxi32>, tensor<Bxi32>)
      -> tensor<BxNxi32>, tensor<BxNxi32>, tensor<Bxi32>
  return %l#0, %l#1, %l#2 : tensor<BxNxi32>, tensor<BxNxi32>, tensor<Bxi32>
}
"""
TAKE = """
func.func @take(%x: tensor<2x3x7x5xT>, %rows: tensor<2xMxi32>) -> tensor<2x3xMx5xT> {
  %init = tensor.empty() : tensor<2x3xMx5xT>
  %r = attn.take_rows ins(%x, %rows : tensor<2x3x7x5xT>, tensor<2xMxi32>) outs(%init : tensor<2x3xMx5xT>) -> tensor<2x3xMx5xT>
  return %r : tensor<2x3xMx5xT>
}
"""


@ALL_TARGETS
@pytest.mark.parametrize("length", [0, 1, 31, 32, 33, 97])
def test_list_tokens(length, target):
    mask = np.random.default_rng(length).random((3, length)) < np.array([[0.5], [0.0], [1.0]])
    kernel = fovea.compile(LIST.replace("B", "3").replace("N", str(length)), target=target)
    tokens, places, counts = kernel(mask)
    for b in range(3):
        listed = np.flatnonzero(mask[b])
        assert counts[b] == len(listed)
        assert np.array_equal(tokens[b], np.pad(listed, (0, length - len(listed)), constant_values=-1))
        assert np.array_equal(places[b], np.where(mask[b], np.cumsum(mask[b]) - 1, -1))


@ALL_TARGETS
@pytest.mark.parametrize("type, element", [("float32", "f32"), ("float64", "f64"), ("float16", "f16"), ("bfloat16", "bf16")])
@pytest.mark.parametrize("count", [0, 1, 4, 70])
def test_take_rows(count, type, element, target):
    if target == "gpu-sim" and type == "float64":
        pytest.skip("not on GPUs")
    rng = np.random.default_rng(count)
    x = rng.standard_normal((2, 3, 7, 5)).astype(TYPES[type])
    # Numbers that are no row give zeros, and what is not listed does not matter.
    rows = rng.choice(np.array([0, 2, 3, 6, -1, 7, -(2**31), 2**31 - 1]), (2, count)).astype(np.int32)
    x[:, :, [1, 4, 5]] = np.nan
    kernel = fovea.compile(TAKE.replace("M", str(count)).replace("T", element), target=target)
    found = kernel(x, rows)
    there = (rows >= 0) & (rows < 7)
    for b in range(2):
        expected = np.where(there[b][:, None], x[b][:, np.where(there[b], rows[b], 0)], np.zeros((), x.dtype))
        assert np.array_equal(found[b], expected)


# ----------------------------------------------------------------------------
# conv
# ----------------------------------------------------------------------------


def conv_arguments(type="float32", seed=0):
    """Keys whose scores are a few convolutions, so that a search finds some and not all."""
    q, k, v = make(type, B=2, H=4, G=2, N=N, D=8, E=6, seed=seed)
    return (0.2 * q).astype(q.dtype), k, v


def expected_conv(q, k, v, mask, group):
    out, found = [], []
    for b in range(2):
        part = [alone(x, mask, b) for x in (q, k, v)]
        length = part[0].shape[2]
        if length == 0:
            out.append(np.zeros((1, 4, N, v.shape[3])))
            found.append(np.zeros((1, 4)))
            continue
        # A search looks at no more tokens than there are.
        search = dict(SEARCH, window=min(SEARCH["window"], length))
        kind = "causal" if group is None else fovea.SlidingGroup(max(group, search["window"]))
        rows, count, _ = fovea.conv(*part, **search, mask=kind, target="reference", return_counts=True)
        out.append(spread(rows, mask, b))
        found.append(count)
    return np.concatenate(out), np.concatenate(found)


@ALL_TARGETS
@pytest.mark.parametrize("type", ["float32", "bfloat16", "float64"])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("kind", KINDS)
def test_conv(kind, mask, type, target):
    if target == "gpu-sim" and type == "float64":
        pytest.skip("not on GPUs")
    present = token_mask(kind)
    q, k, v = conv_arguments(type)
    argument, group = MASKS[mask]
    out, found, _ = fovea.conv(
        *(poison(x, present) for x in (q, k, v)),
        **SEARCH,
        mask=argument,
        token_mask=present,
        return_counts=True,
        target=target,
    )
    expected, count = expected_conv(q, k, v, present, group)
    assert error(out, expected) <= BOUNDS[type]
    assert not out[~np.broadcast_to(present[:, None, :], out.shape[:3])].any()
    if type != "bfloat16":
        assert np.array_equal(found, count)


@ALL_TARGETS
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("kind", KINDS)
def test_conv_backward(kind, mask, target):
    type = "float32" if target == "gpu-sim" else "float64"
    present = token_mask(kind)
    q, k, v = conv_arguments(type)
    d_out = np.random.default_rng(5).standard_normal((2, 4, N, 6)).astype(q.dtype)
    argument, group = MASKS[mask]
    options = dict(SEARCH, mask=argument, token_mask=present, target=target)
    out = fovea.conv(q, k, v, **options)
    found = fovea.conv_backward(*(poison(x, present) for x in (d_out, q, k, v, out)), **options)
    for b in range(2):
        part = [alone(x, present, b) for x in (d_out, q, k, v)]
        length = part[0].shape[2]
        if length == 0:
            assert not any(gradient[b].any() for gradient in found)
            continue
        search = dict(SEARCH, window=min(SEARCH["window"], length))
        wanted = reference.conv_backward(*part, **search, group=group)
        # That of the scores of a single token is 0.
        most = max(np.abs(want).max() for want in wanted)
        for gradient, want in zip(found, wanted, strict=True):
            difference = np.abs(gradient[b : b + 1] - spread(want, present, b)).max()
            assert difference <= 10 * BOUNDS[type] * most


@ALL_TARGETS
def test_lengths_of_conv(target):
    q, k, v = conv_arguments()
    lengths = np.array([23, 12])
    present = np.arange(N) < lengths[:, None]
    found = fovea.conv(q, k, v, **SEARCH, lengths=lengths, target=target)
    assert np.array_equal(found, fovea.conv(q, k, v, **SEARCH, token_mask=present, target=target))
    options = dict(SEARCH, target=target)
    d_q = fovea.conv_backward(v[:, :1].repeat(4, 1), q, k, v, found, lengths=lengths, **options)[0]
    expected = fovea.conv_backward(v[:, :1].repeat(4, 1), q, k, v, found, token_mask=present, **options)[0]
    assert np.array_equal(d_q, expected)


# ----------------------------------------------------------------------------
# low_rank
# ----------------------------------------------------------------------------


def entries_of(entries, queries, keys):
    """The entries [B,1,N,M] of a mask whose rows and columns are present."""
    return entries & queries[:, None, :, None] & keys[:, None, None, :]


@ALL_TARGETS
@pytest.mark.parametrize("type", ["float32", "bfloat16", "float64"])
@pytest.mark.parametrize("kind", KINDS)
def test_low_rank(kind, type, target):
    if target == "gpu-sim" and type == "float64":
        pytest.skip("not on GPUs")
    queries, keys = token_mask(kind, 20), token_mask(kind, 33)
    u1, u2, v = factors(type, N=20, M=33)
    for mask, entries in masks(20, 33):
        found = fovea.low_rank(
            poison(u1, queries),
            poison(u2, keys),
            poison(v, keys),
            mask=mask,
            query_mask=queries,
            key_mask=keys,
            target=target,
        )
        check(found, reference.low_rank(u1, u2, v, entries_of(entries, queries, keys)), type)


@ALL_TARGETS
@pytest.mark.parametrize("kind", KINDS)
def test_low_rank_backward(kind, target):
    type = "float32" if target == "gpu-sim" else "float64"
    queries, keys = token_mask(kind, 20), token_mask(kind, 33)
    u1, u2, v = factors(type, N=20, M=33)
    d_out = np.random.default_rng(5).standard_normal((2, 4, 20, 11)).astype(u1.dtype)
    for mask, entries in masks(20, 33):
        options = {"mask": mask, "query_mask": queries, "key_mask": keys, "target": target}
        out = fovea.low_rank(u1, u2, v, **options)
        found = fovea.low_rank_backward(
            poison(d_out, queries),
            poison(u1, queries),
            poison(u2, keys),
            poison(v, keys),
            poison(out, queries),
            **options,
        )
        wanted = reference.low_rank_backward(d_out, u1, u2, v, entries_of(entries, queries, keys))
        for gradient, want in zip(found, wanted, strict=True):
            assert error(gradient, want) <= 10 * BOUNDS[type]


@ALL_TARGETS
def test_absent_rows_of_low_rank_are_zeros(target):
    """Whatever those that are present hold."""
    queries, keys = token_mask("scattered", 20), token_mask("left", 33)
    u1, u2, v = factors(N=20, M=33)
    b, i, j = 0, queries[0].nonzero()[0][-1], keys[0].nonzero()[0][0]
    u1[b, :, i], u2[b, :, j], v[b, :, j] = np.nan, np.inf, np.inf
    options = {"mask": fovea.Causal(), "query_mask": queries, "key_mask": keys, "target": target}
    out = fovea.low_rank(u1, u2, v, **options)
    d_u1, d_u2, d_v = fovea.low_rank_backward(np.full_like(out, np.inf), u1, u2, v, out, **options)
    for rows, mask in ((out, queries), (d_u1, queries), (d_u2, keys), (d_v, keys)):
        assert not rows[~np.broadcast_to(mask[:, None], rows.shape[:3])].any()
        assert np.isnan(rows).any()  # of tokens that are present


@ALL_TARGETS
def test_one_mask_of_low_rank(target):
    queries, keys = token_mask("scattered", 20), token_mask("left", 33)
    u1, u2, v = factors(N=20, M=33)
    entries = reference.causal_mask(20, 33)
    everything = np.ones_like(queries), np.ones_like(keys)
    found = fovea.low_rank(u1, u2, v, mask=fovea.Causal(), query_mask=queries, target=target)
    check(found, reference.low_rank(u1, u2, v, entries_of(entries, queries, everything[1])))
    found = fovea.low_rank(u1, u2, v, mask=fovea.Causal(), key_mask=keys, target=target)
    check(found, reference.low_rank(u1, u2, v, entries_of(entries, everything[0], keys)))


@ALL_TARGETS
def test_lengths_of_low_rank(target):
    u1, u2, v = factors(N=20, M=20)
    present = np.arange(20) < np.array([[13], [0]])
    for lengths in ([13, 0], np.array([13, 0], np.int32)):
        found = fovea.low_rank(u1, u2, v, mask=fovea.Causal(), lengths=lengths, target=target)
        check(found, reference.low_rank(u1, u2, v, entries_of(reference.causal_mask(20, 20), present, present)))


# ----------------------------------------------------------------------------
# Errors, and checks that find something
# ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options, message",
    [
        ({"token_mask": np.ones((2, N - 1), bool)}, r"token_mask: found shape \(2, 36\), needed \(2, 37\)"),
        ({"token_mask": np.full((2, N), 2)}, "token_mask: found values other than 0 and 1"),
        ({"token_mask": np.zeros((2, N), "V4")}, "token_mask: found values other than 0 and 1"),
        ({"lengths": [1, N + 1]}, "lengths: found 38 for batch entry 1, needed 0 to 37"),
        ({"lengths": [1.0, 2.0]}, "lengths: found element type float64, needed int32 or int64"),
        ({"lengths": [1, 2], "token_mask": np.ones((2, N), bool)}, "lengths: found token_mask as well"),
    ],
)
def test_errors_of_conv(options, message):
    with pytest.raises(ValueError, match=message):
        fovea.conv(*conv_arguments(), **SEARCH, **options)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"query_mask": np.ones((2, 33), bool)}, r"query_mask: found shape \(2, 33\), needed \(2, 20\)"),
        ({"key_mask": np.ones((2, 20), bool)}, r"key_mask: found shape \(2, 20\), needed \(2, 33\)"),
        ({"lengths": [20, 21]}, "lengths: found 21 for batch entry 1, needed 0 to 20"),
        ({"lengths": [1, 2], "key_mask": np.ones((2, 33), bool)}, "lengths: found key_mask as well"),
    ],
)
def test_errors_of_low_rank(options, message):
    with pytest.raises(ValueError, match=message):
        fovea.low_rank(*factors(N=20, M=33), mask=fovea.Causal(), **options)


def test_canary():
    """Without its mask, a batch of NaN padding is NaN."""
    q, k, v = (poison(x, token_mask("left")) for x in conv_arguments())
    assert np.isnan(fovea.conv(q, k, v, **SEARCH)).any()
    assert set(TYPES) >= {"float32", "bfloat16", "float64"}
