# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# REQUIRES: long-tests
"""Fast multipole attention token by token against the whole, in NumPy and compiled."""

import numpy as np
import pytest
from conftest import TYPES, check, make, make_biases, make_weights, refused

import fovea
from fovea import _fovea, reference

# Tokens, group and rank: three levels, an odd group, one summary for each token.
SHAPES = {"pairs": (67, 8, 2), "odd": (50, 5, 1), "single": (41, 3, 3)}


def weights_of(shape, type="float32", W=1, D=16, E=12, biases=False):
    """The arguments of `fast_multipole` behind q, k and v, of all levels."""
    N, m, p = shape
    options = {"group": m}
    if biases:
        options["key_biases"] = make_biases(N, m, p, D, W, type)
        options["value_biases"] = make_biases(N, m, p, E, W, type, seed=3)
    return [make_weights(N, m, p, D, W, type), make_weights(N, m, p, E, W, type, seed=4)], options


def up_to(weights, options, count):
    """The levels that a prefix needs: the reference takes no others."""
    levels = reference.num_levels(count, options["group"])
    own = {name: value[:levels] if name.endswith("biases") else value for name, value in options.items()}
    return [family[:levels] for family in weights], own


def token(x, i):
    return x[:, :, i : i + 1]


@pytest.mark.parametrize("biases", [False, True])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_prefix_is_the_last_row_of_the_whole(shape, causal, biases):
    shape = SHAPES[shape]
    q, k, v = make(B=2, H=4, G=2, N=shape[0], D=16, E=12)
    weights, options = weights_of(shape, W=2, biases=biases)
    cache = fovea.MultipoleCache(*weights, batch=2, heads=2, **options)
    size = cache.nbytes
    for i in range(shape[0]):
        found = fovea.fast_multipole_decode(*(token(x, i) for x in (q, k, v)), cache, return_lse=True)
        parts, own = up_to(weights, options, i + 1)
        rows = [x[:, :, : i + 1] for x in (q, k, v)]
        out, lse = reference.fast_multipole(*rows, *parts, causal=causal, return_lse=True, **own)
        check(found, (out[:, :, -1:], lse[:, :, -1:]))
    assert cache.length == shape[0] and cache.nbytes == size


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("G", [1, 4])
def test_types_heads_and_options(type, G):
    shape = (70, 8, 4)
    q, k, v = make(type, H=4, G=G, N=70, D=16, E=12)
    weights, options = weights_of(shape, type)
    for more in ({}, {"multiplicity": False, "scale": 0.5}):
        cache = fovea.MultipoleCache(*weights, heads=G, **options, **more)
        expected = fovea.fast_multipole(q, k, v, *weights, causal=True, **options, **more)
        for i in range(70):
            found = fovea.fast_multipole_decode(*(token(x, i) for x in (q, k, v)), cache)
            assert found.dtype == TYPES[type]
            if i == 69:
                check(found, reference.fast_multipole(q, k, v, *weights, causal=True, **options, **more)[:, :, -1:], type)
            check(found, token(expected, i).astype(np.float64), type)


def test_prompts_of_any_length():
    shape = (61, 8, 2)
    q, k, v = make(H=4, G=2, N=61, D=16, E=12)
    weights, options = weights_of(shape)
    expected = fovea.fast_multipole(q, k, v, *weights, causal=True, **options)
    for first in (1, 7, 8, 9, 16, 17, 40, 60):
        cache = fovea.MultipoleCache(*weights, heads=2, **options)
        cache.append(k[:, :, :first], v[:, :, :first])
        check(cache.attend(token(q, first - 1)), token(expected, first - 1).astype(np.float64))
        cache.append(k[:, :, first:], v[:, :, first:])
        check(cache.attend(token(q, 60)), token(expected, 60).astype(np.float64))


