# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# REQUIRES: long-tests
"""Kernels and signals: Ctrl-C ends a running kernel, other handlers run beside
it."""

import os
import signal
import threading
import time

import numpy as np
import pytest

import fovea

#: Forty seconds of work on one core, and what an interrupt may take of it: far
#: more than it does, for machines that do other work at the same time.
TOKENS = 131072
SLACK = 5.0

SLOW = """func.func @slow(%q: tensor<1x1x?x64xf32>) -> tensor<1x1x?x64xf32> {
  %c2 = arith.constant 2 : index
  %n = tensor.dim %q, %c2 : tensor<1x1x?x64xf32>
  %e = tensor.empty(%n) : tensor<1x1x?x64xf32>
  %r = attn.dense ins(%q, %q, %q : tensor<1x1x?x64xf32>, tensor<1x1x?x64xf32>, tensor<1x1x?x64xf32>)
      outs(%e : tensor<1x1x?x64xf32>) -> tensor<1x1x?x64xf32>
  return %r : tensor<1x1x?x64xf32>
}"""


@pytest.fixture(params=[1, 2, 5], ids="{} threads".format)
def threads(request):
    fovea.set_num_threads(request.param)
    yield request.param
    fovea.set_num_threads(0)


@pytest.fixture(autouse=True)
def default_handler():
    """Python's own handler, although who started this process may have had it
    ignore SIGINT, as shells do for what runs in the background."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, previous)


def interrupted_after(call):
    """Seconds from a SIGINT in the middle of `call` to its KeyboardInterrupt."""
    sent = []

    def send():
        time.sleep(0.5)
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            call()
        end = time.monotonic()
    finally:
        sender.join()
    return end - sent[0]


# The reference has no parallel loop whose bodies end one after the other.
@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_ctrl_c_ends_a_kernel(threads, target):
    kernel = fovea.compile(SLOW, target=target)
    small = np.ones((1, 1, 16, 64), np.float32)
    large = np.ones((1, 1, TOKENS, 64), np.float32)
    assert interrupted_after(lambda: kernel(large)) < SLACK
    np.testing.assert_allclose(kernel(small), small, rtol=1e-6)


def test_ctrl_c_while_compiling_raises_afterwards():
    def compile_and_run():
        for window in range(1, 1000):
            q = np.ones((1, 1, 16, 64), np.float32)
            fovea.dense(q, q, q, causal=True, window=window)

    assert interrupted_after(compile_and_run) < SLACK


def test_handlers_that_return_let_the_kernel_go_on(threads):
    ran = []
    previous = signal.signal(signal.SIGALRM, lambda *_: ran.append(time.monotonic()))
    signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
    try:
        q = np.ones((1, 1, 8192, 64), np.float32)
        result = [fovea.dense(q, q, q) for _ in range(3)][-1]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    np.testing.assert_allclose(result, q, rtol=1e-5)
    assert ran


def test_an_exception_of_a_handler_is_raised():
    class Timeout(Exception):
        pass

    def handler(*_):
        raise Timeout

    previous = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    try:
        q = np.ones((1, 1, TOKENS, 64), np.float32)
        start = time.monotonic()
        with pytest.raises(Timeout):
            fovea.dense(q, q, q)
        assert time.monotonic() - start < SLACK
    finally:
        signal.signal(signal.SIGALRM, previous)
