# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""torch.compile with the backend "fovea": which attention it finds, and what it computes."""

import math

import pytest
import torch
from torch import nn
from torch.nn.functional import dropout, scaled_dot_product_attention, softmax

import fovea.torch
from fovea.torch import _backend

B, H, N, M, D = 2, 4, 13, 17, 8


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    fovea.torch.explain_fallbacks(clear=True)


class Compiled:
    """A function, compiled with a backend for the rest that counts calls of Fovea."""

    def __init__(self, function, rest="eager", count=_backend.attend, **options):
        self._counted = count
        self.calls, self.graphs, self._rest = [], 0, torch._dynamo.lookup_backend(rest)
        self._function = torch.compile(function, backend="fovea", options={"rest": self._count}, **options)

    def _count(self, module, inputs):
        self.graphs += 1
        for each in module.modules():
            if isinstance(each, torch.fx.GraphModule):
                self.calls += [node.kwargs for node in each.graph.nodes if node.target is self._counted]
        return self._rest(module, inputs)

    def __call__(self, *arguments, **options):
        return self._function(*arguments, **options)


def tensors(*shapes, dtype=torch.float32):
    torch.manual_seed(0)
    return [torch.randn(*shape, dtype=dtype) for shape in shapes]


def qkv(N=N, M=M, G=H, **options):
    return tensors((B, H, N, D), (B, G, M, D), (B, G, M, D), **options)


def near(found, expected, bound=1e-5):
    assert found.shape == expected.shape and found.dtype == expected.dtype
    assert (found - expected).abs().max() <= bound * expected.abs().max()


def reasons():
    return [each.reason for each in fovea.torch.explain_fallbacks()]


def rows(N, M):
    return torch.arange(N)[:, None] + M - N


LOWEST = torch.finfo(torch.float32).min


# ----------------------------------------------------------------------------
# What is found
# ----------------------------------------------------------------------------


def plain(q, k, v):
    return softmax(q @ k.transpose(-1, -2) / math.sqrt(D), dim=-1) @ v


def soft_cap(q, k, v):
    """As Gemma 2, with a mask and a bias above."""
    scores = torch.tanh(q @ k.mT * 0.7 / 3.0) * 3.0 + torch.linspace(0, 1, M)
    return softmax(scores.masked_fill(torch.arange(M) > rows(N, M), LOWEST), -1) @ v


def soft_cap_that_is_scaled(q, k, v):
    return softmax((2 - 3.0) * (q @ k.mT).tanh() * 2, -1) @ v


def no_scale(q, k, v):
    return torch.matmul(torch.softmax(torch.matmul(q, k.mT), -1), v)


def scaled_operands(q, k, v):
    return (torch.matmul(q * 0.5, (k * 0.7).transpose(2, 3)) * 2).softmax(-1) @ v


def collapsed(q, k, v):
    q, k, v = (x.reshape(-1, *x.shape[2:]) for x in (q, k, v))
    return torch.bmm(torch.bmm(q, k.transpose(1, 2)).div(3).softmax(dim=2), v).view(B, H, N, D)


def heads_within_scores(q, k, v):
    q, k, v = (x.reshape(-1, *x.shape[2:]) for x in (q, k, v))
    # As BLOOM: a slope for each head, below the reshape, and a mask above.
    slopes = torch.linspace(0, 1, B * H)[:, None, None] * torch.arange(M)
    scores = slopes.baddbmm(batch1=q, batch2=k.transpose(1, 2), beta=0.5, alpha=0.3)
    scores = scores.masked_fill(torch.arange(M) == 3, LOWEST).view(B, H, N, M)
    scores = scores + torch.linspace(0, 1, H)[:, None, None] * torch.arange(M)
    return torch.bmm(softmax(scores, -1).view(-1, N, M), v).view(B, H, N, D)


def causal_by_comparison(q, k, v):
    mask = torch.arange(M) <= rows(N, M)
    return softmax((q @ k.mT).masked_fill(~mask, -math.inf), -1) @ v


