#!/usr/bin/env python3
# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Few queries on a long cache of keys and values; see docs/Benchmarking.md.

    PYTHONPATH=build/python .venv/bin/python benchmarks/decode.py

Prints a table: the time of one call, the share of the time that reading keys and
values takes in the same round (a dot product of as many bytes with themselves, by
NumPy's BLAS), and how much longer PyTorch's scaled_dot_product_attention takes,
where there is PyTorch. --tokens-first compares keys and values in [B,M,H,D] memory
with the others. Several threads, which read together, are compared with one,
as is their reading, and calls with terms with the plain one on the rows that they
read. --picture draws the time over the number of keys. Exit status 1: results differ
from those of NumPy.
"""

import argparse
import concurrent.futures
import itertools
import os
import pathlib
import statistics
import sys
import time

# Of everyone's one thread. BLAS reads it as it is loaded.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import ml_dtypes
import numpy as np
from fovea_bench import plot

import fovea
from fovea import reference

TYPES = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "f16": np.float16}
BOUNDS = {"f32": 5e-6, "bf16": 1e-2, "f16": 2e-3}
KEY_HEADS = 8
# A window of a quarter of the keys; a list of every other block of UNIT of them, in random order.
TERMS = ["plain", "window", "sink", "bias", "log weight", "list"]
UNIT = 64


def parse_width(text):
    """Columns of keys, and of values: `576/512` are one key head, whose values are the first columns of keys."""
    widths = [int(width) for width in text.split("/")]
    if len(widths) > 2 or min(widths) < 1 or widths[-1] > widths[0]:
        raise argparse.ArgumentTypeError(f"expected columns of keys, or of keys and at most as many of values, but got {text}")
    return text, widths[0], widths[-1]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--types", nargs="+", choices=TYPES, default=["f32", "bf16"])
    parser.add_argument(
        "--widths", nargs="+", type=parse_width, default=[parse_width(width) for width in ("64", "128", "256")],
        help="columns of keys and of values, or both: 576/512",
    )
    parser.add_argument("--groups", nargs="+", type=int, default=[1, 4, 8], help="query heads of each key head")
    parser.add_argument("--queries", nargs="+", type=int, default=[1], help="tokens of one call")
    parser.add_argument("--terms", nargs="+", choices=TERMS, default=["plain"], help="of causal attention, but for plain and lists")
    parser.add_argument("--megabytes", type=float, default=67.1, help="of keys and values together")
    parser.add_argument("--keys", nargs="+", type=int, help="of each key head, instead of megabytes")
    parser.add_argument("--picture", type=pathlib.Path, help="an SVG file: times over keys")
    parser.add_argument("--tokens-first", action="store_true", help="keys and values in [B,M,H,D] memory, beside [B,H,M,D]")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--least", action="store_true", help="the fastest call of each instead of medians: what others disturb least")
    arguments = parser.parse_args()
    if arguments.tokens_first and any(width != value_width for _, width, value_width in arguments.widths):
        parser.error("--tokens-first: found values that are columns of the keys, which have one head, needed one number of columns")
    return arguments


def make_arrays(dtype, widths, group, queries, keys):
    """Queries and a cache, whose rows differ in a few columns: memory is filled fast."""
    _, width, value_width = widths
    heads = KEY_HEADS if width == value_width else 1
    rng = np.random.default_rng(1)
    q = rng.standard_normal((1, heads * group, queries, width)).astype(dtype)
    cache = []
    for _ in "kv" if width == value_width else "k":
        array = np.empty((1, heads, keys, width), dtype)
        array[:] = rng.standard_normal(width).astype(dtype)
        array[..., :4] = rng.standard_normal((heads, keys, 4)).astype(dtype)
        cache.append(array)
    return [q, cache[0], cache[-1][..., :value_width]], cache


def make_term(term, arrays, group):
    """Arguments of the call, and of PyTorch's where that has the term, by name; and the keys that it reads."""
    q, k = arrays[:2]
    keys = k.shape[2]
    options, read = {} if term == "plain" else {"causal": True}, slice(None)
    rng = np.random.default_rng(2)

    def make(*shape):
        return rng.standard_normal(shape, np.float32).astype(q.dtype)

    mask = None
    if term == "window":
        options["window"] = max(keys // 4, 1)
        read = slice(keys - options["window"], None)
    elif term == "sink":
        options["sink"] = make(1, q.shape[1])
    elif term == "bias":
        options["bias"] = mask = make(1, *q.shape[1:3], keys)
    elif term == "log weight":
        options["log_weight"] = make(1, k.shape[1], keys)
        mask = np.repeat(options["log_weight"], group, axis=1)[:, :, None]
    elif term == "list":
        if keys < 2 * UNIT:
            raise SystemExit(f"decode.py: found {keys} keys, needed {2 * UNIT} or more for lists")
        blocks = rng.choice(keys // UNIT, keys // UNIT // 2, replace=False).astype(np.int32)
        options = {"rows": blocks[None, None, None], "unit": UNIT, "block": q.shape[2], "causal": False}
        read = (blocks[:, None] * UNIT + np.arange(UNIT)).ravel()
    return options, (None if term in ("sink", "list") else {} if mask is None else {"attn_mask": mask}), read


def make_peer(arrays, group, options):
    """PyTorch's call, or None without it."""
    try:
        import torch
    except ImportError:
        return None
    if options is None:
        return None
    torch.set_num_threads(1)

    def to_torch(array):
        if array.dtype == ml_dtypes.bfloat16:
            return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(array)

    tensors = [to_torch(array) for array in arrays]
    options = {name: to_torch(array) for name, array in options.items()}
    attend = torch.nn.functional.scaled_dot_product_attention
    return lambda: attend(*tensors, **options, enable_gqa=group > 1)


def make_reads(lines, threads):
    """Calls that read all of `lines` on so many threads, and on one."""

    def read(lines):
        # Other threads run meanwhile, as they do not beside `line @ line`.
        return [np.dot(line, line) for line in lines]

    if threads == 1:
        return (lambda: read(lines)), (lambda: read(lines))
    pool = concurrent.futures.ThreadPoolExecutor(threads - 1)
    own, *others = zip(*(np.array_split(line, threads) for line in lines))

    def read_all():
        futures = [pool.submit(read, part) for part in others]
        return read(own), [future.result() for future in futures]

    return read_all, (lambda: read(lines))


def measure(calls, rounds, clock):
    """Times of each call, in turns, which meet the same load of the machine."""
    for call in calls:
        call()
    times = [[] for _ in calls]
    for _ in range(rounds):
        for call, found in zip(calls, times):
            begin = clock()
            call()
            found.append(clock() - begin)
    return times


def is_right(arrays, out, group, options, read, bound):
    """Whether the first head of each group is."""
    q, k, v = arrays
    own = {name: value[:, ::group] if name in ("bias", "sink") else value for name, value in options.items()}
    if "rows" in options:
        k, v, own = k[:, :, read], v[:, :, read], {}
    expected = reference.dense(q[:, ::group], k, v, **own)
    error = np.abs(out[:, ::group].astype(np.float64) - expected).max() / np.abs(expected).max()
    return error <= bound


def measure_case(name, widths, group, queries, keys, term, arguments):
    """A row of the table, the seconds, and whether the results are right."""
    dtype = np.dtype(TYPES[name])
    width, value_width = widths[1:]
    if keys is None:
        columns = width if width != value_width else 2 * KEY_HEADS * width
        keys = max(int(arguments.megabytes * 1e6 / (columns * dtype.itemsize)), 1)
    arrays, cache = make_arrays(dtype, widths, group, queries, keys)
    q, k, v = arrays
    options, torch_options, read = make_term(term, arrays, group)
    # Of the keys that a list names, as many in one piece.
    near = slice(0, len(read)) if term == "list" else read
    plain = [q, k[:, :, near], v[:, :, near]]
    num_read = plain[1].shape[2]
    # Numbers whose products take no longer than others.
    lines = [np.ones(array[:, :, near].nbytes // 4, np.float32) for array in cache]
    out = np.empty((*q.shape[:3], value_width), dtype)
    function = fovea.selected if term == "list" else fovea.dense

    def attend(threads):
        fovea.set_num_threads(threads)
        function(*arrays, **options, out=out)

    def attend_plain(threads):
        fovea.set_num_threads(threads)
        fovea.dense(*plain, out=out)

    read_all, read_one = make_reads(lines, arguments.threads)
    calls = {"own": lambda: attend(arguments.threads), "read": read_all}
    if arguments.tokens_first:
        heads_first = list(arrays)
        calls["heads first"] = lambda: function(*heads_first, **options, out=out)
        arrays[1:] = [np.ascontiguousarray(array.swapaxes(1, 2)).swapaxes(1, 2) for array in arrays[1:]]
    if arguments.threads > 1:
        calls.update({"one thread": lambda: attend(1), "one reads": read_one})
    if term != "plain":
        calls["plain"] = lambda: attend_plain(arguments.threads)
    if peer := make_peer(plain if term == "window" else arrays, group, torch_options):
        calls["peer"] = peer
    # Of one thread its own time, whatever else the machine does.
    clock = time.thread_time if arguments.threads == 1 else time.perf_counter
    times = dict(zip(calls, measure(calls.values(), arguments.rounds, clock)))
    if arguments.least:
        times = {call: [min(found)] for call, found in times.items()}
    # Neighbouring calls meet the same load of the machine.
    ratios = {call: statistics.median(b / a for a, b in zip(times["own"], found)) for call, found in times.items()}
    seconds = statistics.median(times["own"])
    attend(arguments.threads)  # `out` was that of the plain call
    row = [
        name, widths[0], group, queries, keys, f"{1e3 * seconds:.3g}", f"{100 * ratios['read']:.0f} %",
        f"{2 * q.shape[1] * queries * num_read * (width + value_width) / seconds / 1e9:.0f}",
        f"{ratios['peer']:.1f}x" if peer else "",
    ]  # fmt: skip
    if arguments.threads > 1:
        row += [f"{ratios['one thread']:.2f}x", f"{ratios['one reads'] / ratios['read']:.2f}x"]
    if arguments.tokens_first:
        row.append(f"{ratios['heads first']:.2f}x")
    if arguments.terms != ["plain"]:
        row[1:1] = [term]
        row.append(f"{1 / ratios['plain']:.2f}x" if term != "plain" else "")
    return row, seconds, is_right(arrays, out, group, options, read, BOUNDS[name])


def main():
    arguments = parse_arguments()
    failed = False
    header = ["type", "D", "heads of a group", "queries", "keys", "ms", "of the read's time", "GFLOP/s", "PyTorch takes"]
    if arguments.threads > 1:
        header += ["one thread takes", "of reading one takes"]
    if arguments.tokens_first:
        header.append("heads first takes")
    if arguments.terms != ["plain"]:
        header[1:1] = ["term"]
        header.append("of plain on these rows")
    print(f"| {' | '.join(header)} |\n|{'---|' * len(header)}")
    series = {}
    cases = itertools.product(
        arguments.types, arguments.widths, arguments.groups, arguments.queries, arguments.keys or [None], arguments.terms
    )
    for case in cases:
        row, seconds, right = measure_case(*case, arguments)
        failed |= not right
        name, (label, *_), group, queries, keys, term = case
        row_keys = row[header.index("keys")]
        label = f"{name}, D = {label}, {group} to a group" + ("" if term == "plain" else f", {term}")
        series.setdefault(label, []).append((row_keys, seconds))
        print(f"| {' | '.join(map(str, row))} |", flush=True)
    if arguments.picture:
        title = "One token" if arguments.queries == [1] else "A call"
        arguments.picture.write_text(plot.svg(series, f"{title} after more and more keys", "keys", "time of a call"))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
