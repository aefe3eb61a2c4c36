# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operators of PyTorch, made of the declarations of functions.

`fovea::dense(Tensor q, ..., str? target) -> (Tensor, Tensor)` and, where there are
gradients, `fovea::dense_backward(Tensor? d_out, ...) -> Tensor[]`.  Kernels compile
when an operator first runs: those who trace see shapes, types and strides only.

Results have their axes in memory in the order of those of the argument that they are like,
as `torch.empty_like` has them: [B,N,H,E] for q of [B,N,H,D].  So have gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from .. import _fovea
from .._declarations import ASKS, FUNCTIONS, Argument, Declaration, has_gradient
from . import _positions, _vq
from ._vq import sum_type

TARGET = Argument("target", "str?", None)

#: Lists in which None and numbers are mixed have no form in files of torch.export: operators take this for None.
OPTIONAL_COUNTS, NO_COUNT = "SymInt?[]", -1
_SCHEMAS = {OPTIONAL_COUNTS: "SymInt[]"}


def is_differentiated(name: str) -> bool:
    """Whether the compiler makes the gradient of a function, which reads and writes contiguous tensors on GPUs."""
    return name.startswith("tree_")


def with_contiguous_gradient(run: Callable[..., Any]) -> Callable[..., Any]:
    """The gradient of a function that is differentiated, from a contiguous one of its result."""

    def call(gradient: torch.Tensor | None, *values: Any, **options: Any) -> Any:
        return run(None if gradient is None else gradient.contiguous(), *values, **options)

    return call


_ADAPTED = _vq.ADAPTED | _positions.ADAPTED
_ADAPTED |= {
    f"{name}_backward": with_contiguous_gradient(getattr(_fovea.tensors, f"{name}_backward"))
    for name, each in FUNCTIONS.items()
    if is_differentiated(name) and each.backward
}
#: What computes the results of an operator, for the same values.
KERNELS: dict[Any, Callable[..., Any]] = {}
#: What computes the first result of a function alone, where flags ask for the others.
FIRST: dict[str, Callable[..., Any]] = {}


