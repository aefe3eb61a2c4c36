# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What `torch.utils.flop_counter.FlopCounterMode` counts for operators: the useful operations of `UsefulFlops.h`.

They follow from types, shapes and options: nothing is compiled for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch._subclasses.fake_tensor import is_fake
from torch.utils.flop_counter import register_flop_formula

from .. import _fovea
from .._abstract import AbstractArray
from .._declarations import FUNCTIONS, Argument
from . import _decode  # noqa: F401  (has an operator of its own)
from ._operator import BACKWARD, FORWARD, TARGET, pass_on
from ._vq import COMPILED_PARTS, compiled_state

#: Of these the numbers are the lengths of sequences, of which each is a call; where they are not known, all rows are one.
_STARTS = ("cu_seqlens_q", "cu_seqlens_k")


def _describe(name: str, value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_describe(name, each) for each in value]
    if not isinstance(value, torch.Tensor):
        return value
    if name in _STARTS and not is_fake(value) and not value.is_meta:
        return value.cpu().numpy()
    if name == "d_loss":
        return 1.0
    kind = torch.int32 if name == "positions" else value.dtype
    dtype = _fovea.bfloat16() if kind == torch.bfloat16 else np.dtype(str(kind).rpartition(".")[2])
    return AbstractArray(dtype, value.shape)


def _register(operator: Any, give: Callable[[dict[str, Any]], Iterable[Any]]) -> None:
    """`give` makes arguments of the compiled function of arguments of the operator by name."""
    name = operator._schema.name.removeprefix("fovea::")
    names = [each.name for each in operator._schema.arguments if each.name != TARGET.name]

    def count(*values: Any, out_val: Any = None, **named: Any) -> int:
        found = {**dict(zip(names, values)), **named}
        passed = give({each: _describe(each, found[each]) for each in names})
        return int(_fovea.count_described_flops(lambda: getattr(_fovea, name)(*passed, "cpu")))

    register_flop_formula(operator.overloadpacket, get_raw=True)(count)


def _register_declared(operator: Any, arguments: Sequence[Argument]) -> None:
    def give(described: dict[str, Any]) -> list[Any]:
        # What a state has for its gradient alone; gradients of the next one are no work.
        if "state" in described:
            described["state"] = compiled_state(described["state"])
        passed = pass_on(arguments, described.values(), asks=True)
        if "d_mean" in described:
            passed[-3:] = [None]
        return passed

    _register(operator, give)


def _give_decode(described: dict[str, Any]) -> list[Any]:
    values = list(described.values())
    return [*values[:-COMPILED_PARTS], tuple(values[-COMPILED_PARTS:])]


for _name, _operator in FORWARD.items():
    _register_declared(_operator, FUNCTIONS[_name].arguments)
for _name, _operator in BACKWARD.items():
    _register_declared(_operator, FUNCTIONS[_name].backward_arguments)
_register(torch.ops.fovea.vq_decode.default, _give_decode)
