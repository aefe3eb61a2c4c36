# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Dense attention."""

import numpy as np

import fovea

from .case import softmax, spread, wide


def positions(N, M):
    """How far each key lies behind each query."""
    return np.arange(N)[:, None] + M - N - np.arange(M)


def sees(N, M, causal, window, prefix=None):
    distance = positions(N, M)
    admitted = np.ones((N, M), bool)
    if causal:
        admitted &= (distance >= 0) | (np.arange(M) < (prefix or 0))
    if window is not None:
        admitted &= np.abs(distance) < window
    return admitted


def dense_formula(q, k, v, scale, mask, log_weight=None, bias=None, sink=None):
    H, D = q.shape[1], q.shape[3]
    scores = (1 / np.sqrt(D) if scale is None else scale) * (q @ spread(k, H).swapaxes(2, 3))
    admitted = np.broadcast_to(mask, scores.shape)
    if log_weight is not None:
        term = spread(np.broadcast_to(log_weight, k.shape[:3]), H)[:, :, None]
        admitted = admitted & ~np.isneginf(term.real)
        scores = scores + np.where(np.isneginf(term.real), 0, term)
    if bias is not None:
        admitted = admitted & ~np.isneginf(bias.real)
        scores = scores + np.where(np.isneginf(bias.real), 0, bias)
    v = spread(v, H)
    if sink is not None:
        # An entry of each row that brings no value.
        one = (*scores.shape[:3], 1)
        scores = np.concatenate([scores, np.broadcast_to(np.asarray(sink)[..., None, None], one)], 3)
        admitted = np.concatenate([admitted, np.ones(one, bool)], 3)
        v = np.concatenate([v, np.zeros((*v.shape[:2], 1, v.shape[3]))], 2)
    weights, lse = softmax(scores, admitted)
    return [weights @ v, lse]


def drop(case, term):
    """Some entries of `term` become -inf."""
    term[case.random.random(term.shape) < case.pick("dropped", [0.0, 0.1, 0.6])] = -np.inf
    return term


def dense(case):
    B, H, G = case.heads()
    N = case.length("N")
    M = N if case.flip("square") else case.length("M")
    D, E = case.width("D"), case.width("E")
    causal = case.flip("causal")
    window = case.pick("window", [None, None, 0, 1, 2, 9, 40, 1000])
    scale = case.pick("scale", [None, 0.5, -0.3, 0.0])
    size = case.pick("size", [1.0, 1.0, 30.0])
    arrays = {"q": case.normal(B, H, N, D, size=size), "k": case.normal(B, G, M, D), "v": case.normal(B, G, M, E)}
    if case.flip("log_weight", 0.3):
        arrays["log_weight"] = drop(case, case.normal(*case.leading((B, G, M)), dtype=case.state))
    if case.flip("bias", 0.3):
        arrays["bias"] = drop(case, case.normal(*case.leading((B, H, N, M)), dtype=case.state))
    options = {"causal": causal, "window": window, "scale": scale, "target": case.target}
    forward = lambda **x: fovea.dense(**x, **options, return_lse=True)  # noqa: E731
    out, lse = case.twice(lambda: forward(**arrays))
    mask = sees(N, M, causal, window)
    formula = lambda **x: dense_formula(**x, scale=scale, mask=mask)  # noqa: E731
    expected, expected_lse = formula(**{name: wide(array) for name, array in arrays.items()})
    # Scores of `size` are known to their own rounding only.
    factor = size * max(1, np.sqrt(D)) if size > 1 or abs(scale or 0) else 1
    case.close(out, expected, "out", factor=factor, size=np.abs(wide(arrays["v"])).max())
    precise = "f64" if case.type == "f64" else "f32"
    if precise == case.type:
        case.close(lse, expected_lse, "lse", factor=4 * factor, size=1)
    if size > 1:
        return
    d_out, d_lse = case.normal(*out.shape), case.normal(B, H, N, dtype=case.state)
    d_lse[np.isneginf(lse)] = 0
    terms = [name for name in ("log_weight", "bias") if name in arrays]
    backward = lambda d_out, out, lse, **x: fovea.dense_backward(  # noqa: E731
        d_out, x.pop("q"), x.pop("k"), x.pop("v"), out, lse, d_lse=d_lse, **x, **options
    )
    given = dict(arrays, d_out=d_out, out=out, lse=lse)
    gradients = case.twice(lambda: backward(**given))
    found = dict(zip(["q", "k", "v", *terms], gradients))
    total = {name: np.where(np.isneginf(wide(array)), 0, 1) for name, array in arrays.items() if name in terms}
    for name, kept in total.items():
        case.require((np.asarray(found[name])[kept == 0] == 0).all(), f"gradient of {name} at -inf")
    safe = lambda **x: [np.where(np.isneginf(r.real), 0, r) for r in formula(**x)]  # noqa: E731
    case.gradients(safe, arrays, [d_out, d_lse], found, factor=np.sqrt(max(D, E, 16) / 16))
    hidden_entries(case, forward, backward, arrays, given, (out, lse), gradients, mask)


def hidden_entries(case, forward, backward, arrays, given, clean, gradients, mask):
    """NaNs and infinities in keys and values reach the rows that read them alone, and
    those in rows only the keys that are read."""
    B, H, N, _ = arrays["q"].shape
    G, M = arrays["k"].shape[1:3]
    admitted = np.broadcast_to(mask, (B, H, N, M)).copy()
    for name, heads in (("log_weight", G), ("bias", H)):
        if name in arrays:
            term = np.isneginf(wide(arrays[name]))
            term = term[:, :, None] if name == "log_weight" else term
            term = np.broadcast_to(term, (B, heads, *((1, M) if name == "log_weight" else (N, M))))
            admitted &= ~spread(term, H)
    b, g, j = (int(case.random.integers(n)) for n in (B, G, M))
    name = case.pick("dirty", ["k", "v", "q", "d_out"])
    if name in ("k", "v"):
        group = np.arange(H) // (H // G) == g
        reads = np.zeros((B, H, N), bool)
        reads[b] = admitted[b, :, :, j] & group[:, None]
        rows = ~reads
        index = (b, g, j, int(case.random.integers(arrays[name].shape[3])))
        case.hidden(forward, arrays, clean, (name, index), [rows[..., None], rows], "forward")
        d_q = rows[..., None]
        # Keys that share a row with the dirty one see it, through its weight and its sum.
        shared = np.any((admitted & reads[..., None]).reshape(B, G, H // G * N, M), axis=2)
        shared[b, g, j] = True
        keys = ~shared[..., None]
        dirty = dict(given, **{name: given[name].copy()})
        dirty[name][index] = np.nan
        dirty["out"], dirty["lse"] = (np.array(x) for x in forward(**{n: dirty[n] for n in arrays}))
        after = backward(**dirty)
        for what, before, found, keep in zip("qkv", gradients, after, (d_q, keys, keys)):
            keep = np.broadcast_to(case.unread(keep), found.shape)
            differs = (np.asarray(before) != np.asarray(found)) & keep
            case.require(not differs.any(), f"backward: NaN in {name}{list(index)} changes {differs.sum()} of d_{what}")
        return
    h, i = int(case.random.integers(H)), int(case.random.integers(N))
    index = (b, h, i, int(case.random.integers(given[name].shape[3])))
    rows = np.ones((B, H, N, 1), bool)
    rows[b, h, i] = False
    keys = np.ones((B, G, M, 1), bool)
    keys[b, h // (H // G), admitted[b, h, i]] = False
    case.hidden(backward, given, gradients[:3], (name, index), [rows, keys, keys], "backward")
