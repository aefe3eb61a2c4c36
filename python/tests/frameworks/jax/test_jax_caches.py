# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Caches of arrays of JAX, against functions of all tokens at once, and states of vq."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import BOUNDS, make, make_biases, make_weights
from jax_cases import near, to_jax

import fovea
import fovea.jax
from fovea.math import tanh


@pytest.mark.parametrize("layout", ["bhnd", "bnhd"])
@pytest.mark.parametrize("type", BOUNDS)
def test_keys_and_values(type, layout, tmp_path):
    with jax.enable_x64(type == "float64"):
        q, k, v = to_jax(*make(type, B=2, H=4, G=2, N=9, D=16))
        table = fovea.capture(jnp.linspace(-1, 1, 9))
        options = {"score": lambda s, b, h, i, j: 2 * tanh(s / 2) + table[j], "window": 5}
        expected, rows = fovea.jax.dense(q, k, v, causal=True, return_lse=True, **options)

        def own(x):
            return x if layout == "bhnd" else x.swapaxes(1, 2)

        cache = fovea.jax.KVCache(2, 2, 16, capacity=9, dtype=type, layout=layout)
        cache.append(own(k[:, :, :8]), own(v[:, :, :8]))
        cache.save(tmp_path / "cache")
        for each in (cache, cache.fork(), fovea.jax.KVCache.load(tmp_path / "cache")):
            each.append(own(k[:, :, 8:]), own(v[:, :, 8:]))
            out, lse = each.attend(own(q[:, :, 8:]), return_lse=True, **options)
            assert isinstance(each, fovea.jax.KVCache) and isinstance(out, jax.Array) and out.dtype == q.dtype
            near(own(out), expected[:, :, 8:], BOUNDS[type])
            near(lse, rows[:, :, 8:], 1e-5)


@pytest.mark.parametrize("layout", ["bhnd", "bnhd"])
def test_in_the_emulator(layout, tmp_path):
    q, k, v = to_jax(*make(B=2, H=4, G=2, N=9, D=16))
    expected = fovea.jax.dense(q, k, v, causal=True)

    def own(x):
        return x if layout == "bhnd" else x.swapaxes(1, 2)

    cache = fovea.jax.KVCache(2, 2, 16, capacity=9, layout=layout, target="gpu-sim", device=jax.devices("cpu")[0])
    cache.append(own(k), own(v))
    near(own(cache.attend(own(q))), expected, 1e-5)
    with pytest.raises(ValueError, match="^device: found 'cuda:0', needed one of jax.devices"):
        fovea.jax.KVCache(2, 2, 16, capacity=9, device="cuda:0")


def multipole_cache(N=21, **place):
    weights = [to_jax(*make_weights(N, 4, 2, 8, seed=seed)) for seed in (0, 1)]
    biases = [to_jax(*make_biases(N, 4, 2, 8, seed=seed)) for seed in (10, 11)]
    named = dict(zip(("key_weights", "value_weights", "key_biases", "value_biases"), map(list, weights + biases)))
    return named, fovea.jax.MultipoleCache(**named, group=4, heads=2, batch=2, **place)


def test_fast_multipole():
    q, k, v = to_jax(*make(B=2, H=4, G=2, N=21, D=8))
    named, cache = multipole_cache()
    expected = fovea.jax.fast_multipole(q, k, v, group=4, causal=True, **named)
    for token in range(21):
        part = [each[:, :, token : token + 1] for each in (q, k, v)]
        found = fovea.jax.fast_multipole_decode(*part, cache)
        assert isinstance(found, jax.Array)
        near(found, expected[:, :, token : token + 1])
        near(cache.attend(part[0]), found)
    _, emulated = multipole_cache(target="gpu-sim", device=jax.devices("cpu")[0])
    emulated.append(k, v)
    near(emulated.attend(q[:, :, 20:]), expected[:, :, 20:])
    with pytest.raises(ValueError, match="^device: found 'cuda:0', needed one of jax.devices"):
        multipole_cache(device="cuda:0")


def test_traced_arrays_are_refused():
    q, k, v = to_jax(*make(B=2, H=4, G=2, N=9, D=16))
    cache, other = fovea.jax.KVCache(2, 2, 16, capacity=9), multipole_cache()[1]
    match = "found an array that is traced, needed one with values: caches change in place"
    for call in (
        lambda x: cache.append(x, v),
        lambda x: cache.attend(x),
        lambda x: cache.attend(q, sink=x[0, :4, 0, 0]),
        lambda x: cache.attend(q, score=lambda s, b, h, i, j: s + fovea.capture(x)[b, 0, 0, 0]),
        lambda x: other.append(x, v),
    ):
        for transform in (jax.jit, jax.grad):
            with pytest.raises(ValueError, match=match):
                transform(call)(k)
    assert cache.lengths.tolist() == [0, 0]


def test_errors():
    q, k, v = to_jax(*make(B=2, H=4, G=2, N=9, D=16))
    cache = fovea.jax.KVCache(2, 2, 16, capacity=9)
    with pytest.raises(ValueError, match="k: found element type bfloat16, needed float32"):
        cache.append(k.astype(jnp.bfloat16), v)
    with pytest.raises(ValueError, match="cache: found KVCache, needed a fovea.jax.MultipoleCache"):
        fovea.jax.fast_multipole_decode(q, k, v, cache)


def test_states_of_vq(tmp_path):
    """They are arrays: what was saved goes on in a compiled program."""
    q, k, v = to_jax(*make(B=2, H=4, G=2, N=16, D=8))
    codebook = jnp.asarray(np.random.default_rng(5).standard_normal((2, 11, 8)), jnp.float32)
    expected = fovea.jax.vq(q, k, v, codebook, block=4)
    _, state = fovea.jax.vq(q[:, :, :8], k[:, :, :8], v[:, :, :8], codebook, block=4, return_state=True)
    state.save(tmp_path / "state")
    for each in (state, state.fork(), fovea.jax.VQState.load(tmp_path / "state")):
        rest = jax.jit(lambda q, state=each: fovea.jax.vq(q, k[:, :, 8:], v[:, :, 8:], codebook, block=4, state=state))
        near(rest(q[:, :, 8:]), expected[:, :, 8:])


def test_pages():
    """A cache of pages is one of whole sequences."""
    q, k, v = (np.random.default_rng(0).standard_normal((2, heads, 9, 16)).astype(np.float32) for heads in (4, 2, 2))
    whole, cache = fovea.jax.KVCache(2, 2, 16, capacity=9), fovea.jax.PagedCache(9, 4, 2, 16, batch=2)
    for each in (whole, cache):
        each.append(k, v, lengths=[9, 3])
    found = cache.attend(q[:, :, :3])
    assert isinstance(found, jax.Array) and isinstance(cache.fork(), fovea.jax.PagedCache)
    np.testing.assert_allclose(found, whole.attend(q[:, :, :3]), rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match="q: found an array that is traced"):
        jax.jit(cache.attend)(q)
