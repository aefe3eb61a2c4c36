# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls and kernels explained: what is read is what masks and patterns say."""

import json
import pathlib
import re
import types
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

    # A function that has one argument for both.
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


def test_sources_of_one_array():
    """Sources that share keys and values have one matrix, where a token that two of them name counts twice."""
    n = 24
    q, k, v = (np.random.default_rng(2).standard_normal((1, 1, n, 8)).astype(np.float32) for _ in range(3))
    first = fovea.Source(k, v, causal=True, ranges=lambda b, rows, n: (0, 4))
    distance, column = distances(n, n), np.arange(n)
    band, sink = (distance >= 0) & (distance < 6), (distance >= 0) & (column < 4)
    for begin in (0, 4):
        window = fovea.Source(k, v, causal=True, window=6, ranges=lambda b, rows, n, begin=begin: (begin, rows))
        explanation = fovea.explain(fovea.stream, q, [window, first])
        ((counts, faults),) = drawn_entries(explanation.html)
        np.testing.assert_array_equal(counts, (band & (column >= begin)) * 1 + sink)
        assert (begin == 0) == ("read twice" in faults) == ("read twice (first: query 0, token 0)" in explanation.text)
    # Equal numbers at another place may change, and so may parts of an array be others.
    for other in (fovea.Source(k.copy(), v.copy(), causal=True), fovea.Source(k[:, :, 1:], v[:, :, 1:], causal=True)):
        assert len(drawn_entries(fovea.explain(fovea.stream, q, [first, other]).html)) == 2
    # A kernel of the caller, too.
    kind, ranges = "tensor<1x1x24x8xf32>", "ranges [affine_map<(b)[rows, n] -> (0, rows)>]"
    kernel = fovea.compile(
        f"""func.func @f(%q: {kind}, %k: {kind}, %l: {kind}) -> {kind} {{
              %0 = attn.stream query(%q : {kind}) source(%k, %k : {kind}, {kind}) {ranges} mask <causal>
                  source(%l, %l : {kind}, {kind}) {ranges} mask <causal>
                  outs(%q : {kind}) {{scale = 1.0 : f64}} -> {kind}
              return %0 : {kind}
            }}"""
    )
    assert "300 read twice" in fovea.explain(kernel, q, k, k).text and "read twice (" not in fovea.explain(kernel, q, k, v).text


def test_captures_that_decide_nothing_are_not_needed():
    q, k = ones(1, 2, 7, 8), ones(1, 1, 7, 8)
    slopes = fovea.capture(np.array([0.5, 0.25], np.float32))
    text = fovea.explain(fovea.dense, q, k, k, causal=True, score=lambda s, b, h, i, j: s + slopes[h] * (j - i)).text
    assert "needed" not in text and "28 entries" in text
    text = fovea.explain(fovea.dense, q, k, k, score=lambda s, b, h, i, j: fovea.math.where(slopes[h] > 0.3, s, -np.inf)).text
    assert "needed       data of %captures_0" in text


def test_page_of_functions():
    q, k = ones(1, 2, 7, 8), ones(1, 1, 12, 8)
    distance = distances(7, 12)
    page = fovea.explain(fovea.dense, q, k, k, causal=True, admit=lambda b, h, i, j: (i - j) % 4 == 0).html
    ((counts, _),) = drawn_entries(page)
    np.testing.assert_array_equal(counts, (distance >= 0) & (distance % 4 == 0))
    # A soft-cap removes nothing.
    page = fovea.explain(fovea.dense, q, k, k, score=lambda s, b, h, i, j: s * 0.5 + (i - j)).html
    ((counts, _),) = drawn_entries(page)
    assert counts.all() and "a function of scores" not in page


@pytest.mark.parametrize("causal", [False, True])
def test_segments_and_lengths(causal):
    rng = np.random.default_rng(0)
    q, k = ones(2, 2, 7, 8), ones(2, 1, 12, 8)
    ids = rng.integers(0, 3, (2, 7)).astype(np.int32), rng.integers(0, 3, (2, 12)).astype(np.int32)
    lengths, query_lengths = np.array([10, 12], np.int32), np.array([6, 7], np.int32)
    same = ids[0][0][:, None] == ids[1][0]
    explanation = fovea.explain(fovea.dense, q, k, k, causal=causal, segments=ids)
    ((counts, _),) = drawn_entries(explanation.html)
    np.testing.assert_array_equal(counts, same & ((distances(7, 12) >= 0) | (not causal)))
    assert "which may read others in other batch entries" in explanation.text

    exist = (np.arange(7) < 6)[:, None] & (np.arange(12) < 10)
    # The last query that there is lines up with the last key.
    exist &= (np.arange(7)[:, None] + 4 >= np.arange(12)) | (not causal)
    given = {"causal": causal, "lengths": lengths, "query_lengths": query_lengths}
    explanation = fovea.explain(fovea.dense, q, k, k, **given)
    ((counts, faults),) = drawn_entries(explanation.html)
    np.testing.assert_array_equal(counts, exist)
    assert not faults and "other batch entries have other lengths" in explanation.text
    ((counts, _),) = drawn_entries(fovea.explain(fovea.dense, q, k, k, segments=ids, **given).html)
    np.testing.assert_array_equal(counts, exist & same)


