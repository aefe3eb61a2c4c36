# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions of import_torch over all that f32 holds but subnormal numbers: tiny, huge, infinite and NaN."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from test_import_operations import Call

import fovea

pytest.importorskip("torch_mlir")

_MAGNITUDES = [0.0, 1e-30, 1e-8, 1e-4, 0.1, 0.3, 0.5, 0.9, 1.0, 1.5, 2.5, 3.0, 7.3, 10.0, 20.1, 50.0, 87.0, 2e9, 1e19, 3e38, np.inf]
VALUES = torch.tensor([sign * value for value in _MAGNITUDES for sign in (1, -1)] + [np.nan])
#: All pairs.
LEFT, RIGHT = (each.contiguous() for each in torch.meshgrid(VALUES, VALUES, indexing="ij"))

UNARY = {name: getattr(torch, name) for name in """
    exp expm1 exp2 log log1p log2 sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc sigmoid neg abs
    floor ceil round trunc frac sign square reciprocal relu nan_to_num isnan isinf isfinite signbit logit digamma
    """.split()}  # fmt: skip
UNARY |= {name: getattr(F, name) for name in "softplus elu selu celu hardswish hardsigmoid logsigmoid relu6 softsign".split()}
UNARY |= {f"power {power}": lambda x, power=power: x**power for power in (3, -1, 0.5, -2, 1.5)}

BINARY = {name: getattr(torch, name) for name in """
    add sub mul div maximum minimum atan2 hypot pow fmax fmin copysign logaddexp logaddexp2 xlogy heaviside floor_divide
    eq ne lt le gt ge isclose
    """.split()}  # fmt: skip
BINARY |= {
    "div trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "lerp": lambda a, b: torch.lerp(a, b, 0.7),
    "addcdiv": lambda a, b: torch.addcdiv(a, a, b),
    "clamp": lambda a, b: torch.clamp(a, b, b + 1),
    "isclose of NaN": lambda a, b: torch.isclose(a, b, equal_nan=True),
    "isclose exactly": lambda a, b: torch.isclose(a, b, rtol=0, atol=0),
}


def compare(function, *arguments):
    found, expected = np.asarray(fovea.import_torch(Call(function), *arguments)(*arguments)), function(*arguments).numpy()
    assert found.dtype == expected.dtype
    if expected.dtype == bool:
        np.testing.assert_array_equal(found, expected)
    else:
        # Sums of numbers that cancel, as those near 1 of logarithms do, are as good as these are.
        np.testing.assert_allclose(found, expected, rtol=4e-6, atol=1e-37 if np.ndim(found) == 1 else 1e-7)


@pytest.mark.parametrize("name", UNARY)
def test_unary(name):
    compare(UNARY[name], VALUES)


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize(("type", "tolerance"), [(torch.float32, 2e-6), (torch.float64, 1e-13)])
def test_unary_of_gpus(name, type, tolerance):
    values = VALUES.to(type)
    if type is torch.float64 and name in ("sin", "cos", "tan"):
        # Beyond 2^50 these are NaN.
        values = values[~(values.abs() > 2.0**50) | values.isinf()]
    found = np.asarray(fovea.import_torch(Call(UNARY[name]), values, target="gpu-sim")(values))
    expected = UNARY[name](values).numpy()
    assert found.dtype == expected.dtype
    if expected.dtype == bool:
        np.testing.assert_array_equal(found, expected)
    else:
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=1e-37)


def test_powers_of_gpus():
    for type, tolerance in ((torch.float32, 1e-6), (torch.float64, 1e-12)):
        x, y = LEFT.to(type), RIGHT.to(type)
        found = np.asarray(fovea.import_torch(Call(torch.pow), x, y, target="gpu-sim")(x, y))
        np.testing.assert_allclose(found, torch.pow(x, y).numpy(), rtol=tolerance, atol=1e-37)


@pytest.mark.parametrize("name", BINARY)
def test_binary(name):
    compare(BINARY[name], LEFT, RIGHT)


