# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tensors on a GPU of a class that lends its functions of C, as that of PyTorch does, with a driver that
pretends: where calls run, on which stream, and where results are.  Kernels do nothing."""

import ctypes
import importlib.util
import os
from pathlib import Path

import numpy as np
import pytest
from call_cases import case
from test_device_arrays import CUDA, DeviceArray, runtime
from test_exchange import DESCRIBE, GIVE, STREAM, Described, Table, Tensor, new_capsule
from test_strides import change

import fovea
from fovea import _fovea

# Kernels with these letters in their names are in every module.
os.environ["FAKE_CUDA_KERNELS"] = "_kernel"
CURRENT = 0x7000


class DeviceTensor(DeviceArray):
    """float32 on a GPU, which knows the stream that is current there."""

    #: Where a stream was asked for.
    asked: list = []


class Result:
    """What was made of memory that a call gave."""

    def __init__(self, managed):
        self.tensor = managed[0].tensor
        self.place = (self.tensor.device_type, self.tensor.device)
        self.shape = tuple(self.tensor.shape[: self.tensor.ndim])
        managed[0].deleter(managed)


@DESCRIBE
def describe(object, out):
    found = object.tensor
    out[0] = Described(*(getattr(found, name) for name, _ in Described._fields_))
    return 0


@GIVE
def give(managed, out):
    result = Result(managed)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(result))
    out[0] = id(result)
    return 0


@STREAM
def stream(device_type, device, out):
    DeviceTensor.asked.append((device_type, device))
    out[0] = CURRENT + device
    return 0


TABLE = Table(1, 3, None, None, None, give, describe, stream)
# A capsule does not own its name.
NAME = b"dlpack_exchange_api"
DeviceTensor.__dlpack_c_exchange_api__ = new_capsule(ctypes.addressof(TABLE), NAME, None)


def tensors(device):
    values = np.random.default_rng(0).standard_normal((3, 1, 2, 37, 64)).astype(np.float32)
    return [DeviceTensor(each, device=device) for each in values]


def dense(q, k, v, target=None, **options):
    return _fovea.tensors.dense(q, k, v, None, True, *[None] * 9, True, target, **options)


def last_stream():
    driver = ctypes.CDLL(os.environ["FOVEA_FAKE_CUDA"])
    driver.fakeCudaLastStream.restype = ctypes.c_void_p
    return driver.fakeCudaLastStream()


@pytest.mark.parametrize("device", [0, 1])
def test_calls_run_where_tensors_are(device):
    DeviceTensor.asked.clear()
    out, lse = dense(*tensors(device))
    assert type(out) is Result and (out.shape, lse.shape) == ((1, 2, 37, 64), (1, 2, 37))
    assert out.place == lse.place == (CUDA, device)
    assert set(DeviceTensor.asked) == {(CUDA, device)}
    assert last_stream() == CURRENT + device


def test_gradients_run_there_too():
    q, k, v = tensors(1)
    lse = DeviceTensor(np.zeros((1, 2, 37)), device=1)
    found = _fovea.tensors.dense_backward(q, q, k, v, q, lse, None, None, True, *[None] * 9, True, True, False, None)
    assert [(each.shape, each.place) for each in found] == [((1, 2, 37, 64), (CUDA, 1))] * 3
    assert last_stream() == CURRENT + 1


def test_calls_in_a_graph():
    """As fovea.torch makes them: on the stream that is current, which captures."""
    driver = ctypes.CDLL(os.environ["FOVEA_FAKE_CUDA"])
    driver.fakeCudaCapture.restype = ctypes.c_char_p
    q, k, v = tensors(0)
    lse = DeviceTensor(np.zeros((1, 2, 37)))
    lengths = integers([20], np.int32, 0)

    def run():
        dense(q, k, v)
        _fovea.tensors.dense(q, k, v, None, True, *[None] * 5, lengths, None, None, None, True, None)
        _fovea.tensors.dense_backward(q, q, k, v, q, lse, None, None, True, *[None] * 9, True, True, False, None)

    run()
    driver.fakeCudaCapture(ctypes.c_void_p(CURRENT))
    try:
        run()
        host = [Tensor(np.zeros((1, 2, 37, 64), np.float32)) for _ in range(3)]
        with pytest.raises(ValueError, match="needed all tensors on the same device"):
            dense(q, host[0], v)
    finally:
        faults = driver.fakeCudaCapture(None)
    assert faults == b""
    assert last_stream() == CURRENT


@pytest.mark.parametrize("stream,known", [(0, 1), (0x5000, 0x5000)])
def test_benchmarks_run_on_the_stream_of_pytorch(stream, known):
    """PyTorch says 0 of its default stream, which its kernels are on. A call on a stream of the runtime's own
    would read what they have not written yet, and wait for the device while it is measured."""
    path = Path(__file__).parents[2] / "benchmarks/gpu/kernel.py"
    spec = importlib.util.spec_from_file_location("kernel", path)
    kernel = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(kernel)
    driver = ctypes.CDLL(os.environ["FOVEA_FAKE_CUDA"])
    driver.fakeCudaCount.restype, driver.fakeCudaLastFreeStream.restype = ctypes.c_size_t, ctypes.c_void_p
    benchmark = kernel.Runtime(runtime()._name)
    library, address, results = benchmark.library, ctypes.c_void_p, []
    for function in (library.fovea_rt_gpu_begin, library.fovea_rt_gpu_alloc):
        function.restype = address

    @ctypes.CFUNCTYPE(None, address)
    def compute(_):
        queue = address(library.fovea_rt_gpu_begin(0))
        results.append(address(library.fovea_rt_gpu_alloc(queue, ctypes.c_int64(64))))
        library.fovea_rt_gpu_fill(queue, results[-1], ctypes.c_int64(16), 4, 7)
        library.fovea_rt_gpu_end(queue)

    def count_waits():
        """Of a call whose result is freed."""
        before = sum(map(driver.fakeCudaCount, (b"cuCtxSynchronize", b"cuStreamSynchronize")))
        assert library.fovea_rt_invoke(compute, None) == 0
        assert library.fovea_rt_gpu_release(0, results.pop()) == 0
        return sum(map(driver.fakeCudaCount, (b"cuCtxSynchronize", b"cuStreamSynchronize"))) - before

    assert count_waits() > 0
    benchmark.set_stream(stream)
    try:
        assert count_waits() == 0
        # Freed behind what reads the result there.
        assert driver.fakeCudaLastFreeStream() == known
    finally:
        library.fovea_rt_gpu_set_stream(None)


def test_other_devices():
    q, k, v = tensors(0)
    other, *_ = tensors(1)
    host = Tensor(np.zeros((1, 2, 37, 64), np.float32))
    for wrong, match in (
        (other, "found an array on GPU 1, needed one on GPU 0 like those before"),
        (host, "found a tensor on the CPU, needed all tensors on the same device"),
    ):
        with pytest.raises(ValueError, match=f"^k: {match}"):
            dense(q, wrong, v)
    for target in ("cpu", "reference", "gpu-sim"):
        with pytest.raises(ValueError, match="^q: found an array on GPU 0, needed one in CPU memory, or the target 'gpu'"):
            dense(q, k, v, target)


def test_types_that_gpus_lack():
    wide = tensors(0)
    for each in wide:
        each.tensor.bits = 64
        each.shape[3] = 32
    with pytest.raises(ValueError, match="^q: found element type float64, needed one of float16, bfloat16, float32 on a GPU"):
        dense(*wide)


def integers(values, type, device):
    """A vector of `type` on a GPU."""
    made = DeviceTensor(np.array(values, type).view(np.float32), device=device)
    made.shape[0] = len(values)
    made.tensor.code, made.tensor.bits = 0, 8 * np.dtype(type).itemsize
    return made


@pytest.mark.parametrize("type", [np.int32, np.int64])
def test_lengths_are_read_from_the_device(type):
    def call(length, query_length):
        lengths, queries = (integers([each], type, 1) for each in (length, query_length))
        return _fovea.tensors.dense(*tensors(1), None, True, *[None] * 5, lengths, queries, None, None, True, None)

    assert [each.place for each in call(20, 37)] == [(CUDA, 1)] * 2
    assert last_stream() == CURRENT + 1
    with pytest.raises(ValueError, match="^lengths: found 38 for batch entry 0, needed 0 to 37"):
        call(38, 37)
    with pytest.raises(ValueError, match="^query_lengths: found -1 for batch entry 0, needed 0 to 37"):
        call(37, -1)


def test_lengths_of_tokens_are_read_from_the_device():
    def call(length):
        return _fovea.tensors.commitment_loss(*tensors(0)[:2], None, integers([length], np.int64, 0), None)

    assert call(36).place == (CUDA, 0)
    with pytest.raises(ValueError, match="^lengths: found 99 for batch entry 0, needed 0 to 37"):
        call(99)


def test_functions_of_scores():
    body = "%0 = tensor.extract %capture0[%head] : tensor<?xf32>\n%1 = arith.addf %score, %0 : f32\nattn.yield %1 : f32"
    table, elsewhere = (DeviceTensor(np.zeros(2), device=device) for device in (1, 0))

    def call(captured):
        return _fovea.tensors.dense(*tensors(1), None, True, *[None] * 7, body, [captured], True, None)

    assert call(table)[0].place == (CUDA, 1) and last_stream() == CURRENT + 1
    with pytest.raises(ValueError, match=r"captures\[0\]: found an array on GPU 0, needed one on GPU 1"):
        call(elsewhere)


def test_lists_of_sources():
    q, k, v = tensors(1)
    other, *_ = tensors(0)

    def call(second):
        none, texts, ones = [None] * 2, [""] * 2, [1, 1]
        lists = [k, second], [v, v], [True, False], none, none, ones, none, none, none, none, ones
        lists += ["stored"] * 2, texts, texts, [0, 0]
        return _fovea.tensors.stream(q, *lists, 0, None, None, None, None, None, True, None)

    assert [each.place for each in call(k)] == [(CUDA, 1)] * 2 and last_stream() == CURRENT + 1
    with pytest.raises(ValueError, match=r"^sources\[1\].k: found an array on GPU 0, needed one on GPU 1"):
        call(other)


def turned(shift=0):
    """A tensor of the shape of those above, [B,N,H,D] in memory, from element `shift` on."""
    made = DeviceTensor(np.zeros((1, 2, 38, 64)), strides=(38 * 2 * 64, 64, 2 * 64, 1))
    made.shape[2] = 37
    made.tensor.offset = 4 * shift
    return made


def count(*names):
    """Calls of the driver."""
    driver = ctypes.CDLL(os.environ["FOVEA_FAKE_CUDA"])
    driver.fakeCudaCount.restype = ctypes.c_size_t
    return sum(driver.fakeCudaCount(name.encode()) for name in names)


def costs(call):
    """How many copies `call` makes, and how many blocks of memory."""

    def counts():
        copies = count("cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuMemcpyDtoDAsync_v2", "cuMemcpy2DAsync_v2")
        return copies, count("cuMemAllocAsync", "cuMemAlloc_v2")

    before = counts()
    call()
    return tuple(after - first for after, first in zip(counts(), before))


def test_rows_are_read_and_written_where_they_lie():
    q, k, v, out = (turned() for _ in range(4))

    def forward(*given):
        found, lse = dense(*given, out=[out, None])
        assert found is out and lse.shape == (1, 2, 37)

    # Memory for `lse` alone.
    assert costs(lambda: forward(q, k, v)) == (0, 1)
    contiguous = tensors(0)
    assert costs(lambda: forward(*contiguous)) == (0, 1)
    # A copy for each head, which is noticed.
    shifted = turned(1)
    assert costs(lambda: forward(q, shifted, v)) == (2, 2)
    lse = DeviceTensor(np.zeros((1, 2, 37)))
    gradients, d_out = [turned() for _ in range(3)], turned()

    def backward(*given, places):
        options = None, None, True, *[None] * 9, True, True, False, None
        return _fovea.tensors.dense_backward(*given, out, lse, *options, out=places)

    places = tensors(0)
    own = costs(lambda: backward(contiguous[0], *contiguous, places=places))
    assert own[0] == 0 and own == costs(lambda: backward(d_out, q, k, v, places=gradients))
    found = backward(d_out, q, k, v, places=gradients)
    assert all(one is other for one, other in zip(found, gradients, strict=True))


def test_arrays_by_dlpack_and_compiled_functions():
    q, k, v, out = (turned() for _ in range(4))
    # Memory for the output, or none.
    assert costs(lambda: fovea.dense(q, k, v, target="gpu")) == (0, 1)
    assert costs(lambda: fovea.dense(q, k, v, out=out, target="gpu")) == (0, 0)
    kernel = fovea.compile(
        """
