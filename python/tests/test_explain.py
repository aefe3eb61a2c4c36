# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls and kernels explained: what is read is what masks and patterns say."""

import json
import re
import xml.etree.ElementTree as tree

import numpy as np
import pytest

import fovea


def ones(*shape):
    return np.ones(shape, np.float32)


def read_entries(operation):
    """How often a query reads a token, by the rectangles that are drawn."""
    counts = np.zeros((operation["queries"], operation["sequences"][0]["tokens"]), int)
    for source in operation["sources"]:
        for query, queries, token, tokens, _ in source["rectangles"]:
            counts[query : query + queries, token : token + tokens] += 1
    return counts


def drawn_entries(page):
    """The same, by the pictures of a page: for each matrix the counts, and what stands out."""
    found = []
    for text in re.findall(r'<svg class="matrix".*?</svg>', page, re.S):
        matrix = tree.fromstring(text)
        tokens, queries = map(int, matrix.get("viewBox").split()[2:])
        counts, faults = np.zeros((queries, tokens), int), {}
        for group in matrix.iter("g"):
            fault = group.get("data-fault")
            target = counts if fault is None else faults.setdefault(fault, np.zeros_like(counts))
            for part in group.iter("rect"):
                x, y, width, height = (int(part.get(name)) for name in ("x", "y", "width", "height"))
                target[y : y + height, x : x + width] += 1
        found.append((counts, faults))
    return found


def distances(queries, keys):
    return np.arange(queries)[:, None] + keys - queries - np.arange(keys)


@pytest.mark.parametrize("mask", [{}, {"causal": True}, {"window": 4}, {"causal": True, "prefix": 3}])
@pytest.mark.parametrize("queries, keys", [(1, 1), (7, 13), (16, 16)])
def test_page(queries, keys, mask):
    q, k = ones(1, 2, queries, 8), ones(1, 1, keys, 8)
    page = fovea.explain(fovea.dense, q, k, k, **mask).html
    ((counts, faults),) = drawn_entries(page)
    distance = distances(queries, keys)
    wanted = np.ones((queries, keys), bool)
    if "causal" in mask:
        wanted = (distance >= 0) | (np.arange(keys) < mask.get("prefix", 0))
    if "window" in mask:
        wanted &= np.abs(distance) < mask["window"]
    np.testing.assert_array_equal(counts, wanted)
    assert not faults
    # One entry more is noticed.
    ((counts, _),) = drawn_entries(re.sub(r'(<g data-source="0"[^>]*>)', r'\1<rect x="0" y="0" width="1" height="1"/>', page))
    assert counts[0, 0] == wanted[0, 0] + 1