@pytest.mark.parametrize("unit", [1, 4])
def test_lists_of_a_call(unit):
    """Lists and lengths of streams, with a block of queries for each list."""
    n, m = 12, 20
    q, k = ones(1, 1, n, 8), ones(1, 1, m, 8)
    lists = np.random.default_rng(1).integers(-1, m // unit, (1, 1, n, 3)).astype(np.int32)
    page = fovea.explain(fovea.selected, q, k, k, lists, unit=unit).html
    ((counts, faults),) = drawn_entries(page)
    named = np.array([[(lists[0, 0, i] == j // unit).sum() for j in range(m)] for i in range(n)]) * (distances(n, m) >= 0)
    np.testing.assert_array_equal(counts, named > 0)
    # What a list names twice counts twice.
    np.testing.assert_array_equal(faults["read twice"], named > 1)
    lengths = np.array([17], np.int32)
    source = fovea.Source(k, k, causal=True, window=5, lengths=lengths)
    ((counts, faults),) = drawn_entries(fovea.explain(fovea.stream, q, [source]).html)
    distance = distances(n, 17)
    np.testing.assert_array_equal(counts[:, :17], (distance >= 0) & (distance < 5))
    assert not counts[:, 17:].any() and not faults


@pytest.mark.parametrize("causal", [False, True])
def test_token_masks(causal):
    n, group = 40, 4
    present = np.random.default_rng(2).random((1, n)) < 0.7
    # Whole intervals without a token.
    present[0, 8:16] = False
    q = ones(1, 1, n, 8)
    weights = [ones(1, 2, group << level, 8) for level in range(3)]
    explanation = fovea.explain(fovea.fast_multipole, q, q, q, weights, weights, group=group, causal=causal, mask=present)
    (operation,) = (x for x in explanation.json[0]["operations"] if "sources" in x)
    wanted = present[0][:, None] & present[0] & ((distances(n, n) >= 0) | (not causal))
    np.testing.assert_array_equal(read_entries(operation), wanted)
    assert operation["sequences"][0]["never"] == operation["sequences"][0]["twice"] == 0
    assert operation["sequences"][0]["pairs"] == wanted.sum()


def test_data_of_a_kernel():
    """An array of integers that a kernel is explained with is known, and has to be of its type."""
    kind, ids = "tensor<1x1x6x8xf32>", "tensor<1x1x1x2xi32>"
    kernel = fovea.compile(
        f"""func.func @f(%q: {kind}, %list: {ids}) -> {kind} {{
              %0 = attn.stream query(%q : {kind}) source(%q, %q : {kind}, {kind}) rows(%list : {ids}) unit = 2
                  ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%q : {kind}) {{scale = 1.0 : f64}} -> {kind}
              return %0 : {kind}
            }}"""
    )
    q, rows = ones(1, 1, 6, 8), np.array([[[[2, 0]]]], np.int32)
    ((counts, _),) = drawn_entries(fovea.explain(kernel, q, rows).html)
    np.testing.assert_array_equal(counts, np.tile([1, 1, 0, 0, 1, 1], (6, 1)))
    with pytest.raises(ValueError, match=r"argument 1 \(%list\) of @f: found int64, needed int32"):
        fovea.explain(kernel, q, rows.astype(np.int64))


def read_ir(name):
    """A function of the tests of the tool."""
    return (pathlib.Path(__file__).parents[2] / "test" / "Tools" / "Inputs" / name).read_text()


@pytest.mark.parametrize("target", ["cpu", "reference", "gpu-sim"])
def test_lists_that_a_kernel_makes(target):
    """Of every batch entry and head what attention of the reference chooses; nothing without the arrays."""
    n, numbers = 24, np.random.default_rng(3)
    q, k, means = (numbers.standard_normal(shape).astype(np.float32) for shape in ((2, 4, n, 8), (2, 2, n, 8), (2, 4, n // 4, 8)))
    kernel = fovea.compile(read_ir("explain.mlir"), entry="chosen", target=target)
    best = np.argsort(-(q @ means.swapaxes(2, 3)), axis=-1, kind="stable")[..., :2]
    for b, h in np.ndindex(2, 4):
        ((counts, _),) = drawn_entries(fovea.explain(kernel, q, k, means, batch=b, head=h).html)
        named = (best[b, h, :, :, None] == np.arange(n) // 4).any(axis=1)
        np.testing.assert_array_equal(counts, named & (distances(n, n) >= 0))
    abstract = types.SimpleNamespace(shape=means.shape)
    explanation = fovea.explain(kernel, q, k, abstract)
    assert "data of %means, which decides" in explanation.text
    (operation,) = (x for x in explanation.json[0]["operations"] if "sources" in x)
    assert operation["needed_arguments"] == [2] and operation["sources"][0]["by_data"]


def test_codes_that_a_kernel_makes():
    numbers = np.random.default_rng(4)
    q, k, v = (numbers.standard_normal((2, heads, 48, 8)).astype(np.float32) for heads in (4, 2, 2))
    c = numbers.standard_normal((2, 5, 8)).astype(np.float32)
    kernel = fovea.compile(read_ir("explain.mlir"), entry="coded")
    codes = ((k[:, :, :, None] - c[None, :, None]) ** 2).sum(axis=-1).argmin(axis=-1)
    for b, h in ((0, 0), (1, 3)):
        (found,) = fovea.explain(kernel, q, k, v, c, batch=b, head=h).json
        (operation,) = (x for x in found["operations"] if "sources" in x)
        codebook = operation["sources"][1]
        seen = [len(set(codes[b, h // 2, : max(i // 8 - 1, 0) * 8])) for i in range(48)]
        assert (codebook["entries"], codebook["most_rows"]) == (sum(seen), max(seen))
        assert (operation["drawn_batch"], operation["drawn_head"]) == (b, h)


@pytest.mark.parametrize("batch, head", [(0, 0), (1, 1), (1, 3)])
def test_batch_entries_and_heads(batch, head):
    """Segments, lengths, lists and masks of one batch entry and head."""
    numbers = np.random.default_rng(5)
    q, k = ones(2, 4, 7, 8), ones(2, 2, 12, 8)
    ids = numbers.integers(0, 3, (2, 7)).astype(np.int32), numbers.integers(0, 3, (2, 12)).astype(np.int32)
    explanation = fovea.explain(fovea.dense, q, k, k, segments=ids, batch=batch, head=head)
    ((counts, _),) = drawn_entries(explanation.html)
    np.testing.assert_array_equal(counts, ids[0][batch][:, None] == ids[1][batch])
    assert (f"batch entry {batch}, head {head}" in explanation.text) == (batch + head > 0)
    limits = fovea.capture(np.array([3, 5, 7, 9], np.int32))
    ((counts, _),) = drawn_entries(
        fovea.explain(fovea.dense, q, k, k, admit=lambda b, h, i, j: j < limits[h], batch=batch, head=head).html
    )
    np.testing.assert_array_equal(counts.sum(axis=1), [3, 5, 7, 9][head])
    lengths = np.array([10, 4], np.int32)
    ((counts, _),) = drawn_entries(fovea.explain(fovea.dense, q, k, k, lengths=lengths, batch=batch, head=head).html)
    np.testing.assert_array_equal(counts.sum(axis=1), lengths[batch])
    lists = numbers.integers(-1, 12, (2, 2, 7, 3)).astype(np.int32)
    page = fovea.explain(fovea.selected, q, k, k, lists, batch=batch, head=head).html
    ((counts, _),) = drawn_entries(page)
    named = (lists[batch, head // 2, :, :, None] == np.arange(12)).any(axis=1)
    np.testing.assert_array_equal(counts, named & (distances(7, 12) >= 0))
    present, n = numbers.random((2, 16)) < 0.6, 16
    x, weights = ones(2, 4, n, 8), [ones(1, 2, 4 << level, 8) for level in range(1)]
    explanation = fovea.explain(
        fovea.fast_multipole, x, x, x, weights, weights, group=4, causal=True, mask=present, batch=batch, head=head
    )
    (operation,) = (each for each in explanation.json[0]["operations"] if "sources" in each)
    np.testing.assert_array_equal(read_entries(operation), present[batch][:, None] & present[batch] & (distances(n, n) >= 0))


def test_batch_entries_and_heads_that_are_not_there():
    q, k = ones(2, 4, 7, 8), ones(2, 2, 7, 8)
    for name, number, most in (("batch", 2, 1), ("head", 4, 3)):
        with pytest.raises(ValueError, match=f"{name}: found {number}, needed 0 to {most}, as attn.dense"):
            fovea.explain(fovea.dense, q, k, k, **{name: number})
    for wrong in (1.5, -1, True):
        with pytest.raises(ValueError, match=f"head: found {wrong}, needed an integer of at least 0"):
            fovea.explain(fovea.dense, q, k, k, head=wrong)


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
