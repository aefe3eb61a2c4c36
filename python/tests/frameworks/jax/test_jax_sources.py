# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Lists of sources and orders of axes in fovea.jax."""

import dataclasses

import jax
import numpy as np
import pytest
from jax_cases import documents, qkv, random, sources

import fovea
import fovea.jax


def test_streams_and_their_gradients_are_those_of_arrays():
    arrays = sources("float32")
    out, lse = fovea.stream(**arrays, block=8, return_lse=True)
    expected = fovea.stream_backward(out, **arrays, out=out, lse=lse, block=8)
    # Arguments are trees, gradients have the names of those of the package.
    found = jax.jit(lambda arrays: fovea.jax.stream_backward(out, **arrays, out=out, lse=lse, block=8))(arrays)
    assert isinstance(found[1][0], fovea.SourceGradients) and found[1][0].log_weight is None
    pulled = jax.jit(jax.grad(lambda arrays: (fovea.jax.stream(**arrays, block=8) * out).sum()))(arrays)
    of_sources = [each for source in pulled["sources"] for each in (source.k, source.v, source.log_weight, source.bias)]
    for one, other, array in zip(
        jax.tree.leaves(found), [pulled["q"], *(each for each in of_sources if each is not None), pulled["sink"]],
        jax.tree.leaves(expected), strict=True,
    ):  # fmt: skip
        np.testing.assert_array_equal(one, array)
        np.testing.assert_array_equal(np.reshape(other, array.shape), array)


def test_gradients_of_sources_that_are_not_wanted():
    """That of a bias may be large: it is left out where nothing depends on it."""
    arrays = sources("float32")
    text = str(jax.make_jaxpr(jax.grad(lambda q: fovea.jax.stream(**{**arrays, "q": q}, block=8).sum()))(arrays["q"]))
    assert "False, False, )" in text
    everything = jax.grad(lambda arrays: fovea.jax.stream(**arrays, block=8).sum())(arrays)
    one = jax.grad(lambda q: fovea.jax.stream(**{**arrays, "q": q}, block=8).sum())(arrays["q"])
    np.testing.assert_array_equal(one, everything["q"])


def test_functions_of_sources():
    """Of NumPy's arrays, and of arrays that a program traces, with their gradients."""
    arrays = sources("float32")
    first, second = arrays["sources"]
    heads = arrays["q"].shape[1]
    slopes, warm = np.linspace(0.1, 1, heads).astype(np.float32), np.float32([1.5, 0.5])

    def call(of, q, slopes, warm, **options):
        slope, heat = fovea.capture(slopes), fovea.capture(warm)
        given = [
            dataclasses.replace(first, score=lambda s, b, h, i, j: s + slope[h] * (j - i), admit=lambda b, h, i, j: j != 2),
            second,
        ]
        return of.stream(q, given, sink=arrays["sink"], block=8, score=lambda s, b, h, i, j: s * heat[h % 2], **options)

    expected = call(fovea, arrays["q"], slopes, warm)
    np.testing.assert_array_equal(call(fovea.jax, arrays["q"], slopes, warm), expected)
    np.testing.assert_array_equal(jax.jit(lambda *given: call(fovea.jax, *given))(arrays["q"], slopes, warm), expected)
    found = jax.jit(jax.grad(lambda *given: (call(fovea.jax, *given) * expected).sum(), argnums=(0, 1, 2)))(arrays["q"], slopes, warm)
    for index, step in ((1, 1e-2), (2, 1e-2)):
        given, direction = [arrays["q"], slopes, warm], np.asarray(found[index])
        ends = []
        for sign in (step, -step):
            moved = [*given]
            moved[index] = given[index] + sign * direction / np.abs(direction).max()
            ends.append((np.float64(call(fovea, *moved)) * expected).sum())
        slope = (direction.astype(np.float64) ** 2).sum() / np.abs(direction).max()
        np.testing.assert_allclose((ends[0] - ends[1]) / (2 * step), slope, rtol=2e-2)


def turn(tree):
    """Puts tokens before heads, or heads before tokens."""
    return jax.tree.map(lambda each: np.swapaxes(each, 1, 2), tree)


