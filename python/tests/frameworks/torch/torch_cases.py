# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One call of every function, for what holds of all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

import fovea.reference
import fovea.torch
from fovea.math import tanh


class Case(NamedTuple):
    """`make(N, type)` gives the arguments by name, with N tokens; `gradients` names those
    that have one, `batched` those with a batch axis."""

    function: str | Callable[..., Any]
    make: Callable[..., dict[str, Any]]
    gradients: tuple[str, ...]
    options: dict[str, Any] = {}

    def arguments(self, N: int = 11, type: torch.dtype = torch.float32, gradients: bool = False) -> dict[str, Any]:
        torch.manual_seed(N)
        found = self.make(N, type)
        if gradients:
            for name in self.gradients:
                entries = found[name] if isinstance(found[name], list) else [found[name]]
                for each in entries:
                    each.requires_grad_()
        return found

    def __call__(self, **arguments: Any) -> Any:
        function = getattr(fovea.torch, self.function) if isinstance(self.function, str) else self.function
        return function(**arguments, **self.options)


def normal(*shape: int, type: torch.dtype) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64).to(type)


def attention(N: int, type: torch.dtype, B: int = 2, H: int = 4, G: int = 2, D: int = 8, E: int = 5) -> dict[str, Any]:
    return {
        "q": normal(B, H, N, D, type=type),
        "k": normal(B, G, N, D, type=type),
        "v": normal(B, G, N, E, type=type),
    }


def pages(N: int, type: torch.dtype) -> dict[str, Any]:
    return {
        "q": normal(2, 4, N, 8, type=type), "k_pages": normal(9, 2, 4, 8, type=type), "v_pages": normal(9, 2, 4, 5, type=type),
        "block_table": torch.randint(9, (2, 3)), "lengths": torch.tensor([12, 7]),
    }  # fmt: skip


def dense_with_all(N: int, type: torch.dtype) -> dict[str, Any]:
    return {
        **attention(N, type),
        "log_weight": normal(2, 2, N, type=type),
        "bias": normal(2, 4, N, N, type=type),
    }