def causal_by_triangle(q, k, v):
    mask = torch.full((N, M), LOWEST).triu(M - N + 1)
    return softmax(q @ k.mT * 0.3 + mask, -1, dtype=torch.float32).to(q.dtype) @ v


def window(q, k, v):
    distance = rows(N, M) - torch.arange(M)
    return softmax(torch.where((distance >= 0) & (distance < 5), q @ k.mT, -1e30), -1) @ v


def prefix(q, k, v):
    mask = (torch.arange(M) <= rows(N, M)) | (torch.arange(M) < 9)
    return scaled_dot_product_attention(q, k, v, attn_mask=mask)


def band(q, k, v):
    return scaled_dot_product_attention(q, k, v, attn_mask=(rows(N, M) - torch.arange(M)).abs() < 4)


def other_mask(q, k, v):
    return scaled_dot_product_attention(q, k, v, attn_mask=(rows(N, M) + torch.arange(M)) % 3 > 0)


def bias_below_the_scale(q, k, v):
    bias = torch.linspace(-1, 1, M)
    return softmax((q @ k.mT + bias) * 0.4 - bias / 3, -1) @ v


def written_in_place(q, k, v):
    scores = q @ k.mT
    scores *= 0.3
    scores += torch.linspace(-1, 1, M)
    return softmax(scores, -1) @ v


def maximum_subtracted(q, k, v):
    scores = q @ k.mT
    return softmax(scores - scores.max(dim=-1, keepdim=True).values, -1) @ v


def no_dropout(q, k, v):
    return dropout(softmax(q @ k.mT, -1), 0.5, training=False) @ v


def call(q, k, v):
    return scaled_dot_product_attention(q, k, v, scale=0.4)


def causal_call(q, k, v):
    return scaled_dot_product_attention(q, k, v, is_causal=True)


def call_without_heads(q, k, v):
    return scaled_dot_product_attention(q[:, 0], k[:, 0], v[:, 0], attn_mask=(torch.arange(N)[:, None] + torch.arange(M)) % 3 > 0)


FOUND = {
    plain: {}, no_scale: {}, scaled_operands: {}, collapsed: {}, heads_within_scores: {"heads": H},
    soft_cap: {"cap": 3.0, "causal": True}, soft_cap_that_is_scaled: {"cap": -2.0},
    causal_by_comparison: {"causal": True}, causal_by_triangle: {"causal": True}, window: {"causal": True, "window": 5},
    prefix: {"causal": True, "prefix": 9}, band: {"window": 4}, other_mask: {}, bias_below_the_scale: {},
    written_in_place: {}, maximum_subtracted: {}, no_dropout: {}, call: {}, causal_call: {"is_causal": True},
    call_without_heads: {},
}  # fmt: skip


@pytest.mark.parametrize("function", FOUND, ids=lambda each: each.__name__)
def test_found(function):
    compiled = Compiled(function)
    inputs = qkv()
    near(compiled(*inputs), function(*inputs))
    assert compiled.calls == [FOUND[function]] and reasons() == []


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_types(dtype):
    compiled = Compiled(causal_by_triangle)
    inputs = qkv(dtype=dtype)
    # Rounding of scores and weights is eager's, which Fovea does not do.
    expected = causal_by_triangle(*(each.double() for each in inputs))
    near(compiled(*inputs).double(), expected, {torch.float64: 1e-6, torch.bfloat16: 2e-2, torch.float16: 2e-3}[dtype])
    assert compiled.calls == [{"causal": True}]


