# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Causal attention to a prefix that all queries read, and its gradients, against NumPy."""

import numpy as np
import pytest
from conftest import check, make

import fovea
from fovea import reference


@pytest.mark.parametrize("target", ["cpu", "reference", "gpu-sim"])
@pytest.mark.parametrize("type", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("N,M", [(1, 1), (1, 70), (5, 5), (48, 48), (33, 64), (65, 131), (131, 65), (97, 97)])
def test_dense(type, N, M, target):
    arrays = make(type, B=2, H=4, G=2, N=N, M=M, D=24, E=20)
    for prefix in (1, 3, 40, 63, 64, 65, M, M + 1):
        options = {"causal": True, "prefix": prefix}
        found = fovea.dense(*arrays, **options, return_lse=True, target=target)
        check(found, reference.dense(*arrays, **options, return_lse=True), type)


@pytest.mark.parametrize("target", ["cpu", "gpu-sim"])
def test_nan_behind_the_mask_is_not_read(target):
    q, k, v = make("float32", N=70, M=70)
    k[:, :, 69], v[:, :, 69] = np.nan, np.nan
    found = fovea.dense(q, k, v, causal=True, prefix=40, target=target)
    assert np.isfinite(found[:, :, :69]).all() and np.isnan(found[:, :, 69]).all()


@pytest.mark.parametrize("target,type,bound", [("cpu", "float64", 1e-12), ("reference", "float64", 1e-12), ("gpu-sim", "float32", 1e-4)])
@pytest.mark.parametrize("N,M", [(37, 41), (65, 129), (9, 3)])
def test_gradients(N, M, target, type, bound):
    rng = np.random.default_rng(1)
    q, k, v = make(type, B=2, H=4, G=2, N=N, M=M, D=8, E=12)
    options = {"causal": True, "prefix": min(M - 1, 30)}
    out, lse = (each.astype(q.dtype) for each in reference.dense(q, k, v, **options, return_lse=True))
    d_out = rng.standard_normal(out.shape).astype(q.dtype)
    found = fovea.dense_backward(d_out, q, k, v, out, lse, target=target, **options)
    expected = reference.dense_backward(d_out, q, k, v, out, lse, **options)
    for mine, want in zip(found, expected, strict=True):
        assert mine.dtype == q.dtype and mine.shape == want.shape
        assert np.abs(mine - want).max() <= bound * max(1, np.abs(want).max())


def test_errors():
    arrays = make()
    with pytest.raises(ValueError, match="^prefix: found it alone, needed causal and no window"):
        fovea.dense(*arrays, prefix=3)
    with pytest.raises(ValueError, match="^prefix: found it beside a window, needed causal and no window"):
        fovea.dense(*arrays, causal=True, window=2, prefix=3)
    with pytest.raises(ValueError, match="^prefix: found -1"):
        fovea.dense(*arrays, causal=True, prefix=-1)
