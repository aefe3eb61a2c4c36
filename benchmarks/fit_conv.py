#!/usr/bin/env python3
# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fits the model by which the compiler chooses blocks of convolutions (ConvPlan.cpp) to
the results of the suite conv-blocks, by least squares.

    benchmarks/run.py --suite conv-blocks --out blocks
    benchmarks/fit_conv.py blocks/results.json
"""

import argparse
import json
import math

import numpy as np


def terms(fields):
    """What the model multiplies with the time of a transform and of a product, for each
    number of the output."""
    tokens, bases, block = fields["n"], fields["bases"], fields["block"]
    width = fields.get("width", 64)
    count = -(-tokens // block)
    pieces = bases * -(-tokens // (bases * block))
    transforms = 10 * math.log2(2 * block) * (0.5 + pieces / count / 2 + bases / width * (0.5 + 1 / count))
    return transforms, 4 * pieces, tokens * width


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=argparse.FileType(), help="results.json of the suite conv-blocks")
    with parser.parse_args().results as file:
        rows = [row for row in json.load(file)["rows"] if row["passed"] and "block" in row["workload"]]
    blocks = sorted({row["workload"]["block"] for row in rows})
    left = []
    for row in rows:
        transforms, products, size = terms(row["workload"])
        time = row["seconds"]["median"] * 1e9 / size
        columns = [transforms * (row["workload"]["block"] == block) for block in blocks] + [products]
        # All times are equally far off.
        left.append([column / time for column in columns])
    found, *_ = np.linalg.lstsq(np.array(left), np.ones(len(left)), rcond=None)
    error = np.abs(np.array(left) @ found - 1)
    for block, ns in zip(blocks, found):
        print(f"block {block}: {1 / ns:.0f} GFLOP/s")
    print(f"products: {1 / found[-1]:.0f} GFLOP/s")
    print(f"off by {error.mean():.0%} on average, {error.max():.0%} at most")


if __name__ == "__main__":
    main()
