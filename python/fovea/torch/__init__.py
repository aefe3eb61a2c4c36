# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The functions of `fovea` on tensors of PyTorch, with gradients.

    import fovea.torch
    out = fovea.torch.dense(q, k, v, causal=True)

They have the names and arguments of those of `fovea`, take tensors on the CPU or a GPU
and return tensors there.
"""

from . import _backend, _flops, _vmap  # noqa: F401  (register a backend of torch.compile, formulas and rules)
from . import nn as nn
from ._caches import *
from ._decode import *
from ._fallbacks import *
from ._flex import *
from ._functions import *
from ._sdpa import *
from ._swap import *
from ._transformers import *
from ._tree import *
