# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""fovea.torch on a GPU beside PyTorch's own attention, as a table in Markdown: bf16, 32 heads on 8.

    python benchmarks/gpu/pytorch.py

Times are medians of the device's events, of five calls at least, after three. SDPA is PyTorch's choice of its kernels."""

import argparse

from run import Bench, find_torch


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.2, help="for each measurement; default: 0.2")
    options = parser.parse_args()
    torch, reason = find_torch()
    if reason:
        raise SystemExit(f"nothing to measure: {reason}")
    import fovea
    import fovea.torch

    bench, sdpa = Bench(torch, options.seconds), torch.nn.functional.scaled_dot_product_attention

    def make(batch, heads, N, D):
        return torch.randn(batch, heads, N, D, device="cuda", dtype=torch.bfloat16)

    def row(name, ours, theirs=None):
        time = bench.time(ours) * 1e3
        other = bench.time(theirs) * 1e3 if theirs else None
        beside = f"{other:.3g} ms | {other / time:.2f}x" if other else " | "
        print(f"| {name} | {time:.3g} ms | {beside} |", flush=True)

    def dense(N, D):
        inputs = [make(1, heads, N, D) for heads in (32, 8, 8)]
        d_out = torch.randn_like(inputs[0])

        def ours():
            return fovea.torch.dense(*inputs, causal=True)

        def theirs():
            return sdpa(*inputs, is_causal=True, enable_gqa=True)

        row(f"forward, {N} tokens, D = {D}", ours, theirs)
        for each in inputs:
            each.requires_grad_()
        row(f"training, {N} tokens, D = {D}", lambda: torch.autograd.grad(ours(), inputs, d_out),
            lambda: torch.autograd.grad(theirs(), inputs, d_out))

    def decode(batch, keys):
        q, k, v = make(batch, 32, 1, 128), make(batch, 8, keys, 128), make(batch, 8, keys, 128)
        row(f"one query of {keys} keys, batch {batch}, D = 128", lambda: fovea.torch.dense(q, k, v),
            lambda: sdpa(q, k, v, enable_gqa=True))

    def decode_in_graphs(batch, keys):
        """What a model that generates tokens does: recorded once, launched for each."""
        q, k, v = make(batch, 32, 1, 128), make(batch, 8, keys, 128), make(batch, 8, keys, 128)

        def record(call):
            call()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                call()
            return graph.replay

        row(f"the same in a CUDA graph, {keys} keys, batch {batch}", record(lambda: fovea.torch.dense(q, k, v)),
            record(lambda: sdpa(q, k, v, enable_gqa=True)))

    print("| | Fovea | SDPA | |\n|---|---|---|---|")
    for D in (64, 128):
        for N in (1024, 4096, 16384):
            dense(N, D)
    q, k, v = (make(1, heads, 16384, 128) for heads in (32, 8, 8))
    row("soft-cap of scores, forward, 16384 tokens, D = 128",
        lambda: fovea.torch.dense(q, k, v, causal=True, score=lambda s, b, h, i, j: 50 * fovea.math.tanh(s / 50)))
    row("window of 1024, forward, 16384 tokens, D = 128", lambda: fovea.torch.dense(q, k, v, causal=True, window=1024))
    for batch, keys in ((1, 8192), (16, 8192), (1, 131072)):
        decode(batch, keys)
        decode_in_graphs(batch, keys)
    inputs = [make(1, heads, 65536, 128) for heads in (64, 8, 8)]
    weights = [torch.full((1, 4, 128 << level, 128), 4 / (128 << level), device="cuda", dtype=torch.bfloat16)
               for level in range(8)]

    def multipole():
        return fovea.torch.fast_multipole(*inputs, weights, weights, group=128, causal=True)

    row("fast multipole, forward, 65536 tokens, D = 128, 64 heads", multipole)
    for each in inputs:
        each.requires_grad_()
    d_out = torch.randn_like(inputs[0])
    row("the same, training", lambda: torch.autograd.grad(multipole(), inputs, d_out))


if __name__ == "__main__":
    main()
