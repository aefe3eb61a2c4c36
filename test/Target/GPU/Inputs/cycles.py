# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks the table of docs/results/gpu-model.md: by the cycle model, main loops of kernels for
sm_90a take no more than 3 % more cycles than it says, spill nothing and move few registers.

    cycles.py <fovea-compile> <source> [--update]

Other versions of ptxas make other code: cycles and moves of one other than the page's are not compared.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("compiler")
parser.add_argument("source", type=Path)
parser.add_argument("--update", action="store_true")
options = parser.parse_args()
sys.path[:0] = [str(options.source / folder) for folder in ("utils/fovea_cycles", "benchmarks/gpu")]
import artefacts  # noqa: E402
import cycles  # noqa: E402
import decode  # noqa: E402
import sass  # noqa: E402
from model import ALL, FAR, MIDDLE, NEAR  # noqa: E402

HEADER = "| kernel | keys of a tile | instructions, moves | cycles of a tile: L2, middle, HBM | tensor cores, middle |"
DECODING = ("| kernel | bytes of a tile, instructions | blocks of a multiprocessor | cycles of a tile: always there, H100, H200, B200 | "
            "bandwidth: H100, H200, B200 |")
LOADS = "| kernel | bytes a cycle | cycles of a tile: middle, all |"
TOLERANCE = 0.03


def dense(width, operands="", names="", types=""):
    q, k = f"tensor<1x8x?x{width}xbf16>", f"tensor<1x2x?x{width}xbf16>"
    given = "".join(f", %{name}: {type}" for name, type in zip(names.split(), types.split()))
    return (f"func.func @f(%q: {q}, %k: {k}, %v: {k}, %o: {q}{given}) -> {q} {{\n"
            f"  %r = attn.dense ins(%q, %k, %v : {q}, {k}, {k}) {operands} outs(%o : {q}) {{mask = #attn.mask<causal>}}"
            f" -> {q}\n  return %r : {q}\n}}\n")


def scored(captured, body):
    """A function of scores that may read %t, which is the argument %m."""
    capture, argument = (f"(%m : {captured})", f", %t: {captured}") if captured else ("", "")
    return (f"score{capture} {{\n    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index{argument}):"
            f"{body}\n      attn.yield %y : f32\n    }}")


def by_distance(width, term, *types):
    """A source with a term by distance, of operands of these types."""
    q, k = f"tensor<1x8x4096x{width}xbf16>", f"tensor<1x2x4096x{width}xbf16>"
    names = [f"%t{number}" for number in range(len(types))]
    given = "".join(f", {name}: {type}" for name, type in zip(names, types))
    return (f"func.func @f(%q: {q}, %k: {k}, %v: {k}, %o: {q}{given}) -> {q} {{\n"
            f"  %r = attn.stream query(%q : {q}) source(%k, %v : {k}, {k}) {term}({', '.join(names)} : {', '.join(types)})\n"
            f"      ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal>\n"
            f"      outs(%o : {q}) {{scale = 8.838835e-02 : f64}} -> {q}\n  return %r : {q}\n}}\n")


def gradients(width, has_log_weights=False):
    q, k, l, w = f"tensor<1x8x4096x{width}xbf16>", f"tensor<1x2x4096x{width}xbf16>", "tensor<1x8x4096xf32>", "tensor<1x2x4096xf32>"
    given, wanted, types = (f" log_weight(%w : {w})", f" d_log_weight(%w : {w})", f", {w}") if has_log_weights else ("", "", "")
    results = ", ".join(f"%r#{number}" for number in range(3 + has_log_weights))
    return (f"func.func @f(%q: {q}, %k: {k}, %v: {k}, %w: {w}, %o: {q}, %l: {l}, %d: {q}) -> ({q}, {k}, {k}{types}) {{\n"
            f"  %r:{3 + has_log_weights} = attn.dense_backward ins(%q, %k, %v : {q}, {k}, {k}){given}\n"
            f"      forward(%o, %l : {q}, {l}) gradient(%d : {q}) outs(%q, %k, %v : {q}, {k}, {k}){wanted}\n"
            f"      {{mask = #attn.mask<causal>}} -> {q}, {k}, {k}{types}\n"
            f"  return {results} : {q}, {k}, {k}{types}\n}}\n")


