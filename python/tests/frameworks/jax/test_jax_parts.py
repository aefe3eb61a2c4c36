# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""fovea.jax.compile leaves what has no program to JAX, and compiles the rest around it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fovea
import fovea.jax

pytest.importorskip("torch_mlir")


@pytest.fixture(autouse=True)
def fresh():
    fovea.jax.explain_fallbacks(clear=True)


def attend(x):
    return jax.nn.softmax(x @ x.T * 0.5) @ x


def reasons():
    return [each.reason for each in fovea.jax.explain_fallbacks()]


def agree(function, *arguments):
    found, expected = fovea.jax.compile(function)(*arguments), function(*arguments)
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert one.shape == other.shape and one.dtype == other.dtype
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-4, atol=1e-5)


X = jnp.asarray(np.random.default_rng(0).standard_normal((8, 8)), jnp.float32)


def test_solvers_in_between():
    def function(x, key):
        u, s, v = jnp.linalg.svd(attend(x))
        z = jax.nn.gelu(u * s @ v) + jax.random.normal(key, x.shape)
        return {"factor": jnp.linalg.cholesky(z @ z.T + jnp.eye(8)), "s": s, "number": jnp.float32(3)}

    agree(function, X, jax.random.key(1))
    first, second = sorted(reasons())
    assert first.startswith("cholesky is computed by JAX: torch-mlir-opt has no linalg for stablehlo.custom_call @lapack_spotrf")
    assert second.startswith("svd is computed by JAX: torch-mlir-opt has no linalg for stablehlo.custom_call @lapack_sgesdd")


def test_parts_without_results():
    """Of steps that nobody needs, before one that JAX computes and alone; gradients of lists have some."""
    agree(lambda x: (jnp.sin(x), jnp.linalg.inv(x + 4 * jnp.eye(8)))[1], X)
    assert fovea.jax.compile(lambda x: ())(X) == ()
    q = jnp.asarray(np.random.default_rng(1).standard_normal((1, 2, 8, 8)), jnp.float32)
    rows = jnp.arange(8, dtype=jnp.int32).reshape(1, 1, 8, 1).repeat(2, 1)
    agree(jax.grad(lambda q: fovea.jax.selected(q, q, q, rows, causal=False).sum()), q)


def test_functions_within():
    """Those of jax.jit, with rules of their own, called twice, of literals, and with results that nobody reads."""
    inner = jax.jit(lambda x, y: (jnp.linalg.inv(x + 4 * jnp.eye(8)), attend(y), x * y))

    def function(x):
        first, second, _ = inner(x, 1.5 * x)
        third, _, fourth = inner(second, second)
        return jax.nn.silu(first + third), jax.nn.relu(fourth), x

    agree(jax.jit(function), X)
    assert reasons()
    gradient = jax.grad(lambda x: jnp.linalg.slogdet(attend(x) + 9 * jnp.eye(8))[1] + jax.nn.relu(x).sum())
    agree(gradient, X)


def test_loops_stay_whole():
    """A loop with a solver is computed by JAX."""

    def function(x):
        def step(state, row):
            return jnp.linalg.solve(state + 9 * jnp.eye(8), state), row.sum()

        state, sums = jax.lax.scan(step, attend(x), x)
        return attend(state), sums

    agree(function, X)
    (reason,) = reasons()
    assert reason.startswith("scan is computed by JAX: ")


def test_nothing_but_a_solver():
    agree(jnp.linalg.cholesky, X @ X.T + jnp.eye(8))
    assert len(reasons()) == 1


def test_attention_before_is_one_program():
    def function(x):
        return jnp.linalg.qr(attend(x))[0]

    programs = []
    split = fovea.jax._parts.split

    def keep(function, examples, take, reason, caller):
        def take_and_keep(part, structs):
            call = take(part, structs)
            programs.append(part)
            return call

        return split(function, examples, take_and_keep, reason, caller)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fovea.jax._import, "split", keep)
        agree(function, X)
    names = [step.equation.primitive.name for step in max((each.steps for each in programs), key=len)]
    assert names.count("dot_general") == 2 and "exp" in names and "div" in names


def test_each_shape_is_split_once():
    compiled = fovea.jax.compile(lambda x: jnp.linalg.cholesky(x @ x.T + 9 * jnp.eye(x.shape[0])))
    for size in (4, 5, 4, 4):
        compiled(X[:size])
    assert sum(each.calls for each in fovea.jax.explain_fallbacks()) == 2


def test_errors_stay():
    with pytest.raises(TypeError):
        fovea.jax.compile(lambda x: x @ x[:3])(X)
    with pytest.raises(fovea.FoveaError, match="custom_call @lapack_spotrf"):
        fovea.import_jax(jnp.linalg.cholesky, X)
