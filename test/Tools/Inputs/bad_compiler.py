#!/usr/bin/env python3
# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a compiler may do wrong, by the name of the function that it is given."""

import os
import sys
import time

text = sys.stdin.read()
if not any(argument.startswith("--attn") for argument in sys.argv):
    sys.exit(0 if "\n// -----\n" not in text else print("\n// -----\n" * text.count("\n// -----\n")))
if "@runs" in text:
    os.abort()
if "@refused" in text:
    time.sleep(60)
if "@twice" in text and "@aliases" not in text:
    sys.exit(1)
if "@several" in text and "@aliases" not in text:
    sys.exit("<stdin>:1:1: error: one\n<stdin>:2:1: error: another")
sys.exit("<stdin>:2:1: error: unrealized_conversion_cast of what nobody wrote")
