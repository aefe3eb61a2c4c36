# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Published forms of rotary embedding, against formulas that share nothing with them."""

import math

import numpy as np
import pytest
from conftest import BOUNDS, TYPES, refused

import fovea
from fovea import _fovea, reference

ALL_TARGETS = pytest.mark.parametrize("target", ["cpu", "reference", "gpu-sim"])
FORMS = {
    "half": {"style": "half"},
    "part": {"width": 6},
    "half of a part": {"style": "half", "width": 6, "base": 500.0},
    "table": {"frequencies": [1.0, 0.25, 0.0, 3.0, 1e-4], "magnitude": 1.25},
    "half of a table": {"frequencies": np.array([2.0, 0.1]), "width": 4, "style": "half"},
}


def make(type, B=2, H=3, N=37, D=10):
    return np.random.default_rng(0).standard_normal((B, H, N, D)).astype(TYPES[type])


def error(found, expected):
    return np.abs(found.astype(float) - expected).max() / np.abs(expected).max()


@ALL_TARGETS
@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("form", FORMS)
def test_forms(form, type, target):
    if target == "gpu-sim" and type == "float64":
        pytest.skip("not on GPUs")
    x = make(type)
    # Of each batch entry by itself, as after padding on the left.
    positions = np.stack([np.arange(37), np.maximum(np.arange(37) - 11, 0)])[:, None]
    options = FORMS[form]
    found = fovea.rope(x, positions, target=target, **options)
    assert error(found, reference.rope(x, positions, **options)) <= BOUNDS[type]
    width = options.get("width", 10)
    assert np.array_equal(found[..., width:], x[..., width:])
    back = fovea.rope_backward(x, positions, target=target, **options)
    assert error(back, reference.rope_backward(x, positions, **options)) <= BOUNDS[type]


@ALL_TARGETS
def test_columns_that_do_not_turn_have_no_influence(target):
    x = make("float32")
    x[..., 6:] = np.nan
    found = fovea.rope(x, np.arange(37), width=6, target=target)
    assert np.isfinite(found[..., :6]).all() and np.isnan(found[..., 6:]).all()


@pytest.mark.parametrize("style", ["interleaved", "half"])
def test_far_positions(style):
    """Up to 2^20 in float32, as exact as near ones."""
    x = make("float32", B=1, H=1, N=64)
    positions = np.r_[0, 2 ** np.arange(20), 2**20 - np.arange(43)]
    frequencies, magnitude = fovea.rope_frequencies(10, scaling="yarn", factor=8.0, original_length=4096)
    for options in ({}, {"frequencies": frequencies, "magnitude": magnitude}):
        found = fovea.rope(x, positions, style=style, **options)
        assert error(found, reference.rope(x, positions, style=style, **options)) <= 5e-7


def test_slopes():
    x, step, d_out = (np.random.default_rng(s).standard_normal((1, 2, 5, 10)) for s in range(3))
    for options in FORMS.values():
        values = [(fovea.rope(x + h * step, 3 + np.arange(5), **options) * d_out).sum() for h in (1e-4, -1e-4)]
        slope = (values[0] - values[1]) / 2e-4
        found = (fovea.rope_backward(d_out, 3 + np.arange(5), **options) * step).sum()
        assert abs(found - slope) <= 1e-8 * max(1, abs(slope))


# ----------------------------------------------------------------------------
# Frequencies
# ----------------------------------------------------------------------------