def bias_gradients(width, shape, element):
    """Of scores with a bias, whose own gradient nobody reads."""
    q, k, l, m = f"tensor<1x8x4096x{width}xbf16>", f"tensor<1x2x4096x{width}xbf16>", "tensor<1x8x4096xf32>", f"tensor<{shape}x{element}>"
    return (f"func.func @f(%q: {q}, %k: {k}, %v: {k}, %m: {m}, %o: {q}, %l: {l}, %d: {q}) -> ({q}, {k}, {k}) {{\n"
            f"  %i = tensor.empty() : {m}\n"
            f"  %r:4 = attn.dense_backward ins(%q, %k, %v : {q}, {k}, {k}) bias(%m : {m})\n"
            f"      forward(%o, %l : {q}, {l}) gradient(%d : {q}) outs(%q, %k, %v : {q}, {k}, {k}) d_bias(%i : {m})\n"
            f"      {{mask = #attn.mask<causal>}} -> {q}, {k}, {k}, {m}\n"
            f"  return %r#0, %r#1, %r#2 : {q}, {k}, {k}\n}}\n")


def score_gradients(width, captured, body):
    """Through a function of scores; nobody reads the gradient of what it captures."""
    q, k, l = f"tensor<1x8x4096x{width}xbf16>", f"tensor<1x2x4096x{width}xbf16>", "tensor<1x8x4096xf32>"
    given, wanted, types = (f", %m: {captured}", f" d_captures(%i : {captured})", f", {captured}") if captured else ("", "", "")
    init = f"  %i = tensor.empty() : {captured}\n" if captured else ""
    return (f"func.func @f(%q: {q}, %k: {k}, %v: {k}{given}, %o: {q}, %l: {l}, %d: {q}) -> ({q}, {k}, {k}) {{\n{init}"
            f"  %r:{3 + bool(captured)} = attn.dense_backward ins(%q, %k, %v : {q}, {k}, {k}) {scored(captured, body)}\n"
            f"      forward(%o, %l : {q}, {l}) gradient(%d : {q}) outs(%q, %k, %v : {q}, {k}, {k}){wanted}\n"
            f"      {{mask = #attn.mask<causal>, scale = 8.838835e-02 : f64}} -> {q}, {k}, {k}{types}\n"
            f"  return %r#0, %r#1, %r#2 : {q}, {k}, {k}\n}}\n")


def lists(block, unit, entries):
    """Of which each block of queries has one."""
    q, k, r = "tensor<1x8x4096x128xbf16>", "tensor<1x2x4096x128xbf16>", f"tensor<1x2x{4096 // block}x{entries}xi32>"
    return (f"func.func @f(%q: {q}, %k: {k}, %v: {k}, %r: {r}, %o: {q}) -> {q} {{\n"
            f"  %y = attn.stream query(%q : {q}) source(%k, %v : {k}, {k}) rows(%r : {r}) unit = {unit}\n"
            f"      ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal>\n"
            f"      outs(%o : {q}) {{block = {block} : i64, scale = 8.838835e-02 : f64}} -> {q}\n  return %y : {q}\n}}\n")


def list_gradients(block, unit, entries, heads=8, key_heads=2):
    q, k, l = (f"tensor<1x{heads}x4096x128xbf16>", f"tensor<1x{key_heads}x4096x128xbf16>", f"tensor<1x{heads}x4096xf32>")
    r = f"tensor<1x{key_heads}x{4096 // block}x{entries}xi32>"
    return (f"func.func @f(%q: {q}, %k: {k}, %v: {k}, %r: {r}, %o: {q}, %l: {l}, %d: {q}) -> ({q}, {k}, {k}) {{\n"
            f"  %y:3 = attn.stream_backward query(%q : {q}) source(%k, %v : {k}, {k}) rows(%r : {r}) unit = {unit}\n"
            f"      ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal>\n"
            f"      forward(%o, %l : {q}, {l}) gradient(%d : {q}) outs(%q, %k, %v : {q}, {k}, {k})\n"
            f"      {{block = {block} : i64, scale = 8.838835e-02 : f64}} -> {q}, {k}, {k}\n"
            f"  return %y#0, %y#1, %y#2 : {q}, {k}, {k}\n}}\n")


