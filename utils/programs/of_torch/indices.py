# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations by indices: gathers, scatters, sorts and tables."""

import torch
import torch.nn.functional as F

from ..draw import kind


@kind()
def index(draw):
    if not draw.rank:
        return None
    dim, places = draw.dim, draw.integers(draw.size, draw.pick([1, 3, 5]))
    most = draw.random.randint(1, min(3, draw.size))
    table = torch.arange(12.0).view(4, 3) / 6
    name, function = draw.pick(
        {
            "gather": lambda x: x.gather(dim, x.argsort(dim=dim, stable=True)),
            "scatter": lambda x: torch.zeros_like(x).scatter(dim, x.argsort(dim=dim, stable=True), x),
            # Of any length: another length of the same program has these places too.
            "index_select": lambda x: x.index_select(dim, places % x.shape[dim]),
            "index_fill": lambda x: x.index_fill(dim, torch.tensor([0]), 0.5),
            "take_along_dim": lambda x: torch.take_along_dim(x, x.argmax(dim, keepdim=True), dim),
            "by a list": lambda x: x[torch.arange(x.shape[0] - 1, -1, -1)],
            f"topk {most}": lambda x: x.topk(most, dim)[0],
            "sort": lambda x: x.sort(dim)[0],
            "argsort": lambda x: x.argsort(dim=dim, stable=True),
            "searchsorted": lambda x: torch.searchsorted(torch.tensor([-1.0, 0.0, 1.0], dtype=x.dtype), x),
            "one_hot": lambda x: F.one_hot((x.abs() * 2).long() % 5, 5).to(x.dtype),
            "embedding": lambda x: F.embedding((x.abs() * 3).long() % 4, table.to(x.dtype)),
            "positions": lambda x: x + torch.arange(x.shape[-1], dtype=x.dtype) * 0.1,
        }
    )
    return draw.step(f"{name} dim={dim}", function)
