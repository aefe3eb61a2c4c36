# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Arrays whose rows are contiguous, wherever they lie, are read and written there."""

import dataclasses
import subprocess
import sys

import numpy as np
import pytest
from call_cases import FUNCTIONS, case
from conftest import TYPES, check

import fovea
from fovea import reference


def spread(array):
    """The same numbers in memory of another order and with gaps between rows, which hold NaNs."""
    order = (*range(1, array.ndim - 1), 0, array.ndim - 1)
    extents = [array.shape[axis] + 1 for axis in order[:-1]] + [array.shape[-1] + 3]
    whole = np.full(extents, np.nan if array.dtype.kind not in "iub" else 77).astype(array.dtype)
    view = whole[tuple(slice(1, None) for _ in order[:-1]) + (slice(2, -1),)]
    view = view.transpose(np.argsort(order))
    view[...] = array
    return view


def scatter(array):
    """The same numbers in memory that a kernel cannot read rows of."""
    whole = np.repeat(array, 2, axis=-1)
    return whole[..., ::2]


def change(change_array, value):
    """`value` with all arrays in it changed."""
    if isinstance(value, np.ndarray):
        return change_array(value) if value.ndim > 1 else value
    if isinstance(value, fovea.VQState):
        return value._make(change(change_array, each) for each in value)
    if isinstance(value, list | tuple):
        return [change(change_array, each) for each in value]
    if isinstance(value, dict):
        return {name: change(change_array, each) for name, each in value.items()}
    if isinstance(value, fovea.Source):
        arrays = ("k", "v", "log_weight", "bias")
        return dataclasses.replace(value, **{name: change(change_array, getattr(value, name)) for name in arrays})
    if isinstance(value, fovea.Tree):
        counts = None if value.counts is None else change_array(value.counts)
        return fovea.Tree(change_array(value.nodes), counts, value.ratio, value.levels)
    return value


def leaves(value):
    """All arrays of a result, in order."""
    if isinstance(value, fovea.Tree):
        value = value.nodes, value.counts
    if isinstance(value, list | tuple):
        return [leaf for each in value for leaf in leaves(each)]
    return [] if value is None else [np.asarray(value)]


def same(found, expected):
    found, expected = leaves(found), leaves(expected)
    assert len(found) == len(expected) > 0
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape and one.dtype == other.dtype
        assert one.tobytes() == other.tobytes()


def test_spread():
    array = np.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5)
    found = spread(array)
    assert np.array_equal(found, array) and not found.flags.c_contiguous
    assert found.strides[-1] == found.itemsize
    assert spread(array[0, 0]).strides[-1] == found.itemsize
    with pytest.raises(AssertionError):
        same(array, found + 1)


#: Pages are read where they lie, which is not anywhere: see test_paged.py.
SPREAD = [name for name in FUNCTIONS if name != "paged"]


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("name", SPREAD)
def test_same_bits_as_contiguous(name, type):
    function, arguments, options = case(name, type)
    expected = function(*arguments, **options)
    assert all(np.isfinite(leaf.astype(float)).any() for leaf in leaves(expected))
    # Functions write to some of their arguments.
    function, arguments, options = case(name, type)
    found = function(*change(spread, arguments), **change(spread, options))
    same(found, expected)


# Fewer queries than a task copies keys for, as many, and several tasks; queries that read nothing.
@pytest.mark.parametrize("shapes", ["static", "dynamic"])
@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("queries, keys, options", [
    (255, 131, {}),
    (257, 131, {}),
    (300, 5, {}),
    (300, 1, {"causal": True}),
    (320, 320, {"causal": True}),
    (1031, 70, {"causal": True}),
    (300, 517, {"causal": True, "window": 100}),
    (600, 600, {"window": 9}),
])  # fmt: skip
def test_many_queries_on_copied_rows(queries, keys, options, type, shapes):
    numbers = np.random.default_rng(3)
    q, k, v = (
        numbers.standard_normal((2, heads, tokens, width)).astype(type)
        for heads, tokens, width in ((4, queries, 17), (2, keys, 17), (2, keys, 33))
    )
    fovea.set_shapes(shapes)
    try:
        expected = fovea.dense(q, k, v, return_lse=True, **options)
        found = fovea.dense(spread(q), spread(k), spread(v), return_lse=True, **options)
        one_copied = fovea.dense(q, k, spread(v), return_lse=True, **options)
    finally:
        fovea.set_shapes("auto")
    same(found, expected)
    same(one_copied, expected)


def swap(array):
    """The same numbers in `[B,M,H,D]` memory, which holds NaNs behind the last row."""
    batch, heads, rows, width = array.shape
    whole = np.full((batch, rows + 20, heads, width), np.nan).astype(array.dtype)
    whole[:, :rows] = array.swapaxes(1, 2)
    return whole[:, :rows].swapaxes(1, 2)


