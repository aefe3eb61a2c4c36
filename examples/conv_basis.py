# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How many convolutions is a head? (arXiv:2405.05219)

    PYTHONPATH=build/python python examples/conv_basis.py [--plot bases.svg] [--tokens 65536]

Causal attention of the heads in `data` after rotary embedding is replaced by that
of the convolutions found in its scores, with ever smaller tolerances, until the
output is within 1e-2 and 1e-3 of dense attention. Then a long sequence whose
queries and keys do not change but for their positions: one convolution is all.
"""

import argparse
import pathlib
import signal
import time

import numpy as np

import fovea

DATA = pathlib.Path(__file__).resolve().parent / "data"
TOLERANCES = (1e-2, 1e-3)
WINDOW = 4


def relative_errors(found, expected):
    """Of every head, in Frobenius norms."""

    def norm(x):
        return np.sqrt(np.square(x).sum(axis=(0, 2, 3)))

    return norm(found - expected) / norm(expected)


def bases_needed(q, k, v, steps):
    """For every head and tolerance, the fewest bases found that keep it."""
    heads, tokens = q.shape[1:3]
    expected = fovea.dense(q, k, v, causal=True)
    needed = np.full((len(TOLERANCES), heads), tokens)
    # A search accepts a column whose first scores differ by delta in sum.
    for delta in WINDOW * np.geomspace(10.0, 1e-4, steps):
        found, bases, _ = fovea.conv(
            q, k, v, num_basis=tokens, window=WINDOW, delta=delta, epsilon=0.0, return_counts=True
        )
        errors = relative_errors(found, expected)
        for row, tolerance in zip(needed, TOLERANCES):
            np.minimum(row, np.where(errors <= tolerance, bases[0], tokens), out=row)
    return needed


def plot(needed, tokens, path):
    """Bars for every head, by hand so that it needs nothing."""
    heads = needed.shape[1]
    width, height, left, bottom = 60 + 44 * heads, 300, 50, 250
    colours = ("#1f77b4", "#ff7f0e")

    def text(x, y, content, anchor="middle"):
        return f'<text x="{x}" y="{y}" text-anchor="{anchor}">{content}</text>'

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        text(left, 20, f"convolutions that a head of {tokens} tokens needs", "start"),
        text(width / 2, height - 12, "head"),
    ]
    for share in (0.0, 0.5, 1.0):
        y = bottom - 200 * share
        out.append(f'<path d="M{left} {y}H{width}" stroke="#ddd"/>')
        out.append(text(left - 6, y + 4, f"{share * tokens:.0f}", "end"))
    for index, (bars, colour, tolerance) in enumerate(zip(needed, colours, TOLERANCES)):
        for head, count in enumerate(bars):
            x, size = left + 8 + 44 * head + 16 * index, 200 * count / tokens
            out.append(f'<rect x="{x}" y="{bottom - size:.1f}" width="15" height="{size:.1f}" fill="{colour}"/>')
        out.append(f'<rect x="{left + 130 * index}" y="30" width="10" height="10" fill="{colour}"/>')
        out.append(text(left + 14 + 130 * index, 39, f"error of {tolerance:g}", "start"))
    out += [text(left + 24 + 44 * head, bottom + 16, head) for head in range(heads)]
    path.write_text("\n".join(out) + "\n</svg>\n")


def long_sequence(tokens, width=64):
    """Constant queries and keys under rotary embedding."""
    rng = np.random.default_rng(0)
    at = np.arange(tokens)
    q, k = (
        fovea.rope(np.repeat(rng.standard_normal((1, 1, 1, width), np.float32), tokens, 2), at)
        for _ in range(2)
    )
    v = rng.standard_normal((1, 1, tokens, width), np.float32)
    options = dict(num_basis=8, window=16, delta=0.1, epsilon=0.0, return_counts=True)
    fovea.conv(q, k, v, **options)
    start = time.perf_counter()
    found, bases, recomputed = fovea.conv(q, k, v, **options)
    seconds = time.perf_counter() - start
    # A few rows entry by entry.
    rows = np.unique(np.linspace(0, tokens - 1, 16).astype(int))
    worst = 0.0
    for i in rows:
        scores = k[0, 0, : i + 1].astype(float) @ q[0, 0, i].astype(float) / np.sqrt(width)
        weights = np.exp(scores - scores.max())
        expected = weights @ v[0, 0, : i + 1].astype(float) / weights.sum()
        worst = max(worst, np.abs(found[0, 0, i] - expected).max() / np.abs(expected).max())
    print(
        f"{tokens} tokens of one query and key: {bases.item()} basis found of {options['num_basis']} asked for, "
        f"{recomputed.item()} rows recomputed, {1e3 * seconds:.1f} ms, error of {len(rows)} rows {worst:.1e}"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--plot", type=pathlib.Path, help="write an SVG file")
    parser.add_argument("--tokens", type=int, default=65536, help="of the long sequence")
    parser.add_argument("--rows", type=int, default=512, help="of the real heads that are used, from the first")
    parser.add_argument("--steps", type=int, default=24, help="tolerances that are tried")
    arguments = parser.parse_args()
    for name in ("tokens", "rows", "steps"):
        if getattr(arguments, name) < 1:
            parser.error(f"--{name}: found {getattr(arguments, name)}, needed at least 1")
    q, k, v = (np.load(DATA / f"{name}.npy")[:, :, : arguments.rows] for name in "qkv")
    at = np.arange(q.shape[2])
    needed = bases_needed(fovea.rope(q, at), fovea.rope(k, at), v, arguments.steps)
    print(f"bases of {q.shape[2]} columns for an error of:")
    print(f"| head | {TOLERANCES[0]:g} | {TOLERANCES[1]:g} |\n|---|---|---|")
    for head, counts in enumerate(needed.T):
        print(f"| {head} | {counts[0]} | {counts[1]} |")
    if arguments.plot:
        plot(needed, q.shape[2], arguments.plot)
    long_sequence(arguments.tokens)


if __name__ == "__main__":
    # Who reads the output may close it.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    main()
