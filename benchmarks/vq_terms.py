#!/usr/bin/env python3
# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The time of quantized attention with a bias and with terms by distance, over that without.

    PYTHONPATH=build/python .venv/bin/python benchmarks/vq_terms.py

Calls `fovea.vq` and `fovea.vq_backward` on one thread, without a term and with each, in turns, and prints the medians
of the thread's own time and of the ratios of neighbouring calls.
"""

import argparse

import numpy as np
from scores import measure, print_rows

import fovea


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--calls", type=int, default=15, help="of each, for a row")
    parser.add_argument("--tokens", type=int, default=32768, metavar="N")
    parser.add_argument("--heads", type=int, default=2)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--block", type=int, default=512, help="and as many codewords")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    fovea.set_num_threads(1)
    numbers = np.random.default_rng(0)
    block, heads, width = arguments.block, arguments.heads, arguments.width

    def normal(*shape):
        return numbers.standard_normal(shape, np.float32)

    q, k, v, d_out = (normal(1, heads, arguments.tokens, width) for _ in range(4))
    codebook = normal(heads, block, width)
    arrays = q, fovea.quantize(k, codebook)[1], v, codebook
    # A bias has the blocks read one by one that terms by distance are for.
    terms = {
        "none": {},
        "bias": {"bias": normal(1, heads, 1, 2 * block)},
        "distance_bias": {"distance_bias": normal(heads, 2 * block)},
        "relative": {"relative": (normal(heads, 2 * block, width), normal(heads, width))},
    }
    options = {name: {"block": block, "scale": width**-0.5, **mine} for name, mine in terms.items()}
    results = {name: fovea.vq(*arrays, return_lse=True, **mine) for name, mine in options.items()}
    print("| pass | term | ms | over none |\n|---|---|---|---|")
    print_rows("forward", measure(arguments.calls, {
        name: lambda mine=mine: fovea.vq(*arrays, **mine) for name, mine in options.items()
    }))  # fmt: skip
    print_rows("backward", measure(arguments.calls, {
        name: lambda name=name, mine=mine: fovea.vq_backward(d_out, *arrays, *results[name], **mine)
        for name, mine in options.items()
    }))  # fmt: skip


if __name__ == "__main__":
    main()
