# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What functions of scores do, kept from call to call.

It follows from their code and from the values that the code reads: those are looked at in each call, and a function of the
same code that reads the same values is not called again.  Code that might do more than compute, and values that might change
in place, are not kept: then functions are called.
"""

from __future__ import annotations

import dis
from collections.abc import Callable, Hashable, Iterable, Sequence
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

import numpy as np

#: Instructions that compute with values alone, of all versions of Python.  With others functions are called in each call.
_PLAIN = frozenset("""
    BINARY_OP BINARY_SUBSCR BUILD_TUPLE CACHE CALL CALL_KW COMPARE_OP COPY COPY_FREE_VARS EXTENDED_ARG
    JUMP_BACKWARD JUMP_FORWARD JUMP_IF_FALSE_OR_POP JUMP_IF_TRUE_OR_POP KW_NAMES LOAD_CONST
    LOAD_FAST LOAD_FAST_BORROW LOAD_FAST_BORROW_LOAD_FAST_BORROW LOAD_FAST_CHECK LOAD_FAST_LOAD_FAST LOAD_SMALL_INT
    NOP NOT_TAKEN POP_JUMP_BACKWARD_IF_FALSE POP_JUMP_BACKWARD_IF_TRUE POP_JUMP_FORWARD_IF_FALSE POP_JUMP_FORWARD_IF_NONE
    POP_JUMP_FORWARD_IF_NOT_NONE POP_JUMP_FORWARD_IF_TRUE POP_JUMP_IF_FALSE POP_JUMP_IF_NONE POP_JUMP_IF_NOT_NONE
    POP_JUMP_IF_TRUE POP_TOP PRECALL PUSH_NULL RESUME RETURN_CONST RETURN_VALUE STORE_FAST STORE_FAST_LOAD_FAST
    STORE_FAST_STORE_FAST SWAP TO_BOOL UNARY_INVERT UNARY_NEGATIVE UNARY_NOT UNARY_POSITIVE
