# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The dense reference against loops over single entries, and its laws."""

import math

import numpy as np
import pytest
from loops import close, loop_dense, make, ref


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


@pytest.mark.parametrize("causal,window", [(0, None), (1, 0), (1, 2)])
def test_dense_sink_equals_loops(causal, window):
    q, k, v = make(B=2, H=4, G=2, N=5, M=3)
    sink = np.random.default_rng(3).standard_normal((2, 4))
    sink[1, 2] = -np.inf
    found = ref.dense(q, k, v, scale=0.7, causal=bool(causal), window=window, sink=sink, return_lse=True)
    want = loop_dense(q, k, v, 0.7, causal, window, None, None, sink)
    close(found[0], want[0])
    close(found[1], want[1])


@pytest.mark.parametrize("prefix", [0, 1, 3, 9])
@pytest.mark.parametrize("N,M", [(5, 5), (3, 7), (7, 3)])
def test_dense_prefix_equals_loops(N, M, prefix):
    q, k, v = make(H=4, G=2, N=N, M=M)
    found = ref.dense(q, k, v, scale=0.7, causal=True, prefix=prefix, return_lse=True)
    want = loop_dense(q, k, v, 0.7, True, None, None, None, prefix=prefix)
    close(found[0], want[0])
    close(found[1], want[1])


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