def test_page_of_sources():
    """Summaries at the last token of each stride, lists of rows, and what counts twice."""
    n = 24
    q, k, s = ones(1, 1, n, 8), ones(1, 1, n, 8), ones(1, 1, n // 4, 8)
    sources = [fovea.Source(k, k, causal=True, window=6), fovea.Source(s, s, causal=True, stride=4)]
    (window, _), (summaries, _) = drawn_entries(fovea.explain(fovea.stream, q, sources).html)
    distance = distances(n, n)
    np.testing.assert_array_equal(window, (distance >= 0) & (distance < 6))
    np.testing.assert_array_equal(summaries, np.arange(n) // 4 * 4 + 3 <= np.arange(n)[:, None])

    # Two arguments may be one array, but a kernel knows of two.
    kind, ranges = "tensor<1x1x24x8xf32>", "ranges [affine_map<(b)[rows, n] -> (0, rows)>]"
    twice = fovea.compile(
        f"""func.func @f(%q: {kind}, %k: {kind}) -> {kind} {{
              %0 = attn.stream query(%q : {kind}) source(%k, %k : {kind}, {kind}) {ranges} mask <causal>
                  source(%k, %k : {kind}, {kind}) {ranges} mask <causal, window = 6>
                  outs(%q : {kind}) {{scale = 1.0 : f64}} -> {kind}
              return %0 : {kind}
            }}"""
    )
    page = fovea.explain(twice, q, k).html
    ((counts, faults),) = drawn_entries(page)
    np.testing.assert_array_equal(counts, (distance >= 0) * 1 + ((distance >= 0) & (distance < 6)))
    assert list(faults) == ["read twice"] and 'role="alert"' in page
    np.testing.assert_array_equal(faults["read twice"], counts == 2)


def test_page_of_functions():
    q, k = ones(1, 2, 7, 8), ones(1, 1, 12, 8)
    distance = distances(7, 12)
    page = fovea.explain(fovea.dense, q, k, k, causal=True, admit=lambda b, h, i, j: (i - j) % 4 == 0).html
    ((counts, _),) = drawn_entries(page)
    np.testing.assert_array_equal(counts, (distance >= 0) & (distance % 4 == 0))
    # A soft-cap removes nothing, documents are data.
    page = fovea.explain(fovea.dense, q, k, k, score=lambda s, b, h, i, j: s * 0.5 + (i - j)).html
    ((counts, _),) = drawn_entries(page)
    assert counts.all() and "a function of scores" not in page
    ids = np.zeros((1, 7), np.int32), np.zeros((1, 12), np.int32)
    assert "a function of scores says which entries are read" in fovea.explain(fovea.dense, q, k, k, segments=ids).text


def test_page_is_the_json():
    q = ones(1, 1, 5, 8)
    explanation = fovea.explain(fovea.dense, q, q, q, causal=True)
    text = re.search(r'<script type="application/json" id="facts">(.*?)</script>', explanation.html, re.S).group(1)
    assert json.loads(text) == explanation.json[0]
    # Nothing from elsewhere.
    assert not re.search(r"\b(src|href)=|url\(|@import", explanation.html)


@pytest.mark.parametrize("queries, keys", [(1, 1), (5, 7), (17, 17)])
def test_call(queries, keys):
    q, k = ones(1, 2, queries, 8), ones(1, 1, keys, 8)
    explanation = fovea.explain(fovea.dense, q, k, k, causal=True, window=3)
    (kernel,) = explanation.json
    (operation,) = (x for x in kernel["operations"] if "sources" in x)
    distance = distances(queries, keys)
    wanted = (distance >= 0) & (distance < 3)
    np.testing.assert_array_equal(read_entries(operation), wanted)
    assert kernel["flop"] == 2 * 16 * 2 * wanted.sum()
    # A window that reaches everything is none.
    assert ("window of 3" in explanation.text) == (keys > 3) and str(explanation) == explanation.text
    assert explanation.html.startswith("<!DOCTYPE html>") and explanation.html.count("<html") == 1


def test_kernel_of_any_length():
    kernel = fovea.compile(
        """func.func @attend(%q: tensor<1x1x?x8xf32>, %k: tensor<1x1x?x8xf32>, %out: tensor<1x1x?x8xf32>)
               -> tensor<1x1x?x8xf32> {
             %0 = attn.dense ins(%q, %k, %k : tensor<1x1x?x8xf32>, tensor<1x1x?x8xf32>, tensor<1x1x?x8xf32>)
                 outs(%out : tensor<1x1x?x8xf32>) -> tensor<1x1x?x8xf32>
             return %0 : tensor<1x1x?x8xf32>
           }"""
    )
    q, k = ones(1, 1, 3, 8), ones(1, 1, 5, 8)
    (found,) = fovea.explain(kernel, q, k, q).json
    assert found["entry"] == "attend"
    assert [x["shape"] for x in found["arguments"]] == [[1, 1, 3, 8], [1, 1, 5, 8], [1, 1, 3, 8]]
    assert read_entries(found["operations"][0]).sum() == 15
    with pytest.raises(ValueError, match="@attend expects 3 shapes, but got 1"):
        fovea.explain(kernel, q)
    with pytest.raises(ValueError, match=r"argument 1 \(%k\) of @attend: expected a shape of type"):
        fovea.explain(kernel, q, ones(5, 8), q)


def test_several_kernels():
    q = ones(1, 1, 4, 8)
    explanation = fovea.explain(lambda: (fovea.dense(q, q, q), fovea.dense(q, q, q, causal=True), fovea.dense(q, q, q)))
    assert len(explanation.json) == 2
    assert explanation.html.count("<iframe") == 2
    # Nothing is remembered once a call is over.
    assert len(fovea.explain(fovea.dense, q, q, q).json) == 1


def test_gradient():
    q = ones(1, 1, 4, 8)
    out, lse = fovea.dense(q, q, q, causal=True, return_lse=True)
    (kernel,) = fovea.explain(fovea.dense_backward, q, q, q, q, out, lse, causal=True).json
    (operation,) = (x for x in kernel["operations"] if "sources" in x)
    np.testing.assert_array_equal(read_entries(operation), np.tri(4))


def test_errors():
    q = ones(1, 1, 4, 8)
    with pytest.raises(ValueError, match="kernel_or_call: found str, needed a kernel or a function"):
        fovea.explain("attn.dense")
    with pytest.raises(ValueError, match="kernel_or_call: found a function that runs no kernel in this thread"):
        fovea.explain(lambda: None)
    with pytest.raises(ValueError, match="k: found"):
        fovea.explain(fovea.dense, q, ones(1, 1, 4, 9), q)
