# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""fovea.quantize and fovea.codebook_update against the references."""

import numpy as np
import pytest
from conftest import TYPES

import fovea
from fovea import reference


def tokens(type="float32", B=2, G=3, N=37, D=16, S=9, W=3, seed=0):
    rng = np.random.default_rng(seed)
    return (
        rng.standard_normal((B, G, N, D)).astype(TYPES[type]),
        rng.standard_normal((W, S, D)).astype(TYPES[type]),
    )


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("sets", [1, 3])
def test_quantize(type, sets, target):
    k, codebook = tokens(type, W=sets)
    k_hat, codes = fovea.quantize(k, codebook, target=target)
    expected_k, expected = reference.quantize(k, codebook)
    assert codes.dtype == np.int32 and np.array_equal(codes, expected)
    assert k_hat.dtype == TYPES[type] and np.array_equal(k_hat.astype(float), expected_k)


@pytest.mark.parametrize("shape", [(1, 1, 1, 1, 1), (1, 2, 0, 3, 4), (0, 1, 5, 3, 4), (1, 1, 17, 7, 1)])
def test_quantize_small(shape, target):
    B, G, N, D, S = shape
    k, codebook = tokens(B=B, G=G, N=N, D=D, S=S, W=1)
    k_hat, codes = fovea.quantize(k, codebook, target=target)
    assert k_hat.shape == (B, G, N, D) and codes.shape == (B, G, N)
    assert np.array_equal(codes, reference.quantize(k, codebook)[1])


def test_ties_and_numbers_that_are_not_finite(target):
    codebook = np.array([[[2, 0], [0, 1], [0, 1], [5, 5]]], np.float32)
    k = np.array([[0, 1], [np.nan, 5], [np.inf, 5], [1, 0.5], [9, 9]], np.float32).reshape(1, 1, 5, 2)
    assert fovea.quantize(k, codebook, target=target)[1].ravel().tolist() == [1, 0, 0, 0, 3]


def test_views_are_read_as_they_are(target):
    k, codebook = tokens(N=40)
    found = fovea.quantize(k[:, :, ::2], codebook, target=target)[1]
    assert np.array_equal(found, reference.quantize(k[:, :, ::2], codebook)[1])


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("sets", [1, 3])
def test_codebook_update(type, sets, target):
    k, codebook = tokens(type, W=sets, S=50)
    codes = fovea.quantize(k, codebook, target=target)[1]
    state = np.float64 if type == "float64" else np.float32
    rng = np.random.default_rng(1)
    sums, counts = rng.standard_normal(codebook.shape).astype(state), rng.random((sets, 50)).astype(state)
    before = sums.copy(), counts.copy()
    found = fovea.codebook_update(k, codes, sums, counts, rate=0.9, target=target)
    expected = reference.codebook_update(k, codes, sums, counts, rate=0.9)
    assert np.array_equal(sums, before[0]) and np.array_equal(counts, before[1])
    for array, want, dtype in zip(found, expected, (TYPES[type], state, state)):
        assert array.dtype == dtype and array.shape == want.shape
        bound = {"float16": 2e-3, "bfloat16": 1e-2, "float64": 1e-13}.get(type, 5e-6)
        assert np.abs(array.astype(float) - want).max() <= bound * np.abs(want).max()


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("sets", [1, 3])
@pytest.mark.parametrize("seed", [0, (1 << 63) - 1, 12345678901234567])
def test_dead_codewords_become_keys(type, sets, seed, target):
    k, codebook = tokens(type, W=sets, S=50)
    codes = fovea.quantize(k, codebook, mask=np.arange(74).reshape(2, 37) % 3 > 0)[1]
    k[codes < 0] = np.nan
    state = np.float64 if type == "float64" else np.float32
    sums, counts = np.zeros(codebook.shape, state), np.full((sets, 50), 0.3, state)
    options = {"rate": 0.5, "replace_below": 0.75, "seed": seed, "wide": True}
    found = fovea.codebook_update(k, codes, sums, counts, **options, target=target)
    options.pop("wide")
    expected = reference.codebook_update(k, codes, sums, counts, **options)
    dead = expected[2] == 0.75
    assert 0 < dead.sum() < dead.size
    for array, want in zip(found, expected):
        assert array.dtype == state and np.abs(array - want).max() <= (1e-13 if type == "float64" else 5e-6) * np.abs(want).max()
    # Copies of keys, of more than one of them.
    assert np.array_equal(found[0][dead], expected[0][dead])
    assert len(np.unique(found[0][dead], axis=0)) > 1


def test_replacing_needs_a_key_and_depends_on_the_seed_alone(target):
    k, codebook = tokens()
    none = np.full((2, 3, 37), -1, np.int32)
    state = codebook, np.ones((3, 9), np.float32)
    for one, other in zip(fovea.codebook_update(k, none, *state, replace_below=9.0, target=target),
                          fovea.codebook_update(k, none, *state, target=target)):  # fmt: skip
        assert np.array_equal(one, other)
    codes = fovea.quantize(k, codebook)[1]
    found = {}
    try:
        for seed in (1, 2):
            for threads in (1, 3):
                fovea.set_num_threads(threads)
                arrays = fovea.codebook_update(k, codes, *state, replace_below=1e9, seed=seed, target=target)
                found.setdefault(seed, set()).add(b"".join(array.tobytes() for array in arrays))
    finally:
        fovea.set_num_threads(0)
    assert len(found[1]) == len(found[2]) == 1 and found[1] != found[2]
    with pytest.raises(ValueError, match="replace_below: found -1"):
        fovea.codebook_update(k, codes, *state, replace_below=-1)


