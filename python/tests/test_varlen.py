# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# REQUIRES: long-tests
"""Packed sequences against NumPy, one sequence after the other."""

import numpy as np
import pytest
from conftest import TYPES, check, near, refused

import fovea
from fovea import _fovea, reference

# Lengths of queries and of keys: a long one, single tokens, nothing, tiles and one more or less.
BATCHES = {
    "self": ([70, 1, 0, 17, 64, 65, 63], None),
    "cross": ([5, 1, 0, 16, 70], [9, 1, 4, 0, 3]),
    "one": ([33], [40]),
    "tokens": ([1] * 6, [1, 50, 3, 129, 0, 64]),
    "empty": ([], []),
}
OPTIONS = {
    "all": {},
    "causal": {"causal": True},
    "window": {"causal": True, "window": 9},
    "prefix": {"causal": True, "prefix": 3},
    "sink": {"causal": True, "scale": 0.4, "sink": np.linspace(-1, 1, 4)},
}


def starts(lengths):
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int32)


def make(batch, type="float32", H=4, G=2, D=16, E=12, seed=0):
    queries, keys = BATCHES[batch]
    at = [starts(queries), starts(queries if keys is None else keys)]
    rng = np.random.default_rng(seed)
    shapes = ((at[0][-1], H, D), (at[1][-1], G, D), (at[1][-1], G, E))
    return [rng.standard_normal(shape).astype(TYPES[type]) for shape in shapes], at


def own_options(name, type):
    options = dict(OPTIONS[name])
    if "sink" in options:
        options["sink"] = options["sink"].astype(TYPES[type])
    return options


def sequences(at, queries=(), keys=()):
    """[1,H,N,?] of each sequence."""
    for low, high, first, last in zip(at[0], at[0][1:], at[1], at[1][1:]):
        yield [x[low:high].swapaxes(0, 1)[None] for x in queries], [x[first:last].swapaxes(0, 1)[None] for x in keys]


def whole(q, k, v, at, options):
    outs, sums = [np.zeros((0, q.shape[1], v.shape[2]))], [np.zeros((q.shape[1], 0))]
    for (rows,), others in sequences(at, [q], [k, v]):
        out, lse = reference.dense(rows, *others, return_lse=True, **options)
        outs.append(out[0].swapaxes(0, 1))
        sums.append(lse[0])
    return np.concatenate(outs), np.concatenate(sums, 1)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("type", TYPES)
def test_forward(type, batch, options):
    arrays, at = make(batch, type)
    options = own_options(options, type)
    expected = whole(*arrays, at, options)
    check(fovea.varlen(*arrays, *at, return_lse=True, **options), expected, type)
    check(fovea.varlen(*arrays, *(x.tolist() for x in at), **options), expected[0], type)


@pytest.mark.parametrize("G", [1, 4])
def test_grouped_heads(G):
    arrays, at = make("self", G=G)
    check(fovea.varlen(*arrays, *at, causal=True), whole(*arrays, at, {"causal": True})[0])


def test_no_heads():
    """As `dense` takes them."""
    (q, k, v), at = make("self", H=0, G=0)
    out, lse = fovea.varlen(q, k, v, *at, return_lse=True)
    assert out.shape == (*q.shape[:2], v.shape[2]) and lse.shape == (0, len(q))
    for each, like in zip(fovea.varlen_backward(out, q, k, v, *at, out, lse), (q, k, v), strict=True):
        assert each.shape == like.shape


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("type", ["float64", "float32", "bfloat16"])
def test_gradients(type, batch, options):
    (q, k, v), at = make(batch, type)
    options = own_options(options, type)
    out, lse = fovea.varlen(q, k, v, *at, return_lse=True, **options)
    rng = np.random.default_rng(5)
    d_out, d_lse = rng.standard_normal(out.shape).astype(out.dtype), rng.standard_normal(lse.shape).astype(lse.dtype)
    found = fovea.varlen_backward(d_out, q, k, v, *at, out, lse, d_lse=d_lse, **options)
    parts = [[np.zeros((0, *x.shape[1:]))] for x in (q, k, v)]
    sink = np.zeros(4)
    rows = sequences(at, [q, d_out, out, lse.T[..., None], d_lse.T[..., None]], [k, v])
    for (own, gradient, output, sums, d_sums), others in rows:
        one = reference.dense_backward(
            gradient, own, *others, output, sums[..., 0], d_lse=d_sums[..., 0], **options
        )
        for part, array in zip(parts, one[:3]):
            part.append(array[0].swapaxes(0, 1))
        if "sink" in options:
            sink += one[3]
    expected = [np.concatenate(part) for part in parts] + [sink] * ("sink" in options)
    assert len(found) == len(expected)
    for array, other in zip(found, expected):
        near(array, other, type, {"float64": 1e-12, "float32": 2e-5, "bfloat16": 3e-2}[type])


