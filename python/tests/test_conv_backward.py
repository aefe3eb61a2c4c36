# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# REQUIRES: long-tests
"""Gradients of sums of convolutions and of rope against the NumPy references."""

import re

import numpy as np
import pytest
from conftest import BOUNDS, TYPES, make

import fovea
from fovea import reference

EXACT = {"window": 1, "delta": 0.0, "epsilon": 0.0}


def near(found, expected, type, bound=None):
    """Twice the forward's bound: a gradient is made of two of its sums."""
    assert found.dtype == TYPES[type] and found.shape == expected.shape
    error = np.abs(found.astype(np.float64) - expected).max(initial=0)
    assert error <= (bound or 2 * BOUNDS[type]) * np.abs(expected).max(initial=0)


def gradient(q, v, type, seed=4):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((*q.shape[:3], v.shape[3])).astype(TYPES[type])


def make_bases(N, sizes, type, heads=(1, 2)):
    b = np.random.default_rng(2).standard_normal((*heads, len(sizes), N)).astype(TYPES[type])
    return b, np.broadcast_to(np.array(sizes, np.int32), (*heads, len(sizes))).copy()


@pytest.mark.parametrize("algorithm", ["auto", "toeplitz", "partitioned"])
@pytest.mark.parametrize("type", list(TYPES))
def test_apply(algorithm, type, target):
    b, sizes = make_bases(70, (70, 41, 40), "float64" if type == "float64" else "float32")
    _, _, v = make(type, H=2, G=1, N=70)
    out = fovea.conv_apply(b, sizes, v, algorithm=algorithm, target=target)
    d_out = gradient(out, v, type)
    found = fovea.conv_apply_backward(d_out, b, sizes, v, out, algorithm=algorithm, target=target)
    expected = reference.conv_apply_backward(d_out, b, sizes, v)
    assert found[0].dtype == b.dtype
    near(found[0].astype(TYPES[type]), expected[0], type)
    near(found[1], expected[1], type)


@pytest.mark.parametrize("type", ["float32", "float64", "bfloat16"])
def test_recover(type, target):
    q, k, _ = make(type, H=4, G=2, N=40)
    b, sizes, found = fovea.conv_recover(q, k, num_basis=50, **EXACT, target=target)
    assert (found == 40).all()
    d_b = np.random.default_rng(3).standard_normal(b.shape).astype(b.dtype)
    gradients = fovea.conv_recover_backward(d_b, q, k, sizes, target=target)
    for one, other in zip(gradients, reference.conv_recover_backward(d_b, q, k, sizes)):
        near(one, other, type)


@pytest.mark.parametrize("group", [None, 8, 16, 64])
@pytest.mark.parametrize("num_basis", [3, 50])
def test_conv(num_basis, group, target):
    q, k, v = make("float64", H=4, G=2, N=45)
    options = {"num_basis": num_basis, **EXACT}
    mask = "causal" if group is None else fovea.SlidingGroup(group)
    out = fovea.conv(q, k, v, **options, mask=mask, target=target)
    d_out = gradient(q, v, "float64")
    found = fovea.conv_backward(d_out, q, k, v, out, **options, mask=mask, target=target)
    expected = reference.conv_backward(d_out, q, k, v, **options, group=group)
    for one, other in zip(found, expected):
        near(one, other, "float64")


def test_exact(target):
    """A basis for every column: causal attention, whose gradient is known."""
    q, k, v = make("float32", H=4, G=2, N=64)
    out = fovea.conv(q, k, v, num_basis=64, **EXACT, target=target)
    d_out = gradient(q, v, "float32")
    found = fovea.conv_backward(d_out, q, k, v, out, num_basis=64, **EXACT, target=target)
    dense = reference.dense(q, k, v, causal=True, return_lse=True)
    for one, other in zip(found, reference.dense_backward(d_out, q, k, v, *dense, causal=True)):
        near(one, other, "float32", bound=2e-5)


