# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Modules compute their definitions, written out in float64, and have their gradients."""

import pytest
import torch
from nn_cases import check_gradients, gradients, heads, in_float64, make, merge, near, normal
from torch.nn import functional as F

from fovea.torch import nn, tree_build, tree_materialize

ABSENT = torch.arange(29) >= torch.tensor([[29], [21]])


def soft_max(scores, admitted, sinks=None):
    scores = scores.masked_fill(~admitted, float("-inf"))
    if sinks is not None:
        scores = torch.cat([scores, sinks[None, :, None, None].expand(*scores.shape[:3], 1)], -1)
        return scores.softmax(-1)[..., :-1]
    return scores.softmax(-1).nan_to_num(0.0)


def causal_mask(N):
    return torch.ones(N, N, dtype=torch.bool).tril()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("is_padded", [False, True])
def test_dense(causal, is_padded):
    """Grouped queries, a window and sinks."""
    module = make("dense")
    with torch.no_grad():
        module.pattern.sinks.normal_()
    wide, x = in_float64(module), normal(2, 29, 16)
    found, weights = module(x, is_causal=causal, key_padding_mask=ABSENT if is_padded else None)
    assert weights is None
    q, k, v = heads(wide, x.double())
    positions = torch.arange(29)
    admitted = (positions[:, None] - positions).abs() < 7
    admitted = (admitted & causal_mask(29) if causal else admitted)[None, None]
    if is_padded:
        admitted = admitted & ~ABSENT[:, None, None]
    expected = merge(wide, soft_max(q @ k.mT * 8**-0.5, admitted, wide.pattern.sinks) @ v)
    near(found, expected)
    check_gradients(gradients(module, found), gradients(wide, expected))


