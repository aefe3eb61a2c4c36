# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Lists of sources in Python: masks, lists of rows, lengths, documents, sinks, and functions of scores."""

import numpy as np

import fovea

from .attention import drop
from .case import softmax, wide

#: Ranges that never overlap, as functions of the block b, the rows of a source and the queries n.
BOTH_SIDES = lambda b, rows, n: [(0, b - 1), (b + 2, rows)]  # noqa: E731
RANGES = [
    None,
    None,
    lambda b, rows, n: (0, rows),
    lambda b, rows, n: (5 * b - 5, 5 * b + 5),
    BOTH_SIDES,
    lambda b, rows, n: (3 * b, 8 * b + 4, 2, rows - 3),
]


# Each makes the array that a function captures, or None; the function, as it is traced; and what NumPy computes, where
# that is not the same. Functions have the captured array as their last argument.


def soft_cap(case, B, H, M):
    return None, lambda s, b, h, i, j: 3 * fovea.math.tanh(s / 3), lambda s, b, h, i, j: 3 * np.tanh(s / 3)


def slopes(case, B, H, M):
    return case.normal(H, dtype=case.state, size=0.1), lambda s, b, h, i, j, slopes: s + slopes[h] * (j - i)


def distances(case, B, H, M):
    """A table by distance, and what is further away shares its ends."""

    def traced(s, b, h, i, j, table):
        return s + table[h, fovea.math.minimum(fovea.math.maximum(j - i + 4, 0), 8)]

    return case.normal(H, 9, dtype=case.state), traced


def factors(case, B, H, M):
    return case.normal(B, H, dtype=case.state), lambda s, b, h, i, j, factors: s * factors[b, h]


def removed(case, B, H, M):
    """Scores that a condition makes minus infinity."""
    return None, lambda s, b, h, i, j: fovea.math.where((i + j) % 5 == 0, -np.inf, s)


SCORES = [None, None, None, soft_cap, slopes, distances, factors, removed]


def dilated(case, B, H, M):
    return None, lambda b, h, i, j: (i - j) % 3 == 0


def banded(case, B, H, M):
    return None, lambda b, h, i, j: (j - 2 <= i) & (i - j < 7)


def outside(case, B, H, M):
    return None, lambda b, h, i, j: (j > i + 3) | (j < i - 5) | (h == 1)


def marked(case, B, H, M):
    return case.random.integers(0, 2, (B, M)).astype(np.int32), lambda b, h, i, j, marked: marked[b, j] == 0


def begun(case, B, H, M):
    return case.random.integers(0, M + 1, H).astype(np.int32), lambda b, h, i, j, begins: j >= begins[h]


ADMITS = [None, None, None, dilated, banded, outside, begun]


class Function:
    """A function of scores or entries, and the array that it captures."""

    def __init__(self, make, name, case, B, H, M):
        array, self.traced, *plain = make(case, B, H, M)
        self.plain, self.name = plain[0] if plain else self.traced, name
        self.arrays = {} if array is None else {name: array}

    def call(self, given):
        if not self.arrays:
            return self.traced
        function, array = self.traced, fovea.capture(given[self.name])
        # Functions are for a number of arguments.
        if function.__code__.co_argcount == 5:
            return lambda b, h, i, j: function(b, h, i, j, array)
        return lambda s, b, h, i, j: function(s, b, h, i, j, array)

    @property
    def floats(self):
        """Names of arrays that have a gradient."""
        return [name for name, array in self.arrays.items() if array.dtype.kind != "i"]

    def of_number(self, given, *arguments):
        return self.plain(*arguments, *(given[name] for name in self.arrays))


def draw_function(case, choices, what, B, H, M):
    make = case.random.choice(np.array(choices, dtype=object))
    case.note(**{what: make and make.__name__})
    return make and Function(make, what, case, B, H, M)


