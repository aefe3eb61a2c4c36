# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# REQUIRES: long-tests
"""Decoding from caches of keys and values against the whole in NumPy."""

import json
import struct

import numpy as np
import pytest
from conftest import TYPES, check, make, refused

import fovea
from fovea import _fovea, reference

LAYOUTS = ("bhnd", "bnhd")
OPTIONS = {
    "causal": {},
    "window": {"window": 5},
    "window and sink": {"window": 7, "sink": np.linspace(-1, 1, 4, dtype=np.float32)},
    "prefix": {"prefix": 3},
    "scale": {"scale": 0.3},
    "all": {"causal": False},
}


def own_layout(array, layout):
    return array if layout == "bhnd" else np.ascontiguousarray(array.swapaxes(1, 2))


def expect(q, k, v, count, *, first=0, **options):
    """Rows from `first` on of the whole call over `count` tokens."""
    options = {"causal": True, **options}
    rows = [q[:, :, first:count], k[:, :, :count], v[:, :, :count]]
    return reference.dense(*rows, **options)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("type", TYPES)
def test_every_prefix(type, options, layout):
    options = {**OPTIONS[options]}
    if "sink" in options and type == "float64":
        options["sink"] = options["sink"].astype(type)
    q, k, v = make(type, B=2, H=4, G=2, N=35, D=16, E=12)
    cache = fovea.KVCache(2, 2, 16, 12, dtype=TYPES[type], capacity=35, layout=layout)
    assert cache.nbytes == 2 * 2 * 36 * (16 + 12) * TYPES[type].itemsize
    # What forgotten tokens leave behind is not read.
    nothing = np.full((2, 2, 35, 16), np.nan, TYPES[type])
    cache.append(own_layout(nothing, layout), own_layout(nothing[..., :12], layout))
    cache.truncate(0)
    done = 0
    for count in [7, 8, 9, *range(12, 20), 35]:
        cache.append(*(own_layout(x[:, :, done:count], layout) for x in (k, v)))
        found = cache.attend(own_layout(q[:, :, done:count], layout), **options)
        assert found.flags.c_contiguous
        check(found, own_layout(expect(q, k, v, count, first=done, **options), layout), type)
        done = count
    assert cache.lengths.tolist() == [35, 35] and cache.capacity == 35


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("G", [1, 2, 8])
def test_grouped_queries_and_lse(G, layout):
    q, k, v = make(B=1, H=8, G=G, N=19)
    cache = fovea.KVCache(1, G, 16, capacity=50, layout=layout)
    cache.append(own_layout(k, layout), own_layout(v, layout))
    q = q[:, :, -3:]
    out = own_layout(np.empty_like(q), layout)
    found, lse = cache.attend(own_layout(q, layout), return_lse=True, out=(out, None))
    assert found is out
    expected, expected_lse = reference.dense(q, k, v, causal=True, return_lse=True)
    check((found, lse), (own_layout(expected, layout), expected_lse))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_sequences_of_different_lengths(layout):
    q, k, v = make(B=3, H=4, G=2, N=9, D=8, E=24)
    cache = fovea.KVCache(3, 2, 8, 24, capacity=16, layout=layout)
    counts = [[4, 9, 0], [5, 0, 9]]
    held = [[np.empty((2, 0, x.shape[-1]), np.float32)] * 3 for x in (k, v)]
    for number, lengths in enumerate(counts):
        new = [x + number for x in (k, v)]
        held = [[np.concatenate([old[b], x[b, :, :n]], 1) for b, n in enumerate(lengths)] for old, x in zip(held, new)]
        for b, n in enumerate(lengths):
            for x in new:
                x[b, :, n:] = np.nan
        cache.append(*(own_layout(x, layout) for x in new), lengths=lengths)
        found = cache.attend(own_layout(q, layout), query_lengths=np.array(lengths))
        for b, n in enumerate(lengths):
            one = reference.dense(*(x[None] for x in (q[b, :, :n], held[0][b], held[1][b])), causal=True)
            check(own_layout(found, layout)[b : b + 1, :, :n], one)
            assert not own_layout(found, layout)[b, :, n:].any()
    assert cache.lengths.tolist() == [9, 9, 9]