@pytest.mark.parametrize("type", list(TYPES))
def test_rope(type, target):
    x, _, _ = make(type, N=33, D=6)
    positions = np.arange(33) * 1000
    d_out = np.random.default_rng(1).standard_normal(x.shape).astype(TYPES[type])
    found = fovea.rope_backward(d_out, positions, target=target)
    near(found, reference.rope_backward(d_out, positions), type)
    back = fovea.rope(found, positions, target=target)
    near(back, d_out.astype(np.float64), type)


def test_vjp(target):
    """The same gradients from a function of the operations."""
    q, k, v = make("float32", H=2, G=1, N=24, D=6, E=5)
    text = """
func.func @f(%q: Q, %k: K, %v: V, %p: tensor<1x1x24xi32>) -> O {
  %q0 = tensor.empty() : Q
  %k0 = tensor.empty() : K
  %qr = attn.rope ins(%q, %p : Q, tensor<1x1x24xi32>) outs(%q0 : Q) -> Q
  %kr = attn.rope ins(%k, %p : K, tensor<1x1x24xi32>) outs(%k0 : K) -> K
  %o = tensor.empty() : O
  %n = tensor.empty() : tensor<1x2xi32>
  %c = tensor.empty() : tensor<1x2xi32>
  %r:3 = attn.conv ins(%qr, %kr, %v : Q, K, V) outs(%o, %n, %c : O, tensor<1x2xi32>, tensor<1x2xi32>)
      {num_basis = 4 : i64, window = 1 : i64, delta = 0.0 : f64, epsilon = 0.0 : f64} -> O, tensor<1x2xi32>, tensor<1x2xi32>
  return %r#0 : O
}
"""
    for name, array in (("Q", q), ("K", k), ("V", v), ("O", np.empty((1, 2, 24, 5)))):
        text = re.sub(rf"\b{name}\b", f"tensor<{'x'.join(map(str, array.shape))}xf32>", text)
    kernel = fovea.compile(text, target=target)
    positions = np.arange(24, dtype=np.int32).reshape(1, 1, 24)
    d_out = gradient(q, v, "float32")
    found = kernel.vjp()(q, k, v, positions, d_out)
    turned = [reference.rope(x, positions) for x in (q, k)]
    options = {"num_basis": 4, **EXACT}
    expected = reference.conv_backward(d_out, *turned, v, **options)
    for one, other in zip(found[:2], expected):
        near(one, reference.rope_backward(other, positions), "float32")
    near(found[2], expected[2], "float32")


def refused(message, function, *arguments, **options):
    with pytest.raises(ValueError, match=re.escape(message)):
        function(*arguments, **options)


def test_errors():
    b, sizes = make_bases(20, (20, 5), "float32")
    q, k, v = make("float32", H=2, G=1, N=20)
    out = np.zeros((1, 2, 20, v.shape[3]), np.float32)
    call = fovea.conv_apply_backward
    refused("d_out: found shape", call, out[:, :, :7], b, sizes, v, out)
    refused("out: found element type float64", call, out, b, sizes, v, out.astype(np.float64))
    refused("sizes: found element type int64, needed int32", call, out, b, sizes.astype(np.int64), v, out)
    refused("algorithm: found 'fft'", call, out, b, sizes, v, out, algorithm="fft")
    with pytest.raises(fovea.FoveaError, match=re.escape("attn.conv_apply_backward: sizes[0, 1, 1]")):
        call(out, b, np.array([[[20, 5], [20, 20]]], np.int32), v, out)
    refused("d_b: found element type float64", fovea.conv_recover_backward, b.astype(np.float64), q, k, sizes)
    refused("d_b: found shape (1, 2, 2, 19)", fovea.conv_recover_backward, b[..., :19].copy(), q, k, sizes)
    with pytest.raises(fovea.FoveaError, match=re.escape("attn.conv_recover_backward: sizes[0, 0, 0]")):
        fovea.conv_recover_backward(b, q, k, sizes + 1)
    refused("window: found 21", fovea.conv_backward, out, q, k, v, out, num_basis=1, **{**EXACT, "window": 21})
    refused("mask: found 'full'", fovea.conv_backward, out, q, k, v, out, num_basis=1, **EXACT, mask="full")
    refused("d_out: found width 5", fovea.rope_backward, np.zeros((1, 1, 4, 5), np.float32), np.arange(4))
