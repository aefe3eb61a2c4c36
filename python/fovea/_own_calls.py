# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls of the package's functions in programs of JAX, as the IR that they compile for themselves.

Such a call runs on arrays of its types, so that its kernel is known: a function of the program takes the place of the
call.  It must give the same bits, or the call is refused.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import itertools
import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from . import _fovea
from ._declarations import FUNCTIONS
from ._rewriting import SIGNED, Writer

__all__ = ["TARGET", "OwnCall", "add_definition", "declare", "define", "flatten", "insert_definitions", "wrap", "write_call"]

#: The target of XLA: the name that `jax.export` and dumps of XLA show.
TARGET = "fovea"
#: Integers that kernels read, and nothing before them.
_READ_BY_KERNELS = re.compile(r"(query_)?lengths|((token|query|key)_)?mask|sizes|positions|captures_\d+")
_DTYPES = {"f16": "float16", "f32": "float32", "f64": "float64", "i1": "bool", "i8": "int8", "i32": "int32", "i64": "int64"}


class OwnCall(NamedTuple):
    symbol: str
    #: Numbers of the operands that the function takes, and types of its arguments and results.
    operands: list[int]
    arguments: list[str]
    results: list[str]
    #: Numbers of its results that are those of the call.
    returned: list[int]


#: Computes the results of a call, of arrays as operands.
_Run = Callable[[Sequence[Any]], list[Any]]

#: Functions of programs, by their symbols, which tell them apart.
_DEFINITIONS: dict[str, str] = {}


def _make(element: str, shape: Sequence[int], name: str, integer: int, random: np.random.Generator) -> np.ndarray[Any, Any]:
    if element.startswith(("f", "bf")):
        dtype = _fovea.bfloat16() if element == "bf16" else np.dtype(_DTYPES[element])
        return random.standard_normal(shape).astype(dtype)
    if element not in _DTYPES or not _READ_BY_KERNELS.fullmatch(name):
        raise ValueError(f"{name}: found integers that are read before a kernel runs")
    array = np.full(shape, integer, _DTYPES[element])
    if name == "sizes":
        # They decrease.
        array[..., 1:] = 0
    return array


def _fill(pattern: Any, arrays: Iterator[Any]) -> Any:
    if pattern is ...:
        return next(arrays)
    return tuple(_fill(each, arrays) for each in pattern) if isinstance(pattern, tuple) else pattern


def _name(name: str, pattern: Any) -> Iterator[str]:
    """Of arrays, as arguments of kernels have them."""
    if pattern is ...:
        yield name
    elif isinstance(pattern, tuple):
        for number, each in enumerate(pattern):
            yield from _name(f"{name}_{number}", each)


def _name_operands(function: str, pattern: tuple[Any, ...]) -> list[str]:
    declared = FUNCTIONS.get(function.removesuffix("_backward"))
    arguments = () if declared is None else declared.backward_arguments if function.endswith("_backward") else declared.arguments
    return [each for argument, value in zip(arguments, pattern) for each in _name(argument.name, value)]


def flatten(found: Any) -> list[Any]:
    if isinstance(found, (tuple, list)):
        return [leaf for each in found for leaf in flatten(each)]
    return [] if found is None else [found]


def _read_types(signature: str) -> tuple[list[str], list[str], list[str]]:
    """Names and types of arguments, and types of results."""
    arguments, results = signature.rsplit(" -> ", 1)
    pairs = re.findall(r"%([\w.$-]+): ([^()]*?)(?=, %|\)$)", arguments)
    return [name for name, _ in pairs], [type for _, type in pairs], re.findall(r"tensor<[^>]*>", results)


