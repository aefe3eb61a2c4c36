# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The NumPy references against loops over single entries, and their laws."""

import importlib.util
import inspect
import math
from pathlib import Path

import numpy as np
import pytest

# Loaded by path: the references need NumPy only, not the compiled package.
_spec = importlib.util.spec_from_file_location(
    "fovea_reference", Path(__file__).resolve().parents[1] / "fovea" / "reference.py"
)
ref = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(ref)


def make(B=1, H=2, G=2, N=16, M=None, D=4, E=3, seed=0):
    rng = np.random.default_rng(seed)
    M = N if M is None else M
    return (
        rng.standard_normal((B, H, N, D)),
        rng.standard_normal((B, G, M, D)),
        rng.standard_normal((B, G, M, E)),
    )


def make_weights(N, m, p, D, W=1, seed=1, biases=False):
    rng = np.random.default_rng(seed)
    sizes = [2**index * m for index in range(ref.num_levels(N, m))]
    if biases:
        return [rng.standard_normal((W, p, D)) for _ in sizes]
    return [rng.standard_normal((W, p, size, D)) / math.sqrt(size) for size in sizes]


def averages(N, m, p, D):
    return [
        ref.average_weights(p, 2**index * m, D) for index in range(ref.num_levels(N, m))
    ]


def loop_softmax(terms, width):
    """(score, value) pairs, one query: the definition, with plain sums."""
    if not terms:
        return np.zeros(width), -math.inf
    top = max(score for score, _ in terms)
    total = sum(math.exp(score - top) for score, _ in terms)
    out = sum(math.exp(score - top) / total * value for score, value in terms)
    return out, top + math.log(total)


def loop_dense(q, k, v, scale, causal, window, log_weight, bias):
    B, H, N, _ = q.shape
    G, M, E = k.shape[1], k.shape[2], v.shape[3]
    out, lse = np.zeros((B, H, N, E)), np.zeros((B, H, N))
    for b, h, i in np.ndindex(B, H, N):
        g = h // (H // G)
        terms = []
        for j in range(M):
            distance = i + M - N - j
            if causal and distance < 0:
                continue
            if window is not None and abs(distance) >= window:
                continue
            score = scale * sum(q[b, h, i, d] * k[b, g, j, d] for d in range(q.shape[3]))
            if log_weight is not None:
                score += log_weight[b, g, j]
            if bias is not None:
                score += bias[b, h, i, j]
            terms.append((score, v[b, g, j]))
        out[b, h, i], lse[b, h, i] = loop_softmax(terms, E)
    return out, lse


