# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# REQUIRES: long-tests
"""Threads that ask one cache at the same time, while each fills one of its own."""

import threading

import numpy as np
import pytest
from conftest import make, make_weights

import fovea

N, THREADS = 45, 4
Q, K, V = make(B=1, H=4, G=2, N=N, D=16, E=12)


def token(x, i):
    return x[:, :, i : i + 1]


def make_multipole():
    return fovea.MultipoleCache(make_weights(N, 6, 2, 16), make_weights(N, 6, 2, 12, seed=4), group=6, heads=2)


CACHES = {
    "KVCache": lambda: fovea.KVCache(1, 2, 16, 12, capacity=N),
    "PagedCache": lambda: fovea.PagedCache(12, 4, 2, 16, 12),
    "MultipoleCache": make_multipole,
}


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("kind", CACHES)
def test_threads_share_a_cache_and_fill_their_own(kind, workers):
    """`workers` are those of one kernel."""
    create = CACHES[kind]
    shared = create()
    shared.append(K[:, :, :31], V[:, :, :31])

    def decode():
        own, found = create(), []
        for i in range(N):
            own.append(token(K, i), token(V, i))
            found += [own.attend(token(Q, i)), shared.attend(token(Q, i))]
        return np.stack(found)

    def run(number):
        ready.wait()
        found[number] = decode()

    found, ready = [None] * THREADS, threading.Barrier(THREADS)
    threads = [threading.Thread(target=run, args=(i,)) for i in range(THREADS)]
    before = fovea.num_threads()
    fovea.set_num_threads(workers)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        fovea.set_num_threads(before)
    alone = decode()
    assert all(np.array_equal(each, alone) for each in found)
