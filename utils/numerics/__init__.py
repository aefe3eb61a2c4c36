# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random calls of Fovea's functions, held against formulas of NumPy.

The formulas are written from the definitions and share no code with the package
or its references.  They compute in float64, form whatever matrix they like, and
are analytic, so that a complex step gives the exact derivative of any of them.
"""

from . import attention, convolutions, low_rank, mixtures, multipole, pooled, quantized, sequences, streams, trees

#: What can be drawn: a function of a `Case`, and how often it is.
FAMILIES = {
    "dense": (attention.dense, 6),
    "multipole": (multipole.multipole, 4),
    "multipole_linear": (multipole.linear, 2),
    "multipole_decode": (multipole.decode, 2),
    "stream": (streams.stream, 4),
    "mixture": (mixtures.mixture, 6),
    "quantize": (quantized.quantize, 2),
    "vq": (quantized.whole, 4),
    "vq_windows": (quantized.windows, 4),
    "pool": (pooled.pool, 2),
    "top_k": (pooled.top_k, 1),
    "conv_apply": (convolutions.apply, 4),
    "conv": (convolutions.exact, 2),
    "low_rank": (low_rank.low_rank, 4),
    "rows": (low_rank.rows, 2),
    "varlen": (sequences.varlen, 3),
    "caches": (sequences.caches, 2),
    "tree": (trees.tree, 4),
    "tree_score": (trees.score, 2),
}
