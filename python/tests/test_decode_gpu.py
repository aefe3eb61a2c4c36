# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# REQUIRES: long-tests
"""Few queries on the emulated GPU: heads that share keys are the rows of a tile, and tiles are read in parts."""

import numpy as np
import pytest
from conftest import check, make, normal
from test_decode import OPTIONS, case

import fovea
from fovea import Source, reference

TYPES = ["float32", "float16", "bfloat16"]
# Keys one less and one more than a tile (64, of f32 32) and than a part (256) has, a last part of
# one key, more heads than a tile has rows, several passes over wide values.
SHAPES = [
    {"H": 1, "G": 1, "N": 1, "M": 1, "D": 16},
    {"B": 2, "H": 8, "G": 2, "N": 1, "M": 63, "D": 64},
    {"H": 4, "G": 4, "N": 1, "M": 256, "D": 32, "E": 64},
    {"B": 2, "H": 6, "G": 2, "N": 1, "M": 257, "D": 48},
    {"H": 4, "G": 2, "N": 1, "M": 1025, "D": 128, "E": 24},
    {"B": 2, "H": 3, "G": 3, "N": 1, "M": 577, "D": 20, "E": 7},
    {"H": 137, "G": 1, "N": 1, "M": 320, "D": 16},
    {"B": 2, "H": 16, "G": 2, "N": 3, "M": 515, "D": 32},
    {"H": 34, "G": 1, "N": 16, "M": 300, "D": 16},
    {"H": 4, "G": 1, "N": 1, "M": 513, "D": 40, "E": 300},
]


def compare(type, arrays, **options):
    found = fovea.dense(*arrays, **options, return_lse=True, target="gpu-sim")
    check(found, reference.dense(*arrays, **options, return_lse=True), type)
    return found


def compare_lengths(arrays, lengths, **options):
    """What is behind a length is not read."""
    out, lse = compare("float32", arrays, lengths=lengths, **options)
    assert not out[lengths == 0].any() and ("sink" in options or np.isneginf(lse[lengths == 0]).all())
    for entry, length in enumerate(lengths):
        for array in arrays[1:]:
            array[entry, :, length:] = np.nan
    again = fovea.dense(*arrays, lengths=lengths, **options, return_lse=True, target="gpu-sim")
    assert np.array_equal(again[0], out) and np.array_equal(again[1], lse)


def cases():
    """Every shape with every option in f32, and with one in each of the others."""
    names = list(OPTIONS)
    for shape in range(len(SHAPES)):
        yield from (("float32", name, shape) for name in names)
        yield from ((type, names[(shape + i) % len(names)], shape) for i, type in enumerate(TYPES[1:]))


@pytest.mark.parametrize("type,name,shape", list(cases()))
def test_numbers(type, name, shape):
    arrays, options = case(name, type, SHAPES[shape])
    compare(type, arrays, **options)


@pytest.mark.parametrize("name", OPTIONS)
def test_against_loops(name):
    """A second reference, which shares no code with the first."""
    for shape in (SHAPES[4], SHAPES[7]):
        arrays, options = case(name, "float32", shape)
        check(fovea.dense(*arrays, **options, target="gpu-sim"), fovea.dense(*arrays, **options, target="reference"))


def test_more_rows_than_the_least_parts_have():
    """Beyond 128 parts of 256 rows, parts are longer."""
    compare("float16", make("float16", H=2, G=1, N=1, M=32769, D=16), causal=True)


@pytest.mark.parametrize("sink", [False, True])
def test_lengths(sink):
    """Of none, within the first part, to its end, one more, and all: parts that read nothing weigh nothing."""
    lengths = np.array([0, 5, 256, 257, 1100], np.int32)
    arrays = make(B=5, H=4, G=2, N=1, M=1100, D=32)
    options = {"sink": normal(5, 4)} if sink else {}
    compare_lengths(arrays, lengths, causal=True, **options)


def test_nan_behind_masks():
    q, k, v = make(H=4, G=2, N=1, M=1025, D=32)
    options = {"window": 300, "causal": True, "target": "gpu-sim"}
    expected = fovea.dense(q, k, v, **options)
    k[:, :, :725], v[:, :, :725] = np.nan, np.inf
    assert np.array_equal(fovea.dense(q, k, v, **options), expected)
    v[:, 1, 900, 3] = np.nan
    is_nan = np.isnan(fovea.dense(q, k, v, **options))
    assert is_nan[:, 2:, :, 3].all() and is_nan.sum() == 2


