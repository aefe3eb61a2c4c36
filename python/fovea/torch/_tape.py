# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls of operators with a tape: autograd outside, operators inside."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch._C import _functorch
from torch.autograd import forward_ad

from .._declarations import ASKS, FUNCTIONS, Argument, has_gradient
from ._autocast import make_autocast
from ._operator import BACKWARD, FIRST, FORWARD, KERNELS, TARGET, name_entries
from ._shortcut import make_look, writes_program
from ._vq import quantize_straight_through

_is_autocast_enabled = torch._C._is_any_autocast_enabled
_is_compiling = torch.compiler.is_compiling


def _tensors(value: Any) -> Sequence[Any]:
    """The tensors of an argument that is one, a list of them or None."""
    return () if value is None else value if isinstance(value, (list, tuple)) else (value,)


def _is_transformed() -> bool:
    return torch._C._are_functorch_transforms_active()


def _levels(value: torch.Tensor) -> Iterator[torch.Tensor]:
    """A tensor at each level of torch.func but those of torch.vmap, where it does not say what the one requires that it is a
    batch of.  Dynamo does not look into them."""
    is_wrapped = not _is_compiling() and _is_transformed() and _functorch.is_functorch_wrapped_tensor(value)
    if not is_wrapped or not _functorch.is_batchedtensor(value):
        yield value
    if is_wrapped:
        yield from _levels(_functorch.get_unwrapped(value))


