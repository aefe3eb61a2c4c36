# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Recovering the convolutions that a causal score matrix is made of."""

import math

import numpy as np

from ._arguments import _array, _integer, _match, _scale


def _threshold(window, delta, epsilon):
    for name, value in (("delta", delta), ("epsilon", epsilon)):
        if not (value >= 0 and math.isfinite(value)):
            raise ValueError(f"{name}: found {value}, needed a finite number of at least 0")
    return delta - 2 * window * epsilon


def recover_from_scores(scores, *, num_basis, window, delta, epsilon):
    """Algorithms 2 and 3 on a lower triangular matrix: b [R,N], sizes [R], found."""
    N = scores.shape[0]
    threshold = _threshold(window, delta, epsilon)
    b, sizes = np.zeros((num_basis, N)), np.zeros(num_basis, np.int32)
    u = np.zeros(N)

    def is_new(column):
        """Whether a column differs from the bases so far."""
        return np.abs(scores[column : column + window, column] - u[:window]).sum() >= threshold

    column = 0
    for r in range(num_basis):
        if r:
            # The first new column among the rest; the last one may not be new.
            low, high = column + 1, N - window
            if low > high:
                return b, sizes, r
            while low < high:
                middle = (low + high) // 2
                if is_new(middle):
                    high = middle
                else:
                    low = middle + 1
            if not is_new(low):
                return b, sizes, r
            column = low
        sizes[r] = N - column
        b[r, : sizes[r]] = scores[column:, column] - u[: sizes[r]]
        u[: sizes[r]] += b[r, : sizes[r]]
    return b, sizes, num_basis


def conv_recover(q, k, *, num_basis, window, delta, epsilon, scale=None):
    """The bases of `scale q k^T` below the diagonal: b [B,H,R,N], sizes [B,H,R]
    and how many were found [B,H]."""
    q = _array("q", q, 4, "[B,H,N,D]")
    k = _array("k", k, 4, "[B,G,N,D]")
    B, H, N, D = q.shape
    G = k.shape[1]
    if G == 0 or H % G:
        raise ValueError(f"k: found {G} heads, needed a divisor of the {H} heads of q")
    _match("k", "shape", k.shape, (B, G, N, D))
    num_basis = _integer("num_basis", num_basis, 1)
    window = _integer("window", window, 1)
    if window > N:
        raise ValueError(f"window: found {window}, needed at most the {N} rows of q")
    scale = _scale(scale, D)
    b = np.zeros((B, H, num_basis, N))
    sizes, found = np.zeros((B, H, num_basis), np.int32), np.zeros((B, H), np.int32)
    for i, h in np.ndindex(B, H):
        scores = scale * np.tril(q[i, h] @ k[i, h // (H // G)].T)
        b[i, h], sizes[i, h], found[i, h] = recover_from_scores(
            scores, num_basis=num_basis, window=window, delta=delta, epsilon=epsilon
        )
    return b, sizes, found
