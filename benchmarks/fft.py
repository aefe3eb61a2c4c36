#!/usr/bin/env python3
# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures Fourier transforms and attention by sums of convolutions (the suite
`fft`).

    benchmarks/fft.py [--rows 64 ... 1048576] [--lengths 1024 ... 262144] [--bases 1 ... 64]
    benchmarks/fft.py --rows --lengths 1024 4096 --keep    # a piece of the table at a time
    benchmarks/fft.py --rows --blocks 64 ... 8192 --fit    # the constants of the model of `auto`

Transforms: the spectra of 64 columns in f32, against numpy.fft, scipy.fft where it is
installed, and FFTW where fftw3.h is: peers/fftw-columns.c is compiled, a program of its
own that takes the columns as they lie, in pairs, and transposed, of which the fastest
counts. FLOPs are 5/2 L log2(L) for a
real column. Sums of convolutions: every algorithm that is not known to be slow, dense
causal attention of the same width, transforms of NumPy and SciPy as the paper has them,
and the gradient for scores and values. With --blocks, `partitioned` is also measured with
blocks of so many tokens, and --fit finds by least squares the constants of the model by
which the compiler chooses among them (lib/Conversion/AttnToVector/Conv/ConvPlan.cpp).
Peaks are those of the same run. Writes results.json and results.md; --keep
leaves the rows there that are not measured again.
"""

import argparse
import json
import math
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "python" / "fovea")]

try:
    import numpy as np
    from fovea_bench import backends, report
    from reference import conv_apply_fft
    from tree import Bench, tensor
except ImportError as error:
    sys.exit(f"error: {error}; the benchmarks need NumPy, which utils/build.sh puts into .venv")

try:
    import scipy.fft as scipy_fft
except ImportError:
    scipy_fft = None


def radices(length):
    """Those that attn.conv_apply chooses with 32 registers."""
    found = []
    while length > 8:
        found.append(4 if length == 16 else 8)
        length //= found[-1]
    return found + [length]


def lanes_for(width):
    """The lanes that leave the fewest columns of complex rows empty: half vectors get as much
    done as whole ones where a CPU has two units for them, quarters do not."""
    return min((16, 8) if width > 8 else (4,), key=lambda lanes: -(-width // (2 * lanes)) * lanes)


def forward(rows, width, lanes):
    x = tensor(1, rows, width)
    s = tensor(1, rows, -(-width // (2 * lanes)) * 2 * lanes)
    form = f"form = #attn.spectrum<lanes = {lanes}, radices = {radices(rows)}>"
    return (
        f"func.func @run(%x: {x}) -> {s} {{\n  %i = tensor.empty() : {s}\n"
        f"  %s = attn.fft_forward ins(%x : {x}) outs(%i : {s}) {{{form}}} -> {s}\n  return %s : {s}\n}}\n"
    )


def conv_apply(tokens, bases, width, algorithm, block=None):
    b, m = tensor(1, 1, bases, tokens), tensor(1, 1, bases, element="i32")
    v, c = tensor(1, 1, tokens, width), tensor(1, 1, element="i32")
    options = f", block = {block} : i64" if block else ""
    return (
        f"func.func @run(%b: {b}, %m: {m}, %v: {v}) -> ({v}, {c}) {{\n"
        f"  %i = tensor.empty() : {v}\n  %j = tensor.empty() : {c}\n"
        f"  %r:2 = attn.conv_apply ins(%b, %m, %v : {b}, {m}, {v}) outs(%i, %j : {v}, {c})\n"
        f"      {{algorithm = #attn.conv_algorithm<{algorithm}>{options}}} -> {v}, {c}\n  return %r#0, %r#1 : {v}, {c}\n}}\n"
    )


def conv_apply_backward(tokens, bases, width):
    b, m, v = tensor(1, 1, bases, tokens), tensor(1, 1, bases, element="i32"), tensor(1, 1, tokens, width)
    return (
        f"func.func @run(%b: {b}, %m: {m}, %v: {v}, %o: {v}, %d: {v}) -> ({b}, {v}) {{\n"
        f"  %i = tensor.empty() : {b}\n  %j = tensor.empty() : {v}\n"
        f"  %r:2 = attn.conv_apply_backward ins(%b, %m, %v : {b}, {m}, {v}) forward(%o : {v}) gradient(%d : {v})\n"
        f"      outs(%i, %j : {b}, {v}) -> {b}, {v}\n  return %r#0, %r#1 : {b}, {v}\n}}\n"
    )


def dense(tokens, width):
    q = tensor(1, 1, tokens, width)
    return (
        f"func.func @run(%q: {q}, %k: {q}, %v: {q}) -> {q} {{\n  %i = tensor.empty() : {q}\n"
        f"  %o = attn.dense ins(%q, %k, %v : {q}, {q}, {q}) outs(%i : {q}) {{mask = #attn.mask<causal>}} -> {q}\n"
        f"  return %o : {q}\n}}\n"
    )


def median_time(function, seconds):
    function()
    times, start = [], time.perf_counter()
    while len(times) < 3 or time.perf_counter() - start < seconds:
        before = time.perf_counter()
        function()
        times.append(time.perf_counter() - before)
    return float(np.median(times))


class FFTW:
    """Real transforms of columns by FFTW, in a program of its own."""

    def __init__(self, folder):
        self.program, self.missing = pathlib.Path(folder) / "fftw-columns", None
        source = HERE / "peers" / "fftw-columns.c"
        compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
        if not compiler:
            self.missing = "no C compiler was found"
            return
        command = [compiler, "-O3", "-march=native", str(source), "-o", str(self.program), "-lfftw3f", "-lm"]
        found = subprocess.run(command, capture_output=True, text=True)
        if found.returncode != 0:
            lines = [line for line in found.stderr.splitlines() if "fftw3" in line]
            self.missing = (lines or found.stderr.splitlines() or ["the compiler failed"])[0].split("error: ")[-1]

    def time(self, rows, width, seconds):
        """The fastest of the three ways."""
        command = [str(self.program), str(rows), str(width), str(seconds)]
        found = subprocess.run(command, capture_output=True, text=True)
        if found.returncode != 0:
            raise backends.KernelError(found.stderr.strip())
        return min(float(line.split()[1]) for line in found.stdout.splitlines())


def measure_transform(bench, rows, width, lanes, folder, fftw):
    x = np.random.default_rng(1).standard_normal((1, rows, width), dtype=np.float32)
    found = bench.time(forward(rows, width, lanes), [x], folder)
    seconds = {"fovea": found["median_seconds"]}
    limit = bench.options.seconds
    seconds["numpy"] = median_time(lambda: np.fft.rfft(x[0], axis=0), limit)
    if scipy_fft:
        seconds["scipy"] = median_time(lambda: scipy_fft.rfft(x[0], axis=0), limit)
    if not fftw.missing and width % 2 == 0:
        seconds["fftw"] = fftw.time(rows, width, limit)
    print(f"{rows} rows: {seconds}", file=sys.stderr, flush=True)
    flops = 2.5 * rows * math.log2(rows) * width
    return {"rows": rows, "width": width, "flops": flops, "seconds": seconds,
            "peak": found["peak_gflops"] * 1e9}


def measure_conv(bench, tokens, bases, width, folder):
    rng = np.random.default_rng(1)
    b = -np.abs(rng.standard_normal((1, 1, bases, tokens), dtype=np.float32))
    sizes = np.array([[[tokens - r * tokens // bases for r in range(bases)]]], np.int32)
    v = rng.standard_normal((1, 1, tokens, width), dtype=np.float32)
    row = {"tokens": tokens, "bases": bases, "width": width, "seconds": {}}
    algorithms = ["auto", "partitioned"] + ["single"] * (bases == 1)
    if tokens <= bench.options.dense_up_to:
        algorithms.append("toeplitz")
    for algorithm in algorithms:
        found = bench.time(conv_apply(tokens, bases, width, algorithm), [b, sizes, v], folder)
        row["seconds"][algorithm] = found["median_seconds"]
        row["peak"] = found["peak_gflops"] * 1e9
    row["blocks"] = {
        str(block): bench.time(conv_apply(tokens, bases, width, "partitioned", block), [b, sizes, v], folder)["median_seconds"]
        for block in bench.options.blocks if block <= tokens
    }
    # Times do not depend on the numbers, but for rows that are computed again.
    rows = [rng.standard_normal((1, 1, tokens, width), dtype=np.float32) for _ in range(2)]
    found = bench.time(conv_apply_backward(tokens, bases, width), [b, sizes, v, *rows], folder)
    row["seconds"]["gradient"] = found["median_seconds"]
    if tokens <= bench.options.dense_up_to:
        qkv = [rng.standard_normal((1, 1, tokens, width), dtype=np.float32) for _ in range(3)]
        row["seconds"]["dense"] = bench.time(dense(tokens, width), qkv, folder)["median_seconds"]
    if tokens * bases <= bench.options.numpy_up_to:
        row["seconds"]["numpy"] = median_time(lambda: conv_apply_fft(b, sizes, v), 0)
        if scipy_fft:
            row["seconds"]["scipy"] = median_time(lambda: conv_apply_fft(b, sizes, v, scipy_fft), 0)
    print(f"{tokens} tokens, {bases} bases: {row['seconds']}", file=sys.stderr, flush=True)
    return row


def markdown(bench, transforms, convolutions, missing):
    peak = np.median([row["peak"] for row in transforms + convolutions])
    lines = [f"Multiply-add peak {peak * 1e-9:.0f} GFLOP/s, one thread, {bench.facts['cpu']}.", ""]
    if transforms:
        peers = [name for name in ("numpy", "scipy", "fftw") if name in transforms[0]["seconds"]]
        lines += ["| rows | columns | time | GFLOP/s | of peak | " + "".join(f"{p} takes | " for p in peers),
                  "|---" * (5 + len(peers)) + "|"]
        for row in transforms:
            own = row["seconds"]["fovea"]
            cells = [row["rows"], row["width"], report.duration(own), f"{row['flops'] / own * 1e-9:.1f}",
                     f"{row['flops'] / own / row['peak']:.0%}"]
            cells += [f"{row['seconds'][p] / own:.1f}x" for p in peers]
            lines.append("| " + " | ".join(map(str, cells)) + " |")
        lines += ["", *missing, ""] if missing else [""]
    lines += [
        "| tokens | bases | columns | auto | over the best | its gradient | partitioned | single | toeplitz, of peak | dense causal "
        "| numpy | scipy |",
        "|---" * 12 + "|",
    ]

    def project(row, name):
        """From the longest measured sequence of as many columns."""
        known = [r for r in convolutions if name in r["seconds"] and r["width"] == row["width"]]
        longest = max(known, key=lambda r: r["tokens"], default=None)
        return longest and longest["seconds"][name] * (row["tokens"] / longest["tokens"]) ** 2

    for row in convolutions:
        s, own = row["seconds"], row["seconds"]["auto"]
        best = min(s[name] for name in ("partitioned", "single", "toeplitz") if name in s)
        best = min([best, *row["blocks"].values()])

        def ratio(name, s=s, own=own):
            return f"{report.duration(s[name])} ({s[name] / own:.3g}x)" if name in s else ""

        toeplitz, full = project(row, "toeplitz"), ratio("dense")
        toeplitz = f"({report.duration(toeplitz)})" if toeplitz else ""
        if "toeplitz" in s:
            flops = row["tokens"] ** 2 * row["width"]
            toeplitz = f"{report.duration(s['toeplitz'])}, {flops / s['toeplitz'] / row['peak']:.0%}"
        projected = project(row, "dense")
        if projected and not full:
            full = f"({report.duration(projected)}, {projected / own:.3g}x)"
        cells = [row["tokens"], row["bases"], row["width"], report.duration(own), f"{own / best:.2f}", ratio("gradient"),
                 report.duration(s["partitioned"]), report.duration(s["single"]) if "single" in s else "",
                 toeplitz, full, ratio("numpy"), ratio("scipy")]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    lines += ["", "A time that is all in parentheses is projected from the longest measured one."]
    return "\n".join(lines) + "\n"


def join(old, new, keys):
    """Rows of both, in order; a new one replaces an old one with the same keys."""
    rows = {tuple(row[key] for key in keys): row for row in old + new}
    return [rows[key] for key in sorted(rows)]


def fit(convolutions):
    """The constants of the model of `partitioned`: the rates of the transforms of every
    block, and of products."""
    rows = [(row, int(block), seconds) for row in convolutions for block, seconds in row["blocks"].items()]
    blocks = sorted({block for _, block, _ in rows})
    left, right = [], []
    for row, block, seconds in rows:
        tokens, bases, width = row["tokens"], row["bases"], row["width"]
        count = -(-tokens // block)
        pieces = bases * -(-tokens // (bases * block))
        transforms = 10 * math.log2(2 * block) * (0.5 + pieces / count / 2 + bases / width * (0.5 + 1 / count))
        terms = [transforms * (block == other) for other in blocks] + [4 * pieces]
        time = seconds * 1e9 / (tokens * width)
        # All times are equally far off.
        left.append([term / time for term in terms])
        right.append(1)
    found, *_ = np.linalg.lstsq(np.array(left), np.array(right), rcond=None)
    error = np.abs(np.array(left) @ found - 1)
    lines = [f"block {block}: {1 / ns:.0f} GFLOP/s" for block, ns in zip(blocks, found)]
    lines += [f"products: {1 / found[-1]:.0f} GFLOP/s",
              f"off by {error.mean():.0%} on average, {error.max():.0%} at most"]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="*", default=[64, 512, 1024, 4096, 16384, 65536, 1 << 18, 1 << 20])
    parser.add_argument("--lengths", type=int, nargs="*", default=[1024, 4096, 16384, 65536, 262144])
    parser.add_argument("--bases", type=int, nargs="+", default=[1, 4, 8, 16, 32, 64])
    parser.add_argument("--blocks", type=int, nargs="+", default=[], help="tokens of blocks to measure beside")
    parser.add_argument("--fit", action="store_true", help="print the constants of the model that they give")
    parser.add_argument("--keep", action="store_true", help="keep the other rows of results.json")
    parser.add_argument("--width", type=int, default=64, help="columns")
    parser.add_argument("--lanes", type=int,
                        help="numbers of a vector of the transforms (default: 16, or fewer that leave fewer columns empty)")
    parser.add_argument("--dense-up-to", type=int, default=8192, help="longest sequence to time pair by pair")
    parser.add_argument("--numpy-up-to", type=int, default=1 << 18, help="most tokens times bases for NumPy")
    parser.add_argument("--seconds", type=float, default=0.2, help="time for each figure")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--build", default=HERE.parent / "build", help="build folder")
    parser.add_argument("--out", help="folder for results (default: BUILD/benchmarks/fft)")
    options = parser.parse_args()
    options.lanes = options.lanes or lanes_for(options.width)
    for rows in options.rows:
        if rows < 2 or rows & (rows - 1):
            parser.error(f"--rows: found {rows}, needed powers of two")
    try:
        bench = Bench(options)
        with tempfile.TemporaryDirectory(prefix="fovea-fft-") as folder:
            fftw = FFTW(folder)
            transforms = [
                measure_transform(bench, rows, options.width, options.lanes, folder, fftw) for rows in options.rows
            ]
            convolutions = [
                measure_conv(bench, tokens, bases, options.width, folder)
                for tokens in options.lengths for bases in options.bases
            ]
    except (backends.KernelError, FileNotFoundError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    out = pathlib.Path(options.out or pathlib.Path(options.build) / "benchmarks" / "fft")
    out.mkdir(parents=True, exist_ok=True)
    if options.keep and (out / "results.json").exists():
        kept = json.loads((out / "results.json").read_text())
        transforms = join(kept["transforms"], transforms, ("rows", "width"))
        convolutions = join(kept["convolutions"], convolutions, ("tokens", "bases", "width"))
    (out / "results.json").write_text(
        json.dumps({"machine": bench.facts, "peaks": bench.peaks, "transforms": transforms,
                    "convolutions": convolutions}, indent=1) + "\n"
    )
    missing = [] if scipy_fft else ["SciPy is not measured: it is not installed."]
    if fftw.missing:
        missing.append(f"FFTW is not measured: {fftw.missing}.")
    text = markdown(bench, transforms, convolutions, missing)
    (out / "results.md").write_text(text)
    print(text, end="")
    if options.fit:
        print(fit(convolutions), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
