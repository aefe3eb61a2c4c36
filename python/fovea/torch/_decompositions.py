# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations of PyTorch as others, where torch-mlir makes of them what no dialect of ours has, or loses digits."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ._adaptive_pools import adaptive_average, adaptive_maximum
from ._scans import extremum_so_far, log_sum_exp_so_far

__all__ = ["DECOMPOSITIONS"]

aten = torch.ops.aten

NARROW = (torch.bfloat16, torch.float16)


def _cumsum(x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
    """A scan. Of integers of known extents, sums of 1, 2, 4, ... elements: masks of transformers follow from these, and are
    evaluated when compiling, which a scan is not."""
    if dtype is None:
        dtype = x.dtype if x.dtype.is_floating_point else torch.int64
    if x.dim() == 0:
        return x.to(dtype)
    if dtype.is_floating_point or isinstance(x.shape[dim], torch.SymInt):
        # Narrow types are summed as PyTorch sums them.
        sums = torch.float32 if dtype in NARROW else dtype
        return NotImplemented if x.dtype == sums == dtype else aten.cumsum.default(x.to(dtype).to(sums), dim).to(dtype)
    x = x.movedim(dim, -1).to(dtype)
    reach = 1
    while reach < x.shape[-1]:
        x = torch.cat([x[..., :reach], x[..., reach:] + x[..., :-reach]], -1)
        reach *= 2
    return x.movedim(-1, dim)


def _gelu(x: Tensor, *, approximate: str = "none") -> Tensor:
    """torch-mlir has four digits of sqrt(2 / pi)."""
    if approximate == "none":
        return 0.5 * x * (1 + torch.erf(x * math.sqrt(0.5)))
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


def _layer_norm(x: Tensor, shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float) -> tuple[Tensor, ...]:
    """torch-mlir has the variance in float64."""
    dims = list(range(-len(shape), 0))
    wide = x.to(torch.float32) if x.dtype in NARROW else x
    mean = wide.mean(dims, keepdim=True)
    centred = wide - mean
    scale = torch.rsqrt((centred * centred).mean(dims, keepdim=True) + eps)
    result = centred * scale
    if weight is not None:
        result = result * weight
    if bias is not None:
        result = result + bias
    return result.to(x.dtype), mean, scale


def _attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, *, scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """By products whose layouts follow from their shapes, where PyTorch's own depend on what it runs on."""
    if dropout_p:
        raise NotImplementedError("dropout of attention")
    if enable_gqa:
        key, value = (each.repeat_interleave(query.shape[-3] // each.shape[-3], -3) for each in (key, value))
    if scale is None:
        scale = query.shape[-1] ** -0.5
    scores = torch.matmul(query * scale, key.transpose(-2, -1))
    if is_causal:
        scores = scores.masked_fill(torch.arange(query.shape[-2])[:, None] < torch.arange(key.shape[-2]), -math.inf)
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, -math.inf) if attn_mask.dtype == torch.bool else scores + attn_mask
    return torch.matmul(torch.ops.aten._safe_softmax.default(scores, -1), value)


#: A program has operations for each of so many; more are found by sorting.
_MOST_STEPS = 32


def _topk(x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Tensor, Tensor]:
    """The greatest of what is left, k times: the first of equals, where NaN is greater than all numbers."""
    if x.dim() == 0:
        x, dim = x.unsqueeze(0), 0
    if k > _MOST_STEPS:
        values, indices = aten.sort.default(x, dim, largest)
        return values.narrow(dim, 0, k), indices.narrow(dim, 0, k)
    x = x.movedim(dim, -1)
    limits = torch.finfo(x.dtype) if x.dtype.is_floating_point else torch.iinfo(x.dtype)
    last = limits.min if largest else limits.max
    if x.dtype.is_floating_point:
        last = -math.inf if largest else math.inf
    positions = torch.arange(x.shape[-1])
    left = torch.ones_like(x, dtype=torch.bool)
    values, indices = [], []
    for _ in range(k):
        if largest:
            best = torch.where(left, x, last).amax(-1, keepdim=True)
            found = left & ((x == best) | (x != x))
        else:
            best = torch.where(left & (x == x), x, last).amin(-1, keepdim=True)
            found = left & (x == best)
            is_number = found.any(-1, keepdim=True)
            best, found = torch.where(is_number, best, math.nan).to(x.dtype), torch.where(is_number, found, left)
        index = torch.where(found, positions, x.shape[-1]).amin(-1, keepdim=True)
        left = left & (positions != index)
        values.append(best)
        indices.append(index)
    return torch.cat(values, -1).movedim(-1, dim), torch.cat(indices, -1).movedim(-1, dim)


def _scatter_value(x: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """One comparison for each index of a row."""
    if index.dim() == 0 or any(a != b for k, (a, b) in enumerate(zip(index.shape, x.shape)) if k != dim % x.dim()):
        return _scatter(x, dim, index, torch.full(index.shape, value, dtype=x.dtype))
    x, index = x.movedim(dim, -1), index.movedim(dim, -1)
    hit = (torch.arange(x.shape[-1]) == index.unsqueeze(-1)).any(-2)
    return torch.where(hit, torch.full((), value, dtype=x.dtype), x).movedim(-1, dim)


def _scatter(x: Tensor, dim: int, index: Tensor, source: Tensor, *, accumulate: bool = False) -> Tensor:
    """With an index for each dimension."""
    if x.dim() == 0:
        return _scatter(x[None], 0, index.reshape(-1), source.reshape(-1), accumulate=accumulate)[0]
    places = [
        index if k == dim % x.dim() else torch.arange(extent).reshape(-1, *[1] * (x.dim() - k - 1)).expand(index.shape)
        for k, extent in enumerate(index.shape)
    ]
    return aten.index_put.default(x, places, source[tuple(map(slice, index.shape))], accumulate)


def _scatter_add(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    return _scatter(x, dim, index, source, accumulate=True)


def _index(x: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    """torch-mlir does not end where the shape of a result follows from numbers."""
    if any(each is not None and each.dtype in (torch.bool, torch.uint8) for each in indices):
        raise NotImplementedError("an index of booleans gives as many elements as are true")
    return NotImplemented


def _constant_pad(x: Tensor, pad: Sequence[Any], value: Any = 0) -> Tensor:
    """Rows that are taken away are a slice, which torch-mlir has no word for."""
    if not any(isinstance(each, int) and each < 0 for each in pad):
        return NotImplemented
    for number in range(len(pad) // 2):
        dim, (low, high) = x.dim() - 1 - number, (min(each, 0) for each in pad[2 * number : 2 * number + 2])
        x = aten.slice.Tensor(x, dim, -low, x.shape[dim] + high)
    pad = [max(each, 0) for each in pad]
    return aten.constant_pad_nd.default(x, pad, value) if any(pad) else x.clone()


def _split(x: Tensor, sizes: Sequence[Any], dim: int = 0) -> Sequence[Tensor]:
    """torch-mlir splits into extents that are known."""
    if all(isinstance(each, int) for each in (*sizes, x.shape[dim])):
        return NotImplemented
    parts, start = [], 0
    for size in sizes:
        parts.append(aten.slice.Tensor(x, dim, start, start + size))
        start = start + size
    return parts


def _roll(x: Tensor, shifts: Any, dims: Any = ()) -> Tensor:
    """torch-mlir turns by less than an extent."""
    shifts, dims = (list(each) if isinstance(each, (list, tuple)) else [each] for each in (shifts, dims))
    if not dims:
        return aten.roll.default(x.reshape(-1), shifts, [0]).reshape(x.shape)
    if all(isinstance(x.shape[dim], int) and abs(shift) < x.shape[dim] for shift, dim in zip(shifts, dims)):
        return NotImplemented
    for shift, dim in zip(shifts, dims):
        extent = x.shape[dim]
        if isinstance(extent, int):
            x = aten.roll.default(x, [shift % max(extent, 1)], [dim])
        else:
            start = extent - shift % extent
            x = torch.cat([aten.slice.Tensor(x, dim, start), aten.slice.Tensor(x, dim, 0, start)], dim)
    return x


def _sort(x: Tensor, *, stable: bool | None = None, dim: int = -1, descending: bool = False) -> tuple[Tensor, Tensor]:
    """It is stable in any case."""
    return aten.sort.default(x, dim, descending)


# ----------------------------------------------------------------------------
# Arithmetic
# ----------------------------------------------------------------------------


def _fmod(x: Tensor, y: Any) -> Tensor:
    """By the remainder of magnitudes, which is exact and takes no sign."""
    if not isinstance(y, Tensor):
        y = torch.full((), y, dtype=torch.result_type(x, y))
    type = torch.result_type(x, y)
    x, y = x.to(type), y.to(type)
    if not type.is_floating_point:
        return x - torch.div(x, y, rounding_mode="trunc") * y
    rest = torch.remainder(x.abs(), y.abs())
    # A zero has the sign of another.
    return torch.where((x == 0) & (rest == 0), x, torch.where(x < 0, -rest, rest))


def _eq(x: Tensor, y: Tensor) -> Tensor:
    """torch-mlir takes what it compares with itself for equal, also where it is NaN."""
    if not torch.result_type(x, y).is_floating_point:
        return NotImplemented
    return torch.logical_not(torch.ne(x, y))


def _rsub(x: Tensor, y: Any, alpha: Any = 1) -> Tensor:
    """torch-mlir rounds the number to f32."""
    type = torch.result_type(x, y)
    return torch.full((), y, dtype=type) - (x if alpha == 1 else x * alpha)


def _remainder_of_number(x: Any, y: Tensor) -> Tensor:
    return torch.remainder(torch.full((), x, dtype=torch.result_type(x, y)), y)


def _power(x: Tensor, exponent: Any) -> Tensor:
    """torch-mlir knows no powers of integers, and a root is no power of -inf."""
    if exponent == 0.5 and x.dtype.is_floating_point:
        return torch.sqrt(x)
    if x.dtype.is_floating_point or x.is_complex() or not isinstance(exponent, int) or exponent < 0:
        return NotImplemented
    type = torch.result_type(x, exponent)
    result, x = torch.ones_like(x, dtype=type), x.to(type)
    while exponent:
        if exponent % 2:
            result = result * x
        x, exponent = x * x, exponent // 2
    return result


def _power_of_two_types(x: Any, exponent: Tensor) -> Tensor:
    """torch-mlir computes it in float64."""
    type = torch.result_type(x, exponent)
    if not type.is_floating_point or (isinstance(x, Tensor) and x.dtype == exponent.dtype):
        return NotImplemented
    x = x if isinstance(x, Tensor) else torch.full((), x, dtype=type)
    return torch.pow(x.to(type), exponent.to(type))


def _clamp(x: Tensor, least: Any = None, most: Any = None) -> Tensor:
    """NaN stays, which torch-mlir makes a bound, here and where it is the first of two."""
    if not x.dtype.is_floating_point:
        return NotImplemented
    for bound, compare in ((least, torch.lt), (most, torch.gt)):
        if bound is not None:
            x = torch.where(compare(x, bound), torch.full((), bound, dtype=x.dtype), x)
    return x


def _hardtanh(x: Tensor, least: Any = -1, most: Any = 1) -> Tensor:
    return _clamp(x, least, most)


def _relu6(x: Tensor) -> Tensor:
    return _clamp(x, 0, 6)


def _maximum(x: Tensor, y: Tensor) -> Tensor:
    return torch.where((x > y) | (x != x), x, y) if torch.result_type(x, y).is_floating_point else NotImplemented


def _minimum(x: Tensor, y: Tensor) -> Tensor:
    return torch.where((x < y) | (x != x), x, y) if torch.result_type(x, y).is_floating_point else NotImplemented


def _fmax(x: Tensor, y: Tensor) -> Tensor:
    """torch-mlir's do not broadcast."""
    return torch.where((x >= y) | (y != y), x, y)


def _fmin(x: Tensor, y: Tensor) -> Tensor:
    return torch.where((x <= y) | (y != y), x, y)


def _signbit(x: Tensor) -> Tensor:
    """By the sign of the reciprocal of a zero; that of NaN is taken for none."""
    if not x.dtype.is_floating_point:
        return x < 0
    return (x < 0) | ((x == 0) & (torch.reciprocal(x) < 0))


def _copysign(x: Tensor, y: Any) -> Tensor:
    y = y if isinstance(y, Tensor) else torch.full((), y, dtype=torch.result_type(x, y))
    type = torch.result_type(x, y)
    magnitude = x.to(type if type.is_floating_point else torch.get_default_dtype()).abs()
    return torch.where(_signbit(y), -magnitude, magnitude)


def _extremum(x: Tensor, dim: int, keepdim: bool, reduce: Callable[..., Tensor]) -> tuple[Tensor, Tensor]:
    """And where the first is. NaN is greatest and least, of which torch-mlir keeps no index."""
    if not x.dtype.is_floating_point or x.dim() == 0:
        return NotImplemented
    value = reduce(x, dim, keepdim=True)
    # The first 1 of numbers, which have no NaN.
    index = aten.max.dim(((x == value) | (x != x)).to(torch.int32), dim, keepdim)[1]
    return value if keepdim else value.squeeze(dim), index


def _max_dim(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    return _extremum(x, dim, keepdim, torch.amax)


def _min_dim(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    return _extremum(x, dim, keepdim, torch.amin)


def _place(x: Tensor, dim: int | None, keepdim: bool, reduce: Callable[..., Tensor]) -> Tensor:
    if not x.dtype.is_floating_point or x.dim() == 0:
        return NotImplemented
    if dim is not None:
        return _extremum(x, dim, keepdim, reduce)[1]
    index = _extremum(x.reshape(-1), 0, False, reduce)[1]
    return index.reshape([1] * x.dim()) if keepdim else index


def _argmax(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    return _place(x, dim, keepdim, torch.amax)


def _argmin(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    return _place(x, dim, keepdim, torch.amin)


def _isfinite(x: Tensor) -> Tensor:
    return x.abs() < math.inf if x.dtype.is_floating_point else torch.ones_like(x, dtype=torch.bool)


def _addmv(x: Tensor, matrix: Tensor, vector: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    product = torch.mv(matrix, vector) * alpha
    return product if beta == 0 else x * beta + product


def _view_of(x: Tensor) -> Tensor:
    """What a squeeze of more than one row is, which torch-mlir has no word for."""
    return aten.view.default(x, list(x.shape))


def _copy_strided(x: Tensor, strides: Sequence[int]) -> Tensor:
    """Of a program's own tensors nobody sees the strides."""
    return x.clone()


def _reciprocal(x: Tensor) -> Tensor:
    """torch-mlir refuses zero when it runs."""
    return torch.div(torch.ones((), dtype=x.dtype), x)


def _clamp_tensor(x: Tensor, least: Tensor | None = None, most: Tensor | None = None) -> Tensor:
    x = x if least is None else torch.maximum(x, least)
    return x if most is None else torch.minimum(x, most)


def _isclose(x: Tensor, y: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Tensor:
    close = x == y
    if not torch.result_type(x, y).is_floating_point:
        x, y = x.to(torch.get_default_dtype()), y.to(torch.get_default_dtype())
    elif equal_nan:
        close = close | ((x != x) & (y != y))
    if rtol == atol == 0:
        return close
    # Of infinities only equal ones are, and the difference of two is none.
    distance = (x - y).abs()
    return close | ((distance < math.inf) & (distance <= atol + (rtol * y).abs()))


def _floor_divide(x: Any, y: Any, *, rounding_mode: str | None = "floor") -> Tensor:
    """As Python divides: the quotient of what is left without the remainder, since that of 1 and 0.1 rounds to 10. torch-mlir divides
    integers by way of f64."""
    type = torch.result_type(x, y)
    if rounding_mode != "floor":
        return NotImplemented
    if not type.is_floating_point:
        quotient = torch.div(x, y, rounding_mode="trunc")
        rest = x - quotient * y
        return torch.where((rest != 0) & ((rest < 0) != (y < 0)), quotient - 1, quotient)
    rounded, rest = x / y, torch.fmod(x, y)
    quotient = (x - rest) / y
    quotient = torch.where((rest != 0) & ((y < 0) != (rest < 0)), quotient - 1, quotient)
    whole = torch.floor(quotient)
    whole = torch.where(quotient - whole > 0.5, whole + 1, whole)
    # Beyond these all numbers are whole. A zero has its sign.
    is_whole = (rounded.abs() >= 1 / torch.finfo(type).eps) & (rounded.abs() < math.inf)
    return torch.where(torch.as_tensor(y == 0) | is_whole, rounded, torch.where(quotient == 0, rounded * 0, whole))


def _elu(x: Tensor, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Tensor:
    """torch-mlir subtracts one from the exponential, which is all that there is of small numbers."""
    return torch.where(x > 0, x * scale, torch.expm1(torch.where(x > 0, 0, x) * input_scale) * (alpha * scale))


def _rms_norm(x: Tensor, shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    """torch-mlir adds nothing where `eps` is not given, and adds squares in the type of the elements."""
    if eps is not None and x.dtype not in NARROW:
        return NotImplemented
    wide = x.to(torch.float32) if x.dtype in NARROW else x
    weight = weight if weight is None else weight.to(wide.dtype)
    return aten.rms_norm.default(wide, shape, weight, torch.finfo(wide.dtype).eps if eps is None else eps).to(x.dtype)


def _group_norm(x: Tensor, groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, cudnn: bool = True) -> Tensor:
    """torch-mlir has no word for strides of more than two open extents."""
    if all(isinstance(extent, int) for extent in x.shape):
        return NotImplemented
    wide = x.to(torch.float32) if x.dtype in NARROW else x
    rows = wide.reshape(x.shape[0], groups, -1)
    rows = rows - rows.mean(-1, keepdim=True)
    rows = (rows * torch.rsqrt((rows * rows).mean(-1, keepdim=True) + eps)).reshape(x.shape)
    shape = [-1] + [1] * (x.dim() - 2)
    rows = rows if weight is None else rows * weight.to(rows.dtype).reshape(shape)
    return (rows if bias is None else rows + bias.to(rows.dtype).reshape(shape)).to(x.dtype)


# ----------------------------------------------------------------------------
# Sums of narrow types, which PyTorch has in f32
# ----------------------------------------------------------------------------

def _in_f32(operation: Callable[..., Any]) -> Callable[..., Any]:
    """An operation that adds or multiplies many elements; the results have the type that they have."""

    def narrow(result: Any, dtype: torch.dtype) -> Any:
        if isinstance(result, Tensor):
            return result.to(dtype) if result.is_floating_point() else result
        return tuple(narrow(each, dtype) for each in result)

    def decomposition(x: Tensor, *arguments: Any, dtype: torch.dtype | None = None, **options: Any) -> Any:
        dtype = dtype or x.dtype
        if dtype not in NARROW:
            return NotImplemented
        # Elements are rounded to the type that is asked for before they are added.
        return narrow(operation(x.to(dtype).to(torch.float32), *arguments, **options), dtype)

    return decomposition


def _index_put(x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False) -> Tensor:
    if not accumulate or x.dtype not in NARROW:
        return NotImplemented
    return aten.index_put.default(x.to(torch.float32), indices, values.to(torch.float32), True).to(x.dtype)


# ----------------------------------------------------------------------------
# Logarithms of sums, which torch-mlir takes of sums that overflow
# ----------------------------------------------------------------------------


def _logaddexp(x: Tensor, y: Tensor) -> Tensor:
    """NaN stays, and two equal infinities."""
    greatest = torch.maximum(x, y)
    return torch.where(x == y, greatest + math.log(2), greatest + torch.log1p(torch.exp(-(x - y).abs())))


def _logaddexp2(x: Tensor, y: Tensor) -> Tensor:
    greatest = torch.maximum(x, y)
    of_sum = torch.log1p(torch.exp2(-(x - y).abs())) * (1 / math.log(2))
    return torch.where(x == y, greatest + 1, greatest + of_sum)


def _logcumsumexp(x: Tensor, dim: int) -> Tensor:
    """Of 1, 2, 4, ... elements."""
    if x.dim() == 0:
        return x.clone()
    if isinstance(x.shape[dim], torch.SymInt):
        return log_sum_exp_so_far(x, dim)
    type, x, reach = x.dtype, x.movedim(dim, -1), 1
    if type in NARROW:
        x = x.to(torch.float32)
    while reach < x.shape[-1]:
        x = torch.cat([x[..., :reach], _logaddexp(x[..., reach:], x[..., :-reach])], -1)
        reach *= 2
    return x.to(type).movedim(-1, dim)


# ----------------------------------------------------------------------------
# The greatest so far, and the middle
# ----------------------------------------------------------------------------


def _extremum_so_far(x: Tensor, dim: int, compare: Callable[[Tensor, Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    """Of 1, 2, 4, ... elements: the last of equals, and NaN once there was one."""
    index = torch.zeros(x.shape, dtype=torch.int64)
    if x.dim() == 0:
        return x.clone(), index
    if isinstance(x.shape[dim], torch.SymInt):
        return extremum_so_far(x, dim, "max" if compare is torch.ge else "min")
    x, reach = x.movedim(dim, -1), 1
    index = torch.arange(x.shape[-1]).expand(x.shape)
    while reach < x.shape[-1]:
        is_last = compare(x[..., reach:], x[..., :-reach]) | (x[..., reach:] != x[..., reach:])
        x, index = (
            torch.cat([each[..., :reach], torch.where(is_last, each[..., reach:], each[..., :-reach])], -1) for each in (x, index)
        )
        reach *= 2
    return x.movedim(-1, dim), index.movedim(-1, dim)


def _cummax(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    return _extremum_so_far(x, dim, torch.ge)


def _cummin(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    return _extremum_so_far(x, dim, torch.le)


def _middle(x: Tensor, dim: int, keepdim: bool, skips: bool) -> tuple[Tensor, Tensor]:
    """The lower of two in the middle; NaN if there is one, unless these are skipped."""
    if x.dim() == 0:
        return x.clone(), torch.zeros((), dtype=torch.int64)
    values, indices = aten.sort.default(x, dim)
    is_number = values == values
    count = is_number.sum(dim, keepdim=True)
    place = (count - 1).clamp(min=0) // 2
    if not skips:
        # The first NaN is after all numbers.
        place = torch.where(is_number.all(dim, keepdim=True), place, count)
    found = values.gather(dim, place), indices.gather(dim, place)
    return found if keepdim else (found[0].squeeze(dim), found[1].squeeze(dim))


def _median(x: Tensor) -> Tensor:
    return _middle(x.reshape(-1), 0, False, False)[0]


def _median_dim(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    return _middle(x, dim, keepdim, False)


def _nanmedian(x: Tensor) -> Tensor:
    return _middle(x.reshape(-1), 0, False, True)[0]


def _nanmedian_dim(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    return _middle(x, dim, keepdim, True)


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    aten.cumsum.default: _cumsum, aten.gelu.default: _gelu, aten.scaled_dot_product_attention.default: _attention,
    aten.topk.default: _topk, aten.scatter.value: _scatter_value, aten.native_layer_norm.default: _layer_norm,
    aten.scatter.src: _scatter, aten.scatter_add.default: _scatter_add, aten.sort.stable: _sort,
    aten.remainder.Scalar_Tensor: _remainder_of_number, aten.group_norm.default: _group_norm,
    aten.adaptive_avg_pool1d.default: adaptive_average, aten.adaptive_avg_pool2d.default: adaptive_average,
    aten.adaptive_avg_pool3d.default: adaptive_average, aten.adaptive_max_pool1d.default: adaptive_maximum,
    aten.adaptive_max_pool2d.default: adaptive_maximum, aten.adaptive_max_pool3d.default: adaptive_maximum,
    aten.rsub.Scalar: _rsub, aten.fmod.Tensor: _fmod, aten.fmod.Scalar: _fmod, aten.reciprocal.default: _reciprocal, aten.eq.Tensor: _eq,
    aten.clamp.default: _clamp, aten.clamp_min.default: _clamp, aten.hardtanh.default: _hardtanh, aten.relu6.default: _relu6,
    aten.maximum.default: _maximum, aten.minimum.default: _minimum, aten.max.dim: _max_dim, aten.min.dim: _min_dim,
    aten.fmax.default: _fmax, aten.fmin.default: _fmin, aten.signbit.default: _signbit,
    aten.copysign.Tensor: _copysign, aten.copysign.Scalar: _copysign, aten.split_with_sizes.default: _split, aten.roll.default: _roll,
    aten.argmax.default: _argmax, aten.argmin.default: _argmin,
    aten.pow.Tensor_Tensor: _power_of_two_types, aten.pow.Scalar: _power_of_two_types,
    aten.pow.Tensor_Scalar: _power, aten.isfinite.default: _isfinite, aten.addmv.default: _addmv, aten.index.Tensor: _index,
    aten.constant_pad_nd.default: _constant_pad,
    aten.cummax.default: _cummax, aten.cummin.default: _cummin, aten.median.default: _median, aten.median.dim: _median_dim,
    aten.nanmedian.default: _nanmedian, aten.nanmedian.dim: _nanmedian_dim,
    aten.clamp.Tensor: _clamp_tensor, aten.isclose.default: _isclose, aten.elu.default: _elu, aten.rms_norm.default: _rms_norm,
    aten.logaddexp.default: _logaddexp, aten.logaddexp2.default: _logaddexp2, aten.logcumsumexp.default: _logcumsumexp,
    aten.index_put.default: _index_put,
    **{operation: _in_f32(operation) for operation in (
        aten.sum.default, aten.sum.dim_IntList, aten.mean.default, aten.mean.dim, aten.prod.default, aten.prod.dim_int,
        aten.cumprod.default, aten.var.correction, aten.var_mean.correction, aten.linalg_vector_norm.default,
        aten._embedding_bag_forward_only.default,
    )},
    aten.floor_divide.default: _floor_divide, aten.div.Tensor_mode: _floor_divide, aten.div.Scalar_mode: _floor_divide,
    torch.ops.prims.view_of.default: _view_of, torch.ops.prims.copy_strided.default: _copy_strided,
}  # fmt: skip