def _write(text: str, symbol: str) -> str:
    """The function of a module, without names of attributes and places, which are the module's."""
    text = re.sub(r" loc\((?:[^()]|\([^()]*\))*\)", "", text)
    aliases = dict(re.findall(r"^(#\w+) = (.*)$", text, re.MULTILINE))
    body = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)
    body = body[body.index("func.func") : body.rindex("}")]
    for _ in aliases:
        body = re.sub(r"#\w+\b(?![.<\w])", lambda found: aliases.get(found[0], found[0]), body)
    body = re.sub(r" \{bufferization\.buffer_layout = strided<[^>]*>\}", "", body)
    return re.sub(r"func\.func @[\w.]+", f"func.func private @{symbol}", body, count=1)


class _Found(NamedTuple):
    """The one kernel of a call, numbers of the operands that are its arguments, and of its results that each one of the call equals."""

    kernel: _fovea.Kernel
    numbers: list[int]
    returned: list[set[int]]


def _find_operand(argument: str, number: int, names: Sequence[str]) -> int:
    """The operand that an argument of a kernel is; masks may be made of lengths."""
    name = "lengths" if argument.endswith("mask") and argument not in names else argument
    return names.index(name) if name in names else number


def _is_mask_of_lengths(given: Any, type: str) -> bool:
    """Whether an argument of a kernel says for each token what lengths say, whose type or array is given."""
    rank = given.count("x") if isinstance(given, str) else given.ndim
    return rank == 1 and type.endswith("xi1>") and type.count("x") == 2


def _convert(array: Any, type: str) -> Any:
    """An operand as the argument of a kernel that has this type."""
    if _is_mask_of_lengths(array, type):
        tokens = type.split("x")[1]
        if tokens == "?":
            raise ValueError("lengths: found tokens whose number is not known, needed a mask")
        return np.arange(int(tokens)) < array[:, None]
    return array.astype(np.int32) if type.endswith("xi32>") else array


def _find_kernel(run: _Run, names: Sequence[str], arrays: Sequence[Any]) -> _Found:
    found: list[Any] = []
    kernels = _fovea.record_kernels(lambda: found.extend(run(arrays)))
    if len(kernels) != 1:
        raise ValueError(f"found a call of {len(kernels)} kernels, needed one kernel")
    kernel, shapes = kernels[0][:2]
    arguments, kinds, _ = _read_types(kernel.signature)
    # Others have the order of the call.
    numbers = [_find_operand(each, number, names) for number, each in enumerate(arguments)]
    results = []
    if max(numbers, default=0) < len(arrays):
        given = [_convert(arrays[each], type) for each, type in zip(numbers, kinds)]
        if shapes == [list(each.shape) for each in given]:
            results = flatten(kernel(*given))
    returned = [{number for number, each in enumerate(results) if _equal(each, one)} for one in found]
    if not all(returned):
        raise ValueError("found a call that computes more than its kernel")
    return _Found(kernel, numbers, returned)


def define(function: str, run: _Run, names: Sequence[str], *samples: Sequence[tuple[str, Sequence[int]]]) -> OwnCall:
    """What a call with operands of these names becomes; `run` computes its results.

    A sample has the element types and shapes of operands. Several are for extents that are not known: then
    the call must have the same kernel for all of them."""
    random = np.random.default_rng(0)
    calls = []

    # Of this thread alone: others compile as they are told to.
    def find(arrays: Sequence[Any], shapes: str) -> _Found:
        return _fovea.call_with_shapes(shapes, functools.partial(_find_kernel, run, names, arrays))

    def find_any(arrays: Sequence[Any]) -> _Found:
        if len(samples) > 1:
            return find(arrays, "dynamic")
        try:
            return find(arrays, _fovea.shapes())
        except ValueError:
            # Kernels for all extents may write to memory of the call, and masks of lengths have no extent then.
            return find(arrays, "static")

    for sample, types in enumerate(samples):
        for integer in (0, 1) if any(element.startswith("i") for element, _ in types) else (0,):
            arrays = [_make(element, shape, name, integer, random) for (element, shape), name in zip(types, names, strict=True)]
            try:
                calls.append(find_any(arrays))
            except (ValueError, _fovea.FoveaError) as error:
                if sample == 0:
                    raise
                raise ValueError(f"with other extents than those of the example, {error}") from error
    kernel, numbers, _ = calls[0]
    # Several may be equal in one sample, as gradients of what it does not use.
    common = [set.intersection(*each) for each in zip(*(each.returned for each in calls))]
    if any(each.kernel.text != kernel.text or each.numbers != numbers for each in calls) or not all(common):
        what = "integers" if len(samples) == 1 else "extents that are not known, or on integers"
        raise ValueError(f"found a call whose kernel depends on {what}")
    _, arguments, results = _read_types(kernel.signature)
    symbol = f"fovea_{function}_{hashlib.sha256(kernel.text.encode()).hexdigest()[:16]}"
    _DEFINITIONS[symbol] = _write(kernel.text, symbol)
    return OwnCall(symbol, numbers, arguments, results, [*map(min, common)])