def filled(**options):
    q, k, v = make(options.get("dtype", "float32"), B=2, H=2, G=2, N=6, D=8, E=4)
    cache = fovea.KVCache(2, 2, 8, 4, capacity=10, **options)
    cache.append(*(own_layout(x, options.get("layout", "bhnd")) for x in (k, v)))
    return cache, q, k, v


@pytest.mark.parametrize("layout", LAYOUTS)
def test_truncated(layout):
    cache, q, k, v = filled(layout=layout)

    def own(x):
        return own_layout(x, layout)

    cache.truncate([2, 5])
    for b, n in enumerate(cache.lengths):
        check(own(cache.attend(own(q[:, :, :1])))[b : b + 1], expect(q[b : b + 1, :, :1], *(x[b : b + 1] for x in (k, v)), n))
    cache.truncate(np.int64(2))
    assert cache.lengths.tolist() == [2, 2]
    cache.append(own(k[:, :, 2:]), own(v[:, :, 2:]))
    check(cache.attend(own(q)), own(expect(q, k, v, 6)))
    cache.truncate(0)
    assert not cache.attend(own(q)).any()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_forks_are_independent(layout):
    cache, q, k, v = filled(layout=layout)

    def own(x):
        return own_layout(x, layout)

    fork = cache.fork()
    assert fork.nbytes == cache.nbytes and fork.capacity == 10
    fork.truncate(3)
    fork.append(own(k[:, :, :2] + 1), own(v[:, :, :2] + 1))
    cache.append(own(k[:, :, :1]), own(v[:, :, :1]))
    for found, parts in ((cache, [(6, 0), (1, 0)]), (fork, [(3, 0), (2, 1)])):
        rows = [np.concatenate([x[:, :, :n] + more for n, more in parts], 2) for x in (k, v)]
        check(found.attend(own(q[:, :, :1])), own(reference.dense(q[:, :, :1], *rows, causal=True)))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("type", TYPES)
def test_saved_and_loaded(type, layout, tmp_path):
    cache, q, _, _ = filled(dtype=type, layout=layout)
    cache.truncate([6, 4])
    q = own_layout(q, layout)
    path = tmp_path / "cache.safetensors"
    path.write_text("something else")
    cache.save(path)
    expected = cache.attend(q)
    loaded = fovea.KVCache.load(path)
    assert loaded.lengths.tolist() == [6, 4] and (loaded.capacity, loaded.nbytes) == (10, cache.nbytes)
    assert np.array_equal(loaded.attend(q), expected)
    assert [file.name for file in tmp_path.iterdir()] == ["cache.safetensors"]


def test_a_file_is_one_of_safetensors(tmp_path):
    cache, _, k, v = filled()
    cache.save(tmp_path / "cache")
    data = (tmp_path / "cache").read_bytes()
    (size,) = struct.unpack_from("<Q", data)
    header, elements = json.loads(data[8 : 8 + size]), data[8 + size :]
    assert size % 8 == 0 and set(header) == {"__metadata__", "keys", "values", "lengths"}
    assert all(isinstance(value, str) for value in header["__metadata__"].values())
    for name, array in (("keys", k), ("values", v)):
        low, high = header[name]["data_offsets"]
        assert header[name]["dtype"] == "F32" and header[name]["shape"] == list(array.shape)
        assert np.array_equal(np.frombuffer(elements[low:high], np.float32).reshape(array.shape), array)


def test_damaged_files(tmp_path):
    cache, *_ = filled()
    path = tmp_path / "cache"
    cache.save(path)
    whole = path.read_bytes()
    for size in (0, 7, 8, 100, len(whole) - 1):
        path.write_bytes(whole[:size])
        refused("path: found '.*', which is (truncated|damaged), needed one that save has written", fovea.KVCache.load, path)
    # Any byte: of the size, of the header and of the elements.
    for place in [*range(8), *range(8, len(whole), 37)]:
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        refused("path: found '.*', which is .*, needed one that save has written", fovea.KVCache.load, path)
    path.write_bytes(whole + b"\0")
    refused("damaged", fovea.KVCache.load, path)
    path.write_bytes(whole)
    assert fovea.KVCache.load(path).lengths.tolist() == [6, 6]
    refused("path: found '.*', No such file or directory, needed a file that can be read", fovea.KVCache.load, tmp_path / "none")
    refused("path: found '.*', No such .*, needed a file that can be written", cache.save, tmp_path / "none" / "cache")
    # Which is no file with the first part of the name.
    for call in (cache.save, fovea.KVCache.load, fovea.VQState.load):
        refused("path: found .*, needed one without null characters", call, f"{path}\0.safetensors")


