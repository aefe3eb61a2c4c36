# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gives MiniLM, a real model of sentences, another attention, and shows what changes.

    PYTHONPATH=build/python python examples/torch/swap_attention.py [--group 16] [--rank 8]

First the same attention on other kernels, which changes nothing; then fast multipole attention
with means for summaries, which nobody trained: sentences stay about where they were.
"""

import argparse
import copy
import pathlib
import signal

import real_models
import torch
from tqdm import tqdm

import fovea.torch

TEXT = pathlib.Path(__file__).resolve().parents[1] / "data" / "text.txt"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--text", type=pathlib.Path, default=TEXT, help="a text; paragraphs are compared")
    parser.add_argument("--group", type=int, default=16, help="tokens that are read one by one")
    parser.add_argument("--rank", type=int, default=8, help="summaries of an interval")
    options = parser.parse_args()
    if options.rank < 1 or options.group < 1 or options.group % options.rank:
        parser.error(f"--rank: found {options.rank}, needed a divisor of the group of {options.group}")
    try:
        text = options.text.read_text()
    except (OSError, UnicodeError) as failure:
        parser.error(f"--text: cannot read {options.text}: {failure}")
    model, tokenizer = real_models.load_minilm()
    # Inputs of growing length: far tokens matter only where there are some.
    pieces = [text[:length] for length in (200, 500, 1000, len(text))]
    inputs = [tokenizer(piece, truncation=True, max_length=512, return_tensors="pt") for piece in pieces]

    @torch.no_grad()
    def embed(model, label):
        return [
            torch.nn.functional.normalize(model(**each).last_hidden_state[0].mean(0), dim=0) for each in tqdm(inputs, label)
        ]

    expected = embed(model, "eager")
    fovea.torch.register_transformers()
    model.set_attn_implementation("fovea")
    same = embed(model, "fovea")
    multipole = copy.deepcopy(model)
    names = fovea.torch.swap(
        multipole, fovea.torch.nn.FastMultipoleAttention, group=options.group, rank=options.rank, max_length=512
    )
    other = embed(multipole, "multipole")
    print(f"{len(names)} layers; cosines of embeddings with those of eager attention")
    print("| tokens | fovea | multipole, untrained |")
    print("|---|---|---|")
    for each, one, two, three in zip(inputs, expected, same, other):
        print(f"| {each['input_ids'].shape[1]} | {one @ two:.6f} | {one @ three:.4f} |")


if __name__ == "__main__":
    # Who reads the output may close it.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    main()