@pytest.mark.parametrize("how", ["expand", "repeat_interleave", "call"])
def test_grouped_heads(how):
    def attend(q, k, v):
        if how == "call":
            return scaled_dot_product_attention(q, k, v, enable_gqa=True)
        if how == "repeat_interleave":
            k, v = (x.repeat_interleave(2, dim=1) for x in (k, v))
        else:
            k, v = (x[:, :, None].expand(B, 2, 2, M, D).reshape(B, H, M, D) for x in (k, v))
        return softmax(q @ k.mT, -1) @ v

    keys = []
    compiled = Compiled(attend)
    rest = compiled._rest

    def look(module, inputs):
        keys.extend(node.args[1].meta["example_value"].shape[1] for node in module.graph.nodes if node.target is _backend.attend)
        return rest(module, inputs)

    compiled._rest = look
    inputs = qkv(G=2)
    near(compiled(*inputs), attend(*inputs))
    assert keys == [2]


def test_sinks():
    def attend(q, k, v, sink, mask):
        scores = q @ k.mT * 0.5 + mask
        scores = torch.cat([scores, sink.reshape(1, -1, 1, 1).expand(B, H, N, 1)], dim=-1)
        scores = scores - scores.max(dim=-1, keepdim=True).values
        return softmax(scores, dim=-1)[..., :-1] @ v

    compiled = Compiled(attend)
    inputs = [*qkv(), *tensors((H,), (N, M))]
    near(compiled(*inputs), attend(*inputs))
    assert [*compiled.calls[0]] == ["sink"]


def test_attention_of_attention():
    def twice(q, k, v):
        out = scaled_dot_product_attention(q, k, v)
        for each in (out, k):
            out = softmax(out @ each.transpose(-1, -2) * 0.3, -1) @ each
        return scaled_dot_product_attention(out, out, out, is_causal=True)

    q, k, v = qkv(M=N)
    compiled = Compiled(twice)
    near(compiled(q, k, v), twice(q, k, v))
    assert len(compiled.calls) == 4


def test_masks_of_run_time():
    def attend(q, k, v, present, bias):
        scores = (q @ k.mT).masked_fill(~present[:, None, None], LOWEST) + bias
        return softmax(torch.where(torch.arange(M) <= rows(N, M), scores, LOWEST), -1) @ v

    compiled = Compiled(attend)
    present = torch.arange(M) < torch.tensor([[M], [9]])
    inputs = [*qkv(), present, *tensors((H, N, M))]
    near(compiled(*inputs), attend(*inputs))
    assert compiled.calls == [{"causal": True}]


def test_rows_that_read_nothing_are_as_before():
    """With finite numbers they are the mean of all values."""

    def attend(q, k, v):
        mask = (torch.arange(M) <= rows(N, M)) & (torch.arange(N)[:, None] > 2)
        return softmax((q @ k.mT).masked_fill(~mask, LOWEST), -1) @ v

    compiled = Compiled(attend)
    inputs = qkv()
    near(compiled(*inputs), attend(*inputs))
    assert compiled.calls == [{}]


def _hide(*shape):
    mask = torch.rand(*shape) > 0.6
    mask[..., 0] = False
    return mask


MULTIHEAD = {
    "plain": ({}, lambda: {}),
    "batch_first": ({"batch_first": True}, lambda: {}),
    "no bias": ({"bias": False}, lambda: {}),
    "cross": ({"kdim": 12, "vdim": 20}, lambda: {}),
    "mask": ({}, lambda: {"attn_mask": _hide(9, 11)}),
    "bias of heads": ({}, lambda: {"attn_mask": torch.randn(4, 9, 11)}),
    "padding": ({}, lambda: {"key_padding_mask": _hide(2, 11)}),
    "both": ({}, lambda: {"key_padding_mask": _hide(2, 11), "attn_mask": _hide(4, 9, 11)}),
    "sum": ({}, lambda: {"key_padding_mask": torch.randn(2, 11), "attn_mask": torch.randn(9, 11)}),
}  # fmt: skip


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("name", MULTIHEAD)
def test_multihead_attention(name, need_weights):
    torch.manual_seed(0)
    made, masks = MULTIHEAD[name]
    model, masks = nn.MultiheadAttention(16, 2, **made), masks()
    shapes = (9, 2, 16), (11, 2, made.get("kdim", 16)), (11, 2, made.get("vdim", 16))
    inputs = [torch.randn(*shape) for shape in shapes]
    if made.get("batch_first"):
        inputs = [each.transpose(0, 1) for each in inputs]

    def attend(*inputs):
        return model(*inputs, **masks, need_weights=need_weights)[0]

    compiled = Compiled(attend, count=_backend.attend_multihead)
    gradients = []
    for each in (attend, compiled):
        model.zero_grad()
        out = each(*inputs)
        out.square().sum().backward()
        gradients.append([out.detach(), *(parameter.grad.clone() for parameter in model.parameters())])
    largest = max(each.abs().max() for each in gradients[0])
    for found, expected in zip(*gradients, strict=True):
        assert (found - expected).abs().max() <= 1e-5 * largest
    assert len(compiled.calls) == 1 and reasons() == []


