# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradients by --attn-differentiate, and gradients of these, against central differences in
f64; those of narrower types and of the CPU target against the ones in f64."""

import numpy as np
from cases import BOUNDS, Checker
from gradients import attention_cases, central_differences, elementwise_cases, operation_cases
from kernels import NAMES
from loops import loop_cases

check = Checker()


def make_inputs(case, dtype, rng):
    arrays = []
    for spec in case["inputs"]:
        values = spec(rng) if callable(spec) else rng.standard_normal(spec)
        arrays.append(np.asarray(values, NAMES[dtype] if values.dtype == np.float64 else values.dtype))
    return arrays


def floats(arrays):
    return [a for a in arrays if a.dtype.kind == "f" or a.dtype.name == "bfloat16"]


def check_second(case, gradient, arrays, rng):
    """The gradient of a gradient, which is a function like any other."""
    cotangents = [rng.standard_normal(r.shape) for r in floats(gradient(*arrays))]
    found = gradient.vjp()(*arrays, *cotangents)
    expected = central_differences(gradient, arrays, cotangents)
    check.require(len(found) == len(expected), f"{case['name']}: {len(found)} second gradients")
    for number, (f, e) in enumerate(zip(found, expected)):
        check.close(f, e, 1e-6, f"{case['name']}: second gradient {number} against central differences")


def run(index, case):
    rng = np.random.default_rng(index)
    text = case["text"].replace("$T", "f64")
    forward = check.library.compile(text, target="reference")
    gradient = forward.vjp()
    arrays = make_inputs(case, "f64", rng)
    cotangents = [rng.standard_normal(r.shape) for r in floats(forward(*arrays))]
    found = gradient(*arrays, *cotangents)
    expected = central_differences(forward, arrays, cotangents)
    check.require(len(found) == len(expected), f"{case['name']}: {len(found)} gradients")
    for number, (f, e) in enumerate(zip(found, expected)):
        check.close(f, e, 1e-6, f"{case['name']}: gradient {number} against central differences")
    if "same" in case:
        unrolled = check.library.compile(case["same"].replace("$T", "f64"), target="reference").vjp()
        for number, (f, e) in enumerate(zip(found, unrolled(*arrays, *cotangents))):
            check.close(f, e, BOUNDS["f64"], f"{case['name']}: gradient {number} against the unrolled program")

    if case.get("second", True):
        check_second(case, gradient, [*arrays, *cotangents], rng)

    for dtype in case.get("types", ("f64", "f32", "bf16", "f16")):
        text = case["text"].replace("$T", dtype)
        narrow = [a.astype(NAMES[dtype]) if a.dtype == np.float64 else a for a in arrays]
        seeds = [np.asarray(c).astype(NAMES[dtype]) for c in cotangents]
        # Of the very numbers that the narrow type holds.
        exact = gradient(*[a.astype(np.float64) if a in floats([a]) else a for a in narrow],
                         *[s.astype(np.float64) for s in seeds])  # fmt: skip
        kernel = check.library.compile(text, target=case.get("target")).vjp(primal_results=True)
        results = check.call(kernel, (*narrow, *seeds), f"{case['name']} {dtype}")
        for number, (f, e) in enumerate(zip(results[-len(exact):], exact)):
            bound = BOUNDS[dtype] * case.get("slack", {}).get(dtype, 1)
            check.close(f, e, bound, f"{case['name']} {dtype}: gradient {number}")


cases = elementwise_cases() + operation_cases() + attention_cases() + loop_cases()
for index, case in enumerate(cases):
    if check.wants(index):
        run(index, case)
check.finish()
