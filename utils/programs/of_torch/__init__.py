# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs of PyTorch: extents may be unknown."""

import numpy as np
import torch

import fovea
import fovea.torch  # A broken installation ends here, not in each program.

from .. import draw, trial
from . import attention, elements, indices, layers, reductions, shapes

__all__ = ["Trial", "attention", "elements", "indices", "layers", "reductions", "shapes"]


TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


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
    def __init__(self, *program):
        super().__init__()
        self.program = program

    def forward(self, *arguments):
        steps, results, *change = self.program
        return trial.evaluate(steps, results, arguments, *change)


class Trial(trial.Trial):
    """A third of the programs has a dimension of each argument of unknown extent."""

    draw = Draw
    refuses = (IndexError, RuntimeError)

    def __init__(self, seed, way):
        torch.set_num_threads(1)
        self.generator = torch.Generator().manual_seed(seed)
        super().__init__(seed, way)
        self.program = Program(self.steps, self.results)

    def choose_dynamic(self):
        return self.random.random() < 0.35

    def weigh(self, function, weight):
        # The compiler leaves what is not attention to another.
        return 6 * weight if self.way.is_trained and function is attention.attention else weight

    def make_argument(self, shape):
        return torch.randn(shape, generator=self.generator, dtype=torch.float64)

    def run_eagerly(self, arguments):
        return [self.run_program(self.program, values) for values in (self.narrow(arguments), arguments)]

    def run_disturbed(self, arguments, change):
        def change_floats(value):
            # Factors are constants to gradients.
            factors = torch.as_tensor(change(np.ones(value.shape)))
            return value * factors if value.is_floating_point() else value

        return self.run_program(Program(self.steps, self.results, change_floats), arguments)

    def run_program(self, program, arguments):
        results = self.train(program, arguments) if self.way.is_trained else program(*arguments)
        return [as_array(each) for each in results]

    def narrow(self, arguments):
        return [x.to(TYPES[self.way.element_type]) for x in arguments]

    def train(self, program, arguments):
        """The results and the gradients of their sum, with weights."""
        arguments = [x.detach().clone().requires_grad_() for x in arguments]
        results = program(*arguments)
        loss = sum((x * torch.arange(x.numel()).reshape(x.shape).cos().to(x.dtype)).sum() for x in results if x.requires_grad)
        if not isinstance(loss, torch.Tensor):
            return results
        gradients = torch.autograd.grad(loss, arguments, allow_unused=True)
        return [*results, *(each for each in gradients if each is not None)]

    def compile(self):
        if self.way.is_trained:
            torch.compiler.reset()
            compiled = torch.compile(self.program, backend="fovea", dynamic=self.is_dynamic, options={"rest": "eager"})
            return lambda arguments: self.run_program(compiled, self.narrow(arguments))
        dynamic = {}
        if self.is_dynamic:
            dynamic = {f"input_{i}": [shape.index(None)] for i, shape in enumerate(self.shapes)}
        compiled = fovea.import_torch(self.program, *self.narrow(self.arguments), target=self.way.target, dynamic=dynamic)
        return lambda arguments: compiled(*self.narrow(arguments))


def as_array(tensor):
    """As arrays of NumPy, which know bfloat16 by a package."""
    tensor = tensor.detach()
    return tensor.float().numpy().astype("bfloat16") if tensor.dtype is torch.bfloat16 else tensor.numpy()
