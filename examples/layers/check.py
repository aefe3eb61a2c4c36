# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs the layers of this folder, and compares results and gradients with NumPy.

    PYTHONPATH=build/python python examples/layers/check.py
    PYTHONPATH=build/python python examples/layers/check.py transformer_vq --target gpu-sim

Results are those of in_numpy.py. Gradients are --attn-differentiate's: of the layer in
f64, along a random direction for each argument, against central differences of NumPy;
and of the target in f32 against these.
"""

import argparse
import pathlib
import re
import signal
import sys

import numpy as np
from in_numpy import TransformerVQ, conv_basis, fast_multipole, vcc

import fovea

HERE = pathlib.Path(__file__).resolve().parent
LAYERS = {
    "fast_multipole": lambda: fast_multipole,
    "transformer_vq": TransformerVQ,
    "conv_basis": lambda: conv_basis,
    "vcc": lambda: vcc,
}
# Of results and gradients in f32, and of derivatives in f64.
SINGLE, DOUBLE = 1e-5, 1e-6


def make_arguments(kernel, rng):
    """Arrays by name: positions, gains near 1, and normal numbers, of weights as large as
    keeps the size of what they multiply."""
    arguments = {}
    for name, extents, element in re.findall(r"%(\w+): tensor<([\dx]*?)x?([fi]\d+)>", kernel.signature):
        shape = [int(n) for n in extents.split("x")]
        if element == "i32":
            arguments[name] = np.broadcast_to(np.arange(shape[-1], dtype=np.int32), shape).copy()
            continue
        values = rng.standard_normal(shape)
        if len(shape) == 1:
            values = 1 + 0.1 * values
        elif name not in ("x", "vip", "tokens", "codebook", "bias"):
            values *= (shape[2] if name[1:2] == "s" else shape[0]) ** -0.5
        arguments[name] = values
    return arguments


def single(arrays):
    return [a.astype(np.float32) if a.dtype == np.float64 else a for a in arrays]


def largest_error(found, expected):
    found = found if isinstance(found, tuple) else (found,)
    return max(np.abs(one - other).max() / np.abs(other).max() for one, other in zip(found, expected, strict=True))


def check(name, target, seed):
    text = (HERE / f"{name}.mlir").read_text()
    kernel = fovea.compile(text, target=target)
    rng = np.random.default_rng(seed)
    named = make_arguments(kernel, rng)
    arguments = list(named.values())
    function = LAYERS[name]()
    expected = function(*arguments)
    error = largest_error(kernel(*single(arguments)), expected)

    wanted = [i for i, (key, a) in enumerate(named.items()) if a.dtype == np.float64 and key != "codebook"]
    exact = fovea.compile(text.replace("f32", "f64"), target="reference").vjp(arguments=wanted)
    cotangents = [rng.standard_normal(result.shape) for result in expected]
    gradients = exact(*arguments, *cotangents)
    found = kernel.vjp(arguments=wanted)(*single(arguments), *single(cotangents))
    single_error, worst = largest_error(found, gradients), 0.0
    for i, gradient in zip(wanted, gradients, strict=True):
        direction = rng.standard_normal(arguments[i].shape)
        direction /= np.linalg.norm(direction)
        ends = []
        for step in (1e-5, -1e-5):
            moved = [a + step * direction if n == i else a for n, a in enumerate(arguments)]
            ends.append(sum((c * r).sum() for c, r in zip(cotangents, function(*moved), strict=True)))
        slope = (ends[0] - ends[1]) / 2e-5
        worst = max(worst, abs(slope - (gradient * direction).sum()) / max(np.linalg.norm(gradient), 1e-9))
    print(f"{name}: {len(text.splitlines())} lines, results {error:.1e}, "
          f"{len(wanted)} gradients {worst:.1e} in f64, {single_error:.1e} in f32")  # fmt: skip
    return max(error, single_error) <= SINGLE and worst <= DOUBLE


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("layers", nargs="*", choices=[[], *LAYERS], help="all of them by default")
    parser.add_argument("--target", choices=("cpu", "reference", "gpu", "gpu-sim"), default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    good = [check(name, arguments.target, arguments.seed) for name in arguments.layers or LAYERS]
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    # Who reads the output may close it.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    main()