KERNELS = {f"dense, causal, D = {width}": dense(width) for width in (64, 128, 256)}
KERNELS |= {f"dense, causal, clusters, D = {width}": artefacts.dense_in_clusters(width, keys, H=8, G=2)
            for width, keys in ((64, 160), (128, 128))}
KERNELS["dense with log weights, D = 128"] = dense(
    128, "log_weight(%w : tensor<1x2x?xf32>)", "w", "tensor<1x2x?xf32>")
KERNELS["dense with a bias, D = 128"] = dense(128, "bias(%m : tensor<1x8x?x?xbf16>)", "m", "tensor<1x8x?x?xbf16>")
KERNELS["dense with a bias of padding, D = 128"] = dense(128, "bias(%m : tensor<1x1x1x?xf32>)", "m", "tensor<1x1x1x?xf32>")
SOFT_CAP = """
      %c = arith.constant 5.0e+01 : f32
      %p = arith.divf %s, %c : f32
      %t = math.tanh %p : f32
      %y = arith.mulf %t, %c : f32"""
ALIBI = """
      %x = tensor.extract %t[%h] : tensor<8xf32>
      %d = arith.subi %j, %i : index
      %e = arith.index_cast %d : index to i32
      %g = arith.sitofp %e : i32 to f32
      %p = arith.mulf %g, %x : f32
      %y = arith.addf %s, %p : f32"""
KERNELS |= {f"dense with a soft-cap, D = {width}": dense(width, scored("", SOFT_CAP)) for width in (64, 128, 256)}
KERNELS["dense with ALiBi, D = 128"] = dense(128, scored("tensor<8xf32>", ALIBI), "m", "tensor<8xf32>")
TABLE = """
      %d = arith.subi %i, %j : index
      %x = tensor.extract %t[%h, %d] : tensor<8x?xf32>
      %y = arith.addf %s, %x : f32"""
KERNELS["dense with a function that reads a table by distance, D = 128"] = dense(
    128, scored("tensor<8x?xf32>", TABLE), "m", "tensor<8x?xf32>")
KERNELS["a bias by distance, D = 128"] = by_distance(128, "distance_bias", "tensor<8x4096xf32>")
KERNELS |= {f"relative keys, D = {width}": by_distance(width, "relative", f"tensor<1x4096x{width}xbf16>", f"tensor<8x{width}xbf16>")
            for width in (64, 128)}
KERNELS["fast multipole, 128 tokens near, D = 128"] = artefacts.multipole(128, 8192, 128, 4, 8, 2)[0]
KERNELS["vq, blocks of 512, 512 codewords, D = 128"] = artefacts.vq(128, 8192, 512, 512, 8, 2)
KERNELS["lists of blocks of 64 rows for 128 queries, D = 128"] = lists(128, 64, 16)
KERNELS["lists of single rows for 128 queries, D = 128"] = lists(128, 1, 1024)
JOINED = "gradients for queries, fast multipole, 128 tokens near, D = 128"
# Two kernels each, in this order.
GRADIENTS = {f"gradients for {{}}, dense, causal, D = {width}": gradients(width) for width in (64, 128)}
GRADIENTS |= {f"gradients for {{}}, dense with log weights, D = {width}": gradients(width, has_log_weights=True) for width in (64, 128)}
GRADIENTS |= {f"gradients for {{}}, lists of blocks of {size} rows for {size} queries, D = 128": list_gradients(size, size, 16)
              for size in (128, 64)}
GRADIENTS |= {f"gradients for {{}}, dense with a bias, D = {width}": bias_gradients(width, "1x8x4096x4096", "bf16")
              for width in (64, 128)}