def test_results_where_they_are_wanted():
    arrays, at = make("self")
    expected, sums = fovea.varlen(*arrays, *at, causal=True, return_lse=True)
    wide = np.full((281, 5, 13), 7, np.float32)
    out, lse = wide[1:281, :4, :12], np.full((8, 280), 7, np.float32)[::2]
    found = fovea.varlen(*arrays, *at, causal=True, return_lse=True, out=(out, lse))
    assert found[0] is out and found[1] is lse
    assert np.array_equal(out, expected) and np.array_equal(lse, sums)
    assert (wide[0] == 7).all() and (wide[:, 4] == 7).all() and (wide[..., 12] == 7).all()
    gradients = [np.empty_like(x) for x in arrays]
    found = fovea.varlen_backward(expected, *arrays, *at, expected, sums, causal=True, gradients=gradients)
    assert all(one is other for one, other in zip(found, gradients))


def test_sequences_do_not_read_one_another():
    arrays, at = make("self")
    expected = fovea.varlen(*arrays, *at, causal=True)
    for x in arrays:
        x[at[0][3] : at[0][4]] = np.nan
    found = fovea.varlen(*arrays, *at, causal=True)
    assert np.array_equal(np.delete(found, np.s_[at[0][3] : at[0][4]], 0), np.delete(expected, np.s_[at[0][3] : at[0][4]], 0))
    assert np.isnan(found[at[0][3] : at[0][4]]).all()


@pytest.mark.parametrize("batch", BATCHES)
def test_bits_do_not_depend_on_threads(batch):
    (q, k, v), at = make(batch)
    options = {"causal": True, "sink": np.ones(4, np.float32)}
    found = []
    try:
        for threads in (1, 2, 3):
            fovea.set_num_threads(threads)
            out, lse = fovea.varlen(q, k, v, *at, return_lse=True, **options)
            found.append([out, lse, *fovea.varlen_backward(out, q, k, v, *at, out, lse, **options)])
    finally:
        fovea.set_num_threads(0)
    assert all(np.array_equal(*pair) for other in found[1:] for pair in zip(found[0], other))


