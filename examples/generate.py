# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes text with the language model of train_language_model.py, byte by byte from a cache.

    PYTHONPATH=build/python python examples/train_language_model.py --attention multipole --context 512
    PYTHONPATH=build/python python examples/generate.py language_model_multipole.npz

Every line ends with the bytes per second so far. Dense attention reads a KVCache, fast
multipole attention a MultipoleCache, attention over quantized keys a VQState. Then the
whole model computes the same text, for what it expects and how long it takes for every
byte. Attention by convolutions and over compressed windows have no cache: there the
whole model writes.
"""

import argparse
import json
import math
import pathlib
import signal
import sys
import time
from dataclasses import replace

import numpy as np
from language_model_builder import BYTES, Model, logits_function, read_checkpoint

import fovea

LINE = 64


def load(path):
    """The model of a checkpoint, its parameters by name, and its codebooks."""
    stored = read_checkpoint(path)
    model = replace(Model(**json.loads(str(stored["model"]))), batch=1)
    shapes = model.parameters()
    ends = np.cumsum([math.prod(shape) for shape in shapes.values()])
    parts = np.split(stored["flat"], ends[:-1])
    parameters = {name: part.reshape(shape) for (name, shape), part in zip(shapes.items(), parts)}
    books = [s / np.maximum(c, 1e-6)[..., None] for s, c in zip(stored["sums"], stored["counts"])]
    return model, parameters, books


# ---- Attention of one token -----------------------------------------------------


class Dense:
    def __init__(self, model):
        self.cache = fovea.KVCache(1, model.heads, model.head_width, capacity=model.context)

    def __call__(self, q, k, v):
        self.cache.append(k, v)
        return self.cache.attend(q)


class Multipole:
    def __init__(self, model, parameters, layer):
        weights = [[parameters[f"{side}{level}_{layer}"] for level in range(len(model.intervals))] for side in ("ks", "vs")]
        self.cache = fovea.MultipoleCache(*weights, group=model.group, heads=model.heads)

    def __call__(self, q, k, v):
        return fovea.fast_multipole_decode(q, k, v, self.cache)


class Quantized:
    def __init__(self, model, parameters, layer, book):
        self.model, self.book, self.bias = model, book, parameters[f"bias_{layer}"]
        self.state, self.position = None, 0

    def __call__(self, q, k, v):
        block = self.model.group
        bias = self.bias[None, :, [self.position % block]]
        q, k = (x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) for x in (q, k))
        out, self.state = fovea.vq_decode(
            q, k, v, self.book, self.state, block=block, bias=bias, scale=self.model.head_width**-0.5
        )
        self.position += 1
        return out


def make_attention(model, parameters, books, layer):
    if model.attention == "vq":
        return Quantized(model, parameters, layer, books[layer])
    # Without levels, all tokens are near.
    if model.attention == "multipole" and model.intervals:
        return Multipole(model, parameters, layer)
    return Dense(model)


# ---- The model of one token -----------------------------------------------------


def rms_norm(x, gain):
    return x / np.sqrt((x * x).mean() + 1e-6) * gain


class Decoder:
    """The scores of the next byte, of one byte after the other."""

    def __init__(self, model, parameters, books):
        self.model, self.parameters, self.books = model, parameters, books
        self.start()

    def start(self):
        self.position = 0
        self.attention = [
            make_attention(self.model, self.parameters, self.books, layer) for layer in range(self.model.layers)
        ]

    def step(self, byte):
        p, m = self.parameters, self.model
        x = p["embedding"][byte] + p["position"][self.position]
        for layer, attend in enumerate(self.attention):
            h = rms_norm(x, p[f"g1_{layer}"])
            q, k, v = ((h @ p[f"w{name}_{layer}"]).reshape(1, m.heads, 1, m.head_width) for name in "qkv")
            x = x + attend(q, k, v).reshape(-1) @ p[f"wo_{layer}"]
            h = rms_norm(x, p[f"g2_{layer}"])
            gate = h @ p[f"gate_{layer}"]
            x = x + (gate / (1 + np.exp(-gate)) * (h @ p[f"up_{layer}"])) @ p[f"down_{layer}"]
        self.position += 1
        return rms_norm(x, p["gain"]) @ p["unembedding"]


class Whole:
    """The same by the whole model, which runs for every byte. Bytes that are not known
    yet are zeros: behind those that are, or, of compressed windows, before them."""

    position = 0

    def __init__(self, model, parameters, books, target):
        self.model, self.numbers = model, [*parameters.values(), *books]
        self.kernel = fovea.compile(logits_function(model), target=target)
        self.text = []

    def compute(self, text):
        """Scores behind each byte of a text, or of compressed windows behind the last."""
        m, text = self.model, text[-self.model.context :]
        tokens = np.zeros((1, m.context), np.int32)
        first = m.context - len(text) if m.predicted < m.context else 0
        tokens[0, first : first + len(text)] = text
        return self.kernel(tokens, *self.numbers)[0, : min(first + len(text), m.predicted)]

    def step(self, byte):
        self.text.append(byte)
        return self.compute(self.text)[-1]


def choose(scores, temperature, rng):
    scores = scores.astype(np.float64) / temperature
    chances = np.exp(scores - scores.max())
    return int(rng.choice(BYTES, p=chances / chances.sum()))


def show(text):
    shown = bytes(text).decode("utf-8", errors="replace")
    return "".join(c if c.isprintable() else " " for c in shown)


def generate(decoder, prompt, count, temperature, seed):
    """Continues the prompt. Returns the text since the context began last, the scores
    behind each byte of it, and bytes per second."""
    rng, text, scores, line = np.random.default_rng(seed), list(prompt), [], list(prompt)
    for byte in prompt:
        scores.append(decoder.step(byte))
    begin = time.perf_counter()
    for number in range(1, count + 1):
        if decoder.position == decoder.model.context:
            # It has no more positions: goes on from its last half.
            text, scores = text[-(decoder.model.context // 2) :], []
            decoder.start()
            for byte in text:
                scores.append(decoder.step(byte))
        text.append(choose(scores[-1], temperature, rng))
        scores.append(decoder.step(text[-1]))
        line.append(text[-1])
        speed = number / (time.perf_counter() - begin)
        if len(line) >= LINE or number == count:
            print(f"{show(line):{LINE}} | {speed:.0f} bytes/s", flush=True)
            line = []
    return text, np.array(scores), speed


def time_steps(whole, text):
    """Bytes per second of the whole model on the first of a text."""
    begin, count = time.perf_counter(), 0
    for byte in text:
        whole.step(byte)
        count += 1
        if count >= 5 and time.perf_counter() - begin > 0.3:
            break
    return count / (time.perf_counter() - begin)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("checkpoint", type=pathlib.Path, nargs="+")
    parser.add_argument("--prompt", default="The ")
    parser.add_argument("--bytes", type=int, default=400, help="how many to write")
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", choices=("cpu", "reference"), default="cpu", help="of the whole")
    arguments = parser.parse_args()
    if not arguments.prompt:
        parser.error("--prompt: found none, needed a byte or more")
    if arguments.bytes < 1:
        parser.error(f"--bytes: found {arguments.bytes}, needed at least 1")
    if not arguments.temperature > 0:
        parser.error(f"--temperature: found {arguments.temperature}, needed more than 0")
    for path in arguments.checkpoint:
        if not path.is_file():
            parser.error(f"checkpoint: found no file {path}: train_language_model.py writes it")
    return arguments


def main():
    arguments = parse_arguments()
    rows, is_right = [], True
    for path in arguments.checkpoint:
        model, parameters, books = load(path)
        prompt = arguments.prompt.encode()
        if len(prompt) >= model.context:
            raise SystemExit(f"--prompt: found {len(prompt)} bytes, needed fewer than the context of {model.context}")
        print(f"{path}: {model.attention} attention, a context of {model.context} bytes")
        whole = Whole(model, parameters, books, arguments.target)
        whole.compute(list(prompt))
        has_cache = model.attention in ("dense", "multipole", "vq")
        decoder = Decoder(model, parameters, books) if has_cache else whole
        text, scores, speed = generate(decoder, prompt, arguments.bytes, arguments.temperature, arguments.seed)
        if not has_cache:
            rows.append(f"| {model.attention} | | {speed:.0f} | | |")
            continue
        expected, other = whole.compute(text), time_steps(whole, text)
        error = np.abs(scores - expected).max() / np.abs(expected).max()
        is_right &= bool(error <= 1e-4)
        rows.append(f"| {model.attention} | {speed:.0f} | {other:.0f} | {speed / other:.1f}x | {error:.0e} |")
    print("\n| attention | bytes/s from a cache | recomputing the whole | | largest difference |\n|---|---|---|---|---|")
    print("\n".join(rows))
    sys.exit(0 if is_right else 1)


if __name__ == "__main__":
    # Who reads the output may close it.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    main()
