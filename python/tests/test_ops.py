# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The attention functions against the NumPy references."""

import inspect
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from conftest import BFLOAT16, TYPES, check, make, make_biases, make_weights

import fovea
from fovea import _fovea, reference


@pytest.mark.parametrize("name", ["dense", "fast_multipole", "fast_multipole_linear"])
def test_signatures_are_those_of_the_reference(name):
    found = inspect.signature(getattr(fovea, name)).parameters
    expected = inspect.signature(getattr(reference, name)).parameters
    # Lengths are masks, what is not admitted has a score of minus infinity, and the reference has no
    # memory, layouts or targets.
    more = ["lengths", "admit", "segments", "layout", "out", "target"]
    assert expected.keys() <= found.keys() <= {*expected, *more}
    for key, parameter in expected.items():
        assert found[key].default == parameter.default
        assert found[key].kind == parameter.kind
    assert found["target"].default == "cpu"


# ----------------------------------------------------------------------------
# Dense
# ----------------------------------------------------------------------------

DENSE_CASES = {
    "plain": ({}, {}),
    "one row": ({"N": 1}, {}),
    "causal": ({}, {"causal": True}),
    "causal, more keys": ({"N": 9, "M": 40}, {"causal": True}),
    "causal, more queries": ({"N": 40, "M": 9}, {"causal": True}),
    "window": ({}, {"window": 5}),
    "window of nothing": ({}, {"window": 0}),
    "window beyond everything": ({}, {"window": 2**40}),
    "causal window": ({}, {"causal": True, "window": 7}),
    "scale": ({}, {"scale": -1e-5}),
    "grouped queries": ({"H": 6, "G": 2, "B": 2}, {"causal": True}),
    "one key head": ({"H": 4, "G": 1}, {}),
    "odd widths": ({"D": 20, "E": 7}, {}),
    "no keys": ({"M": 0}, {"causal": True}),
    "ragged": ({"N": 131, "M": 259, "D": 64}, {"causal": True}),
}


@pytest.mark.parametrize("case", DENSE_CASES)
def test_dense(case, target):
    sizes, options = DENSE_CASES[case]
    arrays = make(**sizes)
    found = fovea.dense(*arrays, **options, return_lse=True, target=target)
    check(found, reference.dense(*arrays, **options, return_lse=True))
    out = fovea.dense(*arrays, **options, target=target)
    assert np.array_equal(out, found[0])


@pytest.mark.parametrize("type", TYPES)
def test_dense_types(type, target):
    arrays = make(type, H=4, N=70, D=32)
    found = fovea.dense(*arrays, causal=True, return_lse=True, target=target)
    check(found, reference.dense(*arrays, causal=True, return_lse=True), type)


@pytest.mark.parametrize("type", ["float32", "bfloat16", "float64"])
@pytest.mark.parametrize("state", [False, True], ids=["data type", "state type"])
def test_dense_score_terms(type, state, target):
    arrays = make(type, B=2, H=4, G=2, N=21, M=30)
    rng = np.random.default_rng(5)
    term_type = TYPES["float32"] if state and type != "float64" else TYPES[type]
    log_weight = rng.standard_normal((2, 2, 30)).astype(term_type)
    log_weight[0, 0, 3] = -np.inf
    bias = rng.standard_normal((2, 4, 21, 30)).astype(term_type)
    options = {"log_weight": log_weight, "bias": bias}
    found = fovea.dense(*arrays, **options, return_lse=True, target=target)
    check(found, reference.dense(*arrays, **options, return_lse=True), type)


@pytest.mark.parametrize("log_weight", [(30,), (2, 1), (1, 1, 30), (2, 1, 30), ()])
@pytest.mark.parametrize("bias", [(21, 30), (30,), (1, 4, 1, 30), (2, 1, 21, 1), ()])
def test_dense_score_terms_broadcast(log_weight, bias):
    arrays = make(B=2, H=4, G=2, N=21, M=30)
    rng = np.random.default_rng(5)
    options = {
        "log_weight": rng.standard_normal(log_weight).astype(np.float32),
        "bias": rng.standard_normal(bias).astype(np.float32),
    }
    options = {key: np.asarray(value, np.float32) for key, value in options.items()}
    found = fovea.dense(*arrays, **options)
    check(found, reference.dense(*arrays, **options))


# ----------------------------------------------------------------------------
# Fast multipole
# ----------------------------------------------------------------------------

