# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What `torch.utils.flop_counter.FlopCounterMode` counts for operators: the useful operations of `UsefulFlops.h`.

They follow from types, shapes and options: nothing is compiled for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch._subclasses.fake_tensor import is_fake
from torch.utils.flop_counter import register_flop_formula

from .. import _fovea
from .._abstract import AbstractArray
from .._declarations import FUNCTIONS, Argument
from ._operator import BACKWARD, FORWARD, pass_on
from ._vq import compiled_state

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


def _register(operator: Any, name: str, arguments: Sequence[Argument]) -> None:
    given = [each.name for each in arguments if each.kind]

    def count(*values: Any, out_val: Any = None, **named: Any) -> int:
        found = {**dict(zip(given, values)), **named}
        described = {each: _describe(each, found[each]) for each in given}
        if name.startswith("vq"):
            described["state"] = compiled_state(described["state"])
        passed = pass_on(arguments, described.values(), asks=True)
        if name == "vq_backward":
            # Gradients of the next state are one argument, and no work.
            passed[-3:] = [None]
        return int(_fovea.count_described_flops(lambda: getattr(_fovea, name)(*passed, "cpu")))

    register_flop_formula(operator.overloadpacket, get_raw=True)(count)


for _name, _operator in FORWARD.items():
    _register(_operator, _name, FUNCTIONS[_name].arguments)
for _name, _operator in BACKWARD.items():
    _register(_operator, f"{_name}_backward", FUNCTIONS[_name].backward_arguments)
