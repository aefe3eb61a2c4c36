# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# REQUIRES: long-tests
"""Terms by distance of vq and vq_backward: against the NumPy references, against the bias that
says the same, and what is refused."""

import numpy as np
import pytest
from conftest import TYPES, check, make, near, refused
from test_vq import make_codebook

import fovea
from fovea import reference

BLOCK = 8
# Sizes, and whether heads share relative keys, their bias, and the bias by distance.
CASES = {
    "each head": ({"H": 4, "G": 2, "B": 2}, (4, 4, None)),
    "shared keys": ({"H": 4, "G": 2, "E": 5}, (1, 4, None)),
    "all shared": ({"H": 6, "G": 3, "D": 5, "B": 2}, (1, 1, None)),
    "by distance": ({"H": 4, "G": 1}, (None, None, 4)),
    "both": ({"H": 2, "G": 2, "N": 65}, (1, 2, 1)),
    "one row": ({"N": 1}, (2, 2, 2)),
}


def make_terms(case, D, type="float32", spare=3, memory=1):
    keys, bias, numbers = CASES[case][1]
    rng, distances, terms = np.random.default_rng(9), (memory + 1) * BLOCK + spare, {}
    if keys:
        terms["relative"] = tuple(
            rng.standard_normal(shape).astype(TYPES[type]) for shape in ((keys, distances, D), (bias, D))
        )
    if numbers:
        terms["distance_bias"] = rng.standard_normal((numbers, distances)).astype(TYPES[type])
    return terms


def as_bias(q, relative=None, distance_bias=None, scale=1.0, memory=1):
    """The bias [B,H,N,(memory + 1) block] that says the same."""
    B, H, N, D = q.shape
    distance = np.arange(N)[:, None] % BLOCK + memory * BLOCK - np.arange((memory + 1) * BLOCK)
    terms = np.zeros((B, H, *distance.shape))
    if relative is not None:
        r, u = (np.broadcast_to(x, (H, *x.shape[1:])).astype(float) for x in relative)
        terms += scale * np.einsum("bhnd,hncd->bhnc", q + u[:, None], r[:, np.maximum(distance, 0)])
    if distance_bias is not None:
        terms += np.broadcast_to(distance_bias, (H, distance_bias.shape[1]))[:, np.maximum(distance, 0)]
    return terms


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("type", TYPES)
def test_forward(case, type, target):
    if target != "cpu" and type == "float64":
        pytest.skip("GPUs have no float64")
    q, k, v = make(type, **CASES[case][0])
    codebook, terms = make_codebook(k.shape[1], 9, q.shape[3], type), make_terms(case, q.shape[3], type)
    codes = reference.quantize(k, codebook)[1].astype(np.int32)
    found = fovea.vq(q, codes, v, codebook, block=BLOCK, scale=0.3, **terms, return_lse=True, target=target)
    check(found, reference.vq(q, codes, v, codebook, block=BLOCK, scale=0.3, **terms, return_lse=True), type)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("memory", [0, 1, 3])
def test_decode(case, memory, target):
    """Token by token: within the first blocks, at their ends, and where the ring of kept tokens has turned."""
    q, k, v = make(**CASES[case][0])
    codebook, terms = make_codebook(k.shape[1], 9, q.shape[3]), make_terms(case, q.shape[3], memory=memory)
    options = {"block": BLOCK, "memory": memory, "scale": 0.3, **terms}
    whole = fovea.vq(q, k, v, codebook, **options)
    state = None
    for token in range(q.shape[2]):
        row = [x[:, :, token : token + 1] for x in (q, k, v)]
        out, state = fovea.vq_decode(*row, codebook, state, **options, target=target)
        near(out, whole[:, :, token : token + 1], "float32", 1e-5)


