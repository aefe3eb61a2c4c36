# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The backend "fovea" of torch.compile, where graphs write to tensors in place, broadcast or reshape."""

import math

import pytest
import torch
from test_backend import B, Compiled, D, H, M, N, fresh, near, qkv, reasons  # noqa: F401
from torch.nn import functional as F
from torch.nn.functional import scaled_dot_product_attention

# A third of the keys, never the first.
HIDDEN = torch.arange(M).mul(7).remainder(3) == 1
BIAS = torch.linspace(-2, 2, B * H * N * M).sin().view(B, H, N, M)


def written(*writes):
    """Attention whose scores these functions write to, each as a statement of its own."""

    def attend(q, k, v):
        scores = q @ k.mT
        for write in writes:
            write(scores)
        return scores.float().softmax(-1).type_as(scores) @ v

    return attend


def one_key_head(q, k, v):
    return (q @ k[:, :1].mT).softmax(-1) @ v[:, :1]


def one_key_head_of_call(q, k, v):
    return scaled_dot_product_attention(q, k[:, :1], v[:, :1], BIAS)


ABSENT = torch.zeros(B, 1, 1, M).index_fill(3, torch.tensor([2, 5]), -math.inf)
ABSENT[0] = 0


def heads_in_the_batch(q, k, v):
    """As BART and its kin had it: only while masks are added, heads have an axis of their own."""
    q, k, v = (each.flatten(0, 1) for each in (q, k, v))
    scores = torch.bmm(q, k.mT) + BIAS.flatten(0, 1)
    scores = (scores.view(B, H, N, M) + ABSENT).view(B * H, N, M) + BIAS.flatten(0, 1)
    return torch.bmm(scores.softmax(-1), v)


def heads_in_the_batch_of_a_bias(q, k, v):
    scores = (q @ k.mT).view(B * H, N, M) + BIAS.flatten(0, 1)
    return (scores.view(B, H, N, M) + ABSENT).softmax(-1) @ v


FOUND = {
    "heads_in_the_batch": heads_in_the_batch, "heads_in_the_batch_of_a_bias": heads_in_the_batch_of_a_bias,
    "filled": written(lambda s: s.masked_fill_(HIDDEN, torch.finfo(s.dtype).min)),
    "several": written(lambda s: s.add_(BIAS), lambda s: s.mul_(0.5), lambda s: s.masked_fill_(HIDDEN, -math.inf)),
    "one_key_head": one_key_head, "one_key_head_of_call": one_key_head_of_call,
}  # fmt: skip


CASES = [(name, dynamic) for name in FOUND for dynamic in (False, True) if not (dynamic and name.startswith("heads"))]


@pytest.mark.parametrize("name, dynamic", CASES)
def test_found(name, dynamic):
    compiled = Compiled(FOUND[name], dynamic=dynamic)
    inputs = [each.requires_grad_() for each in qkv()]
    found, expected = compiled(*inputs), FOUND[name](*inputs)
    near(found, expected)
    assert len(compiled.calls) == 1 and reasons() == []
    gradients = [torch.autograd.grad(each.square().sum(), inputs) for each in (found, expected)]
    for one, other in zip(*gradients, strict=True):
        near(one, other)


def weights_written(write):
    def attend(q, k, v):
        weights = (q @ k.mT).softmax(-1)
        write(weights)
        return weights @ v

    return attend


def alias_read(q, k, v):
    scores = q @ k.mT
    alias = scores.float()
    scores.masked_fill_(HIDDEN, -math.inf)
    return alias.softmax(-1) @ v


def key_written(write):
    def attend(q, k, v):
        k = k.clone()
        scores = q @ k.mT
        write(k)
        return scores.softmax(-1) @ v

    return attend


def product_of_out(q, k, v):
    out = torch.empty(B, H, N, D)
    torch.matmul((q @ k.mT).softmax(-1), v, out=out)
    return out


def other_heads(q, k, v):
    q, k, v = (each.flatten(0, 1) for each in (q, k, v))
    scores = (torch.bmm(q, k.mT).view(B * 2, H // 2, N, M) + ABSENT.repeat(2, 1, 1, 1)).view(B, H, N, M)
    return torch.bmm((scores + ABSENT).view(B * H, N, M).softmax(-1), v)


def result_is_wider(q, k, v):
    return (q[:, :1] @ k[:, :1].mT + BIAS).softmax(-1) @ v[:, :1]


def result_has_more_batches(q, k, v):
    return (q[:1] @ k[:1].mT + BIAS).softmax(-1) @ v[:1]


LEFT = {
    "column": written(lambda s: s[..., 0].fill_(-9.0)), "columns": written(lambda s: s[..., :2].add_(1.0)),
    "item": written(lambda s: s[..., :2].__setitem__((..., 0), 1.0)),
    "reshaped": written(lambda s: s.view(B * H, N, M).add_(BIAS.view(B * H, N, M))),
    "detached": written(lambda s: s.detach().add_(BIAS)), "function": written(lambda s: F.relu(s, inplace=True)),
    "out": written(lambda s: torch.add(s, BIAS, out=s)), "statement": written(lambda s: s.relu_()),
    "before_a_statement": written(lambda s: s[..., 0].fill_(-9.0), lambda s: s.masked_fill_(HIDDEN, -math.inf)),
    "weights": weights_written(lambda w: w.masked_fill_(HIDDEN, 0.0)), "column_of_weights": weights_written(lambda w: w[..., 0].mul_(2)),
    "threshold_of_weights": weights_written(lambda w: F.threshold(w, 0.1, 0.0, True)),
    "power_of_weights": weights_written(lambda w: w.__ipow__(2)), "alias_read": alias_read,
    "key_of_out": key_written(lambda k: torch.mul(k, 3, out=k)), "key_of_function": key_written(lambda k: F.relu(k, True)),
    "product_of_out": product_of_out,
    "other_heads": other_heads, "result_is_wider": result_is_wider, "result_has_more_batches": result_has_more_batches,
}  # fmt: skip


@pytest.mark.parametrize("name", LEFT)
def test_left(name):
    compiled = Compiled(LEFT[name])
    inputs = qkv()
    near(compiled(*inputs), LEFT[name](*inputs), bound=1e-6)
    assert compiled.calls == [] and len(reasons()) == 1, (compiled.calls, reasons())


def mask_written(q, k, v):
    mask = torch.ones(N, M, dtype=torch.bool)
    mask[:, 3:].logical_not_()
    return scaled_dot_product_attention(q, k, v, mask)


def repeated_then_written(q, k, v):
    k = k[:, :2].clone()
    wide = k[:, :, None].expand(B, 2, H // 2, M, D).reshape(B, H, M, D)
    k.mul_(3)
    return (q @ wide.mT).softmax(-1) @ v


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("function", [mask_written, repeated_then_written])
def test_what_was_written_to_is_read_where_it_is(function, dynamic):
    """A mask is no constant, and keys that were repeated are not those from before."""
    compiled = Compiled(function, dynamic=dynamic)
    inputs = qkv()
    near(compiled(*inputs), function(*inputs))
    assert len(compiled.calls) == 1