def test_the_default_rate_is_that_of_the_paper():
    k, codebook = tokens()
    codes = fovea.quantize(k, codebook)[1]
    state = codebook, np.ones((3, 9), np.float32)
    found = fovea.codebook_update(k, codes, *state)
    for array, other in zip(found, fovea.codebook_update(k, codes, *state, rate=0.99)):
        assert np.array_equal(array, other)


def test_k_means_converges():
    """Codewords move to the centres of two clusters."""
    rng = np.random.default_rng(2)
    centres = np.array([[4.0, 0.0], [-4.0, 1.0]])
    k = (centres[rng.integers(0, 2, 200)] + 0.1 * rng.standard_normal((200, 2))).astype(np.float32)
    k = k.reshape(1, 1, 200, 2)
    codebook, counts = np.array([[[1, 0], [-1, 0]]], np.float32), np.ones((1, 2), np.float32)
    sums = codebook.copy()
    for _ in range(30):
        codes = fovea.quantize(k, codebook)[1]
        codebook, sums, counts = fovea.codebook_update(k, codes, sums, counts, rate=0.5)
    assert np.abs(codebook[0] - centres).max() < 0.05


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_do_not_matter(threads):
    k, codebook = tokens(N=1000)
    expected = [a.tobytes() for a in fovea.quantize(k, codebook)]
    try:
        fovea.set_num_threads(threads)
        assert [a.tobytes() for a in fovea.quantize(k, codebook)] == expected
    finally:
        fovea.set_num_threads(0)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"k": np.zeros((2, 3, 4), np.float32)}, "k: found rank 3, needed rank 4 [B,G,N,D]"),
        ({"k": np.zeros((1, 3, 4, 0), np.float32)}, "k: found width 0, needed at least 1"),
        ({"k": np.zeros((1, 3, 4, 16), np.int32)}, "k: found element type int32, needed one of float16, bfloat16, float32, float64"),
        ({"codebook": np.zeros((2, 9, 16), np.float32)}, "codebook: found 2 sets, needed 1 or one for each of the 3 heads of k"),
        ({"codebook": np.zeros((3, 0, 16), np.float32)}, "codebook: found no codewords, needed at least 1"),
        ({"codebook": np.zeros((3, 9, 8), np.float32)}, "codebook: found width 8, needed 16"),
        ({"codebook": np.zeros((3, 9, 16))}, "codebook: found element type float64, needed float32"),
        ({"codebook": np.zeros((9, 16), np.float32)}, "codebook: found rank 2, needed rank 3 [G or 1,S,D]"),
        ({"target": "tpu"}, "target: found 'tpu', needed 'cpu', 'reference', 'gpu' or 'gpu-sim'"),
    ],
)
def test_quantize_errors(change, message):
    arguments = dict(zip(("k", "codebook"), tokens()))
    with pytest.raises(ValueError) as error:
        fovea.quantize(**{**arguments, **change})
    assert str(error.value) == message


@pytest.mark.parametrize(
    "change, message",
    [
        ({"codes": np.zeros((2, 3, 37))}, "codes: found element type float64, needed int32"),
        ({"codes": np.zeros((2, 3, 36), np.int32)}, "codes: found shape (2, 3, 36), needed (2, 3, 37)"),
        ({"sums": np.zeros((2, 9, 16), np.float32)}, "sums: found 2 sets, needed 1 or one for each of the 3 heads of k"),
        ({"sums": np.zeros((3, 9, 16))}, "sums: found element type float64, needed float32"),
        ({"counts": np.zeros((3, 8), np.float32)}, "counts: found shape (3, 8), needed (3, 9)"),
        ({"counts": np.zeros((3, 9), np.float16)}, "counts: found element type float16, needed float32"),
        ({"rate": 1.5}, "rate: found 1.5, needed a number from 0 to 1"),
        ({"rate": float("nan")}, "rate: found nan, needed a number from 0 to 1"),
        ({"rate": "x"}, "rate: found 'x', needed a number from 0 to 1"),
    ],
)
def test_update_errors(change, message):
    k, codebook = tokens()
    arguments = {"k": k, "codes": np.zeros((2, 3, 37), np.int32), "sums": codebook,
                 "counts": np.ones((3, 9), np.float32)}  # fmt: skip
    with pytest.raises(ValueError) as error:
        fovea.codebook_update(**{**arguments, **change})
    assert str(error.value) == message


@pytest.mark.parametrize("code", [-2, 9])
def test_codes_out_of_range_fail_with_their_position(code, target):
    k, codebook = tokens()
    codes = np.zeros((2, 3, 37), np.int32)
    codes[1, 2, 5] = code
    with pytest.raises(fovea.FoveaError) as error:
        fovea.codebook_update(k, codes, codebook, np.ones((3, 9), np.float32), target=target)
    assert f"attn.codebook_update: codes[1, 2, 5] must be -1, or at least 0 and below 9, but got {code}" in str(
        error.value
    )


@pytest.mark.parametrize("shape", [(2, 3, 0, 4), (0, 3, 5, 4), (2, 0, 5, 4), (2, 3, 5, 0)])
def test_no_keys_have_no_commitment_loss(shape, target):
    """As keys that are all absent."""
    k = np.ones(shape, np.float32)
    assert fovea.commitment_loss(k, k, target=target) == 0
    assert fovea.commitment_loss_backward(1.0, k, k).shape == shape
    absent = np.zeros(shape[0], np.int32)
    assert fovea.commitment_loss(k, k, lengths=absent, target=target) == 0
