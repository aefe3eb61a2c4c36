# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Bad input: what is raised, and that it names the argument, what was found and
what is needed."""

import copy
import functools
import inspect
import math
import pickle
import re
import resource

import ml_dtypes
import numpy as np
import pytest
from conftest import make, make_biases, make_weights
from test_compile import DENSE, identity

import fovea


def fails(call, *parts, error=ValueError):
    with pytest.raises(error) as info:
        call()
    for part in parts:
        assert part in str(info.value), str(info.value)


# ----------------------------------------------------------------------------
# Caches
# ----------------------------------------------------------------------------


@pytest.mark.parametrize("copies", [pickle.dumps, copy.copy, copy.deepcopy])
def test_caches_are_saved_and_forked(copies):
    weights = make_weights(16, 4, 1, 8)
    for cache in fovea.KVCache(1, 1, 8, capacity=4), fovea.PagedCache(2, 4, 1, 8), fovea.MultipoleCache(weights, weights, group=4, heads=1):
        call = functools.partial(copies, cache)
        fails(call, f"{type(cache).__name__}: found a cache to pickle", "save(path)", "fork()", error=TypeError)


# ----------------------------------------------------------------------------
# Dense
# ----------------------------------------------------------------------------

q, k, v = make(H=4, G=2, N=12, M=20, D=16, E=8)

DENSE_ERRORS = {
    "rank of q": (dict(q=q[0]), "q: found rank 3, needed rank 4 [B,H,N,D]"),
    "rank of v": (dict(v=v[None]), "v: found rank 5, needed rank 4"),
    "batch": (dict(k=np.concatenate([k, k])), "k: found batch 2, needed 1"),
    "head count": (
        dict(k=k[:, [0, 1, 0]], v=v[:, [0, 1, 0]]),
        "k: found 3 heads, needed a divisor of the 4 heads of q",
    ),
    "no heads": (dict(k=k[:, :0], v=v[:, :0]), "k: found 0 heads"),
    "head counts of k and v": (dict(v=v[:, :1]), "v: found head count 1, needed 2"),
    "head width": (dict(k=k[..., :15]), "k: found head width 15, needed 16"),
    "no width": (dict(q=q[..., :0], k=k[..., :0]), "q: found width 0"),
    "length": (dict(v=v[:, :, :19]), "v: found length 19, needed 20"),
    "type": (
        dict(k=k.astype(np.float64)),
        "k: found element type float64, needed float32",
    ),
    "integers": (dict(q=q.astype(np.int32)), "q: found element type int32", "bfloat16"),
    "complex": (dict(v=v.astype(np.complex64)), "v: found element type complex64"),
    "objects": (dict(v=v.astype(object)), "v: found element type object"),
    "text": (dict(v=v.astype(str)), "v: found element type <U32"),
    "list": (dict(q=q.tolist()), "q: found list, needed a NumPy array", "__dlpack__"),
    "None": (dict(k=None), "k: found NoneType"),
    "scale NaN": (dict(scale=math.nan), "scale: found nan, needed a finite number"),
    "scale infinite": (dict(scale=math.inf), "scale: found inf"),
    "scale text": (dict(scale="1"[:0]), "scale: found ''"),
    "window negative": (
        dict(window=-1),
        "window: found -1, needed an integer of at least 0",
    ),
    "window fraction": (dict(window=1.5), "window: found 1.5"),
    "window bool": (dict(window=True), "window: found True"),
    "log_weight": (
        dict(log_weight=np.zeros((1, 2, 19), np.float32)),
        "log_weight: found shape [1, 2, 19], needed one that broadcasts to [1, 2, 20]",
    ),
    "log_weight rank": (
        dict(log_weight=np.zeros((1, 1, 2, 20), np.float32)),
        "log_weight: found rank 4",
    ),
    "log_weight type": (
        dict(log_weight=np.zeros((1, 2, 20), np.float64)),
        "log_weight: found element type float64, needed float32",
    ),
    "log_weight list": (dict(log_weight=[0.0] * 20), "log_weight: found list"),
    "bias": (
        dict(bias=np.zeros((20, 12), np.float32)),
        "bias: found shape [1, 1, 20, 12], needed one that broadcasts to [1, 4, 12, 20]",
    ),
    "bias type": (
        dict(bias=np.zeros((12, 20), np.int64)),
        "bias: found element type int64",
    ),
    "target": (
        dict(target="tpu"),
        "target: found 'tpu', needed 'cpu', 'reference', 'gpu' or 'gpu-sim'",
    ),
    "target None": (dict(target=None), "target: found None"),
}


@pytest.mark.parametrize("case", DENSE_ERRORS)
def test_dense(case):
    changes, *parts = DENSE_ERRORS[case]
    options = {**dict(q=q, k=k, v=v), **changes}
    # Again: nothing of a call that failed is kept.
    for _ in range(2):
        fails(lambda: fovea.dense(**options), *parts)


def test_score_terms_of_half_types():
    arrays = make("float16")
    bias = np.zeros((37, 37), np.float64)
    fails(
        lambda: fovea.dense(*arrays, bias=bias),
        "bias: found element type float64, needed float16 or float32",
    )


def test_types_that_packages_add():
    """One that is read is not taken for another afterwards."""
    narrow = q.astype(ml_dtypes.bfloat16)
    expected = fovea.dense(narrow, narrow, narrow)
    for type in (ml_dtypes.float8_e4m3fn, ml_dtypes.int4):
        with pytest.raises(ValueError, match=f"k: found element type {np.dtype(type)}, needed bfloat16"):
            fovea.dense(narrow, q.astype(type), narrow)
        assert np.array_equal(fovea.dense(narrow, narrow, narrow), expected)


def test_extents_near_the_limit():
    # Memory of one element, extents of many: the output alone would not fit.
    wide = np.broadcast_to(np.float32(0), (2**20, 1, 2**20, 2**20))
    small = np.broadcast_to(np.float32(0), (2**20, 1, 1, 2**20))
    with pytest.raises((fovea.FoveaError, MemoryError, ValueError)):
        fovea.dense(wide, small, small, target="reference")


def test_what_no_process_can_address():
    needed = "no process can address 2^47 bytes"
    wide = np.broadcast_to(np.float32(0), (1, 2, 20, 2**42))
    fails(lambda: fovea.dense(q, k, wide), "has rows of 4398046511104 columns", error=fovea.FoveaError)
    heads = np.broadcast_to(q[:, :1], (1, 2**42, *q.shape[2:]))
    fails(lambda: fovea.dense(heads, k, v), "'tensor<?x4398046511104x?x16xf32>'", needed, error=fovea.FoveaError)


def test_memory_for_a_copy():
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (2**38, before[1]))
    try:
        # From the last column to the first.
        many = [np.broadcast_to(array, (2**30, *array.shape[1:]))[..., ::-1] for array in (q, k, v)]
        needed = "argument 0 (%q) of @dense: found an array that must be copied"
        fails(lambda: fovea.dense(*many), needed, error=MemoryError)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


# ----------------------------------------------------------------------------
# Fast multipole
# ----------------------------------------------------------------------------

mq, mk, mv = make(H=4, G=2, N=60, D=16, E=8)
kw = make_weights(60, 8, 4, 16)
vw = make_weights(60, 8, 4, 8)
kb = make_biases(60, 8, 4, 16)
vb = make_biases(60, 8, 4, 8)


def changed(arrays, index, array):
    return [*arrays[:index], array, *arrays[index + 1 :]]


MULTIPOLE_ERRORS = {
    "length": (dict(k=mk[:, :, :59], v=mv[:, :, :59]), "k: found length 59, needed 60"),
    "group": (dict(group=0), "group: found 0, needed an integer of at least 1"),
    "group negative": (dict(group=-8), "group: found -8"),
    "group fraction": (dict(group=8.0), "group: found 8.0"),
    "too few levels": (
        dict(key_weights=kw[:1]),
        "key_weights: found 1 levels, needed 2 for 60 tokens in groups of 8",
    ),
    "too many levels": (
        dict(value_weights=[*vw, vw[0]]),
        "value_weights: found 3 levels, needed 2",
    ),
    "no list": (dict(key_weights=3), "key_weights: found int, needed a list of 2 arrays"),
    "None": (dict(value_weights=None), "value_weights: found NoneType, needed a list"),
    "list of text": (dict(key_weights="ab"), "key_weights[0]: found str"),
    "interval": (
        dict(key_weights=changed(kw, 1, kw[0])),
        "key_weights[1]: found interval 8, needed 16",
    ),
    "rank": (
        dict(value_weights=make_weights(60, 8, 2, 8)),
        "value_weights[0]: found rank p = 2, needed 4",
    ),
    "rank does not divide": (
        dict(
            key_weights=make_weights(60, 8, 3, 16),
            value_weights=make_weights(60, 8, 3, 8),
        ),
        "group: found 8, needed a multiple of the rank p = 3",
    ),
    "rank zero": (dict(key_weights=[w[:, :0] for w in kw]), "rank p = 0"),
    "width": (
        dict(value_weights=make_weights(60, 8, 4, 16)),
        "value_weights[0]: found width 16, needed 8",
    ),
    "W": (
        dict(key_weights=make_weights(60, 8, 4, 16, W=3)),
        "key_weights[0]: found W = 3, needed 1 or a divisor of the 2 heads of k",
    ),
    "type": (
        dict(key_weights=[w.astype(np.float64) for w in kw]),
        "key_weights[0]: found element type float64, needed float32",
    ),
    "dimensions": (
        dict(key_weights=[w[0] for w in kw]),
        "key_weights[0]: found rank 3, needed rank 4 [w,P,i,D]",
    ),
    "biases": (dict(key_biases=kb[:1]), "key_biases: found 1 levels, needed 2"),
    "bias shape": (
        dict(value_biases=kb),
        "value_biases[0]: found shape (1, 4, 16), needed (1, 4, 8)",
    ),
    "bias type": (
        dict(value_biases=[b.astype(np.float16) for b in vb]),
        "value_biases[0]: found element type float16, needed float32",
    ),
    "scale": (dict(scale=-math.inf), "scale: found -inf"),
    "target": (dict(target="tpu"), "target: found 'tpu', needed 'cpu', 'reference', 'gpu' or 'gpu-sim'"),
}


@pytest.mark.parametrize("case", MULTIPOLE_ERRORS)
@pytest.mark.parametrize("linear", [False, True], ids=["full", "linear"])
def test_fast_multipole(case, linear):
    changes, *parts = MULTIPOLE_ERRORS[case]
    options = dict(q=mq, k=mk, v=mv, key_weights=kw, value_weights=vw, group=8)
    options.update(changes)
    if linear:
        options["query_weights"] = options["key_weights"]
        # The first to be looked at.
        parts = [part.replace("key_weights", "query_weights", 1) for part in parts]
        parts = [part.replace("heads of k", "heads of q").replace("[w,", "[u,") for part in parts]
        if case == "W":
            parts = ["query_weights[0]: found W = 3, needed 1 or a divisor of the 4"]
        if case == "rank":
            parts = ["value_weights[0]: found rank p = 2"]
    function = fovea.fast_multipole_linear if linear else fovea.fast_multipole
    for _ in range(2):
        fails(lambda: function(**options), *parts)


def test_causal_linear_needs_the_flag():
    arrays = (mq, mk, mv, kw, kw, vw)
    fails(
        lambda: fovea.fast_multipole_linear(*arrays, group=8, causal=True),
        "causal: found True without allow_query_lookahead",
    )
    options = dict(group=8, causal=True, allow_query_lookahead=True, target="reference")
    assert fovea.fast_multipole_linear(*arrays, **options).shape == mv[:, [0] * 4].shape


# ----------------------------------------------------------------------------
# Compiling
# ----------------------------------------------------------------------------


def test_diagnostics_of_the_parser():
    fails(
        lambda: fovea.compile("func.func @f( { return }"),
        "<kernel>:1:",
        "error: expected",
        error=fovea.FoveaError,
    )


def test_diagnostics_of_the_verifier():
    text = DENSE.replace("mask<causal>", "mask<causal>, scale = 0x7FF8000000000000 : f64")
    fails(
        lambda: fovea.compile(text, entry="attend"),
        "attribute 'scale' failed to satisfy constraint",
        error=fovea.FoveaError,
    )


@pytest.mark.parametrize("text", ["", "garbage", "\0", "module {", "}" * 1000, "é" * 50])
def test_garbage(text):
    fails(lambda: fovea.compile(text), error=fovea.FoveaError)


@pytest.mark.parametrize("brackets", ["module {}", "tuple<>", "[]", "()"])
def test_text_that_is_too_deep(brackets):
    opening, closing = brackets[:-1], brackets[-1]
    deep, before = opening * 20000 + closing * 20000, "" if "m" in opening else "module attributes {a = "
    text = before + deep + ("} {}" if before else "")
    fails(lambda: fovea.compile(text), "expected brackets nested at most 1000 deep", error=fovea.FoveaError)
    # Strings, comments, arrows and comparisons are no brackets.
    long = '{ %s = arith.constant {a = "' + "<" * 2000 + '"} 1 : i1'
    assert fovea.compile("// " + "{" * 2000 + "\n" + identity("f32").replace("{", long, 1))


def test_missing_entry():
    fails(
        lambda: fovea.compile(DENSE, entry="nowhere"),
        "no entry function '@nowhere'",
        "@other, @attend",
        error=fovea.FoveaError,
    )


def test_unknown_processor():
    fails(
        lambda: fovea.compile(identity("f32"), cpu="z80"), "z80", error=fovea.FoveaError
    )


def test_arguments_of_compile():
    text = identity("f32")
    fails(lambda: fovea.compile(text, target="tpu"), "found 'tpu', needed 'cpu'")
    fails(lambda: fovea.compile(text, target=3), "target: found 3")
    fails(lambda: fovea.compile(text.encode()), "text: found bytes")
    fails(lambda: fovea.compile(text, cpu=None), "cpu: found None")
    fails(lambda: fovea.compile(text, entry=1), "entry: found 1")


def test_failures_are_not_kept():
    for _ in range(2):
        fails(lambda: fovea.compile("garbage"), error=fovea.FoveaError)


# ----------------------------------------------------------------------------
# Calling
# ----------------------------------------------------------------------------


def test_wrong_inputs():
    kernel = fovea.compile(identity("tensor<2x3xf32>", "tensor<?xi64>", "i8"))
    good = (np.zeros((2, 3), np.float32), np.zeros(4, np.int64), 1)
    kernel(*good)
    for index, wrong, *parts in (
        (0, np.zeros((2, 4), np.float32), "(%a0) of @f", "extent 3 in dimension 1", "4"),
        (0, np.zeros(6, np.float32), "rank 2", "got rank 1"),
        (0, np.zeros((2, 3)), "elements of type f32, but got f64"),
        (0, [[0.0] * 3] * 2, "(%a0)", "found list, needed a NumPy array"),
        (0, 3.0, "(%a0)", "found float"),
        (0, b"abcdef", "(%a0)", "i8"),
        (1, np.zeros((), np.int64), "(%a1)", "rank 1"),
        (1, None, "(%a1)", "found NoneType"),
        (2, 128, "argument 2 (%a2) of @f: found 128, needed an integer of 8 bits"),
        (2, 1.5, "(%a2)", "found 1.5"),
        (2, "1", "(%a2)", "found '1'"),
        (2, 2**64, "(%a2)", "integer of 8 bits"),
    ):
        inputs = list(good)
        inputs[index] = wrong
        fails(functools.partial(kernel, *inputs), *parts)
    fails(lambda: kernel(*good[:2]), "@f expects 3 arguments, but got 2", "tensor<2x3xf32>")
    fails(lambda: kernel(*good, 1), "but got 4")
    with pytest.raises(TypeError):
        kernel(*good, out=None)


def test_dynamic_extents_that_do_not_fit():
    kernel = fovea.compile(DENSE, entry="attend")
    queries, keys, values = make(N=5, M=7)
    fails(
        lambda: kernel(queries, keys, values[:, :, :6].copy(), np.zeros_like(queries)),
        "(%v) of @attend",
        "6",
        "7",
    )


class OnOtherDevice:
    def __dlpack__(self, **options):
        raise BufferError("this array cannot be exported")

    def __dlpack_device__(self):
        return (2, 0)


def test_dlpack_that_fails():
    fails(
        lambda: fovea.dense(OnOtherDevice(), k, v),
        "q: found OnOtherDevice that cannot be read through DLPack: BufferError: this array cannot be exported",
    )


# ----------------------------------------------------------------------------
# Threads
# ----------------------------------------------------------------------------


@pytest.mark.parametrize("count", [-1, 4097, 2**31, 2**80, 1.5, "2", None])
def test_number_of_threads(count):
    before = fovea.num_threads()
    fails(lambda: fovea.set_num_threads(count), str(count).strip("'"))
    assert fovea.num_threads() == before


def test_public_functions_say_what_they_take():
    """The shapes of their own arrays, or of those that they are like."""
    assert "ValueError" in fovea.__doc__ and "FoveaError" in fovea.__doc__
    assert fovea.FoveaError.__doc__.startswith("A failure of the compiler")
    settings = {
        "capture", "clear_cache", "compile", "explain", "gpu_stream", "import_jax", "import_onnx", "import_torch", "load",
        "num_threads", "set_num_threads", "set_shapes", "shapes",
    }  # fmt: skip
    for name in set(fovea.__all__) - settings:
        value = getattr(fovea, name)
        if inspect.isfunction(value):
            text = inspect.getdoc(value)
            assert re.search(r"\[[A-Z]|\blike |\bshape |\bAs `|\bgradient of `", text), f"{name}: {text}"
