# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks the table of kernels in docs/results/gpu-kernels.md, of all operations that
have a form for GPUs: their examples, and those of large heads. The PTX must have no
calls, no local memory, and f64 only where it is meant; where there is ptxas, no
register is spilled and no more are used than the page says.

    families.py <fovea-compile> <source> [--ptxas PROGRAM] [--update] [--times] [--every N]

With --times, writes how long it takes to make PTX of each instead.
"""

import argparse
import collections
import itertools
import pathlib
import re
import subprocess
import sys
import time

import ptxas

HEADER = "| kernels of | chip | number | registers | spilled | mma / ldmatrix / cp.async / wgmma / TMA |"
TIMES_HEADER = "| MLIR to PTX | kernels | sm_80, ms | sm_90a, ms |"
# Sums that are not to lose the small numbers among them.
USES_F64 = {"conv_apply", "conv", "conv_recover", "conv_apply_backward", "conv_backward", "low_rank", "low_rank_backward"}
COUNTED = (r"\bmma\.sync", r"\bldmatrix\.sync", r"\bcp\.async\.c[ga]", r"\bwgmma\.mma_async", r"\bcp\.async\.bulk\.tensor")

parser = argparse.ArgumentParser()
parser.add_argument("compiler")
parser.add_argument("source", type=pathlib.Path)
parser.add_argument("--ptxas")
parser.add_argument("--update", action="store_true")
parser.add_argument("--times", action="store_true")
# One row of so many.
parser.add_argument("--every", type=int, default=1)
options = parser.parse_args()
if options.every > 1 and (options.update or options.times):
    parser.error("--every: tables are written whole")
page_path = options.source / "docs" / "results" / "gpu-kernels.md"
sys.path.insert(0, str(options.source / "benchmarks" / "gpu"))
import artefacts  # noqa: E402


def vq_backward(dtype, H, G, D, E, *, has_state):
    """The gradient of a window of 1024 tokens, with blocks of 128 and 512 codes."""
    def rows(heads, number, width, element=dtype):
        return f"tensor<1x{heads}x{number}x{width}x{element}>"

    types = {"q": rows(H, 1024, D), "z": f"tensor<1x{G}x1024xi32>", "v": rows(G, 1024, E), "c": f"tensor<{G}x512x{D}x{dtype}>",
             "o": rows(H, 1024, E), "l": f"tensor<1x{H}x1024xf32>", "dk": rows(G, 1024, D)}  # fmt: skip
    results = ["q", "dk", "v"]
    if has_state:
        types |= {"m": rows(G, 512, E, "f32"), "n": f"tensor<1x{G}x512xi32>", "kz": f"tensor<1x{G}x256xi32>",
                  "kv": rows(G, 256, E), "p": "tensor<i64>", "kk": rows(G, 256, D)}  # fmt: skip
        results += ["m", "kk", "kv"]

    def clause(keyword, names):
        present = [name for name in names.split() if name in types]
        listed = ", ".join(f"%{name}" for name in present)
        return f" {keyword}({listed} : {', '.join(types[name] for name in present)})" if present else ""

    kinds = ", ".join(types[name] for name in results)
    return (
        f"func.func @f({', '.join(f'%{name}: {kind}' for name, kind in types.items())}) -> ({kinds}) {{\n"
        f"  %r:{len(results)} = attn.vq_backward{clause('ins', 'q z v c')}{clause('state', 'm n kz kv p')}"
        f"{clause('forward', 'o l')}{clause('gradient', 'o')}{clause('d_next_state', 'm kk kv')}"
        f"{clause('outs', 'q dk v')}{clause('d_state', 'm kk kv')} {{block = 128 : i64, causal}} -> {kinds}\n"
        f"  return {', '.join(f'%r#{i}' for i in range(len(results)))} : {kinds}\n}}\n")


def large():
    """Functions of heads of 128 columns, as benchmarks run them."""
    q, k, l = "tensor<1x8x4096x128xbf16>", "tensor<1x2x4096x128xbf16>", "tensor<1x8x4096xf32>"
    yield "fast_multipole, D = 128", "f", artefacts.multipole(128, 8192, 128, 4, 8, 2)[0]
    yield "vq, D = 128", "f", artefacts.vq(128, 8192, 512, 512, 8, 2)
    yield "vq_backward, D = 128", "f", artefacts.vq_backward(128, 8192, 512, 512, 8, 2)
    yield "vq_backward with a state", "f", vq_backward("f32", 8, 2, 64, 64, has_state=True)
    yield "vq_backward with a state, bf16", "f", vq_backward("bf16", 8, 2, 128, 128, has_state=True)
    yield "vq_backward, D = 128, E = 1536", "f", vq_backward("bf16", 1, 1, 128, 1536, has_state=False)
    yield "dense with a bias, D = 128", "f", (
        f"func.func @f(%q: {q}, %k: {k}, %b: tensor<1x8x4096x4096xbf16>, %o: {q}) -> {q} {{\n"
        f"  %r = attn.dense ins(%q, %k, %k : {q}, {k}, {k}) bias(%b : tensor<1x8x4096x4096xbf16>)\n"
        f"      outs(%o : {q}) -> {q}\n  return %r : {q}\n}}\n")
    r, u = "tensor<8x4096x128xbf16>", "tensor<8x128xbf16>"
    yield "relative keys, D = 128", "f", (
        f"func.func @f(%q: {q}, %k: {k}, %r: {r}, %u: {u}, %o: {q}) -> {q} {{\n"
        f"  %y = attn.stream query(%q : {q}) source(%k, %k : {k}, {k}) relative(%r, %u : {r}, {u})\n"
        f"      ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal>\n"
        f"      outs(%o : {q}) {{scale = 8.838835e-02 : f64}} -> {q}\n  return %y : {q}\n}}\n")
    z, c = "tensor<1x2x4096xi32>", "tensor<2x512x128xbf16>"
    yield "vq with relative keys, D = 128", "f", (
        f"func.func @f(%q: {q}, %z: {z}, %v: {k}, %c: {c}, %r: {r}, %u: {u}, %o: {q}) -> {q} {{\n"
        f"  %y = attn.vq ins(%q, %z, %v, %c : {q}, {z}, {k}, {c}) relative(%r, %u : {r}, {u})\n"
        f"      outs(%o : {q}) {{block = 512 : i64, causal}} -> {q}\n  return %y : {q}\n}}\n")
    yield "dense with a soft-cap, D = 128", "f", (
        f"func.func @f(%q: {q}, %k: {k}, %o: {q}) -> {q} {{\n"
        f"  %r = attn.dense ins(%q, %k, %k : {q}, {k}, {k}) score {{\n"
        f"    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):\n"
        f"      %c = arith.constant 5.0e+01 : f32\n      %p = arith.divf %s, %c : f32\n"
        f"      %t = math.tanh %p : f32\n      %y = arith.mulf %t, %c : f32\n      attn.yield %y : f32\n    }}\n"
        f"      outs(%o : {q}) -> {q}\n  return %r : {q}\n}}\n")
    one = "tensor<1x8x1x128xbf16>"
    yield "dense with one query, D = 128", "f", (
        f"func.func @f(%q: {one}, %k: {k}, %o: {one}) -> {one} {{\n"
        f"  %r = attn.dense ins(%q, %k, %k : {one}, {k}, {k}) outs(%o : {one}) -> {one}\n  return %r : {one}\n}}\n")
    for name, block, unit, entries in (("blocks of 64 rows", 64, 64, 16), ("single rows", 1, 1, 2048)):
        lists = f"tensor<1x2x{4096 // block}x{entries}xi32>"
        yield f"lists of {name}, D = 128", "f", (
            f"func.func @f(%q: {q}, %k: {k}, %r: {lists}, %o: {q}) -> {q} {{\n"
            f"  %y = attn.stream query(%q : {q}) source(%k, %k : {k}, {k}) rows(%r : {lists}) unit = {unit}\n"
            f"      ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal>\n"
            f"      outs(%o : {q}) {{block = {block} : i64, scale = 8.838835e-02 : f64}} -> {q}\n  return %y : {q}\n}}\n")
    for name, block, unit, entries, H, G in (("lists of blocks of 64 rows", 64, 64, 16, 8, 2), ("lists of single rows", 128, 1, 1024, 8, 2),
                                             ("lists for single queries", 1, 1, 2048, 128, 1)):
        q, k, l = f"tensor<1x{H}x4096x128xbf16>", f"tensor<1x{G}x4096x128xbf16>", f"tensor<1x{H}x4096xf32>"
        lists = f"tensor<1x{G}x{4096 // block}x{entries}xi32>"
        yield f"gradients of {name}, D = 128", "f", (
            f"func.func @f(%q: {q}, %k: {k}, %r: {lists}, %out: {q}, %lse: {l}, %d: {q}, %iq: {q}, %ik: {k}) -> ({q}, {k}, {k}) {{\n"
            f"  %y:3 = attn.stream_backward query(%q : {q}) source(%k, %k : {k}, {k}) rows(%r : {lists}) unit = {unit}\n"
            f"      ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal>\n"
            f"      forward(%out, %lse : {q}, {l}) gradient(%d : {q}) outs(%iq, %ik, %ik : {q}, {k}, {k})\n"
            f"      {{block = {block} : i64, scale = 8.838835e-02 : f64}} -> {q}, {k}, {k}\n"
            f"  return %y#0, %y#1, %y#2 : {q}, {k}, {k}\n}}\n")
    q, k, l = "tensor<1x8x4096x128xbf16>", "tensor<1x2x4096x128xbf16>", "tensor<1x8x4096xf32>"
    yield "dense_backward, D = 128", "f", (
        f"func.func @f(%q: {q}, %k: {k}, %out: {q}, %lse: {l}, %d: {q}, %iq: {q}, %ik: {k}) -> ({q}, {k}, {k}) {{\n"
        f"  %r:3 = attn.dense_backward ins(%q, %k, %k : {q}, {k}, {k}) forward(%out, %lse : {q}, {l}) gradient(%d : {q})\n"
        f"      outs(%iq, %ik, %ik : {q}, {k}, {k}) {{mask = #attn.mask<causal>}} -> {q}, {k}, {k}\n"
        f"  return %r#0, %r#1, %r#2 : {q}, {k}, {k}\n}}\n")
    w1, w2 = (f"tensor<1x4x{rows}x128xbf16>" for rows in (128, 256))
    q, k, l = "tensor<1x8x1024x128xbf16>", "tensor<1x2x1024x128xbf16>", "tensor<1x8x1024xf32>"
    kinds = f"{q}, {k}, {k}, {w1}, {w2}, {w1}, {w2}"
    yield "fast_multipole_backward, D = 128", "f", (
        f"func.func @f(%q: {q}, %k: {k}, %a: {w1}, %b: {w2}, %out: {q}, %lse: {l}) -> ({kinds}) {{\n"
        f"  %r:7 = attn.fast_multipole_backward ins(%q, %k, %k : {q}, {k}, {k}) key_weights(%a, %b : {w1}, {w2})\n"
        f"      value_weights(%a, %b : {w1}, {w2}) forward(%out, %lse : {q}, {l}) gradient(%out : {q})\n"
        f"      outs(%q, %k, %k : {q}, {k}, {k}) d_key_weights(%a, %b : {w1}, {w2}) d_value_weights(%a, %b : {w1}, {w2})\n"
        f"      {{group = 128 : i64, causal}} -> {kinds}\n"
        f"  return {', '.join(f'%r#{i}' for i in range(7))} : {kinds}\n}}\n")


def examples():
    """Names, entries and texts of what is compiled."""
    for path in sorted((options.source / "test" / "Dialect" / "Attn" / "IR").glob("*/doctest.mlir")):
        text = path.read_text()
        for name in re.findall(r"^func\.func @(\w+)\(", text, re.M):
            yield name, name, text
    yield from large()


def compile_for(chip, entry, text):
    """The PTX, or None if an operation has no form for GPUs."""
    command = [options.compiler, "-", "--target=nvvm", f"--chip={chip}", f"--entry={entry}", "--emit=ptx", "-o", "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    if done.returncode == 0:
        return done.stdout
    for reason in ("has no form for GPUs", "GPU kernels take f16, bf16 and f32", "has no GPU kernels",
                   "which kernels for GPUs do not take"):
        if reason in done.stderr:
            return None
    raise SystemExit(f"@{entry}: {done.stderr.splitlines()[0]}")


def find_late_writes(ptx):
    """Instructions that write an operand of wgmma after the last wgmma.fence: of a warpgroup's
    registers PTX says that they must be written before it."""
    written, found = None, []
    for line in ptx.splitlines():
        if "wgmma.fence" in line:
            written = {}
        elif "wgmma.wait_group" in line or written is None:
            written = None
        elif "wgmma.mma_async" in line:
            sums, rest = re.search(r"\{(.*?)\}, (.*)", line).groups()
            # What is not added to is only written.
            adds = "setp.ne.b32 p, 0, 0" not in line
            read = set(re.findall(r"%r\d+", (sums if adds else "") + rest.split("}")[0] * rest.startswith("{")))
            found += [f"'{written[register]}' after wgmma.fence" for register in sorted(read & written.keys())]
            # Registers of products in flight.
            for register in re.findall(r"%r\d+", sums):
                written.pop(register, None)
        elif match := re.match(r"\s*[a-z][\w.:]* *\t*(%r\d+),", line):
            written[match[1]] = line.strip()
    return found[:1]


def read_page(header):
    page = page_path.read_text()
    start = page.index(header)
    end = page.index("\n\n", start)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page[start:end].splitlines()[2:]]
    return page[:start], page[end:], {(row[0], row[1]): row[2:] for row in rows}


def write_times():
    """Seconds of whole processes, less those of one that compiles nothing."""
    def run(chip, entry, text):
        begin = time.perf_counter()
        found = compile_for(chip, entry, text)
        return time.perf_counter() - begin, found

    empty = "func.func @f(%a: tensor<1xf32>) -> tensor<1xf32> { return %a : tensor<1xf32> }\n"
    start = min(run("sm_80", "f", empty)[0] for _ in range(5))
    lines = [TIMES_HEADER, "|---|---|---|---|"]
    for name, entry, text in examples():
        taken = [run(chip, entry, text) for chip in ("sm_80", "sm_90a")]
        if taken[0][1]:
            number = len(re.findall(r"^\.visible \.entry", taken[0][1], re.M))
            times = " | ".join(f"{1000 * (seconds - start):.0f}" for seconds, _ in taken)
            lines.append(f"| {name} | {number} | {times} |")
    before, after, _ = read_page(TIMES_HEADER)
    page_path.write_text(before + "\n".join(lines) + after)


if options.times:
    write_times()
    raise SystemExit

before, after, stated = read_page(HEADER)
lines, failures, refused = [HEADER, "|---|---|---|---|---|---|"], [], []
for name, entry, text in itertools.islice(examples(), 0, None, options.every):
    codes = collections.OrderedDict()
    ptx = compile_for("sm_80", entry, text)
    if not ptx:
        refused.append(name)
        continue
    codes["sm_80"] = ptx
    # Kernels of their own have narrow products only; gradients do without those of sm_80.
    if ("m16n8k16" in ptx or re.search("backward|gradients", name)) and "wgmma" in (ptx := compile_for("sm_90a", entry, text)):
        codes["sm_90a"] = ptx
    for chip, ptx in codes.items():
        entries = len(re.findall(r"^\.visible \.entry|^\.entry", ptx, re.M))
        if entries == 0:
            continue
        counts = " / ".join(str(len(re.findall(pattern, ptx))) for pattern in COUNTED)
        wrong = [word for word in (".extern .func", "__nv_", ".local") if word in ptx]
        wrong += find_late_writes(ptx)
        if ".f64" in ptx and name.split(",")[0] not in USES_F64:
            wrong.append(".f64")
        failures += [f"{name} on {chip}: its PTX has {word}" for word in wrong]
        registers, spilled, row = None, None, stated.get((name, chip), ["0", "0", "0", ""])
        if options.ptxas:
            registers, spilled = ptxas.measure(options.ptxas, chip, ptx)
            if spilled > int(row[2]):
                failures.append(f"{name} on {chip}: {spilled} bytes of registers are spilled; the page says {row[2]}")
            if registers > int(row[1]):
                failures.append(f"{name} on {chip}: {registers} registers; the page says {row[1]}")
        if [str(entries), counts] != [row[0], row[3]]:
            failures.append(f"{name} on {chip}: {entries} kernels, {counts}; the page says {row}")
        lines.append(f"| {name} | {chip} | {entries} | {registers} | {spilled} | {counts} |")
if options.update:
    page_path.write_text(before + "\n".join(lines) + after)
    failures = [line for line in failures if "the page says" not in line]
print("\n".join(failures or [f"{len(lines) - 2} rows as stated"]))
print("not for GPUs: " + (", ".join(refused) or "none"))
raise SystemExit(bool(failures))
