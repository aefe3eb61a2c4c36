# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""check_device.py: on a GPU where there is one, rehearsed in the emulator, and with functions that are wrong."""

import contextlib
import os
import pathlib
import subprocess
import sys

import check_device
import pytest
import torch
from check_device import compare, compare_recorded
from torch_cases import CASES

SCRIPT = pathlib.Path(__file__).with_name("check_device.py")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device")
@pytest.mark.parametrize("name", check_device.CHECKS)
def test_on_a_gpu(name):
    found = list(check_device.CHECKS[name]("cuda"))
    assert found and not [each for each in found if each.failure]


def run(*options):
    return subprocess.run([sys.executable, SCRIPT, *options], capture_output=True, text=True)


def test_rehearsal():
    every = 24 * max(1, int(os.environ.get("FOVEA_EVERY", 1)) // 4)
    done = run("--device=gpu-sim", "--checks", "functions", "streams", "caches", "graphs", f"--every={every}")
    assert done.returncode == 0 and ", 0 failed, " in done.stdout, done.stdout + done.stderr


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_gpu():
    done = run()
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "nothing to check: torch finds no CUDA device\n")


def outcomes(disturb, name="dense-lse", **options):
    """Of a function whose results on the device go through `disturb`."""
    case, is_device = CASES[name], []

    def call(**given):
        found = case(**given)
        is_device.append(True)
        return found if len(is_device) == 1 else disturb(*found) if isinstance(found, tuple) else disturb(found)

    return list(compare(name, call, case.arguments(gradients=True), case.gradients, "cpu", **options))


def test_what_is_wrong_is_noticed():
    assert [each.failure for each in outcomes(lambda out, lse: (out, lse))] == ["", ""]
    assert "times its bound" in outcomes(lambda out, lse: (out * 1.001, lse))[0].failure
    assert "times its bound" in outcomes(lambda out, lse: (out, lse + torch.arange(11) * 1e-3))[0].failure
    only_gradient, = (each for each in outcomes(lambda out, lse: (out + 0.1 * (out - out.detach()), lse)) if each.failure)
    assert only_gradient.name.endswith("gradients")
    assert "infinite or NaN" in outcomes(lambda out, lse: (out.masked_fill(out == out.max(), torch.nan), lse))[0].failure
    assert "found torch.float64" in outcomes(lambda out, lse: (out.double(), lse))[0].failure
    assert "other integers" in outcomes(lambda each: each.flip(-1), "top_k")[0].failure


def test_results_of_what_has_no_gradients():
    case, count = CASES["dense-lse"], []

    def call(**given):
        count.append(given["q"].requires_grad)
        if count == [True, True]:
            raise ValueError("no gradients here")
        return case(**given)

    found = list(compare("dense", call, case.arguments(gradients=True), case.gradients, "cpu", lacks="no gradients"))
    assert [each.lacking for each in found] == ["no gradients here", ""] and count == [True, True, False, False]
    assert not any(each.failure for each in found)


def test_what_is_refused():
    def refuse(*_):
        raise ValueError("no kernels for it\nmore")

    (known,), (other,) = outcomes(refuse, "top_k", lacks="no kernels"), outcomes(refuse)
    assert (known.lacking, known.failure) == ("no kernels for it", "")
    assert other.failure == "ValueError: no kernels for it"


def recorded(record, **options):
    """Outcomes of a function that `record` holds."""
    case = CASES["dense-lse"]
    return list(compare_recorded("dense", case, case.arguments(gradients=True), case.gradients, "cpu", record=record, **options))


def test_graphs_that_are_wrong_are_noticed():
    def stale(compute):
        found = compute()
        return lambda: found

    def refuse(compute):
        raise ValueError("what a graph cannot hold\nmore")

    assert [each.failure for each in recorded(lambda compute: compute)] == [""] * 4
    # Results of the numbers that were there while it was recorded.
    assert [bool(each.failure) for each in recorded(stale)] == [True, True, False, False]
    (known,), (other,) = recorded(refuse, lacks="cannot hold"), recorded(refuse)
    assert (known.lacking, known.failure) == ("what a graph cannot hold", "")
    assert other.failure == "ValueError: what a graph cannot hold"


def test_graphs_are_recorded_and_launched(monkeypatch):
    """With stand-ins for what PyTorch has where there is a GPU."""
    calls, given, result = [], torch.ones(3), torch.zeros(3)

    def compute():
        calls.append("call")
        return [result.copy_(2 * given)], []

    class Graph:
        def replay(self):
            calls.append("replay")
            compute()

    class Stream:
        def wait_stream(self, other):
            calls.append("wait")

    @contextlib.contextmanager
    def block(name):
        calls.append(name)
        yield
        calls.append(f"end of {name}")

    for name, stand_in in {"CUDAGraph": Graph, "Stream": Stream, "current_stream": Stream}.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)
    for name in ("stream", "graph"):
        monkeypatch.setattr(torch.cuda, name, lambda _, name=name: block(name))
    launch = check_device.record(compute)
    # Once ahead of the graph, on a stream of its own, and once in it.
    assert calls == ["wait", "stream", "call", "end of stream", "wait", "graph", "call", "end of graph"]
    given.fill_(3)
    assert torch.equal(launch()[0][0], torch.full((3,), 6.0)) and calls[8:] == ["replay", "call"]
