# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attn.fft_*: spectra against numpy.fft in their order, and convolutions there and
back against numpy.convolve."""

import math

import numpy as np
from cases import Checker, normal, state, tensor

check = Checker()

# max|out - ref| / max|ref|: a few roundings for each stage.
ROUNDOFF = {"f32": 2.0**-24, "f64": 2.0**-53, "bf16": 2.0**-24, "f16": 2.0**-24}
STORED = {"f32": 0, "f64": 0, "bf16": 2.0**-8, "f16": 2.0**-11}

FACTORS = {
    "radices": [(2,), (4,), (8,), (2, 2), (8, 4), (4, 8), (2, 8, 4), (8, 8, 8), (4, 4, 4, 4, 4), (8, 8, 8, 8)],
    # Rows of the data: all, half, and others.
    "rows": ["all", "half", "most", "few", "one"],
    "width": [1, 7, 16, 32, 33, 64, 80],
    "lanes": [1, 4, 8, 16],
    "batch": [1, 3],
    "dtype": check.types(),
    "cpu": check.usable_cpus(),
    "dynamic": [False, True],
}
# One that the second cache does not hold; as plain loops it would take minutes.
if check.library.target == "cpu":
    FACTORS["radices"].append((4, 8, 8, 8, 8))


def frequencies(radices):
    """The frequency of every row: its digits reversed."""
    order = np.zeros(1, int)
    for radix in reversed(radices):
        order = (np.arange(radix)[:, None] + radix * order).ravel()
    return order


def module(dtype, B, N, E, kept, first, radices, lanes, dynamic):
    """Spectrum of the data; its product with that of a column, twice, one added to
    the other; and back."""
    L, group = math.prod(radices), 2 * lanes
    F = -(-E // group) * group
    batch = None if dynamic else B
    s, form = state(dtype), f"form = #attn.spectrum<lanes = {lanes}, radices = {list(radices)}>"
    x, k, y = tensor((batch, N, E), dtype), tensor((1, N, 1), s), tensor((batch, kept, E), dtype)
    spectra, factor = tensor((batch, L, F), s), tensor((1, L, group), s)
    size = "%d" if dynamic else ""
    return f"""func.func @f(%x: {x}, %k: {k}) -> ({spectra}, {y}) {{
  %c0 = arith.constant 0 : index
  %d = tensor.dim %x, %c0 : {x}
  %i = tensor.empty({size}) : {spectra}
  %j = tensor.empty() : {factor}
  %o = tensor.empty({size}) : {y}
  %s = attn.fft_forward ins(%x : {x}) outs(%i : {spectra}) {{{form}}} -> {spectra}
  %t = attn.fft_forward ins(%k : {k}) outs(%j : {factor}) {{{form}}} -> {factor}
  %p = attn.fft_multiply ins(%s, %t : {spectra}, {factor}) outs(%i : {spectra}) {{{form}}} -> {spectra}
  %q = attn.fft_accumulate ins(%s, %t : {spectra}, {factor}) outs(%p : {spectra}) {{{form}}} -> {spectra}
  %y = attn.fft_inverse ins(%q : {spectra}) outs(%o : {y}) {{{form}, first = {first} : i64}} -> {y}
  return %s, %y : {spectra}, {y}
}}
"""


def run(index, case):
    rng = np.random.default_rng(index)
    dtype, radices, E, lanes, B = (case[key] for key in ("dtype", "radices", "width", "lanes", "batch"))
    L = math.prod(radices)
    N = {"all": L, "half": L // 2, "most": L - 1, "few": L // 3 + 1, "one": 1}[case["rows"]]
    kept, first = {"all": (L, 0), "half": (L // 2, L // 2), "most": (L - 1, 1), "few": (L // 2, 0),
                   "one": (1, 0)}[case["rows"]]
    x, k = normal(rng, (B, N, E), dtype), normal(rng, (1, N, 1), state(dtype))
    text = module(dtype, B, N, E, kept, first, radices, lanes, case["dynamic"])
    kernel = check.library.compile(text, cpu=case["cpu"])
    what = f"case {index} {case}"
    found = check.call(kernel, (x, k), what)
    group = 2 * lanes
    padded = np.zeros((B, L, -(-E // group) * group))
    padded[:, :N, :E] = x.astype(float)
    parts = padded.reshape(B, L, -1, 2, lanes)
    spectrum = np.fft.fft(parts[..., 0, :] + 1j * parts[..., 1, :], axis=1)[:, frequencies(radices)]
    expected = np.stack([spectrum.real, spectrum.imag], axis=3).reshape(padded.shape)
    bound = 4 * max(math.log2(L), 1) * ROUNDOFF[dtype]
    check.close(found[0], expected, bound, f"{what}: spectrum")
    column = np.fft.fft(np.concatenate([k[0, :, 0].astype(float), np.zeros(L - N)]))
    product = 2 * np.fft.ifft(np.fft.fft(padded, axis=1) * column[None, :, None], axis=1).real
    check.close(found[1], product[:, first : first + kept, :E], 8 * bound + STORED[dtype], f"{what}: product")
    for result, other in zip(found, kernel(x, k)):
        check.require(result.tobytes() == other.tobytes(), f"{what}: repeated")


check.matrix(FACTORS, 5, run)
check.finish()
