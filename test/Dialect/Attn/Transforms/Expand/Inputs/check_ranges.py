# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks the ranges that multipole patterns expand to, entry by entry.

`check_ranges.py emit` prints a module of patterns; `check_ranges.py check` reads
the expanded module and compares, for every query and key token, the levels that
read the entry with the level that the definition gives it to. Written from the
definition; standard library only.
"""

import math
import re
import struct
import sys

# Tokens, group, rank.
SIZES = [
    (32, 4, 2),  # N = m 2^(L+1): L = 2
    (64, 4, 4),  # a summary per token at level 1
    (64, 4, 1),
    (9, 4, 2),  # one token in the last interval
    (33, 4, 2),
    (63, 4, 4),
    (50, 4, 1),
    (17, 2, 2),
    (13, 1, 1),
    (5, 1, 1),
    (96, 8, 4),
    (100, 8, 2),
    (129, 8, 8),
    (200, 48, 4),
]


def num_levels(tokens, group):
    levels = 0
    while group * 2 ** (levels + 1) < tokens:
        levels += 1
    return levels


def owning_level(i, j, group, levels):
    if abs(i // group - j // group) <= 1:
        return 0
    for level in range(1, levels + 1):
        size = group * 2 ** (level - 1)
        if abs(i // size - j // size) < 2:
            continue
        if level == levels or abs(i // (2 * size) - j // (2 * size)) <= 1:
            return level
    raise AssertionError("no level")


# ----------------------------------------------------------------------------
# Emitting
# ----------------------------------------------------------------------------


def pattern(op, tokens, group, rank, causal, once):
    levels = num_levels(tokens, group)
    sizes = [group * 2**level for level in range(levels)]
    tensor = f"tensor<1x1x{tokens}x2xf64>"
    types = [f"tensor<1x{rank}x{size}x2xf64>" for size in sizes]
    names = [f"%w{level}" for level in range(levels)]
    operand = f"({', '.join(names)} : {', '.join(types)})"
    attrs = [f"group = {group} : i64"]
    attrs += ["causal"] if causal else []
    kinds = ["key", "value"]
    if op == "fast_multipole_linear":
        kinds = ["query"] + kinds
        attrs += ["allow_query_lookahead"] if causal else []
    elif once:
        attrs.append("multiplicity = false")
    name = f"{op}_{tokens}_{group}_{rank}_{int(causal)}_{int(once)}"
    weights = " ".join(f"{kind}_weights{operand}" for kind in kinds)
    arguments = "".join(f", {n}: {t}" for n, t in zip(names, types))
    return f"""
