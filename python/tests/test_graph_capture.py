# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which functions a CUDA graph can hold, with a driver that pretends: while a stream captures, it notes every
call of which no graph can hold any.  Kernels do nothing."""

import ctypes
import dataclasses
import inspect
import os

import numpy as np
import pytest
from call_cases import FUNCTIONS, B, case
from test_device_arrays import CUDA, Tensor, new_capsule, runtime

import fovea

# Kernels with these letters in their names are in every module.
os.environ["FAKE_CUDA_KERNELS"] = "_kernel"
STREAM = 0x7000
CODES = {"i": 0, "u": 1, "f": 2, "b": 6}


def capture(stream):
    """Begins or, with None, ends a capture; the calls that no graph can hold since the last one."""
    driver = ctypes.CDLL(os.environ["FOVEA_FAKE_CUDA"])
    driver.fakeCudaCapture.restype = ctypes.c_char_p
    return driver.fakeCudaCapture(ctypes.c_void_p(stream)).decode()


def count_copies_to_host():
    driver = ctypes.CDLL(os.environ["FOVEA_FAKE_CUDA"])
    driver.fakeCudaCount.restype = ctypes.c_size_t
    return driver.fakeCudaCount(b"cuMemcpyDtoHAsync_v2")


class DeviceArray:
    """A copy of an array on a GPU."""

    def __init__(self, values):
        values = np.array(values, order="C")
        pointer = ctypes.c_void_p()
        assert runtime().fovea_rt_gpu_acquire(0, ctypes.c_int64(values.nbytes), ctypes.byref(pointer)) == 0
        ctypes.memmove(pointer.value, values.ctypes.data, values.nbytes)
        self.dtype = values.dtype
        self.shape = (ctypes.c_int64 * values.ndim)(*values.shape)
        code, bits = CODES[values.dtype.kind], 8 * values.itemsize
        self.tensor = Tensor(pointer.value, CUDA, 0, values.ndim, code, bits, 1, self.shape, None)

    def __len__(self):
        return self.shape[0]

    def __dlpack_device__(self):
        return CUDA, 0

    def __dlpack__(self, *, stream=None):
        return new_capsule(ctypes.addressof(self.tensor), b"dltensor", None)


def to_device(value):
    """`value` with all arrays in it on the GPU."""
    if isinstance(value, np.ndarray):
        return DeviceArray(value)
    if isinstance(value, fovea.Source):
        arrays = {name: DeviceArray(each) for name, each in vars(value).items() if isinstance(each, np.ndarray)}
        return dataclasses.replace(value, **arrays)
    if isinstance(value, fovea.VQState):
        return fovea.VQState(*(DeviceArray(np.asarray(each)) for each in value))
    if isinstance(value, fovea.tree.Tree):
        return fovea.tree.Tree(to_device(value.nodes), None, value.ratio, value.levels)
    # Lists of nodes.
    if isinstance(value, list) and value and all(isinstance(each, int) for each in value):
        return DeviceArray(np.array(value))
    if isinstance(value, (list, tuple)):
        return type(value)(to_device(each) for each in value)
    if isinstance(value, dict):
        return {name: to_device(each) for name, each in value.items()}
    return value


def call(name, **more):
    """A call of a function with all of its arrays on the GPU."""
    function, arguments, options = case(name, "float32")
    options.update(more)
    # Functions for arrays take no truth values on a GPU.
    for mask in ("mask", "query_mask", "key_mask"):
        if isinstance(options.get(mask), np.ndarray):
            del options[mask]
    arguments, options = to_device(tuple(arguments)), to_device(options)

    def run():
        with fovea.gpu_stream(STREAM):
            function(*arguments, **options, target="gpu")

    return run


#: The host reads where sequences begin, unless it is told the longest ones.
LISTS = {"varlen", "varlen_backward"}
#: Gradients that fovea.torch alone adds up.
OF_TORCH = {"hca_backward"}
HOST = "an array lies in host memory"
#: What no graph can hold, with the reason.
REFUSED = {
    "commitment_loss_backward": HOST,
    # A state that is made when there is none.
    "vq_decode": HOST,
}  # fmt: skip


def check_in_a_graph(run, refusal=None):
    run()
    assert capture(STREAM) == ""
    try:
        if refusal:
            with pytest.raises(fovea.FoveaError, match=refusal + ", which a CUDA graph that is being captured cannot hold"):
                run()
        else:
            run()
    finally:
        faults = capture(None)
    assert faults == ""


@pytest.mark.parametrize("name", sorted(set(FUNCTIONS) - LISTS - OF_TORCH))
def test_functions_in_a_graph(name):
    check_in_a_graph(call(name), REFUSED.get(name))


WITH_TOKENS = [name for name in sorted(set(FUNCTIONS) - OF_TORCH) if "lengths" in inspect.signature(getattr(fovea, name)).parameters]


@pytest.mark.parametrize("kind", [np.int32, np.int64])
@pytest.mark.parametrize("name", sorted(set(WITH_TOKENS) - {"paged", "vq", "vq_backward", "vq_decode"}))
def test_lengths_of_tokens_in_a_graph(name, kind):
    """Kernels make masks of them."""
    check_in_a_graph(call(name, lengths=np.array([7] * B, kind)), REFUSED.get(name))


def test_lengths_of_vq_in_a_graph():
    """Codes have -1 instead."""
    q, k, v = (to_device(np.zeros((2, 2, 37, 24), np.float32)) for _ in range(3))
    codebook, lengths = DeviceArray(np.zeros((2, 5, 24), np.float32)), DeviceArray(np.array([7, 37]))
    assert in_a_graph(fovea.vq, q, k, v, codebook, block=8, lengths=lengths) == ""


def test_the_driver_notices_what_no_graph_can_hold():
    capture(STREAM)
    runtime().fovea_rt_gpu_wait(0)
    assert capture(None) == "cuCtxSynchronize"


def test_a_first_call_cannot_be_in_a_graph():
    q, k, v = (to_device(np.zeros((1, 3, 53, 40), np.float32)) for _ in range(3))

    def run():
        with fovea.gpu_stream(STREAM):
            fovea.dense(q, k, v, target="gpu")

    capture(STREAM)
    with pytest.raises(fovea.FoveaError, match="is not loaded, which a CUDA graph .* call the function once before"):
        run()
    assert capture(None) == ""
    run()


def test_arrays_of_the_host_cannot_be_in_a_graph():
    q, k, v = np.zeros((3, 1, 2, 37, 24), np.float32)
    capture(STREAM)
    with (
        pytest.raises(fovea.FoveaError, match="an array lies in host memory, which a CUDA graph that is being captured cannot hold"),
        fovea.gpu_stream(STREAM),
    ):
        fovea.dense(q, k, v, target="gpu")
    assert capture(None) == ""


def test_a_function_as_a_score_cannot_be_in_a_graph():
    function, arguments, options = case("tree_select", "float32")
    options["score"] = lambda rows, level: np.zeros((B, 5), np.float32)
    arguments = to_device(tuple(arguments))
    capture(STREAM)
    try:
        with (
            pytest.raises(fovea.FoveaError, match="score: found a function, which the host calls, and which a CUDA graph"),
            fovea.gpu_stream(STREAM),
        ):
            function(*arguments, **options, target="gpu")
    finally:
        assert capture(None) == ""


def in_a_graph(function, *arguments, **options):
    """A call on a stream that captures, after one that does not; what the driver noticed."""

    def run():
        with fovea.gpu_stream(STREAM):
            function(*arguments, **options, target="gpu")

    run()
    assert capture(STREAM) == ""
    try:
        run()
    finally:
        faults = capture(None)
    return faults


@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_codes_in_a_graph(kind):
    """Kernels narrow codes of 64 bits, wherever their rows lie."""
    q, k, v = (to_device(np.zeros((1, 2, 37, 24), np.float32)) for _ in range(3))
    codebook, rows = DeviceArray(np.zeros((2, 5, 24), np.float32)), DeviceArray(np.zeros((1, 1, 37, 2), kind))
    codes = DeviceArray(np.zeros((1, 2, 37), kind))
    out, lse = (DeviceArray(np.zeros(shape, np.float32)) for shape in ((1, 2, 37, 24), (1, 2, 37)))
    sums, counts = (DeviceArray(np.zeros(shape, np.float32)) for shape in ((2, 5, 24), (2, 5)))
    assert in_a_graph(fovea.selected, q, k, v, rows) == ""
    assert in_a_graph(fovea.vq, q, codes, v, codebook, block=8, return_state=True) == ""
    assert in_a_graph(fovea.vq_backward, v, q, codes, v, codebook, out, lse, block=8) == ""
    assert in_a_graph(fovea.codebook_update, k, codes, sums, counts) == ""


@pytest.mark.parametrize("kind", [np.int32, np.int64])
@pytest.mark.parametrize("tokens", [1, 3])
def test_pages_in_a_graph(tokens, kind):
    """Kernels read the table and lengths, of sequences of any length that it has places for, and rows of a wider table."""
    pages = to_device([np.zeros((9, 2, 8, 24), np.float32)] * 2)
    q, lengths, queries = to_device((np.zeros((2, 4, tokens, 24), np.float32), np.array([37, 0], kind), np.array([tokens, 1], kind)))
    table = DeviceArray(np.zeros((2, 11), kind))
    assert in_a_graph(fovea.paged, q, *pages, table, lengths, query_lengths=queries) == ""
    narrower = DeviceArray(np.zeros((2, 11), kind))
    narrower.shape[1] = 6
    narrower.tensor.strides = (ctypes.c_int64 * 2)(11, 1)
    assert in_a_graph(fovea.paged, q, *pages, narrower, lengths) == ""


@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_lengths_that_no_host_reads(kind):
    """Outside of a graph, too, with the longest one."""
    pages = to_device([np.zeros((9, 2, 8, 24), np.float32)] * 2)
    q, lengths, queries = to_device((np.zeros((2, 4, 3, 24), np.float32), np.array([37, 0], kind), np.array([3, 1], kind)))
    table = DeviceArray(np.zeros((2, 11), kind))

    def copies(**options):
        with fovea.gpu_stream(STREAM):
            fovea.paged(q, *pages, table, lengths, query_lengths=queries, target="gpu", **options)
            before = count_copies_to_host()
            fovea.paged(q, *pages, table, lengths, query_lengths=queries, target="gpu", **options)
        return count_copies_to_host() - before

    assert copies(max_length=40) == 0
    assert copies() > 0


DECODING = {
    "codes": {}, "codes of 64 bits": {"kind": np.int64}, "keys": {"kind": np.float32}, "absent tokens": {"padded": True},
    "one block": {"memory": 0}, "several blocks": {"memory": 3}, "bias": {"bias": True}, "squared relu": {"weighting": "squared_relu"},
    "parts": {"block": 300}, "absent tokens in parts": {"block": 300, "padded": True},
}  # fmt: skip


def with_a_state(case, tokens):
    """Arguments and options of a call with a state on the device."""
    options = {"block": 8, "memory": 1, "kind": np.int32, "bias": False, **DECODING[case]}
    kind, kept = options.pop("kind"), (options["memory"] + 1) * options["block"]
    numbers = {"q": (1, 4, tokens, 16), "v": (1, 2, tokens, 24), "codebook": (2, 5, 16), "mean": (1, 2, 5, 24), "values": (1, 2, kept, 24)}
    q, v, codebook, mean, values = (DeviceArray(np.zeros(shape, np.float32)) for shape in numbers.values())
    k = DeviceArray(np.zeros((1, 2, tokens, 16) if kind is np.float32 else (1, 2, tokens), kind))
    count, codes = (DeviceArray(np.zeros(shape, np.int32)) for shape in ((1, 2, 5), (1, 2, kept)))
    state = fovea.VQState(mean, count, codes, values, DeviceArray(np.array(11)))
    if options.pop("bias"):
        options["bias"] = DeviceArray(np.zeros((1, 4, tokens, kept), np.float32))
    return (q, k, v, codebook), state, options


@pytest.mark.parametrize("case", DECODING)
def test_decoding_in_a_graph(case):
    """Kernels read the position of the state."""
    arguments, state, options = with_a_state(case, 1)
    assert in_a_graph(fovea.vq_decode, *arguments, state, **options) == ""


@pytest.mark.parametrize("case", DECODING)
@pytest.mark.parametrize("tokens", [2, 9, 70])
def test_windows_in_a_graph(tokens, case):
    """From a state, as tokens are verified and long prompts computed: the cache has as many entries as a window needs
    wherever it begins, and no loop of the host adds up blocks."""
    arguments, state, options = with_a_state(case, tokens)
    assert in_a_graph(fovea.vq, *arguments, state=state, return_state=True, **options) == ""


@pytest.mark.parametrize("case", sorted(set(DECODING) - {"keys"}))
@pytest.mark.parametrize("tokens", [1, 9, 70])
def test_gradients_of_windows_in_a_graph(tokens, case):
    (q, k, v, codebook), state, options = with_a_state(case, tokens)
    out, lse = DeviceArray(np.zeros((1, 4, tokens, 24), np.float32)), DeviceArray(np.zeros((1, 4, tokens), np.float32))
    sums = (None, None) if "weighting" in options else (out, lse)
    mean, _, _, values, _ = state
    kept = DeviceArray(np.zeros((*values.shape[:3], 16), np.float32))
    for d_next_state in (None, fovea.VQStateGradient(mean, kept, values)):
        options["d_next_state"] = d_next_state
        assert in_a_graph(fovea.vq_backward, out, q, k, v, codebook, *sums, state=state, **options) == ""


def dense_with_lengths(q, k, v, lengths, queries, **options):
    return fovea.dense(q, k, v, lengths=lengths, query_lengths=queries, **options)


def stream_with_lengths(q, k, v, lengths, queries, target, **options):
    return fovea.stream(q, [fovea.Source(k, v, lengths=lengths, **options)], query_lengths=queries, target=target)


def lengths_in_a_graph(function, kind, **options):
    """A call with lengths on the GPU, on a stream that captures; what the driver noticed."""
    q, k, v = (to_device(np.zeros((2, 1, 37, 24), np.float32)) for _ in range(3))
    lengths, queries = (DeviceArray(np.array(each, kind)) for each in ([37, 5], [2, 37]))
    return in_a_graph(function, q, k, v, lengths, queries, **options)


WITH_LENGTHS = [dense_with_lengths, stream_with_lengths]


@pytest.mark.parametrize("kind", [np.int32, np.int64])
@pytest.mark.parametrize("function", WITH_LENGTHS)
def test_lengths_in_a_graph(function, kind):
    assert lengths_in_a_graph(function, kind) == ""


@pytest.mark.parametrize("function", WITH_LENGTHS)
def test_lengths_beside_segments_in_a_graph(function):
    """Functions in Python give documents as a condition that reads lengths on the device."""
    segments = tuple(DeviceArray(np.zeros((2, 37), np.int32)) for _ in range(2))
    assert lengths_in_a_graph(function, np.int32, segments=segments) == ""


def test_longest_sequences_in_a_graph():
    """Kernels read and check where packed sequences begin, and which pages there are, of the lengths that the caller tells."""
    q, k, v = (to_device(np.zeros((37, heads, 24), np.float32)) for heads in (4, 2, 2))
    starts, options = DeviceArray(np.array([0, 20, 37])), {"max_q": 20, "max_k": 37, "causal": True}
    assert in_a_graph(fovea.varlen, q, k, v, starts, starts, return_lse=True, **options) == ""
    lse = DeviceArray(np.zeros((4, 37), np.float32))
    assert in_a_graph(fovea.varlen_backward, q, q, k, v, starts, starts, q, lse, d_lse=lse, **options) == ""
    with pytest.raises(fovea.FoveaError, match="the host reads cu_seqlens, which a CUDA graph .* cannot hold: give max_q and max_k"):
        in_a_graph(fovea.varlen, q, k, v, starts, starts)