def _requires_gradient(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and any(each.requires_grad for each in _levels(value))


def _batch_levels(values: Sequence[Any]) -> set[int]:
    """Those of torch.vmap that tensors among arguments are batches of."""
    found = set()
    for each in (one for value in values for one in _tensors(value)):
        while isinstance(each, torch.Tensor) and _functorch.is_functorch_wrapped_tensor(each):
            if _functorch.is_batchedtensor(each):
                found.add(_functorch.maybe_get_level(each))
            each = _functorch.get_unwrapped(each)
    return found


def _distinct(tensors: Sequence[Any]) -> list[Any]:
    """Views of those that there are twice, such as keys that are the values, too: torch.compile takes no tensor for two
    arguments of a node."""
    found: list[Any] = []
    for each in tensors:
        is_known = each is not None and any(each is other for other in found)
        found.append(each.view_as(each) if is_known else each)
    return found


def check_tensor(name: str, value: Any) -> None:
    """For callers that ask a tensor something before its operator does."""
    if not isinstance(value, torch.Tensor):
        raise ValueError(f"{name}: found {type(value).__name__}, needed a tensor")
    if value.is_nested:
        raise ValueError(f"{name}: found a nested tensor, needed one without: varlen takes sequences of several lengths")
    if value.is_quantized:
        raise ValueError(f"{name}: found a quantized tensor of {value.dtype}, needed one without: dequantize() gives it")
    if value.layout is not torch.strided:
        raise ValueError(f"{name}: found a tensor of layout {value.layout}, needed torch.strided")


def _check_tensors(function: str, arguments: Sequence[Argument], values: Sequence[Any]) -> None:
    """Errors of the dispatcher write out the value and the schema."""
    for each, value in zip(arguments, values):
        if not each.is_array or (value is None and each.is_optional):
            continue
        if each.is_list and not isinstance(value, (list, tuple)):
            raise ValueError(f"{each.name}: found {type(value).__name__}, needed a list of tensors")
        for name, entry in name_entries(function, each, value):
            if entry is not None or not each.kind.startswith("Tensor?[]"):
                check_tensor(name, entry)


def _explain_gradients(name: str, values: Mapping[str, Any]) -> str | None:
    """What is wrong with arguments that have none in the function `name`, if anything."""
    for argument, value in values.items():
        for index, each in enumerate(_tensors(value)):
            if _requires_gradient(each):
                which = f"{argument}[{index}]" if isinstance(value, (list, tuple)) else argument
                return f"{name}: {which} requires a gradient, but {name} has none for it: pass {which}.detach()"
    return None


def refuse_gradients(name: str, values: Mapping[str, Any]) -> None:
    if text := _explain_gradients(name, values):
        raise RuntimeError(text)


def _refuse_tangents(name: str, values: Mapping[str, Any]) -> None:
    for argument, value in values.items():
        for each in _tensors(value):
            if isinstance(each, torch.Tensor) and any(forward_ad.unpack_dual(one).tangent is not None for one in _levels(each)):
                raise NotImplementedError(
                    f"{name}: {argument} has a tangent, but {name} has no derivatives in forward mode"
                )


class _Packing:
    """How nodes take a call: first `rest`, its values but with the number of tensors in place
    of those that are tensors, lists of them or None; then all tensors, and None for entries that are.  Autograd does not look
    into lists, and each argument of a node takes time, None and numbers as much as tensors.
    `Shortcut` packs in the same way."""

    def __init__(self, arguments: Sequence[Argument]):
        self._is_list = [each.is_list if each.is_array else None for each in arguments]
        #: The numbers of arguments with tensors.
        self.arrays = [index for index, each in enumerate(arguments) if each.is_array]

    def split(self, values: Sequence[Any]) -> tuple[tuple[Any, ...], list[Any]]:
        rest = list(values)
        tensors: list[Any] = []
        for index in self.arrays:
            found = _tensors(values[index])
            rest[index] = None if values[index] is None else len(found)
            tensors += found
        return tuple(rest), tensors

    def join(self, rest: Sequence[Any], tensors: Sequence[Any]) -> list[Any]:
        """The values; there may be more tensors than theirs."""
        values, found = list(rest), iter(tensors)
        for index in self.arrays:
            if rest[index] is not None:
                several = [next(found) for _ in range(rest[index])]
                values[index] = several if self._is_list[index] else several[0]
        return values

    def places(self, rest: Sequence[Any], index: int) -> range:
        """Which arguments of a node the tensors of argument `index` are."""
        first = 1 + sum(rest[each] or 0 for each in self.arrays if each < index)
        return range(first, first + (rest[index] or 0))


class _Refusal(torch.autograd.Function):
    """The first of tensors, which depend on others in ways that have no gradient: who asks for one gets an error."""

    generate_vmap_rule = True

    @staticmethod
    def forward(text: str, count: int, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(tensor.view_as(tensor) for tensor in tensors[:count])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.text = inputs[0]

    @staticmethod
    def backward(ctx: Any, *d_gradients: Any) -> Any:
        raise RuntimeError(ctx.text)


class _Nodes(NamedTuple):
    """Nodes of graphs for one function."""

    #: Runs kernels where it may; takes all values beside `rest`.
    plain: Any
    #: Runs the operator, for those who look at it.
    traced: Any
    #: Transforms of torch.func can look into it; slower to make.
    open: Any


@functools.cache
def _make_nodes(name: str) -> _Nodes:
    declaration, forward_operator, backward_operator = FUNCTIONS[name], FORWARD[name], BACKWARD[name]
    arguments = (*declaration.values, TARGET)
    names = [each.name for each in arguments]
    packing = _Packing(arguments)
    results = [each.name for each in declaration.results]
    d_results = [f"d_{each}" for each in results]
    constants = [index for index, each in enumerate(d_results) if each not in declaration.backward]
    needed = d_results.index(declaration.backward[0])
    wanted = [*declaration.backward, TARGET.name]
    mentioned = " ".join(wanted).replace("/", " ").split()
    kept = [at for at, each in enumerate(results) if each in mentioned]
    flags = [each for each in wanted if each.startswith(ASKS)]
    asked = [names.index(each.removeprefix(ASKS)) for each in flags]

    # Arguments of the backward function are among these.
    known_names = [*names, *(results[at] for at in kept), *d_results, *flags]
    order = [known_names.index(each.split("/")[0]) for each in wanted]
    conditions = [(at, known_names.index(each.split("/")[1])) for at, each in enumerate(wanted) if "/" in each]
    conditional = [
        (result, [at for at, each in enumerate(known_names) if each in (result.name, f"d_{result.name}")])
        for result in declaration.results
        if result.conditions
    ]
    sources = [
        (names.index(each), known_names.index(ASKS + each) if ASKS + each in flags else None)
        for each in declaration.gradients
    ]
    look = make_look(
        [(index, True) for index, each in enumerate(declaration.backward_arguments) if each.is_array]
    )
    backward_kernel = KERNELS[backward_operator]

    def remember(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        outputs = output if isinstance(output, tuple) else (output,)
        ctx.set_materialize_grads(False)
        if constants:
            ctx.mark_non_differentiable(*[outputs[at] for at in constants])
        ctx.rest, *tensors = inputs
        ctx.save_for_backward(*tensors, *[outputs[at] for at in kept])

    def pull_back(ctx: Any, *d_outputs: Any) -> tuple[Any, ...]:
        rest, saved = ctx.rest, ctx.saved_tensors
        tensors = saved[: len(saved) - len(kept)]
        if all(each is None for each in d_outputs):
            return (None,) * (1 + len(tensors))
        values = packing.join(rest, tensors)
        is_asked = [any(ctx.needs_input_grad[at] for at in packing.places(rest, index)) for index in asked]
        known = [*values, *saved[len(tensors) :], *d_outputs, *is_asked]
        for result, places in conditional:
            if not result.is_there(dict(zip(names, values))):
                for at in places:
                    known[at] = None
        given = [known[at] for at in order]
        for at, condition in conditions:
            if known[condition] is None:
                given[at] = None
        if given[0] is None:
            given[0] = tensors[0].new_zeros(declaration.shapes(values[:-1])[needed])
        is_watched = _is_compiling() or look(tuple(given)) is None
        gradients = (backward_operator if is_watched else backward_kernel)(*given)
        if torch.is_grad_enabled():
            of_results = [each for each in d_outputs if each is not None]
            text = f"{name}: gradients of its gradients (double backward) do not exist"
            gradients = _Refusal.apply(text, len(gradients), *gradients, *tensors, *of_results)
        found = iter(gradients)
        of_inputs = {
            index: [next(found) if has_gradient(names[index], each) else None for each in _tensors(values[index])]
            for index, flag in sources
            if flag is None or known[flag]
        }
        aligned: list[Any] = [None]
        for index in packing.arrays:
            aligned += of_inputs.get(index) or [None] * (rest[index] or 0)
        return tuple(aligned)

    def make(forward: Callable[..., Any], **attributes: Any) -> Any:
        methods = {"backward": staticmethod(pull_back), "forward": staticmethod(forward), **attributes}
        return type(f"fovea_{name}", (torch.autograd.Function,), methods)

    kernel = KERNELS[forward_operator]

    def run(ctx: Any, call: tuple[Any, Any], *tensors: torch.Tensor) -> Any:
        rest, values = call
        output = kernel(*values)
        remember(ctx, (rest, *tensors), output)
        return output

    def operate(rest: Sequence[Any], *tensors: torch.Tensor) -> Any:
        return forward_operator(*packing.join(rest, tensors))

    def trace(ctx: Any, *inputs: Any) -> Any:
        output = operate(*inputs)
        remember(ctx, inputs, output)
        return output

    return _Nodes(
        plain=make(run),
        traced=make(trace),
        open=make(operate, setup_context=staticmethod(remember), generate_vmap_rule=True),
    )


_library = torch.library.Library("fovea", "FRAGMENT")


def _register(name: str) -> None:
    """A tape for those who call the operator itself, as programs of torch.export do."""
    declaration, operator = FUNCTIONS[name], FORWARD[name]
    packing = _Packing(declaration.values)
    gradients = ["k"] if name == "quantize" else declaration.gradients

    def name_arrays(values: Sequence[Any]) -> dict[str, Any]:
        return {declaration.values[index].name: values[index] for index in packing.arrays}

    def call(keys: Any, *values: Any) -> Any:
        if forward_ad._current_level >= 0:
            _refuse_tangents(name, name_arrays(values))
        rest, tensors = packing.split(values) if torch.is_grad_enabled() else ((), [])
        if not torch._C._any_requires_grad(*tensors):
            return operator.redispatch(keys & torch._C._after_autograd_keyset, *values)
        if _is_transformed():
            raise NotImplementedError(f"{name}: found a call of its operator under torch.func, needed fovea.torch.{name}")
        constants = {argument: each for argument, each in name_arrays(values).items() if argument not in gradients}
        if text := _explain_gradients(name, constants):
            # Programs that PyTorch made ready for inference detach nothing.
            with torch.no_grad():
                found = operator(*values)
            several = found if isinstance(found, tuple) else (found,)
            marked = _Refusal.apply(text, len(several), *several, *tensors)
            return marked if isinstance(found, tuple) else marked[0]
        return quantize_straight_through(operator, *values) if name == "quantize" else _make_nodes(name).traced.apply(rest, *tensors)

    _library.impl(operator.name(), call, "Autograd", with_keyset=True)


for _name in FUNCTIONS:
    _register(_name)


def make_call(name: str, *, is_first: bool = False) -> Callable[..., Any]:
    """Calls the operator `name` with values of all arguments of its declaration and the
    target, with a tape where one of them requires a gradient.  If `is_first`, callers take the
    first result alone."""
    declaration = FUNCTIONS[name]
    operator = FORWARD[name]
    packing = _Packing(declaration.values)
    arrays = {each.name: index for index, each in enumerate(declaration.values) if each.is_array}
    inputs = [index for argument, index in arrays.items() if argument in declaration.gradients]
    constants = {argument: index for argument, index in arrays.items() if argument not in declaration.gradients}
    autocast = make_autocast(name, declaration)
    look = make_look([(index, argument in declaration.gradients) for argument, index in arrays.items()])
    hidden = [index for index, each in enumerate(declaration.values) if each.kind == "Tensor[]?"]
    seen = [index for index in arrays.values() if index not in hidden]
    kernel = FIRST[name] if is_first else KERNELS[operator]
    if declaration.backward:
        nodes = _make_nodes(name)

    def spread(values: Sequence[Any]) -> Sequence[Any]:
        """The dispatcher does not look into lists that may be None: where these alone are batches of torch.vmap, the first
        tensor becomes one, too."""
        levels = _batch_levels([values[index] for index in seen])
        lists = [each for index in hidden for each in _tensors(values[index]) if _batch_levels([each]) - levels]
        first = values[seen[0]]
        for each in lists:
            first = first + torch.zeros_like(each).sum().to(first.dtype)
        return [first if index == seen[0] else value for index, value in enumerate(values)] if lists else values

    def dispatch(values: Sequence[Any]) -> Any:
        _check_tensors(name, declaration.values, values)
        if hidden and not _is_compiling() and _is_transformed():
            values = spread(values)
        if forward_ad._current_level >= 0:
            _refuse_tangents(name, {argument: values[index] for argument, index in arrays.items()})
        if not torch.is_grad_enabled() or writes_program():
            return operator(*values)
        refuse_gradients(name, {argument: values[index] for argument, index in constants.items()})
        if torch.compiler.is_dynamo_compiling() and _is_transformed():
            # Within torch.vmap it does not know what requires a gradient outside, and leaves nodes out.
            return dispatch_eagerly(values)
        if not any(_requires_gradient(each) for index in inputs for each in _tensors(values[index])):
            return operator(*values)
        rest, tensors = packing.split(values)
        if _is_compiling():
            tensors = _distinct(tensors)
        node = nodes.open if _is_transformed() else nodes.traced
        return node.apply(rest, *tensors)

    dispatch_eagerly = torch.compiler.disable(dispatch, reason=f"fovea.torch.{name}: gradients through torch.vmap")

    def call(*given: Any) -> Any:
        values = tuple(autocast(given)) if _is_autocast_enabled() else given
        packed = None if _is_compiling() else look(values)
        if packed is None:
            found = dispatch(values)
        elif packed:
            rest, *tensors = packed
            found = nodes.plain.apply((rest, values), *tensors)
        else:
            return kernel(*values)
        return found[0] if is_first else found

    return call