@pytest.mark.parametrize("case", sorted(set(CASES) - {"one row"}))
def test_decode_on_gpus(case):
    q, k, v = make(**CASES[case][0])
    codebook, terms = make_codebook(k.shape[1], 9, q.shape[3]), make_terms(case, q.shape[3])
    codes = reference.quantize(k, codebook)[1].astype(np.int32)
    options = {"block": BLOCK, "scale": 0.3, **terms}
    whole = reference.vq(q, codes, v, codebook, **options)
    for low in 0, 7, 8, 14, 16, 29:
        state = fovea.vq(*(x[:, :, :low] for x in (q, codes, v)), codebook, **options, return_state=True)[1] if low else None
        for token in range(low, low + 3):
            row = [x[:, :, token : token + 1] for x in (q, codes, v)]
            out, state = fovea.vq_decode(*row, codebook, state, **options, target="gpu-sim")
            check(out, whole[:, :, token : token + 1])


@pytest.mark.parametrize("type", TYPES)
def test_decode_of_types(type, target):
    if target != "cpu" and type == "float64":
        pytest.skip("GPUs have no float64")
    q, k, v = make(type, B=2, H=4, G=2)
    codebook, terms = make_codebook(2, 9, q.shape[3], type), make_terms("both", q.shape[3], type)
    terms["relative"] = (terms["relative"][0], np.repeat(terms["relative"][1], 2, 0))
    codes = reference.quantize(k, codebook)[1].astype(np.int32)
    whole = reference.vq(q, codes, v, codebook, block=BLOCK, **terms)
    state, found = None, []
    for token in range(q.shape[2]):
        row = [x[:, :, token : token + 1] for x in (q, codes, v)]
        out, state = fovea.vq_decode(*row, codebook, state, block=BLOCK, **terms, target=target)
        found.append(out)
    check(np.concatenate(found, 2), whole, type)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("memory", [0, 1, 3])
def test_equals_bias(case, memory, target):
    q, k, v = make(**CASES[case][0])
    codebook, terms = make_codebook(k.shape[1], 9, q.shape[3]), make_terms(case, q.shape[3], memory=memory)
    bias = as_bias(q, **terms, scale=0.3, memory=memory).astype(np.float32)
    options = {"block": BLOCK, "memory": memory, "scale": 0.3, "target": target}
    one = fovea.vq(q, k, v, codebook, **terms, **options)
    other = fovea.vq(q, k, v, codebook, bias=bias, **options)
    np.testing.assert_allclose(one, other, rtol=0, atol=1e-5)
    # A canary: terms that are one distance off are other terms.
    moved = {name: np.roll(x, 1, 1) if name == "distance_bias" else (np.roll(x[0], 1, 1), x[1]) for name, x in terms.items()}
    if q.shape[2] > 1:
        off = fovea.vq(q, k, v, codebook, **moved, **options)
        assert np.abs(off - other).max() > 1e-3


@pytest.mark.parametrize("memory", [0, 1, 2, 4])
def test_windows_continue(memory, target):
    q, k, v = make(H=4, G=2, N=53, B=2)
    codebook, terms = make_codebook(2, 9, 16), make_terms("both", 16, memory=memory)
    terms["relative"] = (terms["relative"][0], np.repeat(terms["relative"][1], 2, 0))
    terms["memory"] = memory
    expected = reference.vq(q, k, v, codebook, block=BLOCK, **terms)
    outs, state = [], None
    for low, high in ((0, 5), (5, 6), (6, 16), (16, 41), (41, 53)):
        arrays = [np.ascontiguousarray(x[:, :, low:high]) for x in (q, k, v)]
        out, state = fovea.vq(
            *arrays, codebook, block=BLOCK, **terms, state=state, return_state=True, target=target
        )
        outs.append(out)
    check(np.concatenate(outs, 2), expected)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("type", ["float32", "float64"])
