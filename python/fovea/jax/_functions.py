# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The functions of the package on arrays of JAX."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fovea

from .. import _arguments as check
from .. import _layout
from .._abstract import AbstractArray
from .._conv import SlidingGroup
from .._entries import trace_entries
from .._low_rank import Causal, DistinctColumns, DistinctRows, RowChange, RowInterval
from .._rope import rope_frequencies
from .._stream import Source, SourceArrays, SourceGradients, trace_sources
from .._trace import TracedScore
from .._vq import VQState, VQStateGradient
from .._weights import hierarchical_weights, key_weights_from_conv1d
from ..tree import Tree
from ._call import is_array, make_constant, updated_argument
from ._gradients import apply
from ._symbols import Symbols

__all__ = [
    "Causal",
    "DistinctColumns",
    "DistinctRows",
    "RowChange",
    "RowInterval",
    "SlidingGroup",
    "Source",
    "SourceGradients",
    "Tree",
    "VQState",
    "VQStateGradient",
    "codebook_update",
    "commitment_loss",
    "commitment_loss_backward",
    "conv",
    "conv_apply",
    "conv_apply_backward",
    "conv_backward",
    "conv_recover",
    "conv_recover_backward",
    "dense",
    "dense_backward",
    "fast_multipole",
    "fast_multipole_backward",
    "fast_multipole_linear",
    "fast_multipole_linear_backward",
    "hca",
    "hierarchical_weights",
    "key_weights_from_conv1d",
    "low_rank",
    "low_rank_backward",
    "paged",
    "polynomial_features",
    "polynomial_features_backward",
    "pool",
    "pool_backward",
    "quantize",
    "rope",
    "rope_backward",
    "rope_frequencies",
    "selected",
    "stream",
    "stream_backward",
    "top_k",
    "tree_build",
    "tree_build_backward",
    "tree_fetch",
    "tree_fetch_backward",
    "tree_materialize",
    "tree_materialize_backward",
    "tree_score",
    "tree_score_backward",
    "tree_select",
    "tree_update",
    "tree_update_backward",
    "varlen",
    "varlen_backward",
    "vq",
    "vq_backward",
    "vq_decode",
]

#: Options that are not up to callers here: the program says where it runs and results lie.
_OF_PROGRAMS = {"gradients", "out", "target"}
#: Arguments that are constants of a kernel.
_STATIC = {"frequencies"}


#: Arguments with heads and tokens, of which `layout` says which come first.
_ROWS = {"d_out", "out", "q", "k", "v", "kv", "summaries", "k_pages", "v_pages"}


def _turn_arguments(bound: dict[str, Any]) -> None:
    """Puts heads first."""
    for name in _ROWS & bound.keys():
        bound[name] = _layout.heads_first(name, bound[name])
    if bound.get("local") is not None:
        bound["local"] = tuple(_layout.heads_first(f"local[{index}]", each) for index, each in enumerate(bound["local"]))
    for index, source in enumerate(bound.get("sources", ())):
        if isinstance(source, Source):
            rows = {name: _layout.heads_first(f"sources[{index}].{name}", getattr(source, name)) for name in "kv"}
            bound["sources"] = [*bound["sources"][:index], dataclasses.replace(source, **rows), *bound["sources"][index + 1 :]]


def _turn_results(name: str, found: Any) -> Any:
    """Puts tokens first."""

    def turn(array: Any) -> Any:
        return array.swapaxes(1, 2)

    if name == "stream_backward":
        of_sources = [each._replace(k=turn(each.k), v=turn(each.v)) for each in found[1]]
        return (turn(found[0]), of_sources, *found[2:])
    if not isinstance(found, tuple):
        return turn(found)
    count = 3 if name == "dense_backward" else 1
    return (*map(turn, found[:count]), *found[count:])


def _bind(bound: dict[str, Any], signature: inspect.Signature) -> dict[str, Any]:
    """Arguments by name, NumPy's arrays as those of JAX."""
    # The scores of tree_select are those of VIP rows.
    if "admit" in signature.parameters:
        score, admit, segments = (bound.pop(name, None) for name in ("score", "admit", "segments"))
        q, k, lengths, query_lengths = (_convert_named(bound, name) for name in ("q", "k", "lengths", "query_lengths"))
        if "sources" in bound:
            traced = trace_sources(bound["sources"], SourceArrays(captured=_convert), q, query_lengths)
            bound["sources"] = [
                dataclasses.replace(source, score=own, admit=None, segments=None) for source, own in zip(bound["sources"], traced)
            ]
        if any(each is not None for each in (score, admit, segments)):
            bound["score"] = trace_entries(score, admit, segments, q, k, lengths, query_lengths, convert=_convert)
    for name, value in bound.items():
        if callable(value):
            raise ValueError(f"{name}: found a function, which programs of XLA cannot call, needed an array")
    return {
        name: _to_constant(name, value) if name in _STATIC else _to_number(_convert_named(bound, name)) for name, value in bound.items()
    }


