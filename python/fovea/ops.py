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
    """Types and shapes; TypeError or AttributeError for what is no array, or is one
    that the checks have to refuse."""
    for array in arrays:
        if type(array) is not np.ndarray and getattr(array, "requires_grad", False):
            raise TypeError
    return tuple([part for array in arrays for part in (array.dtype, array.shape)])


def _find(options: tuple[Any, ...], arrays: Sequence[Any]) -> tuple[tuple[Any, ...] | None, Any]:
    """The key of a call, None when it has none, and the kernel, if known."""
    try:
        # Types of options as well: 2 == 2.0 == True, but they are not checked alike.
        key = (options, tuple(map(type, options)), _key(arrays))
        return key, _callables.get(key)
    except (AttributeError, TypeError):
        # No array with a type and a shape of its own: the checks will say so,
        # or read it through DLPack alone.
        return None, None


def _remembered(
    options: tuple[Any, ...], arrays: Sequence[Any], make: Callable[[], Any]
) -> Any:
    """The kernel of a call, which is made if it is not known."""
    key, kernel = _find(options, arrays)
    if kernel is None:
        kernel = make()
        if key is not None:
            remember(key, kernel)
    return kernel


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
    results: Sequence[tuple[str, Sequence[str]]],
    attributes: Sequence[str],
    target: str,
) -> _fovea.Kernel:
    """Compiles a function that is one operation.

    Its arguments are `inputs` and then those of `clauses` in their order;
    `results` are the types of its destinations, by clause.  A clause without
    operands is left out.
    """
    clauses = [("ins", inputs)] + [clause for clause in clauses if clause[1]]
    arguments = [tensor for _, tensors in clauses for tensor in tensors]
    parameters = ", ".join(f"{tensor.value}: {tensor.type}" for tensor in arguments)
    operands = " ".join(f"{name}{_list(tensors)}" for name, tensors in clauses)
    types = [type for _, group in results for type in group]
    empties, outs = "", []
    for name, group in results:
        inits = []
        for type in group:
            inits.append(f"%init{len(empties.splitlines())}")
            empties += f"  {inits[-1]} = tensor.empty() : {type}\n"
        if inits:
            outs.append(f"{name}({', '.join(inits)} : {', '.join(group)})")
    single = len(types) == 1
    bundle = "%result" if single else f"%result:{len(types)}"
    values = ["%result"] if single else [f"%result#{index}" for index in range(len(types))]
    all_types = ", ".join(types)
    text = (
        f"func.func @{op}({parameters}) -> ({all_types}) {{\n"
        f"{empties}"
        f"  {bundle} = attn.{op} {operands}\n"
        f"      {' '.join(outs)} {{{', '.join(attributes)}}} -> {all_types}\n"
        f"  return {', '.join(values)} : {all_types}\n"
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


def _with_rank(name: str, array: Any, rank: int) -> Any:
    """`array` with leading axes of extent 1, as NumPy broadcasts."""
    missing = rank - len(getattr(array, "shape", (0,) * rank))
    if missing <= 0:
        return array
    if not hasattr(array, "reshape"):
        _fovea.describe(name, array)
        array = np.from_dlpack(array)
    return array.reshape((1,) * missing + tuple(array.shape))


def _dense_window(window: Any, q: Tensor, k: Tensor) -> int | None:
    if window is None:
        return None
    # A window that reaches everything is one whatever its size.
    return min(check.integer("window", window, 0), q.shape[2] + k.shape[2])


def _dense_terms(
    q: Tensor, k: Tensor, log_weight: Any, bias: Any
) -> list[tuple[str, list[Tensor]]]:
    """The clauses of what is added to scores."""
    clauses = []
    for name, term, shape in (
        ("log_weight", log_weight, k.shape[:3]),
        ("bias", bias, (*q.shape[:3], k.shape[2])),
    ):
        if term is not None:
            clauses.append((name, [check.score_term(name, term, q.element, shape)]))
    return clauses


def _dense_attributes(scale: Any, q: Tensor, causal: bool, window: int | None) -> list[str]:
    attributes = [f"scale = {_float(check.scale(scale, q.shape[3]))}"]
    masks = ["causal"] * bool(causal)
    masks += [f"window = {window}"] * (window is not None)
    if masks:
        attributes.append(f"mask = #attn.mask<{', '.join(masks)}>")
    return attributes


def _dense_arrays(q: Any, k: Any, v: Any, log_weight: Any, bias: Any) -> list[Any]:
    """The arrays of a call, terms with all their axes."""
    arrays = [q, k, v]
    if log_weight is not None:
        arrays.append(_with_rank("log_weight", log_weight, 3))
    if bias is not None:
        arrays.append(_with_rank("bias", bias, 4))
    return arrays


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
    rows, keys, value_width = q.shape[:3], v.shape[2], v.shape[3]
    window = _dense_window(window, q, k)
    clauses = _dense_terms(q, k, log_weight, bias)
    if 0 in rows or keys == 0 or window == 0:
        return _nothing_to_read(
            q.element, (*rows, value_width), rows if return_lse else None
        )
    results = [tensor_type(q.element, (*rows, value_width))]
    if return_lse:
        results.append(tensor_type(check.state_type(q.element), rows))
    attributes = _dense_attributes(scale, q, causal, window)
    return _build("dense", (q, k, v), clauses, [("outs", results)], attributes, target)


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
    check.flags(causal=causal, return_lse=return_lse)
    arrays = _dense_arrays(q, k, v, log_weight, bias)
    terms = iter(arrays[3:])
    log_weight = None if log_weight is None else next(terms)
    bias = None if bias is None else next(terms)
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
    kernel = _remembered(
        options,
        arrays,
        lambda: _make_dense(q, k, v, scale, causal, window, log_weight, bias, return_lse, target),
    )
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


def _multipole_clauses(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    weights: Sequence[Any],
    biases: Sequence[Any],
    group: Any,
    scale: Any,
) -> tuple[list[tuple[str, list[Tensor]]], list[str]]:
    """The weights and biases of all levels, and the attributes of both forms.

    `weights` and `biases` go with v, k and, if there are three, q, from the
    last to the first.
    """
    scale = check.scale(scale, q.shape[3])
    group = check.integer("group", group, 1)
    names = ("query", "key", "value")[-len(weights) :]
    tensors = (q, k, v)[-len(weights) :]
    rank, families = None, []
    for name, weight, bias, tensor in zip(names, weights, biases, tensors):
        family, rank = check.family(name, weight, bias, tensor, group, rank)
        families.append(family)
    clauses = [(f"{n}_weights", family.weights) for n, family in zip(names, families)]
    clauses += [(f"{n}_biases", family.biases) for n, family in zip(names, families)]
    return clauses, [f"group = {group} : i64", f"scale = {_float(scale)}"]


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
    check_target(target)
    q, k, v = check.queries_keys_values(q, k, v, same_length=True)
    clauses, attributes = _multipole_clauses(q, k, v, weights, biases, group, scale)
    rows, value_width = q.shape[:3], v.shape[3]
    if 0 in rows:
        return _nothing_to_read(
            q.element, (*rows, value_width), rows if return_lse else None
        )
    results = [tensor_type(q.element, (*rows, value_width))]
    if return_lse:
        results.append(tensor_type(check.state_type(q.element), rows))
    return _build(
        op, (q, k, v), clauses, [("outs", results)], [*attributes, *flags], target
    )


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

    From "Fast Multipole Attention" (arXiv:2310.11960).
    """
    check.flags(causal=causal, multiplicity=multiplicity, return_lse=return_lse)
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


def _lookahead_flags(causal: bool, allow_query_lookahead: bool) -> tuple[str, ...]:
    """The attributes of a linear form, which is causal only on purpose."""
    check.flags(causal=causal, allow_query_lookahead=allow_query_lookahead)
    if causal and not allow_query_lookahead:
        raise ValueError(
            "causal: found True without allow_query_lookahead, needed both: a summary of "
            "queries mixes later queries of its interval into earlier rows"
        )
    return ("causal", "allow_query_lookahead") if causal else ()


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

    The linear form of "Fast Multipole Attention" (arXiv:2310.11960).
    """
    flags = _lookahead_flags(causal, allow_query_lookahead)
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
