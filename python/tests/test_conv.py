# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""fovea.conv_apply against the references."""

import numpy as np
import pytest
from conftest import BOUNDS, TYPES

import fovea
from fovea import reference

targets = pytest.mark.parametrize("target", ["reference"])


def bases(type="float32", *, B=1, H=2, G=1, R=3, N=37, E=16, sizes=None, seed=0):
    """b, sizes and v; scores are rounded to the type that sums are kept in."""
    rng = np.random.default_rng(seed)
    if sizes is None:
        rest = rng.choice(np.arange(1, N), min(R, N) - 1, replace=False)
        sizes = [N, *sorted(rest, reverse=True), *[0] * (R - min(R, N))]
    state = np.float64 if type == "float64" else np.float32
    return (
        rng.standard_normal((B, H, R, N)).astype(state),
        np.ascontiguousarray(np.broadcast_to(sizes, (B, H, R)), np.int32),
        rng.standard_normal((B, G, N, E)).astype(TYPES[type]),
    )


def error(found, expected):
    return np.abs(found.astype(float) - expected).max(initial=0) / np.abs(expected).max(initial=1e-300)


@targets
@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("N, R, E", [(1, 1, 1), (2, 2, 3), (37, 3, 16), (64, 5, 48), (131, 64, 7)])
def test_conv_apply(type, N, R, E, target):
    b, sizes, v = bases(type, B=2, H=4, G=2, N=N, R=R, E=E)
    out, recomputed = fovea.conv_apply(b, sizes, v, return_recomputed=True, target=target)
    assert out.dtype == TYPES[type] and recomputed.shape == (2, 4)
    assert error(out, reference.conv_apply(b, sizes, v)) <= BOUNDS[type]


@targets
@pytest.mark.parametrize("sizes", [[0, 0, 0], [5, 0, 0], [37, 36, 1], [20, 19, 18]])
def test_bases_that_reach_some_rows(sizes, target):
    b, sizes, v = bases(sizes=sizes)
    out = fovea.conv_apply(b, sizes, v, target=target)
    assert not out[:, :, : 37 - sizes[0, 0, 0]].any()
    assert error(out, reference.conv_apply(b, sizes, v)) <= BOUNDS["float32"]


@targets
def test_numbers_beyond_a_size_are_not_read(target):
    b, sizes, v = bases(sizes=[37, 20, 0])
    expected = fovea.conv_apply(b, sizes, v, target=target)
    b[:, :, 1, 20:] = b[:, :, 2] = np.nan
    assert np.array_equal(fovea.conv_apply(b, sizes, v, target=target), expected)


@targets
@pytest.mark.parametrize("type", ["float16", "bfloat16"])
def test_bases_in_the_type_of_the_values(type, target):
    b, sizes, v = bases(type)
    b = b.astype(v.dtype)
    out = fovea.conv_apply(b, sizes, v, target=target)
    assert error(out, reference.conv_apply(b, sizes, v)) <= BOUNDS[type]


@targets
@pytest.mark.parametrize(
    "sizes, text",
    [
        ([38, 2, 1], r"sizes\[0, 0, 0\] must be from 0 to 37, the number of tokens, but got 38"),
        ([37, 37, 1], r"sizes\[0, 0, 1\] must be from 0 to 36, .* but got 37"),
        ([37, 0, 1], r"sizes\[0, 0, 2\] must be from 0 to 0, .* but got 1"),
        ([-1, 0, 0], r"sizes\[0, 0, 0\] must be from 0 to 37, .* but got -1"),
    ],
)
def test_refuses_sizes(sizes, text, target):
    with pytest.raises(fovea.FoveaError, match=text):
        fovea.conv_apply(*bases(sizes=sizes), target=target)


def test_refuses_arguments():
    b, sizes, v = bases()
    for arguments, options, text in [
        ((b[:, :, :0], sizes[:, :, :0], v), {}, "b: found no bases, needed at least 1"),
        ((b, sizes[:, :, :2], v), {}, r"sizes: found shape \(1, 2, 2\), needed \(1, 2, 3\)"),
        ((b, sizes.astype(np.int64), v), {}, "sizes: found element type i64, needed int32"),
        ((b, sizes, v[:, :, :3]), {}, "v: found length 3, needed 37"),
        ((b, sizes, np.repeat(v, 3, axis=1)), {}, "v: found 3 heads, needed a divisor of the 2 heads of b"),
        ((b.astype(float), sizes, v), {}, "b: found element type float64, needed float16 or bfloat16 or float32"),
        ((b[0], sizes, v), {}, "b: found rank 3, needed rank 4"),
        ((b, sizes, v), {"algorithm": "fast"}, "algorithm: found 'fast', needed 'auto', 'toeplitz'"),
        ((b, sizes, v), {"algorithm": "single"}, "algorithm: found 'single' for 3 bases, needed one basis"),
        ((b, sizes, v), {"algorithm": "partitioned", "block": 24}, "block: found 24, needed a power of two"),
        ((b, sizes, v), {"block": 64}, "block: found 64 with the algorithm 'auto', needed 'partitioned'"),
    ]:
        with pytest.raises(ValueError, match=text):
            fovea.conv_apply(*arguments, **options)
