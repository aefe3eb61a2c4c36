# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The functions of `fovea` on arrays of JAX: within `jax.jit`, `jax.grad`, `jax.vmap`,
`jax.shard_map` and `jax.export`.

    import fovea.jax

    out = fovea.jax.dense(q, k, v, causal=True)
    gradient = jax.grad(lambda q: fovea.jax.dense(q, k, v, causal=True).sum())(q)

They have the names, arguments and results of those of `fovea`, but for `target`, `out` and
`gradients`: they run where the program does, and results are written where XLA wants them.  Errors of arguments are
raised when a program is traced, those of values (lengths, lists of nodes) when it runs.

`fovea.jax.compile(function)` compiles a whole function by Fovea; `explain_fallbacks` tells
what of it JAX computes, and why.
"""

from .._fallbacks import Fallback as Fallback
from .._fallbacks import explain_fallbacks as explain_fallbacks
from ._caches import *
from ._functions import *
from ._import import compile as compile
