# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls of functions whose kernels are for all lengths, with any number of sequences and tokens."""

import numpy as np
from conftest import TYPES, make, make_biases, make_weights

import fovea

H, G, D, E, S, BLOCK = 4, 2, 16, 9, 7, 8
#: Of fast multipole attention, with weights for MOST tokens.
GROUP, MOST = 4, 300


class Tokens:
    """Arrays for B sequences of N tokens, which no other function has computed."""

    def __init__(self, type, B, N):
        self.B, self.N = B, N
        self.type = TYPES[type]
        self.state = np.dtype(np.float64 if type == "float64" else np.float32)
        self.rng = np.random.default_rng(N)
        self.q, self.k, self.v = make(type, B=B, H=H, G=G, N=N, D=D, E=E, seed=N)
        self.codebook = self.data(G, S, D)
        self.codes = self.rng.integers(0, S, (B, G, N)).astype(np.int32)
        self.mask = self.rng.random((B, N)) < 0.7

    def data(self, *shape):
        return self.rng.standard_normal(shape).astype(self.type)

    def sums(self, *shape):
        return self.rng.standard_normal(shape).astype(self.state)

    def vq_state(self):
        B = self.B
        return fovea.VQState(
            self.sums(B, G, S, E), self.rng.integers(0, 9, (B, G, S)).astype(np.int32),
            self.rng.integers(0, S, (B, G, 2 * BLOCK)).astype(np.int32),
            self.data(B, G, 2 * BLOCK, E), np.array(3 * BLOCK + 5, np.int64),
        )  # fmt: skip

    def results(self):
        """An output, an lse and the gradient of the output, of any numbers."""
        return self.data(*self.q.shape[:3], E), 3 + self.sums(*self.q.shape[:3]), self.data(*self.q.shape[:3], E)


def pool(tokens):
    return fovea.pool, (tokens.q, tokens.q), {"interval": 3, "overlap": 2}


