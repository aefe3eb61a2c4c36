#!/usr/bin/env python3
# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The time of functions of scores beside that of PyTorch.

    PYTHONPATH=build/python .venv-frameworks/bin/python benchmarks/scores_torch.py

On one thread, in turns: `fovea.torch.dense`; `fovea.torch.flex_attention`; `flex_attention`, compiled, which has no gradient on CPUs;
`scaled_dot_product_attention` with the function's terms in a tensor of all entries, which soft-caps cannot be; and
the formula with tensors of all scores. Prints medians, and the largest difference from Fovea. What fails says so.
"""

import argparse
import statistics
import sys
import time

from fovea_bench.packages import needed

with needed("torch"):
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import fovea
import fovea.torch
from fovea.math import tanh


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--calls", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=4096, metavar="N")
    parser.add_argument("--heads", type=int, default=2)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--rows", nargs="*", help="those of these names alone")
    return parser.parse_args()


class Row:
    """One function: for Fovea, for flex_attention, and as a tensor or a change of scores."""

    def __init__(self, options, flex=None, block_mask=None, bias=None, change=None):
        self.options, self.flex, self.block_mask, self.bias = options, flex, block_mask, bias
        self.change = change or (lambda scores: scores if bias is None else scores + bias)


def make_rows(heads, tokens):
    i, j = torch.arange(tokens)[:, None], torch.arange(tokens)
    slopes = 2.0 ** -torch.arange(1, heads + 1)
    table = torch.randn(heads, 2 * tokens - 1)
    own_slopes, own_table = fovea.capture(slopes.numpy()), fovea.capture(table.numpy())
    ids = (torch.arange(tokens) * 8 // tokens)[None]

    def masked(entries):
        return torch.where(entries, 0.0, -torch.inf)[None, None]

    def blocks(mask):
        return lambda: create_block_mask(mask, None, None, tokens, tokens, device="cpu")

    return {
        "none": Row({}),
        "soft-cap": Row({"score": lambda s, b, h, i, j: 50 * tanh(s / 50)},
                        flex=lambda s, b, h, i, j: 50 * torch.tanh(s / 50),
                        change=lambda scores: 50 * torch.tanh(scores / 50)),
        "ALiBi": Row({"score": lambda s, b, h, i, j: s + own_slopes[h] * (j - i)},
                     flex=lambda s, b, h, i, j: s + slopes[h] * (j - i),
                     bias=(slopes[:, None, None] * (j - i))[None]),
        "relative table": Row({"score": lambda s, b, h, i, j: s + own_table[h, j - i + tokens - 1]},
                              flex=lambda s, b, h, i, j: s + table[h, j - i + tokens - 1],
                              bias=table[:, j - i + tokens - 1][None]),
        "causal": Row({"admit": lambda b, h, i, j: i >= j}, block_mask=blocks(lambda b, h, i, j: i >= j),
                      bias=masked(i >= j)),
        "documents": Row({"segments": (ids.numpy(), ids.numpy()), "causal": True},
                         block_mask=blocks(lambda b, h, i, j: (i >= j) & (ids[0, i] == ids[0, j])),
                         bias=masked((i >= j) & (ids[0, :, None] == ids[0]))),
    }  # fmt: skip


def formula(q, k, v, row):
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    return torch.softmax(row.change(scores), dim=-1) @ v


def make_calls(row, q, k, v):
    compiled = torch.compile(flex_attention)
    mask = row.block_mask and row.block_mask()
    calls = {
        "fovea": lambda: fovea.torch.dense(q, k, v, **row.options),
        "fovea flex": lambda: fovea.torch.flex_attention(q, k, v, row.flex, mask),
        "flex": lambda: compiled(q, k, v, score_mod=row.flex, block_mask=mask),
        "sdpa": lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=row.bias),
        "formula": lambda: formula(q, k, v, row),
    }
    if row.flex and row.bias is None:
        del calls["sdpa"]
    return calls


def measure(calls, functions):
    times = {name: [] for name in functions}
    for number in range(calls + 1):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            if number:
                times[name].append(time.perf_counter() - start)
    return {name: f"{statistics.median(each) * 1e3:.1f}" for name, each in times.items()}


def keep_what_runs(functions):
    """The functions that return, and why the others do not."""
    results, failures = {}, {}
    for name, function in functions.items():
        try:
            results[name] = function()
        except Exception as error:
            failures[name] = f"fails: {str(error).strip().splitlines()[0][:60]}"
    return results, failures


def main():
    arguments = parse_arguments()
    torch.set_num_threads(1)
    fovea.set_num_threads(1)
    torch.manual_seed(0)
    q, k, v, d_out = (torch.randn(1, arguments.heads, arguments.tokens, arguments.width) for _ in range(4))
    columns = ["fovea", "fovea flex", "flex", "sdpa", "formula"]
    rows = make_rows(arguments.heads, arguments.tokens)
    if unknown := [name for name in arguments.rows or () if name not in rows]:
        sys.exit(f"--rows: found {', '.join(unknown)}, needed some of {', '.join(rows)}")
    print("| pass | function |", " | ".join(f"{name}, ms" for name in columns), "| largest difference |")
    print("|---" * (len(columns) + 3) + "|")
    for name, row in rows.items():
        if arguments.rows and name not in arguments.rows:
            continue
        for what in ("forward", "forward and backward"):
            inputs = [x.clone().requires_grad_(what != "forward") for x in (q, k, v)]
            calls = make_calls(row, *inputs)
            if what != "forward":
                calls = {
                    each: lambda call=call, inputs=inputs: torch.autograd.grad(call(), inputs, d_out)[0]
                    for each, call in calls.items()
                }
            results, failures = keep_what_runs(calls)
            times = measure(arguments.calls, {each: calls[each] for each in results}) | failures
            difference = max(float((result - results["fovea"]).abs().max()) for result in results.values())
            print("|", what, "|", name, "|", " | ".join(times.get(each, "") for each in columns),
                  f"| {difference:.1e} |", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
