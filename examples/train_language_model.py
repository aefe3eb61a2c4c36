# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trains a byte-level language model on the texts of this repository, with NumPy.

    PYTHONPATH=build/python python examples/train_language_model.py
    PYTHONPATH=build/python python examples/train_language_model.py --attention multipole --context 512
    PYTHONPATH=build/python python examples/train_language_model.py --attention vq
    PYTHONPATH=build/python python examples/train_language_model.py --attention conv
    PYTHONPATH=build/python python examples/train_language_model.py --attention compressed
    PYTHONPATH=build/python python examples/train_language_model.py --check-gradients

The model is written as IR (language_model_builder.py); Fovea compiles its loss and,
by --attn-differentiate, the gradient. Adam is eight lines of NumPy. Training goes on
from the checkpoint if there is one, and a step is the same whether it does or not.
"""

import argparse
import json
import math
import os
import pathlib
import signal
import sys
import tempfile
import time
from dataclasses import asdict, replace

import numpy as np
from language_model_builder import BYTES, Model, logits_function, loss_function, read_checkpoint

import fovea

# Weight of the commitment loss of quantized keys.
COMMITMENT = 0.25
ROOT = pathlib.Path(__file__).resolve().parent.parent


def load_texts(paths):
    """All bytes; of this repository's prose where no file is named."""
    if not paths:
        paths = [ROOT / "README.md", ROOT / "LICENSE", ROOT / "examples" / "data" / "text.txt"]
        paths += sorted((ROOT / "docs").glob("*.md")) + sorted((ROOT / "docs" / "Dialect").glob("*.md"))
    return np.frombuffer(b"\n\n".join(path.read_bytes() for path in paths), np.uint8)


def split(text, context):
    """What is trained on, and every tenth block of it, which is not."""
    size = max(1000, 2 * context)
    blocks = [text[low : low + size] for low in range(0, len(text), size)]
    parts = [b for i, b in enumerate(blocks) if i % 10 != 9], [b for i, b in enumerate(blocks) if i % 10 == 9]
    if not parts[1] or min(sum(map(len, part)) for part in parts) < context + 2:
        raise SystemExit(f"the text has {len(text)} bytes, needed at least {10 * size + context}")
    return tuple(np.concatenate(part) for part in parts)


def initial_parameters(model, seed):
    """Normal numbers that keep the size of what they multiply, ones for gains, zeros
    for biases, and means for the summaries of multipole attention."""
    rng, result = np.random.default_rng(seed), {}
    for name, shape in model.parameters().items():
        if len(shape) == 1:
            values = np.ones(shape)
        elif len(shape) == 3:
            values = np.zeros(shape)
        elif len(shape) == 4:
            _, rank, size, _ = shape
            mine = np.arange(size) // (size // rank) == np.arange(rank)[:, None]
            values = np.broadcast_to(mine[None, :, :, None] * (rank / size), shape)
        else:
            scale = 0.1 if name in ("embedding", "position") else shape[0] ** -0.5
            if name.startswith(("wo", "down")):
                scale /= math.sqrt(2 * model.layers)
            values = rng.standard_normal(shape) * scale
        result[name] = values
    return result


class Parameters:
    """All parameters in one array, so that Adam is a few operations."""

    def __init__(self, model, seed, dtype=np.float32):
        initial = initial_parameters(model, seed)
        self.flat = np.concatenate([v.ravel() for v in initial.values()]).astype(dtype)
        self.mean, self.square = np.zeros_like(self.flat), np.zeros_like(self.flat)
        ends = np.cumsum([v.size for v in initial.values()])
        parts = np.split(self.flat, ends[:-1])
        self.views = [part.reshape(v.shape) for part, v in zip(parts, initial.values())]

    def adam(self, gradients, step, rate, beta1=0.9, beta2=0.95, epsilon=1e-8, clip=1.0):
        g = np.concatenate([gradient.ravel() for gradient in gradients])
        norm = float(np.sqrt(np.dot(g, g)))
        g *= min(1.0, clip / (norm + 1e-6))
        self.mean += (1 - beta1) * (g - self.mean)
        self.square += (1 - beta2) * (g * g - self.square)
        rate *= math.sqrt(1 - beta2 ** (step + 1)) / (1 - beta1 ** (step + 1))
        self.flat -= rate * self.mean / (np.sqrt(self.square) + epsilon)
        return norm


