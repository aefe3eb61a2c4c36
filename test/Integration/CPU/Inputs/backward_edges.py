# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradients: dynamic extents, thread counts, large scores, empty rows, many
queries, several sources."""

import numpy as np
from backward_cases import close, dense_case, stream_case
from cases import Checker, normal

check = Checker()
reference = check.reference


def inputs(seed, dtype, B, H, G, N, M, D, E, factor=1.0, **options):
    """q, k, v, out, lse, d_out."""
    rng = np.random.default_rng(seed)
    q, k = (normal(rng, s, dtype, factor) for s in ((B, H, N, D), (B, G, M, D)))
    v, d_out = (normal(rng, s, dtype) for s in ((B, G, M, E), (B, H, N, E)))
    out, lse = reference.dense(q, k, v, return_lse=True, **options)
    return q, k, v, out.astype(v.dtype), lse.astype(np.float64 if dtype == "f64" else np.float32), d_out


def wanted(q, k, v, out, lse, d_out, **options):
    return reference.dense_backward(d_out, q, k, v, out, lse, **options)


# One kernel for all extents.
for causal, window in ((False, None), (True, None), (True, 9)):
    kernel = None
    for seed, (B, H, G, N, M) in enumerate([
        (2, 4, 2, 13, 13), (2, 3, 3, 63, 97), (3, 2, 2, 64, 64), (2, 4, 2, 192, 193), (2, 2, 2, 7, 200), (2, 6, 3, 129, 65),
    ]):  # fmt: skip
        arrays = inputs(seed, "f32", B, H, G, N, M, 16, 24, causal=causal, window=window)
        text, arguments = dense_case(*arrays, causal=causal, window=window, dynamic=True)
        kernel = kernel or check.library.compile(text)
        close(check, kernel(*arguments), wanted(*arrays, causal=causal, window=window), "f32",
              f"dynamic causal {causal} window {window} B{B} H{H} G{G} N{N} M{M}")

    # The same kernel where there is nothing to do.
    for B, H, G, N, M in ((0, 2, 2, 5, 5), (2, 0, 0, 5, 5), (2, 2, 2, 0, 5), (2, 2, 2, 5, 0)):
        shapes = (B, H, N, 16), (B, G, M, 16), (B, G, M, 24), (B, H, N, 24), (B, H, N), (B, H, N, 24)
        found = kernel(*(np.zeros(shape, np.float32) for shape in shapes))
        check.require([x.shape for x in found] == list(shapes[:3]) and not any(x.any() for x in found),
                      f"dynamic causal {causal} window {window} B{B} H{H} G{G} N{N} M{M}")

# A bias for every score, whose gradient is stored in squares: remainders of keys and
# queries, on CPUs whose vectors are shorter and longer than register tiles; one
# query and column.
for cpu in check.usable_cpus():
    for dtype in ("f64", "f32"):
        for seed, (N, M, E) in enumerate([(33, 41, 16), (34, 42, 16), (39, 43, 16), (47, 46, 16), (1, 300, 1)]):
            bias = normal(np.random.default_rng(seed), (1, 2, N, M), dtype)
            arrays = inputs(seed, dtype, 1, 2, 1, N, M, 16, E, bias=bias)
            text, arguments = dense_case(*arrays, terms=[("bias", bias)])
            found = check.library.compile(text, cpu=cpu)(*arguments)
            close(check, found, wanted(*arrays, bias=bias), dtype, f"bias {cpu} {dtype} N{N} M{M}")

# The same bits for any number of threads, and run after run: blocks of queries,
# heads that share a key head, heads and batch entries that share a bias.
for name, (H, G), terms in (
    ("heads", (4, 4), {}),
    ("groups", (4, 2), {"log_weight": (1, 1, 300), "bias": (2, 4, 197, 300)}),
    ("shared", (4, 1), {"log_weight": (2, 1, 300), "bias": (1, 1, 197, 300)}),
):
    for causal in (False, True):
        rng = np.random.default_rng(5)
        given = {term: normal(rng, shape, "f32") for term, shape in terms.items()}
        arrays = inputs(3, "f32", 2, H, G, 197, 300, 20, 33, causal=causal, **given)
        text, arguments = dense_case(*arrays, causal=causal, terms=list(given.items()))
        found = check.call(check.library.compile(text), arguments, f"{name} causal {causal}", (1, 2, 3, 7, 7, 1))
        close(check, found, wanted(*arrays, causal=causal, **given), "f32", f"threads {name} causal {causal}",
              rows=2 * H * 197)

# Scores around 1e4: soft-max is nearly one-hot.
for causal in (False, True):
    arrays = inputs(4, "f64", 1, 2, 2, 130, 130, 32, 32, factor=42.0, causal=causal)
    text, arguments = dense_case(*arrays, causal=causal)
    check.require(np.abs(arrays[4]).max() > 1e3, "large scores are large")
    close(check, check.library.compile(text)(*arguments), wanted(*arrays, causal=causal), "f64",
          f"large scores causal {causal}", factor=1e3)

# Rows that read nothing pass nothing on.
for number in (-np.inf, -1e30):
    bias = np.zeros((1, 1, 70, 1), np.float32)
    bias[0, 0, ::3] = number
    arrays = list(inputs(6, "f32", 1, 2, 1, 70, 30, 16, 16, causal=True, bias=np.where(bias < 0, -np.inf, 0)))
    text, arguments = dense_case(*arrays, causal=True, terms=[("bias", bias)])
    found = check.library.compile(text)(*arguments)
    check.require(all(np.isfinite(gradient).all() for gradient in found), f"empty rows by {number} give numbers")
    check.require(not found[0][:, :, ::3].any() and not found[0][:, :, :40].any(), f"empty rows by {number} have no gradient")
    check.require(not found[3][:, :, ::3].any(), f"empty rows by {number} pass nothing on to the bias")

# Several sources, two of them without ranges that depend on blocks: the second
# one short, the first one long.
rng = np.random.default_rng(8)
N, M1, M2 = 150, 1700, 20
q, k1, v1, k2, v2, d_out = (normal(rng, s, "f32") for s in (
    (1, 2, N, 16), (1, 1, M1, 16), (1, 1, M1, 8), (1, 1, M2, 16), (1, 1, M2, 8), (1, 2, N, 8)))
k, v = np.concatenate([k1, k2], axis=2), np.concatenate([v1, v2], axis=2)
out, lse = (x.astype(np.float32) for x in reference.dense(q, k, v, scale=0.25, return_lse=True))
dq, dk, dv = reference.dense_backward(d_out, q, k, v, out, lse, scale=0.25)
everything = "affine_map<(b)[rows, n] -> (0, rows)>"
text, arguments = stream_case(q, [(k1, v1, everything), (k2, v2, everything)], out, lse, d_out, ["scale = 0.25 : f64"])
expected = [dq, dk[:, :, :M1], dk[:, :, M1:], dv[:, :, :M1], dv[:, :, M1:]]
found = check.call(check.library.compile(text), arguments, "two sources", (1, 2, 3))
close(check, found, expected, "f32", "two sources")

# Rows that no range names have gradients of zero, whatever memory held before.
rng = np.random.default_rng(9)
q, d_out = (normal(rng, (1, 4, 40, 16), "f32") for _ in range(2))
k, v = (normal(rng, (1, 2, 12, 16), "f32") for _ in range(2))
out, lse = (x.astype(np.float32) for x in reference.dense(q, k[:, :, 2:7], v[:, :, 2:7], scale=0.25, return_lse=True))
expected = list(reference.dense_backward(d_out, q, k[:, :, 2:7], v[:, :, 2:7], out, lse, scale=0.25))
expected[1:] = [np.pad(gradient, ((0, 0), (0, 0), (2, 5), (0, 0))) for gradient in expected[1:]]
text, arguments = stream_case(q, [(k, v, "affine_map<(b)[rows, n] -> (2, 7)>")], out, lse, d_out, ["scale = 0.25 : f64"])
kernel = check.library.compile(text)
for attempt in range(2):
    found = kernel(*arguments)
    close(check, found, expected, "f32", f"unread rows, run {attempt}")
    check.require(not found[1][:, :, 7:].any() and not found[2][:, :, :2].any(), "unread rows have no gradient")

# Chunks of blocks, for two heads that share keys. Each clears the rows up to
# those of the next one, which has added to the last that it reads, also where no
# block reads them: before the first, between those of any two, and behind the last.
rng = np.random.default_rng(10)
N, near, far = 1100, 1500, 76
q, d_out = (normal(rng, (1, 2, N, 16), "f32") for _ in range(2))
k, v = (normal(rng, (1, 1, near + far, 16), "f32") for _ in range(2))
read = np.full((N, near + far), -np.inf)
for block in range(-(-N // 64)):
    rows = read[64 * block : 64 * block + 64]
    for first in (5, 70):
        rows[:, 64 * block + first : 64 * block + first + 40] = 0
    rows[:, near + max(0, block // 2 * 8 - 8) : near + max(0, 4 * block - 4)] = 0
out, lse = (x.astype(np.float32) for x in reference.dense(q, k, v, bias=read[None, None], scale=0.25, return_lse=True))
dq, dk, dv, _ = reference.dense_backward(d_out, q, k, v, out, lse, bias=read[None, None], scale=0.25)
text, arguments = stream_case(
    q,
    [(k[:, :, :near].copy(), v[:, :, :near].copy(),
      "affine_map<(b)[rows, n] -> (b * 64 + 5, b * 64 + 45)>, affine_map<(b)[rows, n] -> (b * 64 + 70, b * 64 + 110)>"),
     (k[:, :, near:].copy(), v[:, :, near:].copy(), "affine_map<(b)[rows, n] -> ((b floordiv 2) * 8 - 8, b * 4 - 4)>")],
    out, lse, d_out, ["block = 64 : i64", "scale = 0.25 : f64"])  # fmt: skip
expected = [dq, *(gradient[:, :, part] for gradient in (dk, dv) for part in (slice(near), slice(near, None)))]
for cpu in check.usable_cpus():
    found = check.call(check.library.compile(text, cpu=cpu), arguments, f"chunks {cpu}", (1, 2, 3, 7))
    close(check, found, expected, "f32", f"chunks {cpu}")
    unread = ~np.isfinite(read[:, :near]).any(axis=0)
    check.require(not found[1][:, :, unread].any() and not found[3][:, :, unread].any(), f"chunks {cpu}: unread rows")

# Summaries alone: any interval, heads that share weights, gradients that add up.
for B, G, N, D, W, p, I in ((1, 1, 10, 3, 1, 1, 1), (2, 4, 37, 16, 2, 3, 12), (1, 3, 64, 20, 3, 4, 64), (1, 2, 70, 5, 1, 5, 35)):
    rng = np.random.default_rng(N)
    x, w = normal(rng, (B, G, N, D), "f32"), normal(rng, (W, p, I, D), "f32")
    d = normal(rng, (B, G, -(-N // I) * p, D), "f32")
    starts = [normal(rng, s, "f32") for s in (x.shape, w.shape, (W, p, D))]
    names = ["x", "w", "d", "a", "b", "c"]
    t = [f"tensor<{'x'.join(map(str, a.shape))}xf32>" for a in (x, w, d, *starts)]
    kinds = ", ".join(t[3:])
    text = (
        f"func.func @f({', '.join(f'%{n}: {kind}' for n, kind in zip(names, t))}) -> ({kinds}) {{\n"
        f"  %r:3 = attn.summarize_backward ins(%x : {t[0]}) weights(%w : {t[1]}) gradient(%d : {t[2]})\n"
        f"    outs(%a, %b, %c : {kinds}) -> {kinds}\n  return %r#0, %r#1, %r#2 : {kinds}\n}}\n"
    )
    found = check.library.compile(text)(x, w, d, *starts)
    expected = reference.summarize_backward(d, x, w, np.zeros((W, p, D)), interval=I)
    close(check, found, [start + part for start, part in zip(starts, expected)], "f32", f"summaries of {N} rows by {I}")
check.finish()
