#!/usr/bin/env python3
# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradients: time, and useful FLOPs over the multiply-add peak of the same run.

    .venv/bin/python benchmarks/backward.py [--only dense] [--threads 2]

f32. `fovea-run` measures our kernels in processes of their own: CPU time for one
thread, wall-clock time for more. Useful are five products for every query and
every key or summary that it may read, 10 D FLOPs for D = E, and 4 p N D for the
summaries of one level of one tensor; what is recomputed to get there is not. For
convolutions they are three transforms of twice the tokens for every column, 5 L log2 L
for two of them, two products of 8 FLOPs for each basis and number, and 6 N D for the
column of each.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent


def tensor(shape):
    return "tensor<" + "".join(f"{n}x" for n in shape) + "f32>"


class Case:
    """A gradient, and the operands of its text by name."""

    def __init__(self, title, op, inputs, clauses, results, attributes, target=None, part=None):
        self.title, self.op, self.target, self.part = title, op, target, part
        self.inputs, self.clauses, self.results = inputs, clauses, results
        self.attributes = attributes

    def text(self):
        shapes = [*self.inputs, *(s for _, group in self.clauses for s in group)]
        results = [s for _, group in self.results for s in group]
        types = [tensor(shape) for shape in (*shapes, *results)]
        arguments = ", ".join(f"%a{i}: {t}" for i, t in enumerate(types))
        position = iter(range(len(types)))

        def operands(group):
            numbers = [next(position) for _ in group]
            names = ", ".join(f"%a{i}" for i in numbers)
            return f"({names} : {', '.join(types[i] for i in numbers)})"

        text = f"attn.{self.op} ins{operands(self.inputs)}"
        for keyword, group in (*self.clauses, *self.results):
            text += f" {keyword}{operands(group)}"
        outs, first = "", 0
        for keyword, group in (("outs", self.inputs), *((f"d_{k}", g) for k, g in self.clauses)):
            numbers = range(first, first + len(group))
            first += len(group)
            outs += f" {keyword}({', '.join(f'%i{i}' for i in numbers)} : {', '.join(types[i] for i in numbers)})"
        kinds = ", ".join(types[: len(shapes)])
        empties = "".join(f"  %i{i} = tensor.empty() : {t}\n" for i, t in enumerate(types[: len(shapes)]))
        values = ", ".join(f"%r#{i}" for i in range(len(shapes)))
        return (
            f"func.func @run({arguments}) -> ({kinds}) {{\n{empties}  %r:{len(shapes)} = {text}\n   {outs}"
            f" {{{', '.join(self.attributes)}}} -> {kinds}\n  return {values} : {kinds}\n}}\n"
        )


def dense(title, n, width, *, heads=1, causal=False, bias=False, target=None):
    rows = (1, heads, n)
    q, terms = (*rows, width), [("bias", [(*rows, n)])] if bias else []
    return Case(title, "dense_backward", [q, q, q], terms, [("forward", [q, rows]), ("gradient", [q])],
                ["mask = #attn.mask<causal>"] if causal else [], target)  # fmt: skip


def multipole(title, n, *, heads=1, group=64, rank=4, width=64, causal=True, target=None, part=None):
    levels = 0
    while n > group << (levels + 1):
        levels += 1
    rows = (1, heads, n)
    q, weights = (*rows, width), [(1, rank, group << level, width) for level in range(levels)]
    return Case(title, "fast_multipole_backward", [q, q, q], [("key_weights", weights), ("value_weights", weights)],
                [("forward", [q, rows]), ("gradient", [q])],
                [f"group = {group} : i64"] + ["causal"] * causal, target, part)  # fmt: skip


def conv(title, n, bases, *, width=64):
    q = (1, 1, n, width)
    return Case(title, "conv_backward", [q, q, q], [], [("forward", [q]), ("gradient", [q])],
                [f"num_basis = {bases} : i64", "window = 16 : i64", "delta = 0.0 : f64", "epsilon = 0.0 : f64"])


