# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions of vectors and rows of f32: accuracy, and what IEEE says of numbers that are none."""

import math

import numpy as np
from cases import Checker

check = Checker()
LEAST = np.finfo(np.float32).tiny

# What half a unit in the last place is of a number, at most.
ROUNDING = 2.0**-24
# Relative errors: the polynomial's and three roundings; ten roundings, of which quotients are made.
FUNCTIONS = {
    "exp": (np.exp, 8.3e-8 + 3 * ROUNDING),
    "erf": (np.vectorize(math.erf), 10 * ROUNDING),
    "tanh": (np.tanh, 10 * ROUNDING),
}
TEXT = """
func.func @f(%x: tensor<{extent}xf32>) -> tensor<{extent}xf32> {{
  %y = math.{name} %x : tensor<{extent}xf32>
  return %y : tensor<{extent}xf32>
}}
"""


def numbers():
    """Of all magnitudes, of those that matter, and around places where formulas change."""
    rng = np.random.default_rng(0)
    some = rng.integers(0, 2**32, 20000, dtype=np.uint32).view(np.float32)
    some = some[np.isfinite(some)]
    places = [0.0, 0.5, 1.0, 3.9, 4.0, 8.1, 87.33654, 88.0, 88.37626, 88.722839, 89.0, 104.0, 1e38]
    near = np.concatenate([np.linspace(0.9999, 1.0001, 101) * place for place in places])
    steps = np.log(2) * np.arange(-140, 140)
    return np.concatenate([some, rng.uniform(-5, 5, 40000), rng.uniform(-105, 105, 20000), near, -near, steps]).astype(np.float32)


def run(name, cpu):
    formula, bound = FUNCTIONS[name]
    what = f"{name} {cpu}"
    # Without fused operations every product is rounded, too.
    bound *= 1 if cpu == "native" else 2
    x = numbers()
    kernel = check.library.compile(TEXT.format(name=name, extent="?"), cpu=cpu)
    found = check.call(kernel, [x], what)[0]
    with np.errstate(over="ignore"):
        exact = formula(x.astype(np.float64))
        expected = exact.astype(np.float32)
    # Numbers below the least normal one may be 0.
    finite = np.isfinite(expected)
    errors = np.abs(found[finite] - exact[finite]) - LEAST
    check.require((errors <= check.factor * bound * np.abs(exact[finite])).all(), f"{what}: {errors.max()}")
    check.require((found[~finite] == expected[~finite]).all(), f"{what}: beyond the largest number")
    if name != "exp":
        check.require(np.abs(found).max() <= 1, f"{what}: exceeds 1")
        check.require((found == -kernel(-x)[0]).all(), f"{what}: is not odd")
    else:
        check.require(kernel(np.zeros(8, np.float32))[0].tolist() == [1.0] * 8, f"{what} of 0")

    # In vectors side by side, in single ones, and among what is left.
    special = np.array([np.inf, -np.inf, np.nan], np.float32)
    limits = {"exp": [np.inf, 0], "erf": [1, -1], "tanh": [1, -1]}[name]
    for extent in (3, 8, 11, 64, 77):
        values = np.resize(special, extent)
        found = check.library.compile(TEXT.format(name=name, extent=extent), cpu=cpu)(values)[0]
        isnan = np.isnan(values)
        ends = np.resize(limits + [0], extent)
        check.require((np.isnan(found) == isnan).all(), f"{what} of NaN, {extent}")
        same = np.abs(found[~isnan] - ends[~isnan]) <= 4 * ROUNDING if name == "tanh" else found[~isnan] == ends[~isnan]
        check.require(same.all(), f"{what} of infinity, {extent}: {found}")


