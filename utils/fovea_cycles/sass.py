# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Machine code of sm_90a and sm_100 with the control codes that ptxas wrote into it."""

from __future__ import annotations

import heapq
import re
import subprocess
from dataclasses import dataclass


@dataclass
class Instruction:
    """One instruction. `stall` is how many cycles its warp does not issue afterwards; `write`
    and `read` are the scoreboards (0 to 5, or 7 for none) that it releases with its result and
    with its operands; `wait` is a mask of those that it waits for."""

    text: str
    stall: int
    write: int
    read: int
    wait: int

    @property
    def bare(self) -> str:
        """The text without its predicate."""
        return re.sub(r"^@!?U?P\w+\s+", "", self.text)

    @property
    def opcode(self) -> str:
        return self.bare.split()[0]

    @property
    def name(self) -> str:
        return self.opcode.split(".")[0]

    @property
    def is_guarded(self) -> bool:
        # Lanes that have parted, which is rare, branch without a predicate; on sm_100, a uniform one is an operand.
        return self.text.startswith(("@", "BRA.DIV", "BRA.U "))

    @property
    def target(self) -> str | None:
        found = re.search(r"\bBRA\b.*\((\.L\w+)\)", self.text)
        return found[1] if found else None


Line = Instruction | str  # a string is a label


def disassemble(nvdisasm: str, cubin: str) -> dict[str, list[Line]]:
    """The instructions and labels of each function of a cubin."""
    done = subprocess.run([nvdisasm, "-c", "-hex", cubin], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"error: nvdisasm failed for '{cubin}': {done.stderr.strip().splitlines()[0]}")
    functions: dict[str, list[Line]] = {}
    code: list[Line] | None = None
    lines = iter(done.stdout.splitlines())
    for line in lines:
        if start := re.match(r"\.text\.(\S+):", line.strip()):
            code = functions.setdefault(start[1], [])
        elif code is None:
            continue
        elif label := re.match(r"(\.L\w+):", line):
            code.append(label[1])
        elif found := re.match(r"\s+/\*[0-9a-f]{4,5}\*/\s+(.*?)\s*;\s+/\* 0x[0-9a-f]{16} \*/", line):
            upper = re.search(r"/\* (0x[0-9a-f]{16}) \*/", next(lines))
            if not upper:
                raise SystemExit(f"error: '{found[1]}' has no control code in the output of nvdisasm")
            control = int(upper[1], 16) >> 41
            code.append(Instruction(found[1], stall=control & 15, write=control >> 5 & 7,
                                    read=control >> 8 & 7, wait=control >> 11 & 63))
    return functions


def get_labels(code: list[Line]) -> dict[str, int]:
    return {line: at for at, line in enumerate(code) if isinstance(line, str)}


def find_loop(code: list[Line], product: str) -> tuple[int, int] | None:
    """The first and the last line of the smallest loop with the most products. Loops around others are left out: those over
    blocks of queries have products before and behind the main loop."""
    labels, loops = get_labels(code), []
    for end, line in enumerate(code):
        begin = labels.get(line.target or "") if isinstance(line, Instruction) else None
        if begin is None or begin >= end:
            continue
        body = [x for x in code[begin:end + 1] if isinstance(x, Instruction)]
        products = sum(x.name == product for x in body)
        # Waits that have failed return from behind the end of the kernel.
        if products and not any(x.text == "EXIT" for x in body):
            loops.append((products, begin - end, begin, end))
    inner = [loop for loop in loops if not any(
        loop[2] <= begin and end <= loop[3] and (begin, end) != loop[2:] for _, _, begin, end in loops)]
    return max(inner)[2:] if inner else None


def find_main_loop(code: list[Line], product: str = "HGMMA", needed: tuple[str, ...] = ("SYNCS.ARRIVE",)) -> list[Instruction]:
    """The shortest way round the smallest loop with the most products; empty if there is none.

    What a kernel does rarely (masks, NaN) is behind branches that this way does not take. No branch
    passes over instructions whose names begin with one of `needed`: one lane of a warp says that a
    tile is free."""
    if not (found := find_loop(code, product)):
        return []
    labels, (begin, end) = get_labels(code), found
    best: dict[int, tuple[int, int | None]] = {begin: (0, None)}
    heap = [(0, begin)]
    while heap:
        length, at = heapq.heappop(heap)
        if at == end:
            break
        line, ways = code[at], []
        if isinstance(line, str):
            ways.append((at + 1, 0))
        else:
            target = labels.get(line.target or "")
            skipped = code[at + 1:target] if needed and target is not None else []
            if target is not None and at < target <= end and not any(
                    isinstance(x, Instruction) and x.opcode.startswith(needed) for x in skipped):
                ways.append((target, 1))
            if target is None or line.is_guarded:
                ways.append((at + 1, 1))
        for to, cost in ways:
            if to not in best or best[to][0] > length + cost:
                best[to] = (length + cost, at)
                heapq.heappush(heap, (length + cost, to))
    path: list[Instruction] = []
    step: int | None = end
    while step is not None:
        if isinstance(line := code[step], Instruction):
            path.append(line)
        step = best[step][1]
    return path[::-1]
