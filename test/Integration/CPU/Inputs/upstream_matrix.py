# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations of arith, math, tensor and linalg, one in a function, against NumPy."""

import math
import re

import numpy as np
from cases import BOUNDS, Checker, normal, tensor
from kernels import NAMES

check = Checker()
NAMES = NAMES | {"i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64, "i1": np.bool_}
ROWS, WIDTH = 3, 21


def run(text, arrays, expected, bound, what):
    """In both pipelines."""
    for target in ("cpu", "reference"):
        try:
            found = check.library.compile(text, target=target)(*arrays)[0]
        except Exception as failure:
            check.require(False, f"{what} {target}: {failure}")
            continue
        check.close(found, np.asarray(expected), bound, f"{what} {target}")


def function(arguments, result, body):
    names = ", ".join(f"%{name}: {type_}" for name, type_ in arguments)
    return f"func.func @f({names}) -> {result} {{\n{body}\n  return %r : {result}\n}}\n"


# ---- arith and math on tensors ---------------------------------------------------


def each(f):
    return np.vectorize(f, otypes=[float])


def truncate(x, y):
    return np.trunc(x / y)


# Operation, formula, and what makes arguments of normal numbers.
wide, near, positive = (lambda x: x * 3), (lambda x: np.tanh(x) * 0.9), (lambda x: abs(x) + 0.25)
UNARY = {
    "arith.negf": (np.negative, wide), "math.absf": (np.abs, wide), "math.ceil": (np.ceil, wide),
    "math.floor": (np.floor, wide), "math.trunc": (np.trunc, wide), "math.roundeven": (np.rint, wide),
    "math.round": (lambda x: np.copysign(np.floor(abs(x) + 0.5), x), wide), "math.sqrt": (np.sqrt, positive),
    "math.rsqrt": (lambda x: 1 / np.sqrt(x), positive), "math.cbrt": (np.cbrt, wide),
    "math.exp": (np.exp, near), "math.exp2": (np.exp2, near), "math.expm1": (np.expm1, near),
    "math.log": (np.log, positive), "math.log2": (np.log2, positive), "math.log10": (np.log10, positive),
    "math.log1p": (np.log1p, positive), "math.sin": (np.sin, wide), "math.cos": (np.cos, wide),
    "math.tan": (np.tan, near), "math.asin": (np.arcsin, near), "math.acos": (np.arccos, near),
    "math.atan": (np.arctan, wide), "math.sinh": (np.sinh, near), "math.cosh": (np.cosh, near),
    "math.tanh": (np.tanh, wide), "math.asinh": (np.arcsinh, wide),
    "math.acosh": (np.arccosh, lambda x: abs(x) + 1.25), "math.atanh": (np.arctanh, near),
    "math.erf": (each(math.erf), wide), "math.erfc": (each(math.erfc), near),
}  # fmt: skip
BINARY = {
    "arith.addf": np.add, "arith.subf": np.subtract, "arith.mulf": np.multiply,
    "arith.divf": lambda x, y: x / y, "arith.remf": np.fmod, "arith.maximumf": np.maximum,
    "arith.minimumf": np.minimum, "arith.maxnumf": np.fmax, "arith.minnumf": np.fmin,
    "math.copysign": np.copysign, "math.atan2": np.arctan2, "math.powf": np.power,
}  # fmt: skip
INTEGERS = {
    "arith.addi": np.add, "arith.subi": np.subtract, "arith.muli": np.multiply, "arith.andi": np.bitwise_and,
    "arith.ori": np.bitwise_or, "arith.xori": np.bitwise_xor, "arith.divsi": truncate,
    "arith.remsi": np.fmod, "arith.floordivsi": np.floor_divide,
    "arith.ceildivsi": lambda x, y: -(-x // y), "arith.maxsi": np.maximum, "arith.minsi": np.minimum,
}  # fmt: skip


def arguments(index, count, dtype):
    rng = np.random.default_rng(index)
    return [normal(rng, (ROWS, WIDTH), dtype) for _ in range(count)]


def bound_of(dtype):
    # LLVM's or the C library's functions, or upstream's polynomials in f32.
    return {"f32": 2e-5, "f64": 2e-6}.get(dtype, BOUNDS.get(dtype, 0))


def run_function(index, case):
    op, dtype = case["op"], case["dtype"]
    t = tensor((ROWS, WIDTH), dtype)
    if op in UNARY:
        formula, prepare = UNARY[op]
        x = prepare(arguments(index, 1, "f64")[0]).astype(NAMES[dtype])
        text = function([("x", t)], t, f"  %r = {op} %x : {t}")
        return run(text, [x], formula(x.astype(float)), bound_of(dtype), f"{op} {dtype}")
    x, y = arguments(index, 2, dtype)
    # Quotients and remainders depend on more than the digits that narrow numbers have.
    x, y = (positive(x), y) if op == "math.powf" else (x, np.copysign(positive(y), y))
    x, y = x.astype(NAMES[dtype]), y.astype(NAMES[dtype])
    text = function([("x", t), ("y", t)], t, f"  %r = {op} %x, %y : {t}")
    run(text, [x, y], BINARY[op](x.astype(float), y.astype(float)), bound_of(dtype), f"{op} {dtype}")


check.matrix({"op": [*UNARY, *BINARY], "dtype": ["f32", "f64", "bf16", "f16"]}, 1, run_function)


def run_integers(index, case):
    op, dtype = case["op"], case["type"]
    t = tensor((ROWS, WIDTH), dtype)
    rng = np.random.default_rng(index)
    x = rng.integers(-11, 11, (ROWS, WIDTH)).astype(NAMES[dtype])
    y = (rng.integers(1, 7, (ROWS, WIDTH)) * rng.choice([-1, 1], (ROWS, WIDTH))).astype(NAMES[dtype])
    text = function([("x", t), ("y", t)], t, f"  %r = {op} %x, %y : {t}")
    run(text, [x, y], INTEGERS[op](x, y), 0, f"{op} {dtype}")


check.matrix({"op": list(INTEGERS), "type": ["i8", "i16", "i32", "i64"]}, 2, run_integers)

# Of everything else: types of the arguments, IR with T for the first of them, the
# type of the result, and the result.
rng = np.random.default_rng(3)
A = rng.standard_normal((4, 12)).astype(np.float32)
B = rng.standard_normal((12, 5)).astype(np.float32)
V = rng.standard_normal(12).astype(np.float32)
IMAGE = rng.standard_normal((2, 8, 8, 3)).astype(np.float32)
FILTER = rng.standard_normal((3, 3, 3, 4)).astype(np.float32)
DEPTH = rng.standard_normal((3, 3, 3)).astype(np.float32)
N = rng.integers(-9, 9, (4, 12)).astype(np.int32)
INDEX = rng.integers(0, 4, (6, 1)).astype(np.int64)


def softmax(x, axis):
    e = np.exp(x.astype(float) - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def windows(image, size):
    """Of every output row and column: [2, 6, 6, size, size, 3]."""
    return np.lib.stride_tricks.sliding_window_view(image, (size, size), (1, 2)).transpose(0, 1, 2, 4, 5, 3)


PADDED = np.zeros((2, 3, 3, 4), np.float32)
PADDED.transpose(0, 2, 1, 3).reshape(6, 12)[:4] = A[:, :]
T412, T45, T12 = "tensor<4x12xf32>", "tensor<4x5xf32>", "tensor<12xf32>"
OTHERS = {
    "softmax along rows": ([A], T412, "%e = tensor.empty() : T\n%r = linalg.softmax dimension(1) ins(%0 : T) outs(%e : T) -> T",
                           softmax(A, 1)),
    "softmax along columns": ([A], T412, "%e = tensor.empty() : T\n%r = linalg.softmax dimension(0) ins(%0 : T) outs(%e : T) -> T",
                              softmax(A, 0)),
    "softmax of unknown extents": ([A], "tensor<?x?xf32>",
                                   "%e = tensor.cast %0 : T to R\n%r = linalg.softmax dimension(1) ins(%e : R) outs(%e : R) -> R",
                                    softmax(A, 1)),
    "matmul": ([A, B], T45, "%z = arith.constant dense<1.0> : R\n%r = linalg.matmul ins(%0, %1 : T, tensor<12x5xf32>) "
               "outs(%z : R) -> R", A @ B + 1),
    "matvec": ([A, V], "tensor<4xf32>", "%z = arith.constant dense<0.0> : R\n%r = linalg.matvec ins(%0, %1 : T, "
               "tensor<12xf32>) outs(%z : R) -> R", A @ V),
    "conv_2d": ([IMAGE, FILTER], "tensor<2x6x6x4xf32>", "%z = arith.constant dense<0.0> : R\n%r = linalg.conv_2d_nhwc_hwcf "
                "ins(%0, %1 : T, tensor<3x3x3x4xf32>) outs(%z : R) -> R",
                np.einsum("nxyhwc,hwcf->nxyf", windows(IMAGE, 3), FILTER)),
    "depthwise conv": ([IMAGE, DEPTH], "tensor<2x6x6x3xf32>", "%z = arith.constant dense<0.0> : R\n"
                       "%r = linalg.depthwise_conv_2d_nhwc_hwc ins(%0, %1 : T, tensor<3x3x3xf32>) outs(%z : R) -> R",
                       np.einsum("nxyhwc,hwc->nxyc", windows(IMAGE, 3), DEPTH)),
    "pooling": ([IMAGE], "tensor<2x7x7x3xf32>", "%z = arith.constant dense<-100.0> : R\n%w = tensor.empty() : tensor<2x2xf32>\n"
                "%r = linalg.pooling_nhwc_max ins(%0, %w : T, tensor<2x2xf32>) outs(%z : R) -> R",
                windows(IMAGE, 2).max((3, 4))),
    "pack": ([A], "tensor<3x2x3x4xf32>", "%e = tensor.empty() : R\n%z = arith.constant 7.0 : f32\n"
             "%r = linalg.pack %0 padding_value(%z : f32) outer_dims_perm = [1, 0] inner_dims_pos = [0, 1] "
             "inner_tiles = [3, 4] into %e : T -> R",
             np.pad(A, ((0, 2), (0, 0)), constant_values=7).reshape(2, 3, 3, 4).transpose(2, 0, 1, 3)),
    "pack, tiles exchanged": ([A], "tensor<2x3x4x2xf32>", "%e = tensor.empty() : R\n"
                              "%r = linalg.pack %0 inner_dims_pos = [1, 0] inner_tiles = [4, 2] into %e : T -> R",
                              A.reshape(2, 2, 3, 4).transpose(0, 2, 3, 1)),
    "unpack": ([A.reshape(2, 2, 3, 4).transpose(0, 2, 3, 1).copy()], "tensor<3x11xf32>", "%e = tensor.empty() : R\n"
               "%r = linalg.unpack %0 inner_dims_pos = [1, 0] inner_tiles = [4, 2] into %e : T -> R", A[:3, :11]),
    "pad": ([A], "tensor<7x15xf32>", "%z = arith.constant 2.5 : f32\n%r = tensor.pad %0 low[1, 0] high[2, 3] {\n"
            "^bb0(%i: index, %j: index):\n  tensor.yield %z : f32\n} : T to R",
            np.pad(A, ((1, 2), (0, 3)), constant_values=2.5)),
    "concat": ([A, A], "tensor<4x24xf32>", "%r = tensor.concat dim(1) %0, %1 : (T, T) -> R", np.concatenate([A, A], 1)),
    "strided slice": ([A], "tensor<2x4xf32>", "%r = tensor.extract_slice %0[1, 2] [2, 4] [2, 3] : T to R", A[1:4:2, 2:12:3]),
    "slice that drops one of two units": ([IMAGE], "tensor<1x2x3xf32>",
                                          "%r = tensor.extract_slice %0[1, 5, 0, 0] [1, 1, 2, 3] [2, 3, 1, 1] : T to R",
                                          IMAGE[1:, 5, :2]),
    "inserted slice": ([A, V], T412, "%r = tensor.insert_slice %1 into %0[2, 0] [1, 12] [3, 1] : tensor<12xf32> into T",
                       np.concatenate([A[:2], V[None], A[3:]])),
    "reshape to unknown extents": ([A, A[:2, :6].copy()], "tensor<4x?x?xf32>",
                                   "%c0 = arith.constant 0 : index\n%c1 = arith.constant 1 : index\n"
                                   "%n = tensor.dim %1, %c0 : tensor<?x?xf32>\n%m = tensor.dim %1, %c1 : tensor<?x?xf32>\n"
                                   "%r = tensor.expand_shape %0 [[0], [1, 2]] output_shape [4, %n, %m] : T into R",
                                   A.reshape(4, 2, 6)),
    "collapse": ([A], "tensor<48xf32>", "%r = tensor.collapse_shape %0 [[0, 1]] : T into R", A.reshape(48)),
    "generate": ([V], "tensor<3x12xf32>", "%r = tensor.generate {\n^bb0(%i: index, %j: index):\n"
                 "  %x = tensor.extract %0[%j] : T\n  tensor.yield %x : f32\n} : R", np.tile(V, (3, 1))),
    "transpose": ([A], "tensor<12x4xf32>", "%e = tensor.empty() : R\n%r = linalg.transpose ins(%0 : T) outs(%e : R) "
                  "permutation = [1, 0]", A.T),
    "two results that reduce other loops": (
        [A], "tensor<12xf32>", """%z = arith.constant dense<0.0> : R
    %y = arith.constant dense<0.0> : tensor<4xf32>
    %p:2 = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j)>, affine_map<(i, j) -> (i)>],
        iterator_types = ["reduction", "reduction"]} ins(%0 : T) outs(%z, %y : R, tensor<4xf32>) {
    ^bb0(%a: f32, %s: f32, %t: f32):
      %u = arith.addf %a, %s : f32
      %v = arith.addf %a, %t : f32
      linalg.yield %u, %v : f32, f32
    } -> (R, tensor<4xf32>)
    %c = arith.constant 3 : index
    %q = tensor.extract %p#1[%c] : tensor<4xf32>
    %w = tensor.splat %q : R
    %r = arith.addf %p#0, %w : R""", A.sum(0) + A[3].sum()),
    "powers of integers": ([N], "tensor<4x12xi32>", "%c = arith.constant dense<3> : R\n%r = math.ipowi %0, %c : R", N**3),
    "powers to integers": ([A, N], T412, "%r = math.fpowi %0, %1 : R, tensor<4x12xi32>",
                           A.astype(float) ** N),
    "complex numbers": ([A], T412, """%e = tensor.empty() : R
    %r = linalg.map ins(%0 : T) outs(%e : R) (%x: f32, %o: f32) {
      %c = complex.create %x, %x : complex<f32>
      %s = complex.mul %c, %c : complex<f32>
      %i = complex.im %s : complex<f32>
      linalg.yield %i : f32
    }""", 2 * A * A),
    "bits": ([N], "tensor<4x12xi32>", "%a = math.ctpop %0 : R\n%b = math.absi %0 : R\n%r = arith.addi %a, %b : R",
             np.vectorize(lambda n: bin(int(n) & 0xFFFFFFFF).count("1"))(N) + abs(N)),
    "conversions": ([N], "tensor<4x12xi64>", "%a = arith.sitofp %0 : T to tensor<4x12xf64>\n"
                    "%b = arith.fptosi %a : tensor<4x12xf64> to tensor<4x12xi8>\n"
                    "%r = arith.extsi %b : tensor<4x12xi8> to R", N),
}
for index, (name, (arrays, result, body, expected)) in enumerate(OTHERS.items()):
    if not check.wants(index):
        continue
    kinds = {np.dtype(np.float32): "f32", np.dtype(np.int32): "i32"}
    types = [tensor(x.shape, kinds[x.dtype]) for x in arrays]
    if "?" in result:
        types = ["tensor<4x?xf32>", "tensor<?x?xf32>"][: len(arrays)]
    body = re.sub(r"%(\d)", r"%a\1", body)
    body = re.sub(r"\bT\b", types[0], re.sub(r"\bR\b", result, body))
    text = function([(f"a{i}", t) for i, t in enumerate(types)], result, body)
    run(text, arrays, expected, 1e-4 if "powers to" in name else 5e-6, name)

# A soft-max of narrow numbers has sums of f32: of 600 equal weights, too.
for dtype in ("bf16", "f16"):
    t = tensor((2, 600), dtype)
    x = np.zeros((2, 600), NAMES[dtype])
    text = function([("x", t)], t, f"  %r = linalg.softmax dimension(1) ins(%x : {t}) outs(%x : {t}) -> {t}")
    run(text, [x], np.full(x.shape, 1 / 600), BOUNDS[dtype], f"softmax of {dtype}")
check.finish()
