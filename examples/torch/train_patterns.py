# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trains a model of bytes with each pattern of attention, and compares them.

    PYTHONPATH=build/python python examples/torch/train_patterns.py [--text FILE] [--steps 300]

Writes the losses as a picture, and a table: the loss of unseen text after training, and for
longer contexts how many tokens a second a step of training takes and its memory, against dense.
"""

import argparse
import resource
import subprocess
import sys

import torch
from byte_model import PARTS, PATTERNS, ByteModel, evaluate, load_text, parse, split, train


def measure(pattern, context):
    """Tokens a second, and megabytes beyond those of the model, of a step: in a process of its own."""
    command = [sys.executable, __file__, "--measure", pattern, "--contexts", str(context)]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return float(found[-2]), float(found[-1])


def measure_here(pattern, context):
    model, text = ByteModel(pattern, context), load_text()
    train(model, text, 1, 1, pattern, context=min(context, 256))  # compiles what lengths share
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    train(model, text, 1, 1, pattern)
    _, rate = train(model, text, 2, 1, pattern)
    print(rate, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)


def plot(curves, path):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    for name, losses in curves.items():
        means = torch.tensor(losses).unfold(0, min(10, len(losses)), 1).mean(1)
        pyplot.plot(means, label=name)
    pyplot.xlabel("step")
    pyplot.ylabel("loss, nats a byte")
    pyplot.legend()
    pyplot.savefig(path, dpi=120)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--text", help="a file; by default the help texts of Python")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--context", type=int, default=512, help="of the training")
    parser.add_argument("--contexts", type=int, nargs="*", default=[1024, 4096, 16384], help="of the table")
    parser.add_argument("--patterns", nargs="+", choices=PATTERNS, default=list(PATTERNS))
    parser.add_argument("--plot", default="losses.png")
    parser.add_argument("--measure", choices=PATTERNS, help=argparse.SUPPRESS)
    options, text = parse(parser, PARTS)
    if options.measure:
        return measure_here(options.measure, options.contexts[0])
    longest = len(load_text()) - 1
    for context in options.contexts:
        if not 1 <= context <= longest:
            parser.error(f"--contexts: found {context}, needed 1 to {longest}")
    try:
        open(options.plot, "ab").close()
    except OSError as failure:
        parser.error(f"--plot: cannot write {options.plot}: {failure.strerror}")
    seen, unseen = split(text)
    curves, final = {}, {}
    for name in options.patterns:
        torch.manual_seed(0)
        model = ByteModel(name, options.context)
        curves[name], _ = train(model, seen, options.steps, options.batch, name)
        final[name] = evaluate(model, unseen)
    plot(curves, options.plot)

    print("| pattern | loss |" + "".join(f" {context} tokens: tokens/s, MB |" for context in options.contexts))
    print("|---|---|" + "---|" * len(options.contexts))
    dense = {context: measure("dense", context) for context in options.contexts}
    for name in options.patterns:
        row = f"| {name} | {final[name]:.3f} |"
        for context in options.contexts:
            rate, memory = dense[context] if name == "dense" else measure(name, context)
            row += f" {rate:.0f} ({rate / dense[context][0]:.2f}x), {memory:.0f} |"
        print(row)
    print(f"losses: {options.plot}")


if __name__ == "__main__":
    main()