CASES = [
    dense("dense, D = 64, N = 1024", 1024, 64),
    dense("dense, D = 64, N = 2048", 2048, 64),
    dense("dense, D = 64, N = 4096", 4096, 64, target=91),
    dense("dense causal, D = 64, N = 4096", 4096, 64, causal=True, target=89),
    dense("dense, D = 128, N = 4096", 4096, 128),
    dense("dense with bias and its gradient, D = 64, N = 4096", 4096, 64, bias=True, target=82),
    dense("dense, D = 64, N = 2048, 8 heads", 2048, 64, heads=8),
    multipole("multipole causal, N = 65536, attention alone", 65536, target=80, part="stream_backward"),
    multipole("multipole, N = 65536, attention alone", 65536, causal=False, target=87, part="stream_backward"),
    multipole("summaries of one tensor, N = 65536, 8 heads", 65536, heads=8, target=45, part="summarize_backward"),
    multipole("multipole causal, N = 65536", 65536),
    multipole("multipole causal, N = 65536, 8 heads", 65536, heads=8),
    multipole("multipole causal, N = 2048", 2048),
    multipole("multipole, N = 2048", 2048, causal=False),
    conv("convolutions, N = 2048, 8 bases", 2048, 8),
    conv("convolutions, N = 4096, 8 bases", 4096, 8),
    conv("convolutions, N = 65536, 1 basis", 65536, 1),
    conv("convolutions, N = 65536, 8 bases", 65536, 8),
    conv("convolutions, N = 65536, 32 bases", 65536, 32),
]


def isolate(text, op):
    """A function of the first `op` that `text` expands to, or of all those that
    add to the same destination one after the other. On buffers, so that nothing
    else is measured."""
    command = [str(ROOT / "build/bin/fovea-opt"), "-", "--attn-expand-patterns", "--canonicalize",
               "--mlir-print-op-generic"]  # fmt: skip
    lines = subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout
    maps = "".join(line + "\n" for line in lines.splitlines() if line.startswith("#"))
    pattern = rf'(%\d+):(\d+) = "attn\.{op}"\(([^)]*)\) (<{{.*?}}>|) ?: \((.*?)\) ->'
    body, allocations, arguments, buffers = "", [], {}, {}
    for number, (name, count, operands, attributes, types) in enumerate(re.findall(pattern, lines)):
        operands, types = operands.split(", "), split_types(types)
        # The next level adds to what this one has added to.
        if number and (op == "stream_backward" or operands[3] not in buffers):
            break
        names = []
        for operand, type in zip(operands, types):
            if operand in buffers:
                names.append(buffers[operand])
            elif len(names) < len(operands) - int(count):
                names.append(arguments.setdefault(operand, (f"%a{len(arguments)}", type))[0])
            else:
                # Destinations have buffers of their own.
                names.append(f"%b{len(allocations)}")
                allocations.append((names[-1], type))
        buffers.update({f"{name}#{i}": names[i - int(count)] for i in range(int(count))})
        body += f'  "attn.{op}"({", ".join(names)}) {attributes} : ({", ".join(types)}) -> ()\n'
    inputs = ", ".join(f"{name}: {type}" for name, type in arguments.values())
    # Returned, since levels are not grouped when one's sums are freed before
    # the next.
    names, types = (", ".join(part) for part in zip(*allocations))
    body = "".join(f"  {n} = memref.alloc() : {t}\n" for n, t in allocations) + body
    text = f"func.func @run({inputs}) -> ({types}) {{\n{body}  return {names} : {types}\n}}\n"
    return maps + text.replace("tensor<", "memref<")


def split_types(text):
    return re.findall(r"tensor<[^>]*>", text)


def measure(case, threads, seconds):
    """The report of fovea-run, on random numbers: kernels do not branch on them."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "run.mlir"
        path.write_text(isolate(case.text(), case.part) if case.part else case.text())
        clock = "cpu" if threads == 1 else "wall"
        command = [str(ROOT / "build/bin/fovea-run"), str(path), f"--bench={seconds}", f"--threads={threads}",
                   f"--bench-clock={clock}", "--random", "--json"]  # fmt: skip
        result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        sys.exit(result.stderr)
    return json.loads(result.stdout)["bench"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", default="", help="cases whose title contains this")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.5)
    arguments = parser.parse_args()
    cases = [case for case in CASES if arguments.only in case.title]
    if not cases:
        parser.error(f"--only: found {arguments.only!r}, needed a part of one of: {'; '.join(c.title for c in CASES)}")
    print("| work | time | of peak | target |\n|---|---|---|---|")
    for case in cases:
        report = measure(case, arguments.threads, arguments.seconds)
        share = report.get("fraction_of_peak")
        share = f"{100 * share:.1f} %" if share else ""
        target = f"{case.target} %" if case.target and arguments.threads == 1 else ""
        print(f"| {case.title} | {1e3 * report['median_seconds']:.1f} ms | {share} | {target} |", flush=True)


if __name__ == "__main__":
    main()
