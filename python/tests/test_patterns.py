# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# REQUIRES: long-tests
"""The pages of patterns: their code is run, and compared with a formula for each."""

import functools
import re
import types

import numpy as np
import pytest
from conftest import BOUNDS, TYPES, near
from pattern_cases import ARRAYS, CODE, FOLDER, FORMULAS, INDEXERS, run

import fovea

#: These choose by sums in the type of the arrays, which the formula would have to round alike.
WIDE = {"moba", "nsa"}
CASES = [
    (name, target, type)
    for name in FORMULAS
    for target in ("cpu", "gpu-sim")
    for type in (TYPES if target == "cpu" else ("float32",))
    if name not in WIDE or type in ("float32", "float64")
]


def round_to(type, arrays):
    return {name: each.astype(TYPES[type]) if each.dtype.kind == "f" else each for name, each in arrays.items()}


def on_target(target):
    bound = {name: functools.partial(getattr(fovea, name), target=target) for name in ("dense", "hca", "pool", "selected", "stream")}
    return types.SimpleNamespace(**bound, Source=fovea.Source, capture=fovea.capture, top_k=fovea.top_k)


@pytest.mark.filterwarnings("ignore:overflow encountered in exp")
@pytest.mark.parametrize("name,target,type", CASES)
def test_pattern(name, target, type):
    # Indexers choose among scores in float32: what is near in another type is chosen otherwise.
    arrays = {**round_to(type, ARRAYS), **round_to("float64" if type == "float64" else "float32", INDEXERS.get(name, {}))}
    out = run(name, on_target(target), np, arrays)
    expected = FORMULAS[name](np, {key: each.astype(np.float64) if each.dtype.kind in "fV" else each for key, each in arrays.items()})
    near(out, expected, type, {"float32": 2e-5}.get(type, 4 * BOUNDS[type]))


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
        test_pattern("gpt-oss", "cpu", "float32")
