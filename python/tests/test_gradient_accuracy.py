# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# REQUIRES: long-tests
"""Gradients in float32 at 4096 tokens: at most twice as far from those in float64
as what the plain formula gives with every operation in float32.  (Those of dense
attention: test/Integration/CPU/backward-accuracy.test.)"""

import sys

import numpy as np
import pytest
import test_conv
import test_low_rank
from conftest import LENGTH, WIDTH, normal, rows

import fovea
from fovea import reference

N, D = LENGTH, WIDTH


def in_float32(function):
    """A reference whose arguments, and with them all that it computes, are float32."""
    modules = [m for name, m in sys.modules.items() if name.startswith("fovea.reference.") and hasattr(m, "_array")]

    def run(*arguments, **options):
        old = [module._array for module in modules]
        try:
            for module in modules:
                module._array = lambda name, value, rank, layout: np.asarray(value).astype(np.float32)
            return function(*arguments, **options)
        finally:
            for module, array in zip(modules, old):
                module._array = array

    return run


def vq_case(bias):
    q, v, codebook, d_out = rows(), rows(seed=1), normal(1, 128, D, seed=2), rows(seed=3)
    codes = np.random.default_rng(4).integers(0, 128, (1, 1, N)).astype(np.int32)
    options = {"block": 128, "scale": 1 / 8}
    if bias:
        options["bias"] = normal(1, 1, N, 256, seed=5)
    out, lse = fovea.vq(q, codes, v, codebook, **options, return_lse=True)
    found = fovea.vq_backward(d_out, q, codes, v, codebook, out, lse, **options)
    return found, reference.vq_backward, (d_out, q, codes, v, codebook), options


def score_case():
    query, key, d_out = normal(1, 4, 48, D), normal(1, 4, N, D, seed=1), normal(1, N, seed=2)
    text = (
        "func.func @f(%q: tensor<1x4x48x64xf32>, %k: tensor<1x4x4096x64xf32>) -> tensor<1x4096xf32> {\n"
        "  %e = tensor.empty() : tensor<1x4096xf32>\n"
        "  %s = attn.tree_score ins(%q, %k : tensor<1x4x48x64xf32>, tensor<1x4x4096x64xf32>)"
        " outs(%e : tensor<1x4096xf32>) -> tensor<1x4096xf32>\n  return %s : tensor<1x4096xf32>\n}\n"
    )
    found = fovea.compile(text).vjp()(query, key, d_out)
    return found, reference.head_probability_backward, (d_out, query, key), {}


GROUP, RANK = 256, 4


def level_weights(seed):
    """Averages, and some noise, of every level."""
    for level in range(reference.num_levels(N, GROUP)):
        size = GROUP << level
        noise = normal(1, RANK, size, D, seed=seed + level) * 0.3 / size
        yield (reference.average_weights(RANK, size, D) + noise).astype(np.float32)


def multipole_case(causal):
    q, k, v, d_out = (rows(seed=seed) for seed in range(4))
    weights, options = [list(level_weights(seed)) for seed in (10, 20)], {"group": GROUP, "causal": causal}
    out, lse = fovea.fast_multipole(q, k, v, *weights, **options, return_lse=True)
    arguments = (d_out, q, k, v, *weights, out, lse)
    return fovea.fast_multipole_backward(*arguments, **options), reference.fast_multipole_backward, arguments, options


def multipole_linear_case():
    q, k, v, d_out = (rows(seed=seed) for seed in range(4))
    arguments = (d_out, q, k, v, *(list(level_weights(seed)) for seed in (10, 20, 30)))
    options = {"group": GROUP}
    found = fovea.fast_multipole_linear_backward(*arguments, **options)
    return found, reference.fast_multipole_linear_backward, arguments, options


def summarize_case():
    x, weights, bias = rows(), normal(1, RANK, GROUP, D, seed=1), normal(1, RANK, D, seed=2)
    d_out = normal(1, 1, N // GROUP * RANK, D, seed=3)
    types = [f"tensor<{'x'.join(map(str, array.shape))}xf32>" for array in (x, weights, bias, d_out)]
    text = (
        "func.func @f(%x: {0}, %w: {1}, %b: {2}) -> {3} {{\n"
        "  %e = tensor.empty() : {3}\n"
        "  %s = attn.summarize ins(%x : {0}) weights(%w : {1}) bias(%b : {2}) outs(%e : {3}) -> {3}\n"
        "  return %s : {3}\n}}\n"
    ).format(*types)
    found = fovea.compile(text).vjp()(x, weights, bias, d_out)
    return found, reference.summarize_backward, (d_out, x, weights, bias), {"interval": GROUP}


CASES = {
    **test_conv.GRADIENTS, **test_low_rank.GRADIENTS,
    "vq": lambda: vq_case(False), "vq, bias": lambda: vq_case(True), "tree_score": score_case,
    "fast_multipole": lambda: multipole_case(False), "fast_multipole, causal": lambda: multipole_case(True),
    "fast_multipole_linear": multipole_linear_case, "summarize": summarize_case,
}  # fmt: skip


def as_tuple(gradients):
    """All gradients one after the other, also those of lists of weights."""
    if isinstance(gradients, (tuple, list)):
        return tuple(array for part in gradients for array in as_tuple(part))
    return () if gradients is None else (gradients,)


def errors(found, exact, plain):
    for one, want, simple in zip(found, exact, plain, strict=True):
        assert simple.shape == want.shape == one.shape
        yield tuple(np.abs(x - want).max() / np.abs(want).max() for x in (one, simple))


@pytest.mark.parametrize("case", CASES)
def test_float32(case):
    found, function, arguments, options = CASES[case]()
    exact = as_tuple(function(*arguments, **options))
    plain = as_tuple((test_low_rank.plain_rope if case == "rope" else in_float32(function))(*arguments, **options))
    for index, (error, bound) in enumerate(errors(as_tuple(found), exact, plain)):
        print(f"{case}, gradient {index}: error {error:.3g}, that of the plain formula {bound:.3g}")
        assert 1e-9 < bound < 1e-3
        assert error <= 2 * bound, index


@pytest.mark.parametrize("case", CASES)
def test_the_same_bits_for_any_number_of_threads(case):
    found = []
    try:
        for threads in (1, 2, 3, 7):
            fovea.set_num_threads(threads)
            found.append(as_tuple(CASES[case]()[0]))
    finally:
        fovea.set_num_threads(0)
    for other in found[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(found[0], other, strict=True))


def test_a_less_exact_gradient_is_seen():
    found, function, arguments, options = test_low_rank.low_rank_case()
    exact, plain = function(*arguments, **options), in_float32(function)(*arguments, **options)
    worse = [x.astype(np.float16).astype(np.float32) for x in found]
    assert all(error > 2 * bound for error, bound in errors(worse, exact, plain))
