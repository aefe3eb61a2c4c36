# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The attention functions.

A call makes a key of the shapes, types and options; a kernel that was compiled
for that key runs at once.  Otherwise the arguments are checked, a function with
the one operation is written as IR and compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import _arguments as check
from . import _fovea
from ._arguments import Tensor, tensor_type
from .compiler import _callables, check_target, remember

__all__ = ["dense", "fast_multipole", "fast_multipole_linear"]


# ----------------------------------------------------------------------------
# Keys
# ----------------------------------------------------------------------------


def _key(arrays: Sequence[Any]) -> tuple[Any, ...]:
    """Types and shapes; TypeError or AttributeError for what is no array."""
    return tuple([part for array in arrays for part in (array.dtype, array.shape)])


def _find(options: tuple[Any, ...], arrays: Sequence[Any]) -> tuple[tuple[Any, ...] | None, Any]:
    """The key of a call, None when it has none, and the kernel, if known."""
    try:
        key = (options, _key(arrays))
        return key, _callables.get(key)
    except (AttributeError, TypeError):
        # No array with a type and a shape of its own: the checks will say so,
        # or read it through DLPack alone.
        return None, None


# ----------------------------------------------------------------------------
# Kernels
# ----------------------------------------------------------------------------


def _list(tensors: Sequence[Tensor]) -> str:
    values = ", ".join(tensor.value for tensor in tensors)
    types = ", ".join(tensor.type for tensor in tensors)
    return f"({values} : {types})"


def _build(
    op: str,
    inputs: Sequence[Tensor],
    clauses: Sequence[tuple[str, Sequence[Tensor]]],
    results: Sequence[str],
    attributes: Sequence[str],
    target: str,
) -> _fovea.Kernel:
    """Compiles a function that is one operation.

    Its arguments are `inputs` and then those of `clauses` in their order; a
    clause without arguments is left out.
    """
    clauses = [("ins", inputs)] + [clause for clause in clauses if clause[1]]
    arguments = [tensor for _, tensors in clauses for tensor in tensors]
    parameters = ", ".join(f"{tensor.value}: {tensor.type}" for tensor in arguments)
    types = ", ".join(results)
    inits = [f"%init{index}" for index in range(len(results))]
    empties = "".join(
        f"  {init} = tensor.empty() : {type}\n" for init, type in zip(inits, results)
    )
    operands = " ".join(f"{name}{_list(tensors)}" for name, tensors in clauses)
    bundle = "%out" if len(results) == 1 else f"%out:{len(results)}"
    outputs = ", ".join(
        "%out" if len(results) == 1 else f"%out#{index}" for index in range(len(results))
    )
    text = (
        f"func.func @{op}({parameters}) -> ({types}) {{\n"
        f"{empties}"
        f"  {bundle} = attn.{op} {operands}\n"
        f"      outs({', '.join(inits)} : {types}) {{{', '.join(attributes)}}} -> {types}\n"
        f"  return {outputs} : {types}\n"
        "}\n"
    )
    return _fovea.compile(text, target, "native", None)


def _nothing_to_read(
    element: str, out: tuple[int, ...], lse: tuple[int, ...] | None
) -> Callable[..., Any]:
    """What stands for a kernel when no query has a key to attend to."""
    type = _fovea.bfloat16() if element == "bf16" else np.dtype(check.FLOAT_TYPES[element])
    state = check.FLOAT_TYPES[check.state_type(element)]

    def call(*arrays: Any) -> Any:
        zeros = np.zeros(out, type)
        return zeros if lse is None else (zeros, np.full(lse, -np.inf, state))

    return call


def _float(value: float) -> str:
    # All digits, and always the point that IR wants.
    return f"{value:.17e} : f64"


# ----------------------------------------------------------------------------
# Dense
# ----------------------------------------------------------------------------


def _with_rank(array: Any, rank: int) -> Any:
    """`array` with leading axes of extent 1, as NumPy broadcasts."""
    missing = rank - len(array.shape)
    if not hasattr(array, "reshape"):
        array = np.from_dlpack(array)
    return array.reshape((1,) * missing + tuple(array.shape)) if missing > 0 else array


