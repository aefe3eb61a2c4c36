# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Soft-max attention in linalg, in the ways in which frontends write it."""

import itertools
import math

from cases import tensor

LOWEST = {"f64": -1.7976931348623157e308, "f32": -3.4028235e38, "bf16": -3.3895314e38, "f16": -65504.0}


class Value:
    def __init__(self, name, shape, dtype):
        self.name, self.shape, self.dtype = name, tuple(shape), dtype

    @property
    def type(self):
        return tensor(self.shape, self.dtype)


class Writer:
    """Operations of one function, one after the other."""

    def __init__(self, dtype):
        self.dtype, self.lines, self.count = dtype, [], 0

    def add(self, text, shape, dtype=None):
        value = Value(f"%{self.count}", shape, dtype or self.dtype)
        self.count += 1
        self.lines.append(f"  {value.name} = {text}")
        return value

    def constant(self, number, dtype=None):
        """The name of a scalar."""
        dtype = dtype or self.dtype
        if isinstance(number, bool):
            return self.add(f"arith.constant {str(number).lower()}", (), dtype).name
        if dtype[0] != "i" and math.isinf(number):
            bits = {"f64": "0xFFF0000000000000", "f32": "0xFF800000", "bf16": "0xFF80", "f16": "0xFC00"}
            assert number < 0
            text = bits[dtype]
        else:
            text = f"{number:.17e}" if dtype[0] != "i" else str(number)
        return self.add(f"arith.constant {text} : {dtype}", (), dtype).name

    def empty(self, shape, dtype=None):
        return self.add(f"tensor.empty() : {tensor(shape, dtype or self.dtype)}", shape, dtype)

    def fill(self, number, shape, dtype=None):
        scalar, into = self.constant(number, dtype), self.empty(shape, dtype)
        return self.add(f"linalg.fill ins({scalar} : {into.dtype}) outs({into.name} : {into.type}) -> {into.type}",
                        shape, dtype)

    def transpose(self, x, order):
        into = self.empty([x.shape[k] for k in order], x.dtype)
        return self.add(f"linalg.transpose ins({x.name} : {x.type}) outs({into.name} : {into.type}) "
                        f"permutation = {list(order)}", into.shape, x.dtype)

    def reshape(self, x, shape):
        """Through one dimension, unless only one side has to change."""
        if x.shape == tuple(shape):
            return x
        groups = group(x.shape, shape)
        if groups:
            return self.add(f"tensor.collapse_shape {x.name} {groups} : {x.type} into {tensor(shape, x.dtype)}",
                            shape, x.dtype)
        groups = group(shape, x.shape)
        if groups:
            return self.add(f"tensor.expand_shape {x.name} {groups} output_shape {list(shape)} : "
                            f"{x.type} into {tensor(shape, x.dtype)}", shape, x.dtype)
        return self.reshape(self.reshape(x, [math.prod(shape)]), shape)

    def generic(self, inputs, maps, into, out_map, loops, body, dtype=None):
        """`inputs` are values; maps are texts of results over d0, d1, ..."""
        names = ", ".join(f"d{k}" for k in range(len(loops)))
        texts = ", ".join(f"affine_map<({names}) -> ({m})>" for m in [*maps, out_map])
        kinds = ", ".join(f'"{kind}"' for kind in loops)
        ins = f"ins({', '.join(x.name for x in inputs)} : {', '.join(x.type for x in inputs)}) " if inputs else ""
        arguments = ", ".join([f"%a{k}: {x.dtype}" for k, x in enumerate(inputs)] + [f"%o: {into.dtype}"])
        return self.add(
            f"linalg.generic {{indexing_maps = [{texts}], iterator_types = [{kinds}]}} {ins}"
            f"outs({into.name} : {into.type}) {{\n  ^bb0({arguments}):\n    "
            + "\n    ".join(body) + f"\n  }} -> {into.type}", into.shape, into.dtype)

    def map(self, inputs, body, dtype=None):
        """Element by element, with extents of 1 and missing first dimensions
        broadcast; the body yields %r."""
        rank = max((len(x.shape) for x in inputs), default=0)
        shape = [1] * rank
        for x in inputs:
            for k, n in enumerate(x.shape, rank - len(x.shape)):
                shape[k] = max(shape[k], n)
        maps = [
            ", ".join("0" if n == 1 and shape[k] != 1 else f"d{k}"
                      for k, n in enumerate(x.shape, rank - len(x.shape)))
            for x in inputs
        ]
        into = self.empty(shape, dtype)
        identity = ", ".join(f"d{k}" for k in range(rank))
        return self.generic(inputs, maps, into, identity, ["parallel"] * rank,
                            [*body, f"linalg.yield %r : {into.dtype}"])

    def scale(self, x, number, op="mulf"):
        c = self.constant(number)
        return self.map([x], [f"%r = arith.{op} %a0, {c} : {x.dtype}"])

    def binary(self, op, x, y):
        return self.map([x, y], [f"%r = arith.{op} %a0, %a1 : {x.dtype}"], x.dtype)

    def unary(self, op, x):
        return self.map([x], [f"%r = {op} %a0 : {x.dtype}"])

    def iota(self, n, rank, dim):
        """0 .. n - 1 along one of `rank` dimensions."""
        flat = self.generic([], [], self.empty([n], "i64"), "d0", ["parallel"],
                            ["%i = linalg.index 0 : index", "%r = arith.index_cast %i : index to i64",
                             "linalg.yield %r : i64"])
        return self.reshape(flat, [n if k == dim else 1 for k in range(rank)])

    def reduce(self, x, dim, op, init, keep=True, dtype=None):
        shape = [1 if k == dim else n for k, n in enumerate(x.shape) if keep or k != dim]
        into = self.fill(init, shape, dtype or x.dtype)
        loops = ["reduction" if k == dim else "parallel" for k in range(len(x.shape))]
        out = ", ".join("0" if k == dim else f"d{k}" for k in range(len(x.shape)) if keep or k != dim)
        identity = ", ".join(f"d{k}" for k in range(len(x.shape)))
        return self.generic([x], [identity], into, out, loops,
                            [f"%r = {op} %a0, %o : {into.dtype}", f"linalg.yield %r : {into.dtype}"])

    def einsum(self, text, x, y):
        """A product as a generic of its own, sums in the type of the result."""
        ins, out = text.split("->")
        letters = sorted(set(ins) - {","})
        extents = {}
        for names, value in zip(ins.split(","), (x, y)):
            extents.update(zip(names, value.shape))
        maps = [", ".join(f"d{letters.index(c)}" for c in names) for names in [*ins.split(","), out]]
        into = self.fill(0.0, [extents[c] for c in out])
        loops = ["parallel" if c in out else "reduction" for c in letters]
        return self.generic([x, y], maps[:2], into, maps[2], loops,
                            [f"%p = arith.mulf %a0, %a1 : {x.dtype}", f"%r = arith.addf %o, %p : {x.dtype}",
                             f"linalg.yield %r : {x.dtype}"])

    def batch_matmul(self, x, y):
        into = self.fill(0.0, [x.shape[0], x.shape[1], y.shape[2]])
        return self.add(f"linalg.batch_matmul ins({x.name}, {y.name} : {x.type}, {y.type}) "
                        f"outs({into.name} : {into.type}) -> {into.type}", into.shape)

    def concat(self, values, dim):
        shape = list(values[0].shape)
        shape[dim] = sum(x.shape[dim] for x in values)
        into = tensor(shape, values[0].dtype)
        return self.add(f"tensor.concat dim({dim}) {', '.join(x.name for x in values)} : "
                        f"({', '.join(x.type for x in values)}) -> {into}", shape, values[0].dtype)

    def slice(self, x, dim, begin, size):
        shape = [size if k == dim else n for k, n in enumerate(x.shape)]
        offsets = [begin if k == dim else 0 for k in range(len(shape))]
        return self.add(f"tensor.extract_slice {x.name}{offsets} {shape} {[1] * len(shape)} : {x.type} to "
                        f"{tensor(shape, x.dtype)}", shape, x.dtype)

    def function(self, arguments, result):
        names = ", ".join(f"{x.name}: {x.type}" for x in arguments)
        return "\n".join([f"func.func @main({names}) -> {result.type} {{", *self.lines,
                          f"  return {result.name} : {result.type}", "}"])