def with_rows(run: Callable[..., Any]) -> Callable[..., Any]:
    """For GPUs, whose kernels read rows, wherever these lie: tensors without contiguous ones are copied there, to
    memory whose order results have as well."""

    def pack(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [pack(each) for each in value]
        if not isinstance(value, torch.Tensor) or value.dim() == 0 or value.shape[-1] == 1 or value.stride(-1) == 1:
            return value
        place = _place(value)
        return value.contiguous() if place is None else place.copy_(value)

    return lambda *values: run(*map(pack, values))


def _define(
    name: str, arguments: Sequence[Argument], returns: str, run: Callable[..., Any], fake: Callable[..., Any]
) -> Any:
    schema = ", ".join(f"{_SCHEMAS.get(each.kind, each.kind)} {each.name}" for each in (*arguments, TARGET) if each.kind)
    full = f"fovea::{name}"
    torch.library.define(full, f"({schema}) -> {returns}", tags=(torch.Tag.pt2_compliant_tag,))
    torch.library.impl(full, "cpu", run)
    torch.library.impl(full, "cuda", with_rows(run))
    torch.library.register_fake(full, fake)
    operator = getattr(torch.ops.fovea, name).default
    KERNELS[operator] = run
    return operator


def name_entries(function: str, argument: Argument, value: Any) -> Iterator[tuple[str, Any]]:
    """What an array is called, or the entries of a list of them; those of `stream` are parts of sources."""
    if not argument.is_list or not isinstance(value, (list, tuple)):
        yield argument.name, value
        return
    is_of_sources = function.startswith("stream") and argument.name != "captures"
    for index, entry in enumerate(value):
        yield f"sources[{index}].{argument.name}" if is_of_sources else f"{argument.name}[{index}]", entry


def _check_devices(function: str, arguments: Sequence[Argument], values: Sequence[Any]) -> None:
    """As kernels do, for those who trace: one of several devices would win, and its kernel be called."""
    first = values[0].device
    for each, value in zip(arguments, values):
        for name, tensor in name_entries(function, each, value) if each.is_array else ():
            if tensor is not None and tensor.device != first:
                raise ValueError(f"{name}: found a tensor on {tensor.device}, needed all tensors on the same device, {first}")


_FindPlaces = Callable[[Sequence[Any]], list[torch.Tensor | None] | None]


def pass_on(arguments: Sequence[Argument], values: Iterable[Any], *, asks: bool) -> list[Any]:
    """What a compiled function takes for values of its operator; flags that ask for results are `asks`."""
    rest, found = iter(values), []
    for each in arguments:
        value: Any = next(rest) if each.kind else asks
        if each.kind.startswith("float[]") and value is not None:
            value = np.array(value, np.float64)
        elif each.kind == "int[]":
            value = dict(zip(value[::2], value[1::2]))
        elif each.kind == OPTIONAL_COUNTS:
            value = [None if count == NO_COUNT else count for count in value]
        found.append(value)
    return found


def _compiled(
    name: str, arguments: Sequence[Argument], find_places: _FindPlaces | None, *, asks: bool = True
) -> Callable[..., Any]:
    """The compiled function, for arguments of the operator: those of the declaration and
    the target.  Flags that ask for results are `asks`; without, there is one result.  It
    writes results to the places that are found for them, and makes contiguous ones where
    there is none."""
    function = _ADAPTED.get(name) or getattr(_fovea.tensors, name)
    given = [each for each in arguments if each.kind]
    # As a rule, what is passed on is what is given, and flags behind that.
    is_same = all(one is other for one, other in zip(arguments, given)) and not any(
        each.kind.startswith(("float[]", "int[]", OPTIONAL_COUNTS)) for each in arguments
    )
    flags = [asks] * (len(arguments) - len(given))

    def call(*values: Any) -> Any:
        places = find_places(values) if find_places else None
        *rest, target = values
        rest = rest + flags if is_same else pass_on(arguments, rest, asks=asks)
        if places is None:
            return function(*rest, target)
        return function(*rest, target, out=places if asks else places[:1])

    return call


def _type(like: str, values: dict[str, Any], first: torch.Tensor) -> torch.dtype:
    like, _, wide = like.partition("|")
    if wide and values[wide]:
        like = "sums"
    if like in values:
        return values[like].dtype
    if like == "sums":
        return sum_type(first.dtype)
    return {"int32": torch.int32, "int64": torch.int64}[like]


def _place(like: torch.Tensor, width: Any = None) -> torch.Tensor | None:
    """Memory for what has the order of axes of `like`, and rows of `width` if that is given.
    None where that is contiguous."""
    if like.is_contiguous():
        return None
    if width is not None and width != like.shape[-1]:
        # `empty_like` leaves an axis that is expanded where it is.
        like = like[..., :1].expand(*like.shape[:-1], width)
    found = torch.empty_like(like)
    # Kernels write contiguous rows.
    return found if found.stride(-1) == 1 else None


def _flat(found: Any) -> list[torch.Tensor]:
    """The tensors among results, which may be in tuples and lists."""
    if isinstance(found, (tuple, list)):
        return [each for part in found for each in _flat(part)]
    return [found] if isinstance(found, torch.Tensor) else []


def _define_forward(name: str, declaration: Declaration) -> Any:
    names = [each.name for each in declaration.values]
    results = declaration.results
    is_complete = not any(each.conditions for each in results)
    order, width = declaration.order, declaration.width
    rank = len(results[0].axes)

    def find_width(values: Sequence[Any]) -> Any:
        if width is not None:
            return values[width].shape[-1]
        shape = declaration.shapes(values)[0]
        assert shape is not None
        return shape[-1]

    def find_places(values: Sequence[Any]) -> list[torch.Tensor | None] | None:
        assert order is not None
        like = values[order]
        # Where there is none, or one of another rank, the function says what is wrong.
        if like is None or like.is_contiguous() or like.dim() != rank:
            return None
        if width is not None and (values[width] is None or not values[width].dim()):
            return None
        place = _place(like, find_width(values))
        if place is None:
            return None
        named = {} if is_complete else dict(zip(names, values))
        return [place, *(None for each in results[1:] if each.is_there(named))]

    def compile(asks: bool) -> Callable[..., Any]:
        return _compiled(name, declaration.arguments, None if order is None else find_places, asks=asks)

    compiled = compile(asks=True)
    if any(not each.kind for each in declaration.arguments):
        FIRST[name] = compile(asks=False)

    def run(*values: Any) -> Any:
        named, there = dict(zip(names, values)), iter(_flat(compiled(*values)))
        # No operator returns None.
        return tuple(
            next(there) if each.is_there(named) else values[0].new_empty(0, dtype=_type(each.like, named, values[0]))
            for each in results
        )

    def fake(*values: Any) -> Any:
        _check_devices(name, declaration.values, values)
        first, named = values[0], dict(zip(names, values))
        found = [
            first.new_empty(0 if shape is None else shape, dtype=_type(result.like, named, first))
            for result, shape in zip(results, declaration.shapes(values))
        ]
        place = None if order is None else _place(values[order], found[0].shape[-1])
        if place is not None:
            found[0] = place
        return found[0] if len(found) == 1 else tuple(found)

    returns = "Tensor" if len(results) == 1 else f"({', '.join(['Tensor'] * len(results))})"
    return _define(name, declaration.values, returns, compiled if is_complete else run, fake)


def _define_backward(name: str, declaration: Declaration) -> Any:
    arguments = declaration.backward_arguments
    names = [each.name for each in arguments]
    # What has the axes of each gradient, if any.
    sources = [
        names.index(each) if axes is None else 0 if axes == arguments[0].axes else None
        for each, axes in zip(declaration.gradients, declaration.gradient_axes)
    ]
    known = [index for index in sources if index is not None]
    flags = [names.index(ASKS + each) if ASKS + each in names else None for each in declaration.gradients]

    def find_places(values: Sequence[Any]) -> list[torch.Tensor | None] | None:
        if is_differentiated(name) and _flat(values)[0].is_cuda:
            return None
        for index in known:
            value = values[index]
            if value is not None and (isinstance(value, (list, tuple)) or not value.is_contiguous()):
                break
        else:
            return None
        places: list[torch.Tensor | None] = []
        for source, flag in zip(sources, flags):
            value = None if source is None else values[source]
            if flag is not None and not values[flag]:
                continue
            if source is None:
                places.append(None)
            elif isinstance(value, (list, tuple)):
                places += [_place(each) for each in value if has_gradient(names[source], each)]
            elif value is not None:
                places.append(_place(value))
        return None if all(place is None for place in places) else places

    compiled = _compiled(f"{name}_backward", arguments, find_places)

    def run(*values: Any) -> list[torch.Tensor]:
        return _flat(compiled(*values))

    def fake(*values: Any) -> list[torch.Tensor]:
        _check_devices(name, arguments, values)
        places = find_places(values)
        shapes = declaration.gradient_shapes(values)
        return [
            like.new_empty(shape) if place is None else place
            for (shape, like), place in zip(shapes, places or [None] * len(shapes))
        ]

    return _define(f"{name}_backward", arguments, "Tensor[]", run, fake)


FORWARD: dict[str, Any] = {name: _define_forward(name, each) for name, each in FUNCTIONS.items()}
BACKWARD: dict[str, Any] = {
    name: _define_backward(name, each) for name, each in FUNCTIONS.items() if each.backward
}
