# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""benchmarks/models.py finds the attention of models, and prints a table."""

import pathlib
import subprocess
import sys

import pytest

SCRIPT = pathlib.Path(__file__).parents[4] / "benchmarks" / "models.py"

# Soft-caps are not found, and the other soft-maxes of gpt-oss choose experts.
FOUND = {
    "BERT": "2 of 2", "GPT-2": "2 of 2", "Llama": "2 of 2", "Mistral": "2 of 2", "Qwen 3": "2 of 2", "Gemma 2": "2 of 2",
    "gpt-oss": "2 of 4", "ModernBERT": "2 of 2", "BLOOM": "2 of 2", "T5": "6 of 6", "Whisper": "6 of 6", "ViT": "2 of 2",
    "Swin": "4 of 4", "CLIP": "2 of 2", "DeepSeek-V3": "2 of 2", "DiT": "2 of 2",
}  # fmt: skip


def run(*arguments):
    small = ["--rest=eager", "--width=32", "--heads=4", "--tokens=16", "--rounds=1", "--batch=2"]
    return subprocess.run([sys.executable, SCRIPT, *small, *arguments], capture_output=True, text=True)


def test_finds_all():
    done = run()
    assert done.returncode == 0, done.stderr
    rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in done.stdout.splitlines() if line.startswith("|")]
    assert rows[0] == ["model", "found", "error", "Fovea"]
    *rows, mean = rows[2:]
    assert {row[0]: row[1] for row in rows} == FOUND
    assert all(float(row[2]) <= 1e-5 and float(row[3].removesuffix("x")) > 0 for row in rows)
    assert mean[0] == "geometric mean" and float(mean[3].removesuffix("x")) > 0


def test_whole_models():
    pytest.importorskip("torch_mlir")
    pytest.importorskip("jax")
    done = run("--whole", "Llama", "DiT", "JAX")
    assert done.returncode == 0, done.stderr
    header, _, *rows, mean = [[cell.strip() for cell in line.split("|")[1:-1]] for line in done.stdout.splitlines() if line.startswith("|")]
    assert header == ["model", "found", "raised", "error", "Fovea", "whole", "whole compiles"]
    for row in rows:
        assert row[2] == "2" and float(row[3]) <= 1e-5 and float(row[5].removesuffix("x")) > 0
    assert [row[0] for row in rows] == ["Llama", "DiT", "JAX"]
    assert mean[4].endswith("x of 2") and mean[5].endswith("x")


def test_names_are_checked():
    done = run("GPT-9")
    assert done.returncode == 2 and "MODEL: found GPT-9, needed some of BERT, " in done.stderr
