# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs of files and of frontends: functions, and constants that lie beside them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from . import _fovea
from .compiler import compile

__all__ = ["Program", "import_jax", "import_onnx", "import_torch", "load"]

# Of safetensors.
_TYPES = {
    "BOOL": "bool", "BF16": "bfloat16", "F16": "float16", "F32": "float32", "F64": "float64",
    "I8": "int8", "I16": "int16", "I32": "int32", "I64": "int64", "U8": "uint8",
}  # fmt: skip
#: Of constants that may lie beside a module.
CONSTANT_TYPES = frozenset(_TYPES.values())
#: The key of what says that a file holds the first arguments of a function, in their order.
_MARK = "fovea.arguments"
#: The key of the types of results that a module leaves out.
_RESULTS = "fovea.results"
#: Those: a module says nothing of signs, and has complex numbers as pairs.
_LEFT_OUT = frozenset({"uint8", "uint16", "uint32", "uint64", "complex64", "complex128"})
_STATED = "V"
#: A longer header is none.
_MOST_HEADER_BYTES = 100_000_000


def _view(result: Any, type: Any) -> Any:
    if type.kind == "c":
        return result.view(type)[..., 0]
    return result.view(type) if type.kind == "u" else result


def list_left_out(names: Iterable[str]) -> list[str]:
    """Element types of results, where a module leaves them out."""
    return [each if each in _LEFT_OUT else _STATED for each in names]


class Program:
    """A compiled function of a module, whose first arguments may be constants.

    It is called with an array for each other argument, in their order or by their names
    where these are known, and returns what a `Kernel` does.
    """

    def __init__(
        self, text: str, kernel: _fovea.Kernel, constants: Mapping[str, Any], names: Sequence[str] = (), types: Sequence[Any] = ()
    ):
        #: The module as text.
        self.text = text
        #: The function with all its arguments.
        self.kernel = kernel
        #: What its first arguments are, by name.
        self.constants = constants
        #: Names of the others, where they are known.
        self.names = tuple(names)
        #: Element types of results, where the module leaves out which of its integers have no sign, and which pairs are complex.
        self.types = tuple(types)

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        if named:
            inputs = self._ordered(inputs, named)
        if self.names and len(inputs) != len(self.names):
            raise ValueError(f"inputs: found {len(inputs)} arrays, needed {len(self.names)}: {', '.join(self.names)}")
        found = self.kernel(*self.constants.values(), *inputs)
        if not any(np.dtype(each).kind in "uc" for each in self.types):
            return found
        results = found if isinstance(found, tuple) else (found,)
        results = tuple(_view(each, np.dtype(type)) for each, type in zip(results, self.types, strict=True))
        return results if isinstance(found, tuple) else results[0]

    def _ordered(self, inputs: Sequence[Any], named: Mapping[str, Any]) -> tuple[Any, ...]:
        rest = self.names[len(inputs) :]
        if set(named) != set(rest):
            found, needed = ", ".join(sorted(named)), ", ".join(rest) or "none by name"
            raise ValueError(f"inputs: found {found}, needed {needed}")
        return (*inputs, *(named[name] for name in rest))

    def __repr__(self) -> str:
        return f"Program({self.kernel.name}, {len(self.constants)} constants, inputs {list(self.names) or '...'})"


# ----------------------------------------------------------------------------
# Files
# ----------------------------------------------------------------------------


def _are_texts(found: Any) -> bool:
    return isinstance(found, list) and all(isinstance(each, str) for each in found)


def _read_constants(path: Path) -> tuple[dict[str, Any], list[str], list[Any]]:
    """The constants of a file, where they lie, names of other arguments, and types of results."""

    def refuse(what: str) -> ValueError:
        return ValueError(f"{path}: {what}")

    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, _MOST_HEADER_BYTES):
            raise refuse(f"found {size} bytes, needed 8 and a header of {length}")
        try:
            header = json.loads(file.read(length))
            metadata = header.pop("__metadata__")
            names, types = json.loads(metadata[_MARK]), json.loads(metadata.get(_RESULTS, "[]"))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise refuse("found no list of constants that fovea.import_torch has written") from None
    if not _are_texts(names):
        raise refuse("found names of arguments that are no list of texts")
    if not _are_texts(types) or not {*types} <= _LEFT_OUT | {_STATED}:
        raise refuse(f"found types of results {json.dumps(types)[:200]}, needed a list of {', '.join(sorted(_LEFT_OUT))} and {_STATED}")
    start = 8 + length
    data = np.memmap(path, np.uint8, mode="r", offset=start) if size > start else np.empty(0, np.uint8)
    constants = {}
    for name, entry in header.items():
        try:
            (first, last), shape = entry["data_offsets"], entry["shape"]
            type = _fovea.bfloat16() if entry["dtype"] == "BF16" else np.dtype(_TYPES[entry["dtype"]])
            count = int(np.prod([int(extent) for extent in shape], dtype=object)) if shape else 1
            is_right = 0 <= first <= last <= len(data) and last - first == count * type.itemsize
        except (KeyError, TypeError, ValueError):
            is_right = False
        if not is_right:
            raise refuse(f"{name}: found {json.dumps(entry)[:200]}, needed type, shape and place in {len(data)} bytes")
        constants[name] = data[first:last].view(type).reshape(shape)
    return constants, names, types


