# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# REQUIRES: long-tests
"""The pages of patterns: their code is run, and it and its gradients are compared with a formula for each, which something
that knows nothing of attention differentiates, and with plain loops."""

import functools
import re

import numpy as np
import pattern_cases
import pytest
from conftest import BOUNDS, TYPES, near
from derivatives import differentiate
from pattern_cases import ARRAYS, CODE, FOLDER, FORMULAS, INDEXERS, UNIT, N, run

import fovea

CASES = [
    (name, target, type)
    for target, of_target in (("cpu", TYPES), ("gpu-sim", ("float32", "bfloat16")))
    for type in of_target
    for name in FORMULAS
]
#: Those that the code of a page may call, and which have a gradient.
FUNCTIONS = ("dense", "hca", "pool", "selected", "stream")


class Calls:
    """The functions of the package on a target, for the code of a page: what it calls is kept, to go back through it."""

    Source = fovea.Source

    def __init__(self, target):
        self.target, self.calls, self.captured, self.chosen = target, [], [], []
        for name in FUNCTIONS:
            setattr(self, name, functools.partial(self._call, name))

    def _call(self, name, *arguments, return_lse=False, **options):
        with_lse = {} if name == "pool" else {"return_lse": True}
        found = getattr(fovea, name)(*arguments, **options, **with_lse, target=self.target)
        out = found[0] if with_lse else found
        self.calls.append((name, arguments, options, out, found[1:] if with_lse else ()))
        return found if return_lse else out

    def capture(self, array):
        self.captured.append(array)
        return fovea.capture(array)

    def top_k(self, scores, *arguments, **options):
        self.chosen.append(fovea.top_k(scores, *arguments, **options, target=self.target))
        return self.chosen[-1]

    def results(self, name):
        return next(out for called, _, _, out, _ in self.calls if called == name)

    def go_back(self, seeds):
        """Gradients by the `id` of arrays, of pairs of an array and its gradient."""
        found = {}

        def add(array, gradient):
            # Leading axes of 1 are there where an array lacks them, as sinks do.
            assert gradient.dtype == array.dtype and gradient.shape[gradient.ndim - array.ndim :] == array.shape
            wide = gradient.astype(np.float64).reshape(array.shape)
            found[id(array)] = wide + found[id(array)] if id(array) in found else wide

        for array, gradient in seeds:
            found[id(array)] = gradient
        for name, arguments, options, out, lse in reversed(self.calls):
            # What decides on choices alone has none.
            if id(out) in found:
                d_out = found[id(out)].astype(out.dtype)
                getattr(self, f"_{name}_back")(add, d_out, arguments, options, *([out, *lse] if lse else []))
        return found

    def _pool_back(self, add, d_out, arguments, options):
        found = fovea.pool_backward(d_out, *arguments, **options, target=self.target)
        bias = [options["position_bias"]] if "position_bias" in options else []
        for array, gradient in zip((*arguments, *bias), found, strict=True):
            add(array, gradient)

    def _dense_back(self, add, d_out, arguments, options, out, lse):
        found = fovea.dense_backward(d_out, *arguments, out, lse, **options, return_d_captures=True, target=self.target)
        rest = [options["sink"]] if "sink" in options else []
        for array, gradient in zip((*arguments, *rest, *self.captured), found, strict=True):
            add(array, gradient)

    def _stream_back(self, add, d_out, arguments, options, out, lse):
        q, sources = arguments
        d_q, found = fovea.stream_backward(d_out, q, sources, out, lse, **options, target=self.target)
        add(q, d_q)
        for source, gradients in zip(sources, found, strict=True):
            add(source.k, gradients.k)
            add(source.v, gradients.v)

    def _hca_back(self, add, d_out, arguments, options, out, lse):
        found = fovea.hca_backward(d_out, *arguments, out, lse, **options, target=self.target)
        for array, gradient in zip((*arguments, options["sink"]), found, strict=True):
            add(array, gradient)

    def _selected_back(self, add, d_out, arguments, options, out, lse):
        found = fovea.selected_backward(d_out, *arguments, out, lse, **options, target=self.target)
        q, k, v, _ = arguments
        add(q, found.q)
        add(k, found.k)
        add(v, found.v)
        for array, gradient in zip(options.get("local", ()), found.local or ()):
            add(array, gradient)
        if "sink" in options:
            add(options["sink"], found.sink)


def round_to(type, arrays):
    return {name: each.astype(TYPES[type]) if each.dtype.kind == "f" else each for name, each in arrays.items()}


def widen(arrays):
    return {name: each.astype(np.float64) if each.dtype.kind in "fV" else each for name, each in arrays.items()}


