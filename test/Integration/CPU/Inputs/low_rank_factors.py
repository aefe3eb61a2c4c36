# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What makes the factors of low-rank attention against the references: rope, and
polynomial features with their gradient, over shapes, types and CPUs."""

import itertools
import math

import numpy as np
from cases import BOUNDS, Checker, normal, tensor
from hidden import plant

check = Checker()

FEATURES = [((1, 1, 1, 1), 0), ((1, 2, 3, 1), 5), ((2, 2, 9, 3), 3), ((1, 2, 33, 16), 2), ((1, 1, 5, 17), 3),
            ((1, 1, 2, 64), 2), ((1, 1, 70, 7), 4), ((1, 0, 3, 4), 1)]  # fmt: skip


def everywhere(cases):
    """Cases of every type, and of those with code for it, every CPU."""
    for case, dtype, cpu in itertools.product(cases, check.types(), check.usable_cpus()):
        if cpu == "native" or dtype in ("f32", "f64"):
            yield case, dtype, cpu


def rope_text(dtype, shape, positions, base):
    x, p = tensor(shape, dtype), tensor(positions, "i32")
    return (f"func.func @f(%x: {x}, %p: {p}) -> {x} {{\n  %o = tensor.empty() : {x}\n"
            f"  %r = attn.rope ins(%x, %p : {x}, {p}) outs(%o : {x}) {{base = {base!r} : f64}} -> {x}\n"
            f"  return %r : {x}\n}}\n")


def check_row(run, x, clean, what, pairs=False):
    """A row, or a pair of its columns, has its own numbers only."""
    if not x.size:
        return
    at = tuple(n // 2 for n in x.shape)
    dirty = plant({"x": x}, "x", at, np.nan)["x"]
    found = run(dirty)[0]
    row, before = found[at[:3]].copy(), clean[at[:3]]
    column = at[3] // 2 * 2
    own = np.isnan(row[column : column + 2]).all() if pairs else np.isnan(row).any()
    check.require(own, f"{what}: NaN missed")
    if pairs:
        row[column : column + 2] = before[column : column + 2]
        check.require(np.array_equal(row, before), f"{what}: differs in another pair")
    found[at[:3]] = before
    check.require(np.array_equal(found, clean), f"{what}: differs in another row")


def check_rope():
    rng = np.random.default_rng(1)
    cases = [
        ((1, 1, 1, 2), (1, 1, 1), 1e4), ((2, 3, 17, 64), (1, 1, 17), 1e4), ((2, 3, 65, 34), (2, 1, 65), 1e4),
        ((2, 2, 7, 10), (2, 2, 7), 5e5), ((1, 2, 130, 96), (1, 2, 130), 1e4), ((1, 4, 5, 6), (1, 1, 1), 7.0),
        ((1, 1, 3, 256), (1, 1, 3), 0.5), ((0, 2, 5, 4), (1, 1, 5), 1e4),
    ]
    for (shape, at, base), dtype, cpu in everywhere(cases):
        x = normal(rng, shape, dtype)
        far = 1 << (30 if dtype != "f64" else 12)
        positions = rng.integers(-far, far, at).astype(np.int32)
        kernel = check.library.compile(rope_text(dtype, shape, at, base), cpu=cpu)
        found = kernel(x, positions)[0]
        expected = check.reference.rope(x, positions, base=base)
        check.close(found, expected, BOUNDS[dtype], f"rope {shape} {at} {dtype} {cpu}")

        def turn(x, kernel=kernel, positions=positions):
            return kernel(x, positions)

        check_row(turn, x, found, f"rope {shape} {at} {dtype} {cpu}", pairs=True)


def check_features():
    rng = np.random.default_rng(2)
    for (shape, degree), dtype, cpu in everywhere(FEATURES):
        x = normal(rng, shape, dtype)
        out = tensor((*shape[:3], math.comb(shape[3] + degree, degree)), dtype)
        kind = tensor(shape, dtype)
        text = (f"func.func @f(%x: {kind}) -> {out} {{\n  %o = tensor.empty() : {out}\n"
                f"  %r = attn.polynomial_features ins(%x : {kind}) outs(%o : {out})"
                f" {{degree = {degree} : i64, scale = 0.25 : f64}} -> {out}\n  return %r : {out}\n}}\n")
        kernel = check.library.compile(text, cpu=cpu)
        found = kernel(x)[0]
        if degree > 0:
            check_row(kernel, x, found, f"features {shape} {degree} {dtype} {cpu}")
        expected = check.reference.polynomial_features(x, degree=degree, scale=0.25)
        check.close(found, expected, BOUNDS[dtype], f"features {shape} {degree} {dtype} {cpu}")
        if dtype == "f64" and x.size:
            products = x @ x.swapaxes(-1, -2) * 0.25
            series = sum(products**g / math.factorial(g) for g in range(degree + 1))
            check.close(found @ found.swapaxes(-1, -2), series, 1e-13, f"series {shape} {degree} {cpu}")


def check_features_backward():
    rng = np.random.default_rng(2)
    for (shape, degree), dtype, cpu in everywhere(FEATURES):
        x = normal(rng, shape, dtype)
        d_out = normal(rng, (*shape[:3], math.comb(shape[3] + degree, degree)), dtype)
        kind, features = tensor(shape, dtype), tensor(d_out.shape, dtype)
        text = (f"func.func @f(%x: {kind}, %g: {features}) -> {kind} {{\n  %o = tensor.empty() : {kind}\n"
                f"  %r = attn.polynomial_features_backward ins(%x : {kind}) gradient(%g : {features})"
                f" outs(%o : {kind}) {{degree = {degree} : i64, scale = 0.25 : f64}} -> {kind}\n"
                f"  return %r : {kind}\n}}\n")
        expected = check.reference.polynomial_features_backward(d_out, x, degree=degree, scale=0.25)
        for target in check.targets():
            found = check.library.compile(text, target=target, cpu=cpu)(x, d_out)[0]
            check.close(found, expected, BOUNDS[dtype], f"features {shape} {degree} {dtype} {cpu} {target}")


check_rope()
check_features()
check_features_backward()
check.finish()
