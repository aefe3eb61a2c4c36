# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Dense and fast multipole attention as workloads: IR, inputs and the expected
result of one kernel."""

import math

import numpy as np

from . import bfloat, reference
from .fields import set_fields
from .ir import Kernel, Text, operand, tensor

OPS = ("dense", "fast_multipole", "summarize")

# Bound on max|a-b| / max|b| by element type; that of f32 up to so many tokens.
BOUNDS = {"f32": 5e-6, "f64": 1e-12, "bf16": 1e-2, "f16": 2e-3}
BOUND_HOLDS_TO = 4096

_FIELDS = {
    "op": None,
    "type": "f32",
    "batch": 1,
    "heads": 1,
    "key_heads": None,
    "n": None,
    "keys": None,
    "width": 64,
    "value_width": None,
    "causal": False,
    "window": None,
    "group": 64,
    "rank": 4,
    "shared_weights": True,
}


class Workload:
    """One kernel at one size. `fields` are those of the configuration file."""

    def __init__(self, **fields):
        set_fields(self, fields, _FIELDS)
        if self.op not in OPS:
            raise ValueError(f"op: found {self.op!r}, needed one of {OPS}")
        if self.type not in BOUNDS:
            raise ValueError(f"type: found {self.type!r}, needed one of {sorted(BOUNDS)}")
        if not isinstance(self.n, int) or self.n < 1:
            raise ValueError(f"n: found {self.n!r}, needed a number of tokens")
        self.key_heads = self.key_heads or self.heads
        self.keys = self.keys or self.n
        self.value_width = self.value_width or self.width
        self.levels = 0 if self.op == "dense" else reference.num_levels(self.n, self.group)
        self.weight_sets = 1 if self.shared_weights else self.key_heads

    # -- inputs --------------------------------------------------------------

    def shapes(self):
        """Names and shapes of the arguments, in order."""
        q = (self.batch, self.heads, self.n, self.width)
        k = (self.batch, self.key_heads, self.keys, self.width)
        v = (self.batch, self.key_heads, self.keys, self.value_width)
        if self.op == "summarize":
            return [("x", k)] + self._weight_shapes("w", self.width)
        shapes = [("q", q), ("k", k), ("v", v)]
        if self.op == "fast_multipole":
            shapes += self._weight_shapes("kw", self.width)
            shapes += self._weight_shapes("vw", self.value_width)
        return shapes

    def _weight_shapes(self, prefix, width):
        return [
            (f"{prefix}{l + 1}", (self.weight_sets, self.rank, self.group << l, width))
            for l in range(self.levels)
        ]

    def inputs(self, seed=1):
        """Standard normal tokens; weights that average, with noise, so that
        summaries keep the size of tokens. In the type of the kernel (bf16 as
        the upper half of f32, in uint16)."""
        arrays = []
        for index, (name, shape) in enumerate(self.shapes()):
            generator = np.random.default_rng([seed, index])
            array = generator.standard_normal(shape, dtype=np.float32)
            if name.startswith(("kw", "vw", "w")):
                interval = shape[2]
                array *= 1.0 / math.sqrt(interval)
                array += reference.average_weights(self.rank, interval, shape[3]).astype(
                    np.float32
                )
            arrays.append(bfloat.encode(array, self.type))
        return arrays

    # -- IR ------------------------------------------------------------------

    def ir(self, optimize=None):
        """The text of a module with one function, @run."""
        return (self._summarize() if self.op == "summarize" else self._attention()).ir()

    def _operands(self, prefix=""):
        return [operand(name, *shape, element=self.type) for name, shape in self.shapes() if name.startswith(prefix)]

    def result_shape(self):
        if self.op == "summarize":
            return (self.batch, self.key_heads, sum(self._rows()), self.width)
        return (self.batch, self.heads, self.n, self.value_width)

    def _rows(self):
        """Summaries of one tensor, by level."""
        return [-(-self.n // (self.group << l)) * self.rank for l in range(self.levels)]

    def _attention(self):
        attributes = []
        if self.op == "fast_multipole":
            attributes = [f"group = {self.group} : i64"] + ["causal"] * self.causal
        elif self.causal or self.window is not None:
            mask = ["causal"] * self.causal + ([] if self.window is None else [f"window = {self.window}"])
            attributes = [f"mask = #attn.mask<{', '.join(mask)}>"]
        return Kernel(
            self.op,
            [("ins", self._operands()[:3]), ("key_weights", self._operands("kw")), ("value_weights", self._operands("vw"))],
            [("outs", [operand("init", *self.result_shape(), element=self.type)])],
            ", ".join(attributes),
        )

    def _summarize(self):
        """All levels into one pool, as the fast multipole pattern expands."""
        (x, *weights), shape = self._operands(), self.result_shape()
        pool = tensor(shape, self.type)
        lines, current, offset = [f"%pool = tensor.empty() : {pool}"], "%pool", 0
        for level, (weight, rows) in enumerate(zip(weights, self._rows())):
            part = tensor((*shape[:2], rows, self.width), self.type)
            slice_of = f"[0, 0, {offset}, 0] [{self.batch}, {self.key_heads}, {rows}, {self.width}] [1, 1, 1, 1]"
            lines += [
                f"%part{level} = tensor.extract_slice {current}{slice_of} : {pool} to {part}",
                f"%sum{level} = attn.summarize ins(%x : {tensor(*x[1:])}) weights(%{weight[0]} : {tensor(*weight[1:])})"
                f" outs(%part{level} : {part}) -> {part}",
                f"%pool{level} = tensor.insert_slice %sum{level} into {current}{slice_of} : {part} into {pool}",
            ]
            current, offset = f"%pool{level}", offset + rows
        body = "".join(f"  {line}\n" for line in lines)
        return Text(body, [x, *weights], [(current[1:], shape, self.type)])

    # -- memory -----------------------------------------------------------------

    def result_bytes(self):
        return math.prod(self.result_shape()) * bfloat.WIDTHS[self.type]

    def summary_bytes(self):
        """Memory of all summaries, the only intermediate of size O(N)."""
        if self.op != "fast_multipole":
            return 0
        rows = self.batch * self.key_heads * sum(self._rows())
        # Never rounded below f32.
        return rows * (self.width + self.value_width) * max(4, bfloat.WIDTHS[self.type])

    def moved_bytes(self):
        return None

    # -- expected results ----------------------------------------------------

    def check(self, inputs, found, heads=1, rows=48):
        """The error of a result, and its bound: the largest difference from the
        NumPy reference in f64 over a sample, relative to the largest expected
        number. The sample is, for dense attention, `rows` queries of `heads`
        heads, for the others whole heads."""
        arrays = [bfloat.decode(array, self.type) for array in inputs]
        found = bfloat.decode(found, self.type)
        if found.shape != self.result_shape():
            raise ValueError(f"result: found shape {found.shape}, needed {self.result_shape()}")
        # The last head too: an error in strides shows there.
        chosen = sorted({self.heads - 1 - i * self.heads // heads for i in range(heads)})
        if self.op == "summarize":
            chosen = [self.key_heads - 1]
        exact, plain, parts = [], [], []
        for head in chosen:
            sample = slice(None)
            if self.op == "dense":
                step = max(self.n // max(rows, 2), 1)
                sample = np.unique(np.r_[np.arange(head % step, self.n, step), 0, self.n - 1])
            parts.append(found[:, head, sample])
            exact.append(self._evaluate(arrays, head, sample, np.float64))
            if self._bound_is_plain():
                plain.append(self._evaluate(arrays, head, sample, np.float32))
        if self._bound_is_plain():
            return _error(parts, exact), 2 * _error(plain, exact)
        return _error(parts, exact), BOUNDS[self.type]

    def _bound_is_plain(self):
        """Rounding errors of f32 grow with the length of the sums. From the
        length on to which its bound holds, the error may be twice that of the
        formula as one writes it down, every operation in f32."""
        return self.type == "f32" and max(self.n, self.keys) > BOUND_HOLDS_TO

    def _evaluate(self, arrays, head, sample, dtype):
        """One head of the result, computed in `dtype`."""
        group = head * self.key_heads // self.heads
        if self.op == "dense":
            return self._dense_rows(arrays, head, group, sample, dtype)
        if self.op == "summarize":
            return self._summaries(arrays, head, dtype)
        return self._multipole_head(arrays, head, group, dtype)

    def _dense_rows(self, arrays, head, group, sample, dtype):
        q, k, v = arrays
        out = []
        for b in range(self.batch):
            scores = q[b, head, sample].astype(dtype) @ k[b, group].T.astype(dtype)
            scores *= dtype(1 / math.sqrt(self.width))
            distance = sample[:, None] + (self.keys - self.n) - np.arange(self.keys)
            admitted = np.ones(distance.shape, bool)
            if self.causal:
                admitted &= distance >= 0
            if self.window is not None:
                admitted &= np.abs(distance) < self.window
            scores[~admitted] = -np.inf
            top = scores.max(axis=1, keepdims=True)
            weights = np.exp(scores - np.where(np.isfinite(top), top, dtype(0)))
            total = weights.sum(axis=1, keepdims=True)
            weights /= np.where(total == 0, dtype(1), total)
            out.append(weights @ v[b, group].astype(dtype))
        return np.stack(out)

    def _weights(self, arrays, head):
        row = 0 if self.weight_sets == 1 else head
        return [w[row : row + 1] for w in arrays]

    def _multipole_head(self, arrays, head, group, dtype):
        q, k, v = arrays[:3]
        weights = self._weights(arrays[3:], group)
        return reference.fast_multipole_blocked(
            q[:, head : head + 1],
            k[:, group : group + 1],
            v[:, group : group + 1],
            weights[: self.levels],
            weights[self.levels :],
            group=self.group,
            causal=self.causal,
            dtype=dtype,
        )[:, 0]

    def _summaries(self, arrays, head, dtype):
        x = arrays[0][:, head : head + 1].astype(dtype)
        parts = []
        for level, w in enumerate(self._weights(arrays[1:], head)):
            interval = self.group << level
            count = -(-self.n // interval)
            padded = np.zeros((self.batch, count * interval, self.width), dtype)
            padded[:, : self.n] = x[:, 0]
            tokens = padded.reshape(self.batch, count, interval, self.width)
            sums = np.einsum("atd,bgtd->bgad", w[0].astype(dtype), tokens, optimize=True)
            parts.append(sums.reshape(self.batch, count * self.rank, self.width))
        return np.concatenate(parts, axis=1)


def _error(found, exact):
    """max|a-b| / max|b|. Infinite where something is not finite."""
    difference = max(float(np.abs(a - b).max()) for a, b in zip(found, exact))
    largest = max(float(np.abs(b).max()) for b in exact)
    return difference / largest if math.isfinite(difference) else math.inf
