# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# REQUIRES: long-tests
"""Kernels of GPUs read and write arrays in the device's memory, that of the emulator here, wherever their rows lie."""

import ctypes
import math

import numpy as np
import pytest
from call_cases import case
from conftest import TYPES, make, runtime
from test_out import gives, results_of
from test_strides import SPREAD, change, leaves, same
from test_strides import spread as spread_on_host

import fovea

EMULATOR = 1
# Packed sequences and float64 are for CPUs.
NAMES = [name for name in SPREAD if not name.startswith("varlen")]
GPU_TYPES = [type for type in TYPES if type != "float64"]


def allocate(bytes):
    """Memory of the emulated device, which the host can see, too."""
    pointer = ctypes.c_void_p()
    if runtime().fovea_rt_gpu_acquire(EMULATOR, ctypes.c_int64(bytes), ctypes.byref(pointer)):
        # The emulator is loaded by the first call.
        fovea.rope(np.zeros((1, 1, 1, 2), np.float32), np.zeros(1, np.int64), target="gpu-sim")
        return allocate(bytes)
    return (ctypes.c_char * bytes).from_address(pointer.value)


class Spread:
    """Copies arrays to the device, where axes are in another order and gaps between rows hold NaNs. Rows begin at
    multiples of 16 bytes, or of an element where `shifted`: kernels read those from copies."""

    def __init__(self, shifted):
        self.shifted = shifted
        self.made = []

    def __call__(self, array):
        order = (*range(1, array.ndim - 1), 0, array.ndim - 1)
        first = 16 // array.itemsize
        pitch = math.ceil(array.shape[-1] / first) * first + first + self.shifted
        extents = [array.shape[axis] + 1 for axis in order[:-1]] + [pitch]
        whole = np.ndarray(extents, array.dtype, allocate(math.prod(extents) * array.itemsize))
        whole[...] = np.full(1, np.nan if array.dtype.kind not in "iub" else 77).astype(array.dtype)
        begin = first + self.shifted
        view = whole[tuple(slice(1, None) for _ in order[:-1]) + (slice(begin, begin + array.shape[-1]),)]
        view = view.transpose(np.argsort(order))
        view[...] = array
        self.made.append((whole, whole.copy(), view))
        return view

    def check(self):
        """What lies between rows is as it was."""
        for whole, before, view in self.made:
            first = (view.ctypes.data - whole.ctypes.data) // whole.itemsize
            np.lib.stride_tricks.as_strided(before.reshape(-1)[first:], view.shape, view.strides)[...] = view
            assert before.tobytes() == whole.tobytes()


def memory_like(results, spread):
    def unset(array):
        empty = np.full(array.shape, 77 if array.dtype.kind in "iub" else np.nan).astype(array.dtype)
        return spread(empty) if array.ndim > 1 else empty

    if isinstance(results, fovea.Tree):
        return change(unset, results)
    if isinstance(results, list | tuple):
        return [memory_like(each, spread) for each in results]
    return None if results is None else unset(np.asarray(results))


def check_several_tiles(type, shifted, options):
    """Whole tiles and a part of one: dense attention and its gradient."""
    spread = Spread(shifted)
    q, k, v = make(type, B=2, H=4, G=2, N=200, D=64, E=32)
    out, lse = fovea.dense(q, k, v, **options, return_lse=True, target="gpu-sim")
    memory = memory_like((out, lse), spread)
    found = fovea.dense(spread(q), spread(k), spread(v), **options, return_lse=True, out=memory, target="gpu-sim")
    same(found, (out, lse))
    expected = fovea.dense_backward(out, q, k, v, out, lse, **options, target="gpu-sim")
    memory = memory_like(expected, spread)
    given = map(spread, (out, q, k, v, out, lse))
    found = fovea.dense_backward(*given, **options, gradients=memory, target="gpu-sim")
    same(found, expected)
    same(memory, expected)
    spread.check()


@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize("type", GPU_TYPES)
@pytest.mark.parametrize("name", NAMES)
def test_same_bits_as_contiguous(name, type, shifted):
    function, arguments, options = case(name, type)
    expected = function(*arguments, **options, target="gpu-sim")
    spread = Spread(shifted)
    # Functions write to some of their arguments.
    function, arguments, options = case(name, type)
    memory = memory_like(results_of(name, expected), spread)
    found = function(
        *change(spread, arguments), **change(spread, options), **{gives(function): memory}, target="gpu-sim"
    )
    same(found, expected)
    same(memory, results_of(name, expected))
    spread.check()


def test_what_is_written_to_gaps_is_noticed():
    spread = Spread(False)
    view = spread(np.zeros((2, 3, 5), np.float32))
    spread.check()
    view[1, 2] = 5
    spread.check()
    whole, *_ = spread.made[0]
    whole[0, 0, 0] = 1
    with pytest.raises(AssertionError):
        spread.check()


@pytest.mark.parametrize("name", ["dense", "dense_backward", "vq", "conv", "tree_score"])
def test_arrays_of_the_host_are_packed_on_the_way(name):
    function, arguments, options = case(name, "float32")
    expected = function(*arguments, **options, target="gpu-sim")
    function, arguments, options = case(name, "float32")
    same(function(*change(spread_on_host, arguments), **change(spread_on_host, options), target="gpu-sim"), expected)


@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize("type", GPU_TYPES)
@pytest.mark.parametrize("options", [{}, {"causal": True, "window": 90}], ids=["all", "causal"])
def test_several_tiles(type, shifted, options):
    check_several_tiles(type, shifted, options)


def test_broadcast_rows():
    """Axes whose strides are 0, which maps of tensors cannot have."""
    q, k, v = make("bfloat16", B=1, H=4, G=4, N=70, D=64)
    k, v = k[:, :1], v[:, :1]
    spread = Spread(False)
    expected = fovea.dense(q, k, v, target="gpu-sim")
    found = fovea.dense(spread(q), *(np.broadcast_to(spread(x), q.shape) for x in (k, v)), target="gpu-sim")
    assert np.abs(found.astype(float) - expected.astype(float)).max() < 1e-2


def test_all_results_are_compared():
    assert leaves(memory_like([np.zeros(3), None], Spread(False)))
