# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sources of which queries read the rows that lists name."""

from types import SimpleNamespace

import numpy as np

from ._dense import _tokens


class _Lists:
    """For each query head, the rows that its lists name, one after the other: columns of a matrix of scores."""

    def __init__(self, source, B, H, M, N, block):
        lists = np.asarray(source.rows)
        self.source, self.M, self.unit, (_, heads, blocks, entries) = source, M, source.unit, lists.shape
        self.listed = source.positions == "listed"
        lists = np.broadcast_to(lists, (B, *lists.shape[1:]))[:, np.arange(H) * heads // H]
        named = (lists[..., None] * self.unit + np.arange(self.unit)).reshape(B, H, -1)
        self.exists = np.repeat(lists >= 0, self.unit, axis=-1).reshape(named.shape) & (named < M)
        self.rows = np.where(self.exists, named, 0)
        order = np.broadcast_to(np.arange(entries * self.unit), (B, H, blocks, entries * self.unit))
        self.positions = order.reshape(named.shape) if self.listed else self.rows
        of_block = np.repeat(np.arange(blocks), entries * self.unit)
        own = np.arange(N) // block if block else np.zeros(N, int)
        self.own = np.ones((N, of_block.size), bool) if blocks == 1 else own[:, None] == of_block
        self.most = entries * self.unit if self.listed else M

    def take(self, array):
        """The columns of [B,G,M,...] for each query head."""
        B, H = self.rows.shape[:2]
        array = np.broadcast_to(array, (B, *array.shape[1:]))
        return np.stack([
            [array[b, h * array.shape[1] // H][self.rows[b, h]] for h in range(H)] for b in range(B)
        ])  # fmt: skip

    def give_back(self, gradient, G):
        """The gradient of [B,G,M,...] from that of the columns."""
        B, H = self.rows.shape[:2]
        total = np.zeros((B, G, self.M, *gradient.shape[3:]))
        for b in range(B):
            for h in range(H):
                np.add.at(total[b, h * G // H], self.rows[b, h], gradient[b, h])
        return total

    def take_bias(self, bias):
        return np.stack([[bias[b, h][:, rows] for h, rows in enumerate(of_heads)] for b, of_heads in enumerate(self.rows)])

    def give_back_bias(self, gradient):
        total = np.zeros((*gradient.shape[:3], self.M))
        for b, of_heads in enumerate(self.rows):
            for h, rows in enumerate(of_heads):
                np.add.at(total[b, h].T, rows, gradient[b, h].T)
        return total

    def reads(self, b, h, N, block):
        """Which entries there are, and the positions of queries and columns."""
        source, at, stride = self.source, self.positions[b, h], getattr(self.source, "stride", 1)
        tokens = _tokens(N, self.most, stride) if source.lengths is None else int(source.lengths[b])
        count = self.most if source.lengths is None else tokens // stride
        positions, places = np.arange(N) + (tokens - N), (at + 1) * stride - 1
        distance = positions[:, None] - places
        holds = self.exists[b, h] & (at < count) & self.own[:N]
        if source.causal:
            holds &= (distance >= 0) | (places < (source.prefix or 0))
        if source.window is not None:
            holds &= np.abs(distance) < source.window
        if source.ranges is not None:
            for i in range(N):
                ranges = source.ranges(i // block if block else 0, count, N)
                inside = np.zeros(at.shape, bool)
                for begin, end, *limits in ranges if isinstance(ranges, list) else [ranges]:
                    lower, upper = limits or (begin, end)
                    inside |= (max(begin, lower) <= at) & (at < min(end, upper))
                holds[i] &= inside
        return holds, positions, places


def _with_columns(source, B, H, N, block):
    """The source whose rows are those that lists name, for each query head, and the lists; None without."""
    if getattr(source, "rows", None) is None:
        return source, None
    v = np.asarray(source.v)
    G, M = v.shape[1:3]
    lists = _Lists(source, B, H, M, N, block)
    columns = SimpleNamespace(**vars(source))
    columns.k, columns.v, columns.lengths = lists.take(np.asarray(source.k)), lists.take(v), None
    if source.log_weight is not None:
        columns.log_weight = lists.take(np.broadcast_to(source.log_weight, (B, G, M)))
    if source.bias is not None:
        columns.bias = lists.take_bias(np.broadcast_to(source.bias, (B, H, N, M)))
    return columns, lists