@pytest.mark.parametrize("name", ["fmod", "remainder"])
def test_remainders(name):
    """Those of PyTorch are NaN where a quotient is beyond f32."""
    function = getattr(torch, name)
    found = np.asarray(fovea.import_torch(Call(function), LEFT, RIGHT)(LEFT, RIGHT))
    with np.errstate(invalid="ignore"):
        expected = getattr(np, name)(LEFT.numpy().astype(np.float64), RIGHT.numpy().astype(np.float64))
    np.testing.assert_allclose(found, expected, rtol=2e-7)


def make_rows():
    """Rows of small and of huge numbers, some of them all the same, infinite in part, or with a NaN."""
    x = torch.randn(20, 9, generator=torch.Generator().manual_seed(1))
    x[:4] *= 100
    x[4:8] *= 1e4
    x[8, :5], x[9, 5:], x[10], x[11], x[12, 3] = -np.inf, -np.inf, -np.inf, 0, np.nan
    x[13, :4], x[14], x[15, 2] = -3.4e38, -3.4e38, np.inf
    return x


ROWS = {
    "logsumexp": lambda x: x.logsumexp(-1),
    "logcumsumexp": lambda x: x.logcumsumexp(-1),
    "logcumsumexp of columns": lambda x: x.logcumsumexp(0),
    "softmax": lambda x: x.softmax(-1),
    "log_softmax": lambda x: x.log_softmax(-1),
    "rms_norm": lambda x: F.rms_norm(x[:13], x.shape[-1:]),
    "rms_norm with weights": lambda x: F.rms_norm(x[:13], x.shape[-1:], torch.arange(9.0), 1e-3),
}


@pytest.mark.parametrize("name", ROWS)
def test_rows(name):
    x = make_rows()
    found, expected = np.asarray(fovea.import_torch(Call(ROWS[name]), x)(x)), ROWS[name](x).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("type", [torch.bfloat16, torch.float16])
def test_narrow_types(type):
    """`eps` that is not given is that of the type that computes."""
    x = torch.tensor([[1e-5, 2e-5], [3.0, -4.0]]).to(type)
    for function in (lambda x: F.rms_norm(x, (2,)).float(), lambda x: (100 * x).logcumsumexp(1).float()):
        found, expected = np.asarray(fovea.import_torch(Call(function), x)(x)), function(x)
        np.testing.assert_allclose(found, expected, rtol=2e-2)


def test_floor_division_of_integers_and_numbers():
    x = torch.tensor([1.0, 0.3, -1.0, 7.0, -7.0, 0.0, 5.5, -0.0])
    function = lambda x: (x // 0.1, x // 2, (x * 10).int() // 3, (x * 10).int() // -4, torch.floor_divide(x, x * 0), x // x)  # noqa: E731
    for found, expected in zip(fovea.import_torch(Call(function), x)(x), function(x), strict=True):
        assert found.dtype == expected.numpy().dtype
        np.testing.assert_array_equal(found, expected)


def test_extents_that_are_not_known():
    x = torch.randn(3, 5, 8)
    function = lambda x: (F.scaled_dot_product_attention(*[x.mT] * 3, scale=0.3), x.logcumsumexp(2), x.squeeze(1))  # noqa: E731
    compiled = fovea.import_torch(Call(function), x, dynamic=(1,))
    for length in (5, 9):
        x = torch.randn(3, length, 8)
        for found, expected in zip(compiled(x), function(x), strict=True):
            np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-6)


def written_by_hand(x):
    batch, length, width = x.shape
    heads = x.view(batch, length, 2, width // 2).permute(0, 2, 1, 3)
    weights = torch.softmax(heads @ heads.mT * (width // 2) ** -0.5, -1)
    return (weights @ heads).permute(0, 2, 1, 3).reshape(batch, length, width)


@pytest.mark.parametrize("function", [written_by_hand, lambda x: F.scaled_dot_product_attention(x, x, x)])
@pytest.mark.parametrize("target", ["cpu", "gpu-sim"])
def test_attention_of_heads_of_unknown_width(function, target):
    """Its scale follows from the width."""
    compiled = fovea.import_torch(Call(function), torch.randn(2, 8, 16), dynamic=(0, 1, 2), target=target)
    for shape in ((2, 8, 16), (3, 5, 12), (1, 9, 40)):
        x = torch.randn(shape)
        np.testing.assert_allclose(np.asarray(compiled(x)), function(x), rtol=2e-5, atol=1e-6)
