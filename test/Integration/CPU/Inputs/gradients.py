# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions to differentiate, and central differences. `$T` is the element type."""

import numpy as np


def central_differences(kernel, arrays, cotangents, step=1e-5):
    """Gradients of the results, weighted by `cotangents`, for every floating-point
    argument, number by number."""
    def loss():
        results = [r for r in kernel(*arrays) if r.dtype.kind == "f"]
        return sum((r * c).sum() for r, c in zip(results, cotangents))

    gradients = []
    for array in arrays:
        if array.dtype.kind != "f":
            continue
        gradient = np.zeros_like(array)
        for index in np.ndindex(array.shape):
            old = array[index]
            array[index] = old + step
            above = loss()
            array[index] = old - step
            gradient[index] = (above - loss()) / (2 * step)
            array[index] = old
        gradients.append(gradient)
    return gradients


# ---- Numbers --------------------------------------------------------------------


def above(low):
    return lambda rng: low + 0.3 + np.abs(rng.standard_normal(19))


def within(bound):
    return lambda rng: rng.uniform(-bound, bound, 19)


def positive(shape):
    return lambda rng: 0.5 + np.abs(rng.standard_normal(shape))


def positions(rng):
    return rng.integers(0, 9, (1, 1, 5), np.int32)


def apart(rng):
    """Not near zero or any other integer or half, where steps are."""
    return rng.integers(-3, 3, 19) + rng.uniform(0.1, 0.4, 19)


# Operation, or lines over %a, %b, %c that end in %r; where its operands may lie.
ELEMENTWISE = [
    ("arith.addf", [19, 19]), ("arith.subf", [19, 19]), ("arith.mulf", [19, 19]),
    ("arith.divf", [19, above(0)]), ("arith.negf", [19]), ("arith.maximumf", [19, 19]),
    ("arith.minimumf", [19, 19]), ("arith.maxnumf", [19, 19]), ("arith.minnumf", [19, 19]),
    ("math.absf", [apart]), ("math.acos", [within(0.8)]), ("math.acosh", [above(1)]),
    ("math.asin", [within(0.8)]), ("math.asinh", [19]), ("math.atan", [19]), ("math.atan2", [above(0), 19]),
    ("math.atanh", [within(0.8)]), ("math.cbrt", [above(0)]), ("math.ceil", [apart]), ("math.cos", [19]),
    ("math.cosh", [19]), ("math.copysign", [apart, apart]), ("math.erf", [19]), ("math.erfc", [19]),
    ("math.exp", [19]), ("math.exp2", [19]), ("math.expm1", [19]), ("math.floor", [apart]),
    ("math.fma", [19, 19, 19]), ("math.log", [above(0)]), ("math.log10", [above(0)]),
    ("math.log1p", [above(0)]), ("math.log2", [above(0)]), ("math.powf", [above(0), 19]),
    ("math.round", [apart]), ("math.roundeven", [apart]), ("math.rsqrt", [above(0)]), ("math.sin", [19]),
    ("math.sinh", [19]), ("math.sqrt", [above(0)]), ("math.tan", [within(1)]), ("math.tanh", [19]),
    ("math.trunc", [apart]),
    ("select", [19, 19], ["%p = arith.cmpf olt, %a, %b : $T", "%s = arith.mulf %a, %b : $T",
                          "%r = arith.select %p, %s, %b : $T"]),
    ("same", [19], ["%s = arith.mulf %a, %a : $T", "%r = arith.mulf %s, %a : $T"]),
    ("fpowi", [above(0)], ["%n = arith.constant 3 : i32", "%r = math.fpowi %a, %n : $T, i32"]),
    ("silu", [19], ["%one = arith.constant 1.0 : $T", "%m = arith.negf %a : $T", "%e = math.exp %m : $T",
                    "%d = arith.addf %one, %e : $T", "%r = arith.divf %a, %d : $T"]),
]  # fmt: skip

# Where the CPU's polynomials, or sums of narrow numbers that the text asks for,
# are less exact than the bound.
SLACK = {}