def dense_of_lengths(N: int, type: torch.dtype) -> dict[str, Any]:
    """Of keys and queries; one entry of the batch has neither all keys nor all queries."""
    lengths = torch.tensor([[N, N // 2 + 1], [N, N // 3 + 1]], dtype=torch.int32)
    return {**attention(N, type), "lengths": lengths[0], "query_lengths": lengths[1]}


def packed(N: int, type: torch.dtype) -> dict[str, Any]:
    """Two sequences, one of them with more keys than queries."""
    ends = torch.tensor([[0, N // 3, N], [0, N // 2, N]], dtype=torch.int32)
    shapes = {"q": (N, 4, 8), "k": (N, 2, 8), "v": (N, 2, 5), "sink": (4,)}
    tensors = {name: normal(*shape, type=type) for name, shape in shapes.items()}
    return {**tensors, "cu_seqlens_q": ends[0], "cu_seqlens_k": ends[1]}


def multipole(N: int, type: torch.dtype, lists: str = "key value", p: int = 2, group: int = 2) -> dict[str, Any]:
    D, E = 8, 5
    found = attention(N, type, D=D, E=E)
    levels = fovea.reference.num_levels(N, group)
    for name in lists.split():
        width = E if name == "value" else D
        found[f"{name}_weights"] = [normal(1, p, group << level, width, type=type) for level in range(levels)]
        found[f"{name}_biases"] = [normal(1, p, width, type=type) for _ in range(levels)]
    return found


def masked_multipole(N: int, type: torch.dtype) -> dict[str, Any]:
    return {**multipole(N, type), "lengths": torch.tensor([N, N // 2 + 1], dtype=torch.int32)}


def ready_multipole(N: int, type: torch.dtype) -> dict[str, Any]:
    """Keys with weights that mix columns, and ready-made summaries of values."""
    found = attention(N, type, D=8, E=5)
    intervals = [5 << level for level in range(fovea.reference.num_levels(N, 5))]
    found["key_weights"] = [normal(1, 1, size, 8, 8, type=type) for size in intervals]
    found["value_summaries"] = [normal(2, 2, -(-N // size), 1, 5, type=type) for size in intervals]
    return found


def codes(N: int, type: torch.dtype, S: int = 6) -> dict[str, Any]:
    found = attention(N, type)
    return {**found, "k": torch.randint(S, (2, 2, N), dtype=torch.int32), "codebook": normal(1, S, 8, type=type)}


def conv_bases(N: int, type: torch.dtype, R: int = 2) -> dict[str, Any]:
    sizes = torch.tensor([N, N - 3], dtype=torch.int32).expand(2, 4, R).contiguous()
    return {"b": normal(2, 4, R, N, type=type), "sizes": sizes, "v": normal(2, 2, N, 5, type=type)}


def features(N: int, type: torch.dtype) -> dict[str, Any]:
    found = attention(N, type)
    return {"u1": found["q"].abs(), "u2": found["k"].abs(), "v": found["v"]}


def tree(N: int, type: torch.dtype, tokens: int = 16) -> Any:
    return fovea.torch.tree_build(normal(2, tokens, 3, type=type), ratio=2)


def _build(c: torch.Tensor, **options: Any) -> torch.Tensor:
    return fovea.torch.tree_build(c, **options).nodes


def _tree(nodes: torch.Tensor) -> Any:
    return fovea.torch.Tree(nodes, None, 2, 4)


def _listed() -> tuple[torch.Tensor, torch.Tensor]:
    """Nodes that cover 16 tokens."""
    return torch.tensor([2, 2, 3], dtype=torch.int32), torch.tensor([0, 1, 1], dtype=torch.int32)


def _vq_windows(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, codebook: torch.Tensor) -> Any:
    """Two windows, through whose states gradients pass."""
    found, state, cut = [], None, 8
    for part in (slice(0, cut), slice(cut, None)):
        out, state = fovea.torch.vq(
            q[:, :, part], k[:, :, part], v[:, :, part], codebook, block=4, state=state, return_state=True
        )
        found.append(out)
    return torch.cat(found, 2)


def _read_tables(slopes: torch.Tensor, table: torch.Tensor) -> Any:
    """A slope for each head and a term for each batch entry and key."""
    slope, term = fovea.capture(slopes), fovea.capture(table)
    return lambda s, b, h, i, j: s * slope[h] + term[b, j] * (j - i)


def _with_tables(slopes: torch.Tensor, table: torch.Tensor, **tensors: torch.Tensor) -> torch.Tensor:
    return fovea.torch.dense(**tensors, score=_read_tables(slopes, table))


def with_tables(N: int, type: torch.dtype) -> dict[str, Any]:
    return {**dense_with_all(N, type), "slopes": torch.rand(4, dtype=type), "table": normal(2, N, type=torch.float64)}


def window_and_summaries(N: int, type: torch.dtype) -> dict[str, Any]:
    """A window over the tokens with a bias, and three summaries with weights."""
    own, far = attention(N, type), attention(3, type)
    return {
        **own, "far_k": far["k"], "far_v": far["v"], "log_weight": normal(1, 1, 3, type=type), "bias": normal(4, N, N, type=type),
        "sink": normal(4, type=type),
    }  # fmt: skip


def _stream(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **given: torch.Tensor) -> Any:
    near = fovea.torch.Source(k, v, causal=True, window=5, bias=given["bias"], ranges=lambda b, rows, n: (4 * b - 4, 4 * b + 4))
    far = fovea.torch.Source(given["far_k"], given["far_v"], log_weight=given["log_weight"], ranges=lambda b, rows, n: (0, b))
    return fovea.torch.stream(q, [near, far], block=4, sink=given["sink"], return_lse=True)


def _stream_tables(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, slopes: torch.Tensor, table: torch.Tensor) -> Any:
    heat = fovea.capture(slopes)
    near = fovea.torch.Source(k, v, causal=True, window=5, score=lambda s, b, h, i, j: s + heat[h], admit=lambda b, h, i, j: j != 3)
    return fovea.torch.stream(q, [near, fovea.torch.Source(k, v)], score=_read_tables(slopes, table))


def stream_tables(N: int, type: torch.dtype) -> dict[str, Any]:
    return {name: each for name, each in with_tables(N, type).items() if name not in ("log_weight", "bias")}


def chosen_blocks(N: int, type: torch.dtype) -> dict[str, Any]:
    """Blocks of four keys for each head of keys; -1 is none."""
    rows = torch.randint(-1, 2, (2, 2, 1, 3), dtype=torch.int32)
    return {**attention(N, type), "rows": rows}


def _stream_blocks(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, rows: torch.Tensor) -> Any:
    return fovea.torch.stream(q, [fovea.torch.Source(k, v, rows=rows, unit=4), fovea.torch.Source(k, v, window=2)], block=4)


def documents(N: int, type: torch.dtype) -> dict[str, Any]:
    ids = torch.arange(N).expand(2, N) // 4
    return {**attention(N, type), "ids": ids, "lengths": torch.tensor([N, N // 2 + 1], dtype=torch.int32)}


def _stream_documents(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, ids: torch.Tensor, lengths: torch.Tensor) -> Any:
    source = fovea.torch.Source(k, v, segments=(ids, ids), lengths=lengths)
    return fovea.torch.stream(q, [source], query_lengths=lengths, score=lambda s, b, h, i, j: 2 * tanh(s / 2) + (j - i) / 9)


SEARCH = {"num_basis": 2, "window": 3, "delta": 5.0, "epsilon": 0.1}
TOKENS = ("q", "k", "v")
# Searches and trees have shapes that depend on more than a number of tokens.
CASES = {
    "dense": Case("dense", attention, ("q", "k", "v")),
    "dense-causal": Case("dense", attention, ("q", "k", "v"), {"causal": True, "window": 5, "scale": 0.5}),
    "dense-bias": Case("dense", dense_with_all, ("q", "k", "v", "log_weight", "bias")),
    "dense-lengths": Case("dense", dense_of_lengths, TOKENS, {"causal": True}),
    "dense-prefix": Case("dense", attention, TOKENS, {"causal": True, "prefix": 3}),
    "dense-score": Case("dense", attention, TOKENS, {"causal": True, "score": lambda s, b, h, i, j: 2 * tanh(s / 2) + b * j / 9}),
    "dense-score-captures": Case(_with_tables, with_tables, (*TOKENS, "log_weight", "bias", "slopes", "table")),
    "stream": Case(_stream, window_and_summaries, (*TOKENS, "far_k", "far_v", "log_weight", "bias", "sink")),
    "stream-captures": Case(_stream_tables, stream_tables, (*TOKENS, "slopes", "table")),
    "stream-blocks": Case(_stream_blocks, chosen_blocks, TOKENS),
    "stream-documents": Case(_stream_documents, documents, TOKENS),
    "varlen": Case("varlen", packed, (*TOKENS, "sink"), {"window": 5}),
    "paged": Case("paged", pages, (), {"window": 6}),
    "dense-lse": Case("dense", attention, ("q", "k", "v"), {"return_lse": True}),
    "fast_multipole": Case(
        "fast_multipole",
        multipole,
        (*TOKENS, "key_weights", "value_weights", "key_biases", "value_biases"),
        {"group": 2, "return_lse": True},
    ),
    "fast_multipole-lengths": Case(
        "fast_multipole",
        masked_multipole,
        (*TOKENS, "key_weights", "value_weights", "key_biases", "value_biases"),
        {"group": 2, "causal": True},
    ),
    "fast_multipole-ready": Case(
        "fast_multipole", ready_multipole, (*TOKENS, "key_weights", "value_summaries"), {"group": 5}
    ),
    "fast_multipole_linear": Case(
        "fast_multipole_linear",
        lambda N, type: multipole(N, type, "query key value"),
        (*TOKENS, *(f"{name}_{kind}" for name in ("query", "key", "value") for kind in ("weights", "biases"))),
        {"group": 2},
    ),
    "vq": Case("vq", codes, ("q", "v"), {"block": 4, "return_lse": True}),
    "vq-squared-relu": Case("vq", codes, ("q", "v"), {"block": 4, "weighting": "squared_relu"}),
    "vq-bias": Case(
        "vq",
        lambda N, type: {**codes(N, type), "bias": normal(2, 4, N, 8, type=type)},
        ("q", "v", "bias"),
        {"block": 4, "scale": 0.3},
    ),
    "vq-relative": Case(
        "vq",
        lambda N, type: {
            **codes(N, type),
            "relative": [normal(1, 12, 8, type=type), normal(4, 8, type=type)],
            "distance_bias": normal(4, 12, type=type),
        },
        ("q", "v", "relative", "distance_bias"),
        {"block": 4, "scale": 0.3},
    ),
    "vq-windows": Case(_vq_windows, codes, ("q", "v")),
    "quantize": Case("quantize", lambda N, type: {"k": normal(2, 2, N, 8, type=type), "codebook": normal(1, 6, 8, type=type)}, ()),
    "commitment_loss": Case(
        "commitment_loss",
        lambda N, type: {"k": normal(2, 2, N, 8, type=type), "k_hat": normal(2, 2, N, 8, type=type)},
        ("k",),
    ),
    "codebook_update": Case(
        "codebook_update",
        lambda N, type: {
            "k": normal(2, 2, N, 8, type=type),
            "codes": torch.randint(6, (2, 2, N), dtype=torch.int32),
            "sums": torch.zeros(1, 6, 8, dtype=type),
            "counts": torch.ones(1, 6, dtype=type),
        },
        (),
    ),
    "conv": Case("conv", attention, TOKENS, SEARCH),
    "conv_apply": Case("conv_apply", conv_bases, ("b", "v")),
    "conv_recover": Case("conv_recover", lambda N, type: {each: attention(N, type)[each] for each in "qk"}, ("q", "k"), SEARCH),
    "low_rank": Case("low_rank", features, ("u1", "u2", "v"), {"mask": fovea.Causal()}),
    "polynomial_features": Case(
        "polynomial_features", lambda N, type: {"x": normal(2, 4, N, 3, type=type)}, ("x",), {"degree": 2, "scale": 0.5}
    ),
    "pool": Case(
        "pool",
        lambda N, type: {
            **{name: normal(2, 3, N, 8, type=type) for name in ("x", "gate")},
            "position_bias": normal(4, 8, type=type),
        },
        ("x", "gate", "position_bias"),
        {"interval": 4, "overlap": 2},
    ),
    "top_k": Case("top_k", lambda N, type: {"scores": normal(2, 4, N, 9, type=type)}, (), {"k": 3, "causal_unit": 2}),
    "rope": Case("rope", lambda N, type: {"x": normal(2, 4, N, 8, type=type), "positions": torch.arange(N)}, ("x",)),
    "rope-table": Case(
        "rope",
        lambda N, type: {"x": normal(2, 4, N, 8, type=type), "positions": torch.arange(N)},
        ("x",),
        {"frequencies": [1.0, 0.5], "style": "half", "width": 4},
    ),
    "tree_build": Case(_build, lambda N, type: {"c": normal(2, 16, 3, type=type)}, ("c",)),
    "tree_fetch": Case(
        lambda nodes: fovea.torch.tree_fetch(_tree(nodes), *_listed(), return_log_weight=True),
        lambda N, type: {"nodes": normal(2, 31, 3, type=type)},
        ("nodes",),
    ),
    "tree_update": Case(
        lambda nodes, rows: fovea.torch.tree_update(_tree(nodes), *_listed(), rows).nodes,
        lambda N, type: {"nodes": normal(2, 31, 3, type=type), "rows": normal(2, 3, 3, type=type)},
        ("nodes", "rows"),
    ),
    "tree_materialize": Case(
        lambda nodes: fovea.torch.tree_materialize(_tree(nodes)),
        lambda N, type: {"nodes": normal(2, 31, 3, type=type)},
        ("nodes",),
    ),
    "tree_score": Case(
        "tree_score",
        lambda N, type: {
            "query": normal(2, 4, 3, 8, type=type),
            "key": normal(2, 2, N, 8, type=type),
            "log_weight": normal(2, N, type=torch.float64 if type == torch.float64 else torch.float32),
        },
        ("query", "key", "log_weight"),
    ),
    "tree_select": Case(
        lambda nodes, score: fovea.torch.tree_select(_tree(nodes), {4: 1, 3: 1}, score=score),
        lambda N, type: {"nodes": normal(2, 31, 3, type=type), "score": normal(2, 2, 3, type=type)},
        (),
    ),
}
