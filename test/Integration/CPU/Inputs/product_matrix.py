# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sums of products in linalg: batches, transposes, axes in any order, sums that are added to what is
there, biases and rounding, against NumPy."""

import numpy as np
from cases import Checker, normal, tensor

check = Checker()

#: Axes of the left factor, the right one and the result, and those along which the result has a bias.
FORMS = {
    "matmul": ("mk", "kn", "mn", "n"),
    "left transposed": ("km", "kn", "mn", "n"),
    "right transposed": ("mk", "nk", "mn", "n"),
    "both transposed": ("km", "nk", "mn", "n"),
    "result transposed": ("mk", "kn", "nm", None),
    "batch": ("bmk", "bkn", "bmn", "n"),
    "layer": ("bmk", "kn", "bmn", "n"),
    "gradient of weights": ("bmk", "bmn", "kn", "n"),
    "heads": ("bmhk", "bnhk", "bhmn", "n"),
    "values of heads": ("bhmk", "bkhn", "bmhn", None),
    "from heads": ("bmhk", "hkn", "bmn", "n"),
    "to heads": ("bmk", "hkn", "bhmn", None),
    "to heads as they lie": ("bmk", "khn", "bmhn", "hn"),
    "matvec": ("mk", "k", "m", None),
    "vecmat": ("k", "kn", "n", "n"),
    "mixed columns": ("wbrtd", "watde", "wbrae", None),
}
FACTORS = {
    "form": list(FORMS),
    "m": [1, 2, 37, 64],
    "n": [1, 3, 16, 65],
    # The last one has more than one block of the reduction, whatever the vectors.
    "k": [1, 5, 24, 300],
    "dtype": [dtype for dtype in check.types() if dtype != "f64"],
    # The type of the sums: that of the factors, or f32, of which a rounding makes the result.
    "sums": ["same", "f32", "rounded"],
    "start": ["zeros", "zeros", "tensor"],
    "bias": [False, True],
    "dynamic": [False, True],
}
#: Half of the last digit.
ROUNDING = {"f32": 2.0**-24, "bf16": 2.0**-8, "f16": 2.0**-11}


def run(index, case):
    rng = np.random.default_rng(index)
    left, right, result, bias_axes = FORMS[case["form"]]
    extents = {"b": 2, "h": 3, "w": 2, "r": 3, "a": 2, "t": 4, "m": case["m"], "n": case["n"], "k": case["k"],
               "d": case["k"], "e": case["n"]}  # fmt: skip
    axes = sorted(set(left + right))
    dtype = case["dtype"]
    sums = dtype if case["sums"] == "same" else "f32"
    final = dtype if case["sums"] == "rounded" else sums
    arguments, arrays = [], []

    def type_of(names, element):
        return tensor([None if case["dynamic"] and name in "bmn" else extents[name] for name in names], element)

    def operand(name, names, element):
        arrays.append(normal(rng, [extents[axis] for axis in names], element))
        arguments.append(f"{name}: {type_of(names, element)}")
        return arrays[-1].astype(float)

    x, y = operand("%x", left, dtype), operand("%y", right, dtype)
    expected = np.einsum(f"{left},{right}->{result}", x, y)
    size = np.einsum(f"{left},{right}->{result}", abs(x), abs(y))
    types = [type_of(left, dtype), type_of(right, dtype), type_of(result, sums)]
    sources = {axis: ("%x", left.index(axis), types[0]) for axis in left}
    sources |= {axis: ("%y", right.index(axis), types[1]) for axis in right if axis not in sources}
    text, extra = "", []
    for axis in result:
        if case["dynamic"] and axis in "bmn":
            name, place, type_ = sources[axis]
            text += f"  %c{axis} = arith.constant {place} : index\n  %d{axis} = tensor.dim {name}, %c{axis} : {type_}\n"
            extra.append(f"%d{axis}")
    sizes = ", ".join(extra)
    if case["start"] == "tensor":
        z = operand("%z", result, sums)
        expected, size = expected + z, size + abs(z)
    else:
        text += f"  %zero = arith.constant 0.0 : {sums}\n  %e = tensor.empty({sizes}) : {types[2]}\n"
        text += f"  %z = linalg.fill ins(%zero : {sums}) outs(%e : {types[2]}) -> {types[2]}\n"
    maps = ", ".join(f"affine_map<({', '.join(axes)}) -> ({', '.join(names)})>" for names in (left, right, result))
    kinds = ", ".join('"parallel"' if axis in result else '"reduction"' for axis in axes)
    widen = dtype != sums
    factor = "".join(f"    %{n} = arith.extf %{n}0 : {dtype} to {sums}\n" for n in "uv") if widen else ""
    u, v = ("%u", "%v") if widen else ("%u0", "%v0")
    text += (
        f"  %p = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{kinds}]}}\n"
        f"      ins(%x, %y : {types[0]}, {types[1]}) outs(%z : {types[2]}) {{\n"
        f"  ^bb0(%u0: {dtype}, %v0: {dtype}, %o: {sums}):\n{factor}"
        f"    %uv = arith.mulf {u}, {v} : {sums}\n    %s = arith.addf %o, %uv : {sums}\n"
        f"    linalg.yield %s : {sums}\n  }} -> {types[2]}\n"
    )
    value, value_type = "%p", types[2]
    has_bias = case["bias"] and bias_axes
    if has_bias or final != sums:
        value_type = type_of(result, final)
        body, inputs, input_types, block = "", ["%p"], [types[2]], f"%s: {sums}"
        identity = f"affine_map<({', '.join(result)}) -> ({', '.join(result)})>"
        all_maps, sum_ = [identity], "%s"
        if has_bias:
            b = operand("%b", bias_axes, final)
            place = [result.index(axis) for axis in bias_axes]
            b = b.reshape([extents[axis] if axis in bias_axes else 1 for axis in result])
            assert place == sorted(place)
            expected, size = expected + b, size + abs(b)
            inputs.append("%b")
            input_types.append(type_of(bias_axes, final))
            all_maps.append(f"affine_map<({', '.join(result)}) -> ({', '.join(bias_axes)})>")
            block += f", %t: {final}"
            body += f"    %w = arith.extf %t : {final} to {sums}\n" if final != sums else ""
            body += f"    %st = arith.addf %s, {'%w' if final != sums else '%t'} : {sums}\n"
            sum_ = "%st"
        if final != sums:
            body += f"    %n = arith.truncf {sum_} : {sums} to {final}\n"
            sum_ = "%n"
        loops = ", ".join(['"parallel"'] * len(result))
        text += f"  %f = tensor.empty({sizes}) : {value_type}\n"
        text += (
            f"  %r = linalg.generic {{indexing_maps = [{', '.join([*all_maps, identity])}], "
            f"iterator_types = [{loops}]}}\n"
            f"      ins({', '.join(inputs)} : {', '.join(input_types)}) outs(%f : {value_type}) {{\n"
            f"  ^bb0({block}, %q: {final}):\n{body}    linalg.yield {sum_} : {final}\n  }} -> {value_type}\n"
        )
        value = "%r"
    program = f"func.func @f({', '.join(arguments)}) -> {value_type} {{\n{text}  return {value} : {value_type}\n}}\n"
    # Sums of so many numbers in f32, in any order. Narrow sums may be rounded before a bias is added, too.
    terms = int(np.prod([extents[axis] for axis in axes if axis not in result])) + 2
    roundings = 2 if has_bias and final == sums else 1
    bound = (terms * ROUNDING["f32"] + roundings * ROUNDING[final]) * size.max(initial=0)
    found = check.library.compile(program)(*arrays)[0]
    check.close(found, expected, bound, f"case {index} {case}", absolute=True)


check.matrix(FACTORS, 11, run)
check.finish()
