# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sequences of different lengths: one after the other, in caches, and in pages that they share."""

import os
import tempfile
from typing import Any

import numpy as np

import fovea

from .attention import dense_formula, sees
from .case import wide


def attend(q, k, v, options, sink=None):
    """Rows [H,N,E] and log-sum-exps [H,N] of one sequence, q [H,N,D], k [G,M,D] and v [G,M,E]."""
    mask = sees(q.shape[1], k.shape[1], options["causal"], options.get("window"), options.get("prefix"))
    out, lse = dense_formula(q[None], k[None], v[None], options["scale"], mask, sink=sink)
    return out[0], lse[0]


def draw_options(case, prefixes=True):
    options = {"causal": case.flip("causal", 0.7), "scale": case.pick("scale", [None, 0.25])}
    if options["causal"] and prefixes:
        options["prefix"] = case.pick("prefix", [None, None, 0, 4])
    if options.get("prefix") is None:
        options["window"] = case.pick("window", [None, None, 1, 6, 40])
    return options


# ----------------------------------------------------------------------------
# Packed sequences
# ----------------------------------------------------------------------------


def draw_lengths(case, name, count, most):
    lengths = case.random.integers(0, case.pick(f"most_{name}", [2, 9, most]) + 1, count)
    lengths[case.random.random(count) < 0.2] = 0
    return case.note(**{name: lengths.tolist()})


def varlen(case):
    _, H, G = case.heads()
    count, most = case.pick("sequences", [1, 2, 3, 5, 9]), 17 if case.emulated else 70
    queries = np.array(draw_lengths(case, "queries", count, most))
    keys = queries if case.flip("square") else np.array(draw_lengths(case, "keys", count, most))
    D, E = case.width("D", 33), case.width("E", 33)
    options = draw_options(case)
    starts = [np.concatenate([[0], np.cumsum(each)]).astype(np.int32) for each in (queries, keys)]
    T, S = int(queries.sum()), int(keys.sum())
    arrays = {"q": case.normal(T, H, D), "k": case.normal(S, G, D), "v": case.normal(S, G, E)}
    if case.flip("sink", 0.3):
        arrays["sink"] = case.normal(H, dtype=case.state)
    more: Any = {**options, "target": case.target}
    if case.flip("most", 0.3):
        more |= {"max_q": max(int(queries.max()), 1), "max_k": max(int(keys.max()), 1)}

    def forward(q, k, v, **terms):
        return fovea.varlen(q, k, v, starts[0], starts[1], return_lse=True, **terms, **more)

    def formula(q, k, v, sink=None):
        kind = np.result_type(q, k, v, *([] if sink is None else [sink]))
        out, lse = np.zeros((T, H, E), kind), np.full((H, T), -np.inf, kind)
        for i in range(count):
            rows, own = (slice(each[i], each[i + 1]) for each in starts)
            q_own, k_own, v_own = (x.swapaxes(0, 1) for x in (q[rows], k[own], v[own]))
            found = attend(q_own, k_own, v_own, options, sink)
            out[rows], lse[:, rows] = found[0].swapaxes(0, 1), found[1]
        return [out, lse]

    clean = case.twice(lambda: forward(**arrays))
    out, lse = clean
    expected = formula(**{name: wide(array) for name, array in arrays.items()})
    case.close(out, expected[0], "out", factor=4, size=np.abs(wide(arrays["v"])).max(initial=0))
    if case.type in ("f32", "f64"):
        case.close(lse, expected[1], "lse", factor=8, size=4)
    d_out, d_lse = case.normal(*out.shape), case.normal(H, T, dtype=case.state)
    d_lse[np.isneginf(lse)] = 0
    terms = {"sink": arrays["sink"]} if "sink" in arrays else {}
    q, k, v = (arrays[name] for name in "qkv")
    found = case.twice(
        lambda: fovea.varlen_backward(d_out, q, k, v, starts[0], starts[1], out, lse, d_lse=d_lse, **terms, **more)
    )
    safe = lambda **x: [np.where(np.isneginf(each.real), 0, each) for each in formula(**x)]  # noqa: E731
    case.gradients(safe, arrays, [d_out, d_lse], dict(zip(arrays, found)), factor=6)


