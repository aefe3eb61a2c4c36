# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Quantization, and attention over quantized keys: whole, in windows, token by token."""

import functools

import numpy as np

import fovea

from .case import flatten, softmax, spread, wide
from .tokens import draw_tokens

REDUCTIONS = ["auto", "serial", "matmul", "associative", "input_scan"]


def codewords(codebook, codes):
    """The rows [B,G,N,D] that codes stand for."""
    heads = np.broadcast_to(np.arange(codes.shape[1])[:, None] % codebook.shape[0], codes.shape[1:])
    return codebook[heads[None], codes]


def quantize(case):
    B, G = case.pick("B", [1, 2, 3]), case.pick("G", [1, 2, 3])
    N, D, S = case.length("N"), case.width("D"), case.pick("S", [1, 2, 5, 16, 17, 40])
    shared = case.pick("heads of codebook", [1, G])
    k, codebook = case.normal(B, G, N, D), case.normal(shared, S, D)
    tokens = draw_tokens(case, B, N)
    here = np.broadcast_to(tokens.here[:, None], (B, G, N))
    k_hat, codes = case.twice(lambda: fovea.quantize(k, codebook, **tokens.options, target=case.target))
    case.require(((codes == -1) == ~here).all() and (codes < S).all(), "codes out of range")
    case.require((wide(k_hat)[~here] == 0).all(), "codewords of absent tokens")
    case.same(k_hat[here], codewords(codebook, codes)[here], "k_hat")
    sets = np.broadcast_to(wide(codebook), (G, S, D)) if shared == 1 else wide(codebook)
    distance = ((wide(k)[:, :, :, None] - sets[None, :, None]) ** 2).sum(-1)
    chosen = np.where(here, np.take_along_axis(distance, np.maximum(codes, 0)[..., None].astype(int), -1)[..., 0], 0)
    # Another codeword may be as near to rounding.
    slack = 1e-12 if case.type == "f64" else 1e-4
    worst = (chosen - distance.min(-1))[here].max(initial=0)
    case.require(worst <= slack * (1 + D), f"codes: {worst:.3g} farther than the nearest codeword")
    loss = fovea.commitment_loss(k, k_hat, **tokens.options, target=case.target)
    needed = ((wide(k) - wide(k_hat)) ** 2).sum(-1)[here].sum() / max(here.sum(), 1)
    d_k = fovea.commitment_loss_backward(0.75, k, k_hat, **tokens.options, target=case.target)
    case.close(d_k, np.where(here[..., None], 1.5 / max(here.sum(), 1) * (wide(k) - wide(k_hat)), 0), "d_k", factor=4)
    if not here.all():
        dirty = np.where(here[..., None], k, case.dtype(np.nan))
        case.same(fovea.quantize(dirty, codebook, **tokens.options, target=case.target), [k_hat, codes], "of absent NaNs")
    case.require(abs(float(loss) - needed) <= 1e-5 * (1 + needed), f"commitment loss {float(loss)}, needed {needed}")
    sums = case.normal(shared, S, D, dtype=case.state)
    counts = case.random.random((shared, S)).astype(case.state) + 1
    rate, least = case.pick("rate", [0.0, 0.5, 0.99, 1.0]), case.pick("min_count", [0.0, 0.0, 1.5])
    options = {"rate": rate, "min_count": least, "wide": case.flip("wide"), "target": case.target}
    given = codes.astype(case.random.choice([np.int32, np.int64]))
    book, new_sums, new_counts = case.twice(
        lambda: fovea.codebook_update(k, given, sums.copy(), counts.copy(), **options)
    )
    one_hot = (codes[..., None] == np.arange(S)).astype(float)
    number, total = one_hot.sum((0, 2)), np.einsum("bgns,bgnd->gsd", one_hot, wide(k))
    if shared == 1:
        number, total = number.sum(0, keepdims=True), total.sum(0, keepdims=True)
    number, total = rate * wide(counts) + (1 - rate) * number, rate * wide(sums) + (1 - rate) * total
    state = {"f64": 1e-12}.get(case.type, 1e-5)
    for what, found, expected in (("counts", new_counts, number), ("sums", new_sums, total)):
        error = np.abs(wide(found) - expected).max()
        case.require(error <= state * (1 + N * B), f"codebook_update: {what}: error {error:.3g}")
    number = np.maximum(number, least)
    expected = total / np.where(number == 0, 1, number)[..., None] * (number != 0)[..., None]
    # A small count divides what is known to the size of the sums.
    steady = number > 1e-3
    if steady.any():
        case.close(np.asarray(book)[steady], expected[steady], "codebook", factor=8, size=N * B / number[steady].min())


