# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# REQUIRES: long-tests
"""Tokens from caches on the emulated GPU, against the whole in NumPy; test_device_caches.py has their memory."""

import json
import struct

import numpy as np
import pytest
from conftest import BFLOAT16, check, make
from test_multipole_cache import token, up_to, weights_of

import fovea
from fovea import _fovea, reference

OPTIONS = {
    "causal": {},
    "window and sink": {"window": 7, "sink": np.linspace(-1, 1, 4, dtype=np.float32)},
    "scale": {"scale": 0.3},
}
TYPES = {"float32": np.dtype(np.float32), "float16": np.dtype(np.float16), "bfloat16": BFLOAT16}


def own(array, layout):
    return array if layout == "bhnd" else np.ascontiguousarray(array.swapaxes(1, 2))


@pytest.mark.parametrize("kind", ["kv", "paged"])
@pytest.mark.parametrize("layout", ["bhnd", "bnhd"])
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("type", TYPES)
def test_prefixes(type, options, layout, kind, tmp_path):
    options = OPTIONS[options]
    q, k, v = make(type, B=2, H=4, G=2, N=35, D=16, E=12)
    given = {"dtype": TYPES[type], "layout": layout, "target": "gpu-sim"}
    if kind == "kv":
        cache = fovea.KVCache(2, 2, 16, 12, capacity=35, **given)
    else:
        cache = fovea.PagedCache(18, 4, 2, 16, 12, batch=2, **given)
    assert cache._cache.target == "gpu-sim" and cache._cache.device == -1
    # What forgotten tokens leave behind is not read.
    nothing = np.full((2, 2, 35, 16), np.nan, TYPES[type])
    cache.append(own(nothing, layout), own(nothing[..., :12], layout))
    cache.truncate(0)
    done = 0
    for count in (5, 6, 17, 18, 35):
        cache.append(*(own(each[:, :, done:count], layout) for each in (k, v)))
        found = cache.attend(own(q[:, :, done:count], layout), **options)
        rows = q[:, :, done:count], k[:, :, :count], v[:, :, :count]
        check(found, own(reference.dense(*rows, **{"causal": True, **options}), layout), type)
        done = count
    # Sequences of their own lengths, from a fork and from a file.
    cache.truncate([20, 33])
    cache.save(tmp_path / "cache")
    for each in (cache.fork(), cache.__class__.load(tmp_path / "cache", target="gpu-sim")):
        found = own(each.attend(own(q[:, :, :1], layout), **options), layout)
        for b, length in enumerate((20, 33)):
            rows = q[b : b + 1, :, :1], k[b : b + 1, :, :length], v[b : b + 1, :, :length]
            check(found[b : b + 1], reference.dense(*rows, **{"causal": True, **options}), type)


def test_values_in_keys_and_scores():
    q, k, _ = make("float32", B=1, H=4, G=1, N=9, D=16)
    cache = fovea.KVCache(1, 1, 16, 12, capacity=9, values_are_keys=True, target="gpu-sim")
    cache.append(k)
    check(cache.attend(q), reference.dense(q, k, k[..., :12], causal=True), "float32")
    found = cache.attend(q[:, :, 8:], score=lambda s, b, h, i, j: s * 0.5)
    check(found, reference.dense(q[:, :, 8:], k, k[..., :12], scale=0.125), "float32")


def test_types_that_gpus_lack():
    with pytest.raises(ValueError, match="^dtype: found float64, needed one of float16, bfloat16, float32 on a GPU$"):
        fovea.KVCache(1, 1, 16, capacity=9, dtype="float64", target="gpu-sim")


# Tokens, group and rank: levels, an odd group, one summary for each token.
ROUNDING = {"float32": 0, "float16": 2.0**-11, "bfloat16": 2.0**-8}
GROUPS = {"pairs": (67, 8, 2), "odd": (50, 5, 1), "single": (41, 3, 3)}


@pytest.mark.parametrize("biases", [False, True])
@pytest.mark.parametrize("shape", GROUPS)
@pytest.mark.parametrize("type", TYPES)
def test_every_prefix_of_fast_multipole(type, shape, biases, tmp_path):
    shape = GROUPS[shape]
    q, k, v = make(type, B=2, H=4, G=2, N=shape[0], D=16, E=12)
    weights, options = weights_of(shape, type, W=2, biases=biases)
    made = {"batch": 2, "heads": 2, "target": "gpu-sim", **options}
    cache = fovea.MultipoleCache(*weights, **made)
    assert cache._cache.target == "gpu-sim" and cache._cache.device == -1
    out, lse = cache.attend(token(q, 0), return_lse=True)
    assert not out.astype(np.float32).any() and np.isneginf(lse).all()
    misses = _fovea.cache_statistics()[2]
    for i in range(shape[0]):
        found, lse = fovea.fast_multipole_decode(*(token(x, i) for x in (q, k, v)), cache, return_lse=True)
        parts, own = up_to(weights, options, i + 1)
        rows = [x[:, :, : i + 1] for x in (q, k, v)]
        out, expected = reference.fast_multipole(*rows, *parts, causal=True, return_lse=True, **own)
        check(found, out[:, :, -1:], type)
        # Summaries of narrow tokens are rounded on a GPU, which changes scores in proportion.
        np.testing.assert_allclose(lse, expected[:, :, -1:], rtol=ROUNDING[type], atol=1e-5)
    # Attention, and groups that begin an interval or add to one, with weights that lie without gaps or with some.
    assert _fovea.cache_statistics()[2] - misses <= 7
    # A fork, a file, and a prompt of several groups go on alike.
    expected = cache.attend(token(q, shape[0] - 1))
    half, before = shape[0] // 2, fovea.MultipoleCache(*weights, **made)
    before.append(k[:, :, :half], v[:, :, :half])
    before.save(tmp_path / "cache")
    for each in (before.fork(), fovea.MultipoleCache.load(tmp_path / "cache", *weights, **made), before):
        assert each.length == half
        each.append(k[:, :, half:], v[:, :, half:])
        assert np.array_equal(each.attend(token(q, shape[0] - 1)), expected)


