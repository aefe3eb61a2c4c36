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
from torch.autograd import forward_ad

from .. import _fovea

_CLASSES = (torch.Tensor, torch.nn.Parameter)


#: True where someone does look; those who compile are asked for in Python, so that what
#: compiles sees nothing of this.
_WATCHERS = (
    torch._C._len_torch_dispatch_stack,
    torch._C._len_torch_function_stack,
    torch._C._are_functorch_transforms_active,
    lambda: forward_ad._current_level >= 0,
    torch.autograd._profiler_enabled,
    torch._C._get_tracing_state,
)


def writes_program() -> bool:
    """Whether the caller is one of torch.export or torch.jit.trace, whose programs have operators but no nodes of autograd."""
    return torch.compiler.is_exporting() or torch.jit.is_tracing()


def make_look(inputs: Sequence[tuple[int, bool]]) -> Callable[[tuple[Any, ...]], tuple[Any, ...] | None]:
    """What a node of autograd takes for a call, by its values: nothing where it needs none,
    None where the call must not be cut short.  `inputs` are the numbers of values that are
    tensors, lists of tensors or None, and tell which have gradients."""
    return _fovea.Shortcut(_CLASSES, _WATCHERS, torch.Tensor.is_neg, torch.is_grad_enabled, inputs).look
