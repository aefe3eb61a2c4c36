# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which pattern fits: errors are those of the forms that are named, by plain formulas."""

import json
import math
import pathlib
import re
import xml.etree.ElementTree as tree

import numpy as np
import pytest

import fovea
from fovea import _suggest, _suggest_tool

N, D = 64, 8
KIND = f"tensor<1x2x{N}x{D}xf32>"
FORMS = ["multipole", "quantized", "convolutional", "compressed"]


def arrays(seed=0, n=N):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((1, heads, n, D), np.float32) for heads in (2, 1, 1)]


def attend(q, k, v, weights, scale):
    """Soft-max over rows that count as often as `weights` says, in float64."""
    powers = np.exp(scale * q @ k.swapaxes(2, 3)) * weights
    return powers @ v / powers.sum(-1, keepdims=True)


def relative(out, exact):
    return np.linalg.norm(out - exact) / np.linalg.norm(exact)


def find(suggestion, form, setting):
    (found,) = (each for each in suggestion.candidates if (each.form, each.setting) == (form, setting))
    return found


@pytest.mark.parametrize("causal", [False, True])
def test_errors_are_those_of_the_forms(causal):
    q, k, v = arrays()
    scale = 0.7
    (found,) = fovea.suggest(q, k, v, causal=causal, scale=scale, seconds=0)
    assert {each.form for each in found.candidates} == {"dense", *FORMS} - ({"convolutional"} if not causal else set())
    wide = [x.astype(np.float64) for x in (q, k, v)]
    i, j = np.arange(N)[:, None], np.arange(N)
    mask = (j <= i) | (not causal)
    exact = attend(*wide, mask, scale)
    dense, *others = found.candidates
    assert dense.form == "dense" and dense.error < 1e-6 and dense.flop > 0
    assert [each.error for each in others] == sorted(each.error for each in others)

    # Means of 4, and the two blocks beside it, or what makes no block.
    size = 4
    rows = [x.reshape(1, 1, -1, size, D).mean(3) for x in wide[1:]]
    blocks = np.arange(N // size)
    far = size * (blocks < i // size - 1) if causal else size * np.ones((N, len(blocks)))
    near = mask & (j // size >= i // size - 1) & (np.ones_like(mask) if causal else False)
    out = attend(wide[0], *(np.concatenate(pair, 2) for pair in zip(rows, wide[1:])), np.concatenate([far, near], 1), scale)
    assert find(found, "compressed", "means of 4").error == pytest.approx(relative(out, exact), rel=1e-4)

    book = _suggest._codebook(k, 16)[0].astype(np.float64)
    nearest = ((wide[1][0, 0][:, None] - book) ** 2).sum(-1).argmin(-1)
    out = attend(wide[0], book[nearest][None, None], wide[2], mask, scale)
    assert find(found, "quantized", "16 codewords").error == pytest.approx(relative(out, exact), rel=1e-3)

    # One level of means of 16 behind the neighbours, groups of 16 of 64.
    means = [x.reshape(1, 1, -1, 16, D).mean(3) for x in wide[1:]]
    apart = np.abs(np.arange(4) - i // 16) > 1
    far = 16 * (apart & ((np.arange(4) < i // 16) | (not causal)))
    near = mask & (np.abs(i // 16 - j // 16) <= 1)
    out = attend(wide[0], *(np.concatenate(pair, 2) for pair in zip(means, wide[1:])), np.concatenate([far, near], 1), scale)
    assert find(found, "multipole", "group 16, rank 1").error == pytest.approx(relative(out, exact), rel=1e-4)


def test_what_is_exact_is_found():
    """Keys that are few codewords, and tokens that are alike in blocks."""
    q, k, v = arrays()
    k[...] = k[:, :, np.random.default_rng(1).integers(0, 5, N)]
    (found,) = fovea.suggest(q, k, v, causal=True, seconds=0)
    assert find(found, "quantized", "16 codewords").error < 1e-5 < find(found, "compressed", "means of 4").error
    _, k, v = (np.repeat(x[:, :, ::4], 4, axis=2) for x in arrays())
    (found,) = fovea.suggest(q, k, v, causal=True, seconds=0)
    assert find(found, "compressed", "means of 4").error < 1e-5
    assert found.candidates[1].error < 1e-5


@pytest.mark.parametrize("n, forms", [(1, set()), (7, set()), (17, {"compressed"}), (67, set(FORMS))])
def test_lengths(n, forms):
    (found,) = fovea.suggest(*arrays(n=n), causal=True, seconds=0)
    assert {each.form for each in found.candidates[1:]} >= forms
    assert all(math.isfinite(each.error) for each in found.candidates)
    # More queries than keys allow less.
    q, k, v = arrays()
    (found,) = fovea.suggest(q[:, :, :5], k, v, seconds=0)
    assert {each.form for each in found.candidates} == {"dense", "compressed"}


def make_module():
    """Attention in a layer, as a frontend writes it, and some that is not compared."""
    return f"""func.func @layer(%x: {KIND}, %bias: tensor<1x2x{N}x{N}xf32>) -> {KIND} {{
      %init = tensor.empty() : {KIND}
      %y = arith.addf %x, %x : {KIND}
      %a = attn.dense ins(%y, %x, %x : {KIND}, {KIND}, {KIND}) outs(%init : {KIND}) {{causal, scale = 0.5 : f64}} -> {KIND}
      %b = attn.dense ins(%a, %x, %x : {KIND}, {KIND}, {KIND}) bias(%bias : tensor<1x2x{N}x{N}xf32>) outs(%init : {KIND}) -> {KIND}
      %c = attn.dense ins(%b, %a, %x : {KIND}, {KIND}, {KIND}) outs(%init : {KIND}) -> {KIND}
      return %c : {KIND}
    }}"""


def test_program(tmp_path):
    rng = np.random.default_rng(3)
    x, bias = rng.standard_normal((1, 2, N, D), np.float32), rng.standard_normal((1, 2, N, N), np.float32)
    first, second, third = fovea.suggest(make_module(), x, bias, seconds=0)
    assert second.reason == "it has a bias" and not second.candidates and "because it has a bias" in str(second)
    assert first.causal and not third.causal and ":4:" in first.place
    # What the first and the third are given.
    a = fovea.dense(2 * x, x, x, causal=True, scale=0.5)
    b = fovea.dense(a, x, x, bias=bias)
    for found, (wanted,) in (
        (first, fovea.suggest(2 * x, x, x, causal=True, scale=0.5, seconds=0)),
        (third, fovea.suggest(b, a, x, seconds=0)),
    ):
        errors = {(each.form, each.setting): each.error for each in wanted.candidates[1:]}
        assert {(each.form, each.setting): each.error for each in found.candidates[1:]} == pytest.approx(errors, rel=1e-3)
    path = tmp_path / "layer.mlir"
    path.write_text(make_module())
    assert [each.reason for each in fovea.suggest(fovea.load(path), x, bias, seconds=0)] == ["", "it has a bias", ""]


def test_command(tmp_path, capsys):
    path, out = tmp_path / "f.mlir", tmp_path / "out"
    path.write_text(f"""func.func @f(%q: {KIND}, %k: {KIND}) -> {KIND} {{
      %0 = attn.dense ins(%q, %k, %k : {KIND}, {KIND}, {KIND}) outs(%q : {KIND}) {{causal}} -> {KIND}
      return %0 : {KIND}
    }}""")
    for name in "qk":
        np.save(tmp_path / f"{name}.npy", np.random.default_rng(ord(name)).standard_normal((1, 2, N, D), np.float32))
    given = [str(path), f"--arg={tmp_path}/q.npy", f"--arg={tmp_path}/k.npy", "--seconds=0"]
    assert _suggest_tool.main(given) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "causal attention, queries [1, 2, 64, 8]" in lines[0] and re.search(r"form +setting +error", lines[1])
    assert lines[2].split()[:2] == ["dense", "exact"]
    assert _suggest_tool.main([*given, "--json", "-o", str(out)]) == 0
    (found,) = json.loads(out.read_text())
    assert found["causal"] and len(found["candidates"]) == len(lines) - 2
    assert _suggest_tool.main([*given, "--svg", "-o", str(out)]) == 0
    picture = tree.fromstring(out.read_text())
    told = [each.text for each in picture.iter("{http://www.w3.org/2000/svg}title")]
    assert len(told) == len(lines) - 2 and any(text.startswith("quantized, 16 codewords: error ") for text in told)

    (tmp_path / "cut.npy").touch()
    for wrong, message in (
        ([str(path), "--arg=q"], "--arg: found 'q', needed a file that ends in .npy, or a number"),
        ([str(tmp_path / "none.mlir")], "No such file"),
        ([str(path)], "expects 2"),
        ([*given, "--seconds=-1"], "--seconds: found -1.0, needed 0 or more"),
        ([*given, "-o", str(path)], "which is read, needed another file"),
        ([*given, "-o", f"{tmp_path}/q.npy"], "which is read, needed another file"),
        ([str(path), f"--arg={tmp_path}/cut.npy"], "cut.npy: No data left in file"),
    ):
        assert _suggest_tool.main(wrong) == 1
        assert message in capsys.readouterr().err
    path.write_text("func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> { return %x : tensor<4xf32> }")
    assert _suggest_tool.main([str(path)]) == 1
    assert "found no dense attention to compare" in capsys.readouterr().err


def test_errors():
    q, k, v = arrays()
    with pytest.raises(ValueError, match="arrays: found 2, needed q, k and v, or a program"):
        fovea.suggest(q, k)
    with pytest.raises(ValueError, match="k: found"):
        fovea.suggest(q, k[..., :4], v)
    with pytest.raises(ValueError, match="causal, scale: found them beside a program"):
        fovea.suggest(make_module(), q, causal=True)
    (found,) = fovea.suggest(q, k, np.full_like(v, np.nan))
    assert "no finite numbers" in found.reason
    with pytest.raises(ValueError, match="needed a comparison to draw"):
        found.svg()


def test_example(capsys):
    """Real queries, keys and values."""
    folder = pathlib.Path(__file__).parents[2] / "examples"
    given = [f"--arg={folder}/data/{name}.npy" for name in "qkv"]
    assert _suggest_tool.main([str(folder / "attention.mlir"), *given, "--seconds=0", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    least = {form: min(each["error"] for each in found["candidates"] if each["form"] == form) for form in ("multipole", "quantized")}
    assert 0.1 < least["multipole"] < 0.3 and 0.1 < least["quantized"] < 0.3
