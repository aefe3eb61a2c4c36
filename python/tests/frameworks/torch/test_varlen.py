# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Packed sequences as GPUs compute them, in the emulator, against the CPU, which test_varlen.py of the package compares with NumPy."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import fovea
import fovea.torch
from fovea import _fovea

# Lengths of queries and of keys: nothing, single tokens, tiles and one more or less.
BATCHES = {
    "self": ([70, 1, 0, 17, 64, 65, 63], None),
    "cross": ([5, 1, 0, 16, 70, 3], [9, 1, 4, 0, 3, 130]),
    "one": ([33], [40]),
    "nothing": ([0, 0], [0, 3]),
    "none": ([], []),
}
OPTIONS = {
    "all": {},
    "causal": {"causal": True},
    "window": {"causal": True, "window": 9},
    "both sides": {"window": 5},
    "prefix": {"causal": True, "prefix": 3, "scale": 0.4},
    "sink": {"causal": True, "sink": [-1.0, 0.0, 1.0, 3.0]},
}
BOUNDS = {torch.float32: 3e-5, torch.bfloat16: 4e-2, torch.float16: 6e-3}


def make(batch, type=torch.float32, D=16, E=12):
    queries, keys = BATCHES[batch]
    torch.manual_seed(0)
    at = [torch.tensor([0, *each]).cumsum(0).int() for each in (queries, queries if keys is None else keys)]
    shapes = (int(at[0][-1]), 4, D), (int(at[1][-1]), 2, D), (int(at[1][-1]), 2, E)
    return [torch.randn(shape).to(type) for shape in shapes], at


def compute(arrays, at, options, target, **more):
    options = {**options, **more}
    leaves = [each.detach().clone().requires_grad_() for each in arrays]
    if "sink" in options:
        options["sink"] = torch.tensor(options["sink"], dtype=leaves[0].dtype, requires_grad=True)
        leaves.append(options["sink"])
    out, lse = fovea.torch.varlen(*leaves[:3], *at, **options, return_lse=True, target=target)
    numbers = torch.Generator().manual_seed(1)
    weights, others = (torch.randn(each.shape, generator=numbers) for each in (out, lse))
    total = (out * weights).sum() + torch.where(lse.isfinite(), lse * others, 0).sum()
    return [out.detach(), lse.detach(), *torch.autograd.grad(total, leaves)]


def near(found, expected, bound):
    for one, other in zip(found, expected, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape) and one.is_contiguous()
        assert torch.equal(one.isfinite(), other.isfinite())
        one, other = (each.double().nan_to_num(0, 0, 0) for each in (one, other))
        assert not one.numel() or (one - other).abs().max() <= bound * other.abs().max().clamp(min=1)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("batch", BATCHES)
def test_equals_the_cpu(batch, options):
    arrays, at = make(batch)
    near(compute(arrays, at, options, "gpu-sim"), compute(arrays, at, options, "cpu"), BOUNDS[torch.float32])


@pytest.mark.parametrize("type", [torch.bfloat16, torch.float16])
def test_types(type):
    arrays, at = make("self", type, D=64, E=64)
    options = OPTIONS["sink"]
    near(compute(arrays, at, options, "gpu-sim"), compute(arrays, at, options, "cpu"), BOUNDS[type])


def test_sequences_do_not_read_one_another():
    arrays, at = make("self")
    expected = fovea.torch.varlen(*arrays, *at, causal=True, target="gpu-sim")
    for each in arrays:
        each[71:88] = torch.nan
    found = fovea.torch.varlen(*arrays, *at, causal=True, target="gpu-sim")
    assert found[71:88].isnan().all()
    rest = [row for row in range(280) if not 71 <= row < 88]
    assert torch.equal(found[rest], expected[rest])


def longest(at):
    return {name: max(1, *each.diff().tolist()) for name, each in zip(("max_q", "max_k"), at)}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("batch", sorted(set(BATCHES) - {"none"}))
def test_longest_lengths(batch, options):
    arrays, at = make(batch)
    near(compute(arrays, at, options, "gpu-sim", **longest(at)), compute(arrays, at, options, "cpu"), BOUNDS[torch.float32])


def test_longest_lengths_of_no_sequences():
    arrays, at = make("none")
    out, lse = fovea.torch.varlen(*arrays, *at, return_lse=True, max_q=3, max_k=4, target="gpu-sim")
    assert out.shape == (0, 4, 12) and lse.shape == (4, 0)