def test_bad_input_changes_nothing():
    cache, q, k, v = filled()
    before = cache.attend(q)
    more = [np.concatenate([x, x], 2)[:, :, :5] for x in (k, v)]
    refused("k: found 5 tokens for batch entry 0 after 6, needed at most 4 for a capacity of 10", cache.append, *more)
    refused("k: found 5 tokens for batch entry 1", cache.append, *more, lengths=[4, 5])
    refused("lengths: found 6 for batch entry 1, needed 0 to 5", cache.append, *more, lengths=[4, 6])
    refused(r"lengths: found shape \(3,\), needed \(2,\)", cache.append, *more, lengths=[1, 1, 1])
    refused("v: found length 2, needed 1", cache.append, k[:, :, :1], v[:, :, :2])
    refused("k: found batch 1, needed 2", cache.append, k[:1], v[:1])
    refused("k: found heads 1, needed 2", cache.append, k[:, :1], v[:, :1])
    refused("v: found head width 8, needed 4", cache.append, k, k)
    refused("k: found rank 3, needed rank 4", cache.append, k[0], v[0])
    refused("k: found element type float64, needed float32", cache.append, k.astype(np.float64), v.astype(np.float64))
    refused("length: found 7 for batch entry 0, needed 0 to 6", cache.truncate, 7)
    refused("lengths: found 7 for batch entry 1, needed 0 to 6", cache.truncate, [6, 7])
    refused("length: found -1", cache.truncate, -1)
    refused("q: found element type float64, needed float32", cache.attend, q.astype(np.float64))
    refused("query_lengths", cache.attend, q, query_lengths=np.array([7, 7]))
    refused("q: found batch 1, needed 2", cache.attend, q[:1])
    refused("q: found 1 heads, needed a multiple of the 2 of keys", cache.attend, q[:, :1])
    refused("q: found head width 7, needed 8", cache.attend, q[..., :7])
    refused(r"q: found rank 3, needed rank 4 \[B,H,N,D\]", cache.attend, q[0])
    assert cache.lengths.tolist() == [6, 6] and np.array_equal(cache.attend(q), before)


def test_what_a_cache_cannot_be():
    refused("batch: found 0, needed an integer of at least 1", fovea.KVCache, 0, 1, 1, capacity=1)
    refused("capacity: found 0, needed", fovea.KVCache, 1, 1, 1, capacity=0)
    refused("value_width: found 0", fovea.KVCache, 1, 1, 1, 0, capacity=1)
    refused("dtype: found 'int32', needed", fovea.KVCache, 1, 1, 1, dtype=np.int32, capacity=1)
    refused("dtype: found None, needed an element type", fovea.KVCache, 1, 1, 1, dtype=None, capacity=1)
    refused("layout: found 'nbhd', needed 'bhnd' or 'bnhd'", fovea.KVCache, 1, 1, 1, capacity=1, layout="nbhd")
    refused("capacity: found", fovea.KVCache, 2**40, 2**20, 2**20, capacity=2**30, error=MemoryError)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_one_kernel_for_all_lengths(layout):
    q, k, v = (own_layout(x, layout) for x in make(B=2, H=4, G=2, N=64, D=16))

    def part(x, low, high):
        return x[:, :, low:high] if layout == "bhnd" else x[:, low:high]

    cache = fovea.KVCache(2, 2, 16, capacity=64, layout=layout)
    cache.append(part(k, 0, 2), part(v, 0, 2))
    cache.attend(part(q, 1, 2))
    misses = _fovea.cache_statistics()[2]
    for token in range(2, 64):
        cache.append(part(k, token, token + 1), part(v, token, token + 1))
        cache.attend(part(q, token, token + 1))
    assert _fovea.cache_statistics()[2] == misses
