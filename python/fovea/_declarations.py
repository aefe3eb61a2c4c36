# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What frameworks need to know of the functions: arguments and results, their shapes
and types, and which backward function gives the gradients of which arguments.

An entry of FUNCTIONS reads

    "dense": declare(
        "Tensor q[BHND], Tensor k[BGMD], Tensor v[BGME], float? scale, ..., return_lse",
        "out[BHNE] like q, lse[BHN] of sums",
        "d_out q k v out lse d_lse scale ...",
        "q k v log_weight bias",
    )

The first line has the arguments of the compiled function, in its order and without the
target.  A letter in brackets is an axis; extents that do not follow from arguments are
given by name.  An argument without a type is a flag that asks for a result, and always
set; `int[]` is a dictionary, whose keys and values follow each other; entries of `Tensor?[]`
may be None.  A result `if` some
arguments is there where one of them is given or true.  The third line has the arguments of
the backward function: arguments and results by their names, gradients of results behind
"d_", a/b for a where b is there, and "return_d_" before an argument for a flag that asks
for its gradient.  It returns the gradients of the fourth line, where their arguments are
given and no flag says otherwise, in the shapes and types of these; axes in brackets say
what the shape is where the backward function does not take the argument, or takes one of
another shape.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

Shape = tuple[Any, ...]

#: What the names of flags start with that ask for the gradient of an argument.
ASKS = "return_d_"


class Argument(NamedTuple):
    """`kind` is the type as PyTorch writes it in schemas, empty for a flag that is set; `axes`
    are None where an array is broadcast or its rank is no constant, and those of each entry of a
    list, whose extents may differ."""

    name: str
    kind: str
    axes: str | None

    @property
    def is_array(self) -> bool:
        return self.kind.startswith("Tensor")

    @property
    def is_list(self) -> bool:
        return self.kind.startswith(("Tensor[]", "Tensor?[]"))

    @property
    def is_optional(self) -> bool:
        return self.kind.endswith("?")


class Result(NamedTuple):
    """`like` names the argument whose type it has; "sums" stands for that of sums, float32
    or, for float64, float64, and "int32" or "int64" for itself.  With `k|wide` it is that of
    sums where `wide` is true."""

    name: str
    axes: str
    like: str
    conditions: tuple[str, ...]

    def is_there(self, values: Mapping[str, Any]) -> bool:
        """In a call with these values of arguments."""
        return not self.conditions or any(
            values[each] is not None and values[each] is not False for each in self.conditions
        )


class Declaration(NamedTuple):
    arguments: tuple[Argument, ...]
    results: tuple[Result, ...]
    backward: tuple[str, ...]
    gradients: tuple[str, ...]
    #: None for a gradient like its argument.
    gradient_axes: tuple[str | None, ...]
    extents: Mapping[str, Callable[..., Any]]

    @property
    def values(self) -> tuple[Argument, ...]:
        """The arguments that callers choose."""
        return tuple(argument for argument in self.arguments if argument.kind)

    @property
    def backward_arguments(self) -> tuple[Argument, ...]:
        """Those of the backward function.  Only the first, the gradient of a result, must be
        there; those of others may be missing."""
        known = {each.name: each for each in self.arguments}
        for result in self.results:
            kind = "Tensor?" if result.conditions else "Tensor"
            known[result.name] = Argument(result.name, kind, result.axes)
            name = f"d_{result.name}"
            known[name] = Argument(name, "Tensor" if name == self.backward[0] else "Tensor?", result.axes)
        found = []
        for each in self.backward:
            if each.startswith(ASKS):
                found.append(Argument(each, "bool", None))
                continue
            name, *condition = each.split("/")
            found.append(known[name]._replace(kind="Tensor?") if condition else known[name])
        return tuple(found)

    def _find(self, holds: Callable[[str, str], bool]) -> int | None:
        """The first of `values` for whose name and axes this holds."""
        for index, each in enumerate(self.values):
            if each.axes and not each.is_list and holds(each.name, each.axes):
                return index
        return None

    @property
    def order(self) -> int | None:
        """Which of `values` the first result has the order of axes of, where a framework has
        tensors with one: the argument that it is like, if no axis but the last is another.
        Other results are contiguous."""
        result = self.results[0]
        return self._find(lambda name, axes: name == result.like and axes[:-1] == result.axes[:-1])

    @property
    def width(self) -> int | None:
        """Which of `values` has the last axis of the first result for its own."""
        return self._find(lambda _, axes: self.results[0].axes.endswith(axes[-1]))

    def bind(self, arguments: Sequence[Argument], values: Sequence[Any]) -> dict[str, Any]:
        """The extents of axes, from the values of arguments of the function or of its backward
        function.  Raises ValueError for an array of another rank."""
        extents: dict[str, Any] = {}
        for argument, value in zip(arguments, values):
            if argument.axes is None or argument.is_list or value is None:
                continue
            if len(value.shape) != len(argument.axes):
                raise ValueError(
                    f"{argument.name}: found rank {len(value.shape)}, needed {len(argument.axes)}: "
                    f"[{','.join(argument.axes)}]"
                )
            for axis, extent in zip(argument.axes, value.shape):
                extents.setdefault(axis, extent)
        named = {argument.name: value for argument, value in zip(arguments, values)}
        for axis, extent in self.extents.items():
            if axis not in extents:
                extents[axis] = extent(**named, **extents)
        return extents

    def shapes(self, values: Sequence[Any]) -> list[Shape | None]:
        """Of every result, None for one that is not there, for values of `self.values`."""
        extents = self.bind(self.values, values)
        named = {argument.name: value for argument, value in zip(self.values, values)}
        return [
            tuple(extents[axis] for axis in result.axes) if result.is_there(named) else None
            for result in self.results
        ]

    def gradient_shapes(self, values: Sequence[Any]) -> list[tuple[Shape, Any]]:
        """Of all gradients one after the other, those of lists included, for values of
        `self.backward_arguments`; with each an array of its type."""
        arguments = self.backward_arguments
        named = {argument.name: value for argument, value in zip(arguments, values)}
        found: list[tuple[Shape, Any]] = []
        for name, axes in zip(self.gradients, self.gradient_axes):
            if not named.get(ASKS + name, True):
                continue
            if axes is not None:
                extents = self.bind(arguments, values)
                found.append((tuple(extents[axis] for axis in axes), values[0]))
                continue
            value = named[name]
            arrays = value if isinstance(value, (list, tuple)) else [value]
            found.extend((tuple(array.shape), array) for array in arrays if has_gradient(name, array))
        return found