def differentiate_page(name, target, arrays, d_out):
    """`out` of a page, the gradients of the arrays that it reads, and the lists that it chose."""
    calls = Calls(target)
    out = run(name, calls, np, arrays)
    seeds = [(out, d_out)]
    if name == "nsa":
        # The page adds three streams up itself.
        gates, parts = arrays["gates"].astype(np.float64), [calls.results(each) for each in ("stream", "selected", "dense")]
        seeds = [(part, gate * d_out) for part, gate in zip(parts, gates)]
        seeds.append((arrays["gates"], np.stack([(part * d_out).sum(-1, keepdims=True) for part in parts])))
    found = calls.go_back(seeds)
    return out, {key: found[id(each)] for key, each in arrays.items() if id(each) in found}, calls.chosen


def reads_chosen(chosen):
    """In the place of `choose_blocks`, where sums in narrow types decide: what was chosen, and the query's own block."""
    counts = np.zeros((*chosen.shape[:3], N // UNIT + 1), bool)
    np.put_along_axis(counts, np.where(chosen < 0, N // UNIT, chosen), True, -1)
    counts[..., -1] = False
    i, j = np.arange(N)[:, None], np.arange(N)
    return (counts[..., j // UNIT] | (i // UNIT == j // UNIT)) & (j <= i)


@pytest.mark.filterwarnings("ignore:overflow encountered in exp")
@pytest.mark.parametrize("name,target,type", CASES)
def test_pattern(name, target, type, monkeypatch):
    # Indexers choose among scores in float32: what is near in another type is chosen otherwise.
    arrays = {**round_to(type, ARRAYS), **round_to("float64" if type == "float64" else "float32", INDEXERS.get(name, {}))}
    d_out = np.random.default_rng(1).standard_normal(arrays["q"].shape).astype(TYPES[type]).astype(np.float64)
    out, found, chosen = differentiate_page(name, target, arrays, d_out)
    if name in ("moba", "nsa") and type in ("float16", "bfloat16"):
        monkeypatch.setattr(pattern_cases, "choose_blocks", lambda _: reads_chosen(chosen[0]))
    expected, gradients = differentiate(FORMULAS[name], widen(arrays), d_out)
    # A page rounds twice: summaries, and what is made of them.
    bound = {"float32": 2e-5}.get(type, 4 * BOUNDS[type])
    near(out, expected, type, bound)
    assert found.keys() == {key for key, each in gradients.items() if each.any()}
    for key, gradient in found.items():
        near(gradient.astype(TYPES[type]), gradients[key], type, bound)
    loops, of_loops, also_chosen = differentiate_page(name, "reference", arrays, d_out)
    if all(map(np.array_equal, chosen, also_chosen)) or type in ("float32", "float64"):
        near(out, loops.astype(np.float64), type, bound)
        assert found.keys() == of_loops.keys()
        for key, gradient in found.items():
            near(gradient.astype(TYPES[type]), of_loops[key], type, bound)


@pytest.mark.filterwarnings("ignore:overflow encountered in exp")
@pytest.mark.parametrize("name", FORMULAS)
def test_derivatives_of_formulas(name):
    """Along a direction, by a central difference whose error is the third derivative times its step squared."""
    arrays = {**ARRAYS, **INDEXERS.get(name, {})}
    rng = np.random.default_rng(2)
    d_out = rng.standard_normal(ARRAYS["q"].shape)
    _, gradients = differentiate(FORMULAS[name], arrays, d_out)
    step = 1e-6
    for key in (key for key, each in gradients.items() if each.any()):
        direction = rng.standard_normal(arrays[key].shape)
        ends = [(FORMULAS[name](np, {**arrays, key: arrays[key] + at * direction}) * d_out).sum() for at in (step, -step)]
        assert abs((ends[0] - ends[1]) / (2 * step) - (gradients[key] * direction).sum()) <= 1e-6 * np.linalg.norm(gradients[key])


def test_every_page_has_all():
    index = (FOLDER / "README.md").read_text()
    assert CODE.keys() == FORMULAS.keys() == set(re.findall(r"^\| .*\]\(([\w-]+)\.md\)", index, re.MULTILINE))
    for name, code in CODE.items():
        page = (FOLDER / f"{name}.md").read_text()
        # Ten lines are enough.
        assert 0 < len([line for line in code.splitlines() if line.strip()]) <= 10, name
        assert page.startswith("# ") and "**Cost**" in page, name
        # Functions of scores that remove nothing have no picture.
        assert name in ("alibi", "t5") or re.search(r"\[IR.*\]\(.*\.mlir\)", page) and ".svg)" in page, name


def test_a_wrong_number_is_noticed(monkeypatch):
    monkeypatch.setitem(CODE, "gpt-oss", CODE["gpt-oss"].replace("128", "127"))
    with pytest.raises(AssertionError):
        test_pattern("gpt-oss", "cpu", "float32", monkeypatch)


def test_a_wrong_gradient_is_noticed(monkeypatch):
    """A sink whose share of the gradient goes missing."""
    backward = fovea.dense_backward

    def without_sink(*arguments, sink, **options):
        *others, d_sink = backward(*arguments, sink=sink, **options)
        return *others, 0.999 * d_sink

    monkeypatch.setattr(fovea, "dense_backward", without_sink)
    with pytest.raises(AssertionError):
        test_pattern("gpt-oss", "cpu", "float32", monkeypatch)