GRADIENTS["gradients for {}, dense with a bias of padding, D = 128"] = bias_gradients(128, "1x1x1x4096", "f32")
GRADIENTS |= {f"gradients for {{}}, lists of {rows} for 128 queries, D = 128": list_gradients(128, unit, 1024 // unit)
              for rows, unit in (("blocks of 16 rows", 16), ("single rows", 1))}
GRADIENTS |= {f"gradients for {{}}, lists of single rows for one query of {heads} heads, D = 128": list_gradients(1, 1, 2048, heads, 1)
              for heads in (128, 64)}
GRADIENTS["gradients for {}, dense with a soft-cap, D = 64"] = score_gradients(64, "", SOFT_CAP)
GRADIENTS |= {f"gradients for {{}}, dense with ALiBi, D = {width}": score_gradients(width, "tensor<8xf32>", ALIBI)
              for width in (64, 128)}
GRADIENTS["gradients for {}, dense with a function that reads a table by distance, D = 128"] = score_gradients(
    128, "tensor<8x4096xf32>", TABLE.replace("?", "4096"))
# Those for rows have a kernel for keys and one for values.
SPLIT = {"gradients for {}, dense, causal, D = 256": gradients(256),
         "gradients for {}, dense with a soft-cap, D = 128": score_gradients(128, "", SOFT_CAP)}
# Of attn.vq_backward, whose other source are the tokens near queries: rows of codewords have log weights.
CODEWORDS = "gradients for {}, vq, codewords of blocks of 512, D = 128"


# With the warps of a block, which have 16 heads of queries each.
FEW = {"keys and values": (artefacts.single(), 1), "keys that codes name": (artefacts.single("codes"), 1),
       "codewords with means": (artefacts.single("means"), 1)}
FEW |= {f"keys and values, {queries} queries": (artefacts.single(queries=queries), queries // 2) for queries in (4, 8)}

programs = cycles.Programs.find()
version = re.search(r"release ([\d.]+)", subprocess.run([programs.ptxas, "--version"], capture_output=True, text=True,
                                                        check=True).stdout)[1]
page_path = options.source / "docs" / "results" / "gpu-model.md"
page = page_path.read_text()
stated_version = re.search(r"ptxas (\d[\d.]*\d)", page)[1]
is_compared = version == stated_version and not options.update
begin = page.index(HEADER)
end = page.index("\n\n", begin)
stated = {row.split(" | ")[0].strip("| "): row for row in page[begin:end].splitlines()[2:]}
decoding_begin = page.index(DECODING)
decoding_end = page.index("\n\n", decoding_begin)
stated_decoding = {row.split(" | ")[0].strip("| "): row for row in page[decoding_begin:decoding_end].splitlines()[2:]}

loads_begin = page.index(LOADS)
loads_end = page.index("\n\n", loads_begin)
stated_loads = {row.split(" | ")[0].strip("| "): row for row in page[loads_begin:loads_end].splitlines()[2:]}

lines, failures, loads_lines = [HEADER, "|---|---|---|---|---|"], [], [LOADS, "|---|---|---|"]


def with_cubin(text, use, chip="sm_90a"):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.mlir"
        path.write_text(text)
        return use(programs.make_cubin(path, Path(folder), options.compiler, "f", chip))


def measure(name, text, count):
    kernels = with_cubin(text, lambda cubin: cycles.measure_cubin(programs, cubin))
    if len(kernels) != count:
        raise SystemExit(f"{name}: expected {count} kernels with products of warpgroups, but found {len(kernels)}")
    return sorted(kernels, key=lambda kernel: kernel.name)


measured = [(name, *measure(name, text, 1)) for name, text in KERNELS.items()]
for name, text in GRADIENTS.items():
    measured += [(name.format(part), kernel) for part, kernel in zip(("queries", "rows"), measure(name, text, 2))]
for name, text in SPLIT.items():
    measured += [(name.format(part), kernel) for part, kernel in zip(("queries", "keys", "values"), measure(name, text, 3))]
# For rows far away, for queries, and for rows nearby.
measured.append((JOINED, measure(JOINED, artefacts.multipole_backward(128, 8192, 128, 4, 8, 2), 3)[1]))
# Kernels for queries and for rows of tokens, then of codewords.
measured += [(CODEWORDS.format(part), kernel) for part, kernel in
             zip(("queries", "rows"), measure(CODEWORDS, artefacts.vq_backward(128, 8192, 512, 512, 8, 2), 4)[2:])]
measured = [row for name, kernel in measured
            for row in [(name, kernel), *([(f"{name}, with a mask", kernel.masked)] if kernel.masked else [])]]
for name, kernel in measured:
    found = [round(kernel.results[machine.name].cycles) for machine in (NEAR, MIDDLE, FAR)]
    lines.append(f"| {name} | {kernel.shape.keys} | {sum(kernel.instructions.values())}, {kernel.moves} | "
                 f"{', '.join(map(str, found))} | {100 * kernel.get_share(MIDDLE):.0f} % |")
    # More than three quarters of what the second-level cache gives to all.
    asks_for_much = kernel.get_load(MIDDLE) * kernel.cluster > 0.75 * ALL.rate
    together = round(kernel.results[ALL.name].cycles)
    if asks_for_much:
        loads_lines.append(f"| {name} | {kernel.get_load(MIDDLE):.1f} | {found[1]}, {together} |")
    if kernel.spills:
        failures.append(f"{name}: {kernel.spills} loads and stores of spilled registers")
    if not is_compared:
        continue
    if name not in stated:
        failures.append(f"{name}: is not in the table")
        continue
    cells = stated[name].strip("| ").split(" | ")
    for place, now, before in zip(("L2", "middle", "HBM"), found, map(int, cells[3].split(", "))):
        if now > before * (1 + TOLERANCE):
            failures.append(f"{name}: {now} cycles with loads from '{place}'; the page says {before}")
    if asks_for_much and name not in stated_loads:
        failures.append(f"{name}: is not in the table of loads of all multiprocessors")
    elif asks_for_much and together > (before := int(stated_loads[name].strip("| ").split(", ")[-1])) * (1 + TOLERANCE):
        failures.append(f"{name}: {together} cycles with loads of all multiprocessors; the page says {before}")
    if kernel.moves > int(cells[2].split(", ")[1]) + 4:
        failures.append(f"{name}: {kernel.moves} moves; the page says {cells[2].split(', ')[1]}")
decoding_lines = [DECODING, "|---|---|---|---|---|"]
def find_loop(text, warps, chip):
    functions = with_cubin(text, lambda cubin: sass.disassemble(programs.nvdisasm, str(cubin)), chip)
    (loop,) = filter(None, (decode.find_loop(code, warps) for code in functions.values()))
    return loop


for name, (text, warps) in FEW.items():
    loop = find_loop(text, warps, "sm_90a")
    # A B200 has code of its own.
    there = [(loop, decode.H100), (loop, decode.H200), (find_loop(text, warps, "sm_100"), decode.B200)]
    found = [loop.simulate(decode.ALWAYS), *(loop.simulate(memory) for loop, memory in there)]
    shares = [f"{100 * loop.get_share(memory, time):.0f} %" for (loop, memory), time in zip(there, found[1:])]
    decoding_lines.append(f"| {name} | {loop.tile_bytes}, {len(loop.body)} | {loop.blocks} | "
                          f"{', '.join(f'{time:.0f}' for time in found)} | {', '.join(shares)} |")
    if not is_compared:
        continue
    if name not in stated_decoding:
        failures.append(f"{name}: is not in the table of few queries")
        continue
    before = [int(time) for time in stated_decoding[name].strip("| ").split(" | ")[3].split(", ")]
    failures += [f"{name}: {now:.0f} cycles for a tile; the page says {then}"
                 for now, then in zip(found, before) if now > then * (1 + TOLERANCE)]
if is_compared:
    names = {line.split(" | ")[0].strip("| ") for line in lines + decoding_lines}
    failures += [f"{name}: is in the table and was not looked at" for name in (stated.keys() | stated_decoding.keys()) - names]
if options.update:
    page = page[:decoding_begin] + "\n".join(decoding_lines) + page[decoding_end:]
    page = page[:loads_begin] + "\n".join(loads_lines) + page[loads_end:]
    page = page[:begin] + "\n".join(lines) + page[end:]
    page_path.write_text(page.replace(f"ptxas {stated_version}", f"ptxas {version}"))
said = (
    "written" if options.update else "as stated" if is_compared
    else f"without spills, cycles not compared: this is ptxas {version}, not {stated_version}"
)
print("\n".join(failures or [f"{len(lines) + len(decoding_lines) - 4} loops {said}"]))
raise SystemExit(bool(failures))
