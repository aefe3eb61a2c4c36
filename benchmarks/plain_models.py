# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models of benchmarks/models.py that transformers has not, as their papers describe them."""

import math

import torch
from torch import nn


def _modulate(x, shift, scale):
    return x * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1)


class _Block(nn.Module):
    """A block of DiT whose norms have shifts and scales, and results gates, from the condition: adaLN-Zero."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width, elementwise_affine=False, eps=1e-6) for _ in range(2))
        self.qkv, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width))
        self.modulation = nn.Sequential(nn.SiLU(), nn.Linear(width, 6 * width))

    def attend(self, x):
        batch, tokens, width = x.shape
        q, k, v = self.qkv(x).view(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        weights = (q * q.shape[-1] ** -0.5 @ k.transpose(-2, -1)).softmax(-1)
        return self.projection((weights @ v).transpose(1, 2).reshape(batch, tokens, width))

    def forward(self, x, condition):
        shift, scale, gate, shift_mlp, scale_mlp, gate_mlp = self.modulation(condition).chunk(6, 1)
        x = x + gate.unsqueeze(1) * self.attend(_modulate(self.norms[0](x), shift, scale))
        return x + gate_mlp.unsqueeze(1) * self.mlp(_modulate(self.norms[1](x), shift_mlp, scale_mlp))


def _positions(width, side):
    """Sines and cosines of the column and of the row of each patch."""
    frequencies = 10000.0 ** -(torch.arange(width // 4) / (width / 4))
    angles = torch.arange(side)[:, None] * frequencies
    waves = torch.cat([angles.sin(), angles.cos()], 1)
    columns, rows = waves.repeat(side, 1), waves.repeat_interleave(side, 0)
    return torch.cat([columns, rows], 1)


class DiT(nn.Module):
    """Scalable Diffusion Models with Transformers (arXiv 2212.09748), of latents of 4 channels in patches of 2 x 2."""

    def __init__(self, width, heads, layers, classes, size=32, channels=4, patch=2):
        super().__init__()
        self.size, self.channels, self.patch = size, channels, patch
        self.patches = nn.Conv2d(channels, width, patch, patch)
        self.register_buffer("positions", _positions(width, size // patch))
        self.steps = nn.Sequential(nn.Linear(256, width), nn.SiLU(), nn.Linear(width, width))
        self.classes = nn.Embedding(classes + 1, width)
        self.blocks = nn.ModuleList(_Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
        self.modulation = nn.Sequential(nn.SiLU(), nn.Linear(width, 2 * width))
        # Sigma is learned as well.
        self.last = nn.Linear(width, patch * patch * 2 * channels)

    def forward(self, latents, steps, labels):
        angles = steps[:, None].float() * torch.exp(-math.log(10000) / 128 * torch.arange(128))
        condition = self.steps(torch.cat([angles.cos(), angles.sin()], -1)) + self.classes(labels)
        x = self.patches(latents).flatten(2).transpose(1, 2) + self.positions
        for block in self.blocks:
            x = block(x, condition)
        x = self.last(_modulate(self.norm(x), *self.modulation(condition).chunk(2, 1)))
        side, patch = self.size // self.patch, self.patch
        x = x.view(-1, side, side, patch, patch, 2 * self.channels).permute(0, 5, 1, 3, 2, 4)
        return x.reshape(-1, 2 * self.channels, self.size, self.size)


def make_jax(options, vocabulary):
    """A language model as flax has its layers, as a function of parameters and tokens, and examples of both."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    rng = np.random.default_rng(0)
    width, heads = options.width, options.heads

    def weights(*shape):
        return jnp.asarray(rng.standard_normal(shape) * shape[0] ** -0.5, jnp.float32)

    def dense(*shape):
        return {"kernel": weights(*shape), "bias": jnp.asarray(rng.standard_normal(shape[1:]) * 0.02, jnp.float32)}

    def norm():
        return {"scale": jnp.ones(width), "bias": jnp.zeros(width)}

    def layer():
        head = width // heads
        projections = {name: dense(width, heads, head) for name in ("query", "key", "value")}
        attention = {**projections, "out": dense(width, width)}
        return {"attention": attention, "norms": [norm(), norm()], "up": dense(width, 4 * width), "down": dense(4 * width, width)}

    parameters = {
        "embedding": weights(vocabulary, width), "positions": weights(options.tokens, width),
        "layers": [layer() for _ in range(options.layers)], "norm": norm(),
    }  # fmt: skip

    def normalize(p, x):
        x = x - x.mean(-1, keepdims=True)
        return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * p["scale"] + p["bias"]

    def attend(p, x):
        q, k, v = (jnp.einsum("bnc,chd->bnhd", x, p[name]["kernel"]) + p[name]["bias"] for name in ("query", "key", "value"))
        out = jax.nn.dot_product_attention(q, k, v, is_causal=True)
        return out.reshape(x.shape) @ p["out"]["kernel"] + p["out"]["bias"]

    def model(parameters, tokens):
        x = parameters["embedding"][tokens] + parameters["positions"]
        for p in parameters["layers"]:
            x = x + attend(p["attention"], normalize(p["norms"][0], x))
            hidden = jax.nn.gelu(normalize(p["norms"][1], x) @ p["up"]["kernel"] + p["up"]["bias"])
            x = x + hidden @ p["down"]["kernel"] + p["down"]["bias"]
        return normalize(parameters["norm"], x)

    tokens = jnp.asarray(rng.integers(0, vocabulary, (options.batch, options.tokens)), jnp.int32)
    return model, (parameters, tokens)
