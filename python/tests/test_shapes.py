# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One kernel for all lengths: how often functions compile, and what they refuse."""

import itertools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from call_cases import FUNCTIONS
from conftest import check, make, near, refused
from shape_cases import CASES, DYNAMIC_CASES, GROUP, KERNELS, MOST, Tokens, dense, fast_multipole

import fovea
from fovea import _fovea, reference


@pytest.fixture(autouse=True)
def default_shapes():
    fovea.clear_cache()
    yield
    fovea.set_shapes("auto")


class Compilations:
    """How many kernels were compiled since this was made."""

    def __init__(self):
        self.before = _fovea.cache_statistics()[2]

    @property
    def count(self):
        return _fovea.cache_statistics()[2] - self.before


# ----------------------------------------------------------------------------
# Choosing
# ----------------------------------------------------------------------------


def test_the_default_is_auto():
    assert fovea.shapes() == "auto"


@pytest.mark.parametrize("shapes", ["auto", "static", "dynamic"])
def test_a_choice_is_kept(shapes):
    fovea.set_shapes(shapes)
    assert fovea.shapes() == shapes


def test_a_choice_of_one_thread_is_its_own():
    """Another one goes on compiling as the process is told to, and so does this one afterwards."""
    fovea.set_shapes("static")
    with ThreadPoolExecutor(1) as other:

        def count(call):
            compilations = Compilations()
            for length in (5, 6, 7):
                call(fovea.dense, *make(N=length))
            return fovea.shapes(), compilations.count

        def elsewhere(function, *arguments):
            return other.submit(function, *arguments).result()

        def here(function, *arguments):
            assert elsewhere(fovea.shapes) == "static"
            return function(*arguments)

        assert _fovea.call_with_shapes("dynamic", lambda: count(here)) == ("dynamic", 1)
        assert _fovea.call_with_shapes("dynamic", lambda: count(elsewhere)) == ("dynamic", 3)
    assert fovea.shapes() == "static"
    with pytest.raises(ZeroDivisionError):
        _fovea.call_with_shapes("dynamic", lambda: 1 // 0)
    assert fovea.shapes() == "static"


@pytest.mark.parametrize("shapes", ["", "Auto", "fixed", None, 1])
def test_other_choices_are_refused(shapes):
    refused(
        "shapes: found .*, needed 'auto', 'static' or 'dynamic'",
        fovea.set_shapes,
        shapes,
    )
    assert fovea.shapes() == "auto"


# ----------------------------------------------------------------------------
# Compilations
# ----------------------------------------------------------------------------


def test_a_hundred_lengths_compile_once():
    compilations = Compilations()
    for index in range(100):
        arrays = make(B=1 + index % 3, H=4, G=2, N=1 + index, M=200 - index, seed=index)
        found = fovea.dense(*arrays, causal=True)
        check(found, reference.dense(*arrays, causal=True))
    assert compilations.count == 1


def test_a_growing_cache_compiles_once():
    # In memory for more tokens than there are.
    q, k, v = make(H=4, G=2, N=101)
    compilations = Compilations()
    for length in range(1, 101):
        rows = q[:, :, length - 1 : length], k[:, :, :length], v[:, :, :length]
        check(fovea.dense(*rows, causal=True), reference.dense(*rows, causal=True))
    assert compilations.count == 1


def test_gradients_of_many_lengths_compile_once():
    compilations = Compilations()
    for length in range(1, 40, 3):
        q, k, v = make(B=1 + length % 2, H=4, G=2, N=length, M=40)
        out, lse = reference.dense(q, k, v, return_lse=True)
        out, lse, d_out = out.astype(q.dtype), lse.astype(np.float32), q
        found = fovea.dense_backward(d_out, q, k, v, out, lse)
        expected = reference.dense_backward(d_out, q, k, v, out, lse)
        for one, other in zip(found, expected, strict=True):
            near(one, other, "float32")
    assert compilations.count == 1


def compilations_of(case, lengths):
    compilations = Compilations()
    for index, length in enumerate(lengths):
        function, arguments, options = case(Tokens("float32", B=2 + index % 2, N=length))
        function(*arguments, **options)
    return compilations.count


@pytest.mark.parametrize("case", CASES + DYNAMIC_CASES)
def test_functions_compile_once_for_a_hundred_lengths(case):
    fovea.set_shapes("dynamic" if case in DYNAMIC_CASES else "auto")
    assert compilations_of(case, range(1, 101)) == KERNELS.get(case, 1)


def test_what_is_counted_are_compilations():
    fovea.set_shapes("static")
    assert compilations_of(dense, (5, 6, 7, 8)) == 4


def test_all_functions_are_counted():
    """Every function of the package but caches' has a case: for one without, say here why it compiles more than once."""
    counted = {case(Tokens("float32", B=2, N=9))[0].__name__ for case in CASES + DYNAMIC_CASES}
    assert counted == set(FUNCTIONS)


def test_static_shapes_compile_for_each_length():
    fovea.set_shapes("static")
    compilations = Compilations()
    for length in (5, 6, 7, 6):
        fovea.dense(*make(N=length))
    assert compilations.count == 3


def test_what_is_no_length_is_a_configuration():
    compilations = Compilations()
    for count, sizes in enumerate([{}, {"D": 8}, {"E": 8}, {"H": 4}, {"H": 4, "G": 1}]):
        fovea.dense(*make(**sizes))
        assert compilations.count == count + 1
    fovea.dense(*make("float64"))
    fovea.dense(*make(), causal=True)
    fovea.dense(*make(), scale=2.0)
    assert compilations.count == 8


def test_a_window_that_reaches_everything_is_none():
    compilations = Compilations()
    for length in (10, 20, 30):
        arrays = make(N=length)
        found = fovea.dense(*arrays, causal=True, window=15)
        check(found, reference.dense(*arrays, causal=True, window=15))
    # Without a window, and with one.
    assert compilations.count == 2


def test_a_bias_of_one_batch_entry_is_whole():
    """An extent of 1 broadcasts where others are more: gradients are sums there."""
    rng = np.random.default_rng(0)
    compilations = Compilations()
    for length in (20, 1, 7):
        q, k, v = make(N=length)
        bias = rng.standard_normal((1, 2, length, length)).astype(np.float32)
        found = fovea.dense(q, k, v, bias=bias)
        check(found, reference.dense(q, k, v, bias=bias))
    assert compilations.count == 1


def test_terms_that_broadcast_are_a_configuration():
    rng = np.random.default_rng(0)
    compilations = Compilations()
    for length in (6, 9, 130):
        q, k, v = make(B=2, N=length)
        for shape in [(length, length), (length,), (2, 1, length, length), (length, 1)]:
            bias = rng.standard_normal(shape).astype(np.float32)
            found = fovea.dense(q, k, v, bias=bias)
            check(found, reference.dense(q, k, v, bias=bias))
    assert compilations.count == 4


# ----------------------------------------------------------------------------
# Errors
# ----------------------------------------------------------------------------

WRONG = {
    "k: found batch 3, needed 2": {"k": (3, 2, 30, 16)},
    "v: found length 29, needed 30": {"v": (2, 2, 29, 16)},
    "k: found head width 8, needed 16": {"k": (2, 2, 30, 8)},
    r"bias: found shape \[1, 1, 21, 29\]": {"bias": (21, 29)},
}


@pytest.mark.parametrize("shapes", ["static", "dynamic"])
def test_weights_of_too_few_levels_are_refused(shapes):
    fovea.set_shapes(shapes)
    function, arguments, options = fast_multipole(Tokens("float32", B=1, N=MOST))
    function(*arguments, **options)
    longest = GROUP * 2 ** (len(arguments[3]) + 1)
    function, arguments, options = fast_multipole(Tokens("float32", B=1, N=longest))
    function(*arguments, **options)
    function, arguments, options = fast_multipole(Tokens("float32", B=1, N=longest + 1))
    message = rf"key_weights: found 6 levels, needed 7 for {longest + 1} tokens in groups of {GROUP}"
    refused(message, function, *arguments, **options)


@pytest.mark.parametrize("shapes", ["static", "dynamic"])
@pytest.mark.parametrize("wrong", WRONG)
def test_a_kernel_that_is_there_hides_no_error(shapes, wrong):
    fovea.set_shapes(shapes)
    sizes = {"q": (2, 4, 21, 16), "k": (2, 2, 30, 16), "v": (2, 2, 30, 16), "bias": (21, 30)}
    arrays = {name: np.zeros(shape, np.float32) for name, shape in sizes.items()}
    fovea.dense(**arrays)
    for name, shape in WRONG[wrong].items():
        arrays[name] = np.zeros(shape, np.float32)
    refused(wrong, fovea.dense, **arrays)


def test_all_pairs_of_choices_agree_on_errors():
    """Wrong lengths are refused alike by kernels for one length and for all."""
    lengths = (2, 3)
    for batch, rows, keys in itertools.product(lengths, lengths, lengths):
        arrays = [np.zeros(shape, np.float32) for shape in ((2, 2, 5, 4), (batch, 2, rows, 4), (2, 2, keys, 4))]
        texts = set()
        for shapes in ("dynamic", "static"):
            fovea.set_shapes(shapes)
            fovea.dense(*make(D=4, N=3))
            try:
                fovea.dense(*arrays)
                texts.add("")
            except ValueError as error:
                texts.add(str(error))
        assert len(texts) == 1
