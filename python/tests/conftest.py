# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Inputs and comparisons that the tests of the package share."""

import collections
import ctypes
import importlib.util
import inspect
import math
import os
import zlib

import ml_dtypes
import numpy as np
import pytest

import fovea
from fovea import reference

# Nothing depends on what was compiled before.
os.environ["FOVEA_CACHE_DIR"] = ""

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)

TYPES = {
    "float32": np.dtype(np.float32),
    "float64": np.dtype(np.float64),
    "float16": np.dtype(np.float16),
    "bfloat16": BFLOAT16,
}

# max|out-ref| / max|ref|
BOUNDS = {"float32": 5e-6, "float64": 1e-13, "float16": 2e-3, "bfloat16": 1e-2}


def pytest_collection_modifyitems(config, items):
    """FOVEA_EVERY=n runs one of n cases of every function, and one at least; FOVEA_PART=k/n runs the k-th
    of n parts of the functions."""
    every = int(os.environ.get("FOVEA_EVERY", 1))
    part, parts = map(int, os.environ.get("FOVEA_PART", "1/1").split("/"))
    if not 1 <= part <= parts:
        raise ValueError(f"FOVEA_PART must be k/n with k from 1 to n, but is {part}/{parts}")
    cases = collections.defaultdict(list)
    for item in items:
        cases[item.nodeid.split("[")[0]].append(item)
    chosen = set()
    for name, group in cases.items():
        number = zlib.crc32(name.encode())
        # Not by the digits that choose among cases below.
        if number // 1024 % parts != part - 1:
            continue
        # Not the first of all functions, which would be one target or type.
        chosen.update(group[number % min(every, len(group)) :: every])
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = [item for item in items if item in chosen]
    config.stash[_ALL_LEFT_OUT] = bool(cases) and not items


_ALL_LEFT_OUT = pytest.StashKey[bool]()


def pytest_sessionfinish(session, exitstatus):
    """A file of which no function is in the part has passed."""
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and session.config.stash.get(_ALL_LEFT_OUT, False):
        session.exitstatus = pytest.ExitCode.OK


class Skipped(pytest.Module):
    def collect(self):
        framework = self.path.parent.name
        pytest.skip(f"needs {framework}: utils/frameworks.sh runs it", allow_module_level=True)


def pytest_pycollect_makemodule(module_path, parent):
    """Fovea does without the frameworks, which the folders are named after."""
    if module_path.parent.parent.name != "frameworks" or importlib.util.find_spec(module_path.parent.name):
        return None
    return Skipped.from_parent(parent, path=module_path)


@pytest.fixture(params=["cpu", "reference"])
def target(request):
    return request.param


def runtime():
    """The runtime that the package has loaded."""
    with open("/proc/self/maps") as maps:
        path = next(line.split()[-1] for line in maps if "libfovea_rt" in line)
    return ctypes.CDLL(path)


def make(type="float32", *, B=1, H=2, G=2, N=37, M=None, D=16, E=None, seed=0):
    """q, k and v, unit normal, rounded to `type`."""
    rng = np.random.default_rng(seed)
    M = N if M is None else M
    E = D if E is None else E
    shapes = ((B, H, N, D), (B, G, M, D), (B, G, M, E))
    return [rng.standard_normal(shape).astype(TYPES[type]) for shape in shapes]


def make_weights(N, m, p, D, W=1, type="float32", seed=1):
    """Weights of every level for N tokens in groups of m."""
    rng = np.random.default_rng(seed)
    sizes = [m << level for level in range(reference.num_levels(N, m))]
    return [
        (rng.standard_normal((W, p, size, D)) / math.sqrt(size)).astype(TYPES[type])
        for size in sizes
    ]


def make_biases(N, m, p, D, W=1, type="float32", seed=2):
    rng = np.random.default_rng(seed)
    count = reference.num_levels(N, m)
    return [rng.standard_normal((W, p, D)).astype(TYPES[type]) for _ in range(count)]


