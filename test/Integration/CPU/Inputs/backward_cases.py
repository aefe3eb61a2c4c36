# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the tests of gradients share: IR for a case, and comparisons."""

import numpy as np
from cases import BOUNDS, mask_text, tensor
from kernels import NAMES

IR_NAMES = {np.dtype(value): key for key, value in NAMES.items()}


def type_of(array):
    return tensor(array.shape, IR_NAMES[array.dtype])


def gradient_text(op, ins, clauses, results, attributes, dynamic=False):
    """A gradient for each of `ins` and of the arrays of `clauses`, which are pairs
    of a keyword and arrays; `results` are clauses without gradients.

    Returns the text and the arguments. With `dynamic`, extents are known at run
    time only, except the width and those of 1 that broadcast.
    """
    arrays, types = [], []

    def operands(group):
        first = len(arrays)
        arrays.extend(group)
        for array in group:
            shape = array.shape
            if dynamic:
                keep = (len(shape) - 1,) if shape[-1:] and len(shape) == 4 else ()
                shape = [n if i in keep or n == 1 else None for i, n in enumerate(shape)]
            types.append(tensor(shape, IR_NAMES[array.dtype]))
        names = ", ".join(f"%a{index}" for index in range(first, len(arrays)))
        return f"({names} : {', '.join(types[first:])})"

    wanted = [("outs", range(len(ins)))]
    text = f"attn.{op} ins{operands(ins)}"
    for keyword, group in clauses:
        if group:
            wanted.append((f"d_{keyword}", range(len(arrays), len(arrays) + len(group))))
            text += f"\n    {keyword}{operands(group)}"
    for keyword, group in results:
        text += f"\n    {keyword}{operands(group)}"
    body, outs, inits = "", "", []
    for keyword, numbers in wanted:
        names = []
        for number in numbers:
            extents = []
            for dim in (i for i, part in enumerate(types[number][7:].split("x")) if part == "?"):
                name = f"%d{number}_{dim}"
                body += (
                    f"  %c{number}_{dim} = arith.constant {dim} : index\n"
                    f"  {name} = tensor.dim %a{number}, %c{number}_{dim} : {types[number]}\n"
                )
                extents.append(name)
            names.append(f"%i{number}")
            inits.append(types[number])
            body += f"  {names[-1]} = tensor.empty({', '.join(extents)}) : {types[number]}\n"
        kinds = ", ".join(types[number] for number in numbers)
        outs += f" {keyword}({', '.join(names)} : {kinds})"
    arguments = ", ".join(f"%a{i}: {t}" for i, t in enumerate(types))
    kinds = ", ".join(inits)
    return (
        f"func.func @f({arguments}) -> ({kinds}) {{\n{body}  %r:{len(inits)} = {text}\n   {outs}"
        f" {{{', '.join(attributes)}}} -> {kinds}\n"
        f"  return {', '.join(f'%r#{i}' for i in range(len(inits)))} : {kinds}\n}}\n"
    ), arrays


def dense_case(q, k, v, out, lse, d_out, *, d_lse=None, causal=False, window=None, scale=None, terms=(), dynamic=False):
    """`terms` are pairs of a name and an array."""
    attributes = [mask_text(causal, window)] if causal or window else []
    if scale is not None:
        attributes.append(f"scale = {scale!r} : f64")
    results = [("forward", [out, lse]), ("gradient", [d_out] + ([] if d_lse is None else [d_lse]))]
    return gradient_text("dense_backward", [q, k, v], [(name, [term]) for name, term in terms], results,
                         attributes, dynamic)


def stream_case(q, sources, out, lse, d_out, attributes):
    """`sources` are keys, values and the text of their ranges. Gradients come in the
    order of queries, all keys, all values. Returns the text and the arguments."""
    arrays = [q]
    for k, v, _ in sources:
        arrays += [k, v]
    arrays += [out, lse, d_out]
    t = [type_of(array) for array in arrays]
    text, last = f"attn.stream_backward query(%a0 : {t[0]})", len(arrays) - 1
    for i, (_, _, ranges) in enumerate(sources):
        key, value = 2 * i + 1, 2 * i + 2
        text += f"\n    source(%a{key}, %a{value} : {t[key]}, {t[value]}) ranges [{ranges}]"
    text += f"\n    forward(%a{last - 2}, %a{last - 1} : {t[last - 2]}, {t[last - 1]}) gradient(%a{last} : {t[last]})"
    wanted = [0, *range(1, last - 2, 2), *range(2, last - 2, 2)]
    kinds = ", ".join(t[i] for i in wanted)
    empties = "".join(f"  %i{i} = tensor.empty() : {t[i]}\n" for i in wanted)
    return (
        f"func.func @f({', '.join(f'%a{i}: {kind}' for i, kind in enumerate(t))}) -> ({kinds}) {{\n{empties}"
        f"  %r:{len(wanted)} = {text}\n    outs({', '.join(f'%i{i}' for i in wanted)} : {kinds})"
        f" {{{', '.join(attributes)}}} -> {kinds}\n"
        f"  return {', '.join(f'%r#{i}' for i in range(len(wanted)))} : {kinds}\n}}\n"
    ), arrays


def close(check, found, expected, dtype, what, factor=1, rows=1, width=1):
    """Compares lists of gradients. But for those of values (the third) some are what
    is left of differences of equal numbers, products of rows of a `width`: all
    where a soft-max has one entry, and sums over the keys of a query. So an error
    counts at most as if the largest gradient were such a product, or, for those of
    terms, a tenth of how many of `rows` query rows they are sums of."""
    check.require(len(found) == len(expected), what + ": number of gradients")
    for index, (mine, want) in enumerate(zip(found, expected)):
        if mine.shape != want.shape:
            check.require(False, f"{what}: gradient {index} has shape {mine.shape}, not {want.shape}")
            continue
        if not want.size:
            continue
        floor = 1.0 if index == 2 else width**0.5
        if index >= 3:
            axes = want.shape[:-1] if want.ndim == 4 else want.shape[:2]
            floor = max(floor, 0.1 * rows / np.prod(axes))
        scale = max(np.abs(want).max(), floor)
        check.close(mine.astype(np.float64) / scale, want / scale, factor * BOUNDS[dtype],
                    f"{what}: gradient {index}", absolute=True)


def flat(gradients):
    """Gradients of arrays and of lists of arrays, in one list."""
    found = []
    for gradient in gradients:
        found.extend(gradient if isinstance(gradient, list) else [gradient])
    return found