@pytest.mark.parametrize("weighting,memory", [("softmax", 1), ("squared_relu", 1), ("softmax", 0), ("softmax", 3)])
def test_backward(case, type, weighting, memory, target):
    if target != "cpu" and (type == "float64" or memory == 3):
        pytest.skip("GPUs have no float64, and the emulator takes its time")
    q, k, v = make(type, **CASES[case][0])
    codebook, terms = make_codebook(k.shape[1], 9, q.shape[3], type), make_terms(case, q.shape[3], type, memory=memory)
    options = {"block": BLOCK, "memory": memory, "scale": 0.3, "weighting": weighting, **terms}
    has_lse = weighting == "softmax"
    forward = fovea.vq(q, k, v, codebook, **options, return_lse=has_lse)
    out, lse = forward if has_lse else (None, None)
    d_out = np.random.default_rng(8).standard_normal((*q.shape[:3], v.shape[3])).astype(TYPES[type])
    found = fovea.vq_backward(d_out, q, k, v, codebook, out, lse, **options, target=target)
    d_q, d_k, d_v, _, (d_r, d_u, d_t) = reference.vq_backward(d_out, q, k, v, codebook, **options)
    expected = [d_q, d_k, d_v]
    found = list(found)
    if "relative" in terms:
        found[3:4] = found[3]
        expected += [d_r, d_u]
    if "distance_bias" in terms:
        expected.append(d_t)
    assert len(found) == len(expected)
    for one, other in zip(found, expected):
        if np.abs(other).max() < 1e-6:
            # The gradient of a soft-max over one key.
            assert np.abs(one).max() < 1e-5
        else:
            near(one, other, type)


def test_backward_by_differences():
    q, k, v = make("float64", H=2, G=1, N=21)
    codebook, terms = make_codebook(1, 7, 16, "float64"), make_terms("both", 16, "float64")
    rng = np.random.default_rng(4)
    weights = rng.standard_normal(q.shape)
    r, u, t = *terms["relative"], terms["distance_bias"]

    def loss(q, r, u, t):
        out = fovea.vq(q, k, v, codebook, block=BLOCK, scale=0.3, relative=(r, u), distance_bias=t)
        return float((out * weights).sum())

    out, lse = fovea.vq(q, k, v, codebook, block=BLOCK, scale=0.3, **terms, return_lse=True)
    d_q, _, _, (d_r, d_u), d_t = fovea.vq_backward(
        weights, q, k, v, codebook, out, lse, block=BLOCK, scale=0.3, **terms
    )
    arrays = [q, r, u, t]
    for number, gradient in enumerate((d_q, d_r, d_u, d_t)):
        step = rng.standard_normal(arrays[number].shape)
        ends = []
        for sign in (1, -1):
            moved = list(arrays)
            moved[number] = moved[number] + sign * 1e-6 * step
            ends.append(loss(*moved))
        np.testing.assert_allclose((ends[0] - ends[1]) / 2e-6, (gradient * step).sum(), rtol=1e-6)


def test_absent_tokens():
    """Rows of absent tokens may hold anything, and distances go on counting."""
    q, k, v = make(H=2, G=1, N=40, B=2)
    codebook, terms = make_codebook(1, 9, 16), make_terms("both", 16)
    codes = reference.quantize(k, codebook)[1].astype(np.int32)
    codes[np.random.default_rng(3).random(codes.shape) < 0.3] = -1
    absent = np.repeat(codes < 0, 2, 1)
    spoilt = q.copy()
    spoilt[absent] = np.nan
    options = {"block": BLOCK, "padded": True, **terms}
    out, lse = fovea.vq(spoilt, codes, v, codebook, **options, return_lse=True)
    check((out, lse), reference.vq(q, codes, v, codebook, **options, return_lse=True))
    found = fovea.vq_backward(out, spoilt, codes, v, codebook, out, lse, **options)
    expected = reference.vq_backward(out, q, codes, v, codebook, **options)
    near(found[0], expected[0], "float32")
    for one, other in zip(found[3], expected[4]):
        near(one, other, "float32")


