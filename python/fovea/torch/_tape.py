# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls of operators with a tape: autograd outside, operators inside."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from .._declarations import FUNCTIONS, Declaration
from ._autocast import make_autocast
from ._operator import BACKWARD, FORWARD, TARGET


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


def _make_nodes(name: str, declaration: Declaration) -> tuple[Any, Any]:
    """The node of a graph, and one that transforms of torch.func can look into, which is
    slower to make."""
    forward_operator, backward_operator = FORWARD[name], BACKWARD[name]
    arguments = (*declaration.values, TARGET)
    lists = _Lists([each.is_list for each in arguments])
    results = [each.name for each in declaration.results]
    conditional = [each for each in declaration.results if each.conditions]
    constants = [index for index, each in enumerate(results) if f"d_{each}" not in declaration.backward]
    needed = [f"d_{each}" for each in results].index(declaration.backward[0])
    wanted = [*declaration.backward, TARGET.name]
    kept = [at for at, each in enumerate(results) if each in " ".join(wanted).replace("/", " ").split()]

    def run(lengths: tuple[int, ...], *flat: Any) -> Any:
        return forward_operator(*lists.join(lengths, flat))

    # Which inputs are tensors, and which are not: the same in every call without lists.
    fixed = [[at + 1 for at, each in enumerate(arguments) if each.is_array == is_array] for is_array in (True, False)]
    fixed[1].insert(0, 0)

    has_lists = any(each.is_list for each in arguments)

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
        for at, value in zip((*tensors, *options), (*saved[: len(tensors)], *ctx.options)):
            inputs[at] = value
        lengths, *flat = inputs
        values = dict(zip((each.name for each in arguments), lists.join(lengths, flat)))
        known = {**values, **dict(zip((results[at] for at in kept), saved[len(tensors) :]))}
        known.update((f"d_{result}", each) for result, each in zip(results, d_outputs))
        for result in conditional:
            if not result.is_there(values):
                known[result.name] = known[f"d_{result.name}"] = None
        for argument, condition in (each.split("/") for each in wanted if "/" in each):
            known[f"{argument}/{condition}"] = None if known[condition] is None else known[argument]
        if d_outputs[needed] is None:
            known[wanted[0]] = flat[0].new_zeros(declaration.shapes(list(values.values())[:-1])[needed])
        gradients = backward_operator(*(known[each] for each in wanted))
        if torch.is_grad_enabled():
            sources = [each for each in (*flat, *d_outputs) if isinstance(each, torch.Tensor)]
            gradients = _Once.apply(name, len(gradients), *gradients, *sources)
        found = iter(gradients)
        given = {each: [next(found) for _ in _tensors(values[each])] for each in declaration.gradients}
        results_of_inputs: list[Any] = [None]
        for each in arguments:
            value = values[each.name]
            missing = _tensors(value) if each.is_list else (value,)
            results_of_inputs.extend(given.get(each.name) or [None] * len(missing))
        return tuple(results_of_inputs)

    def forward(ctx: Any, *inputs: Any) -> Any:
        output = run(*inputs) if has_lists else forward_operator(*inputs[1:])
        remember(ctx, inputs, output)
        return output

    backward = staticmethod(pull_back)
    node = type(f"fovea_{name}", (torch.autograd.Function,), {"forward": staticmethod(forward), "backward": backward})
    open_node = type(
        f"fovea_{name}",
        (torch.autograd.Function,),
        {
            "generate_vmap_rule": True,
            "forward": staticmethod(run),
            "setup_context": staticmethod(remember),
            "backward": backward,
        },
    )
    return node, open_node


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
    if declaration.backward:
        node, open_node = _make_nodes(name, declaration)

    def call(*given: Any) -> Any:
        is_cast = torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")
        values = autocast(given) if is_cast else given
        if not torch.is_grad_enabled():
            return operator(*values)
        if constants:
            refuse_gradients(name, {argument: values[index] for index, argument in constants})
        for index, is_list in inputs:
            value = values[index]
            if any(map(_requires_gradient, value or ())) if is_list else getattr(value, "requires_grad", False):
                break
        else:
            return operator(*values)
        lengths, flat = lists.split(values) if has_lists else ((), values)
        if torch._C._are_functorch_transforms_active():
            return open_node.apply(lengths, *flat)
        return node.apply(lengths, *flat)

    return call