def test_layouts():
    """Of the functions that have one, and of their gradients."""
    (source,) = documents("float32")["sources"]
    arrays, segments = qkv("float32"), source.segments
    given = {**arrays, "sink": random("float32", 4), "segments": segments, "causal": True}
    out, lse = fovea.dense(**given, return_lse=True)
    expected = fovea.dense_backward(out, **given, out=out, lse=lse)
    given.update(turn(arrays))
    found = jax.jit(lambda q: fovea.jax.dense(**{**given, "q": q}, layout="bnhd"))(given["q"])
    np.testing.assert_array_equal(turn(found), out)
    *rows, sink = fovea.jax.dense_backward(turn(out), **given, out=turn(out), lse=lse, layout="bnhd")
    for one, other in zip((*turn(rows), sink), expected, strict=True):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(ValueError, match="^layout: found 'nhd', needed 'bhnd' or 'bnhd'"):
        fovea.jax.dense(**arrays, layout="nhd")
    with pytest.raises(ValueError, match="^k: found rank 3, needed rank 4"):
        fovea.jax.dense(arrays["q"], arrays["k"][0], arrays["v"], layout="bnhd")


@pytest.mark.parametrize("make", [sources, documents])
def test_layouts_of_sources(make):
    arrays = make("float32")
    out, lse = fovea.stream(**arrays, block=8, return_lse=True)
    expected = fovea.stream_backward(out, **arrays, out=out, lse=lse, block=8)
    turned = [dataclasses.replace(each, k=turn(each.k), v=turn(each.v)) for each in arrays["sources"]]
    given = {**arrays, "q": turn(arrays["q"]), "sources": turned, "block": 8, "layout": "bnhd"}
    found = fovea.jax.stream(**given, return_lse=True)
    np.testing.assert_array_equal(turn(found[0]), out)
    np.testing.assert_array_equal(found[1], lse)
    dq, of_sources, *sink = fovea.jax.stream_backward(turn(out), **given, out=turn(out), lse=lse)
    of_sources = [each._replace(k=turn(each.k), v=turn(each.v)) for each in of_sources]
    for one, other in zip(jax.tree.leaves((turn(dq), of_sources, *sink)), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(one, other)


def test_errors_of_sources():
    arrays = sources("float32")
    first, second = arrays["sources"]
    for given, match in (
        ([], "^sources: found none, needed at least 1"),
        (first, "^sources: found Source, needed a list"),
        ([first, 3], r"^sources\[1\]: found int, needed a fovea.Source"),
        ([first, dataclasses.replace(second, v=second.k[..., :3])], r"^sources\[1\].v: found extent 3"),
        ([dataclasses.replace(first, window=-1)], r"^sources\[0\].window: found -1"),
        ([first, dataclasses.replace(second, segments=3)], r"^sources\[1\].segments: found int, needed a pair"),
        ([first, dataclasses.replace(second, score=3)], r"^sources\[1\].score: found int, needed a function"),
    ):
        with pytest.raises(ValueError, match=match):
            fovea.jax.stream(arrays["q"], given, block=8)


def test_integers_that_jax_narrows():
    """Two documents whose numbers differ beyond 32 bits are not one document."""
    q = random("float32", 1, 2, 4, 8)
    ids = np.array([[0, 0, 2**32, 2**32]])
    lengths = np.array([2**32 + 1])
    source = fovea.Source(q, q, segments=(ids, ids))
    for name, call in (
        (r"segments\[0\]", lambda: fovea.jax.dense(q, q, q, segments=(ids, ids))),
        (r"sources\[0\].segments\[0\]", lambda: fovea.jax.stream(q, [source], block=8)),
        ("lengths", lambda: fovea.jax.dense(q, q, q, lengths=lengths)),
        ("score", lambda: fovea.jax.dense(q, q, q, score=lambda s, b, h, i, j: s * fovea.capture(lengths)[b])),
    ):
        with pytest.raises(ValueError, match=f"^{name}: .*found integers of int64 that int32 cannot hold"):
            call()
    with jax.enable_x64(True):
        found = fovea.jax.dense(q, q, q, segments=(ids, ids))
    np.testing.assert_array_equal(found, fovea.dense(q, q, q, segments=(ids, ids)))