def has_gradient(name: str, array: Any) -> bool:
    """Whether an array of the argument `name`, which has gradients, has one: of what functions capture, integers have none."""
    return array is not None and (name != "captures" or "float" in str(array.dtype))


_ARGUMENT = re.compile(r"(?:(\S+) )?(\w+)(?:\[(\w+)\])?")
_RESULT = re.compile(r"(\w+)\[(\w*)\] (?:like|of) ([\w|]+)(?: if (.*))?")


def _match(pattern: re.Pattern[str], text: str) -> Iterator[tuple[Any, ...]]:
    for part in text.split(", "):
        found = pattern.fullmatch(part)
        assert found, part
        yield found.groups()


def declare(
    arguments: str, results: str, backward: str = "", gradients: str = "", **extents: Any
) -> Declaration:
    return Declaration(
        tuple(Argument(name, kind or "", axes) for kind, name, axes in _match(_ARGUMENT, arguments)),
        tuple(
            Result(name, axes, like, tuple(conditions.split(" or ")) if conditions else ())
            for name, axes, like, conditions in _match(_RESULT, results)
        ),
        tuple(backward.split()),
        tuple(each.split("[")[0] for each in gradients.split()),
        tuple(each[each.index("[") + 1 : -1] if "[" in each else None for each in gradients.split()),
        extents,
    )


# ----------------------------------------------------------------------------
# Extents of results
# ----------------------------------------------------------------------------


def _nodes(N: Any, ratio: int, levels: int, **_: Any) -> Any:
    """A geometric sum: a root, its children and so on, for every root."""
    segment = ratio**levels
    return N // segment * ((segment * ratio - 1) // (ratio - 1))


def _selected(n: Any, ratio: int, levels: int, budgets: Sequence[int], **_: Any) -> Any:
    """Splitting a node puts `ratio` in its place."""
    roots = _tokens(n, ratio, levels) // ratio**levels
    return roots + sum(budgets[1::2]) * (ratio - 1)


def _tokens(n: Any, ratio: int, levels: int, **_: Any) -> Any:
    return n * (ratio - 1) // (ratio ** (levels + 1) - 1) * ratio**levels


# ----------------------------------------------------------------------------
# Functions
# ----------------------------------------------------------------------------

