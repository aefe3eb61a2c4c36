# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures on a GPU what the cycle model of utils/fovea_cycles takes from publications: rates and
latencies of instructions, products of warpgroups, copies to shared memory, memory itself. Needs a
driver and Python, nothing else.

    python benchmarks/gpu/calibrate.py [--json FILE]

    --ptx FOLDER   write the kernels instead, for ptxas; needs no GPU

Each kernel is PTX that this file makes: one block, whose threads read the clock of their multiprocessor
before and behind a loop, except for the two that read memory with all multiprocessors.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import pathlib
import sys
from collections.abc import Callable
from dataclasses import dataclass

#: What a warpgroup's products read: 64 rows of the left factor, 256 of the right one, 128 bytes each.
SHARED_BYTES = 8192 + 32768
QUARTERS = 4
COPIED = 16384  # bytes of one copy to shared memory


class Unavailable(Exception):
    """Why nothing can be measured here."""


class Driver:
    """The calls of the CUDA driver that this needs, on device 0."""

    _ATTRIBUTES = {"major": 75, "minor": 76, "multiprocessors": 16, "l2_bytes": 38}

    def __init__(self) -> None:
        name = os.environ.get("FOVEA_LIBCUDA", "libcuda.so.1")
        try:
            self._library = ctypes.CDLL(name)
        except OSError as problem:
            raise Unavailable(f"there is no CUDA driver: {problem}") from None
        count, context = ctypes.c_int(), ctypes.c_void_p()
        self._call("cuInit", 0)
        self._call("cuDeviceGetCount", ctypes.byref(count))
        if not count.value:
            raise Unavailable("the CUDA driver finds no device")
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self._call("cuCtxPushCurrent_v2", context)

    def _call(self, name: str, *arguments: object) -> None:
        if code := getattr(self._library, name)(*arguments):
            raise Unavailable(f"{name} failed with CUDA error {code}")

    def get(self, attribute: str) -> int:
        value = ctypes.c_int()
        self._call("cuDeviceGetAttribute", ctypes.byref(value), self._ATTRIBUTES[attribute], 0)
        return value.value

    def get_memory(self) -> int:
        size = ctypes.c_size_t()
        self._call("cuDeviceTotalMem_v2", ctypes.byref(size), 0)
        return size.value

    def allocate(self, size: int) -> int:
        address = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        self._call("cuMemsetD8Async", address, ctypes.c_ubyte(0), ctypes.c_size_t(size), None)
        return address.value

    def free(self, address: int) -> None:
        self._call("cuMemFree_v2", ctypes.c_uint64(address))

    def load(self, ptx: str) -> ctypes.c_void_p:
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuModuleLoadDataEx", ctypes.byref(module), ptx.encode(), 0, None, None)
        self._call("cuModuleGetFunction", ctypes.byref(function), module, b"measure")
        return function

    def launch(self, function: ctypes.c_void_p, blocks: int, threads: int, *numbers: int) -> None:
        """Runs a kernel of 64-bit arguments and waits for its end."""
        held = [ctypes.c_uint64(number) for number in numbers]
        pointers = (ctypes.c_void_p * len(held))(*(ctypes.addressof(number) for number in held))
        self._call("cuLaunchKernel", function, blocks, 1, 1, threads, 1, 1, 0, None, pointers, None)
        self._call("cuCtxSynchronize")

    def read(self, address: int, count: int) -> list[int]:
        numbers = (ctypes.c_uint64 * count)()
        size = ctypes.c_size_t(ctypes.sizeof(numbers))
        self._call("cuMemcpyDtoHAsync_v2", numbers, ctypes.c_uint64(address), size, None)
        self._call("cuCtxSynchronize")
        return list(numbers)


@dataclass(frozen=True)
class Benchmark:
    """One figure: `count` things between two readings of the clock. `modelled` is what the model says."""

    name: str
    ptx: str
    count: int
    threads: int
    modelled: float
    needs: str = ""  # a chip, if not any


