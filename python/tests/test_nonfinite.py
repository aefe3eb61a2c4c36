# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# REQUIRES: long-tests
"""A NaN or an infinity reaches what reads it, forward and backward, and leaves
the bits of everything else: the rows that do not read it, and the keys that no
row which does reads."""

import numpy as np
import pytest
from conftest import TYPES

import fovea

NUMBERS = [np.nan, np.inf, -np.inf]
B, H, G = 2, 4, 2
SHAPES = [(70, 70, 16, 16), (1, 40, 20, 5), (3, 90, 16, 24), (130, 130, 8, 16)]
MASKS = [{}, {"causal": True}, {"window": 9}, {"causal": True, "window": 9}]
# By number of case: every shape with every term, mask and some type.
CASES = [
    (shape, term, MASKS[(i + j) % 4], ("float32", "float64", "float16", "bfloat16")[(i + 2 * j) % 4])
    for i, shape in enumerate(SHAPES)
    for j, term in enumerate([None, None, "log_weight", "bias"])
]
# Products of bf16 in whole tiles, and values that fill none.
CASES += [
    ((130, 200, 32, E), term, mask, "bfloat16")
    for E, term, mask in ((16, None, MASKS[1]), (40, None, MASKS[3]), (16, "log_weight", {}), (40, "bias", MASKS[2]))
]


def same(found, clean, dirty):
    """The bits of all that is not `dirty`, a condition for leading axes."""
    differs = (found != clean).reshape(*dirty.shape, -1).any(-1)
    assert not (differs & ~dirty).any(), np.argwhere(differs & ~dirty)[:5]


def changed(array, at, number):
    array = array.copy()
    array[at] = number
    return array


