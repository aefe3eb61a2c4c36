# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Elementary functions of f32, and on GPUs of f64, against NumPy: over all magnitudes, and what IEEE says of zeros,
infinities and NaN."""

import math

import numpy as np
from cases import Checker

check = Checker()
LEAST = np.finfo(np.float32).tiny
INFINITY = math.inf
IS_GPU = check.library.target != "cpu"
# What circular functions of f64 have no digits of.
FAR = 2.0**50


def each(formula):
    """One of Python's for all numbers of an array."""
    return np.vectorize(formula, otypes=[np.float64])


# The largest relative error, and the largest absolute one, either of which is enough.
FUNCTIONS = {
    "sin": (np.sin, 0, 1.8e-7),
    "cos": (np.cos, 0, 1.8e-7),
    "cbrt": (np.cbrt, 2e-7, 0),
    "exp": (np.exp, 3e-7, 0),
    "tanh": (np.tanh, 4e-7, 0),
    "erf": (each(math.erf), 4e-7, 0),
    "atan": (np.arctan, 3e-7, 0),
}
if IS_GPU:
    FUNCTIONS |= {
        "tan": (np.tan, 6e-7, 0),
        "exp2": (np.exp2, 3e-7, 0),
        "expm1": (np.expm1, 5e-7, 0),
        "log": (np.log, 2e-7, 0),
        "log2": (np.log2, 3e-7, 3e-7),
        "log10": (np.log10, 3e-7, 0),
        "log1p": (np.log1p, 4e-7, 0),
        "rsqrt": (lambda x: 1 / np.sqrt(x), 3e-7, 0),
        "sqrt": (np.sqrt, 6e-8, 0),
        "sinh": (np.sinh, 1e-6, 0),
        "cosh": (np.cosh, 1e-6, 0),
        "asinh": (np.arcsinh, 4e-7, 0),
        "acosh": (np.arccosh, 4e-7, 0),
        "atanh": (np.arctanh, 4e-7, 0),
        "asin": (np.arcsin, 4e-7, 0),
        "acos": (np.arccos, 4e-7, 0),
        "erfc": (each(math.erfc), 6e-7, 0),
    }
PAIRS = {"atan2": (np.arctan2, 4e-7, 0)}
if IS_GPU:
    PAIRS["powf"] = (np.power, 2e-7, 0)
    PAIRS["remf"] = (np.fmod, 0, 0)
# Those of f64, on GPUs: CPUs call those of the C library.
WIDE = {name: (function, 4e-15, 0) for name, (function, *_) in FUNCTIONS.items()} if IS_GPU else {}
WIDE |= {name: (WIDE[name][0], 0, 4e-16) for name in ("sin", "cos") if IS_GPU}
WIDE_PAIRS = {"atan2": (np.arctan2, 4e-15, 0), "powf": (np.power, 4e-13, 0)} if IS_GPU else {}

TEXT = """
func.func @f(%x: tensor<?x{kind}>) -> tensor<?x{kind}> {{
  %y = math.{name} %x : tensor<?x{kind}>
  return %y : tensor<?x{kind}>
}}
"""
NARROW_TEXT = """
func.func @f(%x: tensor<?xf32>) -> tensor<?xf32> {{
  %narrow = arith.truncf %x : tensor<?xf32> to tensor<?x{kind}>
  %y = math.{name} %narrow : tensor<?x{kind}>
  %z = arith.extf %y : tensor<?x{kind}> to tensor<?xf32>
  return %z : tensor<?xf32>
}}
"""
TEXT_OF_PAIRS = """
func.func @f(%x: tensor<?x{kind}>, %y: tensor<?x{kind}>) -> tensor<?x{kind}> {{
  %z = {name} %x, %y : tensor<?x{kind}>
  return %z : tensor<?x{kind}>
}}
"""
TEXT_OF_POWERS = """
func.func @f(%x: tensor<?xf32>, %n: tensor<?xi32>) -> tensor<?xf32> {
  %y = math.fpowi %x, %n : tensor<?xf32>, tensor<?xi32>
  return %y : tensor<?xf32>
}
"""
TEXT_OF_POWER = """
func.func @f(%x: tensor<?xf32>, %old: tensor<?xf32>) -> tensor<?xf32> {{
  %y = arith.constant {exponent} : f32
  %r = linalg.map ins(%x : tensor<?xf32>) outs(%old : tensor<?xf32>) (%a: f32, %o: f32) {{
    %p = math.powf %a, %y : f32
    linalg.yield %p : f32
  }}
  return %r : tensor<?xf32>
}}
"""
SPECIAL = np.float32([0.0, -0.0, 1, -1, 2, -2, 3, -3, 0.5, -0.5, 5, 100.5, 1e30, INFINITY, -INFINITY, math.nan, 1e-40, -1e-40])


