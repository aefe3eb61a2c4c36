# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention modules of PyTorch that train.

Each has the conventions of `torch.nn.MultiheadAttention`: the arguments of the
constructor and of `forward`, the names of parameters, and a result of the output and
None.  What a pattern cannot do, such as returning weights, is an error.
"""

from ._conv_basis import *
from ._dense import *
from ._multipole import *
from ._vcc import *
from ._vq import *
