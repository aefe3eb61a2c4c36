# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# REQUIRES: long-tests
"""DeepSeek-V4's heavily compressed attention, against a formula and token by token."""

from functools import partial

import numpy as np
import pytest
from conftest import TYPES, near, refused

import fovea

B, H, G, D, WINDOW, INTERVAL = 2, 4, 1, 24, 9, 8
FORM = {"window": WINDOW, "interval": INTERVAL}


def arrays(N, type="float32"):
    rng = np.random.default_rng(N)
    q, kv, x, gate = (rng.standard_normal((B, heads, N, D)).astype(TYPES[type]) for heads in (H, G, G, G))
    summaries = fovea.pool(x, gate, interval=INTERVAL)
    state = np.float64 if type == "float64" else np.float32
    return q, kv, summaries, rng.standard_normal((1, H)).astype(state)


def formula(q, kv, summaries, sink):
    """One matrix of scores for tokens and summaries, whose last tokens have been."""
    q, kv, summaries, sink = (each.astype(np.float64) for each in (q, kv, summaries, sink))
    N = q.shape[2]
    i, j, e = np.arange(N)[:, None], np.arange(N), np.arange(summaries.shape[2])
    holds = np.concatenate([(j <= i) & (i - j < WINDOW), (e + 1) * INTERVAL - 1 <= i], axis=1)
    rows = np.concatenate([kv, summaries], axis=2)
    weights = np.where(holds, np.exp(q @ rows.swapaxes(2, 3) / np.sqrt(D)), 0)
    total = weights.sum(axis=-1, keepdims=True) + np.exp(sink)[..., None, None]
    return weights / total @ rows, np.log(total[..., 0])


@pytest.mark.parametrize("N", [1, 7, 8, 31, 65, 130])
def test_formula(N):
    for type, target in (*((each, "cpu") for each in TYPES), ("float32", "gpu-sim")):
        q, kv, summaries, sink = arrays(N, type)
        out, lse = fovea.hca(q, kv, summaries, **FORM, sink=sink, return_lse=True, target=target)
        expected = formula(q, kv, summaries, sink)
        near(out, expected[0], type)
        near(lse, expected[1], str(lse.dtype), 1e-2 if type in ("bfloat16", "float16") else None)


def test_a_wrong_interval_is_noticed():
    q, kv, summaries, sink = arrays(65)
    with pytest.raises(AssertionError):
        near(fovea.hca(q, kv, summaries, window=WINDOW, interval=7, sink=sink), formula(q, kv, summaries, sink)[0], "float32")


@pytest.mark.parametrize("few", [1, 3, 30])
def test_last_tokens(few):
    """From a cache, with its room, and from keys as they are."""
    for N in (33, 40, 64):
        q, kv, summaries, sink = arrays(N)
        expected = fovea.hca(q, kv, summaries, **FORM, sink=sink)[:, :, -few:].astype(float)
        near(fovea.hca(q[:, :, -few:], kv, summaries, **FORM, sink=sink), expected, "float32")
        room = [np.concatenate([each, np.full_like(each[:, :, :5], np.nan)], axis=2) for each in (kv, summaries)]
        lengths = np.full(B, N, np.int32)
        near(fovea.hca(q[:, :, -few:], *room, **FORM, sink=sink, lengths=lengths), expected, "float32")


@pytest.mark.parametrize("few", [3, 37])
def test_slopes(few):
    q, *rest = arrays(37, "float64")
    given = [q[:, :, -few:].copy(), *rest]
    rng = np.random.default_rng(1)
    steps = [rng.standard_normal(each.shape) for each in given]
    out, lse = fovea.hca(*given[:3], **FORM, sink=given[3], return_lse=True)
    d_out, d_lse = rng.standard_normal(out.shape), rng.standard_normal(lse.shape)

    def value(h):
        *rows, last = (each + h * step for each, step in zip(given, steps))
        found = fovea.hca(*rows, **FORM, sink=last, return_lse=True)
        return (found[0] * d_out).sum() + (found[1] * d_lse).sum()

    slope = (value(1e-5) - value(-1e-5)) / 2e-5
    gradients = fovea.hca_backward(d_out, *given[:3], out, lse, **FORM, sink=given[3], d_lse=d_lse)
    found = sum((each * step).sum() for each, step in zip(gradients, steps, strict=True))
    assert abs(found - slope) <= 1e-7 * max(1, abs(slope))
    assert fovea.hca_backward(d_out, *given[:3], out, lse, **FORM).sink is None


