# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes a byte-level language model as IR.

    model = Model(batch=8, context=256, width=128, heads=4, hidden=352, layers=2)
    text = loss_function(model)      # (tokens, targets, parameters, codebooks) -> mean cross entropy
    text = logits_function(model)    # (tokens, parameters, codebooks) -> [B,N,256], of compressed windows [B,vip,256]

RMS norm, projections, causal attention (dense, fast multipole, over quantized keys or
by convolutions), SiLU-gated MLP, each with a residual. Only the forward pass is written:
gradients are --attn-differentiate's. With quantized keys the loss function also
returns the commitment loss and, for each layer, keys and codes, from which codebooks
are moved; where there are none, there are no codebooks either.
"""

import zipfile
from dataclasses import dataclass

import numpy as np
from ir_writer import Writer, tensor

BYTES = 256
ROWS, REDUCED = ["parallel"] * 3, ["parallel", "parallel", "reduction"]
#: The arrays of a checkpoint.
STORED = ("model", "step", "history", "flat", "mean", "square", "sums", "counts")


def read_checkpoint(path):
    """The arrays of a file that train_language_model.py wrote, by name."""
    try:
        with np.load(path) as stored:
            return {name: stored[name] for name in STORED}
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as failure:
        raise SystemExit(f"checkpoint: found no model in {path} ({failure}), needed a file of train_language_model.py") from None


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
    # Of quantized keys: tokens of a block, codewords of a head.
    group: int = 32
    rank: int = 4
    codes: int = 64
    # Convolutions of a head at most.
    bases: int = 8
    # Of compressed windows: bytes at the end that are predicted, tokens of a segment
    # before them, and the share of segments that are read token by token.
    vip: int = 32
    ratio: int = 8
    share: float = 0.25
    element: str = "f32"

    def check(self):
        """A ValueError for what its attention does not take."""
        memory = self.context - self.predicted
        if self.attention == "compressed" and (memory < self.ratio or memory % self.ratio):
            raise ValueError(f"context: found {self.context}, needed more than {self.vip} by a multiple of {self.ratio}")
        if self.attention == "conv" and self.head_width % 2:
            raise ValueError(f"width: found {self.width}, needed a multiple of {2 * self.heads}: positions turn pairs of columns")

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

    @property
    def predicted(self):
        """How many bytes of a window the loss is of, its last ones."""
        return self.vip if self.attention == "compressed" else self.context

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
            if self.attention == "vq":
                own["bias"] = (self.heads, self.group, 2 * self.group)
            shapes.update({f"{name}_{layer}": shape for name, shape in own.items()})
        shapes.update({"gain": (F,), "unembedding": (F, BYTES)})
        return shapes

    def codebooks(self):
        """Shapes of the codebooks, a layer each."""
        layers = range(self.layers if self.attention == "vq" else 0)
        return {f"codebook_{layer}": (self.heads, self.codes, self.head_width) for layer in layers}


class ModelWriter(Writer):
    def __init__(self, model):
        super().__init__(model.element)
        self.model, self.rows = model, model.context
        # Of quantized keys: the commitment loss so far, and keys and codes.
        self.commitment, self.quantized = None, []

    def body(self, *lines):
        """Lines of a generic operation; `$T` is the element type."""
        return [line.replace("$T", self.element) for line in lines]

    def embed(self, tokens):
        """Rows of the embedding, as a product with ones and zeros, and positions."""
        m = self.model
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

    def rms_norm(self, x, gain, rows=None):
        """Of [B,rows,F]."""
        m, rows = self.model, rows or self.rows
        t, column = self.tensor(m.batch, rows, m.width), self.tensor(m.batch, rows)
        squares = self.generic(
            [(x, t)], ["d0, d1, d2"], column, "d0, d1", REDUCED,
            self.body("%t = arith.mulf %i0, %i0 : $T", "%s = arith.addf %acc, %t : $T", "linalg.yield %s : $T"),
            self.zeros(m.batch, rows),
        )  # fmt: skip
        return self.generic(
            [(x, t), (squares, column), (gain, self.tensor(m.width))],
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
        if m.attention == "vq":
            return self.attend_quantized(q, k, v, layer)
        if m.attention == "conv":
            return self.attend_convolved(q, k, v)
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

    def turn(self, x):
        """Rows of [B,H,N,D] after rotary embedding: scores depend on distances, as those of
        convolutions do."""
        m = self.model
        t, positions = self.tensor(m.batch, m.heads, m.context, m.head_width), tensor(1, 1, m.context, element="i32")
        numbers = self.op(f"arith.constant dense<[[{list(range(m.context))}]]> : {positions}")
        init = self.empty(m.batch, m.heads, m.context, m.head_width)
        return self.op(f"attn.rope ins({x}, {numbers} : {t}, {positions}) outs({init} : {t}) {{base = 1.0e+04 : f64}} -> {t}")

    def attend_convolved(self, q, k, v):
        m = self.model
        t, count = self.tensor(m.batch, m.heads, m.context, m.head_width), tensor(m.batch, m.heads, element="i32")
        q, k = self.turn(q), self.turn(k)
        init = self.empty(m.batch, m.heads, m.context, m.head_width)
        counts = self.empty(m.batch, m.heads, element="i32")
        return self.op(
            f"attn.conv ins({q}, {k}, {v} : {t}, {t}, {t}) outs({init}, {counts}, {counts} : {t}, {count}, {count}) "
            f"{{num_basis = {m.bases} : i64, window = 1 : i64, delta = 0.0 : f64, epsilon = 0.0 : f64}} "
            f"-> {t}, {count}, {count}", 3,
        )[0]  # fmt: skip

    def unit_rows(self, x):
        """Rows of [B,H,N,D] with a mean square of 1."""
        m = self.model
        shape = (m.batch, m.heads, m.context, m.head_width)
        t, column = self.tensor(*shape), self.tensor(*shape[:3])
        squares = self.generic(
            [(x, t)], ["d0, d1, d2, d3"], column, "d0, d1, d2", ["parallel"] * 3 + ["reduction"],
            self.body("%t = arith.mulf %i0, %i0 : $T", "%s = arith.addf %acc, %t : $T",
                      "linalg.yield %s : $T"), self.zeros(*shape[:3]),
        )  # fmt: skip
        return self.generic(
            [(x, t), (squares, column)], ["d0, d1, d2, d3", "d0, d1, d2"], t, "d0, d1, d2, d3", ["parallel"] * 4,
            self.body(f"%share = arith.constant {1 / m.head_width:.17e} : $T", "%tiny = arith.constant 1.0e-6 : $T",
                      "%q = arith.mulf %i1, %share : $T", "%v = arith.addf %q, %tiny : $T",
                      "%r = math.rsqrt %v : $T", "%s = arith.mulf %i0, %r : $T", "linalg.yield %s : $T"),
        )  # fmt: skip

    def attend_quantized(self, q, k, v, layer):
        """Attention over the codewords nearest to the keys, whose gradient goes
        straight through to the keys, and the mean square of what separates them."""
        m = self.model
        shape = (m.batch, m.heads, m.context, m.head_width)
        t, codes = self.tensor(*shape), tensor(*shape[:3], element="i32")
        book = self.tensor(*m.codebooks()[f"codebook_{layer}"])
        q, k = self.unit_rows(q), self.unit_rows(k)
        inits = f"{self.empty(*shape[:3], element='i32')}, {self.empty(*shape)}"
        nearest, codeword = self.op(
            f"attn.quantize ins({k}, %codebook_{layer} : {t}, {book}) outs({inits} : {codes}, {t}) -> {codes}, {t}", 2
        )
        self.quantized += [(k, t), (nearest, codes)]
        constant = self.op(f"arith.negf {codeword} {{attn.stop_gradient}} : {t}")
        share = 1 / (m.batch * m.heads * m.context * m.head_width * m.layers)
        every = "d0, d1, d2, d3"
        self.commitment = self.generic(
            [(k, t), (constant, t)], [every, every], self.tensor(), "", ["reduction"] * 4,
            self.body(f"%share = arith.constant {share:.17e} : $T", "%d = arith.addf %i0, %i1 : $T",
                      "%q = arith.mulf %d, %d : $T", "%p = arith.mulf %q, %share : $T",
                      "%s = arith.addf %acc, %p : $T", "linalg.yield %s : $T"),
            self.commitment or self.zeros(),
        )  # fmt: skip
        bias, bias_type = self.local_bias(f"%bias_{layer}")
        return self.op(
            f"attn.vq ins({q}, {nearest}, {v}, %codebook_{layer} : {t}, {codes}, {t}, {book}) bias({bias} : {bias_type}) "
            f"outs({self.empty(*shape)} : {t}) {{block = {m.group} : i64, causal, "
            f"scale = {m.head_width**-0.5:.17e} : f64}} -> {t}"
        )

    def local_bias(self, table):
        """[H,Lb,2 Lb], for every query of a block and every key of that and the
        previous block, as the bias of all blocks, [1,H,N,2 Lb]."""
        m = self.model
        blocks = -(-m.context // m.group)
        own, every = (m.heads, m.group, 2 * m.group), (1, m.heads, blocks, m.group, 2 * m.group)
        repeated = self.generic(
            [(table, self.tensor(*own))], ["d1, d3, d4"], self.tensor(*every), "d0, d1, d2, d3, d4",
            ["parallel"] * 5, self.body("linalg.yield %i0 : $T"),
        )  # fmt: skip
        rows = self.tensor(1, m.heads, blocks * m.group, 2 * m.group)
        joined = self.op(
            f"tensor.collapse_shape {repeated} [[0], [1], [2, 3], [4]] : {self.tensor(*every)} into {rows}"
        )
        t = self.tensor(1, m.heads, m.context, 2 * m.group)
        if t == rows:
            return joined, t
        sizes = f"[1, {m.heads}, {m.context}, {2 * m.group}]"
        cut = f"tensor.extract_slice {joined}[0, 0, 0, 0] {sizes} [1, 1, 1, 1] : {rows} to {t}"
        return self.op(cut), t

    def silu_gate(self, gate, up):
        m = self.model
        t = self.tensor(m.batch, self.rows, m.hidden)
        return self.generic(
            [(gate, t), (up, t)], ["d0, d1, d2"] * 2, t, "d0, d1, d2", ROWS,
            self.body("%one = arith.constant 1.0 : $T", "%m = arith.negf %i0 : $T", "%e = math.exp %m : $T",
                      "%d = arith.addf %one, %e : $T", "%g = arith.divf %i0, %d : $T",
                      "%s = arith.mulf %g, %i1 : $T", "linalg.yield %s : $T"),
        )  # fmt: skip

    def layer(self, x, number):
        m = self.model
        B, N, F, H, D = m.batch, self.rows, m.width, m.heads, m.head_width
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
        m = self.model
        B, N = m.batch, m.predicted
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
    numbers = {**model.parameters(), **model.codebooks()}
    return arguments + [(name, tensor(*shape, element=model.element)) for name, shape in numbers.items()]


def _writer(model):
    if model.attention != "compressed":
        return ModelWriter(model)
    from compressed_model_builder import CompressedWriter

    return CompressedWriter(model)


def loss_function(model):
    b = _writer(model)
    targets = b.op(
        f"tensor.extract_slice %targets[0, {model.context - model.predicted}] [{model.batch}, {model.predicted}] [1, 1] : "
        f"{tensor(model.batch, model.context, element='i32')} to {tensor(model.batch, model.predicted, element='i32')}"
    )
    loss = b.cross_entropy(b.logits("%tokens"), targets)
    results = [(loss, b.tensor())]
    if b.quantized:
        results += [(b.commitment, b.tensor()), *b.quantized]
    return b.function("loss", _arguments(model, "tokens", "targets"), results)


def logits_function(model):
    b = _writer(model)
    result = b.logits("%tokens")
    type = b.tensor(model.batch, model.predicted, BYTES)
    return b.function("logits", _arguments(model, "tokens"), [(result, type)])
