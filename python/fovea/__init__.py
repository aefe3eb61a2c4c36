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

from ._conv import (
    SlidingGroup,
    conv,
    conv_apply,
    conv_apply_backward,
    conv_backward,
    conv_recover,
    conv_recover_backward,
)
from ._fovea import VERSION, FoveaError, Kernel
from ._low_rank import (
    Causal,
    DistinctColumns,
    DistinctRows,
    RowChange,
    RowInterval,
    low_rank,
    low_rank_backward,
    polynomial_features,
    polynomial_features_backward,
    rope,
    rope_backward,
)
from ._quantize import (
    codebook_update,
    commitment_loss,
    commitment_loss_backward,
    quantize,
)
from ._vq import VQState, VQStateGradient, vq, vq_backward, vq_decode
from .compiler import (
    TARGETS,
    clear_cache,
    compile,
    gpu_stream,
    num_threads,
    set_num_threads,
)
from .ops import (
    dense,
    dense_backward,
    fast_multipole,
    fast_multipole_backward,
    fast_multipole_linear,
    fast_multipole_linear_backward,
)
from .tree import (
    Tree,
    tree_build,
    tree_build_backward,
    tree_fetch,
    tree_fetch_backward,
    tree_materialize,
    tree_materialize_backward,
    tree_score,
    tree_select,
    tree_update,
    tree_update_backward,
)

__version__ = VERSION

__all__ = [
    "Causal",
    "DistinctColumns",
    "DistinctRows",
    "FoveaError",
    "Kernel",
    "RowChange",
    "RowInterval",
    "SlidingGroup",
    "TARGETS",
    "Tree",
    "VQState",
    "VQStateGradient",
    "clear_cache",
    "codebook_update",
    "commitment_loss",
    "commitment_loss_backward",
    "compile",
    "conv",
    "conv_apply",
    "conv_apply_backward",
    "conv_backward",
    "conv_recover",
    "conv_recover_backward",
    "dense",
    "dense_backward",
    "fast_multipole",
    "fast_multipole_backward",
    "fast_multipole_linear",
    "fast_multipole_linear_backward",
    "gpu_stream",
    "low_rank",
    "low_rank_backward",
    "num_threads",
    "polynomial_features",
    "polynomial_features_backward",
    "quantize",
    "rope",
    "rope_backward",
    "set_num_threads",
    "tree_build",
    "tree_build_backward",
    "tree_fetch",
    "tree_fetch_backward",
    "tree_materialize",
    "tree_materialize_backward",
    "tree_score",
    "tree_select",
    "tree_update",
    "tree_update_backward",
    "vq",
    "vq_backward",
    "vq_decode",
]
