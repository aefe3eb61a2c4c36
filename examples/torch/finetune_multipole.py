# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fast multipole attention in a model that was trained with dense attention.

    PYTHONPATH=build/python python examples/torch/finetune_multipole.py [--text FILE]

Trains dense, swaps the attention with its weights kept, and trains on until the loss of unseen
text is that of before. The same steps of dense training are the comparison. Groups are small, so
that the swap takes something away: keys beyond the neighbouring groups are known by their summaries.
"""

import argparse
import copy

import torch
from byte_model import PARTS, ByteModel, evaluate, parse, split, train
from torch import nn

import fovea.torch
from fovea.torch import nn as patterns


def with_torch_attention(model):
    """The model with torch.nn.MultiheadAttention, as that of others has it."""
    for block in model.blocks:
        module = block.attention
        block.attention = nn.MultiheadAttention(module.embed_dim, module.num_heads, batch_first=True)
        block.attention.load_state_dict(module.state_dict())
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--text", help="a file; by default the help texts of Python")
    parser.add_argument("--steps", type=int, default=2000, help="of dense training")
    parser.add_argument("--tuning", type=int, default=300, help="steps after the swap")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--group", type=int, default=1, help="tokens that are known one by one with those of the next groups")
    parser.add_argument("--rank", type=int, default=1, help="summaries of an interval")
    options, text = parse(parser, PARTS)
    seen, unseen = split(text)
    torch.manual_seed(0)
    dense = ByteModel("dense", options.context)
    train(dense, seen, options.steps, options.batch, "dense")
    before = evaluate(dense, unseen, batch=64)
    model = with_torch_attention(copy.deepcopy(dense))
    names = fovea.torch.swap(
        model, patterns.FastMultipoleAttention, group=options.group, rank=options.rank, max_length=options.context
    )
    print(f"{len(names)} layers swapped")
    print("| steps after the swap | dense, trained on | multipole |")
    print("|---|---|---|")
    parts, recovered = 3, None
    for part in range(parts + 1):
        steps = options.tuning // parts if part else 0
        train(dense, seen, steps, options.batch, "dense", rate=3e-4)
        train(model, seen, steps, options.batch, "multipole", rate=3e-4)
        loss = evaluate(model, unseen, batch=64)
        if recovered is None and loss <= before:
            recovered = part * steps
        print(f"| {part * steps} | {evaluate(dense, unseen, batch=64):.4f} | {loss:.4f} |", flush=True)
    print("not recovered" if recovered is None else f"recovered after {recovered} steps")


if __name__ == "__main__":
    main()
