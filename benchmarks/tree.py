#!/usr/bin/env python3
# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures compressed attention (the suite `tree`): what a layer does with the tree.

    benchmarks/tree.py [--lengths 4096 ... 131072] [--dense-up-to 8192]
    benchmarks/tree.py --part backward

For every length: building and materializing the tree; selecting nodes, fetching
their rows, attention over VIP tokens and rows, and updating the tree; dense
attention over all tokens; and what rebuilding the sequence at every layer would
cost. One head block of the paper: 48 VIP tokens, segments of 16 tokens of which 90
are read token by token, 12 heads of width 64. Bytes are those read once plus those
written once, over the copy bandwidth of the same run; FLOPs are 4 n m D per head,
over the multiply-add peak of the same run. Writes results.json and results.md.
Gradients read and write what they are given and what they return once, at least.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

try:
    import numpy as np
    from fovea_bench import backends, machine, report
except ImportError as error:
    sys.exit(f"error: {error}; the benchmarks need NumPy, which utils/build.sh puts into .venv")

TARGETS = {"tree_build": 0.8, "tree_materialize": 0.8, "move": 3.0, "attend": 0.75, "overhead": 0.15}


def tensor(*shape, element="f32"):
    return f"tensor<{'x'.join(map(str, shape))}x{element}>"


def buffer(*shape, element="f32"):
    return f"memref<{'x'.join(map(str, shape))}x{element}>"