def test_same_bits_for_pieces_of_any_length():
    """A piece may end a group, or several, wherever it begins."""
    shape = (61, 8, 2)
    q, k, v = make(H=4, G=2, N=61, D=16, E=12)
    weights, options = weights_of(shape)
    found = []
    for count in (1, 3, 7, 8, 9, 13, 24, 61):
        cache = fovea.MultipoleCache(*weights, heads=2, **options)
        for first in range(0, 61, count):
            cache.append(*(x[:, :, first : first + count] for x in (k, v)))
        found.append(cache.attend(token(q, 60)))
    assert all(np.array_equal(each, found[0]) for each in found)


def test_same_bits_for_any_number_of_threads():
    """Heads lie side by side in the sums of a group, and threads divide its columns."""
    rows = make(H=8, G=8, N=131, D=64)
    weights, options = weights_of((131, 16, 4), D=64, E=64)

    def decode(threads):
        fovea.set_num_threads(threads)
        cache = fovea.MultipoleCache(*weights, heads=8, **options)
        return np.concatenate([fovea.fast_multipole_decode(*(token(x, i) for x in rows), cache) for i in range(131)])

    before = fovea.num_threads()
    try:
        alone = decode(1)
        assert all(np.array_equal(decode(threads), alone) for threads in (2, 3, 7))
    finally:
        fovea.set_num_threads(before)


def filled(count=30):
    q, k, v = make(B=2, H=4, G=2, N=40, D=16, E=12)
    weights, options = weights_of((61, 8, 2), biases=True)
    options |= {"heads": 2, "batch": 2}
    cache = fovea.MultipoleCache(*weights, **options)
    cache.append(k[:, :, :count], v[:, :, :count])
    return cache, (q, k, v), weights, options


def test_nothing_yet():
    cache, (q, *_), *_ = filled(0)
    out, lse = cache.attend(token(q, 0), return_lse=True)
    assert not out.any() and np.isneginf(lse).all()


def test_forks_are_independent():
    cache, (q, k, v), *_ = filled()
    fork = cache.fork()
    for i in range(30, 40):
        fovea.fast_multipole_decode(token(q, i), token(v, i)[..., [0] * 16], token(v, i), fork)
    other, *_ = filled()
    for i in range(30, 40):
        rows = [token(x, i) for x in (q, k, v)]
        assert np.array_equal(*(fovea.fast_multipole_decode(*rows, each) for each in (cache, other)))


def test_weights_of_any_memory():
    """Those of another byte order, and unaligned ones, live as long as the cache."""
    (q, k, v), (weights, options) = make(N=61), weights_of((61, 8, 2), D=16, E=16, biases=True)

    def unaligned(x):
        raw = np.empty(x.nbytes + 1, np.uint8)
        raw[1:] = x.reshape(-1).view(np.uint8)
        return np.frombuffer(raw, x.dtype, offset=1).reshape(x.shape)

    found = []
    for change in (np.copy, lambda x: x.astype(">f4"), unaligned, lambda x: np.repeat(x, 2, 2)[:, :, ::2]):
        own = {name: [change(x) if x.ndim == 4 else x for x in value] for name, value in options.items() if name != "group"}
        cache = fovea.MultipoleCache(*([change(x) for x in family] for family in weights), group=8, heads=2, **own)
        # Memory that would be taken again.
        others = [np.full_like(x, np.nan) for family in weights for x in family]
        cache.append(k, v)
        found.append(cache.attend(token(q, 60)))
        del others
    assert all(np.array_equal(each, found[0]) for each in found)


@pytest.mark.parametrize("count", [0, 5, 8, 30])
def test_saved_and_loaded(count, tmp_path):
    cache, (q, k, v), weights, options = filled(count)
    cache.save(tmp_path / "cache")
    loaded = fovea.MultipoleCache.load(tmp_path / "cache", *weights, **options)
    assert loaded.length == count
    for i in range(count, 40):
        rows = [token(x, i) for x in (q, k, v)]
        assert np.array_equal(*(fovea.fast_multipole_decode(*rows, each) for each in (cache, loaded)))


