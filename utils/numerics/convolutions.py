# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sums of convolutions."""

import numpy as np

import fovea

from .attention import dense_formula, sees
from .case import softmax, spread, wide
from .tokens import draw_tokens


def scores_of(b, sizes):
    """The scores [B,H,N,N] that bases stand for, and where there are any."""
    B, H, R, N = b.shape
    i, j = np.arange(N)[:, None], np.arange(N)[None]
    scores = np.zeros((B, H, N, N), b.dtype)
    admitted = np.zeros((B, H, N, N), bool)
    for r in range(R):
        inside = (i >= j) & (j >= N - sizes[:, :, r, None, None])
        scores += np.where(inside, b[:, :, r][:, :, np.maximum(i - j, 0)], 0)
        admitted |= inside
    return scores, admitted


def apply(case):
    B, H, G = case.heads()
    N, E, R = case.length("N"), case.width("E"), case.pick("R", [1, 1, 2, 3, 8])
    if case.target == "cpu" and case.flip("long", 0.1):
        N, B, H, G = case.note(N=int(case.random.integers(200, 1500))), 1, 1, 1
    algorithms = ["auto", "toeplitz", "partitioned"] + ["single"] * (R == 1)
    options = {"algorithm": case.pick("algorithm", algorithms), "target": case.target}
    if options["algorithm"] == "partitioned" and case.flip("block given"):
        options["block"] = case.pick("block", [8, 16, 32, 64])
    sizes = np.zeros((B, H, R), np.int32)
    for b in range(B):
        for h in range(H):
            some = int(case.random.integers(0, min(R, N) + 1))
            chosen = case.random.choice(np.arange(1, N + 1), some, replace=False)
            sizes[b, h, :some] = np.sort(chosen)[::-1]
    case.note(sizes=sizes[:2, :2].tolist())
    arrays = {"b": case.normal(B, H, R, N, dtype=case.state), "v": case.normal(B, G, N, E)}
    forward = lambda b, v: fovea.conv_apply(b, sizes, v, **options)  # noqa: E731
    out = case.twice(lambda: forward(**arrays))

    def formula(b, v):
        scores, admitted = scores_of(b, sizes)
        return [softmax(scores, admitted)[0] @ spread(v, H)]

    (expected,) = formula(**{name: wide(array) for name, array in arrays.items()})
    # A transform's error is that of the largest weight of a head.
    few = case.type in ("bf16", "f16")
    factor = 1 if few else 4 if options["algorithm"] == "toeplitz" else 200
    size = np.abs(wide(arrays["v"])).max()
    case.close(out, expected, "out", factor=factor, size=size)
    if N > 1:
        j, b, g = int(case.random.integers(1, N)), int(case.random.integers(B)), int(case.random.integers(G))
        keep = np.ones((B, H, N), bool)
        heads = slice(g * (H // G), (g + 1) * (H // G))
        _, admitted = scores_of(wide(arrays["b"]), sizes)
        keep[b, heads] = ~admitted[b, heads, :, j]
        index = (b, g, j, int(case.random.integers(E)))
        hidden_value(case, forward, arrays, index, keep, expected, factor, size)
    if N > 300:
        return
    d_out = case.normal(*out.shape)
    gradients = case.twice(lambda: fovea.conv_apply_backward(d_out, arrays["b"], sizes, arrays["v"], out, **options))
    case.gradients(formula, arrays, [d_out], dict(zip(("b", "v"), gradients)), factor=1 if few else 20)


def hidden_value(case, forward, arrays, index, keep, expected, factor, size):
    """A row that does not read a NaN stays right; its bits may change where it is
    computed again, without a transform."""
    changed = dict(arrays, v=arrays["v"].copy())
    changed["v"][index] = case.random.choice([np.nan, np.inf, -np.inf])
    found = np.asarray(forward(**changed))
    keep = case.unread(keep)
    rows = wide(found)[keep]
    if rows.size:
        what = f"v{list(index)} = {changed['v'][index]}, rows that do not read it"
        case.close(rows, expected[keep], what, factor=factor, size=size)


def exact(case):
    """With a basis for every column, conv is causal attention to the tokens that there are;
    with few, conv_apply of what conv_recover finds."""
    B, H, G = case.heads()
    N, D, E = case.length("N", 65), case.width("D", 33), case.width("E", 33)
    q, k, v = case.normal(B, H, N, D), case.normal(B, G, N, D), case.normal(B, G, N, E)
    options = {"num_basis": N, "window": 1, "delta": 0.0, "epsilon": 0.0, "target": case.target}
    algorithm = case.pick("algorithm", ["auto", "toeplitz", "partitioned"])
    tokens, arrays = draw_tokens(case, B, N, "token_mask"), {"q": q, "k": k, "v": v}
    all_options = {**options, **tokens.options, "algorithm": algorithm}
    forward = lambda **x: fovea.conv(**x, **all_options)  # noqa: E731
    out = case.twice(lambda: forward(**arrays))
    here = tokens.here
    mask = (sees(N, N, True, None) & here[:, None] & here[:, :, None])[:, None]
    formula = lambda q, k, v: dense_formula(q, tokens.clear(k), tokens.clear(v), None, mask)[:1]  # noqa: E731
    (expected,) = formula(wide(q), wide(k), wide(v))
    few = case.type in ("bf16", "f16")
    case.close(out, expected, "out of as many bases as columns", factor=2 if few else 400, size=np.abs(wide(v)).max())
    tokens.hide(case, forward, arrays, out, "qkv")
    d_out = case.normal(*out.shape)
    gradients = case.twice(lambda: fovea.conv_backward(d_out, q, k, v, out, **all_options))
    case.gradients(formula, arrays, [d_out], dict(zip(arrays, gradients)), factor=4 if few else 400)
    options |= {
        "num_basis": case.pick("bases", [1, 2, 4]),
        "window": case.pick("window", [n for n in (1, 2, 4) if n <= N]),
        "delta": case.pick("delta", [0.0, 0.5, 2.0]),
    }
    b, sizes, found = case.twice(lambda: fovea.conv_recover(q, k, **options))
    case.require(((sizes > 0).sum(2) == found).all(), "found is not the number of sizes")
    case.require((np.diff(sizes.astype(int), axis=2) <= 0).all(), "sizes increase")
    case.require((sizes[:, :, 0] == N).all(), "the first basis does not start at the first column")
    scores, _ = scores_of(wide(b), sizes)
    exact_scores = wide(q) @ spread(wide(k), H).swapaxes(2, 3) / np.sqrt(D)
    for place in np.ndindex(*sizes.shape):
        if sizes[place]:
            column = N - sizes[place]
            rows = np.arange(column, N)
            error = np.abs(scores[place[:2]][rows, column] - exact_scores[place[:2]][rows, column]).max()
            bound = (1e-11 if case.type == "f64" else 1e-4) * np.sqrt(D) * 10
            case.require(error <= bound, f"column {column} of basis {place}: error {error:.3g}")
    out = fovea.conv(q, k, v, **options, algorithm=algorithm)
    weights = softmax(*scores_of(wide(b), sizes))[0]
    case.close(out, weights @ spread(wide(v), H), "out of few bases", factor=2 if few else 400, size=np.abs(wide(v)).max())
