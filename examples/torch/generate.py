# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes text with a model of transformers whose attention is Fovea's.

    PYTHONPATH=build/python python examples/torch/generate.py [--text FILE] [--prompt "The "]

Trains a small Llama of bytes, windows and grouped queries included, and continues the prompt
token by token from its cache: with Fovea, and with eager attention, which writes the same.
"""

import argparse

import torch
import transformers
from byte_model import parse, sample
from tqdm import tqdm

import fovea.torch


def make_model(context):
    configuration = transformers.MistralConfig(
        vocab_size=256, hidden_size=128, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=384, sliding_window=128, max_position_embeddings=context, pad_token_id=0, bos_token_id=None,
        eos_token_id=None,
    )  # fmt: skip
    return transformers.MistralForCausalLM._from_config(configuration, attn_implementation="fovea")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--text", help="a file; by default the help texts of Python")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--prompt", default="The ")
    parser.add_argument("--bytes", type=int, default=300, help="to write")
    options, text = parse(parser)
    if not options.prompt:
        parser.error("--prompt: found none, needed a byte or more")
    fovea.torch.register_transformers()
    torch.manual_seed(0)
    model = make_model(options.context)
    optimizer, generator = torch.optim.AdamW(model.parameters(), 1e-3), torch.Generator().manual_seed(0)
    bar = tqdm(range(options.steps), "training")
    for _ in bar:
        rows = sample(text, options.batch, options.context, generator).long()
        loss = model(rows, labels=rows).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        bar.set_postfix(loss=f"{loss.item():.3f}")

    prompt = torch.tensor([list(options.prompt.encode())])
    written = {}
    for name in ("fovea", "eager"):
        model.eval().set_attn_implementation(name)
        written[name] = model.generate(prompt, max_new_tokens=options.bytes, do_sample=False, repetition_penalty=1.2)[0]
    print(bytes(written["fovea"].tolist()).decode(errors="replace"))
    same = torch.equal(written["fovea"], written["eager"])
    print(f"eager attention writes {'the same' if same else 'something else'}")
    if fallbacks := fovea.torch.explain_fallbacks():
        print(fallbacks)


if __name__ == "__main__":
    main()
