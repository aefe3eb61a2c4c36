# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes transformer layers over compressed sequences as IR.

    layer = Shape(batch=1, vip=48, tokens=4096, heads=12, width=64, hidden=3072,
                  ratio=16, levels=1, budgets={1: 90})
    text = encoder(layer, depth=12)

One function holds the whole encoder: the tree is built from the tokens once, each
layer selects nodes, fetches their rows, runs attention, projections and MLP over
VIP tokens and rows, and updates the tree in place; the end of it materializes the
sequence.  Attention is attn.stream with two sources, the VIP tokens and the nodes
with the logarithm of how many tokens each stands for.
"""

from dataclasses import dataclass, field

import ir_writer
from ir_writer import tensor

WEIGHTS = ("wq", "bq", "wk", "bk", "wv", "bv", "wo", "bo", "g1", "b1", "w1", "c1", "w2", "c2", "g2", "b2")


@dataclass
class Shape:
    batch: int
    vip: int
    tokens: int
    heads: int
    width: int
    hidden: int
    ratio: int = 16
    levels: int = 1
    budgets: dict = field(default_factory=dict)
    # True: norm, attention, add (pre-norm). False: attention, add, norm (BERT).
    pre_norm: bool = True
    masked: bool = False
    epsilon: float = 1e-5

    @property
    def features(self):
        return self.heads * self.width

    @property
    def roots(self):
        return self.tokens // self.ratio**self.levels

    @property
    def nodes(self):
        return self.roots * (self.ratio ** (self.levels + 1) - 1) // (self.ratio - 1)

    @property
    def rows(self):
        """Nodes that the budgets leave."""
        return self.roots + sum(self.budgets.values()) * (self.ratio - 1)

    def weight_shapes(self):
        F, hidden = self.features, self.hidden
        shapes = {"w1": (F, hidden), "c1": (hidden,), "w2": (hidden, F)}
        return {name: shapes.get(name, (F, F) if name[0] == "w" else (F,)) for name in WEIGHTS}


class Writer(ir_writer.Writer):
    """Statements of one function; every method returns the name of its result."""

    def __init__(self, shape):
        super().__init__()
        self.shape = shape

    def named(self, op, a, b, n, F):
        return super().named(op, a, b, self.shape.batch, n, F)

    def linear(self, x, weight, bias, n, ins, outs):
        """x [B,n,ins] times weight [ins,outs], plus bias [outs]."""
        B = self.shape.batch
        t = tensor(B, n, outs)
        product = self.product(x, weight, B, n, ins, outs)
        return self.generic(
            [(product, t), (bias, tensor(outs))], ["d0, d1, d2", "d2"], t, "d0, d1, d2",
            ["parallel"] * 3, ["%s = arith.addf %i0, %i1 : f32", "linalg.yield %s : f32"],
        )  # fmt: skip

    def norm(self, x, gain, bias, n):
        B, F = self.shape.batch, self.shape.features
        t, column, every = tensor(B, n, F), tensor(B, n), "d0, d1, d2"
        reduced = ["parallel", "parallel", "reduction"]
        total = self.generic(
            [(x, t)], [every], column, "d0, d1", reduced,
            ["%s = arith.addf %acc, %i0 : f32", "linalg.yield %s : f32"], self.zeros(B, n),
        )  # fmt: skip
        share = f"%share = arith.constant {1 / F:.9e} : f32"
        spread = self.generic(
            [(x, t), (total, column)], [every, "d0, d1"], column, "d0, d1", reduced,
            [share, "%m = arith.mulf %i1, %share : f32", "%d = arith.subf %i0, %m : f32",
             "%q = arith.mulf %d, %d : f32", "%s = arith.addf %acc, %q : f32",
             "linalg.yield %s : f32"], self.zeros(B, n),
        )  # fmt: skip
        scaled = self.generic(
            [(x, t), (total, column), (spread, column), (gain, tensor(F))],
            [every, "d0, d1", "d0, d1", "d2"], t, every, ["parallel"] * 3,
            [share, f"%e = arith.constant {self.shape.epsilon:.9e} : f32",
             "%m = arith.mulf %i1, %share : f32", "%d = arith.subf %i0, %m : f32",
             "%v = arith.mulf %i2, %share : f32", "%w = arith.addf %v, %e : f32",
             "%r = math.rsqrt %w : f32", "%n = arith.mulf %d, %r : f32",
             "%s = arith.mulf %n, %i3 : f32", "linalg.yield %s : f32"],
        )  # fmt: skip
        shift = self.op(
            f"linalg.broadcast ins({bias} : {tensor(F)}) outs({self.empty(B, n, F)} : {t}) dimensions = [0, 1]"
        )
        return self.named("add", scaled, shift, n, F)

    def gelu(self, x, n, width):
        t = tensor(self.shape.batch, n, width)
        share = self.generic(
            [(x, t)], ["d0, d1, d2"], t, "d0, d1, d2", ["parallel"] * 3,
            ["%r = arith.constant 7.07106781e-01 : f32", "%h = arith.constant 0.5 : f32",
             "%one = arith.constant 1.0 : f32", "%a = arith.mulf %i0, %r : f32",
             "%e = math.erf %a : f32", "%b = arith.addf %e, %one : f32",
             "%s = arith.mulf %b, %h : f32", "linalg.yield %s : f32"],
        )  # fmt: skip
        return self.named("mul", x, share, n, width)

    # -- shapes --------------------------------------------------------------

    def heads(self, x, n):
        """[B,n,H D] as [B,H,n,D]."""
        s = self.shape
        return self.split_heads(x, s.batch, n, s.heads, s.width)

    def merge(self, x, n):
        """The inverse of `heads`."""
        s = self.shape
        return self.merge_heads(x, s.batch, n, s.heads, s.width)

    def slice(self, x, first, count, total):
        s = self.shape
        return self.op(
            f"tensor.extract_slice {x}[0, {first}, 0] [{s.batch}, {count}, {s.features}] [1, 1, 1] : "
            f"{tensor(s.batch, total, s.features)} to {tensor(s.batch, count, s.features)}"
        )

    def concat(self, a, b, n, m):
        """[B,n,F] and [B,m,F] as [B,n+m,F]."""
        s = self.shape
        t = tensor(s.batch, n + m, s.features)
        first = self.op(
            f"tensor.insert_slice {a} into {self.empty(s.batch, n + m, s.features)}[0, 0, 0] "
            f"[{s.batch}, {n}, {s.features}] [1, 1, 1] : {tensor(s.batch, n, s.features)} into {t}"
        )
        return self.op(
            f"tensor.insert_slice {b} into {first}[0, {n}, 0] [{s.batch}, {m}, {s.features}] "
            f"[1, 1, 1] : {tensor(s.batch, m, s.features)} into {t}"
        )

    def part(self, x, first, count, total):
        """Rows of [B,H,total,D]."""
        s = self.shape
        return self.op(
            f"tensor.extract_slice {x}[0, 0, {first}, 0] [{s.batch}, {s.heads}, {count}, {s.width}] "
            f"[1, 1, 1, 1] : {tensor(s.batch, s.heads, total, s.width)} to "
            f"{tensor(s.batch, s.heads, count, s.width)}"
        )

    # -- trees ---------------------------------------------------------------

    @property
    def attribute(self):
        return f"shape = #attn.tree<ratio = {self.shape.ratio}, levels = {self.shape.levels}>"

    def tree_type(self):
        return tensor(self.shape.batch, self.shape.nodes, self.shape.features)

    def counts(self, name):
        """The clause that names the counts of a tree with padding."""
        s = self.shape
        return f" counts({name} : {tensor(s.batch, s.nodes, element='i32')})" if name else ""

    def build(self, tokens, mask=None):
        s, t = self.shape, self.tree_type()
        source = tensor(s.batch, s.tokens, s.features)
        init = self.empty(s.batch, s.nodes, s.features)
        if not mask:
            return self.op(f"attn.tree_build ins({tokens} : {source}) outs({init} : {t}) {{{self.attribute}}} -> {t}"), None
        c = tensor(s.batch, s.nodes, element="i32")
        counts = self.empty(s.batch, s.nodes, element="i32")
        return self.op(
            f"attn.tree_build ins({tokens} : {source}) mask({mask} : {tensor(s.batch, s.tokens, element='i1')}) "
            f"outs({init}, {counts} : {t}, {c}) {{{self.attribute}}} -> {t}, {c}", 2,
        )  # fmt: skip

    def select(self, tree, counts, queries, vip, keys_of):
        """Nodes by the probability that the layer's heads give to them; `keys_of`
        writes the keys [B,H,c,D] of rows [B,c,F] of the top level."""
        s = self.shape
        listed = tensor(s.batch, s.rows, element="i32")
        inits = [self.empty(s.batch, s.rows, element="i32") for _ in range(2)]
        budgets = ", ".join(str(s.budgets.get(level, 0)) for level in range(1, s.levels + 1))
        inner = Writer(s)
        inner.count = self.count + 1000
        c = s.roots
        keys = keys_of(inner, "%rows", c)
        weight = tensor(s.batch, c)
        score = inner.op(
            f"attn.tree_score ins({queries}, {keys} : {tensor(s.batch, s.heads, vip, s.width)}, "
            f"{tensor(s.batch, s.heads, c, s.width)}) "
            + (f"log_weight(%weight : {weight}) " if counts else "")
            + f"outs({inner.empty(s.batch, c)} : {weight}) -> {weight}"
        )
        self.count = inner.count
        arguments = f"%rows: {tensor(s.batch, c, s.features)}" + (f", %weight: {weight}" if counts else "")
        body = "\n    ".join(inner.lines)
        return self.op(
            f"attn.tree_select ins({tree} : {self.tree_type()}){self.counts(counts)} "
            f"outs({inits[0]}, {inits[1]} : {listed}, {listed})\n"
            f"    {{{self.attribute}, budgets = array<i64: {budgets}>}} -> {listed}, {listed} score {{\n"
            f"  ^bb0({arguments}):\n    {body}\n    attn.yield {score} : {weight}\n  }}", 2,
        )  # fmt: skip

    def fetch(self, tree, counts, nodes):
        s = self.shape
        listed, rows = tensor(s.batch, s.rows, element="i32"), tensor(s.batch, s.rows, s.features)
        weight = tensor(s.batch, s.rows)
        return self.op(
            f"attn.tree_fetch ins({tree} : {self.tree_type()}) nodes({nodes[0]}, {nodes[1]} : {listed}, {listed})"
            f"{self.counts(counts)} outs({self.empty(s.batch, s.rows, s.features)}, {self.empty(s.batch, s.rows)} : "
            f"{rows}, {weight}) {{{self.attribute}}} -> {rows}, {weight}", 2,
        )  # fmt: skip

    def update(self, tree, counts, nodes, rows):
        s, t = self.shape, self.tree_type()
        listed = tensor(s.batch, s.rows, element="i32")
        return self.op(
            f"attn.tree_update ins({rows} : {tensor(s.batch, s.rows, s.features)}) "
            f"nodes({nodes[0]}, {nodes[1]} : {listed}, {listed}){self.counts(counts)} "
            f"outs({tree} : {t}) {{{self.attribute}}} -> {t}"
        )

    def materialize(self, tree):
        s = self.shape
        t = tensor(s.batch, s.tokens, s.features)
        init = self.empty(s.batch, s.tokens, s.features)
        return self.op(
            f"attn.tree_materialize ins({tree} : {self.tree_type()}) outs({init} : {t}) {{{self.attribute}}} -> {t}"
        )

    # -- attention and layers ------------------------------------------------

    def attend(self, queries, sources, n):
        """One soft-max of [B,H,n,D] over sources (keys, values, rows, log weight)."""
        s = self.shape
        out = tensor(s.batch, s.heads, n, s.width)
        text = f"attn.stream query({queries} : {out})\n"
        for keys, values, rows, weight in sources:
            t = tensor(s.batch, s.heads, rows, s.width)
            text += f"    source({keys}, {values} : {t}, {t})"
            if weight:
                wide = tensor(s.batch, 1, rows)
                spread = self.op(
                    f"tensor.expand_shape {weight} [[0, 1], [2]] output_shape [{s.batch}, 1, {rows}] : "
                    f"{tensor(s.batch, rows)} into {wide}"
                )
                text += f" log_weight({spread} : {wide})"
            text += " ranges [affine_map<(b)[rows, n] -> (0, rows)>]\n"
        init = self.empty(s.batch, s.heads, n, s.width)
        return self.op(text + f"    outs({init} : {out}) {{scale = {s.width**-0.5:.9e} : f64}} -> {out}")

    def mlp(self, x, w, n):
        s = self.shape
        hidden = self.linear(x, w["w1"], w["c1"], n, s.features, s.hidden)
        return self.linear(self.gelu(hidden, n, s.hidden), w["w2"], w["c2"], n, s.hidden, s.features)

    def layer(self, w, x, n, sources_of):
        """A layer over x [B,n,F]; `sources_of(keys, values)` names the sources."""
        s, F = self.shape, self.shape.features
        h = self.norm(x, w["g1"], w["b1"], n) if s.pre_norm else x
        q, k, v = (self.heads(self.linear(h, w["w" + i], w["b" + i], n, F, F), n) for i in "qkv")
        mixed = self.merge(self.attend(q, sources_of(k, v), n), n)
        x = self.named("add", x, self.linear(mixed, w["wo"], w["bo"], n, F, F), n, F)
        if s.pre_norm:
            return self.named("add", x, self.mlp(self.norm(x, w["g2"], w["b2"], n), w, n), n, F)
        x = self.norm(x, w["g1"], w["b1"], n)
        return self.norm(self.named("add", x, self.mlp(x, w, n), n, F), w["g2"], w["b2"], n)

    def projected(self, w, x, n, *names):
        """Queries, keys or values, [B,H,n,D], of rows [B,n,F] as a layer sees them."""
        s, F = self.shape, self.shape.features
        h = self.norm(x, w["g1"], w["b1"], n) if s.pre_norm else x
        return [self.heads(self.linear(h, w["w" + i], w["b" + i], n, F, F), n) for i in names]

    def choose(self, w, vip, tree, counts):
        """The nodes that the heads of a layer want split for VIP tokens [B,np,F]."""
        s = self.shape
        (queries,) = self.projected(w, vip, s.vip, "q")
        return self.select(
            tree, counts, queries, s.vip, lambda b, rows, c: b.projected(w, rows, c, "k")[0]
        )


def _weights(shape, depth):
    arguments, layers = [], []
    for index in range(depth):
        layers.append({name: f"%{name}_{index}" for name in WEIGHTS})
        arguments += [(f"{name}_{index}", tensor(*size)) for name, size in shape.weight_shapes().items()]
    return arguments, layers


def encoder(shape, depth, return_nodes=False):
    """An encoder whose layers carry a tree: (vip, tokens[, mask], weights of each
    layer) -> (vip, tokens[, level and index of each layer])."""
    s, b = shape, Writer(shape)
    vip_type, token_type = tensor(s.batch, s.vip, s.features), tensor(s.batch, s.tokens, s.features)
    arguments = [("vip", vip_type), ("tokens", token_type)]
    if s.masked:
        arguments.append(("mask", tensor(s.batch, s.tokens, element="i1")))
    weights, layers = _weights(s, depth)
    tree, counts = b.build("%tokens", "%mask" if s.masked else None)
    vip, total, chosen = "%vip", s.vip + s.rows, []
    for w in layers:
        nodes = b.choose(w, vip, tree, counts)
        rows, weight = b.fetch(tree, counts, nodes)

        def sources(k, v, weight=weight):
            vip_part = [b.part(x, 0, s.vip, total) for x in (k, v)]
            row_part = [b.part(x, s.vip, s.rows, total) for x in (k, v)]
            return [(*vip_part, s.vip, None), (*row_part, s.rows, weight)]

        x = b.layer(w, b.concat(vip, rows, s.vip, s.rows), total, sources)
        vip = b.slice(x, 0, s.vip, total)
        tree = b.update(tree, counts, nodes, b.slice(x, s.vip, s.rows, total))
        chosen += nodes
    listed = tensor(s.batch, s.rows, element="i32")
    results = [(vip, vip_type), (b.materialize(tree), token_type)]
    results += [(name, listed) for name in chosen] if return_nodes else []
    return b.function("encoder", arguments + weights, results)


def dense_encoder(shape, depth):
    """The same encoder over all tokens: (x [B,N,F], weights) -> x."""
    s, b = shape, Writer(shape)
    n = s.vip + s.tokens
    weights, layers = _weights(s, depth)
    x = "%x"
    for w in layers:
        x = b.layer(w, x, n, lambda k, v: [(k, v, n, None)])
    t = tensor(s.batch, n, s.features)
    return b.function("dense", [("x", t)] + weights, [(x, t)])


def decoder_attention(shape, compressed=True):
    """Cross attention of a decoder (section 6.5): the tokens being decoded are the
    VIP tokens, over the tree of an encoder's output, or over all of it.
    (decoded [B,np,F], tokens or tree, weights) -> [B,np,F]."""
    s, b = shape, Writer(shape)
    F = s.features
    weights, (w,) = _weights(s, 1)
    (q,) = b.projected(w, "%decoded", s.vip, "q")
    rows, count, weight = "%memory", s.tokens, None
    if compressed:
        nodes = b.choose(w, "%decoded", "%memory", None)
        rows, weight = b.fetch("%memory", None, nodes)
        count = s.rows
    k, v = b.projected(w, rows, count, "k", "v")
    mixed = b.merge(b.attend(q, [(k, v, count, weight)], s.vip), s.vip)
    x = b.named("add", "%decoded", b.linear(mixed, w["wo"], w["bo"], s.vip, F, F), s.vip, F)
    t = tensor(s.batch, s.vip, F)
    memory_type = b.tree_type() if compressed else tensor(s.batch, s.tokens, F)
    return b.function("decoder", [("decoded", t), ("memory", memory_type)] + weights, [(x, t)])
