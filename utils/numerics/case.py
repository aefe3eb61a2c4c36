# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One random call: what is drawn for it, and how its results are judged."""

import numpy as np
from ml_dtypes import bfloat16

import fovea

TYPES = {"f32": np.float32, "f64": np.float64, "bf16": bfloat16, "f16": np.float16}
#: The error that is allowed, as a part of the largest number of a result.
BOUNDS = {"f32": 5e-6, "f64": 1e-12, "bf16": 1e-2, "f16": 2e-3}
GRADIENT_BOUNDS = {"f32": 4e-5, "f64": 1e-11, "bf16": 6e-2, "f16": 1e-2}
LENGTHS = [1, 2, 3, 5, 7, 8, 13, 15, 16, 17, 23, 31, 32, 33, 47, 63, 64, 65, 97, 129, 200]
WIDTHS = [1, 2, 3, 4, 5, 8, 12, 16, 17, 20, 32, 33, 64]
STEP = 1e-30


class Wrong(Exception):
    """A result that is not what it should be."""


class Case:
    #: What judges by a spoilt rule, to show that the rule finds something.
    canary = None

    def __init__(self, family, seed, index, target=None):
        self.random = np.random.default_rng([seed, index])
        self.log = [f"family={family}", f"seed={seed}", f"case={index}"]
        draw = self.random.random()
        self.target = target or ("gpu-sim" if draw < 0.05 else "reference" if draw < 0.1 else "cpu")
        kinds = ["f32", "bf16", "f16"] + ["f64"] * (self.target != "gpu-sim")
        weights = np.array([6, 1.5, 1, 1.5][: len(kinds)])
        self.type = str(self.random.choice(kinds, p=weights / weights.sum()))
        self.dtype = TYPES[self.type]
        self.state = np.float64 if self.type == "f64" else np.float32
        self.note(target=self.target, type=self.type)

    @property
    def emulated(self):
        """The emulator takes its time: such cases are small."""
        return self.target == "gpu-sim"

    # Drawing.

    def note(self, **facts):
        """Says in a report what was drawn, and returns it."""
        self.log += [f"{name}={value}" for name, value in facts.items()]
        return next(iter(facts.values()))

    def pick(self, name, choices):
        value = choices[self.random.integers(len(choices))]
        return self.note(**{name: value})

    def flip(self, name, probability=0.5):
        return self.note(**{name: bool(self.random.random() < probability)})

    def length(self, name, most=200):
        if self.emulated:
            most = min(most, 17)
        return self.pick(name, [n for n in LENGTHS if n <= most])

    def width(self, name, most=64):
        if self.emulated:
            most = min(most, 17)
        return self.pick(name, [n for n in WIDTHS if n <= most])

    def heads(self):
        """B, H and G."""
        counts = [1, 2] if self.emulated else [1, 1, 2, 3]
        B, G = self.pick("B", counts), self.pick("G", counts)
        return B, G * self.pick("H/G", counts), G

    def normal(self, *shape, dtype=None, size=1.0):
        """Unit normal numbers of the type of the case, now and then with axes that lie
        in memory in another order."""
        array = (size * self.random.standard_normal(shape)).astype(dtype or self.dtype)
        if len(shape) > 2 and self.random.random() < 0.15:
            array = np.ascontiguousarray(array.swapaxes(1, 2)).swapaxes(1, 2)
        return array

    def leading(self, shape):
        """`shape`, with some of its axes broadcast."""
        return tuple(1 if self.random.random() < 0.3 else n for n in shape)

    # Judging.

    @property
    def spoilt(self):
        return 1e-9 if self.canary == "bounds" else 1

    def unread(self, rows):
        """Where a result must not change: `rows` that do not read an entry."""
        return np.ones_like(rows) if self.canary == "hidden" else rows

    def require(self, holds, what):
        if not holds:
            raise Wrong(what)

    def close(self, found, expected, what, factor=1.0, size=0.0):
        """`size` is that of what was added up, where sums cancel."""
        found = np.asarray(found)
        self.require(found.shape == expected.shape, f"{what}: shape {found.shape}, needed {expected.shape}")
        found = found.astype(np.float64)
        nothing = np.isneginf(expected)
        self.require((np.isneginf(found) == nothing).all(), f"{what}: -inf in other places")
        found, expected = found[~nothing], np.asarray(expected)[~nothing]
        if not found.size:
            return
        self.require(np.isfinite(found).all(), f"{what}: {(~np.isfinite(found)).sum()} numbers are not finite")
        bound = factor * self.spoilt * BOUNDS[self.type] * max(np.abs(expected).max(), size, 1e-3)
        error = np.abs(found - expected).max()
        self.require(error <= bound, f"{what}: error {error:.3g}, bound {bound:.3g}")

    def same(self, found, expected, what):
        """Bit by bit."""
        for one, other in zip(flatten(found), flatten(expected)):
            one, other = np.asarray(one), np.asarray(other)
            equal = one.shape == other.shape and one.tobytes() == other.tobytes()
            self.require(equal, f"{what}: other bits")

    def twice(self, call):
        """The results of `call`, which must be the same on any number of threads."""
        fovea.set_num_threads(1)
        first = call()
        if self.emulated:
            return first
        fovea.set_num_threads(int(self.random.integers(2, 5)))
        self.same(call(), first, "with more threads")
        fovea.set_num_threads(1)
        return first

    def gradients(self, formula, arrays, cotangents, found, factor=1.0):
        """`found` are the gradients, by name, of the sum of `cotangents` times what
        `formula` makes of `arrays`."""
        arrays = {name: wide(array) for name, array in arrays.items()}
        cotangents = [wide(array) for array in cotangents]
        for name, gradient in found.items():
            gradient = np.asarray(gradient)
            shape = arrays[name].shape
            self.require(gradient.shape == shape, f"gradient of {name}: shape {gradient.shape}, needed {shape}")
            gradient = gradient.astype(np.float64)
            self.require(np.isfinite(gradient).all(), f"gradient of {name}: not finite")
            largest = np.abs(gradient).max(initial=0)
            for direction in self.directions(shape):
                changed = dict(arrays)
                changed[name] = arrays[name] + 1j * STEP * direction
                results = formula(**changed)
                expected = sum((c * r).sum() for c, r in zip(cotangents, results)).imag / STEP
                terms = np.abs(direction).sum()
                # A gradient is a sum of products of unit normals, in which much cancels.
                bound = factor * self.spoilt * GRADIENT_BOUNDS[self.type] * (largest + 1) * np.sqrt(terms)
                error = abs((gradient * direction).sum() - expected)
                self.require(
                    error <= bound,
                    f"gradient of {name}: error {error:.3g} in {int(terms)} entries, bound {bound:.3g}",
                )

    def directions(self, shape):
        size = int(np.prod(shape))
        if not size:
            return
        yield self.random.choice([-1.0, 1.0], shape)
        for entry in self.random.choice(size, min(4, size), replace=False):
            direction = np.zeros(size)
            direction[entry] = 1
            yield direction.reshape(shape)

    def hidden(self, call, arrays, clean, place, untouched, what):
        """Puts a NaN or an infinity into `arrays[name][index]`, `place` being name and
        index, after which results must keep their bits where `untouched` is true."""
        name, index = place
        changed = {key: np.copy(array) for key, array in arrays.items()}
        changed[name][index] = self.random.choice([np.nan, np.inf, -np.inf])
        dirty = call(**changed)
        for number, (before, after, keep) in enumerate(zip(flatten(clean), flatten(dirty), untouched)):
            before, after = np.asarray(before), np.asarray(after)
            keep = np.broadcast_to(self.unread(keep), before.shape)
            differs = (before != after) & ~(np.isnan(wide(before)) & np.isnan(wide(after))) & keep
            self.require(
                not differs.any(),
                f"{what}: {name}{list(index)} = {changed[name][index].ravel()[0]} changes {differs.sum()} "
                f"entries of result {number} that do not read it, first {np.argwhere(differs)[:1].tolist()}",
            )


def flatten(results):
    """All arrays of nested tuples and lists."""
    if isinstance(results, (tuple, list)):
        return [array for part in results for array in flatten(part)]
    return [] if results is None else [results]


def wide(array):
    return np.asarray(array).astype(np.float64)


def spread(array, heads):
    """The heads of keys, once for each head of queries that reads them."""
    return np.repeat(array, heads // array.shape[1], axis=1)


def softmax(scores, admitted):
    """Weights and log-sum-exp [B,H,N] of scores where `admitted`; rows of nothing are
    zeros and -inf."""
    top = np.where(admitted, scores.real, -np.inf).max(-1, keepdims=True, initial=-np.inf)
    finite = np.where(np.isneginf(top), 0, top)
    weights = np.where(admitted, np.exp(np.where(admitted, scores - finite, 0)), 0)
    total = weights.sum(-1, keepdims=True)
    empty = ~admitted.any(-1, keepdims=True)
    lse = np.where(empty, -np.inf, finite + np.log(np.where(empty, 1, total)))
    return weights / np.where(empty, 1, total), lse[..., 0]