class Layer:
    """IR and work of the parts of a layer over `tokens` compressed tokens."""

    def __init__(self, tokens, options):
        self.N, self.np, self.k, self.h = tokens, options.vip, options.ratio, options.split
        self.H, self.D = options.heads, options.width
        self.F, self.roots = self.H * self.D, tokens // self.k
        self.nodes = tokens + self.roots
        self.r = self.roots + self.h * (self.k - 1)
        self.shape = f"shape = #attn.tree<ratio = {self.k}, levels = 1>"

    def list(self):
        """Level and index of a selection, split segments evenly spread."""
        split = set(np.linspace(0, self.roots - 1, self.h).astype(int).tolist())
        assert len(split) == self.h
        level, index = [], []
        for x in range(self.roots):
            if x in split:
                level += [0] * self.k
                index += range(x * self.k, (x + 1) * self.k)
            else:
                level.append(1)
                index.append(x)
        return np.array([level], np.int32), np.array([index], np.int32)

    def build(self):
        c, t = tensor(1, self.N, self.F), tensor(1, self.nodes, self.F)
        return (
            f"func.func @run(%c: {c}) -> {t} {{\n  %i = tensor.empty() : {t}\n"
            f"  %t = attn.tree_build ins(%c : {c}) outs(%i : {t}) {{{self.shape}}} -> {t}\n  return %t : {t}\n}}\n"
        )

    def materialize(self):
        c, t = tensor(1, self.N, self.F), tensor(1, self.nodes, self.F)
        return (
            f"func.func @run(%t: {t}) -> {c} {{\n  %i = tensor.empty() : {c}\n"
            f"  %c = attn.tree_materialize ins(%t : {t}) outs(%i : {c}) {{{self.shape}}} -> {c}\n  return %c : {c}\n}}\n"
        )

    def fetch(self):
        t, r = tensor(1, self.nodes, self.F), tensor(1, self.r, self.F)
        l = tensor(1, self.r, element="i32")
        return (
            f"func.func @run(%t: {t}, %l: {l}, %i: {l}) -> {r} {{\n  %e = tensor.empty() : {r}\n"
            f"  %r = attn.tree_fetch ins(%t : {t}) nodes(%l, %i : {l}, {l}) outs(%e : {r}) {{{self.shape}}} -> {r}\n"
            f"  return %r : {r}\n}}\n"
        )

    def update(self):
        t, r = tensor(1, self.nodes, self.F), tensor(1, self.r, self.F)
        l = tensor(1, self.r, element="i32")
        return (
            f"func.func @run(%t: {t}, %new: {r}, %l: {l}, %i: {l}) -> {t} {{\n"
            f"  %n = attn.tree_update ins(%new : {r}) nodes(%l, %i : {l}, {l}) outs(%t : {t}) {{{self.shape}}} -> {t}\n"
            f"  return %n : {t}\n}}\n"
        )

    def move(self):
        """Fetch and update in place, as layers do; on buffers, which a kernel may
        write to."""
        t, r = buffer(1, self.nodes, self.F), buffer(1, self.r, self.F)
        l = buffer(1, self.r, element="i32")
        return (
            f"func.func @run(%t: {t}, %l: {l}, %i: {l}, %r: {r}, %new: {r}) {{\n"
            f"  attn.tree_fetch ins(%t : {t}) nodes(%l, %i : {l}, {l}) outs(%r : {r}) {{{self.shape}}}\n"
            f"  attn.tree_update ins(%new : {r}) nodes(%l, %i : {l}, {l}) outs(%t : {t}) {{{self.shape}}}\n"
            f"  return\n}}\n"
        )

    def select(self):
        """Probabilities of the heads; keys of the segments are given, since their
        projection is part of any layer."""
        t = tensor(1, self.nodes, self.F)
        q, k = tensor(1, self.H, self.np, self.D), tensor(1, self.H, self.roots, self.D)
        s, l = tensor(1, self.roots), tensor(1, self.r, element="i32")
        return (
            f"func.func @run(%t: {t}, %q: {q}, %k: {k}) -> ({l}, {l}) {{\n"
            f"  %a = tensor.empty() : {l}\n  %b = tensor.empty() : {l}\n"
            f"  %l, %i = attn.tree_select ins(%t : {t}) outs(%a, %b : {l}, {l})\n"
            f"      {{{self.shape}, budgets = array<i64: {self.h}>}} -> {l}, {l} score {{\n"
            f"  ^bb0(%rows: {tensor(1, self.roots, self.F)}):\n    %e = tensor.empty() : {s}\n"
            f"    %s = attn.tree_score ins(%q, %k : {q}, {k}) outs(%e : {s}) -> {s}\n"
            f"    attn.yield %s : {s}\n  }}\n  return %l, %i : {l}, {l}\n}}\n"
        )

    def attend(self, rows, weighted=True):
        n = self.np + rows
        q, w = tensor(1, self.H, n, self.D), tensor(1, 1, n)
        argument, clause = (f", %w: {w}", f" log_weight(%w : {w})") if weighted else ("", "")
        return (
            f"func.func @run(%q: {q}, %k: {q}, %v: {q}{argument}) -> {q} {{\n  %i = tensor.empty() : {q}\n"
            f"  %o = attn.dense ins(%q, %k, %v : {q}, {q}, {q}){clause} outs(%i : {q}) -> {q}\n  return %o : {q}\n}}\n"
        )

    def flops(self, rows):
        return 4.0 * (self.np + rows) ** 2 * self.F

    def seq_bytes(self):
        return 4.0 * (self.N + self.nodes) * self.F

    def row_bytes(self):
        """A fetch and an update read and write every row that they touch, the
        listed ones and their parents, once each."""
        return 4.0 * (self.r + self.h) * self.F * 4

    def gradient_bytes(self):
        """What a gradient is given and returns, by operation. That of new rows is
        of the rows and of the tree before."""
        rows, tree = 4.0 * self.r * self.F, 4.0 * self.nodes * self.F
        return {"build": self.seq_bytes(), "materialize": self.seq_bytes(), "fetch": rows + tree, "update": rows + 2 * tree}


