# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# REQUIRES: long-tests
"""The attention functions on the emulated GPU, and without a GPU."""

import ctypes

import numpy as np
import pytest
from conftest import agree
from ml_dtypes import bfloat16

import fovea
from fovea import reference


def normal(*shape, dtype=np.float16):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def error(found, expected):
    return np.abs(found.astype(float) - expected).max() / np.abs(expected).max()


def test_dense():
    q, k, v = normal(1, 4, 50, 32), normal(1, 2, 70, 32), normal(1, 2, 70, 20)
    found, lse = fovea.dense(q, k, v, causal=True, return_lse=True, target="gpu-sim")
    out, expected = reference.dense(q, k, v, causal=True, return_lse=True)
    assert error(found, out) < 2e-3
    assert np.abs(lse - expected).max() < 1e-5


@pytest.mark.parametrize("name", ["fast_multipole", "fast_multipole_linear"])
def test_multipole(name):
    m, p, N, D = 8, 2, 60, 16
    q, k, v = (normal(1, 2, N + i, D, dtype=np.float32)[:, :, :N] for i in range(3))
    levels = reference.num_levels(N, m)
    weights = [reference.average_weights(p, m << level, D).astype(np.float32) for level in range(levels)]
    sets = [weights] * (3 if name.endswith("linear") else 2)
    found = getattr(fovea, name)(q, k, v, *sets, group=m, target="gpu-sim")
    assert error(found, getattr(reference, name)(q, k, v, *sets, group=m)) < 5e-6


def test_the_nan_of_gpus_stays_one():
    """All its bits are set: what rounds it by an addition makes it a zero."""
    q, k, v = (normal(1, 2, 40, 16, dtype=np.float32) for _ in range(3))
    v[0, 1, 20, 3] = np.uint32(0x7FFFFFFF).view(np.float32)
    out = fovea.dense(q, k, v, causal=True, target="gpu-sim")
    is_nan = np.zeros(out.shape, bool)
    is_nan[0, 1, 20:, 3] = True
    assert np.array_equal(np.isnan(out), is_nan)


def test_no_device():
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        pass
    else:
        pytest.skip("there is a CUDA driver")
    q = normal(1, 1, 4, 8)
    with pytest.raises(fovea.FoveaError, match="^cannot use target 'gpu': there is no CUDA driver"):
        fovea.dense(q, q, q, target="gpu")


def test_vq_in_windows_and_decoded():
    N, cut, block, S = 37, 20, 4, 6
    q, k, v = normal(1, 4, N, 16), normal(1, 2, N, 16), normal(1, 2, N, 8)
    codebook = normal(2, S, 16)
    bias = normal(1, 4, N, 2 * block)
    expected = reference.vq(q, k, v, codebook, block=block, bias=bias)
    options = dict(block=block, target="gpu-sim")
    first, state = fovea.vq(
        *(x[:, :, :cut] for x in (q, k, v)), codebook, bias=bias[:, :, :cut], return_state=True, **options
    )
    parts = [first]
    for t in range(cut, cut + 9):
        row = slice(t, t + 1)
        one, state = fovea.vq_decode(
            *(x[:, :, row] for x in (q, k, v)), codebook, state, bias=bias[:, :, row], **options
        )
        parts.append(one)
    assert error(np.concatenate(parts, axis=2), expected[:, :, : cut + 9]) < 2e-3


@pytest.mark.parametrize("memory", [0, 1, 3])
def test_decoding_from_nothing(memory):
    """Blocks that begin, end and go to the cache, and the ring of blocks that begins anew."""
    block, N = 3, 26
    q, k, v = normal(1, 4, N, 16), normal(1, 2, N, 16), normal(1, 2, N, 8)
    codebook, bias = normal(2, 5, 16), normal(1, 4, N, (memory + 1) * block)
    expected = reference.vq(q, k, v, codebook, block=block, memory=memory, bias=bias)
    state, kept = None, None
    for t in range(N):
        row = slice(t, t + 1)
        one, state = fovea.vq_decode(
            *(x[:, :, row] for x in (q, k, v)), codebook, state, bias=bias[:, :, row], block=block, memory=memory,
            target="gpu-sim",
        )  # fmt: skip
        assert error(one, expected[:, :, row]) < 2e-3
        # As a CPU keeps it.
        _, kept = fovea.vq_decode(
            *(x[:, :, row] for x in (q, k, v)), codebook, kept, bias=bias[:, :, row], block=block, memory=memory
        )
        assert state.position == t + 1 == kept.position
        for part, other in zip(state, kept):
            assert np.allclose(part, other, atol=1e-5)


