# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Vector-Jacobian products of compiled functions."""

import math
import pathlib
import sys

import numpy as np
import pytest
from conftest import TYPES

import fovea

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples"))
from language_model_builder import Model, loss_function

LAYER = """
func.func @layer(%x: tensor<5x7x$T>, %w: tensor<7x4x$T>, %n: tensor<4xi32>) -> (tensor<5x4x$T>, tensor<4xi32>) {
  %zero = arith.constant 0.0 : $T
  %e = tensor.empty() : tensor<5x4x$T>
  %z = linalg.fill ins(%zero : $T) outs(%e : tensor<5x4x$T>) -> tensor<5x4x$T>
  %y = linalg.matmul ins(%x, %w : tensor<5x7x$T>, tensor<7x4x$T>) outs(%z : tensor<5x4x$T>) -> tensor<5x4x$T>
  %r = math.tanh %y : tensor<5x4x$T>
  return %r, %n : tensor<5x4x$T>, tensor<4xi32>
}
"""
NAMES = {"float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16"}
BOUNDS = {"float32": 5e-6, "float64": 1e-13, "float16": 2e-3, "bfloat16": 1e-2}


def compile_layer(type="float32", **options):
    return fovea.compile(LAYER.replace("$T", NAMES[type]), **options)


def inputs(type="float32"):
    rng = np.random.default_rng(0)
    x, w, d = (rng.standard_normal(s).astype(TYPES[type]) for s in ((5, 7), (7, 4), (5, 4)))
    return x, w, np.arange(4, dtype=np.int32), d


def close(found, expected, bound):
    assert found.shape == expected.shape
    error = np.abs(found.astype(np.float64) - expected).max()
    assert error <= bound * np.abs(expected).max()


@pytest.mark.parametrize("type", list(NAMES))
def test_gradients(type, target):
    x, w, n, d = inputs(type)
    dx, dw = compile_layer(type, target=target).vjp()(x, w, n, d)
    assert dx.dtype == dw.dtype == TYPES[type]
    x, w, d = (a.astype(np.float64) for a in (x, w, d))
    inner = d * (1 - np.tanh(x @ w) ** 2)
    close(dx, inner @ w.T, BOUNDS[type])
    close(dw, x.T @ inner, BOUNDS[type])


def test_options():
    kernel = compile_layer()
    arguments = inputs()
    dx, dw = kernel.vjp()(*arguments)
    assert np.array_equal(kernel.vjp(arguments=[1])(*arguments), dw)
    r, n, dw2, dx2 = kernel.vjp(arguments=[1, 0], primal_results=True)(*arguments)
    assert np.array_equal(r, kernel(*arguments[:3])[0])
    assert np.array_equal(n, arguments[2])
    assert np.array_equal(dx, dx2) and np.array_equal(dw, dw2)


def test_kernel():
    kernel = compile_layer()
    vjp = kernel.vjp()
    assert vjp.name == "layer_vjp"
    assert vjp.signature == (
        "(%x: tensor<5x7xf32>, %w: tensor<7x4xf32>, %n: tensor<4xi32>, %d_result0: tensor<5x4xf32>)"
        " -> (tensor<5x7xf32>, tensor<7x4xf32>)"
    )
    before = fovea._fovea.cache_statistics()
    kernel.vjp()
    after = fovea._fovea.cache_statistics()
    assert after[2] == before[2]


def test_entry():
    text = "func.func @f(%x: f32) -> f32 {\n  return %x : f32\n}\n" + LAYER.replace("$T", "f32")
    vjp = fovea.compile(text, entry="layer").vjp(arguments=[0])
    assert vjp.name == "layer_vjp" and vjp(*inputs()).shape == (5, 7)


def test_scalars():
    text = """
func.func @f(%a: f64, %b: f64) -> f64 {
  %0 = math.powf %a, %b : f64
  return %0 : f64
}
"""
    da, db = fovea.compile(text).vjp()(2.0, 3.0, 1.0)
    assert math.isclose(da, 12) and math.isclose(db, 8 * math.log(2))


def test_errors():
    kernel = compile_layer()
    with pytest.raises(ValueError, match="arguments: found none, needed at least one"):
        kernel.vjp(arguments=[])
    with pytest.raises(fovea.FoveaError, match="argument 2: expected a floating-point type, but got 'tensor<4xi32>'"):
        kernel.vjp(arguments=[2])
    with pytest.raises(fovea.FoveaError, match="with respect to argument 3: it has 3 arguments"):
        kernel.vjp(arguments=[3])
    x, w, n, d = inputs()
    with pytest.raises(ValueError, match="expects 4 arguments, but got 3"):
        kernel.vjp()(x, w, n)
    with pytest.raises(ValueError, match=r"argument 3 \(%d_result0\)"):
        kernel.vjp()(x, w, n, d[:4])
    attention = """
func.func @f(%q: tensor<1x1x4x2xf32>, %w: tensor<1x1x4xf32>) -> tensor<1x1x4x2xf32> {
  %0 = attn.dense ins(%q, %q, %q : tensor<1x1x4x2xf32>, tensor<1x1x4x2xf32>, tensor<1x1x4x2xf32>)
      log_weight(%w : tensor<1x1x4xf32>) outs(%q : tensor<1x1x4x2xf32>) -> tensor<1x1x4x2xf32>
  return %0 : tensor<1x1x4x2xf32>
}
"""
    gradient = fovea.compile(attention).vjp()
    message = "3:8: error: 'attn.dense_backward' op has no gradient: a second derivative of attention with log weights is not known"
    with pytest.raises(fovea.FoveaError, match=message):
        gradient.vjp()