class Source:
    def __init__(self, case, number, sizes, block, short):
        B, H, G, N, D, E = sizes
        self.n, self.sizes, self.block = str(number), sizes, block
        self.stride = case.pick(f"stride{number}", [1, 1, 1, 4])
        M = self.M = N // self.stride if case.flip(f"same{number}") else case.length(f"M{number}", 65)
        self.options = {"stride": self.stride}
        if case.flip(f"causal{number}"):
            self.options["causal"] = True
            self.options["prefix"] = case.pick(f"prefix{number}", [None, None, 0, 5])
        if self.options.get("prefix") is None:
            self.options["window"] = case.pick(f"window{number}", [None, None, 1, 7, 30])
        self.lengths = case.flip(f"lengths{number}", 0.25)
        kind = case.pick(f"rows{number}", [None, None, None, "stored", "listed"])
        # Beside lengths and rows that stand where they are listed there is one range.
        one = self.lengths or short or kind == "listed"
        ranges = [each for each in RANGES if not (one and each is BOTH_SIDES)]
        self.ranges = case.random.choice(np.array(ranges, dtype=object)) if block else None
        case.note(**{f"ranges{number}": self.ranges and RANGES.index(self.ranges)})
        # Rows of the memory, and those that are looked at.
        self.listed, self.units, self.unit, self.shared, self.looked = False, None, 1, False, M
        if kind is not None and M:
            self.unit = case.pick(f"unit{number}", [1, 3, 8])
            units = -(-M // self.unit)
            self.shared = case.flip(f"pool{number}") and kind == "listed"
            blocks = -(-N // block) if block else 1
            heads = [G, H][int(case.random.integers(2))]
            lists = (*case.leading((B, heads, blocks)), case.pick(f"R{number}", [1, 4, 9]))
            if kind == "listed":
                lists = (lists[0], lists[1], 1, lists[3])
            self.units = case.random.integers(-1, units, lists).astype(np.int32)
            self.listed = kind == "listed"
            self.options |= {"rows": self.units, "unit": self.unit, "positions": kind}
            self.looked = lists[-1] * self.unit if self.listed else M
        pages = 1 if self.shared else B
        self.arrays = {"k" + self.n: case.normal(pages, G, M, D), "v" + self.n: case.normal(pages, G, M, E)}
        if not self.listed:
            if case.flip(f"log_weight{number}", 0.25):
                self.arrays["log_weight" + self.n] = drop(case, case.normal(*case.leading((B, G)), M, dtype=case.state))
            if case.flip(f"bias{number}", 0.2):
                self.arrays["bias" + self.n] = drop(case, case.normal(*case.leading((B, H, N)), M, dtype=case.state))
        if self.lengths:
            self.lengths = case.random.integers(0, self.looked * self.stride + 1, B).astype(np.int32)
            self.options["lengths"] = self.lengths
        self.segments = None
        if self.stride == 1 and not self.listed and case.flip(f"segments{number}", 0.2):
            self.segments = tuple(np.sort(case.random.integers(0, 4, (B, n))).astype(np.int32) for n in (N, M))
            self.options["segments"] = self.segments
        self.read = np.zeros((B, H, N, M), bool)
        most = max(self.looked * self.stride, 1)
        self.score = draw_function(case, SCORES, "score" + self.n, B, H, most)
        self.admit = draw_function(case, [*ADMITS, marked], "admit" + self.n, B, H, most)
        self.functions = [function for function in (self.score, self.admit) if function]

    def call(self, given):
        terms = {name: given[name + self.n] for name in ("log_weight", "bias") if name + self.n in given}
        functions = {
            name: function.call(given)
            for name, function in (("score", self.score), ("admit", self.admit))
            if function is not None
        }
        k, v = given["k" + self.n], given["v" + self.n]
        return fovea.Source(k, v, ranges=self.ranges, **self.options, **terms, **functions)

    def named(self, ranges, places, count, queries):
        """Entries that ranges name, of places among `count`."""
        entries = np.zeros(places.shape, bool)
        for i in range(queries):
            found = ranges(i // self.block, count, queries)
            for begin, end, *limits in found if isinstance(found, list) else [found]:
                lower, upper = limits or (begin, end)
                entries[i] |= (max(begin, lower) <= places[i]) & (places[i] < min(end, upper))
        return entries

    def scores(self, q, scale, given, b, h, queries, functions):
        """Scores of the queries that there are, which are admitted, and values, one list of rows for each query."""
        B, H, G, N, D, E = self.sizes
        g = h // (H // G)
        k, v = (given[name + self.n] for name in ("k", "v"))
        k, v = (array[b if len(array) > 1 else 0, g] for array in (k, v))
        i = np.arange(queries)[:, None]
        if self.units is None:
            rows = np.broadcast_to(np.arange(self.M), (queries, self.M))
            holds = np.ones(rows.shape, bool)
        else:
            lists = self.units[b if len(self.units) > 1 else 0]
            lists = lists[0 if len(lists) == 1 else h // (H // len(lists))]
            lists = lists[np.arange(queries) // self.block if len(lists) > 1 else np.zeros(queries, int)]
            rows = (lists[:, :, None] * self.unit + np.arange(self.unit)).reshape(queries, lists.shape[-1] * self.unit)
            holds = (lists >= 0).repeat(self.unit, 1) & (rows < self.M)
            rows = np.where(holds, rows, 0)
        places = np.broadcast_to(np.arange(self.looked), rows.shape) if self.listed else rows
        count = self.looked
        tokens = min(max(queries, count * self.stride), (count + 1) * self.stride - 1)
        if self.lengths is not False:
            tokens = int(self.lengths[b])
            count = tokens // self.stride
            holds = holds & (places < count)
        i, j = i + (tokens - queries), (places + 1) * self.stride - 1
        options = self.options
        if options.get("causal"):
            holds = holds & ((j <= i) | (j < (options.get("prefix") or 0)))
        if options.get("window") is not None:
            holds = holds & (np.abs(i - j) < options["window"])
        if self.ranges is not None:
            holds = holds & self.named(self.ranges, places, count, queries)
        if self.segments is not None:
            own, other = self.segments
            holds = holds & (own[b, :queries, None] == other[b][rows])
        scores = scale * np.einsum("nd,nkd->nk", q[b, h, :queries], k[rows])
        for score, admit in ((self.score, self.admit), functions):
            if score is not None:
                scores = score.of_number(given, scores, b, h, i, j)
                holds = holds & ~np.isneginf(scores.real)
                scores = np.where(holds, scores, 0)
            if admit is not None:
                inside = np.where(holds, j, 0)
                holds = holds & np.broadcast_to(admit.of_number(given, b, h, i, inside), holds.shape)
        for name in ("log_weight", "bias"):
            if name + self.n in given:
                term = given[name + self.n]
                if name == "log_weight":
                    term = np.broadcast_to(term, (B, G, self.M))[b, g][rows]
                else:
                    term = np.take_along_axis(np.broadcast_to(term, (B, H, N, self.M))[b, h, :queries], rows, 1)
                holds = holds & ~np.isneginf(term.real)
                scores = scores + np.where(np.isneginf(term.real), 0, term)
        query, place = np.nonzero(holds)
        self.read[b, h, query, rows[query, place]] = True
        return scores, holds, v[rows]

    def hide(self, case, forward, arrays, clean):
        """A NaN or an infinity in a row reaches those queries alone that read it."""
        if not self.M:
            return
        B, H, G, N, D, E = self.sizes
        name, g = "kv"[int(case.random.integers(2))] + self.n, int(case.random.integers(G))
        page, row = int(case.random.integers(len(arrays[name]))), int(case.random.integers(self.M))
        batches = slice(None) if self.shared else page
        keep, heads = np.ones((B, H, N), bool), slice(g * (H // G), (g + 1) * (H // G))
        keep[batches, heads] = ~self.read[batches, heads, :, row]
        case.hidden(forward, arrays, clean, (name, (page, g, row, 0)), [keep[..., None], keep], "forward")


def mixture(case):
    B, H, G = case.heads()
    N, block = case.length("N", 65), case.pick("block", [0, 1, 4, 7, 16])
    D, E = case.width("D", 33), case.width("E", 33)
    scale = case.pick("scale", [None, 0.25, 1.0])
    sizes = (B, H, G, N, D, E)
    short = case.flip("query_lengths", 0.2)
    sources = [Source(case, n, sizes, block, short) for n in range(case.pick("sources", [1, 1, 2, 3]))]
    arrays = {"q": case.normal(B, H, N, D)}
    for source in sources:
        arrays |= source.arrays
        for function in source.functions:
            arrays |= function.arrays
    options = {"block": block, "scale": scale, "target": case.target}
    if case.flip("sink", 0.3):
        arrays["sink"] = case.normal(*case.leading((B,)), H, dtype=case.state)
    queries = np.full(B, N)
    if short:
        queries = case.random.integers(0, N + 1, B).astype(np.int32)
        options["query_lengths"] = queries
    score = draw_function(case, SCORES, "score", B, H, 1)
    admit = draw_function(case, ADMITS, "admit", B, H, 1)
    functions = [function for function in (score, admit) if function]
    for function in functions:
        arrays |= function.arrays

    def call(function, given, *leading, **more):
        terms = {"sink": given["sink"]} if "sink" in given else {}
        if score:
            terms["score"] = score.call(given)
        if admit:
            terms["admit"] = admit.call(given)
        listed = [source.call(given) for source in sources]
        return function(*leading, given["q"], listed, *more.pop("results", ()), **options, **terms, **more)

    forward = lambda **x: call(fovea.stream, x, return_lse=True)  # noqa: E731
    clean = case.twice(lambda: forward(**arrays))
    out, lse = clean
    factor = 1 / np.sqrt(D) if scale is None else scale

    def formula(**given):
        kind = np.result_type(*(array for array in given.values() if array.dtype.kind in "fc"))
        out, lse = np.zeros((B, H, N, E), kind), np.full((B, H, N), -np.inf, kind)
        for b in range(B):
            for h in range(H):
                n = int(queries[b])
                parts = [source.scores(given["q"], factor, given, b, h, n, (score, admit)) for source in sources]
                scores, holds, values = (np.concatenate(part, 1) for part in zip(*parts))
                if "sink" in given:
                    sink = np.broadcast_to(given["sink"], (B, H))[b, h]
                    scores = np.concatenate([scores, np.full((n, 1), sink)], 1)
                    holds = np.concatenate([holds, np.ones((n, 1), bool)], 1)
                    values = np.concatenate([values, np.zeros((n, 1, E))], 1)
                weights, lse[b, h, :n] = softmax(scores, holds)
                out[b, h, :n] = np.einsum("nk,nke->ne", weights, values)
        return [out, lse]

    plain = {name: array if array.dtype.kind == "i" else wide(array) for name, array in arrays.items()}
    expected, expected_lse = formula(**plain)
    size = max(np.abs(wide(arrays["v" + source.n])).max(initial=0) for source in sources)
    case.close(out, expected, "out", factor=8, size=size)
    if case.type in ("f32", "f64"):
        case.close(lse, expected_lse, "lse", factor=16, size=4)
    sources[int(case.random.integers(len(sources)))].hide(case, forward, arrays, clean)
    if any(source.shared for source in sources) and B > 1:
        return  # A pool of pages has no gradient.
    d_out, d_lse = case.normal(*out.shape), case.normal(B, H, N, dtype=case.state)
    d_lse[np.isneginf(lse)] = 0

    def backward():
        return call(
            fovea.stream_backward, arrays, d_out, results=(out, lse), d_lse=d_lse, return_d_captures=True
        )

    d_q, gradients, *rest = case.twice(backward)
    found = {"q": d_q}
    for source, of in zip(sources, gradients):
        found |= {"k" + source.n: of.k, "v" + source.n: of.v}
        for name in ("log_weight", "bias"):
            if name + source.n in arrays:
                found[name + source.n] = getattr(of, name)
        captured = [name for function in source.functions for name in function.floats]
        case.require(len(of.captures) == len(captured), f"{len(of.captures)} gradients of {captured}")
        found |= dict(zip(captured, of.captures))
    if "sink" in arrays:
        found["sink"], *rest = rest
    captured = [name for function in functions for name in function.floats]
    case.require(len(rest) == len(captured), f"{len(rest)} gradients of {captured}")
    found |= dict(zip(captured, rest))
    integers = {name: array for name, array in arrays.items() if array.dtype.kind == "i"}
    floats = {name: array for name, array in arrays.items() if name not in integers}
    safe = lambda **x: [np.where(np.isneginf(r.real), 0, r) for r in formula(**x, **integers)]  # noqa: E731
    case.gradients(safe, floats, [d_out, d_lse], found, factor=8)
