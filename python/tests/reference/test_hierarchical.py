# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The fast multipole references against loops over single entries, and their laws."""

import math

import numpy as np
import pytest
from loops import averages, close, loop_level, loop_multipole, loop_summary, make, make_weights, ref


def test_num_levels():
    assert [ref.num_levels(N, 4) for N in (0, 1, 8, 9, 16, 17, 32, 33)] == [
        0, 0, 0, 1, 1, 2, 2, 3,
    ]


@pytest.mark.parametrize("m", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("N", [1, 2, 5, 8, 13, 16, 31, 32, 33, 48, 64, 65, 100])
def test_levels_tile_the_matrix_once(N, m):
    L = ref.num_levels(N, m)
    i, j = np.arange(N)[:, None], np.arange(N)[None, :]
    owner = ref.owning_level(i, j, m, L)
    want = [[loop_level(a, b, m, L) for b in range(N)] for a in range(N)]
    np.testing.assert_array_equal(owner, want)
    # The sets of the definition, one by one: every entry is in exactly one.
    members = (np.abs(i // m - j // m) <= 1).astype(int)
    for level in range(1, L + 1):
        size = 2 ** (level - 1) * m
        inside = np.abs(i // size - j // size) >= 2
        if level < L:
            inside &= np.abs(i // (2 * size) - j // (2 * size)) <= 1
        else:
            assert (np.abs(i // (2 * size) - j // (2 * size)) <= 1).all()
        members += inside
    assert (members == 1).all()
    # The far field listed per query block is the same set.
    for block in range(-(-N // m)):
        row = np.zeros(N, dtype=int)
        for level, (start, stop) in ref._hierarchical_blocked._far_intervals(block, N, m, L, False):
            size = 2 ** (level - 1) * m
            assert (row[start * size : stop * size] == 0).all()
            row[start * size : stop * size] = level
        np.testing.assert_array_equal(row, owner[block * m])


def test_coarse_levels_read_wholly_past_or_future_intervals():
    N, m = 64, 4
    L = ref.num_levels(N, m)
    for i in range(N):
        for level in range(1, L + 1):
            size = 2 ** (level - 1) * m
            mine = np.nonzero(ref.owning_level(i, np.arange(N), m, L) == level)[0]
            assert (i // size != mine // size).all()


def test_summary_counts():
    np.testing.assert_array_equal(ref.summary_counts(10, 2, 8), [4, 4, 2, 0])
    np.testing.assert_array_equal(ref.summary_counts(16, 2, 8), [4, 4, 4, 4])
    for N in range(1, 20):
        assert ref.summary_counts(N, 4, 8).sum() == N


@pytest.mark.parametrize("N", [8, 10, 3, 1])
@pytest.mark.parametrize("W", [1, 2])
def test_summarize_equals_loops(N, W):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 2, N, 3))
    w, bias = rng.standard_normal((W, 2, 4, 3)), rng.standard_normal((W, 2, 3))
    out = ref.summarize(x, w, bias, interval=4)
    assert out.shape == (2, 2, -(-N // 4) * 2, 3)
    for b, h, r in np.ndindex(out.shape[:3]):
        tokens = range(r // 2 * 4, min(r // 2 * 4 + 4, N))
        head = h if W == 2 else 0
        close(out[b, h, r], loop_summary(x[b, h], w[head], bias[head], tokens, r % 2))
    close(ref._hierarchical_blocked._fast_summaries(x, w, bias, np.float64), out)


def test_summarize_averages():
    x = np.random.default_rng(0).standard_normal((1, 1, 16, 3))
    out = ref.summarize(x, ref.average_weights(2, 8, 3), interval=8)
    close(out, x.reshape(1, 1, 4, 4, 3).mean(axis=3))


def test_summarize_ignores_weights_of_absent_tokens():
    x = np.random.default_rng(0).standard_normal((1, 1, 5, 3))
    w = np.ones((1, 1, 4, 3))
    w_nan = w.copy()
    w_nan[:, :, 1:] = np.nan
    close(ref.summarize(x, w_nan, interval=4)[0, 0, 1], x[0, 0, 4])


CASES = [
    # N, m, p: exact, ragged by a part of a summary, by whole summaries, by
    # whole intervals, one token over, and lengths below two groups.
    (16, 2, 1), (16, 2, 2), (32, 4, 2), (29, 4, 2), (26, 4, 2), (21, 4, 4),
    (17, 4, 2), (33, 4, 2), (19, 3, 3), (13, 1, 1), (8, 4, 2), (5, 4, 2), (1, 2, 1),
]


@pytest.mark.parametrize("N,m,p", CASES)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("multiplicity", [False, True])
def test_multipole_equals_loops(N, m, p, causal, multiplicity):
    q, k, v = make(H=2, G=1, N=N, D=3, E=2)
    kw, vw = make_weights(N, m, p, 3), make_weights(N, m, p, 2, seed=2)
    kb = make_weights(N, m, p, 3, biases=True, seed=5)
    vb = make_weights(N, m, p, 2, biases=True, seed=6)
    for key_biases, value_biases in ((None, None), (kb, vb)):
        want = loop_multipole(
            q, k, v, kw, vw, m, causal, key_biases, value_biases, 0.6, multiplicity
        )
        for function in (ref.fast_multipole, ref.fast_multipole_blocked):
            got = function(
                q, k, v, kw, vw, group=m, causal=causal, key_biases=key_biases,
                value_biases=value_biases, scale=0.6, multiplicity=multiplicity,
                return_lse=True,
            )
            close(got[0], want[0])
            close(got[1], want[1])


@pytest.mark.parametrize("H,G,W", [(2, 2, 2), (4, 2, 2), (4, 2, 1), (3, 1, 1)])
def test_multipole_heads(H, G, W):
    N, m, p = 21, 2, 2
    q, k, v = make(B=2, H=H, G=G, N=N, D=3, E=2)
    kw, vw = make_weights(N, m, p, 3, W), make_weights(N, m, p, 2, W, seed=2)
    qw = make_weights(N, m, p, 3, W, seed=3)
    kb = make_weights(N, m, p, 3, W, biases=True)
    want = loop_multipole(q, k, v, kw, vw, m, True, kb, None, 0.6, True)
    for function in (ref.fast_multipole, ref.fast_multipole_blocked):
        got = function(
            q, k, v, kw, vw, group=m, causal=True, key_biases=kb, scale=0.6,
            return_lse=True,
        )
        close(got[0], want[0])
        close(got[1], want[1])
    want = loop_multipole(q, k, v, kw, vw, m, False, kb, None, 0.6, True, qw)[0]
    close(
        ref.fast_multipole_linear(
            q, k, v, qw, kw, vw, group=m, key_biases=kb, scale=0.6
        ),
        want,
    )


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("N", [1, 7, 8])
def test_multipole_without_levels_is_dense(N, causal):
    q, k, v = make(N=N)
    want = ref.dense(q, k, v, causal=causal, return_lse=True)
    for function in (ref.fast_multipole, ref.fast_multipole_blocked):
        got = function(q, k, v, [], [], group=4, causal=causal, return_lse=True)
        close(got[0], want[0])
        close(got[1], want[1])
    close(
        ref.fast_multipole_linear(
            q, k, v, [], [], [], group=4, causal=causal, allow_query_lookahead=True
        ),
        want[0],
    )


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("N", [64, 48, 40])
def test_averages_of_constant_keys_are_dense(N, causal):
    """Keys that are constant over the tokens of the coarsest summaries lose
    nothing; values then may be anything.  N = 40 leaves out whole summaries."""
    m, p = 4, 2
    part = 2 ** (ref.num_levels(N, m) - 1) * m // p
    q, k, v = make(N=N)
    k = np.repeat(k[:, :, ::part], part, axis=2)
    kw, vw = averages(N, m, p, 4), averages(N, m, p, 3)
    got = ref.fast_multipole(q, k, v, kw, vw, group=m, causal=causal, return_lse=True)
    want = ref.dense(q, k, v, causal=causal, return_lse=True)
    close(got[0], want[0])
    close(got[1], want[1])


@pytest.mark.parametrize("N", [32, 29])
def test_multipole_is_causal(N):
    """Changing every token from t on leaves the rows before t bit-identical."""
    m, p = 4, 2
    q, k, v = make(N=N)
    kw, vw = make_weights(N, m, p, 4), make_weights(N, m, p, 3)
    for function in (ref.fast_multipole, ref.fast_multipole_blocked):
        base = function(q, k, v, kw, vw, group=m, causal=True)
        for t in (1, 4, 15, N - 1):
            k2, v2 = k.copy(), v.copy()
            k2[:, :, t:] += 3.0
            v2[:, :, t:] -= 5.0
            moved = function(q, k2, v2, kw, vw, group=m, causal=True)
            np.testing.assert_array_equal(moved[:, :, :t], base[:, :, :t])
            assert (moved[:, :, t:] != base[:, :, t:]).any()


def test_multiplicity_counts_summaries_once():
    """Without it, equal keys give each summary the weight of one token."""
    N, m, p = 16, 4, 1
    q, k, v = make(H=1, G=1, N=N)
    lse = ref.fast_multipole(
        q, 0 * k, v, averages(N, m, p, 4), averages(N, m, p, 3), group=m,
        multiplicity=False, return_lse=True,
    )[1]
    # Block 0: eight near tokens and two summaries of four tokens.
    close(np.exp(lse[0, 0, :4]), 10.0)
    lse = ref.fast_multipole(
        q, 0 * k, v, averages(N, m, p, 4), averages(N, m, p, 3), group=m, return_lse=True
    )[1]
    close(np.exp(lse), 16.0)


@pytest.mark.parametrize("H,G", [(2, 2), (4, 1)])
@pytest.mark.parametrize("N,causal", [(200, False), (256, True), (251, True)])
def test_blocked_equals_reference(H, G, N, causal):
    q, k, v = make(B=2, H=H, G=G, N=N, D=8, E=5)
    kw, vw = make_weights(N, 8, 4, 8), make_weights(N, 8, 4, 5)
    want = ref.fast_multipole(q, k, v, kw, vw, group=8, causal=causal, return_lse=True)
    got = ref.fast_multipole_blocked(
        q, k, v, kw, vw, group=8, causal=causal, return_lse=True
    )
    close(got[0], want[0])
    close(got[1], want[1])
    single = ref.fast_multipole_blocked(
        q, k, v, kw, vw, group=8, causal=causal, dtype=np.float32
    )
    assert single.dtype == np.float32
    assert np.abs(single - want[0]).max() <= 5e-6 * np.abs(want[0]).max()


@pytest.mark.parametrize("B,N,E", [(0, 40, 3), (1, 0, 3), (1, 40, 0)])
def test_multipole_zero_extents(B, N, E):
    q, k, v = make(B=B, N=N, E=E)
    kw, vw = make_weights(N, 8, 2, 4), make_weights(N, 8, 2, E)
    for function in (ref.fast_multipole, ref.fast_multipole_blocked):
        out, lse = function(q, k, v, kw, vw, group=8, return_lse=True)
        assert out.shape == (B, 2, N, E) and lse.shape == (B, 2, N)
    assert ref.fast_multipole_linear(q, k, v, kw, kw, vw, group=8).shape == out.shape


def test_multipole_nonfinite_reaches_readers_only():
    N, m, p = 32, 4, 2
    q, k, v = make(N=N)
    kw, vw = averages(N, m, p, 4), averages(N, m, p, 3)
    clean = ref.fast_multipole(q, k, v, kw, vw, group=m, causal=True)
    dirty = k.copy()
    dirty[0, 0, 9, 0] = np.nan
    out = ref.fast_multipole(q, dirty, v, kw, vw, group=m, causal=True)
    assert np.isnan(out[0, 0, 9:]).all()
    np.testing.assert_array_equal(out[0, 0, :9], clean[0, 0, :9])
    np.testing.assert_array_equal(out[0, 1], clean[0, 1])


@pytest.mark.parametrize("N,m,p", CASES)
@pytest.mark.parametrize("causal", [False, True])
def test_linear_equals_loops(N, m, p, causal):
    q, k, v = make(H=2, G=1, N=N, D=3, E=2)
    qw, kw, vw = (
        make_weights(N, m, p, width, seed=seed) for width, seed in ((3, 1), (3, 2), (2, 3))
    )
    qb, kb, vb = (
        make_weights(N, m, p, width, seed=seed, biases=True)
        for width, seed in ((3, 4), (3, 5), (2, 6))
    )
    for biases in ((None, None, None), (qb, kb, vb)):
        got = ref.fast_multipole_linear(
            q, k, v, qw, kw, vw, group=m, causal=causal,
            allow_query_lookahead=causal, query_biases=biases[0],
            key_biases=biases[1], value_biases=biases[2], scale=0.6,
        )
        want = loop_multipole(
            q, k, v, kw, vw, m, causal, biases[1], biases[2], 0.6, True, qw, biases[0]
        )[0]
        close(got, want)


def test_linear_levels_are_separate_softmaxes():
    """With constant values every level that has an entry adds that constant."""
    N, m, p = 32, 4, 2
    q, k, v = make(N=N)
    args = [averages(N, m, p, width) for width in (4, 4, 3)]
    out = ref.fast_multipole_linear(
        q, k, np.ones_like(v), *args, group=m, causal=True, allow_query_lookahead=True
    )
    tokens = np.arange(N)
    for i in range(N):
        levels = set(ref.owning_level(i, tokens[: i + 1], m, 2).tolist())
        close(out[:, :, i], float(len(levels)))


def test_linear_causal_needs_the_flag():
    q, k, v = make(N=8)
    with pytest.raises(ValueError, match="causal.*allow_query_lookahead"):
        ref.fast_multipole_linear(q, k, v, [], [], [], group=4, causal=True)


@pytest.mark.parametrize(
    "change,message",
    [
        (dict(k=np.zeros((1, 2, 15, 4)), v=np.zeros((1, 2, 15, 3))), "k: found length 15"),
        (dict(group=0), "group: found 0, needed an integer of at least 1"),
        (dict(group=8), r"key_weights: found 1 levels, needed 0"),
        (dict(key_weights=[]), r"key_weights: found 0 levels, needed 1"),
        (dict(key_weights=None), r"key_weights: found NoneType"),
        (dict(value_weights=[]), r"value_weights: found 0 levels, needed 1"),
        (dict(key_weights=[np.zeros((1, 2, 8, 4))]), r"key_weights\[0\]: found interval size 8"),
        (dict(key_weights=[np.zeros((1, 2, 4, 5))]), r"key_weights\[0\]: found width 5"),
        (dict(key_weights=[np.zeros((3, 2, 4, 4))]), r"key_weights\[0\]: found W = 3"),
        (dict(key_weights=[np.zeros((2, 4, 4))]), r"key_weights\[0\]: found rank 3"),
        (dict(key_weights=[np.zeros((1, 0, 4, 4))]), r"key_weights\[0\]: found rank p = 0"),
        (dict(key_weights=[np.zeros((1, 3, 4, 4))]), "group: found 4, needed a multiple of"),
        (dict(value_weights=[np.zeros((1, 4, 4, 3))]), r"value_weights\[0\]: found rank p 4"),
        (dict(key_biases=[np.zeros((1, 2, 5))]), r"key_biases\[0\]: found shape"),
        (dict(value_biases=[]), "value_biases: found 0 levels"),
        (dict(scale=math.inf), "scale: found inf"),
    ],
)
def test_multipole_bad_arguments(change, message):
    q, k, v = make(N=16)
    good = dict(
        q=q, k=k, v=v, group=4,
        key_weights=averages(16, 4, 2, 4), value_weights=averages(16, 4, 2, 3),
    )
    for function in (ref.fast_multipole, ref.fast_multipole_blocked):
        with pytest.raises(ValueError, match=message):
            function(**{**good, **change})


def test_summarize_bad_arguments():
    x = np.zeros((1, 2, 8, 3))
    with pytest.raises(ValueError, match="weights: found interval size 4, needed 8"):
        ref.summarize(x, np.zeros((1, 2, 4, 3)), interval=8)
    with pytest.raises(ValueError, match="interval: found -4"):
        ref.summarize(x, np.zeros((1, 2, 4, 3)), interval=-4)
    with pytest.raises(ValueError, match="bias: found shape"):
        ref.summarize(x, np.zeros((1, 2, 4, 3)), np.zeros((2, 2, 3)), interval=4)
    with pytest.raises(ValueError, match="m_l: found 6, needed a multiple of p = 4"):
        ref.average_weights(4, 6, 3)
