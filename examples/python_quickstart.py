# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention from Python: dense and hierarchical, and IR of your own.

After utils/build.sh:

    PYTHONPATH=build/python .venv/bin/python examples/python_quickstart.py
"""

from pathlib import Path

import numpy as np

import fovea
from fovea import reference

# Queries, keys and values of one layer of a small transformer over a page of
# text: [batch, heads, tokens, head width].
data = Path(__file__).resolve().parent / "data"
q, k, v = (np.load(data / f"{name}.npy") for name in "qkv")

# Dense attention. The first call compiles for these shapes, later ones do not.
out, lse = fovea.dense(q, k, v, causal=True, return_lse=True)
error = np.abs(out - reference.dense(q, k, v, causal=True)).max()
print(f"dense: out {out.shape} {out.dtype}, lse {lse.shape}, error {error:.0e}")
assert error < 1e-5

# Fast multipole attention: groups of 64 tokens exactly, older ones through 4
# averages for each interval of 64 and, farther away, of 128.
group, rank, width = 64, 4, q.shape[-1]
weights = [
    reference.average_weights(rank, group << level, width).astype(np.float32)
    for level in range(reference.num_levels(q.shape[2], group))
]
near = fovea.fast_multipole(q, k, v, weights, weights, group=group, causal=True)
exact = reference.fast_multipole(q, k, v, weights, weights, group=group, causal=True)
error = np.abs(near - exact).max()
print(f"fast multipole: {len(weights)} levels, error {error:.0e}")
assert error < 1e-5

# IR of your own. Extents written `?` may differ from call to call.
attend = fovea.compile("""
  !tokens = tensor<1x12x?x32xf32>
  func.func @attend(%q: !tokens, %k: !tokens, %v: !tokens, %init: !tokens) -> !tokens {
    %out = attn.dense ins(%q, %k, %v : !tokens, !tokens, !tokens)
        outs(%init : !tokens) {mask = #attn.mask<window = 16>} -> !tokens
    return %out : !tokens
  }
""")
print(attend)
for tokens in (100, 512):
    inputs = [x[:, :, :tokens] for x in (q, k, v)]
    out = attend(*inputs, np.empty_like(inputs[0]))
    assert np.allclose(out, reference.dense(*inputs, window=16), atol=1e-5)

# What does not fit is said before anything runs.
try:
    fovea.dense(q, k, v[:, :5])
except ValueError as reason:
    print("ValueError:", reason)