def elementwise_cases():
    cases = []
    for name, inputs, *lines in ELEMENTWISE:
        names = ["%a", "%b", "%c"][: len(inputs)]
        body = lines[0] if lines else [f"%r = {name} {', '.join(names)} : $T"]
        arguments = ", ".join(f"{n}s: tensor<19x$T>" for n in names)
        maps = ", ".join(["affine_map<(i) -> (i)>"] * (len(names) + 1))
        text = (
            f"func.func @f({arguments}) -> tensor<19x$T> {{\n  %init = tensor.empty() : tensor<19x$T>\n"
            f"  %y = linalg.generic {{indexing_maps = [{maps}], iterator_types = [\"parallel\"]}}\n"
            f"      ins({', '.join(n + 's' for n in names)} : {', '.join(['tensor<19x$T>'] * len(names))})"
            f" outs(%init : tensor<19x$T>) {{\n"
            f"  ^bb0({', '.join(f'{n}: $T' for n in names)}, %out: $T):\n    "
            + "\n    ".join(body) + "\n    linalg.yield %r : $T\n  } -> tensor<19x$T>\n"
            "  return %y : tensor<19x$T>\n}\n"
        )  # fmt: skip
        # What narrow arithmetic in the body loses is not the gradient's doing.
        cases.append(dict(name=name, text=text, inputs=inputs, types=("f64", "f32"),
                          slack=SLACK.get(name, {})))  # fmt: skip
    return cases


# ---- Operations -----------------------------------------------------------------


def function(arguments, results, *lines, returned="%r"):
    return (
        f"func.func @f({arguments}) -> ({results}) {{\n  "
        + "\n  ".join(lines) + f"\n  return {returned} : {results}\n}}\n"
    )  # fmt: skip


def product(name, left, right, out, maps, extents):
    """linalg.contract with maps in NumPy's notation."""
    def kind(names):
        return "tensor<" + "".join(f"{extents[n]}x" for n in names) + "$T>"

    a, b, c = kind(left), kind(right), kind(out)
    loops = ", ".join(sorted(set(left + right)))
    texts = ", ".join(f"affine_map<({loops}) -> ({', '.join(m)})>" for m in (left, right, out))
    text = function(
        f"%a: {a}, %b: {b}", c, "%zero = arith.constant 0.0 : $T", f"%e = tensor.empty() : {c}",
        f"%z = linalg.fill ins(%zero : $T) outs(%e : {c}) -> {c}",
        f"%r = linalg.contract indexing_maps = [{texts}] ins(%a, %b : {a}, {b}) outs(%z : {c}) -> {c}",
    )  # fmt: skip
    shapes = [tuple(extents[n] for n in names) for names in (left, right)]
    return dict(name=f"{name} {left},{right}->{out}", text=text, inputs=shapes)


def dynamic_product():
    a, b, c = "tensor<?x?x$T>", "tensor<?x?x$T>", "tensor<?x?x$T>"
    return function(
        f"%a: {a}, %b: {b}", c, "%zero = arith.constant 0.0 : $T", "%c0 = arith.constant 0 : index",
        "%c1 = arith.constant 1 : index", f"%m = tensor.dim %a, %c0 : {a}", f"%n = tensor.dim %b, %c1 : {b}",
        f"%e = tensor.empty(%m, %n) : {c}", f"%z = linalg.fill ins(%zero : $T) outs(%e : {c}) -> {c}",
        f"%y = linalg.matmul ins(%a, %b : {a}, {b}) outs(%z : {c}) -> {c}", f"%r = math.tanh %y : {c}",
    )  # fmt: skip


def reduction(combiner, start, square=False):
    x, y = "tensor<5x7x$T>", "tensor<5x$T>"
    body = ["%q = arith.mulf %in, %in : $T"] if square else []
    term = "%q" if square else "%in"
    return function(
        f"%x: {x}", y, f"%low = arith.constant {start} : $T", f"%e = tensor.empty() : {y}",
        f"%z = linalg.fill ins(%low : $T) outs(%e : {y}) -> {y}",
        f"%r = linalg.reduce ins(%x : {x}) outs(%z : {y}) dimensions = [1] (%in: $T, %out: $T) {{",
        *body, f"%s = {combiner} %out, {term} : $T", "linalg.yield %s : $T", "}",
    )  # fmt: skip


EXTENTS = dict(b=2, h=3, m=5, n=7, k=4, f=6)
SUM = "tensor<5x7x$T>"


