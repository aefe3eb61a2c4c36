# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Central differences in float64."""

import numpy as np

STEP = 1e-4


def check_gradients(forward, backward, arrays, bound=1e-6, directions=3, seed=5):
    """Compares `backward` with central differences of a random linear function
    of the results of `forward`, along random directions and at single entries.

    `forward(*arrays)` gives the output and a log-sum-exp or None;
    `backward(d_out, d_lse, out, lse, *arrays)` a gradient for every array.
    """
    rng = np.random.default_rng(seed)
    out, lse = forward(*arrays)
    d_out = rng.standard_normal(out.shape)
    d_lse = None
    if lse is not None:
        # A row that reads nothing has no gradient.
        d_lse = np.where(np.isfinite(lse), rng.standard_normal(lse.shape), 0.0)

    def value(arguments):
        out, lse = forward(*arguments)
        total = (out * d_out).sum()
        if lse is not None:
            total += (np.where(np.isfinite(lse), lse, 0.0) * d_lse).sum()
        return total

    gradients = backward(d_out, d_lse, out, lse, *arrays)
    assert len(gradients) == len(arrays)
    for index, (array, gradient) in enumerate(zip(arrays, gradients)):
        assert gradient.shape == array.shape, f"argument {index}: {gradient.shape}"
        steps = [rng.standard_normal(array.shape) for _ in range(directions)]
        for _ in range(directions):
            steps.append(np.zeros(array.shape))
            steps[-1].flat[rng.integers(array.size)] = 1.0
        # The error of a difference is that of the largest one.
        size = max(abs((gradient * step).sum()) for step in steps)
        for step in steps:
            # Two step sizes take out the error that grows with its square.
            halves = []
            for width in (STEP, 2 * STEP):
                moved = [list(arrays), list(arrays)]
                moved[0][index] = array + width * step
                moved[1][index] = array - width * step
                halves.append((value(moved[0]) - value(moved[1])) / (2 * width))
            want = (4 * halves[0] - halves[1]) / 3
            error = abs((gradient * step).sum() - want)
            assert error <= bound * max(size, 1e-3), (
                f"argument {index}: error {error:.3g} of {size:.3g}"
            )