def test_starts_that_no_host_reads():
    """A graph has the same operations for all starts."""
    arrays, at = make("self")
    others = [torch.tensor([0, 1, 1, 71, 200, 210, 280, 280]).int()] * 2

    class Recorder(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), options=None):
            names.append(str(function))
            return function(*arguments, **(options or {}))

    calls = []
    for starts in (at, others):
        names = []
        with Recorder():
            fovea.torch.varlen(*arrays, *starts, causal=True, max_q=140, max_k=140, target="gpu-sim")
        calls.append(names)
    assert calls[0] == calls[1]
    assert not [name for name in calls[0] if "_local_scalar_dense" in name or "nonzero" in name or "item" in name]


def test_wrong_longest_lengths():
    arrays, at = make("self")
    wrong = r".*varlen: lengths of {}\[0, 0, 0\] must be at least 0 and below {}, but got {}"
    refused = [
        ({"max_q": 69, "max_k": 70}, at, wrong.format("cu_seqlens_q", 70, 70)),
        ({"max_q": 70, "max_k": 69}, at, wrong.format("cu_seqlens_k", 70, 70)),
        ({"max_q": 70, "max_k": 70}, [at[0] + 1, at[1]], wrong.format("cu_seqlens_q", 71, -1)),
        ({"max_q": 70, "max_k": 70}, [at[0], at[1].clamp(max=279)], wrong.format("cu_seqlens_k", 71, -1)),
        ({"max_q": 70}, at, "max_k: found None, needed the longest length, as the other is given"),
        ({"max_q": 0, "max_k": 70}, at, "max_q: found 0"),
        ({"max_q": 70, "max_k": 70}, [at[0].float(), at[1]], "cu_seqlens_q: found element type float32"),
    ]
    for most, starts, match in refused:
        with pytest.raises((ValueError, fovea.FoveaError), match=f"^{match}"):
            fovea.torch.varlen(*arrays, *starts, **most, target="gpu-sim")


def attend(lengths):
    starts = torch.tensor([0, *lengths]).cumsum(0)
    q, k, v = (torch.ones(int(starts[-1]), heads, 32) for heads in (2, 1, 1))
    return fovea.torch.varlen(q, k, v, starts, starts, causal=True, target="gpu-sim")


def peak_of(function, *arguments):
    """By how many bytes a call increases the memory of the process at most."""
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    status = {}
    for moment in ("before", "after"):
        if moment == "after":
            function(*arguments)
        with open("/proc/self/status") as file:
            status[moment] = dict(line.split(":", 1) for line in file)
    return 1024 * (int(status["after"]["VmHWM"].split()[0]) - int(status["before"]["VmRSS"].split()[0]))


def test_many_short_ones_beside_a_long_one():
    """No batch is as long as the longest times their number."""
    lengths = [400, *[1] * 1000]
    attend(lengths)
    assert peak_of(attend, lengths) < 2 * 1001 * 400 * 32 * 4 < peak_of(torch.ones, 2, 1001, 512, 32)


def test_lengths_between_the_same_powers_of_two_have_the_same_kernels():
    attend([33, 20, 5, 1])
    before = _fovea.cache_statistics()[2]
    for lengths in ([36, 17, 5, 1], [1, 6, 19, 33]):
        attend(lengths)
    assert _fovea.cache_statistics()[2] == before
    attend([33, 20, 6])
    assert _fovea.cache_statistics()[2] > before


def test_errors():
    (q, k, v), at = make("self")
    for wrong, match in (
        ((q, k, v, at[0], at[1][:-1]), r"cu_seqlens_k: found 217 at the end, needed 280"),
        ((q, k, v, at[0].flip(0), at[1]), r"cu_seqlens_q: found"),
        ((q, k[..., :8], v, *at), r"k: found head width 8, needed 16"),
        ((q, k, v.half(), *at), r"v: found element type"),
        ((q, k, v, at[0].float(), at[1]), r"cu_seqlens_q: found element type float32"),
    ):
        for target in ("gpu-sim", "cpu"):
            with pytest.raises(ValueError, match=f"^{match}"):
                fovea.torch.varlen(*wrong, target=target)
    with pytest.raises(ValueError, match="^q: found element type float64, needed one of float16, bfloat16, float32 on a GPU"):
        fovea.torch.varlen(*(each.double() for each in (q, k, v)), *at, target="gpu-sim")


def test_a_wrong_row_is_noticed():
    arrays, at = make("self")
    expected = compute(arrays, at, {"causal": True}, "cpu")
    with pytest.raises(AssertionError):
        near(compute([each.roll(1, 0) for each in arrays], at, {"causal": True}, "gpu-sim"), expected, BOUNDS[torch.float32])