# ----------------------------------------------------------------------------
# Caches
# ----------------------------------------------------------------------------


class _Plain:
    """What a cache holds: keys and values of each sequence."""

    def __init__(self, cache: Any, tokens: Any):
        self.cache, self.tokens = cache, tokens


def caches(case):
    """Calls in any order, on caches and on their forks."""
    B, H, G = case.heads()
    D, E = case.width("D", 33), case.width("E", 33)
    paged = case.flip("paged")
    page, room = case.pick("page", [1, 3, 8]), 60
    dtype = case.type if case.type in ("f32", "f64") else {"bf16": "bfloat16", "f16": "float16"}[case.type]
    dtype = {"f32": "float32", "f64": "float64"}.get(dtype, dtype)
    fovea.set_num_threads(case.pick("threads", [1, 3]))
    first: Any
    if paged:
        first = fovea.PagedCache(4 * B * (room // page + 1), page, G, D, E, batch=B, dtype=dtype)
    else:
        first = fovea.KVCache(B, G, D, E, capacity=room, dtype=dtype)
    empty = (np.zeros((G, 0, D)), np.zeros((G, 0, E)))
    all_caches = [_Plain(first, [empty] * B)]
    for step in range(case.pick("steps", [4, 10, 20])):
        one = all_caches[case.random.integers(len(all_caches))]
        kind = case.random.choice(["append", "append", "append", "truncate", "fork", "save"])
        if kind == "truncate":
            lengths = np.array([case.random.integers(0, len(k[0]) + 1) for k, _ in one.tokens])
            case.note(**{f"truncate{step}": lengths.tolist()})
            one.cache.truncate(lengths)
            one.tokens = [(k[:, :n], v[:, :n]) for (k, v), n in zip(one.tokens, lengths)]
        elif kind == "fork" and len(all_caches) < 4:
            case.note(**{f"fork{step}": len(all_caches)})
            all_caches.append(_Plain(one.cache.fork(), list(one.tokens)))
        elif kind == "save":
            case.note(**{f"save{step}": True})
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "cache")
                one.cache.save(path)
                one.cache = type(one.cache).load(path)
        else:
            append(case, step, one, (B, H, G, D, E), room)
        expected = np.array([k.shape[1] for k, _ in one.tokens])
        case.require((np.asarray(one.cache.lengths) == expected).all(), f"step {step}: lengths {one.cache.lengths}")
    fovea.set_num_threads(1)


def append(case, step, one, sizes, room):
    B, H, G, D, E = sizes
    N = int(case.random.choice([1, 1, 1, 2, 5, 17]))
    if max(k.shape[1] for k, _ in one.tokens) + N > room:
        return
    lengths = case.random.integers(0, N + 1, B) if case.random.random() < 0.3 else None
    case.note(**{f"append{step}": N if lengths is None else lengths.tolist()})
    k, v, q = case.normal(B, G, N, D), case.normal(B, G, N, E), case.normal(B, H, N, D)
    one.cache.append(k, v, lengths=lengths)
    counts = np.full(B, N) if lengths is None else lengths
    one.tokens = [
        (np.concatenate([old_k, wide(k[b, :, :n])], 1), np.concatenate([old_v, wide(v[b, :, :n])], 1))
        for b, ((old_k, old_v), n) in enumerate(zip(one.tokens, counts))
    ]
    options = draw_options(case, prefixes=isinstance(one.cache, fovea.KVCache))
    sink = case.normal(H, dtype=case.state) if case.random.random() < 0.2 else None
    out, lse = one.cache.attend(q, query_lengths=lengths, return_lse=True, sink=sink, **options)
    for b, n in enumerate(counts):
        k_all, v_all = one.tokens[b]
        expected, sums = attend(wide(q[b, :, :n]), k_all, v_all, options, None if sink is None else wide(sink))
        size = np.abs(v_all).max(initial=0)
        case.close(np.asarray(out)[b, :, :n], expected, f"step {step}: out of {b}", factor=4, size=size)
        case.require((wide(out)[b, :, n:] == 0).all(), f"step {step}: rows behind the queries of {b}")
        if case.type in ("f32", "f64"):
            case.close(np.asarray(lse)[b, :, :n], sums, f"step {step}: lse of {b}", factor=8, size=4)
