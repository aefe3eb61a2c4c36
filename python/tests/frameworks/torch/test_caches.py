# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Caches of tensors, against functions of all tokens at once."""

import pytest
import torch
from torch_cases import multipole

import fovea
import fovea.torch
from fovea.math import tanh

TYPES = {torch.float32: 1e-5, torch.float64: 1e-12, torch.bfloat16: 2e-2, torch.float16: 3e-3}


def tensors(type=torch.float32, N=9):
    torch.manual_seed(0)
    return [torch.randn(2, heads, N, 16).to(type) for heads in (4, 2, 2)]


def near(found, expected, type=torch.float32):
    assert isinstance(found, torch.Tensor) and found.dtype == type and found.shape == expected.shape
    assert (found.double() - expected.double()).abs().max() <= TYPES[type] * expected.double().abs().max()


@pytest.mark.parametrize("layout", ["bhnd", "bnhd"])
@pytest.mark.parametrize("type", TYPES)
def test_keys_and_values(type, layout):
    q, k, v = tensors(type)
    table = fovea.capture(torch.linspace(-1, 1, 9))
    options = {"score": lambda s, b, h, i, j: 2 * tanh(s / 2) + table[j], "window": 5, "sink": torch.zeros(4, dtype=type)}
    expected, rows = fovea.torch.dense(q, k, v, causal=True, return_lse=True, **options)

    def own(x):
        return x if layout == "bhnd" else x.transpose(1, 2)

    cache = fovea.torch.KVCache(2, 2, 16, capacity=9, dtype=type, layout=layout)
    cache.append(own(k[:, :, :7]), own(v[:, :, :7]))
    fork = cache.fork()
    for token in (7, 8):
        one = slice(token, token + 1)
        cache.append(own(k[:, :, one]), own(v[:, :, one]))
        out, lse = cache.attend(own(q[:, :, one]), return_lse=True, **options)
        near(own(out), expected[:, :, one], type)
        near(lse, rows[:, :, one], rows.dtype)
    assert isinstance(fork, fovea.torch.KVCache)
    assert torch.equal(fork.lengths, torch.tensor([7, 7])) and torch.equal(cache.lengths, torch.tensor([9, 9]))
    near(own(fork.attend(own(q[:, :, 6:7]), **options)), expected[:, :, 6:7], type)


def test_sequences_of_their_own_lengths(tmp_path):
    q, k, v = tensors()
    cache = fovea.torch.KVCache(2, 2, 16, capacity=9)
    cache.append(k, v, lengths=torch.tensor([4, 9]))
    cache.save(tmp_path / "cache")
    loaded = fovea.torch.KVCache.load(tmp_path / "cache")
    for each in (cache, loaded):
        out = each.attend(q[:, :, :1])
        for b, length in enumerate((4, 9)):
            near(out[b : b + 1], fovea.torch.dense(q[b : b + 1, :, :1], k[b : b + 1, :, :length], v[b : b + 1, :, :length]))
    cache.truncate(torch.tensor([4, 2]))
    assert cache.lengths.tolist() == [4, 2]


def test_unaligned_weights():
    """A copy of them lives as long as the cache."""

    def unaligned(x):
        raw = torch.empty(x.nbytes + 1, dtype=torch.uint8)
        raw[1:] = x.reshape(-1).view(torch.uint8)
        return torch.frombuffer(raw.numpy(), dtype=x.dtype, offset=1).reshape(x.shape)

    given, found = multipole(9, torch.float32), []
    q, k, v = (given.pop(name) for name in "qkv")
    for change in (torch.clone, unaligned):
        changed = {name: [change(x) if name.endswith("weights") else x for x in family] for name, family in given.items()}
        cache = fovea.torch.MultipoleCache(**changed, group=2, heads=2, batch=2)
        # Memory that would be taken again.
        others = [torch.full_like(x, torch.nan) for family in changed.values() for x in family]
        cache.append(k, v)
        found.append(cache.attend(q[:, :, -1:]))
        del others
    assert torch.equal(*found)