!rows = memref<1x2x37x64xf32, strided<[?, ?, ?, 1], offset: 0>>
func.func @copy(%x: tensor<1x2x37x64xf32> {bufferization.buffer_layout = strided<[?, ?, ?, 1]>}, %y: !rows) {
  bufferization.materialize_in_destination %x in writable %y : (tensor<1x2x37x64xf32>, !rows) -> ()
  return
}""",
        target="gpu",
    )
    assert costs(lambda: kernel(q, out)) == (0, 0)
    shifted = turned(1)
    # Read from a copy, a plane of each head, and written back.
    assert costs(lambda: kernel(q, shifted)) == (4, 1)


def move(array):
    """A float32 array of several axes, to a GPU; its axes but the last in another order in memory."""
    if array.ndim < 2 or array.dtype != np.float32:
        return array
    order = (*range(1, array.ndim - 1), 0, array.ndim - 1)
    # Rows begin at multiples of 16 bytes.
    wide = np.zeros((*(array.shape[axis] for axis in order[:-1]), array.shape[-1] + -array.shape[-1] % 4), np.float32)
    steps = np.array(wide.strides)[np.argsort(order)] // 4
    made = DeviceArray(wide)
    made.shape = (ctypes.c_int64 * array.ndim)(*array.shape)
    made.own_strides = (ctypes.c_int64 * array.ndim)(*steps)
    made.tensor.shape, made.tensor.strides = made.shape, made.own_strides
    return made


@pytest.mark.parametrize("name", [
    "dense", "dense_backward", "fast_multipole", "fast_multipole_backward", "quantize", "vq", "low_rank", "low_rank_backward",
    "conv", "pool", "rope", "tree_build", "tree_materialize", "tree_score", "stream", "stream_backward",
])  # fmt: skip
def test_no_function_copies_arrays_for_their_strides(name):
    def cost(move):
        function, arguments, options = case(name, "float32")
        arguments, options = change(move, arguments), change(move, options)
        return costs(lambda: function(*arguments, **options, target="gpu"))

    def move_whole(array):
        return DeviceArray(array) if array.ndim > 1 and array.dtype == np.float32 else array

    assert cost(move) == cost(move_whole)


def test_gradients_by_differentiation_are_contiguous():
    function, arguments, options = case("tree_build_backward", "float32")
    with pytest.raises(ValueError, match="^d_tree: found an array on a GPU that must be copied, .* contiguous, and all others$"):
        function(*change(move, arguments), **options, target="gpu")


def test_rows_with_gaps_between_their_elements():
    q, k, v = tensors(0)
    wide = DeviceTensor(np.zeros((1, 2, 37, 128)), strides=(2 * 37 * 128, 37 * 128, 128, 2))
    wide.shape[3] = 64
    with pytest.raises(ValueError, match="^v: found an array on a GPU that must be copied, needed one whose last axis is contiguous$"):
        dense(q, k, wide)
    with pytest.raises(ValueError, match=r"^out\[0\]: found an array that is unaligned or has gaps"):
        dense(q, k, v, out=[wide, None])
