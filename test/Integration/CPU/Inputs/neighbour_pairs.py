# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rotations of neighbours, in the forms that frontends write, against NumPy."""

import numpy as np
from cases import BOUNDS, Checker, normal, tensor

check = Checker()

def elementwise(name, inputs, init, *body):
    """A loop nest over three dimensions that yields what `body` calls %d: `inputs` are maps and types by operand."""
    maps = ", ".join(f"#{of}" for of, _ in [*inputs.values(), init[1:]])
    elements = ", ".join(f"%{letter}: {{E}}" for letter in [*"abce"[: len(inputs)], "o"])
    types = ", ".join(type for _, type in inputs.values())
    return f"""
  %{name} = linalg.generic {{{{indexing_maps = [{maps}], iterator_types = ["parallel", "parallel", "parallel"]}}}}
      ins({", ".join(inputs)} : {types}) outs({init[0]} : {init[2]}) {{{{
  ^bb0({elements}):
    {"".join(line + chr(10) + "    " for line in body)}linalg.yield {"%d" if body else "%a"} : {{E}}
  }}}} -> {init[2]}
"""


def product_sum(name, inputs, init, first, second, operation):
    """Two products, and their sum or difference."""
    lines = [f"%{to} = arith.mulf {pair} : {{E}}" for to, pair in (("p", first), ("q", second))]
    return elementwise(name, inputs, init, *lines, f"%d = arith.{operation} %p, %q : {{E}}")


# Bodies that make "%r" of even and odd columns "%even" and "%odd", [rows, heads, half], by angles [rows, half].
HALVES = {"%even": ("x", "{half}"), "%odd": ("x", "{half}"), "%cos": ("angle", "{table}"), "%sin": ("angle", "{table}")}
EMPTY, TABLES = ("%empty", "x", "{half}"), ("%tables", "twice", "{table2}")
ROTATED = product_sum("first", HALVES, EMPTY, "%a, %c", "%b, %e", "subf")
ROTATED += product_sum("second", HALVES, EMPTY, "%a, %e", "%b, %c", "addf")
# The angles are those of whole rows, as GPT-J's.
TURNED = """
  %minus = arith.negf %odd : {half}
  %m1 = tensor.expand_shape %minus [[0], [1], [2, 3]] output_shape [%m, 3, {h}, 1] : {half} into {ones}
  %e1 = tensor.expand_shape %even [[0], [1], [2, 3]] output_shape [%m, 3, {h}, 1] : {half} into {ones}
  %stack = tensor.concat dim(3) %m1, %e1 : ({ones}, {ones}) -> {pairs}
  %turned = tensor.collapse_shape %stack [[0], [1], [2, 3]] : {pairs} into {whole}
"""
TURNED += elementwise("cc", {"%cos": ("first", "{table}")}, TABLES) + elementwise("ss", {"%sin": ("first", "{table}")}, TABLES)
TURNED += """
  %cosines = tensor.collapse_shape %cc [[0], [1, 2]] : {table2} into {wide_table}
  %sines = tensor.collapse_shape %ss [[0], [1, 2]] : {table2} into {wide_table}
"""
WHOLE = {"%rows": ("x", "{whole}"), "%turned": ("x", "{whole}"), "%cosines": ("angle", "{wide_table}"), "%sines": ("angle", "{wide_table}")}
TURNED += product_sum("r", WHOLE, ("%like", "x", "{whole}"), "%a, %c", "%b, %e", "addf")
STACK = """
  %f1 = tensor.expand_shape %first [[0], [1], [2, 3]] output_shape [%m, 3, {h}, 1] : {half} into {ones}
  %s1 = tensor.expand_shape %second [[0], [1], [2, 3]] output_shape [%m, 3, {h}, 1] : {half} into {ones}
  %stack = tensor.concat dim(3) %f1, %s1 : ({ones}, {ones}) -> {pairs}
  %r = tensor.collapse_shape %stack [[0], [1], [2, 3]] : {pairs} into {whole}
"""
INSERTED = """
  %i = tensor.insert_slice %first into %like[0, 0, 0] [%m, 3, {h}] [1, 1, 2] : {half} into {whole}
  %r = tensor.insert_slice %second into %i[0, 0, 1] [%m, 3, {h}] [1, 1, 2] : {half} into {whole}
"""
FORMS = {"stack": ROTATED + STACK, "inserted": ROTATED + INSERTED, "turned": TURNED}
# Slices of every other column, or of pairs.
SLICES = {
    "steps": """
  %even = tensor.extract_slice %rows[0, 0, 0] [%m, 3, {h}] [1, 1, 2] : {whole} to {half}
  %odd = tensor.extract_slice %rows[0, 0, 1] [%m, 3, {h}] [1, 1, 2] : {whole} to {half}
""",
    "pairs": """
  %of_two = tensor.expand_shape %rows [[0], [1], [2, 3]] output_shape [%m, 3, {h}, 2] : {whole} into {pairs}
  %even = tensor.extract_slice %of_two[0, 0, 0, 0] [%m, 3, {h}, 1] [1, 1, 1, 1] : {pairs} to {half}
  %odd1 = tensor.extract_slice %of_two[0, 0, 0, 1] [%m, 3, {h}, 1] [1, 1, 1, 1] : {pairs} to {ones}
  %odd = tensor.collapse_shape %odd1 [[0], [1], [2, 3]] : {ones} into {half}
""",
}
# Rows of an array with other columns beside them, of which the last may be the first of a pair. Pairs have places beside
# even numbers of columns.
BESIDE = ((0, 0), (1, 0), (0, 1), (3, 2), (0, 48), (16, 0), (2, 6))