class Codebooks:
    """The codewords of quantized keys, which follow the keys: smoothed sums and
    numbers of the keys of every code."""

    def __init__(self, model, seed, dtype=np.float32):
        rng = np.random.default_rng(seed)
        self.sums = [rng.standard_normal(shape).astype(dtype) for shape in model.codebooks().values()]
        self.counts = [np.ones(sums.shape[:2], dtype) for sums in self.sums]

    @property
    def arrays(self):
        return [s / np.maximum(c, 1e-6)[..., None] for s, c in zip(self.sums, self.counts)]

    def update(self, quantized, target):
        for layer, (keys, codes) in enumerate(zip(quantized[::2], quantized[1::2])):
            _, self.sums[layer], self.counts[layer] = fovea.codebook_update(
                keys, codes, self.sums[layer], self.counts[layer], target=target
            )


def gradient_kernel(model, target):
    """The loss as a kernel, and one that returns its results and gradients."""
    loss = fovea.compile(loss_function(model), target=target)
    count = len(model.parameters())
    return loss, loss.vjp(arguments=list(range(2, 2 + count)), primal_results=True)


def cotangents(model, dtype):
    """1 for the loss, for the commitment loss its weight, nothing for keys."""
    if not model.codebooks():
        return [np.ones((), dtype)]
    keys = np.zeros((model.batch, model.heads, model.context, model.head_width), dtype)
    return [np.ones((), dtype), np.full((), COMMITMENT, dtype)] + [keys] * model.layers


def batch_of(text, model, seed, step):
    """The same batch for the same step, whenever that runs."""
    rng = np.random.default_rng([seed, step])
    starts = rng.integers(0, len(text) - model.context - 1, model.batch)
    rows = text[starts[:, None] + np.arange(model.context + 1)].astype(np.int32)
    return np.ascontiguousarray(rows[:, :-1]), np.ascontiguousarray(rows[:, 1:])


# ---- Checkpoints ----------------------------------------------------------------


def save(path, model, parameters, books, step, history):
    """Replaces the checkpoint at once: it is whole, or the one before."""
    handle, name = tempfile.mkstemp(dir=path.parent, suffix=".npz")
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(file, model=json.dumps(asdict(model)), step=step, history=np.array(history).reshape(-1, 3),
                     flat=parameters.flat, mean=parameters.mean, square=parameters.square,
                     sums=np.array(books.sums), counts=np.array(books.counts))  # fmt: skip
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        pathlib.Path(name).unlink(missing_ok=True)
        raise


