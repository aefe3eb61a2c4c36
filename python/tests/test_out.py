# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Results that go to arrays of the caller."""

import inspect

import numpy as np
import pytest
from call_cases import FUNCTIONS, case
from conftest import TYPES, make, refused
from test_strides import change, leaves, same, spread

import fovea


def memory_like(results):
    """Memory with gaps, in another order and full of NaNs, for what a function has returned."""

    def unset(array):
        empty = np.full(array.shape, 77 if array.dtype.kind in "iub" else np.nan).astype(array.dtype)
        return spread(empty) if array.ndim > 1 else empty

    if isinstance(results, np.ndarray):
        return unset(results)
    if isinstance(results, fovea.Tree):
        return change(unset, results)
    if isinstance(results, (list, tuple)):
        return [memory_like(each) for each in results]
    return None


def gives(function):
    """What it calls the memory; `out` may be what the forward function returned."""
    return "gradients" if "gradients" in inspect.signature(function).parameters else "out"


def results_of(name, results):
    """Those of them that go to memory: a state that is updated lies where it did, and an
    updated tree has the counts of the other."""
    return results[0] if name == "vq_decode" else results.nodes if name == "tree_update" else results


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_same_bits_in_given_memory(name, type):
    function, arguments, options = case(name, type)
    expected = function(*arguments, **options)
    function, arguments, options = case(name, type)
    memory = memory_like(results_of(name, expected))
    found = function(*arguments, **options, **{gives(function): memory})
    same(found, expected)
    same(memory, results_of(name, expected))
    for one, other in zip(leaves(results_of(name, found)), leaves(memory), strict=True):
        assert one is other


@pytest.mark.parametrize("target", ["reference", "gpu-sim"])
@pytest.mark.parametrize("name", ["dense", "dense_backward", "rope", "quantize", "tree_build"])
def test_other_targets(name, target):
    function, arguments, options = case(name, "float32")
    expected = function(*arguments, **options, target=target)
    memory = memory_like(expected)
    same(function(*arguments, **options, **{gives(function): memory}, target=target), expected)
    same(memory, expected)


def test_some_of_the_results():
    q, k, v = make()
    expected = fovea.dense(q, k, v, return_lse=True)
    lse = np.empty_like(expected[1])
    found = fovea.dense(q, k, v, return_lse=True, out=(None, lse))
    assert found[1] is lse
    same(found, expected)


def test_between_the_rows_of_arguments():
    """Slices of one array [B,N,4,H,D], as a projection of all three gives them."""
    rng = np.random.default_rng(0)
    whole = rng.standard_normal((2, 37, 4, 3, 16)).astype(np.float32)
    q, k, v, out = (whole[:, :, i].transpose(0, 2, 1, 3) for i in range(4))
    expected = fovea.dense(q.copy(), k.copy(), v.copy(), causal=True)
    before = whole[:, :, :3].copy()
    assert fovea.dense(q, k, v, causal=True, out=out) is out
    same(out, expected)
    assert np.array_equal(whole[:, :, :3], before)


def test_nothing_to_compute():
    q, k, v = make(M=0)
    out, lse = spread(np.ones((1, 2, 37, 16), np.float32)), np.ones((1, 2, 37), np.float32)
    fovea.dense(q, k, v, return_lse=True, out=(out, lse))
    assert not out.any() and np.all(lse == -np.inf)
    empty = np.empty((1, 2, 0, 16), np.float32)
    assert fovea.dense(empty, k, v, out=empty.copy()).shape == empty.shape


def test_what_is_no_memory():
    q, k, v = make()
    out = np.full_like(q, 7)

    def fails(match, memory, **options):
        refused(match, fovea.dense, q, k, v, out=memory, **options)
        assert np.all(out == 7)

    fails(r"out: found shape \(1, 2, 36, 16\), needed \(1, 2, 37, 16\)", out[:, :, 1:])
    fails("out: found element type float64, needed float32", out.astype(np.float64))
    fails("out: found 2 arrays, needed 1", (out, None))
    fails("out: found 1 array, needed 2", out, return_lse=True)
    fails(r"out\[1\]: found shape", (out, out), return_lse=True)
    fails("out: found memory that overlaps q", q)
    fails("out: found memory that overlaps v", v[:, ::-1])
    fails("last axis", np.repeat(out, 2, axis=3)[..., ::2])
    folded = np.lib.stride_tricks.as_strided(out, out.shape, (0, 0, *out.strides[2:]))
    fails("by which elements share memory", folded)
    fails("out: found str, needed", "memory")
    swapped = out.astype(">f4")
    fails("out: found an array with gaps.* or of another byte order", swapped)
    frozen = out.view()
    frozen.flags.writeable = False
    fails("out: found a read-only array, needed a writable one", frozen)
    # The last number of the one is the first of the other.
    flat = out.ravel()
    rest = np.concatenate([flat, flat])
    memory = rest[: out.size].reshape(out.shape), rest[out.size - 1 :][:74].reshape(1, 2, 37)
    fails(r"out\[1\]: found memory that overlaps out\[0\]", memory, return_lse=True)


@pytest.mark.parametrize("nothing", [[], (), [[]], [[], []]], ids=repr)
def test_memory_without_arrays(nothing):
    """Results would go elsewhere, without a word."""
    for name in ("dense", "dense_backward"):
        function, arguments, options = case(name, "float32")
        memory = gives(function)
        refused(f"^{memory}: found no array, needed one for each result$", function, *arguments, **options, **{memory: nothing})


def test_names_of_gradients():
    function, arguments, options = case("fast_multipole_backward", "float32")
    memory = memory_like(function(*arguments, **options))
    memory[3][1] = memory[3][0]
    refused(r"gradients\[3\]\[1\]: found shape", function, *arguments, **options, gradients=memory)
    refused("gradients: found 3 arrays, needed", function, *arguments, **options, gradients=memory[:3])
    q = arguments[1]
    memory = memory_like(function(*arguments, **options))
    memory[0] = q
    refused(r"gradients\[0\]: found memory that overlaps q", function, *arguments, **options, gradients=memory)


def test_trees_in_trees():
    function, (c,), options = case("tree_build", "float32")
    expected = fovea.tree_build(c, **options)
    other = fovea.Tree(np.empty_like(expected.nodes), np.empty_like(expected.counts), expected.ratio, expected.levels)
    found = fovea.tree_build(c, **options, out=other)
    assert found.nodes is other.nodes and found.counts is other.counts
    same(found, expected)
    function, arguments, options = case("tree_update", "float32")
    expected = function(*arguments)
    assert function(*arguments, out=other).nodes is other.nodes
    same(other.nodes, expected.nodes)
    refused("out: found memory that overlaps tree", function, *arguments, out=arguments[0])


def test_tree_select_says_early():
    """Before a score is asked for."""
    function, (tree, budgets), options = case("tree_select", "float32")
    level, index = function(tree, budgets, **options)

    def score(rows, level):
        raise AssertionError

    refused("out: found 1 array, needed 2", fovea.tree_select, tree, budgets, score=score, out=level)
    wrong = (level, index.astype(np.int64))
    refused(r"out\[1\]: found element type int64", fovea.tree_select, tree, budgets, score=score, out=wrong)
