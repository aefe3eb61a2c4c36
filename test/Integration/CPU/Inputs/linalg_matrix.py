# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Linalg and arith on tensors, as around attention in a layer, against NumPy."""

import math
import re

import numpy as np
from cases import BOUNDS, Checker, normal, state, tensor

check = Checker()


def compare(text, arrays, expected, dtype, cpu, what):
    """On the CPU, with any number of threads, and by the reference pipeline."""
    kernel = check.library.compile(text, cpu=cpu)
    check.close(check.call(kernel, arrays, what)[0], expected, BOUNDS[dtype], what)
    # It rounds narrow sums at every step, as the IR says.
    if dtype in ("f32", "f64"):
        kernel = check.library.compile(text, target="reference")
        check.close(kernel(*arrays)[0], expected, BOUNDS[dtype], f"{what} reference")


# ---- Products -------------------------------------------------------------------

# NumPy's notation; loops are named as in it, with their extents.
PRODUCTS = ["mk,kn->mn", "mk,nk->mn", "km,kn->mn", "bmk,bkn->bmn", "bmf,fhd->bhmd", "bhmd,hdf->bmf",
            "mk,k->m", "k,kn->n", "bmk,kn->mbn", "mn,mn->mn", "kb,kn->bn", "k,k->"]
SIZES = [dict(b=2, h=3, m=1, n=1, k=1, f=5, d=4), dict(b=1, h=2, m=7, n=13, k=5, f=33, d=16),
         dict(b=2, h=1, m=33, n=64, k=32, f=64, d=17), dict(b=3, h=2, m=121, n=130, k=257, f=40, d=64),
         dict(b=1, h=4, m=64, n=63, k=600, f=301, d=8),
         # Tasks of several panels, the last of which has fewer columns.
         dict(b=2, h=2, m=19, n=1101, k=270, f=30, d=165)]


def map_of(names, order):
    loops = ", ".join(order)
    return f"affine_map<({loops}) -> ({', '.join(names)})>"


def run_product(index, case):
    rng = np.random.default_rng(index)
    inputs, output = case["product"].split("->")
    left, right = inputs.split(",")
    sizes, dtype, out_dtype = case["sizes"], case["dtype"], case["dtype"]
    if case["wide"]:
        out_dtype = state(dtype)
    order = output + "".join(sorted(set(left + right) - set(output)))
    arrays = [normal(rng, [sizes[x] for x in names], dtype) for names in (left, right)]
    start = np.asarray(normal(rng, [sizes[x] for x in output] or [1], out_dtype))
    start = start.reshape([sizes[x] for x in output])

    is_constant = case.get("constant", False)

    def shape(names, kind):
        is_dynamic = case["dynamic"] and not (is_constant and names == right)
        extents = [None if is_dynamic else sizes[x] for x in names]
        return tensor(extents, kind)

    l, r, o = shape(left, dtype), shape(right, dtype), shape(output, out_dtype)
    kinds = ", ".join(f'"{"parallel" if x in output else "reduction"}"' for x in order)

    def widen(name):
        if dtype == out_dtype:
            return f"%{name}", ""
        return f"%{name}w", f"    %{name}w = arith.extf %{name} : {dtype} to {out_dtype}\n"

    (x, x_text), (y, y_text) = widen("x"), widen("y")
    maps = ", ".join(map_of(names, order) for names in (left, right, output))
    factor, resource = f", %b: {r}", ""
    if is_constant:
        factor = ""
        data = f"0x{arrays[1].itemsize:02x}000000{arrays[1].tobytes().hex()}"
        resource = f'{{-# dialect_resources: {{ builtin: {{ b: "{data}" }} }} #-}}\n'
    constant = f"  %b = arith.constant dense_resource<b> : {r}\n" if is_constant else ""
    text = (
        f"func.func @f(%a: {l}{factor}, %c: {o}) -> {o} {{\n{constant}"
        f"  %r = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{kinds}]}}\n"
        f"      ins(%a, %b : {l}, {r}) outs(%c : {o}) {{\n"
        f"  ^bb0(%x: {dtype}, %y: {dtype}, %z: {out_dtype}):\n{x_text}{y_text}"
        f"    %p = arith.mulf {x}, {y} : {out_dtype}\n    %s = arith.addf %z, %p : {out_dtype}\n"
        f"    linalg.yield %s : {out_dtype}\n  }} -> {o}\n  return %r : {o}\n}}\n{resource}"
    )
    exact = [x.astype(np.float64) for x in arrays]
    expected = np.asarray(np.einsum(case["product"], *exact) + start.astype(np.float64))
    # Sums of narrow numbers whose output has no dimension to run vectors along
    # are rounded at every step, as the IR says.
    if dtype in ("bf16", "f16") and not case["wide"]:
        if case["product"] in ("k,k->",):
            return
        # A product that nothing sums up is, too, and may be nearly the opposite of what it is added to.
        if left == right == output:
            expected = (arrays[0] * arrays[1] + start).astype(np.float64)
    given = arrays[:1] if is_constant else arrays
    compare(text, given + [start], expected, out_dtype, case["cpu"], f"product {index} {case}")


