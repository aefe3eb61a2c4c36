# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Soft-max with masks, shared by the families."""

import numpy as np

# Query rows scored at a time: bounds the memory at rows x keys.
_ROWS = 256


def _scores(q, k):
    """q k^T, NaN wherever the query or the key is not finite."""
    finite_q = np.isfinite(q).all(axis=-1)
    finite_k = np.isfinite(k).all(axis=-1)
    scores = np.where(finite_q[:, None], q, 0.0) @ np.where(finite_k[:, None], k, 0.0).T
    scores[~finite_q, :] = np.nan
    scores[:, ~finite_k] = np.nan
    return scores


def _softmax(scores, admitted, sink=-np.inf):
    """Row-wise soft-max over the admitted entries and one of score `sink`, whose
    weight is left out, and its log-sum-exp.

    A row without an admitted entry has weights 0 and log-sum-exp `sink`.
    """
    scores = np.where(admitted, scores, -np.inf)
    if scores.shape[1] == 0:
        return scores, np.full(scores.shape[0], sink)
    with np.errstate(invalid="ignore", divide="ignore"):
        top = np.maximum(scores.max(axis=1), sink)
        shift = np.where(top == -np.inf, 0.0, top)
        weights = np.exp(scores - shift[:, None])
        total = weights.sum(axis=1) + np.exp(sink - shift)
        lse = shift + np.log(total)
        weights /= np.where(total == 0.0, 1.0, total)[:, None]
    return weights, lse


def _weighted_values(weights, admitted, v):
    """weights @ v, in which an entry that is not admitted is not read.

    The plain product would turn a weight of 0 times NaN into NaN.
    """
    finite = np.isfinite(v)
    out = weights @ np.where(finite, v, 0.0)
    if not finite.all():
        read = (admitted.astype(np.float64) @ (~finite).astype(np.float64)) > 0
        out[read] = np.nan
    return out


def _product_of_read(weights, read, rows):
    """weights @ rows, in which entries that are not `read` have no influence.

    The plain product would turn a weight of 0 times NaN into NaN.
    """
    bad = np.flatnonzero(~np.isfinite(rows).all(axis=-1))
    if not bad.size:
        return weights @ rows
    out = weights @ np.where(np.isfinite(rows), rows, 0.0)
    with np.errstate(invalid="ignore", over="ignore"):
        for j in bad:
            at = np.flatnonzero(read[:, j])
            hurt = ~np.isfinite(rows[j])
            out[np.ix_(at, hurt)] += np.outer(weights[at, j], rows[j, hurt])
    return out
