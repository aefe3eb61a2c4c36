# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Complex numbers in graphs of torch.export as their real and imaginary parts.

torch-mlir has few operations on them, some of which are wrong, and kernels of GPUs have none. An operation that is not
known here is an error.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from .. import _fovea

__all__ = ["find_place", "join_pairs", "make_pairs", "split_complex"]

aten = torch.ops.aten

_REAL = {torch.complex64: torch.float32, torch.complex128: torch.float64, torch.complex32: torch.float16}


def make_pairs(x: Tensor) -> Tensor:
    """`[.., 2]` of complex numbers."""
    return torch.view_as_real(x.resolve_conj())


def join_pairs(x: Tensor) -> Tensor:
    return torch.view_as_complex(x)


class Complex(NamedTuple):
    """Tensors of a type, or the parts of a number of Python."""

    real: Any
    imaginary: Any

    def times(self, other: Complex) -> Complex:
        (a, b), (c, d) = self, other
        return Complex(a * c - b * d, a * d + b * c)

    def squares(self) -> Tensor:
        return self.real * self.real + self.imaginary * self.imaginary


def _split(x: Any) -> Complex:
    """Of anything that is a number."""
    if isinstance(x, Complex):
        return x
    if isinstance(x, complex):
        return Complex(x.real, x.imag)
    return Complex(x, torch.zeros_like(x) if isinstance(x, Tensor) else 0.0)


def _is_complex(x: Any) -> bool:
    return isinstance(x, (Complex, complex))


# ----------------------------------------------------------------------------
# Operations
# ----------------------------------------------------------------------------


def _by_parts(target: Any) -> Callable[..., Any]:
    """Each part of the result is that of the parts of the operands, of which some may be real."""

    def compute(*args: Any, **kwargs: Any) -> Any:
        # Types are those of parts.
        kwargs = {name: _REAL.get(each, each) if isinstance(each, torch.dtype) else each for name, each in kwargs.items()}

        def part(number: int) -> Any:
            def choose(each: Any) -> Any:
                return each[number] if isinstance(each, Complex) else each

            return target(
                *pytree.tree_map(choose, args, is_leaf=_is_complex), **pytree.tree_map(choose, kwargs, is_leaf=_is_complex)
            )

        real, imaginary = part(0), part(1)
        if isinstance(real, Tensor):
            return Complex(real, imaginary)
        return [Complex(*each) for each in zip(real, imaginary)]

    return compute


def _of_many(target: Any) -> Callable[..., Complex]:
    def compute(tensors: Any, *args: Any) -> Complex:
        return Complex(*(target(list(parts), *args) for parts in zip(*map(_split, tensors))))

    return compute


def _sum(sign: int) -> Callable[..., Complex]:
    def compute(x: Any, y: Any, *, alpha: Any = 1) -> Complex:
        (a, b), (c, d), factor = _split(x), _split(y), sign * alpha
        if isinstance(factor, complex):
            raise NotImplementedError
        return Complex(torch.add(a, c, alpha=factor), torch.add(b, d, alpha=factor))

    return compute


def _product(x: Any, y: Any) -> Complex:
    if not _is_complex(x):
        x, y = y, x
    if not _is_complex(y):
        return Complex(x.real * y, x.imaginary * y)
    return _split(x).times(_split(y))


def _quotient(x: Any, y: Any) -> Complex:
    if not _is_complex(y):
        return Complex(x.real / y, x.imaginary / y)
    # Of numbers near 1, so that squares are not infinite.
    c, d = _split(y)
    if not isinstance(c, Tensor):
        inverse = 1 / complex(c, d)
        return _split(x).times(_split(inverse))
    scale = torch.maximum(c.abs(), d.abs())
    c, d = c / scale, d / scale
    norm = (c * c + d * d) * scale
    return _split(x).times(Complex(c / norm, -d / norm))


def _magnitude(x: Complex) -> Tensor:
    scale = torch.maximum(x.real.abs(), x.imaginary.abs())
    safe = torch.where(scale == 0, torch.ones_like(scale), scale)
    found = Complex(x.real / safe, x.imaginary / safe)
    # Infinity by infinity is no number, and beside infinity it does not matter what is none.
    is_infinite = x.real.isinf() | x.imaginary.isinf()
    return torch.where(is_infinite, torch.full_like(scale, math.inf), torch.sqrt(found.squares()) * scale)


def _angle(x: Complex) -> Tensor:
    return torch.atan2(x.imaginary, x.real)


def _exponential(x: Complex) -> Complex:
    size = torch.exp(x.real)
    return Complex(size * torch.cos(x.imaginary), size * torch.sin(x.imaginary))


def _power(x: Complex, exponent: Any) -> Complex:
    if not isinstance(exponent, int) or not 1 <= exponent <= 8:
        raise NotImplementedError
    found = x
    for _ in range(exponent - 1):
        found = found.times(x)
    return found