""".split())  # fmt: skip

#: Functions that give the same for the same arguments; `fovea.math` adds its own.
CONSTANT: set[Any] = {abs, len, max, min, pow, round}

_MOST_KEPT = 256
_DEEPEST = 8


class _UnknownError(Exception):
    """Found something of which it is not known what it will do."""


class _Read(NamedTuple):
    """Of code: a number among its cells, or the name of a global, and attributes of that."""

    place: int | str
    attributes: tuple[str, ...]


def _find_reads(code: CodeType) -> tuple[_Read, ...] | None:
    """What code reads beside its arguments; None where it may do more than compute."""
    reads: list[_Read] = []
    follows = False
    for each in dis.get_instructions(code):
        name = each.opname
        if name in ("LOAD_GLOBAL", "LOAD_DEREF"):
            if name == "LOAD_DEREF" and each.argval not in code.co_freevars:
                return None
            reads.append(_Read(each.argval if name == "LOAD_GLOBAL" else code.co_freevars.index(each.argval), ()))
            follows = True
        elif name in ("LOAD_ATTR", "LOAD_METHOD"):
            # Of a module, which is all that it can be an attribute of.
            if not follows or each.is_jump_target:
                return None
            reads[-1] = _Read(reads[-1].place, (*reads[-1].attributes, each.argval))
        elif name not in _PLAIN:
            return None
        elif name not in ("CACHE", "EXTENDED_ARG"):
            follows = False
    return tuple(dict.fromkeys(reads))


class Reads:
    """What functions of a call read: `key` tells it apart from all that would make them do something else."""

    def __init__(self, functions: Iterable[Any], *others: Hashable) -> None:
        self.arrays: list[Any] = []
        self.codes: list[CodeType] = []
        self._depth = 0
        self.key = (*(self.describe(each) for each in functions), *others)

    def describe(self, value: Any) -> Hashable:
        describe = DESCRIBE.get(type(value))
        if describe is None:
            raise _UnknownError
        return describe(self, value)

    def add_array(self, array: Any) -> Hashable:
        """Of arrays what they hold is no part of what a function does."""
        number = 0
        # A generator takes longer than all else.
        for known in self.arrays:
            if known is array:
                break
            number += 1
        else:
            self.arrays.append(array)
        dtype, shape = getattr(array, "dtype", None), getattr(array, "shape", None)
        if dtype is None or shape is None or not are_extents(shape):
            raise _UnknownError
        return number, dtype, tuple(shape)

    def describe_function(self, function: FunctionType) -> Hashable:
        if function in CONSTANT:
            return function
        code = function.__code__
        known, reads = _codes.get(id(code), (None, None))
        if known is not code:
            reads = _find_reads(code)
            if len(_codes) >= _MOST_KEPT:
                _codes.clear()
            _codes[id(code)] = code, reads
        if reads is None or self._depth == _DEEPEST:
            raise _UnknownError
        self.codes.append(code)
        self._depth += 1
        values = [self.describe(_resolve(function, read)) for read in reads]
        self._depth -= 1
        named = function.__kwdefaults__
        defaults = self.describe(function.__defaults__), named and self.describe(tuple(named.items()))
        return id(code), *values, *defaults


def _resolve(function: FunctionType, read: _Read) -> Any:
    """The value that code of a function reads."""
    try:
        if isinstance(read.place, int):
            value = function.__closure__[read.place].cell_contents  # type: ignore[index]
        elif read.place in function.__globals__:
            value = function.__globals__[read.place]
        else:
            value = function.__builtins__[read.place]
        for name in read.attributes:
            if type(value) is not ModuleType:
                raise _UnknownError
            value = getattr(value, name)
    except (AttributeError, KeyError, ValueError):
        # A name that is not there is an error of the call.
        raise _UnknownError from None
    return value


def are_extents(shape: Any) -> bool:
    """Frameworks that trace have extents that are no numbers."""
    if shape is None:
        return False
    for extent in shape:
        if type(extent) is not int:
            return False
    return True


def _describe_plain(reads: Reads, value: Any) -> Hashable:
    return type(value), value


def _describe_constant(reads: Reads, value: Any) -> Hashable:
    if value not in CONSTANT:
        raise _UnknownError
    return value


#: By type, what tells one value from others; `Capture` adds itself.
DESCRIBE: dict[type, Callable[[Reads, Any], Hashable]] = {
    type(None): _describe_plain,
    bool: _describe_plain,
    int: _describe_plain,
    str: _describe_plain,
    # Zeros have a sign, and what is no number does not equal itself.
    float: lambda reads, value: (float, value.hex()),
    **{
        np.dtype(letter).type: lambda reads, value: (type(value), value.tobytes())
        for letter in np.typecodes["AllInteger"] + np.typecodes["Float"] + "?"
    },
    tuple: lambda reads, value: tuple(map(reads.describe, value)),
    BuiltinFunctionType: _describe_constant,
    FunctionType: Reads.describe_function,
}


class _Kept(NamedTuple):
    body: str
    #: Which of the arrays of `Reads` the body reads, and the types of these as operands.
    arrays: list[int]
    dtypes: list[Any]
    #: Whose numbers the key has, which are those of others once they are gone.
    codes: list[CodeType]


#: What code reads, by its number.
_codes: dict[int, tuple[CodeType, tuple[_Read, ...] | None]] = {}
_kept: dict[Any, _Kept] = {}


#: Of frameworks, whether their compiler follows this code: that keeps the result itself, and what it cannot follow is an error.
FOLLOWED: list[Callable[[], bool]] = []


def find_reads(functions: Iterable[Any], extents: Sequence[Any], number: str) -> Reads | None:
    """Of functions for queries with such extents and scores of such numbers; None where it is not known what they will do."""
    for is_followed in FOLLOWED:
        if is_followed():
            return None
    if not are_extents(extents):
        return None
    try:
        return Reads(functions, *extents, number)
    except _UnknownError:
        return None


def find_body(reads: Reads, convert: Callable[[Any], Any]) -> tuple[str, list[Any]] | None:
    """The body that functions have which read the same, and the operands that `convert` makes of the arrays that it reads."""
    kept = _kept.get(reads.key)
    if kept is None:
        return None
    operands = [convert(reads.arrays[number]) for number in kept.arrays]
    # Frameworks may have other types for an array now.
    return (kept.body, operands) if [each.dtype for each in operands] == kept.dtypes else None


def keep_body(reads: Reads, body: str, arrays: Sequence[Any], operands: Sequence[Any]) -> None:
    """The body reads these of the arrays of `Reads`, as these operands."""
    numbers = [number for array in arrays for number, known in enumerate(reads.arrays) if known is array]
    if len(numbers) != len(arrays):
        return
    if len(_kept) >= _MOST_KEPT:
        _kept.clear()
    _kept[reads.key] = _Kept(body, numbers, [each.dtype for each in operands], reads.codes)