# Of gradients in float32 whose errors are measured (test_gradient_accuracy.py).
LENGTH, WIDTH = 4096, 64


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def rows(count=1, width=WIDTH, seed=0):
    return normal(1, count, LENGTH, width, seed=seed)


def check(found, expected, type="float32"):
    """`found` has the type and shape it should, and is near `expected`."""
    if isinstance(expected, tuple):
        assert isinstance(found, tuple) and len(found) == len(expected)
        check(found[0], expected[0], type)
        lse, expected_lse = found[1], expected[1]
        assert lse.dtype == (np.float64 if type == "float64" else np.float32)
        assert lse.shape == expected_lse.shape
        finite = np.isfinite(expected_lse)
        assert np.array_equal(lse[~finite], expected_lse[~finite])
        bound = 1e-12 if type == "float64" else 1e-5
        np.testing.assert_allclose(lse[finite], expected_lse[finite], rtol=0, atol=bound)
        return
    near(found, expected, type, BOUNDS[type])


def near(found, expected, type, bound=None):
    """Twice the forward's bound: a gradient is made of two of its sums."""
    assert found.dtype == TYPES[type] and found.shape == expected.shape
    error = np.abs(found.astype(np.float64) - expected).max(initial=0)
    assert error <= (bound or 2 * BOUNDS[type]) * np.abs(expected).max(initial=0)


def refused(match, function, *arguments, error=ValueError, **options):
    with pytest.raises(error, match=match):
        function(*arguments, **options)


def agree(gradient, *arguments, **options):
    """The emulated GPU computes what the CPU does."""
    found, expected = (gradient(*arguments, target=target, **options) for target in ("gpu-sim", "cpu"))
    if not isinstance(found, tuple):
        found, expected = (found,), (expected,)
    for one, other in zip(found, expected, strict=True):
        near(one, other, "float32")

#: What of the package neither fovea.torch nor fovea.jax has under the same name.
OF_NO_FRAMEWORK = {
    "functions of scores, which are the same everywhere": {"capture", "math"},
    "a state in arrays of NumPy": {"PoolState"},
    "programs, and what is known of them": {
        "Candidate", "Explanation", "Kernel", "Program", "Suggestion", "TARGETS", "compile", "explain", "import_jax", "import_onnx",
        "import_torch", "load", "suggest",
    },
    "errors and settings of the process": {
        "FoveaError", "clear_cache", "gpu_stream", "num_threads", "set_num_threads", "set_shapes", "shapes",
    },
}  # fmt: skip


def public(kind):
    """The names of what a class has, but for what all tuples have."""
    return {name for name in dir(kind) if not name.startswith("_")}


def compare_with_package(module, others, options, own=()):
    """`module` has all that the package has, but for OF_NO_FRAMEWORK and `others`; functions and classes
    take the same arguments with the same defaults, but for `options`.  Both have reasons as their keys.
    What is `own` means something else in the module."""
    missing = set().union(*OF_NO_FRAMEWORK.values(), *others.values()) - set(own)
    left_out = set().union(*options.values())
    names = set(fovea.__all__) - set(own)
    assert missing <= names and {name for name in names if not hasattr(module, name)} == missing
    for name in names - missing:
        if isinstance(getattr(fovea, name), type):
            assert public(getattr(fovea, name)) <= public(getattr(module, name)), name
        mine, theirs = (
            inspect.signature(getattr(each, name)).parameters if callable(getattr(each, name)) else {} for each in (module, fovea)
        )
        if any(each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD) for each in mine.values()):
            # Passed on to the class of the package.
            assert issubclass(getattr(module, name), getattr(fovea, name))
            continue
        expected = {key: each.default for key, each in theirs.items() if key not in left_out}
        assert {key: each.default for key, each in mine.items() if key not in left_out} == expected, name
