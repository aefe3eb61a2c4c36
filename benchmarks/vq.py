#!/usr/bin/env python3
# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention over quantized keys: speed, time and memory against the number of
tokens, and decoding latency against the context.

    .venv/bin/python benchmarks/vq.py --part speed|tokens|decode|backward [--threads 2]

One core and f32; more threads are for our kernels. `fovea-run` measures them in
processes of their own: CPU time, wall time of more threads, useful FLOPs over the
FMA peak of the same run, memory beyond arguments and results. Useful are the
scores of the S codewords, once for each query, and the
products with the values of every token or codeword that a query reads, with
blocks of 512 tokens. Without a bias kernels take blocks of 128, where a query
reads fewer tokens: the last column has the share of the peak for the products
that are computed. Of a gradient four products for every codeword and two for
every token count, three with a bias.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
BASELINES = ROOT / "benchmarks/fovea_bench/baselines.py"
FREE_BLOCK = 128  # tokens of a block without a bias
REDUCTIONS = ("serial", "matmul", "associative", "input_scan")


def tensor(shape, element="f32"):
    return "tensor<" + "".join(f"{n}x" for n in shape) + element + ">"


class Case:
    """One attention layer; H query heads on one key head each."""

    def __init__(self, n, *, heads=1, width=64, value_width=64, codes=512, block=512, bias=False,
                 reduction="auto"):  # fmt: skip
        self.n, self.heads, self.width, self.value_width = n, heads, width, value_width
        self.codes, self.block, self.bias, self.reduction = codes, block, bias, reduction

    def arrays(self):
        rng = np.random.default_rng(1)

        def normal(*shape):
            return rng.standard_normal(shape, dtype=np.float32)

        rows = (1, self.heads, self.n)
        arrays = {
            "q": normal(*rows, self.width) / np.float32(self.width**0.5),
            "k": normal(*rows, self.width),
            "z": rng.integers(0, self.codes, rows, np.int32),
            "v": normal(*rows, self.value_width),
            "c": normal(self.heads, self.codes, self.width),
        }
        if self.bias:
            arrays["b"] = normal(*rows, 2 * self.block)
        return arrays

    def types(self):
        return {name: tensor(a.shape, "i32" if a.dtype == np.int32 else "f32")
                for name, a in self.arrays().items()}  # fmt: skip

    def vq(self, names="qzvc"):
        """The function that attends, and its arguments."""
        types, names = self.types(), list(names) + ["b"] * self.bias
        out = tensor((1, self.heads, self.n, self.value_width))
        arguments = ", ".join(f"%{n}: {types[n]}" for n in names)
        bias = f" bias(%b : {types['b']})" if self.bias else ""
        body, source = "", "%z"
        if "k" in names:
            source = "%codes"
            body = (
                f"  %i = tensor.empty() : {types['z']}\n  %codes = attn.quantize ins(%k, %c : {types['k']},"
                f" {types['c']}) outs(%i : {types['z']}) -> {types['z']}\n"
            )
        ins = f"%q, {source}, %v, %c : {types['q']}, {types['z']}, {types['v']}, {types['c']}"
        return (
            f"func.func @run({arguments}) -> {out} {{\n{body}  %o = tensor.empty() : {out}\n"
            f"  %r = attn.vq ins({ins}){bias} outs(%o : {out}) {{block = {self.block} : i64, causal,"
            f" reduction = #attn.reduction<{self.reduction}>}} -> {out}\n  return %r : {out}\n}}\n"
        ), names

    def backward(self):
        """The gradient, and its arguments: instead of what a forward pass leaves,
        numbers of the same size."""
        types, arrays = self.types(), self.arrays()
        rng = np.random.default_rng(3)
        out = tensor((1, self.heads, self.n, self.value_width))
        lse = tensor((1, self.heads, self.n))
        names = list("qzvc") + ["b"] * self.bias
        arguments = [f"%{n}: {types[n]}" for n in names] + [f"%f: {out}", f"%l: {lse}", f"%d: {out}"]
        results = [types["q"], types["k"], types["v"]] + [types[n] for n in names[4:]]
        kinds = ", ".join(results)
        body = "".join(f"  %g{i} = tensor.empty() : {kind}\n" for i, kind in enumerate(results))
        clauses = [f"bias(%b : {types['b']})", f"d_bias(%g3 : {types['b']})"] if self.bias else ["", ""]
        ins = f"%q, %z, %v, %c : {types['q']}, {types['z']}, {types['v']}, {types['c']}"
        text = (
            f"func.func @run({', '.join(arguments)}) -> ({kinds}) {{\n{body}"
            f"  %r:{len(results)} = attn.vq_backward ins({ins}) {clauses[0]} forward(%f, %l : {out}, {lse})"
            f" gradient(%d : {out}) outs(%g0, %g1, %g2 : {', '.join(results[:3])}) {clauses[1]}"
            f" {{block = {self.block} : i64, causal}} -> {kinds}\n"
            f"  return {', '.join(f'%r#{i}' for i in range(len(results)))} : {kinds}\n}}\n"
        )
        shape = (1, self.heads, self.n)
        d_out = rng.standard_normal((*shape, self.value_width), dtype=np.float32)
        normaliser = np.broadcast_to(np.log(np.arange(1.0, self.n + 1)) + 0.5, shape).astype(np.float32)
        return text, [arrays[n] for n in names] + [d_out / 16, normaliser, d_out]

    def quantize(self):
        types = self.types()
        return (
            f"func.func @run(%k: {types['k']}, %c: {types['c']}) -> {types['z']} {{\n"
            f"  %i = tensor.empty() : {types['z']}\n  %r = attn.quantize ins(%k, %c : {types['k']}, {types['c']})"
            f" outs(%i : {types['z']}) -> {types['z']}\n  return %r : {types['z']}\n}}\n"
        ), ["k", "c"]

    def dense(self):
        types = self.types()
        out = tensor((1, self.heads, self.n, self.value_width))
        return (
            f"func.func @run(%q: {types['q']}, %k: {types['k']}, %v: {types['v']}) -> {out} {{\n"
            f"  %o = tensor.empty() : {out}\n  %r = attn.dense ins(%q, %k, %v : {types['q']}, {types['k']}, {types['v']})"
            f" outs(%o : {out}) {{mask = #attn.mask<causal>}} -> {out}\n  return %r : {out}\n}}\n"
        ), ["q", "k", "v"]

    def decode(self, context):
        """One token on a state in place."""
        h, w = self.heads, self.value_width
        types = {
            "q": tensor((1, h, 1, self.width)), "z": tensor((1, h, 1), "i32"), "v": tensor((1, h, 1, w)),
            "c": tensor((h, self.codes, self.width)),
        }
        state = [tensor((1, h, self.codes, w)), tensor((1, h, self.codes), "i32"),
                 tensor((1, h, 2 * self.block), "i32"), tensor((1, h, 2 * self.block, w)), "tensor<i64>"]  # fmt: skip
        buffers = [t.replace("tensor", "memref") for t in state]
        arguments = [f"%{n}: {t}" for n, t in types.items()] + [f"%m{i}: {t}" for i, t in enumerate(buffers)]
        text = f"func.func @run({', '.join(arguments)}) -> {types['v']} {{\n"
        for i, (t, m) in enumerate(zip(state, buffers)):
            text += f"  %s{i} = bufferization.to_tensor %m{i} restrict writable : {m} to {t}\n"
        results = ", ".join([types["v"]] + state)
        text += (
            f"  %o = tensor.empty() : {types['v']}\n  %r:6 = attn.vq_decode ins(%q, %z, %v, %c :"
            f" {', '.join(types.values())}) outs(%o : {types['v']}) state(%s0, %s1, %s2, %s3, %s4 : {', '.join(state)})"
            f" {{block = {self.block} : i64}} -> {results}\n"
        )
        for i, (t, m) in enumerate(zip(state, buffers)):
            text += (
                f"  bufferization.materialize_in_destination %r#{i + 1} in restrict writable %m{i}"
                f" : ({t}, {m}) -> ()\n"
            )
        rng = np.random.default_rng(2)
        arrays = [a[:, :, :1] if n != "c" else a for n, a in self.arrays().items() if n in types]
        arrays += [
            rng.standard_normal((1, h, self.codes, w), dtype=np.float32),
            np.full((1, h, self.codes), max(context // self.codes, 1), np.int32),
            rng.integers(0, self.codes, (1, h, 2 * self.block), np.int32),
            rng.standard_normal((1, h, 2 * self.block, w), dtype=np.float32),
            np.array(context, np.int64),
        ]
        return text + f"  return %r#0 : {types['v']}\n}}\n", arrays

    def products(self, block):
        """Multiply-adds of attention without a bias, with blocks of so many tokens."""
        values = sum(i % block + 1 + (self.codes if i >= block else 0) for i in range(self.n))
        return self.width * self.n * self.codes + self.value_width * values

    def computed(self, report):
        """The share of the peak for the products that are computed."""
        useful = report["fraction_of_peak"]
        share = useful * self.products(min(FREE_BLOCK, self.block)) / self.products(self.block)
        return f"computed: {100 * share:.1f} %"

    def state_bytes(self):
        """What a token has to read: codebook, means, values and codes of the kept
        blocks."""
        floats = self.codes * (self.width + self.value_width) + 2 * self.block * self.value_width
        return 4 * self.heads * (floats + 2 * self.block)


def run(text, arrays, seconds=0.5, threads=1):
    """The report of fovea-run."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "run.mlir").write_text(text)
        clock = "cpu" if threads == 1 else "wall"
        command = [str(ROOT / "build/bin/fovea-run"), str(folder / "run.mlir"), f"--bench={seconds}",
                   f"--threads={threads}", f"--bench-clock={clock}", "--json"]  # fmt: skip
        for index, array in enumerate(arrays):
            np.save(folder / f"{index}.npy", np.asarray(array, order="C"))
            command.append(f"--arg={folder / f'{index}.npy'}")
        result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        sys.exit(result.stderr)
    return json.loads(result.stdout)["bench"]


def bench(case, function, seconds=0.5, threads=1):
    text, names = function
    arrays = case.arrays()
    return run(text, [arrays[name] for name in names], seconds, threads)


def numpy_linear(case, arrays):
    """The linear form as one writes it down, block by block."""
    L, out = case.block, np.empty((case.n, case.value_width), np.float32)
    q, z, v, c = (arrays[name][0, 0] if name != "c" else arrays[name][0] for name in "qzvc")
    sums, count = np.zeros((case.codes, case.value_width), np.float32), np.zeros(case.codes)
    mask = np.tril(np.ones((L, L), bool))
    for low in range(0, case.n, L):
        rows = slice(low, low + L)
        scores = q[rows] @ c.T
        with np.errstate(divide="ignore"):
            cached = scores + np.log(count).astype(np.float32)
        local = np.where(mask, scores[:, z[rows]], -np.inf)
        top = np.maximum(cached.max(1), local.max(1))[:, None]
        p, r = np.exp(cached - top), np.exp(local - top)
        mean = sums / np.maximum(count, 1)[:, None].astype(np.float32)
        out[rows] = (p @ mean + r @ v[rows]) / (p.sum(1) + r.sum(1))[:, None]
        np.add.at(sums, z[rows], v[rows])
        count += np.bincount(z[rows], minlength=case.codes)
    return out


def row(name, report, extra=""):
    share = report.get("fraction_of_peak")
    share = f"{100 * share:.1f} %" if share else ""
    print(f"| {name} | {1e3 * report['median_seconds']:.2f} ms | {share} | {extra} |", flush=True)
    return report


def speed(torch, threads, n):
    print("| work | time | of peak | |\n|---|---|---|---|")
    for width in (64, 128):
        row(f"quantize, D = {width}", bench(Case(n, width=width), Case(n, width=width).quantize(), threads=threads))
    plain, biased = Case(n), Case(n, bias=True)
    others = {"dense causal": row("dense causal", bench(plain, plain.dense(), 0.1, threads))["median_seconds"]}
    if torch and (seconds := torch_seconds(torch, plain)):
        others["PyTorch"] = seconds
        print(f"| PyTorch, dense causal | {1e3 * seconds:.1f} ms | | |", flush=True)
    for name, case in (("no bias", plain), ("with bias", biased)):
        report = bench(case, case.vq(), threads=threads)
        row(f"vq, {name}", report, "" if case.bias else case.computed(report))
        total = row(f"vq with quantize, {name}", bench(case, case.vq("qkvc"), threads=threads))["median_seconds"]
        for other, seconds in others.items():
            print(f"| against {other}, {name} | {seconds / total:.1f}x | | |", flush=True)
    for tokens in (n // 4, n):
        wide = Case(tokens, width=128, value_width=1536)
        report = bench(wide, wide.vq(), threads=threads)
        row(f"vq, one head, D = 128, E = 1536, N = {tokens}", report, wide.computed(report))


def backward(threads, n):
    print("| work | time | of peak | |\n|---|---|---|---|")
    for name, case in (
        ("no bias", Case(n)), ("with bias", Case(n, bias=True)), ("D = 128", Case(n, width=128, value_width=128)),
    ):  # fmt: skip
        row(f"vq backward, {name}", run(*case.backward(), threads=threads))


def tokens(dense_to, torch):
    names = ["N", *(f"vq {r}" for r in REDUCTIONS), "dense causal", "NumPy, linear", "PyTorch SDPA"]
    print("| " + " | ".join(names) + " |\n|" + "---|" * len(names))
    for n in (2048, 4096, 8192, 16384, 32768, 65536, 131072):
        cells = [str(n)]
        for reduction in REDUCTIONS:
            case = Case(n, reduction=reduction)
            report = bench(case, case.vq(), 0.2)
            memory = report["peak_allocated_bytes"] + report["peak_scratch_bytes"] - 4 * n * case.value_width
            cells.append(f"{1e3 * report['median_seconds']:.2f} ms, {memory / 1e6:.2f} MB")
        case = Case(n)
        cells.append(f"{1e3 * bench(case, case.dense(), 0.05)['median_seconds']:.1f} ms" if n <= dense_to else "")
        arrays = case.arrays()
        start = time.thread_time()
        numpy_linear(case, arrays)
        cells.append(f"{1e3 * (time.thread_time() - start):.1f} ms")
        seconds = torch_seconds(torch, case) if torch and n <= dense_to else None
        cells.append(f"{1e3 * seconds:.1f} ms" if seconds else "")
        print("| " + " | ".join(cells) + " |", flush=True)


def torch_seconds(python, case):
    """The time of PyTorch's dense causal attention, or None without PyTorch."""
    arrays = case.arrays()
    with tempfile.TemporaryDirectory() as folder:
        paths = [f"{folder}/{name}.npy" for name in "qkv"]
        for name, path in zip("qkv", paths):
            np.save(path, arrays[name])
        spec = {"inputs": paths, "causal": True, "threads": 1, "seconds": 0.1, "clock": "cpu"}
        result = subprocess.run([python, BASELINES, "torch", json.dumps(spec)], capture_output=True, text=True)
    if result.returncode:
        return None
    return statistics.median(json.loads(result.stdout)["times"])


def has_torch(python):
    return subprocess.run([python, "-c", "import torch"], capture_output=True).returncode == 0


def plain_read(size):
    """Seconds to read as much memory once more, the least a token can take."""
    array, runs = np.ones(size // 4, np.float32), []
    for _ in range(300):
        start = time.perf_counter()
        array.max()
        runs.append(time.perf_counter() - start)
    return sorted(runs)[len(runs) // 2]


def decode():
    print("| heads | context | per token | plain read of its state |\n|---|---|---|---|")
    for heads in (1, 8):
        case = Case(1, heads=heads)
        for context in (1024, 4096, 16384, 65536, 1048576):
            text, arrays = case.decode(context)
            report = run(text, arrays, 0.3)
            print(
                f"| {heads} | {context} | {1e6 * report['median_seconds']:.1f} us |"
                f" {1e6 * plain_read(case.state_bytes()):.1f} us, {case.state_bytes() / 1e6:.2f} MB |", flush=True,
            )  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--part", choices=("speed", "tokens", "decode", "backward"), required=True)
    parser.add_argument("--threads", type=int, default=1, help="of our kernels, for speed and backward")
    parser.add_argument("--length", type=int, default=32768, help="tokens, for speed and backward")
    parser.add_argument("--dense-to", type=int, default=16384, help="the most tokens that dense attention is run with")
    parser.add_argument("--torch", nargs="?", const=sys.executable, metavar="PYTHON",
                        help="compare with PyTorch, by an interpreter that has it (default: this one)")  # fmt: skip
    arguments = parser.parse_args()
    if arguments.torch and not has_torch(arguments.torch):
        print(f"{arguments.torch} has no PyTorch: not compared", file=sys.stderr)
        arguments.torch = None
    if arguments.part == "speed":
        speed(arguments.torch, arguments.threads, arguments.length)
    elif arguments.part == "tokens":
        tokens(arguments.dense_to, arguments.torch)
    elif arguments.part == "decode":
        decode()
    else:
        backward(arguments.threads, arguments.length)


if __name__ == "__main__":
    main()
