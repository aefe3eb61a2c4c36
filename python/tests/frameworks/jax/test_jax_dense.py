# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""fovea.jax.dense against jax.nn.dot_product_attention, its gradients, and the reference."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import BOUNDS, make
from jax_cases import gradients, near, to_jax

import fovea
import fovea.jax
from fovea import reference


def peer(q, k, v, **options):
    """JAX's own function, which has [B,N,H,D]."""
    q, k, v = (jnp.swapaxes(each, 1, 2) for each in (q, k, v))
    if "bias" in options:
        options["bias"] = jnp.broadcast_to(
            options["bias"], (q.shape[0], q.shape[2], q.shape[1], k.shape[1])
        )
    return jnp.swapaxes(jax.nn.dot_product_attention(q, k, v, **options), 1, 2)


SHAPES = [
    dict(N=1, D=8),
    dict(N=37, D=16),
    dict(B=2, H=4, G=2, N=64, D=32),
    dict(B=3, H=4, G=1, N=65, D=16, E=24),
    dict(H=2, N=5, M=19, D=16),
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("causal", [False, True])
def test_like_jax(shape, causal):
    if causal and "M" in shape:
        pytest.skip("JAX's mask begins at the first key, not at the last")
    q, k, v = to_jax(*make(**shape))
    if q.shape[3] != v.shape[3]:
        pytest.skip("JAX has one width")
    near(
        fovea.jax.dense(q, k, v, causal=causal),
        peer(q, k, v, is_causal=causal),
    )
    own = gradients(lambda *each: fovea.jax.dense(*each, causal=causal), (q, k, v))
    other = gradients(lambda *each: peer(*each, is_causal=causal), (q, k, v))
    for found, expected in zip(own, other, strict=True):
        near(found, expected, 1e-5)


@pytest.mark.parametrize("type", BOUNDS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_like_reference(type, shape):
    q, k, v = make(type, **shape)
    options = dict(causal=True, window=11, scale=0.3)
    with jax.enable_x64(type == "float64"):
        out, lse = fovea.jax.dense(*to_jax(q, k, v), return_lse=True, **options)
        assert out.dtype == q.dtype
    wide = [each.astype(np.float64) for each in (q, k, v)]
    expected, expected_lse = reference.dense(*wide, return_lse=True, **options)
    near(out, expected, BOUNDS[type])
    assert np.abs(np.asarray(lse, np.float64) - expected_lse).max() <= 1e-5


@pytest.mark.parametrize("bias", [(37, 37), (1, 37, 37), (2, 4, 1, 37), (2, 1, 37, 37), (37,)])
def test_gradients_of_terms(bias):
    """Against JAX's derivatives of the formula in float64, for out and lse."""
    with jax.enable_x64(True):
        q, k, v = to_jax(*make("float64", B=2, H=4, G=2, N=37, D=8))
        rng = np.random.default_rng(3)
        bias = jnp.asarray(rng.standard_normal(bias))
        log_weight = jnp.asarray(rng.standard_normal((2, 2, 37)))

        def own(q, k, v, log_weight, bias):
            out, lse = fovea.jax.dense(q, k, v, log_weight=log_weight, bias=bias, return_lse=True)
            return (jnp.sin(out)).sum() + (lse**2).sum()

        def formula(q, k, v, log_weight, bias):
            k, v, log_weight = (jnp.repeat(each, 2, axis=1) for each in (k, v, log_weight))
            scores = jnp.einsum("bhnd,bhmd->bhnm", q, k) / np.sqrt(8)
            scores = scores + log_weight[:, :, None, :] + bias
            lse = jax.nn.logsumexp(scores, axis=-1)
            out = jnp.einsum("bhnm,bhme->bhne", jax.nn.softmax(scores, axis=-1), v)
            return (jnp.sin(out)).sum() + (lse**2).sum()

        arguments = q, k, v, log_weight, bias
        near(own(*arguments), formula(*arguments), 1e-12)
        for compile in (lambda f: f, jax.jit):
            found = compile(jax.grad(own, range(5)))(*arguments)
            expected = jax.grad(formula, range(5))(*arguments)
            for one, other in zip(found, expected, strict=True):
                near(one, other, 1e-11)


@pytest.mark.parametrize("numbers, count", [((0, 1), 3), ((0, 4), 4), ((3,), 4), ((1, 3, 4), 5)])
def test_terms_without_a_gradient_have_none(numbers, count):
    """In memory, the gradient of a bias is as large as that."""
    q, k, v = to_jax(*make(B=2, H=4, G=2, N=37, D=8))
    rng = np.random.default_rng(3)
    log_weight, bias = (jnp.asarray(rng.standard_normal(shape), q.dtype) for shape in ((2, 2, 37), (2, 4, 37, 37)))
    arguments = q, k, v, log_weight, bias

    def loss(q, k, v, log_weight, bias):
        return jnp.sin(fovea.jax.dense(q, k, v, log_weight=log_weight, bias=bias)).sum()

    compiled = jax.jit(jax.grad(loss, numbers))
    (call,) = [line for line in compiled.lower(*arguments).as_text().splitlines() if "dense_backward" in line]
    assert call.split("->")[-1].count("tensor<") == count
    every = jax.grad(loss, range(5))(*arguments)
    for number, found in zip(numbers, compiled(*arguments), strict=True):
        np.testing.assert_array_equal(found, every[number])


LIMITS = [
    dict(lengths=[37, 1, 30]),
    dict(lengths=[37, 0, 17], query_lengths=[37, 20, 0]),
    dict(causal=True, prefix=9),
    dict(causal=True, prefix=3, lengths=[32, 37, 5], query_lengths=[7, 0, 37]),
]


@pytest.mark.parametrize("limits", LIMITS, ids=str)
def test_limits_agree_with_masks_of_jax(limits):
    """Numbers and gradients, jitted and not, with NaN in the rows that a call says are not there."""
    q, k, v = make(B=3, H=4, G=2, N=37, D=16)
    options = {name: np.array(each, np.int32) if isinstance(each, list) else each for name, each in limits.items()}
    rows, columns = np.arange(37)[:, None], np.arange(37)
    keys, queries = (
        np.array(limits.get(name, [37] * 3))[:, None, None, None] for name in ("lengths", "query_lengths")
    )
    exists = np.broadcast_to(rows < queries, (3, 4, 37, 16))
    reads = (columns < keys) & (rows < queries)
    if "causal" in limits:
        reads &= (columns <= rows + keys - queries) | (columns < limits["prefix"])
    has_keys = reads.any(-1, keepdims=True)

    def formula(q, k, v):
        # JAX gives the mean of values to rows without keys.
        return jnp.where(has_keys, peer(q, k, v, mask=jnp.asarray(reads)), 0)

    arrays = to_jax(q, k, v)
    buried = [each.copy() for each in (q, k, v)]
    for each, name in zip(buried, ("query_lengths", "lengths", "lengths")):
        for b, length in enumerate(limits.get(name, ())):
            each[b, :, length:] = np.nan
    lengths = {name: jnp.asarray(each) for name, each in options.items() if name.endswith("lengths")}
    rest = {name: each for name, each in options.items() if name not in lengths}

    def own(q, k, v):
        return fovea.jax.dense(q, k, v, **lengths, **rest)

    for compile in (lambda f: f, jax.jit):
        found = compile(own)(*to_jax(*buried))
        near(found, formula(*arrays))
        assert not np.asarray(found)[~exists].any()
        for one, other in zip(gradients(compile(own), to_jax(*buried)), gradients(formula, arrays), strict=True):
            near(one, other, 1e-5)


def test_lengths_of_a_jitted_call_may_change():
    q, k, v = make(B=2, N=21)
    call = jax.jit(lambda lengths: fovea.jax.dense(q, k, v, lengths=lengths))
    for lengths in ([21, 3], [0, 20]):
        lengths = np.array(lengths, np.int32)
        np.testing.assert_array_equal(call(lengths), fovea.dense(q, k, v, lengths=lengths))
    with pytest.raises(Exception, match="lengths: found 22 for batch entry 1, needed 0 to 21"):
        call(np.array([21, 22], np.int32)).block_until_ready()


def test_prefix_errors():
    arrays = make(N=9)
    with pytest.raises(ValueError, match="prefix: found it alone, needed causal"):
        fovea.jax.dense(*arrays, prefix=3)
    with pytest.raises(ValueError, match="prefix: found -1"):
        fovea.jax.dense(*arrays, causal=True, prefix=-1)


def test_rows_without_keys():
    q, k, v = to_jax(*make(N=9, M=4))
    out, lse = fovea.jax.dense(q, k, v, causal=True, return_lse=True)
    assert not np.asarray(out)[:, :, :5].any() and np.isneginf(np.asarray(lse)[:, :, :5]).all()
    out = fovea.jax.dense(q, k[:, :, :0], v[:, :, :0])
    assert out.shape == q.shape and not np.asarray(out).any()


def test_nan_behind_masks():
    q, k, v = make(N=12)
    k[:, :, 7:], v[:, :, 7:] = np.nan, np.nan
    out = np.asarray(fovea.jax.dense(*to_jax(q, k, v), causal=True))
    assert np.isfinite(out[:, :, :7]).all() and np.isnan(out[:, :, 7:]).all()


@pytest.mark.parametrize(
    "axes",
    [(0, 0, 0), (0, None, None), (None, 0, 0), (1, 0, 2), (3, None, 1)],
    ids=str,
)
@pytest.mark.parametrize("B", [1, 2])
def test_vmap(axes, B):
    """Against JAX's own function under the same vmap, and its gradients."""
    arrays = [
        np.stack([each, each[..., ::-1] * 0.5, each + 1], axis) if axis is not None else each
        for each, axis in zip(make(B=B, H=2, G=1, N=13, D=8), axes)
    ]
    arrays = to_jax(*arrays)
    own, other = (jax.vmap(each, axes) for each in (fovea.jax.dense, peer))
    near(own(*arrays), other(*arrays))
    near(jax.jit(own)(*arrays), other(*arrays))
    for found, expected in zip(gradients(own, arrays), gradients(other, arrays), strict=True):
        near(found, expected, 1e-5)


def test_vmap_of_bias_that_broadcasts():
    q, k, v = to_jax(*make(B=2, N=11))
    bias = jnp.asarray(np.random.default_rng(1).standard_normal((3, 1, 2, 11, 11)), jnp.float32)

    def call(function):
        return jax.vmap(lambda bias: function(q, k, v, bias=bias))(bias)

    near(call(fovea.jax.dense), call(peer))


def test_vmap_twice():
    q, k, v = make(B=2, N=7)
    queries = np.stack([q, 2 * q])
    keys = np.stack([k, k - 1, -k])
    axes = ((0, None, None), (None, 0, None))
    own, other = (
        jax.vmap(jax.vmap(each, axes[0]), axes[1]) for each in (fovea.jax.dense, peer)
    )
    near(own(*to_jax(queries, keys, v)), other(*to_jax(queries, keys, v)))


def test_same_bits():
    arrays = make(B=2, H=4, G=2, N=130, D=32)
    found = jax.jit(lambda *each: fovea.jax.dense(*each, causal=True))(*arrays)
    assert np.array_equal(found, fovea.dense(*arrays, causal=True))


def test_backward_function():
    q, k, v = make(N=21)
    out, lse = fovea.dense(q, k, v, return_lse=True)
    d_out = np.ones_like(out)
    expected = fovea.dense_backward(d_out, q, k, v, out, lse)
    found = fovea.jax.dense_backward(*to_jax(d_out, q, k, v, out, lse))
    assert isinstance(found, tuple)
    for one, other in zip(found, expected, strict=True):
        assert np.array_equal(one, other)


def test_errors_while_tracing():
    q, k, v = to_jax(*make(N=8, D=16))
    with pytest.raises(ValueError, match=r"k: found head width 8, needed 16"):
        jax.jit(fovea.jax.dense)(q, k[..., :8], v)
    with pytest.raises(ValueError, match=r"v: found element type bfloat16, needed float32"):
        fovea.jax.dense(q, k, v.astype(jnp.bfloat16))
    with pytest.raises(ValueError, match=r"causal: found 'yes', needed True or False"):
        fovea.jax.dense(q, k, v, causal="yes")
    with pytest.raises(ValueError, match=r"scale: found an array float32\[\] whose values are not known, needed a finite number"):
        jax.jit(lambda scale: fovea.jax.dense(q, k, v, scale=scale))(0.5)
    with pytest.raises(ValueError, match=r"q: found element type int32"):
        fovea.jax.dense(q.astype(jnp.int32), k, v)
    for option in ("target", "out"):
        with pytest.raises(TypeError, match=option):
            fovea.jax.dense(q, k, v, **{option: None})


def test_second_derivatives_are_refused():
    q, k, v = to_jax(*make(N=8))

    def loss(q):
        return jax.grad(lambda q: fovea.jax.dense(q, k, v).sum())(q).sum()

    with pytest.raises(ValueError, match="dense.*: found a derivative of a gradient, needed first derivatives"):
        jax.grad(loss)(q)
