# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""fovea.compile: signatures, calls and what goes in and out of them."""

import ast
import inspect
from pathlib import Path

import numpy as np
import pytest
from conftest import BFLOAT16, TYPES, check, make

import fovea
from fovea import _fovea, reference

DENSE = """
func.func @other(%x: tensor<4xf32>) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}

func.func @attend(%q: tensor<1x2x?x16xf32>, %k: tensor<1x2x?x16xf32>,
                  %v: tensor<1x2x?x16xf32>, %init: tensor<1x2x?x16xf32>)
    -> tensor<1x2x?x16xf32> {
  %out = attn.dense ins(%q, %k, %v : tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>,
                        tensor<1x2x?x16xf32>)
      outs(%init : tensor<1x2x?x16xf32>) {mask = #attn.mask<causal>} -> tensor<1x2x?x16xf32>
  return %out : tensor<1x2x?x16xf32>
}
"""


def identity(*types):
    """A function that returns its arguments."""
    parameters = ", ".join(f"%a{index}: {type}" for index, type in enumerate(types))
    values = ", ".join(f"%a{index}" for index in range(len(types)))
    results = ", ".join(types)
    return f"func.func @f({parameters}) -> ({results}) {{ return {values} : {results} }}"


def test_dynamic_shapes(target):
    kernel = fovea.compile(DENSE, target=target, entry="attend")
    for N, M in ((5, 5), (37, 64), (130, 130)):
        q, k, v = make(N=N, M=M)
        init = np.zeros_like(q)
        init.flags.writeable = False
        check(kernel(q, k, v, init), reference.dense(q, k, v, causal=True))
        assert not init.any()


def test_attributes(target):
    kernel = fovea.compile(DENSE, target=target, entry="@attend")
    assert isinstance(kernel, fovea.Kernel) and callable(kernel)
    assert kernel.name == "attend"
    assert kernel.signature == (
        "(%q: tensor<1x2x?x16xf32>, %k: tensor<1x2x?x16xf32>, %v: tensor<1x2x?x16xf32>, "
        "%init: tensor<1x2x?x16xf32>) -> (tensor<1x2x?x16xf32>)"
    )
    assert repr(kernel) == f"<fovea.Kernel @attend{kernel.signature}>"
    assert 0 < kernel.compile_seconds < 60
    assert kernel.cpu not in ("", "native")
    assert isinstance(kernel.diagnostics, str)
    with pytest.raises(AttributeError):
        kernel.name = "other"


def test_entry_is_the_first_public_function():
    assert fovea.compile(DENSE).name == "other"
    private = identity("i32").replace("@f", "private @p")
    assert fovea.compile(private + identity("f64")).name == "f"


def test_other_processor():
    kernel = fovea.compile(DENSE, cpu="x86-64", entry="attend")
    assert kernel.cpu == "x86-64"
    q, k, v = make()
    check(kernel(q, k, v, np.zeros_like(q)), reference.dense(q, k, v, causal=True))


def test_same_text_compiles_once():
    fovea.clear_cache()
    before = _fovea.cache_statistics()
    kernels = [fovea.compile(identity("tensor<3xf32>")) for _ in range(3)]
    size, hits, misses, _ = _fovea.cache_statistics()
    assert (size, hits - before[1], misses - before[2]) == (1, 2, 1)
    fovea.clear_cache()
    assert np.array_equal(kernels[0](np.ones(3, np.float32)), np.ones(3))


ARRAYS = {
    "f16": np.float16,
    "bf16": BFLOAT16,
    "f32": np.float32,
    "f64": np.float64,
    "i1": np.bool_,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
    "index": np.int64,
}


@pytest.mark.parametrize("element", ARRAYS)
def test_arrays_of_all_types(element):
    kernel = fovea.compile(identity(f"tensor<2x3x{element}>"))
    array = np.array([[0, 1, 1], [1, 0, 1]]).astype(ARRAYS[element])
    for given in (array, np.asfortranarray(array)):
        found = kernel(given)
        assert found.dtype == array.dtype
        assert np.array_equal(found, array)
        # A copy: whoever changes the result does not change the argument.
        assert not np.shares_memory(found, given)


def test_unsigned_integers_keep_their_bits():
    kernel = fovea.compile(identity("tensor<2xi8>"))
    assert kernel(np.array([255, 1], np.uint8)).tolist() == [-1, 1]


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (1, 1), (2, 3, 4, 5, 6)])
def test_ranks(shape):
    extents = "".join(f"{extent}x" for extent in shape)
    kernel = fovea.compile(identity(f"tensor<{extents}f32>"))
    array = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    array = np.asarray(array, np.float32)
    found = kernel(array)
    assert found.shape == shape and np.array_equal(found, array)


