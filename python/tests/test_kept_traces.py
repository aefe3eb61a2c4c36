# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What functions of scores do is kept from call to call, as long as nothing that decides on it changes."""

import gc
import weakref

import numpy as np
from conftest import make, refused

import fovea
from fovea._entries import trace_entries
from fovea._trace import trace_score
from fovea.math import where


def test_functions_are_called_again_where_they_do_something_else():
    """What a function does is kept with what its code reads: all that may change it, and nothing else."""
    arrays, tables = make(B=1, H=2, G=2, N=9, M=9, D=8), [np.full(n, n, np.float32) for n in (2, 9)]
    calls = []

    def said(score):
        """What is in the body, and which arrays are read."""
        return trace_score(score, arrays[0], extents=(1, 2))

    def made(value, factor=1.0, *, power=1):
        return lambda s, b, h, i, j, c=factor, *, p=power: value * c * s**p

    assert said(made(2.0)) == said(made(2.0)) and said(made(2.0)).body is said(made(2.0)).body
    different = [made(2.0), made(2), made(3.0), made(True + 1.0, 2.0), made(2.0, power=2), made(0.0), made(-0.0),
                 made(np.float32(0.1)), made(np.float64(0.1))]  # fmt: skip
    for _ in range(2):
        assert len({said(score).body for score in different}) == len(different) - 1  # 2 and 2.0 are one number
    # Globals, and functions that functions call.
    space = {"w": 2, "where": where, "fovea": fovea}
    exec("def inner(i, j):\n return i - j < w\nscore = lambda s, b, h, i, j: fovea.math.where(inner(i, j), s, 0.0)", space)
    first = said(space["score"]).body
    space["w"] = 3
    second = said(space["score"]).body
    space["inner"] = lambda i, j: i < j
    assert len({first, second, said(space["score"]).body}) == 3 and "slt, %query, %key" in said(space["score"]).body
    # Arrays are those of now, and what they hold is no part of the body.
    captured = fovea.capture(tables[1])
    reads = lambda s, b, h, i, j: s + captured[j]  # noqa: E731
    before = said(reads)
    captured.array = tables[1].copy()
    assert said(reads).body is before.body and said(reads).captures[0] is captured.array is not before.captures[0]
    captured.array = tables[1].astype(np.float64)
    assert "f64" in said(reads).body
    captured.array = tables[1][None]
    refused("^score: .*found 1 indices, needed 2", said, reads)
    both = [fovea.capture(tables[1]), fovea.capture(tables[1])]
    twice = lambda s, b, h, i, j, x=both[0], y=both[1]: s + x[j] * y[i]  # noqa: E731
    assert len(said(twice).captures) == 1
    both[1].array = tables[1].copy()
    assert len(said(twice).captures) == 2
    # What may change in place, or does more than compute, is called each time.
    values, more = [1.0], {"x": 1.0}

    class Holder:
        value = 1.0

    def counted(s, b, h, i, j):
        calls.append(1)
        return s

    def remembers(s, b, h, i, j):
        nonlocal_count[0] += 1
        return s * nonlocal_count[0]

    nonlocal_count = [0]
    for score, change in (
        (lambda s, b, h, i, j: s * values[0], lambda: values.__setitem__(0, 2.0)),
        (lambda s, b, h, i, j: s * more["x"], lambda: more.update(x=2.0)),
        (lambda s, b, h, i, j: s * Holder.value, lambda: setattr(Holder, "value", 2.0)),
        (lambda s, b, h, i, j: s * (Holder if True else 0).value, lambda: setattr(Holder, "value", 3.0)),
        (remembers, lambda: None),
    ):
        before = said(score).body
        change()
        assert said(score).body != before
    said(counted), said(counted)
    assert len(calls) == 2
    # Extents decide on errors, and types of queries on numbers.
    few = fovea.capture(tables[0])
    by_head = lambda s, b, h, i, j: s + few[h]  # noqa: E731
    assert said(by_head).body == trace_score(by_head, arrays[0], extents=(1, 1)).body
    refused("^score: .*found index 2 for axis 0", trace_score, by_head, arrays[0], extents=(1, 3))
    assert "f64" in trace_score(made(2.0), arrays[0].astype(np.float64), extents=(1, 2)).body


def test_segments_are_kept_beside_functions():
    """By their shapes and types, by which of them are one array, and by what functions beside them read."""
    q, k = (x[:, :, :n] for x, n in zip(make(B=2, H=2, G=2, N=9, M=9, D=8), (7, 9)))
    ids, more = np.zeros((2, 7), int), np.zeros((2, 9), int)

    def said(admit=None, segments=(ids, more), score=None, lengths=None, **options):
        return trace_entries(score, admit, segments, q, k, lengths, None, **options)

    def within(width):
        return lambda b, h, i, j: i - j < width

    for functions in ({}, {"admit": within(3)}, {"score": lambda s, b, h, i, j: s / 2}):
        first = said(**functions)
        assert said(**functions).body is first.body
        assert [each is other for each, other in zip(said(**functions).captures[-2:], (ids, more))] == [True, True]
        assert said(**functions, segments=(ids.copy(), more.copy())).body is first.body
        assert len({first.body, said(**functions, segments=(ids[:1], more)).body,
                    said(**functions, segments=(ids.astype(np.int32), more)).body,
                    said(**functions, lengths=np.array([9, 8], np.int32)).body}) == 4  # fmt: skip
    assert len({said().body, said(within(3)).body, said(within(4)).body}) == 3
    same = trace_entries(None, None, (more, more), k, k, None, None)
    assert len(same.captures) == 3 and len(trace_entries(None, None, (more, more.copy()), k, k, None, None).captures) == 4


def test_operands_of_frameworks_are_kept_by_their_types():
    q, table = make(B=1, H=1, G=1)[0], fovea.capture(np.ones(9))
    type = [np.float32]

    def said():
        return trace_score(lambda s, b, h, i, j: s + table[j], q, lambda array: array.astype(type[0]))

    first = said()
    assert said().body is first.body and said().captures[0].dtype == np.float32
    type[0] = np.float64
    assert said().body is not first.body and "f64" in said().body and said().captures[0].dtype == np.float64


def test_segments_of_the_last_call():
    """Of the same arrays, as they are now; nothing keeps these."""
    q, k = (x[:, :, :n] for x, n in zip(make(B=2, H=2, G=2, N=9, M=9, D=8), (7, 9)))
    ids = np.zeros((2, 7), int), np.ones((2, 9), np.int32)

    def said(segments=ids, q=q, k=k):
        return trace_entries(None, None, segments, q, k, None, None)

    first = said()
    assert said().body is first.body and all(one is other for one, other in zip(said().captures, first.captures, strict=True))
    assert said((ids[0].copy(), ids[1])).captures[2] is not ids[0]
    assert "f64" in said(q=q.astype(np.float64)).body
    said()
    assert said(q=q[:1], k=k[:1], segments=(ids[0][:1], ids[1][:1])).body != first.body
    said()
    assert said((ids[1], ids[1]), q=k).captures[0][0] == 9 and said().captures[0][0] == 7
    refused(r"^segments\[0\]: found shape", said, ids, k, k)
    said()
    ids[1].dtype = np.float32
    refused(r"^segments\[1\]: found element type float32", said)
    gone = weakref.ref(ids[0])
    del ids, said, first
    gc.collect()
    assert gone() is None
