# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Quantization, codebooks and attention over quantized keys."""

import numpy as np
import pytest
from loops import ref


def tokens(B=2, H=4, G=2, N=12, D=3, E=5, S=4, seed=0):
    rng = np.random.default_rng(seed)
    return (
        rng.standard_normal((B, H, N, D)),
        rng.standard_normal((B, G, N, D)),
        rng.standard_normal((B, G, N, E)),
        rng.standard_normal((G, S, D)),
    )


# -- quantize -----------------------------------------------------------------


def test_quantize_finds_the_least_distance():
    _, k, _, codebook = tokens(N=50, S=7)
    k_hat, codes = ref.quantize(k, codebook)
    for b, g, n in np.ndindex(codes.shape):
        distances = [((k[b, g, n] - c) ** 2).sum() for c in codebook[g]]
        assert codes[b, g, n] == distances.index(min(distances))
        assert np.array_equal(k_hat[b, g, n], codebook[g, codes[b, g, n]])


def test_ties_go_to_the_first_codeword():
    codebook = np.array([[[2.0], [0.0], [1.0], [0.0]]])
    k = np.array([0.0, 0.5, 1.5, 9.0, -3.0]).reshape(1, 1, 5, 1)
    assert ref.quantize(k, codebook)[1].ravel().tolist() == [1, 1, 0, 0, 1]


def test_numbers_that_are_not_finite():
    codebook = np.array([[[np.nan, 0], [3, 3], [1, 1], [np.inf, 0]]])
    k = np.array([[0, 0], [np.nan, 1], [np.inf, 1], [4, 4]]).reshape(1, 1, 4, 2)
    assert ref.quantize(k, codebook)[1].ravel().tolist() == [2, 0, 0, 1]


def test_a_shared_codebook():
    _, k, _, codebook = tokens()
    shared = ref.quantize(k, codebook[:1])[1]
    assert np.array_equal(shared, ref.quantize(k, np.repeat(codebook[:1], 2, axis=0))[1])


def test_chunks_of_keys_do_not_matter(monkeypatch):
    from fovea_reference import _quantized

    _, k, _, codebook = tokens(N=31)
    whole = ref.quantize(k, codebook)[1]
    monkeypatch.setattr(_quantized, "_DISTANCES", 1)
    assert np.array_equal(ref.quantize(k, codebook)[1], whole)


def test_commitment_loss():
    _, k, _, codebook = tokens()
    k_hat, codes = ref.quantize(k, codebook)
    loss, gradient = ref.commitment_loss(k, codebook, codes)
    assert np.isclose(loss, ((k - k_hat) ** 2).sum(-1).mean())
    step = np.zeros_like(k)
    step[1, 0, 3, 2] = 1e-6
    ahead = ref.commitment_loss(k + step, codebook, codes)[0]
    behind = ref.commitment_loss(k - step, codebook, codes)[0]
    assert np.isclose((ahead - behind) / 2e-6, gradient[1, 0, 3, 2], rtol=1e-6)


# -- codebooks ----------------------------------------------------------------