func.func @{name}(%x: {tensor}{arguments}) -> {tensor} {{
  %out = attn.{op} ins(%x, %x, %x : {tensor}, {tensor}, {tensor})
      {weights} outs(%x : {tensor}) {{{', '.join(attrs)}}} -> {tensor}
  return %out : {tensor}
}}"""


def emit():
    for tokens, group, rank in SIZES:
        for causal in (False, True):
            for once in (False, True):
                print(pattern("fast_multipole", tokens, group, rank, causal, once))
            print(pattern("fast_multipole_linear", tokens, group, rank, causal, False))


# ----------------------------------------------------------------------------
# Checking
# ----------------------------------------------------------------------------


def parse_maps(text):
    """The range functions (block, rows) -> (begin, end[, lower, upper]), by name."""
    maps = {}
    for name, body in re.findall(
        r"(#map\d*) = affine_map<\(d0\)\[s0, s1\] -> \((.*)\)>", text
    ):
        body = body.replace("floordiv", "//")
        maps[name] = eval(f"lambda d0, s0: ({body})", {})
    return maps


def parse_log_weights(text, name):
    """The function from a row to its log weight."""
    body = re.search(rf"{name} = arith.constant dense<(.*)> : ", text).group(1)
    if body.startswith('"0x'):  # many values are printed as their bytes
        data = bytes.fromhex(body.strip('"')[2:])
        values = struct.unpack(f"<{len(data) // 8}d", data)
    else:
        values = [
            -math.inf if v == "0xFFF0000000000000" else float(v)
            for v in body.strip("[]").split(", ")
        ]
    return lambda row: values[0] if len(values) == 1 else values[row]


def parse_streams(text, maps):
    """For each attn.stream its block and sources: rows, ranges, mask, weights."""
    streams = []
    for stream in re.findall(r"attn\.stream.*?outs.*?\n", text, re.S):
        sources = []
        for rows, weight, ranges, mask in re.findall(
            r"source\(.*? : tensor<1x1x(\d+)x.*?\)"
            r"(?: log_weight\((%\w+) : .*?\))? ranges \[(.*?)\]( mask <causal>)?\n",
            stream,
        ):
            weights = parse_log_weights(text, weight) if weight else lambda row: 0.0
            functions = [maps[name] for name in ranges.split(", ")]
            sources.append((int(rows), functions, bool(mask), weights))
        block = int(re.search(r"block = (\d+)", stream).group(1))
        streams.append((block, sources))
    return streams


def rows_read(source, block):
    """The rows that a block reads: clamped ranges, masked rows left out."""
    rows, functions, _, weights = source
    result = []
    for function in functions:
        begin, end, *clamp = function(block, rows)
        lower, upper = clamp or (0, rows)
        assert 0 <= lower <= upper <= rows, "clamped to rows that are not there"
        begin, end = max(begin, lower), min(end, upper)
        result += [row for row in range(begin, end) if weights(row) > -math.inf]
    assert len(result) == len(set(result)), "ranges overlap"
    return result


def split_levels(op, streams, tokens, group, rank, levels):
    """For each level the block size, the source and its rows (first, count)."""
    counts = [tokens]
    counts += [
        -(-tokens // (group * 2**level)) * rank for level in range(levels)
    ]
    if op == "fast_multipole_linear":
        assert len(streams) == levels + 1
        assert streams[0][0] == group
        assert all(block == rank for block, _ in streams[1:])
        assert all(len(sources) == 1 for _, sources in streams)
        assert [sources[0][0] for _, sources in streams] == counts
        return [(sources[0], 0, count) for (_, sources), count in zip(streams, counts)]
    # The near field, and one pool of all levels.
    ((block, (near, pool)),) = streams
    assert block == group
    assert near[0] == tokens and pool[0] == sum(counts[1:])
    firsts = [sum(counts[1:level]) for level in range(1, levels + 1)]
    return [(near, 0, tokens)] + [(pool, f, c) for f, c in zip(firsts, counts[1:])]


def check_function(op, tokens, group, rank, causal, once, streams):
    levels = num_levels(tokens, group)
    linear = op == "fast_multipole_linear"
    by_level = split_levels(op, streams, tokens, group, rank, levels)
    reads = 0
    for i in range(tokens):
        owner = [None] * tokens
        for level, (source, first, count) in enumerate(by_level):
            size = group * 2 ** max(level - 1, 0)
            block = i // size if linear else i // group
            segment = size // rank if level else 1
            rows = [r - first for r in rows_read(source, block)]
            rows = [r for r in rows if 0 <= r < count]
            if level:
                assert len(rows) <= 3 * rank, f"level {level} reads {len(rows)} rows"
            for row in rows:
                stands_for = range(row * segment, min((row + 1) * segment, tokens))
                if level == 0 and source[2] and row > i:
                    continue
                weight = source[3](first + row)
                if level:
                    present = len(stands_for) / (segment if linear else 1)
                    wanted = 0.0 if once else math.log(present)
                    assert abs(weight - wanted) < 1e-15, (level, row, weight, wanted)
                for j in stands_for:
                    assert owner[j] is None, f"({i}, {j}) is read twice"
                    owner[j] = level
                    reads += 1
        for j in range(tokens):
            wanted = owning_level(i, j, group, levels)
            if causal and j > i:
                wanted = None
            assert owner[j] == wanted, (
                f"({i}, {j}) is read by level {owner[j]}, expected {wanted}"
            )
    return reads


def check():
    text = sys.stdin.read()
    maps = parse_maps(text)
    functions = text.split("func.func @")[1:]
    assert len(functions) == 6 * len(SIZES), len(functions)
    for function in functions:
        name = function.split("(", 1)[0]
        op, tokens, group, rank, causal, once = name.rsplit("_", 5)
        reads = check_function(
            op,
            int(tokens),
            int(group),
            int(rank),
            causal == "1",
            once == "1",
            parse_streams(function, maps),
        )
        print(f"{name}: {reads} entries, each read once")


if __name__ == "__main__":
    {"emit": emit, "check": check}[sys.argv[1]]()