def plain(width, base=10000.0):
    return np.array([1 / base ** (2 * i / width) for i in range(width // 2)])


def yarn(width, base, factor, original, fast=32, slow=1):
    """By the number of turns of each pair, as the paper has it, with ends that the authors round."""

    def pair_of(turns):
        return width * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(base))

    low, high = max(math.floor(pair_of(fast)), 0), min(math.ceil(pair_of(slow)), width - 1)
    ramp = np.clip((np.arange(width // 2) - low) / max(high - low, 0.001), 0, 1)
    return plain(width, base) * ((1 - ramp) + ramp / factor)


def llama3(width, base, factor, original, low, high):
    found = []
    for frequency in plain(width, base):
        wavelength = 2 * math.pi / frequency
        if wavelength < original / high:
            found.append(frequency)
        elif wavelength > original / low:
            found.append(frequency / factor)
        else:
            smooth = (original / wavelength - low) / (high - low)
            found.append((1 - smooth) * frequency / factor + smooth * frequency)
    return np.array(found)


@pytest.mark.parametrize("width", [4, 64, 128])
@pytest.mark.parametrize("base", [10000.0, 500000.0])
def test_frequencies(width, base):
    def check(expected, magnitude=1.0, **options):
        found = fovea.rope_frequencies(width, base=base, **options)
        np.testing.assert_allclose(found[0], expected, rtol=1e-14)
        assert found[1] == pytest.approx(magnitude, rel=1e-15)

    check(plain(width, base))
    check(plain(width, base) / 4, scaling="linear", factor=4.0)
    ntk = base * 4 ** (width / (width - 2))
    check(plain(width, ntk), scaling="ntk", factor=4.0)
    dynamic = {"scaling": "dynamic_ntk", "factor": 4.0, "original_length": 2048}
    check(plain(width, base), length=1000, **dynamic)
    grown = base * (4 * 8192 / 2048 - 3) ** (width / (width - 2))
    check(plain(width, grown), length=8192, **dynamic)
    check(
        yarn(width, base, 16, 4096),
        magnitude=0.1 * math.log(16) + 1,
        scaling="yarn",
        factor=16.0,
        original_length=4096,
    )
    options = {"scaling": "llama3", "factor": 8.0, "original_length": 8192, "low_factor": 1.0, "high_factor": 4.0}
    check(llama3(width, base, 8, 8192, 1, 4), **options)


def test_known_frequencies():
    """Llama 3.1's: the first pairs as they were, the last an eighth."""
    found, _ = fovea.rope_frequencies(128, scaling="llama3", base=500000.0, factor=8.0, original_length=8192)
    np.testing.assert_allclose(found[:28], plain(128, 500000.0)[:28], rtol=1e-15)
    np.testing.assert_allclose(found[36:], plain(128, 500000.0)[36:] / 8, rtol=1e-15)
    assert (np.diff(found) < 0).all()


def test_errors():
    x = make("float32")
    refused("width: found 12, needed an even number from 2 to 10", fovea.rope, x, 0, width=12)
    refused("width: found 3, needed an even number from 2 to 10", fovea.rope, x, 0, width=3)
    refused("style: found 'other'", fovea.rope, x, 0, style="other")
    refused("magnitude: found 0, needed a finite number above 0", fovea.rope, x, 0, magnitude=0)
    refused("frequencies: found length 2, needed 5", fovea.rope, x, 0, frequencies=[1, 2])
    refused("frequencies: found -1, needed a finite number of at least 0", fovea.rope, x, 0, frequencies=[1, 1, 1, 1, -1])
    refused("frequencies: found a base as well", fovea.rope, x, 0, frequencies=[1] * 5, base=2.0)
    refused(r"frequencies: found float64 of shape \(0,\)", fovea.rope, x, 0, frequencies=[])
    refused("frequencies: found <U1", fovea.rope_backward, x, 0, frequencies=["1"])
    refused("width: found 5, needed an even number of at least 2", fovea.rope_frequencies, 5)
    refused("width: found 2, needed an even number of at least 4", fovea.rope_frequencies, 2, scaling="ntk", factor=2.0)
    refused("^width: found 1099511627776, needed at most 1048576$", fovea.rope_frequencies, 2**40)
    refused("original_length: found none", fovea.rope_frequencies, 8, scaling="yarn", factor=2.0)
    refused("length: found none", fovea.rope_frequencies, 8, scaling="dynamic_ntk", factor=2.0, original_length=8)
    refused("factor: found 0.5, needed a finite number of at least 1", fovea.rope_frequencies, 8, factor=0.5)
    refused("scaling: found 'other'", fovea.rope_frequencies, 8, scaling="other")


@ALL_TARGETS
def test_kernels_check_positions_of_64_bits(target):
    """Frameworks give them, and arrays of GPUs."""
    x, options = np.ones((1, 2, 3, 8), np.float32), (1e4, "interleaved", None, None, 1.0, target)
    for function in (_fovea.rope, _fovea.rope_backward):
        given = np.array([[[-(2**31), 0, 2**31 - 1]]])
        assert np.array_equal(function(x, given, *options), function(x, given.astype(np.int32), *options))
        for wrong in (2**31, -(2**31) - 1, 2**32, -(2**63)):
            given[..., 1] = wrong
            with pytest.raises(fovea.FoveaError, match="positions: found a number of more than 32 bits"):
                function(x, given, *options)
