# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# REQUIRES: long-tests
"""What kernels for all lengths compute: the bits of those for one, and what the references do."""

import numpy as np
import pytest
from conftest import TYPES, check, make, near
from shape_cases import CASES, DYNAMIC_CASES, NEED_TOKENS, SUM_OTHERWISE, Tokens
from test_strides import leaves

import fovea
from fovea import reference


@pytest.fixture(autouse=True)
def default_shapes():
    yield
    fovea.set_shapes("auto")


def both(function, *arguments, same=True, **options):
    """The results of kernels for all lengths and for one, which have the same bits."""
    found = {}
    for shapes in ("dynamic", "static"):
        fovea.set_shapes(shapes)
        found[shapes] = function(*arguments, **options)
    results = found["dynamic"]
    listed = [list(f) if isinstance(f, tuple) else [f] for f in found.values()]
    for one, other in zip(*listed, strict=True):
        assert one.dtype == other.dtype
        assert np.array_equal(one, other, equal_nan=True) or not same
    return results


# One row, primes, around one and several tiles of queries (64) and of keys (128).
LENGTHS = [
    (1, 1),
    (1, 300),
    (2, 31),
    (17, 1),
    (63, 129),
    (64, 128),
    (65, 127),
    (192, 384),
    (131, 7),
]
MASKS = {
    "none": {},
    "causal": {"causal": True},
    "window": {"window": 5},
    "causal window": {"causal": True, "window": 33},
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("type", TYPES)
def test_dense(type, mask):
    options = {**MASKS[mask], "return_lse": True}
    for number, (N, M) in enumerate(LENGTHS):
        arrays = make(type, B=1 + number % 2, H=4, G=2, N=N, M=M, E=24)
        # Queries before the first key read nothing where N > M.
        check(both(fovea.dense, *arrays, **options), reference.dense(*arrays, **options), type)


@pytest.mark.parametrize("mask", ["none", "causal"])
@pytest.mark.parametrize("type", ["float32", "bfloat16"])
def test_dense_terms(type, mask):
    rng = np.random.default_rng(3)
    for N, M in LENGTHS:
        arrays = make(type, B=2, H=4, G=2, N=N, M=M)
        log_weight = rng.standard_normal((2, 2, M)).astype(TYPES[type])
        log_weight[0, 0, 0] = -np.inf
        bias = rng.standard_normal((2, 4, N, M)).astype(TYPES[type])
        options = {**MASKS[mask], "return_lse": True, "log_weight": log_weight, "bias": bias}
        check(both(fovea.dense, *arrays, **options), reference.dense(*arrays, **options), type)


@pytest.mark.parametrize("N", [1, 70])
def test_hidden_rows_may_hold_anything(N):
    q, k, v = make(N=N, M=90)
    bias = np.zeros((N, 90), np.float32)
    bias[:, 60:] = -np.inf
    expected = reference.dense(q, k[:, :, :60], v[:, :, :60])
    v[:, :, 60:] = np.nan
    check(both(fovea.dense, q, k, v, bias=bias), expected)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("type", ["float32", "float64", "float16"])
def test_dense_backward(type, mask):
    rng = np.random.default_rng(4)
    for number, (N, M) in enumerate(LENGTHS):
        q, k, v = make(type, B=1 + number % 2, H=4, G=2, N=N, M=M)
        bias = rng.standard_normal((1, 4, N, M)).astype(TYPES[type])
        options = {**MASKS[mask], "bias": bias}
        out, lse = fovea.dense(q, k, v, return_lse=True, **options)
        d_out = rng.standard_normal(out.shape).astype(TYPES[type])
        arguments = (d_out, q, k, v, out, lse)
        # A kernel for one query needs no causal mask, and sums in another order.
        same = N > 1 or "causal" not in options
        found = both(fovea.dense_backward, *arguments, same=same, **options)
        expected = reference.dense_backward(*arguments, **options)
        # Of a row with one key the gradients of scores are zero but for rounding.
        if M == 1:
            continue
        for one, other in zip(found, expected, strict=True):
            near(one, other, type)


@pytest.mark.parametrize("type", ["float32", "bfloat16"])
@pytest.mark.parametrize("case", CASES)
def test_functions(case, type):
    """None, one, and around blocks of 8 tokens and tiles of 64 queries."""
    for number, N in enumerate([0, 1, 9, 64, 133, 300]):
        if N == 0 and case in NEED_TOKENS:
            continue

        def run(shapes, N=N, B=1 + number % 2):
            fovea.set_shapes(shapes)
            function, arguments, options = case(Tokens(type, B=B, N=N))
            results = function(*arguments, **options)
            # Some are updated where they lie.
            return leaves(results) + [x for x in leaves(arguments) if x.dtype != object]

        for one, other in zip(run("dynamic"), run("static"), strict=True):
            assert one.dtype == other.dtype
            if case in SUM_OTHERWISE and str(one.dtype) in TYPES:
                finite = np.isfinite(other)
                assert np.array_equal(one[~finite], other[~finite])
                near(np.where(finite, one, 0).astype(one.dtype), np.where(finite, other, 0).astype(np.float64), str(one.dtype))
            elif N == 1 and str(one.dtype) in TYPES:
                # A static kernel for a single query adds up its products in an order of its own.
                near(one, other.astype(np.float64), str(one.dtype))
            else:
                assert np.array_equal(one, other, equal_nan=True)


@pytest.mark.parametrize("type", ["float32", "bfloat16"])
@pytest.mark.parametrize("case", DYNAMIC_CASES)
def test_levels(case, type):
    """Less than a group of 4, and lengths for which there are 0 to 6 levels, which read weights of 6."""
    for number, N in enumerate([0, 1, 8, 31, 133, 300]):
        if N == 0 and case in NEED_TOKENS:
            continue

        def run(shapes, target="cpu", N=N, B=1 + number % 2):
            fovea.set_shapes(shapes)
            function, arguments, options = case(Tokens(type, B=B, N=N))
            return leaves(function(*arguments, **options, target=target))

        found = run("dynamic")
        for others in run("static"), run("dynamic", "reference"):
            for one, other in zip(found, others, strict=True):
                assert one.dtype == other.dtype and one.shape == other.shape
                if one.dtype.kind == "i":
                    assert np.array_equal(one, other)
                    continue
                finite = np.isfinite(other)
                assert np.array_equal(one[~finite], other[~finite])
                near_or_zero = np.where(finite, other, 0).astype(np.float64)
                if N == 1 and not near_or_zero.any():
                    # Of a row with one key the gradients of scores are zero but for rounding.
                    near_or_zero = np.where(np.abs(one) < 1e-5, one, 0).astype(np.float64)
                near(np.where(finite, one, 0).astype(one.dtype), near_or_zero, str(one.dtype))


@pytest.mark.parametrize("target", ["cpu", "gpu-sim", "reference"])
@pytest.mark.parametrize("window", [100, 2**31, 2**62])
def test_windows_beyond_all_tokens(target, window):
    """Kernels for all lengths keep them: they are for more tokens, too."""
    q, k, v = make("float32", B=2, H=4, G=2, N=37, M=41, D=16, E=16)
    fovea.set_shapes("dynamic")
    for causal in (False, True):
        found, expected = (fovea.dense(q, k, v, causal=causal, target=target, **mask) for mask in ({"window": window}, {}))
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
