# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What has to hold for attn.vq and attn.vq_decode, whatever the numbers are."""

import functools

import numpy as np
from cases import BOUNDS, Checker, normal
from kernels import Failure
from vq_cases import decoder, empty_state, expected, module

check = Checker()
TARGETS = ("cpu", "reference")
REDUCTIONS = ("serial", "matmul", "associative", "input_scan")


def contiguous(array):
    # ascontiguousarray would give a position an extent.
    return np.asarray(array, order="C")


def case_of(**fields):
    case = {
        "width": (8, 12), "heads": (1, 1, 1, True), "codes": 6, "block": 4, "memory": 1, "dtype": "f32", "dynamic": False,
        "causal": True, "weighting": "softmax", "reduction": "auto", "lse": False,
    }
    return case | fields


def inputs(case, N, seed=0):
    rng = np.random.default_rng(seed)
    (D, E), (B, H, G, shared) = case["width"], case["heads"]
    dtype, S = case["dtype"], case["codes"]
    return [
        normal(rng, (B, H, N, D), dtype), rng.integers(0, S, (B, G, N), np.int32),
        normal(rng, (B, G, N, E), dtype), normal(rng, (1 if shared else G, S, D), dtype),
    ]


def bias_of(case, N, seed=9):
    B, H = case["heads"][:2]
    return normal(np.random.default_rng(seed), (B, H, N, 2 * case["block"]), case["dtype"])


def run(case, arrays, target="cpu", before=(), returns_state=False, bias=None):
    N = arrays[0].shape[2]
    text = module(case, N, bool(len(before)), returns_state, "full" if bias is not None else None)
    arrays = list(arrays) + ([bias] if bias is not None else []) + list(before)
    return check.library.compile(text, target=target)(*map(contiguous, arrays))


def rows(arrays, low, high):
    q, z, v, c = arrays
    return [q[:, :, low:high], z[:, :, low:high], v[:, :, low:high], c]


def block_size_invariance():
    for target in TARGETS:
        case = case_of(dtype="f64")
        arrays = inputs(case, 12)
        out, _ = expected(case, *arrays, None)
        for block in (1, 2, 3, 4, 6, 12):
            for reduction in REDUCTIONS:
                found = run(case | {"block": block, "reduction": reduction}, arrays, target)[0]
                check.close(found, out, 1e-13, f"block {block} {reduction} {target}")


def reductions_agree():
    case = case_of(heads=(2, 4, 2, False), width=(16, 32), codes=20, block=16)
    arrays = inputs(case, 150)
    for bias in (None, bias_of(case, 150)):
        found = [run(case | {"reduction": r}, arrays, bias=bias)[0] for r in REDUCTIONS]
        for reduction, other in zip(REDUCTIONS[1:], found[1:]):
            check.close(other, found[0], 2e-6, f"{reduction} and serial, bias {bias is not None}")


def causality():
    """Changing token j changes no output before j, not by a bit."""
    case = case_of(width=(16, 16), codes=9, block=8)
    N = 50
    for bias in (None, bias_of(case, N)):
        for reduction in REDUCTIONS:
            arrays = inputs(case, N)
            first = run(case | {"reduction": reduction}, arrays, bias=bias)[0]
            for j in (0, 1, 7, 8, 23, 49):
                q, z, v, c = (x.copy() for x in arrays)
                q[:, :, j] += 1
                z[:, :, j] = (z[:, :, j] + 1) % case["codes"]
                v[:, :, j] -= 2
                found = run(case | {"reduction": reduction}, (q, z, v, c), bias=bias)[0]
                what = f"token {j}, {reduction}, bias {bias is not None}"
                check.require((found[:, :, :j] == first[:, :, :j]).all(), f"causality: {what}")
                check.require((found[:, :, j] != first[:, :, j]).any(), f"effect: {what}")


def thread_counts():
    case = case_of(heads=(1, 2, 1, True), width=(16, 64), codes=30, block=64)
    arrays = inputs(case, 300)
    for reduction in REDUCTIONS:
        found = []
        for count in (1, 2, 3):
            check.library.set_num_threads(count)
            found.append(run(case | {"reduction": reduction}, arrays)[0])
        check.require(all((f == found[0]).all() for f in found), f"threads: {reduction}")
    check.library.set_num_threads(0)


def windows_and_decoding():
    N = 27
    one, many = (1, 1, 1, True), (2, 4, 2, False)
    for dtype, heads, weighting, block, has_bias in (
        ("f32", one, "softmax", 1, False),
        ("f32", many, "softmax", 4, True),
        ("f64", one, "softmax", 5, True),
        ("bf16", many, "softmax", 4, False),
        ("f16", one, "squared_relu", 5, True),
        ("f32", one, "squared_relu", 32, False),
    ):
        case = case_of(dtype=dtype, heads=heads, weighting=weighting, block=block)
        arrays = inputs(case, N)
        bias = bias_of(case, N) if has_bias else None
        out, _ = expected(case, *arrays, bias)
        decode_all(case, arrays, bias, out, f"{dtype} {heads} {weighting} block {block} bias {has_bias}")


