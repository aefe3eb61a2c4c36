# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# REQUIRES: long-tests
"""Gradients of the attention functions against the NumPy references."""

import subprocess
import sys

import numpy as np
import pytest

import fovea
from fovea import reference

BOUND = {"reference": 1e-12, "cpu": 1e-12}


def flat(gradients):
    """Gradients of arrays and of lists of arrays, in one list."""
    found = []
    for gradient in gradients:
        found.extend(gradient if isinstance(gradient, list) else [gradient])
    return found


def compare(found, wanted, bound):
    found, wanted = flat(found), flat(wanted)
    assert len(found) == len(wanted)
    for index, (mine, want) in enumerate(zip(found, wanted)):
        assert mine.shape == want.shape
        error = np.abs(mine - want).max(initial=0)
        assert error <= bound * max(np.abs(want).max(initial=0), 1e-3), f"gradient {index}"


def normal(rng, *shapes):
    return [rng.standard_normal(shape) for shape in shapes]


@pytest.mark.parametrize("target", BOUND)
@pytest.mark.parametrize(
    "options", [{}, {"causal": True}, {"window": 3}, {"causal": True, "window": 2, "scale": 0.3}]
)
@pytest.mark.parametrize("terms", [False, True])
def test_dense(target, options, terms):
    rng = np.random.default_rng(1)
    B, H, G, N, M, D, E = 2, 4, 2, 7, 9, 5, 3
    q, k, v = normal(rng, (B, H, N, D), (B, G, M, D), (B, G, M, E))
    if terms:
        weight, bias = normal(rng, (M,), (B, 1, N, M))
        options = dict(options, log_weight=weight, bias=bias)
    out, lse = reference.dense(q, k, v, return_lse=True, **options)
    d_out, d_lse = normal(rng, out.shape, lse.shape)
    arguments = (d_out, q, k, v, out, lse)
    found = fovea.dense_backward(*arguments, d_lse=d_lse, target=target, **options)
    if terms:
        # A gradient for every axis that the kernel sees.
        options["log_weight"] = options["log_weight"].reshape(1, 1, M)
    compare(found, reference.dense_backward(*arguments, d_lse=d_lse, **options), BOUND[target])


@pytest.mark.parametrize("target", BOUND)
@pytest.mark.parametrize("wanted", [(True, False), (False, True), (False, False)])
def test_dense_without_gradients_of_terms(target, wanted):
    rng = np.random.default_rng(7)
    q, k, v = normal(rng, (2, 4, 5, 3), (2, 2, 9, 3), (2, 2, 9, 4))
    terms = dict(zip(("log_weight", "bias"), normal(rng, (2, 2, 9), (1, 4, 5, 9))))
    out, lse = reference.dense(q, k, v, return_lse=True, **terms)
    d_out, d_lse = normal(rng, out.shape, lse.shape)
    arguments = (d_out, q, k, v, out, lse)

    def run(terms, wanted, **options):
        asks = dict(zip(("return_d_log_weight", "return_d_bias"), wanted))
        return fovea.dense_backward(*arguments, d_lse=d_lse, target=target, **terms, **asks, **options)

    expected = reference.dense_backward(*arguments, d_lse=d_lse, **terms)
    kept = [*expected[:3], *(each for each, flag in zip(expected[3:], wanted) if flag)]
    compare(run(terms, wanted), kept, BOUND[target])
    # The numbers of gradients do not depend on which others there are.
    every = run(terms, (True, True))
    same = [*every[:3], *(each for each, flag in zip(every[3:], wanted) if flag)]
    for one, other in zip(run(terms, wanted), same, strict=True):
        assert np.array_equal(one, other)
    memory = [np.full(each.shape, np.nan) for each in kept]
    found = run(terms, wanted, gradients=memory)
    assert all(one is other for one, other in zip(found, memory, strict=True))
    compare(memory, kept, BOUND[target])
    with pytest.raises(ValueError, match="gradients: found"):
        run(terms, wanted, gradients=[*memory, np.empty((1, 4, 5, 9))])
    # Without terms there is nothing to ask for.
    assert len(run({}, wanted)) == len(run({}, (True, True))) == 3