def make_kernel(setup: str, body: str, repeat: int, registers: str = "", chip: str = "sm_80", version: str = "8.0") -> str:
    """PTX of a kernel that runs `body` `repeat` times, once more before the clock, and stores cycles for each warp."""
    return f"""\
.version {version}
.target {chip}
.address_size 64
.visible .entry measure(.param .u64 out, .param .u64 data) {{
  .reg .u64 %out, %data, %begin, %end, %at;
  .reg .u32 %id, %turn, %place;
  .reg .pred %more, %done, %first;
{registers}
  .shared .align 1024 .b8 shared[{SHARED_BYTES}];
  .shared .align 8 .b64 barrier;
  ld.param.u64 %out, [out];
  ld.param.u64 %data, [data];
  mov.u32 %id, %tid.x;
  setp.eq.u32 %first, %id, 0;
{setup}
  mov.u32 %turn, 0;
  mov.u64 %begin, %clock64;
loop:
  .pragma "nounroll";
{body}
  setp.ne.u32 %first, %turn, 0;
  @!%first mov.u64 %begin, %clock64;
  add.u32 %turn, %turn, 1;
  setp.le.u32 %more, %turn, {repeat};
  @%more bra loop;
  mov.u64 %end, %clock64;
  sub.u64 %end, %end, %begin;
  shr.u32 %place, %id, 5;
  mad.wide.u32 %at, %place, 8, %out;
  st.global.u64 [%at], %end;
  ret;
}}
"""


def make_instructions(name: str, text: str, modelled: float, *, chains: int, type: str = "f32") -> Benchmark:
    """`text` with `{r}` for the register of a chain and `{o}` for another one: many chains show the rate, one the
    latency. Numbers come from memory, so that nothing can be computed beforehand."""
    # So many that the turns of the loop, some 30 cycles each, do not count.
    unroll, repeat = 512, 16
    names = [f"%r{number}" for number in range(chains + 1)]
    body = "\n".join(
        f"  {text.format(r=names[number % chains], o=names[(number + 1) % chains if chains > 1 else 1])}"
        for number in range(unroll))
    # Each lane has numbers of its own, or a shuffle would change nothing.
    setup = "  mad.wide.u32 %data, %id, 128, %data;\n"
    setup += "\n".join(f"  ld.global.{type} {each}, [%data + {4 * number}];" for number, each in enumerate(names))
    # What nobody reads would not be computed.
    kept = "\n".join(f"  st.global.{type} [%data + {4 * number}], {each};" for number, each in enumerate(names))
    registers = f"  .reg .{type} {', '.join(names)};"
    ptx = make_kernel(setup, body, repeat, registers).replace("  ret;", f"{kept}\n  ret;")
    return Benchmark(name, ptx, unroll * repeat, 32 * QUARTERS, modelled)


