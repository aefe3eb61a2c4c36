# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""vq_backward and the commitment loss against the NumPy references."""

import numpy as np
import pytest

import fovea
from conftest import BOUNDS, TYPES, make
from fovea import reference
from test_vq import make_codebook

CASES = {
    "blocks": ({}, {}),
    "grouped queries": ({"H": 6, "G": 2, "B": 2}, {}),
    "bias": ({"H": 4, "G": 2}, {"bias": (1, 4, 37, 16)}),
    "shared bias": ({"H": 4, "G": 2, "B": 2}, {"bias": (1, 1, 16)}),
    "encoder": ({}, {"causal": False}),
    "squared relu": ({"E": 5}, {"weighting": "squared_relu"}),
    "squared relu, bias": ({}, {"weighting": "squared_relu", "bias": (2, 1, 16)}),
    "one row": ({"N": 1}, {}),
}


def near(found, expected, type):
    """Twice the forward's bound: a gradient is made of two of its sums."""
    assert found.dtype == TYPES[type] and found.shape == expected.shape
    error = np.abs(found.astype(np.float64) - expected).max(initial=0)
    assert error <= 2 * BOUNDS[type] * np.abs(expected).max(initial=0)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("type", ["float32", "float64"])
def test_backward(case, type, target):
    sizes, options = CASES[case]
    q, k, v = make(type, **sizes)
    codebook = make_codebook(k.shape[1], 9, k.shape[3], type)
    rng = np.random.default_rng(8)
    options = {"block": 8, "scale": 0.3, **options}
    if "bias" in options:
        options["bias"] = rng.standard_normal(options["bias"]).astype(TYPES[type])
    has_lse = options.get("weighting") != "squared_relu"
    forward = fovea.vq(q, k, v, codebook, **options, return_lse=has_lse, target=target)
    out, lse = forward if has_lse else (None, None)
    d_out = rng.standard_normal((*q.shape[:3], v.shape[3])).astype(TYPES[type])
    if has_lse:
        options["d_lse"] = rng.standard_normal(q.shape[:3]).astype(lse.dtype)
    found = fovea.vq_backward(d_out, q, k, v, codebook, out, lse, **options, target=target)
    bias = options.get("bias")
    expected = reference.vq_backward(
        d_out, q, k, v, codebook, **{**options, "bias": None if bias is None else
                                     bias.reshape((1,) * (4 - bias.ndim) + bias.shape)},
    )  # fmt: skip
    assert len(found) == (3 if bias is None else 4)
    for one, other in zip(found, expected):
        near(one, other, type)


def test_codes_instead_of_keys():
    q, k, v = make()
    codebook = make_codebook(2, 9, 16)
    codes = fovea.quantize(k, codebook)[1]
    out, lse = fovea.vq(q, k, v, codebook, block=8, return_lse=True)
    one = fovea.vq_backward(out, q, k, v, codebook, out, lse, block=8)
    other = fovea.vq_backward(out, q, codes, v, codebook, out, lse, block=8)
    assert all(np.array_equal(a, b) for a, b in zip(one, other))


def test_the_same_bits_for_any_number_of_threads():
    q, k, v = make(B=2, H=4, G=2, N=200)
    codebook = make_codebook(2, 9, 16)
    out, lse = fovea.vq(q, k, v, codebook, block=8, return_lse=True)
    found = []
    try:
        for threads in (1, 2, 3, 7):
            fovea.set_num_threads(threads)
            found.append(fovea.vq_backward(out, q, k, v, codebook, out, lse, block=8))
    finally:
        fovea.set_num_threads(0)
    for other in found[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(found[0], other))


@pytest.mark.parametrize("type", TYPES)
def test_commitment_loss(type, target):
    _, k, _ = make(type, B=2, N=37)
    codebook = make_codebook(2, 9, 16, type)
    k_hat, codes = fovea.quantize(k, codebook)
    loss, gradient = reference.commitment_loss(k, codebook, codes)
    found = fovea.commitment_loss(k, k_hat, target=target)
    assert found.shape == () and found.dtype == (np.float64 if type == "float64" else np.float32)
    np.testing.assert_allclose(found, loss, rtol=1e-5)
    near(fovea.commitment_loss_backward(3.0, k, k_hat, target=target), 3 * gradient, type)


def refuses(text, **changes):
    q, k, v = make()
    arrays = {
        "d_out": v, "q": q, "k": k, "v": v, "codebook": make_codebook(2, 9, 16), "out": v,
        "lse": np.zeros((1, 2, 37), np.float32), "block": 8,
    }  # fmt: skip
    with pytest.raises(ValueError) as info:
        fovea.vq_backward(**{**arrays, **changes})
    assert text in str(info.value)


def test_bad_input():
    refuses("d_out: found shape (1, 2, 36, 16), needed (1, 2, 37, 16)",
            d_out=np.zeros((1, 2, 36, 16), np.float32))  # fmt: skip
    refuses("d_out: found element type float64, needed float32", d_out=np.zeros((1, 2, 37, 16)))
    refuses("d_out: found element type i32", d_out=np.zeros((1, 2, 37, 16), np.int32))
    refuses("lse: found shape (1, 2, 38), needed (1, 2, 37)", lse=np.zeros((1, 2, 38), np.float32))
    refuses("lse: found none, needed that of vq", lse=None)
    refuses("out: found one, needed none without a soft-max", weighting="squared_relu")
    refuses("causal: found False, needed True with a bias", causal=False,
            bias=np.zeros((1, 1, 37, 16), np.float32))  # fmt: skip
    with pytest.raises(ValueError, match="k_hat: found shape"):
        fovea.commitment_loss(np.zeros((1, 2, 3, 4)), np.zeros((1, 2, 3, 5)))
    with pytest.raises(fovea.FoveaError, match=r"attn.vq_backward: codes\[0, 0, 3\] must be at least 0"):
        codes = np.zeros((1, 2, 37), np.int32)
        codes[0, 0, 3] = 9
        q, _, v = make()
        fovea.vq_backward(v, q, codes, v, make_codebook(2, 9, 16), v, v[..., 0].copy(), block=8)