def group(fine, coarse):
    """Which dimensions of `fine` make each of `coarse`, or nothing."""
    groups, at = [], 0
    for n in coarse:
        first, size = at, 1
        while at < len(fine) and (at == first or size < n or (fine[at] == 1 and len(fine) - at > len(coarse) - len(groups) - 1)):
            size *= fine[at]
            at += 1
        if size != n:
            return None
        groups.append(list(range(first, at)))
    return groups if at == len(fine) and all(groups) else None


def permutations(rank, number):
    return list(itertools.permutations(range(rank)))[number % math.factorial(rank)]


def softmax(w, s, form, dim=-1):
    """Weights of scores along a dimension, as frontends write them."""
    dim %= len(s.shape)
    infinite = -math.inf
    if form == "op":
        into = w.empty(s.shape)
        return w.add(f"linalg.softmax dimension({dim}) ins({s.name} : {s.type}) "
                     f"outs({into.name} : {into.type}) -> {into.type}", s.shape)
    shifted = s
    for _ in range({"bare": 0, "twice": 2}.get(form, 1)):
        highest = w.reduce(shifted, dim, "arith.maximumf", infinite)
        if form == "jax":
            highest = w.binary("maximumf", w.fill(infinite, highest.shape), highest)
        shifted = w.binary("subf", shifted, highest)
    if form == "exp2":
        e = w.unary("math.exp2", w.scale(shifted, 1.4426950408889634))
    else:
        e = w.unary("math.exp", shifted)
    total = w.reduce(e, dim, "arith.addf", 0.0, keep=form != "jax")
    if form == "jax":
        total = w.reshape(total, [1 if k == dim else n for k, n in enumerate(s.shape)])
    if form == "reciprocal":
        one = w.constant(1.0)
        return w.binary("mulf", w.map([total], [f"%r = arith.divf {one}, %a0 : {s.dtype}"]), e)
    p = w.binary("divf", e, total)
    if form == "safe":
        lowest = w.constant(infinite)
        hidden = w.map([s], [f"%r = arith.cmpf oeq, %a0, {lowest} : {s.dtype}"], "i1")
        none = w.reduce(hidden, dim, "arith.andi", True)
        zero = w.fill(0.0, s.shape)
        p = w.map([none, zero, p], [f"%r = arith.select %a0, %a1, %a2 : {s.dtype}"])
    return p


