# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fast multipole attention from a cache in memory of a GPU, with a driver that pretends: what it asks of the driver.
Kernels do nothing; test_caches_emulated.py has their numbers."""

import ctypes
import gc
import json
import os
import struct

import numpy as np
import pytest
from conftest import make
from test_device_arrays import CUDA, DeviceArray
from test_device_caches import WAITS, Tokens, costs
from test_device_tensors import CURRENT, count, last_stream
from test_multipole_cache import weights_of

import fovea

COUNT, GROUP, RANK = SHAPE = (61, 8, 2)
HOST = "cuMemcpyDtoHAsync_v2", "cuMemcpyDtoH_v2"


class MultipoleCache(fovea.MultipoleCache):
    """As that of fovea.torch."""

    _attend, _append, _decode = "attend_tensor", "append_tensor", "decode_tensor"


def families(device=0):
    """Weights and biases, which a cache reads as long as it lives."""
    weights, options = weights_of(SHAPE, biases=True)
    lists = weights + [options.pop("key_biases"), options.pop("value_biases")]
    names = "key_weights", "value_weights", "key_biases", "value_biases"
    return {name: [DeviceArray(each, device=device) for each in family] for name, family in zip(names, lists)}


def create(cls=MultipoleCache, device=0):
    return cls(**families(device), group=GROUP, heads=2, batch=2, target="gpu", device=device)


def tokens(first=0, end=COUNT, device=0):
    rows = make(B=2, H=4, G=2, N=COUNT, D=16, E=12)
    return [Tokens(np.ascontiguousarray(each[:, :, first:end]), device=device) for each in rows]


def stored(cache, path):
    """The tokens of a file."""
    cache.save(path)
    data = path.read_bytes()
    size, = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    arrays = {}
    for name in ("key_tokens", "value_tokens"):
        begin, end = header[name]["data_offsets"]
        arrays[name] = np.frombuffer(data[8 + size :][begin:end], np.float32).reshape(header[name]["shape"])
    return arrays


def test_tokens_are_where_they_belong(tmp_path):
    cache = create(device=1)
    assert cache._cache.target == "gpu" and cache._cache.device == 1
    weights, options = weights_of(SHAPE, biases=True)
    host, rows = fovea.MultipoleCache(*weights, heads=2, batch=2, **options), make(B=2, H=4, G=2, N=COUNT, D=16, E=12)
    done = 0
    for end in (5, 8, 9, 30, 31, 40):
        part = tokens(done, end, device=1)
        if end == 31:
            fork = cache.fork()
        if end - done == 1:
            assert fovea.fast_multipole_decode(*part, cache).place == (CUDA, 1)
        else:
            cache.append(*part[1:])
        assert last_stream() == CURRENT + 1
        host.append(*(np.ascontiguousarray(each[:, :, done:end]) for each in rows[1:]))
        done = end
        assert cache.length == host.length == end and cache.capacity == host.capacity
        found, expected = stored(cache, tmp_path / "found"), stored(host, tmp_path / "expected")
        for name in expected:
            np.testing.assert_array_equal(found[name], expected[name])
    assert fork.length == 30 and fork._cache.device == 1
    # What kernels add to is a copy.
    assert cache.nbytes == fork.nbytes == 2 * host.nbytes
    loaded = MultipoleCache.load(tmp_path / "expected", **families(1), group=GROUP, heads=2, batch=2, target="gpu", device=1)
    assert loaded.length == 40
    np.testing.assert_array_equal(stored(loaded, tmp_path / "again")["key_tokens"], expected["key_tokens"])


def test_nothing_waits_and_the_host_reads_nothing():
    cache, (q, k, v), (_, many, more) = create(), tokens(0, 1), tokens(0, 7)
    assert costs(cache.append, k, v) == (2, 0)
    assert costs(cache.attend, q) == (0, 0)
    before = count(*WAITS, *HOST)
    launches = count("cuLaunchKernel")
    cache.append(many, more)
    assert count("cuLaunchKernel") == launches
    # A group begins: the one before it is added to the sums of all levels.
    fovea.fast_multipole_decode(q, k, v, cache)
    assert cache.length == 9 and count("cuLaunchKernel") > launches and last_stream() == CURRENT
    _, many, more = tokens(0, 40)
    cache.append(many, more)
    out = Tokens(np.zeros((2, 4, 1, 12)))
    assert cache.attend(q, out=out) is out
    assert count(*WAITS, *HOST) == before


def test_on_a_stream_of_the_caller():
    q, k, v = (DeviceArray(np.zeros((2, heads, 1, width))) for heads, width in ((4, 16), (2, 16), (2, 12)))
    cache = create(fovea.MultipoleCache)
    with fovea.gpu_stream(0x5000):
        assert costs(fovea.fast_multipole_decode, q, k, v, cache)[1] == 0
        assert last_stream() == 0x5000
    # Whoever reads the memory next may do so anywhere.
    assert costs(cache.append, k, v)[1] > 0


def test_memory_is_freed_behind_all_work():
    in_use = ctypes.CDLL(os.environ["FOVEA_FAKE_CUDA"]).fakeCudaUsedBytes
    in_use.restype = ctypes.c_size_t
    gc.collect()
    before, cache = in_use(), create()
    fork = cache.fork()
    assert in_use() >= before + 2 * cache.nbytes
    used, waits, size = in_use(), count(*WAITS), cache.nbytes
    del cache, fork
    gc.collect()
    assert in_use() <= used - 2 * size and count(*WAITS) > waits


def test_arrays_elsewhere():
    cache, there = create(device=1), tokens(0, 1)
    here, host = tokens(0, 1, device=1), [np.zeros((2, heads, 1, width), np.float32) for heads, width in ((4, 16), (2, 16), (2, 12))]
    for place, wrong in {"in CPU memory": host, "on GPU 0": there}.items():
        for number, name in enumerate("qkv"):
            given = [*here[:number], wrong[number], *here[number + 1 :]]
            with pytest.raises(ValueError, match=f"^{name}: found an array {place}, needed one on GPU 1, where the cache is$"):
                fovea.fast_multipole_decode(*given, cache)
    with pytest.raises(ValueError, match="^out: found an array on GPU 0, needed one on GPU 1, where the cache is$"):
        cache.attend(here[0], out=Tokens(np.zeros((2, 4, 1, 12))))
    assert cache.length == 0
    weights, options = weights_of(SHAPE)
    with pytest.raises(ValueError, match="^key_weights.0.: found an array in CPU memory, needed one on GPU 0, where the cache is$"):
        MultipoleCache(*weights, heads=2, target="gpu", **options)
    with pytest.raises(ValueError, match="^value_biases.1.: found an array on GPU 1, needed one on GPU 0, where the cache is$"):
        given = families()
        given["value_biases"][1] = families(1)["value_biases"][1]
        MultipoleCache(**given, group=GROUP, heads=2, batch=2, target="gpu")
    with pytest.raises(ValueError, match="^device: found 2, needed 0 to 1$"):
        MultipoleCache(*weights, heads=2, target="gpu", device=2, **options)
    with pytest.raises(ValueError, match="^device: found 1, needed 0 for the target 'cpu'$"):
        MultipoleCache(*weights, heads=2, device=1, **options)


@pytest.mark.parametrize("call", ["cuMemcpy2DAsync_v2", "cuLaunchKernel", "cuMemcpyHtoDAsync_v2"])
def test_what_fails_changes_nothing(call, tmp_path):
    """Tokens with which several groups begin."""
    driver = ctypes.CDLL(os.environ["FOVEA_FAKE_CUDA"])
    cache, (_, k, v) = create(), tokens(0, 20)
    cache.append(k, v)
    before = stored(cache, tmp_path / "before")
    fork = cache.fork()
    calls = count(call)
    fork.append(k, v)
    calls = count(call) - calls
    assert calls > 0
    for successes in range(calls):
        driver.fakeCudaFail(call.encode(), 700, successes)
        with pytest.raises(fovea.FoveaError, match="CUDA_ERROR"):
            cache.append(k, v)
        driver.fakeCudaFail(b"", 0, 0)
        assert cache.length == 20
    after = stored(cache, tmp_path / "after")
    for name in before:
        np.testing.assert_array_equal(after[name], before[name])
    cache.append(k, v)
    assert cache.length == 40


def test_in_a_graph():
    """The host counts tokens: one error, and the capture stays valid."""
    driver = ctypes.CDLL(os.environ["FOVEA_FAKE_CUDA"])
    driver.fakeCudaCapture.restype = ctypes.c_char_p
    cache, (q, k, v) = create(), tokens(0, 1)
    fovea.fast_multipole_decode(q, k, v, cache)
    match = "^cache: the host counts its tokens, which a CUDA graph that is being captured cannot hold$"
    with fovea.gpu_stream(CURRENT):
        driver.fakeCudaCapture(ctypes.c_void_p(CURRENT))
        try:
            calls = (cache.append, k, v), (cache.attend, q), (cache.save, "nowhere"), (cache.fork,)
            for call, *arguments in (*calls, (fovea.fast_multipole_decode, q, k, v, cache)):
                with pytest.raises(ValueError, match=match):
                    call(*arguments)
        finally:
            faults = driver.fakeCudaCapture(None)
    assert faults == b""
    assert cache.length == 1
