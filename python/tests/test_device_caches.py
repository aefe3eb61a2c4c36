# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Caches in memory of a GPU, with a driver that pretends: what they hold, and what they ask of the driver.  Kernels
do nothing; test_caches_emulated.py has their numbers."""

import ctypes
import gc
import os

import numpy as np
import pytest
from conftest import make
from test_device_arrays import CUDA, DeviceArray
from test_device_tensors import CURRENT, DeviceTensor, count, last_stream

import fovea

WAITS = "cuCtxSynchronize", "cuStreamSynchronize"
COPIES = "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuMemcpyDtoDAsync_v2", "cuMemcpy2DAsync_v2"


class Tokens(DeviceTensor):
    """A tensor whose axes can be swapped."""

    ndim = 4

    def swapaxes(self, one, other):
        shape = list(self.shape)
        strides = [shape[1] * shape[2] * shape[3], shape[2] * shape[3], shape[3], 1]
        for values in (shape, strides):
            values[one], values[other] = values[other], values[one]
        view = Tokens.__new__(Tokens)
        view.__dict__.update(self.__dict__)
        view.shape = (ctypes.c_int64 * 4)(*shape)
        view.own_strides = (ctypes.c_int64 * 4)(*strides)
        view.tensor = type(self.tensor)(
            self.tensor.data, CUDA, self.tensor.device, 4, 2, 32, 1, view.shape, view.own_strides
        )
        return view


# As those of fovea.torch.


class KVCache(fovea.KVCache):
    _attend, _append = "attend_tensor", "append_tensor"


class PagedCache(fovea.PagedCache):
    _attend, _append = "attend_tensor", "append_tensor"


def kv(capacity=40, cls=KVCache, **options):
    return cls(2, 2, 16, 12, capacity=capacity, **options)


def paged(pages=30, cls=PagedCache, page=4, **options):
    return cls(pages, page, 2, 16, 12, batch=2, **options)


def paged_in_few(**options):
    """Rows for more pages than two of each sequence are copied by a kernel."""
    return paged(page=16, **options)


KINDS = {"kv": (kv, fovea.KVCache), "paged": (paged_in_few, fovea.PagedCache)}


def own(array, layout):
    return np.ascontiguousarray(array if layout == "bhnd" else array.swapaxes(1, 2))


def compare(cache, host, path):
    """That both have the same tokens."""
    cache.save(path)
    loaded = type(host).load(path)
    assert loaded.lengths.tolist() == host.lengths.tolist() == cache.lengths.tolist()
    assert loaded.nbytes == host.nbytes == cache.nbytes
    q = np.ones((2, 4, 1, 16), np.float32)
    q = q.swapaxes(1, 2) if cache._cache.tokens_first else q
    np.testing.assert_array_equal(loaded.attend(q), host.attend(q))


@pytest.mark.parametrize("layout", ["bhnd", "bnhd"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_they_hold(kind, layout, tmp_path):
    create, host_class = KINDS[kind]
    options = {"layout": layout}
    cache, host = create(target="gpu", device=1, **options), create(cls=host_class, **options)
    assert cache._cache.target == "gpu" and cache._cache.device == 1
    _, k, v = make(B=2, H=4, G=2, N=35, D=16, E=12)
    done = 0
    for number, lengths in ((7, None), (6, [2, 6]), (1, [0, 1]), (1, None), (13, [9, 13]), (1, None)):
        given = [own(each[:, :, done : done + number], layout) for each in (k, v)]
        cache.append(*(Tokens(each, device=1) for each in given), lengths=lengths)
        host.append(*given, lengths=lengths)
        assert last_stream() == CURRENT + 1
        done += number
    compare(cache, host, tmp_path / "cache")
    fork, host_fork = cache.fork(), host.fork()
    for each, other in ((cache, host), (fork, host_fork)):
        each.truncate([10, 11])
        other.truncate([10, 11])
        given = [own(each[:, :, done : done + 1], layout) for each in (k, v)]
        each.append(*(Tokens(array, device=1) for array in given))
        other.append(*given)
        done += 1
    compare(cache, host, tmp_path / "cache")
    compare(fork, host_fork, tmp_path / "cache")
    again = type(cache).load(tmp_path / "cache", target="gpu", device=1)
    assert again._cache.device == 1
    compare(again, host_fork, tmp_path / "again")


def test_values_in_keys(tmp_path):
    options = {"capacity": 9, "values_are_keys": True}
    cache, host = KVCache(2, 1, 16, 12, target="gpu", **options), fovea.KVCache(2, 1, 16, 12, **options)
    _, k, _ = make(B=2, H=1, G=1, N=5, D=16)
    cache.append(Tokens(k))
    host.append(k)
    compare(cache, host, tmp_path / "cache")


def costs(call, *arguments, **options):
    before = count(*COPIES), count(*WAITS)
    call(*arguments, **options)
    return count(*COPIES) - before[0], count(*WAITS) - before[1]


def test_a_token_is_one_copy_of_each_side_and_waits_for_nothing():
    rows = [np.zeros((2, 2, 1, width), np.float32) for width in (16, 12)]
    k, v = map(Tokens, rows)
    q = Tokens(np.zeros((2, 4, 1, 16)))
    cache = kv(target="gpu")
    assert costs(cache.append, k, v) == (2, 0)
    assert cache.attend(q).place == (CUDA, 0) and last_stream() == CURRENT
    assert costs(cache.attend, q) == (0, 0)
    # A prompt, heads of which are as many runs.
    prompt = [Tokens(np.zeros((2, 2, 9, width))) for width in (16, 12)]
    assert costs(cache.append, *prompt) == (2, 0)
    turned = kv(target="gpu", layout="bnhd")
    tokens = [Tokens(np.zeros((2, 9, 2, width))) for width in (16, 12)]
    assert costs(turned.append, *tokens) == (2, 0)
    assert costs(cache.append, k, v, lengths=[1, 0]) == (2, 0)
    # Sequences of their own lengths are copied each.
    assert costs(cache.append, k, v) == (4, 0)
    out = Tokens(np.zeros((2, 4, 1, 12)))
    assert cache.attend(q, query_lengths=[1, 0], out=out) is out
    pages = paged(target="gpu")
    assert costs(pages.append, k, v) == (4, 0)
    assert pages.attend(q).place == (CUDA, 0)


def test_nothing_to_read():
    """Results are where others are, and the host writes them by the driver alone."""
    q, out = Tokens(np.ones((2, 4, 1, 16)), device=1), Tokens(np.ones((2, 4, 1, 12)), device=1)
    for create in (kv, paged):
        cache = create(target="gpu", device=1)
        assert cache.attend(q).place == (CUDA, 1)
        copies = count("cuMemcpyHtoDAsync_v2")
        assert cache.attend(q, out=out) is out
        assert create is paged or count("cuMemcpyHtoDAsync_v2") == copies + 1
    values = np.empty((2, 4, 1, 12), np.float32)
    ctypes.memmove(values.ctypes.data, out.tensor.data, values.nbytes)
    assert not values.any()


def test_on_a_stream_of_the_caller():
    arrays = [DeviceArray(np.zeros((2, 2, 1, width))) for width in (16, 12)]
    q = DeviceArray(np.zeros((2, 4, 1, 16)))
    for create in (kv, paged):
        cache = create(target="gpu", cls={kv: fovea.KVCache, paged: fovea.PagedCache}[create])
        with fovea.gpu_stream(0x5000):
            assert costs(cache.append, *arrays)[1] == 0
            assert last_stream() == 0x5000
            assert costs(cache.attend, q)[1] == 0
        # Whoever reads the memory next may do so anywhere.
        assert costs(cache.append, *arrays)[1] > 0


def test_memory_is_freed_behind_all_work():
    in_use = ctypes.CDLL(os.environ["FOVEA_FAKE_CUDA"]).fakeCudaUsedBytes
    in_use.restype = ctypes.c_size_t
    gc.collect()
    for create in (kv, paged):
        before = in_use()
        cache = create(target="gpu")
        fork = cache.fork()
        assert in_use() >= before + cache.nbytes
        waits = count(*WAITS)
        del cache, fork
        assert in_use() == before and count(*WAITS) > waits


def test_arrays_elsewhere():
    rows = {name: np.zeros((2, 2, 1, width), np.float32) for name, width in (("k", 16), ("v", 12))}
    here = {name: Tokens(each, device=1) for name, each in rows.items()}
    there = {name: Tokens(each, device=0) for name, each in rows.items()}
    q = np.zeros((2, 4, 1, 16), np.float32)
    places = {"in CPU memory": rows, "on GPU 0": there}
    for create in (kv, paged):
        cache = create(target="gpu", device=1)
        cache.append(**here)
        for place, wrong in places.items():
            for name in ("k", "v"):
                with pytest.raises(ValueError, match=f"^{name}: found an array {place}, needed one on GPU 1, where the cache is$"):
                    cache.append(**{**here, name: wrong[name]})
        for place, wrong in (("in CPU memory", q), ("on GPU 0", Tokens(q))):
            with pytest.raises(ValueError, match=f"^q: found an array {place}, needed one on GPU 1, where the cache is$"):
                cache.attend(wrong)
        with pytest.raises(ValueError, match="^out: found an array on GPU 0, needed one on GPU 1, where the cache is$"):
            cache.attend(Tokens(q, device=1), out=Tokens(q[..., :12]))
        with pytest.raises(ValueError, match="^lengths: .* needed an array or lists that make one"):
            cache.append(**here, lengths=DeviceTensor(np.zeros(2), device=1))
        assert cache.lengths.tolist() == [1, 1]


def test_errors_before_anything_is_written(tmp_path):
    _, k, v = make(B=2, H=4, G=2, N=9, D=16, E=12)
    for cache, full in (
        (kv(capacity=9, target="gpu"), "k: found 9 tokens for batch entry 0 after 4, needed at most 5 for a capacity of 9"),
        (paged(pages=3, target="gpu"), "k: found tokens for 6 more pages, needed at most 1, those of 3 that are free"),
    ):
        cache.append(*(Tokens(each[:, :, :4]) for each in (k, v)))
        copies = count(*COPIES)
        with pytest.raises(ValueError, match=f"^{full}"):
            cache.append(Tokens(k), Tokens(v))
        with pytest.raises(ValueError, match="^lengths: found 10 for batch entry 1, needed 0 to 9"):
            cache.append(Tokens(k), Tokens(v), lengths=[1, 10])
        wide = Tokens(k)
        wide.tensor.bits = 16
        with pytest.raises(ValueError, match="^k: found element type float16, needed float32"):
            cache.append(wide, Tokens(v))
        with pytest.raises(ValueError, match="^length: found 5 for batch entry 0, needed 0 to 4"):
            cache.truncate(5)
        assert count(*COPIES) == copies and cache.lengths.tolist() == [4, 4]
    for create in (kv, paged):
        with pytest.raises(ValueError, match="^dtype: found float64, needed one of float16, bfloat16, float32 on a GPU$"):
            create(target="gpu", dtype="float64")
        with pytest.raises(ValueError, match="^device: found 2, needed 0 to 1$"):
            create(target="gpu", device=2)
        with pytest.raises(ValueError, match="^device: found 1, needed 0 for the target 'cpu'$"):
            create(device=1)
        with pytest.raises(ValueError, match="^target: found 'cuda', needed 'cpu', 'reference', 'gpu' or 'gpu-sim'$"):
            create(target="cuda")
    with pytest.raises(MemoryError, match="^capacity: found 99999999 tokens, needed memory for them: out of memory on device 0"):
        kv(capacity=99999999, target="gpu")
    with pytest.raises(ValueError, match="^out: found none, needed an array .B,N,H,E. for layout 'bnhd' on a GPU$"):
        kv(target="gpu", layout="bnhd").attend(Tokens(np.zeros((2, 1, 4, 16))))


def test_a_copy_that_fails_changes_nothing(tmp_path):
    """A token behind a page that two forks have."""
    driver = ctypes.CDLL(os.environ["FOVEA_FAKE_CUDA"])
    _, k, v = make(B=2, H=4, G=2, N=9, D=16, E=12)
    tokens = [Tokens(each[:, :, :6]) for each in (k, v)]
    for create, host_class in KINDS.values():
        cache, host = create(target="gpu"), create(cls=host_class)
        cache.append(*tokens)
        host.append(*(each[:, :, :6] for each in (k, v)))
        fork = cache.fork()
        free = getattr(cache, "free_pages", None)
        for successes in (0, 1):
            driver.fakeCudaFail(b"cuMemcpy2DAsync_v2", 700, successes)
            with pytest.raises(fovea.FoveaError, match="cannot copy .* on device 0: CUDA_ERROR"):
                cache.append(*tokens)
            driver.fakeCudaFail(b"", 0, 0)
        assert getattr(cache, "free_pages", None) == free
        compare(cache, host, tmp_path / "cache")
        compare(fork, host, tmp_path / "cache")


def test_in_a_graph():
    """The host counts tokens: one error, and the capture stays valid."""
    driver = ctypes.CDLL(os.environ["FOVEA_FAKE_CUDA"])
    driver.fakeCudaCapture.restype = ctypes.c_char_p
    k, v = (Tokens(np.zeros((2, 2, 1, width))) for width in (16, 12))
    q = Tokens(np.zeros((2, 4, 1, 16)))
    caches = [create(target="gpu") for create in (kv, paged)]
    for cache in caches:
        cache.append(k, v)
        cache.attend(q)
    match = "^cache: the host counts its tokens, which a CUDA graph that is being captured cannot hold$"
    with fovea.gpu_stream(CURRENT):
        driver.fakeCudaCapture(ctypes.c_void_p(CURRENT))
        try:
            for cache in caches:
                calls = [(cache.append, k, v), (cache.attend, q), (cache.save, "nowhere")]
                calls += [(cache.fork,)] * (cache is caches[0])
                for call, *arguments in calls:
                    with pytest.raises(ValueError, match=match):
                        call(*arguments)
            with pytest.raises(ValueError, match=match):
                kv(target="gpu")
        finally:
            faults = driver.fakeCudaCapture(None)
    assert faults == b""
    assert [each.lengths.tolist() for each in caches] == [[1, 1]] * 2
