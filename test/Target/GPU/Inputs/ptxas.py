# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What ptxas says of a module."""

import re
import subprocess
import tempfile


def measure(program, chip, ptx):
    """The most registers of a thread, and all bytes that are spilled.

    Warnings C75xx, that wgmma is serialised or its registers are moved, are errors."""
    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
        file.write(ptx)
        file.flush()
        log = subprocess.run([program, f"-arch={chip}", "-v", file.name, "-o", "/dev/null"],
                             capture_output=True, text=True, check=True)
    said = log.stdout + log.stderr
    if warnings := re.findall(r".*\bC75\d\d\b.*", said):
        raise SystemExit(f"ptxas for {chip}: {warnings[0]}")
    return (max(map(int, re.findall(r"Used (\d+) registers", said))),
            sum(map(int, re.findall(r"(\d+) bytes spill", said))))