FORMS = ("plain", "jax", "twice", "bare", "exp2", "reciprocal", "safe", "op")


def mask_grid(w, kind, N, M, window):
    """A mask of positions as index arithmetic, i1 of [N, M]; none for "none"."""
    if kind == "none":
        return None
    i, j = w.iota(N, 2, 0), w.iota(M, 2, 1)
    p = w.map([i], [f"%c = arith.constant {M - N} : i64", "%r = arith.addi %a0, %c : i64"], "i64")
    causal = w.map([j, p], ["%r = arith.cmpi sle, %a0, %a1 : i64"], "i1")
    reach = [f"%w = arith.constant {window} : i64"]
    if kind == "causal":
        return causal
    if kind == "causal by difference":
        return w.map([p, j], ["%z = arith.constant 0 : i64", "%d = arith.subi %a0, %a1 : i64",
                              "%r = arith.cmpi sge, %d, %z : i64"], "i1")
    if kind == "window":
        near = w.map([j, p], [*reach, "%d = arith.subi %a1, %w : i64", "%r = arith.cmpi sgt, %a0, %d : i64"], "i1")
        return w.binary("andi", causal, near)
    if kind == "band":
        return w.map([p, j], [*reach, "%d = arith.subi %a0, %a1 : i64", "%m = math.absi %d : i64",
                              "%r = arith.cmpi slt, %m, %w : i64"], "i1")
    if kind == "prefix":
        near = w.map([j], [*reach, "%r = arith.cmpi slt, %a0, %w : i64"], "i1")
        return w.binary("ori", causal, near)
    if kind == "from the start":
        return w.map([j, i], ["%r = arith.cmpi sle, %a0, %a1 : i64"], "i1")
    assert kind == "blocks"
    return w.map([i, j], ["%three = arith.constant 3 : i64", "%x = arith.divsi %a0, %three : i64",
                          "%y = arith.divsi %a1, %three : i64", "%r = arith.cmpi uge, %x, %y : i64"], "i1")


MASKS = ("none", "causal", "causal by difference", "window", "band", "prefix", "from the start", "blocks")


def admits(kind, i, j, N, M, window):
    """The same in Python."""
    p = i + M - N
    return {
        "none": True, "causal": j <= p, "causal by difference": j <= p, "window": p - window < j <= p,
        "band": abs(p - j) < window, "prefix": j <= p or j < window, "from the start": j <= i, "blocks": j // 3 <= i // 3,
    }[kind]