def decode_all(case, arrays, bias, out, what):
    N = arrays[0].shape[2]
    # A prefix at once, then token by token; once from nothing.
    for prefix in (0, 10):
        for target in TARGETS:
            kernel = check.library.compile(decoder(case, bias is not None), target=target)
            parts, kept = [], empty_state(case)
            if prefix:
                first = run(case, rows(arrays, 0, prefix), target, returns_state=True,
                            bias=None if bias is None else bias[:, :, :prefix])
                parts, kept = [first[0]], first[-5:]
            for t in range(prefix, N):
                token = rows(arrays, t, t + 1) + ([] if bias is None else [bias[:, :, t:t + 1]])
                found = kernel(*map(contiguous, token + list(kept)))
                parts.append(found[0])
                kept = found[1:]
            check.close(np.concatenate(parts, axis=2), out, BOUNDS[case["dtype"]],
                        f"decoding after {prefix}: {what} {target}")
            check.require(kept[4] == N, f"position after decoding: {what} {target}")
            # And on with a window.
            more = run(case, arrays, target, before=kept, returns_state=True, bias=bias)
            again = np.concatenate([arrays[0], arrays[0]], axis=2)
            both = [again] + [np.concatenate([x, x], axis=2) for x in arrays[1:3]] + [arrays[3]]
            twice = None if bias is None else np.concatenate([bias, bias], axis=2)
            check.close(more[0], expected(case, *both, twice)[0][:, :, N:], BOUNDS[case["dtype"]],
                        f"window after decoding: {what} {target}")


def exact_counts():
    """bf16 has no 257: counts are integers whatever the data."""
    case = case_of(dtype="bf16", codes=2, block=64, width=(8, 8))
    N = 6000
    q, z, v, c = inputs(case, N)
    z[...] = 0
    for reduction in REDUCTIONS:
        found = run(case | {"reduction": reduction}, (q, z, v, c), returns_state=True)
        old = (N // 64 - 1) * 64
        check.require(found[2][0, 0, 0] == old and found[2][0, 0, 1] == 0, f"count: {reduction} {found[2][0, 0]}")
        mean = v[0, 0, :old].astype(float).mean(axis=0)
        check.close(found[1][0, 0, 0], mean, 1e-4, f"mean of {old}: {reduction}")
        # With one code the last row is the mean of all values.
        check.close(found[0][0, 0, -1], v[0, 0].astype(float).mean(axis=0), 2e-2, f"last row: {reduction}")


def out_of_range():
    case = case_of(heads=(1, 2, 2, True))
    for target in TARGETS:
        for code in (-1, 6, 2**31 - 1):
            arrays = inputs(case, 9)
            arrays[1][0, 1, 5] = code
            try:
                run(case, arrays, target)
                check.require(False, f"code {code} passes, {target}")
            except Failure as failure:
                needed = f"attn.vq: codes[0, 1, 5] must be at least 0 and below 6, but got {code}"
                check.require(needed in str(failure), f"{target}: {failure}")
            kernel = check.library.compile(decoder(case, False), target=target)
            token = rows(arrays, 5, 6) + empty_state(case)
            try:
                kernel(*map(contiguous, token))
                check.require(False, f"code {code} passes, decoding, {target}")
            except Failure as failure:
                needed = f"attn.vq_decode: codes[0, 1, 0] must be at least 0 and below 6, but got {code}"
                check.require(needed in str(failure), f"{target}: {failure}")


def impossible_states():
    """Refused before anything is computed, wherever a state enters."""
    case = case_of(heads=(1, 2, 2, True))
    arrays = inputs(case, 9)
    wrong = {
        "count of state[0, 1, 5] must be at least 0 and below 2147483648, but got -1": (1, (0, 1, 5), -1),
        "kept codes[0, 1, 7] must be at least 0 and below 6, but got 6": (2, (0, 1, 7), 6),
        "kept codes[0, 0, 0] must be at least 0 and below 6, but got -3": (2, (0, 0, 0), -3),
        "position of state must be from 0 to 1152921504606846976, expected 0, but got -1": (4, (), -1),
        "position of state must be from 0 to 1152921504606846976, expected 1152921504606846976, but got "
        "9223372036854775807": (4, (), 2**63 - 1),
    }
    for target in TARGETS:
        decode = check.library.compile(decoder(case, False), target=target)
        for text, (part, at, value) in wrong.items():
            before = empty_state(case)
            before[part][at] = value
            for name, attempt in (
                ("vq", functools.partial(run, case, arrays, target, before=before, returns_state=True)),
                ("vq_decode", functools.partial(decode, *map(contiguous, rows(arrays, 5, 6) + before))),
            ):
                try:
                    attempt()
                    check.require(False, f"{text}: passes, {name}, {target}")
                except Failure as failure:
                    check.require(f"attn.{name}: {text}" in str(failure), f"{name}, {target}: {failure}")


def large_scores():
    case = case_of(codes=5, block=8)
    q, z, v, c = inputs(case, 40)
    q = q * 300
    out, _ = expected(case, q, z, v, c, None)
    for target in TARGETS:
        check.close(run(case, (q, z, v, c), target)[0], out, 2e-4, f"large scores, {target}")


def nan_values():
    """A NaN value is in the mean of its code: rows after it are NaN, none before."""
    case = case_of(block=4)
    q, z, v, c = inputs(case, 40)
    v[0, 0, 17, 3] = np.nan
    for reduction in REDUCTIONS:
        found = run(case | {"reduction": reduction}, (q, z, v, c))[0]
        check.require(np.isfinite(found[:, :, :16]).all(), f"NaN before its block, {reduction}")
        check.require(np.isnan(found[0, 0, 17:, 3]).all(), f"no NaN after, {reduction}")


for test in (block_size_invariance, reductions_agree, causality, thread_counts, windows_and_decoding,
             exact_counts, out_of_range, impossible_states, large_scores, nan_values):
    try:
        test()
    except Failure as failure:
        check.require(False, f"{test.__name__}: {failure}")
check.finish()