def test_bad_input_writes_nothing():
    arrays, at = make("self")
    q, k, v = arrays
    out = np.full((280, 4, 12), 7, np.float32)

    def call(*given, **options):
        return fovea.varlen(*given, out=out, **options)

    refused(r"cu_seqlens_q: found 0 at place 2, needed 1 to 280", call, *arrays, [0, 1, 0, 280], [0, 1, 2, 280])
    refused(r"cu_seqlens_k: found 281 at place 1, needed 0 to 280", call, *arrays, [0, 280], [0, 281])
    refused(r"cu_seqlens_q: found 1 at place 0, needed 0", call, *arrays, [1, 280], [0, 280])
    refused(r"cu_seqlens_k: found 279 at the end, needed 280, the number of rows", call, *arrays, [0, 280], [0, 279])
    refused(r"cu_seqlens_k: found sequences 2, needed 1", call, *arrays, [0, 280], [0, 3, 280])
    refused(r"cu_seqlens_q: found shape \(0,\), needed one number more", call, *arrays, np.zeros(0, np.int32), at[1])
    refused(r"cu_seqlens_q: found element type float32, needed", call, *arrays, at[0].astype(np.float32), at[1])
    refused(r"q: found rank 4, needed rank 3 \[T,H,D\]", call, q[None], k, v, *at)
    refused("v: found length 279, needed 280", call, q, k, v[1:], *at)
    refused("k: found head width 12, needed 16", call, q, v, v, *at)
    refused("q: found 3 heads, needed a multiple of the 2 of k", call, q[:, :3], k, v, *at)
    refused("k: found element type float64", call, q, k.astype(np.float64), v, *at)
    refused("prefix: found it alone", call, *arrays, *at, prefix=3)
    refused("out: found memory that overlaps q", fovea.varlen, *arrays, *at, out=q[..., :12])
    assert (out == 7).all()
    lse = np.zeros((4, 280), np.float32)
    backward = fovea.varlen_backward
    refused(r"lse: found shape", backward, out, *arrays, *at, out, lse.T.copy())
    refused(r"gradients: found 2 arrays, needed 3", backward, out, *arrays, *at, out, lse, gradients=(q, k))
    refused(r"gradients\[0\]: found memory that overlaps q", backward, out, *arrays, *at, out, lse, gradients=(q, None, None))


def longest(at):
    return {name: int(max([1, *np.diff(each)])) for name, each in zip(("max_q", "max_k"), at)}


def near_where_finite(found, expected, bound):
    assert np.array_equal(np.isfinite(found), np.isfinite(expected))
    near(*(np.nan_to_num(each.astype(np.float32), neginf=0) for each in (found, expected)), "float32", bound)


@pytest.mark.parametrize(
    "batch, options, are_known",
    [*(("cross", name, True) for name in OPTIONS), ("self", "causal", False), ("one", "all", True), ("empty", "sink", True)],
)
def test_one_batch_on_a_gpu(batch, options, are_known):
    """Of the longest sequences that the host reads, or that it is told."""
    (q, k, v), at = make(batch)
    options = own_options(options, "float32")
    more = {**options, **(longest(at) if are_known else {}), "target": "gpu-sim"}
    out, lse = fovea.varlen(q, k, v, *at, return_lse=True, **options)
    for found, expected in zip(fovea.varlen(q, k, v, *at, return_lse=True, **more), (out, lse), strict=True):
        near_where_finite(found, expected, 3e-5)
    rng = np.random.default_rng(5)
    d_out, d_lse = (rng.standard_normal(each.shape).astype(np.float32) for each in (out, lse))
    found, expected = (
        fovea.varlen_backward(d_out, q, k, v, *at, out, lse, d_lse=d_lse, **each) for each in (more, options)
    )
    for one, other in zip(found, expected, strict=True):
        near(one, other, "float32", 5e-5)


def test_places_of_a_batch():
    """Where results are wanted, of bf16 and starts of 64 bits."""
    (q, k, v), at = make("self", "bfloat16", D=64, E=64)
    at = [each.astype(np.int64) for each in at]
    expected, sums = fovea.varlen(q, k, v, *at, return_lse=True)
    wide = np.full((281, 5, 65), 7, expected.dtype)
    out, lse = wide[1:281, :4, :64], np.full((8, 280), 7, np.float32)[::2]
    fovea.varlen(q, k, v, *at, return_lse=True, out=(out, lse), target="gpu-sim", **longest(at))
    near_where_finite(out, expected, 3e-2)
    near_where_finite(lse, sums, 1e-3)
    assert (wide[0] == 7).all() and (wide[:, 4] == 7).all() and (wide[..., 64] == 7).all()
    gradients = [np.empty_like(x) for x in (q, k, v)]
    options = {"gradients": gradients, "target": "gpu-sim", **longest(at)}
    fovea.varlen_backward(expected, q, k, v, *at, expected, sums, **options)
    for one, other in zip(gradients, fovea.varlen_backward(expected, q, k, v, *at, expected, sums)):
        near_where_finite(one, other, 5e-2)


