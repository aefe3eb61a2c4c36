# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls functions that fovea-compile has compiled ahead of time; needs nothing but
the runtime library. Pointers may be those of a device."""

import ctypes


def _descriptor(rank):
    class Descriptor(ctypes.Structure):
        _fields_ = [("base", ctypes.c_void_p), ("data", ctypes.c_void_p), ("offset", ctypes.c_int64),
                    ("extents", ctypes.c_int64 * rank), ("strides", ctypes.c_int64 * rank)]

    return Descriptor


class Runtime:
    def __init__(self, path):
        self.library = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
        self.library.fovea_rt_last_error.restype = ctypes.c_char_p
        self.library.fovea_rt_free.argtypes = [ctypes.c_void_p]
        self.library.fovea_rt_gpu_set_stream.argtypes = [ctypes.c_void_p]

    def set_stream(self, stream):
        """`stream` as PyTorch says it: 0 is the legacy default stream, which the
        runtime knows as 1."""
        self.library.fovea_rt_gpu_set_stream(stream or 1)


class Kernel:
    """@f of a shared library, with one result."""

    def __init__(self, runtime, path, result_rank=4):
        self.runtime = runtime
        self.packed = ctypes.CDLL(path).f_packed
        self.result_type = _descriptor(result_rank)

    def __call__(self, arguments):
        """`arguments` are pairs of an address and a shape. Returns those of the
        result, which `free` takes."""
        descriptors = []
        for data, shape in arguments:
            descriptor = _descriptor(len(shape))(data, data, 0)
            stride = 1
            for dim in reversed(range(len(shape))):
                descriptor.extents[dim], descriptor.strides[dim] = shape[dim], stride
                stride *= shape[dim]
            descriptors.append(descriptor)
        result = self.result_type()
        packed = (ctypes.c_void_p * (1 + len(descriptors)))(
            ctypes.addressof(result), *(ctypes.addressof(d) for d in descriptors))
        if self.runtime.library.fovea_rt_invoke(self.packed, packed):
            raise RuntimeError(self.runtime.library.fovea_rt_last_error().decode())
        self.base = result.base
        return result.data, list(result.extents)

    def free(self):
        self.runtime.library.fovea_rt_free(self.base)