def test_second():
    """Of x^3 y, by (a, b) as cotangents: that of the gradient (3 x^2 y, x^3)."""
    text = """
func.func @f(%x: f64, %y: f64) -> f64 {
  %0 = arith.mulf %x, %x : f64
  %1 = arith.mulf %0, %x : f64
  %2 = arith.mulf %1, %y : f64
  return %2 : f64
}
"""
    second = fovea.compile(text).vjp().vjp(arguments=[0, 1])
    assert second.name == "f_vjp_vjp"
    assert second.signature == (
        "(%x: f64, %y: f64, %d_result0: f64, %d_d_result0: f64, %d_d_result1: f64) -> (f64, f64)"
    )
    x, y, d, a, b = 2.0, 3.0, 0.5, 1.25, -2.0
    dx, dy = second(x, y, d, a, b)
    assert math.isclose(dx, d * (6 * x * y * a + 3 * x * x * b)) and math.isclose(dy, d * 3 * x * x * a)


# ---- A whole model --------------------------------------------------------------


def norm(x, gain):
    r = 1 / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)
    return x * r * gain, r


def norm_backward(d, x, gain, r):
    """Gradients for x and the gain."""
    dn = d * gain
    dx = r * dn - x * r**3 * (dn * x).mean(-1, keepdims=True)
    return dx, (d * x * r).sum((0, 1))


def heads(x, H):
    return x.reshape(*x.shape[:2], H, -1).transpose(0, 2, 1, 3)


def merge(x):
    return x.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], -1)


def weight_gradient(x, d):
    return x.reshape(-1, x.shape[-1]).T @ d.reshape(-1, d.shape[-1])


def model_gradient(model, tokens, targets, p):
    """The loss of a model of one layer, and its gradients, by hand."""
    H, D = model.heads, model.head_width
    g = {}
    x = p["embedding"][tokens] + p["position"]
    h, r = norm(x, p["g1_0"])
    q, k, v = (heads(h @ p[f"w{n}_0"], H) for n in "qkv")
    s = q @ k.swapaxes(-1, -2) / math.sqrt(D)
    s = np.where(np.tri(model.context, dtype=bool), s, -np.inf)
    P = np.exp(s - s.max(-1, keepdims=True))
    P /= P.sum(-1, keepdims=True)
    o = merge(P @ v)
    x1 = x + o @ p["wo_0"]
    h1, r1 = norm(x1, p["g2_0"])
    gate, up = h1 @ p["gate_0"], h1 @ p["up_0"]
    sigmoid = 1 / (1 + np.exp(-gate))
    m = gate * sigmoid * up
    x2 = x1 + m @ p["down_0"]
    h2, r2 = norm(x2, p["gain"])
    logits = h2 @ p["unembedding"]
    e = np.exp(logits - logits.max(-1, keepdims=True))
    e /= e.sum(-1, keepdims=True)
    picked = np.take_along_axis(e, targets[..., None], -1)
    loss = -np.log(picked).mean()

    d = (e - np.eye(256)[targets]) / targets.size
    g["unembedding"] = weight_gradient(h2, d)
    dx, g["gain"] = norm_backward(d @ p["unembedding"].T, x2, p["gain"], r2)
    g["down_0"] = weight_gradient(m, dx)
    dm = dx @ p["down_0"].T
    dgate = dm * up * sigmoid * (1 + gate * (1 - sigmoid))
    dup = dm * gate * sigmoid
    g["gate_0"], g["up_0"] = weight_gradient(h1, dgate), weight_gradient(h1, dup)
    more, g["g2_0"] = norm_backward(dgate @ p["gate_0"].T + dup @ p["up_0"].T, x1, p["g2_0"], r1)
    dx = dx + more
    g["wo_0"] = weight_gradient(o, dx)
    do = heads(dx @ p["wo_0"].T, H)
    dP = do @ v.swapaxes(-1, -2)
    dS = P * (dP - (dP * P).sum(-1, keepdims=True)) / math.sqrt(D)
    dqkv = [merge(a) for a in (dS @ k, dS.swapaxes(-1, -2) @ q, P.swapaxes(-1, -2) @ do)]
    dh = 0
    for n, da in zip("qkv", dqkv):
        g[f"w{n}_0"] = weight_gradient(h, da)
        dh = dh + da @ p[f"w{n}_0"].T
    more, g["g1_0"] = norm_backward(dh, x, p["g1_0"], r)
    dx = dx + more
    g["position"] = dx.sum(0)
    g["embedding"] = np.zeros_like(p["embedding"])
    np.add.at(g["embedding"], tokens, dx)
    return loss, g


@pytest.mark.parametrize("element,bound", [("f64", 1e-12), ("f32", 2e-5)])
def test_transformer(element, bound, target):
    model = Model(batch=2, context=37, width=24, heads=3, hidden=40, layers=1, element=element)
    rng = np.random.default_rng(0)
    dtype = {"f64": np.float64, "f32": np.float32}[element]
    tokens, targets = rng.integers(0, 256, (2, 2, 37)).astype(np.int32)
    parameters = {
        name: (1 + 0.1 * rng.standard_normal(shape) if len(shape) == 1
               else rng.standard_normal(shape) / math.sqrt(shape[0])).astype(dtype)
        for name, shape in model.parameters().items()
    }  # fmt: skip
    vjp = fovea.compile(loss_function(model), target=target).vjp(primal_results=True)
    loss, *found = vjp(tokens, targets, *parameters.values(), np.ones((), dtype))
    exact = {name: value.astype(np.float64) for name, value in parameters.items()}
    expected_loss, expected = model_gradient(model, tokens, targets, exact)
    assert abs(loss - expected_loss) <= bound * expected_loss
    for gradient, name in zip(found, model.parameters()):
        close(gradient, expected[name], bound)