TEXT = """
#x = affine_map<(i, h, j) -> (i, h, j)>
#angle = affine_map<(i, h, j) -> (i, j)>
#twice = affine_map<(i, j, k) -> (i, j, k)>
#first = affine_map<(i, j, k) -> (i, j)>
func.func @f(%x: {given}, %cos: {table}, %sin: {table}) -> RESULT {{
  %zero = arith.constant 0 : index
  %m = tensor.dim %x, %zero : {given}
  %empty = tensor.empty(SIZE) : {half}
  %like = tensor.empty(SIZE) : {whole}
  %tables = tensor.empty(SIZE) : {table2}
  %rows = tensor.extract_slice %x[0, 0, {before}] [%m, 3, {width}] [1, 1, 1] : {given} to {whole}
"""


def run(index, case):
    rng = np.random.default_rng(index)
    dtype, width, (before, after), rows = case["dtype"], case["width"], case["beside"], case["rows"]
    half = width // 2
    x = normal(rng, [rows, 3, before + width + after], dtype)
    cos, sin = (normal(rng, [rows, half], dtype) for _ in range(2))
    m = None if case["dynamic"] else rows
    shapes = {
        "given": [m, 3, x.shape[2]], "whole": [m, 3, width], "half": [m, 3, half], "ones": [m, 3, half, 1],
        "pairs": [m, 3, half, 2], "table": [m, half], "table2": [m, half, 2], "wide_table": [m, width],
    }  # fmt: skip
    types = {name: tensor(shape, dtype) for name, shape in shapes.items()}
    body = SLICES[case["slices"]] + FORMS[case["form"]]
    text = (TEXT + body).format(E=dtype, h=half, width=width, before=before, **types)
    result, type_of_result = "%r", types["whole"]
    if case["passes"]:
        # As a rotary embedding of some columns passes the others on.
        names, parts = [], []
        for name, first, count in (("%low", 0, before), ("%r", before, width), ("%high", before + width, after)):
            if count:
                names.append(name)
                parts.append(tensor([m, 3, count], dtype))
            if count and name != "%r":
                text += f"  {name} = tensor.extract_slice %x[0, 0, {first}] [%m, 3, {count}] [1, 1, 1] : {types['given']} to {parts[-1]}\n"
        result, type_of_result = "%all", types["given"]
        text += f"  %all = tensor.concat dim(2) {', '.join(names)} : ({', '.join(parts)}) -> {type_of_result}\n"
    text = text.replace("RESULT", type_of_result) + f"  return {result} : {type_of_result}\n}}\n"
    if m is None:
        text = text.replace("SIZE", "%m")
    else:
        text = text.replace("SIZE", "").replace("%m,", f"{m},")
    exact = x[..., before : before + width].astype(np.float64)
    even, odd = exact[..., ::2], exact[..., 1::2]
    c, s = (each.astype(np.float64)[:, None] for each in (cos, sin))
    expected = np.stack((even * c - odd * s, even * s + odd * c), -1).reshape(exact.shape)
    if case["passes"]:
        expected = np.concatenate((x[..., :before], expected, x[..., before + width :]), -1)
    what = f"case {index} {case}"
    kernel = check.library.compile(text, cpu=case["cpu"])
    found = check.call(kernel, [x, cos, sin], what)[0]
    check.close(found, expected, BOUNDS[dtype], what)
    kernel = check.library.compile(text, target="reference")
    check.close(kernel(x, cos, sin)[0], expected, BOUNDS[dtype], f"{what} reference")


check.matrix({
    "form": list(FORMS), "slices": list(SLICES), "width": [2, 6, 16, 18, 32, 64, 66, 130], "beside": BESIDE, "rows": [1, 5, 40],
    "dtype": ["f32", "f64", "bf16", "f16"], "cpu": check.usable_cpus(), "dynamic": [False, True],
    "passes": [False, True],
}, 11, run)  # fmt: skip


def run_alone(index, case):
    """Every other column alone, of which odd rows have one more first element than second ones."""
    rng = np.random.default_rng(index)
    dtype, width, start = case["dtype"], case["width"], case["start"]
    x = normal(rng, [5, width], dtype)
    expected = -x[:, start::2].astype(np.float64)
    given, found = tensor([5, width], dtype), tensor([5, expected.shape[1]], dtype)
    text = (
        f"func.func @f(%x: {given}) -> {found} {{\n"
        f"  %s = tensor.extract_slice %x[0, {start}] [5, {expected.shape[1]}] [1, 2] : {given} to {found}\n"
        f"  %r = arith.negf %s : {found}\n  return %r : {found}\n}}\n"
    )
    kernel = check.library.compile(text, cpu=case["cpu"])
    what = f"alone {index} {case}"
    check.close(check.call(kernel, [x], what)[0], expected, BOUNDS[dtype], what)


check.matrix({
    "width": [2, 3, 7, 16, 33, 64, 65, 131], "start": [0, 1, 2], "dtype": ["f32", "f64", "bf16", "f16"], "cpu": check.usable_cpus(),
}, 12, lambda index, case: run_alone(index, case) if case["width"] > case["start"] else None)  # fmt: skip

check.finish()
