# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations of PyTorch that torch-mlir writes in a dialect of its own: with known and with unknown extents."""

import re

import numpy as np
import pytest
import torch
from torch_models import Call

import fovea

pytest.importorskip("torch_mlir")


def sums(x):
    """Of rows, of rows of two indices, and of what they count."""
    numbers = torch.arange(x.shape[0]) % 3
    return (
        torch.zeros(3, 6).index_add(0, numbers, x[:, 0]),
        torch.zeros(3, 6).index_put((numbers, numbers), x[:, 0, 0], accumulate=True),
        torch.bincount(numbers, minlength=4),
    )


def places(x):
    """Of one index, of the last of equal ones, of two indices, and those that count from the end."""
    return (
        x.index_copy(1, torch.tensor([3, 0]), x[:, :2] * 2),
        x.index_fill(1, torch.tensor([0, 2]), 7.0),
        x[0].index_put((torch.tensor([1, 0]), torch.tensor([5, 2])), torch.tensor([8.0, 9.0])),
        x.index_put((torch.tensor([-1]),), x[0]),
    )


def scattered(x):
    """To places of one dimension, and fewer of them than there are elements."""
    index = (x[:, :2] * 9).long() % x.shape[1]
    return (
        torch.zeros_like(x).scatter_add(1, index, x),
        torch.zeros_like(x).scatter_add(-1, torch.tensor([[[0, 5, 5]]]), x),
        x.scatter(1, torch.arange(2)[None, :, None].expand(4, 2, 6), x * 2),
        x.scatter(1, torch.arange(2)[None, :, None].expand(2, 2, 3), 3.0),
    )


def remainders(x):
    """And other arithmetic."""
    y = x.flip(0) * 2
    fractions = x.fmod(y), x.fmod(-0.7), (x * 9).int().fmod(4), x.remainder(-0.7), 1 / x.round(), x.round().reciprocal()
    return *fractions, (x * 9).long() ** 5, x.log().isfinite()


def medians(x):
    """Of pairs in the middle, of NaN, and of NaN alone."""
    gaps, x = x.sqrt(), x[:4]
    none = torch.full_like(x, float("nan"))
    return (
        *x.median(1), *x.median(-1, keepdim=True), x.median(), gaps.median(1).values, gaps.nanmedian(1).values, gaps.nanmedian(),
        none.nanmedian(1).values, (x * 9).int().median(0).values,
    )


def not_numbers(x):
    """NaN stays, in each of two; it is greater than all numbers where some are chosen."""
    nan = x.sqrt()
    return (
        nan.clamp(0.5, 0.9), nan.clamp(min=0.5), torch.nn.functional.relu6(nan), torch.nn.functional.hardtanh(nan), nan.maximum(x),
        x.maximum(nan), nan.minimum(x), x.minimum(nan), nan.topk(2, -1).values,
        nan[:, 0].topk(6, -1, largest=False).values, *x.flatten(1).topk(35, 1),
    )  # fmt: skip


def places_of_extrema(x):
    """The first of NaN, of equal ones, and of infinities alone."""
    few, none = torch.where(x > 0.5, float("nan"), x.round()), torch.full_like(x, -float("inf"))
    return (
        few.argmax(1), few.argmin(-1), few.argmax(), few.argmin(0, keepdim=True), *few.max(1), *few.min(2, keepdim=True), none.argmax(1),
        (x * 3).int().argmax(1), few.flatten().argmax(keepdim=True),
    )  # fmt: skip


def found(x):
    """Places in what is sorted, of numbers within it, before, behind and equal, and of NaN."""
    line, lines = x[0, :, 0].sort().values, x.sort(-1).values
    return (
        torch.searchsorted(line, x), torch.searchsorted(line, x[0, :, 0], right=True), torch.searchsorted(lines, x.sqrt(), side="right"),
        torch.searchsorted(lines, lines, out_int32=True), torch.searchsorted(line, 0.3), torch.bucketize(x, line),
    )  # fmt: skip


def distances(x):
    y = x.flip(-1)
    return torch.cdist(x, y), torch.cdist(x, y, p=1), torch.cdist(x, x, p=3), torch.cdist(x, y, p=float("inf")), torch.hypot(x, y * 3e30)