def sums(cache, path):
    """The summaries in a file."""
    cache.save(path)
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    return [data[8 + size :][slice(*header[side + "_sums"]["data_offsets"])] for side in ("key", "value")]


@pytest.mark.parametrize("target", ["cpu", "gpu-sim"])
@pytest.mark.parametrize("shape", {**GROUPS, "many": (93, 3, 3)}.values())
@pytest.mark.parametrize("biases", [False, True])
def test_prompts_have_the_bits_of_tokens(biases, shape, target, tmp_path):
    """Kernels add all groups of a prompt at once, which must not change a bit of what is kept; from arrays with gaps, and
    where the memory has held something else."""
    count = shape[0]
    q, k, v = make("float16", B=2, H=4, G=2, N=count, D=16, E=12)
    k, v = (np.pad(each, ((0, 0), (0, 0), (1, 2), (0, 3)), constant_values=np.nan)[:, :, 1:-2, :-3] for each in (k, v))
    weights, options = weights_of(shape, "float16", W=2, biases=biases)
    made = {"batch": 2, "heads": 2, "target": target, **options}
    tokens, expected = fovea.MultipoleCache(*weights, **made), {}
    for i in range(count):
        tokens.append(token(k, i), token(v, i))
        expected[i + 1] = sums(tokens, tmp_path / "tokens"), tokens.attend(token(q, i))
    for parts in ((count,), (1, count), (shape[1], count), (shape[1] + 1, count - 1), (5, 17, 18, count)):
        cache, done = fovea.MultipoleCache(*weights, **made), 0
        for end in parts:
            cache.append(k[:, :, done:end], v[:, :, done:end])
            found = sums(cache, tmp_path / "prompt"), cache.attend(token(q, end - 1))
            assert found[0] == expected[end][0] and np.array_equal(found[1], expected[end][1]), (parts, end)
            done = end


def test_groups_have_one_kernel_for_each_side():
    """Also where each length has a kernel of its own."""
    shape = (61, 6, 2)
    weights, options = weights_of(shape)
    cache = fovea.MultipoleCache(*weights, heads=2, batch=1, target="gpu-sim", **options)
    _, k, v = make(B=1, H=2, G=2, N=61, D=16, E=12)
    before, misses = fovea.shapes(), _fovea.cache_statistics()[2]
    fovea.set_shapes("static")
    try:
        for end in range(1, 62):
            cache.append(token(k, end - 1), token(v, end - 1))
        assert _fovea.cache_statistics()[2] - misses == 2
    finally:
        fovea.set_shapes(before)


def test_errors_of_fast_multipole():
    weights, options = weights_of((61, 8, 2), "float64")
    with pytest.raises(ValueError, match="^key_weights.0.: found element type float64, needed float16 or bfloat16 or float32$"):
        fovea.MultipoleCache(*weights, heads=2, target="gpu-sim", **options)


def test_one_kernel_for_all_lengths():
    """Of as many queries; of pages, whenever those of a sequence double, one that lists rows and one that reads them, and
    one that places tokens."""
    q, k, v = make(B=2, H=4, G=2, N=300, D=24, E=20)
    caches = {
        "kv": (fovea.KVCache(2, 2, 24, 20, capacity=300, target="gpu-sim"), 1),
        "paged": (fovea.PagedCache(160, 4, 2, 24, 20, batch=2, target="gpu-sim"), 7),
    }
    for name, (cache, most) in caches.items():
        lengths = 1, 2, 3, 5, 17, 18, 30, 31, 32, 255, 256, 257, 299, 300
        misses, done = _fovea.cache_statistics()[2], 0
        if name == "paged":
            lengths = [each for each in lengths if each > 16]
        for count in lengths:
            cache.append(k[:, :, done:count], v[:, :, done:count])
            done = count
            found = cache.attend(token(q, count - 1))
            check(found, reference.dense(token(q, count - 1), k[:, :, :count], v[:, :, :count], causal=True))
        assert _fovea.cache_statistics()[2] - misses <= most, name


