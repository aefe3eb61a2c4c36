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


def dense(tokens, **options):
    return fovea.dense, (tokens.q, tokens.k, tokens.v), {"causal": True, "return_lse": True, **options}


def dense_backward(tokens):
    out, lse, d_out = tokens.results()
    return fovea.dense_backward, (d_out, tokens.q, tokens.k, tokens.v, out, lse), {"causal": True}


def _sources(tokens):
    near = fovea.Source(tokens.k, tokens.v, causal=True, ranges=lambda b, rows, n: (8 * b - 8, 8 * b + 8))
    summaries = [x[:, :, ::8].copy() for x in (tokens.k, tokens.v)]
    return [near, fovea.Source(*summaries, ranges=lambda b, rows, n: (0, b - 1))]


def stream(tokens):
    return fovea.stream, (tokens.q, _sources(tokens)), {"block": 8, "sink": tokens.sums(1, H), "return_lse": True}


def stream_backward(tokens):
    out, lse, d_out = tokens.results()
    return fovea.stream_backward, (d_out, tokens.q, _sources(tokens), out, lse), {"block": 8, "sink": tokens.sums(1, H)}


def _hca(tokens):
    arrays = tokens.q, tokens.data(tokens.B, G, tokens.N, D), tokens.data(tokens.B, G, tokens.N // 4, D)
    return arrays, {"window": 5, "interval": 4, "sink": tokens.sums(1, H)}


def hca(tokens):
    return fovea.hca, *_hca(tokens)


def hca_backward(tokens):
    arrays, options = _hca(tokens)
    out, lse, _ = (tokens.data(*tokens.q.shape), *tokens.results()[1:])
    return fovea.hca_backward, (tokens.data(*tokens.q.shape), *arrays, out, lse), options


def _selected(tokens):
    rows = tokens.rng.integers(-1, max(1, tokens.N // 4), (tokens.B, G, tokens.N, 3)).astype(np.int32)
    options = {"unit": 4, "local": (tokens.k, tokens.v), "window": 5, "sink": tokens.sums(1, H)}
    return (tokens.q, tokens.k, tokens.v, rows), options


def selected(tokens):
    return fovea.selected, *_selected(tokens)


def selected_backward(tokens):
    (arrays, options), (out, lse, d_out) = _selected(tokens), tokens.results()
    return fovea.selected_backward, (d_out, *arrays, out, lse), options


def paged(tokens):
    """A token of each sequence, and as many pages as they have, in any order."""
    count = tokens.N // 8 + 1
    pages = tokens.data(tokens.B * count, G, 8, D), tokens.data(tokens.B * count, G, 8, E)
    table = tokens.rng.permutation(tokens.B * count).reshape(tokens.B, count).astype(np.int32)
    return fovea.paged, (tokens.q[:, :, :1].copy(), *pages, table, np.full(tokens.B, tokens.N)), {"window": 30}


def _packed(tokens):
    return [x.swapaxes(1, 2).reshape(-1, x.shape[1], x.shape[3]).copy() for x in (tokens.q, tokens.k, tokens.v)]


def varlen(tokens):
    starts = np.arange(tokens.B + 1, dtype=np.int32) * tokens.N
    return fovea.varlen, (*_packed(tokens), starts, starts), {"causal": True}


def varlen_backward(tokens):
    starts = np.arange(tokens.B + 1, dtype=np.int32) * tokens.N
    q, k, v = _packed(tokens)
    out, lse = tokens.data(len(q), H, E), 3 + tokens.sums(H, len(q))
    return fovea.varlen_backward, (tokens.data(len(q), H, E), q, k, v, starts, starts, out, lse), {"causal": True}


def vq_decode(tokens):
    """Of which only the number of sequences is a length."""
    step = tokens.data(tokens.B, H, 1, D), tokens.rng.integers(0, S, (tokens.B, G, 1)).astype(np.int32)
    return fovea.vq_decode, (*step, tokens.data(tokens.B, G, 1, E), tokens.codebook), {"block": BLOCK}


def _tree(tokens, levels=1, with_counts=False):
    """One more root than there are tokens, of any rows, which a tree may have."""
    ratio, roots = 4 if levels == 1 else 2, tokens.N + 1
    nodes = roots * (ratio ** (levels + 1) - 1) // (ratio - 1)
    counts = tokens.rng.integers(1, 9, (tokens.B, nodes)).astype(np.int32) if with_counts else None
    return fovea.Tree(tokens.data(tokens.B, nodes, D), counts, ratio, levels)


def _cover(tree):
    """Every root, but of the first one its nodes of the level below."""
    below = [tree.levels - 1] * tree.ratio + [tree.levels] * (tree.roots - 1)
    return below, [*range(tree.ratio), *range(1, tree.roots)]


def tree_build(tokens, levels=1, **options):
    c = tokens.data(tokens.B, (tokens.N + 1) * (4 if levels == 1 else 2**levels), D)
    return fovea.tree_build, (c,), {"ratio": 4 if levels == 1 else 2, "levels": levels, **options}


def tree_build_deep(tokens):
    return tree_build(tokens, levels=5)


def tree_build_mask(tokens):
    return tree_build(tokens, levels=3, mask=tokens.rng.random((tokens.B, 8 * (tokens.N + 1))) < 0.7)


def tree_build_backward(tokens, **options):
    tree = _tree(tokens, **options)
    return fovea.tree_build_backward, (tokens.data(*tree.nodes.shape), tree), {}


def tree_build_backward_mask(tokens):
    return tree_build_backward(tokens, levels=2, with_counts=True)


def tree_materialize(tokens):
    return fovea.tree_materialize, (_tree(tokens, levels=3),), {}


def tree_materialize_backward(tokens):
    tree = _tree(tokens, levels=2)
    return fovea.tree_materialize_backward, (tokens.data(*tree.shape), tree), {}


def tree_fetch(tokens):
    tree = _tree(tokens, levels=3, with_counts=True)
    return fovea.tree_fetch, (tree, *_cover(tree)), {"return_log_weight": True}


def tree_fetch_backward(tokens):
    tree = _tree(tokens)
    nodes = _cover(tree)
    return fovea.tree_fetch_backward, (tokens.data(tokens.B, len(nodes[0]), D), tree, *nodes), {}


def tree_update(tokens, **options):
    tree = _tree(tokens, **options)
    nodes = _cover(tree)
    return fovea.tree_update, (tree, *nodes, tokens.data(tokens.B, len(nodes[0]), D)), {}


def tree_update_mask(tokens):
    return tree_update(tokens, levels=3, with_counts=True)


def tree_update_backward(tokens):
    tree = _tree(tokens, levels=2, with_counts=True)
    return fovea.tree_update_backward, (tokens.data(*tree.nodes.shape), tree, *_cover(tree)), {}


def tree_score(tokens, **options):
    keys = tokens.data(tokens.B, G, tokens.N + 1, D)
    return fovea.tree_score, (tokens.q, keys), {"mask": tokens.mask, **options}


def tree_score_exponential(tokens):
    return fovea.tree_score, (tokens.q[:, :1].copy(), tokens.data(tokens.B, 1, tokens.N + 1, D)), {"exponential": True}


def tree_score_backward(tokens):
    _, arrays, options = tree_score(tokens)
    return fovea.tree_score_backward, (tokens.sums(tokens.B, tokens.N + 1), *arrays), options


def tree_select(tokens):
    tree = _tree(tokens, levels=2, with_counts=True)
    return fovea.tree_select, (tree, {2: 1, 1: 1}), {"score": tokens.data(tokens.B, 5, D)}


CASES = [
    dense, dense_backward, stream, stream_backward, hca, hca_backward, selected, selected_backward, paged, varlen, varlen_backward,
    vq_decode, tree_build, tree_build_deep, tree_build_mask, tree_build_backward, tree_build_backward_mask, tree_materialize,
    tree_materialize_backward, tree_fetch, tree_fetch_backward, tree_update, tree_update_mask, tree_update_backward, tree_score,
    tree_score_exponential, tree_score_backward, tree_select,
    pool, pool_backward, top_k, polynomial_features, polynomial_features_backward, low_rank, low_rank_masked, low_rank_intervals,
    low_rank_changes, low_rank_distinct_rows, low_rank_distinct_columns, low_rank_backward, low_rank_backward_masked,
    low_rank_backward_intervals, low_rank_backward_changes, low_rank_backward_distinct_rows,
    low_rank_backward_distinct_columns, rope, rope_of_each_head, rope_backward, quantize, quantize_mask,
    codebook_update, codebook_update_replacing,
    commitment_loss, commitment_loss_mask, commitment_loss_backward, vq, vq_codes, vq_mask, vq_encoder, vq_bias,
    vq_squared_relu, vq_matmul, vq_associative, vq_state, vq_backward, vq_backward_mask, vq_backward_bias,
    vq_backward_state, vq_backward_encoder,
]  # fmt: skip
#: What has no mean of no tokens, or no window among them, or looks from VIP tokens.
NEED_TOKENS = {
    commitment_loss, commitment_loss_mask, commitment_loss_backward, conv, conv_mask, conv_toeplitz, conv_backward,
    conv_backward_mask, conv_recover, tree_score, tree_score_exponential, tree_score_backward,
}  # fmt: skip
#: Which sum over several sources, all queries, or all keys at once, in tiles and vectors that are chosen by the length.
SUM_OTHERWISE = {stream, stream_backward, hca, hca_backward, selected_backward, commitment_loss, commitment_loss_mask}

#: Where it is not one, how many kernels there are for a hundred lengths. A window that reaches everything is none; a list for
#: one block of queries is for all of them, and rows of one token have no strides. A choice scores and fetches candidates, and
#: splits roots and others.
KERNELS = {hca: 2, hca_backward: 2, selected: 3, selected_backward: 3, paged: 2, varlen: 2, varlen_backward: 2, tree_select: 4}

#: Whose kernels for all lengths are chosen by "dynamic" alone: slower than others, with other bits.
DYNAMIC_CASES = [
    conv, conv_mask, conv_toeplitz, conv_backward, conv_backward_mask, conv_recover, conv_apply, conv_apply_backward,
    conv_recover_backward, fast_multipole, fast_multipole_causal, fast_multipole_mask, fast_multipole_counted_once, fast_multipole_backward,
    fast_multipole_backward_causal, fast_multipole_backward_mask, fast_multipole_linear, fast_multipole_linear_causal,
    fast_multipole_linear_mask, fast_multipole_linear_backward, fast_multipole_linear_backward_mask,
]  # fmt: skip
