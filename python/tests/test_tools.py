# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The commands of a wheel are the tools."""

import json
import pathlib
import re
import signal
import subprocess
import sys
import tomllib

import pytest

from fovea import _fovea

PYPROJECT = pathlib.Path(__file__).parent.parent / "pyproject.toml"
# These are written in Python.
IN_PYTHON = {"fovea-import", "fovea-suggest"}
COMMANDS = tomllib.loads(PYPROJECT.read_text())["project"]["scripts"]
# What pip installs as a command, without a file for each.
SCRIPT = "import sys; sys.argv = sys.argv[1:]; from {} import {} as main; sys.exit(main())"
IR = """
func.func @twice(%a: tensor<4xf32>) -> tensor<4xf32> {
  %0 = arith.addf %a, %a : tensor<4xf32>
  return %0 : tensor<4xf32>
}
"""


def start(name, *arguments):
    module, function = COMMANDS[name].split(":")
    command = [sys.executable, "-c", SCRIPT.format(module, function), "/any/folder/" + name, *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def run(name, *arguments, text=""):
    process = start(name, *arguments)
    out, errors = process.communicate(text)
    return process.returncode, out, errors


def test_every_tool_is_a_command():
    with pytest.raises(ValueError, match="name: found 'fovea', needed one of") as error:
        _fovea.run_tool("fovea", [])
    names = re.sub(".*one of ", "", str(error.value)).split(", ")
    assert sorted(names) == sorted(COMMANDS.keys() - IN_PYTHON)


@pytest.mark.parametrize("name", COMMANDS)
def test_help(name):
    status, out, errors = run(name, "--help")
    assert status == 0 and not errors
    assert f"usage: {name} " in out.replace("USAGE", "usage")


def test_opt():
    status, out, errors = run("fovea-opt", "-", "--attn-reference-pipeline", text=IR)
    assert status == 0 and not errors
    assert "llvm.func" in out


def test_run():
    status, out, errors = run("fovea-run", "-", "--random", "--compare=reference", "--target=gpu-sim", text=IR)
    assert status == 0, errors


def test_compile():
    status, out, errors = run("fovea-compile", "-", "--emit=asm", text=IR)
    assert status == 0 and not errors
    assert "twice_packed" in out


def test_errors():
    status, out, errors = run("fovea-compile", "-", "--emit=asm", text="nonsense")
    assert status == 1 and not out
    assert "fovea-compile: error: <stdin>:1:1: error: custom op 'nonsense' is unknown" in errors
    assert run("fovea-opt", "--no-such-option")[0] == 1


def test_interrupt():
    process = start("fovea-lsp-server")
    request = json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"capabilities": {}}})
    process.stdin.write(f"Content-Length: {len(request)}\r\n\r\n{request}")
    process.stdin.flush()
    # It answers, and so waits for more.
    assert process.stdout.readline().startswith("Content-Length")
    process.send_signal(signal.SIGINT)
    process.communicate()
    assert process.returncode == -signal.SIGINT
