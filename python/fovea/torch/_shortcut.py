# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls of kernels that PyTorch's dispatcher need not see.

Operators are there for those who look at them: compilers, tracers, modes, transforms,
profilers, and tensors of other classes.  Where none of them is near, a call of the operator
does what a call of its kernel does, several microseconds later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._C import DispatchKey, DispatchKeySet, _dispatch_keys
from torch.autograd import forward_ad

_CLASSES = (torch.Tensor, torch.nn.Parameter)


def _repr(*keys: DispatchKey) -> int:
    found = DispatchKeySet(keys[0])
    for key in keys[1:]:
        found = found | DispatchKeySet(key)
    return found.raw_repr()


#: Of tensors in the memory of the host that are all that they say, as views with a sign or
#: tensors of zeros are not; those of inference mode have no key of autograd.
_PLAIN = frozenset(
    [
        _repr(DispatchKey.CPU, DispatchKey.AutocastCPU),
        _repr(DispatchKey.CPU, DispatchKey.AutocastCPU, DispatchKey.ADInplaceOrView, DispatchKey.AutogradCPU),
    ]
)


def _is_watched() -> bool:
    return bool(
        torch._C._len_torch_dispatch_stack()
        or torch._C._len_torch_function_stack()
        or torch._C._are_functorch_transforms_active()
        or forward_ad._current_level >= 0
        or torch.autograd._profiler_enabled()
        or torch._C._get_tracing_state()
    )


def make_check(arrays: Sequence[int]) -> Callable[[Sequence[Any]], bool]:
    """Whether a call may be cut short, by its values, of which those with these numbers are
    tensors, lists of tensors or None."""

    def check(values: Sequence[Any]) -> bool:
        # First, so that what compiles sees nothing of the rest.
        if torch.compiler.is_compiling() or _is_watched():
            return False
        for index in arrays:
            value = values[index]
            for each in value if isinstance(value, (list, tuple)) else (value,):
                if each is not None and (
                    type(each) not in _CLASSES or _dispatch_keys(each).raw_repr() not in _PLAIN
                ):
                    return False
        return True

    return check
