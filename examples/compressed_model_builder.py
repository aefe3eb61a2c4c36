# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The language model of language_model_builder.py over compressed windows.

The last `vip` bytes of a window are VIP tokens: they are predicted, each from those
before it and from the bytes before all of them, which are a tree of averages. In each
layer the first VIP token's heads choose the segments that are read token by token; the
others are read as one row each. Rows read rows, so that nothing flows back from bytes
that are to be predicted, and take the tree with them from layer to layer.
"""

from ir_writer import tensor
from language_model_builder import BYTES, ModelWriter


class CompressedWriter(ModelWriter):
    def __init__(self, model):
        super().__init__(model)
        m = model
        self.tokens = m.context - m.vip
        self.segments = self.tokens // m.ratio
        self.budget = max(1, round(m.share * self.segments))
        self.listed = self.segments + self.budget * (m.ratio - 1)
        self.rows = m.vip + self.listed
        self.tree_type = self.tensor(m.batch, self.segments * (m.ratio + 1), m.width)
        self.nodes_type = tensor(m.batch, self.listed, element="i32")
        self.shape = f"shape = #attn.tree<ratio = {m.ratio}, levels = 1>"
        self.log_weight = None

    def part(self, x, offsets, sizes, shape):
        """A slice of a tensor of that shape."""
        strides = ", ".join("1" * len(shape))
        return self.op(f"tensor.extract_slice {x}{offsets} {sizes} [{strides}] : {self.tensor(*shape)} to {self.tensor(*sizes)}")

    def rows_of(self, x, first, count, total):
        m = self.model
        return self.part(x, [0, first, 0], [m.batch, count, m.width], [m.batch, total, m.width])

    def heads_of(self, x, weight, rows):
        """Queries or keys of normalized rows, [B,H,rows,D]."""
        m = self.model
        return self.split_heads(self.product(x, weight, m.batch, rows, m.width, m.width), m.batch, rows, m.heads, m.head_width)

    def select(self, tree, vip, layer):
        """The nodes of one layer: level and index."""
        m = self.model
        first = self.rms_norm(self.rows_of(vip, 0, 1, m.vip), f"%g1_{layer}", 1)
        query = self.heads_of(first, f"%wq_{layer}", 1)
        inits = [self.empty(m.batch, self.listed, element="i32") for _ in range(2)]
        inner = type(self)(m)
        inner.count = self.count + 1000
        keys = inner.heads_of(inner.rms_norm("%rows", f"%g1_{layer}", self.segments), f"%wk_{layer}", self.segments)
        scores = self.tensor(m.batch, self.segments)
        score = inner.op(
            f"attn.tree_score ins({query}, {keys} : {self.tensor(m.batch, m.heads, 1, m.head_width)}, "
            f"{self.tensor(m.batch, m.heads, self.segments, m.head_width)}) "
            f"outs({inner.empty(m.batch, self.segments)} : {scores}) -> {scores}"
        )
        self.count = inner.count
        body = "\n    ".join(inner.lines)
        both = f"{self.nodes_type}, {self.nodes_type}"
        return self.op(
            f"attn.tree_select ins({tree} : {self.tree_type}) outs({inits[0]}, {inits[1]} : {both})\n"
            f"    {{{self.shape}, budgets = array<i64: {self.budget}>}} -> {both} score {{\n"
            f"  ^bb0(%rows: {self.tensor(m.batch, self.segments, m.width)}):\n    {body}\n"
            f"    attn.yield {score} : {scores}\n  }}", 2,
        )  # fmt: skip

    def stream(self, query, count, sources):
        """One soft-max of `count` queries over sources (keys, values, rows, log weight, mask)."""
        m = self.model
        t = self.tensor(m.batch, m.heads, count, m.head_width)
        text = f"attn.stream query({query} : {t})\n"
        for keys, values, rows, weight, mask in sources:
            kind = self.tensor(m.batch, m.heads, rows, m.head_width)
            text += f"    source({keys}, {values} : {kind}, {kind})"
            text += f" log_weight({weight} : {self.tensor(m.batch, 1, rows)})" if weight else ""
            text += f" ranges [affine_map<(b)[rows, n] -> (0, rows)>]{mask}\n"
        init = self.empty(m.batch, m.heads, count, m.head_width)
        return self.op(text + f"    outs({init} : {t}) {{scale = {m.head_width**-0.5:.17e} : f64}} -> {t}")

    def attend(self, q, k, v, layer):
        m = self.model
        shape = [m.batch, m.heads, self.rows, m.head_width]
        vip, listed = ([self.part(x, [0, 0, first, 0], [m.batch, m.heads, count, m.head_width], shape) for x in (q, k, v)]
                       for first, count in ((0, m.vip), (m.vip, self.listed)))  # fmt: skip
        tree = (*listed[1:], self.listed, self.log_weight, "")
        outs = [self.stream(vip[0], m.vip, [tree, (*vip[1:], m.vip, None, " mask <causal>")]),
                self.stream(listed[0], self.listed, [tree])]  # fmt: skip
        kinds = ", ".join(self.tensor(m.batch, m.heads, count, m.head_width) for count in (m.vip, self.listed))
        return self.op(f"tensor.concat dim(2) {', '.join(outs)} : ({kinds}) -> {self.tensor(*shape)}")

    def logits(self, tokens):
        m = self.model
        B, F = m.batch, m.width
        x = self.embed(tokens)
        memory, vip = self.rows_of(x, 0, self.tokens, m.context), self.rows_of(x, self.tokens, m.vip, m.context)
        memory_type, listed_type = self.tensor(B, self.tokens, F), self.tensor(B, self.listed, F)
        weight_type, vip_type, t = self.tensor(B, self.listed), self.tensor(B, m.vip, F), self.tree_type
        init = self.empty(B, self.segments * (m.ratio + 1), F)
        tree = self.op(f"attn.tree_build ins({memory} : {memory_type}) outs({init} : {t}) {{{self.shape}}} -> {t}")
        for number in range(m.layers):
            nodes = ", ".join(self.select(tree, vip, number))
            clause = f"nodes({nodes} : {self.nodes_type}, {self.nodes_type})"
            inits = f"{self.empty(B, self.listed, F)}, {self.empty(B, self.listed)}"
            rows, weight = self.op(
                f"attn.tree_fetch ins({tree} : {t}) {clause} outs({inits} : {listed_type}, {weight_type}) "
                f"{{{self.shape}}} -> {listed_type}, {weight_type}", 2,
            )  # fmt: skip
            self.log_weight = self.op(
                f"tensor.expand_shape {weight} [[0, 1], [2]] output_shape [{B}, 1, {self.listed}] : "
                f"{weight_type} into {self.tensor(B, 1, self.listed)}"
            )
            both = self.op(f"tensor.concat dim(1) {vip}, {rows} : ({vip_type}, {listed_type}) -> {self.tensor(B, self.rows, F)}")
            both = self.layer(both, number)
            vip = self.rows_of(both, 0, m.vip, self.rows)
            rows = self.rows_of(both, m.vip, self.listed, self.rows)
            tree = self.op(f"attn.tree_update ins({rows} : {listed_type}) {clause} outs({tree} : {t}) {{{self.shape}}} -> {t}")
        return self.product(self.rms_norm(vip, "%gain", m.vip), "%unembedding", B, m.vip, F, BYTES)
