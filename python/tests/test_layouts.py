# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# REQUIRES: long-tests
"""Dense attention on [B,N,H,D] arrays: the bits of [B,H,N,D] arrays, without copies."""

import tracemalloc

import numpy as np
import pytest
from conftest import TYPES, make, refused

import fovea

B, H, G, N, D, E = 2, 4, 2, 37, 16, 12


def swap(*arrays):
    return [np.ascontiguousarray(x.swapaxes(1, 2)) for x in arrays]


def terms(type):
    rng = np.random.default_rng(3)
    counts = {"lengths": np.array([N, 9]), "query_lengths": np.array([N, 9])}
    return {
        "score": lambda s, b, h, i, j: s + abs(j - i) / 9,
        **counts,
        "bias": rng.standard_normal((1, H, N, N)).astype(TYPES[type]),
        "sink": rng.standard_normal(H).astype(TYPES[type]),
    }


def documents():
    ids = np.random.default_rng(4).integers(0, 3, (B, N))
    return {"causal": True, "segments": (ids, ids)}


@pytest.mark.parametrize("options", [{}, {"causal": True}, "terms", "documents"])
@pytest.mark.parametrize("type", TYPES)
def test_same_bits(type, options):
    options = {"terms": lambda: terms(type), "documents": documents}[options]() if isinstance(options, str) else options
    arrays = make(type, B=B, H=H, G=G, N=N, D=D, E=E)
    expected, lse = fovea.dense(*arrays, return_lse=True, **options)
    found, sums = fovea.dense(*swap(*arrays), return_lse=True, layout="bnhd", **options)
    assert found.flags.c_contiguous and np.array_equal(found, *swap(expected)) and np.array_equal(sums, lse)
    assert np.array_equal(fovea.dense(*swap(*arrays), layout="bnhd", **options), found)
    wanted = fovea.dense_backward(expected, *arrays, expected, lse, **options)
    gradients = fovea.dense_backward(found, *swap(*arrays), found, lse, layout="bnhd", **options)
    assert len(gradients) == len(wanted) == 3 + (2 if "sink" in options else 0)
    for one, other in zip(gradients, (*swap(*wanted[:3]), *wanted[3:])):
        assert one.shape == other.shape and one.dtype == other.dtype and np.array_equal(one, other)


def test_results_where_they_are_wanted():
    arrays = make(B=B, H=H, G=G, N=N, D=D, E=E)
    tokens = swap(*arrays)
    expected, lse = fovea.dense(*arrays, return_lse=True)
    out = np.empty((B, N, H, E), np.float32)
    assert fovea.dense(*tokens, layout="bnhd", out=out) is out and np.array_equal(out, *swap(expected))
    sums = np.empty_like(lse)
    found = fovea.dense(*tokens, layout="bnhd", return_lse=True, out=(out, sums))
    assert found[0] is out and found[1] is sums and np.array_equal(sums, lse)
    gradients = [np.empty_like(x) for x in tokens]
    found = fovea.dense_backward(out, *tokens, out, lse, layout="bnhd", gradients=gradients)
    assert all(one is other for one, other in zip(found, gradients))
    wanted = fovea.dense_backward(expected, *arrays, expected, lse)
    assert all(np.array_equal(one, *swap(other)) for one, other in zip(found, wanted))


def test_no_copies():
    q, k, v = swap(*make(H=8, G=8, N=1024, D=64))
    out = np.empty_like(q)
    fovea.dense(q, k, v, layout="bnhd", out=out)
    tracemalloc.start()
    fovea.dense(q, k, v, layout="bnhd", out=out)
    peak = tracemalloc.get_traced_memory()[1]
    np.ascontiguousarray(q.swapaxes(1, 2))
    canary = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1e5 and canary > q.nbytes


def test_bad_input():
    q, k, v = swap(*make(B=B, H=H, G=G, N=N, D=D, E=E))
    out, lse = fovea.dense(q, k, v, layout="bnhd", return_lse=True)
    for wrong in ("bhdn", "BNHD", None):
        refused("layout: found .*, needed 'bhnd' or 'bnhd'", fovea.dense, q, k, v, layout=wrong)
    refused(r"k: found rank 3, needed rank 4 \[B,N,H,D\]", fovea.dense, q, k[0], v, layout="bnhd")
    refused("k: found head width 12, needed 16", fovea.dense, q, v, v, layout="bnhd")
    refused("out: found shape", fovea.dense, q, k, v, layout="bnhd", out=np.empty((B, H, N, E), np.float32))
    refused("out: found list, needed an array", fovea.dense, q, k, v, layout="bnhd", out=out.tolist())
    refused("out: found ndarray, needed a sequence of 2 arrays", fovea.dense, q, k, v, layout="bnhd", return_lse=True, out=out)
    lists = [x.tolist() for x in (q, k, v)]
    refused(r"gradients\[0\]: found list", fovea.dense_backward, out, q, k, v, out, lse, layout="bnhd", gradients=lists)
    refused("gradients: found arrays 2, needed 3", fovea.dense_backward, out, q, k, v, out, lse, layout="bnhd", gradients=(q, k))
