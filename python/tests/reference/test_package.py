# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the package of references offers, and its figures on real input."""

import inspect
from pathlib import Path

import numpy as np
from loops import averages, ref


def test_signatures():
    def names(function):
        return list(inspect.signature(function).parameters)

    assert names(ref.dense) == (
        "q k v scale causal window prefix log_weight bias sink lengths query_lengths score return_lse".split()
    )
    assert names(ref.fast_multipole) == (
        "q k v key_weights value_weights group causal key_biases value_biases key_summaries "
        "value_summaries scale multiplicity mask return_lse".split()
    )
    assert names(ref.fast_multipole_linear) == (
        "q k v query_weights key_weights value_weights group causal "
        "allow_query_lookahead query_biases key_biases value_biases query_summaries "
        "key_summaries value_summaries scale mask".split()
    )
    assert names(ref.summarize) == "x weights bias interval".split()
    assert names(ref.dense_backward) == (
        "d_out q k v out lse d_lse scale causal window prefix log_weight bias sink lengths query_lengths score".split()
    )
    assert names(ref.fast_multipole_backward) == (
        "d_out q k v key_weights value_weights out lse group d_lse causal key_biases "
        "value_biases key_summaries value_summaries scale multiplicity mask".split()
    )


def test_example_data():
    data = Path(__file__).resolve().parents[3] / "examples" / "data"
    q, k, v = (np.load(data / f"{name}.npy") for name in "qkv")
    for array in (q, k, v):
        assert array.shape == (1, 12, 512, 32) and array.dtype == np.dtype("<f4")
        assert array.flags.c_contiguous and np.isfinite(array).all()
    # The figures of examples/README.md.
    want = ref.dense(q, k, v)
    for p, ratio in ((4, 0.26), (64, 0.14)):
        weights = averages(512, 64, p, 32)
        error = ref.fast_multipole(q, k, v, weights, weights, group=64) - want
        assert abs(np.linalg.norm(error) / np.linalg.norm(want) - ratio) < 0.005