def pool_backward(tokens):
    d_out = tokens.q[:, :, : tokens.N // 3].copy()
    bias = tokens.data(3, D)
    return fovea.pool_backward, (d_out, tokens.q, tokens.q), {"interval": 3, "position_bias": bias}


def top_k(tokens):
    return fovea.top_k, (tokens.q, 3), {"causal_unit": 2}


def rope(tokens):
    return fovea.rope, (tokens.q, np.arange(tokens.N)), {}


def rope_of_each_head(tokens):
    positions = tokens.rng.integers(0, 1000, (tokens.B, H, tokens.N))
    return fovea.rope, (tokens.q, positions.astype(np.int32)), {"width": 8, "style": "half"}


def rope_backward(tokens):
    return fovea.rope_backward, (tokens.q, np.arange(tokens.N)), {}


def quantize(tokens, **options):
    return fovea.quantize, (tokens.k, tokens.codebook), options


def quantize_mask(tokens):
    return quantize(tokens, mask=tokens.mask)


def codebook_update(tokens, **options):
    sums, counts = tokens.sums(G, S, D), 1 + tokens.sums(G, S) ** 2
    return fovea.codebook_update, (tokens.k, tokens.codes, sums, counts), options


def codebook_update_replacing(tokens):
    return codebook_update(tokens, replace_below=0.9, seed=3)


def commitment_loss(tokens):
    return fovea.commitment_loss, (tokens.k, tokens.data(*tokens.k.shape)), {}


def commitment_loss_mask(tokens):
    return fovea.commitment_loss, (tokens.k, tokens.data(*tokens.k.shape)), {"mask": tokens.mask}


def commitment_loss_backward(tokens):
    return fovea.commitment_loss_backward, (0.5, tokens.k, tokens.data(*tokens.k.shape)), {"mask": tokens.mask}


def vq(tokens, **options):
    arrays = tokens.q, tokens.k, tokens.v, tokens.codebook
    return fovea.vq, arrays, {"block": BLOCK, "scale": 0.3, **options}


def vq_codes(tokens):
    arrays = tokens.q, tokens.codes, tokens.v, tokens.codebook
    return fovea.vq, arrays, {"block": BLOCK, "return_lse": True}


def vq_mask(tokens):
    return vq(tokens, mask=tokens.mask, return_lse=True)


def vq_encoder(tokens):
    return vq(tokens, causal=False)


def vq_bias(tokens):
    return vq(tokens, bias=tokens.data(H, tokens.N, 2 * BLOCK))


def vq_squared_relu(tokens):
    return vq(tokens, weighting="squared_relu")


def vq_matmul(tokens):
    return vq(tokens, reduction="matmul")


def vq_associative(tokens):
    return vq(tokens, reduction="associative")


def vq_state(tokens):
    return vq(tokens, state=tokens.vq_state(), return_state=True)


def vq_backward(tokens, **options):
    out, lse, d_out = tokens.results()
    arrays = d_out, tokens.q, tokens.k, tokens.v, tokens.codebook, out, lse
    return fovea.vq_backward, arrays, {"block": BLOCK, "scale": 0.3, **options}


def vq_backward_mask(tokens):
    return vq_backward(tokens, mask=tokens.mask, d_lse=tokens.sums(*tokens.q.shape[:3]))


def vq_backward_bias(tokens):
    return vq_backward(tokens, bias=tokens.data(tokens.B, H, tokens.N, 2 * BLOCK))


def vq_backward_state(tokens):
    return vq_backward(tokens, state=tokens.vq_state())


def vq_backward_encoder(tokens):
    return vq_backward(tokens, causal=False)


def _multipole(tokens, heads, with_biases):
    """Weights of query, key and value, as far as there are `heads` of them, and their biases."""
    type = str(tokens.type)
    names = ["query", "key", "value"][-len(heads):]
    widths = [D, D, E][-len(heads):]
    weights = [make_weights(MOST, GROUP, 2, width, W, type) for width, W in zip(widths, heads, strict=True)]
    biases = {
        f"{name}_biases": make_biases(MOST, GROUP, 2, width, W, type)
        for name, width, W in zip(names, widths, heads, strict=True) if with_biases
    }  # fmt: skip
    return weights, {"group": GROUP, **biases}


def fast_multipole(tokens, with_biases=False, **more):
    weights, options = _multipole(tokens, (2, 1), with_biases)
    arrays = tokens.q, tokens.k, tokens.v, *weights
    return fovea.fast_multipole, arrays, {**options, "return_lse": True, **more}


def fast_multipole_causal(tokens):
    return fast_multipole(tokens, with_biases=True, causal=True)


def fast_multipole_mask(tokens):
    return fast_multipole(tokens, with_biases=True, mask=tokens.mask)


def fast_multipole_counted_once(tokens):
    return fast_multipole(tokens, multiplicity=False)


def fast_multipole_backward(tokens, with_biases=True, **more):
    weights, options = _multipole(tokens, (2, 1), with_biases)
    out, lse, d_out = tokens.results()
    arrays = d_out, tokens.q, tokens.k, tokens.v, *weights, out, lse
    return fovea.fast_multipole_backward, arrays, {**options, **more}


def fast_multipole_backward_causal(tokens):
    return fast_multipole_backward(tokens, causal=True)


def fast_multipole_backward_mask(tokens):
    return fast_multipole_backward(tokens, mask=tokens.mask)


def fast_multipole_linear(tokens, with_biases=True, **more):
    weights, options = _multipole(tokens, (4, 2, 1), with_biases)
    return fovea.fast_multipole_linear, (tokens.q, tokens.k, tokens.v, *weights), {**options, **more}


def fast_multipole_linear_causal(tokens):
    return fast_multipole_linear(tokens, causal=True, allow_query_lookahead=True)


def fast_multipole_linear_mask(tokens):
    return fast_multipole_linear(tokens, mask=tokens.mask)


def fast_multipole_linear_backward(tokens, **more):
    weights, options = _multipole(tokens, (4, 2, 1), with_biases=True)
    arrays = tokens.results()[2], tokens.q, tokens.k, tokens.v, *weights
    return fovea.fast_multipole_linear_backward, arrays, {**options, **more}


def fast_multipole_linear_backward_mask(tokens):
    return fast_multipole_linear_backward(tokens, mask=tokens.mask)


SEARCH = {"num_basis": 3, "window": 1, "delta": 0.5, "epsilon": 0.01}


def conv(tokens, **options):
    return fovea.conv, (tokens.q, tokens.k, tokens.v), {**SEARCH, **options}


def conv_mask(tokens):
    return conv(tokens, token_mask=tokens.mask)


def conv_toeplitz(tokens):
    return conv(tokens, algorithm="toeplitz")


def conv_backward(tokens, **options):
    out, _, d_out = tokens.results()
    return fovea.conv_backward, (d_out, tokens.q, tokens.k, tokens.v, out), {**SEARCH, **options}


def conv_backward_mask(tokens):
    return conv_backward(tokens, token_mask=tokens.mask)


def conv_recover(tokens):
    return fovea.conv_recover, (tokens.q, tokens.k), SEARCH


def _bases(tokens):
    """Three for each head, of which the second begins behind the first third of the tokens."""
    sizes = np.array([tokens.N, tokens.N - tokens.N // 3, 0], np.int32) * (np.arange(3) < 1 + (tokens.N > 2))
    return tokens.sums(tokens.B, H, 3, tokens.N), np.broadcast_to(sizes.astype(np.int32), (tokens.B, H, 3)).copy()


def conv_apply(tokens, **options):
    return fovea.conv_apply, (*_bases(tokens), tokens.v), options


def conv_apply_backward(tokens):
    out, _, d_out = tokens.results()
    return fovea.conv_apply_backward, (d_out, *_bases(tokens), tokens.v, out), {}


def conv_recover_backward(tokens):
    b, sizes = _bases(tokens)
    return fovea.conv_recover_backward, (b, tokens.q, tokens.k, sizes), {}


def polynomial_features(tokens):
    return fovea.polynomial_features, (tokens.q,), {"degree": 2, "scale": 0.2}


def polynomial_features_backward(tokens):
    d_out = tokens.data(tokens.B, H, tokens.N, 153)
    return fovea.polynomial_features_backward, (d_out, tokens.q), {"degree": 2, "scale": 0.2}


def low_rank(tokens, mask=None, **options):
    """Factors without negative numbers, so that no sum of weights is near 0."""
    mask = fovea.Causal() if mask is None else mask
    return fovea.low_rank, (abs(tokens.q), abs(tokens.k), tokens.v), {"mask": mask, **options}


def low_rank_masked(tokens):
    return low_rank(tokens, query_mask=tokens.mask, key_mask=tokens.mask[:, ::-1])


def _intervals(tokens):
    return fovea.RowInterval(*np.sort(tokens.rng.integers(0, max(tokens.N, 1), (2, 1, H, tokens.N)), axis=0))


def low_rank_intervals(tokens):
    return low_rank(tokens, _intervals(tokens))


def _changes(tokens):
    return fovea.RowChange.from_entries(tokens.rng.random((tokens.N, tokens.N)) < 0.3)


def low_rank_changes(tokens):
    return low_rank(tokens, _changes(tokens))


def _groups(tokens, kind):
    """As many different rows as there are prime factors of 2, say."""
    number = 1 + (tokens.N & -tokens.N).bit_length()
    group = tokens.rng.integers(0, number, tokens.N).astype(np.int32)
    return kind(group, tokens.rng.random((number, tokens.N)) < 0.5)


def low_rank_distinct_rows(tokens):
    return low_rank(tokens, _groups(tokens, fovea.DistinctRows))


def low_rank_distinct_columns(tokens):
    return low_rank(tokens, _groups(tokens, fovea.DistinctColumns))


def low_rank_backward(tokens, mask=None, **options):
    _, arrays, options = low_rank(tokens, mask, **options)
    out, _, d_out = tokens.results()
    return fovea.low_rank_backward, (d_out, *arrays, out), options


def low_rank_backward_masked(tokens):
    return low_rank_backward(tokens, query_mask=tokens.mask)


def low_rank_backward_intervals(tokens):
    return low_rank_backward(tokens, _intervals(tokens))


def low_rank_backward_changes(tokens):
    return low_rank_backward(tokens, _changes(tokens))


def low_rank_backward_distinct_rows(tokens):
    return low_rank_backward(tokens, _groups(tokens, fovea.DistinctRows))


def low_rank_backward_distinct_columns(tokens):
    return low_rank_backward(tokens, _groups(tokens, fovea.DistinctColumns))


CASES = [
    pool, pool_backward, top_k, polynomial_features, polynomial_features_backward, low_rank, low_rank_masked, low_rank_intervals,
    low_rank_changes, low_rank_distinct_rows, low_rank_distinct_columns, low_rank_backward, low_rank_backward_masked,
    low_rank_backward_intervals, low_rank_backward_changes, low_rank_backward_distinct_rows,
    low_rank_backward_distinct_columns, rope, rope_of_each_head, rope_backward, quantize, quantize_mask,
    codebook_update, codebook_update_replacing,
    commitment_loss, commitment_loss_mask, commitment_loss_backward, vq, vq_codes, vq_mask, vq_encoder, vq_bias,
    vq_squared_relu, vq_matmul, vq_associative, vq_state, vq_backward, vq_backward_mask, vq_backward_bias,
    vq_backward_state, vq_backward_encoder,
]  # fmt: skip
#: What has no mean of no tokens, or no window among them.
NEED_TOKENS = {
    commitment_loss, commitment_loss_mask, commitment_loss_backward, conv, conv_mask, conv_toeplitz, conv_backward,
    conv_backward_mask, conv_recover,
}  # fmt: skip

#: Whose kernels for all lengths are chosen by "dynamic" alone: slower than others, with other bits.
DYNAMIC_CASES = [
    conv, conv_mask, conv_toeplitz, conv_backward, conv_backward_mask, conv_recover, conv_apply, conv_apply_backward,
    conv_recover_backward, fast_multipole, fast_multipole_causal, fast_multipole_mask, fast_multipole_counted_once, fast_multipole_backward,
    fast_multipole_backward_causal, fast_multipole_backward_mask, fast_multipole_linear, fast_multipole_linear_causal,
    fast_multipole_linear_mask, fast_multipole_linear_backward, fast_multipole_linear_backward_mask,
]  # fmt: skip
