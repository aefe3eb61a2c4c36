# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs a program whose standard output cannot be written: it must say so in one
line and return 1."""

import os
import subprocess
import sys


def unread():
    """A pipe that nobody reads."""
    reading, writing = os.pipe()
    os.close(reading)
    return writing


for name, output in (("full", os.open("/dev/full", os.O_WRONLY)), ("unread", unread()), ("closed", None)):
    process = subprocess.run(
        sys.argv[1:],
        stdout=output,
        stderr=subprocess.PIPE,
        preexec_fn=(lambda: os.close(1)) if output is None else None,
        text=True,
    )
    errors = process.stderr.splitlines()
    if process.returncode != 1 or len(errors) != 1 or " error: " not in errors[0]:
        sys.exit(f"{name}: {sys.argv[1]} returned {process.returncode} and said\n{process.stderr}")