def make_term(rng, term, N, M, type):
    """A term that removes a third of the keys, and what rows still read."""
    type = np.float64 if type == "float64" else np.float32
    if term == "log_weight":
        weight = rng.standard_normal((B, G, M)).astype(type)
        weight[:, :, ::3] = -np.inf
        return {term: weight}, np.repeat(weight, H // G, 1)[:, :, None] > -np.inf
    if term == "bias":
        bias = rng.standard_normal((B, H, N, M)).astype(type)
        bias[rng.random(bias.shape) < 0.3] = -np.inf
        return {term: bias}, bias > -np.inf
    return {}, np.ones((1, 1, 1, 1), bool)


@pytest.mark.parametrize("case", range(len(CASES)))
def test_dense(case):
    (N, M, D, E), term, mask, type = CASES[case]
    rng = np.random.default_rng(case)
    shapes = {"q": (B, H, N, D), "k": (B, G, M, D), "v": (B, G, M, E), "d": (B, H, N, E)}
    arrays = {name: rng.standard_normal(s).astype(TYPES[type]) for name, s in shapes.items()}
    distance = np.arange(N)[:, None] + (M - N) - np.arange(M)
    options, read = make_term(rng, term, N, M, type)
    options |= mask
    read = np.broadcast_to(read, (B, H, N, M)).copy()
    if mask.get("causal"):
        read &= distance >= 0
    if "window" in mask:
        read &= np.abs(distance) < mask["window"]

    def run(q, k, v, d):
        out, lse = fovea.dense(q, k, v, return_lse=True, **options)
        return out, lse, *fovea.dense_backward(d, q, k, v, out, lse, **options)

    clean = run(**arrays)
    for index, name in enumerate("qkvd" * 2):
        row = [N // 2, M // 3 * 3 % M][name in "kv"] if index < 4 else [N - 1, M - 1][name in "kv"]
        at = (1, 2 if name in "qd" else 1, row, -1)
        found = run(**{**arrays, name: changed(arrays[name], at, NUMBERS[index % 3])})
        rows = np.zeros((B, H, N), bool)
        if name in "qd":
            rows[1, 2, row] = True
        else:
            rows[1, 2:] = read[1, 2:, :, row]
        pairs = rows[..., None] & read
        keys = pairs.any(2).reshape(B, G, H // G, M).any(2)
        forward = rows if name != "d" else np.zeros_like(rows)
        dirty = [forward, forward, rows, keys, keys]
        dirty += [keys] if term == "log_weight" else [pairs] if term == "bias" else []
        for result, before, where in zip(found, clean, dirty, strict=True):
            same(result, before, where)
        if name != "d":
            assert np.isnan(found[0][pairs.any(-1)].astype(np.float32)).any(-1).all()


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("weighting", ["softmax", "squared_relu"])
@pytest.mark.parametrize("E", [16, 5])
def test_vq(bias, weighting, E):
    N, D, S, block = 70, 16, 5, 16
    rng = np.random.default_rng(1)
    q, k, d = (rng.standard_normal((B, h, N, w)).astype(np.float32) for h, w in ((H, D), (G, D), (H, E)))
    v = rng.standard_normal((B, G, N, E)).astype(np.float32)
    codebook = rng.standard_normal((G, S, D)).astype(np.float32)
    options = {"block": block, "weighting": weighting, "scale": 0.3}
    read = np.broadcast_to(np.tri(N, dtype=bool), (B, H, N, N)).copy()
    if bias:
        options["bias"] = rng.standard_normal((B, H, N, 2 * block)).astype(np.float32)
        options["bias"][:, :, :, block + 3] = -np.inf
        for i in range(N):
            token = i // block * block + 3
            if token < N:
                read[:, :, i, token] = False
    codes = fovea.quantize(k, codebook)[1]

    def run(q, v, d):
        found = fovea.vq(q, codes, v, codebook, return_lse=weighting == "softmax", **options)
        out, lse = found if weighting == "softmax" else (found, None)
        saved = (out, lse) if weighting == "softmax" else (None, None)
        return out, *fovea.vq_backward(d, q, codes, v, codebook, *saved, **options)[:3]

    clean = run(q, v, d)
    for row, number in ((17, np.nan), (51, np.inf), (N - 1, np.nan)):
        for name in "qvd":
            arrays = {"q": q, "v": v, "d": d}
            at = (1, 1 if name == "v" else 2, row, -1)
            found = run(**{**arrays, name: changed(arrays[name], at, number)})
            rows = np.zeros((B, H, N), bool)
            if name == "v":
                rows[1, 2:] = read[1, 2:, :, row]
            else:
                rows[1, 2, row] = True
            keys = (rows[..., None] & read).any(2).reshape(B, G, H // G, N).any(2)
            forward = rows if name != "d" else np.zeros_like(rows)
            for result, before, where in zip(found, clean, (forward, rows, keys, keys), strict=True):
                same(result, before, where)


def test_fast_multipole():
    """Rows of a group are cut by the mask, summaries of later ones never read."""
    N, m = 128, 8
    rng = np.random.default_rng(2)
    q, k, v, d = (rng.standard_normal((B, h, N, 16)).astype(np.float32) for h in (H, G, G, H))
    weights = [np.full((1, 2, m << i, 16), 1 / (m << i), np.float32) for i in range(3)]
    options = {"group": m, "causal": True}

    def run(q, k, v, d):
        out, lse = fovea.fast_multipole(q, k, v, weights, weights, return_lse=True, **options)
        return out, lse, *fovea.fast_multipole_backward(
            d, q, k, v, weights, weights, out, lse, **options
        )[:3]

    arrays = {"q": q, "k": k, "v": v, "d": d}
    clean = run(**arrays)
    for row in (3, 70, N - 2):
        for name in "kv":
            found = run(**{**arrays, name: changed(arrays[name], (1, 1, row, -1), np.nan)})
            rows = np.zeros((B, H, N), bool)
            rows[1, 2:, row:] = True
            for result, before in zip(found[:3], clean[:3], strict=True):
                same(result, before, rows)
            assert np.isnan(found[0][1, 2:, row:]).any(-1).all()
        for name in "qd":
            found = run(**{**arrays, name: changed(arrays[name], (1, 2, row, -1), np.nan)})
            # Its own interval is read one by one; nothing later is read at all.
            keys = np.zeros((B, G, N), bool)
            keys[1, 1, : row + 1] = True
            for result, before in zip(found[3:], clean[3:], strict=True):
                same(result, before, keys)


def test_fast_multipole_linear():
    """A level has summaries of queries, too: its rows read what any of a summary reads."""
    N, m, width = 64, 8, 16
    rng = np.random.default_rng(3)
    q, k, v, d = (rng.standard_normal((B, h, N, width)).astype(np.float32) for h in (H, G, G, H))
    weights = [np.full((1, 2, m << i, width), 1 / (m << i), np.float32) for i in range(2)]
    options = {"group": m, "causal": True, "allow_query_lookahead": True}

    def run(module, q, k, v, d):
        tensors = (q, k, v, weights, weights, weights)
        found = module.fast_multipole_linear(*tensors, **options)
        return found, *module.fast_multipole_linear_backward(d, *tensors, **options)[:3]

    arrays = {"q": q, "k": k, "v": v, "d": d}
    clean = run(fovea, **arrays)
    for row in (3, 37, N - 2):
        for name in "kvd":
            head = 2 if name == "d" else 1
            dirty = {**arrays, name: changed(arrays[name], (1, head, row, -1), np.nan)}
            found, expected = run(fovea, **dirty), run(fovea.reference, **dirty)
            for result, before, other in zip(found, clean, expected, strict=True):
                # The definition says which rows read it.
                spoilt = np.isnan(other).any(-1)
                assert not spoilt.all()
                same(result, before, spoilt)
                assert np.isnan(result[spoilt]).any(-1).all()
