# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""NumPy float64 references for the soft-max patterns.

Written from the definitions alone, so that they can disagree with the
compiler.  They favour being obviously right over being fast: `dense`,
`fast_multipole` and `fast_multipole_linear` visit every (query, key) entry.
`fast_multipole_blocked` is the exception: it does the same sums in time linear
in N, for checks at lengths the others cannot reach, and is itself tested
against `fast_multipole`.

Arrays may have any floating type (bfloat16 from ml_dtypes included); all
arithmetic and all results are float64 (`fast_multipole_blocked`: `dtype`).

Non-finite numbers.  Every query that reads a key with a NaN or an infinity
gets a NaN row; every query that reads a value with one gets a NaN in that
column.  A query reads an entry that its mask admits and whose bias and log
weight are not -inf.  Queries that do not read it are unaffected.  A
non-finite query makes its own row NaN.  The same goes for gradients, and for
whatever else is read or not: entries that a mask drops, convolutions with a
score of -inf, absent tokens of a summary, padding of a tree.
"""

from ._backward import (
    dense_backward,
    fast_multipole_backward,
    fast_multipole_linear_backward,
    summarize_backward,
)
from ._conv import conv_apply, conv_apply_fft, conv_scores
from ._conv_backward import (
    conv_apply_backward,
    conv_backward,
    conv_recover_backward,
    rope_backward,
)
from ._conv_recover import conv_recover, recover_from_scores
from ._dense import dense
from ._hierarchical import (
    average_weights,
    fast_multipole,
    fast_multipole_linear,
    num_levels,
    owning_level,
    summarize,
    summary_counts,
)
from ._hierarchical_blocked import fast_multipole_blocked
from ._low_rank import (
    causal_mask,
    distinct_columns_mask,
    distinct_rows_mask,
    low_rank,
    polynomial_features,
    rope,
    row_change_mask,
    row_interval_mask,
)
from ._low_rank_backward import low_rank_backward, polynomial_features_backward
from ._quantized import (
    codebook_accumulate,
    codebook_scan,
    codebook_update,
    commitment_loss,
    quantize,
)
from ._tree import (
    Tree,
    head_probability,
    head_probability_backward,
    log_weights,
    tree_build,
    tree_fetch,
    tree_materialize,
    tree_select,
    tree_update,
    vip_score,
)
from ._vq import VQState, vq, vq_decode, vq_encoder, vq_initial_state, vq_linear
from ._vq_backward import VQStateGradient, vq_backward

__all__ = [
    "Tree",
    "VQState",
    "VQStateGradient",
    "average_weights",
    "causal_mask",
    "codebook_accumulate",
    "codebook_scan",
    "codebook_update",
    "commitment_loss",
    "conv_apply",
    "conv_apply_backward",
    "conv_apply_fft",
    "conv_backward",
    "conv_recover",
    "conv_recover_backward",
    "conv_scores",
    "dense",
    "dense_backward",
    "distinct_columns_mask",
    "distinct_rows_mask",
    "fast_multipole",
    "fast_multipole_backward",
    "fast_multipole_blocked",
    "fast_multipole_linear",
    "fast_multipole_linear_backward",
    "head_probability",
    "head_probability_backward",
    "log_weights",
    "low_rank",
    "low_rank_backward",
    "num_levels",
    "owning_level",
    "polynomial_features",
    "polynomial_features_backward",
    "quantize",
    "recover_from_scores",
    "rope",
    "rope_backward",
    "row_change_mask",
    "row_interval_mask",
    "summarize",
    "summarize_backward",
    "summary_counts",
    "tree_build",
    "tree_fetch",
    "tree_materialize",
    "tree_select",
    "tree_update",
    "vip_score",
    "vq",
    "vq_backward",
    "vq_decode",
    "vq_encoder",
    "vq_initial_state",
    "vq_linear",
]
