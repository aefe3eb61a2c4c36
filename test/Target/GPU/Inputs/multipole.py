# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks the section of docs/results/gpu-model.md on fast multipole attention of 65536 tokens, forward
and backward: by the model no part takes 3 % longer than it says.

    multipole.py <fovea-compile> <fovea-opt> <source> [--update]

Other versions of ptxas make other code: cycles of those are not compared.

Kernels with products of warpgroups take the cycles of their main loops, for the tiles that the ranges of
each block have, or the slots of its gathered rows; blocks go, in order, to the multiprocessor that is free
first. All other kernels take the time of their arguments' bytes, each read or written once, and so do those
of gradients, with queries and gradients of the output, if that is longer. So the sum is less than what a GPU
would take.
"""

import argparse
import math
import re
import sys
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
from launches import BYTES_PER_MS, CYCLES_PER_MS, WIDTHS, count_bytes, find_ranges, find_version, measure, order_blocks, schedule  # noqa: E402
from model import MIDDLE  # noqa: E402

N, D, GROUP, RANK = 65536, 128, 128, 4
ASKED_MS, TOLERANCE = 6, 0.03
#: Heads of queries, and of keys.
CASES = [(64, 8), (8, 8)]


def count_tiles_of_queries(ranges, keys, is_joint):
    """For each block of 128 queries, the last first. Under a causal mask no range ends behind them."""
    counts = []
    for block in reversed(range(N // GROUP)):
        lengths = [max(0, end - begin) for begin, end in (read(block) for read in ranges)]
        counts.append(sum(math.ceil(length / keys) for length in ([sum(lengths)] if is_joint else lengths)))
    return counts


def count_tiles_of_rows(ranges, rows, queries, parts):
    """For each block of 128 rows, and in it for each part of the queries, from the first tile of queries that reads some
    of the rows to the last one. With several parts the last rows are first."""
    counts = []
    spans = [[read(tile * queries // GROUP) for tile in range(N // queries)] for read in ranges]
    for first in range(0, rows, 128):
        behind = min(rows, first + 128)
        read = []
        for span in spans:
            begin = next((tile for tile, (_, end) in enumerate(span) if end > first), len(span))
            read.append(max(0, next((tile for tile, (low, _) in enumerate(span) if low >= behind), len(span)) - begin))
        counts.append([sum(count * (part + 1) // parts - count * part // parts for count in read) for part in range(parts)])
    if parts > 1:
        counts.reverse()
    return counts


def find_slots(launch):
    """Queries of a stretch, and slots for the rows that it reads, if a kernel has gathered rows."""
    found = re.search(r"memref<(\d+)x(\d+)x2xi32>", launch)
    return found and (N // int(found[1]), int(found[2]))


def count_useful_tiles(ranges, rows):
    """As many tiles of 128 queries and `rows` rows as what queries of a head read would fill, if it lay side by side."""
    return sum(max(0, end - begin) for read in ranges for begin, end in map(read, range(N // GROUP))) / rows


def count_swept_tiles(ranges, rows, queries):
    """Tiles for all blocks of 128 rows, if each went once through the blocks of queries that read some of its rows."""
    count = 0
    for first in range(0, rows, 128):
        read = [[max(begin, first) < min(end, first + 128) for begin, end in map(bounds, range(N // GROUP))] for bounds in ranges]
        count += sum(map(any, zip(*read))) * GROUP // queries
    return count


def time_blocks(counts, loop, stay=False):
    """Milliseconds until the last block is done."""
    return schedule(counts, loop.results[MIDDLE.name].cycles, stay)


programs = cycles.Programs.find()
version = find_version(programs)


def estimate(H, G):
    """Milliseconds of each part, and what else there is to say."""
    parts = {}

    def add(name, time):
        parts[name] = parts.get(name, 0.0) + time

    launches, loops, expanded = measure(programs, options.compiler, options.optimizer, artefacts.multipole(D, N, GROUP, RANK, H, G)[0])
    near, far = find_ranges(expanded, N)
    (loop,) = loops.values()
    keys = loop.shape.keys
    add("forward: summaries, by bytes", sum(count_bytes(text) for name, text in launches if name not in loops) / BYTES_PER_MS)
    counts = [a + b for a, b in zip(count_tiles_of_queries(near, keys, False), count_tiles_of_queries(far, keys, True))]
    add("forward: attention", time_blocks(order_blocks(counts, H, G), loop, stay=True))

    launches, loops, _ = measure(programs, options.compiler, options.optimizer, artefacts.multipole_backward(D, N, GROUP, RANK, H, G))
    order = [name for name, _ in launches if name in loops]
    blocks = {name: int(re.match(r"blocks in \(%c(\d+)", text)[1]) for name, text in launches}
    if len(order) != 3:
        raise SystemExit(f"expected kernels of gradients for rows of two sources and for queries, but found {len(order)}")
    rows = RANK * sum(N // GROUP >> level for level in range(len(far)))
    texts = dict(launches)
    # Of queries and gradients of the output kernels have maps; each must be read once.
    passing = 2 * H * N * D * WIDTHS["bf16"]

    def add_gradients(part, name, counts):
        add(f"backward: gradients for {part}", max(time_blocks(counts, loops[name]), (passing + count_bytes(texts[name])) / BYTES_PER_MS))

    # Rows are gathered far away, for the kernel for queries, too.
    far_name, queries_name, near_name = order
    queries, far_rows, near_rows = (loops[name] for name in (queries_name, far_name, near_name))
    slots_of_queries, slots_of_rows = (find_slots(texts[name]) for name in (queries_name, far_name))
    if not slots_of_queries or not slots_of_rows:
        raise SystemExit("expected kernels of gradients for gathered rows")
    far_tiles = math.ceil(slots_of_queries[1] / queries.shape.keys)
    add_gradients("queries", queries_name, [count + far_tiles for count in count_tiles_of_queries(near, queries.shape.keys, False)] * H)
    parts_of_rows = blocks[near_name] // (G * math.ceil(N / 128))
    counts = [[count * (H // G) for count in block] for block in count_tiles_of_rows(near, N, near_rows.shape.keys, parts_of_rows)]
    # Parts of the same rows of all heads come before others, otherwise all rows of a head.
    counts = [block * G for block in counts] if parts_of_rows > 1 else counts * G
    add_gradients("rows, near", near_name, [count for block in counts for count in block])
    counts = [slots_of_rows[0] // far_rows.shape.keys * (H // G)] * blocks[far_name]
    add_gradients("rows, far", far_name, counts)
    add("backward: all other kernels, by bytes", sum(count_bytes(text) for name, text in launches if name not in loops) / BYTES_PER_MS)
    spills = sum(loop.spills for loop in loops.values())
    even = sum(counts) * far_rows.results[MIDDLE.name].cycles / cycles.MULTIPROCESSORS / CYCLES_PER_MS
    as_they_lie = sum(map(sum, count_tiles_of_rows(far, rows, far_rows.shape.keys, 1)))
    swept = count_swept_tiles(far, rows, far_rows.shape.keys)
    for_queries = sum(count_tiles_of_queries(far, queries.shape.keys, False))
    note = (f"far tiles of a head: {count_useful_tiles(far, 64):.0f} if they were full; for rows {as_they_lie} as they lie, {swept} in "
            f"one sweep, {sum(counts) // H} now; for queries {for_queries} as they lie, {far_tiles * (N // GROUP)} now; far rows: "
            f"{max(counts)} tiles in one block, {even:.2f} ms if all multiprocessors had as many; {spills} spilled registers")
    return parts, note


header = "| kernels | " + " | ".join(f"{H} heads on {G}, ms" for H, G in CASES) + " |"
found = [estimate(H, G) for H, G in CASES]
lines = [header, "|---|" + "---|" * len(CASES)]
rows = {name: [parts[name] for parts, _ in found] for name in found[0][0]}
rows["together, at least"] = [sum(parts.values()) for parts, _ in found]
lines += [f"| {name} | " + " | ".join(f"{time:.2f}" for time in times) + " |" for name, times in rows.items()]
page_path = options.source / "docs" / "results" / "gpu-model.md"
page = page_path.read_text()
begin = page.index(header)
end = page.index("\n\n", begin)
is_same_version = re.search(r"ptxas (\d[\d.]*\d)", page)[1] == version
failures = []
if not options.update:
    stated = {cells[0]: list(map(float, cells[1:])) for cells in (
        row.strip("| ").split(" | ") for row in page[begin:end].splitlines()[2:])}
    for name, times in rows.items():
        if name not in stated:
            failures.append(f"{name}: is not in the table")
            continue
        # Bytes are those of any version.
        if not is_same_version and not name.endswith("by bytes"):
            continue
        failures += [f"{name}: {now:.2f} ms; the page says {before:.2f}"
                     for now, before in zip(times, stated[name]) if now > before * (1 + TOLERANCE) + 0.01]
if options.update:
    page_path.write_text(page[:begin] + "\n".join(lines) + page[end:])
print("\n".join(failures or lines))
for (H, G), (parts, note) in zip(CASES, found):
    total = sum(parts.values())
    print(f"{H} heads on {G}: at least {total:.2f} ms, {ASKED_MS} ms are {'missed' if total > ASKED_MS else 'not excluded'}; {note}")
raise SystemExit(bool(failures))
