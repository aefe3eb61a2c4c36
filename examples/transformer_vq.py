# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A byte-level Transformer-VQ block over a text: whole, in windows, and byte by byte.

    PYTHONPATH=build/python python examples/transformer_vq.py [--text FILE]

One gated attention unit (arXiv:2309.16354, section 3): RMS norm, queries and keys
normalised to unit root mean square and scaled by a temperature, keys replaced by
their nearest codewords, values and gates with SiLU, one wide head, a bias for the
distance within two blocks. Weights are random but fixed, so the numbers mean
nothing; that the three ways give the same ones, and what each costs, does.
"""

import argparse
import pathlib
import signal
import time

import numpy as np

import fovea

WIDTH, HEAD, VALUES, CODES, BLOCK = 256, 64, 512, 256, 128
TEXT = pathlib.Path(__file__).resolve().parent.parent / "docs" / "Patterns.md"


def rms_norm(x):
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + np.float32(1e-6))


def silu(x):
    return x / (1 + np.exp(-x))


class GatedAttentionUnit:
    """y = x + (attention(q, k, v) * gate) W_o, everything but the attention row by row."""

    def __init__(self, seed=0):
        rng = np.random.default_rng(seed)

        def normal(*shape, scale):
            return (rng.standard_normal(shape) * scale).astype(np.float32)

        self.embedding = normal(256, WIDTH, scale=1.0)
        self.query = normal(WIDTH, HEAD, scale=WIDTH**-0.5)
        self.key = normal(WIDTH, HEAD, scale=WIDTH**-0.5)
        self.value = normal(WIDTH, VALUES, scale=WIDTH**-0.5)
        self.gate = normal(WIDTH, VALUES, scale=WIDTH**-0.5)
        self.out = normal(VALUES, WIDTH, scale=VALUES**-0.5)
        # Codewords as long as the keys: sqrt(D) times the temperature.
        self.codebook = rms_norm(normal(1, CODES, HEAD, scale=1.0)) * np.float32(HEAD**-0.25)
        self.distance_bias = normal(2 * BLOCK, scale=0.1)

    def project(self, text):
        """Residual, gate, and the attention's q, k, v [1,1,N,.]."""
        x = self.embedding[np.frombuffer(text, np.uint8)]
        h = rms_norm(x)
        temperature = np.float32(HEAD**-0.25)
        q = rms_norm(h @ self.query) * temperature
        k = rms_norm(h @ self.key) * temperature
        v, gate = silu(h @ self.value), silu(h @ self.gate)
        return x, gate, [np.ascontiguousarray(a[None, None]) for a in (q, k, v)]

    def bias(self, position, count):
        """[1,1,N,2 L]: by the distance of two tokens. Column c of a query in row r of
        its block is L + r - c tokens back."""
        rows = (position + np.arange(count)) % BLOCK
        back = BLOCK + rows[:, None] - np.arange(2 * BLOCK)
        return self.distance_bias[np.clip(back, 0, 2 * BLOCK - 1)][None, None]

    def finish(self, x, gate, attended):
        return x + (attended[0, 0] * gate) @ self.out

    def whole(self, text):
        x, gate, qkv = self.project(text)
        out = fovea.vq(*qkv, self.codebook, block=BLOCK, bias=self.bias(0, len(text)))
        return self.finish(x, gate, out)

    def windows(self, text, size):
        state, parts = None, []
        for low in range(0, len(text), size):
            x, gate, qkv = self.project(text[low : low + size])
            out, state = fovea.vq(*qkv, self.codebook, block=BLOCK, bias=self.bias(low, len(x)),
                                  state=state, return_state=True)  # fmt: skip
            parts.append(self.finish(x, gate, out))
        return np.concatenate(parts)

    def decode(self, text):
        state, parts = None, []
        for position in range(len(text)):
            x, gate, qkv = self.project(text[position : position + 1])
            out, state = fovea.vq_decode(*qkv, self.codebook, state, block=BLOCK, bias=self.bias(position, 1))
            parts.append(self.finish(x, gate, out))
        return np.concatenate(parts)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--text", type=pathlib.Path, default=TEXT)
    parser.add_argument("--limit", type=int, default=8192, help="the most bytes of it")
    arguments = parser.parse_args()
    text = arguments.text.read_bytes()[: arguments.limit]
    unit = GatedAttentionUnit()
    ways = {
        "whole": lambda: unit.whole(text),
        "windows of 1000": lambda: unit.windows(text, 1000),
        "byte by byte": lambda: unit.decode(text),
    }
    print(f"{arguments.text.name}: {len(text)} bytes, {CODES} codewords, blocks of {BLOCK}")
    results = {}
    for name, way in ways.items():
        way()  # compiles
        start = time.perf_counter()
        results[name] = way()
        seconds = time.perf_counter() - start
        error = np.abs(results[name] - results["whole"]).max() / np.abs(results["whole"]).max()
        print(f"  {name:16}: {1e3 * seconds:8.1f} ms, {1e6 * seconds / len(text):6.1f} us a byte, "
              f"largest difference {error:.1e}")  # fmt: skip
        if error > 1e-5:
            raise SystemExit(f"{name} differs from the whole by {error:.3g}, needed at most 1e-5")


if __name__ == "__main__":
    # Who reads the output may close it.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    main()