_QKV = "Tensor q[BHND], Tensor k[BGMD], Tensor v[BGME], "
_TOKENS = ", Tensor? mask, Tensor? lengths"
_DENSE = (
    "float? scale, bool causal, SymInt? window, Tensor? log_weight, Tensor? bias, Tensor? sink, SymInt? prefix, "
    "Tensor? lengths, Tensor? query_lengths, str? score, Tensor[]? captures"
)
_STREAM = (
    "Tensor[] k[BGMD], Tensor[] v[BGME], bool[] causal, SymInt?[] window, SymInt?[] prefix, SymInt[] stride, "
    "Tensor?[] log_weight, Tensor?[] bias, Tensor?[] lengths, Tensor?[] rows, SymInt[] unit, str[] positions, str[] ranges, "
    "str[] source_score, SymInt[] source_captures, SymInt block, "
    "float? scale, Tensor? sink, Tensor? query_lengths, str? score, Tensor[]? captures"
)
_VARLEN = "float? scale, bool causal, SymInt? window, SymInt? prefix, Tensor? sink, SymInt? max_q, SymInt? max_k"
_MULTIPOLE = (
    "Tensor[]? key_weights, Tensor[]? value_weights, Tensor[]? key_biases, Tensor[]? value_biases, "
    "Tensor[]? key_summaries, Tensor[]? value_summaries, float? scale, bool causal, bool multiplicity"
)
_LINEAR = (
    "Tensor[]? query_weights, Tensor[]? key_weights, Tensor[]? value_weights, Tensor[]? query_biases, "
    "Tensor[]? key_biases, Tensor[]? value_biases, Tensor[]? query_summaries, Tensor[]? key_summaries, "
    "Tensor[]? value_summaries, float? scale, bool causal, bool allow_query_lookahead"
)
_VQ = (
    "SymInt block, SymInt memory" + _TOKENS + ", bool padded, Tensor? bias, Tensor[]? relative, Tensor? distance_bias, "
    "float scale, str weighting"
)
_SEARCH = "SymInt num_basis, SymInt window, float delta, float epsilon, float? scale"
_TREE = "Tensor nodes[BnF], Tensor? counts[Bn], int ratio, int levels"
_TURNS = (
    "Tensor positions, float base, str style, int? width, float[]? frequencies, float magnitude"
)


def _names(text: str) -> str:
    """Of arguments that are passed on in the same order."""
    return " ".join(name for _, name, _ in _match(_ARGUMENT, text.strip(", ")))


