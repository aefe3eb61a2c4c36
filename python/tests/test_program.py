# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs of files, and constants beside them."""

import json

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file

import fovea
from fovea import _import_tool, _program

TEXT = """
func.func @main(%w: tensor<3x4xf32>, %b: tensor<4xbf16>, %x: tensor<2x3xf32>) -> (tensor<2x4xf32>, tensor<4xbf16>) {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<2x4xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<2x4xf32>) -> tensor<2x4xf32>
  %0 = linalg.matmul ins(%x, %w : tensor<2x3xf32>, tensor<3x4xf32>) outs(%init : tensor<2x4xf32>) -> tensor<2x4xf32>
  return %0, %b : tensor<2x4xf32>, tensor<4xbf16>
}
func.func @twice(%x: tensor<5xf32>) -> tensor<5xf32> {
  %0 = arith.addf %x, %x : tensor<5xf32>
  return %0 : tensor<5xf32>
}
"""
RNG = np.random.default_rng(0)
W, X = RNG.standard_normal((3, 4), np.float32), RNG.standard_normal((2, 3), np.float32)


@pytest.fixture
def model(tmp_path):
    """A file with a module, and its first two arguments beside it."""
    path = tmp_path / "model.mlir"
    path.write_text(TEXT)
    constants = {"layer.w": W, "layer.b": np.arange(4).astype(ml_dtypes.bfloat16)}
    _program.write_constants(path.with_suffix(".safetensors"), constants, ["x"])
    return path


def test_load(tmp_path):
    path = tmp_path / "model.mlir"
    path.write_text(TEXT)
    program = fovea.load(path, entry="twice")
    assert np.array_equal(program(np.arange(5, dtype=np.float32)), 2 * np.arange(5))
    assert program.kernel.name == "twice" and not program.constants
    for found in ([np.zeros(4, np.float32)], [np.zeros(5)], []):
        with pytest.raises(ValueError):
            program(*found)


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_constants_beside(model, target):
    program = fovea.load(str(model), target=target)
    for found, b in (program(X), program(x=X)):
        assert np.allclose(found, X @ W, atol=1e-6) and np.array_equal(b.astype(int), np.arange(4))
    assert [*program.constants] == ["layer.w", "layer.b"] and program.names == ("x",)
    assert not program.constants["layer.w"].flags.writeable


def test_arguments_of_a_program(model):
    program = fovea.load(model)
    with pytest.raises(ValueError, match="inputs: found 2 arrays, needed 1: x"):
        program(X, X)
    with pytest.raises(ValueError, match="inputs: found y, needed x"):
        program(y=X)
    with pytest.raises(ValueError, match="inputs: found x, needed none by name"):
        program(X, x=X)


def test_other_tools_read_the_constants(model):
    found = load_file(model.with_suffix(".safetensors"))
    assert np.array_equal(found["layer.w"], W)


@pytest.mark.parametrize(
    "text, message",
    [
        ("func.func @main(%x: tensor<4xf32>) {\n", ":1:37: error"),
        (TEXT[: TEXT.index("x, %w")], ":6:"),
        ("func.func @main() {\n  return %x : f32\n}\n", ":2:10: error: use of undeclared SSA value"),
        ("func.func @main() {\n  other.op\n  return\n}\n", ":2:3: error: Dialect `other' not found"),
        ("\x00", "found a zero byte at offset 0"),
        ("", "no function to compile"),
        ('"builtin.module"() ({\n' * 50, ":50:22: error"),
    ],
)
def test_modules_that_are_none(tmp_path, text, message):
    path = tmp_path / "model.mlir"
    path.write_text(text)
    with pytest.raises((ValueError, fovea.FoveaError)) as found:
        fovea.load(path)
    assert message in str(found.value)
    assert str(path) in str(found.value)


def test_files_that_are_no_text(tmp_path):
    path = tmp_path / "model.mlir"
    path.write_bytes(b"ML\xefR" + bytes(range(128, 256)))
    with pytest.raises(ValueError, match="model.mlir: found a byte that is no text at offset 2"):
        fovea.load(path)
    with pytest.raises(FileNotFoundError):
        fovea.load(tmp_path / "other.mlir")


def _header(entry):
    return json.dumps({"__metadata__": {"fovea.arguments": "[]"}, "w": entry}).encode()


