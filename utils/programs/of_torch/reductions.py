# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reductions and scans, by any dimensions."""

import torch
import torch.nn.functional as F

from ..draw import kind


@kind(2)
def reduction(draw):
    if not draw.rank:
        return None
    dim, (dims, keep) = draw.dim, draw.reduced()
    several = {
        "sum": lambda x: x.sum(dims, keepdim=keep),
        "mean": lambda x: x.mean(dims, keepdim=keep),
        "amax": lambda x: x.amax(dims, keepdim=keep),
        "amin": lambda x: x.amin(dims, keepdim=keep),
        "var": lambda x: x.var(dims, keepdim=keep, unbiased=False),
        "std": lambda x: x.std(dims, keepdim=keep, unbiased=False),
        "logsumexp": lambda x: x.logsumexp(dims, keepdim=keep),
    }
    one = {
        "max": lambda x: x.max(dim, keepdim=keep)[0],
        "min": lambda x: x.min(dim, keepdim=keep)[0],
        "argmax": lambda x: x.argmax(dim, keepdim=keep),
        "argmin": lambda x: x.argmin(dim, keepdim=keep),
        "any": lambda x: (x > 0.5).any(dim, keepdim=keep).to(x.dtype),
        "all": lambda x: (x > -0.5).all(dim, keepdim=keep).to(x.dtype),
        "prod": lambda x: x.clamp(-1.5, 1.5).prod(dim, keepdim=keep),
        "norm": lambda x: x.norm(dim=dim, keepdim=keep),
        "count": lambda x: (x > 0).sum(dim, keepdim=keep),
        "median": lambda x: x.median(dim, keepdim=keep)[0],
        "sum of all": lambda x: x.sum(),
    }
    name, function = draw.pick(several | one)
    return draw.step(f"{name} dim={dims if name in several else dim} keepdim={keep}", function)


@kind()
def scan(draw):
    if not draw.rank:
        return None
    dim = draw.dim
    return draw.one_of(
        {
            "cumsum": lambda x: x.cumsum(dim),
            "cumprod": lambda x: x.clamp(-1.2, 1.2).cumprod(dim),
            "cummax": lambda x: x.cummax(dim)[0],
            "logcumsumexp": lambda x: x.logcumsumexp(dim),
            "diff": lambda x: x.diff(dim=dim),
        }
    )


@kind()
def softmax(draw):
    if not draw.rank:
        return None
    dim = draw.dim
    return draw.one_of(
        {
            "softmax": lambda x: x.softmax(dim),
            "log_softmax": lambda x: x.log_softmax(dim),
            "softmin": lambda x: F.softmin(x, dim),
            "glu": lambda x: F.glu(torch.cat([x, x * 0.5], dim), dim),
            "cross entropy": lambda x: -(x.log_softmax(-1) * x.softmax(-1)).sum(-1),
        }
    )
