# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls and kernels explained: what is read is what masks and patterns say."""

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


@pytest.mark.parametrize("queries, keys", [(1, 1), (5, 7), (17, 17)])
def test_call(queries, keys):
    q, k = ones(1, 2, queries, 8), ones(1, 1, keys, 8)
    explanation = fovea.explain(fovea.dense, q, k, k, causal=True, window=3)
    (kernel,) = explanation.json
    (operation,) = (x for x in kernel["operations"] if "sources" in x)
    distance = np.arange(queries)[:, None] + keys - queries - np.arange(keys)
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
