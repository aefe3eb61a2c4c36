# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations of PyTorch that torch-mlir writes in a dialect of its own: with known and with unknown extents."""

import re

import numpy as np
import pytest
import torch

import fovea

pytest.importorskip("torch_mlir")


class Call(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


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


FUNCTIONS = {
    "scattered": scattered,
    "sums": sums,
    "places": places,
    "scans": lambda x: (x.cumprod(1), x.cumprod(0), x.logcumsumexp(2), x.cumsum(1)),
    "cumulative sums": lambda x: (
        x.cumsum(0), x.cumsum(-1), x.double().cumsum(1), (x * 9).int().cumsum(1), (x > 0).cumsum(0), x.bfloat16().cumsum(1).float(),
    ),
    "sorts": lambda x: (*x.sort(1), *x.sort(2, descending=True), *(x * 3).long().sort(dim=1, stable=True), x.argsort(0)),
    "NaN": lambda x: (*x.sqrt().sort(dim=1, stable=True), *x.sqrt().sort(dim=1, stable=True, descending=True)),
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
