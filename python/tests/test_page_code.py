# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The Python code of pages runs as it is printed, after what the page takes as given."""

import pathlib
import re

import numpy as np
import pytest

import fovea

ROOT = pathlib.Path(__file__).parents[2]
B, H, G, N, D = 2, 8, 4, 128, 16


def normal(*shape):
    return np.random.default_rng(0).standard_normal(shape, np.float32)


def tokens(rows=N, batch=B, heads=G, queries=None):
    """Names of queries, keys and values of so many rows."""
    return dict(q=normal(batch, H, queries or rows, D), k=normal(batch, heads, rows, D), v=normal(batch, heads, rows, D))


CACHE = dict(heads=G, width=D)
# What each block of a page is given, in their order; none is what came before. `None` is for what needs PyTorch and a GPU.
GIVEN = {
    "python/README.md": [{}],
    "docs/Decoding.md": [
        {**tokens(1), **CACHE, "batch": B, "length": 2},
        {**tokens(32, batch=64, queries=1), **CACHE, "pages": 512, "lengths": np.full(64, 20)},
        {**tokens(1, batch=64), **CACHE, "prompt_k": normal(1, G, 40, D), "prompt_v": normal(1, G, 40, D)},
        {
            **tokens(1, batch=64), "k_pages": normal(9, G, 16, D), "v_pages": normal(9, G, 16, D),
            "block_table": np.zeros((64, 2), np.int32), "lengths": np.full(64, 20),
        },
        None,
        {**tokens(1, batch=1, heads=H), "key_weights": [normal(1, 4, 64, D)], "value_weights": [normal(1, 4, 64, D)]},
        {"q": normal(1500, H, D), "k": normal(1500, G, D), "v": normal(1500, G, D)},
    ],
    "docs/Patterns.md": [
        {
            **tokens(), "mean_k": normal(B, G, 8, D), "mean_v": normal(B, G, 8, D), "d_out": normal(B, H, N, D),
            "log_counts": np.full((B, 1, 8), np.log(16), np.float32),
        },
        {
            "words": normal(B, G, 8, D), "means": normal(B, G, 8, D), "sinks": normal(H),
            "middle": fovea.Source(normal(B, G, N, D), normal(B, G, N, D)),
        },
    ],
    "docs/Scores.md": [
        {**tokens(), "n": N, "np": np},
        {"ids": np.zeros((B, N), np.int32)},
        {"far_k": normal(B, G, N // 16, D), "far_v": normal(B, G, N // 16, D)},
        {"d_out": normal(B, H, N, D), "out": normal(B, H, N, D), "lse": normal(B, H, N)},
    ],
}  # fmt: skip


def read_blocks(page):
    return re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)


def run(page, blocks, given):
    names = {"fovea": fovea}
    for number, (block, each) in enumerate(zip(blocks, given, strict=True)):
        # The one thing that is left out on a page.
        code = compile(block.replace("for ...:", "for _ in range(2):"), f"{page}, block {number}", "exec")
        if each is not None:
            names.update(each)
            exec(code, names)


@pytest.mark.parametrize("page", GIVEN)
def test_page(page):
    run(page, read_blocks(page), GIVEN[page])


def test_what_does_not_run():
    with pytest.raises(AttributeError, match="sparse"):
        run("page", ["out = fovea.sparse(q)\n"], [{"q": normal(1, 1, 4, 4)}])
    with pytest.raises(ValueError):
        run("page", [], [{}])
