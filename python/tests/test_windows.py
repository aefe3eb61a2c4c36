# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# REQUIRES: long-tests
"""Keys and values that blocks of queries share copies of are copied a window at a time."""

import subprocess
import sys

import numpy as np
import pytest
from conftest import TYPES, check, make

import fovea
from fovea import reference

# Windows of such rows have about 512 keys, or all where there are fewer than 768.
N, D = 300, 264
KEYS = [767, 768, 769, 1290]


def tokens_first(*arrays):
    """The same numbers, of which rows of one head have those of others between them."""
    return [np.ascontiguousarray(x.swapaxes(1, 2)).swapaxes(1, 2) for x in arrays]


def make_options(M):
    rng = np.random.default_rng(1)
    hidden = np.where(rng.random((2, 1, M)) < 0.3, -np.inf, rng.standard_normal((2, 1, M)))
    bias = rng.standard_normal((1, 2, N, M)).astype(np.float32)
    bias[:, :, 17] = -np.inf
    return {
        "all": {},
        "causal": {"causal": True},
        "window": {"window": 130},
        "causal window": {"causal": True, "window": 600},
        "prefix": {"causal": True, "prefix": min(1040, M - 20)},
        "lengths": {"causal": True, "lengths": np.array([M - 1, 530]), "query_lengths": np.array([N, 290])},
        "no keys": {"lengths": np.array([M, 0])},
        "no queries": {"query_lengths": np.array([0, 280])},
        "terms": {"log_weight": hidden, "bias": bias, "sink": rng.standard_normal(2)},
        "score": {"causal": True, "score": lambda s, b, h, i, j: s + abs(j - i) / 99},
    }


@pytest.mark.parametrize("options", make_options(1))
@pytest.mark.parametrize("M", KEYS)
@pytest.mark.parametrize("type", TYPES)
def test_windows(type, M, options):
    q, k, v = arrays = make(type, B=2, G=1, N=N, M=M, D=D)
    options = {
        name: value.astype(TYPES[type]) if name in ("log_weight", "bias", "sink") else value
        for name, value in make_options(M)[options].items()
    }
    expected = reference.dense(*arrays, **options, return_lse=True)
    check(fovea.dense(*tokens_first(*arrays), **options, return_lse=True), expected, type)
    check(fovea.dense(*arrays, **options, return_lse=True), expected, type)


@pytest.mark.parametrize("options", [{"causal": True, "window": 200}, {"window": 100}])
@pytest.mark.parametrize("type", ["float32", "bfloat16"])
def test_rows_that_are_not_read(type, options):
    """Queries keep their bits, whatever rows in another window hold, or in the same one."""
    arrays = q, k, v = tokens_first(*make(type, N=N, M=1290, D=D))
    expected = fovea.dense(*arrays, **options)
    k[:, :, 1000], v[:, :, 1040] = np.nan, np.inf
    found = fovea.dense(*arrays, **options)
    first = np.arange(N) + 1290 - N
    reads = (first + (0 if "causal" in options else options["window"] - 1) >= 1000) & (first - options["window"] < 1040)
    assert 0 < reads.sum() < N
    assert np.array_equal(found[:, :, ~reads], expected[:, :, ~reads])
    # Row 1000 alone makes a query NaN.
    assert np.isnan(found[:, :, first == 1000].astype(np.float32)).all()


@pytest.mark.parametrize("type", ["float32", "bfloat16"])
def test_same_bits_for_all_threads(type):
    arrays = tokens_first(*make(type, N=N, M=1290, D=D))
    threads = fovea.num_threads()
    found = []
    for count in (1, 2, 3):
        fovea.set_num_threads(count)
        found.append(fovea.dense(*arrays, causal=True))
    fovea.set_num_threads(threads)
    assert all(np.array_equal(found[0], other) for other in found)


# Keys of two heads are 151 MB, of which copies of a head would be 75 MB, or twice as much in f32 of f16.
PROGRAM = """
import resource, sys
import ml_dtypes
import numpy as np
import fovea

fovea.set_num_threads(1)
type = np.dtype(sys.argv[1])
k = np.ones((1, 2**17 // type.itemsize, 2, 576), type).swapaxes(1, 2)
q = np.ones((1, 2, 300, 576), type)

def call(k):
    return fovea.dense(q, k, k[..., :512])

call(k[:, :, :999])  # compiles
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
limit = resource.getrlimit(resource.RLIMIT_AS)[1]
resource.setrlimit(resource.RLIMIT_AS, (used + 24 * 2**20, limit))
print("right" if np.all(call(k) == 1) else "wrong")
try:
    k[:, 0].copy()
except MemoryError:
    print("no more")
"""


@pytest.mark.parametrize("type", ["float32", "float16", "bfloat16"])
def test_memory_does_not_grow_with_keys(type):
    process = subprocess.run([sys.executable, "-c", PROGRAM, type], capture_output=True, text=True, timeout=120)
    assert process.returncode == 0, process.stderr
    assert process.stdout.split() == ["right", "no", "more"]