def count_compilations(lengths, **options):
    """Of a call and its gradients on an emulated GPU, which are right."""
    at = starts(lengths)
    rng = np.random.default_rng(sum(lengths))
    q, k, v, d_out = (rng.standard_normal((at[-1], *each)).astype(np.float32) for each in ((4, 16), (2, 16), (2, 12), (4, 12)))
    expected, sums = fovea.varlen(q, k, v, at, at, return_lse=True)
    gradients = fovea.varlen_backward(d_out, q, k, v, at, at, expected, sums)
    before = _fovea.cache_statistics()[2]
    options["target"] = "gpu-sim"
    found = fovea.varlen(q, k, v, at, at, return_lse=True, **options)
    found += tuple(fovea.varlen_backward(d_out, q, k, v, at, at, expected, sums, **options))
    count = _fovea.cache_statistics()[2] - before
    for one, other in zip(found, (expected, sums, *gradients), strict=True):
        near(one, other, "float32", 5e-5)
    return count


@pytest.mark.parametrize("options", [{"max_q": 32, "max_k": 32}, {}])
def test_packing_compiles_once(options):
    """Kernels that pack are for any number of rows and of sequences; attention itself is for those of a batch."""
    fovea.clear_cache()
    try:
        count_compilations([20, 17], **options)
        assert count_compilations([29, 31], **options) == 0
        attention = 2
        assert count_compilations([32, 19, 30], **options) == attention
        # Kernels for one length are counted.
        fovea.set_shapes("static")
        count_compilations([20, 17], **options)
        assert count_compilations([29, 31], **options) > attention
    finally:
        fovea.set_shapes("auto")


@pytest.mark.parametrize("queries, keys", [(0, 5), (5, 0), (0, 0)])
def test_no_rows_on_a_gpu(queries, keys):
    """Where there are no rows, none is read."""
    q, k, v = (np.ones(shape, np.float32) for shape in ((queries, 4, 16), (keys, 2, 16), (keys, 2, 12)))
    out, lse = fovea.varlen(q, k, v, [0, queries], [0, keys], return_lse=True, target="gpu-sim", max_q=5, max_k=5)
    assert out.shape == (queries, 4, 12) and not out.any()
    assert lse.shape == (4, queries) and (lse == -np.inf).all()


def test_wrong_starts_on_a_gpu():
    """Kernels check what the host does not read."""
    arrays, at = make("self")
    most = {"max_q": 70, "max_k": 70, "target": "gpu-sim"}
    for name, place, wrong in (
        ("cu_seqlens_q", 0, at[0] + 1), ("cu_seqlens_k", 1, np.minimum(at[1], 279)), ("cu_seqlens_k", 1, at[1][[0, 2, 1, *range(3, 8)]]),
    ):  # fmt: skip
        given = [wrong if i == place else each for i, each in enumerate(at)]
        match = rf"varlen: lengths of {name}\[0, 0, \d\] must be at least 0 and below 71, but got (-1|71)"
        refused(match, fovea.varlen, *arrays, *given, **most, error=fovea.FoveaError)
        refused(f"{name}: found", fovea.varlen, *arrays, *given, target="gpu-sim")
    refused("must be at least 0 and below 70, but got 70", fovea.varlen, *arrays, *at, **{**most, "max_k": 69}, error=fovea.FoveaError)
    for more in (most, {"target": "gpu-sim"}):
        refused("cu_seqlens_k: found sequences 2, needed 1", fovea.varlen, *arrays, [0, 280], [0, 3, 280], **more)
    refused("max_k: found None, needed the longest length, as the other is given", fovea.varlen, *arrays, *at, max_q=70)
    refused("max_q: found 0, needed an integer of at least 1", fovea.varlen, *arrays, *at, max_q=0, max_k=70)
