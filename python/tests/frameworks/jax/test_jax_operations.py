# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations of JAX that torch-mlir-opt has no linalg for: with known and with unknown extents."""

import functools
import shutil
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import jax.scipy.special as special
import numpy as np
import pytest

import fovea
import fovea.jax

HAS_TOOL = Path(sys.executable).with_name("torch-mlir-opt").exists() or shutil.which("torch-mlir-opt") is not None
pytestmark = pytest.mark.skipif(not HAS_TOOL, reason="torch-mlir-opt legalises StableHLO: pip install torch-mlir")


def array(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def compare(found, expected, bound=1e-5):
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for mine, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected)):
        assert mine.shape == theirs.shape and mine.dtype == theirs.dtype
        np.testing.assert_allclose(np.asarray(mine, np.float64), np.asarray(theirs, np.float64), bound, bound)


def scanned(x):
    return jax.lax.scan(lambda sums, row: (sums * 0.5 + row, sums), x[:, 0], x.swapaxes(0, 1))


def pairs(x):
    """A row of each entry of the batch."""
    return x[jnp.arange(x.shape[0]), jnp.argmax(x[:, :, 0], 1)]


def unsigned(x):
    numbers = x.astype(jnp.int32).astype(jnp.uint32)
    return jax.lax.fori_loop(0, 3, lambda k, y: y * jnp.uint32(3000000000) + jnp.uint32(k), numbers) // 7 < 9


def bf16_products(x):
    x = x.astype(jnp.bfloat16)
    return jnp.einsum("bij,bkj->bik", x, x, preferred_element_type=jnp.float32)


def windows(x):
    """Padded, in steps, and with gaps."""
    add = functools.partial(jax.lax.reduce_window, x, 0.0, jax.lax.add)
    return (
        add((1, 2, 3), (1, 1, 2), "SAME"),
        add((1, 2, 2), (1, 1, 1), "VALID", window_dilation=(1, 2, 3)),
        jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 3, 1), (1, 1, 1), "SAME"),
    )


def convolutions(x):
    """In steps, with gaps, of other layouts, of bf16, and of each column alone."""
    weights, columns = jnp.asarray(array(3, 8, 5)), jnp.asarray(array(4, 1, 8))
    convolve = functools.partial(jax.lax.conv_general_dilated, x)
    names = ("NWC", "WIO", "NWC")
    return (
        convolve(weights, (1,), "SAME", dimension_numbers=names),
        convolve(weights, (2,), [(2, 1)], rhs_dilation=(2,), dimension_numbers=names),
        convolve(columns, (1,), [(3, 0)], dimension_numbers=names, feature_group_count=8),
        jax.lax.conv_general_dilated(x.swapaxes(1, 2), weights.transpose(2, 1, 0), (1,), [(1, 1)]),
        jax.lax.conv_general_dilated(x.astype(jnp.bfloat16), weights.astype(jnp.bfloat16), (1,), "SAME", dimension_numbers=names),
    )