def test_multihead_attention_without_a_batch():
    torch.manual_seed(0)
    model = nn.MultiheadAttention(16, 2)
    hidden = _hide(9)
    x = torch.randn(9, 16)
    compiled = Compiled(lambda x: model(x, x, x, key_padding_mask=hidden)[0], count=_backend.attend_multihead)
    near(compiled(x), model(x, x, x, key_padding_mask=hidden)[0])
    assert len(compiled.calls) == 1


@pytest.mark.parametrize("rest", ["eager", "aot_eager"])
def test_transformer(rest):
    torch.manual_seed(0)
    model = nn.Transformer(16, 2, 1, 1, 32, dropout=0.0, batch_first=True)
    x, y = torch.randn(2, 9, 16), torch.randn(2, 7, 16)
    mask = nn.Transformer.generate_square_subsequent_mask(7)

    def run(x, y):
        return model(x, y, tgt_mask=mask, tgt_is_causal=True)

    compiled = Compiled(run, rest, count=_backend.attend_multihead)
    near(compiled(x, y), run(x, y))
    assert len(compiled.calls) == 3 and reasons() == []


# ----------------------------------------------------------------------------
# What is left as it is
# ----------------------------------------------------------------------------


def other_axis(q, k, v):
    return softmax(q @ k.mT, -2) @ v


def dropped_out(q, k, v):
    return dropout(softmax(q @ k.mT, -1), 0.5, training=True) @ v


def dropout_of_call(q, k, v):
    return scaled_dot_product_attention(q, k, v, dropout_p=0.5)


def weights_alone(q, k, v):
    return softmax(q @ k.mT, -1)


def weights_changed(q, k, v):
    return softmax(q @ k.mT, -1).square() @ v


def logarithms(q, k, v):
    return torch.log_softmax(q @ k.mT, -1) @ v


def scores_times_tensor(q, k, v):
    return softmax(q @ k.mT * torch.linspace(0, 1, M), -1) @ v


def bias_below_a_soft_cap(q, k, v):
    return softmax(torch.tanh(q @ k.mT + torch.linspace(0, 1, M)) * 3, -1) @ v


def mask_below_a_soft_cap(q, k, v):
    return softmax(torch.tanh((q @ k.mT).masked_fill(torch.arange(M) > 3, -math.inf)) * 3, -1) @ v


def row_below_a_soft_cap(q, k, v):
    scores = q @ k.mT
    return softmax(torch.tanh(scores - scores.amax(-1, keepdim=True)) * 3, -1) @ v


def two_soft_caps(q, k, v):
    return softmax(torch.tanh(3 * torch.tanh(q @ k.mT)) * 3, -1) @ v


def soft_cap_of_zero(q, k, v):
    return softmax(torch.tanh(q @ k.mT) * 0.0, -1) @ v


def sine(q, k, v):
    return softmax(torch.sin(q @ k.mT / 3) * 3, -1) @ v


def no_product(q, k, v):
    return softmax(q[..., :1] + k[:, :, None, :, 0], -1) @ v


