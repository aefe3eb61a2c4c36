# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations of elements, within what f32 holds: chains of them stay finite."""

import torch
import torch.nn.functional as F

from ..draw import kind

UNARY = {
    "exp": lambda x: torch.exp(x.clamp(-5, 5)),
    "expm1": lambda x: torch.expm1(x.clamp(-4, 4)),
    "log": lambda x: torch.log(x.abs() + 0.1),
    "log1p": lambda x: torch.log1p(x.abs()),
    "sqrt": lambda x: torch.sqrt(x.abs() + 0.1),
    "rsqrt": lambda x: torch.rsqrt(x.abs() + 0.1),
    "reciprocal": lambda x: 1 / (x.abs() + 0.5),
    "cube": lambda x: x.clamp(-3, 3) ** 3,
    "add": lambda x: x + 1.5,
    "multiply": lambda x: x * -0.7,
    "subtract": lambda x: 2 - x,
    "clamp": lambda x: x.clamp(-0.5, 0.7),
    "gelu of tanh": lambda x: F.gelu(x, approximate="tanh"),
    "leaky_relu": lambda x: F.leaky_relu(x, 0.1),
    "threshold": lambda x: F.threshold(x, 0.1, -2.0),
    "masked_fill": lambda x: x.masked_fill(x > 1, -2.0),
    "where": lambda x: torch.where(x.abs() < 0.5, torch.zeros_like(x), x),
    "where of places": lambda x: torch.where(torch.arange(x.shape[-1]) % 2 == 0, x, -x) if x.dim() else x,
    "positive": lambda x: x * (x > 0),
    "isnan": lambda x: (~torch.isnan(x) & (x < 1)).to(x.dtype) + x,
    "clamp by tensors": lambda x: torch.clamp(x, x.mean(), x.max()),
    "full": lambda x: torch.full_like(x, 0.5) + x.new_zeros(x.shape) + x,
    "linspace": lambda x: x * torch.linspace(0, 1, x.shape[-1], dtype=x.dtype) if x.dim() else x,
    "int32": lambda x: ((x * 3).to(torch.int32) // 2 * 2).to(x.dtype),
    "int64": lambda x: (x * 4).to(torch.int64).to(x.dtype) / 4,
    "remainder of integers": lambda x: ((x * 5).long() % 3).to(x.dtype),
    "bool": lambda x: (x > 0).to(x.dtype),
}
for _module, _names in (
    (torch, "tanh sigmoid neg abs sin cos erf floor round sign atan trunc frac square nan_to_num relu"),
    (F, "gelu silu softplus elu hardswish hardsigmoid mish logsigmoid relu6 celu selu softsign tanhshrink hardtanh"),
):
    UNARY |= {name: getattr(_module, name) for name in _names.split()}

BINARY = {
    "divide": lambda a, b: a / (b.abs() + 0.5),
    "floor divide": lambda a, b: torch.div(a, b.abs() + 1, rounding_mode="floor"),
    "remainder": lambda a, b: torch.remainder(a, b.abs() + 1),
    "fmod": lambda a, b: torch.fmod(a, b.abs() + 1),
    "where": lambda a, b: torch.where(a > b, a, b * 0.5),
    "lerp": lambda a, b: torch.lerp(a, b, 0.3),
    "addcmul": lambda a, b: torch.addcmul(a, a, b, value=0.5),
    "squared difference": lambda a, b: (a - b) ** 2,
    "xlogy": lambda a, b: torch.xlogy(a, b.abs() + 0.1),
    "masked_fill": lambda a, b: a.masked_fill(b > 0, -1.0),
}
BINARY |= {
    name: getattr(torch, name)
    for name in "add sub mul maximum minimum atan2 hypot rsub copysign logaddexp fmax fmin heaviside".split()
}


@kind(2)
def unary(draw):
    name, function = draw.pick(UNARY)
    return draw.step(name, function)


@kind(2)
def binary(draw):
    return draw.of_two(BINARY)
