# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A small model of bytes, its text and its training, which the examples share."""

import pathlib
import signal
import time

import torch
from torch import nn
from torch.nn import functional as F
from tqdm import tqdm

import fovea.torch
from fovea.torch import nn as patterns

#: Attention by name: modules for `width` columns, `heads` heads and sequences of `context` tokens.
PATTERNS = {
    "dense": lambda width, heads, context: patterns.Attention(width, heads, batch_first=True),
    "window": lambda width, heads, context: patterns.Attention(width, heads, batch_first=True, window=128),
    "multipole": lambda width, heads, context: patterns.FastMultipoleAttention(
        width, heads, batch_first=True, group=32, rank=4, max_length=context
    ),
    "quantized": lambda width, heads, context: patterns.VQAttention(width, heads, batch_first=True, num_codes=128, block=64),
    "conv": lambda width, heads, context: patterns.ConvBasisAttention(width, heads, batch_first=True, num_basis=16, window=8),
}


#: What options are at least.
LEAST = dict.fromkeys(("batch", "context", "steps", "bytes", "group", "rank"), 1) | {"tuning": 3}


def parse(parser, parts=1):
    """The options of a program, and the bytes of its text, of which each of `parts` is longer than the context."""
    options = parser.parse_args()
    for name, least in LEAST.items():
        if (found := getattr(options, name, least)) < least:
            parser.error(f"--{name}: found {found}, needed at least {least}")
    if "rank" in options and options.group % options.rank:
        parser.error(f"--rank: found {options.rank}, needed a divisor of the group of {options.group}")
    try:
        text = load_text(options.text)
    except OSError as failure:
        parser.error(f"--text: cannot read {options.text}: {failure.strerror}")
    if len(text) < (needed := parts * (options.context + 1)):
        parser.error(f"--text: found {len(text)} bytes, needed at least {needed} for a context of {options.context}")
    # Who reads the output may close it.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    return options, text


def load_text(path=None):
    """Bytes of a file or, by default, of the help texts that come with Python, 0.7 MB of English."""
    if path is None:
        from pydoc_data.topics import topics

        data = "\n".join(topics[name] for name in sorted(topics)).encode()
    else:
        data = pathlib.Path(path).read_bytes()
    return torch.tensor(bytearray(data), dtype=torch.uint8)


class Block(nn.Module):
    def __init__(self, attention, width):
        super().__init__()
        self.norm1, self.norm2, self.attention = nn.LayerNorm(width), nn.LayerNorm(width), attention
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attention(self.norm1(x), is_causal=True)[0]
        return x + self.mlp(self.norm2(x))


class ByteModel(nn.Module):
    """Logits [B,N,256] of the next byte, for bytes [B,N] with N up to `context`."""

    def __init__(self, pattern, context, width=128, heads=4, layers=2):
        super().__init__()
        self.context = context
        self.bytes, self.places = nn.Embedding(256, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(PATTERNS[pattern](width, heads, context), width) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 256)

    def forward(self, text):
        x = self.bytes(text) + self.places.weight[: text.shape[1]]
        return self.head(self.norm(self.blocks(x)))


def loss_of(model, rows):
    """The cross entropy of the bytes of rows [B,N+1], in nats, and what quantized attention adds."""
    rows = rows.long()
    loss = F.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
    is_quantized = any(isinstance(module, patterns.VQAttention) for module in model.modules())
    return loss, 1e-4 * fovea.torch.nn.commitment_loss(model) if is_quantized and model.training else 0.0


def sample(text, batch, context, generator):
    starts = torch.randint(len(text) - context, (batch,), generator=generator)
    return torch.stack([text[start : start + context + 1] for start in starts])


def train(model, text, steps, batch, label, context=None, rate=1e-3):
    """Losses of all steps, and tokens a second; a bar shows the time left."""
    context = model.context if context is None else context
    generator, losses = torch.Generator().manual_seed(0), []
    optimizer = torch.optim.AdamW(model.train().parameters(), rate)
    start = time.perf_counter()
    bar = tqdm(range(steps), label)
    for _ in bar:
        loss, extra = loss_of(model, sample(text, batch, context, generator))
        optimizer.zero_grad()
        (loss + extra).backward()
        optimizer.step()
        losses.append(loss.item())
        bar.set_postfix(loss=f"{loss.item():.3f}")
    return losses, steps * batch * context / (time.perf_counter() - start)


@torch.no_grad()
def evaluate(model, text, batch=8):
    """The loss of text that no step saw: its last tenth."""
    rows = sample(text, batch, model.context, torch.Generator().manual_seed(1))
    return loss_of(model.eval(), rows)[0].item()


#: Of a text, one of which is to evaluate.
PARTS = 10


def split(text):
    """To train with, and to evaluate."""
    return text[: len(text) * (PARTS - 1) // PARTS], text[len(text) * (PARTS - 1) // PARTS :]
