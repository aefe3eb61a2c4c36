# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fourier transforms and complex numbers in imported modules, on CPUs and in the emulator."""

import inspect
import math
import re

import numpy as np
import pytest
import torch
from torch import fft
from torch_models import Call

import fovea
from fovea._fourier import check_length

pytest.importorskip("torch_mlir")

TARGETS = ["cpu", "gpu-sim"]


def check(function, *inputs, target="cpu", bound=1e-6, others=None, **options):
    program = fovea.import_torch(Call(function), *inputs, target=target, **options)
    inputs = inputs if others is None else others
    found, expected = program(*inputs), function(*inputs)
    found, expected = (each if isinstance(each, (tuple, list)) else (each,) for each in (found, expected))
    assert len(found) == len(expected)
    for one, other in zip(found, expected):
        one, other = np.asarray(one), other.resolve_conj().resolve_neg().numpy()
        assert one.shape == other.shape and one.dtype == other.dtype
        assert np.abs(one - other).max() <= bound * max(1.0, np.abs(other).max())


def random(*shape, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=dtype)


def join(x):
    return torch.view_as_complex(x)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("length", [1, 2, 7, 64, 128, 131, 258, 360, 1024])
def test_lengths(length, target):
    """One product, primes above the greatest of these, and several steps, of which the last may be one of another length."""
    if length > 300 and target == "gpu-sim":
        pytest.skip("long in the emulator")

    def function(x, pairs):
        half = join(pairs[:, : length // 2 + 1])
        return fft.fft(x), fft.ifft(join(pairs)), fft.rfft(x), fft.irfft(half, n=length), fft.ihfft(x), fft.hfft(half, n=length)

    check(function, random(3, length), random(3, length, 2), target=target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
def test_axes(norm, target):
    def function(x, pairs):
        c = join(pairs)
        return (
            fft.fftn(x, dim=(1, 2), norm=norm).real, fft.fft2(c, norm=norm), fft.ifftn(c, norm=norm), fft.fft(x, dim=0, norm=norm),
            fft.rfft2(x, norm=norm), fft.rfftn(x, dim=(0, 2, 1), norm=norm), fft.irfft2(c, norm=norm),
            fft.irfftn(c, s=(4, 7), dim=(0, 1), norm=norm), fft.fft(x, n=11, dim=1, norm=norm), fft.fft(x, n=3, dim=1, norm=norm),
        )  # fmt: skip

    check(function, random(2, 6, 8), random(2, 6, 8, 2), target=target)
    check(function, random(2, 6, 8, dtype=torch.float64), random(2, 6, 8, 2, dtype=torch.float64), target=target, bound=1e-14)


def long_convolution(x, pairs):
    return fft.irfft(fft.rfft(x, n=16) * fft.rfft(x[:1], n=16), n=16)[..., :8]


def filtered(x, pairs):
    """As of GFNet, whose filters are pairs that are trained."""
    return fft.irfft2(fft.rfft2(x, dim=(0, 1), norm="ortho") * join(pairs), s=(2, 6), dim=(0, 1), norm="ortho")


def measured(x, pairs):
    c = fft.rfft(x)
    return c.abs(), c.angle(), (c * c.conj()).real, c.abs() ** 2, c.imag, torch.view_as_real(c.conj().resolve_conj())


def counted(x, pairs):
    c = join(pairs)
    return (
        c + x[:, :4] * 2.5 - 1j, (1 - c) / (c + 3), 2 / (c + 3), c**3, torch.exp(c), c.sum(1), c.mean(), (c == c).float(), -c,
        c * (x[:, :4] > 0), torch.polar(x.abs(), x), torch.complex(x, x * 2), torch.zeros_like(c) + c.real,
        x.to(torch.complex64), c.reciprocal(),
    )  # fmt: skip


def moved(x, pairs):
    c = fft.fft(x)
    low = torch.zeros_like(c)
    low[..., :2] = c[..., :2]
    kept = torch.where(torch.arange(8) < 3, c, 0)
    joined = torch.cat([c[..., :3], torch.zeros(2, 6, 2, dtype=torch.complex64)], -1)
    turned = fft.fftshift(c, dim=(1,)), c.transpose(0, 1).flip(-1).reshape(6, -1), torch.stack([c, c.conj()]), c[:, [3, 1]]
    return (fft.ifft(low).real, kept, joined, *turned, *c.chunk(2, -1))


def mixed(x, pairs):
    c = fft.rfft(x)
    return fft.irfft(torch.einsum("bnk,km->bnm", c, c[0, :5])), c @ x[0, :5, :3].to(c.dtype), torch.matmul(c, c.mT)


def windowed(x, pairs):
    return torch.stft(x.reshape(2, -1), 8, 4, window=torch.hann_window(8), return_complex=True)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("function", [long_convolution, filtered, measured, counted, moved, mixed, windowed])
def test_operations(function, target):
    check(function, random(2, 6, 8), random(2, 4, 8, 2), target=target, bound=4e-6)


def test_infinities():
    """And zeros, and numbers whose squares are none."""
    values = [0.0, -0.0, 1e-30, -1e30, math.inf, -math.inf, math.nan]
    pairs = torch.cartesian_prod(torch.tensor(values), torch.tensor(values))

    def function(pairs):
        return join(pairs).abs(), join(pairs).angle()

    for found, expected in zip(fovea.import_torch(Call(function), pairs)(pairs), function(pairs), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)


class Turned(torch.nn.Module):
    """A table of complex numbers that the module owns, and gives back."""

    def __init__(self):
        super().__init__()
        self.register_buffer("turns", torch.polar(torch.ones(8, 4), random(8, 4)))

    def forward(self, x):
        return torch.view_as_real(join(x.unflatten(-1, (4, 2))) * self.turns[None, :, None]).flatten(3), self.turns.conj()


@pytest.mark.parametrize("target", TARGETS)
def test_complex_buffers(target, tmp_path):
    model, x = Turned(), random(2, 8, 3, 8)
    path = tmp_path / "model.mlir"
    program = fovea.import_torch(model, x, target=target, path=path)
    model.turns *= 2
    for found, expected in zip(program(x), model(x), strict=True):
        np.testing.assert_allclose(found, expected.resolve_conj(), rtol=1e-5, atol=1e-5)
    # A file has pairs, and says of which results.
    np.testing.assert_allclose(fovea.load(path)(x)[1], model.turns.conj().resolve_conj() / 2, rtol=1e-6)


@pytest.mark.parametrize("target", TARGETS)
def test_any_batch(target):
    check(lambda x: fft.fftn(x, dim=(1, 2)).real, random(2, 6, 8), others=(random(5, 6, 8),), dynamic=(0,), target=target)


@pytest.mark.parametrize(
    "function, said",
    [
        (lambda x: torch.sqrt(fft.fft(x)).real, "aten.sqrt of complex numbers is not known"),
        (lambda x: fft.fft(x).prod(1).real, "aten.prod.dim_int of complex numbers is not known"),
        (lambda x: fft.fft(x, n=2 * 2053).real, "found a transform of 4106 numbers, needed prime factors of 2048 at most"),
    ],
)
def test_errors(function, said):
    place = rf", called at {re.escape(inspect.getfile(Call))}:\d+"
    with pytest.raises(fovea.FoveaError, match=re.escape(said) + place):
        fovea.import_torch(Call(function), random(2, 4))


def test_what_is_not_known():
    with pytest.raises(fovea.FoveaError, match="a Fourier transform of an extent that is not known, called at"):
        fovea.import_torch(Call(lambda x: fft.rfft(x).abs()), random(2, 6), dynamic=(1,))
    with pytest.raises(ValueError, match="input_0: found complex numbers, needed pairs of real ones"):
        fovea.import_torch(Call(lambda x: x.real), torch.zeros(2, dtype=torch.complex64))


def test_lengths_are_checked():
    assert check_length(4096) is None and check_length(2039) is None
    assert "1 at least" in check_length(0) and "prime factors" in check_length(2053)
