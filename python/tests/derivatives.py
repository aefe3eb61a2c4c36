# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradients of formulas that are written with NumPy: what they do is written down, and gone through backwards.

Formulas get `Tape` as their `xp` and `Node`s as their arrays. Nothing here knows of attention.
"""

import numpy as np


def sum_to(shape, gradient):
    """That of an operand of this shape, which was broadcast."""
    leading = gradient.ndim - len(shape)
    axes = tuple(range(leading)) + tuple(leading + at for at, extent in enumerate(shape) if extent == 1)
    return gradient.sum(axis=axes).reshape(shape)


def value_of(operand):
    return operand.value if isinstance(operand, Node) else operand


class Node:
    #: NumPy leaves operations with arrays at the left to this class.
    __array_ufunc__ = None

    def __init__(self, tape, value):
        self.tape, self.value, self.gradient = tape, value, np.zeros_like(value)
        self.shape = value.shape

    def numpy(self):
        return self.value

    def detach(self):
        return self

    def _make(self, value, *back):
        """`back` are pairs of an operand and what makes its gradient of that of the result."""
        result = Node(self.tape, value)
        self.tape.steps.append((result, [(operand, step) for operand, step in back if isinstance(operand, Node)]))
        return result

    def __add__(self, other):
        return self._make(self.value + value_of(other), (self, lambda g: g), (other, lambda g: g))

    def __mul__(self, other):
        one, two = self.value, value_of(other)
        return self._make(one * two, (self, lambda g: g * two), (other, lambda g: g * one))

    def __truediv__(self, other):
        one, two = self.value, value_of(other)
        return self._make(one / two, (self, lambda g: g / two), (other, lambda g: -g * one / two**2))

    def __matmul__(self, other):
        one, two = self.value, value_of(other)
        return self._make(one @ two, (self, lambda g: g @ two.swapaxes(-1, -2)), (other, lambda g: one.swapaxes(-1, -2) @ g))

    __radd__, __rmul__ = __add__, __mul__

    def __eq__(self, other):
        return self.value == other

    def __getitem__(self, index):
        def scatter(g):
            whole = np.zeros_like(self.value)
            np.add.at(whole, index, g)
            return whole

        return self._make(self.value[index], (self, scatter))

    def reshape(self, *shape):
        return self._make(self.value.reshape(*shape), (self, lambda g: g.reshape(self.shape)))

    def swapaxes(self, one, two):
        return self._make(self.value.swapaxes(one, two), (self, lambda g: g.swapaxes(one, two)))

    def sum(self, axis):
        return self._make(self.value.sum(axis), (self, lambda g: np.broadcast_to(np.expand_dims(g, axis), self.shape)))


class Tape:
    """What formulas use of NumPy."""

    asarray = staticmethod(np.asarray)

    def __init__(self):
        self.steps = []

    def exp(self, x):
        value = np.exp(x.value)
        return x._make(value, (x, lambda g: g * value))

    def tanh(self, x):
        value = np.tanh(x.value)
        return x._make(value, (x, lambda g: g * (1 - value**2)))

    def where(self, condition, one, x):
        return x._make(np.where(condition, one, x.value), (x, lambda g: np.where(condition, 0.0, g)))

    def moveaxis(self, x, begin, end):
        return x._make(np.moveaxis(x.value, begin, end), (x, lambda g: np.moveaxis(g, end, begin)))

    def concatenate(self, parts, axis):
        ends = np.cumsum([each.shape[axis] for each in parts])[:-1]
        back = [(each, lambda g, at=at: np.split(g, ends, axis)[at]) for at, each in enumerate(parts)]
        return parts[0]._make(np.concatenate([each.value for each in parts], axis), *back)

    def stack(self, parts, axis):
        back = [(each, lambda g, at=at: np.take(g, at, axis)) for at, each in enumerate(parts)]
        return parts[0]._make(np.stack([each.value for each in parts], axis), *back)

    def go_back(self, result, gradient):
        result.gradient = gradient
        for node, back in reversed(self.steps):
            for operand, step in back:
                operand.gradient = operand.gradient + sum_to(operand.shape, step(node.gradient))


def differentiate(formula, arrays, gradient):
    """The result of `formula`, and gradients of the floating-point arrays, for that of the result."""
    tape = Tape()
    nodes = {name: Node(tape, each) if each.dtype.kind == "f" else each for name, each in arrays.items()}
    result = formula(tape, nodes)
    tape.go_back(result, gradient)
    return result.value, {name: each.gradient for name, each in nodes.items() if isinstance(each, Node)}