check.matrix({
    "product": PRODUCTS, "sizes": SIZES, "dtype": ["f32", "f64", "bf16", "f16"], "wide": [False, True],
    "cpu": check.usable_cpus(), "dynamic": [False, True],
}, 5, run_product)


def run_few_rows(index, case):
    """The right operand is read where it is."""
    sizes = dict(b=case["batch"], m=case["rows"], n=case["columns"], k=case["depth"])
    run_product(index, {**case, "sizes": sizes})


check.matrix({
    "product": ["mk,nk->mn", "mk,kn->mn", "bmk,bnk->bmn", "bmk,bkn->bmn", "bmk,nk->bmn", "bmk,kn->mbn", "k,nk->n", "k,kn->n",
                "km,nk->mn", "km,kn->mn"],
    "batch": [1, 3], "rows": [1, 2, 3, 4, 5, 7, 8, 9], "columns": [1, 7, 8, 63, 65, 1100], "depth": [1, 7, 8, 63, 65, 1030],
    "dtype": ["f32", "f64", "bf16", "f16"], "wide": [False, True], "cpu": check.usable_cpus(), "dynamic": [False, True],
}, 7, run_few_rows)

# Those that are packed when compiling, and beside them what is not.
check.matrix({
    "product": ["mk,kn->mn", "mk,nk->mn", "km,kn->mn", "bmk,bkn->bmn", "bmk,nk->bmn", "bmk,knb->bmn", "nk,mk->mn", "bmf,fhd->bhmd",
                "bhmd,hdf->bmf", "k,kn->n"],
    "sizes": SIZES, "dtype": ["f32", "f64", "bf16"], "wide": [False, True], "cpu": check.usable_cpus(), "dynamic": [False, True],
    "constant": [True],
}, 2, run_product)

# ---- Everything else -------------------------------------------------------------


def erf(x):
    return np.vectorize(math.erf)(x)


