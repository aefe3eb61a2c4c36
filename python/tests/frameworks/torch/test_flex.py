# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""FlexAttention: in graphs of torch.compile, and as a function with gradients on CPUs."""

import itertools

import pytest
import torch
from test_backend import Compiled, near, reasons
from torch.nn.attention import flex_attention as flex
from torch_models import make_gemma

import fovea
import fovea.torch

B, H, N, D = 2, 4, 150, 16
# Products with distances are exact: large scores that differ in their last digit would have other weights.
SLOPES = 0.5 ** torch.arange(1, H + 1)
TABLE = torch.randn(H, 2 * 256 + 1, generator=torch.Generator().manual_seed(3))
DOCUMENTS = torch.arange(256) // 40
VISIBLE = torch.rand(256, 256, generator=torch.Generator().manual_seed(2)) < 0.5
SHIFT = torch.tensor(3)


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    fovea.torch.explain_fallbacks(clear=True)


def tensors(N=N, M=None, G=H, E=D, B=B, dtype=torch.float32):
    generator = torch.Generator().manual_seed(1)
    shapes = (B, H, N, D), (B, G, M or N, D), (B, G, M or N, E)
    return [torch.randn(*shape, generator=generator).to(dtype) for shape in shapes]


#: All operations, by their own names.
OPERATIONS = {
    "numbers": lambda s, b, h, i, j: (
        torch.sub(torch.add(s, 0.5), torch.mul(s, 0.1)) / 2 + torch.neg(s) * 0.3 + torch.rsub(s, 1.0) * 0.1 + torch.square(s) * 0.05
        + torch.abs(s).pow(2) * 0.01 + torch.reciprocal(torch.exp(s) + 1) + torch.rsqrt(s * s + 1) + torch.sqrt(s * s + 1) * 0.1
        + torch.log(s * s + 1) + torch.sin(s) + torch.cos(s) + torch.floor(s) * 0.1 + torch.tanh(s) + torch.sigmoid(s) + torch.relu(s)
        + torch.maximum(s, s * 0.5) + torch.minimum(s, s * 0.5) + torch.clamp(s, -0.5, 0.5)
    ),
    "integers": lambda s, b, h, i, j: (
        s + (i // 3).to(torch.float32) * 0.01 + torch.remainder(j, 5).float() * 0.1 + (i % 4).long() * 0.02 + (s * 3).int() * 0.05
        + TABLE[h, torch.floor_divide(i, 2)]
    ),
    "conditions": lambda s, b, h, i, j: torch.where(
        torch.logical_and(torch.lt(i, 90), torch.le(j, 120)) | torch.logical_or(torch.gt(i, 140), torch.ge(j, 130))
        | (torch.eq(i, 100) & ~torch.ne(j, 7)) | torch.bitwise_not(torch.bitwise_or(i > 3, torch.bitwise_and(j > 5, i > 1)))
        | torch.logical_xor(torch.less(i, 95), torch.greater(j, 99)) | torch.bitwise_xor(i > 99, torch.logical_not(j > 101))
        | ((i > 7) ^ (j > 8)),
        s, s * 0.5,
    ),
}  # fmt: skip

SCORES = {
    "alibi": lambda s, b, h, i, j: s + SLOPES[h] * (j - i),
    "soft-cap": lambda s, b, h, i, j: 5 * torch.tanh(s / 5),
    "table": lambda s, b, h, i, j: s + TABLE[h, i - j + 256],
    "many": lambda s, b, h, i, j: torch.where(
        (i - j).abs() % 7 < 3, s * torch.sigmoid(s).clamp(0.1, 0.9), torch.relu(s) + torch.sin(s) + i.float() / 99 + (i // 3 + b) * 0.1
    ),
}

MASKS = {
    "causal": lambda b, h, i, j: i >= j,
    "window": lambda b, h, i, j: (i - j < 30) & (i - j > -9),
    "documents": lambda b, h, i, j: (DOCUMENTS[i] == DOCUMENTS[j]) | (j == 0),
    "heads": lambda b, h, i, j: (h % 2 == 0) & torch.logical_not(i < j) | (b == 1) & (j < 70),
    "tensor": lambda b, h, i, j: VISIBLE[i, j],
    "number of a tensor": lambda b, h, i, j: i + SHIFT >= j,
    "rows without keys": lambda b, h, i, j: (i >= 20) & (j < 100),
}


def exact(q, k, v, score=None, mask=None, scale=None, return_lse=False):
    """By arrays of all scores."""
    places = [torch.arange(extent).reshape([-1 if axis == at else 1 for at in range(4)]) for axis, extent in
              enumerate((q.shape[0], q.shape[1], q.shape[2], k.shape[2]))]  # fmt: skip
    k, v = (each.repeat_interleave(q.shape[1] // each.shape[1], 1) for each in (k, v))
    scores = q @ k.mT * (scale or q.shape[-1] ** -0.5)
    scores = scores if score is None else score(scores, *places)
    admitted = torch.tensor(True) if mask is None else mask(*places)
    scores = scores.masked_fill(~admitted, -torch.inf)
    out = scores.softmax(-1).nan_to_num(0) @ v
    return (out, scores.logsumexp(-1)) if return_lse else out


def block_mask(mask, N=N, M=None):
    return flex.create_block_mask(mask, B, H, N, M or N, device="cpu")


@pytest.mark.parametrize("score", [None, *SCORES])
@pytest.mark.parametrize("mask", [None, *MASKS])
def test_compiled(score, mask):
    q, k, v = tensors()
    score, mask = SCORES.get(score), MASKS.get(mask)
    blocks = mask and block_mask(mask)
    compiled = Compiled(lambda q, k, v: flex.flex_attention(q, k, v, score, blocks))
    near(compiled(q, k, v), exact(q, k, v, score, mask), 2e-5)
    assert reasons() == []


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations(name):
    q, k, v = tensors()
    near(fovea.torch.flex_attention(q, k, v, OPERATIONS[name]), exact(q, k, v, OPERATIONS[name]), 2e-5)


@pytest.mark.parametrize("score", [None, "soft-cap", "table"])
@pytest.mark.parametrize("mask", [None, "window", "documents", "rows without keys"])
def test_gradients(score, mask):
    score, mask = SCORES.get(score), MASKS.get(mask)
    blocks = mask and block_mask(mask)
    given = [x.requires_grad_() for x in tensors(E=D)]
    weights = torch.randn(B, H, N, D)
    found, expected = (
        torch.autograd.grad((function(*given) * weights).sum(), given)
        for function in (lambda *x: fovea.torch.flex_attention(*x, score, blocks), lambda *x: exact(*x, score, mask))
    )
    for one, other in zip(found, expected, strict=True):
        near(one, other, 1e-4)


def read_lse(q, k, v, score, blocks, function=flex.flex_attention):
    out, more = function(q, k, v, score, blocks, return_aux=flex.AuxRequest(lse=True))
    assert more.max_scores is None
    return out, more.lse


@pytest.mark.parametrize("score", [None, "alibi", "soft-cap"])
@pytest.mark.parametrize("mask", [None, "documents", "rows without keys"])
def test_lse(score, mask):
    score, mask = SCORES.get(score), MASKS.get(mask)
    given, blocks = tensors(), mask and block_mask(mask)
    expected = exact(*given, score, mask, return_lse=True)
    calls = [
        lambda q, k, v: read_lse(q, k, v, score, blocks),
        lambda q, k, v: read_lse(q, k, v, score, blocks, fovea.torch.flex_attention),
        lambda q, k, v: flex.flex_attention(q, k, v, score, blocks, return_lse=True),
    ]
    # Of a row without keys it is -inf.
    expected = [each.nan_to_num(neginf=-99) for each in expected]
    for found in (*(Compiled(call)(*given) for call in calls), fovea.torch.flex_attention(*given, score, blocks, return_lse=True)):
        for one, other in zip(found, expected, strict=True):
            near(one.nan_to_num(neginf=-99), other, 2e-5)
    near(Compiled(lambda *each: calls[0](*each)[1])(*given).nan_to_num(neginf=-99), expected[1], 2e-5)
    assert reasons() == []


@pytest.mark.parametrize("dtype, bound", [(torch.bfloat16, 2e-2), (torch.float64, 1e-12)])
def test_lse_of_types(dtype, bound):
    q, k, v = tensors(G=2, dtype=dtype)
    found = fovea.torch.flex_attention(q, k, v, None, block_mask(MASKS["causal"]), enable_gqa=True, return_lse=True)
    assert [each.dtype for each in found] == [dtype, torch.float64 if dtype == torch.float64 else torch.float32]
    expected = exact(q.double(), k.double(), v.double(), None, MASKS["causal"], return_lse=True)
    for one, other in zip(found, expected, strict=True):
        near(one, other.to(one.dtype), bound)


def test_gradients_of_lse():
    given = [x.requires_grad_() for x in tensors(E=D)]
    blocks, mask = block_mask(MASKS["window"]), MASKS["window"]
    calls = [
        lambda *x: fovea.torch.flex_attention(*x, SCORES["alibi"], blocks, return_lse=True),
        lambda *x: exact(*x, SCORES["alibi"], mask, return_lse=True),
    ]
    found, expected = (torch.autograd.grad(sum(each.sin().sum() for each in call(*given)), given) for call in calls)
    for one, other in zip(found, expected, strict=True):
        near(one, other, 1e-4)


def test_models_train():
    """Captured parameters have gradients, in a model that is compiled."""

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.project, self.slopes = torch.nn.Linear(D, 3 * D), torch.nn.Parameter(SLOPES.clone())
            self.attend = fovea.torch.flex_attention

        def forward(self, x):
            q, k, v = self.project(x).chunk(3, -1)
            return self.attend(q, k, v, lambda s, b, h, i, j: s + self.slopes[h] * (j - i), BLOCKS)

    BLOCKS = block_mask(MASKS["causal"])
    model, (x, *_) = Model(), tensors()
    gradients = []
    for attend in (fovea.torch.flex_attention, lambda q, k, v, score, _: exact(q, k, v, score, MASKS["causal"])):
        model.attend = attend
        run = torch.compile(model, backend="fovea", options={"rest": "eager"}) if not gradients else model
        gradients.append(torch.autograd.grad(run(x).square().sum(), list(model.parameters())))
    for one, other in zip(*gradients, strict=True):
        near(one, other, 1e-4)


@pytest.mark.parametrize("N, M", [(1, 200), (130, 257), (257, 130)])
def test_queries_are_counted_from_the_first(N, M):
    q, k, v = tensors(N, M)
    mask = lambda b, h, i, j: j <= i + 20  # noqa: E731
    found = fovea.torch.flex_attention(q, k, v, SCORES["alibi"], block_mask(mask, N, M))
    near(found, exact(q, k, v, SCORES["alibi"], mask), 2e-5)


@pytest.mark.parametrize("dtype, bound", [(torch.bfloat16, 2e-2), (torch.float16, 3e-3), (torch.float64, 1e-12)])
def test_types_heads_and_widths(dtype, bound):
    q, k, v = tensors(G=2, E=24, dtype=dtype)
    found = fovea.torch.flex_attention(q, k, v, SCORES["soft-cap"], block_mask(MASKS["causal"]), 0.3, enable_gqa=True)
    assert found.dtype == dtype
    near(found.double(), exact(q.double(), k.double(), v.double(), SCORES["soft-cap"], MASKS["causal"], 0.3), bound)


def test_blocks_are_those_that_are_listed():
    """Full blocks are read without the function, and blocks that no row lists are not read."""
    q, k, v = tensors()
    counts = torch.tensor([1, 2, 0], dtype=torch.int32).reshape(1, 1, 3)
    indices = torch.tensor([[2, 0, 1], [0, 1, 2], [0, 1, 2]], dtype=torch.int32).reshape(1, 1, 3, 3)
    full, places = torch.tensor([1, 0, 1], dtype=torch.int32).reshape(1, 1, 3), indices.flip(-1).contiguous()
    listed = torch.tensor([[0, 2, 1], [1, 1, 0], [0, 0, 2]])
    for functions in (None, MASKS["window"]):
        blocks = flex.BlockMask.from_kv_blocks(counts, indices, full, places, (64, 64), functions, seq_lengths=(N, N))

        def mask(b, h, i, j, functions=functions):
            block = listed[i // 64, j // 64]
            return (block > 0) & ((block > 1) | (functions(b, h, i, j) if functions else torch.tensor(True)))

        near(fovea.torch.flex_attention(q, k, v, block_mask=blocks), exact(q, k, v, None, mask), 2e-5)


def test_lengths_compile_once():
    compiled = Compiled(lambda q, k, v, blocks: flex.flex_attention(q, k, v, SCORES["alibi"], blocks), dynamic=True)
    for length in (300, 420, 150, 700):
        q, k, v = tensors(length)
        near(compiled(q, k, v, block_mask(MASKS["causal"], length)), exact(q, k, v, SCORES["alibi"], MASKS["causal"]), 2e-5)
    assert compiled.graphs == 1 and reasons() == []


def test_many_functions():
    q, k, v = tensors(20)
    for number in range(12):
        score = eval(f"lambda s, b, h, i, j: s * {number}")
        near(fovea.torch.flex_attention(q, k, v, score), exact(q, k, v, score), 2e-5)


def test_many_types_heads_and_widths():
    """More cases of one function than Dynamo compiles unless told to."""
    for dtype, D, H, gradient in itertools.product((torch.float32, torch.bfloat16), (8, 16), (1, 2, 4), (False, True)):
        q, k, v = (torch.randn(1, H, 9, D, dtype=dtype, requires_grad=gradient) for _ in range(3))
        near(fovea.torch.flex_attention(q, k, v).detach(), exact(q, k, v).detach(), 2e-5 if dtype == torch.float32 else 2e-2)


def test_arguments_that_do_not_fit_are_named():
    q, k, v = tensors()
    for wrong, message in (
        ((q.numpy(), k, v), "query: found ndarray, needed a tensor"),
        ((q, k.tolist(), v), "key: found list, needed a tensor"),
        ((q, k, torch.nested.nested_tensor([v[0, 0], v[0, 0]])), "value: found a nested tensor"),
        ((q, k.double(), v), "key: found torch.float64, needed torch.float32, that of query"),
        ((q.repeat(3, 1, 1, 1), k.repeat(2, 1, 1, 1), v), f"key: found batch {2 * len(k)}, needed {3 * len(q)}"),
        ((q, k[..., :3], v), f"key: found width 3, needed {q.shape[3]}"),
        ((q, k, v[:, :, :3]), f"value: found length 3, needed {k.shape[2]}"),
        ((q, k, v[:, :1]), f"value: found heads 1, needed {k.shape[1]}"),
    ):
        with pytest.raises(ValueError, match=f"^{message}"):
            fovea.torch.flex_attention(*wrong)


def test_what_is_left_says_why():
    q, k, v = tensors()
    score = lambda s, b, h, i, j: torch.erf(s)  # noqa: E731
    found = Compiled(lambda q, k, v: flex.flex_attention(q, k, v, score))
    near(found(q, k, v), exact(q, k, v, score), 2e-5)
    (reason,) = reasons()
    assert "found erf, which functions of scores do not have" in reason
    found = Compiled(lambda q, k, v: flex.flex_attention(q, k, v, return_lse=True, kernel_options={"BACKEND": "FLASH"})[1])
    found(q, k, v)
    assert "found the logsumexp of the backend FLASH, needed that of another" in reasons()[-1]
    with pytest.raises(ValueError, match="return_aux: found max_scores=True, needed lse alone"):
        fovea.torch.flex_attention(q, k, v, return_aux=flex.AuxRequest(max_scores=True))
    with pytest.raises(ValueError, match="return_lse: found it beside return_aux, needed one of them"):
        fovea.torch.flex_attention(q, k, v, return_lse=True, return_aux=flex.AuxRequest())
    with pytest.raises(ValueError, match="key: found 2 heads beside 4 of query, needed enable_gqa=True"):
        fovea.torch.flex_attention(*tensors(G=2))
    with pytest.raises(ValueError, match="value: found 3 dimensions, needed 4"):
        fovea.torch.flex_attention(q, k, v[0])
    with pytest.raises(ValueError, match=r"block_mask: found one for \(150, 150\) .*, needed one for \(150, 140\)"):
        fovea.torch.flex_attention(q, k[:, :, :140], v[:, :, :140], block_mask=block_mask(MASKS["causal"]))



def test_transformers():
    """Their masks are conjunctions of tables, and say on which device."""
    model = make_gemma()
    ids = torch.randint(3, 90, (2, 150), generator=torch.Generator().manual_seed(1))
    present = (torch.arange(150) >= torch.tensor([[20], [0]])).long()
    found = torch.compile(model, backend="fovea", options={"rest": "eager"})(ids, attention_mask=present, use_cache=False).logits
    assert reasons() == []
    model.set_attn_implementation("eager")
    near(found[present.bool()], model(ids, attention_mask=present, use_cache=False).logits[present.bool()], 2e-5)