# Parts of the keys; heads in several tasks, the last ones fewer; pieces and tiles that are not whole; queries that read nothing;
# more rows of a head than go through keys together.
@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("batch, heads, group, queries, keys, widths, shapes, options", [
    (1, 8, 1, 1, 4421, (64, 64), "static", {}),
    (4, 9, 4, 1, 700, (128, 64), "dynamic", {"causal": True}),
    (5, 3, 8, 1, 337, (128, 128), "static", {"window": 200}),
    (4, 19, 1, 3, 131, (20, 72), "dynamic", {"causal": True, "window": 40}),
    (4, 5, 2, 3, 2, (64, 64), "static", {"causal": True}),
    (4, 2, 5, 3, 77, (64, 96), "static", {"causal": True}),
    (5, 4, 3, 2, 300, (64, 64), "dynamic", {"lengths": np.array([300, 0, 19, 7, 150])}),
])  # fmt: skip
def test_few_queries_on_heads_between_each_other(batch, heads, group, queries, keys, widths, shapes, options, type):
    numbers = np.random.default_rng(4)

    def make(heads, rows, width):
        return numbers.standard_normal((batch, heads, rows, width)).astype(TYPES[type])

    q, k, v = make(heads * group, queries, widths[0]), make(heads, keys, widths[0]), make(heads, keys, widths[1])
    sink = numbers.standard_normal((1, heads * group)).astype("float64" if type == "float64" else "float32")
    options = {**options, "sink": sink, "return_lse": True}
    expected = reference.dense(q, k, v, **options)
    if queries > 1 and "causal" in options:
        # Only the last query reads them.
        v[:, :, -1, 3] = np.inf
    fovea.set_shapes(shapes)
    try:
        first = fovea.dense(q, k, v, **options)
        for threads in (1, 0):
            fovea.set_num_threads(threads)
            same(fovea.dense(q, swap(k), swap(v), **options), first)
        same(fovea.dense(q, swap(k), v, **options), first)
    finally:
        fovea.set_num_threads(0)
        fovea.set_shapes("auto")
    read = slice(0, queries if np.isfinite(v.astype(float)).all() else -1)
    check(tuple(each[:, :, read] for each in first), tuple(each[:, :, read] for each in expected), type)


# Packed sequences are the CPU's.
@pytest.mark.parametrize("name", [name for name in SPREAD if not name.startswith("varlen")])
def test_reference_reads_them_as_well(name):
    function, arguments, options = case(name, "float32")
    expected = function(*arguments, **options, target="reference")
    function, arguments, options = case(name, "float32")
    same(function(*change(spread, arguments), **change(spread, options), target="reference"), expected)


def test_compiled_functions():
    kernel = fovea.compile(
        """
!rows = memref<2x4x7x5xf32, strided<[?, ?, ?, 1]>>
func.func @copy(%x: tensor<2x4x7x5xf32> {bufferization.buffer_layout = strided<[?, ?, ?, 1]>}, %y: !rows) {
  bufferization.materialize_in_destination %x in writable %y : (tensor<2x4x7x5xf32>, !rows) -> ()
  return
}"""
    )
    x = np.arange(280, dtype=np.float32).reshape(2, 4, 7, 5)
    y = spread(np.zeros_like(x))
    kernel(spread(x), y)
    assert np.array_equal(x, y)
    # Read from a copy, but never written to one.
    kernel(scatter(-x), y)
    assert np.array_equal(-x, y)
    with pytest.raises(ValueError, match=r"argument 1 \(%y\) of @copy: found an array with gaps"):
        kernel(x, scatter(y))
    with pytest.raises(ValueError, match="memory of its own for each element"):
        kernel(x, np.lib.stride_tricks.as_strided(y, y.shape, (0, *y.strides[1:])))


# Has memory to compile in, but none for a copy of one of the arrays, 256 MB each, of whose
# pages most are never touched.
PROGRAM = """
import resource, sys
import numpy as np
import fovea

fovea.set_num_threads(1)
tokens = 2**18

def make(heads):
    shape = (1, heads, 64, tokens) if sys.argv[1] == "scattered" else (1, tokens, heads, 64)
    return np.zeros(shape, np.float32).transpose((0, 1, 3, 2) if sys.argv[1] == "scattered" else (0, 2, 1, 3))

q, k, v, x = np.zeros((1, 4, 1, 64), np.float32), make(4), make(4), make(4)
out = np.empty((1, tokens, 4, 64), np.float32).transpose(0, 2, 1, 3)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 200 * 2**20, resource.getrlimit(resource.RLIMIT_AS)[1]))
try:
    fovea.dense(q, k, v) if sys.argv[2] == "dense" else fovea.rope(x, np.arange(tokens), out=out)
    print("in place")
except MemoryError:
    print("copied")
"""


@pytest.mark.parametrize("function", ["dense", "rope"])
@pytest.mark.parametrize("arrays, expected", [("rows", "in place"), ("scattered", "copied")])
def test_memory(arrays, expected, function):
    command = [sys.executable, "-c", PROGRAM, arrays, function]
    process = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert process.returncode == 0, process.stderr
    assert process.stdout.strip() == expected