FUNCTIONS = {
    "windows": windows,
    "convolutions": convolutions,
    "variance": lambda x: (x.var(-1), x.std(1)),
    "gelu": lambda x: (jax.nn.gelu(x, approximate=False), jax.nn.gelu(x)),
    "erf": lambda x: (special.erf(x), special.erfc(x)),
    "inverse of erf": lambda x: [special.erfinv(each) for each in (jnp.tanh(x), jnp.sign(x), jnp.tanh(x).astype(jnp.bfloat16))],
    "gamma": lambda x: [function(each * 3) for function in (special.gammaln, special.digamma) for each in (x, x.round(), x / 1e6)],
    "gamma of bf16": lambda x: special.gammaln(x.astype(jnp.bfloat16)),
    "neighbours": lambda x: [jnp.nextafter(a, b) for a, b in ((x, -x), (x, x[::-1]), (x * 0, x), (x, x), (x, x * jnp.nan))],
    "hyperbolic": lambda x: (jnp.sinh(x), jnp.cosh(x), jnp.arcsinh(x), jnp.arccosh(x + 9), jnp.arctanh(x / 9)),
    "circular": lambda x: (jnp.tan(x / 9), jnp.arcsin(x / 9), jnp.arccos(x / 9), jnp.arctan(x)),
    "square": lambda x: (jnp.square(x), jnp.square(x.astype(jnp.int32))),
    "while": lambda x: jax.lax.while_loop(lambda state: state[1].max() < 9, lambda state: (state[0] + 1, state[1] * 1.5), (0, jnp.abs(x))),
    "counted": lambda x: jax.lax.fori_loop(0, 3, lambda number, y: y * 2 + number, x),
    "scan": scanned,
    "either": lambda x: jax.lax.cond(x[0, 0, 0] > 0, lambda y: y, lambda y: -y, x),
    "branches beside others": lambda x: (
        jax.lax.cond(x.sum() > 0, jnp.sin, jnp.cos, x[:, ::-1]), x - x[:, :1], jax.lax.switch(2, [jnp.sin, jnp.cos, jnp.abs], x[::-1]),
    ),
    "beyond": lambda x: [jax.lax.switch(jnp.int32(k), [jnp.sin, jnp.cos, jnp.tanh], x) for k in (-1, 0, 1, 2, 7)],
    "unsigned": unsigned,
    "sums": lambda x: (jnp.cumsum(x, 1), jax.lax.cumsum(x, 1, reverse=True), jnp.cumsum(x, 2), jnp.cumsum(x)),
    "exclusive sums": lambda x: (jnp.cumulative_sum(x, axis=1, include_initial=True)[:, :-1], jnp.cumsum(x.astype(jnp.int32), 1) - 1),
    "other cumulative": lambda x: (jnp.cumprod(x, 1), jax.lax.cummax(x, 1), jax.lax.cummin(x, 1), jax.lax.cumlogsumexp(x, 1)),
    "pooling": lambda x: jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, 2), (1, 1, 2), "VALID"),
    "sort": lambda x: (jnp.sort(x), jnp.sort(x, 1), jnp.argsort(x, descending=True), jnp.median(x, -1)),
    "one number": lambda x: (jnp.median(x), jnp.percentile(x, 30), jnp.quantile(x, 0.9)),
    "equals": lambda x: (jnp.argsort(jnp.round(x), 1), jax.lax.top_k(jnp.round(x), 7), jnp.lexsort((x, jnp.round(x)))),
    "NaN": lambda x: (jnp.sort(jnp.sqrt(x)), jnp.argsort(jnp.sqrt(x)), jax.lax.top_k(jnp.sqrt(x), 8)),
    "integers": lambda x: (jnp.sort((x * 9).astype(jnp.int32)), jax.lax.top_k((x * 9).astype(jnp.int32), 3)),
    "approximate": lambda x: (jax.lax.approx_max_k(x, 3), jax.lax.approx_min_k(x, 2, reduction_dimension=1)),
    "greatest": lambda x: (jax.lax.top_k(x, 1), jax.lax.top_k(x, 8), jax.lax.top_k(x.astype(jnp.bfloat16), 3)),
    "set": lambda x: (x.at[:, 0].set(0.0), x.at[:, -1].add(x[:, 0]), x.at[0].multiply(2.0)),
    "add": lambda x: x.at[:, jnp.array([0, 0, 1, 9999, -1])].add(1.0),
    "greatest of each": lambda x: x.at[jnp.array([0, 0]), jnp.array([1, 0])].max(1.0),
    "slices": lambda x: (x[:, 1:], x[:, :-1], x[:, -1], x[:, :1], x[:, 1:-1], x[:, ::2], x[:, ::-1]),
    "shifted": lambda x: (jnp.roll(x, 1, 1), jnp.pad(x, ((0, 0), (1, 0), (0, 0))), jnp.concatenate([x[:, 1:], x[:, :1]], 1)),
    "rows": lambda x: (jnp.take(x, jnp.array([0, 1]), axis=1), pairs(x), jax.vmap(lambda y: y[jnp.argmax(y[:, 0])])(x)),
    "along": lambda x: jnp.take_along_axis(x, jnp.argsort(x, 1), 1),
    "bf16 products": bf16_products,
    "checkpoint": jax.grad(lambda x: jnp.square(jax.checkpoint(lambda y: jnp.sin(jnp.sin(y)))(x)).sum()),
}  # fmt: skip
KNOWN_ALONE = {"pooling"}
#: These are the same bits.
EXACT = {"neighbours", "approximate"}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_known_extents(name):
    fast = fovea.jax.compile(FUNCTIONS[name])
    for shape in (2, 3, 8), (1, 13, 8):
        x = jnp.asarray(array(*shape))
        compare(fast(x), FUNCTIONS[name](x), 0 if name in EXACT else 1e-5)