BAD_ENTRY = "model.safetensors: w: found"
BAD_CONSTANTS = [
    (b"", "needed 8 and a header"),
    (b"\xff" * 8, "needed 8 and a header"),
    ((20).to_bytes(8, "little") + b"{", "needed 8 and a header"),
    ((2).to_bytes(8, "little") + b"{}", "found no list of constants"),
    ((2).to_bytes(8, "little") + b"[]", "found no list of constants"),
    ((9).to_bytes(8, "little") + b"\xff" * 9, "found no list of constants"),
    *(
        (len(_header(entry)).to_bytes(8, "little") + _header(entry) + bytes(48), BAD_ENTRY)
        for entry in (
            {"dtype": "F32", "shape": [3, 4], "data_offsets": [0, 47]},
            {"dtype": "F32", "shape": [3, 5], "data_offsets": [0, 60]},
            {"dtype": "F32", "shape": [3, 4], "data_offsets": [-48, 0]},
            {"dtype": "F32", "shape": [2**63, 2**63], "data_offsets": [0, 48]},
            {"dtype": "F8", "shape": [48], "data_offsets": [0, 48]},
            {"dtype": "F32", "shape": None, "data_offsets": 3},
            7,
        )
    ),
]


@pytest.mark.parametrize("content, message", BAD_CONSTANTS)
def test_constants_that_are_none(model, content, message):
    beside = model.with_suffix(".safetensors")
    beside.write_bytes(content)
    with pytest.raises(ValueError) as found:
        fovea.load(model)
    assert message in str(found.value) and str(beside) in str(found.value)


@pytest.mark.parametrize(
    "constants, names, message",
    [
        ({"w": W}, ["x"], "found 1 constants and 1 names of inputs, needed those of @main.%w: tensor<3x4xf32>, .*: is it of another"),
        ({"w": W, "b": W[0], "c": W, "d": W}, [], "found 4 constants and 0 names of inputs, needed those of @main"),
        ({"w": W[:2], "b": W[0]}, ["x"], r"found w of shape \[2, 4\], needed those of @main"),
        ({"w": W, "b": W}, ["x"], r"found b of shape \[3, 4\], needed those of @main"),
    ],
)
def test_constants_of_another_module(model, constants, names, message):
    _program.write_constants(model.with_suffix(".safetensors"), constants, names)
    with pytest.raises(ValueError, match=f"model.safetensors: {message}"):
        fovea.load(model)


@pytest.mark.parametrize(
    "types, message",
    [
        (["uint8"], r"found types of 1 results, needed those of \(tensor<2x4xf32>, tensor<4xbf16>\): is it of another module"),
        (["int8"], r'found types of results \["int8"\], needed a list of complex128, complex64, uint16, uint32, uint64, uint8 and V'),
    ],
)
def test_types_of_other_results(model, types, message):
    _program.write_constants(model.with_suffix(".safetensors"), {"w": W, "b": W[0]}, ["x"], types)
    with pytest.raises(ValueError, match=f"model.safetensors: {message}"):
        fovea.load(model)


def test_import_beside_constants_of_another_module(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.mlir").write_text(TEXT)
    (tmp_path / "y.safetensors").write_bytes(b"")
    assert _import_tool.main(["x.mlir", "-o", "y.mlir"]) == 1
    assert "--output: found 'y.safetensors' of another module" in capsys.readouterr().err


def test_truncated_constants(model):
    beside = model.with_suffix(".safetensors")
    beside.write_bytes(beside.read_bytes()[:-1])
    with pytest.raises(ValueError, match="layer.b: found"):
        fovea.load(model)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["model.pt", "-o", "x.mlir"], "source: found 'model.pt', needed FILE.py:FUNCTION, FILE.onnx or FILE.mlir"),
        (["none.py:make", "-o", "x.mlir"], "none.py: found no file, needed one with a function make"),
        (["none.py:make", "-o", "x.txt"], "--output: found 'x.txt', needed a file that ends in .mlir"),
    ],
)
def test_errors_of_the_command(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert _import_tool.main(arguments) == 1
    printed = capsys.readouterr().err
    assert printed.startswith("fovea-import: error: ") and message in printed
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    "arguments, content, message",
    [
        (["x.py:make", "-o", "y.mlir"], b"x = 1\ndef f(:\n", "x.py:2: SyntaxError: invalid syntax"),
        (["x.py:make", "-o", "y.mlir"], b"def make():\n    return {}['key']\n", "x.py:2: KeyError: 'key'"),
        (["x.py:make", "-o", "y.mlir"], b"\0", "x.py: SyntaxError: source code string cannot contain null bytes"),
        (["x.py:make", "-o", "y.mlir"], b"", "x.py: found no function make"),
        (["x.mlir", "-o", "y.mlir"], b"a\xff", "x.mlir: found a byte that is no text at offset 1, needed a module as text"),
        (["x.mlir", "-o", "x.mlir"], b"", "--output: found 'x.mlir', which is the source, needed another file"),
    ],
)
def test_errors_of_sources(arguments, content, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    source = tmp_path / arguments[0].split(":")[0]
    source.write_bytes(content)
    assert _import_tool.main(arguments) == 1
    assert capsys.readouterr().err == f"fovea-import: error: {message}\n"
    assert [*tmp_path.iterdir()] == [source] and source.read_bytes() == content