@functools.lru_cache(maxsize=1024)
def _define_text(function: str, text: str, *samples: tuple[tuple[str, tuple[int, ...]], ...]) -> OwnCall:
    """Of a function whose arguments are written down, as calls of XLA have them."""
    pattern = ast.literal_eval(text)

    def run(arrays: Sequence[Any]) -> list[Any]:
        return flatten(getattr(_fovea, function)(*_fill(pattern, iter(arrays)), "cpu"))

    return define(function, run, _name_operands(function, pattern), *samples)


def _equal(one: Any, other: Any) -> bool:
    one, other = np.asarray(one), np.asarray(other)
    return (one.dtype, one.shape) == (other.dtype, other.shape) and one.tobytes() == other.tobytes()


class _Batches:
    """Axes of `jax.vmap`, which are before those of a call, as a part of its batch."""

    def __init__(self, writer: Writer, ranks: Sequence[int], axes: Sequence[int], operands: Sequence[Any]):
        self.writer = writer
        types = [writer.ir.RankedTensorType(each.type) for each in operands]
        counts = [type.rank - rank for type, rank in zip(types, ranks)]
        if len(set(counts)) > 1 or (any(counts) and set(axes) != {1}):
            raise ValueError("found a call under jax.vmap whose arrays have no batch, needed one without")

        def outer(dim: int) -> Any:
            # Operands that do not have an axis have extent 1 there.
            having = next((each for each, type in zip(operands, types) if type.is_dynamic_dim(dim) or type.get_dim_size(dim) != 1), None)
            return 1 if having is None else writer.extent(having, dim)

        #: Numbers, or values of type index.
        self.outer = [*map(outer, range(counts[0]))]

    def _static(self, extents: Sequence[Any]) -> list[int]:
        unknown = self.writer.ir.ShapedType.get_dynamic_size()
        return [each if isinstance(each, int) else unknown for each in extents]

    def _extents(self, value: Any) -> list[Any]:
        return [self.writer.extent(value, dim) for dim in range(self.writer.ir.RankedTensorType(value.type).rank)]

    def _groups(self, rank: int) -> Any:
        """The axes that become one, and each of the others."""
        ir, count = self.writer.ir, len(self.outer)
        index = ir.IntegerType.get_signless(64)
        groups = [[*range(count + 1)], *([dim] for dim in range(count + 1, rank))]
        return ir.ArrayAttr.get([ir.ArrayAttr.get([ir.IntegerAttr.get(index, each) for each in group]) for group in groups])

    def join(self, value: Any) -> Any:
        if not self.outer:
            return value
        ir, writer, type = self.writer.ir, self.writer, self.writer.ir.RankedTensorType(value.type)
        count, inner = len(self.outer), self._extents(value)[len(self.outer) :]
        extents = [*self.outer, *inner]
        same = ir.RankedTensorType.get(self._static(extents), type.element_type)
        attributes = {"broadcast_dimensions": ir.DenseI64ArrayAttr.get([*range(type.rank)])}
        if same.has_static_shape:
            value = writer.make("stablehlo.broadcast_in_dim", [same], [value], attributes)
        elif type != same:
            shape = [writer.value(each) for each in extents]
            shape = writer.make("tensor.from_elements", [ir.RankedTensorType.get([type.rank], writer.index)], shape)
            grow = [dim for dim in range(count) if type.shape[dim] == 1 and same.shape[dim] != 1]
            attributes["known_expanding_dimensions"] = ir.DenseI64ArrayAttr.get(grow)
            attributes["known_nonexpanding_dimensions"] = ir.DenseI64ArrayAttr.get([dim for dim in range(type.rank) if dim not in grow])
            value = writer.make("stablehlo.dynamic_broadcast_in_dim", [same], [value, shape], attributes)
        joined = ir.RankedTensorType.get(self.joined(same.shape), type.element_type)
        return writer.make("tensor.collapse_shape", [joined], [value], {"reassociation": self._groups(type.rank)})

    def joined(self, shape: Sequence[int]) -> list[int]:
        count = len(self.outer)
        first = shape[: count + 1]
        return [min(first) if min(first) < 0 else math.prod(first), *shape[count + 1 :]] if count else list(shape)

    def part(self, value: Any, type: Any) -> Any:
        if not self.outer:
            return value
        writer = self.writer
        first, *others = self._extents(value)
        outer = functools.reduce(functools.partial(writer.combine, "multiply"), self.outer)
        if isinstance(first, int) and isinstance(outer, int):
            first = first // outer
        else:
            first = writer.make("arith.divui", [writer.index], [writer.value(first), writer.value(outer)])
        # What the type knows.
        extents = [known if known >= 0 else each for known, each in zip(type.shape, [*self.outer, first, *others])]
        values, static = writer.split(extents)
        attributes = {"reassociation": self._groups(type.rank), "static_output_shape": static}
        return writer.make("tensor.expand_shape", [type], [value, *values], attributes)

    def samples(self, shapes: Sequence[Sequence[int]], number: int) -> list[tuple[int, ...]]:
        """Of operands that are joined, of the shapes of a call; axes that are not known have another extent in each sample."""
        count = math.prod(each if isinstance(each, int) else number + 2 for each in self.outer)
        return [(count * shape[0], *shape[1:]) if self.outer else tuple(shape) for shape in shapes]


