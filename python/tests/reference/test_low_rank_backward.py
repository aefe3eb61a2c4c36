# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The gradients of low-rank attention and of features against central differences."""

import numpy as np
import pytest
from differences import check_gradients
from loops import ref

B, H, G, N, M, R, E = 2, 4, 2, 7, 9, 3, 5


def masks():
    rng = np.random.default_rng(0)
    yield "causal", ref.causal_mask(N, M)
    yield "fewer keys", ref.causal_mask(N, 4)
    yield "interval", ref.row_interval_mask(*np.sort(rng.integers(0, M, (2, N)), axis=0), M)
    yield "entries of heads", rng.random((B, H, N, M)) < 0.5


@pytest.mark.parametrize("name,mask", masks())
def test_low_rank(name, mask):
    rng = np.random.default_rng(1)
    columns = mask.shape[-1]
    arrays = [rng.random((B, H, N, R)), rng.random((B, G, columns, R)),
              rng.standard_normal((B, G, columns, E))]  # fmt: skip
    check_gradients(
        lambda *factors: (ref.low_rank(*factors, mask), None),
        lambda d_out, _d, _o, _l, *factors: ref.low_rank_backward(d_out, *factors, mask),
        arrays,
    )


def test_rows_without_weight_pass_nothing_on():
    rng = np.random.default_rng(2)
    u1, u2 = rng.random((1, 1, 3, R)), rng.random((1, 1, M, R))
    u1[0, 0, 1] = 0
    v, d_out = rng.random((1, 1, M, E)), np.zeros((1, 1, 3, E))
    d_out[0, 0, 1] = 1
    mask = np.ones((3, M), bool)
    assert not any(gradient.any() for gradient in ref.low_rank_backward(d_out, u1, u2, v, mask))


@pytest.mark.parametrize("degree", range(5))
def test_features(degree):
    x = np.random.default_rng(3).standard_normal((1, 2, 3, 4))
    options = {"degree": degree, "scale": 0.7}
    check_gradients(
        lambda x: (ref.polynomial_features(x, **options), None),
        lambda d_out, _d, _o, _l, x: [ref.polynomial_features_backward(d_out, x, **options)],
        [x],
    )