MULTIPOLE_CASES = {
    # (sizes, group, rank, options)
    "no levels": ({"N": 16}, 8, 2, {}),
    "one level": ({"N": 32}, 8, 2, {"causal": True}),
    "three levels": ({"N": 128}, 8, 4, {}),
    "causal": ({"N": 128}, 8, 4, {"causal": True}),
    "ragged": ({"N": 101}, 8, 4, {"causal": True}),
    "ragged, all keys": ({"N": 77}, 8, 4, {}),
    "grouped queries": ({"N": 64, "H": 4, "G": 2, "B": 2}, 8, 1, {"causal": True}),
    "odd widths": ({"N": 64, "D": 12, "E": 20}, 8, 2, {}),
    "scale": ({"N": 64}, 8, 2, {"scale": 0.5}),
}


def make_multipole(sizes, m, p, W=1, biases=False, type="float32", linear=False):
    q, k, v = make(type, **sizes)
    N, D, E = q.shape[2], q.shape[3], v.shape[3]
    widths = (D, D, E) if linear else (D, E)
    weights = [
        make_weights(N, m, p, width, W, type, seed=index)
        for index, width in enumerate(widths)
    ]
    names = ("query_biases", "key_biases", "value_biases")[-len(widths) :]
    options = {"group": m}
    if biases:
        for index, (name, width) in enumerate(zip(names, widths)):
            options[name] = make_biases(N, m, p, width, W, type, seed=10 + index)
    return [q, k, v, *weights], options


@pytest.mark.parametrize("case", MULTIPOLE_CASES)
def test_fast_multipole(case, target):
    sizes, m, p, options = MULTIPOLE_CASES[case]
    arrays, more = make_multipole(sizes, m, p)
    options = {**options, **more, "return_lse": True}
    found = fovea.fast_multipole(*arrays, **options, target=target)
    check(found, reference.fast_multipole(*arrays, **options))


@pytest.mark.parametrize("W", [1, 2])
@pytest.mark.parametrize("multiplicity", [True, False])
def test_fast_multipole_biases(W, multiplicity, target):
    arrays, options = make_multipole({"N": 75}, 8, 4, W=W, biases=True)
    options = {**options, "multiplicity": multiplicity, "return_lse": True}
    found = fovea.fast_multipole(*arrays, **options, target=target)
    check(found, reference.fast_multipole(*arrays, **options))


@pytest.mark.parametrize("type", TYPES)
def test_fast_multipole_types(type, target):
    arrays, options = make_multipole({"N": 75, "D": 32}, 8, 4, type=type)
    found = fovea.fast_multipole(*arrays, **options, return_lse=True, target=target)
    check(found, reference.fast_multipole(*arrays, **options, return_lse=True), type)


@pytest.mark.parametrize("case", MULTIPOLE_CASES)
def test_fast_multipole_linear(case, target):
    sizes, m, p, options = MULTIPOLE_CASES[case]
    arrays, more = make_multipole(sizes, m, p, linear=True)
    options = {**options, **more, "allow_query_lookahead": True}
    found = fovea.fast_multipole_linear(*arrays, **options, target=target)
    check(found, reference.fast_multipole_linear(*arrays, **options))


@pytest.mark.parametrize("W", [1, 2])
def test_fast_multipole_linear_biases(W, target):
    arrays, options = make_multipole({"N": 75}, 8, 4, W=W, biases=True, linear=True)
    found = fovea.fast_multipole_linear(*arrays, **options, target=target)
    check(found, reference.fast_multipole_linear(*arrays, **options))


def test_levels_may_come_from_any_iterable():
    (q, k, v, kw, vw), options = make_multipole({"N": 64}, 8, 2)
    expected = fovea.fast_multipole(q, k, v, kw, vw, **options, target="reference")
    for make_iterable in (tuple, iter, lambda weights: (w for w in weights)):
        found = fovea.fast_multipole(
            q, k, v, make_iterable(kw), make_iterable(vw), **options, target="reference"
        )
        assert np.array_equal(found, expected)


# ----------------------------------------------------------------------------
# Empty results
# ----------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [{"B": 0}, {"N": 0, "M": 5}, {"H": 0}, {"N": 0}])
@pytest.mark.parametrize("type", ["float32", "float64", "bfloat16"])
def test_empty_results(sizes, type, target):
    q, k, v = make(type, **{"D": 16, "E": 8, **sizes})
    out, lse = fovea.dense(q, k, v, causal=True, return_lse=True, target=target)
    assert out.shape == (*q.shape[:3], 8) and out.dtype == TYPES[type]
    assert lse.shape == q.shape[:3]
    assert lse.dtype == (np.float64 if type == "float64" else np.float32)
    if q.shape[2] == k.shape[2]:
        weights = [make_weights(q.shape[2], 8, 2, width, type=type) for width in (16, 8)]
        out = fovea.fast_multipole(q, k, v, *weights, group=8, target=target)
        assert out.shape == (*q.shape[:3], 8) and out.dtype == TYPES[type]