def _make_dense(
    q: Any,
    k: Any,
    v: Any,
    scale: Any,
    causal: bool,
    window: Any,
    log_weight: Any,
    bias: Any,
    return_lse: bool,
    target: str,
) -> Callable[..., Any]:
    check_target(target)
    q, k, v = check.queries_keys_values(q, k, v, same_length=False)
    batch, heads, length, width = q.shape
    _, groups, keys, value_width = v.shape
    scale = check.scale(scale, width)
    if window is not None:
        # A window that reaches everything is one whatever its size.
        window = min(check.integer("window", window, 0), length + keys)
    clauses = []
    if log_weight is not None:
        of_keys = (batch, groups, keys)
        term = check.score_term("log_weight", log_weight, q.element, of_keys)
        clauses.append(("log_weight", [term]))
    if bias is not None:
        of_scores = (batch, heads, length, keys)
        term = check.score_term("bias", bias, q.element, of_scores)
        clauses.append(("bias", [term]))

    rows = (batch, heads, length)
    if 0 in rows or keys == 0 or window == 0:
        return _nothing_to_read(
            q.element, (*rows, value_width), rows if return_lse else None
        )
    results = [tensor_type(q.element, (*rows, value_width))]
    if return_lse:
        results.append(tensor_type(check.state_type(q.element), rows))
    attributes = [f"scale = {_float(scale)}"]
    masks = ["causal"] * bool(causal)
    masks += [f"window = {window}"] * (window is not None)
    if masks:
        attributes.append(f"mask = #attn.mask<{', '.join(masks)}>")
    return _build("dense", (q, k, v), clauses, results, attributes, target)


def dense(
    q: Any,
    k: Any,
    v: Any,
    *,
    scale: float | None = None,
    causal: bool = False,
    window: int | None = None,
    log_weight: Any = None,
    bias: Any = None,
    return_lse: bool = False,
    target: str = "cpu",
) -> Any:
    """softmax(scale q k^T + log_weight[key] + bias[query,key] + mask) v.

    q is [B,H,N,D], k [B,G,M,D], v [B,G,M,E] with H a multiple of G: query head
    h reads head h / (H/G) of the keys.  All have one type of float16, bfloat16,
    float32 and float64.  The result is [B,H,N,E] of that type; with
    `return_lse` the natural log-sum-exp [B,H,N] in float32 (float64) follows.

    `scale` is 1/sqrt(D) by default.  Query i has position p = i + M - N among
    the keys: `causal` admits keys j <= p, `window` = w those with |p - j| < w.
    `log_weight` broadcasts to [B,G,M], `bias` to [B,H,N,M]; both have the type
    of q or the type of the log-sum-exp.  A query without any key gives zeros
    and -inf.
    """
    arrays = [q, k, v]
    if log_weight is not None:
        if len(getattr(log_weight, "shape", (0, 0, 0))) < 3:
            log_weight = _with_rank(log_weight, 3)
        arrays.append(log_weight)
    if bias is not None:
        if len(getattr(bias, "shape", (0, 0, 0, 0))) < 4:
            bias = _with_rank(bias, 4)
        arrays.append(bias)
    options = (
        "dense",
        target,
        scale,
        causal,
        window,
        log_weight is None,
        bias is None,
        return_lse,
    )
    key, kernel = _find(options, arrays)
    if kernel is None:
        kernel = _make_dense(
            q, k, v, scale, causal, window, log_weight, bias, return_lse, target
        )
        if key is not None:
            remember(key, kernel)
    return kernel(*arrays)


# ----------------------------------------------------------------------------
# Fast multipole
# ----------------------------------------------------------------------------


def _collect(*lists: Any) -> tuple[list[Any], tuple[int | None, ...]]:
    """The arrays of all levels in one list, and how many each list has.

    What is no list stays as it is, for the checks to name.
    """
    arrays: list[Any] = []
    counts: list[int | None] = []
    for entries in lists:
        if entries is None:
            counts.append(None)
        elif isinstance(entries, (list, tuple)):
            arrays.extend(entries)
            counts.append(len(entries))
        else:
            raise TypeError
    return arrays, tuple(counts)


def _make_multipole(
    op: str,
    q: Any,
    k: Any,
    v: Any,
    weights: Sequence[Any],
    biases: Sequence[Any],
    group: Any,
    scale: Any,
    flags: Sequence[str],
    return_lse: bool,
    target: str,
) -> Callable[..., Any]:
    """`weights` and `biases` go with v, k and, if there are three, q, from the
    last to the first."""
    check_target(target)
    q, k, v = check.queries_keys_values(q, k, v, same_length=True)
    batch, heads, length, width = q.shape
    value_width = v.shape[3]
    scale = check.scale(scale, width)
    group = check.integer("group", group, 1)

    names = ("query", "key", "value")[-len(weights) :]
    tensors = (q, k, v)[-len(weights) :]
    rank, families = None, []
    for name, weight, bias, tensor in zip(names, weights, biases, tensors):
        family, rank = check.family(name, weight, bias, tensor, group, rank)
        families.append(family)
    clauses = [(f"{n}_weights", family.weights) for n, family in zip(names, families)]
    clauses += [(f"{n}_biases", family.biases) for n, family in zip(names, families)]

    rows = (batch, heads, length)
    if 0 in rows:
        return _nothing_to_read(
            q.element, (*rows, value_width), rows if return_lse else None
        )
    results = [tensor_type(q.element, (*rows, value_width))]
    if return_lse:
        results.append(tensor_type(check.state_type(q.element), rows))
    attributes = [f"group = {group} : i64", f"scale = {_float(scale)}", *flags]
    return _build(op, (q, k, v), clauses, results, attributes, target)


