#!/usr/bin/env python3
# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""fovea.torch beside what PyTorch has: the suite `torch`, as tables in Markdown.

    PYTHONPATH=build/python PYTHON-WITH-PYTORCH benchmarks/pytorch.py

Runs of all contenders alternate, and a ratio is the median of those of single rounds, so
that a machine that others use slows all of them alike.  Before anything is measured, every
contender's results are compared with those of scaled_dot_product_attention.  A row ends
with its rounds or after --seconds, whatever comes first, but not before one round.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import statistics
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from fovea_bench.packages import needed

with needed("torch"):
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    from torch.nn.functional import scaled_dot_product_attention

import fovea
import fovea.torch

TYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
BOUNDS = {"f32": 1e-5, "bf16": 4e-2}
#: Scores of more tokens would not fit beside each other.
EAGER_LIMIT = 4096
#: Of longer rows only one of the two ways to the same kernel is measured.
SERVED_LIMIT = 4096
#: FlexAttention compiles for each shape, some ten seconds.
FLEX_TOKENS, FLEX_WIDTH = 1024, 64
LENGTHS = 64, 256, 1024, 4096, 16384
TABLES = ["calls", "decode", "forward", "training"]
#: What one measurement takes at least.
SLICE = 0.02


class Row(NamedTuple):
    """Queries and keys of one call; `trains` means forward and backward."""

    type: str
    N: int
    M: int
    D: int
    H: int
    causal: bool
    trains: bool

    @property
    def name(self) -> str:
        keys = "" if self.N == self.M else f" x {self.M}"
        return f"{self.type} | {self.H} | {self.N}{keys} | {self.D} | {'causal' if self.causal else 'all'}"


def eager(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), float("-inf"))
    return scores.softmax(-1) @ v


@functools.cache
def flex(N: int, M: int, causal: bool) -> Callable[..., torch.Tensor]:
    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, N, M, device="cpu") if causal else None
    return torch.compile(functools.partial(flex_attention, block_mask=mask), dynamic=False)


@functools.cache
def flex_trains() -> bool:
    """Whether FlexAttention has gradients on this CPU."""
    q = torch.randn(1, 1, 64, 16, requires_grad=True)
    try:
        flex(64, 64, False)(q, q, q).sum().backward()
    except NotImplementedError:
        return False
    return True


#: PyTorch's function while Fovea serves it, which is switched on for all of a measurement.
SERVED = "fovea.torch.sdpa"