def circular(name, cpu):
    """Sines and cosines, also of positions of long sequences; of vectors far from zero they are NaN."""
    what, formula = f"{name} {cpu}", {"sin": np.sin, "cos": np.cos}[name]
    rng = np.random.default_rng(1)
    x = numbers()
    near = np.pi / 4 * np.arange(-4000, 4001)
    x = np.concatenate([x, near, rng.uniform(-(2.0**20), 2.0**20, 20000), rng.uniform(-(2.0**40), 2.0**40, 20000)]).astype(np.float32)
    kernel = check.library.compile(TEXT.format(name=name, extent="?"), cpu=cpu)
    found = check.call(kernel, [x], what)[0]
    is_far = np.abs(x) >= 2.0**50
    errors = np.abs(found - formula(x.astype(np.float64)))
    is_right = (errors <= check.factor * 3 * ROUNDING) | (is_far & np.isnan(found))
    check.require(is_right.all(), f"{what}: {found[~is_right]} of {x[~is_right]}")
    check.require(np.isnan(kernel(np.resize(np.float32([np.inf, -np.inf, np.nan]), 19))[0]).all(), f"{what} of infinity")
    ends = kernel(np.zeros(19, np.float32))[0].tolist()
    check.require(ends == [float(formula(0.0))] * 19, f"{what} of 0")


# ---- Rows -------------------------------------------------------------------------


def extreme(kind, lowest, cpu, extent):
    """The largest or smallest element of rows, one of which is NaN at each place in turn."""
    text = f"""
func.func @f(%x: tensor<?x{extent}xf32>, %start: tensor<?xf32>) -> tensor<?xf32> {{
  %r = linalg.reduce {{arith.{kind}}} ins(%x : tensor<?x{extent}xf32>) outs(%start : tensor<?xf32>) dimensions = [1]
  return %r : tensor<?xf32>
}}
"""
    x = np.random.default_rng(extent).standard_normal((extent + 3, extent)).astype(np.float32)
    x[np.arange(extent), np.arange(extent)] = np.nan
    x[-1] = lowest
    x[-2, extent // 2 :] = -lowest
    start = np.full(len(x), lowest, np.float32)
    found = check.call(check.library.compile(text, cpu=cpu), [x, start], f"{kind} {extent}")[0]
    expected = (np.max if kind == "maximumf" else np.min)(x, axis=1)
    check.require(np.array_equal(found, expected, equal_nan=True), f"{kind} {extent} {cpu}")


def divide(cpu, extent):
    """Rows by a number each: as IEEE says where one of them is none, and at the ends of the range."""
    text = f"""
func.func @f(%x: tensor<?x{extent}xf32>, %s: tensor<?xf32>, %o: tensor<?x{extent}xf32>) -> tensor<?x{extent}xf32> {{
  %r = linalg.generic {{indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]}} ins(%x, %s : tensor<?x{extent}xf32>, tensor<?xf32>) outs(%o : tensor<?x{extent}xf32>) {{
  ^bb0(%a: f32, %b: f32, %old: f32):
    %q = arith.divf %a, %b : f32
    linalg.yield %q : f32
  }} -> tensor<?x{extent}xf32>
  return %r : tensor<?x{extent}xf32>
}}
"""
    s = np.array([3, -7, 0, -0.0, np.inf, -np.inf, np.nan, 1.2e-38, -2e-38, 3.4e38, -2e38, 1e30, 1e-31], np.float32)
    x = np.resize(np.array([0, 1, -5, 1e38, -3.3e38, 1.2e-38, np.inf, -np.inf, np.nan, 1e10, 1e-10], np.float32), (len(s), extent))
    found = check.call(check.library.compile(text, cpu=cpu), [x, s, np.zeros_like(x)], f"division {extent}")[0]
    with np.errstate(all="ignore"):
        exact = x.astype(np.float64) / s.astype(np.float64)[:, None]
        expected = exact.astype(np.float32)
        # Two roundings.
        near = np.abs(found - exact) <= check.factor * 2 * ROUNDING * np.abs(exact) + LEAST
        near |= (found == expected) | (np.isnan(found) & np.isnan(expected))
    check.require(near.all(), f"division {extent} {cpu}: {found[~near]} not {expected[~near]}")


for cpu in ("native", "x86-64"):
    for extent in (5, 8, 40, 77):
        extreme("maximumf", -np.inf, cpu, extent)
        extreme("minimumf", np.inf, cpu, extent)
        divide(cpu, extent)
for name in FUNCTIONS:
    for cpu in ("native", "x86-64"):
        run(name, cpu)
for name in ("sin", "cos"):
    for cpu in ("native", "x86-64"):
        circular(name, cpu)
check.finish()