def _call_multipole(
    op: str,
    q: Any,
    k: Any,
    v: Any,
    weights: Sequence[Any],
    biases: Sequence[Any],
    group: Any,
    scale: Any,
    flags: tuple[str, ...],
    return_lse: bool,
    target: str,
) -> Any:
    arrays, key, kernel = [], None, None
    try:
        levels, counts = _collect(*weights, *biases)
        arrays = [q, k, v, *levels]
        options = (op, target, group, scale, flags, return_lse, counts)
        key, kernel = _find(options, arrays)
    except TypeError:
        # Iterators can be read once only.
        weights = [_as_list(entries) for entries in weights]
        biases = [_as_list(entries) for entries in biases]
        arrays = [q, k, v]
    if kernel is None:
        kernel = _make_multipole(
            op, q, k, v, weights, biases, group, scale, flags, return_lse, target
        )
        if key is not None:
            remember(key, kernel)
        else:
            arrays = [q, k, v, *_collect(*weights, *biases)[0]]
    return kernel(*arrays)


def _as_list(entries: Any) -> Any:
    try:
        return list(entries)
    except TypeError:
        return entries


def fast_multipole(
    q: Any,
    k: Any,
    v: Any,
    key_weights: Sequence[Any],
    value_weights: Sequence[Any],
    *,
    group: int,
    causal: bool = False,
    key_biases: Sequence[Any] | None = None,
    value_biases: Sequence[Any] | None = None,
    scale: float | None = None,
    multiplicity: bool = True,
    return_lse: bool = False,
    target: str = "cpu",
) -> Any:
    """Hierarchical attention: near keys one by one, far ones by summaries.

    Queries attend to the keys of their own and the neighbouring groups of
    m = `group` tokens, and to intervals of m_l = 2^(l-1) m tokens farther away
    through p weighted sums of their keys and values.  q, k and v are as in
    `dense` with M = N.  `key_weights` and `value_weights` are lists with one
    array for each level l = 1..L, level 1 first: [W,p,m_l,D] and [W,p,m_l,E],
    where W is 1 or divides the heads of k, and L is the least number with
    N <= m 2^(L+1).  Biases, if any, are [W,p,D] and [W,p,E].

    A summary that stands for several tokens counts as often, unless
    `multiplicity` is false.
    """
    flags = (
        *(("causal",) if causal else ()),
        *(() if multiplicity else ("multiplicity = false",)),
    )
    return _call_multipole(
        "fast_multipole",
        q,
        k,
        v,
        (key_weights, value_weights),
        (key_biases, value_biases),
        group,
        scale,
        flags,
        return_lse,
        target,
    )


def fast_multipole_linear(
    q: Any,
    k: Any,
    v: Any,
    query_weights: Sequence[Any],
    key_weights: Sequence[Any],
    value_weights: Sequence[Any],
    *,
    group: int,
    causal: bool = False,
    allow_query_lookahead: bool = False,
    query_biases: Sequence[Any] | None = None,
    key_biases: Sequence[Any] | None = None,
    value_biases: Sequence[Any] | None = None,
    scale: float | None = None,
    target: str = "cpu",
) -> Any:
    """Hierarchical attention in which queries are summarised as well.

    As `fast_multipole`, but at level l a summary of queries attends for the
    queries it stands for; each level has a soft-max of its own, and the levels
    are summed.  `query_weights` is like `key_weights`, with a W that divides the
    heads of q.

    A summary of queries mixes later queries into earlier rows.  `causal` is
    therefore not strictly causal, and needs `allow_query_lookahead`.
    """
    if causal and not allow_query_lookahead:
        raise ValueError(
            "causal: found True without allow_query_lookahead, needed both: a summary of "
            "queries mixes later queries of its interval into earlier rows"
        )
    flags = ("causal", "allow_query_lookahead") if causal else ()
    return _call_multipole(
        "fast_multipole_linear",
        q,
        k,
        v,
        (query_weights, key_weights, value_weights),
        (query_biases, key_biases, value_biases),
        group,
        scale,
        flags,
        False,
        target,
    )
