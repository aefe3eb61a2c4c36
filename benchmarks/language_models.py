#!/usr/bin/env python3
# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Language models of every pattern: their loss over time, and the time of a token over context.

    PYTHONPATH=build/python .venv/bin/python benchmarks/language_models.py --out docs/results

Trains the model of examples/train_language_model.py with each attention for --seconds, and takes
one step of a layer at each context, all on one thread, whose own time is counted. Writes
language-models-loss.svg and language-models-time.svg to --out, and prints a table of each.
"""

import argparse
import math
import pathlib
import sys
import time

import numpy as np
from fovea_bench import plot

import fovea

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "examples"))

import train_language_model as example  # noqa: E402
from language_model_builder import Model  # noqa: E402

PATTERNS = ("dense", "multipole", "vq", "conv", "compressed")
HEADS = 4


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=20.0, help="of training, for each pattern")
    parser.add_argument("--train", type=int, default=256, metavar="N", help="context that models are trained at")
    parser.add_argument("--contexts", type=int, nargs="*", default=[1024, 2048, 4096, 8192, 16384], metavar="N")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--patterns", nargs="+", default=PATTERNS, choices=PATTERNS)
    parser.add_argument("--out", type=pathlib.Path, help="folder of the figures; none without")
    arguments = parser.parse_args()
    # Said before minutes of work.
    if arguments.out and not arguments.out.is_dir():
        parser.error(f"--out: found no folder {arguments.out}")
    if arguments.width < HEADS or arguments.width % HEADS:
        parser.error(f"--width: found {arguments.width}, needed a multiple of {HEADS} heads")
    for context in (arguments.train, *arguments.contexts):
        if context < 1:
            parser.error(f"--train, --contexts: found {context}, needed at least 1")
        for name in arguments.patterns:
            try:
                make_model(name, context, arguments.width, 1, 1).check()
            except ValueError as error:
                parser.error(f"{name}: {error}")
    return arguments


def make_model(attention, context, width, batch, layers):
    return Model(batch, context, width, HEADS, width * 11 // 4, layers, attention)


class Training:
    """A model with all that a step needs."""

    def __init__(self, model, text, seed=0):
        self.model, self.text, self.step = model, text, 0
        self.parameters, self.books = example.Parameters(model, seed), example.Codebooks(model, seed)
        self.loss, self.gradient = example.gradient_kernel(model, "cpu")
        self.weights = example.cotangents(model, np.float32)

    def advance(self):
        """One step; its loss."""
        tokens, targets = example.batch_of(self.text, self.model, 0, self.step)
        views = self.parameters.views
        results = self.gradient(tokens, targets, *views, *self.books.arrays, *self.weights)
        self.parameters.adam(results[-len(views) :], self.step, 3e-3 * min(1, (self.step + 1) / 20))
        if self.model.codebooks():
            self.books.update(results[2 : -len(views)], "cpu")
        self.step += 1
        return float(results[0])


def train(model, text, seconds):
    """(seconds, mean loss since the last point) at times that grow by a quarter."""
    training, points, losses, next_time = Training(model, text), [], [], seconds / 16
    start = time.thread_time()
    while (now := time.thread_time() - start) < seconds or not points:
        losses.append(training.advance())
        if now >= next_time:
            points.append((now, float(np.mean(losses))))
            losses, next_time = [], next_time * 1.25
    return points, training.step


def time_of_token(model, text):
    """Seconds of a step for each token of its context: the median of three."""
    training = Training(model, text)
    training.advance()
    times = []
    for _ in range(3):
        start = time.thread_time()
        training.advance()
        times.append(time.thread_time() - start)
    return sorted(times)[1] / (model.batch * model.context)


def main():
    arguments = parse_arguments()
    fovea.set_num_threads(1)
    text = example.load_texts([path for path in sorted((ROOT / "docs").rglob("*.md"))])
    losses, times = {}, {}
    print("| attention | steps | loss, nats a byte |\n|---|---|---|")
    for name in arguments.patterns:
        losses[name], steps = train(make_model(name, arguments.train, arguments.width, 8, 2), text, arguments.seconds)
        print(f"| {name} | {steps} | {losses[name][-1][1]:.3f} |", flush=True)
    contexts = [n for n in arguments.contexts if n + 2 < len(text)]
    print(f"\n| attention | {' | '.join(f'{n}: us' for n in contexts)} |\n|{'---|' * (len(contexts) + 1)}")
    for name in arguments.patterns:
        times[name] = [(n, time_of_token(make_model(name, n, arguments.width, 1, 1), text)) for n in contexts]
        print(f"| {name} | {' | '.join(f'{1e6 * seconds:.1f}' for _, seconds in times[name])} |", flush=True)
    if arguments.out:
        loss = plot.svg(losses, f"Loss over time, context {arguments.train}", "seconds of one thread", "nats a byte", False)
        (arguments.out / "language-models-loss.svg").write_text(loss)
        cost = plot.svg(times, "A step of one layer", "context", "time of a token")
        (arguments.out / "language-models-time.svg").write_text(cost)
    return 0 if all(math.isfinite(point[1]) for line in losses.values() for point in line) else 1


if __name__ == "__main__":
    sys.exit(main())
