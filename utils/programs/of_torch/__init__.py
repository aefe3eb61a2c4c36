# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs of PyTorch: extents may be unknown."""

import torch

import fovea
import fovea.torch  # A broken installation ends here, not in each program.

from .. import draw, trial
from . import attention, elements, indices, layers, reductions, shapes

__all__ = ["Trial", "attention", "elements", "indices", "layers", "reductions", "shapes"]


class Draw(draw.Draw):
    def is_float(self, value):
        return value.is_floating_point()

    def normal(self, *shape):
        return torch.randn(*shape, generator=self.generator(), dtype=torch.float64) / 2

    def integers(self, most, *shape):
        return torch.randint(0, most, shape, generator=self.generator())

    def generator(self):
        return torch.Generator().manual_seed(self.random.randrange(1000))


class Program(torch.nn.Module):
    def __init__(self, steps, results):
        super().__init__()
        self.steps, self.results = steps, results

    def forward(self, *arguments):
        return trial.evaluate(self.steps, self.results, arguments)


class Trial(trial.Trial):
    """A third of the programs has a dimension of each argument of unknown extent."""

    draw = Draw
    refuses = (IndexError, RuntimeError)

    def __init__(self, seed, target):
        torch.set_num_threads(1)
        self.generator = torch.Generator().manual_seed(seed)
        super().__init__(seed, target)
        self.program = Program(self.steps, self.results)

    def choose_dynamic(self):
        return self.random.random() < 0.35

    def make_argument(self, shape):
        return torch.randn(shape, generator=self.generator, dtype=torch.float64)

    def run_eagerly(self, arguments):
        exact = self.program(*arguments)
        single = self.program(*[x.float() for x in arguments])
        return [each.numpy() for each in single], [each.numpy() for each in exact]

    def compile(self):
        dynamic = {}
        if self.is_dynamic:
            dynamic = {f"input_{i}": [shape.index(None)] for i, shape in enumerate(self.shapes)}
        examples = [x.float() for x in self.arguments]
        compiled = fovea.import_torch(self.program, *examples, target=self.target, dynamic=dynamic)
        return lambda arguments: compiled(*[x.float().numpy() for x in arguments])
