# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls of programs of XLA on a GPU, as `fovea.jax` writes them, with a driver that pretends: what the handler makes of
frames, on which stream it runs, and what it reads on the host. Kernels do nothing."""

import ctypes
import os

import numpy as np
from test_graph_capture import STREAM, DeviceArray, capture, count_copies_to_host

from fovea import _fovea

FLOAT, INTEGER, LONG = 11, 4, 5  # xla::DataType
NUMBERS, TEXT = 1, 4  # xla::AttributeKind
EXECUTE, INVALID_ARGUMENT = 3, 3
STARTS = [0, 20, 37]


def structure(name, **fields):
    """One of XLAInterface.h, whose size its header tells."""
    return type(name, (ctypes.Structure,), {"_fields_": [(key, value) for key, value in fields.items()]})


POINTER = ctypes.c_void_p
HEADER = {"size": ctypes.c_size_t, "extensions": POINTER}
Buffer = structure("Buffer", **HEADER, type=ctypes.c_int32, data=POINTER, rank=ctypes.c_int64, extents=POINTER)
Text = structure("Text", data=ctypes.c_char_p, size_=ctypes.c_size_t)
Numbers = structure("Numbers", type=ctypes.c_int32, size_=ctypes.c_size_t, data=POINTER)
Buffers = structure("Buffers", **HEADER, count=ctypes.c_int64, kinds=POINTER, values=POINTER)
Attributes = structure("Attributes", **HEADER, count=ctypes.c_int64, kinds=POINTER, names=POINTER, values=POINTER)
Failure = structure("Failure", **HEADER, message=ctypes.c_char_p, code=ctypes.c_int32)
Stream = structure("Stream", **HEADER, context=POINTER, stream=POINTER)
Version = structure("Version", **HEADER, major=ctypes.c_int32, minor=ctypes.c_int32)
Interface = structure(
    "Interface", **HEADER, version=Version, internal=POINTER, create_error=POINTER, get_message=POINTER, destroy_error=POINTER,
    register=POINTER, get_stream=POINTER,
)  # fmt: skip
Frame = structure(
    "Frame", **HEADER, interface=POINTER, context=POINTER, stage=ctypes.c_int32, arguments=Buffers, results=Buffers, attributes=Attributes
)  # fmt: skip


def pointers(values):
    return (POINTER * len(values))(*[ctypes.addressof(each) for each in values])


class Call:
    """A frame, which XLA has for one call."""

    def __init__(self, function, arguments, operands, results):
        self.failures = []
        self.create_error = ctypes.CFUNCTYPE(POINTER, ctypes.POINTER(Failure))(self.fail)
        self.get_stream = ctypes.CFUNCTYPE(POINTER, ctypes.POINTER(Stream))(self.give_stream)
        interface = Interface(size=ctypes.sizeof(Interface))
        interface.create_error, interface.get_stream = (
            ctypes.cast(each, POINTER) for each in (self.create_error, self.get_stream)
        )
        self.kept = [interface, operands, results]
        frame = Frame(size=ctypes.sizeof(Frame), interface=ctypes.addressof(interface), stage=EXECUTE)
        self.lend(frame.arguments, operands)
        self.lend(frame.results, results)
        numbers = {
            "batch_axes": [0] * len(operands),
            "ranks": [len(each.shape) for each in operands],
            "updated": [],
        }
        texts = {"function": function, "arguments": arguments}
        values = [Text(each.encode(), len(each)) for each in texts.values()]
        for each in numbers.values():
            data = (ctypes.c_int64 * max(1, len(each)))(*each)
            values.append(Numbers(LONG, len(each), ctypes.addressof(data)))
            self.kept.append(data)
        names = [Text(each.encode(), len(each)) for each in (*texts, *numbers)]
        kinds = (ctypes.c_int32 * len(values))(*[TEXT] * len(texts), *[NUMBERS] * len(numbers))
        lists = pointers(names), pointers(values)
        frame.attributes.count = len(values)
        frame.attributes.kinds, frame.attributes.names, frame.attributes.values = map(ctypes.addressof, (kinds, *lists))
        self.kept += [values, names, kinds, lists]
        handler = ctypes.pythonapi.PyCapsule_GetPointer
        handler.restype, handler.argtypes = POINTER, [ctypes.py_object, ctypes.c_char_p]
        self.handler = ctypes.PYFUNCTYPE(POINTER, POINTER)(handler(_fovea.xla_handlers()["CUDA"], None))
        self.frame = frame

    def run(self):
        """The errors of the call."""
        self.failures.clear()
        self.handler(ctypes.addressof(self.frame))
        return self.failures

    def fail(self, failure):
        self.failures.append((failure[0].code, failure[0].message.decode()))
        return 1

    @staticmethod
    def give_stream(answer):
        answer[0].stream = STREAM
        return None

    def lend(self, buffers, arrays):
        types = {"f": FLOAT, "i": INTEGER}
        values = [
            Buffer(ctypes.sizeof(Buffer), None, types[each.dtype.kind], each.tensor.data, len(each.shape), ctypes.addressof(each.shape))
            for each in arrays
        ]
        listed = pointers(values)
        buffers.count, buffers.values = len(values), ctypes.addressof(listed)
        self.kept += [values, listed]


def floats(*shape):
    return DeviceArray(np.zeros(shape, np.float32))


def varlen(starts=STARTS, longest="None, None"):
    arrays = [floats(37, 4, 24), floats(37, 2, 24), floats(37, 2, 24), *[DeviceArray(np.array(starts, np.int32))] * 2]
    text = f"(..., ..., ..., ..., ..., None, True, None, None, None, {longest}, True, )"
    return Call("varlen", text, arrays, [floats(37, 4, 24), floats(4, 37)])


def gradients(longest="None, None"):
    q, k, v, lse = floats(37, 4, 24), floats(37, 2, 24), floats(37, 2, 24), floats(4, 37)
    starts = DeviceArray(np.array(STARTS, np.int32))
    text = f"(..., ..., ..., ..., ..., ..., ..., ..., None, None, True, None, None, None, {longest}, )"
    return Call("varlen_backward", text, [q, q, k, v, starts, starts, q, lse], [q, k, v])


def last_stream():
    driver = ctypes.CDLL(os.environ["FOVEA_FAKE_CUDA"])
    driver.fakeCudaLastStream.restype = ctypes.c_void_p
    return driver.fakeCudaLastStream()


def test_packed_sequences():
    for call in (varlen(), gradients()):
        copies = count_copies_to_host()
        assert call.run() == []
        assert last_stream() == STREAM and count_copies_to_host() > copies


def test_packed_sequences_with_the_longest_lengths():
    """The host reads nothing, and a graph could hold the call."""
    for call in (varlen(longest="20, 37"), gradients("20, 37")):
        assert call.run() == []
        copies = count_copies_to_host()
        capture(STREAM)
        try:
            assert call.run() == []
        finally:
            faults = capture(None)
        assert faults == "" and last_stream() == STREAM and count_copies_to_host() == copies


def test_errors_are_those_of_programs():
    assert varlen([0, 20, 36]).run() == [(INVALID_ARGUMENT, "cu_seqlens_q: found 36 at the end, needed 37, the number of rows")]
    ((code, text),) = varlen(longest="20, None").run()
    assert code == INVALID_ARGUMENT and text.startswith("max_k: found None, needed the longest length")


def test_a_handler_writes_down_what_is_wrong_with_a_call():
    ((_, text),) = Call("verlan", "()", [floats(1)], [floats(1)]).run()
    assert text.startswith("found a call of verlan, which this version of the package lacks")