def make_product(columns: int, modelled: float) -> Benchmark:
    """Products of 64 x columns x 16, 8 in a group and two groups in flight, both factors in shared memory."""
    group, repeat = 8, 64
    sums = [f"%s{number}" for number in range(columns // 2)]
    # Rows of 128 bytes, swizzled; eight rows are 1024 bytes apart.
    constant = (1 << 62) | (64 << 32) | (1 << 16)
    setup = f"""\
  mov.u32 %place, shared;
  cvt.u64.u32 %at, %place;
  shr.u64 %at, %at, 4;
  or.b64 %left, %at, {constant};
  add.u64 %at, %at, {8192 >> 4};
  or.b64 %right, %at, {constant};
""" + "\n".join(f"  mov.f32 {each}, 0f00000000;" for each in sums)
    product = (f"  wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.bf16.bf16 {{{', '.join(sums)}}}, "
               "%left, %right, 1, 1, 1, 0, 0;")
    body = "\n".join(["  wgmma.fence.sync.aligned;", *[product] * group, "  wgmma.commit_group.sync.aligned;",
                      "  wgmma.wait_group.sync.aligned 1;"])
    registers = f"  .reg .f32 {', '.join(sums)};\n  .reg .u64 %left, %right;"
    kept = "\n".join(f"  st.global.f32 [%data], {each};" for each in sums)
    kept = "  wgmma.wait_group.sync.aligned 0;\n" + kept
    ptx = make_kernel(setup, body, repeat, registers, "sm_90a").replace("  ret;", f"{kept}\n  ret;")
    return Benchmark(f"product 64 x {columns} x 16", ptx, group * repeat, 128, modelled, needs="sm_90a")


def make_copy(name: str, step: int, modelled: float) -> Benchmark:
    """One copy of 16 kB to shared memory at a time, waited for; `step` bytes further each time."""
    repeat = 64
    setup = """\
  mov.u32 %barriers, barrier;
  mov.u32 %place, shared;
  mov.u32 %phase, 0;
  @%first mbarrier.init.shared.b64 [%barriers], 1;
  fence.mbarrier_init.release.cluster;
  bar.sync 0;"""
    body = f"""\
  mbarrier.arrive.expect_tx.shared.b64 _, [%barriers], {COPIED};
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%place], [%data], {COPIED}, [%barriers];
wait:
  mbarrier.try_wait.parity.shared.b64 %done, [%barriers], %phase;
  @!%done bra wait;
  xor.b32 %phase, %phase, 1;
  add.u64 %data, %data, {step};"""
    # One thread is all that runs.
    ptx = make_kernel(setup, body, repeat, "  .reg .u32 %barriers, %phase;", "sm_90")
    return Benchmark(name, ptx, repeat, 1, modelled, needs="sm_90")


#: Copies that walk over memory, and bytes from one to the next: together beyond any second-level cache.
FAR_COPIES, FAR_STEP = 68, 8 << 20


def make_benchmarks(step: int = FAR_STEP) -> list[Benchmark]:
    """`step` is how far copies from memory are apart."""
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "utils" / "fovea_cycles"))
    from model import FAR, LATENCIES, NEAR, PIPES, TRY_WAIT, WAKE, Product

    def rate(name: str) -> int:
        return PIPES[name][1]

    def product(columns: int) -> float:
        each = Product(columns, from_shared=True)
        return max(each.tensor, each.shared)

    def copy(machine: object) -> float:
        return machine.latency + COPIED / machine.rate + TRY_WAIT + WAKE  # type: ignore[attr-defined]

    u32 = "u32"
    return [
        make_instructions("addition of products", "fma.rn.f32 {r}, {r}, {o}, {o};", rate("FFMA"), chains=16),
        make_instructions("addition of products of integers", "mad.lo.u32 {r}, {r}, {o}, {o};", rate("IMAD"), chains=16, type=u32),
        make_instructions("maximum", "max.f32 {r}, {r}, {o};", rate("FMNMX"), chains=16),
        make_instructions("exponential", "ex2.approx.ftz.f32 {r}, {r};", rate("MUFU"), chains=16),
        make_instructions("shuffle", "shfl.sync.idx.b32 {r}, {r}, {o}, 31, 0xffffffff;", rate("SHFL"), chains=16, type=u32),
        make_instructions("latency of an exponential", "ex2.approx.ftz.f32 {r}, {r};", LATENCIES["MUFU"], chains=1),
        make_instructions("latency of a shuffle", "shfl.sync.idx.b32 {r}, {r}, {o}, 31, 0xffffffff;", LATENCIES["SHFL"],
                          chains=1, type=u32),
        *(make_product(columns, product(columns)) for columns in (64, 128, 256)),
        make_copy("copy of 16 kB from the second-level cache", 0, copy(NEAR)),
        make_copy("copy of 16 kB from memory", step, copy(FAR)),
    ]


#: Loads of a thread that are under way at a time: one would leave memory waiting.
LOADS = 8


def make_stream() -> str:
    """PTX that reads all of the data with all multiprocessors, `turns` times, and stores cycles and nanoseconds of each block."""
    names = ("a", "b", "c", "d")
    loads = "\n".join(
        f"  ld.global.cg.v4.f32 {{{', '.join(f'%{name}{load}' for name in names)}}}, [%at];\n  add.u64 %at, %at, %step;"
        for load in range(LOADS))
    sums = "\n".join(f"  add.f32 %sum, %sum, %{name}{load};" for load in range(LOADS) for name in names)
    return f"""\
.version 8.0
.target sm_80
.address_size 64
.visible .entry measure(.param .u64 out, .param .u64 data, .param .u64 turns, .param .u64 bytes) {{
  .reg .u64 %out, %data, %turns, %bytes, %at, %end, %step, %begin, %stop, %ticks, %last;
  .reg .u32 %id, %block, %threads, %blocks, %thread;
  .reg .f32 %sum;
  .reg .f32 {', '.join(f'%{name}<{LOADS}>' for name in names)};
  .reg .pred %more, %first;
  ld.param.u64 %out, [out];
  ld.param.u64 %data, [data];
  ld.param.u64 %turns, [turns];
  ld.param.u64 %bytes, [bytes];
  mov.u32 %id, %tid.x;
  mov.u32 %block, %ctaid.x;
  mov.u32 %threads, %ntid.x;
  mov.u32 %blocks, %nctaid.x;
  mad.lo.u32 %thread, %block, %threads, %id;
  mul.wide.u32 %step, %threads, 16;
  cvt.u64.u32 %at, %blocks;
  mul.lo.u64 %step, %step, %at;
  mov.f32 %sum, 0f00000000;
  add.u64 %end, %data, %bytes;
  mov.u64 %begin, %globaltimer;
  mov.u64 %ticks, %clock64;
again:
  mad.wide.u32 %at, %thread, 16, %data;
next:
{loads}
{sums}
  setp.lt.u64 %more, %at, %end;
  @%more bra next;
  sub.u64 %turns, %turns, 1;
  setp.ne.u64 %more, %turns, 0;
  @%more bra again;
  mov.u64 %last, %clock64;
  mov.u64 %stop, %globaltimer;
  sub.u64 %stop, %stop, %begin;
  sub.u64 %last, %last, %ticks;
  setp.eq.f32 %more, %sum, 0f7F800000;
  @%more st.global.f32 [%data], %sum;
  setp.eq.u32 %first, %id, 0;
  mad.wide.u32 %at, %block, 16, %out;
  @%first st.global.v2.u64 [%at], {{%last, %stop}};
  ret;
}}
"""


