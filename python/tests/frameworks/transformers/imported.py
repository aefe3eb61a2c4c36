# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What tests of imported models share."""

import re
import subprocess
import sys


def run(*command):
    """What a command prints."""
    return subprocess.run([str(each) for each in command], check=True, capture_output=True, text=True).stdout


def run_tool(name, *arguments):
    # Tools end their process.
    code = "import sys; from fovea._fovea import run_tool; sys.exit(run_tool(sys.argv[1], sys.argv[2:]))"
    return run(sys.executable, "-c", code, name, *arguments)


def find_raised(text, folder):
    """The attentions of a module that are raised: the text of each."""
    source = folder / "source.mlir"
    source.write_text(text)
    passes = ["--inline", "--canonicalize", "--cse", "--canonicalize", "--attn-raise"]
    return re.findall(r"attn\.dense(?:.|\n)*? outs\(.*", run_tool("fovea-opt", source, *passes))


def count_raised(text, folder):
    return len(find_raised(text, folder))