# Has memory to compile in, but none for 256 MB, the gradient of a bias that itself has one row.
PROGRAM = """
import resource, sys
import numpy as np
import fovea

fovea.set_num_threads(1)
x = np.ones((1, 4, 4096, 1), np.float32)
bias = np.broadcast_to(np.zeros(4096, np.float32), (1, 4, 4096, 4096))
out, lse = fovea.dense(x, x, x, bias=bias, return_lse=True)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 200 * 2**20, resource.getrlimit(resource.RLIMIT_AS)[1]))
try:
    found = fovea.dense_backward(x, x, x, x, out, lse, bias=bias, return_d_bias=sys.argv[1] == "wanted")
    print(len(found))
except fovea.FoveaError as error:
    print("no memory" if "out of memory" in str(error) else error)
"""


@pytest.mark.parametrize("wanted, expected", [("wanted", "no memory"), ("unwanted", "3")])
def test_memory_of_the_gradient_of_a_bias(wanted, expected):
    process = subprocess.run([sys.executable, "-c", PROGRAM, wanted], capture_output=True, text=True, timeout=120)
    assert process.returncode == 0, process.stderr
    assert process.stdout.strip() == expected


def weights(rng, N, m, p, D, W, biases=False):
    shapes = [(W, p, D) if biases else (W, p, m << l, D) for l in range(reference.num_levels(N, m))]
    return normal(rng, *shapes)


@pytest.mark.parametrize("target", BOUND)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("N,m,p,W", [(13, 2, 2, 1), (16, 2, 1, 2), (7, 4, 2, 1)])
def test_fast_multipole(target, causal, N, m, p, W):
    rng = np.random.default_rng(2)
    B, H, G, D, E = 1, 4, 2, 3, 2
    q, k, v = normal(rng, (B, H, N, D), (B, G, N, D), (B, G, N, E))
    lists = weights(rng, N, m, p, D, W), weights(rng, N, m, p, E, W)
    options = dict(
        group=m,
        causal=causal,
        key_biases=weights(rng, N, m, p, D, W, biases=True),
        value_biases=weights(rng, N, m, p, E, W, biases=True),
        multiplicity=not causal,
    )
    out, lse = reference.fast_multipole(q, k, v, *lists, return_lse=True, **options)
    d_out, d_lse = normal(rng, out.shape, lse.shape)
    arguments = (d_out, q, k, v, *lists, out, lse)
    compare(
        fovea.fast_multipole_backward(*arguments, d_lse=d_lse, target=target, **options),
        reference.fast_multipole_backward(*arguments, d_lse=d_lse, **options),
        BOUND[target],
    )


@pytest.mark.parametrize("target", BOUND)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("N,m,p", [(13, 2, 2), (16, 2, 1), (7, 4, 2)])
def test_fast_multipole_linear(target, causal, N, m, p):
    rng = np.random.default_rng(3)
    B, H, G, D, E = 1, 4, 2, 3, 2
    q, k, v, d_out = normal(rng, (B, H, N, D), (B, G, N, D), (B, G, N, E), (B, H, N, E))
    lists = [weights(rng, N, m, p, width, 1) for width in (D, D, E)]
    options = dict(
        group=m,
        causal=causal,
        allow_query_lookahead=causal,
        query_biases=weights(rng, N, m, p, D, 1, biases=True),
    )
    arguments = (d_out, q, k, v, *lists)
    compare(
        fovea.fast_multipole_linear_backward(*arguments, target=target, **options),
        reference.fast_multipole_linear_backward(*arguments, **options),
        BOUND[target],
    )


def test_nothing_to_read_gives_zeros():
    q = np.ones((1, 2, 3, 4), np.float32)
    empty = np.zeros((1, 1, 0, 4), np.float32)
    out, lse = fovea.dense(q, empty, empty, return_lse=True)
    dq, dk, dv = fovea.dense_backward(q, q, empty, empty, out, lse)
    assert dq.shape == q.shape and not dq.any() and dk.shape == dv.shape == empty.shape