def check_writable(path):
    """Before there is anything to lose."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=path.parent).close()
    except OSError as failure:
        raise SystemExit(f"--checkpoint: cannot write {path}: {failure.strerror}") from None


def resume(path, model, parameters, books):
    stored = read_checkpoint(path)
    found, needed = json.loads(str(stored["model"])), asdict(model)
    different = [f"{k}: found {found.get(k)!r}, needed {v!r}" for k, v in needed.items() if found.get(k) != v]
    if different:
        raise SystemExit(f"{path} is a checkpoint of another model: {'; '.join(different)}")
    for name in ("flat", "mean", "square"):
        getattr(parameters, name)[:] = stored[name]
    books.sums, books.counts = list(stored["sums"]), list(stored["counts"])
    return int(stored["step"]), [tuple(row) for row in stored["history"]]


# ---- What is shown --------------------------------------------------------------


def plot(history, path, title):
    """Loss curves, as a picture where matplotlib is there."""
    steps, train, held = np.array(history).T
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        return plot_text(steps, {"*": train, "o": held})
    figure, axes = pyplot.subplots(figsize=(7, 4))
    axes.plot(steps, train, label="training text")
    axes.plot(steps, held, label="held-out text")
    axes.set(xlabel="step", ylabel="loss, nats per byte", title=title)
    axes.legend()
    figure.savefig(path, dpi=120, bbox_inches="tight")
    print(f"loss curves: {path}")


def plot_text(steps, curves, width=64, height=14):
    values = np.concatenate(list(curves.values()))
    low, high = values.min(), max(values.max(), values.min() + 1e-9)
    grid = [[" "] * width for _ in range(height)]
    for mark, curve in curves.items():
        for x, y in zip(np.linspace(0, width - 1, len(steps)), curve):
            grid[round((high - y) / (high - low) * (height - 1))][round(x)] = mark
    print("loss, nats per byte: * training text, o held-out text")
    for row, line in enumerate(grid):
        print(f"{high - (high - low) * row / (height - 1):7.3f} |{''.join(line)}".rstrip())
    print(f"        step {steps[0]:.0f} {'.' * (width - 24)} step {steps[-1]:.0f}")


def sample(model, parameters, books, start, count, temperature, seed, target):
    """Continues `start`. The whole window runs for every byte: what comes after a
    position does not change it, so bytes that are not known yet are zeros. Compressed
    windows end with what is known, behind zeros."""
    model = replace(model, batch=1)
    kernel = fovea.compile(logits_function(model), target=target)
    rng, text = np.random.default_rng(seed), list(start)
    for _ in range(count):
        window = text[-model.context :]
        tokens = np.zeros((1, model.context), np.int32)
        first = model.context - len(window) if model.predicted < model.context else 0
        tokens[0, first : first + len(window)] = window
        last = min(first + len(window), model.predicted) - 1
        scores = kernel(tokens, *parameters.views, *books.arrays)[0, last].astype(np.float64) / temperature
        chances = np.exp(scores - scores.max())
        text.append(int(rng.choice(BYTES, p=chances / chances.sum())))
    return bytes(text).decode("utf-8", errors="replace")


# ---- Gradient check -------------------------------------------------------------


def check_gradients(model, seed, target):
    """The gradient against central differences in f64, along a random direction for
    each parameter, and that of the target in f32 against the one in f64. What goes
    straight through quantized keys is no derivative, so there the second alone."""
    model = replace(model, batch=2, context=29, width=16, heads=2, hidden=24, group=4, rank=2, codes=8,
                    bases=3, vip=5, ratio=4, element="f64")  # fmt: skip
    parameters = Parameters(model, seed, np.float64)
    rng = np.random.default_rng(seed)
    parameters.flat += 0.1 * rng.standard_normal(parameters.flat.shape)
    tokens, targets = batch_of(rng.integers(0, BYTES, 1000).astype(np.uint8), model, seed, 0)
    books = Codebooks(model, seed, np.float64)
    loss, vjp = gradient_kernel(model, "reference")
    numbers = [*parameters.views, *books.arrays, *cotangents(model, np.float64)]
    count = len(parameters.views)
    exact = vjp(tokens, targets, *numbers)[-count:]
    _, vjp = gradient_kernel(replace(model, element="f32"), target)
    found = vjp(tokens, targets, *[n.astype(np.float32) for n in numbers])[-count:]
    is_derivative = not model.codebooks()
    print(f"{'parameter':12} {'size':>7}  central differences  {target} in f32")
    worst = {"differences": 0.0, "f32": 0.0}
    for name, view, gradient, single in zip(model.parameters(), parameters.views, exact, found):
        direction = rng.standard_normal(view.shape)
        step = 1e-5 / np.sqrt((direction * direction).mean())
        old = view.copy()
        ends = []
        for sign in (1, -1) * is_derivative:
            view[...] = old + sign * step * direction
            ends.append(float(loss(tokens, targets, *parameters.views)))
        view[...] = old
        difference = 0.0
        if is_derivative:
            slope = (ends[0] - ends[1]) / (2 * step)
            size = np.linalg.norm(gradient) * np.linalg.norm(direction)
            difference = abs(slope - (gradient * direction).sum()) / size
        error = np.abs(single - gradient).max() / np.abs(gradient).max()
        worst = {"differences": max(worst["differences"], difference), "f32": max(worst["f32"], error)}
        print(f"{name:12} {view.size:7}  {difference:19.1e}  {error:{len(target) + 7}.1e}")
    print(f"largest: {worst['differences']:.1e}, needed 1e-6; {worst['f32']:.1e}, needed 1e-4")
    return worst["differences"] <= 1e-6 and worst["f32"] <= 1e-4


# ---- Training -------------------------------------------------------------------


def train(model, arguments):
    check_writable(arguments.checkpoint)
    text = load_texts(arguments.text)
    known, held_out = split(text, model.context)
    parameters, books = Parameters(model, arguments.seed), Codebooks(model, arguments.seed)
    print(f"{len(text)} bytes of text, {parameters.flat.size} parameters, {model.attention} attention, "
          f"{model.batch} x {model.context} tokens a step")  # fmt: skip
    start = time.perf_counter()
    loss, gradient = gradient_kernel(model, arguments.target)
    print(f"compiled in {time.perf_counter() - start:.1f} s")
    step, history = 0, []
    if arguments.checkpoint.exists() and not arguments.restart:
        step, history = resume(arguments.checkpoint, model, parameters, books)
        print(f"goes on from step {step} of {arguments.checkpoint}")

    def held_out_loss():
        batches = [batch_of(held_out, model, arguments.seed, number) for number in range(4)]
        values = [loss(*batch, *parameters.views, *books.arrays) for batch in batches]
        return float(np.mean([value[0] if model.codebooks() else value for value in values]))

    weights, recent, begun, first = cotangents(model, np.float32), [], time.perf_counter(), step
    warm_up = min(100, max(1, arguments.steps // 10))
    end = min(arguments.steps, arguments.pause or arguments.steps)
    while step < end:
        tokens, targets = batch_of(known, model, arguments.seed, step)
        results = gradient(tokens, targets, *parameters.views, *books.arrays, *weights)
        gradients = results[-len(parameters.views) :]
        share = step / arguments.steps
        rate = arguments.rate * min(1, (step + 1) / warm_up) * (0.55 + 0.45 * math.cos(math.pi * share))
        parameters.adam(gradients, step, rate)
        if model.codebooks():
            books.update(results[2 : -len(gradients)], arguments.target)
        recent.append(float(results[0]))
        step += 1
        if step % arguments.every == 0 or step == end:
            seconds = time.perf_counter() - begun
            history.append((step, float(np.mean(recent)), held_out_loss()))
            speed = (step - first) * model.batch * model.context / seconds
            print(f"step {step:5}: loss {history[-1][1]:.4f}, held out {history[-1][2]:.4f} "
                  f"({history[-1][2] / math.log(2):.3f} bits a byte), {speed:.0f} tokens/s", flush=True)  # fmt: skip
            recent = []
            save(arguments.checkpoint, model, parameters, books, step, history)
    if end < arguments.steps:
        print(f"pauses at step {step} of {arguments.steps}: run again to go on")
        return
    if history:
        plot(history, arguments.checkpoint.with_suffix(".png"), f"{model.attention} attention")
    if arguments.sample:
        print("sample:")
        print(sample(model, parameters, books, arguments.prompt.encode(), arguments.sample, 0.8,
                     arguments.seed, arguments.target))  # fmt: skip


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--attention", choices=("dense", "multipole", "vq", "conv", "compressed"), default="dense")
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--hidden", type=int, help="of the MLP; by default 2.75 times the width")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--rate", type=float, default=3e-3, help="of learning")
    parser.add_argument("--every", type=int, default=50, help="steps between reports and checkpoints")
    parser.add_argument("--pause", type=int, help="stop at this step; the next run goes on")
    parser.add_argument("--checkpoint", type=pathlib.Path, help="by default language_model_<attention>.npz here")
    parser.add_argument("--restart", action="store_true", help="from the start, whatever the checkpoint")
    parser.add_argument("--text", type=pathlib.Path, action="append", help="instead of this repository's")
    parser.add_argument("--sample", type=int, default=300, help="bytes of the sample at the end")
    parser.add_argument("--prompt", default="The ")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", choices=("cpu", "reference"), default="cpu")
    parser.add_argument("--check-gradients", action="store_true", help="instead of training")
    arguments = parser.parse_args()
    least = dict.fromkeys(("steps", "batch", "context", "width", "heads", "hidden", "layers", "every", "pause"), 1)
    for name, needed in {**least, "sample": 0, "seed": 0}.items():
        found = getattr(arguments, name)
        if found is not None and found < needed:
            parser.error(f"--{name}: found {found}, needed at least {needed}")
    if not arguments.prompt:
        parser.error("--prompt: found none, needed a byte or more")
    for path in arguments.text or ():
        if not path.is_file():
            parser.error(f"--text: found no file {path}")
    if arguments.width % arguments.heads:
        parser.error(f"--width: found {arguments.width}, needed a multiple of {arguments.heads} heads")
    if arguments.checkpoint is None:
        arguments.checkpoint = pathlib.Path(f"language_model_{arguments.attention}.npz")
    return arguments


def main():
    arguments = parse_arguments()
    hidden = arguments.hidden or arguments.width * 11 // 4
    model = Model(arguments.batch, arguments.context, arguments.width, arguments.heads, hidden,
                  arguments.layers, arguments.attention)  # fmt: skip
    try:
        model.check()
    except ValueError as error:
        raise SystemExit(f"--{error}") from None
    if arguments.check_gradients:
        sys.exit(0 if check_gradients(model, arguments.seed, arguments.target) else 1)
    train(model, arguments)


if __name__ == "__main__":
    # Who reads the output may close it.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    main()
