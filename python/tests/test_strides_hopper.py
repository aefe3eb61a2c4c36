# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# REQUIRES: long-tests
"""The same for kernels of sm_90a, whose boxes of rows come through maps of tensors that hold strides."""

import os

import numpy as np
import pytest
from conftest import make
from test_strides import same
from test_strides_gpu import Spread, check_several_tiles

import fovea

# The emulator reads it when it is first used.
os.environ["FOVEA_SIMT"] = "chip=sm_90a"


@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize("type", ["float16", "bfloat16"])
@pytest.mark.parametrize("options", [{}, {"causal": True, "window": 90}], ids=["all", "causal"])
def test_several_tiles(type, shifted, options):
    check_several_tiles(type, shifted, options)


@pytest.mark.parametrize("heads", [1, 4])
def test_strides_that_maps_cannot_have(heads):
    """Those of keys that heads share are 0; rows of values run backwards."""
    q, k, v = make("bfloat16", B=1, H=4, G=4, N=200, D=64)
    k, spread = k[:, :heads], Spread(False)
    shared = np.broadcast_to(k, q.shape)
    expected = fovea.dense(q, shared, v, target="gpu-sim")
    backwards = spread(np.ascontiguousarray(v[:, :, ::-1]))[:, :, ::-1]
    same(fovea.dense(spread(q), np.broadcast_to(spread(k), q.shape), backwards, target="gpu-sim"), expected)


def test_single_axes():
    """One head and one sequence, whose strides may be anything."""
    q, k, v = make("float16", B=1, H=1, G=1, N=200, D=64)
    expected, spread = fovea.dense(q, k, v, target="gpu-sim"), Spread(False)

    def anything(array):
        view = spread(array)
        return np.lib.stride_tricks.as_strided(view, view.shape, (2, 0, *view.strides[2:]))

    same(fovea.dense(*map(anything, (q, k, v)), target="gpu-sim"), expected)
