# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random programs of PyTorch: chains of operations that models use.

Each module adds operations to `draw.KINDS`; `program` draws from them and makes a
module of the draw; `trial` compiles it and compares what it computes with eager
PyTorch.
"""

from . import attention, elements, indices, layers, reductions, shapes
from .trial import Trial

__all__ = ["Trial", "attention", "elements", "indices", "layers", "reductions", "shapes"]