@pytest.mark.parametrize("type", TYPES)
def test_fast_multipole(type):
    given = multipole(9, type)
    q, k, v = (given.pop(name) for name in "qkv")
    expected = fovea.torch.fast_multipole(q, k, v, group=2, causal=True, **given)
    cache = fovea.torch.MultipoleCache(**given, group=2, heads=2, batch=2)
    for token in range(9):
        part = [each[:, :, token : token + 1] for each in (q, k, v)]
        found = fovea.torch.fast_multipole_decode(*part, cache)
        near(found, expected[:, :, token : token + 1], type)
        near(cache.attend(part[0]), found, type)
    assert isinstance(cache.fork(), fovea.torch.MultipoleCache) and cache.device == q.device
    if type == torch.float64:
        return
    emulated = fovea.torch.MultipoleCache(**given, group=2, heads=2, batch=2, target="gpu-sim")
    emulated.append(k, v)
    near(emulated.attend(q[:, :, 8:]), expected[:, :, 8:], type)


def test_within_compiled_functions():
    """A break of the graph, and the same numbers."""
    q, k, v = tensors()

    def step(cache, q, k, v):
        cache.append(k * 2, v)
        return cache.attend(q) + 1

    found = torch.compile(step, backend="eager")(fovea.torch.KVCache(2, 2, 16, capacity=9), q, k, v)
    assert torch.equal(found, step(fovea.torch.KVCache(2, 2, 16, capacity=9), q, k, v))
    torch._dynamo.reset()
    with pytest.raises(Exception, match="caches of Fovea change in place"):
        torch.compile(step, backend="eager", fullgraph=True)(fovea.torch.KVCache(2, 2, 16, capacity=9), q, k, v)


def test_gradients_are_refused():
    q, k, v = tensors()
    cache = fovea.torch.KVCache(2, 2, 16, capacity=9)
    match = r"KVCache.append: k requires a gradient, but KVCache.append has none for it: pass k.detach\(\)"
    with pytest.raises(RuntimeError, match=match):
        cache.append(k.requires_grad_(), v)
    cache.append(k.detach(), v)
    for options in ({"sink": torch.zeros(4, requires_grad=True)}, {"bias": torch.zeros(1, 4, 9, 9, requires_grad=True)}):
        with pytest.raises(RuntimeError, match=f"KVCache.attend: {next(iter(options))} requires a gradient"):
            cache.attend(q, **options)
    slopes = fovea.capture(torch.ones(4, requires_grad=True))
    with pytest.raises(RuntimeError, match="captures.0. requires a gradient"):
        cache.attend(q, score=lambda s, b, h, i, j: s * slopes[h])
    given = multipole(9, torch.float32)
    tokens = [given.pop(name)[:, :, :1].requires_grad_() for name in "qkv"]
    with pytest.raises(RuntimeError, match="fast_multipole_decode: q requires a gradient"):
        fovea.torch.fast_multipole_decode(*tokens, fovea.torch.MultipoleCache(**given, group=2, heads=2, batch=2))


def test_in_the_emulator(tmp_path):
    """check_device.py has the same on a GPU."""
    q, k, v = tensors()
    for cache in (
        fovea.torch.KVCache(2, 2, 16, capacity=9, target="gpu-sim"),
        fovea.torch.PagedCache(9, 4, 2, 16, batch=2, target="gpu-sim"),
    ):
        assert cache.device == torch.device("cpu")
        cache.append(k, v, lengths=torch.tensor([4, 9]))
        cache.save(tmp_path / "cache")
        for each in (cache, type(cache).load(tmp_path / "cache", target="gpu-sim")):
            out = each.attend(q[:, :, :1], query_lengths=torch.tensor([1, 1]))
            for b, length in enumerate((4, 9)):
                near(out[b : b + 1], fovea.torch.dense(q[b : b + 1, :, :1], k[b : b + 1, :, :length], v[b : b + 1, :, :length]))


def test_places(tmp_path):
    assert fovea.torch.KVCache(2, 2, 16, capacity=9, device="cpu").device == torch.device("cpu")
    fovea.torch.KVCache(2, 2, 16, capacity=9).save(tmp_path / "cache")
    for match, options in {
        "device: found 'meta', needed a CPU or an NVIDIA GPU, such as 'cuda:0'": {"device": "meta"},
        "device: found 'cpu', needed an NVIDIA GPU, such as 'cuda:0'": {"device": "cpu", "target": "gpu"},
        "target: found 'gpu-sim', needed 'gpu' for the device 'cuda:0'": {"device": "cuda:0", "target": "gpu-sim"},
    }.items():
        for call, *sizes in ((fovea.torch.PagedCache, 9, 4, 2, 16), (fovea.torch.KVCache.load, tmp_path / "cache")):
            with pytest.raises(ValueError, match=match):
                call(*sizes, **options)
        with pytest.raises(ValueError, match=match):
            fovea.torch.MultipoleCache([torch.zeros(1, 1, 2, 8)], [torch.zeros(1, 1, 2, 8)], group=2, heads=1, **options)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_device():
    for place in ({"device": "cuda"}, {"device": torch.device("cuda:0")}, {"target": "gpu"}):
        with pytest.raises(fovea.FoveaError, match="^cannot use target 'gpu': there is no CUDA driver"):
            fovea.torch.KVCache(2, 2, 16, capacity=9, **place)
        with pytest.raises(fovea.FoveaError, match="^cannot use target 'gpu': there is no CUDA driver"):
            fovea.torch.MultipoleCache([torch.zeros(1, 1, 2, 8)], [torch.zeros(1, 1, 2, 8)], group=2, heads=1, **place)