def rotated(x):
    """As rotary embeddings with complex numbers are, which some models multiply by 1.0."""
    turns = torch.polar(torch.ones(3), torch.arange(3).float()) * 1.0
    pairs = torch.view_as_complex(x.unflatten(-1, (3, 2))) * turns
    return torch.view_as_real(pairs * x[..., :1]).flatten(-2)


def layouts(x):
    """PyTorch's attention has a layout of its own, of which a view is made."""
    heads = x.unflatten(-1, (2, 3)).transpose(1, 2)
    return torch.nn.functional.scaled_dot_product_attention(heads, heads, heads).transpose(1, 2).view(x.shape)


def parts(x):
    """Of extents that are known and that are not, with a rest that is shorter."""
    return *x.chunk(2, 1), *x.split(3, 1)[:3], *x.tensor_split((1, 3), 0), *x.split([2, 4], -1), x.unbind(-1)[1]


def signs(x):
    """Those of zeros, too; numbers where the other is NaN."""
    zeros = torch.tensor([0.0, -0.0, 3.0, -3.0, float("inf"), -float("inf")])
    row = x.sqrt()[:, :1]
    return (
        x.copysign(zeros), zeros.copysign(-0.0), zeros.signbit(), 1 / zeros.copysign(zeros.flip(0)), x.fmax(row), row.fmin(x),
        x.sqrt().fmax(row).isnan(),
    )  # fmt: skip


def extents(x):
    """As numbers."""
    return x.sum(1) / x.shape[1], x * (0.5 * x.shape[0]), x / x.shape[1] ** 0.5


def rolled(x):
    """By more than an extent, and by less than none."""
    return x.roll(20, 1), x.roll((-9, 13), (0, 2)), x.roll(1, 0), x.roll(-50, 1), x[0].roll(100), x.roll((1, 0), (1, 2))


FUNCTIONS = {
    "rolled": rolled,
    "powers": lambda x: (torch.pow(2.5, x), x.abs() ** torch.arange(6), x.abs() ** x.double(), 2 ** x[..., :1]),
    "parts": parts,
    "signs": signs,
    "extents": extents,
    "NaN in others": not_numbers,
    "places of extrema": places_of_extrema,
    "found": found,
    "distances": distances,
    "bits": lambda x: ((x * 9).int() | 4, (x * 9).int() ^ 5, (x * 9).long() & 3, x.angle(), torch.polar(x.abs(), x).angle()),
    "rotated": rotated,
    "layouts": layouts,
    "less than no padding": lambda x: [torch.nn.functional.pad(x, pad, value=2.0) for pad in ((0, 0, 1, -1), (-2, 3, 0, -1), (-1, -1))],
    "scattered": scattered,
    "sums": sums,
    "places": places,
    "scans": lambda x: (x.cumprod(1), x.cumprod(0), x.logcumsumexp(2), x.cumsum(1)),
    "cumulative sums": lambda x: (
        x.cumsum(0), x.cumsum(-1), x.double().cumsum(1), (x * 9).int().cumsum(1), (x > 0).cumsum(0), x.bfloat16().cumsum(1).float(),
    ),
    "sorts": lambda x: (*x.sort(1), *x.sort(2, descending=True), *(x * 3).long().sort(dim=1, stable=True), x.argsort(0)),
    "NaN": lambda x: (*x.sqrt().sort(dim=1, stable=True), *x.sqrt().sort(dim=1, stable=True, descending=True)),
    "remainders": remainders,
    "medians": medians,
    "kth": lambda x: (*x.kthvalue(2, 1), *x.kthvalue(6, 2)),
}  # fmt: skip


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_equals_pytorch(name, is_known):
    function = FUNCTIONS[name]
    make = torch.Generator().manual_seed(3)
    example, x = (torch.randn(shape, generator=make) for shape in ((4, 7, 6), (4, 7, 6) if is_known else (5, 9, 6)))
    program = fovea.import_torch(Call(function), example, **({} if is_known else {"dynamic": (0, 1)}))
    found, expected = program(x), torch.utils._pytree.tree_leaves(function(x))
    for one, other in zip(found if isinstance(found, tuple) else (found,), expected, strict=True):
        assert one.shape == tuple(other.shape)
        np.testing.assert_allclose(np.asarray(one), other.numpy(), rtol=1e-5, atol=1e-5)


