# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions of the scores of one source, alone and before those of a call, against NumPy and plain loops."""

from dataclasses import replace

import numpy as np
import pytest
from conftest import TYPES, check, make, near, refused

import fovea
from fovea import Source, reference
from fovea.math import tanh, where

B, H, G, D = 2, 4, 2, 16


def arrays(type, N, M):
    q, k, v = make(type, B=B, H=H, G=G, N=N, M=M, D=D, E=12)
    _, far_k, far_v = make(type, B=B, H=H, G=G, N=N, M=max(1, M // 4), D=D, E=12, seed=3)
    return q, (k, v), (far_k, far_v)


def cases(type, N, M):
    """Sources and options of a call."""
    q, near_rows, far_rows = arrays(type, N, M)
    numbers = np.random.default_rng(7)

    def captured(*shape):
        return fovea.capture(numbers.standard_normal(shape).astype(TYPES[type]))

    slopes, table, keys = captured(H), captured(H, N + M + 1), captured(M)
    fade, cap = (lambda s, b, h, i, j: s + slopes[h] * (j - i) / 8), (lambda s, b, h, i, j: 2 * tanh(s / 2))
    ids = numbers.integers(0, 3, (B, N)), numbers.integers(0, 3, (1, M))
    first, far = Source(*near_rows, causal=True), Source(*far_rows)
    removes = numbers.standard_normal(M).astype(TYPES[type])
    removes[::3] = -np.inf
    removing = fovea.capture(removes)
    return q, {
        "one of two": ([replace(first, score=fade), far], {}),
        "the last": ([first, replace(far, score=cap)], {}),
        "both": ([replace(first, score=fade), replace(far, score=cap)], {}),
        "before that of all": ([replace(first, score=fade), far], {"score": cap}),
        "the only one": ([replace(first, score=lambda s, b, h, i, j: s + table[h, j - i + M])], {"score": cap}),
        "admit": ([replace(first, admit=lambda b, h, i, j: (j + h) % 3 != 0), far], {}),
        "admit before a score": ([replace(first, admit=lambda b, h, i, j: j % 5 != 1, score=fade), far], {"score": cap}),
        "admit of both": ([replace(first, admit=lambda b, h, i, j: j > 2), far], {"admit": lambda b, h, i, j: (i + j) % 7 != 0}),
        # What is removed by a number stays removed, whatever a soft-cap makes of it.
        "numbers remove": ([replace(first, score=lambda s, b, h, i, j: s + removing[j]), far], {"score": cap}),
        "segments": ([replace(first, segments=ids), far], {"score": cap}),
        "terms": ([replace(first, score=lambda s, b, h, i, j: s * keys[j], bias=numbers.standard_normal((1, H, N, M)).astype(q.dtype)),
                   replace(far, log_weight=numbers.standard_normal((B, G, far_rows[0].shape[2])).astype(q.dtype))],
                  {"sink": np.linspace(-1, 1, H).astype(q.dtype)}),
        "summaries": ([replace(first, score=fade),
                       replace(far, stride=4, causal=True, score=lambda s, b, h, i, j: s + slopes[h] * (j - i) / 32)], {}),
    }  # fmt: skip


NAMES = list(cases("float64", 8, 8)[1])


@pytest.mark.parametrize("type", ["float64", "float32", "bfloat16", "float16"])
@pytest.mark.parametrize("N,M", [(1, 1), (3, 40), (37, 41), (65, 65), (130, 200)])
@pytest.mark.parametrize("name", NAMES)
def test_values(name, N, M, type):
    q, all_cases = cases(type, N, M)
    sources, options = all_cases[name]
    found = fovea.stream(q, sources, **options, return_lse=True)
    check(found, reference.stream(q, sources, **options, return_lse=True), type)


@pytest.mark.parametrize("name", NAMES)
def test_plain_loops(name):
    q, all_cases = cases("float64", 19, 23)
    sources, options = all_cases[name]
    expected = reference.stream(q, sources, **options, return_lse=True)
    check(fovea.stream(q, sources, **options, return_lse=True, target="reference"), expected, "float64")


@pytest.mark.parametrize("type", ["float32", "bfloat16"])
@pytest.mark.parametrize("N,M", [(1, 41), (37, 41), (70, 130)])
@pytest.mark.parametrize("name", NAMES)
def test_on_the_emulated_gpu(name, N, M, type):
    q, all_cases = cases(type, N, M)
    sources, options = all_cases[name]
    found = fovea.stream(q, sources, **options, return_lse=True, target="gpu-sim")
    check(found, reference.stream(q, sources, **options, return_lse=True), type)


def differentiate(q, sources, options, target="cpu", **wanted):
    out, lse = fovea.stream(q, sources, **options, return_lse=True, target=target)
    numbers = np.random.default_rng(4)
    d_out = numbers.standard_normal(out.shape).astype(out.dtype)
    d_lse = np.where(np.isfinite(lse), numbers.standard_normal(lse.shape), 0).astype(lse.dtype)
    return fovea.stream_backward(d_out, q, sources, out, lse, d_lse=d_lse, target=target, **options, **wanted), d_out, d_lse


@pytest.mark.parametrize("N,M", [(1, 1), (37, 41), (70, 130)])
@pytest.mark.parametrize("name", NAMES)
def test_gradients(name, N, M):
    q, all_cases = cases("float64", N, M)
    sources, options = all_cases[name]
    (dq, of_sources, *rest), d_out, d_lse = differentiate(q, sources, options)
    out, lse = reference.stream(q, sources, **options, return_lse=True)
    wanted_q, wanted, *wanted_rest = reference.stream_backward(d_out, q, sources, out, lse, d_lse=d_lse, **options)
    near(dq, wanted_q, "float64", 1e-7)
    for mine, other in zip(of_sources, wanted, strict=True):
        for one, two in zip(mine, other):
            assert (one is None) == (two is None)
            if one is not None:
                near(one, two, "float64", 1e-7)
    for one, two in zip(rest, wanted_rest, strict=True):
        near(one.reshape(two.shape), two, "float64", 1e-7)


@pytest.mark.parametrize("name", NAMES)
def test_gradients_on_the_emulated_gpu(name):
    q, all_cases = cases("float32", 37, 70)
    sources, options = all_cases[name]
    (dq, of_sources, *_), *_ = differentiate(q, sources, options, target="gpu-sim")
    (wanted_q, wanted, *_), *_ = differentiate(q, sources, options)
    near(dq, wanted_q, "float32")
    for mine, other in zip(of_sources, wanted, strict=True):
        near(mine.k, other.k, "float32")
        near(mine.v, other.v, "float32")


def flatten(found):
    dq, of_sources, *rest = found
    return [dq, *(each for source in of_sources for each in (source.k, source.v, *source.captures)), *rest]


@pytest.mark.parametrize("name", NAMES)
def test_gradients_of_captures(name):
    """Plain loops, and central differences of them in the direction of the gradient."""
    q, all_cases = cases("float64", 13, 19)
    sources, options = all_cases[name]
    found, *_ = differentiate(q, sources, options, return_d_captures=True)
    loops, *_ = differentiate(q, sources, options, target="reference", return_d_captures=True)
    for mine, other in zip(flatten(found), flatten(loops), strict=True):
        near(mine, other, "float64", 1e-9)


def test_each_function_has_gradients_of_its_own():
    """Of an array that functions of two sources and of the call read, each has its share: the sum of them is the
    gradient of one function of all."""
    q, near_rows, far_rows = arrays("float64", 21, 30)
    slopes = fovea.capture(np.linspace(0.1, 1, H))
    fade = lambda s, b, h, i, j: s + slopes[h] * (j - i)  # noqa: E731
    sources = [Source(*near_rows, causal=True), Source(*far_rows)]
    own = [replace(source, score=fade) for source in sources]
    (_, apart), *_ = differentiate(q, own, {}, return_d_captures=True)
    (_, together, of_all), *_ = differentiate(q, sources, {"score": fade}, return_d_captures=True)
    assert [len(each.captures) for each in (*apart, *together)] == [1, 1, 0, 0]
    near(sum(each.captures[0] for each in apart), of_all, "float64", 1e-12)
    # In memory that is given.
    options = {"score": lambda s, b, h, i, j: s * slopes[h]}
    (dq, of_sources, of_call), *_ = differentiate(q, own, options, return_d_captures=True)
    places = [np.empty_like(dq), [each._replace(captures=tuple(map(np.empty_like, each.captures))) for each in of_sources],
              np.empty_like(of_call)]  # fmt: skip
    again, *_ = differentiate(q, own, options, return_d_captures=True, gradients=places)
    for place, result, mine in zip(flatten(places), flatten(again), flatten((dq, of_sources, of_call)), strict=True):
        assert place is result and np.array_equal(place, mine)


def test_layouts_threads_and_lengths():
    q, all_cases = cases("float32", 130, 200)
    sources, options = all_cases["both"]
    expected = fovea.stream(q, sources, **options)
    turned = [replace(s, k=s.k.swapaxes(1, 2), v=s.v.swapaxes(1, 2)) for s in sources]
    found = fovea.stream(q.swapaxes(1, 2), turned, layout="bnhd", **options)
    assert np.array_equal(found.swapaxes(1, 2), expected)
    before, results = fovea.num_threads(), []
    for threads in (1, 2, 5):
        fovea.set_num_threads(threads)
        found, *_ = differentiate(q, sources, options, return_d_captures=True)
        results.append(b"".join(each.tobytes() for each in flatten(found)))
    fovea.set_num_threads(before)
    assert len(set(results)) == 1
    lengths = np.array([150, 37], np.int32)
    sources = [replace(sources[0], lengths=lengths), sources[1]]
    check(fovea.stream(q, sources, **options), reference.stream(q, sources, **options), "float32")


def test_removed_rows_may_hold_anything():
    q, near_rows, far_rows = arrays("float32", 40, 64)
    sources = [Source(*near_rows, admit=lambda b, h, i, j: j < 25), Source(*far_rows)]
    options = {"score": lambda s, b, h, i, j: 5 * tanh(s / 5)}
    for target in ("cpu", "gpu-sim"):
        expected = fovea.stream(q, sources, **options, target=target)
        k, v = (np.array(each) for each in near_rows)
        k[:, :, 25:], v[:, :, 25:] = np.nan, np.inf
        found = fovea.stream(q, [replace(sources[0], k=k, v=v), sources[1]], **options, target=target)
        assert np.array_equal(found, expected)


def test_one_kernel_for_functions_that_say_the_same():
    q, near_rows, far_rows = arrays("float32", 20, 20)

    def call(slopes, scaled):
        captured = fovea.capture(np.asarray(slopes, np.float32))
        first = Source(*near_rows, score=lambda s, b, h, i, j: s + captured[h])
        far = Source(*far_rows, score=(lambda s, b, h, i, j: 2 * s) if scaled else None)
        return fovea.stream(q, [first, far])

    one, other = call([0] * H, True), call([1, 2, 3, 4], True)
    assert not np.array_equal(one, other)
    assert not np.array_equal(one, call([0] * H, False))


def test_a_wrong_function_is_noticed():
    q, all_cases = cases("float64", 20, 20)
    sources, options = all_cases["both"]
    expected = reference.stream(q, [replace(sources[0], score=sources[1].score), sources[1]], **options)
    with pytest.raises(AssertionError):
        check(fovea.stream(q, sources, **options), expected, "float64")


def test_errors():
    q, rows, _ = arrays("float32", 8, 8)
    here = rf"^sources\[1\]\.%s: {__file__}:\d+: "
    ids = np.zeros((B, 8), int)
    for wrong, match in (
        ({"score": "cap"}, r"^sources\[1\]\.score: found str, needed a function of \(s, b, h, i, j\)"),
        ({"admit": 3}, r"^sources\[1\]\.admit: found int, needed a function of \(b, h, i, j\)"),
        ({"score": lambda s, b, h, i, j: s if i > j else j}, here % "score" + "found if, and, or"),
        ({"admit": lambda b, h, i, j: i >= j and i < 3}, here % "admit" + "found if, and, or"),
        ({"admit": lambda b, h, i, j: i - j}, here % "admit" + "found an integer, needed a condition"),
        ({"segments": (ids, ids[:, 1:])}, r"^sources\[1\]\.segments\[1\]: found shape \(2, 7\), needed \(2, 8\)"),
        ({"segments": (ids, ids), "stride": 2}, r"^sources\[1\]\.segments: found them beside a stride"),
    ):
        refused(match, fovea.stream, q, [Source(*rows), Source(*rows, **wrong)])
    out, lse = fovea.stream(q, [Source(*rows, score=lambda s, b, h, i, j: where(i > j, s, 0.0))], return_lse=True)
    capturing = Source(*rows, score=lambda s, b, h, i, j: s + fovea.capture(np.ones(H, np.float32))[h])
    refused(r"^gradients\[1\]\[0\]\.captures: found arrays 0, needed 1", fovea.stream_backward, out, q, [capturing], out, lse,
            return_d_captures=True, gradients=[None, [(None, None)]])  # fmt: skip
