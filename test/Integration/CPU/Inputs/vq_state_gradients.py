# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""States of attn.vq and gradients for them, as operations lay them out and as the
NumPy reference does: token t in row t mod (memory + 1) L, and the tokens that are read one by
one, oldest first."""

import numpy as np
from cases import normal, state
from kernels import NAMES


def kept_rows(position, block, memory):
    """The rows of the tokens that are read one by one, oldest first."""
    return np.arange(max(position // block - memory, 0) * block, position) % ((memory + 1) * block)


def make_state(rng, position, block, memory, B, G, S, E, dtype):
    """The five parts of a state that `position` tokens have left."""
    kept = (memory + 1) * block
    # Nothing is older than the first blocks.
    count = rng.integers(0, 4, (B, G, S), np.int32) * (position >= kept)
    mean = normal(rng, (B, G, S, E), state(dtype)) * (count > 0)[..., None]
    codes = rng.integers(0, S, (B, G, kept), np.int32)
    values = normal(rng, (B, G, kept, E), dtype)
    return [mean.astype(NAMES[state(dtype)]), count.astype(np.int32), codes, values, np.array(position)]


def make_gradient(rng, kept, B, G, S, D, E, dtype, sums):
    """Gradients for the means, the kept keys and the kept values."""
    return [normal(rng, (B, G, S, E), state(dtype)), normal(rng, (B, G, kept, D), sums),
            normal(rng, (B, G, kept, E), sums)]  # fmt: skip


def reference_state(reference, parts, block, memory):
    mean, count, codes, values, position = parts
    rows = kept_rows(int(position), block, memory)
    return reference.VQState(mean, count, codes[:, :, rows], values[:, :, rows], int(position))


def forward(reference, inputs, parts, *, causal, **options):
    """The results `output` and `lse` of attn.vq."""
    if not parts:
        return reference.vq(*inputs, causal=causal, **options, return_lse=True)
    state = reference_state(reference, parts, options["block"], options["memory"])
    return reference.vq_linear(*inputs, state=state, **options, return_lse=True)


def backward(reference, d_out, inputs, parts, d_next, *, block, memory, **options):
    """What attn.vq_backward computes: the gradients of query, keys, values, bias and
    terms by distance, and with a state of its three parts."""
    length, kept = d_out.shape[2], (memory + 1) * block
    position = int(parts[4]) if parts else 0
    rows, next_rows = (kept_rows(end, block, memory) for end in (position, position + length))
    if parts:
        options["state"] = reference_state(reference, parts, block, memory)
    if d_next:
        options["d_next_state"] = reference.VQStateGradient(
            d_next[0], *(part[:, :, next_rows] for part in d_next[1:]))  # fmt: skip
    d_q, d_k, d_v, d_bias, *last = reference.vq_backward(d_out, *inputs, block=block, memory=memory, **options)
    has_distances = any(options.get(name) is not None for name in ("relative", "distance_bias"))
    d_terms = last.pop(0) if has_distances else (None, None, None)
    d_state = []
    for gradient, part in ((d_k, 1), (d_v, 2)):
        d_kept = np.zeros((*gradient.shape[:2], kept, gradient.shape[3]))
        if parts:
            d_kept[:, :, rows] = last[0][part]
        if d_next:
            # Rows of tokens that nothing reads any more pass on what they get: to
            # the window if it wrote them, else to the state.
            unread = np.setdiff1d(np.arange(kept), next_rows)
            age = (unread - position) % kept
            is_kept = age >= length
            d_kept[:, :, unread[is_kept]] += d_next[part][:, :, unread[is_kept]]
            unread, age = unread[~is_kept], age[~is_kept]
            gradient[:, :, age + (length - 1 - age) // kept * kept] += d_next[part][:, :, unread]
            gradient[inputs[1] < 0] = 0
        if parts:
            d_kept[parts[2] < 0] = 0
        d_state.append(d_kept)
    return d_q, d_k, d_v, d_bias, *d_terms, *([last[0].mean, *d_state] if parts else [])
