# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The attention functions: those of C++, which check the arguments."""

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
    return _fovea.dense(q, k, v, scale, causal, window, log_weight, bias, return_lse, target)


# ----------------------------------------------------------------------------
# Fast multipole
# ----------------------------------------------------------------------------


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
    return _fovea.fast_multipole(
        q, k, v, group, key_weights, value_weights, key_biases, value_biases, scale, causal,
        multiplicity, return_lse, target,
    )  # fmt: skip


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
    return _fovea.fast_multipole_linear(
        q, k, v, group, query_weights, key_weights, value_weights, query_biases, key_biases,
        value_biases, scale, causal, allow_query_lookahead, target,
    )  # fmt: skip