# ----------------------------------------------------------------------------
# Kinds of arrays
# ----------------------------------------------------------------------------


def strided(array):
    """An equal array whose elements lie elsewhere."""
    return np.asfortranarray(array)


def swapped_axes(array):
    """An equal array [B,H,N,D] in the memory of one [B,N,H,D]."""
    return np.ascontiguousarray(array.swapaxes(1, 2)).swapaxes(1, 2)


def reversed_memory(array):
    return np.ascontiguousarray(array[:, :, ::-1])[:, :, ::-1]


def broadcast(array):
    return np.broadcast_to(array[:1, :1, :1, :1], array.shape)


def sliced(array):
    wide = np.zeros((*array.shape[:-1], array.shape[-1] + 3), array.dtype)
    wide[..., 1:-2] = array
    return wide[..., 1:-2]


def misaligned(array):
    memory = np.zeros(array.nbytes + 1, np.uint8)
    view = memory[1:].view(array.dtype).reshape(array.shape)
    view[...] = array
    assert not view.flags.aligned or array.dtype == BFLOAT16
    return view


def offset(array):
    """An equal array that starts in the middle of a cache line."""
    memory = np.zeros(array.size + 3, array.dtype)
    memory[3:] = array.ravel()
    return memory[3:].reshape(array.shape)


LAYOUTS = [strided, swapped_axes, reversed_memory, broadcast, sliced, misaligned, offset]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("type", ["float32", "bfloat16", "float64"])
def test_layouts(layout, type):
    arrays = [layout(array) for array in make(type, B=2, H=4, G=2, N=19, M=23)]
    before = [array.copy() for array in arrays]
    contiguous = [np.ascontiguousarray(array) for array in arrays]
    found = fovea.dense(*arrays, causal=True)
    assert np.array_equal(found, fovea.dense(*contiguous, causal=True))
    for array, expected in zip(arrays, before):
        assert np.array_equal(array, expected)


@pytest.mark.parametrize("type", ["float32", "float16", "float64"])
def test_other_byte_order(type):
    arrays = make(type)
    other = [array.astype(array.dtype.newbyteorder()) for array in arrays]
    assert other[0].tobytes() != arrays[0].tobytes()
    found = fovea.dense(*other)
    assert found.dtype.isnative
    assert np.array_equal(found, fovea.dense(*arrays))


@pytest.mark.parametrize("type", TYPES)
def test_read_only_inputs(type, target):
    arrays = make(type)
    expected = fovea.dense(*arrays, target=target)
    for array in arrays:
        array.flags.writeable = False
    assert np.array_equal(fovea.dense(*arrays, target=target), expected)


def test_inputs_are_not_written(target):
    arrays, options = make_multipole({"N": 75}, 8, 4, biases=True)
    flat = [*arrays[:3], *arrays[3], *arrays[4], *options["key_biases"]]
    before = [array.copy() for array in flat]
    fovea.fast_multipole(*arrays, **options, target=target)
    for array, expected in zip(flat, before):
        assert np.array_equal(array, expected)


class OnlyDLPack:
    """An array that shows nothing but the protocol."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class DLPackWithShape(OnlyDLPack):
    shape = property(lambda self: tuple(self.array.shape))
    dtype = property(lambda self: str(self.array.dtype))


@pytest.mark.parametrize("wrap", [OnlyDLPack, DLPackWithShape])
@pytest.mark.parametrize("type", ["float32", "float16", "float64"])
def test_dlpack(wrap, type):
    arrays = make(type)
    expected = fovea.dense(*arrays)
    for _ in range(2):
        found = fovea.dense(*map(wrap, arrays))
        assert isinstance(found, np.ndarray)
        assert np.array_equal(found, expected)
    bias = np.random.default_rng(3).standard_normal((37, 37)).astype(arrays[0].dtype)
    if wrap is DLPackWithShape:
        found = fovea.dense(*arrays, bias=wrap(bias))
        assert np.array_equal(found, fovea.dense(*arrays, bias=bias))
    wrapped = [wrap(swapped_axes(array)) for array in arrays]
    assert np.array_equal(fovea.dense(*wrapped), expected)


def test_dlpack_levels():
    (q, k, v, kw, vw), options = make_multipole({"N": 64}, 8, 2)
    options["target"] = "reference"
    expected = fovea.fast_multipole(q, k, v, kw, vw, **options)
    found = fovea.fast_multipole(
        *map(OnlyDLPack, (q, k, v)),
        list(map(OnlyDLPack, kw)),
        iter(list(map(OnlyDLPack, vw))),
        **options,
    )
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("type", TYPES)
def test_torch(type):
    torch = pytest.importorskip("torch")
    arrays = make(type)
    tensors = [
        torch.from_numpy(array.astype(np.float32)).to(getattr(torch, type))
        for array in arrays
    ]
    if type == "float64":
        tensors = [torch.from_numpy(array) for array in arrays]
    expected = fovea.dense(*arrays)
    assert np.array_equal(fovea.dense(*tensors), expected)
    turned = [tensor.transpose(1, 2).contiguous().transpose(1, 2) for tensor in tensors]
    assert np.array_equal(fovea.dense(*turned), expected)
    tensors[0].requires_grad_()
    with pytest.raises(BufferError, match="grad"):
        fovea.dense(*tensors)


def test_bfloat16_without_ml_dtypes():
    # In a process of its own, where nothing has imported ml_dtypes yet.
    program = """
