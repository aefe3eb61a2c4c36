# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""As much of PyTorch, over NumPy, as benchmarks/gpu/run.py uses: a rehearsal on a
machine with neither. A device's memory is that of the host."""

import ctypes
import time
import types

import numpy as np
from ml_dtypes import bfloat16  # noqa: F401

from . import nn  # noqa: F401

__version__ = "rehearsal"
uint8, inf = np.uint8, np.inf
_rng = np.random.default_rng(0)


class Tensor(np.ndarray):
    def data_ptr(self):
        return self.ctypes.data

    def numel(self):
        return self.size

    def zero_(self):
        self[...] = 0

    def copy_(self, other):
        self[...] = other

    def double(self):
        return self.astype(np.float64)

    def abs(self):
        return np.abs(self)

    def transpose(self, a, b):
        return np.swapaxes(self, a, b)

    def masked_fill(self, mask, value):
        return np.where(mask, value, self).view(Tensor)

    def square(self):
        return self * self

    def softmax(self, dim):
        p = np.exp(self - self.max(axis=dim, keepdims=True))
        return p / p.sum(axis=dim, keepdims=True)

    def max(self, axis=None, keepdims=False):
        return np.max(np.asarray(self), axis=axis, keepdims=keepdims)


def manual_seed(_):
    pass


def empty(*shape, device, dtype):
    shape = shape[0] if isinstance(shape[0], (list, tuple)) else shape
    return np.empty(shape, dtype).view(Tensor)


def randn(*shape, device, dtype):
    tensor = empty(*shape, device=device, dtype=dtype)
    tensor[...] = _rng.standard_normal(tensor.shape)
    return tensor


def cat(tensors, dim):
    return np.concatenate(tensors, dim).view(Tensor)


def stack(tensors):
    return np.stack(tensors).view(Tensor)


def empty_like(tensor):
    return np.empty_like(tensor)


def as_tensor(other, device):
    seen = other.__cuda_array_interface__
    bytes = (ctypes.c_char * (np.dtype(seen["typestr"]).itemsize * int(np.prod(seen["shape"])))).from_address(seen["data"][0])
    return np.frombuffer(bytes, seen["typestr"]).reshape(seen["shape"]).view(Tensor)


def randn_like(tensor):
    return randn(*tensor.shape, device="cuda", dtype=tensor.dtype)


def randint(low, high, shape, device):
    return _rng.integers(low, high, shape).view(Tensor)


def arange(count, device):
    return np.arange(count).view(Tensor)


def compile(function):
    raise RuntimeError("the rehearsal has no compiler")


class _Event:
    def __init__(self, enable_timing):
        self.time = None

    def record(self):
        self.time = time.perf_counter()

    def synchronize(self):
        pass

    def elapsed_time(self, end):
        return (end.time - self.time) * 1e3


cuda = types.SimpleNamespace(
    is_available=lambda: True,
    synchronize=lambda: None,
    Event=_Event,
    get_device_name=lambda: "rehearsal",
    get_device_capability=lambda: (8, 0),
    current_stream=lambda: types.SimpleNamespace(cuda_stream=0),
)
