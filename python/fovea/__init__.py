# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention patterns, compiled for the shapes they are called with.

    out = fovea.dense(q, k, v, causal=True)
    out = fovea.fast_multipole(q, k, v, key_weights, value_weights, group=64)

Arrays are NumPy arrays or anything else with DLPack, on a GPU for the target
"gpu"; results are NumPy arrays, or stay on the GPU.  An argument that does not fit
raises ValueError, which names it, what was found and what is needed; a failure to
compile or to run raises FoveaError.  In shapes, B is the batch, H and G are heads of
queries and of keys, N and M queries and keys, D and E columns of a head.

`fovea.compile` compiles IR of your own, and `fovea.reference` holds plain NumPy
versions of the functions here.
"""

from . import (
    _caches,
    _conv,
    _explain,
    _low_rank,
    _paged,
    _patterns,
    _pool,
    _program,
    _quantize,
    _rope,
    _stream,
    _suggest,
    _trace,
    _varlen,
    _vq,
    _weights,
    compiler,
    math,
    ops,
    tree,
)
from ._caches import *
from ._conv import *
from ._explain import *
from ._fovea import VERSION, FoveaError, Kernel
from ._low_rank import *
from ._paged import *
from ._patterns import *
from ._pool import *
from ._program import *
from ._quantize import *
from ._rope import *
from ._stream import *
from ._suggest import *
from ._trace import *
from ._varlen import *
from ._vq import *
from ._weights import *
from .compiler import *
from .ops import *
from .tree import *

__version__ = VERSION

__all__ = (
    ["FoveaError", "Kernel", "math"]
    + _caches.__all__
    + _conv.__all__
    + _explain.__all__
    + _low_rank.__all__
    + _paged.__all__
    + _patterns.__all__
    + _pool.__all__
    + _program.__all__
    + _quantize.__all__
    + _rope.__all__
    + _stream.__all__
    + _suggest.__all__
    + _trace.__all__
    + _varlen.__all__
    + _vq.__all__
    + _weights.__all__
    + compiler.__all__
    + ops.__all__
    + tree.__all__
)
