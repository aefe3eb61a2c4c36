# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How much of a GPU's memory bandwidth the main loop of a kernel for few queries uses.

Warps of a block copy tiles of keys and values with cp.async, one ahead, each a part, and multiply
them with mma.sync, each for its rows. What is wider in memory than in a product is copied as it is,
and rounded in shared memory. A multiprocessor runs as many blocks as its registers and its shared memory hold. All of them are issued
cycle by cycle, as their control codes say; what they copy arrives in order, at the multiprocessor's
share of the bandwidth, after a latency. Warps of a block meet at its barriers.
"""

from __future__ import annotations

import collections
import re
from dataclasses import dataclass, field

from model import BACK_EDGE, LATENCIES, OPERANDS_READ, PIPES
from sass import Instruction, Line, find_main_loop

REGISTERS, SHARED_BYTES, MOST_BLOCKS = 65536, 233472, 32
LANES = 32
# Of a quarter: cycles until the next one, and until the result is there.
DECODE_PIPES = {"LDSM": ("lsu", 4), "LDGSTS": ("lsu", 4), "LDG": ("lsu", 4)}
DECODE_LATENCIES = {"LDSM": 33}


@dataclass(frozen=True)
class Memory:
    """`terabytes` a second for the whole GPU, each request after `latency` cycles; and the GPU that has it, one of whose
    quarters can start a product in `product` cycles, whose sums are there after `sums`."""

    name: str
    terabytes: float
    latency: int
    multiprocessors: int = 132
    clock_ghz: float = 1.6
    product: float = 6.26
    sums: int = 25

    @property
    def rate(self) -> float:
        """Bytes of a cycle for each multiprocessor."""
        return self.terabytes * 1e3 / self.clock_ghz / self.multiprocessors


ALWAYS, H100, H200 = Memory("always there", 1e6, 1), Memory("H100", 3.35, 800), Memory("H200", 4.8, 1000)
B200 = Memory("B200", 7.7, 1000, multiprocessors=148, clock_ghz=1.85, product=8.2, sums=23)


@dataclass
class Warp:
    block: int
    quarter: int
    ready: float
    waits: bool = False  # for the others of its block
    at: int = 0
    tile: int = 0
    scoreboards: list[list[float]] = field(default_factory=lambda: [[] for _ in range(6)])
    pending: float = 0  # when what no group holds yet is there
    groups: list[float] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)


@dataclass
class Loop:
    """A main loop of each of a block's warps; `tile_bytes` are those that one iteration leaves in shared memory, of which a
    block has `shared_bytes`, if that is known."""

    body: list[Instruction]
    registers: int
    tile_bytes: int
    warps: int = 1
    shared_bytes: int | None = None

    @property
    def loaded_bytes(self) -> int:
        """By one iteration; numbers that are converted may be wider before."""
        return self.warps * sum(get_copied_bytes(x) for x in self.body if x.name == "LDGSTS")

    @property
    def blocks(self) -> int:
        """On a multiprocessor: each has two tiles, once what is rounded, of twice the bytes, and some for the queries of its warps."""
        by_registers = REGISTERS // (self.warps * LANES * -(-self.registers // 8) * 8)
        rounded = self.loaded_bytes - self.tile_bytes
        shared = self.shared_bytes or 2 * self.tile_bytes + 2 * rounded + 4096 * self.warps
        return min(by_registers, SHARED_BYTES // (shared + 1024), MOST_BLOCKS)

    def get_share(self, memory: Memory, cycles: float) -> float:
        """Of the bandwidth, by the cycles of a tile."""
        return min(1.0, self.blocks * self.loaded_bytes / cycles / memory.rate)

    def simulate(self, memory: Memory, tiles: int = 12) -> float:
        """Cycles of an iteration of one block, with all blocks that fit."""
        warps = [Warp(block, (block * self.warps + n) % 4, ready=137.0 * block)
                 for block in range(self.blocks) for n in range(self.warps)]
        pipes: dict[tuple[int, str], float] = collections.defaultdict(float)
        rates = PIPES | DECODE_PIPES | {"HMMA": ("tensor", memory.product)}
        latencies = LATENCIES | DECODE_LATENCIES | {"HMMA": memory.sums}
        issued = [0.0] * 4
        link = 0.0
        while any(warp.tile < tiles for warp in warps):
            # The warp that can go on first; the oldest of those.
            warp = min((w for w in warps if w.tile < tiles and not w.waits), key=lambda w: max(w.ready, issued[w.quarter]))
            x = self.body[warp.at]
            name, pipe = x.name, None
            time = max(warp.ready, issued[warp.quarter])
            for board in range(6):
                if x.wait >> board & 1:
                    time = max(time, *warp.scoreboards[board], 0)
            result: float = latencies.get(name, 20)
            if name in ("LDG", "LDC", "ULDC"):
                result = memory.latency if name == "LDG" else 40
            if x.opcode.startswith("DEPBAR"):
                allowed = int(x.text.split(",")[-1], 16) if "," in x.text else 0
                done = warp.groups[:max(0, len(warp.groups) - allowed)]
                time = max(time, *done, 0)
                warp.groups = warp.groups[len(done):]
            if name in rates:
                pipe, cycles = rates[name]
                time = max(time, pipes[warp.quarter, pipe])
            if time > max(warp.ready, issued[warp.quarter]):
                # Others may go on meanwhile.
                warp.ready = time
                continue
            if pipe:
                pipes[warp.quarter, pipe] = time + cycles
            if name == "LDGSTS":
                link = max(link, time) + get_copied_bytes(x) / memory.rate
                warp.pending = link + memory.latency
            if name == "LDGDEPBAR":
                warp.groups.append(warp.pending)
            if x.write < 6:
                warp.scoreboards[x.write] = [e for e in warp.scoreboards[x.write] if e > time] + [time + result]
            if x.read < 6:
                warp.scoreboards[x.read] = [e for e in warp.scoreboards[x.read] if e > time] + [time + OPERANDS_READ]
            issued[warp.quarter] = time + 1
            warp.ready = time + max(1, x.stall)
            if name == "BAR":
                warp.waits = True
                others = [w for w in warps if w.block == warp.block]
                if all(w.waits for w in others):
                    for w in others:
                        w.waits, w.ready = False, max(w.ready, warp.ready)
            warp.at += 1
            if warp.at == len(self.body):
                warp.at, warp.tile = 0, warp.tile + 1
                warp.ready += BACK_EDGE
                warp.ends.append(time)
        half = tiles // 2
        return max((w.ends[-1] - w.ends[half - 1]) / (tiles - half) for w in warps)


def get_copied_bytes(x: Instruction) -> int:
    bits = re.search(r"\.(32|64|128)(?=[ .])", x.opcode.replace("LTC128B", "") + " ")
    return LANES * (int(bits[1]) if bits else 32) // 8


def expand(code: list[Line], path: list[Instruction], copied_bytes: int) -> list[Instruction]:
    """The way with loops of copies in it as often as they are run for a warp's bytes: all of them equally often."""
    labels = {line: at for at, line in enumerate(code) if isinstance(line, str)}
    places = {id(line): at for at, line in enumerate(code)}
    loops = []
    for at, x in enumerate(path[:-1]):
        target = labels.get(x.target or "")
        if target is not None and target < places[id(x)]:
            begin = next(i for i, y in enumerate(path) if places[id(y)] > target)
            if copied := sum(get_copied_bytes(y) for y in path[begin:at + 1] if y.name == "LDGSTS"):
                loops.append((begin, at + 1, copied))
    if not loops:
        return path
    inside = {id(x) for begin, end, _ in loops for x in path[begin:end]}
    straight = sum(get_copied_bytes(x) for x in path if x.name == "LDGSTS" and id(x) not in inside)
    times = (copied_bytes - straight) // sum(copied for _, _, copied in loops)
    body, done = [], 0
    for begin, end, _ in loops:
        body += path[done:begin] + path[begin:end] * times
        done = end
    return body + path[done:]


def count_registers(code: list[Line]) -> int:
    """Those up to the highest one that is named."""
    return 1 + max(int(number) for x in code if isinstance(x, Instruction) for number in re.findall(r"\bR(\d+)", x.text))


def find_loop(code: list[Line], warps: int = 1) -> Loop | None:
    """The main loop of a kernel for few queries, whose blocks have so many warps; none in others."""
    path = find_main_loop(code, "HMMA", needed=("LDGSTS",))
    # Lanes read what was copied, once, in pieces of four times eight rows of 16 bytes.
    tile_bytes = sum(LANES * 16 for x in path if x.name == "LDSM")
    return Loop(expand(code, path, tile_bytes // warps), count_registers(code), tile_bytes, warps) if tile_bytes else None