def operation_cases():
    pairs = [("mk", "kn", "mn"), ("mk", "nk", "mn"), ("km", "kn", "mn"), ("km", "nk", "mn"), ("bmk", "bkn", "bmn"),
             ("bmk", "kn", "bmn"), ("bmf", "fhk", "bhmk"), ("mk", "k", "m"), ("k", "kn", "n"),
             ("k", "k", "")]  # fmt: skip
    # A number that is summed at every step in a narrow type is as exact as that.
    cases = [product("product", *p, None, EXTENTS) for p in pairs]
    cases += [
        dict(name="dynamic product", text=dynamic_product(), inputs=[(3, 4), (4, 5)], types=("f64", "f32")),
        dict(name="sum", text=reduction("arith.addf", "0.0"), inputs=[(5, 7)]),
        dict(name="sum of squares", text=reduction("arith.addf", "0.0", square=True), inputs=[(5, 7)]),
        dict(name="maximum", text=reduction("arith.maximumf", "-1.0e+4"), inputs=[(5, 7)]),
        dict(name="minimum", text=reduction("arith.minimumf", "1.0e+4"), inputs=[(5, 7)]),
        dict(name="fill by an argument", inputs=[()], text=function(
            "%x: $T", SUM, f"%e = tensor.empty() : {SUM}",
            f"%r = linalg.fill ins(%x : $T) outs(%e : {SUM}) -> {SUM}")),
        dict(name="broadcast and transpose", inputs=[(7,), (7, 5)], text=function(
            "%x: tensor<7x$T>, %y: tensor<7x5x$T>", SUM, f"%e = tensor.empty() : {SUM}",
            f"%w = linalg.broadcast ins(%x : tensor<7x$T>) outs(%e : {SUM}) dimensions = [0]",
            f"%t = linalg.transpose ins(%y : tensor<7x5x$T>) outs(%e : {SUM}) permutation = [1, 0]",
            f"%r = linalg.mul ins(%w, %t : {SUM}, {SUM}) outs(%e : {SUM}) -> {SUM}")),
        dict(name="convolution", inputs=[(1, 6, 6, 2), (3, 3, 2, 3)], types=("f64", "f32"), text=function(
            "%x: tensor<1x6x6x2x$T>, %w: tensor<3x3x2x3x$T>", "tensor<1x4x4x3x$T>",
            "%zeros = arith.constant dense<0.0> : tensor<1x4x4x3x$T>",
            "%r = linalg.conv_2d_nhwc_hwcf ins(%x, %w : tensor<1x6x6x2x$T>, tensor<3x3x2x3x$T>) "
            "outs(%zeros : tensor<1x4x4x3x$T>) -> tensor<1x4x4x3x$T>")),
        dict(name="init that is read", inputs=[(5, 7), (5, 7)], text=function(
            f"%x: {SUM}, %y: {SUM}", SUM,
            "%r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], "
            'iterator_types = ["parallel", "parallel"]}' f" ins(%x : {SUM}) outs(%y : {SUM}) {{",
            "^bb0(%a: $T, %b: $T):", "%p = arith.mulf %a, %b : $T", "linalg.yield %p : $T", f"}} -> {SUM}")),
        dict(name="two results", inputs=[(5, 7), (5, 7)], types=("f64", "f32"), text=function(
            f"%x: {SUM}, %y: {SUM}", f"{SUM}, {SUM}", f"%e = tensor.empty() : {SUM}",
            "%s:2 = linalg.generic {indexing_maps = [" + ", ".join(["affine_map<(i, j) -> (i, j)>"] * 4) + "], "
            'iterator_types = ["parallel", "parallel"]}' f" ins(%x, %y : {SUM}, {SUM}) outs(%e, %e : {SUM}, {SUM}) {{",
            "^bb0(%a: $T, %b: $T, %c: $T, %d: $T):", "%p = arith.mulf %a, %b : $T", "%q = math.exp %a : $T",
            "linalg.yield %p, %q : $T, $T", f"}} -> ({SUM}, {SUM})", returned="%s#0, %s#1")),
        dict(name="overlapping slices", inputs=[(5, 7)], text=function(
            f"%x: {SUM}", "tensor<5x4x$T>, tensor<3x2x$T>",
            f"%a = tensor.extract_slice %x[0, 0] [5, 4] [1, 1] : {SUM} to tensor<5x4x$T>",
            f"%b = tensor.extract_slice %x[0, 1] [3, 2] [2, 3] : {SUM} to tensor<3x2x$T>",
            returned="%a, %b")),
        dict(name="insert, pad, concat", inputs=[(3, 4), (5, 7)], text=function(
            f"%x: tensor<3x4x$T>, %y: {SUM}", "tensor<5x16x$T>", "%zero = arith.constant 0.0 : $T",
            f"%a = tensor.insert_slice %x into %y[1, 2] [3, 4] [1, 1] : tensor<3x4x$T> into {SUM}",
            "%b = tensor.pad %a low[0, 2] high[0, 0] {", "^bb0(%i: index, %j: index):",
            "tensor.yield %zero : $T", f"}} : {SUM} to tensor<5x9x$T>",
            f"%r = tensor.concat dim(1) %a, %b : ({SUM}, tensor<5x9x$T>) -> tensor<5x16x$T>")),
        dict(name="reshapes and casts", inputs=[(2, 12)], text=function(
            "%x: tensor<2x12x$T>", "tensor<6x4x$T>",
            "%a = tensor.expand_shape %x [[0], [1, 2]] output_shape [2, 3, 4] : tensor<2x12x$T> into tensor<2x3x4x$T>",
            "%b = tensor.cast %a : tensor<2x3x4x$T> to tensor<?x3x4x$T>",
            "%c = tensor.collapse_shape %b [[0, 1], [2]] : tensor<?x3x4x$T> into tensor<?x4x$T>",
            "%r = tensor.cast %c : tensor<?x4x$T> to tensor<6x4x$T>")),
        dict(name="elements", inputs=[(4,)], text=function(
            "%x: tensor<4x$T>", "tensor<2x$T>", "%c1 = arith.constant 1 : index", "%c3 = arith.constant 3 : index",
            "%a = tensor.extract %x[%c1] : tensor<4x$T>", "%b = tensor.extract %x[%c3] : tensor<4x$T>",
            "%p = arith.mulf %a, %b : $T", "%r = tensor.from_elements %p, %a : tensor<2x$T>")),
        # A value used by everything, an argument used by nothing, one that is
        # returned as it came, and integers.
        dict(name="uses", inputs=[(5, 7), (5, 7), lambda rng: rng.integers(0, 9, 7)], text=function(
            f"%x: {SUM}, %y: {SUM}, %n: tensor<7xi64>", f"{SUM}, tensor<7xi64>, {SUM}",
            f"%a = arith.mulf %x, %x : {SUM}", f"%b = arith.addf %a, %x : {SUM}", f"%c = math.sin %b : {SUM}",
            f"%d = arith.mulf %c, %a : {SUM}", returned="%d, %n, %x")),
    ]  # fmt: skip
    return cases


