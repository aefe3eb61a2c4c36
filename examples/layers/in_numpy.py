# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The layers of this folder in NumPy, float64, with the patterns of fovea.reference.

Each takes the arguments of the function in IR, in its order, and returns its results
as a tuple."""

import numpy as np

from fovea import reference


def rms_norm(x, gain=1.0):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * gain


def silu(x):
    return x / (1 + np.exp(-x))


def to_heads(x, weight):
    return np.einsum("bif,fhd->bhid", x, weight)


def from_heads(x, weight):
    return np.einsum("bhid,hdf->bif", x, weight)


def fast_multipole(x, g1, wq, wk, wv, wo, ks1, ks2, vs1, vs2, g2, up, down):
    n = rms_norm(x, g1)
    q, k, v = (to_heads(n, w) for w in (wq, wk, wv))
    mixed = reference.fast_multipole(q, k, v, [ks1, ks2], [vs1, vs2], group=8, causal=True)
    y = x + from_heads(mixed, wo)
    return (y + silu(rms_norm(y, g2) @ up) @ down,)


def conv_basis(x, gain, wq, wk, wv, wo, positions):
    n = rms_norm(x, gain)
    q, k = (reference.rope(to_heads(n, w), positions) for w in (wq, wk))
    v = to_heads(n, wv)
    search = {"num_basis": 4, "window": 2, "delta": 0.5, "epsilon": 0.05}
    b, sizes = reference.conv_recover(q, k, **search)[:2]
    return (x + from_heads(reference.conv_apply(b, sizes, v), wo),)


class TransformerVQ:
    """The codes of a first call are those of all others, and so are the codewords. What
    separates keys from them is a constant: so derivatives go straight through."""

    def __init__(self):
        self.codes = None

    def __call__(self, x, gain, wqk, wvg, wo, bias, codebook, block=16):
        n = rms_norm(x, gain)
        qk = rms_norm(to_heads(n, wqk)) * wqk.shape[2] ** -0.25
        q, k = qk[:, :1], qk[:, 1:]
        v, gate = np.split(silu(to_heads(n, wvg)), 2, axis=1)
        if self.codes is None:
            self.codes = reference.quantize(k, codebook)[1]
            self.codewords = codebook[0][self.codes]
            self.offsets = self.codewords - k
        i, j = np.arange(x.shape[1])[:, None], np.arange(x.shape[1])
        column = j - (i // block - 1) * block
        near = (column >= 0) & (j <= i)
        # Older tokens are read as codewords, which have no gradient.
        scores = np.where(near, q @ (k + self.offsets).swapaxes(2, 3), q @ self.codewords.swapaxes(2, 3))
        local = np.take_along_axis(bias[0, 0], np.clip(column, 0, bias.shape[3] - 1), 1)
        scores = np.where(j <= i, scores + np.where(near, local, 0), -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = weights / weights.sum(-1, keepdims=True) @ v
        loss = ((k - self.codewords) ** 2).sum(-1).mean()
        return x + from_heads(mixed * gate, wo), np.array(loss)


def vcc(vip, tokens, wq, wk, wv, wo, g1, up, down, g2):
    tree = reference.tree_build(tokens, ratio=8, levels=1)
    vip_q = to_heads(vip, wq)
    level, index = reference.tree_select(
        tree, {1: 3}, score=lambda rows, level: reference.head_probability(vip_q, to_heads(rows, wk))
    )
    rows = reference.tree_fetch(tree, level, index)
    x = np.concatenate([vip, rows], axis=1)
    weight = np.concatenate([np.zeros(vip.shape[:2]), reference.log_weights(tree, level, index)], 1)
    q, k, v = (to_heads(x, w) for w in (wq, wk, wv))
    scores = q @ k.swapaxes(2, 3) * wq.shape[2] ** -0.5 + weight[:, None, None]
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    n1 = rms_norm(x + from_heads(shares / shares.sum(-1, keepdims=True) @ v, wo), g1)
    n2 = rms_norm(n1 + np.maximum(n1 @ up, 0) @ down, g2)
    count = vip.shape[1]
    return n2[:, :count], reference.tree_materialize(reference.tree_update(tree, level, index, n2[:, count:]))