def test_a_part_whose_entries_are_all_removed():
    q, k, v = make(H=4, G=2, N=2, M=700, D=32)
    bias = normal(1, 4, 2, 700)
    bias[:, :, 0, 256:512] = bias[:, 1, 1] = -np.inf
    v[:, :, 300] = np.nan
    bias[:, :, :, 300] = -np.inf
    arrays = [q, k, np.nan_to_num(v)]
    out, _ = compare("float32", arrays, bias=bias)
    assert not out[:, 1, 1].any()
    assert np.array_equal(fovea.dense(q, k, v, bias=bias, target="gpu-sim"), out)


def test_functions_of_scores_see_their_own_head():
    q, k, v = make(B=2, H=6, G=2, N=2, M=520, D=32)
    slopes = fovea.capture(np.abs(normal(6)))

    def score(s, b, h, i, j):
        return s + slopes[h] * (j - i)

    options = {"score": score, "admit": lambda b, h, i, j: (i + h - j) % 3 != 0, "return_lse": True}
    found = fovea.dense(q, k, v, **options, target="gpu-sim")
    for target in ("reference", "cpu"):
        check(found, fovea.dense(q, k, v, **options, target=target), "float32")


@pytest.mark.parametrize("mask", ["<causal>", "<causal, window = 300>"])
def test_squared_scores(mask):
    text = f"""
    func.func @f(%q: tensor<2x6x1x32xf32>, %k: tensor<2x2x1025x32xf32>, %v: tensor<2x2x1025x32xf32>,
                 %w: tensor<2x2x1025xf32>) -> tensor<2x6x1x32xf32> {{
      %init = tensor.empty() : tensor<2x6x1x32xf32>
      %r = attn.stream query(%q : tensor<2x6x1x32xf32>)
          source(%k, %v : tensor<2x2x1025x32xf32>, tensor<2x2x1025x32xf32>) log_weight(%w : tensor<2x2x1025xf32>)
              ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask {mask}
          outs(%init : tensor<2x6x1x32xf32>) {{scale = 0.25 : f64, weighting = #attn.weighting<squared_relu>}} -> tensor<2x6x1x32xf32>
      return %r : tensor<2x6x1x32xf32>
    }}"""
    arrays = [*make(B=2, H=6, G=2, N=1, M=1025, D=32), normal(2, 2, 1025)]
    check(fovea.compile(text, target="gpu-sim")(*arrays), fovea.compile(text, target="reference")(*arrays))


def test_several_sources_and_lists():
    q, k, v = make(B=2, H=6, G=2, N=1, M=900, D=32)
    far, near = Source(k, v, log_weight=normal(2, 2, 900)), Source(k + 1, v, causal=True, window=90)
    lists = np.stack([np.arange(0, 900, 3), np.arange(299, -1, -1)])[None, :, None].astype(np.int32)
    listed = Source(k, v - 1, rows=np.repeat(lists, 2, 0))
    for sources in ([far, near], [listed], [near, listed, far]):
        found = fovea.stream(q, sources, return_lse=True, target="gpu-sim")
        check(found, reference.stream(q, sources, return_lse=True), "float32")


def test_bits_do_not_depend_on_other_queries():
    """Nor on how much room there is behind a length."""
    q, k, v = make("float16", B=3, H=4, G=2, N=1, M=1500, D=64)
    lengths = np.array([1500, 700, 900], np.int32)
    out = fovea.dense(q, k, v, lengths=lengths, target="gpu-sim")
    for entry, length in enumerate(lengths):
        one = [x[entry : entry + 1] for x in (q, k[:, :, :length], v[:, :, :length])]
        assert np.array_equal(fovea.dense(*one, target="gpu-sim")[0], out[entry])


def test_a_wrong_part_is_noticed():
    """A part that were dropped, or counted twice, would be seen."""
    q, k, v = make(H=4, G=2, N=1, M=1100, D=32)
    for keep in (np.r_[0:256, 512:1100], np.r_[0:1100, 1024:1100]):
        changed = fovea.dense(q, k[:, :, keep], v[:, :, keep], target="gpu-sim")
        with pytest.raises(AssertionError):
            check(changed, reference.dense(q, k, v), "float32")