def numbers():
    """Of all magnitudes, below the least normal one, and positions of long sequences."""
    rng = np.random.default_rng(0)
    places = [1e-45, 1e-30, 1e-8, 1e-4, 2.5, 44, 88, 89, 104, 4096, 8192.5, 131072, 1e6, 1e8, 1e10, 1e14, 3e38]
    near = np.pi / 4 * np.arange(-80, 81)
    sizes = np.exp(rng.uniform(-80, 80, 400))
    some = [rng.uniform(-1, 1, 300), rng.uniform(-10, 10, 300), rng.uniform(-100, 100, 200), rng.uniform(-2e6, 2e6, 400)]
    return np.concatenate([SPECIAL, places, np.negative(places), near, sizes, -sizes, *some]).astype(np.float32)


def wide_numbers():
    """The same, with more digits and far more magnitudes."""
    rng = np.random.default_rng(2)
    more = rng.uniform(1 - 2**-20, 1 + 2**-20, 1000)
    places = [5e-324, 1e-310, 1e-300, 1e-15, 708.5, 709.7, 709.8, 744, 1e100, 1.7e308, 1023.5, 1024]
    sizes = np.exp(rng.uniform(-700, 700, 300))
    x = numbers().astype(np.float64)
    return np.concatenate([x * np.resize(more, len(x)), SPECIAL, places, np.negative(places), sizes, -sizes])


def compare(found, exact, relative, absolute, what, arguments):
    """The same infinities and NaN, the sign of zeros, and the rest within the bounds. Results below the least
    normal number may be zero."""
    with np.errstate(over="ignore"):
        expected = exact.astype(found.dtype)
    with np.errstate(invalid="ignore"):
        errors = np.abs(found - exact)
        bound = np.maximum(check.factor * relative * np.abs(exact), check.factor * absolute) + np.finfo(found.dtype).tiny
        is_right = (errors <= bound) & np.isfinite(expected)
    is_right |= (found == expected) | (np.isnan(found) & np.isnan(expected))
    if absolute == 0:
        is_right &= (expected != 0) | (found != 0) | (np.signbit(found) == np.signbit(expected))
    wrong = np.flatnonzero(~is_right)[:8]
    check.require(is_right.all(), f"{what} of {[a[wrong] for a in arguments]}: {found[wrong]}, not {expected[wrong]}")


def run(name, cpu):
    formula, relative, absolute = FUNCTIONS[name]
    x, what = numbers(), f"{name} {cpu}"
    found = check.call(check.library.compile(TEXT.format(name=name, kind="f32"), cpu=cpu), [x], what)[0]
    with np.errstate(all="ignore"):
        exact = formula(x.astype(np.float64))
    compare(found, exact, relative, absolute, what, [x])
    if name == "sin":
        check.require(np.signbit(found[x == 0]).tolist() == np.signbit(x[x == 0]).tolist(), f"{what}: the sign of zero")


def run_wide(name):
    formula, relative, absolute = WIDE[name]
    x, what = wide_numbers(), f"{name} f64"
    found = check.call(check.library.compile(TEXT.format(name=name, kind="f64")), [x], what)[0]
    with np.errstate(all="ignore"):
        exact = formula(x.astype(np.longdouble))
        if name in ("sin", "cos", "tan"):
            exact = np.where(np.abs(x) < FAR, exact, math.nan)
    compare(found, exact, relative, absolute, what, [x])


