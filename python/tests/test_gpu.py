# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The attention functions on the emulated GPU, and without a GPU."""

import ctypes

import numpy as np
import pytest

import fovea
from fovea import reference


def normal(*shape, dtype=np.float16):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def error(found, expected):
    return np.abs(found.astype(float) - expected).max() / np.abs(expected).max()


def test_dense():
    q, k, v = normal(1, 4, 50, 32), normal(1, 2, 70, 32), normal(1, 2, 70, 20)
    found, lse = fovea.dense(q, k, v, causal=True, return_lse=True, target="gpu-sim")
    out, expected = reference.dense(q, k, v, causal=True, return_lse=True)
    assert error(found, out) < 2e-3
    assert np.abs(lse - expected).max() < 1e-5


@pytest.mark.parametrize("name", ["fast_multipole", "fast_multipole_linear"])
def test_multipole(name):
    m, p, N, D = 8, 2, 60, 16
    q, k, v = (normal(1, 2, N + i, D, dtype=np.float32)[:, :, :N] for i in range(3))
    levels = reference.num_levels(N, m)
    weights = [reference.average_weights(p, m << level, D).astype(np.float32) for level in range(levels)]
    sets = [weights] * (3 if name.endswith("linear") else 2)
    found = getattr(fovea, name)(q, k, v, *sets, group=m, target="gpu-sim")
    assert error(found, getattr(reference, name)(q, k, v, *sets, group=m)) < 5e-6


def test_no_device():
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        pass
    else:
        pytest.skip("there is a CUDA driver")
    q = normal(1, 1, 4, 8)
    with pytest.raises(fovea.FoveaError, match="^cannot use target 'gpu': there is no CUDA driver"):
        fovea.dense(q, q, q, target="gpu")