def test_errors():
    q = np.ones((1, 2, 3, 4), np.float32)
    lse = np.zeros((1, 2, 3), np.float32)
    good = dict(d_out=q, q=q, k=q, v=q, out=q, lse=lse)
    for change, message in (
        ({"d_out": q[:, :, :2]}, r"d_out: found shape \(1, 2, 2, 4\), needed \(1, 2, 3, 4\)"),
        ({"d_out": q.astype(np.float64)}, "d_out: found element type float64, needed float32"),
        ({"d_out": q.astype(np.int32)}, "d_out: found element type int32, needed one of float16, bfloat16, float32, float64$"),
        ({"lse": lse[:, :1]}, r"lse: found shape \(1, 1, 3\), needed \(1, 2, 3\)"),
        ({"lse": lse.astype(np.float64)}, "lse: found element type float64, needed float32"),
        ({"d_lse": lse[:, :, :1]}, r"d_lse: found shape \(1, 2, 1\), needed \(1, 2, 3\)"),
        ({"out": q[..., :2]}, r"out: found shape \(1, 2, 3, 2\), needed \(1, 2, 3, 4\)"),
        ({"window": -1}, "window: found -1, needed an integer of at least 0"),
    ):
        with pytest.raises(ValueError, match=f"^{message}"):
            fovea.dense_backward(**{**good, **change})
    with pytest.raises(ValueError, match=r"^key_weights\[0\]: found interval 3, needed 2"):
        fovea.fast_multipole_backward(
            q, q, q, q, [q], [], q, lse, group=2
        )
    with pytest.raises(ValueError, match="^causal: found True without allow_query_lookahead"):
        fovea.fast_multipole_linear_backward(q, q, q, q, [], [], [], group=2, causal=True)


BUFFERS = """
!x = tensor<1x2x3x4xf32>
!l = tensor<1x2x3xf32>
!m = memref<1x2x3x4xf32>
func.func @f(%q: !x, %k: !x, %v: !x, %o: !x, %l: !l, %d: !x, %dq: !m, %dk: !m, %dv: !m) {
  %a = bufferization.to_tensor %dq restrict writable : !m to !x
  %b = bufferization.to_tensor %dk restrict writable : !m to !x
  %c = bufferization.to_tensor %dv restrict writable : !m to !x
  %r:3 = attn.dense_backward ins(%q, %k, %v : !x, !x, !x) forward(%o, %l : !x, !l) gradient(%d : !x)
      outs(%a, %b, %c : !x, !x, !x) -> !x, !x, !x
  bufferization.materialize_in_destination %r#0 in restrict writable %dq : (!x, !m) -> ()
  bufferization.materialize_in_destination %r#1 in restrict writable %dk : (!x, !m) -> ()
  bufferization.materialize_in_destination %r#2 in restrict writable %dv : (!x, !m) -> ()
  return
}
"""


def test_gradients_in_buffers_of_the_caller():
    """They may lie side by side, and share no byte with anything else."""
    kernel = fovea.compile(BUFFERS)
    rng = np.random.default_rng(1)
    q, k, v, d_out = (rng.standard_normal((1, 2, 3, 4)).astype(np.float32) for _ in range(4))
    out, lse = fovea.dense(q, k, v, return_lse=True)
    memory = np.zeros(72, np.float32)
    gradients = [memory[first : first + 24].reshape(q.shape) for first in (0, 24, 48)]
    kernel(q, k, v, out, lse, d_out, *gradients)
    expected = fovea.dense_backward(d_out, q, k, v, out, lse)
    assert all(np.array_equal(one, other) for one, other in zip(gradients, expected))

    nearly = memory[47:71].reshape(q.shape)
    for change, message in (
        ({6: q}, r"argument 6 \(%dq\) of @f: .* overlaps argument 0 \(%q\) of @f"),
        ({8: d_out}, r"argument 8 \(%dv\) .* overlaps argument 5 \(%d\)"),
        ({8: nearly}, r"argument 8 \(%dv\) .* overlaps argument 7 \(%dk\)"),
    ):
        arguments = [q, k, v, out, lse, d_out, *gradients]
        for index, array in change.items():
            arguments[index] = array
        before = [array.copy() for array in arguments]
        with pytest.raises(ValueError, match=message):
            kernel(*arguments)
        assert all(np.array_equal(one, other) for one, other in zip(arguments, before))
