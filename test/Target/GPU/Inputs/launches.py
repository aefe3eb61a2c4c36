# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a call launches: kernels with the bytes of their arguments, main loops with their cycles, and the
tiles of each block of threads. For multipole.py and calls.py, which have fovea_cycles in their path."""

import heapq
import math
import re
import subprocess
import tempfile
from pathlib import Path

import cycles
import decode
import sass

BYTES_PER_MS = 4.8e9  # of an H200
CYCLES_PER_MS = cycles.CLOCK_GHZ * 1e6
#: Keys and values of a section of heads, as StreamToGPU.cpp has it.
SECTION_BYTES = 32 << 20
WIDTHS = {"bf16": 2, "f32": 4, "f64": 8, "i32": 4, "i64": 8}


def run(*command, text=None):
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{command[0]}: {done.stderr}")
    return done.stdout


def find_version(programs):
    """Of ptxas."""
    return re.search(r"release ([\d.]+)", run(programs.ptxas, "--version"))[1]


def count_bytes(launch):
    """Of the arrays that a launch is given."""
    total = 0
    for shape, element in re.findall(r"memref<((?:\d+x)+)(\w+)", launch):
        total += math.prod(map(int, shape.split("x")[:-1])) * WIDTHS[element]
    return total


def lower(compiler, text):
    """What the host runs for a call."""
    return run(compiler, "-", "--target=nvvm", "--chip=sm_90a", "--emit=mlir", "-o", "-", text=text)


def find_launches(lowered):
    """Names and texts of launches, in order."""
    return re.findall(r"gpu\.launch_func +@\w+::@(\w+) (.*)", lowered)


def measure(programs, compiler, optimizer, text):
    """Launches in order, loops by the names of kernels, and the expanded text."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.mlir"
        path.write_text(text)
        launches = find_launches(lower(compiler, text))
        loops = {loop.name: loop for loop in cycles.measure_cubin(programs, programs.make_cubin(path, Path(folder), compiler))}
        expanded = run(optimizer, str(path), "--attn-expand-patterns=narrow-summaries")
    return launches, loops, expanded


def measure_narrow(programs, compiler, text):
    """The loops of kernels for few queries, by their names."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.mlir"
        path.write_text(text)
        functions = sass.disassemble(programs.nvdisasm, str(programs.make_cubin(path, Path(folder), compiler)))
    return {name: loop for name, code in functions.items() if (loop := decode.find_loop(code))}


def find_ranges(text, N):
    """The rows that a block of queries reads, for each range of each source."""
    maps = dict(re.findall(r"^(#\w+) = affine_map<\(d0\)\[s0, s1\] -> \((.*)\)>$", text, re.M))

    def evaluate(name, block):
        begin, end, *bounds = eval(f"({maps[name].replace('floordiv', '//')})", {"d0": block, "s0": N, "s1": N})
        low, high = bounds or (0, N)
        return max(begin, low), min(end, high)

    sources = re.findall(r"ranges \[(.*?)\]", text)
    return [[lambda block, name=name: evaluate(name, block) for name in source.split(", ")] for source in sources]


def order_blocks(counts, heads, key_heads, bytes=None):
    """What all blocks of attention have, in their order: `counts` are those of a head, the last first. Heads go in sections, all
    first blocks of a section first: those that share keys or, of blocks that take different times, as many as fit the cache
    with keys and values, `bytes` of all heads."""
    together = heads // key_heads
    fit = heads * SECTION_BYTES // bytes if bytes else 0
    section = max(fit // together, 1) * together
    return [count for first in range(0, heads, section) for count in counts for _ in range(min(section, heads - first))]


def schedule(counts, cycles_of_tile, stay=False):
    """Milliseconds until the last block is done: blocks go, in order, to the multiprocessor that is free first. Blocks of
    threads that stay have blocks of queries at a distance."""
    if stay:
        free = [sum(counts[first::cycles.MULTIPROCESSORS]) * cycles_of_tile for first in range(cycles.MULTIPROCESSORS)]
    else:
        free = [0] * cycles.MULTIPROCESSORS
        for count in counts:
            heapq.heapreplace(free, free[0] + count * cycles_of_tile)
    return max(free) / CYCLES_PER_MS
