# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes a byte-level language model as IR.

    model = Model(batch=8, context=256, width=128, heads=4, hidden=352, layers=2)
    text = loss_function(model)      # (tokens, targets, parameters) -> mean cross entropy
    text = logits_function(model)    # (tokens, parameters) -> [B,N,256]

RMS norm, projections, causal attention (dense, fast multipole or over quantized
keys), SiLU-gated MLP, each with a residual. Only the forward pass is written:
gradients are --attn-differentiate's.
"""

from dataclasses import dataclass

from ir_writer import Writer, tensor

BYTES = 256
ROWS, REDUCED = ["parallel"] * 3, ["parallel", "parallel", "reduction"]


@dataclass
class Model:
    batch: int
    context: int
    width: int
    heads: int
    hidden: int
    layers: int
    attention: str = "dense"
    # Of multipole attention: tokens of a group, summaries of an interval.
    group: int = 32
    rank: int = 4
    element: str = "f32"

    @property
    def head_width(self):
        return self.width // self.heads

    @property
    def intervals(self):
        """Tokens of an interval of each level of multipole attention."""
        sizes, size = [], self.group
        while 2 * size < self.context:
            sizes.append(size)
            size *= 2
        return sizes

    def parameters(self):
        """Shapes by name, in the order of the arguments."""
        F, shapes = self.width, {"embedding": (BYTES, self.width), "position": (self.context, self.width)}
        for layer in range(self.layers):
            own = {"g1": (F,), "wq": (F, F), "wk": (F, F), "wv": (F, F), "wo": (F, F), "g2": (F,),
                   "gate": (F, self.hidden), "up": (F, self.hidden), "down": (self.hidden, F)}  # fmt: skip
            if self.attention == "multipole":
                for level, size in enumerate(self.intervals):
                    for side in ("ks", "vs"):
                        own[f"{side}{level}"] = (1, self.rank, size, self.head_width)
            shapes.update({f"{name}_{layer}": shape for name, shape in own.items()})
        shapes.update({"gain": (F,), "unembedding": (F, BYTES)})
        return shapes


class ModelWriter(Writer):
    def __init__(self, model):
        super().__init__(model.element)
        self.model = model

    def body(self, *lines):
        """Lines of a generic operation; `$T` is the element type."""
        return [line.replace("$T", self.element) for line in lines]

    def embed(self, tokens):
        """Rows of the embedding, as a product with ones and zeros, and positions."""
        m, T = self.model, self.element
        B, N, F = m.batch, m.context, m.width
        codes = self.op(f"arith.constant dense<{list(range(BYTES))}> : {tensor(BYTES, element='i32')}")
        ones = self.generic(
            [(tokens, tensor(B, N, element="i32")), (codes, tensor(BYTES, element="i32"))],
            ["d0, d1", "d2"], self.tensor(B, N, BYTES), "d0, d1, d2", ROWS,
            self.body("%one = arith.constant 1.0 : $T", "%zero = arith.constant 0.0 : $T",
                      "%e = arith.cmpi eq, %i0, %i1 : i32", "%s = arith.select %e, %one, %zero : $T",
                      "linalg.yield %s : $T"),
        )  # fmt: skip
        rows = self.product(ones, "%embedding", B, N, BYTES, F)
        return self.generic(
            [(rows, self.tensor(B, N, F)), ("%position", self.tensor(N, F))], ["d0, d1, d2", "d1, d2"],
            self.tensor(B, N, F), "d0, d1, d2", ROWS,
            self.body("%s = arith.addf %i0, %i1 : $T", "linalg.yield %s : $T"),
        )  # fmt: skip

    def row_sum(self, x, width, *lines):
        """Sums over rows [B,N,width] of %t, which `lines` compute from %i0."""
        m = self.model
        return self.generic(
            [(x, self.tensor(m.batch, m.context, width))], ["d0, d1, d2"],
            self.tensor(m.batch, m.context), "d0, d1", REDUCED,
            self.body(*lines, "%s = arith.addf %acc, %t : $T", "linalg.yield %s : $T"),
            self.zeros(m.batch, m.context),
        )  # fmt: skip

    def rms_norm(self, x, gain):
        m = self.model
        t = self.tensor(m.batch, m.context, m.width)
        squares = self.row_sum(x, m.width, "%t = arith.mulf %i0, %i0 : $T")
        return self.generic(
            [(x, t), (squares, self.tensor(m.batch, m.context)), (gain, self.tensor(m.width))],
            ["d0, d1, d2", "d0, d1", "d2"], t, "d0, d1, d2", ROWS,
            self.body(f"%share = arith.constant {1 / m.width:.17e} : $T", "%tiny = arith.constant 1.0e-6 : $T",
                      "%q = arith.mulf %i1, %share : $T", "%v = arith.addf %q, %tiny : $T",
                      "%r = math.rsqrt %v : $T", "%n = arith.mulf %i0, %r : $T",
                      "%s = arith.mulf %n, %i2 : $T", "linalg.yield %s : $T"),
        )  # fmt: skip

    def attend(self, q, k, v, layer):
        m = self.model
        t = self.tensor(m.batch, m.heads, m.context, m.head_width)
        init = self.empty(m.batch, m.heads, m.context, m.head_width)
        inputs = f"ins({q}, {k}, {v} : {t}, {t}, {t})"
        if m.attention == "dense":
            return self.op(f"attn.dense {inputs} outs({init} : {t}) {{mask = #attn.mask<causal>}} -> {t}")
        clauses = ""
        for side, clause in (("ks", "key_weights"), ("vs", "value_weights")):
            if m.intervals:
                names = ", ".join(f"%{side}{level}_{layer}" for level in range(len(m.intervals)))
                types = ", ".join(self.tensor(1, m.rank, size, m.head_width) for size in m.intervals)
                clauses += f"{clause}({names} : {types}) "
        return self.op(
            f"attn.fast_multipole {inputs} {clauses}outs({init} : {t}) "
            f"{{group = {m.group} : i64, causal}} -> {t}"
        )

    def silu_gate(self, gate, up):
        m = self.model
        t = self.tensor(m.batch, m.context, m.hidden)
        return self.generic(
            [(gate, t), (up, t)], ["d0, d1, d2"] * 2, t, "d0, d1, d2", ROWS,
            self.body("%one = arith.constant 1.0 : $T", "%m = arith.negf %i0 : $T", "%e = math.exp %m : $T",
                      "%d = arith.addf %one, %e : $T", "%g = arith.divf %i0, %d : $T",
                      "%s = arith.mulf %g, %i1 : $T", "linalg.yield %s : $T"),
        )  # fmt: skip

    def layer(self, x, number):
        m = self.model
        B, N, F, H, D = m.batch, m.context, m.width, m.heads, m.head_width
        h = self.rms_norm(x, f"%g1_{number}")
        q, k, v = (
            self.split_heads(self.product(h, f"%w{name}_{number}", B, N, F, F), B, N, H, D)
            for name in "qkv"
        )
        mixed = self.merge_heads(self.attend(q, k, v, number), B, N, H, D)
        x = self.named("add", x, self.product(mixed, f"%wo_{number}", B, N, F, F), B, N, F)
        h = self.rms_norm(x, f"%g2_{number}")
        gate, up = (self.product(h, f"%{name}_{number}", B, N, F, m.hidden) for name in ("gate", "up"))
        down = self.product(self.silu_gate(gate, up), f"%down_{number}", B, N, m.hidden, F)
        return self.named("add", x, down, B, N, F)

    def logits(self, tokens):
        m = self.model
        x = self.embed(tokens)
        for number in range(m.layers):
            x = self.layer(x, number)
        return self.product(self.rms_norm(x, "%gain"), "%unembedding", m.batch, m.context, m.width, BYTES)

    def cross_entropy(self, logits, targets):
        """The mean over all tokens, [], of log(sum(exp(logits))) - logits[target]."""
        m, T = self.model, self.element
        B, N = m.batch, m.context
        t, column = self.tensor(B, N, BYTES), self.tensor(B, N)
        top = self.generic(
            [(logits, t)], ["d0, d1, d2"], column, "d0, d1", REDUCED,
            self.body("%s = arith.maximumf %acc, %i0 : $T", "linalg.yield %s : $T"),
            self.filled("-1.0e+30", B, N),
        )  # fmt: skip
        total = self.generic(
            [(logits, t), (top, column)], ["d0, d1, d2", "d0, d1"], column, "d0, d1", REDUCED,
            self.body("%d = arith.subf %i0, %i1 : $T", "%e = math.exp %d : $T",
                      "%s = arith.addf %acc, %e : $T", "linalg.yield %s : $T"), self.zeros(B, N),
        )  # fmt: skip
        codes = self.op(f"arith.constant dense<{list(range(BYTES))}> : {tensor(BYTES, element='i32')}")
        right = self.generic(
            [(logits, t), (targets, tensor(B, N, element="i32")), (codes, tensor(BYTES, element="i32"))],
            ["d0, d1, d2", "d0, d1", "d2"], column, "d0, d1", REDUCED,
            self.body("%zero = arith.constant 0.0 : $T", "%e = arith.cmpi eq, %i1, %i2 : i32",
                      "%p = arith.select %e, %i0, %zero : $T", "%s = arith.addf %acc, %p : $T",
                      "linalg.yield %s : $T"), self.zeros(B, N),
        )  # fmt: skip
        return self.generic(
            [(total, column), (top, column), (right, column)], ["d0, d1"] * 3, self.tensor(), "",
            ["reduction"] * 2,
            self.body(f"%share = arith.constant {1 / (B * N):.17e} : $T", "%l = math.log %i0 : $T",
                      "%a = arith.addf %l, %i1 : $T", "%b = arith.subf %a, %i2 : $T",
                      "%c = arith.mulf %b, %share : $T", "%s = arith.addf %acc, %c : $T",
                      "linalg.yield %s : $T"), self.zeros(),
        )  # fmt: skip


def _arguments(model, *names):
    tokens = tensor(model.batch, model.context, element="i32")
    arguments = [(name, tokens) for name in names]
    return arguments + [(name, tensor(*shape, element=model.element)) for name, shape in model.parameters().items()]


def loss_function(model):
    b = ModelWriter(model)
    loss = b.cross_entropy(b.logits("%tokens"), "%targets")
    return b.function("loss", _arguments(model, "tokens", "targets"), [(loss, b.tensor())])


def logits_function(model):
    b = ModelWriter(model)
    result = b.logits("%tokens")
    type = b.tensor(model.batch, model.context, BYTES)
    return b.function("logits", _arguments(model, "tokens"), [(result, type)])
