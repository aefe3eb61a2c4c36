# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attn.stream with sources drawn at random, as IR."""

import numpy as np

import fovea

from .attention import drop, sees
from .case import softmax, spread, wide

#: Ranges that never overlap, as affine expressions of the block b, the rows of the
#: source and the queries n. C is the block.
RANGES = [
    [("0", "rows")],
    [("b * C - C", "b * C + C")],
    [("b * C", "b * C + 2 * C")],
    [("0", "b - 1")],
    [("0", "b - 1"), ("b + 2", "rows")],
    [("b mod 3 * 5", "b mod 3 * 5 + 4")],
    [("-10", "b - 5")],
    [("b floordiv 2 * 2 - 2", "b - 1"), ("b + 1", "b + 3")],
]
KINDS = {"f32": "f32", "f64": "f64", "bf16": "bf16", "f16": "f16"}


def read(ranges, C, N, rows):
    """The entries that ranges name."""
    entries = np.zeros((N, rows), bool)
    for i in range(N):
        for bounds in ranges:
            low, high = (
                eval(text.replace("floordiv", "//").replace("mod", "%"), {"b": i // C, "C": C, "rows": rows, "n": N})
                for text in bounds
            )
            entries[i, max(low, 0) : max(min(high, rows), 0)] = True
    return entries


def code_type(codes):
    return f"tensor<{'x'.join(map(str, codes.shape))}xi32>"


class Source:
    def __init__(self, case, number, B, H, G, N, C, D, E):
        self.name = str(number)
        self.ranges = case.pick(f"ranges{number}", RANGES)
        self.rows = N if case.flip(f"same{number}") else case.length(f"M{number}", 129)
        self.causal, self.window = case.flip(f"causal{number}", 0.4), case.pick(f"window{number}", [None, None, 3, 20])
        M = self.rows
        self.arrays, self.kinds = {}, {}
        table = case.pick(f"table{number}", [0, 0, 0, 3, 17])
        self.codes = case.random.integers(0, table, (B, G, M)).astype(np.int32) if table else None
        self.add("k", case.normal(B, G, table or M, D), case.type)
        self.add("v", case.normal(B, G, M, E), case.type)
        state = "f64" if case.type == "f64" else "f32"
        if case.flip(f"log_weight{number}", 0.4):
            self.add("lw", drop(case, case.normal(*case.leading((B, G)), M, dtype=case.state)), state)
        if case.flip(f"bias{number}", 0.3):
            self.add("b", drop(case, case.normal(*case.leading((B, H, N)), M, dtype=case.state)), state)
        self.entries = read(self.ranges, C, N, M) & sees(N, M, self.causal, self.window)

    def add(self, what, array, kind):
        self.arrays[what + self.name] = array
        self.kinds[what + self.name] = f"tensor<{'x'.join(map(str, array.shape))}x{kind}>"

    def text(self, C):
        n, kinds = self.name, self.kinds
        text = f"    source(%k{n}, %v{n} : {kinds['k' + n]}, {kinds['v' + n]})"
        if self.codes is not None:
            text += f" codes(%z{n} : {code_type(self.codes)})"
        for what, clause in (("lw", "log_weight"), ("b", "bias")):
            if what + n in kinds:
                text += f" {clause}(%{what}{n} : {kinds[what + n]})"
        maps = (f"affine_map<(b)[rows, n] -> ({low}, {high})>" for low, high in self.ranges)
        text += f"\n        ranges [{', '.join(maps).replace('C', str(C))}]"
        masks = ["causal"] * self.causal + [f"window = {self.window}"] * (self.window is not None)
        return text + (f" mask <{', '.join(masks)}>" if masks else "") + "\n"

    def scores(self, q, scale, given):
        """Scores, where they are admitted, and values, for all heads of queries."""
        H = q.shape[1]
        keys, n = given["k" + self.name], self.name
        if self.codes is not None:
            keys = np.take_along_axis(keys, self.codes[..., None].astype(int), 2)
        scores = scale * (q @ spread(keys, H).swapaxes(2, 3))
        admitted = np.broadcast_to(self.entries, scores.shape)
        for what in ("lw", "b"):
            if what + n in given:
                term = given[what + n]
                if what == "lw":
                    term = np.broadcast_to(term, (*keys.shape[:2], self.rows))
                    term = spread(term, H)[:, :, None]
                admitted = admitted & ~np.isneginf(term.real)
                scores = scores + np.where(np.isneginf(term.real), 0, term)
        return scores, admitted, spread(given["v" + n], H)


def module(sources, C, scale, sizes, kind, state, lse):
    B, H, N, D, E = sizes
    q, out = f"tensor<{B}x{H}x{N}x{D}x{kind}>", f"tensor<{B}x{H}x{N}x{E}x{kind}>"
    row = f"tensor<{B}x{H}x{N}x{state}>"
    parameters = [f"%q: {q}"]
    for source in sources:
        parameters += [f"%{name}: {type}" for name, type in source.kinds.items()]
        if source.codes is not None:
            parameters.append(f"%z{source.name}: {code_type(source.codes)}")
    types = f"{out}, {row}" if lse else out
    return (
        f"func.func @stream({', '.join(parameters)}) -> ({types}) {{\n"
        f"  %i0 = tensor.empty() : {out}\n  %i1 = tensor.empty() : {row}\n"
        f"  %r{':2' * lse} = attn.stream query(%q : {q})\n"
        + "".join(source.text(C) for source in sources)
        + f"    outs(%i0{', %i1' * lse} : {types}) {{block = {C} : i64, scale = {scale:e} : f64}} -> {types}\n"
        f"  return {'%r#0, %r#1' if lse else '%r'} : {types}\n}}\n"
    )


def stream(case):
    B, H, G = case.heads()
    N, C = case.length("N", 129), case.pick("block", [1, 4, 7, 16, 24, 64])
    D, E = case.width("D"), case.width("E")
    scale = case.pick("scale", [0.25, 1.0])
    sources = [Source(case, n, B, H, G, N, C, D, E) for n in range(case.pick("sources", [1, 1, 2, 3]))]
    arrays = {"q": case.normal(B, H, N, D)}
    for source in sources:
        arrays |= source.arrays
    state = "f64" if case.type == "f64" else "f32"
    kernel = fovea.compile(
        module(sources, C, scale, (B, H, N, D, E), KINDS[case.type], state, True), target=case.target
    )

    def arguments(given):
        listed = [given["q"]]
        for source in sources:
            listed += [given[name] for name in source.arrays]
            listed += [] if source.codes is None else [source.codes]
        return listed

    forward = lambda **x: kernel(*arguments(x))  # noqa: E731
    clean = case.twice(lambda: forward(**arrays))
    out, lse = clean

    def formula(q, **given):
        parts = [source.scores(q, scale, given) for source in sources]
        scores, admitted, values = (np.concatenate(part, axis) for part, axis in zip(zip(*parts), (3, 3, 2)))
        weights, lse = softmax(scores, admitted)
        return [weights @ values, lse], admitted

    (expected, expected_lse), admitted = formula(**{name: wide(array) for name, array in arrays.items()})
    size = max(np.abs(wide(arrays[name])).max() for name in arrays if name[0] == "v")
    case.close(out, expected, "out", factor=4, size=size)
    if case.type in ("f32", "f64"):
        case.close(lse, expected_lse, "lse", factor=8, size=4)
    source = sources[int(case.random.integers(len(sources)))]
    b, g, j = int(case.random.integers(B)), int(case.random.integers(G)), int(case.random.integers(source.rows))
    first = sum(other.rows for other in sources[: sources.index(source)])
    keep = np.ones((B, H, N), bool)
    heads = slice(g * (H // G), (g + 1) * (H // G))
    keep[b, heads] = ~admitted[b, heads, :, first + j]
    case.hidden(forward, arrays, clean, ("v" + source.name, (b, g, j, 0)), [keep[..., None], keep], "forward")

    if any(other.codes is not None for other in sources):
        return  # vq_backward has these
    listed = [name for name in arrays]
    places: list[int] = []
    at = 1
    for other in sources:
        places += range(at, at + len(other.arrays))
        at += len(other.arrays)
    gradient = kernel.vjp([0, *places])
    d_out, d_lse = case.normal(*out.shape), case.normal(*np.shape(lse), dtype=case.state)
    d_lse[np.isneginf(lse)] = 0
    found = case.twice(lambda: gradient(*arguments(arrays), d_out, d_lse))
    safe = lambda **x: [np.where(np.isneginf(r.real), 0, r) for r in formula(**x)[0]]  # noqa: E731
    case.gradients(safe, arrays, [d_out, d_lse], dict(zip(listed, found)), factor=4)
