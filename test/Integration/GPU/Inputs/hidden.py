# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What is not read has no influence, whatever it holds.

An entry is not read by those results that no finite number in its place
changes. NaN and infinity must not change a bit of them, either, and have to
show in all others. So nothing here knows what a mask is."""

import argparse
import functools
import os
import sys

import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument("--chip", default="sm_80")
parser.add_argument("--only", default="")
# For the canary: as if nothing were read.
parser.add_argument("--reads-nothing", action="store_true")
arguments = parser.parse_args()
os.environ["FOVEA_SIMT"] = ",".join(filter(None, (os.environ.get("FOVEA_SIMT"), f"chip={arguments.chip}")))

import fovea  # noqa: E402

TARGET = {"target": "gpu-sim"}
#: What NVIDIA's arithmetic makes; a carry out of its bits would be a number.
NAN = np.uint32(0x7FFFFFFF).view(np.float32)
#: One entry of so many is checked.
EVERY = int(os.environ.get("FOVEA_EVERY", 1))
asked = checks = failures = 0


def normal(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(dtype)


def bits(array):
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


def check(name, run, inputs, entries, numbers=(NAN, np.inf), shows=True, exact=None):
    """`entries` are (operand, index) of what is replaced, all at once. An `exact` function finds what is not read for
    one whose roundings are everywhere."""
    global asked, checks, failures
    if not name.startswith(arguments.only):
        return
    asked += 1
    if (asked - 1) % EVERY:
        return

    def replace(number, run=run):
        changed = {key: array.copy() for key, array in inputs.items()}
        for operand, index in entries:
            changed[operand][index] = number
        return [np.asarray(result) for result in run(**changed)]

    clean = replace(0.25)
    # Large ones of both signs, and one more: nothing that is read is rounded away.
    finite = [replace(number, exact or run) for number in (0.25, -20000.0, 20000.0, 3.0)]
    for number in numbers:
        what = f"{arguments.chip} {name} {entries} = {number}"
        for place, (before, after, first, *others) in enumerate(zip(clean, replace(number), *finite)):
            unread = np.all([bits(first) == bits(other) for other in others], axis=0)
            if arguments.reads_nothing:
                unread[...] = True
            checks += 2
            same = np.abs(before - after) < 1e-5 if exact else bits(before) == bits(after)
            wrong = unread & ~same
            if wrong.any():
                failures += 1
                print(f"FAILED: {what}: result {place}: {wrong.sum()} of {unread.sum()} that do not read it differ,"
                      f" first at {np.argwhere(wrong)[0].tolist()}")
            missed = ~unread & np.isfinite(after.astype(np.float32))
            if shows and missed.any():
                failures += 1
                print(f"FAILED: {what}: result {place}: {missed.sum()} of {(~unread).sum()} that read it are finite,"
                      f" first at {np.argwhere(missed)[0].tolist()}")


#===-----------------------------------------------------------------------===#
# Soft-max
#===-----------------------------------------------------------------------===#


def dense(q, k, v, **options):
    return fovea.dense(q, k, v, return_lse=True, **options, **TARGET)


def dense_gradients(q, k, v, d_out, **options):
    out, lse = dense(q, k, v, **options)
    return fovea.dense_backward(d_out, q, k, v, out, lse, **options, **TARGET)


def check_dense():
    B, H, G, N, M, D = 2, 4, 2, 70, 81, 16
    log_weight = normal(B, G, M)
    log_weight[..., 3:9] = log_weight[..., 60:] = -np.inf
    bias = normal(B, H, N, M)
    bias[:, :, ::2, 5:40] = bias[..., 77] = -np.inf
    masks = {
        "causal": {"causal": True},
        "window": {"window": 9},
        "log weight": {"log_weight": log_weight},
        "bias": {"bias": bias},
        "all": {"causal": True, "window": 30, "log_weight": log_weight, "bias": bias},
    }
    b, g = 1, 1
    for dtype in (np.float16, np.float32):
        inputs = {"q": normal(B, H, N, D, dtype=dtype), "k": normal(B, G, M, D, seed=1, dtype=dtype),
                  "v": normal(B, G, M, D, seed=2, dtype=dtype)}
        for name, options in masks.items():
            for rows in ((7, 77), (40,)) if dtype == np.float16 else ((40,),):
                check(f"dense {np.dtype(dtype)} {name}", functools.partial(dense, **options), inputs,
                      [(operand, (b, g, row, D - 1 - row % 2)) for row in rows for operand in "kv"])
        inputs["d_out"] = normal(B, H, N, D, seed=3, dtype=dtype)
        for name, options in masks.items():
            run, name = functools.partial(dense_gradients, **options), f"dense_backward {np.dtype(dtype)} {name}"
            check(name, run, inputs, [(o, (b, g, 77, 0)) for o in "kv"], numbers=[NAN])
            # Sums of f16 round away some of what they read.
            if dtype == np.float32:
                check(name, run, inputs, [(o, (b, 3, 11, 4)) for o in ("q", "d_out")], numbers=[np.inf])


def check_vq():
    B, H, G, S, D, E = 1, 2, 1, 5, 8, 16
    # Warpgroups take narrow numbers, and blocks of 64 queries.
    N, block, dtype = (45, 8, np.float32) if arguments.chip == "sm_80" else (200, 64, np.float16)
    inputs = {"q": normal(B, H, N, D, dtype=dtype), "v": normal(B, G, N, E, dtype=dtype),
              "codebook": normal(G, S, D, dtype=dtype)}  # fmt: skip
    # The last codeword is rare, or nobody's.
    codes = np.random.default_rng(0).integers(0, S - 1, (B, G, N)).astype(np.int32)

    def run(q, v, codebook, **options):
        return [fovea.vq(q, codes, v, codebook, block=block, **options, **TARGET)]

    def gradients(q, v, codebook, d_out):
        out, lse = fovea.vq(q, codes, v, codebook, block=block, return_lse=True, **TARGET)
        return fovea.vq_backward(d_out, q, codes, v, codebook, out, lse, block=block, **TARGET)

    entries = [[("v", (0, 0, 19, 3))], [("codebook", (0, S - 1, 2))]]
    for entry in entries:
        check(f"vq {np.dtype(dtype)}", run, inputs, entry, numbers=[NAN])
    inputs["d_out"] = normal(B, H, N, E, seed=1, dtype=dtype)
    # Sums of f16 round away some of what they read.
    if dtype == np.float32:
        entries += [[(operand, (0, 1, 20, 1))] for operand in ("q", "d_out")]
    for entry in entries:
        check(f"vq_backward {np.dtype(dtype)}", gradients, inputs, entry, numbers=[NAN])


def check_staying():
    """Blocks of threads that stay for several blocks of 128 queries."""
    B, H, G, N, S, D, E = 1, 2, 1, 700, 5, 8, 72
    inputs = {"q": normal(B, H, N, D, dtype=np.float16), "v": normal(B, G, N, E, seed=2, dtype=np.float16)}
    keys = {"k": normal(B, G, N, D, seed=1, dtype=np.float16)}
    key_weights, value_weights = ([normal(1, 4, 128 << level, width, seed=3, dtype=np.float16) / 16 for level in (0, 1)]
                                  for width in (D, E))  # fmt: skip

    def multipole(q, k, v):
        return fovea.fast_multipole(q, k, v, key_weights, value_weights, group=128, causal=True, return_lse=True, **TARGET)

    # Of the block of a query, of those beside it and of far ones, in both boxes of values.
    for entry in (("v", (0, 0, 60, 71)), ("v", (0, 0, 300, 4)), ("v", (0, 0, 645, 2)), ("k", (0, 0, 300, 5))):
        check("staying fast_multipole", multipole, inputs | keys, [entry])
    # Nobody's is the last codeword.
    codes = np.random.default_rng(0).integers(0, S - 1, (B, G, N)).astype(np.int32)
    codebook = {"codebook": normal(G, S, D, dtype=np.float16)}

    def vq(q, v, codebook):
        # No weight is so small that what it multiplies is rounded away.
        return [fovea.vq(q, codes, v, codebook, block=128, scale=D**-0.5, **TARGET)]

    for entry in (("v", (0, 0, 19, 3)), ("v", (0, 0, 300, 70)), ("codebook", (0, S - 1, 2))):
        check("staying vq", vq, inputs | codebook, [entry])


#===-----------------------------------------------------------------------===#
# Other sums
#===-----------------------------------------------------------------------===#


def check_low_rank():
    B, H, G, N, r, E = 2, 2, 1, 70, 6, 5
    inputs = {"u1": abs(normal(B, H, N, r)), "u2": abs(normal(B, G, N, r, seed=1)), "v": normal(B, G, N, E)}
    ones = np.ones((B, H, N), np.int32)
    rows = np.arange(N, dtype=np.int32)
    group = (rows % 3).astype(np.int32) * ones
    entries = np.random.default_rng(0).random((B, H, 3, N)) < 0.5
    entries[..., 20] = [True, False, True]
    masks = [
        fovea.Causal(),
        fovea.RowInterval(np.maximum(rows - 40, 0) * ones, rows * ones),
        fovea.RowChange(*make_changes(N)),
        fovea.DistinctRows(group, entries),
        fovea.DistinctColumns(group, entries),
    ]

    def run(mask, u1, u2, v):
        return [fovea.low_rank(u1, u2, v, mask=mask, **TARGET)]

    def gradients(mask, u1, u2, v, d_out):
        out, = run(mask, u1, u2, v)
        return fovea.low_rank_backward(d_out, u1, u2, v, out, mask=mask, **TARGET)

    d_out = {"d_out": normal(B, H, N, E, seed=2)}
    for mask in masks:
        # A running sum keeps roundings of what has left it.
        shows = not isinstance(mask, fovea.RowChange)
        entries = [(o, (1, 0, 20, 3)) for o in ("u2", "v")]
        check(f"low_rank {mask.kind}", lambda mask=mask, **i: run(mask, **i), inputs, entries, [NAN], shows)
        for entry in (entries, [(o, (1, 1, 31, 3)) for o in ("u1", "d_out")]):
            check(f"low_rank_backward {mask.kind}", lambda mask=mask, **i: gradients(mask, **i), {**inputs, **d_out}, entry,
                  [NAN], shows)


def make_changes(N):
    """A column enters in each row, and leaves 12 rows later."""
    return [[i] for i in range(N)], [[i - 12] if i >= 12 else [] for i in range(N)]


def check_conv():
    B, H, G, N, D = 2, 2, 1, 75, 5
    sizes = np.array([[[N, N - 21]] * H] * B, np.int32)
    inputs = {"b": normal(B, H, 2, N), "v": normal(B, G, N, D)}

    def run(algorithm, b, v):
        return [fovea.conv_apply(b, sizes, v, algorithm=algorithm, **TARGET)]

    def gradients(b, v, d_out):
        out, = run("toeplitz", b, v)
        return fovea.conv_apply_backward(d_out, b, sizes, v, out, **TARGET)

    entry = [("v", (1, 0, 40, 3))]
    product = functools.partial(run, "toeplitz")
    check("conv_apply toeplitz", product, inputs, entry)
    check("conv_apply partitioned", lambda **i: run("partitioned", **i), inputs, entry, exact=product)
    d_out = {"d_out": normal(B, H, N, D, seed=1)}
    for entries in (entry, [("d_out", (1, 1, 30, 2))]):
        check("conv_apply_backward", gradients, {**inputs, **d_out}, entries, numbers=[NAN])
    # One head does not read keys at some distances, also in tiles that no diagonal cuts; then none before the 30th;
    # then the first distances count so little that rows with no others are computed again.
    b = normal(B, H, 2, N)
    b[1, 1, 0, 3:10] = b[1, 1, 0, 33:40] = -np.inf
    inputs = {"b": b, "v": inputs["v"]}
    for name, row in (("distances", 40), ("start", 40), ("rows", 33)):
        if name == "start":
            sizes[1, 1] = [45, 20]
        elif name == "rows":
            b[1, 1, 0, :3] = -60
        entry = [("v", (1, 0, row, 3))]
        check(f"conv_apply masked {name}", product, inputs, entry)
        check(f"conv_apply partitioned masked {name}", lambda **i: run("partitioned", **i), inputs, entry, exact=product)
        for entries in (entry, [("d_out", (1, 1, row + 1, 2))]):
            check(f"conv_apply_backward masked {name}", gradients, {**inputs, **d_out}, entries, numbers=[NAN])


check_dense()
check_vq()
# Tiles of warpgroups differ in soft-max only.
if arguments.chip == "sm_80":
    check_low_rank()
    check_conv()
else:
    check_staying()
print(f"{checks} checks, {failures} failed")
sys.exit(1 if failures or not checks else 0)