def contenders(row: Row) -> dict[str, Callable[..., torch.Tensor]]:
    def sdpa(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return scaled_dot_product_attention(q, k, v, is_causal=row.causal)

    longest = max(row.N, row.M)
    found = {"SDPA": sdpa, "fovea.torch.dense": lambda q, k, v: fovea.torch.dense(q, k, v, causal=row.causal)}
    if longest <= SERVED_LIMIT:
        found[SERVED] = sdpa
    if (row.N, row.D) == (FLEX_TOKENS, FLEX_WIDTH) and (not row.trains or flex_trains()):
        found["FlexAttention"] = lambda q, k, v: flex(row.N, row.M, row.causal)(q, k, v)
    if longest <= EAGER_LIMIT:
        found["eager"] = lambda q, k, v: eager(q, k, v, row.causal)
    return found


class Effort(NamedTuple):
    """Of one row, at most."""

    rounds: int
    seconds: float
    #: That of the thread where there is one, which other work on the machine does not lengthen.
    clock: Callable[[], float]


def measure(row: Row, effort: Effort, names: Sequence[str] | None = None) -> dict[str, tuple[float, float]]:
    """Seconds of each contender, or of those with these names, and SDPA's time over its own."""
    torch.manual_seed(0)
    shapes = (1, row.H, row.N, row.D), (1, row.H, row.M, row.D), (1, row.H, row.M, row.D)
    tensors = [torch.randn(*shape).to(TYPES[row.type]).requires_grad_(row.trains) for shape in shapes]
    d_out = torch.randn(*shapes[0]).to(TYPES[row.type])

    def run(function: Callable[..., torch.Tensor]) -> list[torch.Tensor]:
        out = function(*tensors)
        return [out.detach(), *(torch.autograd.grad(out, tensors, d_out) if row.trains else ())]

    functions = {name: each for name, each in contenders(row).items() if names is None or name in names}

    def seconds(name: str, repetitions: int) -> float:
        with fovea.torch.sdpa() if name == SERVED else contextlib.nullcontext():
            begin = effort.clock()
            for _ in range(repetitions):
                run(functions[name])
            return (effort.clock() - begin) / repetitions

    repetitions = {}
    for name, function in functions.items():
        begin = time.perf_counter()
        with fovea.torch.sdpa() if name == SERVED else contextlib.nullcontext():
            found = run(function)
        if name == "SDPA":
            expected, is_long = found, time.perf_counter() - begin > 0.5
        for one, other in zip(found, expected, strict=True):
            error = (one - other).abs().max() / other.abs().max()
            if not error <= BOUNDS[row.type]:
                raise SystemExit(f"error: {name} differs by {error:.1e} in {row}")
        repetitions[name] = 1 if is_long else max(1, round(SLICE / max(seconds(name, 1), 1e-6)))

    times: dict[str, list[float]] = {name: [] for name in functions}
    end = time.perf_counter() + effort.seconds
    for index in range(effort.rounds):
        if index and time.perf_counter() > end:
            break
        for name in functions:
            times[name].append(seconds(name, repetitions[name]))
    return {
        name: (
            statistics.median(found),
            statistics.median(theirs / ours for theirs, ours in zip(times["SDPA"], found)),
        )
        for name, found in times.items()
    }


def format_time(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


def report(title: str, rows: list[Row], effort: Effort) -> None:
    names = ["SDPA", "fovea.torch.dense", SERVED, "FlexAttention", "eager"]
    print(f"\n## {title}\n\n| type | heads | tokens | width | keys | {' | '.join(names)} |")
    print("|" + "---|" * (5 + len(names)))
    for row in rows:
        found = measure(row, effort)
        cells = [
            "" if name not in found else format_time(found[name][0]) + (f", {found[name][1]:.2f}x" if name != "SDPA" else "")
            for name in names
        ]
        print(f"| {row.name} | {' | '.join(cells)} |", flush=True)


def report_ratios(lengths: Sequence[int], effort: Effort) -> None:
    """How often `fovea.torch.dense` runs while SDPA runs once, of few shapes."""
    name = "fovea.torch.dense"

    def ratio(row: Row) -> str:
        return f"{measure(row, effort, ['SDPA', name])[name][1]:.2f}x"

    columns = [(type, trains) for type in TYPES for trains in (False, True)]
    titles = [f"{type}, {'training' if trains else 'forward'}" for type, trains in columns]
    print(f"\n## {name} beside SDPA, width 64\n\n| tokens | {' | '.join(titles)} |")
    print("|" + "---|" * (1 + len(titles)))
    for causal in (False, True):
        for N in lengths:
            heads = 8 if N <= 1024 else 1
            cells = [ratio(Row(type, N, N, 64, heads, causal, trains)) for type, trains in columns]
            print(f"| {N}{', causal' if causal else ''} | {' | '.join(cells)} |", flush=True)
    for M in lengths:
        cells = ["" if trains else ratio(Row(type, 1, M, 64, 8, False, False)) for type, trains in columns]
        print(f"| 1 of {M} | {' | '.join(cells)} |", flush=True)


def call_costs(rounds: int) -> None:
    """Calls of 4 tokens are all overhead, those of one query of 8 heads almost.  Time is that of the thread, which other work on
    the machine does not lengthen."""
    tensors = [torch.randn(1, 1, 4, 16) for _ in range(3)]
    arrays = [each.numpy() for each in tensors]
    taped = [each.clone().requires_grad_() for each in tensors]
    one = [torch.randn(1, 8, tokens, 64) for tokens in (1, 64, 64)]

    def provided(inputs: Sequence[torch.Tensor], count: int) -> None:
        with fovea.torch.sdpa():
            for _ in range(count):
                scaled_dot_product_attention(*inputs)

    calls = {
        "fovea.dense on NumPy arrays": lambda: fovea.dense(*arrays),
        "fovea.torch.dense": lambda: fovea.torch.dense(*tensors),
        "fovea.torch.dense, with a node of autograd": lambda: fovea.torch.dense(*taped),
        "SDPA": lambda: scaled_dot_product_attention(*tensors),
        "SDPA, with a node of autograd": lambda: scaled_dot_product_attention(*taped),
        "one query of 64 keys: fovea.torch.dense": lambda: fovea.torch.dense(*one),
        "one query of 64 keys: SDPA": lambda: scaled_dot_product_attention(*one),
    }
    within = {
        "SDPA within fovea.torch.sdpa": tensors,
        "the same, with a node": taped,
        "one query of 64 keys: SDPA within fovea.torch.sdpa": one,
    }
    times: dict[str, list[float]] = {name: [] for name in (*calls, *within)}
    for _ in range(20 * rounds):
        for name, call in calls.items():
            begin = time.thread_time()
            for _ in range(300):
                call()
            times[name].append((time.thread_time() - begin) / 300)
        for name, inputs in within.items():
            begin = time.thread_time()
            provided(inputs, 300)
            times[name].append((time.thread_time() - begin) / 300)
    base = min(next(iter(times.values())))
    print("\n## One call\n\n| call | least | beyond arrays | median |\n|---|---|---|---|")
    for name, found in times.items():
        beyond = f"{(min(found) - base) * 1e6:.1f} us" if name.startswith("fovea.torch") else ""
        print(f"| {name} | {min(found) * 1e6:.1f} us | {beyond} | {statistics.median(found) * 1e6:.1f} us |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1, help="of both; default: 1")
    parser.add_argument("--rounds", type=int, default=7, help="default: 7")
    parser.add_argument("--seconds", type=float, default=2.0, help="of the rounds of a row; default: 2")
    parser.add_argument("--longest", type=int, default=16384, metavar="N", help="tokens; default: 16384")
    parser.add_argument("--calls", action="store_true", help="only what a call costs")
    parser.add_argument("--ratios", action="store_true", help="only one table of ratios to SDPA, of few shapes")
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=TABLES, help="only these of the long tables")
    arguments = parser.parse_args()
    if arguments.longest < LENGTHS[0]:
        parser.error(f"--longest: found {arguments.longest}, needed at least {LENGTHS[0]}")
    torch.set_num_threads(arguments.threads)
    fovea.set_num_threads(arguments.threads)
    effort = Effort(
        arguments.rounds, arguments.seconds, time.thread_time if arguments.threads == 1 else time.perf_counter
    )
    times = "its own time" if arguments.threads == 1 else "by the clock"
    print(
        f"PyTorch {torch.__version__}, {arguments.threads} thread(s), {times}, "
        f"{effort.rounds} rounds or {effort.seconds:g} s a row"
    )

    lengths = [N for N in LENGTHS if N <= arguments.longest]

    def rows(trains: bool) -> list[Row]:
        return [
            Row(type, N, N, D, 8 if N <= 1024 else 1, causal, trains)
            for type in TYPES
            for D in (64, 128)
            for causal in (False, True)
            for N in lengths
        ]

    if arguments.ratios:
        return report_ratios([N for N in lengths if N != 256], effort)
    if arguments.calls:
        return call_costs(arguments.rounds)
    for table in arguments.tables:
        if table == "calls":
            call_costs(arguments.rounds)
        elif table == "decode":
            decode = [Row(type, 1, M, D, 8, False, False) for type in TYPES for D in (64, 128) for M in lengths]
            report("Decoding: one query", decode, effort)
        elif table == "forward":
            report("Forward", rows(trains=False), effort)
        else:
            report("Forward and backward", rows(trains=True), effort)
            if FLEX_TOKENS in lengths and not flex_trains():
                print("\nFlexAttention has no gradients on this CPU.")


if __name__ == "__main__":
    main()
