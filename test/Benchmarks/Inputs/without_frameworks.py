# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs a script with its arguments where neither PyTorch nor JAX is found."""

import runpy
import sys

sys.modules.update(torch=None, jax=None)
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