@pytest.mark.parametrize("name", [each for each in FUNCTIONS if each not in KNOWN_ALONE])
def test_unknown_extents(name):
    batch, length = jax.export.symbolic_shape("b, n", constraints=["n >= 3"])
    program = fovea.import_jax(FUNCTIONS[name], jax.ShapeDtypeStruct((batch, length, 8), jnp.float32))
    for shape in (2, 3, 8), (1, 13, 8):
        x = array(*shape)
        # Cumulative ones are loops: no array has an element for each pair.
        assert "sums" not in name or "?x?x?" not in program.text
        expected = FUNCTIONS[name](jnp.asarray(x))
        found = program(x)
        compare(list(found) if isinstance(found, (tuple, list)) else [found], jax.tree.leaves(expected))


def test_layers_in_a_loop():
    """The attention of all layers is one, inside."""

    def layer(x, weights):
        q, k, v = jnp.split((x @ weights["qkv"]).reshape(*x.shape[:2], 4, 24), 3, -1)
        x = x + jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(x.shape)
        return x + jax.nn.gelu(x @ weights["up"], approximate=False) @ weights["down"], None

    def model(weights, x):
        return jax.lax.scan(layer, x, weights)[0]

    shapes = {"qkv": (3, 32, 96), "up": (3, 32, 64), "down": (3, 64, 32)}
    weights = {name: jnp.asarray(array(*shape, seed=number) / 8) for number, (name, shape) in enumerate(shapes.items())}
    x = jnp.asarray(array(2, 17, 32))
    compare(fovea.jax.compile(model)(weights, x), model(weights, x), 1e-4)


def test_long_lines():
    x = jnp.asarray(array(2, 5000))
    compare(fovea.jax.compile(lambda x: (jnp.sort(x), jax.lax.top_k(x, 50)))(x), (jnp.sort(x), jax.lax.top_k(x, 50)), 0)


def test_attention_of_bf16():
    def attend(q):
        return jax.nn.dot_product_attention(q, q, q, is_causal=True)

    q = jnp.asarray(array(2, 13, 2, 8), jnp.bfloat16)
    compare(fovea.jax.compile(attend)(q), attend(q), 2e-2)


def test_windows_that_begin_with_something():
    """It counts once."""

    def add_up(x):
        return jax.lax.reduce_window(x, 1.0, jax.lax.add, (1, 4), (1, 1), ((0, 0), (3, 0)))

    x = jnp.asarray(array(3, 4))
    compare(fovea.jax.compile(add_up)(x), add_up(x))


