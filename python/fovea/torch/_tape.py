# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls of operators with a tape: autograd outside, operators inside."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.autograd import forward_ad

from .._declarations import ASKS, FUNCTIONS, Declaration
from ._autocast import make_autocast
from ._operator import BACKWARD, FORWARD, KERNELS, TARGET
from ._shortcut import make_check


def _tensors(value: Any) -> Sequence[Any]:
    """The tensors of an argument that is one, a list of them or None."""
    return () if value is None else value if isinstance(value, (list, tuple)) else (value,)


def _requires_gradient(value: Any) -> bool:
    return getattr(value, "requires_grad", False)


def refuse_gradients(name: str, values: Mapping[str, Any]) -> None:
    """For arguments that have none in the function `name`."""
    for argument, value in values.items():
        if torch.is_grad_enabled() and any(map(_requires_gradient, _tensors(value))):
            raise RuntimeError(
                f"{name}: {argument} requires a gradient, but {name} has none for it: pass {argument}.detach()"
            )


def _refuse_tangents(name: str, values: Mapping[str, Any]) -> None:
    for argument, value in values.items():
        for each in _tensors(value):
            if isinstance(each, torch.Tensor) and forward_ad.unpack_dual(each).tangent is not None:
                raise NotImplementedError(
                    f"{name}: {argument} has a tangent, but {name} has no derivatives in forward mode"
                )


class _Lists:
    """Autograd does not look into lists: their entries are arguments of a node, and the
    lengths of all lists, -1 for None, another one."""

    def __init__(self, is_list: Sequence[bool]):
        self._is_list = is_list

    def split(self, values: Sequence[Any]) -> tuple[tuple[int, ...], Sequence[Any]]:
        lengths: list[int] = []
        flat: list[Any] = []
        for value, is_list in zip(values, self._is_list):
            if is_list:
                lengths.append(-1 if value is None else len(value))
            flat.extend(_tensors(value) if is_list else (value,))
        return tuple(lengths), flat

    def join(self, lengths: Sequence[int], flat: Sequence[Any]) -> Sequence[Any]:
        if not lengths:
            return flat
        values: list[Any] = []
        rest, at = iter(lengths), 0
        for is_list in self._is_list:
            count = next(rest) if is_list else 1
            given = list(flat[at : at + max(count, 0)])
            values.append((given if count >= 0 else None) if is_list else given[0])
            at += len(given)
        return values


