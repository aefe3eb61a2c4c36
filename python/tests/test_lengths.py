# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Batches whose entries have keys and queries of their own, against NumPy."""

import numpy as np
import pytest
from call_cases import case
from conftest import check, make

import fovea
from fovea import reference

TARGETS = ["cpu", "reference", "gpu-sim"]
SIZES = [
    # N, M, lengths, query lengths
    (1, 70, [70, 1, 33], None),
    (1, 70, [5, 70, 0], [1, 0, 1]),
    (65, 131, [131, 64, 2], None),
    (97, 64, [64, 63, 0], [97, 1, 64]),
    (64, 64, None, [0, 64, 63]),
    (130, 129, [129, 65, 128], [130, 65, 7]),
    # Few queries: keys in parts, and a set of the most queries.
    (5, 1300, [1300, 4, 700], None),
    (48, 67, [67, 48, 0], None),
]


def bury(arrays, lengths, query_lengths):
    """NaN in rows that do not exist."""
    arrays = [array.copy() for array in arrays]
    for array, counts in zip(arrays, (query_lengths, lengths, lengths)):
        for entry, count in enumerate(counts or ()):
            array[entry, :, count:] = np.nan
    return arrays


def options_of(lengths, query_lengths, **options):
    named = {"lengths": lengths, "query_lengths": query_lengths}
    found = {name: np.array(counts, np.int32) for name, counts in named.items() if counts is not None}
    return {**found, **options}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("type", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("case", range(len(SIZES)))
def test_dense(case, type, target):
    N, M, lengths, query_lengths = SIZES[case]
    arrays = make(type, B=3, H=4, G=2, N=N, M=M, D=24, E=20)
    rng = np.random.default_rng(case)
    for more in (
        {},
        {"causal": True},
        {"window": 9},
        {"causal": True, "prefix": 3},
        {"bias": rng.standard_normal((1, 4, N, M)).astype(np.float32), "sink": rng.standard_normal(4).astype(np.float32)},
    ):
        options = options_of(lengths, query_lengths, **more)
        buried = bury(arrays, lengths, query_lengths)
        found = fovea.dense(*buried, **options, return_lse=True, target=target)
        check(found, reference.dense(*arrays, **options, return_lse=True), type)


@pytest.mark.parametrize("target,type,bound", [("cpu", "float64", 1e-12), ("reference", "float64", 1e-12), ("gpu-sim", "float32", 1e-4)])
@pytest.mark.parametrize("terms", [False, True])
@pytest.mark.parametrize("case", range(2, len(SIZES)))
def test_gradients(case, terms, target, type, bound):
    N, M, lengths, query_lengths = SIZES[case]
    rng = np.random.default_rng(case)
    q, k, v = make(type, B=3, H=4, G=2, N=N, M=M, D=8, E=12)
    more = {"causal": True}
    if terms:
        more["bias"] = rng.standard_normal((3, 4, N, M)).astype(q.dtype)
        more["log_weight"] = rng.standard_normal((1, 2, M)).astype(q.dtype)
        more["sink"] = rng.standard_normal((1, 4)).astype(q.dtype)
    options = options_of(lengths, query_lengths, **more)
    out, lse = (each.astype(q.dtype) for each in reference.dense(q, k, v, **options, return_lse=True))
    d_out = rng.standard_normal(out.shape).astype(q.dtype)
    expected = reference.dense_backward(d_out, q, k, v, out, lse, **options)
    q, k, v = bury((q, k, v), lengths, query_lengths)
    for entry, count in enumerate(query_lengths or ()):
        d_out[entry, :, count:] = np.nan
    found = fovea.dense_backward(d_out, q, k, v, out, lse, target=target, **options)
    assert len(found) == len(expected)
    for mine, want in zip(found, expected):
        assert np.abs(mine - want).max() <= bound * max(1, np.abs(want).max())


def test_bits_do_not_depend_on_what_is_behind():
    q, k, v = make("float32", B=2, H=4, G=2, N=70, M=140)
    lengths = np.array([139, 70])
    one = fovea.dense(q, k, v, causal=True, lengths=lengths)
    other = fovea.dense(*bury((q, k, v), list(lengths), None), causal=True, lengths=lengths)
    assert np.array_equal(one, other)


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_nothing_to_read_but_a_sink(target):
    q, k, v = make("float32", B=2, H=4, G=2, N=5, M=6)
    sink = np.arange(4, dtype=np.float32)
    for options in ({"window": 0}, {"lengths": np.zeros(2, np.int32)}):
        out, lse = fovea.dense(q, k, v, sink=sink, return_lse=True, target=target, **options)
        assert not out.any()
        assert np.allclose(lse, np.broadcast_to(sink[None, :, None], lse.shape))


@pytest.mark.parametrize("type", [np.int32, np.int64])
def test_errors(type):
    arrays = make(B=2, N=4, M=6)
    for name, most in (("lengths", 6), ("query_lengths", 4)):
        for found in (-1, most + 1):
            with pytest.raises(ValueError, match=f"^{name}: found {found} for batch entry 1, needed 0 to {most}"):
                fovea.dense(*arrays, **{name: np.array([0, found], type)})
        with pytest.raises(ValueError, match=f"^{name}: found shape"):
            fovea.dense(*arrays, **{name: np.zeros(3, type)})
        with pytest.raises(ValueError, match=f"^{name}: found element type float32"):
            fovea.dense(*arrays, **{name: np.zeros(2, np.float32)})


def test_lengths_of_int64_on_a_gpu():
    """Kernels narrow them, and check them then."""
    arrays = make("float32", B=2, H=4, G=2, N=40, M=70)
    for name, most in (("lengths", 70), ("query_lengths", 40)):
        wide, narrow = ({name: np.array([most, 7], kind)} for kind in (np.int64, np.int32))
        assert np.array_equal(*(fovea.dense(*arrays, **each, target="gpu-sim") for each in (wide, narrow)))
        for found, clamped in ((most + 1, most + 1), (-1, -1), (1 << 32, 2147483647), (-(1 << 40), -2147483648)):
            wide[name][1] = found
            with pytest.raises(fovea.FoveaError, match=rf"{name}\[0, 0, 1\] must be at least 0 and below {most + 1}, but got {clamped}"):
                fovea.dense(*arrays, **wide, target="gpu-sim")


def flatten(found):
    if isinstance(found, fovea.tree.Tree):
        return [found.nodes, found.counts]
    return [part for each in found for part in flatten(each)] if isinstance(found, tuple) else [found]


@pytest.mark.parametrize("name", ["commitment_loss", "fast_multipole", "quantize", "tree_build", "vq"])
def test_masks_that_kernels_make_of_lengths(name):
    """Of int64 on a GPU, as of int32 on the host."""
    function, arguments, options = case(name, "float32")
    options.pop("mask", None)
    if name == "vq":
        arguments = arguments[0], case("dense", "float32")[1][1], *arguments[2:]
    for lengths in ([36, 5], [0, 1]):
        found, expected = (
            function(*arguments, **options, lengths=np.array(lengths, kind), target=target)
            for kind, target in ((np.int64, "gpu-sim"), (np.int32, "cpu"))
        )
        for mine, want in zip(flatten(found), flatten(expected), strict=True):
            assert np.allclose(mine, want, atol=2e-5)
    for wrong in (-1, 1 << 32):
        with pytest.raises(fovea.FoveaError, match=r"lengths\[0, 0, 1\] must be at least 0 and below"):
            function(*arguments, **options, lengths=np.array([1, wrong]), target="gpu-sim")