def test_accumulate_counts_and_averages():
    _, k, v, codebook = tokens(N=40, S=6)
    codes = ref.quantize(k, codebook)[1]
    B, G, S, E = 2, 2, 6, 5
    mean, count = ref.codebook_accumulate(codes, v, np.full((B, G, S, E), 7.0), np.zeros((B, G, S), int))
    for b, g, s in np.ndindex(B, G, S):
        chosen = v[b, g][codes[b, g] == s]
        assert count[b, g, s] == len(chosen)
        expected = chosen.mean(axis=0) if len(chosen) else np.full(E, 7.0)
        assert np.allclose(mean[b, g, s], expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("block", [1, 3, 5, 12, 20])
def test_scan_is_a_state_for_every_block(block):
    _, k, v, codebook = tokens()
    codes = ref.quantize(k, codebook)[1]
    start = ref.codebook_accumulate(codes[:, :, :2], v[:, :, :2], np.zeros((2, 2, 4, 5)), np.zeros((2, 2, 4), int))
    means, counts = ref.codebook_scan(codes, v, *start, block=block)
    assert means.shape[2] == -(-12 // block) + 1
    for t in range(means.shape[2]):
        mean, count = ref.codebook_accumulate(codes[:, :, : t * block], v[:, :, : t * block], *start)
        assert np.array_equal(counts[:, :, t], count)
        assert np.allclose(means[:, :, t], mean, rtol=0, atol=1e-14)


@pytest.mark.parametrize("sets", [1, 2])
def test_update_smooths_counts_and_sums(sets):
    _, k, _, codebook = tokens(N=30)
    codes = ref.quantize(k, codebook)[1]
    sums, counts = np.random.default_rng(1).standard_normal((sets, 4, 3)), np.full((sets, 4), 0.5)
    new, new_sums, new_counts = ref.codebook_update(k, codes, sums, counts, rate=0.9)
    for w, s in np.ndindex(sets, 4):
        heads = slice(None) if sets == 1 else slice(w, w + 1)
        chosen = k[:, heads][codes[:, heads] == s]
        assert np.isclose(new_counts[w, s], 0.45 + 0.1 * len(chosen))
        assert np.allclose(new_sums[w, s], 0.9 * sums[w, s] + 0.1 * chosen.sum(axis=0))
        assert np.allclose(new[w, s], new_sums[w, s] / new_counts[w, s])


def test_update_without_tokens_is_zero_and_not_nan():
    codes = np.zeros((1, 1, 1), int)
    new = ref.codebook_update(np.ones((1, 1, 1, 2)), codes, np.zeros((1, 2, 2)), np.zeros((1, 2)), rate=0.5)[0]
    assert new.tolist() == [[[1, 1], [0, 0]]]


# -- attention ----------------------------------------------------------------


def test_vq_is_dense_attention_over_quantized_keys():
    q, k, v, codebook = tokens()
    k_hat = ref.quantize(k, codebook)[0]
    expected = ref.dense(q, k_hat, v, causal=True, scale=0.7, return_lse=True)
    found = ref.vq(q, k, v, codebook, block=5, scale=0.7, return_lse=True)
    assert np.allclose(found[0], expected[0], rtol=0, atol=1e-13)
    assert np.allclose(found[1], expected[1], rtol=0, atol=1e-13)
    expected = ref.dense(q, k_hat, v, scale=1.0)
    assert np.allclose(ref.vq(q, k, v, codebook, block=5, causal=False), expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("memory", [0, 1, 2])
def test_bias_is_local(memory):
    q, k, v, codebook = tokens(N=11)
    block = 3
    rng = np.random.default_rng(3)
    columns = (memory + 1) * block
    bias = rng.standard_normal((2, 1, 11, columns))
    full = np.zeros((2, 1, 11, 11))
    for i in range(11):
        for column in range(columns):
            j = (i // block - memory) * block + column
            if 0 <= j <= i:
                full[:, :, i, j] = bias[:, :, i, column]
    k_hat = ref.quantize(k, codebook)[0]
    expected = ref.dense(q, k_hat, v, causal=True, scale=1.0, bias=full)
    assert np.allclose(ref.vq(q, k, v, codebook, block=block, memory=memory, bias=bias), expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("weighting", ["softmax", "squared_relu"])
@pytest.mark.parametrize("block", [1, 2, 3, 4, 6, 12, 5, 50])
@pytest.mark.parametrize("biased,memory", [(False, 1), (True, 1), (True, 0), (False, 2), (True, 3)])
def test_linear_form_is_the_definition(weighting, block, biased, memory):
    q, k, v, codebook = tokens()
    bias = np.random.default_rng(4).standard_normal((1, 4, 12, (memory + 1) * block)) if biased else None
    options = {"block": block, "memory": memory, "bias": bias, "weighting": weighting, "scale": 0.8}
    expected = ref.vq(q, k, v, codebook, **options)
    found = ref.vq_linear(q, k, v, codebook, **options)
    assert np.allclose(found, expected, rtol=0, atol=1e-13)
    if not biased:
        assert np.allclose(found, ref.vq_linear(q, k, v, codebook, **{**options, "block": 4}), atol=1e-13)


@pytest.mark.parametrize("weighting", ["softmax", "squared_relu"])
def test_encoder_form_is_the_definition(weighting):
    q, k, v, codebook = tokens(S=20)
    expected = ref.vq(q, k, v, codebook, block=1, causal=False, weighting=weighting)
    assert np.allclose(ref.vq_encoder(q, k, v, codebook, weighting=weighting), expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("windows", [[12], [4, 8], [1] * 12, [5, 1, 6], [3, 0, 9]])
def test_windows_and_tokens_continue_a_state(windows):
    q, k, v, codebook = tokens()
    bias = np.random.default_rng(5).standard_normal((2, 4, 12, 6))
    expected = ref.vq(q, k, v, codebook, block=3, bias=bias)
    state, first, parts = ref.vq_initial_state(2, 2, 4, 5), 0, []
    for size in windows:
        rows = slice(first, first + size)
        part, state = ref.vq_linear(
            q[:, :, rows], k[:, :, rows], v[:, :, rows], codebook, block=3, bias=bias[:, :, rows],
            state=state, return_state=True,
        )  # fmt: skip
        parts.append(part)
        first += size
    assert state.position == 12
    assert np.allclose(np.concatenate(parts, axis=2), expected, rtol=0, atol=1e-13)


def test_decode_is_a_window_of_one_token():
    q, k, v, codebook = tokens()
    state, parts = ref.vq_initial_state(2, 2, 4, 5), []
    for t in range(12):
        rows = slice(t, t + 1)
        out, state = ref.vq_decode(q[:, :, rows], k[:, :, rows], v[:, :, rows], codebook, state, block=2)
        parts.append(out)
    expected = ref.vq(q, k, v, codebook, block=2)
    assert np.allclose(np.concatenate(parts, axis=2), expected, rtol=0, atol=1e-13)


def test_later_tokens_change_nothing_before_them():
    q, k, v, codebook = tokens()
    before = ref.vq_linear(q, k, v, codebook, block=2)
    k[:, :, 7], v[:, :, 7] = 9, -9
    after = ref.vq_linear(q, k, v, codebook, block=2)
    assert np.array_equal(before[:, :, :7], after[:, :, :7])
    assert not np.array_equal(before[:, :, 7:], after[:, :, 7:])


def test_codes_instead_of_keys():
    q, k, v, codebook = tokens()
    codes = ref.quantize(k, codebook)[1]
    assert np.array_equal(ref.vq(q, codes, v, codebook, block=4), ref.vq(q, k, v, codebook, block=4))


def test_canary_a_forgotten_count_is_noticed(monkeypatch):
    """The comparison above fails when a codeword counts once, however many keys
    it stands for."""
    from fovea_reference import _vq

    q, k, v, codebook = tokens()
    expected = ref.vq(q, k, v, codebook, block=2)
    attend = _vq._attend
    monkeypatch.setattr(
        _vq, "_attend", lambda s, x, m, w: attend(s, x, np.minimum(m, 1), w)
    )
    assert np.abs(ref.vq_linear(q, k, v, codebook, block=2) - expected).max() > 1e-3


# -- errors -------------------------------------------------------------------


@pytest.mark.parametrize(
    "change, message",
    [
        ({"codebook": np.zeros((3, 4, 3))}, "codebook: found 3 sets, needed 1 or one for each of the 2 heads of k"),
        ({"codebook": np.zeros((2, 0, 3))}, "codebook: found no codewords, needed at least 1"),
        ({"codebook": np.zeros((2, 4, 2))}, "codebook: found width 2, needed 3"),
        ({"k": np.full((2, 2, 12), 4)}, r"codes\[0, 0, 0\]: found 4, needed at least 0 and below 4"),
        ({"k": np.full((2, 2, 12), -1)}, r"codes\[0, 0, 0\]: found -1, needed at least 0 and below 4"),
        ({"k": np.zeros((2, 2, 11), int)}, r"codes: found shape \(2, 2, 11\), needed \(2, 2, 12\)"),
        ({"block": 0}, "block: found 0, needed an integer of at least 1"),
        ({"weighting": "relu"}, "weighting: found 'relu', needed one of"),
        ({"bias": np.zeros((1, 1, 12, 8)), "causal": False}, "bias: found one without causal, needed both or none"),
        ({"v": np.zeros((2, 3, 12, 5))}, "v: found 3 heads, needed a divisor of the 4 heads of q"),
    ],
)
def test_errors_name_the_argument(change, message):
    arguments = dict(zip(("q", "k", "v", "codebook"), tokens()), block=4)
    arguments.update(change)
    with pytest.raises(ValueError, match=message):
        ref.vq(**arguments)


def test_the_generator_of_dead_codewords():
    """The first numbers of SplitMix64 from 0, as its authors' program prints them."""
    numbers = [ref._quantized._random(0, i) for i in range(3)]
    assert numbers == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


@pytest.mark.parametrize("sets", [1, 2])
def test_dead_codewords_become_keys(sets):
    rng = np.random.default_rng(3)
    k, codes = rng.standard_normal((2, 2, 9, 3)), rng.integers(-1, 2, (2, 2, 9))
    sums, counts = np.zeros((sets, 5, 3)), np.zeros((sets, 5))
    codebook, sums, counts = ref.codebook_update(k, codes, sums, counts, rate=0.5, replace_below=0.1, seed=7)
    np.testing.assert_allclose(sums, codebook * counts[..., None])
    for w in range(sets):
        heads = slice(None) if sets == 1 else slice(w, w + 1)
        keys = k[:, heads][codes[:, heads] >= 0].tolist()
        for s in range(2, 5):
            assert counts[w, s] == 0.1 and codebook[w, s].tolist() in keys
        assert codebook[w, 0].tolist() not in keys