class _Once(torch.autograd.Function):
    """Gradients, which depend on tensors in ways that have no gradient."""

    generate_vmap_rule = True

    @staticmethod
    def forward(name: str, count: int, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(tensor.view_as(tensor) for tensor in tensors[:count])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.name = inputs[0]

    @staticmethod
    def backward(ctx: Any, *d_gradients: Any) -> Any:
        raise RuntimeError(f"{ctx.name}: gradients of its gradients (double backward) do not exist")


class _Nodes(NamedTuple):
    """Nodes of graphs for one function."""

    #: Runs kernels where it may.
    plain: Any
    #: Runs the operator, for those who look at it.
    traced: Any
    #: Transforms of torch.func can look into it; slower to make.
    open: Any


def _make_nodes(name: str, declaration: Declaration) -> _Nodes:
    forward_operator, backward_operator = FORWARD[name], BACKWARD[name]
    arguments = (*declaration.values, TARGET)
    names = [each.name for each in arguments]
    is_list = [each.is_list for each in arguments]
    lists = _Lists(is_list)
    has_lists = any(is_list)
    results = [each.name for each in declaration.results]
    d_results = [f"d_{each}" for each in results]
    conditional = [each for each in declaration.results if each.conditions]
    constants = [index for index, each in enumerate(d_results) if each not in declaration.backward]
    needed = d_results.index(declaration.backward[0])
    wanted = [*declaration.backward, TARGET.name]
    pairs = [each.split("/") for each in wanted if "/" in each]
    mentioned = " ".join(wanted).replace("/", " ").split()
    kept = [at for at, each in enumerate(results) if each in mentioned]
    kept_names = [results[at] for at in kept]
    # Flags of the backward function, and which input of a node each is about; no list has one.
    asks = [(each, 1 + names.index(each.removeprefix(ASKS))) for each in wanted if each.startswith(ASKS)]
    is_plain = make_check(
        [index for index, each in enumerate(declaration.backward_arguments) if each.is_array]
    )
    backward_kernel = KERNELS[backward_operator]

    # Which inputs are tensors, and which are not: the same in every call without lists.
    fixed = [[at + 1 for at, each in enumerate(arguments) if each.is_array == is_array] for is_array in (True, False)]
    fixed[1].insert(0, 0)

    def find_tensors(inputs: tuple[Any, ...]) -> list[list[int]]:
        return [
            [at for at, value in enumerate(inputs) if isinstance(value, torch.Tensor) == is_tensor]
            for is_tensor in (True, False)
        ]

    def remember(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        outputs = output if isinstance(output, tuple) else (output,)
        ctx.set_materialize_grads(False)
        if constants:
            ctx.mark_non_differentiable(*[outputs[at] for at in constants])
        tensors, options = fixed
        if has_lists:
            ctx.slots = tensors, options = find_tensors(inputs)
        ctx.options = [inputs[at] for at in options]
        ctx.save_for_backward(*[inputs[at] for at in tensors], *[outputs[at] for at in kept])

    def pull_back(ctx: Any, *d_outputs: Any) -> tuple[Any, ...]:
        tensors, options = ctx.slots if has_lists else fixed
        inputs: list[Any] = [None] * (len(tensors) + len(options))
        if all(each is None for each in d_outputs):
            return tuple(inputs)
        saved = ctx.saved_tensors
        # The results that were kept come last.
        for at, value in zip((*tensors, *options), (*saved[: len(tensors)], *ctx.options)):
            inputs[at] = value
        lengths, *flat = inputs
        values = dict(zip(names, lists.join(lengths, flat)))
        known = dict(values)
        known.update(zip(kept_names, saved[len(tensors) :]))
        known.update(zip(d_results, d_outputs))
        for each, at in asks:
            known[each] = ctx.needs_input_grad[at]
        for result in conditional:
            if not result.is_there(values):
                known[result.name] = known[f"d_{result.name}"] = None
        for argument, condition in pairs:
            known[f"{argument}/{condition}"] = None if known[condition] is None else known[argument]
        if d_outputs[needed] is None:
            known[wanted[0]] = flat[0].new_zeros(declaration.shapes(list(values.values())[:-1])[needed])
        given = [known[each] for each in wanted]
        gradients = (backward_kernel if is_plain(given) else backward_operator)(*given)
        if torch.is_grad_enabled():
            sources = [each for each in (*flat, *d_outputs) if isinstance(each, torch.Tensor)]
            gradients = _Once.apply(name, len(gradients), *gradients, *sources)
        found = iter(gradients)
        of_inputs: dict[str, list[Any]] = {}
        for each in declaration.gradients:
            if known.get(ASKS + each, True):
                of_inputs[each] = [next(found) for _ in _tensors(values[each])]
        aligned: list[Any] = [None]
        for each, value, is_several in zip(names, values.values(), is_list):
            aligned += of_inputs.get(each) or [None] * (len(_tensors(value)) if is_several else 1)
        return tuple(aligned)

    def make(is_open: bool, run: Callable[..., Any]) -> Any:
        def compute(*inputs: Any) -> Any:
            return run(*(lists.join(inputs[0], inputs[1:]) if has_lists else inputs[1:]))

        def forward(ctx: Any, *inputs: Any) -> Any:
            output = compute(*inputs)
            remember(ctx, inputs, output)
            return output

        methods: dict[str, Any] = {"backward": staticmethod(pull_back), "forward": staticmethod(compute if is_open else forward)}
        if is_open:
            methods.update(generate_vmap_rule=True, setup_context=staticmethod(remember))
        return type(f"fovea_{name}", (torch.autograd.Function,), methods)

    return _Nodes(
        plain=make(False, KERNELS[forward_operator]),
        traced=make(False, forward_operator),
        open=make(True, forward_operator),
    )


def make_call(name: str) -> Callable[..., Any]:
    """Calls the operator `name` with values of all arguments of its declaration and the
    target, with a tape where one of them requires a gradient."""
    declaration = FUNCTIONS[name]
    operator = FORWARD[name]
    lists = _Lists([each.is_list for each in (*declaration.values, TARGET)])
    inputs = [(index, each.is_list) for index, each in enumerate(declaration.values) if each.name in declaration.gradients]
    constants = [
        (index, each.name)
        for index, each in enumerate(declaration.values)
        if each.is_array and each.name not in declaration.gradients
    ]
    autocast = make_autocast(name, declaration)
    has_lists = any(each.is_list for each in declaration.values)
    is_plain = make_check([index for index, each in enumerate(declaration.values) if each.is_array])
    kernel = KERNELS[operator]
    if declaration.backward:
        nodes = _make_nodes(name, declaration)

    def call(*given: Any) -> Any:
        is_cast = torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")
        values = autocast(given) if is_cast else given
        skips = is_plain(values)
        if not skips and forward_ad._current_level >= 0:
            _refuse_tangents(name, {each.name: values[index] for index, each in enumerate(declaration.values) if each.is_array})
        if not torch.is_grad_enabled():
            return (kernel if skips else operator)(*values)
        if constants:
            refuse_gradients(name, {argument: values[index] for index, argument in constants})
        for index, is_list in inputs:
            value = values[index]
            if any(map(_requires_gradient, value or ())) if is_list else getattr(value, "requires_grad", False):
                break
        else:
            return (kernel if skips else operator)(*values)
        lengths, flat = lists.split(values) if has_lists else ((), values)
        if skips:
            return nodes.plain.apply(lengths, *flat)
        if torch._C._are_functorch_transforms_active():
            return nodes.open.apply(lengths, *flat)
        return nodes.traced.apply(lengths, *flat)

    return call