def test_errors():
    q, k, v = tensors()
    cache = fovea.torch.KVCache(2, 2, 16, capacity=9)
    with pytest.raises(ValueError, match="k: found element type bfloat16, needed float32"):
        cache.append(k.bfloat16(), v)
    with pytest.raises(ValueError, match="k: "):
        cache.append(k.to("meta"), v)
    with pytest.raises(ValueError, match="dtype: found 'int32'"):
        fovea.torch.KVCache(2, 2, 16, capacity=9, dtype=torch.int32)
    with pytest.raises(ValueError, match="cache: found KVCache, needed a fovea.torch.MultipoleCache"):
        fovea.torch.fast_multipole_decode(q, k, v, cache)
    for kind in (fovea.torch.KVCache, fovea.torch.PagedCache):
        for device in ("text", -3, 1.5, "cpu:x"):
            with pytest.raises(ValueError, match="^device: found "):
                kind(2, 2, 16, 16, **({"capacity": 9} if kind is fovea.torch.KVCache else {}), device=device)
    assert cache.lengths.tolist() == [0, 0]


@pytest.mark.parametrize("layout", ["bhnd", "bnhd"])
def test_pages(layout, tmp_path):
    """A cache of pages is one of whole sequences."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, heads, 9, 16) for heads in (4, 2, 2))

    def own(x):
        return x if layout == "bhnd" else x.swapaxes(1, 2)

    whole, cache = fovea.torch.KVCache(2, 2, 16, capacity=18), fovea.torch.PagedCache(9, 4, 2, 16, batch=2, layout=layout)
    for lengths in ([9, 3], [1, 8]):
        whole.append(k, v, lengths=lengths)
        cache.append(own(k), own(v), lengths=lengths)
    cache.save(tmp_path / "cache")
    for each in (cache, cache.fork(), fovea.torch.PagedCache.load(tmp_path / "cache")):
        assert isinstance(each, fovea.torch.PagedCache) and each.lengths.tolist() == [10, 11] and each.free_pages == 3
        found = each.attend(own(q[:, :, :3]), window=7)
        assert isinstance(found, torch.Tensor)
        torch.testing.assert_close(own(found), whole.attend(q[:, :, :3], window=7))
    with pytest.raises(RuntimeError, match="PagedCache.attend: q requires a gradient"):
        cache.attend(q.requires_grad_())


@pytest.mark.parametrize("kind", ["KVCache", "PagedCache"])
def test_values_that_are_columns_of_keys(kind):
    q, k, _ = tensors()
    sizes, options = ((2, 2, 16), {"capacity": 9}) if kind == "KVCache" else ((6, 4, 2, 16), {"batch": 2})
    cache = getattr(fovea.torch, kind)(*sizes, 12, values_are_keys=True, **options)
    cache.append(k)
    near(cache.attend(q), fovea.torch.dense(q, k, k[..., :12], causal=True))


def test_shared_pages():
    q, k, v = (x[:1] for x in tensors())
    prompt = fovea.torch.PagedCache(9, 4, 2, 16)
    prompt.append(k, v)
    beams = prompt.fork(torch.tensor([0, 0, -1]))
    assert isinstance(beams, fovea.torch.PagedCache) and beams.lengths.tolist() == [9, 9, 0] and beams.free_pages == 6
    beams.append(*(x.expand(3, -1, -1, -1)[:, :, :2] for x in (k, v)))
    whole = [torch.cat([x, x[:, :, :2]], 2) for x in (k, v)]
    near(beams.attend(q.expand(3, -1, -1, -1)[:, :, :1])[1:2], fovea.torch.dense(q[:, :, :1], *whole, causal=True))
    near(prompt.attend(q), fovea.torch.dense(q, k, v, causal=True))