def turned(x, angles):
    """As of GPT-J: with angles of whole rows."""
    cos, sin = (each.repeat_interleave(2, 1)[:, None] for each in (angles.cos(), angles.sin()))
    return x * cos + torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2) * sin


def turned_pairs(x, angles):
    first, second = x.unflatten(-1, (-1, 2)).unbind(-1)
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    return torch.stack((first * cos - second * sin, first * sin + second * cos), -1).flatten(-2)


def turned_in_place(x, angles):
    """Of the first columns, one is added to the others."""
    first, second = x[..., ::2], x[..., 1::2]
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    out = torch.empty_like(x)
    out[..., ::2] = first * cos - second * sin
    out[..., 1::2] = first * sin + second * cos
    return torch.cat((out, x[..., :1] + 1), -1)


def turned_complex(x, angles):
    """As of the first Llama: one table, of queries and of keys."""
    turns = torch.polar(torch.ones_like(angles), angles)[:, None]
    both = (torch.view_as_complex(each.contiguous().unflatten(-1, (-1, 2))) * turns for each in (x, x * 2))
    return torch.cat([torch.view_as_real(each).flatten(-2) for each in both], -1)


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("width", [2, 6, 16, 18, 64, 130])
@pytest.mark.parametrize("form", [turned, turned_pairs, turned_in_place, turned_complex])
def test_rotations_of_neighbours(form, width, is_known):
    """Of any number of tokens, a part of wider rows, and rounded afterwards."""

    def function(x):
        places = torch.arange(x.shape[1]).float()
        angles = places[:, None] * 100.0 ** -(torch.arange(width // 2) / width)
        return form(x[..., 1:], angles), form(x[..., :width].mT.contiguous().mT, angles).bfloat16().float()

    make = torch.Generator().manual_seed(4)
    example, x = (torch.randn(2, tokens, 3, width + 1, generator=make) for tokens in (5, 5 if is_known else 9))
    program = fovea.import_torch(Call(function), example, **({} if is_known else {"dynamic": (1,)}))
    for found, expected, bound in zip(program(x), function(x), (1e-5, 1e-2), strict=True):
        np.testing.assert_allclose(np.asarray(found), expected.numpy(), rtol=bound, atol=bound)


def turned_halves(x, angles):
    cos, sin = (torch.cat((each, each), -1)[:, None] for each in (angles.cos(), angles.sin()))
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("width", [2, 8, 16, 24, 32, 40, 64])
@pytest.mark.parametrize("form", [turned, turned_pairs, turned_halves])
def test_rotations_of_some_columns(form, width, is_known):
    """Others are passed on, before or behind; heads of one sequence, as GPT-NeoX and Phi have them, or of several."""

    def rotate(x):
        angles = torch.arange(x.shape[1]).float()[:, None] * 100.0 ** -(torch.arange(width // 2) / width)
        return form(x[..., :width], angles)

    def function(x):
        behind = torch.cat((rotate(x), x[..., width:]), -1)
        before = torch.cat((x[..., :5], rotate(x[..., 5:]), x[..., 5 + width :]), -1)
        return behind.transpose(1, 2), before + 1, torch.cat((rotate(x), rotate(x * 2)), -1)

    make = torch.Generator().manual_seed(4)
    for batch in (1, 2):
        example, x = (torch.randn(batch, tokens, 3, width + 13, generator=make) for tokens in (5, 5 if is_known else 9))
        program = fovea.import_torch(Call(function), example, **({} if is_known else {"dynamic": (1,)}))
        for found, expected in zip(program(x), function(x), strict=True):
            np.testing.assert_allclose(np.asarray(found), expected.numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["erfc", "lgamma", "digamma", "atan2"])
@pytest.mark.parametrize("type", [torch.float32, torch.float64])
def test_special_functions(name, type):
    """Near zero, far from it, at poles, and of what is no number."""
    edges = torch.tensor([0.0, -0.0, 1.0, 2.0, -1.0, -2.0, 1e-20, -1e-20, 1e30, float("inf"), -float("inf"), float("nan")])
    x = torch.cat([torch.linspace(-9, 9, 301), edges, edges]).to(type)
    function = (lambda x: torch.atan2(x, x.flip(0))) if name == "atan2" else getattr(torch, name)
    if name == "atan2":
        x = torch.cat([x, *torch.meshgrid(edges.to(type), edges.to(type), indexing="ij")[0]])
    for extents in {}, {"dynamic": (0,)}:
        result = fovea.import_torch(Call(function), x, **extents)(x)
        expected = function(x.double()).to(type).numpy()
        bound = 1e-6 if type == torch.float32 else 2e-13
        np.testing.assert_allclose(result, expected, rtol=bound, atol=1e-2 * bound if "gamma" in name else 1e-37)
        is_zero = expected == 0
        if name == "atan2":
            np.testing.assert_array_equal(np.signbit(result[is_zero]), np.signbit(expected[is_zero]))


def test_numbers_of_f64():
    """None is rounded to f32."""
    x = torch.linspace(0.1, 3, 40, dtype=torch.float64)
    function = lambda x: (1.1 - x, x - 1.1, 1.1 / x, x * 1.1, torch.where(x < 1, 1.1, x), torch.rsub(x, 1.1, alpha=0.3))  # noqa: E731
    for found, expected in zip(fovea.import_torch(Call(function), x)(x), function(x), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-14, atol=1e-15)


def test_greatest_so_far():
    """The last of equals, and NaN once there was one."""
    x = torch.tensor([[1.0, 3.0, 3.0, 2.0, float("nan"), 5.0], [0.0, -1.0, -1.0, -2.0, 7.0, 7.0]])
    function = lambda x: (*x.cummax(1), *x.cummin(-1), *x.cummax(0), *(x > 2).int().cummin(1))  # noqa: E731
    for found, expected in zip(fovea.import_torch(Call(function), x)(x), function(x), strict=True):
        np.testing.assert_array_equal(found, expected)


SO_FAR = {
    "logcumsumexp": lambda x: (x.logcumsumexp(1), x.logcumsumexp(0) + 1),
    "large": lambda x: ((x * 1e4).logcumsumexp(-1), (x - 1e30).logcumsumexp(1)),
    "cummax": lambda x: (*x.cummax(1), *x.cummax(-1)),
    "cummin": lambda x: (*x.cummin(-2), *x.cummin(0)),
    "integers": lambda x: (*(x > 0).cummin(1), *(x > 0).cummax(1), *(20 * torch.nan_to_num(x, 0, 0, 0)).abs().to(torch.uint8).cummax(0)),
    "f64": lambda x: (x.double().logcumsumexp(0), *x.double().cummin(1)),
    "narrow": lambda x: (x.bfloat16().cummax(1)[0].float(), x.half().logcumsumexp(1).float()),
    # Of which the modules of torch-mlir have the generic form.
    "sorted": lambda x: (x.sort(1)[0], *x.cummax(1)),
}


@pytest.mark.parametrize("name", SO_FAR)
@pytest.mark.parametrize("target", ["cpu", "gpu-sim"])
def test_what_came_before_of_unknown_extents(name, target):
    compiled = fovea.import_torch(Call(SO_FAR[name]), torch.randn(4, 5, 3), dynamic=(0, 1), target=target)
    for shape in ((4, 5, 3), (2, 19, 3), (1, 1, 3)):
        x = torch.randn(shape).round(decimals=1)
        x[0, 0, 0], x[-1, -1, 1], x[0, 0, 1] = np.nan, -np.inf, np.inf
        for found, expected in zip(map(np.asarray, compiled(x)), SO_FAR[name](x), strict=True):
            assert found.dtype == expected.numpy().dtype
            np.testing.assert_allclose(found, expected, rtol=2e-3 if name == "narrow" else 2e-6, atol=1e-6)


COMPARISONS = (torch.eq, torch.ne, torch.lt, torch.le, torch.gt, torch.ge)


def test_numbers_known_when_compiling():
    """What torch-mlir computes itself of tensors of one number is not what PyTorch does."""

    def function(x):
        results = []
        for type in (torch.float32, torch.bfloat16, torch.int64):
            ones, twos = torch.ones(2, 3, dtype=type), torch.full((3,), -2, dtype=type)
            results += [compare(each, number) for compare in COMPARISONS for each in (ones, twos) for number in (1, -2)]
            results += [each.float() for each in (ones - 3, twos * -3, torch.remainder(twos, 3), twos.fmod(3), twos + ones)]
        return (*results, x.sqrt() == x.sqrt(), torch.nn.functional.cosine_embedding_loss(x, x * x, torch.ones(4)))

    x = torch.randn(4, 3)
    for found, expected in zip(fovea.import_torch(Call(function), x)(x), function(x), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_unsigned_results(tmp_path):
    x, path = torch.tensor([1.0, 200.0, 255.0]), tmp_path / "model.mlir"
    program = fovea.import_torch(Call(lambda x: (x.to(torch.uint8), x)), x, path=path)
    for found, same in (program(x), fovea.load(path)(x)):
        assert found.dtype == np.uint8 and same.dtype == np.float32
        np.testing.assert_array_equal(found, [1, 200, 255])


BYTES = {
    "images": lambda x: (x / 255, x * 0.5, x - 127.5, (x / 255 - 0.5) / torch.tensor([0.2]), x.float(), torch.cat([x.float(), x])),
    "sums": lambda x: (x.sum(), x.sum(-1), x.cumsum(-1), x.mean(dtype=torch.float32), x + x, x * 3, 255 - x, -x, x**2),
    "comparisons": lambda x: (x > 100, x >= 200, x < 130, x == 200, x.masked_fill(x > 200, 7), torch.where(x > 100, x, 0), x.clamp(5, 220)),
    "orders": lambda x: (*x.max(-1), x.amin(-1), x.argmax(-1), *x.sort(-1), *x.topk(2), torch.maximum(x, x.flip(0)), x.abs()),
    "quotients": lambda x: (x // 16, x % 7, torch.div(x, 3, rounding_mode="trunc"), x >> 2, ~x),
}


@pytest.mark.parametrize("name", BYTES)
def test_bytes(name):
    """Of images: half of them are negative to who takes them for numbers with a sign."""
    x = torch.tensor([[0, 1, 127, 128], [199, 255, 3, 200]], dtype=torch.uint8)
    for found, expected in zip(fovea.import_torch(Call(BYTES[name]), x)(x), BYTES[name](x), strict=True):
        assert found.dtype == expected.numpy().dtype
        np.testing.assert_allclose(found, expected, rtol=1e-6)


INTEGERS = {
    "numbers": lambda x: (x + 3, 3 - x, x * 3, x // 3, x // -3, x % 3, x % -3, x.fmod(4), x.div(3, rounding_mode="trunc"), x**2),
    "of numbers": lambda x: (7 // x, torch.remainder(7, x), torch.remainder(-7, x), torch.div(7, x, rounding_mode="floor")),
    "quotients": lambda x: (x // x.flip(0), x % x.flip(0), x.div(x.flip(0), rounding_mode="trunc"), torch.fmod(x, x.flip(0)), x / 3),
    "others": lambda x: (x.max(), x.min(), x[:4].view(2, 2) @ x[:4].view(2, 2), x + torch.arange(len(x), dtype=x.dtype), x.sort()[0]),
}


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_integers(bits, name):
    """Of all bits: quotients are not those of floating-point numbers."""
    type = getattr(torch, f"int{bits}")
    x = torch.tensor([2 ** (bits - 2) + 1, -(2 ** (bits - 2)) - 1, 7, -7, 33, -35, 2 ** (bits - 1) - 1], dtype=type)
    for found, expected in zip(fovea.import_torch(Call(INTEGERS[name]), x)(x), INTEGERS[name](x), strict=True):
        assert found.dtype == expected.numpy().dtype
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("shape", [(2, 8, 6, 5), (2, 8, 5), (2, 8), (2, 8, 3, 4, 5)])
@pytest.mark.parametrize("affine", [False, True])
def test_group_norms_of_open_extents(affine, shape):
    model = torch.nn.GroupNorm(4, 8, affine=affine).eval()
    program = fovea.import_torch(model, torch.ones(shape), dynamic=[dim for dim in range(len(shape)) if dim != 1])
    for more in (0, 1, 4):
        x = torch.randn([extent + more * (dim != 1) for dim, extent in enumerate(shape)])
        np.testing.assert_allclose(program(x), model(x).detach(), atol=1e-5)


@pytest.mark.parametrize("type", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("sizes", [(1,), (2,), (3,), (2, 3), (7, 2), (None, 2), (2, 2, 2)])
def test_adaptive_averages_of_open_extents(sizes, type):
    """Windows of the example, whose extents the sizes divide, are not those of others."""
    model = getattr(torch.nn, f"AdaptiveAvgPool{len(sizes)}d")(sizes if len(sizes) > 1 else sizes[0])
    program = fovea.import_torch(model, torch.ones(2, 3, *[6] * len(sizes), dtype=type), dynamic=[0, *range(2, 2 + len(sizes))])
    for extents in (6, 6, 6), (5, 12, 7), (13, 4, 6), (2, 9, 2):
        x = torch.randn(3, 3, *extents[: len(sizes)]).to(type)
        found = np.asarray(program(x)).astype(np.float32)
        np.testing.assert_allclose(found, model(x.float()), rtol=1e-5 if type == torch.float32 else 2**-8, atol=1e-6)


@pytest.mark.parametrize("sizes", [(1,), (3,), (2, 3), (7, 2), (2, 2, 2)])
def test_adaptive_maxima_of_open_extents(sizes):
    model = getattr(torch.nn, f"AdaptiveMaxPool{len(sizes)}d")(sizes if len(sizes) > 1 else sizes[0], return_indices=True)
    program = fovea.import_torch(model, torch.ones(2, 3, *[6] * len(sizes)), dynamic=[0, *range(2, 2 + len(sizes))])
    for extents in (6, 6, 6), (5, 12, 7), (13, 4, 6), (2, 9, 2):
        # Of equal numbers the first counts.
        x = torch.randint(3, (3, 3, *extents[: len(sizes)])).float()
        for found, expected in zip(program(x), model(x), strict=True):
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("kind", ["Avg", "Max"])
@pytest.mark.parametrize("sizes", [(3,), (4,), (5,), (12,), (2, 4), (3, 8), (3, 2, 5)])
def test_adaptive_pools_of_known_extents(kind, sizes):
    model, x = getattr(torch.nn, f"Adaptive{kind}Pool{len(sizes)}d")(sizes), torch.randn(2, 3, *[8] * len(sizes))
    for each in (x, x[0]):
        np.testing.assert_allclose(fovea.import_torch(model, each)(each), model(each), rtol=1e-5, atol=1e-6)


MASKS = {
    "causal": lambda rows: torch.nn.Transformer.generate_square_subsequent_mask(rows),
    "booleans": lambda rows: torch.ones(rows, rows, dtype=torch.bool).triu(1),
    "window": lambda rows: torch.ones(rows, rows, dtype=torch.bool).triu(3),
}


class Decoder(torch.nn.Module):
    def __init__(self, mask):
        super().__init__()
        layer = torch.nn.TransformerDecoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.mask, self.decoder = mask, torch.nn.TransformerDecoder(layer, 2)

    def forward(self, tokens, memory):
        return self.decoder(tokens, memory, tgt_mask=self.mask(tokens.shape[1]))


@pytest.mark.parametrize("name", MASKS)
def test_masks_of_decoders(name):
    """PyTorch looks whether they are causal, which is no hint that results depend on."""
    model = Decoder(MASKS[name]).eval()
    program = fovea.import_torch(model, torch.ones(2, 7, 16), torch.ones(2, 5, 16), dynamic={"tokens": (1,)})
    for rows in (7, 12):
        arrays = torch.randn(2, rows, 16), torch.randn(2, 5, 16)
        np.testing.assert_allclose(program(*arrays), model(*arrays).detach(), atol=1e-5)


def test_what_is_refused_is_named():
    with pytest.raises(fovea.FoveaError, match=r"it has no linalg for aten.erfinv, or not .*, called at .*torch_models.py:\d+"):
        fovea.import_torch(Call(torch.erfinv), torch.ones(3))
    with pytest.raises(fovea.FoveaError, match="does not import Call: it has no word for operations that may fail when they run"):
        fovea.import_torch(Call(torch.linalg.inv), torch.eye(3))
    # Not of what comes before it, of which nothing was lowered.
    with pytest.raises(fovea.FoveaError, match=r"Call: it has no word for pow of extents, called at .*torch_models.py:\d+"):
        fovea.import_torch(Call(lambda x: x.permute(1, 0) * x.shape[0] ** 0.25), torch.ones(6, 3), dynamic=(0,))
    # What torch.export says, and not the place that it says behind "error:".
    with pytest.raises(fovea.FoveaError, match=r"does not trace it: Could not guard on data-dependent expression|GuardOnDataDependent"):
        fovea.import_torch(Call(lambda x: x if x.sum() > 0 else -x), torch.ones(3))
    # Of an operation that leaves no message of its own.
    with pytest.raises(fovea.FoveaError, match=r"it has no linalg for aten.nextafter, .*torch_models.py:\d+"):
        fovea.import_torch(Call(lambda x: torch.nextafter(x, x.flip(0)).split([1, 2])), torch.ones(3))
    with pytest.raises(fovea.FoveaError, match="an index of booleans gives as many elements as are true"):
        fovea.import_torch(Call(lambda x: x[x > 0]), torch.ones(3, 4, 5))


@pytest.mark.parametrize("extents", [{}, {"dynamic": (0,)}])
def test_long_sums(extents):
    """No array has an element for each pair, and sums are as exact as PyTorch's."""
    function = lambda x: (x.cumsum(0), x.int().cumsum(0), x.cumprod(0))  # noqa: E731
    program = fovea.import_torch(Call(function), torch.ones(30_000), **extents)
    assert not re.search(r"tensor<(\?|\d+)x(\?|\d+)x", program.text)
    x = torch.rand(30_000, generator=torch.Generator().manual_seed(3))
    sums, *_ = program(x)
    np.testing.assert_allclose(sums, x.double().cumsum(0).numpy(), rtol=1e-7, atol=0)


def test_places_out_of_bounds():
    program = fovea.import_torch(Call(lambda x, places: x.index_add(0, places, x[:2])), torch.ones(3, 4), torch.tensor([0, 1]))
    np.testing.assert_array_equal(program(torch.ones(3, 4), torch.tensor([2, 2]))[:, 0], [1, 1, 3])
    for wrong in (3, -4, 2**40):
        with pytest.raises(fovea.FoveaError, match="scatter: an index is out of bounds of dimension 0"):
            program(torch.ones(3, 4), torch.tensor([0, wrong]))


def test_examples_are_left_as_they_are():
    """Also where torch.export does not trace the extents that are asked for: the next import is one of known ones."""
    x = torch.randn(2, 4)
    model = Call(lambda x: x + torch.ones(2, 4))
    with pytest.raises(fovea.FoveaError, match=r"the model fixes input_0.shape\[0\] to 2"):
        fovea.import_torch(model, x, dynamic=(0,))
    assert np.array_equal(fovea.import_torch(model, x)(x), x + 1)


def test_quotients_by_zero():
    """As XLA has them: PyTorch raises an error, and a CPU ends the process."""
    least = np.iinfo(np.int64).min
    a, b = torch.tensor([5, 5, least, 0]), torch.tensor([2, 0, -1, 0])
    program = fovea.import_torch(Call(lambda a, b: (torch.div(a, b, rounding_mode="trunc"), torch.fmod(a, b))), a, b)
    quotients, rest = program(a, b)
    np.testing.assert_array_equal(quotients, [2, -1, least, -1])
    np.testing.assert_array_equal(rest, [1, 5, 0, 0])
