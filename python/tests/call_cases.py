# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One call of every function on arrays, with several batch entries, grouped heads and odd sizes."""

import inspect

import numpy as np
from conftest import TYPES, make, make_biases, make_weights

import fovea

B, H, G, N, D, E = 2, 4, 2, 37, 24, 9
# Of trees: tokens, whose two levels have nine roots, and nodes.
TOKENS, LEVEL, INDEX = 36, [0, 1, 2], [0, 2, 3]
ROOTS = [2] * 9, list(range(9))


class Cases:
    """`self.<function>(type)` is (arguments, options); results of others are computed."""

    def __init__(self, type):
        self.type = TYPES[type]
        self.state = np.dtype(np.float64 if type == "float64" else np.float32)
        self.rng = np.random.default_rng(5)
        self.q, self.k, self.v = make(type, B=B, H=H, G=G, N=N, D=D, E=E)
        self.bias = self.data(H, N, N)
        self.log_weight = self.data(B, G, N)
        self.mask = self.rng.random((B, N)) < 0.7

    def data(self, *shape):
        return self.rng.standard_normal(shape).astype(self.type)

    def sums(self, *shape):
        return self.rng.standard_normal(shape).astype(self.state)

    def dense(self):
        return (self.q, self.k, self.v), {
            "causal": True, "log_weight": self.log_weight, "bias": self.bias, "return_lse": True
        }  # fmt: skip

    def dense_backward(self):
        (q, k, v), options = self.dense()
        out, lse = fovea.dense(q, k, v, **options)
        del options["return_lse"]
        options["d_lse"] = self.sums(B, H, N)
        return (self.data(B, H, N, E), q, k, v, out, lse), options

    def _multipole(self, names):
        weights, options = [], {"group": 4, "causal": True, "mask": self.mask}
        for name, width, heads in names:
            weights.append([w.astype(self.type) for w in make_weights(N, 4, 2, width, heads)])
            options[f"{name}_biases"] = [b.astype(self.type) for b in make_biases(N, 4, 2, width, heads)]
        return weights, options

    def fast_multipole(self):
        weights, options = self._multipole((("key", D, G), ("value", E, 1)))
        return (self.q, self.k, self.v, *weights), {**options, "return_lse": True}

    def fast_multipole_backward(self):
        arguments, options = self.fast_multipole()
        out, lse = fovea.fast_multipole(*arguments, **options)
        del options["return_lse"]
        options["d_lse"] = self.sums(B, H, N)
        return (self.data(B, H, N, E), *arguments, out, lse), options

    def fast_multipole_linear(self):
        weights, options = self._multipole((("query", D, H), ("key", D, G), ("value", E, 1)))
        return (self.q, self.k, self.v, *weights), {**options, "allow_query_lookahead": True}

    def fast_multipole_linear_backward(self):
        arguments, options = self.fast_multipole_linear()
        return (self.data(B, H, N, E), *arguments), options

    def _codebook(self):
        return self.data(G, 8, D)

    def quantize(self):
        return (self.k, self._codebook()), {"mask": self.mask}

    def codebook_update(self):
        codes = self.rng.integers(-1, 8, (B, G, N)).astype(np.int32)
        return (self.k, codes, self.sums(G, 8, D), 1 + self.sums(G, 8) ** 2), {}

    def commitment_loss(self):
        return (self.k, self.k + self.data(*self.k.shape)), {"mask": self.mask}

    def commitment_loss_backward(self):
        arguments, options = self.commitment_loss()
        return (0.5, *arguments), options

    def _codes(self):
        return self.rng.integers(0, 8, (B, G, N)).astype(np.int32)

    def vq(self):
        return (self.q, self._codes(), self.v, self._codebook()), {
            "block": 8, "bias": self.data(H, N, 16), "return_lse": True, "return_state": True
        }  # fmt: skip

    def vq_backward(self):
        arguments, options = self.vq()
        _, _, options["state"] = fovea.vq(*arguments, **options)
        out, lse, _ = fovea.vq(*arguments, **options)
        del options["return_lse"], options["return_state"]
        options["d_lse"] = self.sums(B, H, N)
        return (self.data(B, H, N, E), *arguments, out, lse), options

    def vq_decode(self):
        step = (self.q[:, :, :1], self._codes()[:, :, :1], self.v[:, :, :1], self._codebook())
        return step, {"block": 8, "bias": self.data(H, 1, 16)}

    def _recovery(self):
        return {"num_basis": 3, "window": 4, "delta": 0.5, "epsilon": 0.1}

    def conv(self):
        return (self.q, self.k, self.v), {**self._recovery(), "return_counts": True}

    def conv_backward(self):
        out = fovea.conv(self.q, self.k, self.v, **self._recovery())
        return (self.data(B, H, N, E), self.q, self.k, self.v, out), self._recovery()

    def conv_recover(self):
        return (self.q, self.k), self._recovery()

    def _bases(self):
        sizes = np.sort(self.rng.integers(1, N, (B, H, 3)).astype(np.int32))[..., ::-1].copy()
        sizes[..., 0], sizes[..., 1], sizes[..., 2] = N, 20, 7
        return np.abs(self.sums(B, H, 3, N)) + 0.5, sizes

    def conv_recover_backward(self):
        b, sizes = self._bases()
        return (b, self.q, self.k, sizes), {}

    def conv_apply(self):
        return (*self._bases(), self.v), {"return_recomputed": True}

    def conv_apply_backward(self):
        b, sizes = self._bases()
        out = fovea.conv_apply(b, sizes, self.v)
        return (self.data(*out.shape), b, sizes, self.v, out), {}

    def low_rank(self):
        return (np.abs(self.q), np.abs(self.k), self.v), {
            "mask": fovea.Causal(), "query_mask": self.mask, "key_mask": self.mask
        }  # fmt: skip

    def low_rank_backward(self):
        arguments, options = self.low_rank()
        return (self.data(B, H, N, E), *arguments, fovea.low_rank(*arguments, **options)), options

    def polynomial_features(self):
        return (self.q[..., :5],), {"degree": 2, "scale": 0.5}

    def polynomial_features_backward(self):
        (x,), options = self.polynomial_features()
        return (self.data(*fovea.polynomial_features(x, **options).shape), x), options

    def pool(self):
        return (self.q, self.data(*self.q.shape)), {"interval": 4, "overlap": 2, "position_bias": self.sums(4, D)}

    def pool_backward(self):
        arguments, options = self.pool()
        return (self.data(*fovea.pool(*arguments, **options).shape), *arguments), options

    def hca(self):
        kv, summaries = self.data(B, G, N, D), self.data(B, G, N // 4, D)
        return (self.q, kv, summaries), {"window": 5, "interval": 4, "sink": self.sums(1, H), "return_lse": True}

    def hca_backward(self):
        return self.with_lse(*self.hca(), fovea.hca)

    def selected(self):
        rows = np.random.default_rng(0).integers(-1, N // 4, (B, G, N, 3))
        options = {"unit": 4, "local": (self.k, self.v), "window": 5, "sink": self.sums(1, H), "return_lse": True}
        return (self.q, self.k, self.v, rows), options

    def selected_backward(self):
        return self.with_lse(*self.selected(), fovea.selected)

    def with_lse(self, arguments, options, function):
        """The arguments of the gradient of a function that returns lse."""
        out, lse = function(*arguments, **options)
        del options["return_lse"]
        return (self.data(*out.shape), *arguments, out, lse), options

    def top_k(self):
        return (self.data(B, H, N, 9), 3), {"causal_unit": 2}

    def rope(self):
        return (self.q, np.arange(N, dtype=np.int32)), {"width": 8}

    def rope_backward(self):
        return self.rope()

    def tree_build(self):
        return (self.data(B, TOKENS, D),), {"mask": self.mask[:, :TOKENS], "levels": 2}

    def _tree(self):
        (c,), options = self.tree_build()
        return fovea.tree_build(c, **options)

    def tree_build_backward(self):
        tree = self._tree()
        return (self.data(*tree.nodes.shape), tree), {}

    def tree_fetch(self):
        return (self._tree(), LEVEL, INDEX), {"return_log_weight": True}

    def tree_fetch_backward(self):
        return (self.data(B, len(LEVEL), D), self._tree(), LEVEL, INDEX), {}

    def tree_materialize(self):
        return (self._tree(),), {}

    def tree_materialize_backward(self):
        return (self.data(B, TOKENS, D), self._tree()), {}

    def tree_score(self):
        mask = self.rng.random((B, N)) < 0.5
        return (self.q[:, :, :5], self.q[:, :, :11]), {
            "log_weight": self.sums(B, 11), "mask": mask[:, :5]
        }  # fmt: skip

    def tree_score_backward(self):
        arguments, options = self.tree_score()
        return (self.sums(*fovea.tree_score(*arguments, **options).shape), *arguments), options

    def tree_select(self):
        return (self._tree(), {2: 3, 1: 2}), {"score": self.data(B, 5, D)}

    def tree_update(self):
        return (self._tree(), *ROOTS, self.data(B, 9, D)), {}

    def tree_update_backward(self):
        tree = self._tree()
        return (self.data(*tree.nodes.shape), tree, *ROOTS), {}

    def stream(self):
        near = fovea.Source(self.k, self.v, causal=True, bias=self.bias, ranges=lambda b, rows, n: (8 * b - 8, 8 * b + 8))
        means = [x[:, :, :32].reshape(B, G, 4, 8, -1).mean(axis=3).astype(x.dtype) for x in (self.k, self.v)]
        log_weight = np.full((1, 1, 4), np.log(8), self.state)
        far = fovea.Source(*means, log_weight=log_weight, ranges=lambda b, rows, n: (0, b - 1))
        return (self.q, [near, far]), {"block": 8, "sink": self.data(1, H), "return_lse": True}

    def stream_backward(self):
        (q, sources), options = self.stream()
        out, lse = fovea.stream(q, sources, **options)
        del options["return_lse"]
        return (self.data(B, H, N, E), q, sources, out, lse), {**options, "d_lse": self.sums(B, H, N)}

    def paged(self):
        pages = self.data(9, G, 8, D), self.data(9, G, 8, E)
        table = np.random.default_rng(0).integers(0, 9, (B, 5))
        return (self.q, *pages, table, np.array([37, 20], np.int32)), {"window": 30, "sink": self.sums(1, H), "return_lse": True}

    def varlen(self):
        starts = np.array([0, 20, 21, N], np.int32)
        q, k, v = (x[0].swapaxes(0, 1).copy() for x in (self.q, self.k, self.v))
        return (q, k, v, starts, starts), {"causal": True, "sink": self.data(H), "return_lse": True}

    def varlen_backward(self):
        arguments, options = self.varlen()
        out, lse = fovea.varlen(*arguments, **options)
        del options["return_lse"]
        return (self.data(N, H, E), *arguments, out, lse), {**options, "d_lse": self.sums(H, N)}


# Functions that compute nothing from arrays, or change a cache.
OTHERS = {
    "capture", "clear_cache", "compile", "explain", "fast_multipole_decode", "gpu_stream", "hierarchical_weights",
    "import_jax", "import_onnx", "import_torch", "key_weights_from_conv1d", "load", "num_threads", "rope_frequencies",
    "set_num_threads", "set_shapes", "shapes", "suggest",
}  # fmt: skip
FUNCTIONS = sorted(name for name in fovea.__all__ if inspect.isfunction(getattr(fovea, name)) and name not in OTHERS)


def case(name, type):
    arguments, options = getattr(Cases(type), name)()
    return getattr(fovea, name), arguments, options
