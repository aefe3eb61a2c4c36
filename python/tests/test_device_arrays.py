# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Arrays on a GPU, with a driver that pretends: its memory is that of the host.

FOVEA_FAKE_CUDA names that driver.
"""

import ctypes
import os

import numpy as np
import pytest
from conftest import make_weights, runtime

import fovea

if "FOVEA_FAKE_CUDA" not in os.environ:
    pytest.skip("needs the driver that pretends", allow_module_level=True)
# The runtime looks for a driver when it is first asked for one.
os.environ["FOVEA_LIBCUDA"] = os.environ["FOVEA_FAKE_CUDA"]
# Products of matrices, as those of fast_multipole_linear, are a library's.
os.environ["FOVEA_LIBCUBLASLT"] = os.environ["FOVEA_FAKE_CUBLASLT"]

CUDA, OPENCL = 2, 4
COPY = """
func.func @copy(%a: tensor<2x3xf32>) -> tensor<2x3xf32> {
  return %a : tensor<2x3xf32>
}
"""


class Tensor(ctypes.Structure):
    """DLManagedTensor of dlpack.h."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("offset", ctypes.c_uint64),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    ]


new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype = ctypes.py_object
new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
get_pointer.restype = ctypes.c_void_p
get_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


class DeviceArray:
    """An array of float32 on a GPU."""

    def __init__(self, values, device=0, device_type=CUDA, strides=None):
        values = np.ascontiguousarray(values, np.float32)
        rt, pointer = runtime(), ctypes.c_void_p()
        assert rt.fovea_rt_gpu_set_device(device) == 0
        assert rt.fovea_rt_gpu_acquire(0, ctypes.c_int64(values.nbytes), ctypes.byref(pointer)) == 0
        assert rt.fovea_rt_gpu_set_device(0) == 0
        ctypes.memmove(pointer.value, values.ctypes.data, values.nbytes)
        self.place = (device_type, device)
        self.streams = []
        self.shape = (ctypes.c_int64 * values.ndim)(*values.shape)
        strides = strides and (ctypes.c_int64 * values.ndim)(*strides)
        self.tensor = Tensor(
            pointer.value, device_type, device, values.ndim, 2, 32, 1, self.shape, strides
        )

    def __dlpack_device__(self):
        return self.place

    def __dlpack__(self, *, stream=None):
        self.streams.append(stream)
        return new_capsule(ctypes.addressof(self.tensor), b"dltensor", None)


def read(result):
    """The address and the values of a result on a GPU."""
    assert not isinstance(result, np.ndarray)
    assert result.__dlpack_device__()[0] == CUDA
    capsule = result.__dlpack__(stream=1)
    tensor = Tensor.from_address(get_pointer(capsule, b"dltensor"))
    values = np.empty(tensor.shape[: tensor.ndim], np.float32)
    ctypes.memmove(values.ctypes.data, tensor.data, values.nbytes)
    return tensor.data, values


@pytest.fixture
def copy():
    return fovea.compile(COPY, target="gpu")


def test_results_stay_where_arguments_are(copy):
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    array = DeviceArray(values, device=1)
    result = copy(array)
    assert result.__dlpack_device__() == (CUDA, 1)
    address, found = read(result)
    assert address != array.tensor.data
    np.testing.assert_array_equal(found, values)
    # The default stream of the producer, finished before the call returns.
    assert array.streams == [1]
    np.testing.assert_array_equal(read(copy(result))[1], values)


def test_results_of_host_arrays_are_host_arrays(copy):
    values = np.ones((2, 3), np.float32)
    assert isinstance(copy(values), np.ndarray)


def test_stream(copy):
    array = DeviceArray(np.zeros((2, 3)))
    with fovea.gpu_stream(0x5000):
        with fovea.gpu_stream(2):
            copy(array)
        copy(array)
    copy(array)
    # PyTorch says 0 of its default stream, which is CUDA's legacy one.
    with fovea.gpu_stream(0):
        copy(array)
    assert array.streams == [2, 0x5000, 1, 1]


@pytest.mark.parametrize("stream", [-1, None, "1", 1.0, True])
def test_no_stream(stream):
    with pytest.raises(ValueError, match="^stream: found .*, needed the address of a CUDA stream"):
        with fovea.gpu_stream(stream):
            pass


def test_other_devices(copy):
    array = DeviceArray(np.zeros((2, 3)), device=1)
    on_cpu = fovea.compile(COPY)
    message = r"found an array on GPU 1, needed one in CPU memory, or the target 'gpu'$"
    with pytest.raises(ValueError, match=message):
        on_cpu(array)
    strange = DeviceArray(np.zeros((2, 3)), device_type=OPENCL)
    with pytest.raises(ValueError, match="found an array on a device of DLPack type 4, needed"):
        copy(strange)
    both = COPY.replace("%a: tensor<2x3xf32>", "%a: tensor<2x3xf32>, %b: tensor<2x3xf32>")
    with pytest.raises(ValueError, match=r"argument 1 \(%b\) .* on GPU 0, needed one on GPU 1"):
        fovea.compile(both, target="gpu")(array, DeviceArray(np.zeros((2, 3))))


def test_caches_are_memory_of_the_cpu():
    """One error names the array and says so, and the cache stays as it was."""
    rows, on_gpu = np.ones((1, 2, 3, 8), np.float32), DeviceArray(np.zeros((1, 2, 3, 8)), device=1)
    for cache in (fovea.KVCache(1, 2, 8, capacity=16), fovea.PagedCache(4, 8, 2, 8)):
        cache.append(rows, rows)
        for name, call in {
            "k": lambda cache=cache: cache.append(on_gpu, rows),
            "v": lambda cache=cache: cache.append(rows, on_gpu),
            "q": lambda cache=cache: cache.attend(on_gpu),
            "out": lambda cache=cache: cache.attend(rows, out=on_gpu),
        }.items():
            with pytest.raises(ValueError, match=f"^{name}: found an array on GPU 1, needed one in CPU memory, where the cache is$"):
                call()
        assert cache.lengths.tolist() == [3]
    weights = make_weights(8, 2, 1, 8, 1, "float32")
    cache = fovea.MultipoleCache(weights, weights, group=2, heads=2)
    for name, arrays in {"q": (on_gpu, rows, rows), "k": (rows, on_gpu, rows), "v": (rows, rows, on_gpu)}.items():
        with pytest.raises(ValueError, match=f"^{name}: found an array on GPU 1, needed one in CPU memory, where the cache is$"):
            fovea.fast_multipole_decode(*arrays, cache)
    assert cache.length == 0


def test_gaps(copy):
    array = DeviceArray(np.zeros((2, 3)), strides=(1, 2))
    with pytest.raises(ValueError, match="found an array with gaps.* on a GPU, needed a contiguous"):
        copy(array)