class Bench:
    def __init__(self, options, threads=1):
        cpus = machine.available_cpus()
        self.threads = threads
        machine.choose(cpus, threads)
        self.options, self.tools = options, backends.Tools(options.build, cpus, options.clock)
        self.facts = machine.describe(HERE.parent, options.build, cpus)
        self.peaks = self.tools.measure_machine(threads, options.seconds)
        copies = self.peaks["copy_gbytes"]
        self.copy = copies["one" if threads == 1 else "all"]["median"] * 1e9

    def time(self, text, inputs, folder):
        prepared = self.tools.prepare(inputs, pathlib.Path(folder) / "work")
        try:
            prepared.set_ir(text)
            found, _ = prepared.run(self.threads, seconds=self.options.seconds, wants_result=False)
        finally:
            prepared.remove()
        return found["bench"]

    def measure(self, tokens, folder):
        layer, rng = Layer(tokens, self.options), np.random.default_rng(1)

        def normal(*shape):
            return rng.standard_normal(shape, dtype=np.float32)

        row = {"tokens": tokens, "rows": layer.r}
        level, index = layer.list()
        tree = normal(1, layer.nodes, layer.F)
        times = {}

        def time(name, text, inputs):
            bench = self.time(text, inputs, folder)
            times[name] = bench["median_seconds"]
            print(f"{tokens} tokens, {name}: {times[name] * 1e3:.3g} ms", file=sys.stderr, flush=True)
            return bench

        time("tree_materialize", layer.materialize(), [tree])
        time("move", layer.move(), [tree, level, index, normal(1, layer.r, layer.F), normal(1, layer.r, layer.F)])
        select = [normal(1, layer.H, n, layer.D) for n in (layer.np, layer.roots)]
        time("select", layer.select(), [tree, *select])
        del tree
        build = time("tree_build", layer.build(), [normal(1, tokens, layer.F)])
        row["extra_bytes"] = (
            build["peak_allocated_bytes"] + build["peak_scratch_bytes"] - 4 * layer.nodes * layer.F
        )
        n = layer.np + layer.r
        qkv = [normal(1, layer.H, n, layer.D) for _ in range(3)]
        weight = np.zeros((1, 1, n), np.float32)
        bench = time("attend", layer.attend(layer.r), [*qkv, weight])
        peak = bench["peak_gflops"] * 1e9
        if tokens <= self.options.dense_up_to:
            n = layer.np + tokens
            qkv = [normal(1, layer.H, n, layer.D) for _ in range(3)]
            time("dense", layer.attend(tokens, False), qkv)
        row["seconds"] = times
        row["reached"] = {
            "tree_build": layer.seq_bytes() / self.copy / times["tree_build"],
            "tree_materialize": layer.seq_bytes() / self.copy / times["tree_materialize"],
            # How many times as long as copying.
            "move": times["move"] * self.copy / layer.row_bytes(),
            "attend": layer.flops(layer.r) / peak / times["attend"],
            "overhead": (times["select"] + times["move"]) / times["attend"],
        }
        row["dense_flops"], row["peak"] = layer.flops(tokens), peak
        return row

    def differentiate(self, text):
        """The gradient alone."""
        command = [self.tools.folder / "fovea-opt", "-", "--attn-differentiate=name=gradient",
                   "--symbol-privatize=exclude=gradient", "--symbol-dce"]  # fmt: skip
        process = subprocess.run(command, input=text, capture_output=True, text=True)
        if process.returncode != 0:
            raise backends.KernelError(process.stderr.strip())
        return process.stdout

    def measure_gradients(self, tokens, folder):
        layer, rng = Layer(tokens, self.options), np.random.default_rng(1)
        level, index = layer.list()
        sequence, tree, rows = (
            rng.standard_normal((1, n, layer.F), dtype=np.float32) for n in (tokens, layer.nodes, layer.r)
        )
        inputs = {"build": [sequence, tree], "materialize": [tree, sequence], "fetch": [tree, level, index, rows],
                  "update": [tree, rows, level, index, tree]}  # fmt: skip
        row = {"tokens": tokens, "seconds": {}, "reached": {}, "extra_bytes": {}}
        for name, bytes in layer.gradient_bytes().items():
            bench = self.time(self.differentiate(getattr(layer, name)()), inputs[name], folder)
            seconds = bench["median_seconds"]
            print(f"{tokens} tokens, gradient of {name}: {seconds * 1e3:.3g} ms", file=sys.stderr, flush=True)
            row["seconds"][name], row["reached"][name] = seconds, bytes / self.copy / seconds
            row["extra_bytes"][name] = bench["peak_allocated_bytes"] + bench["peak_scratch_bytes"]
        return row


def threads(bench):
    count = bench.threads
    return "one thread" if count == 1 else f"{count} threads"


