# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiles and runs IR through libfovea, many kernels in one process."""

import ctypes
import os
import sys

# A library with AddressSanitizer wants to see all memory of the program: the
# sanitizer has to be there before the interpreter. Programs that scripts run have
# one of their own, and refuse another.
if preload := os.environ.get("FOVEA_PRELOAD"):
    if os.environ.get("LD_PRELOAD") != preload:
        os.environ["LD_PRELOAD"] = preload
        os.execv(sys.executable, sys.orig_argv)
    del os.environ["LD_PRELOAD"]

import numpy as np
from ml_dtypes import bfloat16

# Order of fovea_element_type.
_TYPES = [np.float16, bfloat16, np.float32, np.float64, np.bool_, np.int8, np.int16, np.int32, np.int64]
NAMES = {"f16": np.float16, "bf16": bfloat16, "f32": np.float32, "f64": np.float64}


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("type", ctypes.c_int),
        ("rank", ctypes.c_int32),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("is_read_only", ctypes.c_int32),
    ]


class _Options(ctypes.Structure):
    _fields_ = [
        ("target", ctypes.c_char_p),
        ("cpu", ctypes.c_char_p),
        ("entry", ctypes.c_char_p),
        ("source_name", ctypes.c_char_p),
        ("use_cache", ctypes.c_int32),
    ]


class Failure(Exception):
    """What the library reported."""


class Library:
    def __init__(self, path, target="cpu"):
        self.target = target
        # The target gpu-sim, beside the library.
        ctypes.CDLL(str(path).replace("libfovea_c", "libfovea_emulator"))
        self._c = ctypes.CDLL(path)
        self._c.fovea_last_error.restype = ctypes.c_char_p
        self._c.fovea_kernel_num_results.restype = ctypes.c_size_t
        self._c.fovea_kernel_num_results.argtypes = [ctypes.c_void_p]
        self._c.fovea_kernel_destroy.argtypes = [ctypes.c_void_p]
        self._c.fovea_result_destroy.argtypes = [ctypes.c_void_p]
        self._c.fovea_result_tensor.restype = _Tensor
        self._c.fovea_result_tensor.argtypes = [ctypes.c_void_p]

    def _check(self, status):
        if status != 0:
            raise Failure(self._c.fovea_last_error().decode())

    def set_num_threads(self, count):
        self._check(self._c.fovea_set_num_threads(count))

    def compile(self, text, target=None, cpu="native"):
        text = text.encode()
        options = _Options((target or self.target).encode(), cpu.encode(), None, b"kernel", 0)
        kernel = ctypes.c_void_p()
        self._check(
            self._c.fovea_compile(
                text, ctypes.c_size_t(len(text)), ctypes.byref(options), ctypes.byref(kernel)
            )
        )
        return Kernel(self, kernel)


class PackageLibrary:
    """The same of the installed package `fovea`, where there is no library for C."""

    class _Kernel:
        def __init__(self, library, kernel):
            self._library, self._kernel = library, kernel

        def vjp(self, arguments=(), primal_results=False):
            return type(self)(self._library, self._library.call(self._kernel.vjp, list(arguments), primal_results))

        def __call__(self, *arrays):
            found = self._library.call(self._kernel, *arrays)
            return [] if found is None else list(found) if isinstance(found, tuple) else [found]

    def __init__(self, target="cpu"):
        import fovea

        self._fovea, self.target = fovea, target

    def set_num_threads(self, count):
        self._fovea.set_num_threads(count)

    def compile(self, text, target=None, cpu="native"):
        return self._Kernel(self, self.call(self._fovea.compile, text, target=target or self.target, cpu=cpu))

    def call(self, function, *arguments, **options):
        try:
            return function(*arguments, **options)
        except self._fovea.FoveaError as problem:
            raise Failure(str(problem)) from None


def open_library(path, target="cpu"):
    """The library for C at `path`, or the Python package with the path "package"."""
    return PackageLibrary(target) if path == "package" else Library(path, target)


class Kernel:
    def __init__(self, library, handle):
        self._library, self._handle = library, handle

    def __del__(self):
        self._library._c.fovea_kernel_destroy(self._handle)

    def vjp(self, arguments=(), primal_results=False):
        """The vector-Jacobian product, a kernel itself."""
        kernel = ctypes.c_void_p()
        numbers = (ctypes.c_int64 * len(arguments))(*arguments)
        self._library._check(
            self._library._c.fovea_kernel_vjp(
                self._handle, numbers, ctypes.c_size_t(len(arguments)), int(primal_results),
                ctypes.byref(kernel),
            )
        )  # fmt: skip
        return Kernel(self._library, kernel)

    def __call__(self, *arrays):
        """The results, as a list of arrays."""
        c = self._library._c
        inputs = (_Tensor * len(arrays))()
        shapes = []
        for tensor, array in zip(inputs, arrays):
            assert array.flags.c_contiguous
            shapes.append((ctypes.c_int64 * array.ndim)(*array.shape))
            tensor.data = array.ctypes.data
            tensor.type = _TYPES.index(array.dtype)
            tensor.rank = array.ndim
            tensor.shape = shapes[-1]
            tensor.is_read_only = 1
        count = c.fovea_kernel_num_results(self._handle)
        handles = (ctypes.c_void_p * count)()
        self._library._check(
            c.fovea_kernel_invoke(
                self._handle, inputs, ctypes.c_size_t(len(arrays)), handles, ctypes.c_size_t(count)
            )
        )
        results = []
        for handle in handles:
            tensor = c.fovea_result_tensor(handle)
            shape = tuple(tensor.shape[: tensor.rank])
            result = np.empty(shape, _TYPES[tensor.type])
            if result.size:
                ctypes.memmove(result.ctypes.data, tensor.data, result.nbytes)
            results.append(result)
            c.fovea_result_destroy(handle)
        return results