SCALARS = {
    "f64": [0.1, -3, np.float32(0.5), np.float64(np.inf)],
    "f32": [0.5, np.float64(2.0)],
    "f16": [0.5, -65504.0],
    "bf16": [0.5, 2.0**100],
    "i64": [-(2**63), 2**63 - 1, np.int8(-3)],
    "i32": [-(2**31), 2**31 - 1],
    "i8": [-128, 127],
    "i1": [True, False, 1, 0, np.True_, np.False_],
    "index": [7],
}


@pytest.mark.parametrize("element", SCALARS)
def test_scalars(element):
    kernel = fovea.compile(identity(element))
    for value in SCALARS[element]:
        found = kernel(value)
        assert found == value
        kind = float if "f" in element else bool if element == "i1" else int
        assert type(found) is kind


def test_several_results_and_none():
    kernel = fovea.compile(identity("tensor<2xf32>", "i32", "tensor<f64>"))
    first, second, third = kernel(np.ones(2, np.float32), 5, np.array(2.5))
    assert first.tolist() == [1, 1] and second == 5 and third == 2.5
    assert fovea.compile("func.func @f() { return }")() is None


WRITES = """
func.func @fill(%a: memref<2x3xf32>, %x: f32) {
  linalg.fill ins(%x : f32) outs(%a : memref<2x3xf32>)
  return
}
"""


def test_arguments_that_are_written():
    kernel = fovea.compile(WRITES, target="reference")
    array = np.zeros((2, 3), np.float32)
    kernel(array, 4.0)
    assert (array == 4).all()
    # A copy would lose what is written, so these do not pass.
    for wrong in (
        np.zeros((3, 2), np.float32).T,
        np.zeros((2, 3), ">f4"),
        np.zeros(25, np.uint8)[1:].view(np.float32).reshape(2, 3),
        # Whole rows, but columns that are not whole elements apart.
        np.zeros((2, 3), "f4,u1")["f0"],
    ):
        with pytest.raises(ValueError, match="contiguous"):
            kernel(wrong, 4.0)
        assert not wrong.any()
    array = np.zeros((2, 3), np.float32)
    array.flags.writeable = False
    with pytest.raises(ValueError, match="writable"):
        kernel(array, 4.0)
    assert not array.any()


def test_stubs_name_everything():
    stubs = ast.parse(Path(_fovea.__file__).with_name("_fovea.pyi").read_text())
    names = {
        node.name if hasattr(node, "name") else node.target.id
        for node in stubs.body
        if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.AnnAssign))
    }
    found = {name for name in vars(_fovea) if not name.startswith("__")}
    # Those of the stub's `__getattr__` are functions of the package, and one helper.
    others = found - names
    assert names == (found - others) | {"__getattr__"}
    assert others - set(fovea.__all__) == {"tree_check"}
    (kernel,) = [node for node in stubs.body if getattr(node, "name", "") == "Kernel"]
    members = {node.name for node in kernel.body if isinstance(node, ast.FunctionDef)}
    found = {name for name in vars(_fovea.Kernel) if not name.startswith("_")}
    assert members == found | {"__call__"}


def test_everything_public_is_documented():
    assert len(set(fovea.__all__)) == len(fovea.__all__)
    for name in fovea.__all__:
        assert hasattr(fovea, name)
        if name != "TARGETS":
            assert inspect.getdoc(getattr(fovea, name))
    with pytest.raises(ValueError) as error:
        fovea.quantize(np.zeros((1, 1, 1, 1), np.int32), np.zeros((1, 1, 1)))
    assert set(TYPES) == set(str(error.value).partition("needed one of ")[2].split(", "))


def test_rows_past_two_to_the_31() -> None:
    # Four gigabytes of address space, of which only the last rows are ever touched:
    # positions, offsets and masks have to be 64 bits wide.
    rows, read, width = 2**31 + 64, 40, 1
    keys = f"tensor<1x1x{rows}x{width}xf16>"
    queries = f"tensor<1x1x3x{width}xf16>"
    kernel = fovea.compile(
        f"""func.func @far(%q: {queries}, %k: {keys}) -> {queries} {{
  %init = tensor.empty() : {queries}
  %out = attn.stream query(%q : {queries})
      source(%k, %k : {keys}, {keys})
          ranges [affine_map<(b)[rows, n] -> (rows - {read}, rows)>] mask <causal>
      outs(%init : {queries}) {{scale = 1.0 : f64}} -> {queries}
  return %out : {queries}
}}"""
    )
    k = np.zeros((1, 1, rows, width), np.float16)
    rng = np.random.default_rng(3)
    k[0, 0, rows - read :] = rng.standard_normal((read, width))
    q = rng.standard_normal((1, 1, 3, width)).astype(np.float16)
    out = kernel(q, k)
    for i in range(3):
        seen = k[0, 0, rows - read : rows - 2 + i].astype(np.float64)
        scores = seen @ q[0, 0, i].astype(np.float64)
        weights = np.exp(scores - scores.max())
        expected = weights @ seen / weights.sum()
        assert np.abs(out[0, 0, i] - expected).max() < 2e-3
