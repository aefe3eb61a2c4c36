# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A format of lit. It is a module, for lit hands it to processes of its own."""

import os
import zlib

import lit.formats
import lit.Test


class PartOfLongTests(lit.formats.ShTest):
    """FOVEA_PART=k/n leaves out all but the k-th of n parts of the tests that say `REQUIRES: long-tests`."""

    def execute(self, test, lit_config):
        part, parts = map(int, os.environ.get("FOVEA_PART", "1/1").split("/"))
        if not 1 <= part <= parts:
            raise ValueError(f"FOVEA_PART must be k/n with k from 1 to n, but is {part}/{parts}")
        name = "/".join(test.path_in_suite)
        if zlib.crc32(name.encode()) % parts == part - 1 or not is_long(test):
            return super().execute(test, lit_config)
        return lit.Test.Result(lit.Test.UNSUPPORTED, f"not in part {part} of {parts} of the long tests")


def is_long(test):
    with open(test.getSourcePath(), encoding="utf-8", errors="replace") as source:
        return any("REQUIRES:" in line and "long-tests" in line for line in source)