def _matrix_product(target: Any) -> Callable[..., Complex]:
    def compute(x: Any, y: Any) -> Complex:
        if not _is_complex(x):
            return Complex(target(x, y.real), target(x, y.imaginary))
        if not _is_complex(y):
            return Complex(target(x.real, y), target(x.imaginary, y))
        (a, b), (c, d) = x, y
        return Complex(target(a, c) - target(b, d), target(a, d) + target(b, c))

    return compute


def _choose(condition: Tensor, x: Any, y: Any) -> Complex:
    return Complex(*(torch.where(condition, *parts) for parts in zip(_split(x), _split(y))))


def _convert(x: Any, dtype: torch.dtype | None = None, **_: Any) -> Any:
    real = _REAL.get(dtype) if dtype is not None else None
    if isinstance(x, Complex):
        if dtype is None:
            return Complex(x.real.clone(), x.imaginary.clone())
        return Complex(x.real.to(real), x.imaginary.to(real)) if real else x.real.to(dtype)
    return _split(x.to(real))


def _full(target: Any) -> Callable[..., Complex]:
    """Of a number, for a type that is complex."""

    def compute(*args: Any, dtype: torch.dtype | None = None, **_: Any) -> Complex:
        *others, number = args
        others = [each.real if isinstance(each, Complex) else each for each in others]
        kwargs = {} if dtype is None else {"dtype": _REAL[dtype]}
        return Complex(*(target(*others, part, **kwargs) for part in _split(number)))

    return compute


def _zeros(target: Any, number: float) -> Callable[..., Complex]:
    def compute(*args: Any, dtype: torch.dtype | None = None, **_: Any) -> Complex:
        args = tuple(each.real if isinstance(each, Complex) else each for each in args)
        kwargs = {} if dtype is None else {"dtype": _REAL[dtype]}
        found = target(*args, **kwargs)
        return Complex(found, torch.zeros_like(found) if number else found)

    return compute


def _pad(x: Complex, pad: Any, value: Any = 0) -> Complex:
    return Complex(*(aten.constant_pad_nd.default(*parts) for parts in ((x.real, pad, _split(value).real), (x.imaginary, pad, 0))))


def _copy(x: Any, source: Any, *_: Any) -> Any:
    if not isinstance(x, Complex):
        return aten.copy.default(x, source.real)
    return Complex(*(aten.copy.default(*parts) for parts in zip(x, _split(source))))


def _scatter(target: Any) -> Callable[..., Complex]:
    """Of slices, into a tensor that is complex."""

    def compute(x: Any, source: Any, *args: Any, **kwargs: Any) -> Complex:
        return Complex(*(target(*parts, *args, **kwargs) for parts in zip(_split(x), _split(source))))

    return compute


def _index_put(x: Any, indices: Any, source: Any, accumulate: bool = False) -> Complex:
    return Complex(*(aten.index_put.default(a, indices, b, accumulate) for a, b in zip(_split(x), _split(source))))


def _is_equal(x: Any, y: Any) -> Tensor:
    (a, b), (c, d) = _split(x), _split(y)
    return (a == c) & (b == d)


_PARTS = (
    "view.default reshape.default _unsafe_view.default permute.default transpose.int unsqueeze.default squeeze.default squeeze.dim "
    "squeeze.dims expand.default slice.Tensor select.int clone.default alias.default index.Tensor index_select.default flip.default "
    "roll.default repeat.default gather.default neg.default _neg_view.default sum.default sum.dim_IntList mean.default mean.dim "
    "cumsum.default narrow.default split_with_sizes.default split.Tensor unbind.int diagonal.default tril.default triu.default "
    "detach.default lift_fresh_copy.default"
).split()


def _find(name: str) -> Any:
    packet, overload = name.split(".")
    return getattr(getattr(aten, packet), overload)