FUNCTIONS: dict[str, Declaration] = {
    "dense": declare(
        _QKV + _DENSE + ", return_lse",
        "out[BHNE] like q, lse[BHN] of sums",
        "d_out q k v out lse d_lse " + _names(_DENSE) + " return_d_log_weight return_d_bias return_d_captures",
        "q k v log_weight bias sink captures",
    ),
    "stream": declare(
        "Tensor q[BHND], " + _STREAM + ", return_lse",
        "out[BHNE] like q, lse[BHN] of sums",
        "d_out q out lse d_lse " + _names(_STREAM) + " return_d_log_weight return_d_bias return_d_captures",
        "q k v log_weight bias sink captures",
        E=lambda v, **_: v[0].shape[-1],
    ),
    "varlen": declare(
        "Tensor q[THD], Tensor k[SGD], Tensor v[SGE], Tensor cu_seqlens_q, Tensor cu_seqlens_k, " + _VARLEN + ", return_lse",
        "out[THE] like q, lse[HT] of sums",
        "d_out q k v cu_seqlens_q cu_seqlens_k out lse d_lse " + _names(_VARLEN),
        "q k v sink",
    ),
    "paged": declare(
        "Tensor q[BHND], Tensor k_pages[PGsD], Tensor v_pages[PGsE], Tensor block_table, Tensor lengths, SymInt? max_length, "
        "float? scale, bool causal, SymInt? window, Tensor? sink, Tensor? query_lengths, return_lse",
        "out[BHNE] like q, lse[BHN] of sums",
    ),
    "fast_multipole": declare(
        _QKV + "SymInt group, " + _MULTIPOLE + _TOKENS + ", return_lse",
        "out[BHNE] like q, lse[BHN] of sums",
        "d_out q k v group " + _names(_MULTIPOLE + _TOKENS) + " out lse d_lse",
        "q k v key_weights value_weights key_biases value_biases key_summaries value_summaries",
    ),
    "fast_multipole_linear": declare(
        _QKV + "SymInt group, " + _LINEAR + _TOKENS,
        "out[BHNE] like q",
        "d_out q k v group " + _names(_LINEAR + _TOKENS),
        "q k v query_weights key_weights value_weights query_biases key_biases value_biases "
        "query_summaries key_summaries value_summaries",
    ),
    # The compiled function has no `keys`, in a state or as a result: it stands for the
    # quantized keys of the tokens that a state keeps, and is there for its gradient alone.
    # `d_mean`, `d_keys` and `d_values` are one argument, and that of `state` is these three.
    "vq": declare(
        "Tensor q[BHND], Tensor k, Tensor v[BGNE], Tensor codebook[WSD], " + _VQ + ", bool causal, "
        "str reduction, Tensor[]? state, bool return_state, bool return_lse",
        "out[BHNE] like q, lse[BHN] of sums if return_lse, mean[BGSE] of sums if return_state, "
        "count[BGS] of int32 if return_state, codes[BGt] of int32 if return_state, "
        "values[BGtE] like v if return_state, position[] of int64 if return_state, "
        "keys[BGtD] like q if return_state",
        "d_out q k v codebook " + _names(_VQ) + " causal out/lse lse d_lse state d_mean d_keys d_values",
        "q k[BGND] v bias relative distance_bias state",
        t=lambda block, memory, **_: (memory + 1) * block,
    ),
    "conv": declare(
        _QKV + _SEARCH + ", SymInt? group, str algorithm, Tensor? token_mask, Tensor? lengths",
        "out[BHNE] like q, found[BH] of int32, recomputed[BH] of int32",
        "d_out q k v out " + _names(_SEARCH) + " group algorithm token_mask lengths",
        "q k v",
    ),
    "conv_apply": declare(
        "Tensor b[BHRN], Tensor sizes[BHR], Tensor v[BGNE], str algorithm, SymInt? block",
        "out[BHNE] like v, recomputed[BH] of int32",
        "d_out b sizes v out algorithm block",
        "b v",
    ),
    "conv_recover": declare(
        "Tensor q[BHND], Tensor k[BGND], " + _SEARCH,
        "b[BHRN] of sums, sizes[BHR] of int32, found[BH] of int32",
        "d_b q k sizes scale",
        "q k",
        R=lambda num_basis, **_: num_basis,
    ),
    "low_rank": declare(
        "Tensor u1[BHNr], Tensor u2[BGMr], Tensor v[BGME], str kind, Tensor? first, Tensor? second, "
        "Tensor? query_mask, Tensor? key_mask, Tensor? lengths",
        "out[BHNE] like u1",
        "d_out u1 u2 v out kind first second query_mask key_mask lengths",
        "u1 u2 v",
    ),
    "polynomial_features": declare(
        "Tensor x[BHND], int degree, float scale",
        "out[BHNF] like x",
        "d_out x degree scale",
        "x",
        F=lambda D, degree, **_: math.comb(D + degree, degree),
    ),
    "quantize": declare(
        "Tensor k[BGND], Tensor codebook[WSD]" + _TOKENS,
        "k_hat[BGND] like k, codes[BGN] of int32",
    ),
    "codebook_update": declare(
        "Tensor k[BGND], Tensor codes[BGN], Tensor sums[WSD], Tensor counts[WS], float rate, float min_count, "
        "float replace_below, int seed, bool wide",
        "codebook[WSD] like k|wide, sums[WSD] of sums, counts[WS] of sums",
    ),
    "commitment_loss": declare(
        "Tensor k[BGND], Tensor k_hat[BGND]" + _TOKENS,
        "loss[] of sums",
        "d_loss k k_hat mask lengths",
        "k",
    ),
    "pool": declare(
        "Tensor x[BGNE], Tensor gate[BGNE], SymInt interval, SymInt overlap, Tensor? position_bias",
        "out[BGME] like x",
        "d_out x gate interval overlap position_bias",
        "x gate position_bias",
        M=lambda N, interval, **_: N // interval,
    ),
    "top_k": declare(
        "Tensor scores[BHNM], SymInt k, SymInt? causal_unit",
        "indices[BHNK] of int32",
        K=lambda k, **_: k,
    ),
    "rope": declare(
        "Tensor x[BHND], " + _TURNS,
        "out[BHND] like x",
        "d_out " + _names(_TURNS),
        "x[BHND]",
    ),
    "tree_build": declare(
        "Tensor c[BNF], int ratio, int levels" + _TOKENS,
        "nodes[BnF] like c, counts[Bn] of int32 if mask or lengths",
        "d_nodes nodes counts ratio levels",
        "c[BNF]",
        n=_nodes,
        N=_tokens,
    ),
    "tree_fetch": declare(
        _TREE + ", Tensor level, Tensor index, return_log_weight, bool whole_segments",
        "rows[BrF] like nodes, log_weight[Br] of sums",
        "d_rows " + _names(_TREE) + " level index",
        "nodes",
        r=lambda level, **_: level.shape[-1],
    ),
    "tree_select": declare(
        _TREE + ", int[] budgets, Tensor score[BpF]",
        "level[Br] of int32, index[Br] of int32",
        r=_selected,
    ),
    "tree_update": declare(
        _TREE + ", Tensor level, Tensor index, Tensor rows[BrF]",
        "updated[BnF] like nodes",
        "d_updated " + _names(_TREE) + " level index",
        "nodes rows[BrF]",
        r=lambda level, **_: level.shape[-1],
    ),
    "tree_materialize": declare(
        _TREE,
        "c[BNF] like nodes",
        "d_c " + _names(_TREE),
        "nodes",
        N=_tokens,
    ),
    "tree_score": declare(
        "Tensor query[BHpD], Tensor key[BGcD], float? scale, Tensor? log_weight, Tensor? mask, bool exponential",
        "score[Bc] of sums",
        "d_score query key scale log_weight mask exponential",
        "query key log_weight",
    ),
}