def test_gradients_of_vq_in_windows():
    """From the last window to the first, each given what the next one gives its
    state: those of the whole sequence."""
    N, block = 37, 4
    q, k, v = normal(1, 4, N, 16), normal(1, 2, N, 16), normal(1, 2, N, 8)
    codebook, d_out = normal(2, 6, 16), normal(1, 4, N, 8)
    options = dict(block=block, scale=0.3, target="gpu-sim")
    windows, state = [], None
    for low, high in ((0, 3), (3, 4), (4, 21), (21, N)):
        rows = slice(low, high)
        arrays = [x[:, :, rows].copy() for x in (q, k, v)]
        out, lse, after = fovea.vq(
            *arrays, codebook, state=state, return_lse=True, return_state=True, **options
        )
        windows.append((d_out[:, :, rows].copy(), arrays, out, lse, state))
        state = after
    parts, d_state = [], None
    for d, arrays, out, lse, state in reversed(windows):
        *gradients, d_state = fovea.vq_backward(
            d, *arrays, codebook, out, lse, state=state, d_next_state=d_state, **options
        )
        parts.insert(0, [*gradients, d_state][:3])
    codes = reference.quantize(k, codebook)[1]
    expected = reference.vq_backward(d_out, q, codes, v, codebook, block=block, scale=0.3)
    for found, want in zip(zip(*parts), expected):
        assert error(np.concatenate(found, axis=2), want) < 4e-3


def test_codebook_update():
    k, codebook = normal(1, 2, 50, 12, dtype=np.float32), normal(2, 5, 12, dtype=np.float32)
    k_hat, codes = fovea.quantize(k, codebook, target="gpu-sim")
    expected = reference.quantize(k, codebook)
    assert np.array_equal(codes, expected[1]) and np.array_equal(k_hat, expected[0])
    sums, counts = codebook.copy(), np.ones((2, 5), np.float32)
    found = fovea.codebook_update(k, codes, sums, counts, target="gpu-sim")
    for a, b in zip(found, reference.codebook_update(k, codes, sums, counts)):
        assert error(a, b) < 5e-6


def test_tree():
    c = normal(2, 64, 24, dtype=np.float32)
    vip = normal(2, 3, 24, dtype=np.float32)
    results = []
    for target in ("gpu-sim", "cpu"):
        tree = fovea.tree_build(c, ratio=4, target=target)
        level, index = fovea.tree_select(tree, {3: 1, 2: 3, 1: 2}, score=vip, target=target)
        rows = fovea.tree_fetch(tree, level, index, target=target)
        tree = fovea.tree_update(tree, level, index, 2 * rows + 1, target=target)
        results.append((level, index, rows, fovea.tree_materialize(tree, target=target)))
    for a, b in zip(*results):
        assert error(a, b) < 5e-6


@pytest.mark.parametrize("type", [np.float32, bfloat16])
def test_tree_gradients(type):
    c = normal(2, 36, 70, dtype=np.float32).astype(type)
    # Lists in which rows are added one after the other; one node is there twice.
    level = np.array([[2, 1, 0, 0, 1, 2], [0, 1, 1, 2, 0, 1]], np.int32)
    index = np.array([[3, 2, 5, 5, 1, 0], [35, 0, 11, 1, 9, 3]], np.int32)
    results = []
    for target in ("gpu-sim", "cpu"):
        tree = fovea.tree_build(c, ratio=3, levels=2, target=target)
        rows = fovea.tree_fetch(tree, level, index, target=target)
        results.append(
            [
                fovea.tree_build_backward(tree.nodes, tree, target=target),
                fovea.tree_materialize_backward(c, tree, target=target),
                fovea.tree_fetch_backward(rows, tree, level, index, target=target),
                *fovea.tree_update_backward(tree.nodes, tree, level, index, target=target),
            ]
        )
    for a, b in zip(*results):
        assert error(a, b) < (5e-6 if type == np.float32 else 1e-2)


def test_gradients():
    """Of operations with kernels of their own for them: as on the CPU."""
    q, k = (normal(1, heads, 40, 6, dtype=np.float32) for heads in (4, 2))
    v, d = k + 1, q[..., ::-1].copy()
    codebook = normal(2, 5, 6, dtype=np.float32)
    out, lse = fovea.vq(q, k, v, codebook, block=8, return_lse=True)
    agree(fovea.vq_backward, d, q, k, v, codebook, out, lse, block=8)
    tree = fovea.tree_build(d[0], ratio=2, levels=3)
    agree(lambda y, target: fovea.tree_build_backward(y, tree, target=target), tree.nodes + 1)
    agree(lambda y, target: fovea.tree_materialize_backward(y, tree, target=target), d[0])