# Operations on tensors: name, IR of "%r" from %x [rows, width] and %v [width],
# with T, R and V for types of [rows, width], [rows] and [width], and in NumPy.
ELEMENTWISE = {
    "gelu": ("""
  %c = arith.constant dense<0.7071067811865476> : T
  %h = arith.constant dense<0.5> : T
  %s = arith.mulf %x, %c : T
  %e = math.erf %s : T
  %p = arith.mulf %h, %x : T
  %q = arith.mulf %p, %e : T
  %r = arith.addf %q, %p : T
""", "T", lambda x, v: 0.5 * x + 0.5 * x * erf(x / np.sqrt(2))),
    "tanh, exp and log": ("""
  %t = math.tanh %x : T
  %e = math.exp %t : T
  %l = math.log %e : T
  %a = arith.addf %l, %e : T
  %r = arith.negf %a : T
""", "T", lambda x, v: -(np.tanh(x) + np.exp(np.tanh(x)))),
    "select": ("""
  %z = arith.constant dense<0.0> : T
  %b = arith.cmpf ogt, %x, %z : T
  %r = arith.select %b, %x, %z : TB, T
""", "T", lambda x, v: np.maximum(x, 0)),
    "bias": ("""
  %e = tensor.empty(SIZES) : T
  %b = linalg.broadcast ins(%v : V) outs(%e : T) dimensions = [0]
  %r = arith.addf %x, %b : T
""", "T", lambda x, v: x + v),
    "transpose": ("""
  %e = tensor.empty(SWAPPED) : S
  %r = linalg.transpose ins(%x : T) outs(%e : S) permutation = [1, 0]
""", "S", lambda x, v: x.T),
    "sum of rows": ("""
  %z = arith.constant 0.0 : E
  %e = tensor.empty(ROWS) : R
  %i = linalg.fill ins(%z : E) outs(%e : R) -> R
  %r = linalg.reduce {arith.addf} ins(%x : T) outs(%i : R) dimensions = [1]
""", "R", lambda x, v: x.sum(1)),
    "maximum of columns": ("""
  %r = linalg.reduce {arith.maximumf} ins(%x : T) outs(%v : V) dimensions = [0]
""", "V", lambda x, v: np.maximum(x.max(0), v)),
    "norm of rows": ("""
  %z = arith.constant 0.5 : E
  %e = tensor.empty(ROWS) : R
  %i = linalg.fill ins(%z : E) outs(%e : R) -> R
  %q = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
      iterator_types = ["parallel", "reduction"]} ins(%x : T) outs(%i : R) {
  ^bb0(%a: E, %o: E):
    %m = arith.mulf %a, %a : E
    %s = arith.addf %m, %o : E
    linalg.yield %s : E
  } -> R
  %r = math.rsqrt %q : R
""", "R", lambda x, v: 1 / np.sqrt((x * x).sum(1) + 0.5)),
    # Every row reads what was added to.
    "sums in place": ("""
  %s = linalg.generic {indexing_maps = [affine_map<(j) -> (j)>, affine_map<(j) -> (j)>], iterator_types = ["parallel"]}
      ins(%v : V) outs(%v : V) {
  ^bb0(%a: E, %o: E):
    %p = arith.addf %a, %o : E
    linalg.yield %p : E
  } -> V
  %e = tensor.empty(SIZES) : T
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]} ins(%x, %s : T, V) outs(%e : T) {
  ^bb0(%a: E, %b: E, %o: E):
    %p = arith.mulf %a, %b : E
    linalg.yield %p : E
  } -> T
""", "T", lambda x, v: x * (v + v)),
    # Steps that read the same rows.
    "layer norm": ("""
  %z = arith.constant 0.0 : E
  %one = arith.constant 1.0 : E
  %e = tensor.empty(ROWS) : R
  %i = linalg.fill ins(%z : E) outs(%e : R) -> R
  %count = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
      iterator_types = ["parallel", "reduction"]} ins(%x : T) outs(%i : R) {
  ^bb0(%a: E, %o: E):
    %p = arith.addf %o, %one : E
    linalg.yield %p : E
  } -> R
  %sum = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
      iterator_types = ["parallel", "reduction"]} ins(%x : T) outs(%i : R) {
  ^bb0(%a: E, %o: E):
    %p = arith.addf %o, %a : E
    linalg.yield %p : E
  } -> R
  %mean = arith.divf %sum, %count : R
  %squares = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i)>],
      iterator_types = ["parallel", "reduction"]} ins(%x, %mean : T, R) outs(%i : R) {
  ^bb0(%a: E, %b: E, %o: E):
    %d = arith.subf %a, %b : E
    %q = arith.mulf %d, %d : E
    %p = arith.addf %o, %q : E
    linalg.yield %p : E
  } -> R
  %empty = tensor.empty(SIZES) : T
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i)>,
      affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (j)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]} ins(%x, %mean, %squares, %count, %v : T, R, R, R, V) outs(%empty : T) {
  ^bb0(%a: E, %b: E, %c: E, %n: E, %w: E, %o: E):
    %d = arith.subf %a, %b : E
    %q = arith.divf %c, %n : E
    %l = arith.addf %q, %one : E
    %f = math.rsqrt %l : E
    %m = arith.mulf %d, %f : E
    %p = arith.mulf %m, %w : E
    linalg.yield %p : E
  } -> T
""", "T", lambda x, v: (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1) * v),
    "soft-max": ("""
  %e = tensor.empty(SIZES) : T
  %r = linalg.softmax dimension(1) ins(%x : T) outs(%e : T) -> T
""", "T", lambda x, v: np.exp(x - x.max(1, keepdims=True)) / np.exp(x - x.max(1, keepdims=True)).sum(1, keepdims=True)),
}


