# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The page of patterns: its code is run, and compared with a formula for each."""

import functools
import pathlib
import re
import types

import numpy as np
import pytest
from conftest import make, near

import fovea

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "patterns" / "README.md"
B, H, G, N, D = 2, 4, 2, 200, 16


def read_page():
    """The code of each section."""
    sections = re.split(r"^## (.*)\n", PAGE.read_text(), flags=re.MULTILINE)[1:]
    return {name: re.findall(r"```python\n(.*?)```", text, re.DOTALL) for name, text in zip(sections[::2], sections[1::2])}


CODE = read_page()
i, j = np.arange(N)[:, None], np.arange(N)
RNG = np.random.default_rng(0)
GIVEN = {
    "sinks": RNG.standard_normal(H).astype(np.float32),
    "documents": RNG.integers(0, 3, (B, N)),
    "relative_attention_bias": RNG.standard_normal((32, H)).astype(np.float32),
}


def t5_bucket(distance):
    """As transformers counts, in whole numbers."""
    far = [8, 12, 16, 23, 32, 46, 64, 91]
    near = np.abs(distance)
    return (distance > 0) * 16 + np.where(near < 8, near, 7 + np.searchsorted(far, near, side="right"))


def is_global(x):
    return x < 16


# The entries that there are, what becomes of scores, and further weights of rows.
FORMULAS = {
    "gpt-oss": ((j <= i) & (i - j < 128), None, np.exp(GIVEN["sinks"])[:, None, None]),
    "Gemma 2": ((j <= i) & (i - j < 4096), lambda s: 50 * np.tanh(s / 50), 0),
    "StreamingLLM": ((j <= i) & ((i - j < 64) | (j < 4)), None, 0),
    "Longformer and BigBird": (is_global(i) | is_global(j) | (np.abs(i - j) < 32), None, 0),
    "Documents": ((GIVEN["documents"][:, None, :, None] == GIVEN["documents"][:, None, None]) & (j <= i), None, 0),
    "ALiBi": (j <= i, lambda s: s + 2.0 ** -np.arange(2, 10, 2)[:, None, None] * (j - i), 0),
    "T5": (True, lambda s: 4 * s + GIVEN["relative_attention_bias"][t5_bucket(j - i)].transpose(2, 0, 1), 0),
}


@functools.cache
def arrays():
    return make(B=B, H=H, G=G, N=N, D=D)


@pytest.mark.parametrize("target", ["cpu", "gpu-sim"])
@pytest.mark.parametrize("name", FORMULAS)
def test_pattern(name, target):
    q, k, v = arrays()
    (code,) = CODE[name]
    on_target = types.SimpleNamespace(
        dense=functools.partial(fovea.dense, target=target), stream=functools.partial(fovea.stream, target=target),
        Source=fovea.Source, capture=fovea.capture,
    )  # fmt: skip
    found = {"np": np, "fovea": on_target, "q": q, "k": k, "v": v, **GIVEN}
    exec(code, found)
    holds, change, rest = FORMULAS[name]
    wide, keys, values = (x.astype(np.float64) for x in (q, np.repeat(k, H // G, 1), np.repeat(v, H // G, 1)))
    scores = wide @ keys.swapaxes(2, 3) / np.sqrt(D)
    weights = np.where(holds, np.exp(scores if change is None else change(scores)), 0)
    near(found["out"], weights @ values / (weights.sum(axis=-1, keepdims=True) + rest), "float32", 2e-5)


def test_every_section_has_a_formula():
    assert CODE.keys() == FORMULAS.keys()
    # Ten lines are enough.
    assert all(len([line for line in code.splitlines() if line.strip()]) <= 10 for (code,) in CODE.values())