def hidden_by_numbers_that_count(q, k, v):
    return softmax((q @ k.mT).masked_fill(torch.arange(M) > 3, -5.0), -1) @ v


def more_queries(q, k, v):
    return scaled_dot_product_attention(torch.cat([q, q], 2), k, v, is_causal=True)


def mixed_types(q, k, v):
    return softmax(q.double() @ k.double().mT, -1).float() @ v


def written_between(q, k, v):
    v = v.clone()
    weights = softmax(q @ k.mT, -1)
    v.mul_(2)
    return weights @ v


def column_dropped(q, k, v):
    return softmax(q @ k.mT, -1)[..., :-1] @ v[:, :, 1:]


LEFT = {
    other_axis: "not over the axis of keys", dropped_out: "dropped out", dropout_of_call: "dropout_p: found 0.5, needed 0",
    weights_alone: "no product reads the weights as they are", weights_changed: "no product reads the weights as they are",
    logarithms: None, scores_times_tensor: "multiplied or divided by a tensor", sine: "scores go through sin",
    bias_below_a_soft_cap: "before a soft-cap", mask_below_a_soft_cap: "before a soft-cap", row_below_a_soft_cap: "before a soft-cap",
    two_soft_caps: "before a soft-cap", soft_cap_of_zero: "limited by 0.0",
    no_product: "scores", hidden_by_numbers_that_count: "replaced by numbers that may count",
    more_queries: "is_causal: found 26 queries and 17 keys", mixed_types: "found types torch.float32, torch.float64",
    written_between: "writes to a tensor between the products", column_dropped: "not that of a sink",
}  # fmt: skip


@pytest.mark.parametrize("function", LEFT, ids=lambda each: each.__name__)
def test_left(function):
    compiled = Compiled(function)
    inputs = qkv()
    torch.manual_seed(1)
    found = compiled(*inputs)
    torch.manual_seed(1)
    assert torch.equal(found, function(*inputs))
    assert compiled.calls == []
    if LEFT[function] is None:
        assert reasons() == []
    else:
        (reason,) = reasons()
        assert LEFT[function] in reason


@pytest.mark.parametrize("options", [{"dropout": 0.5}, {"add_bias_kv": True}, {"add_zero_attn": True}], ids=str)
def test_multihead_attention_that_is_left(options):
    torch.manual_seed(0)
    model = nn.MultiheadAttention(16, 2, **options)
    compiled = Compiled(lambda x: model(x, x, x)[0])
    x = torch.randn(9, 2, 16)
    torch.manual_seed(1)
    found = compiled(x)
    torch.manual_seed(1)
    near(found, model(x, x, x)[0])
    (reason,) = reasons()
    assert not compiled.calls and "multi_head_attention_forward: found " in reason


def test_weights_of_multihead_attention_are_left():
    model = nn.MultiheadAttention(16, 2)
    compiled = Compiled(lambda x: model(x, x, x))
    x = torch.randn(9, 2, 16)
    for one, other in zip(compiled(x), model(x, x, x), strict=True):
        near(one, other)
    assert not compiled.calls and "need_weights" in reasons()[0]


def test_what_writes_to_tensors_stays():
    """What nobody reads may yet write to what somebody reads."""

    def attend(q, k, v):
        total = torch.zeros(B, H, N, D)
        total[:, :, 1:] = call(q, k, v)[:, :, 1:]
        total.index_add_(2, torch.tensor([0]), q[:, :, :1])
        return total

    compiled = Compiled(attend)
    inputs = qkv()
    near(compiled(*inputs), attend(*inputs))
    assert len(compiled.calls) == 1


def test_weights_that_are_returned_stay():
    def attend(q, k, v):
        weights = softmax(q @ k.mT, -1)
        return weights @ v, weights

    compiled = Compiled(attend)
    inputs = qkv()
    for one, other in zip(compiled(*inputs), attend(*inputs), strict=True):
        near(one, other)
    assert compiled.calls == [{}]


