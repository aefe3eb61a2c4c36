# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tensors of a class that lends its functions of C through DLPack, as that of PyTorch does."""

import ctypes

import numpy as np
import pytest
from conftest import make

import fovea
from fovea import _fovea

CPU, CUDA = 1, 2
FLOAT, BFLOAT = 2, 4


class Described(ctypes.Structure):
    """DLTensor of dlpack.h."""

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
    ]


class Managed(ctypes.Structure):
    """DLManagedTensorVersioned."""


DELETER = ctypes.CFUNCTYPE(None, ctypes.POINTER(Managed))
Managed._fields_ = [
    ("major", ctypes.c_uint32),
    ("minor", ctypes.c_uint32),
    ("context", ctypes.c_void_p),
    ("deleter", DELETER),
    ("flags", ctypes.c_uint64),
    ("tensor", Described),
]

DESCRIBE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(Described))
GIVE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Managed), ctypes.POINTER(ctypes.c_void_p))
STREAM = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))


class Table(ctypes.Structure):
    """DLPackExchangeAPI."""

    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("previous", ctypes.c_void_p),
        ("allocate", ctypes.c_void_p),
        ("share", ctypes.c_void_p),
        ("give", GIVE),
        ("describe", DESCRIBE),
        ("stream", STREAM),
    ]


new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype = ctypes.py_object
new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class Tensor:
    """An array of NumPy that is read by what the class lends alone."""

    freed = 0

    def __init__(self, array, code=FLOAT, device_type=CPU, offset=0):
        self.array, self.code, self.device_type, self.offset = array, code, device_type, offset
        self.requires_grad = False


@DESCRIBE
def describe(object, out):
    array = object.array
    shape = (ctypes.c_int64 * array.ndim)(*array.shape)
    strides = (ctypes.c_int64 * array.ndim)(*(each // array.itemsize for each in array.strides))
    object.kept = shape, strides
    out[0] = Described(
        array.ctypes.data - object.offset, object.device_type, 0, array.ndim, object.code,
        8 * array.itemsize, 1, shape, strides, object.offset,
    )  # fmt: skip
    return 0


@GIVE
def give(managed, out):
    tensor = managed[0].tensor
    assert (managed[0].major, tensor.device_type, tensor.lanes) == (1, CPU, 1)
    shape, strides = tensor.shape[: tensor.ndim], tensor.strides[: tensor.ndim]
    type = np.dtype(f"{'u' if tensor.code == BFLOAT else 'f'}{tensor.bits // 8}")
    memory = (ctypes.c_char * (int(np.prod(shape)) * type.itemsize)).from_address(tensor.data)
    array = np.frombuffer(memory, type).reshape(shape).copy()
    assert array.strides == tuple(each * type.itemsize for each in strides)
    managed[0].deleter(managed)
    Tensor.freed += 1
    result = Tensor(array, tensor.code)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(result))
    out[0] = id(result)
    return 0


@STREAM
def stream(device_type, device, out):
    out[0] = None
    return 0


TABLE = Table(1, 3, None, None, None, give, describe, stream)
NEWER = Table(2, 0, ctypes.addressof(TABLE), None, None, give, describe, stream)
UNKNOWN = Table(2, 0, None, None, None, give, describe, stream)
# A function of C that raises what the object does.
FAILING = Table(1, 2, None, None, None, give, DESCRIBE(("PyObject_IsTrue", ctypes.pythonapi)), stream)
Tensor.__dlpack_c_exchange_api__ = new_capsule(ctypes.addressof(TABLE), b"dlpack_exchange_api", None)


def dense(q, k, v, returns=_fovea.tensors, target="cpu"):
    return returns.dense(q, k, v, None, True, *[None] * 9, False, target)


def test_results_have_the_class_of_arguments():
    arrays = make(N=37)
    freed = Tensor.freed
    out = dense(*map(Tensor, arrays))
    assert type(out) is Tensor and Tensor.freed == freed + 1
    np.testing.assert_array_equal(out.array, fovea.dense(*arrays, causal=True))


def test_functions_of_the_package_return_arrays():
    arrays = make(N=37)
    out = fovea.dense(*map(Tensor, arrays), causal=True)
    assert isinstance(out, np.ndarray)
    np.testing.assert_array_equal(out, fovea.dense(*arrays, causal=True))


def test_an_older_version_is_found_and_an_unknown_one_is_not():
    class Newer(Tensor):
        __dlpack_c_exchange_api__ = new_capsule(ctypes.addressof(NEWER), b"dlpack_exchange_api", None)

    class Unknown(Tensor):
        __dlpack_c_exchange_api__ = new_capsule(
            ctypes.addressof(UNKNOWN), b"dlpack_exchange_api", None
        )

    class Other(Tensor):
        __dlpack_c_exchange_api__ = "no capsule"

    arrays = make(N=5)
    assert type(dense(*map(Newer, arrays))) is Tensor
    for kind in Unknown, Other:
        with pytest.raises(ValueError, match="^q: found .*, needed a NumPy array or an object with __dlpack__"):
            dense(*map(kind, arrays))


def test_strides_and_offsets():
    arrays = make(N=37)
    turned = [array.swapaxes(1, 2).copy().swapaxes(1, 2) for array in arrays]
    out = dense(*(Tensor(array, offset=64) for array in turned))
    np.testing.assert_array_equal(out.array, fovea.dense(*arrays, causal=True))


def test_bfloat16():
    arrays = make("bfloat16", N=37)
    out = dense(*(Tensor(array.view(np.uint16), BFLOAT) for array in arrays))
    np.testing.assert_array_equal(out.array, fovea.dense(*arrays, causal=True).view(np.uint16))


def test_gradients_are_up_to_who_asks_for_tensors():
    tensors = list(map(Tensor, make(N=5)))
    tensors[1].requires_grad = True
    dense(*tensors)
    with pytest.raises(ValueError, match="^k: requires a gradient, which would be lost"):
        fovea.dense(*tensors)


def test_types_and_places():
    q, k, v = map(Tensor, make(N=5))
    with pytest.raises(ValueError, match="^k: found elements of DLPack type 9 with 32 bits, needed"):
        dense(q, Tensor(k.array, code=9), v)
    on_gpu = Tensor(k.array, device_type=CUDA)
    with pytest.raises(ValueError, match="^k: found an? .* on GPU 0, needed"):
        dense(q, on_gpu, v)
    with pytest.raises(ValueError, match="^k: found a tensor on GPU 0, needed all tensors on the same device"):
        dense(q, on_gpu, v, target="gpu")
    with pytest.raises(ValueError, match="^v: found a tensor on the CPU, needed all tensors on the same device"):
        dense(on_gpu, on_gpu, v, target="gpu")


def test_what_a_class_raises_names_the_argument():
    class Broken(Tensor):
        __dlpack_c_exchange_api__ = new_capsule(ctypes.addressof(FAILING), b"dlpack_exchange_api", None)

        def __bool__(self):
            raise RuntimeError("no storage")

    q, k, v = map(Tensor, make(N=5))
    with pytest.raises(ValueError, match="^k: found Broken that cannot be read .*RuntimeError: no storage"):
        dense(q, Broken(k.array), v)