# Levels found by walking down from the coarsest interval, unlike the
# two-sided condition of the reference: entry (i,j) belongs to the coarsest
# level at which its intervals are not equal or neighbours.
def loop_level(i, j, m, L):
    for level in range(L, 0, -1):
        size = 2 ** (level - 1) * m
        if abs(i // size - j // size) > 1:
            return level
    return 0


def loop_summary(x, weights, bias, g_tokens, a):
    total = np.zeros(x.shape[-1]) if bias is None else bias[a].copy()
    for t, token in enumerate(g_tokens):
        total += weights[a, t] * x[token]
    return total


def loop_multipole(
    q, k, v, kw, vw, m, causal, kb, vb, scale, multiplicity, qw=None, qb=None
):
    """Distinct summaries with log weights; with `qw` the linear form."""
    B, H, N, _ = q.shape
    G, E, L = k.shape[1], v.shape[3], len(kw)
    out, lse = np.zeros((B, H, N, E)), np.zeros((B, H, N))

    def pick(weights, head):
        return weights[0 if weights.shape[0] == 1 else head]

    for b, h, i in np.ndindex(B, H, N):
        g = h // (H // G)
        by_level = [{} for _ in range(L + 1)]
        for j in range(N):
            if causal and j > i:
                continue
            level = loop_level(i, j, m, L)
            size = 2 ** (level - 1) * m if level else 1
            p = kw[level - 1].shape[1] if level else 1
            index = j // (size // p)
            by_level[level][index] = by_level[level].get(index, 0) + 1
        terms = [[] for _ in range(L + 1)]
        for level, summaries in enumerate(by_level):
            for index, count in summaries.items():
                query = q[b, h, i]
                if level == 0:
                    key, value = k[b, g, index], v[b, g, index]
                else:
                    size, p = 2 ** (level - 1) * m, kw[level - 1].shape[1]
                    interval = index // p
                    tokens = range(interval * size, min((interval + 1) * size, N))
                    bias = None if kb is None else pick(kb[level - 1], g)
                    key = loop_summary(
                        k[b, g], pick(kw[level - 1], g), bias, tokens, index % p
                    )
                    bias = None if vb is None else pick(vb[level - 1], g)
                    value = loop_summary(
                        v[b, g], pick(vw[level - 1], g), bias, tokens, index % p
                    )
                    if qw is not None:
                        mine = i // size
                        tokens = range(mine * size, min((mine + 1) * size, N))
                        bias = None if qb is None else pick(qb[level - 1], g)
                        query = loop_summary(
                            q[b, h],
                            pick(qw[level - 1], g),
                            bias,
                            tokens,
                            (i % size) // (size // p),
                        )
                score = scale * float(query @ key)
                if multiplicity:
                    score += math.log(count)
                terms[level].append((score, value))
        if qw is None:
            out[b, h, i], lse[b, h, i] = loop_softmax(sum(terms, []), E)
        else:
            out[b, h, i] = sum(loop_softmax(level, E)[0] for level in terms)
    return out, lse


def close(a, b, tolerance=1e-12):
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


# ---- dense -----------------------------------------------------------------


@pytest.mark.parametrize("H,G", [(1, 1), (2, 2), (4, 2), (3, 1)])
@pytest.mark.parametrize("N,M", [(5, 5), (3, 7), (7, 3), (1, 1)])
@pytest.mark.parametrize("causal,window", [(0, None), (1, None), (0, 2), (1, 3), (1, 0)])
def test_dense_equals_loops(H, G, N, M, causal, window):
    q, k, v = make(B=2, H=H, G=G, N=N, M=M)
    rng = np.random.default_rng(3)
    log_weight = rng.standard_normal((2, G, M))
    bias = rng.standard_normal((2, H, N, M))
    for lw, extra in ((None, None), (log_weight, bias)):
        out, lse = ref.dense(
            q, k, v, scale=0.7, causal=bool(causal), window=window,
            log_weight=lw, bias=extra, return_lse=True,
        )
        want_out, want_lse = loop_dense(q, k, v, 0.7, causal, window, lw, extra)
        close(out, want_out)
        close(lse, want_lse)


def test_dense_default_scale_and_result_form():
    q, k, v = make(D=4)
    close(ref.dense(q, k, v), ref.dense(q, k, v, scale=0.5))
    assert ref.dense(q, k, v).dtype == np.float64
    assert isinstance(ref.dense(q, k, v, return_lse=True), tuple)


def test_dense_empty_rows_are_zero():
    q, k, v = make(N=5, M=2)
    out, lse = ref.dense(q, k, v, causal=True, return_lse=True)
    # Query i reads keys up to i - 3.
    assert (out[:, :, :3] == 0).all() and np.isneginf(lse[:, :, :3]).all()
    assert np.isfinite(lse[:, :, 3:]).all()
    out, lse = ref.dense(q, k[:, :, :0], v[:, :, :0], return_lse=True)
    assert (out == 0).all() and np.isneginf(lse).all()
    out, lse = ref.dense(q, k, v, log_weight=np.full((1, 1, 2), -np.inf), return_lse=True)
    assert (out == 0).all() and np.isneginf(lse).all()


@pytest.mark.parametrize("B,N,M", [(0, 4, 4), (1, 0, 4), (1, 0, 0)])
def test_dense_zero_extents(B, N, M):
    q, k, v = make(B=B, N=N, M=M)
    out, lse = ref.dense(q, k, v, return_lse=True)
    assert out.shape == (B, 2, N, 3) and lse.shape == (B, 2, N)


def test_dense_bias_and_log_weight_broadcast():
    q, k, v = make(B=2, H=4, G=2, N=3, M=5)
    rng = np.random.default_rng(4)
    for shape in ((1, 1, 3, 5), (2, 1, 1, 5), (1, 4, 3, 1), (1, 1, 1, 1)):
        bias = rng.standard_normal(shape)
        close(
            ref.dense(q, k, v, bias=bias),
            ref.dense(q, k, v, bias=np.broadcast_to(bias, (2, 4, 3, 5)).copy()),
        )
    weight = rng.standard_normal((1, 1, 5))
    close(
        ref.dense(q, k, v, log_weight=weight),
        ref.dense(q, k, v, log_weight=np.broadcast_to(weight, (2, 2, 5)).copy()),
    )


def test_dense_log_weight_counts_repeated_keys():
    q, k, v = make(N=4, M=3)
    counts = np.array([1, 4, 2])
    out, lse = ref.dense(q, k, v, log_weight=np.log(counts)[None, None], return_lse=True)
    want = ref.dense(
        q, np.repeat(k, counts, axis=2), np.repeat(v, counts, axis=2), return_lse=True
    )
    close(out, want[0])
    close(lse, want[1])


def test_dense_large_scores_do_not_overflow():
    q, k, v = make(N=6)
    out, lse = ref.dense(q * 1e4, k, v, return_lse=True)
    assert np.isfinite(out).all() and np.isfinite(lse).all()


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_dense_nonfinite_reaches_readers_only(poison):
    q, k, v = make(B=2, H=2, G=2, N=6)
    clean = ref.dense(q, k, v, causal=True)
    for tensor, columns in ((k, slice(None)), (v, slice(1, 2))):
        dirty = tensor.copy()
        dirty[0, 1, 3, 1] = poison
        args = (q, dirty, v) if tensor is k else (q, k, dirty)
        out = ref.dense(*args, causal=True)
        assert np.isnan(out[0, 1, 3:, columns]).all()
        touched = np.zeros(out.shape, dtype=bool)
        touched[0, 1, 3:, columns] = True
        np.testing.assert_array_equal(out[~touched], clean[~touched])


# ---- levels ----------------------------------------------------------------


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
        for level, (start, stop) in ref._far_intervals(block, N, m, L, False):
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


# ---- summaries -------------------------------------------------------------


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
    close(ref._fast_summaries(x, w, bias, np.float64), out)


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


# ---- fast multipole --------------------------------------------------------

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


# ---- linear ----------------------------------------------------------------


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


# ---- arguments -------------------------------------------------------------


def test_signatures():
    def names(function):
        return list(inspect.signature(function).parameters)

    assert names(ref.dense) == (
        "q k v scale causal window log_weight bias return_lse".split()
    )
    assert names(ref.fast_multipole) == (
        "q k v key_weights value_weights group causal key_biases value_biases scale "
        "multiplicity return_lse".split()
    )
    assert names(ref.fast_multipole_linear) == (
        "q k v query_weights key_weights value_weights group causal "
        "allow_query_lookahead query_biases key_biases value_biases scale".split()
    )
    assert names(ref.summarize) == "x weights bias interval".split()


@pytest.mark.parametrize(
    "change,message",
    [
        (dict(q=np.zeros((2, 4, 4))), "q: found rank 3, needed rank 4"),
        (dict(q=np.zeros((1, 2, 4, 4), int)), "q: found element type int64"),
        (dict(k=np.zeros((1, 2, 4, 5))), "k: found head width 5, needed 4"),
        (dict(k=np.zeros((2, 2, 4, 4))), "k: found batch 2, needed 1"),
        (dict(k=np.zeros((1, 3, 4, 4))), "k: found 3 heads, needed a divisor"),
        (dict(k=np.zeros((1, 0, 4, 4))), "k: found 0 heads"),
        (dict(v=np.zeros((1, 1, 4, 3))), "v: found head count 1, needed 2"),
        (dict(v=np.zeros((1, 2, 5, 3))), "v: found length 5, needed 4"),
        (dict(scale=math.nan), "scale: found nan, needed a finite number"),
        (dict(window=-1), "window: found -1, needed an integer of at least 0"),
        (dict(window=1.5), "window: found 1.5"),
        (dict(bias=np.zeros((1, 2, 4, 5))), "bias: found shape"),
        (dict(log_weight=np.zeros((1, 2, 5))), "log_weight: found shape"),
    ],
)
def test_dense_bad_arguments(change, message):
    q, k, v = make(N=4)
    with pytest.raises(ValueError, match=message):
        ref.dense(**{**dict(q=q, k=k, v=v), **change})


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


# ---- useful work -----------------------------------------------------------


@pytest.mark.parametrize("N,M", [(7, 7), (5, 9), (9, 5), (300, 300)])
@pytest.mark.parametrize("causal,window", [(0, None), (1, None), (0, 3), (1, 3), (1, 0)])
def test_dense_flops(N, M, causal, window):
    admitted = ref._dense_mask(np.arange(N), N, M, causal, window)
    flops = ref.dense_flops(N, M, 8, 4, causal=causal, window=window)
    assert flops == 2 * 12 * admitted.sum()


@pytest.mark.parametrize("N,m,p", CASES)
@pytest.mark.parametrize("causal", [False, True])
def test_multipole_flops(N, m, p, causal):
    L = ref.num_levels(N, m)
    pairs = 0
    for i in range(N):
        read = set()
        for j in range(i + 1 if causal else N):
            level = loop_level(i, j, m, L)
            part = 2 ** (level - 1) * m // p if level else 1
            read.add((level, j // part))
        pairs += len(read)
    attention, summaries = ref.fast_multipole_flops(N, m, p, 8, 4, causal=causal)
    assert attention == 2 * 12 * pairs
    assert summaries == 2 * p * N * L * 12


# ---- real input ------------------------------------------------------------


def test_example_data():
    data = Path(__file__).resolve().parents[2] / "examples" / "data"
    q, k, v = (np.load(data / f"{name}.npy") for name in "qkv")
    for array in (q, k, v):
        assert array.shape == (1, 12, 512, 32) and array.dtype == np.dtype("<f4")
        assert array.flags.c_contiguous and np.isfinite(array).all()
    # The figures of examples/README.md.
    want = ref.dense(q, k, v)
    for p, ratio in ((4, 0.26), (64, 0.14)):
        weights = averages(512, 64, p, 32)
        error = ref.fast_multipole(q, k, v, weights, weights, group=64) - want
        assert abs(np.linalg.norm(error) / np.linalg.norm(want) - ratio) < 0.005
