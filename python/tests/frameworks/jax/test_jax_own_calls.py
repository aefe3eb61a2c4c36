# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions of fovea.jax in whole functions that Fovea compiles, against the same under XLA."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fovea
import fovea.jax
from fovea import _own_calls
from fovea._import_tool import main

pytest.importorskip("torch_mlir")

# Of NumPy: while tests are collected, JAX is not to choose its devices.
ARRAYS = np.random.default_rng(0).standard_normal((3, 2, 2, 16, 8), np.float32)
WEIGHTS = [np.full((1, 1, extent, 8), 1 / extent, np.float32) for extent in (4, 8)]
IDS = (np.arange(32, dtype=np.int32).reshape(2, 16) // 5) % 3


def dense(*arguments, **options):
    return fovea.jax.dense(*arguments, **options)


def scores(q, k, v):
    slopes = fovea.capture(jnp.array([0.5, 2.0]))
    return dense(q, k, v, score=lambda s, b, h, i, j: s * slopes[h] - abs(i - j), return_lse=True)


def far(q, k, v):
    return fovea.jax.fast_multipole(q, k, v, WEIGHTS, WEIGHTS, group=4)


def steps(q, k, v):
    def step(carried, _):
        found = dense(carried, k, v, causal=True)
        return found + carried, found.sum()

    return jax.lax.scan(step, q, None, length=3)


def batches(q, k, v):
    """Axes of vmap before a batch, of some of the arrays, and instead of one."""
    several = jax.vmap(lambda one: dense(one, k, v, causal=True))(jnp.stack([q, 2 * q, -q]))
    alone = jax.vmap(lambda *one: dense(*(each[None] for each in one))[0])(q, k, v)
    return several, alone, jax.vmap(jax.vmap(dense))(*(each[None, None] for each in (q, k, v)))


FUNCTIONS = {
    "dense": lambda q, k, v: dense(q * 2, k, v, causal=True, window=5) + 1,
    "bias, sink": lambda q, k, v: dense(q, k, v, bias=jnp.einsum("bhnd,bhmd->bhnm", q, k), sink=q[0, :, 0, :1].T * jnp.ones((2, 1))),
    "lengths": lambda q, k, v: dense(q, k, v, lengths=jnp.array([3, 9], jnp.int32), log_weight=k[..., 0]),
    "segments": lambda q, k, v: dense(q, k, v, causal=True, segments=(IDS, IDS)),
    "narrow": lambda q, k, v: dense(*(each.astype(jnp.bfloat16) for each in (q, k, v))),
    "scores": scores,
    "gradient": lambda q, k, v: jax.grad(lambda *each: (scores(*each)[0] ** 2).sum(), (0, 1, 2))(q, k, v),
    "far": far,
    "gradient of far": lambda q, k, v: jax.grad(lambda *each: far(*each).sum(), (0, 1, 2))(q, k, v),
    "stream": lambda q, k, v: fovea.jax.stream(q, [fovea.jax.Source(k, v, causal=True), fovea.jax.Source(v, k)]),
    "vq": lambda q, k, v: fovea.jax.vq(q, k, v, k[0, :, :4], block=8),
    "codes": lambda q, k, v: fovea.jax.quantize(q, k[0, :, :4]),
    "rope": lambda q, k, v: fovea.jax.rope(q, jnp.arange(16) * 3),
    "once more": lambda q, k, v: dense(dense(q, k, v), k, dense(k, q, v, causal=True)),
    "steps": steps,
    "branches": lambda q, k, v: jax.lax.cond(q.sum() > k.sum(), lambda: dense(q, k, v), lambda: q),
    "batches": batches,
}  # fmt: skip


@pytest.mark.parametrize("name", ["dense", "scores", "stream"])
def test_gpu(name):
    """A kernel of a GPU calls no function."""
    arrays = [*map(jnp.asarray, ARRAYS)]
    found = fovea.import_jax(FUNCTIONS[name], *arrays, target="gpu-sim")(*arrays)
    for mine, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(FUNCTIONS[name](*arrays)), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_equals_xla(name):
    function, arrays = FUNCTIONS[name], [*map(jnp.asarray, ARRAYS)]
    found, expected = fovea.jax.compile(function)(*arrays), function(*arrays)
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for mine, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected)):
        assert mine.dtype == theirs.dtype and mine.shape == theirs.shape
        np.testing.assert_allclose(np.asarray(mine, np.float64), np.asarray(theirs, np.float64), rtol=1e-5, atol=1e-5)


def test_reference():
    program = fovea.import_jax(FUNCTIONS["dense"], *ARRAYS, target="reference")
    np.testing.assert_allclose(program(*ARRAYS), np.asarray(FUNCTIONS["dense"](*ARRAYS)), rtol=1e-5, atol=1e-5)


def test_lengths_are_checked():
    def function(q, k, v, lengths):
        return dense(q, k, v, lengths=lengths)

    fast = fovea.jax.compile(function)
    lengths = jnp.array([0, 16], jnp.int32)
    np.testing.assert_allclose(fast(*ARRAYS, lengths), function(*ARRAYS, lengths), rtol=1e-5, atol=1e-5)
    with pytest.raises(fovea.FoveaError, match="17"):
        fast(*ARRAYS, jnp.array([0, 17], jnp.int32))


def test_files(tmp_path):
    """What jax.export writes has such calls as well."""
    check = jax.export.DisabledSafetyCheck.custom_call("fovea")
    exported = jax.export.export(jax.jit(FUNCTIONS["scores"]), platforms=["cpu"], disabled_checks=[check])(*ARRAYS)
    source, output = tmp_path / "exported.mlir", tmp_path / "model.mlir"
    source.write_text(exported.mlir_module())
    assert main([str(source), "-o", str(output)]) == 0
    for found, expected in zip(fovea.load(output)(*ARRAYS), FUNCTIONS["scores"](*map(jnp.asarray, ARRAYS)), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


REFUSED = {
    "found integers that are read before a kernel runs": lambda q, k, v: fovea.jax.varlen(
        *(each[0].swapaxes(0, 1) for each in (q, k, v)), jnp.array([0, 4, 16]), jnp.array([0, 4, 16])
    ),
    "found a call under jax.vmap whose arrays have no batch": lambda q, k, v: jax.vmap(lambda at: fovea.jax.rope(q, at))(
        jnp.arange(32).reshape(2, 16)
    ),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_is_refused_is_named(reason):
    with pytest.raises(fovea.FoveaError, match=r"fovea.\w+ is no part of a whole program here: .*" + reason):
        fovea.import_jax(REFUSED[reason], *ARRAYS)


def test_calls_that_compute_more_are_refused(monkeypatch):
    """A kernel that does not give what the call gives takes no call's place."""
    record = _own_calls._fovea.record_kernels
    # The kernel of other scores.
    others = record(lambda: fovea.dense(*ARRAYS, scale=0.3))
    monkeypatch.setattr(_own_calls._fovea, "record_kernels", lambda call: (call(), others)[1])
    with pytest.raises(fovea.FoveaError, match="fovea.dense is no part of a whole program here: found a call that computes more"):
        fovea.import_jax(lambda q, k, v: dense(q, k, v, scale=0.7), *ARRAYS)
