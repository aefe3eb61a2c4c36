# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A cycle model of the main loop of an sm_90a stream kernel.

One quarter of a multiprocessor is issued cycle by cycle, with a warp of each of the two consumer
warpgroups. Control codes say when a warp may issue again; pipes, products, shared memory, barriers
and the producer's loads carry times, and a wait takes the latest of what it waits for. The loop is
in its steady state: no prologue, no epilogue, no contention between multiprocessors but what the
rate of loads says.

Rates and latencies are measured or fitted values that others have published for H100 and H200;
docs/GPUModel.md names them.
"""

from __future__ import annotations

import collections
import re
from dataclasses import dataclass, field, replace

from sass import Instruction

# Pipe of an instruction, and cycles until the next one of a quarter.
PIPES = {name: ("fma", 1) for name in ("FFMA", "FMUL", "FADD")}
PIPES |= {"IMAD": ("fma", 2), "MUFU": ("mufu", 8), "SHFL": ("lsu", 4), "LDS": ("lsu", 4), "STS": ("lsu", 4)}
PIPES |= {name: ("alu", 2) for name in (
    "FMNMX", "F2FP", "MOV", "FSEL", "FSETP", "ISETP", "IADD3", "VIADD", "LOP3", "SEL", "SHF", "PLOP3", "VIADDMNMX",
    "VIMNMX", "LEA", "CS2R", "R2UR", "SGXT", "PRMT")}
# Cycles until a result that a scoreboard guards is there.
LATENCIES = {"MUFU": 19, "SHFL": 24, "LDS": 30, "R2UR": 14, "S2R": 25, "VOTEU": 12}
OPERANDS_READ = 12
TRY_WAIT, WAKE, ARRIVE, BARRIER = 36, 43, 52, 30
ARRIVE_THERE = 180  # at the barrier of another block of a cluster
TMA_ISSUE, BACK_EDGE = 33, 12
PRODUCT_START = 10
SHARED_BYTES = 128  # of shared memory in a cycle


@dataclass(frozen=True)
class Machine:
    """What is not known well: a run with several of these gives a bracket.

    Loads take `latency` cycles and then arrive at `rate` bytes a cycle for each multiprocessor.
    `tail` is the time from the last cycle of a group of products to the end of a wait for it, `queue`
    how many products may be waiting for the tensor cores."""

    name: str
    latency: int
    rate: float
    tail: int = 36
    queue: int = 6


NEAR, MIDDLE, FAR = Machine("L2", 460, 170), Machine("middle", 600, 64), Machine("HBM", 800, 48, tail=56)
# What the second-level cache gives to each multiprocessor when all of them load.
ALL = Machine("all", 600, 33)


def share(machine: Machine, cluster: int) -> Machine:
    """What each of `cluster` blocks gets that load parts of every tile for one another: as many times
    what the cache gives, and no more than a multiprocessor takes."""
    return machine if cluster == 1 else replace(machine, rate=min(cluster * machine.rate, max(machine.rate, MIDDLE.rate)))


@dataclass
class Product:
    """64 x `columns` x 16 of one warpgroup."""

    columns: int
    from_shared: bool  # of the left factor

    @property
    def tensor(self) -> int:
        return self.columns // 2

    @property
    def shared(self) -> int:
        rows = (64 if self.from_shared else 0) + self.columns
        return rows * 16 * 2 // SHARED_BYTES

    @staticmethod
    def of(instruction: Instruction) -> Product:
        found = re.match(r"HGMMA\.64x(\d+)x16", instruction.bare)
        if not found:
            raise SystemExit(f"error: the model knows products of 16-bit numbers only, but got '{instruction.bare}'")
        operands = instruction.bare.split(None, 1)[1].split(", ")
        return Product(int(found[1]), from_shared=operands[1].startswith("gdesc"))


@dataclass
class Shape:
    """What a loop computes, from its products: scores have their left factor in shared memory,
    sums of values have it in registers. With two groups of scores it is one of gradients, whose
    sums are of the tile that scores are of."""

    keys: int = 0
    width: int = 0
    value_bytes: int = 0
    flops: int = 0
    groups: int = 0  # of scores

    @staticmethod
    def of(body: list[Instruction]) -> Shape:
        shape = Shape()
        for x in body:
            if x.name != "HGMMA":
                continue
            product = Product.of(x)
            shape.flops += 2 * 64 * product.columns * 16
            if product.from_shared:
                shape.keys, shape.width = product.columns, shape.width + 16
                shape.groups += "gsb0" in x.text
            else:
                shape.value_bytes += 16 * product.columns * 2
        if shape.groups > 1:
            shape.value_bytes = 0
        return shape

    @property
    def key_bytes(self) -> int:
        return self.keys * self.width * 2


@dataclass
class Warp:
    ready: int
    at: int = 0
    tile: int = 0
    scoreboards: list[list[float]] = field(default_factory=lambda: [[] for _ in range(6)])
    products: list[float] = field(default_factory=list)  # ends of those that no group holds yet
    groups: list[float] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    votes: int = 0  # barriers of all consumers that it has come to
    is_voting: bool = False
    waited: collections.Counter = field(default_factory=collections.Counter)


@dataclass
class Result:
    cycles: float
    shares: dict[str, float]  # of the cycles that each pipe is busy
    waited: dict[str, float]  # cycles of an iteration that a warp waits for each thing


@dataclass(frozen=True)
class Copies:
    """What the threads of a producer run that copy all tiles row by row: `instructions` of a warp for
    keys and values. A producer that `waits` for the copies of both hands them over together, before it
    starts others. It waits for the numbers of the rows of a tile, too: before it copies keys, or, where
    it `is_ahead`, after it has started the copies of the tile before."""

    instructions: int
    waits: bool
    is_ahead: bool


class Producer:
    """Loads tiles in the order of the kernel: the keys of the next tile, then the values of this
    one, each when the warps that read its place are done. It may `search` so many cycles among values
    that have arrived, before it goes on."""

    def __init__(self, shape: Shape, machine: Machine, is_joint: bool, by_threads: bool, copies: Copies | None,
                 readers: int, cluster: int, search: float):
        # Both operands of gradients come together, as do those that threads copy, for themselves or for sums.
        stages = 4 if shape.groups > 1 or (is_joint and not copies) else 2
        self.arrival = ARRIVE if cluster == 1 else ARRIVE_THERE
        self.search = search
        self.copies, self.left, self.ready, self.keys_arrive = copies, 0, 0.0, 0.0
        self.machine, self.is_joint, self.readers, self.stages = machine, is_joint, readers, stages
        self.bytes = {"keys": shape.key_bytes, "values": shape.value_bytes}
        self.by_threads = by_threads
        self.full: dict[tuple[str, int], float] = {("keys", 0): 0}
        self.free: dict[tuple[str, int], list[float]] = collections.defaultdict(list)
        # Places that no tile had, and the first keys, whose scores are there before the loop.
        for kind in self.bytes:
            for tile in range(-self.stages, 0):
                self.free[kind, tile] = [0] * readers
        if not is_joint:
            self.free["keys", 0] = [0] * readers
        self.link = self.time = 0.0
        self.next = ("keys", 1)
        self.proceed()

    def arrive(self, kind: str, tile: int, time: float) -> None:
        self.free[kind, tile].append(time + self.arrival)
        self.proceed()

    def issue(self, time: int) -> bool:
        """Whether a warp that copies rows issues an instruction, in a cycle that consumers leave."""
        kind, tile = self.next
        if not self.copies or time < self.ready:
            return False
        if not self.left:
            arrived = self.free[kind, tile - self.stages]
            if len(arrived) < self.readers or max(arrived) > time:
                return False
            self.left = self.copies.instructions if self.is_joint else self.copies.instructions // 2
            # Rows of both are looked up first.
            if self.is_joint or (kind == "keys" and not self.copies.is_ahead):
                self.ready = time + self.machine.latency
                return False
        self.left -= 1
        if self.left:
            return True
        size = sum(self.bytes.values()) if self.is_joint else self.bytes[kind]
        self.link = max(self.link, time) + size / self.machine.rate
        arrival = self.link + self.machine.latency
        if self.is_joint:
            self.full[kind, tile] = arrival
            self.next = ("keys", tile + 1)
            return True
        self.next = ("values", tile - 1) if kind == "keys" else ("keys", tile + 2)
        if not self.copies.waits:
            self.full[kind, tile] = arrival
            if kind == "values" and self.search:
                self.ready = self.look_through(tile, time)
            if kind == "values" and self.copies.is_ahead:
                self.ready = time + self.machine.latency
        elif kind == "keys":
            self.keys_arrive = arrival
        else:
            self.ready = max(arrival, self.keys_arrive)
            self.full[kind, tile] = self.full["keys", tile + 1] = self.ready
        return True

    def proceed(self) -> None:
        while not self.copies:
            kind, tile = self.next
            arrived = self.free[kind, tile - self.stages]
            if len(arrived) < self.readers:
                return
            self.time = max(self.time, *arrived)
            size = sum(self.bytes.values()) if self.is_joint else self.bytes[kind]
            boxes = max(1, size // 16384)
            self.time += TMA_ISSUE * boxes
            self.link = max(self.link, self.time) + size / self.machine.rate
            # Threads read a code or a table first, and where it points to then.
            latency = self.machine.latency * (2 if self.by_threads and kind == "keys" else 1)
            self.full[kind, tile] = max(self.link, self.time + size / self.machine.rate) + latency
            if kind == "values" and self.search:
                self.time = self.look_through(tile, self.time)
            if self.is_joint:
                self.next = ("keys", tile + 1)
            else:
                self.next = ("values", tile - 1) if kind == "keys" else ("keys", tile + 2)

    def look_through(self, tile: int, time: float) -> float:
        """When the values of a tile have been looked through."""
        done = max(time, self.full["values", tile]) + self.search
        self.full["search", tile] = done + ARRIVE
        return done


def name_barriers(body: list[Instruction]) -> dict[int, str]:
    """What each instruction of a barrier in shared memory is about: keys are waited for first, then
    perhaps the votes of all consumers, then values, then perhaps the producer's search. Barriers of votes
    come last in shared memory, those of keys first."""
    names: dict[int, str] = {}
    waits = [at for at, x in enumerate(body) if x.opcode.startswith("SYNCS.PHASECHK")]
    if len(waits) > 3:
        raise SystemExit(f"error: the model knows waits for keys, values, and votes or a search, but the loop has {len(waits)}")
    arrivals = {}
    for at, x in enumerate(body):
        if x.opcode.startswith("SYNCS.ARRIVE"):
            offset = re.search(r"\+(0x[0-9a-f]+)\]", x.text)
            arrivals[at] = int(offset[1], 16) if offset else 0
    for rank, at in enumerate(sorted(arrivals, key=lambda at: arrivals[at])):
        names[at] = ("keys", "values", "votes")[rank]
    has_votes = len(waits) == 3 and len(arrivals) == 3
    names |= dict(zip(waits, ("keys", "votes", "values") if has_votes else ("keys", "values", "search")))
    return names


def simulate(body: list[Instruction], machine: Machine, *, by_threads: bool = False, copies: Copies | None = None,
             is_loaded: bool = True, tiles: int = 40, warps: int = 2, offset: int = 300,
             back_edge: int = BACK_EDGE, cluster: int = 1, search: float = 0) -> Result:
    """Cycles of an iteration. Without `is_loaded` tiles are always there. Warps start `offset`
    cycles apart. Threads load the keys or the values of some tiles `by_threads`, and all tiles with
    `copies`. The blocks of a `cluster` keep step. The producer may `search` so many cycles in each tile."""
    shape, names = Shape.of(body), name_barriers(body)
    waits = {name for at, name in names.items() if "PHASECHK" in body[at].opcode}
    is_joint = "values" not in waits
    producer = Producer(shape, share(machine, cluster), is_joint, by_threads, copies, warps, cluster, search)
    running = [Warp(ready=number * offset) for number in range(warps)]
    # Turns that the warpgroups have got: the first has one before the loop.
    turns: list[list[int]] = [[0] if number == 0 else [] for number in range(warps)]
    votes: dict[int, list[int]] = collections.defaultdict(list)  # on each tile
    pipes: dict[str, float] = collections.defaultdict(float)
    busy: collections.Counter = collections.Counter()
    in_queue: list[float] = []
    time = 0
    turn = 0
    limit = 1 + tiles * 40 * (len(body) + 1000)
    while any(warp.tile < tiles for warp in running):
        time += 1
        if time > limit:
            raise SystemExit("error: the model's warps wait for each other for ever")
        for number in [turn, *(n for n in range(warps) if n != turn)]:
            warp = running[number]
            if warp.tile >= tiles or warp.ready > time:
                continue
            x = body[warp.at]
            name, opcode = x.name, x.opcode
            late = [ends for ends in (warp.scoreboards[s] for s in range(6) if x.wait >> s & 1)
                    if any(end > time for end in ends)]
            if late:
                continue
            if opcode.startswith("WARPGROUP.DEPBAR"):
                allowed = int(x.text.split(",")[-1], 16)
                done = warp.groups[:max(0, len(warp.groups) - allowed)]
                if done and max(done) + machine.tail > time:
                    warp.waited["products"] += int(max(done) + machine.tail - time)
                    warp.ready = int(max(done) + machine.tail) + 1
                    continue
                warp.groups = warp.groups[len(done):]
            result = LATENCIES.get(name, 20)
            if "PHASECHK" in opcode:
                kind = names[warp.at]
                # The first instructions of an iteration ask for the next tile's keys.
                tile = warp.tile + (1 if kind in ("keys", "search") else 0)
                full = producer.full.get((kind, tile)) if is_loaded else 0
                if kind == "votes":
                    cast = votes[tile]
                    full = max(cast) + ARRIVE if len(cast) == warps else 0 if tile == 0 else None
                if full is None:
                    warp.waited[kind] += 1
                    continue
                if full > time:
                    warp.waited[kind] += int(full + WAKE - time)
                    result = int(full + WAKE - time)
                else:
                    result = TRY_WAIT
            if opcode.startswith("BAR.SYNC"):
                if len(turns[number]) <= warp.tile:
                    warp.waited["turn"] += 1
                    continue
                warp.ready = int(max(time, turns[number][warp.tile])) + BARRIER
            if opcode.startswith("BAR.RED"):
                warp.votes += not warp.is_voting
                warp.is_voting = any(other.votes < warp.votes for other in running)
                if warp.is_voting:
                    warp.waited["turn"] += 1
                    continue
                warp.ready = time + BARRIER
            if opcode.startswith("BAR.ARV"):
                turns[(number + 1) % warps].append(time)
            if name == "HGMMA":
                product = Product.of(x)
                in_queue = [end for end in in_queue if end > time]
                if len(in_queue) >= machine.queue:
                    continue
                start = max(pipes["tensor"], time + PRODUCT_START)
                pipes["shared"] = max(pipes["shared"], start) + product.shared
                end = max(start + product.tensor, pipes["shared"])
                pipes["tensor"] = end
                busy["tensor"] += product.tensor
                busy["shared"] += product.shared
                in_queue.append(end)
                warp.products.append(end)
                if "gsb0" in x.text:
                    warp.groups.append(warp.products[-1])
                    warp.products = []
            elif name in PIPES:
                pipe, cycles = PIPES[name]
                if pipes[pipe] > time:
                    continue
                pipes[pipe] = time + cycles
                busy[pipe] += cycles
            busy["issue"] += 1
            if opcode.startswith("SYNCS.ARRIVE"):
                kind = names[warp.at]
                if kind == "votes":
                    votes[warp.tile + 1].append(time)
                else:
                    producer.arrive(kind, warp.tile + (1 if kind == "keys" and not is_joint else 0), time)
            if x.write < 6:
                warp.scoreboards[x.write] = [end for end in warp.scoreboards[x.write] if end > time] + [time + result]
            if x.read < 6:
                warp.scoreboards[x.read] = [end for end in warp.scoreboards[x.read] if end > time] + [time + OPERANDS_READ]
            warp.ready = max(warp.ready, time + max(1, x.stall))
            warp.at += 1
            if warp.at == len(body):
                warp.at, warp.tile = 0, warp.tile + 1
                warp.ready += back_edge
                warp.ends.append(time)
            turn = number
            break
        else:
            busy["issue"] += producer.issue(time)
    ends = running[0].ends
    half = tiles // 2
    period = (ends[-1] - ends[half - 1]) / (tiles - half)
    shares = {pipe: busy[pipe] / tiles / period for pipe in ("tensor", "shared", "issue", "mufu", "fma", "alu", "lsu")}
    waited = {kind: sum(warp.waited[kind] for warp in running) / len(running) / tiles
              for kind in ("keys", "values", "products", "turn")}
    return Result(period, shares, waited)
