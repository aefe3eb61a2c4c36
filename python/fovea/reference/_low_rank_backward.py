# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The gradients of low-rank attention and of polynomial features, from their
definition: all N x M entries, and all monomials, are formed."""

import itertools
import math

import numpy as np

from ._arguments import _array, _integer, _match, _poison


def low_rank_backward(d_out, u1, u2, v, mask):
    """(d_u1, d_u2, d_v) of a scalar with gradient `d_out` for the result of
    `low_rank`; a row whose sum of weights is 0 passes nothing on."""
    u1 = _array("u1", u1, 4, "[B,H,N,r]")
    u2 = _array("u2", u2, 4, "[B,G,M,r]")
    v = _array("v", v, 4, "[B,G,M,E]")
    d_out = _array("d_out", d_out, 4, "[B,H,N,E]")
    B, H, N, _ = u1.shape
    G, M = u2.shape[1:3]
    _match("d_out", "shape", d_out.shape, (B, H, N, v.shape[3]))
    mask = np.broadcast_to(mask, (B, H, N, M))
    d_u1, d_u2, d_v = np.zeros_like(u1), np.zeros_like(u2), np.zeros_like(v)
    for b, h in np.ndindex(B, H):
        g = h // (H // G)
        # Entries that the mask drops have no influence, whatever they hold.
        for i in range(N):
            kept = mask[b, h, i]
            with np.errstate(invalid="ignore", over="ignore"):
                weights = _poison(u2[b, g, kept] @ u1[b, h, i])
                product = _poison(v[b, g, kept] @ d_out[b, h, i])
                total = weights.sum()
                inverse = 0.0 if total == 0 else 1 / total
                shares = weights * inverse
                d_weights = (product - shares @ product) * inverse
                d_u1[b, h, i] = d_weights @ u2[b, g, kept]
                d_u2[b, g, kept] += np.outer(d_weights, u1[b, h, i])
                d_v[b, g, kept] += np.outer(shares, d_out[b, h, i])
    return d_u1, d_u2, d_v


def polynomial_features_backward(d_out, x, *, degree, scale):
    """The gradient of a scalar with gradient `d_out` for `polynomial_features`."""
    x = _array("x", x, 4, "[B,H,N,D]")
    d_out = _array("d_out", d_out, 4, "[B,H,N,F]")
    degree = _integer("degree", degree, 0)
    d_x, feature = np.zeros_like(x), 0
    for g in range(degree + 1):
        for columns in itertools.combinations_with_replacement(range(x.shape[3]), g):
            factorials = math.prod(math.factorial(columns.count(c)) for c in set(columns))
            coefficient = math.sqrt(scale**g / factorials)
            for at in range(g):
                others = [*columns[:at], *columns[at + 1 :]]
                product = coefficient * np.prod(x[..., others], axis=-1)
                d_x[..., columns[at]] += d_out[..., feature] * product
            feature += 1
    _match("d_out", "features", d_out.shape[3], feature)
    return d_x