def multipole(wide, q, k, v, causal, present):
    """Entry by entry: the level that owns it, and the summary there."""
    B, H, N, D = q.shape
    m, p = wide.pattern.group, wide.pattern.rank
    levels = 0
    while N > m << (levels + 1):
        levels += 1
    whole = m << (levels + 1)
    pad = (0, 0, 0, whole - N)
    there = F.pad(present.double(), (0, whole - N))
    k0, v0 = F.pad(k, pad) * there[:, None, :, None], F.pad(v, pad) * there[:, None, :, None]
    i, j = torch.arange(whole)[:, None], torch.arange(whole)
    scores = q.new_zeros(B, H, whole, whole)
    values = []
    owners = torch.zeros(whole, whole, dtype=torch.long)
    for level in range(1, levels + 1):
        size = m << (level - 1)
        owners[(i // size - j // size).abs() >= 2] = level
    q = F.pad(q, pad)
    counts = there[:, None, None].expand(B, 1, whole, whole).clone()
    for level in range(levels + 1):
        if level == 0:
            keys, rows = k0, v0
            weight = there
        else:
            size = m << (level - 1)
            kw, vw = wide.pattern.key_weights[level - 1], wide.pattern.value_weights[level - 1]
            keys = torch.einsum("wptd,bhgtd->bhgpd", kw, k0.unflatten(2, (-1, size))).flatten(2, 3)
            rows = torch.einsum("wptd,bhgtd->bhgpd", vw, v0.unflatten(2, (-1, size))).flatten(2, 3)
            share = size // p
            # Each of its tokens sees the summary: together they count as many as are present.
            weight = there.unflatten(1, (-1, share)).sum(2).repeat_interleave(share, 1) / share
            keys, rows = keys.repeat_interleave(share, 2), rows.repeat_interleave(share, 2)
        owned = owners == level
        scores = torch.where(owned, q @ keys.mT * D**-0.5, scores)
        counts = torch.where(owned, weight[:, None, None], counts)
        values.append((owned, rows))
    admitted = counts > 0
    if causal:
        admitted = admitted & (j <= i)
    weights = soft_max(scores + counts.clamp(min=1e-30).log(), admitted)
    out = sum((weights * owned) @ rows for owned, rows in values)
    return out[:, :, :N] * present[:, None, :, None]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("is_padded", [False, True])
@pytest.mark.parametrize("tokens", [8, 29, 64])
def test_multipole(tokens, causal, is_padded):
    module = make("multipole")
    with torch.no_grad():
        for weight in (*module.pattern.key_weights, *module.pattern.value_weights):
            weight.add_(normal(*weight.shape, seed=weight.shape[2]), alpha=0.1)
    wide, x = in_float64(module), normal(2, tokens, 16)
    absent = torch.arange(tokens) >= torch.tensor([[tokens], [tokens - 5]]) if is_padded else None
    present = torch.ones(2, tokens, dtype=torch.bool) if absent is None else ~absent
    found, _ = module(x, is_causal=causal, key_padding_mask=absent)
    expected = merge(wide, multipole(wide, *heads(wide, x.double()), causal, present))
    near(found, expected)
    found, expected = gradients(module, found), gradients(wide, expected)
    # Levels that the formula does not read have zeros.
    for unread in found.keys() - expected.keys():
        assert "_weights." in unread and not found.pop(unread).any()
    check_gradients(found, expected)


def test_multipole_begins_with_means():
    module = make("multipole").pattern
    for level, weight in enumerate(module.key_weights):
        size = 4 << level
        assert weight.shape == (1, 2, size, 8)
        rows = normal(size, 8)
        means = rows.unflatten(0, (2, -1)).mean(1)
        near(torch.einsum("ptd,td->pd", weight[0], rows), means.double(), 1e-6)


def quantized(wide, q, k, v, codebook):
    def normalized(x):
        return x * x.shape[-1] ** -0.25 / (x.square().mean(-1, keepdim=True) + torch.finfo(torch.float32).eps).sqrt()

    q, k = normalized(q), normalized(k)
    codes = (k[..., None, :] - codebook[:, None]).square().sum(-1).argmin(-1)
    k_hat = torch.stack([codebook[h][codes[:, h]] for h in range(k.shape[1])], 1)
    loss = (k - k_hat.detach()).square().sum(-1).mean()
    straight = k + (k_hat - k).detach()
    scores = q @ straight.mT
    return soft_max(scores, causal_mask(q.shape[2])) @ v, loss, k, codes


def test_quantized():
    """Two blocks, within which dense attention over codewords has the same gradients."""
    module = make("quantized", block=16).train()
    wide, x = in_float64(module), normal(2, 29, 16)
    codebook = wide.pattern.codebook.clone()
    found, _ = module(x, is_causal=True)
    q, k, v = heads(wide, x.double())
    out, loss, keys, codes = quantized(wide, q, k, v, codebook)
    expected = merge(wide, out)
    near(found, expected)
    near(nn.commitment_loss(module), loss)
    check_gradients(
        gradients(module, found + nn.commitment_loss(module)), gradients(wide, expected + loss), 5e-5
    )
    # The codebook has followed the keys.
    for h in range(2):
        chosen = F.one_hot(codes[:, h], 8).double()
        count = 0.99 + 0.01 * chosen.sum((0, 1))
        total = 0.99 * codebook[h] + 0.01 * torch.einsum("bns,bnd->sd", chosen, keys[:, h])
        near(module.pattern.counts[h], count.detach())
        near(module.pattern.sums[h], total.detach())
        near(module.pattern.codebook[h], (total / count[:, None]).detach())


@pytest.mark.parametrize("factor", [1, -1])
def test_relative(factor):
    """Scores by distance within two blocks; a canary has them the other way round."""
    module = make("quantized", relative=True, block=16).eval()
    with torch.no_grad():
        module.pattern.content_bias.normal_()
        module.pattern.relative_bias.normal_()
    wide, x = in_float64(module), normal(2, 29, 16)
    found, _ = module(x, is_causal=True)
    q, k, v = heads(wide, x.double())
    pattern, length = wide.pattern, 8**-0.25
    q, k = (F.rms_norm(part, (8,)) * length for part in (q, k))
    codes = torch.cdist(k, pattern.codebook).argmin(-1)
    k = k + (torch.stack([pattern.codebook[h][codes[:, h]] for h in range(2)], 1) - k).detach()
    distance = torch.arange(29.0, dtype=torch.float64)
    angles = distance[:, None] * 10000 ** -(torch.arange(0, 16, 2) / 16)
    r = pattern.relative_proj(torch.cat([angles.sin(), angles.cos()], -1)).unflatten(-1, (2, 8)).transpose(0, 1)
    u, w = (length * part[:, None] for part in (pattern.content_bias, pattern.relative_bias))
    place = (distance[:, None] - distance).long()[None].expand(2, 29, 29).clamp(min=0)
    by_distance = torch.einsum("bhnd,hmd->bhnm", q + w, length * r)
    scores = (q + u) @ k.mT + factor * by_distance.gather(-1, place[None].expand(2, 2, 29, 29))
    expected = merge(wide, soft_max(scores, causal_mask(29)) @ v)
    if factor < 0:
        assert (found - expected).abs().max() > 1e-2
        return
    near(found, expected)
    check_gradients(gradients(module, found), gradients(wide, expected), 5e-5)


def test_relative_needs_causality():
    with pytest.raises(ValueError, match="is_causal: found False, needed True"):
        make("quantized", relative=True)(normal(2, 29, 16))


@pytest.mark.parametrize("options", [{}, {"gated": True}, {"relative": True}])
def test_windows_of_quantized(options):
    """A sequence in windows is the whole, forward and backward."""
    module = make("quantized", **options).eval()
    x = normal(2, 29, 16)
    whole, _ = module(x, is_causal=True)
    expected = gradients(module, whole)
    state, parts = None, []
    for window in x.split(7, 1):
        out, state = module(window, is_causal=True, state=state, return_state=True)
        parts.append(out)
    found = torch.cat(parts, 1)
    near(found, whole.double())
    check_gradients(gradients(module, found), expected)


def test_gates():
    module = make("quantized", gated=True, block=16).eval()
    wide, x = in_float64(module), normal(2, 29, 16)
    found, _ = module(x, is_causal=True)
    q, k, v = heads(wide, x.double())
    out = quantized(wide, q, k, F.silu(v), wide.pattern.codebook)[0]
    gate = F.silu(x.double() @ wide.gate_proj.weight.T + wide.gate_proj.bias)
    expected = merge(wide, out * gate.unflatten(-1, (2, 8)).transpose(1, 2))
    near(found, expected)


def test_padded_keys_of_quantized():
    """Each sequence is as if it were alone."""
    module = make("quantized").eval()
    x = normal(2, 29, 16)
    found = module(x, is_causal=True, key_padding_mask=ABSENT)[0][~ABSENT]
    alone = torch.cat([module(x[b : b + 1, :length], is_causal=True)[0][0] for b, length in ((0, 29), (1, 21))])
    near(found, alone.double())
    check_gradients(gradients(module, found), gradients(module, alone))


@pytest.mark.parametrize("is_padded", [False, True])
def test_conv(is_padded):
    """With a basis for each token it is exact."""
    module = make("conv", num_basis=29, window=1, delta=0.0)
    wide, x = in_float64(module), normal(2, 29, 16)
    found, _ = module(x, is_causal=True, key_padding_mask=ABSENT if is_padded else None)
    present = ~ABSENT if is_padded else torch.ones_like(ABSENT)
    q, k, v = heads(wide, x.double())
    admitted = causal_mask(29) & present[:, None, None]
    out = (soft_max(q @ k.mT * 8**-0.5, admitted) @ v) * present[:, None, :, None]
    expected = merge(wide, out)
    near(found, expected, 1e-4)
    check_gradients(gradients(module, found), gradients(wide, expected), 2e-4)


# ----------------------------------------------------------------------------
# VCC
# ----------------------------------------------------------------------------


def make_layer(**options):
    torch.manual_seed(0)
    return nn.VccEncoderLayer(16, 2, dim_feedforward=24, **{**dict(budgets={1: 2}), **options})


@pytest.mark.parametrize("norm_first", [True, False])
def test_every_segment_split(norm_first):
    """Then the encoder is that of torch.nn, with its weights."""
    layer = make_layer(budgets={1: 6}, norm_first=norm_first)
    encoder = nn.VccEncoder(layer, 2, num_vip=5, ratio=4)
    reference = torch.nn.TransformerEncoderLayer(
        16, 2, 24, 0.0, "gelu", norm_first=norm_first, batch_first=True, dtype=torch.float64
    )
    reference = torch.nn.TransformerEncoder(reference, 2, enable_nested_tensor=False)
    reference.load_state_dict(encoder.state_dict())
    x = normal(2, 29, 16)
    for absent in (None, ABSENT):
        found = encoder(x, absent)
        expected = reference(x.double(), src_key_padding_mask=absent)
        present = torch.ones_like(ABSENT) if absent is None else ~absent
        near(found[present], expected[present])
        check_gradients(gradients(encoder, found[present]), gradients(reference, expected[present]))


@pytest.mark.parametrize("selection", ["heads", "exponential"])
def test_compressed_layer(selection):
    """With the nodes that it chose, means of segments and single tokens."""
    layer = make_layer(selection=selection)
    wide = in_float64(layer)
    vip, tokens = normal(2, 5, 16), normal(2, 24, 16, seed=2)
    tree = tree_build(tokens, ratio=4, levels=1)
    level, index = layer.select(vip, tree)
    moved, after = layer(vip, tree)
    found = torch.cat([moved, after.nodes], 1)

    whole, means = tokens.double(), tokens.double().unflatten(1, (-1, 4)).mean(2)
    rows, weights = [], []
    for b in range(2):
        single = [whole[b, x] if each == 0 else means[b, x] for each, x in zip(level[b].tolist(), index[b].tolist())]
        rows.append(torch.stack(single))
        weights.append(torch.where(level[b] == 0, 0.0, 4.0).double().clamp(min=1).log())
    rows = torch.cat([vip.double(), torch.stack(rows)], 1)
    weight = torch.cat([torch.zeros(2, 5).double(), torch.stack(weights)], 1)
    q, k, v = heads(wide.self_attn, wide.norm1(rows))
    scores = (q @ k.mT * 8**-0.5 + weight[:, None, None]).softmax(-1)
    out = rows + merge(wide.self_attn, scores @ v)
    out = out + wide.linear2(F.gelu(wide.linear1(wide.norm2(out))))
    near(moved, out[:, :5])
    # What a node moved by, its tokens moved by.
    expected = []
    for b in range(2):
        delta = torch.zeros(24, 16).double()
        for n, (each, x) in enumerate(zip(level[b].tolist(), index[b].tolist())):
            size = 4**each
            delta = delta + F.pad((out - rows)[b, 5 + n].expand(size, 16), (0, 0, x * size, 24 - (x + 1) * size))
        expected.append(whole[b] + delta)
    expected = torch.cat([out[:, :5], torch.stack(expected)], 1)
    found = torch.cat([moved, tree_materialize(after)], 1)
    near(found, expected)
    check_gradients(gradients(layer, found), gradients(wide, expected))
    # Nodes cover the sequence, and two segments are split.
    assert (level == 0).sum(1).tolist() == [8, 8] and (level == 1).sum(1).tolist() == [4, 4]


def test_what_matters_is_split():
    """Heads choose the segments that VIP tokens attend to most."""
    layer = make_layer(budgets={1: 1})
    vip, tokens = normal(1, 5, 16), normal(1, 24, 16, seed=2)
    tree = tree_build(tokens, ratio=4, levels=1)
    q, k, _ = heads(layer.self_attn, layer.norm1(torch.cat([vip, tokens.unflatten(1, (-1, 4)).mean(2)], 1)))
    scores = (q[:, :, :5] @ k[:, :, 5:].mT * 8**-0.5).softmax(-1).mean((1, 2))
    level, index = layer.select(vip, tree)
    assert (index[level == 0] // 4).unique().item() == scores.argmax().item()
