# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradients derived by hand against central differences of the forward."""

import numpy as np
import pytest
from differences import check_gradients
from loops import make, make_weights, ref


def dense_case(H, G, N, M, *, terms=(), seed=0, **options):
    """Functions of q, k, v and the terms named, and their arguments."""
    q, k, v = make(B=2, H=H, G=G, N=N, M=M)
    rng = np.random.default_rng(seed)
    names, arrays = [], [q, k, v]
    for name, shape in terms:
        names.append(name)
        arrays.append(rng.standard_normal(shape))

    def forward(q, k, v, *rest):
        return ref.dense(q, k, v, return_lse=True, **dict(zip(names, rest)), **options)

    def backward(d_out, d_lse, out, lse, q, k, v, *rest):
        return ref.dense_backward(
            d_out, q, k, v, out, lse, d_lse=d_lse, **dict(zip(names, rest)), **options
        )

    return forward, backward, arrays


@pytest.mark.parametrize("H,G", [(1, 1), (4, 2), (3, 1)])
@pytest.mark.parametrize("N,M", [(5, 5), (3, 7), (7, 3), (1, 1)])
@pytest.mark.parametrize("causal,window", [(0, None), (1, None), (0, 2), (1, 3)])
def test_dense(H, G, N, M, causal, window):
    check_gradients(*dense_case(H, G, N, M, causal=bool(causal), window=window))


@pytest.mark.parametrize(
    "weight,bias",
    [
        ((2, 2, 5), (2, 4, 3, 5)),
        ((1, 1, 5), (1, 4, 1, 5)),
        ((1, 2, 1), (2, 1, 3, 1)),
        ((1, 1, 1), (1, 1, 1, 1)),
        ((2, 1, 5), (1, 1, 3, 5)),
    ],
)
def test_dense_terms(weight, bias):
    terms = [("log_weight", weight), ("bias", bias)]
    check_gradients(*dense_case(4, 2, 3, 5, terms=terms, scale=0.7, causal=True))
    check_gradients(*dense_case(4, 2, 3, 5, terms=terms[:1]))
    check_gradients(*dense_case(4, 2, 3, 5, terms=terms[1:]))


@pytest.mark.parametrize("sink", [(2, 4), (1, 4), (2, 1), (1, 1)])
def test_dense_sinks(sink):
    check_gradients(*dense_case(4, 2, 3, 5, terms=[("sink", sink)], causal=True))
    check_gradients(*dense_case(4, 2, 3, 2, terms=[("bias", (1, 4, 3, 2)), ("sink", sink)], causal=True))


def test_dense_hidden_entries_and_empty_rows_pass_nothing_on():
    q, k, v = make(N=5, M=2)
    bias = np.zeros((1, 1, 5, 2))
    bias[..., 4, :] = -np.inf
    out, lse = ref.dense(q, k, v, causal=True, bias=bias, return_lse=True)
    gradients = ref.dense_backward(
        np.ones(out.shape), q, k, v, out, lse, causal=True, bias=bias
    )
    assert all(np.isfinite(gradient).all() for gradient in gradients)
    # Query i reads keys up to i - 3, and the last one nothing at all.
    assert (gradients[0][:, :, [0, 1, 2, 4]] == 0).all() and gradients[3].shape == bias.shape


@pytest.mark.parametrize("W,biases", [(1, False), (2, True)])
def test_summarize(W, biases):
    x = make(H=2, N=11)[0]
    weights = make_weights(22, 4, 2, 4, W=W)[:1]
    bias = make_weights(22, 4, 2, 4, W=W, biases=True)[:1] if biases else []

    def forward(x, *rest):
        return ref.summarize(x, *rest, interval=4), None

    def backward(d_out, d_lse, out, lse, x, *rest):
        return ref.summarize_backward(d_out, x, *rest, interval=4)

    check_gradients(forward, backward, [x, *weights, *bias])


def multipole_case(name, sides, H, G, N, m, p, W, biases, **options):
    """`sides`: which of query, key and value have weights."""
    q, k, v = make(H=H, G=G, N=N, D=4, E=3)
    widths = {"query": 4, "key": 4, "value": 3}
    weights = [
        make_weights(N, m, p, widths[side], W=W, seed=i) for i, side in enumerate(sides)
    ]
    if biases:
        weights += [
            make_weights(N, m, p, widths[side], W=W, seed=9 + i, biases=True)
            for i, side in enumerate(sides)
        ]
    counts = [len(entries) for entries in weights]
    flat = [array for entries in weights for array in entries]
    forward_function = getattr(ref, name)
    backward_function = getattr(ref, name + "_backward")
    has_lse = name == "fast_multipole"

    def unpack(rest):
        lists, rest = [], list(rest)
        for count in counts:
            lists.append(rest[:count])
            rest = rest[count:]
        named = {f"{side}_biases": entries for side, entries in zip(sides, lists[len(sides) :])}
        return lists[: len(sides)], named

    def forward(q, k, v, *rest):
        lists, named = unpack(rest)
        if has_lse:
            return forward_function(q, k, v, *lists, return_lse=True, **named, **options)
        return forward_function(q, k, v, *lists, **named, **options), None

    def backward(d_out, d_lse, out, lse, q, k, v, *rest):
        lists, named = unpack(rest)
        if has_lse:
            lists += [out, lse]
            named["d_lse"] = d_lse
        found = backward_function(d_out, q, k, v, *lists, **named, **options)
        return [*found[:3], *(array for entries in found[3:] for array in entries)]

    return forward, backward, [q, k, v, *flat]


MULTIPOLE = [
    # H, G, N, m, p, W, biases
    (1, 1, 13, 2, 1, 1, False),
    (2, 1, 16, 2, 2, 1, True),
    (4, 2, 11, 2, 1, 2, True),
    (2, 2, 7, 4, 2, 1, False),
]


@pytest.mark.parametrize("shape", MULTIPOLE)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("multiplicity", [False, True])
def test_fast_multipole(shape, causal, multiplicity):
    options = dict(group=shape[3], causal=causal, multiplicity=multiplicity)
    check_gradients(
        *multipole_case("fast_multipole", ("key", "value"), *shape, **options)
    )


@pytest.mark.parametrize("shape", MULTIPOLE)
@pytest.mark.parametrize("causal", [False, True])
def test_fast_multipole_linear(shape, causal):
    options = dict(group=shape[3], causal=causal, allow_query_lookahead=causal)
    check_gradients(
        *multipole_case(
            "fast_multipole_linear", ("query", "key", "value"), *shape, **options
        )
    )


def test_the_check_fails_for_a_wrong_gradient():
    forward, backward, arrays = dense_case(2, 1, 3, 4)

    def wrong(*arguments):
        dq, dk, dv = backward(*arguments)
        return dq, dk * (1 + 1e-5), dv

    with pytest.raises(AssertionError, match="argument 1"):
        check_gradients(forward, wrong, arrays)


def test_results_of_another_run_are_refused():
    q, k, v = make()
    out, lse = ref.dense(q, k, v, return_lse=True)
    for arguments, name in (
        ((out[:, :, 1:], q, k, v, out, lse), "d_out"),
        ((out, q, k, v, out[:, :1], lse), "out"),
        ((out, q, k, v, out, lse[:, :, 1:]), "lse"),
    ):
        with pytest.raises(ValueError, match=f"^{name}: found shape"):
            ref.dense_backward(*arguments)