_OPERATIONS: dict[Any, Callable[..., Any]] = {
    **{each: _by_parts(each) for each in map(_find, _PARTS)},
    **{each: _of_many(each) for each in (aten.cat.default, aten.stack.default)},
    **{each: _matrix_product(each) for each in (aten.mm.default, aten.bmm.default, aten.mv.default)},
    aten.view_as_complex.default: lambda x: Complex(x.select(-1, 0), x.select(-1, 1)),
    aten.view_as_real.default: lambda x: torch.stack(x, -1),
    aten.complex.default: Complex,
    aten.polar.default: lambda size, angle: Complex(size * torch.cos(angle), size * torch.sin(angle)),
    aten.real.default: lambda x: x.real, aten.imag.default: lambda x: x.imaginary,
    aten._conj.default: lambda x: Complex(x.real, -x.imaginary), aten.conj_physical.default: lambda x: Complex(x.real, -x.imaginary),
    aten.add.Tensor: _sum(1), aten.sub.Tensor: _sum(-1), aten.add.Scalar: _sum(1), aten.sub.Scalar: _sum(-1),
    aten.mul.Tensor: _product, aten.mul.Scalar: _product, aten.div.Tensor: _quotient, aten.div.Scalar: _quotient,
    aten.reciprocal.default: lambda x: _quotient(1.0, x), aten.abs.default: _magnitude, aten.angle.default: _angle,
    aten.exp.default: _exponential, aten.pow.Tensor_Scalar: _power, aten.where.self: _choose, aten.where.ScalarOther: _choose,
    aten._to_copy.default: _convert, torch.ops.prims.convert_element_type.default: _convert, aten.constant_pad_nd.default: _pad,
    aten.copy.default: _copy, aten.index_put.default: _index_put,
    **{each: _scatter(each) for each in (aten.slice_scatter.default, aten.select_scatter.default)},
    **{each: _full(each) for each in (aten.scalar_tensor.default, aten.full.default, aten.full_like.default)},
    **{each: _zeros(each, 0) for each in (aten.zeros.default, aten.zeros_like.default)},
    **{each: _zeros(each, 1) for each in (aten.ones.default, aten.ones_like.default)},
    aten.empty_strided.default: lambda size, stride, *, dtype, **_: Complex(*[torch.zeros(size, dtype=_REAL[dtype])] * 2),
    aten.eq.Tensor: _is_equal, aten.eq.Scalar: _is_equal,
}  # fmt: skip


# ----------------------------------------------------------------------------
# Graphs
# ----------------------------------------------------------------------------


def _has_complex(value: Any) -> bool:
    return any(isinstance(each, Tensor) and each.is_complex() for each in pytree.tree_leaves(value))


def _write(node: Node, parts: dict[Node, Any], table: dict[Any, Any], mode: FakeTensorMode) -> Any:
    """What takes the place of a node: another, or parts."""
    compute = _OPERATIONS.get(node.target)
    if compute is None:
        raise _fovea.FoveaError(_describe(node))
    leaves, spec = pytree.tree_flatten(((*node.args,), dict(node.kwargs)))
    leaves = [parts.get(each, each) if isinstance(each, Node) else each for each in leaves]
    leaves, spec = pytree.tree_flatten(pytree.tree_unflatten(leaves, spec))
    places = [number for number, each in enumerate(leaves) if isinstance(each, Node)]
    operands = [leaves[number] for number in places]
    results: list[Any] = []

    def trace(*values: Any) -> Any:
        given = list(leaves)
        for number, value in zip(places, values):
            given[number] = value
        args, kwargs = pytree.tree_unflatten(given, spec)
        found, shape = pytree.tree_flatten(compute(*args, **kwargs))
        results[:] = [shape]
        return found

    values = [each.meta["val"] for each in operands]
    try:
        with mode:
            traced = make_fx(trace, decomposition_table=table)(*values)
    except NotImplementedError:
        raise _fovea.FoveaError(_describe(node)) from None
    known = dict(zip(traced.graph.find_nodes(op="placeholder"), operands))
    with node.graph.inserting_before(node):
        found = node.graph.graph_copy(traced.graph, known)
    return pytree.tree_unflatten(found, results[0])


def find_place(trace: str | None, how: str) -> str:
    """The last line of a stack trace as the end of a message, if there is one."""
    places = re.findall(r'File "([^"<]+)", line (\d+)', trace or "")
    return f"{how} {places[-1][0]}:{places[-1][1]}" if places else ""


def _describe(node: Node) -> str:
    name = str(node.target).removesuffix(".default")
    return f"{name} of complex numbers is not known" + find_place(node.meta.get("stack_trace"), ", called at")


def split_complex(module: GraphModule, table: dict[Any, Any]) -> None:
    """Writes all operations on complex numbers as such on their parts."""
    graph, parts = module.graph, dict[Node, Any]()
    # All of a graph have one, and those without operands need it.
    modes = (each.fake_mode for node in graph.nodes for each in pytree.tree_leaves(node.meta.get("val")) if isinstance(each, FakeTensor))
    mode = next(modes, None) or FakeTensorMode()
    for node in list(graph.nodes):
        is_among = any(each in parts for each in node.all_input_nodes)
        if node.op == "output":
            break
        if not is_among and not _has_complex(node.meta.get("val")):
            continue
        if node.op == "placeholder":
            raise _fovea.FoveaError(f"found complex numbers as {node.name}, needed real ones, of which view_as_complex makes pairs")
        if node.target is operator.getitem:
            found = parts[node.args[0]][node.args[1]]
        else:
            found = _write(node, parts, table, mode)
        if isinstance(found, Node):
            node.replace_all_uses_with(found)
        else:
            parts[node] = found
    for node in reversed(list(graph.nodes)):
        if node in parts and not node.users:
            graph.erase_node(node)
    graph.eliminate_dead_code()
    module.recompile()