def test_one_kernel_for_all_prompts():
    """Whatever the numbers of their tokens and of those before, where these are more than 32."""
    q, k, v = make("float16", B=2, H=4, G=2, N=300, D=32, E=24)
    cache = fovea.KVCache(2, 2, 32, 24, capacity=300, dtype="float16", target="gpu-sim")
    misses, done = _fovea.cache_statistics()[2], 0
    for count in (33, 66, 130, 163, 300):
        rows = [np.ascontiguousarray(each[:, :, done:count]) for each in (q, k, v)]
        cache.append(*rows[1:])
        done = count
        found, lse = cache.attend(rows[0], return_lse=True)
        expected = reference.dense(rows[0], k[:, :, :count], v[:, :, :count], causal=True, return_lse=True)
        check(found, expected[0], "float16")
        np.testing.assert_allclose(lse, expected[1], rtol=1e-3, atol=1e-3)
    # A window is another configuration, which the kernel of longer prompts has, too.
    found = cache.attend(rows[0], window=20)
    check(found, reference.dense(rows[0], k, v, causal=True, window=20), "float16")
    assert _fovea.cache_statistics()[2] - misses == 2


def test_own_caches_have_one_kernel():
    """Few queries of `dense` leave the number of keys open, unless shapes are static."""
    q, k, v = make(B=2, H=4, G=2, N=40, D=28)
    q = q[:, :, :3]

    def count(*lengths):
        misses = _fovea.cache_statistics()[2]
        for length in lengths:
            rows = k[:, :, :length], v[:, :, :length]
            check(fovea.dense(q, *rows, causal=True, target="gpu-sim"), reference.dense(q, *rows, causal=True))
        return _fovea.cache_statistics()[2] - misses

    # Keys that lie without gaps, or with some.
    assert count(3, 9, 33, 40) == 2
    before = fovea.shapes()
    fovea.set_shapes("static")
    try:
        assert count(11, 12) == 2
    finally:
        fovea.set_shapes(before)


@pytest.mark.parametrize("kind", ["kv", "paged"])
@pytest.mark.parametrize("layout", ["bhnd", "bnhd"])
@pytest.mark.parametrize("type", TYPES)
def test_tokens_of_many_sequences(type, layout, kind, tmp_path):
    """One kernel copies tokens of sequences whose lengths differ, here with odd widths and from arrays with gaps: what
    the cache holds is the same as where the host copies each."""
    batch, heads, widths = 9, 3, (5, 7)
    random = np.random.default_rng(7)
    given = {"dtype": TYPES[type], "layout": layout}

    def create(target):
        if kind == "kv":
            return fovea.KVCache(batch, heads, *widths, capacity=23, target=target, **given)
        return fovea.PagedCache(90, 4, heads, *widths, batch=batch, target=target, **given)

    def tokens(count):
        for width in widths:
            # Rows that others lie between, behind something that must not be read.
            whole = np.full((batch, heads, count + 2, width + 3), np.nan, TYPES[type])
            whole[:, :, 1:-1, :width] = random.standard_normal((batch, heads, count, width)).astype(TYPES[type])
            whole = own(whole, layout)
            yield whole[:, :, 1:-1, :width] if layout == "bhnd" else whole[:, 1:-1, :, :width]

    def content(cache):
        cache.save(tmp_path / "cache")
        return (tmp_path / "cache").read_bytes()

    cache, host = create("gpu-sim"), create("cpu")
    assert content(cache) == content(host)
    for count, lengths in (
        (9, [0, 1, 2, 3, 4, 5, 7, 8, 9]),
        (1, None),
        (6, [6, 0, 5, 1, 4, 2, 3, 0, 6]),
        (1, [1, 0] * 4 + [1]),
        (3, None),
    ):
        rows = list(tokens(count))
        for each in (cache, host):
            each.append(*rows, lengths=lengths)
        assert content(cache) == content(host)
    # More than there is room for: nothing changes.
    before = content(cache)
    for each in (cache, host):
        with pytest.raises(ValueError, match="^k: found"):
            each.append(*tokens(400), lengths=[1] * 8 + [400])
    assert content(cache) == before
    # Forks, whose last pages are copied first.
    forks = [each.fork() for each in (cache, host)]
    for count in (1, 2):
        rows, others = list(tokens(count)), list(tokens(count))
        for each, fork in zip((cache, host), forks):
            fork.append(*others)
            each.append(*rows)
        assert content(cache) == content(host) != content(forks[0])
        assert content(forks[0]) == content(forks[1])


def test_one_kernel_places_all_tokens():
    """Whatever the numbers of sequences and tokens, and the cache; a few sequences are copied without one."""
    widths, before = (11, 13), _fovea.cache_statistics()[2]
    for batch in (7, 4, 12):
        for cache in (
            fovea.KVCache(batch, 1, *widths, capacity=9 + batch, target="gpu-sim"),
            fovea.PagedCache(99, 4, 1, *widths, batch=batch, target="gpu-sim"),
        ):
            for count in (1, 2, 3):
                rows = [np.ones((batch, 1, count, width), np.float32) for width in widths]
                cache.append(*rows, lengths=[b % (count + 1) for b in range(batch)])
    assert _fovea.cache_statistics()[2] - before == 1