@pytest.mark.parametrize("type", [jnp.uint8, jnp.uint16, jnp.uint32])
def test_unsigned_integers(type):
    """As arguments and results, above what signed ones hold."""
    x = jnp.asarray((np.iinfo(type).max - np.arange(24) * 9 % 31).astype(type).reshape(2, 12))
    for function in (
        lambda x: (x.astype(jnp.float32) / 255, x + type(7), x * type(3), x // type(3), x % type(5), (x >> 1) ^ x),
        lambda x: (x > type(210), x.max(1), x.min(0), x.astype(jnp.int32), jnp.clip(x, type(205), type(210)), jnp.argmax(x, 1)),
        lambda x: (jnp.sort(x), jnp.argsort(x, 1), jax.lax.top_k(x, 3), jax.lax.cummax(x, 1), jax.lax.cumsum(x, 0)),
        lambda x: (x.at[:, 1].set(type(3)), x.at[0].max(x[1]), x.at[:, jnp.array([0, 0, 2])].add(type(200))),
        lambda x: jax.lax.fori_loop(0, 3, lambda k, y: jax.lax.cond(y[0, 0] > type(9), lambda z: z * type(5), lambda z: z, y), x),
    ):
        compare(fovea.jax.compile(function)(x), function(x), 1e-6)


def draw(key, scores):
    """As a language model is sampled: a key is split, one half taken, and the other returned."""
    key, own = jax.random.split(key)
    token = jax.random.categorical(own, scores)
    return key, token, jax.random.normal(own, (3,)), jax.random.permutation(own, 7)


@pytest.mark.parametrize("make", [jax.random.key, jax.random.PRNGKey])
def test_random_numbers(make):
    key, scores = make(5), jnp.asarray(array(4, 33))
    compiled = fovea.jax.compile(draw)
    for _ in range(2):
        expected = draw(key, scores)
        found = compiled(key, scores)
        assert found[0].dtype == key.dtype
        compare(jax.tree.map(_data, found), jax.tree.map(_data, expected), 1e-6)
        key = found[0]
    closed = fovea.jax.compile(lambda scores: draw(key, scores)[1])
    np.testing.assert_array_equal(closed(scores), draw(key, scores)[1])


def _data(each):
    return jax.random.key_data(each) if jax.dtypes.issubdtype(each.dtype, jax.dtypes.prng_key) else each


def test_images_of_bytes_of_unknown_extents():
    batch, width = jax.export.symbolic_shape("batch, width")
    program = fovea.import_jax(lambda x: (x.max(1), x.mean((1, 2))), jax.ShapeDtypeStruct((batch, width, 3), jnp.uint8))
    image = np.random.default_rng(2).integers(0, 256, (2, 7, 3)).astype(np.uint8)
    most, means = program(image)
    assert most.dtype == np.uint8
    np.testing.assert_array_equal(most, image.max(1))
    np.testing.assert_allclose(means, image.mean((1, 2)), rtol=1e-6)


ON_GPUS = {
    "tables": lambda x: (x[jnp.array([[1, 0], [2, 2]])], jnp.take(x, jnp.argmax(x, 1), axis=0)),
    "updates": lambda x: (jnp.zeros((5, 6)).at[jnp.array([0, 2, 2, 1])].add(x), x.at[1].set(0.0)),
    "sorts": lambda x: (jnp.sort(x, 1), *jax.lax.top_k(x, 2), jnp.take_along_axis(x, jnp.argsort(x, 1), 1)),
    "layers": lambda x: jax.nn.softmax(jax.nn.gelu(x @ x.T, approximate=False) / x.var(1)),
}


@pytest.mark.parametrize("name", ON_GPUS)
def test_kernels_for_gpus(name):
    x = array(4, 6)
    found, expected = fovea.import_jax(ON_GPUS[name], x, target="gpu-sim")(x), jax.tree.leaves(ON_GPUS[name](jnp.array(x)))
    compare(list(found) if isinstance(found, tuple) else [found], expected)


def test_what_is_left_is_named():
    for function, name in (
        (lambda x: jnp.fft.fft(x, n=2 * 2053).real, "found a transform of 4106 numbers"),
        (lambda x: special.zeta(x + 2, x + 1), "chlo.zeta"),
        (jnp.linalg.cholesky, "custom_call @lapack_spotrf"),
    ):
        with pytest.raises(fovea.FoveaError, match=name):
            fovea.import_jax(function, jnp.eye(4))
