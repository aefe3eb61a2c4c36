# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks the section of docs/results/gpu-model.md on whole calls: by the model none takes 3 % longer than it says.

    calls.py <fovea-compile> <fovea-opt> <source> [--update]

Other versions of ptxas make other code: cycles of those are not compared.

Kernels with products of warpgroups take the cycles of their main loops, for the tiles of each block. All other
kernels take the time of their arguments' bytes, each read or written once. Loops of before are those that the
section Before of the page has.
"""

import argparse
import functools
import math
import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("compiler")
parser.add_argument("optimizer")
parser.add_argument("source", type=Path)
parser.add_argument("--update", action="store_true")
options = parser.parse_args()
sys.path[:0] = [str(options.source / folder) for folder in ("utils/fovea_cycles", "benchmarks/gpu")]
import artefacts  # noqa: E402
import cycles  # noqa: E402
from artefacts import tensor  # noqa: E402
from decode import H200  # noqa: E402
from launches import (  # noqa: E402
    BYTES_PER_MS,
    CYCLES_PER_MS,
    WIDTHS,
    count_bytes,
    find_launches,
    find_ranges,
    find_version,
    lower,
    measure,
    measure_narrow,
    order_blocks,
    schedule,
)
from model import ALL, FAR, MIDDLE, NEAR  # noqa: E402

HEADER = "| call | asked, ms | estimated then, ms | loops then, ms | now, ms: L2, middle, most | by bytes | calibrated, ms |"
CALIBRATION = "| call | measured, ms | loop, ms | measured / loop |"
BESIDE = "| call | blocks of queries of a multiprocessor | loops, ms | beside their tiles, ms | of that first loads, ms |"
ORDER = "| tokens | head by head, ms | in sections of heads, ms | even, ms |"
TOLERANCE = 0.03
#: Of a large copy on the H200 of docs/results/h200.md.
COPIED_PER_MS = 4.2e9
QUERIES = 128  # of a block
H, G = 64, 8

page_path = options.source / "docs" / "results" / "gpu-model.md"
page = page_path.read_text()
measured = (options.source / "docs" / "results" / "h200.md").read_text()
programs = cycles.Programs.find()


@functools.cache
def compile_call(text):
    return measure(programs, options.compiler, options.optimizer, text)


@dataclass
class Loop:
    """Keys of a tile, and cycles with loads from `L2`, `middle`, and what takes longest."""

    keys: int
    cycles: tuple[float, float, float]

    @staticmethod
    def of(kernel):
        found = {machine.name: kernel.results[machine.name].cycles for machine in (NEAR, MIDDLE, FAR, ALL)}
        return Loop(kernel.shape.keys, (found[NEAR.name], found[MIDDLE.name], max(found.values())))

    @staticmethod
    def before(name, version):
        """As the section Before has it: -1 is the oldest one, -2 the one that an H200 has run."""
        rows = re.findall(rf"^\| {re.escape(name)} \| (\d+) \| \d+, \d+ \| (\d+), (\d+), (\d+) \|", page, re.M)
        keys, *times = map(int, rows[version])
        return Loop(keys, tuple(times))


@dataclass
class Estimate:
    """Milliseconds of loops, with loads from `L2`, `middle`, and what takes longest; bytes of other kernels."""

    loops: tuple[float, float, float] = (0.0, 0.0, 0.0)
    bytes: int = 0

    def __add__(self, other):
        return Estimate(tuple(a + b for a, b in zip(self.loops, other.loops)), self.bytes + other.bytes)

    @property
    def times(self):
        rates = BYTES_PER_MS, BYTES_PER_MS, COPIED_PER_MS
        return [loop + self.bytes / rate for loop, rate in zip(self.loops, rates)]


def time_blocks(counts, loop, stay=False):
    return Estimate(tuple(schedule(counts, time, stay) for time in loop.cycles))


def count_tiles(sources, N, keys, block=QUERIES):
    """For each block of 128 queries, the last first. Of each source: what says from where to where a block of the operation
    reads it, how many rows it has, and whether a causal mask ends it at the last query. Several ranges are one list of rows."""
    counts = []
    for first in reversed(range(0, N, QUERIES)):
        lengths = []
        for ranges, rows, is_causal in sources:
            bounds = [read(first // block) for read in ranges]
            ends = [min(end, rows, first + QUERIES if is_causal else rows) for _, end in bounds]
            each = [max(0, end - begin) for end, (begin, _) in zip(ends, bounds)]
            lengths += [sum(each)] if len(each) > 1 and not is_causal else each
        counts.append(sum(math.ceil(length / keys) for length in lengths))
    return counts


def count_key_bytes(N, D):
    """Of keys and values of all heads."""
    return 2 * G * N * D * WIDTHS["bf16"]


def causal(N):
    return [([lambda block: (0, N)], N, True)]


def one_loop(loops):
    (loop,) = loops.values()
    return Loop.of(loop)


def others(launches, loops, leaves_out=lambda text: False):
    """Bytes of all kernels without products of warpgroups."""
    return Estimate(bytes=sum(count_bytes(text) for name, text in launches if name not in loops and not leaves_out(text)))


# Blocks of loops before went head by head.


def forward(N, D, before=None):
    """Causal attention."""
    if before:
        return time_blocks(count_tiles(causal(N), N, before.keys) * H, before)
    loop = one_loop(compile_call(artefacts.dense(D, True, H, G, N))[1])
    return time_blocks(order_blocks(count_tiles(causal(N), N, loop.keys), H, G, count_key_bytes(N, D)), loop)


def backward(N, D):
    q, k, l = tensor(1, H, N, D), tensor(1, G, N, D), tensor(1, H, N, type="f32")
    launches, loops, _ = compile_call(
        f"func.func @f(%q: {q}, %k: {k}, %v: {k}, %o: {q}, %l: {l}, %d: {q}) -> ({q}, {k}, {k}) {{\n"
        f"  %r:3 = attn.dense_backward ins(%q, %k, %v : {q}, {k}, {k}) forward(%o, %l : {q}, {l}) gradient(%d : {q})\n"
        f"      outs(%q, %k, %v : {q}, {k}, {k}) {{mask = #attn.mask<causal>}} -> {q}, {k}, {k}\n"
        f"  return %r#0, %r#1, %r#2 : {q}, {k}, {k}\n}}\n")
    queries, rows = (Loop.of(loops[name]) for name, _ in launches if name in loops)
    passing = [(N - first) // rows.keys * (H // G) for first in range(0, N, QUERIES)]
    return time_blocks(count_tiles(causal(N), N, queries.keys) * H, queries) + time_blocks(passing * G, rows) + others(launches, loops)


def multipole(N, before=None):
    launches, loops, expanded = compile_call(artefacts.multipole(128, N, 128, 4, H, G)[0])
    near, far = find_ranges(expanded, N)
    counts = count_tiles([(near, N, True), (far, N, False)], N, (before or one_loop(loops)).keys)
    if before:
        return time_blocks(counts * H, before)
    return time_blocks(order_blocks(counts, H, G), one_loop(loops), stay=True) + others(launches, loops)


def vq(N, codes, block, before=None):
    launches, loops, expanded = compile_call(artefacts.vq(128, N, codes, block, H, G))
    tokens, codewords = find_ranges(expanded, N)
    sources = [(tokens, N, True), (codewords, codes, False)]
    counts = count_tiles(sources, N, (before or one_loop(loops)).keys, block)
    if before:
        return time_blocks(counts * H, before)
    return time_blocks(order_blocks(counts, H, G), one_loop(loops), stay=True) + others(launches, loops)


def vq_decode(batch, codes, block):
    """A state in place. Blocks of threads for a key head go through tokens that codes name and then through codewords with means,
    by the model of single queries. Other numbers by their bytes: keys, which all sequences share, are in the cache."""
    q, z, v, c = tensor(batch, H, 1, 128), tensor(batch, G, 1, type="i32"), tensor(batch, G, 1, 128), tensor(G, codes, 128)
    state = [tensor(batch, G, codes, 128, type="f32"), tensor(batch, G, codes, type="i32"), tensor(batch, G, 2 * block, type="i32"),
             tensor(batch, G, 2 * block, 128), "tensor<i64>"]
    kinds = ", ".join(state)
    given = [(number, kind.replace("tensor", "memref"), kind) for number, kind in enumerate(state)]
    token = ", ".join(f"%{name}: {kind}" for name, kind in zip("qzvco", (q, z, v, c, q)))
    lowered = lower(options.compiler, (
        f"func.func @f({token}, {', '.join(f'%m{number}: {buffer}' for number, buffer, _ in given)}) -> {q} {{\n"
        + "".join(f"  %s{number} = bufferization.to_tensor %m{number} restrict writable : {buffer} to {kind}\n"
                  for number, buffer, kind in given)
        + f"  %r, %n:5 = attn.vq_decode ins(%q, %z, %v, %c : {q}, {z}, {v}, {c}) outs(%o : {q})\n"
          f"      state(%s0, %s1, %s2, %s3, %s4 : {kinds}) {{block = {block} : i64}} -> {q}, {kinds}\n"
        + "".join(f"  bufferization.materialize_in_destination %n#{number} in restrict writable %m{number} : ({kind}, {buffer}) -> ()\n"
                  for number, buffer, kind in given)
        + f"  return %r : {q}\n}}\n"))
    # The kernel of products, the only one with memory that is shared.
    ((number, shared),) = re.findall(r"blocks in \(%c(\d+)\S* .*dynamic_shared_memory_size %c(\d+)", lowered)
    parts, rest = divmod(int(number), batch * G)
    if rest or parts > (2 * block + codes) // 128:
        raise SystemExit(f"vq_decode: {number} blocks of threads for {batch * G} key heads")
    # Sums of parts, written and read.
    left = 2 * 4 * batch * H * parts * (128 + 2)
    bytes = count_bytes(re.search(r"func\.func @f\(.*\)", lowered)[0]) + left
    loops = 0.0
    for kind, rows in (("codes", 2 * block), ("means", codes)):
        (loop,) = measure_narrow(programs, options.compiler, artefacts.single(kind)).values()
        loop = replace(loop, shared_bytes=int(shared))
        tiles = batch * G * math.ceil(rows / (loop.tile_bytes // 512))
        # Keys, half of a tile, come from the cache, which gives no more than it has.
        most = ALL.rate * cycles.MULTIPROCESSORS * cycles.CLOCK_GHZ * 1e-3
        memory = replace(H200, terabytes=min(most, H200.terabytes * loop.loaded_bytes / (loop.loaded_bytes - loop.tile_bytes // 2)))
        loops += tiles / (loop.blocks * cycles.MULTIPROCESSORS) * loop.simulate(memory) / CYCLES_PER_MS
    return Estimate((max(0.0, loops - bytes / BYTES_PER_MS),) * 3, bytes)


def compressed(N, ratio, split, vip, heads, width):
    """A layer of VCC: nodes are chosen and read, rows attend to one another, and nodes are updated."""
    roots, features = N // ratio, heads * width
    nodes, listed = N + roots, N // ratio + split * (ratio - 1)
    rows = vip + listed
    t, r, l = tensor(1, nodes, features), tensor(1, listed, features), tensor(1, listed, type="i32")
    q, k, a = tensor(1, heads, vip, width), tensor(1, heads, roots, width), tensor(1, heads, rows, width)
    s, w, m = tensor(1, roots, type="f32"), tensor(1, 1, rows, type="f32"), t.replace("tensor", "memref")
    shape = f"shape = #attn.tree<ratio = {ratio}, levels = 1>"
    text = (
        f"func.func @f(%m: {m}, %q: {q}, %k: {k}, %new: {r}, %aq: {a}, %ak: {a}, %av: {a}, %w: {w}, %o: {a}) -> ({a}, {r}) {{\n"
        f"  %t = bufferization.to_tensor %m restrict writable : {m} to {t}\n"
        f"  %a = tensor.empty() : {l}\n  %b = tensor.empty() : {l}\n"
        f"  %l, %i = attn.tree_select ins(%t : {t}) outs(%a, %b : {l}, {l}) {{{shape}, budgets = array<i64: {split}>}}\n"
        f"      -> {l}, {l} score {{\n  ^bb0(%rows: {tensor(1, roots, features)}):\n    %e = tensor.empty() : {s}\n"
        f"    %p = attn.tree_score ins(%q, %k : {q}, {k}) outs(%e : {s}) {{scale = 0.125 : f64}} -> {s}\n    attn.yield %p : {s}\n  }}\n"
        f"  %c = tensor.empty() : {r}\n"
        f"  %f = attn.tree_fetch ins(%t : {t}) nodes(%l, %i : {l}, {l}) outs(%c : {r}) {{{shape}}} -> {r}\n"
        f"  %y = attn.dense ins(%aq, %ak, %av : {a}, {a}, {a}) log_weight(%w : {w}) outs(%o : {a}) -> {a}\n"
        f"  %u = attn.tree_update ins(%new : {r}) nodes(%l, %i : {l}, {l}) outs(%t : {t}) {{{shape}}} -> {t}\n"
        f"  bufferization.materialize_in_destination %u in restrict writable %m : ({t}, {m}) -> ()\n  return %y, %f : {a}, {r}\n}}\n")
    launches, loops, _ = compile_call(text)
    loop = one_loop(loops)
    counts = [math.ceil(rows / loop.keys)] * math.ceil(rows / QUERIES) * heads
    # Of the tree only the listed nodes are read and written: as many bytes as rows have.
    tree = f"memref<1x{nodes}x{features}xbf16>"
    moved = [(name, text.replace(tree, f"memref<1x{listed}x{features}xbf16>")) for name, text in launches]
    # Scores of nodes: one block of threads for each head goes through all of them, in tiles of 64.
    (choice,) = measure_narrow(programs, options.compiler, text).values()
    serial = roots // 64 * choice.simulate(H200) / CYCLES_PER_MS
    return Estimate((serial,) * 3) + time_blocks(counts, loop) + others(moved, loops)


def convolutions(N, bases, heads, width):
    """By transforms; without rows that are computed again."""
    b, z = tensor(1, heads, bases, N, type="f32"), tensor(1, heads, bases, type="i32")
    v, c = tensor(1, heads, N, width), tensor(1, heads, type="i32")
    lowered = lower(options.compiler, (
        f"func.func @f(%b: {b}, %z: {z}, %v: {v}, %o: {v}, %c: {c}) -> ({v}, {c}) {{\n"
        f"  %r, %n = attn.conv_apply ins(%b, %z, %v : {b}, {z}, {v}) outs(%o, %c : {v}, {c}) -> {v}, {c}\n"
        f"  return %r, %n : {v}, {c}\n}}\n"))
    # Rows that are computed again, if there are some.
    counts = re.search(r"^    return %\w+, (%\w+)", lowered, re.M)[1]
    # What follows is for machines without cuFFT.
    lowered = lowered[:lowered.index("} else {", lowered.index("scf.if"))]
    launches = [(name, text) for name, text in find_launches(lowered) if f"({counts} " not in text and f" {counts} :" not in text]
    lines = re.findall(r"@fovea_rt_gpu_transform\(%\w+, %c(\d+)_i64, %c(\d+)_i64", lowered)
    transformed = sum(2 * 8 * int(length) * int(number) for length, number in lines)
    return others(launches, {}) + Estimate(bytes=transformed)


def decode(batch, M):
    """A query of each head, of all keys."""
    q, k = tensor(batch, H, 1, 128), tensor(batch, G, M, 128)
    lowered = lower(options.compiler, (
        f"func.func @f(%q: {q}, %k: {k}, %v: {k}) -> {q} {{\n  %o = tensor.empty() : {q}\n"
        f"  %r = attn.dense ins(%q, %k, %v : {q}, {k}, {k}) outs(%o : {q}) -> {q}\n  return %r : {q}\n}}\n"))
    return others(find_launches(lowered), {})


def tell_asked(flops, *rates):
    """Milliseconds of as many operations at these rates in TFLOP/s."""
    return [flops / rate * 1e-9 for rate in rates]


def between(low, high):
    return f"{low:.0f} to {high:.0f}"


OLDEST, RAN = -1, -2
FORWARD, BACKWARD = (factor * 32768**2 / 2 * H * 128 for factor in (4, 10))
dense, gradients = forward(32768, 128), backward(32768, 128)
guessed = tell_asked(FORWARD, 500, 400), tell_asked(BACKWARD, 40, 25)
#: What was asked for, and what those who read the code and the PTX of commit fd06d1c estimated, in ms; the loop of then; the call.
calls = {
    "dense, causal, 32768 tokens": (
        *tell_asked(FORWARD, 650), between(*guessed[0]), forward(32768, 128, Loop.before("dense, causal, D = 128", OLDEST)), dense),
    "its gradients": (*tell_asked(BACKWARD, 520), between(*guessed[1]), None, gradients),
    "both": (*tell_asked(FORWARD / 650 + BACKWARD / 520, 1), between(*map(sum, zip(*guessed))), None, dense + gradients),
    "fast multipole, 65536 tokens": (
        1.5, "3.2 to 4.2", multipole(65536, Loop.before("fast multipole, 128 tokens near, D = 128", OLDEST)), multipole(65536)),
    "vq, 131072 tokens": (
        10.5, "15 to 20", vq(131072, 512, 512, Loop.before("vq, blocks of 512, 512 codewords, D = 128", OLDEST)), vq(131072, 512, 512)),
    "vq_decode, 128 sequences": (0.18, "2 to 3", None, vq_decode(128, 512, 512)),
    "compressed layer, 131072 tokens": (0.8, "1.3 to 1.6", None, compressed(131072, 16, 90, 48, 12, 64)),
    "convolutions, 131072 tokens": (9, "20 to 28", None, convolutions(131072, 8, 64, 64)),
    "one query, 131072 keys": (None, "3", None, decode(1, 131072)),
    "128 queries, 131072 keys each": (None, "", None, decode(128, 131072)),
}



def find_measured(D, mask, N):
    """Milliseconds on an H200."""
    return float(re.search(rf"^\| dense \| {D} \| {mask} \| {N} \| sm_90a \| ([\d.]+) \|", measured, re.M)[1])


calibration, factors = [CALIBRATION, "|---|---|---|---|"], {}
for D, N in ((64, 16384), (64, 65536), (128, 16384), (128, 65536)):
    time, loop = find_measured(D, "causal", N), forward(N, D, Loop.before(f"dense, causal, D = {D}", RAN)).loops[1]
    factors[D] = time / loop
    calibration.append(f"| dense, causal, {N} tokens, D = {D} | {time:.4g} | {loop:.3g} | {time / loop:.2f} |")

# What a block takes beside its tiles, from two lengths without a mask: a N^2 + b N, of which b N is for its blocks.
short, long = (find_measured(128, "full", N) for N in (16384, 65536))
blocks_of_short = 16384 // QUERIES * H / cycles.MULTIPROCESSORS
beside_one = (short - long / 16) / (1 - 1 / 4) / blocks_of_short
# Queries and the first keys, D = 128, without anything to do meanwhile.
first_loads = (ALL.latency + 2 * QUERIES * 128 * WIDTHS["bf16"] / ALL.rate) / CYCLES_PER_MS
beside = [BESIDE, "|---|---|---|---|---|"]
for name, N in (("dense, causal, 32768 tokens", 32768), ("fast multipole, 65536 tokens", 65536), ("vq, 131072 tokens", 131072)):
    blocks = N // QUERIES * H / cycles.MULTIPROCESSORS
    beside.append(f"| {name} | {blocks:.0f} | {factors[128] * calls[name][-1].loops[1]:.3g} | {blocks * beside_one:.3g} | "
                  f"{blocks * first_loads:.3g} |")
order = [ORDER, "|---|---|---|---|"]
(loop,) = (Loop.of(kernel) for kernel in compile_call(artefacts.dense(128, True, H, G, 32768))[1].values())
for N in (1024, 2048, 4096, 8192, 16384):
    of_one = [factors[128] * count * loop.cycles[1] + beside_one * CYCLES_PER_MS for count in count_tiles(causal(N), N, loop.keys)]
    ordered = order_blocks(of_one, H, G, count_key_bytes(N, 128))
    times = schedule(of_one * H, 1), schedule(ordered, 1), sum(of_one) * H / cycles.MULTIPROCESSORS / CYCLES_PER_MS
    order.append(f"| {N} | " + " | ".join(f"{time:.3g}" for time in times) + " |")
beside_note = f"{1000 * beside_one:.1f} us for a block"

lines = [HEADER, "|---|---|---|---|---|---|---|"]
for name, (asked, estimate, then, now) in calls.items():
    times = ", ".join(f"{time:.3g}" for time in now.times)
    factor = factors[64 if name.startswith("compressed") else 128]
    slow = f"{factor * now.loops[1] + now.bytes / COPIED_PER_MS:.3g}" if now.loops[1] else ""
    lines.append(f"| {name} | {f'{asked:.3g}' if asked else ''} | {estimate} | {f'{then.loops[1]:.3g}' if then else ''} | {times} | "
                 f"{now.bytes / BYTES_PER_MS:.3g} | {slow} |")


def find_table(header):
    begin = page.index(header)
    return begin, page.index("\n\n", begin)


is_same_version = re.search(r"ptxas (\d[\d.]*\d)", page)[1] == find_version(programs)
begin, end = find_table(HEADER)
failures = []
if options.update:
    page = page[:begin] + "\n".join(lines) + page[end:]
    for table in (calibration, beside, order):
        begin, end = find_table(table[0])
        page = page[:begin] + "\n".join(table) + page[end:]
    page_path.write_text(page)
else:
    stated = {cells[0]: cells[1:] for cells in (row.strip("| ").split(" | ") for row in page[begin:end].splitlines()[2:])}
    for name, (*_, now) in calls.items():
        if name not in stated:
            failures.append(f"{name}: is not in the table")
        # Bytes are those of any version.
        elif is_same_version or not now.loops[1]:
            failures += [f"{name}: {time:.3g} ms; the page says {before}" for time, before in zip(now.times, stated[name][3].split(", "))
                         if time > float(before) * (1 + TOLERANCE)]
print("\n".join(failures or [*lines, *calibration, *beside, *order, beside_note]))
raise SystemExit(bool(failures))
