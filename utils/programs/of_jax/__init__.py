# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs of JAX."""

import jax
import numpy as np

import fovea
import fovea.jax  # A broken installation ends here, not in each program.

from .. import draw, trial
from . import arrays, loops, numbers

__all__ = ["Trial", "arrays", "loops", "numbers"]


class Draw(draw.Draw):
    def is_float(self, value):
        return value.dtype.kind == "f"

    def normal(self, *shape):
        return np.random.default_rng(self.random.randrange(1000)).standard_normal(shape) / 2

    def integers(self, most, *shape):
        return np.random.default_rng(self.random.randrange(1000)).integers(most, size=shape)


TYPES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}


class Trial(trial.Trial):
    draw = Draw
    refuses = (IndexError, TypeError, ValueError)

    def __init__(self, seed, way):
        self.generator = np.random.default_rng(seed)
        super().__init__(seed, way)

    def make_argument(self, shape):
        with jax.enable_x64(True):
            return jax.numpy.asarray(self.generator.standard_normal(shape))

    def draw_steps(self, count):
        # Drawn in f64, so that the exact run takes the same branches.
        with jax.enable_x64(True):
            return super().draw_steps(count)

    def call(self, *arguments):
        return trial.evaluate(self.steps, self.results, arguments)

    def narrow(self, arguments):
        return [np.asarray(x, TYPES[self.way.element_type]) for x in arguments]

    def run_eagerly(self, arguments):
        with jax.enable_x64(True):
            exact = self.call(*arguments)
        single = self.call(*map(jax.numpy.asarray, self.narrow(arguments)))
        return [np.asarray(each) for each in single], [np.asarray(each) for each in exact]

    def run_disturbed(self, arguments, change):
        with jax.enable_x64(True):
            results = trial.evaluate(self.steps, self.results, arguments, lambda value: change(value) if value.dtype.kind == "f" else value)
        return [np.asarray(each) for each in results]

    def compile(self):
        compiled = fovea.import_jax(self.call, *self.narrow(self.arguments), target=self.way.target)
        return lambda arguments: compiled(*self.narrow(arguments))