def _convert_named(bound: dict[str, Any], name: str) -> Any:
    with check.named(name):
        return jax.tree.map(_convert_exactly if name == "state" else _convert, bound.get(name))


def _convert(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return make_constant(value)
    if isinstance(value, jax.Array) and jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
        raise ValueError(f"found element type {value.dtype}, needed an array of numbers")
    if jax.export.is_symbolic_dim(value):
        return jnp.full((1,), value, jnp.int32)
    if hasattr(value, "__dlpack__") and not is_array(value):
        raise ValueError(f"found {type(value).__name__}, needed an array of JAX or of NumPy")
    return value


def _to_constant(name: str, value: Any) -> Any:
    if isinstance(value, jax.core.Tracer):
        raise ValueError(f"{name}: found an array that is traced, needed numbers that are known")
    return np.asarray(value) if isinstance(value, jax.Array) else value


def _to_number(value: Any) -> Any:
    """An option that was computed by JAX, where it is known."""
    is_known = isinstance(value, jax.Array) and value.ndim == 0 and not isinstance(value, jax.core.Tracer)
    return value.item() if is_known else value


def _convert_exactly(value: Any) -> Any:
    """States that were forked or read from a file count tokens in 64 bits, in whatever types JAX has else."""
    with jax.enable_x64(True):
        return _convert(value)


def _call(function: Callable[..., Any], named: dict[str, Any]) -> Any:
    """Has the function describe its results, and computes these."""
    leaves, tree = jax.tree.flatten(named)
    places = [place for place, leaf in enumerate(leaves) if is_array(leaf) and not isinstance(leaf, np.ndarray)]
    symbols = Symbols([leaves[place].shape for place in places])
    #: Of all samples.
    known: dict[int, Any] = {}
    kept: list[Any] = []

    def describe(shapes: Sequence[tuple[int, ...]]) -> Any:
        described = list(leaves)
        for place, shape in zip(places, shapes, strict=True):
            described[place] = AbstractArray(leaves[place].dtype, shape)
            known[id(described[place])] = leaves[place]
        kept.append(described)
        return function(**jax.tree.unflatten(tree, described))

    samples, described = zip(*symbols.try_samples(describe))

    def resolve(values: Sequence[Any]) -> Any:
        value = values[0]
        if isinstance(value, (tuple, list)):
            return tuple(map(resolve, zip(*values, strict=True)))
        if not isinstance(value, AbstractArray):
            if any(each is not value and each != value for each in values):
                raise ValueError(f"{function.__name__}: found a call that depends on extents that are not known")
            return value
        if id(value) in known:
            return known[id(value)]
        # Of the types that JAX has been told to use.
        dtype = jax.dtypes.canonicalize_dtype(value.dtype)
        shape = symbols.find_shape([each.shape for each in values], samples)
        return resolve([each.base for each in values]).astype(dtype).reshape(shape)

    calls = [next(leaf.call for leaf in jax.tree.leaves(each) if getattr(leaf, "call", None)) for each in described]
    results, (name, arguments) = described[0], calls[0]
    if name == "tree_build":
        # Its gradient asks for the levels that it has found.
        calls = [(name, (given[0], each.ratio, each.levels, *given[3:])) for (name, given), each in zip(calls, described)]
    computed = apply(name, resolve([given for _, given in calls]))
    place = updated_argument(name, arguments)
    if place is not None:
        state = arguments[place]
        known.update(zip(map(id, state), computed[-len(state) :]))

    def substitute(leaf: Any) -> Any:
        if not isinstance(leaf, AbstractArray):
            return leaf
        return known[id(leaf)] if id(leaf) in known else computed[leaf.index]

    return jax.tree.map(substitute, results)


# ----------------------------------------------------------------------------
# Classes of arrays
# ----------------------------------------------------------------------------


def _make_tree(constants: tuple[int, int], arrays: Any) -> Tree:
    """JAX makes trees of what is no array, too: nothing is checked."""
    tree = object.__new__(Tree)
    tree.nodes, tree.counts = arrays
    tree.ratio, tree.levels = constants
    return tree


def _make_mask(kind: tuple[type, tuple[str, ...]], parts: Any) -> Any:
    mask: Any = object.__new__(kind[0])
    mask.parts = dict(zip(kind[1], parts))
    return mask


_SOURCE_ARRAYS = ("k", "v", "log_weight", "bias", "lengths", "rows", "segments")
_SOURCE_CONSTANTS = tuple(each.name for each in dataclasses.fields(Source) if each.name not in _SOURCE_ARRAYS)


def _split_source(source: Source) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Its arrays, with a score that is traced, which reads some; and the others."""
    arrays = tuple(getattr(source, name) for name in _SOURCE_ARRAYS)
    is_traced = isinstance(source.score, TracedScore)
    plain = dataclasses.replace(source, score=None) if is_traced else source
    return (*arrays, source.score if is_traced else None), tuple(getattr(plain, name) for name in _SOURCE_CONSTANTS)


def _make_source(constants: tuple[Any, ...], arrays: Any) -> Source:
    source = object.__new__(Source)
    source.__dict__.update(zip(_SOURCE_ARRAYS, arrays), **dict(zip(_SOURCE_CONSTANTS, constants)))
    if arrays[-1] is not None:
        source.__dict__["score"] = arrays[-1]
    return source


jax.tree_util.register_pytree_node(Source, _split_source, _make_source)
jax.tree_util.register_pytree_node(
    Tree, lambda tree: ((tree.nodes, tree.counts), (tree.ratio, tree.levels)), _make_tree
)
for _mask in (RowChange, RowInterval, DistinctRows, DistinctColumns):
    jax.tree_util.register_pytree_node(
        _mask, lambda mask: (tuple(mask.parts.values()), (type(mask), tuple(mask.parts))), _make_mask
    )

# ----------------------------------------------------------------------------
# Functions
# ----------------------------------------------------------------------------


def _define(name: str) -> Callable[..., Any]:
    function = getattr(fovea, name)
    signature = inspect.signature(function)
    parameters = [
        each
        for each in signature.parameters.values()
        if each.kind is not each.KEYWORD_ONLY or each.name not in _OF_PROGRAMS
    ]
    signature = signature.replace(parameters=parameters)

    @functools.wraps(function)
    def wrapper(*arguments: Any, **options: Any) -> Any:
        try:
            bound = signature.bind(*arguments, **options).arguments
        except TypeError as error:
            raise TypeError(f"{name}: {error}") from None
        if not _layout.is_tokens_first(bound.pop("layout", "bhnd")):
            return _call(function, _bind(bound, signature))
        _turn_arguments(bound)
        return _turn_results(name, _call(function, _bind(bound, signature)))

    wrapper.__signature__ = signature  # type: ignore[attr-defined]
    wrapper.__module__ = "fovea.jax"
    return wrapper


codebook_update = _define("codebook_update")
commitment_loss = _define("commitment_loss")
commitment_loss_backward = _define("commitment_loss_backward")
conv = _define("conv")
conv_apply = _define("conv_apply")
conv_apply_backward = _define("conv_apply_backward")
conv_backward = _define("conv_backward")
conv_recover = _define("conv_recover")
conv_recover_backward = _define("conv_recover_backward")
dense = _define("dense")
dense_backward = _define("dense_backward")
fast_multipole = _define("fast_multipole")
fast_multipole_backward = _define("fast_multipole_backward")
fast_multipole_linear = _define("fast_multipole_linear")
fast_multipole_linear_backward = _define("fast_multipole_linear_backward")
hca = _define("hca")
low_rank = _define("low_rank")
low_rank_backward = _define("low_rank_backward")
paged = _define("paged")
polynomial_features = _define("polynomial_features")
polynomial_features_backward = _define("polynomial_features_backward")
pool = _define("pool")
pool_backward = _define("pool_backward")
quantize = _define("quantize")
rope = _define("rope")
rope_backward = _define("rope_backward")
selected = _define("selected")
stream = _define("stream")
stream_backward = _define("stream_backward")
top_k = _define("top_k")
tree_build = _define("tree_build")
tree_build_backward = _define("tree_build_backward")
tree_fetch = _define("tree_fetch")
tree_fetch_backward = _define("tree_fetch_backward")
tree_materialize = _define("tree_materialize")
tree_materialize_backward = _define("tree_materialize_backward")
tree_score = _define("tree_score")
tree_score_backward = _define("tree_score_backward")
tree_select = _define("tree_select")
tree_update = _define("tree_update")
tree_update_backward = _define("tree_update_backward")
varlen = _define("varlen")
varlen_backward = _define("varlen_backward")
vq = _define("vq")
vq_backward = _define("vq_backward")
vq_decode = _define("vq_decode")
