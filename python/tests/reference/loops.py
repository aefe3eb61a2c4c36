# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The patterns as loops over single entries, and inputs for them."""

import importlib.util
import math
import sys
from pathlib import Path

import numpy as np

# Loaded by path: the references need NumPy only, not the compiled package.
_FOLDER = Path(__file__).resolve().parents[2] / "fovea" / "reference"
_spec = importlib.util.spec_from_file_location("fovea_reference", _FOLDER / "__init__.py")
ref = sys.modules["fovea_reference"] = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(ref)


def make(B=1, H=2, G=2, N=16, M=None, D=4, E=3, seed=0):
    rng = np.random.default_rng(seed)
    M = N if M is None else M
    return (
        rng.standard_normal((B, H, N, D)),
        rng.standard_normal((B, G, M, D)),
        rng.standard_normal((B, G, M, E)),
    )


def make_weights(N, m, p, D, W=1, seed=1, biases=False):
    rng = np.random.default_rng(seed)
    sizes = [2**index * m for index in range(ref.num_levels(N, m))]
    if biases:
        return [rng.standard_normal((W, p, D)) for _ in sizes]
    return [rng.standard_normal((W, p, size, D)) / math.sqrt(size) for size in sizes]


def averages(N, m, p, D):
    return [
        ref.average_weights(p, 2**index * m, D) for index in range(ref.num_levels(N, m))
    ]


def loop_softmax(terms, width, sink=-math.inf):
    """(score, value) pairs, one query: the definition, with plain sums."""
    if sink > -math.inf:
        terms = [*terms, (sink, np.zeros(width))]
    if not terms:
        return np.zeros(width), -math.inf
    top = max(score for score, _ in terms)
    total = sum(math.exp(score - top) for score, _ in terms)
    out = sum(math.exp(score - top) / total * value for score, value in terms)
    return out, top + math.log(total)


def loop_dense(q, k, v, scale, causal, window, log_weight, bias, sink=None, prefix=0):
    B, H, N, _ = q.shape
    G, M, E = k.shape[1], k.shape[2], v.shape[3]
    out, lse = np.zeros((B, H, N, E)), np.zeros((B, H, N))
    for b, h, i in np.ndindex(B, H, N):
        g = h // (H // G)
        terms = []
        for j in range(M):
            distance = i + M - N - j
            if causal and distance < 0 and j >= prefix:
                continue
            if window is not None and abs(distance) >= window:
                continue
            score = scale * sum(q[b, h, i, d] * k[b, g, j, d] for d in range(q.shape[3]))
            if log_weight is not None:
                score += log_weight[b, g, j]
            if bias is not None:
                score += bias[b, h, i, j]
            terms.append((score, v[b, g, j]))
        out[b, h, i], lse[b, h, i] = loop_softmax(terms, E, -math.inf if sink is None else sink[b, h])
    return out, lse


# Levels found by walking down from the coarsest interval, unlike the
# two-sided condition of the reference: entry (i,j) belongs to the coarsest
# level at which its intervals are not equal or neighbours.
def loop_level(i, j, m, L):
    for level in range(L, 0, -1):
        size = 2 ** (level - 1) * m
        if abs(i // size - j // size) > 1:
            return level
    return 0


def loop_summary(x, weights, bias, g_tokens, a):
    total = np.zeros(x.shape[-1]) if bias is None else bias[a].copy()
    for t, token in enumerate(g_tokens):
        total += weights[a, t] * x[token]
    return total


def loop_multipole(
    q, k, v, kw, vw, m, causal, kb, vb, scale, multiplicity, qw=None, qb=None
):
    """Distinct summaries with log weights; with `qw` the linear form."""
    B, H, N, _ = q.shape
    G, E, L = k.shape[1], v.shape[3], len(kw)
    out, lse = np.zeros((B, H, N, E)), np.zeros((B, H, N))

    def pick(weights, head):
        return weights[0 if weights.shape[0] == 1 else head]

    for b, h, i in np.ndindex(B, H, N):
        g = h // (H // G)
        by_level = [{} for _ in range(L + 1)]
        for j in range(N):
            if causal and j > i:
                continue
            level = loop_level(i, j, m, L)
            size = 2 ** (level - 1) * m if level else 1
            p = kw[level - 1].shape[1] if level else 1
            index = j // (size // p)
            by_level[level][index] = by_level[level].get(index, 0) + 1
        terms = [[] for _ in range(L + 1)]
        for level, summaries in enumerate(by_level):
            for index, count in summaries.items():
                query = q[b, h, i]
                if level == 0:
                    key, value = k[b, g, index], v[b, g, index]
                else:
                    size, p = 2 ** (level - 1) * m, kw[level - 1].shape[1]
                    interval = index // p
                    tokens = range(interval * size, min((interval + 1) * size, N))
                    bias = None if kb is None else pick(kb[level - 1], g)
                    key = loop_summary(
                        k[b, g], pick(kw[level - 1], g), bias, tokens, index % p
                    )
                    bias = None if vb is None else pick(vb[level - 1], g)
                    value = loop_summary(
                        v[b, g], pick(vw[level - 1], g), bias, tokens, index % p
                    )
                    if qw is not None:
                        mine = i // size
                        tokens = range(mine * size, min((mine + 1) * size, N))
                        bias = None if qb is None else pick(qb[level - 1], g)
                        query = loop_summary(
                            q[b, h],
                            pick(qw[level - 1], g),
                            bias,
                            tokens,
                            (i % size) // (size // p),
                        )
                score = scale * float(query @ key)
                if multiplicity:
                    score += math.log(count)
                terms[level].append((score, value))
        if qw is None:
            out[b, h, i], lse[b, h, i] = loop_softmax(sum(terms, []), E)
        else:
            out[b, h, i] = sum(loop_softmax(level, E)[0] for level in terms)
    return out, lse


def close(a, b, tolerance=1e-12):
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)