def test_files_of_others(tmp_path):
    cache, _, weights, options = filled()
    path = tmp_path / "cache"
    cache.save(path)
    load = fovea.MultipoleCache.load
    others, other_options = weights_of((31, 4, 2), biases=True)
    refused("of a cache with groups of 8, not 4", load, path, *others, **options | other_options)
    shapes = r"whose 'key_tokens' is float32 \(2, 2, 17, 16\), needed float32 \(3, 2, 17, 16\)"
    refused(shapes, load, path, *weights, **options | {"batch": 3})
    refused("which is no file of fovea.KVCache", fovea.KVCache.load, path)
    path.write_bytes(path.read_bytes()[:-1])
    refused("which is damaged", load, path, *weights, **options)
    refused("a device or a pipe, needed a file", load, "/dev/zero", *weights, **options)
    refused("Is a directory, needed a file that can be read", load, tmp_path, *weights, **options)


def test_bad_input_changes_nothing():
    cache, (q, k, v), weights, options = filled()
    before = cache.attend(token(q, 0))
    decode = fovea.fast_multipole_decode
    one = [token(x, 30) for x in (q, k, v)]
    refused("q: found length 2, needed 1", decode, q[:, :, :2], *one[1:], cache)
    refused("k: found length 2, needed 1", decode, one[0], k[:, :, :2], v[:, :, :2], cache)
    refused("v: found length 2, needed 1", decode, *one[:2], v[:, :, :2], cache)
    refused("q: found 3 heads, needed a multiple of the 2 of keys", decode, one[0][:, :3], *one[1:], cache)
    refused("q: found element type float64, needed float32", decode, one[0].astype(np.float64), *one[1:], cache)
    refused("k: found head width 12, needed 16", decode, one[0], one[2], one[2], cache)
    refused("out: found shape", decode, *one, cache, out=np.empty((2, 4, 1, 11), np.float32))
    refused("out: found memory that overlaps q", decode, *one, cache, out=one[0][..., :12])
    refused("return_lse: found 1, needed True or False", decode, *one, cache, return_lse=1)
    refused("cache: found list, needed a MultipoleCache", decode, *one, [])
    assert cache.capacity == 64
    many = np.zeros((2, 2, 35, 16), np.float32)
    full = "k: found 35 tokens after 30, needed at most 34: 2 levels of weights, in groups of 8, are for 64"
    refused(full, cache.append, many, many[..., :12])
    assert cache.length == 30 and np.array_equal(cache.attend(token(q, 0)), before)


def test_what_a_cache_cannot_be():
    weights, options = weights_of((61, 8, 2))
    make_cache = fovea.MultipoleCache
    refused("key_weights: found no levels, needed at least 1", make_cache, [], [], heads=1, **options)
    refused("value_weights: found 1 levels, needed 2", make_cache, weights[0], weights[1][:1], heads=1, **options)
    refused("needed 1 or a divisor of the 3 heads", make_cache, *weights_of((61, 8, 2), W=2)[0], heads=3, **options)
    refused("interval", make_cache, weights[0][::-1], weights[1], heads=1, **options)
    refused("heads: found 0", make_cache, *weights, heads=0, **options)
    mixing = [[np.repeat(level[..., None], level.shape[-1], -1) for level in side] for side in weights]
    refused("rank 5, needed rank 4: a cache does not mix columns", make_cache, *mixing, heads=1, **options)
    refused("^value_weights: found int, needed a list of arrays", make_cache, weights[0], 3, heads=1, **options)


def test_one_kernel_for_all_lengths():
    q, k, v = make(B=2, H=4, G=2, N=61, D=20)
    weights, options = weights_of((61, 8, 2), D=20, E=20)
    cache = fovea.MultipoleCache(*weights, batch=2, heads=2, **options)
    misses = _fovea.cache_statistics()[2]
    for i in range(61):
        fovea.fast_multipole_decode(*(token(x, i) for x in (q, k, v)), cache)
    # Attention, and the sums of a group.
    assert _fovea.cache_statistics()[2] - misses == 2