def run_narrow(name, kind):
    """Functions of 16 bits are rounded once."""
    formula, relative, absolute = FUNCTIONS[name]
    x = np.concatenate([SPECIAL[np.abs(SPECIAL) != 1e30], np.linspace(-10, 10, 301)]).astype(np.float32)
    rounding, least, round_ = {"f16": (2.0**-11, 2.0**-24, np.float16), "bf16": (2.0**-8, LEAST, to_bf16)}[kind]
    # Below the least normal number of bf16 all may be zero.
    x = round_(x[(x == 0) | ~(np.abs(x) < LEAST)]).astype(np.float32)
    text = NARROW_TEXT.format(name=name, kind=kind)
    found = check.call(check.library.compile(text), [x], f"{name} {kind}")[0]
    with np.errstate(all="ignore"):
        exact = formula(x.astype(np.float64))
        expected = round_(exact.astype(np.float32)).astype(np.float64)
        errors = np.abs(found - exact)
        is_right = errors <= check.factor * ((relative + rounding) * np.abs(exact) + absolute) + least
    is_right |= (found == expected) | (np.isnan(found) & np.isnan(expected))
    check.require(is_right.all(), f"{name} {kind} of {x[~is_right][:8]}: {found[~is_right][:8]}, not {expected[~is_right][:8]}")


def to_bf16(x):
    """To the nearest number of bf16, as one of f32."""
    x = np.asarray(x, np.float32)
    bits = x.view(np.uint32)
    rounded = ((bits + 0x7FFF + (bits >> 16 & 1)) & np.uint32(0xFFFF0000)).view(np.float32)
    return np.where(np.isnan(x), x, rounded)


def run_pairs(name, cpu, kind="f32"):
    formula, relative, absolute = (PAIRS if kind == "f32" else WIDE_PAIRS)[name]
    rng = np.random.default_rng(1)
    x, y = (a.ravel() for a in np.meshgrid(SPECIAL, SPECIAL))
    x = np.concatenate([x, np.exp(rng.uniform(-20, 20, 1000)), np.arange(1000) * 0.1]).astype(np.float32)
    y = np.concatenate([y, rng.uniform(-4, 4, 1000), np.full(1000, 0.1)]).astype(np.float32)
    operation = f"arith.{name}" if name == "remf" else f"math.{name}"
    kernel = check.library.compile(TEXT_OF_PAIRS.format(name=operation, kind=kind), cpu=cpu)
    wider = np.float64
    if kind == "f64":
        x, y, wider = x * (1 + rng.uniform(0, 1e-8, len(x))), y.astype(np.float64), np.longdouble
    found = check.call(kernel, [x, y], f"{name} {cpu}")[0]
    with np.errstate(all="ignore"):
        exact = formula(x.astype(wider), y.astype(wider))
        if name == "remf":
            exact = np.where((np.abs(x / y.astype(np.float64)) < 2.0**52) | np.isinf(y), exact, math.nan)
        compare(found, exact, relative, absolute, f"{name} {kind} {cpu}", [x, y])


def powers():
    """To integers, and to constants."""
    x, n = (a.ravel() for a in np.meshgrid(SPECIAL, np.int32([0, 1, 2, 3, 4, 7, -1, -2, -3, -4])))
    found = check.call(check.library.compile(TEXT_OF_POWERS), [x, n], "fpowi")[0]
    with np.errstate(all="ignore"):
        compare(found, np.power(x.astype(np.float64), n.astype(np.float64)), 2e-5, 0, "fpowi", [x, n])
    for exponent in (0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 7.0, 0.25, 1.5, -1.0, -2.0, -3.0, -4.0, -0.75, 65.0, -65.0):
        found = check.library.compile(TEXT_OF_POWER.format(exponent=exponent))(SPECIAL, np.zeros_like(SPECIAL))[0]
        with np.errstate(all="ignore"):
            compare(found, np.power(SPECIAL.astype(np.float64), exponent), 2e-5, 0, f"power {exponent}", [SPECIAL])


for cpu in ("native",) if IS_GPU else ("native", "x86-64"):
    for name in FUNCTIONS:
        run(name, cpu)
    for name in PAIRS:
        run_pairs(name, cpu)
for name in WIDE:
    run_wide(name)
for name in WIDE_PAIRS:
    run_pairs(name, "native", "f64")
if IS_GPU:
    powers()
    for name in FUNCTIONS:
        for kind in ("f16", "bf16"):
            run_narrow(name, kind)
check.finish()
