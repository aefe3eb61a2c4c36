# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Times of fovea.jax.dense and jax.nn.dot_product_attention, forward and with gradients.

    PYTHONPATH=build/python python benchmarks/jax_attention.py [--threads 1] [--longest 1024]

Prints a table in Markdown.  Both are compiled by jax.jit; each number is the median of
calls that alternate.
"""

import argparse
import functools
import os
import statistics
import time

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--threads", type=int, default=1)
parser.add_argument("--seconds", type=float, default=1.0, help="of every row, for each of the two")
parser.add_argument("--longest", type=int, default=4096, help="leaves out rows of more tokens")
options = parser.parse_args()
if options.longest < 64:
    parser.error(f"--longest: found {options.longest}, needed at least 64")
# Read when the libraries start.
os.environ["FOVEA_NUM_THREADS"] = str(options.threads)
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.threads])

import numpy as np  # noqa: E402
from fovea_bench.packages import needed  # noqa: E402

with needed("jax"):
    import jax
    import jax.numpy as jnp

import fovea.jax  # noqa: E402

SHAPES = [(1, 8, 8, 64, 64), (1, 8, 8, 256, 64), (1, 8, 8, 1024, 64), (1, 8, 2, 1024, 128), (1, 4, 4, 4096, 64)]


def measure(functions):
    """Medians of calls that alternate, in milliseconds."""
    times = [[] for _ in functions]
    for function in functions:
        jax.block_until_ready(function())
    start = time.perf_counter()
    while time.perf_counter() - start < options.seconds * len(functions) or len(times[0]) < 5:
        for function, found in zip(functions, times):
            before = time.perf_counter()
            jax.block_until_ready(function())
            found.append(1e3 * (time.perf_counter() - before))
    return [statistics.median(found) for found in times]


def compile_gradient(function):
    def loss(*arrays):
        return function(*arrays).astype(jnp.float32).sum()

    return jax.jit(jax.grad(loss, (0, 1, 2)))


def main():
    print("| B H G N D | type | causal | forward: fovea, ms | jax, ms | ratio | with gradients: fovea, ms | jax, ms | ratio |")
    print("|---|---|---|---|---|---|---|---|---|")
    for B, H, G, N, D in (shape for shape in SHAPES if shape[3] <= options.longest):
        for type in ("float32", "bfloat16"):
            for causal in (False, True):
                rng = np.random.default_rng(0)
                q, k, v = (
                    jnp.asarray(rng.standard_normal(shape), type)
                    for shape in ((B, H, N, D), (B, G, N, D), (B, G, N, D))
                )
                # JAX's arrays are [B,N,H,D]: as a program of its own would have them.
                turned = tuple(jnp.swapaxes(each, 1, 2) for each in (q, k, v))
                calls = (
                    (functools.partial(fovea.jax.dense, causal=causal), (q, k, v)),
                    (functools.partial(jax.nn.dot_product_attention, is_causal=causal), turned),
                )
                cells = []
                for transform in (jax.jit, compile_gradient):
                    one, two = measure([functools.partial(transform(each), *arrays) for each, arrays in calls])
                    cells += [f"{one:.3f}", f"{two:.3f}", f"{two / one:.2f}"]
                print("|", " | ".join([f"{B} {H} {G} {N} {D}", type, "yes" if causal else "no", *cells]), "|", flush=True)


main()