def run_elementwise(index, case):
    rng = np.random.default_rng(index)
    body, result, formula = ELEMENTWISE[case["op"]]
    rows, width, dtype = *case["shape"], case["dtype"]
    x, v = normal(rng, (rows, width), dtype), normal(rng, (width,), dtype)
    n, m = (None, None) if case["dynamic"] else (rows, width)
    types = {"TB": tensor((n, m), "i1"), "T": tensor((n, m), dtype), "S": tensor((m, n), dtype),
             "R": tensor((n,), dtype), "V": tensor((m,), dtype), "E": dtype}
    if case["dynamic"] and "dense<" in body:
        return
    text = f"func.func @f(%x: T, %v: V) -> {result} {{\n"
    if case["dynamic"]:
        text += ("  %c0 = arith.constant 0 : index\n  %c1 = arith.constant 1 : index\n"
                 "  %rows = tensor.dim %x, %c0 : T\n  %width = tensor.dim %x, %c1 : T\n")
    text += body + f"  return %r : {result}\n}}\n"
    sizes = ("%rows, %width", "%width, %rows", "%rows") if case["dynamic"] else ("", "", "")
    for name, value in zip(("SIZES", "SWAPPED", "ROWS"), sizes):
        text = text.replace(name, value)
    text = re.sub(r"\b(TB|T|S|R|V|E)\b", lambda match: types[match[1]], text)
    expected = formula(x.astype(float), v.astype(float))
    # Narrow numbers are rounded after every operation, as the IR says.
    bound = BOUNDS[dtype] * (1 if dtype in ("f32", "f64") else 4)
    what = f"elementwise {index} {case}"
    if case["op"] in ("sum of rows", "layer norm") and dtype in ("bf16", "f16"):
        return
    for target in ("cpu", "reference"):
        kernel = check.library.compile(text, target=target, cpu=case["cpu"])
        check.close(kernel(x, v)[0], expected, bound, f"{what} {target}")


check.matrix({
    "op": list(ELEMENTWISE), "shape": [(1, 1), (3, 16), (7, 37), (64, 64), (130, 1000), (33, 15)],
    "dtype": ["f32", "f64", "bf16", "f16"], "cpu": check.usable_cpus(), "dynamic": [False, True],
}, 6, run_elementwise)

# Conversions between element types, in both pipelines.
for a, b, op in (("f32", "bf16", "truncf"), ("bf16", "f32", "extf"), ("f64", "f32", "truncf"),
                 ("f32", "f16", "truncf"), ("f16", "f32", "extf"), ("f16", "f64", "extf")):
    for extents in ((3, 37), (None, None)):
        source, target = tensor(extents, a), tensor(extents, b)
        text = (f"func.func @f(%x: {source}) -> {target} {{\n  %r = arith.{op} %x : {source} to {target}\n"
                f"  return %r : {target}\n}}\n")
        x = normal(np.random.default_rng(1), (3, 37), a)
        for way in ("cpu", "reference"):
            found = check.library.compile(text, target=way)(x)[0]
            check.require((found == x.astype(found.dtype)).all(), f"{op} {a} to {b} {extents} {way}")
check.finish()
