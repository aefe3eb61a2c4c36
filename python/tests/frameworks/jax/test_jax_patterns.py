# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""hca and selected on arrays of JAX, and their gradients, against those of arrays."""

import jax
import numpy as np
import pytest

import fovea
import fovea.jax

B, H, N, D, R = 2, 4, 40, 8, 8


def arrays():
    rng = np.random.default_rng(0)
    q, kv, x, gate = (rng.standard_normal((B, heads, N, D)).astype(np.float32) for heads in (H, 1, 1, 1))
    return q, kv, fovea.pool(x, gate, interval=R), rng.standard_normal((1, H)).astype(np.float32)


ROWS = np.random.default_rng(1).integers(-1, N // R, (B, 1, N, 3)).astype(np.int32)


def call_hca(of, q, kv, summaries, sink, **options):
    return of.hca(q, kv, summaries, window=9, interval=R, sink=sink, **options)


def call_selected(of, q, kv, summaries, sink, **options):
    rows = ROWS[:, :, -q.shape[1 if options.get("layout") == "bnhd" else 2] :]
    return of.selected(q, summaries, summaries, rows, stride=R, local=(kv, kv), window=9, sink=sink, **options)


@pytest.mark.parametrize("call", [call_hca, call_selected])
def test_values(call):
    q, *rest = arrays()
    for few in (N, 3):
        last = q[:, :, -few:]
        expected = call(fovea, last, *rest, return_lse=True)
        found = jax.jit(lambda *given: call(fovea.jax, *given, return_lse=True))(last, *rest)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)
        swapped = [each.swapaxes(1, 2) for each in (last, *rest[:2])]
        turned = call(fovea.jax, *swapped, rest[2], layout="bnhd")
        np.testing.assert_allclose(turned.swapaxes(1, 2), expected[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("call", [call_hca, call_selected])
def test_gradients(call):
    given = arrays()
    out, lse = call(fovea, *given, return_lse=True)
    q, kv, summaries, sink = given
    if call is call_hca:
        expected = fovea.hca_backward(out, q, kv, summaries, out, lse, window=9, interval=R, sink=sink)
    else:
        of = fovea.selected_backward(out, q, summaries, summaries, ROWS, out, lse, stride=R, local=(kv, kv), window=9, sink=sink)
        expected = of.q, of.local[0] + of.local[1], of.k + of.v, of.sink
    found = jax.jit(jax.grad(lambda *given: (call(fovea.jax, *given) * out).sum(), argnums=(0, 1, 2, 3)))(*given)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def test_errors():
    q, kv, summaries, _ = arrays()
    with pytest.raises(ValueError, match="^interval: found 0"):
        fovea.jax.hca(q, kv, summaries, interval=0)
    with pytest.raises(ValueError, match="^window: found it without local"):
        jax.jit(lambda *given: fovea.jax.selected(*given, window=3))(q, kv, kv, ROWS)