def gradients_markdown(rows, bench):
    names = ["build", "materialize", "fetch", "update"]
    lines = [
        f"Copy bandwidth {bench.copy * 1e-9:.1f} GB/s, {threads(bench)}, {bench.facts['cpu']}.", "",
        "| tokens | " + " | ".join(f"gradient of {name}" for name in names) + " |", "|---" * 5 + "|",
    ]  # fmt: skip
    for row in rows:
        cells = [f"{report.duration(row['seconds'][n])}, {row['reached'][n]:.0%} of copy" for n in names]
        lines.append(f"| {row['tokens']} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def markdown(rows, bench):
    """Three tables; a projected time is in parentheses."""
    rate = max((r["dense_flops"] / r["seconds"]["dense"] / r["peak"] for r in rows if "dense" in r["seconds"]), default=0)

    def ms(seconds):
        return report.duration(seconds)

    lines = [
        f"Copy bandwidth {bench.copy * 1e-9:.1f} GB/s, {threads(bench)}, {bench.facts['cpu']}.", "",
        "| tokens | rows | select | fetch + update | attend | layer | dense | speed-up | rebuild | rebuild over select, fetch, update |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for r in rows:
        s = r["seconds"]
        layer = s["select"] + s["move"] + s["attend"]
        projected = "dense" not in s
        dense = r["dense_flops"] / (rate * r["peak"]) if projected and rate else s.get("dense")
        rebuild = s["tree_build"] + s["tree_materialize"]
        cells = [
            r["tokens"], r["rows"], ms(s["select"]), ms(s["move"]), ms(s["attend"]), ms(layer),
            "" if dense is None else f"({ms(dense)})" if projected else ms(dense),
            "" if dense is None else f"{dense / layer:.3g}x", ms(rebuild),
            f"{rebuild / (s['select'] + s['move']):.2f}x",
        ]  # fmt: skip
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    lines += [
        "", "A time in parentheses is projected from the rate of the longest measured one.", "",
        "| tokens | build, of copy (80 %) | materialize, of copy (80 %) | fetch + update, times copy (3) | attend, of peak (75 %) "
        "| select, fetch, update over attend (15 %) | extra memory of build |",
        "|---|---|---|---|---|---|---|",
    ]
    for r in rows:
        a = r["reached"]
        lines.append(
            f"| {r['tokens']} | {a['tree_build']:.0%} | {a['tree_materialize']:.0%} | {a['move']:.2f} | "
            f"{a['attend']:.0%} | {a['overhead']:.1%} | {r['extra_bytes'] / 1e6:.2f} MB |"
        )
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", choices=("forward", "backward"), default="forward")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--lengths", type=int, nargs="+", default=[4096, 8192, 16384, 32768, 65536, 131072])
    parser.add_argument("--dense-up-to", type=int, default=8192, help="longest sequence to time densely")
    parser.add_argument("--vip", type=int, default=48)
    parser.add_argument("--ratio", type=int, default=16)
    parser.add_argument("--split", type=int, default=90)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=0.2, help="time for each figure")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--build", default=HERE.parent / "build", help="build folder")
    parser.add_argument("--out", help="folder for results (default: BUILD/benchmarks/tree)")
    options = parser.parse_args()
    for tokens in options.lengths:
        if tokens % options.ratio or tokens // options.ratio < options.split:
            parser.error(f"--lengths: found {tokens}, needed a multiple of {options.ratio} with {options.split} segments")
    try:
        bench = Bench(options, options.threads)
        with tempfile.TemporaryDirectory(prefix="fovea-tree-") as folder:
            measure = bench.measure if options.part == "forward" else bench.measure_gradients
            rows = [measure(tokens, folder) for tokens in options.lengths]
    except (backends.KernelError, FileNotFoundError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    out = pathlib.Path(options.out or pathlib.Path(options.build) / "benchmarks" / "tree")
    out.mkdir(parents=True, exist_ok=True)
    (out / "results.json").write_text(
        json.dumps({"machine": bench.facts, "peaks": bench.peaks, "targets": TARGETS, "rows": rows}, indent=1) + "\n"
    )
    text = (markdown if options.part == "forward" else gradients_markdown)(rows, bench)
    (out / "results.md").write_text(text)
    print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
