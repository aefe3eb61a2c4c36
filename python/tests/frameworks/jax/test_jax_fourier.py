# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fourier transforms and complex numbers of whole functions of JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.numpy import fft
from jax_cases import check_program, normal

import fovea
import fovea.jax

pytest.importorskip("torch_mlir")

TARGETS = ["cpu", "gpu-sim"]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("length", [1, 2, 7, 128, 131, 258, 360])
def test_lengths(length, target):
    def function(x):
        return fft.fft(x).real, fft.fft(x).imag, fft.ifft(x).imag, fft.rfft(x).real, fft.irfft(fft.rfft(x), n=length)

    check_program(function, normal(3, length), target=target)


def mixed(x):
    """As of FNet, over rows and columns."""
    return fft.fftn(x, axes=(1, 2)).real, fft.rfftn(x).imag, fft.fft(x, axis=0).real, fft.rfft2(x, axes=(0, 1)).real


def padded(x):
    return fft.fft(x, n=11, axis=1).imag, fft.fft(x, n=3, axis=1).imag


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("function", [mixed, padded])
def test_axes(function, target):
    check_program(function, normal(2, 6, 8), target=target)


def convolved(x):
    return fft.irfft(fft.rfft(x, n=16) * fft.rfft(x[:1], n=16), n=16)[..., :8]


def computed(x):
    c = fft.fft2(x, norm="ortho")
    return c, c.conj() * 2 - 1j, jnp.abs(c), jnp.abs(c) ** 2, fft.ifft2(c * c, norm="forward").real, fft.fftshift(c), c / (c + 9)


def filtered(x):
    return fft.irfftn(x + 2j * x), fft.ifftn(x - 1j * x).real, fft.irfft(fft.rfft(x) * (jnp.arange(5) < 3))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("function", [convolved, computed, filtered])
def test_complex_numbers(function, target):
    check_program(function, normal(2, 6, 8), target=target, bound=4e-6)
    with jax.enable_x64(True):
        check_program(function, jnp.asarray(np.random.default_rng(3).standard_normal((2, 6, 8))), target=target, bound=1e-14)


@pytest.mark.parametrize("target", TARGETS)
def test_gradients(target):
    check_program(jax.grad(lambda x: (jnp.abs(fft.rfft(x)) ** 2).sum()), normal(3, 8), target=target, bound=1e-5)


def recurrent(x):
    """A state of complex numbers, a table of these, functions of them, and what moves them."""
    table = jnp.exp(1j * jnp.arange(8.0)).astype(jnp.complex64)

    def step(state, row):
        state = state * table + row
        return state / (1 + jnp.abs(state).max()), (state.sum(), jnp.angle(state[0]), state[::-1].real)

    state, rows = jax.lax.scan(step, jnp.zeros(8, jnp.complex64), x)
    moved = jnp.where(state.real > 0, state, -state.conj())
    return state, rows, jnp.exp(state), moved, jnp.cumsum(state), table[jnp.array([3, 1])] * state[:2]


@pytest.mark.parametrize("target", TARGETS)
def test_states_of_complex_numbers(target):
    check_program(recurrent, normal(12, 8), target=target, bound=4e-6)


def test_complex_arrays():
    """As arguments, as what a function closes over, and as results, in trees."""
    table, x = fft.fft(normal(4, 6)), normal(4, 6)
    fast = fovea.jax.compile(lambda a, b: {"product": a * b["w"] * table, "size": jnp.abs(a)})
    for a in (fft.fft(x), x):
        found, expected = fast(a, {"w": table}), {"product": a * table * table, "size": jnp.abs(a)}
        assert found["product"].dtype == jnp.complex64 and found["size"].dtype == jnp.float32
        for name, each in expected.items():
            np.testing.assert_allclose(found[name], each, rtol=1e-5, atol=1e-5)
    assert fovea.jax.compile(lambda a: a * 2)(1 + 2j) == 2 + 4j


def test_errors():
    with pytest.raises(fovea.FoveaError, match="a Fourier transform of arrays whose extents are not known"):
        (batch,) = jax.export.symbolic_shape("b")
        fovea.import_jax(lambda x: fft.rfft(x).real, jax.ShapeDtypeStruct((batch, 8), jnp.float32))