def write_constants(path: Path, constants: Mapping[str, Any], names: Sequence[str], types: Sequence[str] = ()) -> None:
    """Arrays in the order of arguments, in the format safetensors; `names` are those of other arguments, `types` those of results."""
    codes = {name: key for key, name in _TYPES.items()}
    header: dict[str, Any] = {"__metadata__": {_MARK: json.dumps(list(names)), _RESULTS: json.dumps(list(types))}}
    at = 0
    for name, array in constants.items():
        header[name] = {"dtype": codes[array.dtype.name], "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    encoded = json.dumps(header).encode()
    # Arrays begin where kernels read them in place.
    encoded += b" " * (-(8 + len(encoded)) % 64)
    with path.open("wb") as file:
        file.write(len(encoded).to_bytes(8, "little") + encoded)
        for array in constants.values():
            file.write(np.ascontiguousarray(array).tobytes())


def has_types_alone(path: Path) -> bool:
    """Whether a file beside a module has types of results and nothing else."""
    try:
        constants, names, _ = _read_constants(path)
    except ValueError:
        return False
    return not constants and not names


def write_types(path: Path, types: Sequence[str]) -> None:
    """Those of results, where a module leaves out any; otherwise there is no file."""
    if {*types} <= {_STATED}:
        path.unlink(missing_ok=True)
    else:
        write_constants(path, {}, [], types)


def read_module(path: Path) -> str:
    """The text of a file that has to be a module."""
    try:
        text = path.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: found a byte that is no text at offset {error.start}, needed a module as text") from None
    if "\0" in text:
        raise ValueError(f"{path}: found a zero byte at offset {text.index(chr(0))}, needed a module as text")
    return text


def load(path: str | os.PathLike[str], *, target: str = "cpu", cpu: str = "native", entry: str | None = None) -> Program:
    """Compiles a function of a file with a module in MLIR's textual form.

        program = fovea.load("model.mlir")
        logits = program(input_ids)

    Soft-max attention in linalg, as frontends write it, is raised.  Constants that
    `import_torch` has put beside the file, in one of the same name that ends in .safetensors,
    are the function's first arguments; they are mapped, not read.  `target`, `cpu` and `entry`
    are those of `compile`.  Errors of a module begin with the path, line and column.
    A file that ends in .onnx is imported as `import_onnx` does.
    """
    path = Path(path)
    if path.suffix == ".onnx":
        if entry not in (None, "main"):
            raise ValueError(f"entry: found {entry!r}, needed none: a model of ONNX is one function")
        return import_onnx(path, target=target, cpu=cpu)
    text = read_module(path)
    beside = path.with_suffix(".safetensors")
    constants, names, types = _read_constants(beside) if beside.exists() else ({}, [], [])
    try:
        kernel = compile(text, target=target, cpu=cpu, entry=entry)
    except _fovea.FoveaError as error:
        message = str(error).replace("<kernel>", str(path))
        raise _fovea.FoveaError(message if str(path) in message else f"{path}: {message}") from None
    _check_constants(beside, kernel, constants, names, types)
    return Program(text, kernel, constants, names, types)


def _check_constants(
    path: Path, kernel: _fovea.Kernel, constants: Mapping[str, Any], names: Sequence[str], types: Sequence[str]
) -> None:  # fmt: skip
    """Those of another module, which had the same name, would be taken for the arguments of this one."""
    arguments, _, results = kernel.signature.partition(" -> ")
    needed_types = re.findall(r"%[^:,]+: (tensor<[^>]*>|\w+)", arguments)
    needed = f"needed those of @{kernel.name}{arguments}: is it of another module?"
    if len(constants) > len(needed_types) or (names and len(constants) + len(names) != len(needed_types)):
        raise ValueError(f"{path}: found {len(constants)} constants and {len(names)} names of inputs, {needed}")
    if types and len(types) != len(re.findall(r"tensor<[^>]*>|\w+", results)):
        raise ValueError(f"{path}: found types of {len(types)} results, needed those of {results}: is it of another module?")
    for (name, array), type in zip(constants.items(), needed_types):
        extents = re.findall(r"(\?|\d+)x", type.partition("<")[2])
        if len(extents) != array.ndim or any(each not in ("?", str(extent)) for each, extent in zip(extents, array.shape)):
            raise ValueError(f"{path}: found {name} of shape {list(array.shape)}, {needed}")


def check_folder(path: Path, argument: str) -> None:
    """That of a file to write has to exist before there is work for it."""
    if not path.parent.is_dir():
        raise ValueError(f"{argument}: found {str(path)!r}, needed a file in a folder that exists")


def _module_path(path: str | os.PathLike[str] | None) -> Path | None:
    if path is None:
        return None
    path = Path(path)
    if path.suffix != ".mlir":
        raise ValueError(f"path: found {str(path)!r}, needed one that ends in .mlir")
    check_folder(path, "path")
    return path


def import_torch(
    model: Any, *args: Any, path: str | os.PathLike[str] | None = None, target: str = "cpu",
    dynamic: Sequence[int] | Mapping[str, Sequence[int]] = (), **kwargs: Any,
) -> Program:  # fmt: skip
    """A module of PyTorch as one program, by way of torch-mlir, which must be installed.

        program = fovea.import_torch(model, input_ids)
        logits = program(input_ids)

    `args` and `kwargs` are examples of a call: tensors among them are the inputs, of these
    shapes; all else is fixed.  Dimensions in `dynamic` have any extent: those of all inputs, as
    `dynamic=(0, 1)`, or of each by its name.  One program is for all of them.  Results are the
    tensors of the call's result, in their order.
    Parameters and buffers are arguments of the function, and shared with the model: what
    changes in place there, changes here.  With `path`, that of a file that ends in .mlir, the
    program and its constants are written for `load`.
    """
    from .torch._import import import_module, to_numpy

    path = _module_path(path)
    text, state, names, types = import_module(model, args, kwargs, dynamic)
    program = Program(text, compile(text, target=target), state, names, types)
    if path is not None:
        write_constants(path.with_suffix(".safetensors"), {name: to_numpy(each) for name, each in state.items()}, names, types)
        path.write_text(text)
    return program


def import_onnx(
    model: Any, *, path: str | os.PathLike[str] | None = None, target: str = "cpu", cpu: str = "native",
    extents: Mapping[str, int] | None = None,
) -> Program:  # fmt: skip
    """A model of ONNX as one program, by way of the packages onnx and torch-mlir, which must be installed.

        program = fovea.import_onnx("model.onnx")
        logits = program(input_ids)

    `model` is a file, or an `onnx.ModelProto`.  Weights are the first arguments of the function,
    and not in its text.  Extents that have names in the model are any; `extents` are numbers for
    some of these, as `extents={"batch": 1}`.  With `path`, that of a file that ends in .mlir, the
    program and its constants are written for `load`.
    """
    from ._onnx import import_model

    path = _module_path(path)
    text, constants, names, types = import_model(model, extents or {})
    try:
        kernel = compile(text, target=target, cpu=cpu)
    except _fovea.FoveaError as error:
        found = model if isinstance(model, (str, os.PathLike)) else "model"
        raise _fovea.FoveaError(f"{found}: it is not compiled: {error}") from None
    program = Program(text, kernel, constants, names, types)
    if path is not None:
        write_constants(path.with_suffix(".safetensors"), constants, names, types)
        path.write_text(text)
    return program


def import_jax(function: Any, *examples: Any, target: str = "cpu") -> Program:
    """A function of JAX as one program, by way of torch-mlir, which must be installed.

        program = fovea.import_jax(function, parameters, tokens)
        logits = program(*jax.tree.leaves((parameters, tokens)))

    `examples` are trees of arrays: these are the inputs, one after the other, of these shapes
    and types.  Results are those of the function, in the order of their tree.  What the
    function closes over is a constant.  `fovea.jax.compile` takes trees, and calls it.
    """
    from .jax._import import import_function

    return import_function(function, examples, target)[0]