def declare(ir: Any, module: Any, symbol: str, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
    """A private function whose body insert_definitions() knows."""
    if symbol in ir.SymbolTable(module.operation):
        return
    attributes = {
        "sym_name": ir.StringAttr.get(symbol), "sym_visibility": ir.StringAttr.get("private"),
        "function_type": ir.TypeAttr.get(ir.FunctionType.get(list(inputs), list(outputs))),
    }  # fmt: skip
    with ir.InsertionPoint(module.body):
        ir.Operation.create("func.func", attributes=attributes, regions=1)


def _narrow(value: str, result: str, wide: str, narrow: str, failure: str = "") -> list[str]:
    """Integers of 64 bits, as calls narrow them: those that do not fit are out of bounds in either type, or, without bounds,
    a failure."""
    shape = wide.removeprefix("tensor<").split("x")[:-1]
    places, loops = ", ".join(f"d{dim}" for dim in range(len(shape))), ", ".join(['"parallel"'] * len(shape))
    map, unknown = f"affine_map<({places}) -> ({places})>", [dim for dim, extent in enumerate(shape) if extent == "?"]
    check = ["    %same = arith.cmpi eq, %bounded, %wide : i64", f'    cf.assert %same, "{failure}"']
    return [
        *(f"  {result}c{dim} = arith.constant {dim} : index" for dim in unknown),
        *(f"  {result}d{dim} = tensor.dim {value}, {result}c{dim} : {wide}" for dim in unknown),
        f"  {result}e = tensor.empty({', '.join(f'{result}d{dim}' for dim in unknown)}) : {narrow}",
        f"  {result} = linalg.generic {{indexing_maps = [{map}, {map}], iterator_types = [{loops}]}} "
        f"ins({value} : {wide}) outs({result}e : {narrow}) {{",
        "  ^bb0(%wide: i64, %unset: i32):",
        f"    %most = arith.constant {2**31 - 1} : i64", f"    %least = arith.constant {-(2**31)} : i64",
        "    %above = arith.maxsi %wide, %least : i64", "    %bounded = arith.minsi %above, %most : i64",
        *(check if failure else ()),
        "    %narrow = arith.trunci %bounded : i64 to i32", "    linalg.yield %narrow : i32", f"  }} -> {narrow}",
    ]  # fmt: skip


def _make_mask(lengths: str, result: str, given: str, type: str) -> list[str]:
    """Which tokens lengths admit."""
    integer = given[given.rindex("x") + 1 : -1]
    maps = "[affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d0, d1)>]"
    return [
        f"  {result}e = tensor.empty() : {type}",
        f'  {result} = linalg.generic {{indexing_maps = {maps}, iterator_types = ["parallel", "parallel"]}} '
        f"ins({lengths} : {given}) outs({result}e : {type}) {{",
        f"  ^bb0(%length: {integer}, %unset: i1):", "    %token = linalg.index 1 : index",
        f"    %number = arith.index_cast %token : index to {integer}", f"    %admitted = arith.cmpi slt, %number, %length : {integer}",
        "    linalg.yield %admitted : i1", f"  }} -> {type}",
    ]  # fmt: skip


def wrap(call: OwnCall, inputs: Sequence[str], outputs: Sequence[str]) -> str:
    """The symbol of a function of these types that calls that of a call: its operands, and what is returned of its results."""
    symbol = f"{call.symbol}_{hashlib.sha256(repr((call[1:], *inputs, *outputs)).encode()).hexdigest()[:16]}"
    kernel = f"{symbol}_kernel"
    lines = [f"func.func private @{symbol}({', '.join(f'%a{k}: {type}' for k, type in enumerate(inputs))}) -> ({', '.join(outputs)}) {{"]
    for place, (number, type) in enumerate(zip(call.operands, call.arguments)):
        given, value = inputs[number], f"%a{number}"
        if given.endswith("xi64>") and type.endswith("xi32>"):
            value, given = f"%n{place}", given.replace("xi64>", "xi32>")
            # Positions are the integers of rope, and have no bounds.
            failure = "positions: found a number of more than 32 bits" if call.symbol.startswith("fovea_rope_") else ""
            lines += _narrow(f"%a{number}", value, inputs[number], given, failure)
        if _is_mask_of_lengths(given, type):
            lines += _make_mask(value, f"%m{place}", given, type)
            value, given = f"%m{place}", type
        lines.append(f"  %k{place} = tensor.cast {value} : {given} to {type}")
    operands = ", ".join(f"%k{place}" for place in range(len(call.operands)))
    lines.append(f"  %r:{len(call.results)} = call @{kernel}({operands}) : ({', '.join(call.arguments)}) -> ({', '.join(call.results)})")
    for place, (number, type) in enumerate(zip(call.returned, outputs)):
        lines.append(f"  %f{place} = tensor.cast %r#{number} : {call.results[number]} to {type}")
    lines.append(f"  return {', '.join(f'%f{place}' for place in range(len(outputs)))} : {', '.join(outputs)}\n}}")
    _DEFINITIONS[symbol] = "\n".join(lines) + "\n" + _DEFINITIONS[call.symbol].replace(f"@{call.symbol}", f"@{kernel}")
    return symbol


def _read_samples(ir: Any, config: Any, types: Sequence[Any], ranks: Sequence[int], batches: _Batches) -> list[list[tuple[int, ...]]]:
    """Shapes of operands, or several where some are not known."""
    if all(type.has_static_shape for type in types):
        return [[tuple(type.shape) for type in types]]
    numbers = list(ir.DenseIntElementsAttr(config["samples"])) if "samples" in config else []
    samples: list[list[tuple[int, ...]]] = []
    for first in range(0, len(numbers), sum(ranks)):
        rest = iter(numbers[first:])
        samples.append(batches.samples([tuple(itertools.islice(rest, rank)) for rank in ranks], len(samples)))
    pairs = [pair for sample in samples for shape, type in zip(sample, types) for pair in zip(shape, type.shape)]
    if len(samples) < 2 or any(extent not in (number, ir.ShapedType.get_dynamic_size()) for number, extent in pairs):
        raise ValueError("found extents that are not known, and were when it was traced")
    return samples


def _check_results(writer: Writer, results: Sequence[Any], shapes: Sequence[Any]) -> None:
    """Extents that are not known are those that the call was traced with."""
    for result, shape in zip(results, shapes):
        type = writer.ir.RankedTensorType(result.type)
        for dim in filter(type.is_dynamic_dim, range(type.rank)):
            message = "a call has results of other extents than it was traced with"
            writer.check(SIGNED["EQ"], writer.extent(result, dim), writer.element_at(shape, [dim]), message)


def write_call(writer: Writer, op: Any) -> list[Any]:
    """What takes the place of a call in StableHLO: one of a function that the module declares."""
    ir = writer.ir
    # Calls of unknown extents have it in another place.
    place = "mhlo.backend_config" if "mhlo.backend_config" in op.attributes else "backend_config"
    config = ir.DictAttr(op.attributes[place])
    function, arguments = (ir.StringAttr(config[each]).value for each in ("function", "arguments"))
    ranks, axes = (list(ir.DenseIntElementsAttr(config[each])) for each in ("ranks", "batch_axes"))
    # Behind them are the shapes of results, where these are not known.
    operands, shapes = list(op.operands)[: len(ranks)], list(op.operands)[len(ranks) :]
    try:
        batches = _Batches(writer, ranks, axes, operands)
        operands = [*map(batches.join, operands)]
        types = [ir.RankedTensorType(each.type) for each in operands]
        samples = _read_samples(ir, config, types, ranks, batches)
        call = _define_text(function, arguments, *(tuple(zip([str(type.element_type) for type in types], shapes)) for shapes in samples))
    except (ValueError, _fovea.FoveaError) as error:
        raise _fovea.FoveaError(f"fovea.{function} is no part of a whole program here: {error}") from error
    outputs = [ir.RankedTensorType(each.type) for each in op.results]
    outputs = [ir.RankedTensorType.get(batches.joined(type.shape), type.element_type) for type in outputs]
    symbol = wrap(call, [*map(str, types)], [*map(str, outputs)])
    declare(ir, writer.module, symbol, types, outputs)
    found = writer.make_all("func.call", outputs, operands, {"callee": ir.FlatSymbolRefAttr.get(symbol)}).results
    results = [batches.part(new, ir.RankedTensorType(old.type)) for old, new in zip(op.results, found, strict=True)]
    _check_results(writer, results, shapes)
    return results


def add_definition(symbol: str, text: str) -> None:
    """What takes the place of the declaration of a symbol."""
    _DEFINITIONS[symbol] = text


#: Declarations, in either form.
_DECLARED = re.compile(
    r'^ *func\.func private @(fovea_\w+)\(.*$|^ *"func\.func"\(\) <\{.*sym_name = "(fovea_\w+)".*\(\{\s*\}\) : \(\) -> \(\)$', re.MULTILINE
)


def insert_definitions(text: str) -> str:
    """A module whose declared functions of calls are defined."""
    return _DECLARED.sub(lambda found: _DEFINITIONS[found[1] or found[2]], text)
