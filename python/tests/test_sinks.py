# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sinks of dense attention, and their gradients, against NumPy."""

import numpy as np
import pytest
from conftest import BOUNDS, TYPES, check, make

import fovea
from fovea import reference

TARGETS = ["cpu", "reference", "gpu-sim"]


def sinks(type, *shape, seed=2):
    found = (2 * np.random.default_rng(seed).standard_normal(shape) + 2).astype(TYPES[type])
    found.reshape(-1)[0] = -np.inf
    return found


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("type", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("N,M", [(1, 1), (1, 70), (3, 65), (63, 64), (65, 131)])
def test_dense(type, N, M, target):
    arrays = make(type, B=2, H=4, G=2, N=N, M=M, D=24, E=20)
    for options in ({}, {"causal": True, "window": 5}):
        options["sink"] = sinks(type, 2, 4)
        found = fovea.dense(*arrays, **options, return_lse=True, target=target)
        check(found, reference.dense(*arrays, **options, return_lse=True), type)


@pytest.mark.parametrize("target", TARGETS)
def test_rows_without_keys(target):
    arrays = make(B=2, H=4, G=2, N=9, M=4)
    sink = sinks("float32", 4)
    out, lse = fovea.dense(*arrays, causal=True, sink=sink, return_lse=True, target=target)
    assert not out[:, :, :5].any()
    assert np.allclose(lse[:, :, :5], np.broadcast_to(sink[None, :, None], (2, 4, 5)), atol=1e-5)


@pytest.mark.parametrize("target", ["cpu", "reference", "gpu-sim"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_sinks_that_are_not_finite_reach_their_head_only(value, target):
    arrays = make(H=2, N=5)
    sink = np.array([0.0, value], np.float32)
    out = fovea.dense(*arrays, sink=sink, target=target)
    assert np.isfinite(out[:, 0]).all() and np.isnan(out[:, 1]).all()


@pytest.mark.parametrize("target", ["cpu", "reference"])
@pytest.mark.parametrize("shape", [(), (4,), (1, 4), (2, 1), (2, 4)])
@pytest.mark.parametrize("terms", [False, True])
def test_gradients(shape, terms, target):
    rng = np.random.default_rng(1)
    q, k, v = make("float64", B=2, H=4, G=2, N=37, M=41, D=8, E=12)
    options = {"causal": True, "sink": sinks("float64", *shape)}
    if terms:
        options["bias"] = rng.standard_normal((1, 4, 37, 41))
    out, lse = reference.dense(q, k, v, **options, return_lse=True)
    d_out, d_lse = rng.standard_normal(out.shape), rng.standard_normal(lse.shape)
    found = fovea.dense_backward(d_out, q, k, v, out, lse, d_lse=d_lse, target=target, **options)
    options["sink"] = options["sink"].reshape((1,) * (2 - len(shape)) + shape)
    expected = reference.dense_backward(d_out, q, k, v, out, lse, d_lse=d_lse, **options)
    assert len(found) == len(expected) == 4 + terms
    for mine, want in zip(found, expected):
        assert mine.shape == want.shape
        assert np.abs(mine - want).max() <= 1e-12 * max(1, np.abs(want).max())


@pytest.mark.parametrize("target", ["cpu", "gpu-sim"])
@pytest.mark.parametrize("type", ["float32", "bfloat16", "float16"])
def test_types_of_gradients(type, target):
    rng = np.random.default_rng(1)
    q, k, v = make(type, B=2, H=4, G=1, N=33, M=33, D=16, E=16)
    sink = sinks(type, 1, 4)
    out, lse = fovea.dense(q, k, v, sink=sink, return_lse=True)
    d_out = rng.standard_normal(out.shape).astype(out.dtype)
    found = fovea.dense_backward(d_out, q, k, v, out, lse, sink=sink, target=target)[-1]
    expected = reference.dense_backward(d_out, q, k, v, out, lse, sink=sink)[-1]
    assert found.dtype == sink.dtype
    # A sum over the rows of both batch entries.
    assert np.abs(found.astype(float) - expected).max() <= BOUNDS[type] * 66


def test_errors():
    arrays = make(B=2, H=4, G=2)
    with pytest.raises(ValueError, match=r"^sink: found shape \[1, 3\], needed one that broadcasts to \[2, 4\]"):
        fovea.dense(*arrays, sink=np.zeros(3, np.float32))
    with pytest.raises(ValueError, match="^sink: found"):
        fovea.dense(*arrays, sink=np.zeros(4, np.float16))
