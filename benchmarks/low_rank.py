#!/usr/bin/env python3
# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Low-rank attention under masks, the search for convolutions, rotary embedding
and polynomial features: time, share of peak, and share of the copy bandwidth.

    .venv/bin/python benchmarks/low_rank.py --part causal|masks|backward|recover|maps [--threads 2]

One core and f32 unless said otherwise, wall time of more threads; `fovea-run`
measures. Useful FLOPs of low-rank attention are 2 r E for every row and every key,
of its gradient twice that for every row and three times for every key; bytes are
those of arguments and results, once.
"""

import argparse
import json
import subprocess

import numpy as np
from vq import ROOT, run, tensor

ROWS = 65536


def copy_bandwidth():
    """Bytes per second, of one core beyond the caches."""
    command = [str(ROOT / "build/bin/fovea-machine")]
    report = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return 1e9 * report["copy_gbytes"]["one"]["median"]


def low_rank(rank=64, width=64, rows=ROWS, heads=1, element="f32", mask="causal", backward=False):
    """The function and its arguments; with `backward` its gradient."""
    rng = np.random.default_rng(1)
    arrays = [rng.random((1, heads, rows, n), dtype=np.float32) for n in (rank, rank, width)]
    parts, entries = [], {np.dtype(np.int32): "i32", np.dtype(bool): "i1"}
    window = min(4096, rows)
    if mask == "row_interval":
        at = np.arange(rows, dtype=np.int32).reshape(1, 1, -1)
        parts = [np.maximum(at - window, 0), at]
    elif mask == "row_change":
        # A window: one column enters, one leaves.
        first, later = np.arange(window), np.arange(window, rows)
        columns = np.concatenate([first, np.stack([later, later - window], 1).ravel()])
        parts = [np.concatenate([first + 1, window + 2 * (later - window + 1)]), columns]
    elif mask in ("distinct_rows", "distinct_columns"):
        group = (np.arange(rows) // -(-rows // 8)).reshape(1, 1, -1)
        parts = [group, rng.random((1, 1, 8, rows)) < 0.5]
    parts = [p if p.dtype == bool else p.astype(np.int32).reshape(1, 1, -1) for p in parts]
    types = [tensor(a.shape, element) for a in arrays]
    kinds = [tensor(p.shape, entries[p.dtype]) for p in parts]
    names = [f"%m{i}" for i in range(len(parts))]
    arguments = [f"%a{i}: {t}" for i, t in enumerate(types)] + [f"{n}: {k}" for n, k in zip(names, kinds)]
    clause = f" mask({', '.join(names)} : {', '.join(kinds)})" if parts else ""
    text = (
        f"func.func @run({', '.join(arguments)}) -> {types[2]} {{\n  %o = tensor.empty() : {types[2]}\n"
        f"  %r = attn.low_rank ins(%a0, %a1, %a2 : {', '.join(types)}){clause} outs(%o : {types[2]})"
        f" {{mask = #attn.row_mask<{mask}>}} -> {types[2]}\n  return %r : {types[2]}\n}}\n"
    )
    size = {"f32": 4, "f64": 8}[element]
    arrays = [a.astype({"f32": np.float32, "f64": np.float64}[element]) for a in arrays]
    if not backward:
        return text, arrays + parts, size * heads * rows * (2 * rank + 2 * width)
    results = ", ".join(types)
    text = (
        f"func.func @run({', '.join(arguments)}, %f: {types[2]}, %g: {types[2]}) -> ({results}) {{\n"
        + "".join(f"  %i{i} = tensor.empty() : {t}\n" for i, t in enumerate(types))
        + f"  %r:3 = attn.low_rank_backward ins(%a0, %a1, %a2 : {results}){clause} forward(%f : {types[2]})"
        f" gradient(%g : {types[2]}) outs(%i0, %i1, %i2 : {results})"
        f" {{mask = #attn.row_mask<{mask}>}} -> {results}\n  return %r#0, %r#1, %r#2 : {results}\n}}\n"
    )
    more = [rng.standard_normal(arrays[2].shape).astype(arrays[2].dtype) for _ in range(2)]
    return text, arrays + parts + more, size * heads * rows * (4 * rank + 4 * width)


def recover(bases, rows=ROWS, width=64, window=16, apply=False):
    """Scores with as many convolutions as are looked for; with `apply`, the whole of
    attn.conv."""
    rng = np.random.default_rng(2)
    at = np.arange(rows)[:, None] * 10000.0 ** (-np.arange(0, width, 2) / width)

    def turned(vectors):
        x, y = vectors[:, 0::2], vectors[:, 1::2]
        out = np.empty((rows, width), np.float32)
        out[:, 0::2] = x * np.cos(at) - y * np.sin(at)
        out[:, 1::2] = x * np.sin(at) + y * np.cos(at)
        return out.reshape(1, 1, rows, width)

    keys = rng.standard_normal((bases, width))[np.arange(rows) * bases // rows]
    arrays = [turned(np.repeat(rng.standard_normal((1, width)), rows, 0)), turned(keys)]
    q, b, m, n = (tensor(s, e) for s, e in (
        ((1, 1, rows, width), "f32"), ((1, 1, bases, rows), "f32"), ((1, 1, bases), "i32"), ((1, 1), "i32")))  # fmt: skip
    text = (
        f"func.func @run(%q: {q}, %k: {q}) -> ({b}, {m}, {n}) {{\n"
        f"  %b = tensor.empty() : {b}\n  %m = tensor.empty() : {m}\n  %n = tensor.empty() : {n}\n"
        f"  %r:3 = attn.conv_recover ins(%q, %k : {q}, {q}) outs(%b, %m, %n : {b}, {m}, {n})"
        f" {{window = {window} : i64, delta = 1.0 : f64, epsilon = 0.0 : f64}} -> {b}, {m}, {n}\n"
        f"  return %r#0, %r#1, %r#2 : {b}, {m}, {n}\n}}\n"
    )
    if not apply:
        return text, arrays, 4 * rows * (width + bases)
    text = (
        f"func.func @run(%q: {q}, %k: {q}, %v: {q}) -> {q} {{\n"
        f"  %o = tensor.empty() : {q}\n  %n = tensor.empty() : {n}\n  %c = tensor.empty() : {n}\n"
        f"  %r:3 = attn.conv ins(%q, %k, %v : {q}, {q}, {q}) outs(%o, %n, %c : {q}, {n}, {n})"
        f" {{num_basis = {bases} : i64, window = {window} : i64, delta = 1.0 : f64, epsilon = 0.0 : f64}}"
        f" -> {q}, {n}, {n}\n  return %r#0 : {q}\n}}\n"
    )
    arrays.append(rng.standard_normal((1, 1, rows, width), dtype=np.float32))
    return text, arrays, 4 * rows * 4 * width


def rope(heads=8, rows=ROWS // 8, width=64):
    x, p = tensor((1, heads, rows, width)), tensor((1, 1, rows), "i32")
    text = (
        f"func.func @run(%x: {x}, %p: {p}) -> {x} {{\n  %o = tensor.empty() : {x}\n"
        f"  %r = attn.rope ins(%x, %p : {x}, {p}) outs(%o : {x}) -> {x}\n  return %r : {x}\n}}\n"
    )
    array = np.random.default_rng(3).standard_normal((1, heads, rows, width), dtype=np.float32)
    return text, [array, np.arange(rows, dtype=np.int32).reshape(1, 1, -1)], 8 * array.size


def features(degree=2, rows=4096, width=32, backward=False):
    count = {1: width + 1, 2: (width + 1) * (width + 2) // 2}[degree]
    x, f = tensor((1, 1, rows, width)), tensor((1, 1, rows, count))
    text = (
        f"func.func @run(%x: {x}) -> {f} {{\n  %o = tensor.empty() : {f}\n"
        f"  %r = attn.polynomial_features ins(%x : {x}) outs(%o : {f})"
        f" {{degree = {degree} : i64, scale = 1.0 : f64}} -> {f}\n  return %r : {f}\n}}\n"
    )
    rng = np.random.default_rng(3)
    array = rng.standard_normal((1, 1, rows, width), dtype=np.float32)
    if not backward:
        return text, [array], 4 * rows * (width + count)
    text = (
        f"func.func @run(%x: {x}, %g: {f}) -> {x} {{\n  %o = tensor.empty() : {x}\n"
        f"  %r = attn.polynomial_features_backward ins(%x : {x}) gradient(%g : {f}) outs(%o : {x})"
        f" {{degree = {degree} : i64, scale = 1.0 : f64}} -> {x}\n  return %r : {x}\n}}\n"
    )
    gradient = rng.standard_normal((1, 1, rows, count), dtype=np.float32)
    return text, [array, gradient], 4 * rows * (2 * width + count)


def row(name, workload, bandwidth, seconds, threads):
    text, arrays, size = workload
    report = run(text, arrays, seconds, threads)
    share = report.get("fraction_of_peak")
    cells = [name, f"{1e3 * report['median_seconds']:.2f} ms", f"{100 * share:.1f} %" if share else "",
             f"{100 * size / report['median_seconds'] / bandwidth:.1f} %"]  # fmt: skip
    print("| " + " | ".join(cells) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--part", choices=("causal", "masks", "backward", "recover", "maps"), required=True)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.3, help="for each row")
    arguments = parser.parse_args()
    n = arguments.rows
    works = {
        "causal": [
            *((f"r = {r}, E = {e}", low_rank(r, e, n)) for r, e in
              ((64, 64), (16, 64), (256, 64), (64, 16), (64, 48), (64, 256), (63, 65))),
            (f"r = 64, E = 64, N = {n - 15}", low_rank(rows=n - 15)),
            ("r = 64, E = 64, f64", low_rank(rows=n, element="f64")),
        ],
        "masks": [(mask, low_rank(rows=n // 8, mask=mask)) for mask in
                  ("row_change", "row_interval", "distinct_rows", "distinct_columns")],
        "backward": [
            *((f"causal, r = {r}, E = {e}", low_rank(r, e, n, backward=True)) for r, e in ((64, 64), (16, 64), (64, 16))),
            *((mask, low_rank(rows=n // 8, mask=mask, backward=True)) for mask in
              ("row_change", "row_interval", "distinct_rows", "distinct_columns")),
            ("features of degree 2, 32 columns", features(rows=max(n // 16, 1), backward=True)),
        ],
        "recover": [
            *((f"{name}, R = {r}", recover(r, n, apply=name == "conv")) for r in (1, 8, 32) for name in ("conv_recover", "conv")),
            *((f"conv_recover, R = 8, D = {d}, N = {n - less}", recover(8, n - less, d)) for d, less in ((16, 0), (64, 15))),
        ],
        "maps": [
            *((f"rope, 8 heads, D = {d}", rope(rows=max(n // 8, 1), width=d)) for d in (64, 16, 66)),
            *((f"features of degree 2, {d} columns", features(rows=max(n // 16, 1), width=d)) for d in (32, 16, 33)),
        ],
    }[arguments.part]  # fmt: skip
    bandwidth = copy_bandwidth()
    print(f"| {arguments.part} | time | of peak | of copy bandwidth |\n|---|---|---|---|")
    for name, workload in works:
        row(name, workload, bandwidth, arguments.seconds, arguments.threads)


if __name__ == "__main__":
    main()