# ----------------------------------------------------------------------------
# torch.compile
# ----------------------------------------------------------------------------


def test_lengths_compile_once():
    def attend(q, k, v):
        return scaled_dot_product_attention(q, k, v, is_causal=True) + plain(q, k, v)

    compiled = Compiled(attend, dynamic=True)
    for N in (5, 13, 40):
        inputs = qkv(N, N)
        near(compiled(*inputs), attend(*inputs))
    assert compiled.graphs == 1 and len(compiled.calls) == 2
    # Without being told, after the second length.
    torch._dynamo.reset()
    compiled = Compiled(attend)
    for N in (5, 13, 40, 41):
        near(compiled(*qkv(N, N)), attend(*qkv(N, N)))
    assert compiled.graphs == 2


def test_graph_breaks():
    def attend(q, k, v):
        out = call(q, k, v)
        torch._dynamo.graph_break()
        return call(out, k, v)

    compiled = Compiled(attend)
    inputs = qkv()
    near(compiled(*inputs), attend(*inputs))
    assert compiled.graphs == 2 and len(compiled.calls) == 2


def test_checkpointed_layers():
    def layer(q, k, v):
        return torch.utils.checkpoint.checkpoint(plain, q, k, v, use_reentrant=False)

    compiled = Compiled(layer, rest="aot_eager")
    inputs = [each.requires_grad_() for each in qkv()]
    expected, found = layer(*inputs), compiled(*inputs)
    near(found, expected)
    for one, other in zip(torch.autograd.grad(found.sum(), inputs), torch.autograd.grad(expected.sum(), inputs), strict=True):
        near(one, other)
    assert len(compiled.calls) == 1


@pytest.mark.parametrize("rest", ["eager", "aot_eager", "inductor"])
def test_modules_that_train(rest):
    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.outer = nn.Linear(16, 48), nn.Linear(16, 16)

        def forward(self, x):
            q, k, v = self.inner(x).view(2, 9, 3, 2, 8).permute(2, 0, 3, 1, 4)
            return x + self.outer(plain(q, k, v).transpose(1, 2).reshape(2, 9, 16))

    torch.manual_seed(0)
    model = Layer()
    x = torch.randn(2, 9, 16)
    compiled = Compiled(model, rest)
    gradients = []
    for each in (model, compiled):
        model.zero_grad()
        each(x).square().mean().backward()
        gradients.append([parameter.grad.clone() for parameter in model.parameters()])
    largest = max(each.abs().max() for each in gradients[0])
    for found, expected in zip(*gradients, strict=True):
        assert (found - expected).abs().max() <= 1e-5 * largest
    assert len(compiled.calls) == 1 and reasons() == []


def test_autocast():
    def attend(q, k, v):
        with torch.autocast("cpu", torch.bfloat16):
            return plain(q, k, v)

    compiled = Compiled(attend)
    inputs = qkv()
    near(compiled(*inputs).float(), plain(*inputs), 3e-2)
    assert len(compiled.calls) + len(reasons()) == 1


def test_what_does_not_compile_runs_eagerly():
    def rest(module, inputs):
        raise RuntimeError("no such thing\nmore of it")

    inputs = qkv()
    near(torch.compile(call, backend="fovea", options={"rest": rest})(*inputs), call(*inputs))
    assert reasons() == ["rest did not compile a graph, which runs eagerly: no such thing"]


@pytest.mark.parametrize(
    "options, message",
    [
        ({"options": {"rest": "nothing"}}, "rest='nothing', needed the name of another backend"),
        ({"options": {"rest": "fovea"}}, "rest='fovea', needed the name of another backend"),
        ({"options": {"rest": "eager", "max_autotune": True}}, "found max_autotune, needed rest alone"),
        ({"options": {"rest": "eager"}, "mode": "reduce-overhead"}, None),
    ],
)
def test_errors(options, message):
    with pytest.raises(Exception, match=message):
        torch.compile(plain, backend="fovea", **options)(*qkv())
