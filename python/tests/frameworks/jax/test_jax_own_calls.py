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
from fovea.jax import _symbols

pytest.importorskip("torch_mlir")

# Of NumPy: while tests are collected, JAX is not to choose its devices.
SEARCH = {"num_basis": 6, "window": 3, "delta": 0.1, "epsilon": 0.0}
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


def absent(q, k, v, **tokens):
    """Hierarchies and quantized keys of some of the tokens: that of a mask of `q`, if nothing else tells."""
    tokens = tokens or {"mask": q[:, 0, :, 0] > 0}
    weights = [jnp.ones((1, 2, 4, 8)) / 4]
    return (
        fovea.jax.fast_multipole(q, k, v, weights, weights, group=4, causal=True, **tokens),
        fovea.jax.fast_multipole_linear(q, k, v, weights, weights, weights, group=4, **tokens),
        fovea.jax.vq(q, k, v, jax.lax.stop_gradient(k[0, :, :4]), block=4, **tokens),
    )


def absent_gradient(q, k, v):
    """Where a batch of masks goes through a batch of gradients."""
    masks = jnp.stack([q[:, 0, :, 0] > 0, jnp.ones((2, 16), bool)])

    def loss(q, k, v, mask):
        return sum((each**2).sum() for each in absent(q, k, v, mask=mask))

    return jax.vmap(jax.grad(loss, (0, 1, 2)), (None, None, None, 0))(q, k, v, masks)


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
    "absent": absent,
    "absent behind lengths": lambda q, k, v: absent(q, k, v, lengths=jnp.array([3, 9], jnp.int32)),
    "gradient of absent": absent_gradient,
    "codes": lambda q, k, v: fovea.jax.quantize(q, k[0, :, :4]),
    "rope": lambda q, k, v: fovea.jax.rope(q, jnp.arange(16) * 3),
    "conv of lengths": lambda q, k, v: fovea.jax.conv(q, k, v, **SEARCH, lengths=jnp.array([3, 9])),
    "conv of a mask": lambda q, k, v: fovea.jax.conv(q, k, v, **SEARCH, token_mask=q[:, 0, :, 0] > 0),
    "conv of bases": lambda q, k, v: fovea.jax.conv_apply(*fovea.jax.conv_recover(q, k, **SEARCH)[:2], v),
    "pool": lambda q, k, v: fovea.jax.pool(q, k, interval=4, overlap=2, position_bias=v[0, 0, :4]),
    "loss": lambda q, k, v: fovea.jax.commitment_loss(q, k, lengths=jnp.array([3, 9])),
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
    exported = export(FUNCTIONS["scores"], *ARRAYS)
    source, output = tmp_path / "exported.mlir", tmp_path / "model.mlir"
    source.write_text(exported.mlir_module())
    assert main([str(source), "-o", str(output)]) == 0
    for found, expected in zip(fovea.load(output)(*ARRAYS), FUNCTIONS["scores"](*map(jnp.asarray, ARRAYS)), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


#: In programs of any batch and length.
SYMBOLIC = {
    **{name: FUNCTIONS[name] for name in ("lengths", "narrow", "scores", "gradient", "far", "gradient of far", "stream", "vq", "codes",
                                          "once more", "steps", "branches", "batches")},
    "window": lambda q, k, v: dense(q, k, v, causal=True, window=20),
    "cross": lambda q, k, v: dense(q[:, :, : q.shape[2] // 2 + 1], k, v, causal=True, return_lse=True),
    "segments": lambda q, k, v: dense(q, k, v, segments=((q[:, 0, :, 0] > 0).astype(jnp.int32),) * 2),
    "bias": lambda q, k, v: dense(q, k, v, bias=jnp.einsum("bhnd,bhmd->bhnm", q, k), sink=jnp.ones((1, 2))),
    "rope": lambda q, k, v: fovea.jax.rope(q, jnp.arange(q.shape[2]) * 3),
    "tokens first": lambda q, k, v: dense(*(each.swapaxes(1, 2) for each in (q, k, v)), layout="bnhd"),
    "vmap of a gradient": lambda q, k, v: jax.vmap(jax.grad(lambda *one: dense(*(each[None] for each in one)).sum(), (0, 1, 2)))(q, k, v),
    "conv": lambda q, k, v: fovea.jax.conv(q, k, v, num_basis=4, window=2, delta=0.1, epsilon=0.0),
}  # fmt: skip
SYMBOLIC["lengths"] = lambda q, k, v: dense(q, k, v, lengths=jnp.full((q.shape[0],), 3), log_weight=k[..., 0])


def symbols(*shapes, constraints=()):
    scope = jax.export.SymbolicScope(constraints)
    shapes = shapes or ["b, 2, n, 8"] * 3
    return [jax.ShapeDtypeStruct(jax.export.symbolic_shape(shape, scope=scope), jnp.float32) for shape in shapes]


def near_in_all(found, expected):
    for mine, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert mine.shape == theirs.shape
        np.testing.assert_allclose(np.asarray(mine, np.float64), np.asarray(theirs, np.float64), rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("name", SYMBOLIC)
def test_symbolic_shapes(name):
    function, generator = SYMBOLIC[name], np.random.default_rng(1)
    program = fovea.import_jax(function, *symbols())
    for shape in (2, 2, 5, 8), (1, 2, 16, 8), (3, 2, 7, 8), *(() if "far" in name else ((2, 2, 41, 8),)):
        given = generator.standard_normal((3, *shape), np.float32)
        near_in_all(program(*given), function(*map(jnp.asarray, given)))


def test_batches_that_are_not_known():
    def function(one, k, v):
        return jax.vmap(lambda q: dense(q, k, v, causal=True))(one), jax.vmap(dense)(one, 2 * one, one)

    program = fovea.import_jax(function, *symbols("s, b, 2, n, 8", "b, 2, n, 8", "b, 2, n, 8"))
    for S, B, N in (1, 1, 3), (3, 2, 9):
        given = [np.random.default_rng(N).standard_normal((*first, B, 2, N, 8), np.float32) for first in ((S,), (), ())]
        near_in_all(program(*given), function(*map(jnp.asarray, given)))


def export(function, *arrays):
    check = jax.export.DisabledSafetyCheck.custom_call("fovea")
    return jax.export.export(jax.jit(function), platforms=["cpu"], disabled_checks=[check])(*arrays)


@pytest.mark.parametrize("name", ["scores", "gradient", "cross", "batches"])
def test_symbolic_exports(name, tmp_path):
    """XLA calls a kernel of the extents of each call, and a file is a program of any."""
    function = SYMBOLIC[name]
    exported = jax.export.deserialize(export(function, *symbols(constraints=["n >= 3"])).serialize())
    source, output = tmp_path / "exported.mlir", tmp_path / "model.mlir"
    source.write_text(exported.mlir_module())
    assert main([str(source), "-o", str(output)]) == 0
    program = fovea.load(output)
    for B, N in (1, 3), (2, 24):
        given = np.random.default_rng(N).standard_normal((3, B, 2, N, 8), np.float32)
        expected = function(*map(jnp.asarray, given))
        near_in_all(exported.call(*map(jnp.asarray, given)), expected)
        near_in_all(program(*given), expected)


def test_constraints_hold_in_samples():
    """Weights are for 16 tokens."""
    with pytest.raises(ValueError, match=r"key_weights: found 2 levels, .* where b = \d+, n = \d+ in arrays of shapes \(b, 2, n, 8\)"):
        export(far, *symbols(constraints=["n >= 17"]))
    export(far, *symbols(constraints=["n >= 13", "mod(b, 4) == 0", "n + b <= 30"]))


def test_symbols_that_must_be_equal_are_named():
    with pytest.raises(ValueError, match=r"v: found length \d+, needed \d+, where b = \d+, l = \d+, m = \d+, n = \d+ in arrays"):
        fovea.import_jax(dense, *symbols("b, 2, n, 8", "b, 2, m, 8", "b, 2, l, 8"))


def test_results_of_other_extents_are_errors(monkeypatch):
    """Wherever it runs."""
    examples = symbols("b, 2, n, 8", "b, 2, m, 8", "b, 2, m, 8")
    given = [np.zeros((2, 2, length, 8), np.float32) for length in (5, 7, 7)]
    monkeypatch.setattr(_symbols.Symbols, "find_shape", lambda self, shapes, samples: self.shapes[1])
    with pytest.raises(fovea.FoveaError, match="a call has results of other extents than it was traced with"):
        fovea.import_jax(dense, *examples)(*given)
    with pytest.raises(Exception, match="found a result that its destination is not made for"):
        jax.block_until_ready(export(dense, *examples).call(*given))


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
