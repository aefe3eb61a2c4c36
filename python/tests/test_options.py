# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# REQUIRES: long-tests
"""Every option of every function is checked, whether or not a kernel is known that was
made for a value which compares equal: 2 == 2.0 == True."""

import inspect

import numpy as np
import pytest
import test_conv
import test_low_rank
from conftest import make, make_weights

import fovea

q, k, v = make(N=20, D=8)
out, lse = fovea.dense(q, k, v, return_lse=True)
packed = tuple(x[0].swapaxes(0, 1).copy() for x in (q, k, v))
weights = make_weights(20, 4, 2, 8), make_weights(20, 4, 2, 8)
multipole = q, k, v, *weights
multipole_out = fovea.fast_multipole(*multipole, group=4, return_lse=True)
codebook = np.ones((2, 3, 8), np.float32)
vq_out = fovea.vq(q, k, v, codebook, block=2, return_lse=True)
one = tuple(x[:, :, :1].copy() for x in (q, k, v))
codes = np.zeros((1, 2, 20), np.int32)
tree = fovea.tree_build(q[:, 0, :16].copy(), ratio=2)
cover = np.array([4]), np.array([0])
root = tree.level(4).copy()

# Arguments of a call that is right; options that have no default, or None.
CALLS = {
    **test_conv.make_calls(q, k, v, out),
    **test_low_rank.make_calls(q, k, v, out),
    "dense": ((q, k, v), dict(window=3, scale=1.0)),
    "dense_backward": ((out, q, k, v, out, lse), dict(window=3, scale=1.0)),
    "fast_multipole": (multipole, dict(group=4, scale=1.0)),
    "fast_multipole_linear": ((q, k, v, weights[0], *weights), dict(group=4, scale=1.0)),
    "fast_multipole_backward": ((out, *multipole, *multipole_out), dict(group=4, scale=1.0)),
    "fast_multipole_linear_backward": ((out, q, k, v, weights[0], *weights), dict(group=4, scale=1.0)),
    "stream": ((q, [fovea.Source(k, v)]), dict(scale=1.0)),
    "stream_backward": ((out, q, [fovea.Source(k, v)], out, lse), dict(scale=1.0)),
    "hca": ((q, k, k[:, :, ::4]), dict(interval=4, scale=1.0)),
    "hca_backward": ((out, q, k, k[:, :, ::4], out, lse), dict(interval=4, scale=1.0)),
    "selected": ((q, k, v, codes[:, :, :, None]), dict(local=(k, v), window=3, scale=1.0)),
    "selected_backward": ((out, q, k, v, codes[:, :, :, None], out, lse), dict(local=(k, v), window=3, scale=1.0)),
    "pool": ((q, q), dict(interval=4)),
    "pool_backward": ((q[:, :, : q.shape[2] // 4].copy(), q, q), dict(interval=4)),
    "top_k": ((q, 2), dict(causal_unit=2)),
    "paged": ((q, k[:, :, None, 0], v[:, :, None, 0], [[0] * 20], [20]), dict(window=3, scale=1.0)),
    "varlen": ((*packed, [0, 20], [0, 20]), dict(window=3, scale=1.0)),
    "varlen_backward": ((packed[2], *packed, [0, 20], [0, 20], packed[2], lse[0]), dict(window=3, scale=1.0)),
    "vq": ((q, k, v, codebook), dict(block=2)),
    "vq_backward": ((out, q, k, v, codebook, *vq_out), dict(block=2)),
    "vq_decode": ((*one, codebook), dict(block=2)),
    "quantize": ((k, codebook), {}),
    "codebook_update": ((k, codes, codebook, codebook[:, :, 0].copy()), {}),
    "commitment_loss": ((k, k), {}),
    "commitment_loss_backward": ((1.0, k, k), {}),
    "tree_build": ((q[:, 0, :16].copy(),), dict(levels=2)),
    "tree_fetch": ((tree, *cover), {}),
    "tree_update": ((tree, *cover, root), {}),
    "tree_materialize": ((tree,), {}),
    "tree_score": ((q, k), dict(scale=1.0)),
    "tree_select": ((tree, {4: 1}), dict(score=root)),
    "tree_build_backward": ((tree.nodes, tree), {}),
    "tree_fetch_backward": ((root, tree, *cover), {}),
    "tree_update_backward": ((tree.nodes, tree, *cover), {}),
    "tree_score_backward": ((k[:, 0, :, 0].copy(), q, k), dict(scale=1.0)),
    "tree_materialize_backward": ((q[:, 0, :16].copy(), tree), {}),
}  # fmt: skip

# What is not an option of its kind, though some of it compares equal to one.
WRONG = {
    "int": lambda value: [float(value), True, str(value), np.float32(value), -1, [value]],
    "float": lambda value: [str(value), True, np.True_, "much", [value, value], float("nan"), b"1"],
    "bool": lambda value: [int(value), float(value), "no", np.int8(value), [], np.ones(2, bool)],
    "str": lambda value: [3, None, b"cpu", [value], np.array([value, value]), value.upper() + "!"],
}


def functions():
    found = {}
    for name in fovea.__all__:
        function = getattr(fovea, name)
        others = ("fovea.compiler", "fovea._caches", "fovea._explain", "fovea._program", "fovea._suggest", "fovea._trace",
                  "fovea._weights")  # fmt: skip
        if inspect.isfunction(function) and function.__module__ not in others:
            found[name] = inspect.signature(function)
    return found


def options(name, signature):
    """The options of a function that are no arrays: name, kind and a right value."""
    arguments, given = CALLS[name]
    for parameter in signature.parameters.values():
        kind = str(parameter.annotation).split(" | ")[0]
        if parameter.kind is parameter.KEYWORD_ONLY and kind in WRONG:
            yield parameter.name, kind, given.get(parameter.name, parameter.default)


def test_all_functions_are_here():
    assert functions().keys() == CALLS.keys()


def same(a, b):
    if isinstance(a, fovea.Tree):
        return same(a.nodes, b.nodes)
    if a is None:
        return b is None
    if isinstance(a, (tuple, list)):
        return all(same(x, y) for x, y in zip(a, b, strict=True))
    return np.array_equal(a, b, equal_nan=True)


@pytest.mark.parametrize("name", CALLS)
def test_options(name):
    function, (arguments, given) = getattr(fovea, name), CALLS[name]
    # Now there is a kernel.
    expected = function(*arguments, **given)
    found = list(options(name, functions()[name]))
    # A table of frequencies is made without a kernel.
    assert ("target", "str", "cpu") in found or name == "rope_frequencies"
    for option, kind, value in found:
        # Some exclude others, such as a prefix a window: a number will do to be wrong.
        for wrong in WRONG[kind](3 if value is None else value):
            for _ in range(2):
                with pytest.raises(ValueError, match=f"^{option}: found "):
                    function(*arguments, **{**given, option: wrong})
        if value is None:
            continue
        right = {"int": np.int64, "float": np.float64, "bool": np.bool_, "str": np.str_}[kind](value)
        assert same(function(*arguments, **{**given, option: right}), expected)


def test_a_flag_is_no_number_of_tokens():
    """Refused fresh, and once taken from the cache."""
    for window in (1, 2):
        fovea.dense(q, k, v, window=window)
    for wrong in (1.0, 2.0, True):
        with pytest.raises(ValueError, match="^window: found "):
            fovea.dense(q, k, v, window=wrong)


def test_the_loss_has_a_number():
    for wrong in ("1", True, None, [1.0, 2.0]):
        with pytest.raises(ValueError, match="^d_loss: found "):
            fovea.commitment_loss_backward(wrong, k, k)