def test_tokens_first():
    q, kv, summaries, sink = arrays(40)
    swapped = [np.ascontiguousarray(each.swapaxes(1, 2)) for each in (q, kv, summaries)]
    for few in (40, 3):
        found = fovea.hca(swapped[0][:, -few:].copy(), *swapped[1:], **FORM, sink=sink, layout="bnhd")
        near(found.swapaxes(1, 2), fovea.hca(q[:, :, -few:], kv, summaries, **FORM, sink=sink).astype(float), "float32")


def test_errors():
    q, kv, summaries, sink = arrays(40)
    refused("^kv: found rank 3", fovea.hca, q, kv[0], summaries)
    refused("^summaries: found head width 7, needed 24", fovea.hca, q, kv, summaries[..., :7])
    refused("^interval: found 0, needed an integer of at least 1", fovea.hca, q, kv, summaries, interval=0)
    refused("^window: found -1", fovea.hca, q, kv, summaries, window=-1)
    refused("^lengths: found 50 for batch entry 1, needed 0 to", fovea.hca, q, kv, summaries, interval=8, lengths=np.array([1, 50]))


def test_what_is_no_array_is_named():
    q, rows = np.zeros((1, 2, 9, 8), np.float32), np.zeros((1, 1, 9, 2), np.int32)
    for wrong in (None, "x", 1.0, q.tolist()):
        found = f"found {type(wrong).__name__}, needed an array$"
        refused(f"^q: {found}", fovea.hca, wrong, q, q)
        refused(f"^kv: {found}", fovea.hca, q, wrong, q)
        refused(f"^q: {found}", fovea.hca_backward, q, wrong, q, q, q, q)
        refused(rf"^local\[0\]: {found}", fovea.selected, q, q, q, rows, stride=2, local=(wrong, q), window=3)
    refused("^stride: found array", fovea.selected, q, q, q, rows, stride=np.array([2, 2]), local=(q, q), window=3)


def test_memory_for_gradients_has_its_parts():
    q = np.zeros((1, 2, 9, 8), np.float32)
    lse, rows = q[..., 0].copy(), np.zeros((1, 1, 9, 2), np.int32)
    hca = partial(fovea.hca_backward, q, q, q, q[:, :, :4], q, lse, interval=2)
    selected = partial(fovea.selected_backward, q, q, q, q, rows, q, lse)
    stream = partial(fovea.stream_backward, q, q, [fovea.Source(q, q)], q, lse)
    for wrong in (3, "x", q, object()):
        found = f"found {type(wrong).__name__}, needed a sequence of"
        refused(f"^gradients: {found} 3 parts$", hca, gradients=wrong)
        refused(f"^gradients: {found} 3 to 5 parts$", selected, gradients=wrong)
        refused(f"^gradients: {found} 2 parts$", stream, gradients=wrong)
        refused(rf"^gradients\[1\]: {found} 1 sources$", stream, gradients=(None, wrong))
        refused(rf"^gradients\[1\]\[0\]: {found} 0 to 5 parts$", stream, gradients=(None, [wrong]))
    refused("^gradients: found parts 2, needed 3 to 5$", selected, gradients=(q, q))
    refused("^gradients.sink: found memory, needed None: there is no sink$", selected, gradients=(None, None, None, None, q[0]))
    refused("^gradients.local: found memory, needed None: there is no local$", selected, gradients=(None, None, None, (q, q)))
    local = partial(selected, local=(q, q), window=2)
    refused("^gradients.local: found arrays 1, needed 2$", local, gradients=(None, None, None, (q,)))