def measure(driver: Driver, is_told: Callable[[str], None] = lambda _: None) -> dict:
    """`figures` by name, each with what was measured and what the model says; the clock in GHz."""
    chip = f"sm_{driver.get('major')}{driver.get('minor')}"
    step = min(FAR_STEP, driver.get_memory() // (4 * FAR_COPIES) // COPIED * COPIED)
    data_bytes = FAR_COPIES * step
    out, data = driver.allocate(1 << 20), driver.allocate(data_bytes)
    figures: dict[str, dict] = {}
    try:
        for benchmark in make_benchmarks(step):
            if benchmark.needs and benchmark.needs.rstrip("a") != chip:
                figures[benchmark.name] = {"skipped": f"needs {benchmark.needs}, and this is {chip}"}
                continue
            is_told(benchmark.name)
            function = driver.load(benchmark.ptx)
            driver.launch(function, 1, benchmark.threads, out, data)
            warps = -(-benchmark.threads // 32)
            cycles = max(driver.read(out, warps)) / benchmark.count
            figures[benchmark.name] = {"measured": cycles, "modelled": benchmark.modelled, "unit": "cycles"}
        multiprocessors = driver.get("multiprocessors")
        function = driver.load(make_stream())
        from model import ALL, FAR

        clock = 0.0
        for name, size, turns, machine in (("bytes from the second-level cache", driver.get("l2_bytes") // 4, 64, ALL),
                                           ("bytes from memory", data_bytes, 2, FAR)):
            is_told(name)
            blocks = 2 * multiprocessors
            # Whole turns of all threads.
            turn = blocks * 1024 * 16 * LOADS
            size = max(min(size, data_bytes) // turn, 1) * turn
            driver.launch(function, blocks, 1024, out, data, turns, size)
            found = driver.read(out, 2 * blocks)
            slowest, nanoseconds = max(found[::2]), max(found[1::2])
            if slowest and nanoseconds:
                clock = slowest / nanoseconds
                figures[name] = {"measured": size * turns / multiprocessors / slowest, "modelled": machine.rate,
                                 "unit": "bytes a cycle", "gbps": size * turns / nanoseconds}
            else:
                figures[name] = {"skipped": "the clock stood still"}
    finally:
        driver.free(out)
        driver.free(data)
    return {"chip": chip, "multiprocessors": multiprocessors, "clock_ghz": clock, "figures": figures}


def describe(found: dict) -> str:
    """The figures as a table in Markdown."""
    lines = [f"{found['chip']}, {found['multiprocessors']} multiprocessors, {found['clock_ghz']:.2f} GHz under load.", "",
             "| | measured | model | measured / model |", "|---|---|---|---|"]
    for name, figure in found["figures"].items():
        if "skipped" in figure:
            lines.append(f"| {name} | {figure['skipped']} | | |")
        else:
            lines.append(f"| {name} | {figure['measured']:.1f} {figure['unit']} | {figure['modelled']:.1f} "
                         f"| {figure['measured'] / figure['modelled']:.2f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=pathlib.Path, help="write the figures there, too")
    parser.add_argument("--ptx", type=pathlib.Path, metavar="FOLDER", help="write the kernels there and measure nothing")
    options = parser.parse_args()
    if options.ptx:
        options.ptx.mkdir(parents=True, exist_ok=True)
        kernels = {benchmark.name: benchmark.ptx for benchmark in make_benchmarks()} | {"bytes": make_stream()}
        for name, ptx in kernels.items():
            (options.ptx / f"{name.replace(' ', '-')}.ptx").write_text(ptx)
        return
    try:
        found = measure(Driver(), lambda name: print(name, file=sys.stderr))
    except Unavailable as reason:
        raise SystemExit(f"nothing to measure: {reason}") from None
    print(describe(found))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
