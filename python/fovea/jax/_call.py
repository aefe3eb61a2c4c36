# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One call of a compiled function in a program of JAX.

All functions are one target of XLA.  A call's attributes are the name of a function of
`_fovea` and its arguments as text, with "..." in the places of arrays, which are the
operands.  XLA lends the memory of results.
"""

from __future__ import annotations

import ast
import atexit
import functools
import operator
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .. import _fovea
from .._abstract import AbstractArray
from .._declarations import FUNCTIONS, Argument
from .._own_calls import TARGET
from .._trace import reads_batch
from ._symbols import Symbols

for _platform, _handler in _fovea.xla_handlers().items():
    jax.ffi.register_ffi_target(TARGET, _handler, platform=_platform)


@atexit.register
def _end() -> None:
    """Programs whose results nobody has waited for may still run; effects of theirs happen."""
    jax.effects_barrier()
    _fovea.xla_end()


#: Functions that write to an argument, a tuple of arrays, whose values after a call are the last
#: results: its place, from the end.
_UPDATING = {"vq_decode": -1}

Type = tuple[str, tuple[int, ...]]


def is_array(value: Any) -> bool:
    return isinstance(value, (jax.Array, np.ndarray))


# ----------------------------------------------------------------------------
# Arguments as text
# ----------------------------------------------------------------------------


def _encode(value: Any, operands: list[Any]) -> str:
    """The text of an argument; its arrays are added to the operands."""
    if is_array(value):
        operands.append(value)
        return "..."
    if isinstance(value, dict):
        pairs = (f"{_encode(k, operands)}: {_encode(v, operands)}" for k, v in value.items())
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, (tuple, list)):
        return "(" + "".join(_encode(each, operands) + ", " for each in value) + ")"
    if value is None or isinstance(value, (bool, np.bool_)):
        return repr(None if value is None else bool(value))
    if isinstance(value, str):
        return repr(value)
    try:
        return repr(operator.index(value))
    except TypeError:
        return repr(float(value))


def _decode(pattern: Any, operands: Iterator[Any]) -> Any:
    if pattern is ...:
        return next(operands)
    if isinstance(pattern, tuple):
        return tuple(_decode(each, operands) for each in pattern)
    return pattern


def make_constant(array: np.ndarray) -> jax.Array:
    """What JAX holds in a narrower type, unless told otherwise, must fit it."""
    try:
        converted = jnp.asarray(array.astype(array.dtype.newbyteorder("="), copy=False))
    except TypeError:
        raise ValueError(f"found element type {array.dtype}, needed one that JAX has") from None
    if array.dtype.kind in "iu" and not np.array_equal(array, array.astype(converted.dtype)):
        raise ValueError(f"found integers of {array.dtype} that {converted.dtype} cannot hold")
    return converted


# ----------------------------------------------------------------------------
# Batches
# ----------------------------------------------------------------------------

# As the handler numbers them.
_NO_BATCH, _BATCH, _BROADCAST = range(3)

#: Arguments that `_declarations` gives no axes, and the rank at which the first one is that
#: of the batch.
_BATCHED = {"mask": 2, "token_mask": 2, "query_mask": 2, "key_mask": 2, "lengths": 1, "query_lengths": 1,
            "level": 2, "index": 2}  # fmt: skip
_BROADCAST_TO_BATCH = {"log_weight": 3, "bias": 4, "sink": 2, "positions": 3}


def _arguments(name: str) -> Sequence[Argument]:
    if name in FUNCTIONS:
        return FUNCTIONS[name].arguments
    forward = FUNCTIONS.get(name.removesuffix("_backward"))
    return forward.backward_arguments if forward else ()


def _batch_axis(argument: Argument, rank: int) -> int:
    if argument.axes:
        return _BATCH if argument.axes[0] == "B" else _NO_BATCH
    if _BATCHED.get(argument.name) == rank:
        return _BATCH
    return _BROADCAST if _BROADCAST_TO_BATCH.get(argument.name) == rank else _NO_BATCH


def _batch_axes(name: str, pattern: Sequence[Any], types: Sequence[Type]) -> list[int]:
    """How each operand takes part in the batch, none of them where a result does not."""
    axes: list[int] = []
    unbatched = [_NO_BATCH] * len(types)
    for argument, value in zip(_arguments(name), pattern):
        if reads_batch(argument.name, value):
            return unbatched
        count = 0 if isinstance(value, str) else str(value).count("Ellipsis")
        axes += [_batch_axis(argument, len(shape)) for _, shape in types[len(axes) : len(axes) + count]]
    if _BATCH not in axes:
        return unbatched

    def widen(type: Type, axis: int) -> Type:
        dtype, shape = type
        if axis == _NO_BATCH or (axis == _BROADCAST and shape[0] == 1):
            return type
        return dtype, (2 * shape[0], *shape[1:])

    results = _describe(name, pattern, types)
    try:
        wide = _describe(name, pattern, [widen(*each) for each in zip(types, axes)])
    except ValueError:
        return unbatched
    grows = all(after.shape == (2 * before.shape[0], *before.shape[1:]) if before.shape else False
                for before, after in zip(results, wide))  # fmt: skip
    return axes if grows else unbatched


# ----------------------------------------------------------------------------
# Calls
# ----------------------------------------------------------------------------


def _flatten(found: Any) -> list[AbstractArray]:
    if isinstance(found, AbstractArray):
        return [found]
    return [leaf for each in found for leaf in _flatten(each)] if isinstance(found, (tuple, list)) else []


def _describe(name: str, pattern: Sequence[Any], types: Sequence[Type]) -> list[AbstractArray]:
    arguments = _decode(pattern, iter(AbstractArray(*each) for each in types))
    return _flatten(getattr(_fovea, name)(*arguments, "cpu"))


class Call(NamedTuple):
    """What is known of a call before it runs."""

    results: tuple[Type, ...]
    batch_axes: tuple[int, ...]
    updated: tuple[int, ...]


@functools.lru_cache(maxsize=4096)
def _plan(name: str, text: str, types: tuple[Type, ...]) -> Call:
    pattern = ast.literal_eval(text)
    results = [(each.dtype.name, each.shape) for each in _describe(name, pattern, types)]
    updated = _updated(name, pattern)
    results += [types[each] for each in updated]
    return Call(tuple(results), tuple(_batch_axes(name, pattern, types)), updated)


def _join(symbols: Symbols, samples: Sequence[Sequence[tuple[int, ...]]], calls: Sequence[Call]) -> Call:
    """What is known of a call of any extents: of these samples it is `calls`."""
    if not symbols:
        return calls[0]
    if len({(each.batch_axes, each.updated) for each in calls}) > 1:
        raise ValueError("found a call that depends on extents that are not known")
    results = [(each[0][0], symbols.find_shape([shape for _, shape in each], samples)) for each in zip(*(call.results for call in calls))]
    return calls[0]._replace(results=tuple(results))


def updated_argument(name: str, arguments: Sequence[Any]) -> int | None:
    """The number of the argument that a function writes to, if there is one."""
    if name not in _UPDATING:
        return None
    place = len(arguments) + _UPDATING[name]
    return place if isinstance(arguments[place], tuple) else None


def _updated(name: str, pattern: Sequence[Any]) -> tuple[int, ...]:
    """The numbers of the operands that a function writes to."""
    place = updated_argument(name, pattern)
    if place is None:
        return ()
    counts = [str(each).count("Ellipsis") for each in pattern]
    return tuple(range(sum(counts[:place]), sum(counts[: place + 1])))


def run(name: str, arguments: Sequence[Any]) -> list[jax.Array]:
    """The results of a function of `_fovea`, one after the other."""
    operands: list[Any] = []
    text = _encode(tuple(arguments), operands)
    operands = [make_constant(each) if isinstance(each, np.ndarray) else each for each in operands]
    symbols = Symbols([each.shape for each in operands])
    dtypes = [each.dtype.name for each in operands]
    samples, calls = zip(*symbols.try_samples(lambda shapes: _plan(name, text, tuple(zip(dtypes, shapes)))))
    call = _join(symbols, samples, calls)
    operands, structs = _with_axes(operands, call.results)
    first = len(call.results) - len(call.updated)
    function = jax.ffi.ffi_call(
        TARGET,
        structs,
        # What shares memory has one shape.
        vmap_method="broadcast_all" if call.updated else "expand_dims",
        input_output_aliases={each: first + at for at, each in enumerate(call.updated)},
    )
    return list(
        function(
            *operands,
            function=name,
            arguments=text,
            ranks=np.array([each.ndim for each in operands], np.int64),
            batch_axes=np.array(call.batch_axes, np.int64),
            updated=np.array(call.updated, np.int64),
            # Of which a whole program finds its kernel.
            **({"samples": np.concatenate([shape for shapes in samples[:2] for shape in shapes])} if symbols else {}),
        )
    )


def _varying(array: Any) -> frozenset[Any]:
    """The axes of `jax.shard_map` over which an array differs, in any version of JAX."""
    described = jax.typeof(array)
    return described.mat.varying if hasattr(described, "mat") else getattr(described, "vma", frozenset())


def vary_like(gradient: Any, operand: Any) -> Any:
    """The gradient of an operand: what devices share has the sum of theirs."""
    found, needed = _varying(gradient), _varying(operand)
    if found - needed:
        gradient = jax.lax.psum(gradient, tuple(found - needed))
    if needed - found:
        gradient = jax.lax.pcast(gradient, tuple(needed - found), to="varying")
    # Of axes of a mesh that are explicit, types say where the parts of an array are; results of calls are whole.
    sharding = jax.typeof(operand).sharding
    return gradient if sharding.mesh.empty else jax.sharding.reshard(gradient, sharding)


def _with_axes(operands: list[Any], results: Sequence[Type]) -> tuple[list[Any], list[Any]]:
    """Operands that all vary over the axes that one of them does, and results that do."""
    axes: frozenset[Any] = frozenset().union(*map(_varying, operands))
    if not axes:
        return operands, [jax.ShapeDtypeStruct(shape, dtype) for dtype, shape in results]
    operands = [
        jax.lax.pcast(each, tuple(axes - _varying(each)), to="varying") if axes - _varying(each) else each
        for each in operands
    ]
    like = jax.typeof(operands[0])
    if not hasattr(like, "mat"):
        return operands, [jax.ShapeDtypeStruct(shape, dtype, vma=axes) for dtype, shape in results]
    structs = []
    for dtype, shape in results:
        sharding = like.sharding.update(spec=jax.sharding.PartitionSpec(*[None] * len(shape)))
        structs.append(like.update(shape=shape, dtype=np.dtype(dtype), weak_type=False, sharding=sharding))
    return operands, structs