# ---- Attention ------------------------------------------------------------------


def attention(op, shapes, operands, out, attributes="", clauses=""):
    """One operation of the dialect over arguments %a0, %a1, ... of `shapes`."""
    kinds = ["tensor<" + "".join(f"{n}x" for n in s) + "$T>" for s in shapes]
    names = [f"%a{i}" for i in range(len(shapes))]
    result = "tensor<" + "".join(f"{n}x" for n in out) + "$T>"
    for i, kind in enumerate(kinds):
        clauses = clauses.replace(f"#{i}", f"(%a{i} : {kind})")
    return function(
        ", ".join(f"{n}: {k}" for n, k in zip(names, kinds)), result, f"%e = tensor.empty() : {result}",
        f"%r = attn.{op} ins({', '.join(names[:operands])} : {', '.join(kinds[:operands])}) {clauses} "
        f"outs(%e : {result}) {{{attributes}}} -> {result}",
    )  # fmt: skip


def attention_cases():
    q, k = (2, 4, 5, 3), (2, 2, 7, 3)
    w = [(1, 2, 4 << level, 3) for level in range(2)]
    tokens = (1, 2, 27, 3)
    weights = "key_weights(%a3, %a4 : {0}, {1}) value_weights(%a5, %a6 : {0}, {1})".format(
        *("tensor<" + "".join(f"{n}x" for n in s) + "$T>" for s in w))  # fmt: skip
    specs = [
        ("dense", attention("dense", [q, k, k], 3, q), [q, k, k]),
        ("dense, all terms", attention(
            "dense", [q, k, k, (1, 2, 7), (2, 1, 5, 7)], 3, q, "mask = #attn.mask<causal, window = 4>",
            "log_weight#3 bias#4"), [q, k, k, (1, 2, 7), (2, 1, 5, 7)]),
        ("summarize", attention("summarize", [tokens, (2, 2, 8, 3), (2, 2, 3)], 1, (1, 2, 8, 3),
                                clauses="weights#1 bias#2"), [tokens, (2, 2, 8, 3), (2, 2, 3)]),
        ("multipole", attention("fast_multipole", [tokens] * 3 + w + w, 3, tokens,
                                "group = 4 : i64, causal", weights), [tokens] * 3 + w + w),
    ]  # fmt: skip
    cases = [dict(name=name, text=text, inputs=shapes) for name, text, shapes in specs]
    linear = "query_weights(%a3, %a4 : {0}, {1}) key_weights(%a5, %a6 : {0}, {1}) value_weights(%a7, %a8 : {0}, {1})"
    cases += [
        dict(name="multipole, linear", inputs=[tokens] * 3 + w * 3, text=attention(
            "fast_multipole_linear", [tokens] * 3 + w * 3, 3, tokens, "group = 4 : i64", linear.format(
                *("tensor<" + "".join(f"{n}x" for n in s) + "$T>" for s in w)))),
        dict(name="stream", inputs=[q, k, k, (1, 2, 7)], text=function(
            "%q: tensor<2x4x5x3x$T>, %k: tensor<2x2x7x3x$T>, %v: tensor<2x2x7x3x$T>, %w: tensor<1x2x7x$T>",
            "tensor<2x4x5x3x$T>", "%e = tensor.empty() : tensor<2x4x5x3x$T>",
            "%r = attn.stream query(%q : tensor<2x4x5x3x$T>) source(%k, %v : tensor<2x2x7x3x$T>, tensor<2x2x7x3x$T>)"
            " log_weight(%w : tensor<1x2x7x$T>) ranges [affine_map<(b)[rows, n] -> (0, b * 2 + 3)>]"
            " source(%v, %k : tensor<2x2x7x3x$T>, tensor<2x2x7x3x$T>) ranges [affine_map<(b)[rows, n] -> (b, rows)>]"
            " outs(%e : tensor<2x4x5x3x$T>) {block = 2 : i64, scale = 0.5 : f64} -> tensor<2x4x5x3x$T>")),
        dict(name="low_rank", inputs=[positive(s) for s in (q, k)] + [k], types=("f64", "f32"),
             text=attention("low_rank", [q, k, k], 3, q, "mask = #attn.row_mask<causal>")),
        dict(name="polynomial features", inputs=[q], types=("f64", "f32"),
             text=attention("polynomial_features", [q], 1, (*q[:3], 10), "degree = 2 : i64, scale = 0.5 : f64")),
        dict(name="rope", inputs=[(2, 1, 5, 6), positions], text=function(
            "%x: tensor<2x1x5x6x$T>, %n: tensor<1x1x5xi32>", "tensor<2x1x5x6x$T>", "%e = tensor.empty() : tensor<2x1x5x6x$T>",
            "%r = attn.rope ins(%x, %n : tensor<2x1x5x6x$T>, tensor<1x1x5xi32>) outs(%e : tensor<2x1x5x6x$T>)"
            " -> tensor<2x1x5x6x$T>")),
        dict(name="conv_apply", inputs=[(1, 2, 2, 6), (1, 2, 6, 3)], types=("f64", "f32"), text=function(
            "%b: tensor<1x2x2x6x$T>, %v: tensor<1x2x6x3x$T>", "tensor<1x2x6x3x$T>",
            "%n = arith.constant dense<[[[6, 4], [6, 3]]]> : tensor<1x2x2xi32>", "%e = tensor.empty() : tensor<1x2x6x3x$T>",
            "%c = tensor.empty() : tensor<1x2xi32>",
            "%r:2 = attn.conv_apply ins(%b, %n, %v : tensor<1x2x2x6x$T>, tensor<1x2x2xi32>, tensor<1x2x6x3x$T>)"
            " outs(%e, %c : tensor<1x2x6x3x$T>, tensor<1x2xi32>) -> tensor<1x2x6x3x$T>, tensor<1x2xi32>", returned="%r#0")),
    ]  # fmt: skip
    # Gradients of most attention have none.
    cases = [dict(case, second=case["name"] == "rope") for case in cases]
    for name, shapes, attributes in [
        ("any", [q, k, k], "scale = 0.4 : f64"),
        ("causal, rows that read nothing", [(1, 2, 7, 3), (1, 1, 5, 3), (1, 1, 5, 2)], "mask = #attn.mask<causal>"),
        ("window", [(1, 2, 5, 2), (1, 1, 9, 2), (1, 1, 9, 3)], "mask = #attn.mask<window = 2>"),
        ("prefix", [(1, 1, 6, 2), (1, 1, 6, 2), (1, 1, 6, 1)], "mask = #attn.mask<causal, prefix = 3>"),
        ("tiles", [(1, 1, 67, 1)] * 3, "causal"),
    ]:
        output = (*shapes[0][:3], shapes[2][3])
        cases.append(dict(name=f"dense twice, {name}", text=attention("dense", shapes, 3, output, attributes), inputs=shapes,
                          types=("f64", "f32")))  # fmt: skip
    return cases