import sys
sys.modules["ml_dtypes"] = None
import fovea
kernel = fovea.compile(
    "func.func @f(%a: tensor<2xbf16>) -> tensor<2xbf16> { return %a : tensor<2xbf16> }")
try:
    kernel(None)
except ImportError as error:
    print(error)
"""
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert "pip install ml_dtypes" in result.stdout


def test_results_outlive_everything():
    arrays = make()
    out, lse = fovea.dense(*arrays, return_lse=True)
    expected, expected_lse = out.copy(), lse.copy()
    fovea.clear_cache()
    for seed in range(5):
        fovea.dense(*make(seed=seed), return_lse=True)
    assert np.array_equal(out, expected) and np.array_equal(lse, expected_lse)
    # Results are ordinary arrays.
    out += 1
    assert out.flags.writeable and out.flags.c_contiguous


# ----------------------------------------------------------------------------
# Cache and threads
# ----------------------------------------------------------------------------


def test_same_shapes_compile_once():
    fovea.clear_cache()
    arrays = make(N=11)
    for seed in range(3):
        fovea.dense(*make(N=11, seed=seed), causal=True)
    size, _, misses, _ = _fovea.cache_statistics()
    assert size == 1
    fovea.dense(*arrays, causal=False)
    fovea.dense(*arrays, causal=True)
    assert _fovea.cache_statistics()[0] == 2
    assert _fovea.cache_statistics()[2] == misses + 1
    fovea.clear_cache()
    assert _fovea.cache_statistics()[0] == 0


def test_calls_of_nothing_do_not_pile_up():
    fovea.clear_cache()
    # Nothing is compiled for these, and nothing kept; a test of the cache of kernels sees
    # that the oldest makes room.
    for N in range(10):
        fovea.dense(*make(B=0, N=N))
    assert _fovea.cache_statistics()[0] == 0


def run_in_threads(count, function):
    failures = []
    barrier = threading.Barrier(count)

    def body(index):
        try:
            barrier.wait()
            function(index)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=body, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_threads_share_one_compilation():
    fovea.clear_cache()
    before = _fovea.cache_statistics()[2]
    arrays = make(N=33)
    expected = reference.dense(*arrays)
    run_in_threads(8, lambda index: check(fovea.dense(*arrays), expected))
    assert _fovea.cache_statistics()[2] == before + 1


def test_threads_with_kernels_of_their_own():
    def body(index):
        arrays = make(N=20 + index, seed=index)
        expected = reference.dense(*arrays, causal=True)
        for _ in range(20):
            check(fovea.dense(*arrays, causal=True), expected)

    run_in_threads(6, body)


def test_python_runs_while_a_kernel_does():
    arrays = make(N=1500, H=2, D=64)
    fovea.dense(*arrays, target="reference", causal=True)
    done = threading.Event()
    ticks = 0

    def body():
        fovea.dense(*arrays, target="reference", causal=True)
        done.set()

    thread = threading.Thread(target=body)
    thread.start()
    # Were the lock of the interpreter held, this loop would wait for the kernel.
    while not done.wait(0.001):
        ticks += 1
    thread.join()
    assert ticks > 3


def test_child_processes():
    arrays = make(N=200, H=4)
    expected = fovea.dense(*arrays)
    child = os.fork()
    if child == 0:
        # The threads of the parent are not in the child.
        os._exit(0 if np.array_equal(fovea.dense(*arrays), expected) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert np.array_equal(fovea.dense(*arrays), expected)


def test_number_of_threads_does_not_matter():
    arrays = make(N=300, H=4)
    results = []
    try:
        for count in (1, 2, 5):
            fovea.set_num_threads(count)
            assert fovea.num_threads() == count
            results.append(fovea.dense(*arrays, causal=True))
    finally:
        fovea.set_num_threads(0)
    assert fovea.num_threads() >= 1
    assert np.array_equal(results[0], results[1])
    assert np.array_equal(results[0], results[2])