@pytest.mark.parametrize("memory", [0, 1, 2])
def test_lengths_are_calls_of_their_own(memory):
    q, k, v = make(H=4, G=2, N=45, B=3)
    codebook, terms = make_codebook(2, 9, 16), make_terms("each head", 16, memory=memory)
    options = {"block": BLOCK, "memory": memory, "scale": 0.3, **terms}
    lengths = np.array([45, 1, 26], np.int32)
    out, lse = fovea.vq(q, k, v, codebook, lengths=lengths, return_lse=True, **options)
    d_out = np.random.default_rng(6).standard_normal(out.shape).astype(np.float32)
    *found, (d_r, d_u) = fovea.vq_backward(d_out, q, k, v, codebook, out, lse, lengths=lengths, **options)
    sums = np.zeros(d_r.shape), np.zeros(d_u.shape)
    for b, length in enumerate(lengths):
        part = [np.ascontiguousarray(x[b : b + 1, :, :length]) for x in (q, k, v, d_out)]
        one = fovea.vq(*part[:3], codebook, return_lse=True, **options)
        check((out[b : b + 1, :, :length], lse[b : b + 1, :, :length]), tuple(x.astype(float) for x in one))
        *own, terms_of_one = fovea.vq_backward(part[3], *part[:3], codebook, *one, **options)
        for x, y in zip(found[:3], own[:3], strict=True):
            np.testing.assert_allclose(x[b : b + 1, :, :length], y, rtol=0, atol=2e-5)
            assert not x[b, :, length:].any()
        for total, x in zip(sums, terms_of_one, strict=True):
            total += x
    for x, y in zip((d_r, d_u), sums, strict=True):
        near(x, y, "float32")


def test_masks_by_distance():
    """Minus infinity masks a distance, whatever the values there are."""
    q, k, v = make(H=2, G=1, N=33)
    codebook, numbers = make_codebook(1, 9, 16), np.zeros((1, 2 * BLOCK), np.float32)
    numbers[:, 3::4] = -np.inf
    out = fovea.vq(q, k, v, codebook, block=BLOCK, distance_bias=numbers)
    check(out, reference.vq(q, k, v, codebook, block=BLOCK, distance_bias=numbers))


def test_errors():
    q, k, v = make()
    codebook, r, u = make_codebook(2, 9, 16), np.ones((1, 16, 16), np.float32), np.ones((2, 16), np.float32)
    arrays = q, k, v, codebook
    refused(r"relative.keys: found 15 distances, needed at least 16", fovea.vq, *arrays, block=8,
            relative=(r[:, :15], u))  # fmt: skip
    refused(r"distance_bias: found 15 distances, needed at least 16", fovea.vq, *arrays, block=8,
            distance_bias=r[0, :1, :15])  # fmt: skip
    refused(r"distance_bias: found 15 distances, needed at least 24", fovea.vq, *arrays, block=8, memory=2,
            distance_bias=r[0, :1, :15])  # fmt: skip
    refused(r"relative: found 1 parts, needed 2", fovea.vq, *arrays, block=8, relative=(r,))
    refused(r"relative.keys: found .*3.*needed", fovea.vq, *arrays, block=8,
            relative=(np.ones((3, 16, 16), np.float32), u))  # fmt: skip
    refused(r"relative.bias: found .*5.*needed", fovea.vq, *arrays, block=8, relative=(r, u[:, :5]))
    one = [x[:, :, :1] for x in arrays[:3]]
    refused(r"relative.keys: found 15 distances, needed at least 16", fovea.vq_decode, *one, arrays[3], block=8,
            relative=(r[:, :15], u))  # fmt: skip
    refused(r"relative.bias: found .*5.*needed", fovea.vq_decode, *one, arrays[3], block=8, relative=(r, u[:, :5]))
    refused(r"causal: found False, needed True", fovea.vq, *arrays, block=8, causal=False, relative=(r, u))
