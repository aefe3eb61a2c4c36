# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The tools as commands, `fovea-opt` and its siblings, that a wheel installs."""

import os
import signal
import sys

from ._fovea import run_tool


def main() -> int:
    """Runs the tool that this process was started as."""
    # The tool is a program like any other: signals end it.
    for number in (signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    return run_tool(os.path.basename(sys.argv[0]), sys.argv[1:])