def formula(
    q, k_local, k_hat, v, block, causal, scale, weighting,
    first=0, memory=1, present=None, bias=None, r=None, u=None, distance_bias=None,
):  # fmt: skip
    """Queries q are those of the tokens from `first` on; keys those of all tokens.
    `k_local` stands for k_hat in the block of a query and in `memory` before."""
    H, N, M = q.shape[1], q.shape[2], k_hat.shape[2]
    i, j = first + np.arange(N)[:, None], np.arange(M)[None]
    # Without `causal` no key is read one by one.
    near = (i // block - j // block <= memory) & causal
    scores = scale * np.where(
        near, q @ spread(k_local, H).swapaxes(2, 3), q @ spread(k_hat, H).swapaxes(2, 3)
    )
    mask = np.broadcast_to(j <= i if causal else True, scores.shape)
    if bias is not None:
        column = np.clip(j - (i // block - memory) * block, 0, (memory + 1) * block - 1)
        term = np.take_along_axis(bias, np.broadcast_to(column, (*bias.shape[:2], N, M)), 3)
        scores = scores + np.where(near, term, 0)
    distance = np.where(near & (j <= i), i - j, 0)
    if r is not None:
        products = (q + u[None, :, None]) @ r[None].swapaxes(2, 3)
        term = np.take_along_axis(products, np.broadcast_to(distance, scores.shape), 3)
        scores = scores + np.where(near, scale * term, 0)
    if distance_bias is not None:
        scores = scores + np.where(near, distance_bias[:, distance], 0)
    there = np.ones((len(q), M), bool) if present is None else present
    mask = mask & there[:, None, None] & there[:, None, first : first + N, None]
    if weighting == "softmax":
        weights, lse = softmax(scores, mask)
        return [weights @ spread(v, H), lse]
    weights = np.where(mask & (scores.real > 0), scores**2, 0)
    return [weights @ spread(v, H)]


def draw(case, length):
    B, H, G = case.heads()
    block = case.pick("block", [1, 2, 3, 4, 7, 8, 16, 33])
    N = length(block)
    D, E, S = case.width("D", 33), case.width("E", 33), case.pick("S", [1, 2, 5, 16, 17])
    shared = case.pick("heads of codebook", [1, G])
    arrays = {"q": case.normal(B, H, N, D), "v": case.normal(B, G, N, E), "codebook": case.normal(shared, S, D)}
    codes = case.random.integers(0, S, (B, G, N)).astype(np.int32)
    return arrays, codes, block, (B, H, G, N, S)


def draw_absent(case, codes, keys, options):
    """Which tokens there are, and what are keys: absent ones by a mask, by lengths or by -1 for a code."""
    B, _, N = codes.shape
    kind = case.pick("absent", [None, None, "mask", "lengths", "padded"])
    if kind is None:
        return None, codes
    given = keys
    present = case.random.random((B, N)) < case.pick("share", [0.1, 0.7, 0.95])
    if kind == "lengths":
        options["lengths"] = present.sum(1).astype(np.int32)
        present = np.arange(N) < options["lengths"][:, None]
    elif kind == "mask":
        options["mask"] = present
    else:
        options["padded"] = True
        given = np.where(present[:, None], codes, -1).astype(np.int32)
    return present, given


def whole(case):
    arrays, codes, block, (B, H, G, N, S) = draw(case, lambda block: case.length("N", 129))
    causal = case.flip("causal", 0.8)
    weighting = case.pick("weighting", ["softmax", "softmax", "softmax", "squared_relu"])
    scale = case.pick("scale", [1.0, 0.3])
    reduction = case.pick("reduction", REDUCTIONS)
    soft = weighting == "softmax"
    options = {"block": block, "causal": causal, "scale": scale, "weighting": weighting, "target": case.target}
    variables = {"q": arrays["q"], "k": codewords(arrays["codebook"], codes), "v": arrays["v"]}
    memory, terms = 1, {}
    if causal:
        memory = options["memory"] = case.pick("memory", [1, 1, 1, 2, 3])
        near = (memory + 1) * block
        distances = near + case.pick("more", [0, 0, 3])
        if case.flip("bias", 0.3):
            terms["bias"] = variables["bias"] = case.normal(B, H, N, near)
        if soft and case.flip("relative", 0.3):
            D = arrays["q"].shape[3]
            variables["r"] = case.normal(*case.leading((H,)), distances, D)
            variables["u"] = case.normal(H, D)
            terms["relative"] = variables["r"], variables["u"]
        if soft and case.flip("distance_bias", 0.2):
            terms["distance_bias"] = variables["distance_bias"] = case.normal(*case.leading((H,)), distances)
    present, keys = draw_absent(case, codes, variables["k"], options)

    def forward(q, v):
        return fovea.vq(
            q, keys, v, arrays["codebook"], reduction=reduction, return_lse=soft, **terms, **options
        )

    given = {"q": arrays["q"], "v": arrays["v"]}
    clean = case.twice(lambda: forward(**given))
    out, lse = clean if soft else (clean, None)
    k_hat = wide(codewords(arrays["codebook"], codes))
    naive = lambda q, k, v, **more: formula(  # noqa: E731
        q, k, k_hat, v, block, causal, scale, weighting, memory=memory, present=present, **more
    )
    results = naive(**{name: wide(array) for name, array in variables.items()})
    size = np.abs(wide(arrays["v"])).max() if soft else np.abs(results[0]).max()
    case.close(out, results[0], "out", factor=4, size=size)
    if case.type in ("f32", "f64") and soft:
        case.close(lse, results[1], "lse", factor=8, size=4)
    if N > 1 and (causal or present is not None):
        j = int(case.random.integers(1, N))
        b, g = int(case.random.integers(B)), int(case.random.integers(G))
        keep = np.ones((B, H, N), bool)
        if present is None or present[b, j]:
            keep[b, g * (H // G) : (g + 1) * (H // G), j * causal :] = False
        untouched = [keep[..., None], keep]
        case.hidden(forward, given, clean, ("v", (b, g, j, 0)), untouched, "forward")
    d_out = case.normal(*out.shape)
    d_lse = case.normal(B, H, N, dtype=case.state) if soft and case.flip("d_lse", 0.3) else None
    if d_lse is not None:
        d_lse[np.isneginf(wide(lse))] = 0
    gradients = case.twice(
        lambda: fovea.vq_backward(
            d_out, arrays["q"], keys, arrays["v"], arrays["codebook"], out if soft else None, lse,
            d_lse=d_lse, **terms, **options,
        )
    )  # fmt: skip
    safe = lambda **x: [np.where(np.isneginf(each.real), 0, each) for each in naive(**x)]  # noqa: E731
    case.gradients(
        safe, variables, [d_out] + ([] if d_lse is None else [d_lse]), dict(zip(variables, flatten(gradients))),
        factor=4 if soft else 4 * (1 + size),
    )  # fmt: skip


def windows(case):
    """Windows and single tokens must give what the whole sequence gives."""
    arrays, codes, block, (B, H, G, N, S) = draw(
        case, lambda block: case.note(N=int(case.random.integers(1, 6 * min(block, 8) + 4)))
    )
    q, v, codebook = arrays["q"], arrays["v"], arrays["codebook"]
    count = int(case.random.integers(0, 4))
    cuts = case.note(cuts=sorted({0, N, *(int(c) for c in case.random.integers(0, N + 1, count))}))
    bias = case.normal(B, H, N, 2 * block) if case.flip("bias", 0.3) else None
    weighting = case.pick("weighting", ["softmax", "softmax", "softmax", "squared_relu"])
    soft = weighting == "softmax"
    options = {"block": block, "weighting": weighting, "target": case.target}
    state: fovea.VQState | None = None
    parts: list[tuple] = []
    for a, z in zip(cuts, cuts[1:]):
        rows = slice(a, z)
        part = None if bias is None else bias[:, :, rows]
        before = state
        if case.flip("token by token", 0.25):
            if state is not None:
                state = fovea.VQState(*(np.copy(array) for array in state))
            outs = []
            for t in range(a, z):
                token = None if bias is None else bias[:, :, t : t + 1]
                one, state = fovea.vq_decode(
                    q[:, :, t : t + 1], codes[:, :, t : t + 1], v[:, :, t : t + 1], codebook, state, bias=token, **options
                )
                outs.append(np.copy(one))
            parts.append((before, rows, part, np.concatenate(outs, 2), None))
            continue
        reduction = case.pick("reduction", REDUCTIONS)
        results = case.twice(
            functools.partial(
                fovea.vq, q[:, :, rows], codes[:, :, rows], v[:, :, rows], codebook, bias=part, state=before,
                reduction=reduction, return_state=True, return_lse=soft, **options,
            )
        )  # fmt: skip
        state = fovea.VQState(*results[-1])
        parts.append((before, rows, part, results[0], results[1] if soft else None))
    found = np.concatenate([np.asarray(out) for _, _, _, out, _ in parts], 2)
    k_hat = wide(codewords(codebook, codes))
    naive = lambda q, k, v, bias=None: formula(  # noqa: E731
        q, k, k_hat, v, block, True, 1.0, weighting, bias=bias
    )
    variables = {"q": q, "k": codewords(codebook, codes), "v": v}
    if bias is not None:
        variables["bias"] = bias
    results = naive(**{name: wide(array) for name, array in variables.items()})
    size = np.abs(wide(v)).max() if soft else np.abs(results[0]).max()
    case.close(found, results[0], "out", factor=6, size=size)
    check_state(case, state, codes, v, block, N, S)
    if all(lse is not None for *_, lse in parts) or not soft:
        gradient_of_windows(case, parts, (q, codes, v, codebook), naive, variables, options, size)


def check_state(case, state, codes, v, block, N, S):
    """What is kept of the tokens, from its definition."""
    case.require(int(state.position) == N, f"position {int(state.position)}, needed {N}")
    old = max(N // block - 1, 0) * block
    one_hot = (codes[:, :, :old, None] == np.arange(S)).astype(np.int64)
    counts = one_hot.sum(2)
    case.require((np.asarray(state.count) == counts).all(), "count")
    sums = np.einsum("bgns,bgne->bgse", one_hot, wide(v)[:, :, :old])
    case.close(
        np.where(counts[..., None] > 0, wide(state.mean), 0), sums / np.maximum(counts, 1)[..., None],
        "mean", factor=4, size=np.abs(wide(v)).max(),
    )  # fmt: skip
    rows = np.arange(old, N)
    case.same(np.asarray(state.codes)[:, :, rows % (2 * block)], codes[:, :, old:], "codes that are kept")
    case.same(np.asarray(state.values)[:, :, rows % (2 * block)], v[:, :, old:], "values that are kept")


def gradient_of_windows(case, parts, arguments, naive, variables, options, size):
    """The gradient of all windows, from the last to the first, is that of the whole."""
    q, codes, v, codebook = arguments
    soft = options["weighting"] == "softmax"
    d_out = case.normal(*q.shape[:3], v.shape[3])
    d_q, d_k, d_v = (np.zeros(variables[name].shape) for name in ("q", "k", "v"))
    d_next = None
    for before, rows, bias, out, lse in reversed(parts):
        gradients = fovea.vq_backward(
            d_out[:, :, rows], q[:, :, rows], codes[:, :, rows], v[:, :, rows], codebook,
            out if soft else None, lse, bias=bias, state=before, d_next_state=d_next, **options,
        )  # fmt: skip
        d_q[:, :, rows] += wide(gradients[0])
        d_k[:, :, rows] += wide(gradients[1])
        d_v[:, :, rows] += wide(gradients[2])
        d_next = gradients[-1] if before is not None else None
    case.gradients(
        naive, variables, [d_out], {"q": d_q, "k": d_k, "v": d_v}, factor=(4 if soft else 4 * (1 + size)) * len(parts)
    )
